"""Explicit flows: those that the scenario lists."""

from __future__ import annotations

import numpy as np

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.workload import Flows
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import NONE, FlowTable, flow_table
from fabemu.workload.hosts import SelectorError


def explicit_flows(table: Flows, context: WorkloadContext) -> FlowTable:
    """Flows of a `flows` workload, in the order of the list.

    Flows of one source and destination with the same `qp` share a QP; they are sent in order of start time, and in the
    order of the list if they start together.

    Raises
    ------
    ScenarioError
        A flow names a switch, an unknown host, or the same host twice; all such flows are reported.
    """
    src, dst, qp = [], [], []
    named: dict[tuple[str, int, int], int] = {}
    problems: list[Problem] = []
    for index, flow in enumerate(table.flow):
        ends = []
        for key, name in (("src", flow.src), ("dst", flow.dst)):
            try:
                ends.append(context.hosts.id(name))
            except SelectorError as error:
                problems.extend(context.error(f"flow.{index}.{key}", str(error)).problems)
        if len(ends) < 2:
            continue
        if ends[0] == ends[1]:
            message = f'host "{flow.src}" sends to itself'
            problems.extend(context.error(f"flow.{index}.dst", message).problems)
            continue
        src.append(ends[0])
        dst.append(ends[1])
        qp.append(NONE if flow.qp is None else named.setdefault((flow.qp, ends[0], ends[1]), len(named)))
    if problems:
        raise ScenarioError(problems)
    return flow_table(
        np.array(src, dtype=np.int64),
        np.array(dst, dtype=np.int64),
        np.array([flow.size for flow in table.flow], dtype=np.int64),
        np.array([table.start + flow.start for flow in table.flow], dtype=np.int64),
        class_id=context.class_id,
        sport=np.array([NONE if flow.sport is None else flow.sport for flow in table.flow], dtype=np.int64),
        qp=np.array(qp, dtype=np.int64),
        verb=context.verb,
        label=context.label,
    )
