"""Permutation: every host sends to one other host and receives from one."""

from __future__ import annotations

import numpy as np

from fabemu.scenario.workload import Permutation
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable, flow_table


def permutation_flows(table: Permutation, context: WorkloadContext) -> FlowTable:
    """Flows of a `permutation` workload, all posted at `start`; the `count` messages of a host share a QP.

    The random pattern is drawn uniformly from all permutations without a fixed point.

    Raises
    ------
    ScenarioError
        A host is unknown, there are fewer than two, or the shift sends hosts to themselves.
    """
    hosts = context.select("hosts", table.hosts)
    count = len(hosts)
    if count < 2:
        raise context.error("hosts", f"a permutation needs at least 2 hosts, there are {count}")
    if table.pattern == "shift":
        if table.shift % count == 0:
            raise context.error("shift", f"sends each of the {count} hosts to itself", str(table.shift))
        target = (np.arange(count) + table.shift) % count
    else:
        target = _derangement(context, count)
    pair = np.repeat(np.arange(count), table.count)
    return flow_table(
        hosts[pair],
        hosts[target[pair]],
        table.size,
        table.start,
        class_id=context.class_id,
        qp=pair if table.count > 1 else -1,
        verb=context.verb,
        label=context.label,
    )


def _derangement(context: WorkloadContext, count: int) -> np.ndarray:
    """A permutation without a fixed point, all of them equally likely."""
    draw = context.draw("permutation")
    while True:  # one in e permutations will do
        target = draw.permutation(count)
        if not (target == np.arange(count)).any():
            return target
