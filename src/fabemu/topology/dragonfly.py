"""Dragonfly: groups of routers that are all cabled to each other (Kim, Dally, Scott, Abts, ISCA 2008)."""

from __future__ import annotations

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered

GLOBAL_COST = 3
"""What a global link counts in the length of a path, a local one being 1.

A minimal path has one global link and at most two local ones, so that it counts 5 at most; one with two global links
would count 6 at least. Shortest by this count is minimal, whatever short cuts there are over a third group.
"""


def dragonfly(*, groups: int, routers_per_group: int, hosts_per_router: int, global_links: int) -> Fabric:
    """Hosts h0.. on routers r{group}-{i}; every two groups are joined by at least one global link.

    A group has routers_per_group * global_links global ports, router by router. One round of groups - 1 ports leads to
    the groups 1, 2, ... after its own; there are as many whole rounds as the ports are enough for. Ports that are left
    lead to the groups 1, -1, 2, -2, ... after their own, and to the opposite group, if they can be paired; one port of
    each group stays dark where their number and that of the groups are odd.

    Cable tiers "host", "local" and "global", switch tier "router". Raises ValueError if a group has too few ports.
    """
    per_group = routers_per_group * global_links
    if groups > per_group + 1:
        raise ValueError(f"{per_group} global links of a group do not reach {groups - 1} others")
    router_count = groups * routers_per_group
    host_count = router_count * hosts_per_router
    cables = host_cables([hosts_per_router] * router_count, range(host_count, host_count + router_count))
    cables.extend(
        Cable(host_count + group * routers_per_group + i, host_count + group * routers_per_group + j, "local")
        for group in range(groups)
        for i in range(routers_per_group)
        for j in range(i + 1, routers_per_group)
    )
    offsets = _global_offsets(groups, per_group)
    port_of: dict[tuple[int, int], int] = {}  # by round and offset
    rounds = [offsets[first : first + groups - 1] for first in range(0, len(offsets), max(1, groups - 1))]
    for number, members in enumerate(rounds):
        for place, offset in enumerate(members):
            port_of[number, offset] = number * (groups - 1) + place
    for group in range(groups):
        for (number, offset), port in port_of.items():
            other = (group + offset) % groups
            if group < other:  # from the other end, it is the same cable
                back = port_of[number, groups - offset]
                cables.append(
                    Cable(
                        host_count + group * routers_per_group + port // global_links,
                        host_count + other * routers_per_group + back // global_links,
                        "global",
                    )
                )
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=[f"r{group}-{i}" for group in range(groups) for i in range(routers_per_group)],
        switch_tiers=["router"] * router_count,
        cables=cables,
        hop_costs={"global": GLOBAL_COST},
    )


def _global_offsets(groups: int, per_group: int) -> list[int]:
    """How far ahead the group is that each global port leads to; with every offset there is its opposite."""
    if groups == 1:
        return []
    whole, left = divmod(per_group, groups - 1)
    offsets = list(range(1, groups)) * whole
    for step in range(1, left // 2 + 1):
        offsets += [step, groups - step]
    if left % 2 and groups % 2 == 0:
        offsets.append(groups // 2)
    return offsets
