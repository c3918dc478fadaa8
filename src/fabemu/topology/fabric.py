"""The fabric of a scenario."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.fabric import Chain, Dumbbell, FatTree, Graph, LeafSpine, SingleSwitch
from fabemu.topology.cable import Cable, Fabric
from fabemu.topology.fat_tree import fat_tree
from fabemu.topology.graph import graph_fabric, link_cables, read_link_file
from fabemu.topology.leaf_spine import leaf_spine
from fabemu.topology.line import chain, dumbbell, single_switch

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
    check_fabric(fabric)
    return fabric


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
