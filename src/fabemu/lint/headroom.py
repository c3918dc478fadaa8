"""Headroom of lossless priority groups, and room of slow receivers, against their bound."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.rows import group_rows
from fabemu.headroom import HeadroomTerms, headroom_terms
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.frame import MADE_FOR_LESS
from fabemu.lint.subject import Subject, count
from fabemu.plan import FOREVER_PS
from fabemu.units import format_rate, format_time

_MTUS = (2048, 1024, 512, 256)
_PS_PER_METRE = 5000

SHORT = Rule(
    code="FB101",
    severity="error",
    title="headroom below the bound",
    meaning="The headroom of a lossless priority group is smaller than what can still arrive after XOFF was raised.",
    reason="Frames of a class that is called lossless are dropped when the link is full at the moment of the pause. It "
    "may take a rare coincidence of frames, so a test that saw no drop proves nothing.",
    formula="bound = F + R (w(F) + w(PFC) + 2 d + response) + F + gap, with F the largest frame, w(x) the time of x on "
    "the wire, R the rate and d the propagation delay of the link: the frame that raised XOFF; what arrives while our "
    "frame keeps the PFC frame waiting, while the PFC frame is sent, travels and is responded to, and while the last "
    "bits come back; and the sender's frame, if it had just begun. With cells, each F takes whole ones, and what "
    "arrives in between is multiplied by what a frame takes in cells over its bytes on the wire, for the worst size.",
    source="IEEE 802.1Q (802.1Qbb), its annex on buffer requirements for priority-based flow control; "
    "src/fabemu/headroom.py.",
    remedy='Leave switch.pfc.headroom = "auto", which is the bound of each port. A headroom stated in bytes must be '
    "that of the fastest, longest link with the largest frames; overrides can give long links more.",
)

RECEIVER = Rule(
    code="FB107",
    severity="error",
    title="receiver buffer too small behind its XOFF threshold",
    meaning="A host that receives slowly sends XOFF at nic.receiver.xoff, but its buffer cannot take what still "
    "arrives until the switch has stopped.",
    reason="Frames of lossless classes are dropped by the NIC (cause receiver_full) although PFC works.",
    formula="buffer >= n (xoff - 1 + bound), with n lossless classes and the bound of FB101 for the host's link: all "
    "classes share the buffer. Data of lossy classes does, too, and nothing holds it back.",
    source="As FB101.",
    remedy="Leave nic.receiver.buffer to its default, or lower nic.receiver.xoff.",
)

RULES = (SHORT, RECEIVER)


def short_headrooms(subject: Subject) -> list[Finding]:
    """FB101 and FB503."""
    plan = subject.plan
    headroom, sends = subject.queues("pq_headroom_bytes"), subject.queues("pq_pfc_send")
    found, smaller = Grouped(SHORT), Grouped(MADE_FOR_LESS)
    ports, items = subject.pfc_queues
    sending = sends[ports, items] != 0  # the others are FB103: no headroom would be enough
    ports, items = ports[sending], items[sending]
    cells = plan.switch_cell_bytes[plan.port_node[ports] - plan.host_count]
    kind, examples = group_rows([headroom[ports, items], cells, *_link(subject, ports)])
    terms_of_kind = [
        _terms(subject, port, cell)
        for port, cell in zip(ports[examples].tolist(), cells[examples].tolist(), strict=True)
    ]
    bound_of_kind = np.array([terms.total_bytes for terms in terms_of_kind], dtype=np.int64)
    short = headroom[ports[examples], items[examples]] < bound_of_kind
    said: dict[int, tuple[str, int | None]] = {}  # by kind: the message, and the MTU that is small enough
    for at in np.flatnonzero(short[kind]).tolist():
        number, port = int(kind[at]), int(ports[at])
        given, cell = int(headroom[port, items[at]]), int(cells[at])
        terms, bound = terms_of_kind[number], int(bound_of_kind[number])
        if number not in said:
            message = (
                f"headroom {count(given)} is below the {count(bound)} that "
                f"{format_rate(int(plan.port_rate_bps[port]))}, {format_time(int(plan.port_delay_ps[port]))} "
                f"and frames of {count(subject.largest_frame_bytes)} need ({terms}): "
                f"lossless classes may drop{_enough_for(subject, port, given, cell)}"
            )
            said[number] = message, _enough_for_mtu(subject, port, given, cell)
        message, mtu = said[number]
        found.add(subject.port(port), message, given_bytes=given, bound_bytes=bound, terms_bytes=terms.by_name())
        if mtu is not None:
            text = f"headroom {count(given)} is enough for an MTU of {mtu}, but nic.mtu is {plan.mtu_bytes}"
            smaller.add(subject.port(port), text, given_bytes=given, mtu_bytes=mtu)
    return [*found.findings(), *smaller.findings()]


def _link(subject: Subject, ports: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Rate, delay and response of the peer at each port: what bounds depend on."""
    plan = subject.plan
    return plan.port_rate_bps[ports], plan.port_delay_ps[ports], plan.port_pfc_response_ps[plan.port_peer[ports]]


def short_receivers(subject: Subject) -> list[Finding]:
    """FB107."""
    plan = subject.plan
    found = Grouped(RECEIVER)
    classes = int(subject.lossless.sum())
    ports = np.arange(int(plan.node_port_start[plan.host_count]))
    ports = ports[(plan.port_rx_xoff_bytes[ports] != FOREVER_PS) & (plan.port_credit[ports] == 0)]
    if not classes or not len(ports):
        return []
    times = "" if classes == 1 else f"{classes} x "
    kind, examples = group_rows([*_link(subject, ports)])
    bound_bytes = np.array([_terms(subject, port, 1).total_bytes for port in ports[examples].tolist()], dtype=np.int64)
    needed_bytes = classes * (plan.port_rx_xoff_bytes[ports] - 1 + bound_bytes[kind])
    for at in np.flatnonzero(plan.port_rx_buffer_bytes[ports] < needed_bytes).tolist():
        port, bound, needed = int(ports[at]), int(bound_bytes[kind[at]]), int(needed_bytes[at])
        xoff, buffer = int(plan.port_rx_xoff_bytes[port]), int(plan.port_rx_buffer_bytes[port])
        terms = f"xoff {count(xoff)} - 1 + {count(bound)}"
        message = (
            f"buffer {count(buffer)} is below {f'{times}({terms})' if times else terms} = {count(needed)}: "
            "lossless classes may drop at the receiver"
        )
        found.add(subject.port(port), message, buffer_bytes=buffer, xoff_bytes=xoff, bound_bytes=bound)
    return found.findings()


def _terms(subject: Subject, port: int, cell_bytes: int, *, mtu_bytes: int | None = None) -> HeadroomTerms:
    plan = subject.plan
    frame = subject.largest_frame_bytes
    if mtu_bytes is not None:
        frame = max(
            plan.ack_bytes, plan.cnp_bytes, mtu_bytes + frame - -(-plan.mtu_bytes // plan.pad_bytes) * plan.pad_bytes
        )
    return headroom_terms(
        rate_bps=int(plan.port_rate_bps[port]),
        delay_ps=int(plan.port_delay_ps[port]),
        response_ps=int(plan.port_pfc_response_ps[plan.port_peer[port]]),
        frame_bytes=frame,
        pfc_bytes=subject.pfc_frame_bytes,
        wire_overhead_bytes=plan.wire_overhead_bytes,
        frame_min_bytes=plan.frame_min_bytes,
        cell_bytes=cell_bytes,
    )


def _enough_for(subject: Subject, port: int, given: int, cell_bytes: int) -> str:
    """The shorter cable that the headroom may have been made for."""
    plan = subject.plan
    if cell_bytes > 1:
        return ""
    rate, delay = int(plan.port_rate_bps[port]), int(plan.port_delay_ps[port])
    spare_ps = delay - -(-(_terms(subject, port, cell_bytes).total_bytes - given) * 8 * 10**12 // (2 * rate))
    return f"; it is enough for cables of up to {spare_ps // _PS_PER_METRE} m" if spare_ps >= _PS_PER_METRE else ""


def _enough_for_mtu(subject: Subject, port: int, given: int, cell_bytes: int) -> int | None:
    """The greatest smaller MTU that the headroom is enough for."""
    for mtu in _MTUS:
        if mtu < subject.plan.mtu_bytes and _terms(subject, port, cell_bytes, mtu_bytes=mtu).total_bytes <= given:
            return mtu
    return None
