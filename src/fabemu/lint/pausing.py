"""Pauses: how long one lasts, which hops take part, and of which class."""

from __future__ import annotations

import numpy as np

from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.subject import Subject
from fabemu.units import format_time

SHORT = Rule(
    code="FB102",
    severity="error",
    title="pause time too short for its refresh",
    meaning="A pause of switch.pfc.quanta ends before the PFC frame that renews it can take effect.",
    reason="The sender goes on in the gap although XOFF stands; again and again this overruns the headroom, and frames "
    "of lossless classes are lost.",
    formula="pause - floor(pause / 2) >= w(F), with pause = quanta x 512 bit times: the refresh is due at half time "
    "and may wait for one of our largest frames F. Propagation and response delay are the same for both PFC frames "
    "and cancel.",
    source="IEEE 802.3, annexes 31B and 31D (quanta of 512 bit times); MODEL section 7 (refresh).",
    remedy="Leave switch.pfc.quanta = 65535, or make the pause at least two of the largest frames long.",
)
OFF = Rule(
    code="FB103",
    severity="error",
    title="PFC off on a hop",
    meaning="On a link without credits, the receiver does not send PFC for a lossless class, or the sender does not "
    "obey it.",
    reason="One such hop is enough: its buffer overflows under congestion while all others wait, and the class loses "
    "frames there.",
    formula="",
    source="IEEE 802.1Q-2022, clause 36 (per-priority enable at both ends); Guo et al., RDMA over Commodity Ethernet "
    "at Scale, SIGCOMM 2016.",
    remedy="Set pfc.enabled at both ends of every link that carries the class.",
)
LOSSY = Rule(
    code="FB104",
    severity="error",
    title="class lossless on one hop and lossy on the next",
    meaning="The device that sends treats frames of a class as lossless, the switch that receives them maps them to a "
    "lossy class.",
    reason="No XOFF is ever raised for them there: they are dropped when the shared buffer or the egress limit is "
    "reached.",
    formula="lossless[map_sender[c]] and not lossless[map_receiver[c]]",
    source="Guo et al., RDMA over Commodity Ethernet at Scale, SIGCOMM 2016 (DSCP-based PFC: what a lost "
    "marking does).",
    remedy="Give all switches the same class_map, from the hosts on.",
)
CROSSED = Rule(
    code="FB105",
    severity="error",
    title="pause of the wrong priority",
    meaning="The receiver puts frames into a lossless class other than the one in whose queue the sender holds them, "
    "so its PFC frames pause a queue in which these frames are not.",
    reason="The frames that overrun the buffer are not paused: they are lost, and an innocent class waits for them.",
    formula="lossless[map_receiver[c]] and map_sender[c] != map_receiver[c]",
    source="IEEE 802.1Q-2022, clause 36: a PFC frame names priorities, not flows.",
    remedy="Give all devices the same class_map; a host sends in the class of its workload.",
)
RULES = (SHORT, OFF, LOSSY, CROSSED)


def short_pauses(subject: Subject) -> list[Finding]:
    """FB102."""
    plan, found = subject.plan, Grouped(SHORT)
    if plan.ns3_pfc or not subject.lossless.any():
        return []
    sends = (subject.queues("pq_pfc_send")[:, subject.lossless] != 0).any(axis=1)
    ports = subject.switch_ports
    ports = ports[sends[ports] & (plan.port_credit[ports] == 0) & (plan.port_pause_ps[ports] > 0)]
    rates, rate_number = np.unique(plan.port_rate_bps[ports], return_inverse=True)
    frames_ps = [subject.wire_ps(subject.largest_frame_bytes, rate) for rate in rates.tolist()]
    half_ps = plan.port_pause_ps[ports] - plan.port_pause_ps[ports] // 2
    for at in np.flatnonzero(half_ps < np.array(frames_ps, dtype=np.int64)[rate_number]).tolist():
        port, frame_ps = int(ports[at]), frames_ps[rate_number[at]]
        rate, pause_ps = int(plan.port_rate_bps[port]), int(plan.port_pause_ps[port])
        quanta = round(pause_ps * rate / (512 * 10**12))
        message = (
            f"quanta = {quanta} pause for {format_time(pause_ps)}, less than twice the {format_time(frame_ps)} of "
            "the largest frame: pauses run out before they are refreshed"
        )
        found.add(subject.port(port), message, pause_ps=pause_ps, frame_ps=frame_ps)
    return found.findings()


def hops_without(subject: Subject) -> list[Finding]:
    """FB103."""
    plan, found = subject.plan, Grouped(OFF)
    sends, obeys = subject.queues("pq_pfc_send"), subject.queues("pq_pfc_obey")
    ports, items = subject.pfc_queues
    without = (sends[ports, items] == 0) | (obeys[plan.port_peer[ports], items] == 0)
    for port, item in zip(ports[without].tolist(), items[without].tolist(), strict=True):
        name, peer = subject.compiled.class_names[item], int(plan.port_peer[port])
        if not sends[port, item]:
            found.add(subject.port(port), f"sends no PFC for the lossless class {name}: what comes in there may drop")
        elif not obeys[peer, item]:
            switch = subject.node(int(plan.port_node[port]))
            message = f"does not obey PFC for the lossless class {name}: its peer cannot stop it and may drop"
            found.add(subject.port(peer), message, peer=switch)
    return found.findings()


def mapped_hops(subject: Subject) -> list[Finding]:
    """FB104 and FB105."""
    lossy, crossed = Grouped(LOSSY), Grouped(CROSSED)
    treated, lossless, names = subject.treated, subject.lossless, subject.compiled.class_names
    plan = subject.plan
    into = np.flatnonzero(subject.peer_node >= plan.host_count)  # ports whose peer is a switch
    sender, receiver = treated[plan.port_node[into]], treated[subject.peer_node[into]]
    for at, item in np.argwhere(sender != receiver).tolist():
        before, after = int(sender[at, item]), int(receiver[at, item])
        port, switch = int(into[at]), subject.node(int(subject.peer_node[into[at]]))
        if lossless[after]:
            message = (
                f"frames of class {names[item]} wait here as {names[before]}, but their buffer at {switch} pauses "
                f"{names[after]}: nothing stops them, and they may drop"
            )
            crossed.add(subject.port(port), message)
        elif lossless[before]:
            message = f"class {names[item]} is lossless here ({names[before]}) and lossy at {switch} ({names[after]})"
            lossy.add(subject.port(port), message)
    return [*lossy.findings(), *crossed.findings()]
