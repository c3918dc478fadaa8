"""Two tiers: every leaf is cabled to every spine."""

from __future__ import annotations

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered


def leaf_spine(*, leaves: int, hosts_per_leaf: int, spines: int, uplinks: int) -> Fabric:
    """Hosts h0.. on leaves leaf0.., each leaf with `uplinks` parallel cables to each of spine0...

    Cable tiers "host" and "fabric", switch tiers "leaf" and "spine".
    """
    host_count = leaves * hosts_per_leaf
    first_leaf, first_spine = host_count, host_count + leaves
    cables = host_cables([hosts_per_leaf] * leaves, range(first_leaf, first_spine))
    cables.extend(
        Cable(first_leaf + leaf, first_spine + spine, "fabric")
        for leaf in range(leaves)
        for spine in range(spines)
        for _ in range(uplinks)
    )
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=numbered("leaf", leaves) + numbered("spine", spines),
        switch_tiers=["leaf"] * leaves + ["spine"] * spines,
        cables=cables,
    )
