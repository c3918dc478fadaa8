"""Three tiers: pods of edge and aggregation switches below a core (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008)."""

from __future__ import annotations

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered


def fat_tree(*, pods: int, edges_per_pod: int, aggs_per_pod: int, cores: int, hosts_per_edge: int) -> Fabric:
    """Every edge switch is cabled to every aggregation switch of its pod.

    Aggregation switch i of every pod is cabled to the i-th share of the cores: a core reaches each pod by one cable.
    Names edge{pod}-{i}, agg{pod}-{i}, core{i}; cable tiers "host", "edge-agg", "agg-core"; switch tiers "edge", "agg",
    "core". Raises ValueError unless `cores` is a multiple of `aggs_per_pod`.
    """
    if cores % aggs_per_pod:
        raise ValueError(f"cores = {cores} is not a multiple of aggs_per_pod = {aggs_per_pod}")
    edge_count, agg_count = pods * edges_per_pod, pods * aggs_per_pod
    host_count = edge_count * hosts_per_edge
    first_edge = host_count
    first_agg = first_edge + edge_count
    first_core = first_agg + agg_count
    cores_per_agg = cores // aggs_per_pod
    cables = host_cables([hosts_per_edge] * edge_count, range(first_edge, first_agg))
    cables.extend(
        Cable(first_edge + pod * edges_per_pod + edge, first_agg + pod * aggs_per_pod + agg, "edge-agg")
        for pod in range(pods)
        for edge in range(edges_per_pod)
        for agg in range(aggs_per_pod)
    )
    cables.extend(
        Cable(first_agg + pod * aggs_per_pod + agg, first_core + agg * cores_per_agg + core, "agg-core")
        for pod in range(pods)
        for agg in range(aggs_per_pod)
        for core in range(cores_per_agg)
    )
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=[f"edge{pod}-{i}" for pod in range(pods) for i in range(edges_per_pod)]
        + [f"agg{pod}-{i}" for pod in range(pods) for i in range(aggs_per_pod)]
        + numbered("core", cores),
        switch_tiers=["edge"] * edge_count + ["agg"] * agg_count + ["core"] * cores,
        cables=cables,
    )
