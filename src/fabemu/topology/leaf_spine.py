"""Two tiers: every leaf is cabled to every spine."""

from __future__ import annotations

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered, plane_prefixes


def leaf_spine(*, leaves: int, hosts_per_leaf: int, spines: int, uplinks: int, planes: int = 1) -> Fabric:
    """Hosts h0.. on leaves leaf0.., each leaf with `uplinks` parallel cables to each of spine0...

    With several planes each has leaves and spines of its own, p0-leaf0, p1-leaf0 and so on, and a port of every host.
    Cable tiers "host" and "fabric", switch tiers "leaf" and "spine".
    """
    host_count = leaves * hosts_per_leaf
    switch_names: list[str] = []
    cables: list[Cable] = []
    for prefix in plane_prefixes(planes):
        first_leaf = host_count + len(switch_names)
        first_spine = first_leaf + leaves
        cables.extend(host_cables([hosts_per_leaf] * leaves, range(first_leaf, first_spine)))
        cables.extend(
            Cable(leaf, spine, "fabric")
            for leaf in range(first_leaf, first_spine)
            for spine in range(first_spine, first_spine + spines)
            for _ in range(uplinks)
        )
        switch_names += [prefix + name for name in numbered("leaf", leaves) + numbered("spine", spines)]
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=switch_names,
        switch_tiers=(["leaf"] * leaves + ["spine"] * spines) * planes,
        cables=cables,
    )
