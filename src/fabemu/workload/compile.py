"""Compile all workloads of a scenario to one operation graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.training import Training
from fabemu.scenario.workload import AllToAll, Collective, Flows, Goal, Incast, Permutation, Poisson, Transfer
from fabemu.workload.all_to_all import all_to_all_flows
from fabemu.workload.collective import collective_graph
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable
from fabemu.workload.flows import explicit_flows
from fabemu.workload.graph import OperationGraph, PlacedJob, join
from fabemu.workload.hosts import HostNames
from fabemu.workload.incast import incast_flows
from fabemu.workload.permutation import permutation_flows
from fabemu.workload.placement import place_jobs
from fabemu.workload.poisson import poisson_flows
from fabemu.workload.training import training_graph
from fabemu.workload.transfer import transfer_flows

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
    placed = place_jobs(scenario.job, fabric, hosts, np.asarray(host_rate_bps) > 0, scenario.seed)
    parts: list[FlowTable | OperationGraph] = []
    problems: list[Problem] = []
    seen: Counter[str] = Counter()
    for index, table in enumerate(scenario.workload):
        draw_label = _draw_label(table, index)
        context = WorkloadContext(
            scenario,
            index,
            hosts,
            host_rate_bps,
            Path(base_dir),
            draw_label,
            occurrence=seen[draw_label],
            fabric=fabric,
            job_hosts=None if table.job is None else placed[table.job],
        )
        seen[draw_label] += 1
        try:
            parts.append(_arriving(_before_stop(_part(table, context), table.stop), context))
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(problems)
    jobs = tuple(
        PlacedJob(
            name=job.name,
            hosts=placed[job.name],
            start_ps=job.start,
            labels=tuple(dict.fromkeys(item.label or "" for item in scenario.workload if item.job == job.name)),
        )
        for job in scenario.job
    )
    return replace(join(parts), jobs=jobs)


def _part(table: Any, context: WorkloadContext) -> FlowTable | OperationGraph:
    """What one workload does, as if its job were there from the beginning."""
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
        case Transfer():
            return transfer_flows(table, context)
        case Collective():
            return collective_graph(table, context)
        case Training():
            return training_graph(table, context)
        case Goal():
            from fabemu.workload.goal import goal_graph

            return goal_graph(table, context)
    # Not before it is needed: reading files brings in a good part of pyarrow.
    from fabemu.workload.flow_file import file_flows

    return file_flows(table, context)


def _draw_label(table: Any, index: int) -> str:
    """Label that keys the draws: the default label changes with the number of workloads, the kind does not."""
    return table.kind if table.label in (None, f"{table.kind}-{index}") else table.label


def _before_stop(table: FlowTable | OperationGraph, stop_ps: int | None) -> FlowTable | OperationGraph:
    """Leave out the flows that start at `stop_ps` or later; graphs have no such thing."""
    if stop_ps is None or isinstance(table, OperationGraph) or bool((table.start_ps < stop_ps).all()):
        return table
    return table.rows(table.start_ps < stop_ps)


def _arriving(part: FlowTable | OperationGraph, context: WorkloadContext) -> FlowTable | OperationGraph:
    """The same, counted from the arrival of the workload's job."""
    delay_ps = 0 if context.job is None else context.job.start
    if delay_ps == 0:
        return part
    flows = part.flows if isinstance(part, OperationGraph) else part
    flows = replace(flows, start_ps=flows.start_ps + delay_ps)
    if not isinstance(part, OperationGraph):
        return flows
    tracks = tuple(replace(track, start_ps=track.start_ps + delay_ps) for track in part.tracks)
    return replace(part, flows=flows, start_ps=part.start_ps + delay_ps, tracks=tracks)
