"""The shared buffer of a switch: whether it holds what it promises, and leaves room to share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.rows import group_rows
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.subject import Subject, count
from fabemu.lint.threshold import reached_bytes
from fabemu.plan import ACTION_HEADROOM, NONE
from fabemu.units import format_time

OVERSUBSCRIBED = Rule(
    code="FB201",
    severity="error",
    title="buffer oversubscribed by reserves and headrooms",
    meaning="Reserved bytes and headrooms of all priority groups of a switch, with its shared pool, come to more "
    "than its buffer: as configured (then the scenario is refused), or after a [[fault]] of kind headroom.",
    reason="Headroom is a promise to every priority group at once. A buffer that cannot keep them all loses lossless "
    "frames when enough ports pause together.",
    formula="sum(reserved) + sum(headroom) + pool <= buffer",
    source="MODEL section 6; Zhu et al., SIGCOMM 2015, buffer settings (the pool is the buffer less all headrooms).",
    remedy="Fewer lossless classes, shorter cables, smaller frames, a smaller reserve, or a larger buffer.",
)
SMALL_POOL = Rule(
    code="FB202",
    severity="warning",
    title="nothing left to share",
    meaning="The dynamic threshold of a lossless priority group that is alone in filling the pool is below two of the "
    "largest frames.",
    reason="Reserves and headrooms have eaten the buffer: PFC pauses at every burst of two frames, however short.",
    formula="alpha P / (1 + alpha) < 2 F, with P the pool and F the largest frame",
    source="Choudhury & Hahne, Dynamic queue length thresholds for shared-memory packet switches, 1998.",
    remedy="As FB201; a larger switch.pfc.alpha gives each group more of what there is.",
)
RULES = (OVERSUBSCRIBED, SMALL_POOL)


def oversubscribed(subject: Subject) -> list[Finding]:
    """FB201."""
    plan, found = subject.plan, Grouped(OVERSUBSCRIBED)
    if plan.ns3_buffer:  # that simulator sets aside one headroom a port, whatever the number of classes
        return []
    classes, hosts = plan.class_count, plan.host_count
    headroom = plan.pq_headroom_bytes.copy()
    reserved = _sum_per_switch(subject, plan.pq_reserved_bytes)

    def check(held: NDArray[np.int64], when: str) -> None:
        total = held + reserved + plan.switch_pool_bytes
        for at in np.flatnonzero(total > plan.switch_buffer_bytes).tolist():
            message = (
                f"reserved {count(reserved[at])} + headroom {count(held[at])} + pool "
                f"{count(plan.switch_pool_bytes[at])} = {count(total[at])} are more than the buffer of "
                f"{count(plan.switch_buffer_bytes[at])}{when}"
            )
            found.add(subject.node(hosts + at), message, total_bytes=int(total[at]))

    check(_sum_per_switch(subject, headroom), "")
    for action in np.flatnonzero(plan.action_kind == ACTION_HEADROOM).tolist():
        port, mask = int(plan.action_target[action]), int(plan.action_mask[action])
        for item in range(classes):
            if mask >> item & 1:
                headroom[port * classes + item] = plan.action_value[action]
        later = plan.action_time_ps[action + 1 :]
        if not ((later == plan.action_time_ps[action]) & (plan.action_kind[action + 1 :] == ACTION_HEADROOM)).any():
            check(
                _sum_per_switch(subject, headroom),
                f" from {format_time(int(plan.action_time_ps[action]))} on, after a fault",
            )
    return found.findings()


def _sum_per_switch(subject: Subject, per_queue: NDArray[np.int64]) -> NDArray[np.int64]:
    """(S,) total over the ports and classes of every switch."""
    plan, ports = subject.plan, subject.switch_ports
    total = np.zeros(plan.node_count - plan.host_count, dtype=np.int64)
    np.add.at(
        total, plan.port_node[ports] - plan.host_count, per_queue.reshape(-1, plan.class_count)[ports].sum(axis=1)
    )
    return total


def small_pools(subject: Subject) -> list[Finding]:
    """FB202."""
    plan, found = subject.plan, Grouped(SMALL_POOL)
    static, alpha = subject.queues("pq_static_bytes"), subject.queues("pq_alpha_q16")
    ports, items = subject.pfc_queues
    pools = plan.switch_pool_bytes[plan.port_node[ports] - plan.host_count]
    kind, examples = group_rows([pools, alpha[ports, items]])
    thresholds = [
        reached_bytes(pool, alpha_q16, 1)
        for pool, alpha_q16 in zip(
            pools[examples].tolist(), alpha[ports[examples], items[examples]].tolist(), strict=True
        )
    ]
    small = np.array([threshold < 2 * subject.largest_frame_bytes for threshold in thresholds], dtype=bool)[kind]
    for at in np.flatnonzero(small & (static[ports, items] == NONE)).tolist():
        pool, threshold = int(pools[at]), thresholds[kind[at]]
        message = (
            f"of a pool of {count(pool)} one priority group may use {count(threshold)}, less than two frames of "
            f"{count(subject.largest_frame_bytes)}: PFC pauses at every burst"
        )
        found.add(subject.node(int(plan.port_node[ports[at]])), message, pool_bytes=pool, threshold_bytes=threshold)
    return found.findings()
