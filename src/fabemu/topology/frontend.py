"""Storage beside the fabric of the GPUs: on a network of its own, or converged with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fabemu.plan import NONE
from fabemu.topology.cable import Cable, Fabric, numbered, plane_prefixes


def with_frontend(
    fabric: Fabric, *, storage_hosts: int, storage_leaves: int, leaves: int, spines: int, uplinks: int
) -> Fabric:
    """Add a leaf-spine that shares nothing with the fabric: a NIC n{n}f of every node, and storage hosts s0...

    NICs are dealt out evenly to leaves fleaf0.., storage hosts to leaves sleaf0..; each leaf has `uplinks` parallel
    cables to each of fspine0... Cable tiers "frontend" (NICs), "storage" (storage hosts) and "frontend-fabric", switch
    tiers "frontend-leaf", "storage-leaf" and "frontend-spine".
    """
    nodes = fabric.server_count
    names = [f"n{node}f" for node in range(nodes)] + numbered("s", storage_hosts)
    grown = _with_hosts(fabric, names, first_storage=nodes)
    first_nic, first_leaf = fabric.host_count, grown.node_count
    first_storage, first_storage_leaf = first_nic + nodes, first_leaf + leaves
    first_spine = first_storage_leaf + storage_leaves
    cables = [Cable(first_nic + node, first_leaf + node * leaves // nodes, "frontend") for node in range(nodes)]
    cables += _storage_cables(first_storage, storage_hosts, first_storage_leaf, storage_leaves)
    cables += [
        Cable(leaf, spine, "frontend-fabric")
        for leaf in range(first_leaf, first_spine)
        for spine in range(first_spine, first_spine + spines)
        for _ in range(uplinks)
    ]
    return replace(
        grown,
        switch_names=grown.switch_names
        + numbered("fleaf", leaves)
        + numbered("sleaf", storage_leaves)
        + numbered("fspine", spines),
        switch_tiers=grown.switch_tiers
        + ["frontend-leaf"] * leaves
        + ["storage-leaf"] * storage_leaves
        + ["frontend-spine"] * spines,
        cables=grown.cables + cables,
        frontend_hosts=np.arange(first_nic, first_storage, dtype=np.int32),
    )


def with_storage(
    fabric: Fabric, *, storage_hosts: int, storage_leaves: int, joins: str, uplinks: int, planes: int
) -> Fabric:
    """Add storage hosts s0.. to the fabric itself: their leaves are cabled to its switches of tier `joins`.

    Every leaf sleaf0.. has `uplinks` parallel cables to each of them. With several planes there are leaves in each
    (p0-sleaf0, ...), cabled to that plane, and storage hosts have a port in each. Cable tiers "storage" and
    "storage-fabric", switch tier "storage-leaf".
    """
    grown = _with_hosts(fabric, numbered("s", storage_hosts), first_storage=0)
    joined = [grown.host_count + at for at, tier in enumerate(grown.switch_tiers) if tier == joins]
    per_plane = len(joined) // planes  # planes come one after the other
    names: list[str] = []
    cables: list[Cable] = []
    for plane, prefix in enumerate(plane_prefixes(planes)):
        first_leaf = grown.node_count + len(names)
        cables += _storage_cables(fabric.host_count, storage_hosts, first_leaf, storage_leaves)
        cables += [
            Cable(leaf, switch, "storage-fabric")
            for leaf in range(first_leaf, first_leaf + storage_leaves)
            for switch in joined[plane * per_plane : (plane + 1) * per_plane]
            for _ in range(uplinks)
        ]
        names += [prefix + name for name in numbered("sleaf", storage_leaves)]
    return replace(
        grown,
        switch_names=grown.switch_names + names,
        switch_tiers=grown.switch_tiers + ["storage-leaf"] * len(names),
        cables=grown.cables + cables,
    )


def _storage_cables(first_host: int, hosts: int, first_leaf: int, leaves: int) -> list[Cable]:
    """Cables of storage hosts to their leaves, dealt out evenly in order."""
    return [Cable(first_host + at, first_leaf + at * leaves // hosts, "storage") for at in range(hosts)]


def _with_hosts(fabric: Fabric, names: list[str], *, first_storage: int) -> Fabric:
    """Add hosts behind the others, without cables; those from `first_storage` on are storage. Switches move up."""
    before, added = fabric.host_count, len(names)
    none = np.full(added, NONE, dtype=np.int32)

    def moved(node: int) -> int:
        return node if node < before else node + added

    return replace(
        fabric,
        host_names=fabric.host_names + names,
        cables=[cable._replace(a=moved(cable.a), b=moved(cable.b)) for cable in fabric.cables],
        host_node=np.concatenate([fabric.host_node, none]),
        host_rail=np.concatenate([fabric.host_rail, none]),
        storage_hosts=np.arange(before + first_storage, before + added, dtype=np.int32),
    )
