"""ECN: whether senders are told before PFC stops them, and whether they are told at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.rows import group_rows
from fabemu.distinct import distinct
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.path import hops
from fabemu.lint.subject import NEVER_MARK_BYTES, Subject, count, shown
from fabemu.lint.threshold import Q16, reached_bytes
from fabemu.plan import CC_DCQCN_ADAPTER, CC_DCQCN_PAPER, NONE, VERB_READ

_SOURCE = (
    "Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015 (ECN must act before "
    "PFC); Choudhury & Hahne 1998 (the threshold)."
)
_FORMULA = (
    "T = alpha P / (1 + k alpha), with P the pool and k the priority groups that are congested at once: every one of "
    "them stops at T = alpha (P - k T). A static threshold is T itself. k is the number of ports of the switch over "
    "which flows of the class come in for an egress port whose inflow is faster than its link (all flows of the "
    "scenario together, on the paths that their hashes give), at least 1; `--congested-ports` sets it."
)
KMIN = Rule(
    code="FB203",
    severity="warning",
    title="ECN kmin above the PFC threshold",
    meaning="A queue whose bytes all came in by one port raises XOFF before its length reaches kmin.",
    reason="PFC acts before any packet is marked: congestion control never learns of the congestion, pauses spread "
    "instead, and flows that share nothing with it wait.",
    formula="kmin > T, with " + _FORMULA,
    source=_SOURCE,
    remedy="Lower switch.ecn.kmin below the threshold, or raise switch.pfc.alpha or the buffer.",
)
KMAX = Rule(
    code="FB204",
    severity="warning",
    title="ECN kmax above the PFC threshold",
    meaning="As FB203, for kmax and a priority group that is alone in filling the pool (k = 1): XOFF comes while "
    "only some of the packets are marked.",
    reason="Marking never reaches its full strength before PFC pauses. Senders still slow down, but PFC shares the "
    "work.",
    formula="kmax > T, with " + _FORMULA,
    source=_SOURCE,
    remedy="As FB203, with switch.ecn.kmax.",
)
CROWDED = Rule(
    code="FB207",
    severity="note",
    title="ECN kmax above the PFC threshold when many ports are congested",
    meaning="As FB204, but only with as many congested ports as are to be expected.",
    reason="In a burst that meets all these ports at once PFC acts before marking has reached its full strength.",
    formula="kmax > T, with " + _FORMULA,
    source=_SOURCE,
    remedy="As FB204, if such bursts matter.",
)
UNMARKED = Rule(
    code="FB205",
    severity="warning",
    title="congestion control that no mark reaches",
    meaning="Senders of a lossless class run DCQCN, but the class is not ECN-capable, or no switch marks it.",
    reason="Without marks DCQCN stays at line rate; only PFC slows anything.",
    formula="",
    source="RFC 3168; Zhu et al., SIGCOMM 2015.",
    remedy='Set ecn = true for the class and switch.ecn.enabled = true, or say nic.cc.kind = "none".',
)
GAP = Rule(
    code="FB206",
    severity="warning",
    title="ECN on some hops and not on others",
    meaning="An ECN class is marked at some egress ports of switches and not at others.",
    reason="Congestion at the ports that do not mark is left to PFC.",
    formula="",
    source="RFC 3168, section 5 (marking is up to each router on the path).",
    remedy="Enable switch.ecn at every switch, or, if only some are meant to mark, take this as a reminder.",
)
UNREACHED = Rule(
    code="FB208",
    severity="warning",
    title="ECN kmin that no queue reaches",
    meaning="Where PFC does not bound a queue, on links with credits and in lossy classes, something else does: the "
    "credits of all other ports, a static egress limit, or the buffer. It is not above kmin.",
    reason="No packet is ever marked there, whatever the congestion: senders wait for credits or lose packets, and "
    "congestion control never learns why.",
    formula="kmin >= R, with R the sum of the credit buffers of the class at all other ports of the switch if all of "
    "them have credits, else its buffer; in a lossy class at most switch.lossy.egress_static",
    source="MODEL sections 6 and 7.",
    remedy="Lower switch.ecn.kmin, or raise what bounds the queue.",
)
RULES = (KMIN, KMAX, UNMARKED, GAP, CROWDED, UNREACHED)


def late_marks(subject: Subject) -> list[Finding]:
    """FB203, FB204 and FB207."""
    plan = subject.plan
    kmin_found, kmax_found, crowded = Grouped(KMIN), Grouped(KMAX), Grouped(CROWDED)
    kmin, kmax = subject.queues("pq_kmin_bytes"), subject.queues("pq_kmax_bytes")
    alpha, static = subject.queues("pq_alpha_q16"), subject.queues("pq_static_bytes")
    marks = _marking(subject)
    ports = subject.switch_ports[plan.port_credit[subject.switch_ports] == 0]
    for item in np.flatnonzero(subject.lossless).tolist():
        congested = _congested_ports(subject, item)
        switch = plan.port_node[ports] - plan.host_count
        columns = [switch, congested[switch], alpha[ports, item], static[ports, item], kmin[ports, item]]
        columns += [kmax[ports, item], marks[ports, item]]
        _, examples = group_rows(columns)
        rows = np.stack([column[examples] for column in columns], axis=1).astype(np.int64)
        for at, groups, alpha_q16, static_bytes, low, high, marked in rows.tolist():
            if not marked:
                continue
            pool = int(plan.switch_pool_bytes[at])
            alone, threshold = (
                static_bytes if static_bytes != NONE else reached_bytes(pool, alpha_q16, k) for k in (1, groups)
            )
            if low > alone:
                key, value, threshold, groups, found = "kmin", low, alone, 1, kmin_found
            elif low > threshold:
                key, value, found = "kmin", low, kmin_found
            elif high > alone:
                key, value, threshold, groups, found = "kmax", high, alone, 1, kmax_found
            elif high > threshold:
                key, value, found = "kmax", high, crowded
            else:
                continue
            if static_bytes != NONE:
                which = f"the static PFC threshold {count(threshold)}"
            else:
                who = (
                    "one congested priority group reaches"
                    if groups == 1
                    else f"each of {groups} congested ports reaches"
                )
                which = (
                    f"the PFC threshold {count(threshold)} that {who} (pool {count(pool)}, alpha {alpha_q16 / Q16:g})"
                )
            found.add(
                subject.node(plan.host_count + at),
                f"ECN {key} = {shown(value)} is above {which}: PFC pauses before "
                f"{'any' if key == 'kmin' else 'every'} packet is marked",
                threshold_bytes=threshold,
                congested_ports=groups,
                **{f"{key}_bytes": value},
            )
    return [*kmin_found.findings(), *kmax_found.findings(), *crowded.findings()]


def unreached_marks(subject: Subject) -> list[Finding]:
    """FB208."""
    plan, found = subject.plan, Grouped(UNREACHED)
    kmin, marks = subject.queues("pq_kmin_bytes"), _marking(subject)
    limits, lanes = subject.queues("pq_egress_static_bytes"), subject.queues("pq_credit_bytes")
    ports = subject.switch_ports
    switch = plan.port_node[ports] - plan.host_count
    paused = plan.port_credit[ports] == 0
    # Of all other ports of the same switch.
    others = np.bincount(switch, minlength=len(plan.switch_buffer_bytes))[switch] - 1
    others_paused = np.bincount(switch, paused, len(plan.switch_buffer_bytes))[switch] - paused
    for item in np.flatnonzero(plan.class_ecn).tolist():
        lane = lanes[ports, item]
        let_in = np.bincount(switch, lane, len(plan.switch_buffer_bytes))[switch] - lane
        with_credits = (others > 0) & (others_paused == 0)
        buffer = plan.switch_buffer_bytes[switch]
        limit = limits[ports, item]
        # A lossless class without credits is bounded by PFC: FB203.
        for at in np.flatnonzero(marks[ports, item] & (with_credits | (not subject.lossless[item]))).tolist():
            reach, what = int(buffer[at]), "the buffer holds"
            if with_credits[at] and let_in[at] < reach:
                reach, what = int(let_in[at]), "the credits of all other ports let in"
            if not subject.lossless[item] and limit[at] != NONE and limit[at] < reach:
                reach, what = int(limit[at]), "its egress limit lets wait"
            low, name = int(kmin[ports[at], item]), subject.compiled.class_names[item]
            if low >= reach:
                message = (
                    f"ECN kmin = {shown(low)} of class {name} is not below the {count(reach)} that {what}: nothing is "
                    "marked"
                )
                found.add(subject.port(int(ports[at])), message, kmin_bytes=low, reach_bytes=reach)
    return found.findings()


def missing_marks(subject: Subject) -> list[Finding]:
    """FB205 and FB206."""
    plan, marks = subject.plan, _marking(subject)
    found: list[Finding] = []
    senders = np.where(plan.qp_verb == VERB_READ, plan.qp_dst, plan.qp_src)
    controlled = np.isin(plan.nic_cc[plan.host_nic[senders]], (CC_DCQCN_PAPER, CC_DCQCN_ADAPTER))
    # The scale-up network marks nothing, whatever [switch] says: its senders wait for credits.
    ports = subject.switch_ports[~subject.scale_up[subject.switch_ports]]
    for item, name in enumerate(subject.compiled.class_names):
        marked = marks[ports, item]
        used = controlled & (plan.qp_class == item)
        if subject.lossless[item] and used.any() and not marked.any():
            why = "no switch marks it" if plan.class_ecn[item] else "the class is not ECN-capable"
            found.append(UNMARKED.at(f"class {name}", f"{int(used.sum())} queue pairs run DCQCN, but {why}"))
        if marked.any() and not marked.all():
            gaps = [subject.port(port) for port in ports[~marked].tolist()]
            found.append(GAP.at(gaps, f"class {name} is not marked here, but at other switch ports"))
    return found


def _marking(subject: Subject) -> NDArray[np.bool_]:
    """(P, C) whether data of the class is marked at an egress queue."""
    plan = subject.plan
    ecn = (subject.queues("pq_ecn") != 0) & (subject.queues("pq_kmin_bytes") < NEVER_MARK_BYTES)
    marks: NDArray[np.bool_] = ecn & (plan.class_ecn != 0)[None, :]
    return marks


def _congested_ports(subject: Subject, item: int) -> NDArray[np.int64]:
    """(S,) ports of every switch over which a class comes in for an egress port that is slower than its inflow."""
    plan = subject.plan
    switch_count = plan.node_count - plan.host_count
    if subject.congested_ports is not None:
        return np.full(switch_count, subject.congested_ports, dtype=np.int64)
    qps = np.flatnonzero(plan.qp_class == item)
    read = plan.qp_verb[qps] == VERB_READ
    src = np.where(read, plan.qp_dst[qps], plan.qp_src[qps])
    dst = np.where(read, plan.qp_src[qps], plan.qp_dst[qps])
    pairs = np.zeros(0, dtype=np.int64)
    before = np.zeros(len(qps), dtype=np.int64)
    for hop, (active, port) in enumerate(hops(plan, src, dst, plan.qp_hash[qps])):
        if hop:  # the first port is the host's own
            crossed = plan.port_peer[before[active]].astype(np.int64) * plan.port_count + port
            pairs = distinct(np.concatenate([pairs, crossed]))
        before[active] = port
    ingress, egress = np.divmod(pairs, max(1, plan.port_count))
    inflow = np.zeros(plan.port_count, dtype=np.float64)
    np.add.at(inflow, egress, plan.port_rate_bps[ingress])
    busy = distinct(ingress[inflow[egress] > plan.port_rate_bps[egress]])
    congested = np.zeros(switch_count, dtype=np.int64)
    np.add.at(congested, plan.port_node[busy] - plan.host_count, 1)
    return np.maximum(congested, 1)
