"""Packets that overtake each other where NICs take every gap for a loss."""

from __future__ import annotations

import numpy as np

from fabemu.distinct import distinct
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.reach import Words, carried, chosen_groups, group_words, routed
from fabemu.lint.subject import Subject
from fabemu.plan import BALANCE_FLOWLET, BALANCE_LEAST_LOADED, BALANCE_SPRAY, VERB_READ, Plan

OVERTAKEN = Rule(
    code="FB312",
    severity="warning",
    title="packets overtake each other, and NICs take gaps for losses",
    meaning="Data of a queue pair may come to a switch that sends packets of one queue pair by several ports "
    "(load_balancing = spray, least-loaded or flowlet), and its sender goes back N, repeats selectively with "
    "reorder_window = 1, or the queue pair reads.",
    reason="A packet that comes before its predecessor makes the receiver send a NAK. The sender repeats what was "
    "never lost: with go-back-N most of what it sends is sent again.",
    formula="",
    source="MODEL sections 8, 10 and 11a.",
    remedy='Set nic.retransmission = "selective" and nic.reorder_window above the reordering, for example 256; or use '
    "load_balancing = least-loaded-flow, which keeps each queue pair on one path. READs always go back. Flowlets whose "
    "flowlet_gap is longer than paths differ in delay do not overtake each other: then this can be ignored.",
)
RULES = (OVERTAKEN,)

_DIVIDING = {BALANCE_SPRAY: "spray", BALANCE_LEAST_LOADED: "least-loaded", BALANCE_FLOWLET: "flowlet"}


def overtaken(subject: Subject) -> list[Finding]:
    """FB312."""
    plan, found = subject.plan, Grouped(OVERTAKEN)
    policy = np.full(plan.node_count, -1)
    dividing = np.isin(plan.switch_balance, list(_DIVIDING))
    policy[plan.host_count :][dividing] = plan.switch_balance[dividing]
    if (policy < 0).all():
        return []
    impatient, count = _impatient(plan)
    table = routed(plan, 0)
    (carry,) = carried(plan, [table], impatient)
    divides = (carry & chosen_groups(plan, table)).any(axis=1) & (policy[plan.port_node] >= 0)
    for node in distinct(plan.port_node[divides]).tolist():
        name = _DIVIDING[int(policy[node])]
        message = (
            f"load_balancing = {name} lets packets of one queue pair overtake each other, and {count} queue pairs of "
            "the scenario repeat what is overtaken"
        )
        found.add(subject.node(node), message, queue_pairs=count)
    return found.findings()


def _impatient(plan: Plan) -> tuple[Words, int]:
    """(H, words) groups to which each host sends data that must not be overtaken; of how many queue pairs."""
    reads = plan.qp_verb == VERB_READ
    nic = plan.host_nic[plan.qp_src]
    patient = ~reads & (plan.nic_selective[nic] == 1) & (plan.nic_reorder[nic] > 1)
    source = np.where(reads, plan.qp_dst, plan.qp_src)[~patient]
    group = plan.host_group[np.where(reads, plan.qp_src, plan.qp_dst)[~patient]]
    words = np.zeros((plan.host_count, group_words(plan)), dtype=np.uint64)
    np.bitwise_or.at(words, (source, group // 64), np.uint64(1) << (group % 64).astype(np.uint64))
    return words, int((~patient).sum())
