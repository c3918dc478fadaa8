"""Compile all workloads of a scenario to one operation graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.workload import AllToAll, Flows, Incast, Permutation, Poisson
from fabemu.workload.all_to_all import all_to_all_flows
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable
from fabemu.workload.flows import explicit_flows
from fabemu.workload.graph import OperationGraph, join
from fabemu.workload.hosts import HostNames
from fabemu.workload.incast import incast_flows
from fabemu.workload.permutation import permutation_flows
from fabemu.workload.poisson import poisson_flows

if TYPE_CHECKING:
    from fabemu.scenario.model import Scenario
    from fabemu.topology.cable import Fabric


def compile_workload(scenario: Scenario, fabric: Fabric, base_dir: Path, host_rate_bps: np.ndarray) -> OperationGraph:
    """Generate what all workloads do.

    Random draws are keyed by the seed, the workload's label and their purpose. A workload without a label of its own is
    keyed by its kind and its position among such workloads of its kind. So adding a workload changes no other one, as
    long as it has a label or comes last.

    Parameters
    ----------
    scenario
        The validated scenario.
    fabric
        Its devices.
    base_dir
        Directory to which file names are relative.
    host_rate_bps
        (H,) bit/s, rate of all links of each host; 0 for a host without a link.

    Returns
    -------
    OperationGraph
        Its flows are sorted by start time. It may be empty.

    Raises
    ------
    ScenarioError
        Workloads do not fit the fabric; the problems of all of them are reported.
    InputError
        A file that a workload names is wrong.
    """
    hosts = HostNames(fabric.host_names, fabric.switch_names)
    parts: list[FlowTable | OperationGraph] = []
    problems: list[Problem] = []
    seen: Counter[str] = Counter()
    for index, table in enumerate(scenario.workload):
        draw_label = _draw_label(table, index)
        context = WorkloadContext(
            scenario, index, hosts, host_rate_bps, Path(base_dir), draw_label, occurrence=seen[draw_label]
        )
        seen[draw_label] += 1
        try:
            parts.append(_before_stop(_flows(table, context), table.stop))
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(problems)
    return join(parts)


def _flows(table: Any, context: WorkloadContext) -> FlowTable:
    """Flows of one workload."""
    match table:
        case Flows():
            return explicit_flows(table, context)
        case Poisson():
            return poisson_flows(table, context)
        case Incast():
            return incast_flows(table, context)
        case Permutation():
            return permutation_flows(table, context)
        case AllToAll():
            return all_to_all_flows(table, context)
    # Not before it is needed: reading files brings in a good part of pyarrow.
    from fabemu.workload.flow_file import file_flows

    return file_flows(table, context)


def _draw_label(table: Any, index: int) -> str:
    """Label that keys the draws: the default label changes with the number of workloads, the kind does not."""
    return table.kind if table.label in (None, f"{table.kind}-{index}") else table.label


def _before_stop(table: FlowTable, stop_ps: int | None) -> FlowTable:
    """Leave out the flows that start at `stop_ps` or later."""
    if stop_ps is None or bool((table.start_ps < stop_ps).all()):
        return table
    return table.rows(table.start_ps < stop_ps)
