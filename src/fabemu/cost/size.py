"""How large a scenario is, from its text alone: nothing is built.

What cannot be told without reading files or names counts as nothing: the figures are what there will be at least.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fabemu.cost.collective import NOTHING, Load, collective_load
from fabemu.cost.footprint import Counts, footprint
from fabemu.cost.memory import LIBRARIES_BYTES
from fabemu.errors import InputError, Problem, ScenarioError
from fabemu.plan import Plan
from fabemu.scenario.fabric import (
    Chain,
    Dragonfly,
    Dumbbell,
    FatTree,
    Frontend,
    Graph,
    LeafSpine,
    Rail,
    RailOnly,
    SingleSwitch,
    Torus,
)
from fabemu.scenario.model import Scenario
from fabemu.scenario.training import Training
from fabemu.scenario.workload import AllToAll, Collective, Flows, Incast, Permutation, Poisson, Transfer
from fabemu.workload.flow import FlowTable
from fabemu.workload.graph import OperationGraph

OPERATIONS_MAX = 2**31 - 1
"""Operations of a plan: they are numbered in 32 bits."""

BUILT_BYTES = 200
"""Memory for each operation of a graph while it is built, at least: schedule, graph and plan. 211 to 258 were measured,
of rings with and without additions, all-to-all, direct all-gather, pairs, and runs without messages."""

_SURE = 0.9  # of the flows of a Poisson process: their number is drawn


def counts_of_scenario(scenario: Scenario, base_dir: Path = Path()) -> Counts:
    """Devices, ports and messages that a scenario will have, at least."""
    degrees, host_count, cable_count = _fabric(scenario.fabric)
    planes = getattr(scenario.fabric, "planes", 1)
    host_ports = host_count * planes if cable_count else 0
    nodes = host_count // scenario.fabric.gpus_of_node
    packets = scenario.scale_up is not None and scenario.scale_up.model == "packets"
    if packets:
        degrees = [*degrees, (nodes, scenario.fabric.gpus_of_node)]
        cable_count, host_ports = cable_count + host_count, host_ports + host_count
    frontend: Frontend | None = getattr(scenario.fabric, "frontend", None)
    if frontend is not None:
        beside = 0 if frontend.converged else nodes
        leaves = frontend.storage_leaves * planes + (0 if frontend.converged else (frontend.leaves or 1))
        links = beside + frontend.storage_hosts * (planes if frontend.converged else 1)
        degrees = [*degrees, (leaves, links // leaves)]
        host_count, cable_count, host_ports = (
            host_count + beside + frontend.storage_hosts,
            cable_count + links,
            host_ports + links,
        )
    loads = [_load(scenario, table, host_count, base_dir) for table in scenario.workload]
    switch_count = sum(count for count, _ in degrees)
    classes = scenario.classes_by_priority
    return Counts(
        hosts=host_count,
        nodes=host_count + switch_count,
        ports=2 * cable_count,
        host_ports=host_ports,
        classes=len(classes),
        lossless=sum(item.lossless for item in classes),
        widest_ports=max((degree for _, degree in degrees), default=1),
        port_pairs=sum(count * degree * degree for count, degree in degrees),
        qps=sum(load.pairs for load in loads),
        ops=sum(load.operations for load in loads),
        messages=sum(load.messages for load in loads),
        credits=packets,
    )


def check_operations(scenario: Scenario, counts: Counts, base_dir: Path = Path()) -> None:
    """Refuse more operations than there are numbers for.

    Parameters
    ----------
    scenario
        The scenario.
    counts
        Of it, by `counts_of_scenario`.
    base_dir
        Directory to which file names are relative.

    Raises
    ------
    ScenarioError
        There are more; it names the workload that has most of them.
    """
    if counts.ops <= OPERATIONS_MAX:
        return
    loads = [_load(scenario, table, counts.hosts, base_dir) for table in scenario.workload]
    index = max(range(len(loads)), key=lambda number: loads[number].operations)
    load, table = loads[index], scenario.workload[index]
    subject = table.operation if isinstance(table, Collective) else table.kind
    fewer = {
        "collective": "fewer ranks, channels, qps or iterations, larger chunks, or an algorithm with fewer steps",
        "transfer": "fewer hosts, or a lower count",
        "training": "fewer steps, micro-batches or ranks",
        "all-to-all": "fewer hosts",
        "permutation": "fewer hosts, or a lower count",
        "poisson": "an earlier stop, a lower load or fewer hosts",
    }.get(table.kind, "fewer messages")
    raise ScenarioError(
        Problem(
            "",
            f"workload.{index}",
            f"{subject} takes at least {load.messages:,} messages and {load.operations:,} operations, and a run has "
            f"at most {OPERATIONS_MAX:,} operations: take {fewer}",
        )
    )


def sure_bytes(counts: Counts, routes: int = 0) -> int:
    """Memory that a run takes before its first event: the libraries, the operations, the plan, the engine's state.

    `routes` are the bytes of the plan's routes, as far as they are known.
    """
    fixed = footprint(counts)
    kept = _graph_bytes(counts) + plan_bytes(counts) + routes + fixed.fabric + fixed.operations
    # Every message of a graph has a recv: those that have none are of workloads that make no graph.
    built = min(counts.ops, 2 * (counts.ops - counts.messages))
    return LIBRARIES_BYTES + max(kept, BUILT_BYTES * built)


def _graph_bytes(counts: Counts) -> int:
    """Bytes of the operations as workloads make them, which are kept beside the plan; without what they wait for."""
    message, other = (
        sum(np.dtype(item.metadata["dtype"]).itemsize for item in fields(kind) if "dtype" in item.metadata)
        for kind in (FlowTable, OperationGraph)
    )
    others = counts.ops - counts.messages
    edge = 2 * np.dtype(np.int32).itemsize  # `before` and `after`: an element for each wait
    return counts.messages * message + others * (other - edge)


def route_bytes(scenario: Scenario) -> int:
    """Bytes of the routing table where every host has several ports: a row and a column for each of them, at least."""
    packets = scenario.scale_up is not None and scenario.scale_up.model == "packets"
    if not packets and getattr(scenario.fabric, "planes", 1) == 1:
        return 0
    kinds, hosts, _ = _fabric(scenario.fabric)
    return hosts * (hosts + sum(count for count, _ in kinds)) * np.dtype(np.int32).itemsize


def plan_bytes(counts: Counts) -> int:
    """Bytes of a plan's arrays, but for routes, by what each array has an element for."""
    elements = {
        "node": counts.nodes,
        "switch": counts.nodes - counts.hosts,
        "port": counts.ports,
        "pq": counts.ports * counts.classes,
        "host": counts.hosts,
        "qp": counts.qps,
        "op": counts.ops,
    }
    total = 0
    for item in fields(Plan):
        subject = item.name.partition("_")[0]
        if "dtype" in item.metadata and subject in elements:
            total += elements[subject] * np.dtype(item.metadata["dtype"]).itemsize
    return total


def _fabric(table: Any) -> tuple[list[tuple[int, int]], int, int]:
    """((switches, ports of each) of every kind, hosts, cables)."""
    match table:
        case LeafSpine():
            hosts, up = table.leaves * table.hosts_per_leaf, table.spines * table.uplinks
            leaves, spines = table.planes * table.leaves, table.planes * table.spines
            kinds = [(leaves, table.hosts_per_leaf + up), (spines, table.leaves * table.uplinks)]
            return kinds, hosts, table.planes * hosts + leaves * up
        case Rail():
            hosts, up = table.nodes * table.gpus_per_node, table.spines * table.uplinks
            leaves = table.units * table.gpus_per_node
            kinds = [
                (table.planes * leaves, table.nodes // table.units + up),
                (table.planes * table.spines, leaves * table.uplinks),
            ]
            return kinds, hosts, table.planes * (hosts + leaves * up)
        case RailOnly():
            hosts = table.nodes * table.gpus_per_node
            return [(table.planes * table.gpus_per_node, table.nodes)], hosts, table.planes * hosts
        case Torus():
            switches, axes = math.prod(table.dimensions), [size for size in table.dimensions if size > 2]
            hosts = switches * table.hosts_per_switch
            rings = sum(switches if size > 2 else switches // 2 for size in table.dimensions)
            flat = len(table.dimensions) - len(axes)
            return [(switches, table.hosts_per_switch + 2 * len(axes) + flat)], hosts, hosts + rings
        case Dragonfly():
            a, groups = table.routers_per_group, table.groups
            hosts = groups * a * table.hosts_per_router
            between = (groups - 1) * (a * table.global_links // max(1, groups - 1))  # what is left may not be paired
            cables = hosts + groups * (a * (a - 1) + between) // 2
            return [(groups * a, table.hosts_per_router + a - 1 + between // a)], hosts, cables
        case FatTree():
            shape = table.shape
            edges, aggs = shape.pods * shape.edges_per_pod, shape.pods * shape.aggs_per_pod
            hosts = edges * shape.hosts_per_edge
            kinds = [
                (edges, shape.hosts_per_edge + shape.aggs_per_pod),
                (aggs, shape.edges_per_pod + shape.cores // shape.aggs_per_pod),
                (shape.cores, shape.pods),
            ]
            return kinds, hosts, hosts + edges * shape.aggs_per_pod + shape.pods * shape.cores
        case Chain():
            hosts = table.switches * table.hosts_per_switch
            return [(table.switches, table.hosts_per_switch)], hosts, hosts + table.switches - 1
        case Dumbbell():
            hosts = table.left + table.right
            return [(1, table.left + table.trunks), (1, table.right + table.trunks)], hosts, hosts + table.trunks
        case SingleSwitch():
            return [(1, table.hosts)], table.hosts, table.hosts
        case Graph():
            return [(len(table.switch_names), 0)], len(table.host_names), len(table.links)
    return [], 0, 0


def _load(scenario: Scenario, table: Any, host_count: int, base_dir: Path) -> Load:
    messages = pairs = 0
    match table:
        case Flows():
            messages = len(table.flow)
            pairs = 0 if any(flow.qp for flow in table.flow) else messages
        case Permutation():
            pairs = selected(table.hosts, host_count)
            messages = pairs * table.count
        case AllToAll():
            hosts = selected(table.hosts, host_count)
            messages = pairs = hosts * (hosts - 1)
        case Incast():
            senders = table.fan_in or selected(table.senders or (), host_count - 1)
            messages = pairs = selected(table.receivers or (), host_count) * senders * table.waves
        case Training():
            messages = _step_messages(scenario, table, host_count) * table.steps
            pairs = min(messages, 1)
        case Poisson():
            messages = pairs = _arrivals(scenario, table, host_count, base_dir)
        case Transfer():
            messages = pairs = _bulk(scenario, table, host_count)
        case Collective():
            return _collective(scenario, table, host_count)
    return Load(messages, messages, 0 if _inside(scenario, table) else pairs)


def _inside(scenario: Scenario, table: Any) -> bool:
    """Whether messages of a node's own GPUs may have no queue pair."""
    analytic = scenario.scale_up is not None and scenario.scale_up.model == "analytic"
    return analytic and isinstance(table, Transfer | Collective)


def _collective(scenario: Scenario, table: Collective, host_count: int) -> Load:
    whole = table.hosts == "all" and table.job is None
    gpus_alone = _fabric(scenario.fabric)[1]  # no storage, no frontend
    ranks = _exactly(scenario, table.hosts, table.job, gpus_alone if whole else host_count)
    if table.matrix is not None:
        ranks = len(table.matrix)
    if not ranks:
        return NOTHING
    gpus = scenario.fabric.gpus_of_node
    node_ranks = [gpus] if whole else [each for each in range(1, gpus + 1) if ranks % each == 0]
    load = collective_load(table, ranks, node_ranks)
    return load._replace(pairs=0) if _inside(scenario, table) else load


def _bulk(scenario: Scenario, table: Transfer, host_count: int) -> int:
    """Messages of a transfer."""
    sources, destinations = (
        _exactly(scenario, "all" if hosts is None else hosts, table.job, host_count)
        for hosts in (table.sources, table.destinations)
    )
    times = table.count
    if table.stop is not None:
        times = min(times, max(0, -(-(table.stop - table.start) // max(table.period, 1))))
    if not sources or not destinations:
        return 0
    each = {"striped": min(destinations, table.size), "one-to-all": destinations}.get(table.pattern, 1)
    return sources * each * times


def _exactly(scenario: Scenario, selector: str | Sequence[str], job_name: str | None, host_count: int) -> int:
    """Hosts that a selector names, or 0 if that is not known without the names of the fabric.

    Less than all would not do: more ranks may take another algorithm, which has fewer messages.
    """
    if selector == "all" and job_name is not None:
        job = next(job for job in scenario.job if job.name == job_name)
        return job.ranks if job.hosts is None and job.ranks else _exactly(scenario, job.hosts or (), None, host_count)
    total = 0
    for part in [selector] if isinstance(selector, str) else selector:
        ends = re.fullmatch(r"\s*([a-z]+)(\d+)\s*:\s*([a-z]+)(\d+)\s*", part)
        if isinstance(scenario.fabric, Graph) and (part == "all" or ":" in part):
            return 0  # whatever its hosts are called, and whether they have a link
        if part == "all":
            total += host_count
        elif ends is not None and ends[1] == ends[3]:
            total += max(0, int(ends[4]) - int(ends[2]) + 1)
        elif any(mark in part for mark in "*?[:"):
            return 0
        else:
            total += 1
    return total if total <= host_count else 0


def _step_messages(scenario: Scenario, table: Training, host_count: int) -> int:
    """Messages of a step: between stages, and those that no algorithm of a collective does without."""
    job = next((job for job in scenario.job if job.name == table.job), None)
    ranks = selected(table.hosts, host_count) if job is None else job.ranks or 0
    data = ranks // (table.tensor * table.pipeline)
    groups_of_layers = table.micro_batches * table.resolved_shape.layers * data
    between_stages = 2 * (table.pipeline - 1) * table.micro_batches * table.tensor * data
    reduced = 4 * groups_of_layers * 2 * (table.tensor - 1)
    routed = 4 * groups_of_layers * table.tensor * (table.expert - 1)
    return between_stages + reduced + routed


def selected(selector: str | Sequence[str], host_count: int) -> int:
    """Hosts that a selector names, as far as it says without the names of the fabric."""
    parts = [selector] if isinstance(selector, str) else list(selector)
    total = 0
    for part in parts:
        span = re.fullmatch(r"\s*\D*(\d+)\s*:\s*\D*(\d+)\s*", part)
        if part == "all":
            total += host_count
        elif span is not None:
            total += max(0, int(span[2]) - int(span[1]) + 1)
        elif not any(mark in part for mark in "*?["):
            total += 1
    return min(total, host_count)


def _arrivals(scenario: Scenario, table: Poisson, host_count: int, base_dir: Path) -> int:
    """Flows of a Poisson workload, if the links of its hosts are all alike."""
    from fabemu.workload.cdf import size_distribution

    stop_ps = table.stop if table.stop is not None else scenario.until
    if stop_ps is None or isinstance(scenario.fabric, Graph) or getattr(scenario.fabric, "frontend", None) is not None:
        return 0
    try:
        mean_bytes = size_distribution(table.sizes, base_dir).mean_bytes
    except (InputError, OSError):
        return 0
    senders = selected(table.hosts if table.sources is None else table.sources, host_count)
    rate_bps = scenario.link_for("host", "", "").rate
    return int(_SURE * senders * table.load * rate_bps / (8 * mean_bytes) * max(0, stop_ps - table.start) * 1e-12)
