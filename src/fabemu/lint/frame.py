"""Frames larger than what buffers and schedulers were set up for."""

from __future__ import annotations

import numpy as np

from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.subject import Subject, count

LANE = Rule(
    code="FB501",
    severity="error",
    title="frame larger than a credit buffer",
    meaning="The largest frame, in blocks of 64 bytes, does not fit the receive buffer of a virtual lane.",
    reason="Its credits never suffice: the first such frame blocks the lane for ever.",
    formula="ceil(F / 64) * 64 <= credit buffer of the lane",
    source="InfiniBand Architecture, volume 1, link layer (flow control in blocks of 64 bytes).",
    remedy="Raise link.credit_buffer, or lower nic.mtu.",
)
QUANTUM = Rule(
    code="FB502",
    severity="error",
    title="frame larger than a scheduling quantum",
    meaning="The quantum of a weighted class at a switch port is below the largest frame.",
    reason="The scheduler may serve a class once a round only if its quantum pays for any frame; the weights do not "
    "hold otherwise.",
    formula="quantum >= F",
    source="Shreedhar & Varghese, Efficient Fair Queuing using Deficit Round Robin, SIGCOMM 1995 (quantum >= largest "
    "packet for O(1) work).",
    remedy="Raise the weights of switch.weights together, or lower nic.mtu.",
)
MADE_FOR_LESS = Rule(
    code="FB503",
    severity="warning",
    title="MTU larger than what the headroom was made for",
    meaning="The headroom of a lossless priority group is below its bound (FB101), but not for a smaller InfiniBand "
    "MTU. nic.mtu is one for the whole scenario, so the two ends of a link cannot differ in it here.",
    reason="The usual cause is a buffer profile made for one MTU and used with another. Large frames count three "
    "times: the one that raises XOFF, ours that delays the PFC frame, and the last one of the sender.",
    formula="bound(mtu) > headroom >= bound(smaller mtu), with the bound of FB101",
    source="As FB101.",
    remedy='switch.pfc.headroom = "auto", or the MTU that the profile was made for.',
)
RULES = (LANE, QUANTUM, MADE_FOR_LESS)


def small_lanes(subject: Subject) -> list[Finding]:
    """FB501."""
    plan, found = subject.plan, Grouped(LANE)
    credit, needed = subject.queues("pq_credit_bytes"), -(-subject.largest_frame_bytes // 64) * 64
    for port, item in np.argwhere((plan.port_credit != 0)[:, None] & (credit < needed)).tolist():
        if not subject.lossless[item] and not credit[port, item]:
            continue  # a lane that nobody uses
        message = (
            f"lane {subject.compiled.class_names[item]} has a credit buffer of {count(int(credit[port, item]))}, less "
            f"than the {count(needed)} of the largest frame: it would block for ever"
        )
        found.add(subject.port(port), message, credit_bytes=int(credit[port, item]), frame_bytes=needed)
    return found.findings()


def small_quanta(subject: Subject) -> list[Finding]:
    """FB502."""
    plan, found = subject.plan, Grouped(QUANTUM)
    quantum = subject.queues("pq_quantum_bytes")
    at_switch = (plan.port_node >= plan.host_count)[:, None]
    for port, item in np.argwhere(at_switch & (quantum > 0) & (quantum < subject.largest_frame_bytes)).tolist():
        message = (
            f"the quantum of class {subject.compiled.class_names[item]} is {count(int(quantum[port, item]))}, less "
            f"than the {count(subject.largest_frame_bytes)} of the largest frame"
        )
        found.add(subject.port(port), message, quantum_bytes=int(quantum[port, item]))
    return found.findings()
