"""Timers that cannot do their work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.path import hops
from fabemu.lint.subject import Subject
from fabemu.plan import CC_DCQCN_ADAPTER, CC_DCQCN_PAPER, NOTIFY_CNP, VERB_READ, VERB_WRITE
from fabemu.units import format_time

_CHUNK = 1 << 18  # queue pairs at a time

INTERVAL = Rule(
    code="FB401",
    severity="warning",
    title="CNP interval longer than the rate timer",
    meaning="The receiver of a queue pair sends CNPs more rarely than its DCQCN sender raises its rate (or, in the "
    "paper's machine, lets alpha decay).",
    reason="Between two CNPs the sender speeds up although it is still congested; alpha falls between them and never "
    "tells how bad it is. Rates swing, and PFC does the work.",
    formula='cnp_interval <= increase_timer; preset = "paper" also: cnp_interval <= alpha_timer',
    source="Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015 (the alpha timer must be "
    "longer than the CNP interval).",
    remedy="Shorten nic.cc.cnp_interval at the receivers or lengthen the timers at the senders.",
)
TIMEOUT = Rule(
    code="FB402",
    severity="error",
    title="retransmission timeout below the round trip",
    meaning="The timeout of a queue pair is shorter than its largest packet and the ACK take on an empty network.",
    reason="Every packet is sent again before its ACK can come: the link carries everything twice or more, and the "
    "queue pair fails after retry_count timeouts.",
    formula="4.096 us x 2^timeout >= sum over the path of w(packet) + delay + latency, and the same back with w(ACK)",
    source="InfiniBand Architecture, volume 1, section 9.7.6.1.3 (detecting lost acknowledge messages and timeouts); "
    "MODEL section 10.",
    remedy="Raise nic.timeout; 14 (67 ms) is usual.",
)
WATCHDOG = Rule(
    code="FB403",
    severity="error",
    title="watchdog polls more rarely than it is to detect",
    meaning="The poll interval of a switch's PFC watchdog is longer than its detection time.",
    reason="A storm is seen one poll late at best, and one that ends and comes back between polls is never seen.",
    formula="poll_interval <= detection_time",
    source="SONiC, YANG model of PFC_WD (detection_time and restoration_time are not below POLL_INTERVAL).",
    remedy="Lower switch.watchdog.poll_interval or raise detection_time.",
)
RULES = (INTERVAL, TIMEOUT, WATCHDOG)


def slow_notifications(subject: Subject) -> list[Finding]:
    """FB401."""
    plan, found = subject.plan, Grouped(INTERVAL)
    senders, receivers = _ends(subject)
    pairs = np.stack([plan.host_nic[senders], plan.host_nic[receivers]], axis=1)
    profiles, first = np.unique(pairs, axis=0, return_index=True) if len(pairs) else (pairs, np.zeros(0, dtype=int))
    for (sender, receiver), qp in zip(profiles.tolist(), first.tolist(), strict=True):
        machine = plan.nic_cc[sender]
        if machine not in (CC_DCQCN_PAPER, CC_DCQCN_ADAPTER) or plan.nic_notify[receiver] != NOTIFY_CNP:
            continue
        interval_ps = int(plan.nic_cnp_interval_ps[receiver])
        timers = {"increase_timer": int(plan.nic_increase_timer_ps[sender])}
        if machine == CC_DCQCN_PAPER:
            timers["alpha_timer"] = int(plan.nic_alpha_timer_ps[sender])
        for name, timer_ps in timers.items():
            if interval_ps > timer_ps:
                message = (
                    f"cnp_interval = {format_time(interval_ps)} of the receiver is longer than {name} = "
                    f"{format_time(timer_ps)} of the sender"
                )
                place = f"{subject.node(int(senders[qp]))} to {subject.node(int(receivers[qp]))}"
                found.add(place, message, interval_ps=interval_ps, timer_ps=timer_ps)
    return found.findings()


def short_timeouts(subject: Subject) -> list[Finding]:
    """FB402."""
    plan = subject.plan
    if not plan.qp_count:
        return []
    payload = np.zeros(plan.qp_count, dtype=np.int64)
    sends = plan.op_qp >= 0
    np.maximum.at(payload, plan.op_qp[sends], plan.op_bytes[sends])
    payload = np.minimum(payload, plan.mtu_bytes)
    padded = -(-payload // plan.pad_bytes) * plan.pad_bytes
    extra = np.select([plan.qp_verb == VERB_WRITE, plan.qp_verb == VERB_READ], [plan.reth_bytes, plan.aeth_bytes], 0)
    frame = np.maximum(plan.frame_min_bytes, padded + plan.header_bytes + extra)
    worst: dict[int, tuple[int, int, int]] = {}  # by timeout: least slack, queue pair, round trip
    senders, receivers = _ends(subject)
    # A READ's timer is the requester's.
    rto = plan.nic_rto_ps[plan.host_nic[plan.qp_src]]
    for first in range(0, plan.qp_count, _CHUNK):
        qps = np.arange(first, min(first + _CHUNK, plan.qp_count))
        forth = _one_way_ps(subject, senders[qps], receivers[qps], plan.qp_hash[qps], frame[qps])
        back_frame = np.full(len(qps), max(plan.frame_min_bytes, plan.ack_bytes), dtype=np.int64)
        back_frame[plan.qp_verb[qps] == VERB_READ] = max(plan.frame_min_bytes, plan.read_request_bytes)
        trip = forth + _one_way_ps(subject, receivers[qps], senders[qps], plan.qp_ack_hash[qps], back_frame)
        for at in np.flatnonzero(rto[qps] < trip).tolist():
            key, slack = int(rto[qps[at]]), int(rto[qps[at]] - trip[at])
            if slack < worst.get(key, (1, 0, 0))[0]:
                worst[key] = (slack, int(qps[at]), int(trip[at]))
    return [
        TIMEOUT.at(
            f"{subject.node(int(plan.qp_src[qp]))} to {subject.node(int(plan.qp_dst[qp]))}",
            f"the retransmission timeout {format_time(rto_ps)} is below the {format_time(trip_ps)} that a packet and "
            "its ACK take on an empty network",
            timeout_ps=rto_ps,
            round_trip_ps=trip_ps,
        )
        for rto_ps, (_, qp, trip_ps) in sorted(worst.items())
    ]


def late_watchdogs(subject: Subject) -> list[Finding]:
    """FB403."""
    plan, found = subject.plan, Grouped(WATCHDOG)
    for at in np.flatnonzero(plan.watchdog_poll_ps > plan.watchdog_detect_ps).tolist():
        poll_ps, detect_ps = int(plan.watchdog_poll_ps[at]), int(plan.watchdog_detect_ps[at])
        message = (
            f"the watchdog polls every {format_time(poll_ps)}, more rarely than the {format_time(detect_ps)} in which "
            "it is to detect a storm"
        )
        found.add(subject.node(plan.host_count + at), message, poll_ps=poll_ps, detection_ps=detect_ps)
    return found.findings()


def _ends(subject: Subject) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(Q,) hosts that send and receive the data."""
    plan = subject.plan
    read = plan.qp_verb == VERB_READ
    return np.where(read, plan.qp_dst, plan.qp_src), np.where(read, plan.qp_src, plan.qp_dst)


def _one_way_ps(
    subject: Subject,
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    flow_hash: NDArray[np.uint32],
    frame_bytes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Time of one frame along its path on an empty network."""
    plan = subject.plan
    bits = (frame_bytes + plan.wire_overhead_bytes) * 8
    latency = np.concatenate([np.zeros(plan.host_count, dtype=np.int64), plan.switch_latency_ps])
    total = np.zeros(len(src), dtype=np.int64)
    for active, port in hops(plan, src, dst, flow_hash):
        total[active] += -(-bits[active] * 10**12 // plan.port_rate_bps[port])
        total[active] += plan.port_delay_ps[port] + latency[plan.port_node[port]]
    return total
