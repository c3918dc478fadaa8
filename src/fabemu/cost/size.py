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

from fabemu.cost.footprint import Counts, footprint
from fabemu.cost.memory import LIBRARIES_BYTES
from fabemu.errors import InputError
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
from fabemu.scenario.workload import AllToAll, Flows, Incast, Permutation, Poisson

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
    messages, pairs = _messages(scenario, host_count, base_dir)
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
        qps=pairs,
        ops=messages,
        messages=messages,
        credits=packets,
    )


def sure_bytes(counts: Counts, routes: int = 0) -> int:
    """Memory that a run of these counts takes before its first event: the libraries, the plan, the engine's state.

    `routes` are the bytes of the plan's routes, as far as they are known.
    """
    fixed = footprint(counts)
    return LIBRARIES_BYTES + plan_bytes(counts) + routes + fixed.fabric + fixed.operations


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


def _messages(scenario: Scenario, host_count: int, base_dir: Path) -> tuple[int, int]:
    """Messages and queue pairs of all workloads, at least."""
    messages = pairs = 0
    for table in scenario.workload:
        match table:
            case Flows():
                count = len(table.flow)
                messages, pairs = messages + count, pairs + (0 if any(flow.qp for flow in table.flow) else count)
            case Permutation():
                hosts = selected(table.hosts, host_count)
                messages, pairs = messages + hosts * table.count, pairs + hosts
            case AllToAll():
                hosts = selected(table.hosts, host_count)
                messages, pairs = messages + hosts * (hosts - 1), pairs + hosts * (hosts - 1)
            case Incast():
                senders = table.fan_in or selected(table.senders or (), host_count - 1)
                count = selected(table.receivers or (), host_count) * senders * table.waves
                messages, pairs = messages + count, pairs + count
            case Training():
                count = _step_messages(scenario, table, host_count) * table.steps
                messages, pairs = messages + count, pairs + min(count, 1)
            case Poisson():
                count = _arrivals(scenario, table, host_count, base_dir)
                messages, pairs = messages + count, pairs + count
    return messages, pairs


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
