"""Equal hash seeds one behind the other: the second choice repeats the first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.distinct import distinct
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.reach import Words, carried, chosen_groups, everything, routed
from fabemu.lint.subject import Subject
from fabemu.plan import BALANCE_ECMP, BALANCE_WEIGHTED, Plan

ALIKE = Rule(
    code="FB311",
    severity="warning",
    title="equal hash seeds in two tiers (polarisation)",
    meaning="A packet may meet two switches that both choose among several next hops, with the same ECMP seed.",
    reason="The second switch sees only flows whose hash fell into one part of the range, and sends them all to the "
    "same part of its next hops: the others stay idle, and the used ones are overloaded.",
    formula="Of n next hops, flows that came by choice i of m use numbers floor(i n / m) to ceil((i + 1) n / m) - 1: "
    "with m = n a single one.",
    source="MODEL section 8 (hash-threshold selection, RFC 2992: both switches take floor(hash n / 2^32)).",
    remedy='Leave switch.ecmp_seed = "per-switch", or give each tier its own number.',
)
RULES = (ALIKE,)


def polarised(subject: Subject) -> list[Finding]:
    """FB311."""
    plan, found = subject.plan, Grouped(ALIKE)
    size = _set_size(plan)
    choosers = distinct(plan.port_node[size > 1])
    choosers = choosers[choosers >= plan.host_count]
    by_hash = np.zeros(plan.node_count, dtype=np.bool_)
    by_hash[plan.host_count :] = np.isin(plan.switch_balance, (BALANCE_ECMP, BALANCE_WEIGHTED))
    choosers = choosers[by_hash[choosers]]
    seeds, counts = np.unique(plan.node_seed[choosers], return_counts=True)
    if not (counts > 1).any():
        return []
    table = routed(plan, 0)
    (carry,) = carried(plan, [table], everything(plan))
    several = chosen_groups(plan, table)
    for seed in seeds[counts > 1].tolist():
        alike = (plan.node_seed == seed) & by_hash
        came = _groups_after_choice(plan, carry, several, alike)
        choosing = np.zeros_like(came)
        np.bitwise_or.at(choosing, plan.port_node, several)
        for node in np.flatnonzero(((came & choosing) != 0).any(axis=1) & alike).tolist():
            own = np.arange(plan.node_port_start[node], plan.node_port_start[node + 1])
            count = int(size[own].max())
            into = plan.port_peer[own]
            before = size[into[alike[plan.port_node[into]] & (size[into] > 1)]]
            use = ""
            if len(before):
                ways = int(before.min())
                most = max(-(-(i + 1) * count // ways) - i * count // ways for i in range(ways))
                use = f": flows that came by one of {ways} ways before use {most} of them"
            message = f"chooses among {count} next hops with the seed {seed} of a switch before it on the path{use}"
            found.add(subject.node(node), message, seed=seed, next_hops=count)
    return found.findings()


def _set_size(plan: Plan) -> NDArray[np.int64]:
    """(P,) members of the largest equal-cost set that a port is in; 0 for none."""
    size = np.diff(plan.nexthop_start).astype(np.int64)
    result = np.zeros(plan.port_count, dtype=np.int64)
    np.maximum.at(result, plan.nexthop_port, np.repeat(size, size))
    return result


def _groups_after_choice(plan: Plan, carry: Words, several: Words, alike: NDArray[np.bool_]) -> Words:
    """(N, words) groups whose frames may come to a node after a choice at a switch `alike`."""
    peer_node = plan.port_node[plan.port_peer]
    came = np.zeros((plan.node_count, carry.shape[1]), dtype=np.uint64)
    start = np.where(alike[plan.port_node][:, None], carry & several, np.uint64(0))
    while True:
        before = came.copy()
        np.bitwise_or.at(came, peer_node, start | (carry & came[plan.port_node]))
        if np.array_equal(before, came):
            return came
