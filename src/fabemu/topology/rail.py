"""Rail-optimised and rail-only fabrics: NIC k of every node is on a leaf of rail k.

Rail-optimised: NVIDIA, DGX SuperPOD reference architecture. Rail-only: Wang, Ghobadi et al., arXiv:2307.12169, 2023.
"""

from __future__ import annotations

import numpy as np

from fabemu.topology.cable import Cable, Fabric, numbered, plane_prefixes


def rail(*, nodes: int, gpus_per_node: int, spines: int, nodes_per_leaf: int, uplinks: int, planes: int) -> Fabric:
    """Hosts n{n}g{k}, leaves rail{k} or rail{k}-{unit}, each with `uplinks` parallel cables to each of spine0...

    The leaf of rail k and unit u has NIC k of nodes u * nodes_per_leaf onwards. Every plane has leaves and spines of
    its own (p0-rail0, p1-rail0, ...) and a port of every host. Cable tiers "host" and "fabric", switch tiers "leaf" and
    "spine".
    """
    host_count = nodes * gpus_per_node
    units = -(-nodes // nodes_per_leaf)
    leaves = units * gpus_per_node
    leaf_names = [f"rail{k}" + (f"-{unit}" if units > 1 else "") for k in range(gpus_per_node) for unit in range(units)]
    switch_names: list[str] = []
    cables: list[Cable] = []
    for prefix in plane_prefixes(planes):
        first_leaf = host_count + len(switch_names)
        first_spine = first_leaf + leaves
        cables.extend(
            Cable(node * gpus_per_node + k, first_leaf + k * units + node // nodes_per_leaf, "host")
            for node in range(nodes)
            for k in range(gpus_per_node)
        )
        cables.extend(
            Cable(leaf, spine, "fabric")
            for leaf in range(first_leaf, first_spine)
            for spine in range(first_spine, first_spine + spines)
            for _ in range(uplinks)
        )
        switch_names += [prefix + name for name in [*leaf_names, *numbered("spine", spines)]]
    hosts = np.arange(host_count, dtype=np.int32)
    return Fabric(
        host_names=[f"n{node}g{k}" for node in range(nodes) for k in range(gpus_per_node)],
        switch_names=switch_names,
        switch_tiers=(["leaf"] * leaves + ["spine"] * spines) * planes,
        cables=cables,
        host_node=hosts // gpus_per_node,
        host_rail=hosts % gpus_per_node,
    )


def rail_only(*, nodes: int, gpus_per_node: int, planes: int) -> Fabric:
    """The same with one leaf per rail and no spines: no path joins two rails."""
    return rail(nodes=nodes, gpus_per_node=gpus_per_node, spines=0, nodes_per_leaf=nodes, uplinks=1, planes=planes)
