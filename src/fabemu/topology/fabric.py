"""The fabric of a scenario."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fabemu.errors import Problem, ScenarioError
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
from fabemu.topology.cable import Cable, Fabric
from fabemu.topology.dragonfly import dragonfly
from fabemu.topology.fat_tree import fat_tree
from fabemu.topology.frontend import with_frontend, with_storage
from fabemu.topology.graph import graph_fabric, link_cables, read_link_file
from fabemu.topology.leaf_spine import leaf_spine
from fabemu.topology.line import chain, dumbbell, single_switch
from fabemu.topology.rail import rail, rail_only
from fabemu.topology.scale_up import with_scale_up
from fabemu.topology.torus import torus

if TYPE_CHECKING:
    from fabemu.scenario import Scenario

__all__ = ["Cable", "Fabric", "build_fabric", "check_fabric"]


def build_fabric(scenario: Scenario, base_dir: Path) -> Fabric:
    """Devices and cables of the scenario's `[fabric]`.

    Parameters
    ----------
    scenario
        The validated scenario.
    base_dir
        Directory of the scenario file; link files are relative to it.

    Raises
    ------
    ScenarioError
        The devices and cables make no fabric.
    InputError
        A link file cannot be read or is wrong.
    """
    table = scenario.fabric
    match table:
        case LeafSpine():
            fabric = leaf_spine(
                leaves=table.leaves,
                hosts_per_leaf=table.hosts_per_leaf,
                spines=table.spines,
                uplinks=table.uplinks,
                planes=table.planes,
            )
        case FatTree():
            shape = table.shape
            fabric = fat_tree(
                pods=shape.pods,
                edges_per_pod=shape.edges_per_pod,
                aggs_per_pod=shape.aggs_per_pod,
                cores=shape.cores,
                hosts_per_edge=shape.hosts_per_edge,
            )
        case Rail():
            fabric = rail(
                nodes=table.nodes,
                gpus_per_node=table.gpus_per_node,
                spines=table.spines,
                nodes_per_leaf=table.nodes_per_leaf or table.nodes,
                uplinks=table.uplinks,
                planes=table.planes,
            )
        case RailOnly():
            fabric = rail_only(nodes=table.nodes, gpus_per_node=table.gpus_per_node, planes=table.planes)
        case Torus():
            fabric = torus(dimensions=table.dimensions, hosts_per_switch=table.hosts_per_switch)
            if table.routing == "dimension-order":
                fabric = replace(fabric, dimensions=table.dimensions)
        case Dragonfly():
            fabric = dragonfly(
                groups=table.groups,
                routers_per_group=table.routers_per_group,
                hosts_per_router=table.hosts_per_router,
                global_links=table.global_links,
            )
        case Chain():
            fabric = chain(switches=table.switches, hosts_per_switch=table.hosts_per_switch)
        case Dumbbell():
            fabric = dumbbell(left=table.left, right=table.right, trunks=table.trunks)
        case SingleSwitch():
            fabric = single_switch(hosts=table.hosts)
        case Graph():
            hosts, switches = table.host_names, table.switch_names
            if table.links_csv is not None:
                cables = read_link_file(base_dir / table.links_csv, hosts, switches)
            else:
                cables = link_cables(table.links, hosts, switches)
            fabric = graph_fabric(hosts, switches, cables)
    if table.gpus_of_node > 1:
        servers = np.arange(fabric.host_count, dtype=np.int32) // table.gpus_of_node
        fabric = replace(fabric, host_node=servers)
    frontend: Frontend | None = getattr(table, "frontend", None)
    if frontend is not None:
        fabric = _with_storage(fabric, frontend, joins=table.storage_joins, planes=getattr(table, "planes", 1))
    scale_up = scenario.scale_up
    if scale_up is not None and scale_up.model == "packets":
        fabric = with_scale_up(fabric, rate_bps=scale_up.bandwidth, delay_ps=scale_up.latency // 2)
    check_fabric(fabric)
    return fabric


def _with_storage(fabric: Fabric, frontend: Frontend, *, joins: str | None, planes: int) -> Fabric:
    """The fabric with its storage hosts, and their network."""
    if frontend.converged and joins is not None:
        return with_storage(
            fabric,
            storage_hosts=frontend.storage_hosts,
            storage_leaves=frontend.storage_leaves,
            joins=joins,
            uplinks=frontend.uplinks,
            planes=planes,
        )
    return with_frontend(
        fabric,
        storage_hosts=frontend.storage_hosts,
        storage_leaves=frontend.storage_leaves,
        leaves=frontend.leaves or 1,
        spines=frontend.spines or 1,
        uplinks=frontend.uplinks,
    )


def check_fabric(fabric: Fabric) -> None:
    """Raise ScenarioError unless names are unique and every cable joins two different devices that exist."""
    names = fabric.node_names
    problems = [f'the device "{name}" is named {count} times' for name, count in Counter(names).items() if count > 1]
    if not fabric.host_names:
        problems.append("the fabric has no host")
    ends_a, ends_b = fabric.cable_ends()
    lowest, highest = np.minimum(ends_a, ends_b), np.maximum(ends_a, ends_b)
    for index in np.flatnonzero((lowest < 0) | (highest >= len(names)) | (lowest == highest)).tolist():
        cable = fabric.cables[index]
        outside = [end for end in (cable.a, cable.b) if not 0 <= end < len(names)]
        if outside:
            problems.append(f"cable {index} ends at node {outside[0]}; nodes are 0 to {len(names) - 1}")
        elif cable.a == cable.b:
            problems.append(f'cable {index} joins "{names[cable.a]}" to itself')
    if problems:
        raise ScenarioError(Problem("", "fabric", message) for message in problems[:20])
