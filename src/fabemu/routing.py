"""Shortest paths: the equal-cost next hops of every switch towards every group of destinations (MODEL section 8).

Distances are counted in links, of which some may count more than one. Hosts never forward. Every cable of a parallel
bundle is a next hop of its own, and the ports of a set stand in ascending order, so equal fabrics give equal tables.

Destinations are grouped, because all hosts behind one switch share their routes: the single-homed hosts of a switch
are one group; every host with several cables, and every host that is cabled to another host, is a group of its own.
Hosts without a cable share one group that nothing reaches.

The search is a breadth-first search from all groups at once. What has been reached is a bit set over the groups, one
row of 64-bit words per switch, so that a level costs one OR over the cables.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.distinct import distinct
from fabemu.errors import ScenarioError
from fabemu.plan import NONE, ROUTE_LOCAL, ROUTE_NONE, ROUTE_SET_BASE

GROUPS_MAX = 65535
TABLE_ENTRIES_MAX = 2**31 - 1
UNREACHED = 2**30
"""Distance of a node from which there is no path."""

Words = NDArray[np.uint64]

_LITTLE_WORD = np.dtype("<u8")  # bit g of the set is bit g % 64 of word g // 64, on any machine


@dataclass(frozen=True)
class Ports:
    """The ports of a fabric, those of a node consecutive, nodes 0..hosts-1 hosts and the others switches."""

    host_count: int
    node_port_start: NDArray[np.int32]  # (N+1,)
    port_node: NDArray[np.int32]  # (P,)
    port_peer: NDArray[np.int32]  # (P,) port at the other end of the cable

    @property
    def node_count(self) -> int:
        """Hosts and switches."""
        return len(self.node_port_start) - 1

    @property
    def degree(self) -> NDArray[np.int32]:
        """(N,) number of ports of each node."""
        return np.diff(self.node_port_start)

    @property
    def peer_node(self) -> NDArray[np.int32]:
        """(P,) node at the other end of each port."""
        return self.port_node[self.port_peer]


@dataclass(frozen=True)
class Routes:
    """Routing tables: the arrays of the same names in `fabemu.plan.Plan`."""

    host_group: NDArray[np.int32]  # (H,)
    host_access_port: NDArray[np.int32]  # (H,)
    node_route_row: NDArray[np.int32]  # (N,)
    route: NDArray[np.int32]  # (rows, G)
    nexthop_start: NDArray[np.int32]  # (sets+1,)
    nexthop_port: NDArray[np.int32]

    @property
    def group_count(self) -> int:
        """Groups of destinations."""
        return self.route.shape[1]


def port_table(host_count: int, node_count: int, ends_a: NDArray[np.int32], ends_b: NDArray[np.int32]) -> Ports:
    """Number the ports of the cables `ends_a[i]` - `ends_b[i]`: by node, within a node in the order of the cables.

    A cable of index i has the ports `cable_ports(...)` gives; a cable from a node to itself is not allowed.
    """
    cable_count = len(ends_a)
    node = np.empty(2 * cable_count, dtype=np.int32)
    node[0::2], node[1::2] = ends_a, ends_b
    order = np.argsort(node, kind="stable")  # position of end 2 * cable + side in the port numbering
    port_of_end = np.empty(2 * cable_count, dtype=np.int32)
    port_of_end[order] = np.arange(2 * cable_count, dtype=np.int32)
    start = np.zeros(node_count + 1, dtype=np.int32)
    np.cumsum(np.bincount(node, minlength=node_count), out=start[1:])
    return Ports(
        host_count=host_count,
        node_port_start=start,
        port_node=node[order],
        port_peer=port_of_end[order ^ 1],
    )


def cable_ports(ends_a: NDArray[np.int32], ends_b: NDArray[np.int32]) -> NDArray[np.int32]:
    """(cables, 2) port ids of the `a` and `b` end of every cable, numbered as `port_table` does."""
    node = np.stack([ends_a, ends_b], axis=1).ravel()
    port_of_end = np.empty(len(node), dtype=np.int32)
    port_of_end[np.argsort(node, kind="stable")] = np.arange(len(node), dtype=np.int32)
    return port_of_end.reshape(-1, 2)


def shortest_paths(
    ports: Ports, down: NDArray[np.bool_] | None = None, cost: NDArray[np.int32] | None = None
) -> Routes:
    """Equal-cost next hops of every switch, and of every host with several cables, towards every group.

    Parameters
    ----------
    ports
        The fabric.
    down
        (P,) ports whose cable is dead, both its ends; no path uses them. The groups are those of the whole fabric.
    cost
        (P,) what the cable of each port counts in the length of a path, 1 or more, equal at both its ends; by default
        1, and always where an end is a host.

    Raises ScenarioError when the fabric has more groups, or the table more entries, than the engine addresses.
    """
    host_group, group_root, host_access_port = _groups(ports)
    group_count = max(1, len(group_root))
    degree = ports.degree
    row_nodes = np.concatenate(
        [np.flatnonzero(degree[: ports.host_count] >= 2), np.arange(ports.host_count, ports.node_count)]
    ).astype(np.int32)
    if group_count > GROUPS_MAX:
        raise ScenarioError(
            f"the fabric has {group_count} groups of destinations (switches with hosts, and hosts with several "
            f"links); at most {GROUPS_MAX} are supported"
        )
    if len(row_nodes) * group_count > TABLE_ENTRIES_MAX:
        raise ScenarioError(
            f"the routing table of {len(row_nodes)} nodes and {group_count} groups of destinations would have "
            f"{len(row_nodes) * group_count} entries; at most {TABLE_ENTRIES_MAX} are supported"
        )
    node_route_row = np.full(ports.node_count, NONE, dtype=np.int32)
    node_route_row[row_nodes] = np.arange(len(row_nodes), dtype=np.int32)

    up = np.ones(len(ports.port_node), dtype=np.bool_) if down is None else ~down
    between = (ports.port_node >= ports.host_count) & (ports.peer_node >= ports.host_count)
    counted = np.where(between, 1 if cost is None else cost, 1).astype(np.int64)
    switch_distance = _switch_distances(ports, group_root, group_count, up, counted)
    # A group's root that is a host is at distance 0 of itself; no other host leads anywhere.
    root_group = np.full(ports.node_count, NONE, dtype=np.int32)
    root_group[group_root[group_root >= 0]] = np.flatnonzero(group_root >= 0)
    return Routes(
        host_group,
        host_access_port,
        node_route_row,
        *_RouteTable(ports, up, counted, switch_distance, root_group, group_count).fill(row_nodes),
    )


def reachable(ports: Ports, routes: Routes, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
    """(n,) whether there is a path from host `src[i]` to another host `dst[i]`."""
    degree = ports.degree
    group = routes.host_group[dst]
    # A host with one cable goes where the node at its other end goes; padding keeps isolated hosts in range.
    padded_peer = np.append(ports.peer_node, np.int32(0))
    neighbour = padded_peer[ports.node_port_start[src]]
    via = np.where(degree[src] == 1, neighbour, src)
    row = routes.node_route_row[via]
    # The row of a host without one does not matter, it must only exist.
    table = routes.route if len(routes.route) else np.full((1, routes.group_count), ROUTE_NONE, dtype=np.int32)
    routed = (row >= 0) & (table[row, group] != ROUTE_NONE)
    # The neighbour is a host itself: it does not forward, so only it can be reached.
    to_host = (degree[src] == 1) & (via < ports.host_count)
    return np.where(degree[src] == 0, False, np.where(to_host, via == dst, routed)) & (degree[dst] > 0)


def _groups(ports: Ports) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Groups in order of their first host: (H,) group, (G,) root node or NONE, (H,) access port or NONE."""
    hosts = np.arange(ports.host_count, dtype=np.int32)
    degree = ports.degree[: ports.host_count]
    access_port = np.full(ports.host_count, NONE, dtype=np.int32)
    root = np.full(ports.host_count, NONE, dtype=np.int32)  # isolated hosts keep NONE
    root[degree >= 1] = hosts[degree >= 1]
    single = np.flatnonzero(degree == 1)
    peer = ports.port_peer[ports.node_port_start[single]]
    behind_switch = ports.port_node[peer] >= ports.host_count
    access_port[single[behind_switch]] = peer[behind_switch]
    root[single[behind_switch]] = ports.port_node[peer[behind_switch]]
    roots, first, inverse = np.unique(root, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(roots), dtype=np.int32)
    rank[order] = np.arange(len(roots), dtype=np.int32)
    return rank[inverse.reshape(-1)].astype(np.int32), roots[order].astype(np.int32), access_port


def _switch_distances(
    ports: Ports,
    group_root: NDArray[np.int32],
    group_count: int,
    up: NDArray[np.bool_],
    cost: NDArray[np.int64],
) -> NDArray[np.int32]:
    """(switches, G) length of the way from every switch to the root of every group, UNREACHED where there is none."""
    host_count = ports.host_count
    switch_count = ports.node_count - host_count
    distance = np.full((switch_count, group_count), UNREACHED, dtype=np.int32)
    peer_node = ports.peer_node
    neighbourhoods = [(step, *_neighbours(ports, up & (cost == step))) for step in distinct(cost[up]).tolist()] or [
        (1, *_neighbours(ports, up))
    ]
    step_max = neighbourhoods[-1][0]

    word_count = -(-group_count // 64)
    seen = np.zeros((switch_count, word_count), dtype=_LITTLE_WORD)
    at_level = np.zeros_like(seen)
    groups = np.arange(len(group_root))
    bit = np.uint64(1) << (groups % 64).astype(np.uint64)
    is_switch = group_root >= host_count
    np.bitwise_or.at(at_level, (group_root[is_switch] - host_count, groups[is_switch] // 64), bit[is_switch])
    # Switches next to a root that is a host join at level 1.
    beside_host = np.zeros_like(seen)
    for group in np.flatnonzero((group_root >= 0) & ~is_switch).tolist():
        root = int(group_root[group])
        own = slice(ports.node_port_start[root], ports.node_port_start[root + 1])
        peers = peer_node[own][up[own]]
        beside_host[peers[peers >= host_count] - host_count, group // 64] |= bit[group]

    level = 0
    recent: list[tuple[bool, Words]] = []  # the last levels, the latest first, as far back as the longest cable reaches
    while True:
        rows = np.flatnonzero(at_level.any(axis=1))
        recent = [(len(rows) > 0, at_level), *recent][:step_max]
        if len(rows):
            bits = np.unpackbits(at_level[rows].view(np.uint8), axis=1, count=group_count, bitorder="little")
            distance[rows] = np.where(bits, np.int32(level), distance[rows])
            seen |= at_level
        elif level > 0 and not any(grows for grows, _ in recent):
            return distance
        following = np.zeros_like(seen)
        for step, nodes, neighbours, node_first in neighbourhoods:
            if len(nodes) and step <= len(recent) and recent[step - 1][0]:
                following[nodes] |= np.bitwise_or.reduceat(recent[step - 1][1][neighbours], node_first, axis=0)
        if level == 0:
            following |= beside_host
        at_level = following & ~seen
        level += 1


def _neighbours(
    ports: Ports, usable: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Switches with neighbours over usable ports; all their neighbours; where those of each switch begin."""
    host_count = ports.host_count
    switch_count = ports.node_count - host_count
    # Distinct pairs of neighbouring switches, by the first of the pair: parallel cables count once here.
    between = (ports.port_node >= host_count) & (ports.peer_node >= host_count) & usable
    pairs = distinct(
        (ports.port_node[between].astype(np.int64) - host_count) * max(1, switch_count)
        + (ports.peer_node[between] - host_count)
    )
    nodes, neighbours = np.divmod(pairs, max(1, switch_count))
    node_first = np.flatnonzero(np.diff(nodes, prepend=-1))
    return nodes[node_first], neighbours, node_first


class _RouteTable:
    """The rows of the table, and equal-cost sets, numbered in the order in which rows first need them.

    What a row says depends on how far its node and its neighbours are from each group, and fabrics are regular: all
    core switches of a fat tree have one such view, and all aggregation switches of a pod. So a row is worked out once
    for every view, in ports counted from the node's first, and neighbours that are equally far from every group are
    looked at once.
    """

    def __init__(
        self,
        ports: Ports,
        up: NDArray[np.bool_],
        cost: NDArray[np.int64],
        switch_distance: NDArray[np.int32],
        root_group: NDArray[np.int32],
        group_count: int,
    ) -> None:
        self._ports = ports
        self._up = up
        self._cost = cost
        self._cost_max = int(cost.max(initial=1))
        self._distance = switch_distance
        self._root_group = root_group
        self._group_count = group_count
        # Number of the distances of every node, equal ones alike; hosts that are roots have their own.
        seen: dict[bytes, int] = {}
        of_switch = [seen.setdefault(row.tobytes(), len(seen)) for row in switch_distance]
        self._view = np.full(ports.node_count, NONE, dtype=np.int64)
        self._view[ports.host_count :] = of_switch
        roots = np.flatnonzero(root_group[: ports.host_count] >= 0)
        self._view[roots] = len(seen) + np.arange(len(roots))

    def fill(self, row_nodes: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """(rows, G) table, (sets+1,) starts and the port ids of all sets."""
        route = np.empty((len(row_nodes), self._group_count), dtype=np.int32)
        known: dict[tuple[int, bytes], tuple[NDArray[np.int32], list[NDArray[np.int32]]]] = {}
        members: list[NDArray[np.int32]] = []
        ports, peer_node = self._ports, self._ports.peer_node
        for row, node in enumerate(row_nodes.tolist()):
            first, last = int(ports.node_port_start[node]), int(ports.node_port_start[node + 1])
            peers = peer_node[first:last]
            # Ports to single-homed hosts are never next hops: their switch reaches them by ROUTE_LOCAL.
            usable = ((peers >= ports.host_count) | (self._root_group[peers] >= 0)) & self._up[first:last]
            cost = self._cost[first:last]
            views = np.where(usable, self._view[peers] * self._cost_max + (cost - 1), NONE)
            # A host knows its own distances from its neighbours', and which group it is itself.
            own = int(self._view[node]) if node >= ports.host_count else -2 - int(self._root_group[node])
            key = (own, views.tobytes())
            if key not in known:
                known[key] = self._row(node, peers, views, cost)
            template, sets = known[key]
            np.add(template, first, out=route[row], where=template >= 0)
            np.copyto(route[row], template, where=(template < 0) & (template > ROUTE_SET_BASE))
            np.subtract(template, len(members), out=route[row], where=template <= ROUTE_SET_BASE)
            members.extend(ports_of_set + np.int32(first) for ports_of_set in sets)
        start = np.zeros(len(members) + 1, dtype=np.int32)
        np.cumsum([len(ports_of_set) for ports_of_set in members], out=start[1:])
        return route, start, np.concatenate(members) if members else np.zeros(0, dtype=np.int32)

    def _row(
        self, node: int, peers: NDArray[np.int32], views: NDArray[np.int64], cost: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], list[NDArray[np.int32]]]:
        """(G,) one row, and its sets: ports counted from the node's first, sets from 0."""
        host_count = self._ports.host_count
        useful = np.flatnonzero(views != NONE)
        # Neighbours of one view at one cost are next hops for the same groups.
        _, example, kind = np.unique(views[useful], return_index=True, return_inverse=True)
        neighbours = peers[useful[example]]
        peer_distance = np.full((len(neighbours), self._group_count), UNREACHED, dtype=np.int32)
        is_switch = neighbours >= host_count
        peer_distance[is_switch] = self._distance[neighbours[is_switch] - host_count]
        at_host = np.flatnonzero(~is_switch)
        peer_distance[at_host, self._root_group[neighbours[at_host]]] = 0
        if node >= host_count:
            own = self._distance[node - host_count]
        else:
            own = peer_distance.min(axis=0, initial=UNREACHED) + 1
            own[own > UNREACHED] = UNREACHED
            if self._root_group[node] >= 0:
                own[self._root_group[node]] = 0
        chosen = (peer_distance == own - cost[useful[example]][:, None]) & (own < UNREACHED)
        entries = np.full(self._group_count, ROUTE_NONE, dtype=np.int32)
        # Groups that the same neighbours lead to share their ports. A set belongs to one node: rows never share any.
        packed = np.packbits(chosen, axis=0).T
        padded = np.zeros((self._group_count, -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : packed.shape[1]] = packed
        words = padded.view(np.uint64)
        key = words[:, 0] if words.shape[1] == 1 else words
        _, first, inverse = np.unique(key, axis=0, return_index=True, return_inverse=True)
        sets: list[NDArray[np.int32]] = []
        entry_of_choice = np.empty(len(first), dtype=np.int32)
        for choice in np.argsort(first, kind="stable").tolist():
            choosing = useful[chosen[kind, first[choice]]].astype(np.int32)
            if len(choosing) > 1:
                entry_of_choice[choice] = ROUTE_SET_BASE - len(sets)
                sets.append(choosing)
            else:
                entry_of_choice[choice] = choosing[0] if len(choosing) else ROUTE_NONE
        entries[:] = entry_of_choice[inverse.reshape(-1)]
        if node >= host_count:
            entries[own == 0] = ROUTE_LOCAL
        return entries, sets
