"""Routing tables against a plain breadth-first search, and their shape on known fabrics."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabemu.plan import NONE, ROUTE_LOCAL, ROUTE_NONE, ROUTE_SET_BASE
from fabemu.routing import Ports, Routes, cable_ports, port_table, reachable, shortest_paths
from fabemu.topology.cable import Fabric
from fabemu.topology.fat_tree import fat_tree
from fabemu.topology.leaf_spine import leaf_spine
from fabemu.topology.line import chain, dumbbell, single_switch


def ports_of(fabric: Fabric) -> Ports:
    return port_table(fabric.host_count, fabric.node_count, *fabric.cable_ends())


def ports_of_pairs(host_count: int, node_count: int, pairs: list[tuple[int, int]]) -> Ports:
    ends = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return port_table(host_count, node_count, ends[:, 0], ends[:, 1])


def next_hops(ports: Ports, routes: Routes, node: int, dst: int) -> list[int]:
    """Ports by which `node` may send to host `dst`, as the engine reads the table."""
    row = routes.node_route_row[node]
    if row == NONE:
        return list(range(ports.node_port_start[node], ports.node_port_start[node + 1]))
    entry = int(routes.route[row, routes.host_group[dst]])
    if entry >= 0:
        return [entry]
    if entry == ROUTE_LOCAL:
        return [int(routes.host_access_port[dst])]
    if entry == ROUTE_NONE:
        return []
    start, end = routes.nexthop_start[ROUTE_SET_BASE - entry : ROUTE_SET_BASE - entry + 2]
    return routes.nexthop_port[start:end].tolist()


def searched_next_hops(ports: Ports, node: int, dst: int) -> list[int]:
    """The same by a search from `dst` that never passes through a host."""
    distance = {dst: 0}
    queue = deque([dst])
    while queue:
        here = queue.popleft()
        if here < ports.host_count and here != dst:
            continue
        for port in range(ports.node_port_start[here], ports.node_port_start[here + 1]):
            neighbour = int(ports.peer_node[port])
            if neighbour not in distance:
                distance[neighbour] = distance[here] + 1
                queue.append(neighbour)
    if node not in distance or node == dst:
        return []
    own = range(ports.node_port_start[node], ports.node_port_start[node + 1])
    forwards = lambda other: other >= ports.host_count or other == dst  # noqa: E731
    return [
        port
        for port in own
        if forwards(peer := int(ports.peer_node[port])) and distance.get(peer, -9) == distance[node] - 1
    ]


@st.composite
def random_ports(draw: st.DrawFn) -> Ports:
    hosts = draw(st.integers(1, 6))
    nodes = hosts + draw(st.integers(0, 6))
    end = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(end, end).filter(lambda pair: pair[0] != pair[1]), max_size=20))
    return ports_of_pairs(hosts, nodes, pairs)


@settings(max_examples=200, deadline=None)
@given(random_ports())
def test_next_hops_are_those_of_a_plain_search(ports: Ports) -> None:
    routes = shortest_paths(ports)
    for dst in range(ports.host_count):
        for node in range(ports.node_count):
            expected = searched_next_hops(ports, node, dst)
            if routes.node_route_row[node] != NONE:
                assert next_hops(ports, routes, node, dst) == expected
            if node < ports.host_count and node != dst:
                ends = np.array([[node], [dst]], dtype=np.int32)
                assert reachable(ports, routes, ends[0], ends[1])[0] == bool(expected)


def searched_at_cost(ports: Ports, cost: np.ndarray, node: int, dst: int) -> list[int]:
    """The same with cables that count more than one: relaxed until nothing gets nearer."""
    far = 10**6
    distance = [0 if other == dst else far for other in range(ports.node_count)]
    through = [other >= ports.host_count or other == dst for other in range(ports.node_count)]
    for _ in range(ports.node_count):
        for port in range(len(ports.port_node)):
            here, there = int(ports.port_node[port]), int(ports.peer_node[port])
            if through[there]:
                distance[here] = min(distance[here], distance[there] + int(cost[port]))
    own = range(ports.node_port_start[node], ports.node_port_start[node + 1])
    if node == dst or distance[node] >= far:
        return []
    return [
        port
        for port in own
        if through[peer := int(ports.peer_node[port])] and distance[peer] + int(cost[port]) == distance[node]
    ]


@settings(max_examples=100, deadline=None)
@given(random_ports(), st.data())
def test_cables_may_count_more_than_one(ports: Ports, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 5]), min_size=len(ports.port_node), max_size=99))
    between = (ports.port_node >= ports.host_count) & (ports.peer_node >= ports.host_count)
    first = np.minimum(np.arange(len(ports.port_node)), ports.port_peer)
    cost = np.where(between, np.array(drawn, dtype=np.int32)[first] if len(first) else 1, 1).astype(np.int32)
    routes = shortest_paths(ports, None, cost)
    for dst in range(ports.host_count):
        for node in range(ports.node_count):
            if routes.node_route_row[node] != NONE:
                assert next_hops(ports, routes, node, dst) == searched_at_cost(ports, cost, node, dst)


@settings(max_examples=100, deadline=None)
@given(random_ports())
def test_sets_are_distinct_sorted_and_of_one_node(ports: Ports) -> None:
    routes = shortest_paths(ports)
    sets = [
        tuple(routes.nexthop_port[first:last].tolist())
        for first, last in zip(routes.nexthop_start[:-1], routes.nexthop_start[1:], strict=True)
    ]
    assert len(set(sets)) == len(sets)
    for members in sets:
        assert len(members) >= 2
        assert list(members) == sorted(members)
        assert len(set(ports.port_node[list(members)].tolist())) == 1


def path_count(ports: Ports, routes: Routes, src: int, dst: int) -> int:
    if src == dst:
        return 1
    return sum(
        path_count(ports, routes, int(ports.peer_node[port]), dst) for port in next_hops(ports, routes, src, dst)
    )


def test_ports_are_numbered_by_node_and_cable() -> None:
    ports = ports_of_pairs(2, 4, [(0, 2), (3, 2), (1, 3), (2, 3)])
    assert ports.node_port_start.tolist() == [0, 1, 2, 5, 8]
    assert ports.port_node.tolist() == [0, 1, 2, 2, 2, 3, 3, 3]
    assert ports.port_peer.tolist() == [2, 6, 0, 5, 7, 3, 1, 4]
    ends = np.array([(0, 2), (3, 2), (1, 3), (2, 3)], dtype=np.int32)
    assert cable_ports(ends[:, 0], ends[:, 1]).tolist() == [[0, 2], [5, 3], [1, 6], [4, 7]]


@pytest.mark.parametrize(("k", "same_pod", "other_pod"), [(2, 1, 1), (4, 2, 4), (6, 3, 9)])
def test_fat_tree_has_the_known_number_of_paths(k: int, same_pod: int, other_pod: int) -> None:
    half = k // 2
    fabric = fat_tree(pods=k, edges_per_pod=half, aggs_per_pod=half, cores=half * half, hosts_per_edge=half)
    assert fabric.host_count == k**3 // 4
    ports, hosts_per_pod = ports_of(fabric), half * half
    routes = shortest_paths(ports)
    assert path_count(ports, routes, 0, hosts_per_pod) == other_pod
    if k > 2:
        assert path_count(ports, routes, 0, 1) == 1
        assert path_count(ports, routes, 0, half) == same_pod


def test_parallel_links_all_carry_traffic() -> None:
    fabric = leaf_spine(leaves=2, hosts_per_leaf=1, spines=2, uplinks=3)
    ports = ports_of(fabric)
    routes = shortest_paths(ports)
    leaf0 = fabric.switch_names.index("leaf0") + fabric.host_count
    start = int(ports.node_port_start[leaf0])
    assert next_hops(ports, routes, leaf0, 1) == list(range(start + 1, start + 7))
    assert path_count(ports, routes, 0, 1) == 18


def test_sets_of_equal_members_are_shared() -> None:
    fabric = leaf_spine(leaves=8, hosts_per_leaf=2, spines=4, uplinks=1)
    routes = shortest_paths(ports_of(fabric))
    assert routes.group_count == 8
    assert len(routes.nexthop_start) - 1 == 8  # one per leaf, for all seven others


def test_hosts_never_forward() -> None:
    # Host 1 is cabled to both switches, and would be the only bridge between them.
    ports = ports_of_pairs(3, 5, [(0, 3), (1, 3), (1, 4), (2, 4)])
    routes = shortest_paths(ports)
    src, dst = np.array([0, 0, 1, 1], dtype=np.int32), np.array([2, 1, 2, 0], dtype=np.int32)
    assert reachable(ports, routes, src, dst).tolist() == [False, True, True, True]


def test_multi_homed_host_is_a_group_with_a_row() -> None:
    ports = ports_of_pairs(3, 5, [(0, 3), (1, 3), (1, 4), (2, 3), (3, 4)])
    routes = shortest_paths(ports)
    assert routes.host_group[0] == routes.host_group[2] != routes.host_group[1]
    assert routes.host_access_port[1] == NONE
    assert routes.node_route_row[:3].tolist() == [NONE, 0, NONE]


def test_hosts_cabled_to_each_other_reach_only_each_other() -> None:
    ports = ports_of_pairs(3, 4, [(0, 1), (2, 3)])
    routes = shortest_paths(ports)
    src, dst = np.array([0, 1, 0, 2], dtype=np.int32), np.array([1, 0, 2, 0], dtype=np.int32)
    assert reachable(ports, routes, src, dst).tolist() == [True, True, False, False]


def test_isolated_hosts_are_reached_by_nothing() -> None:
    ports = ports_of_pairs(3, 4, [(0, 3)])
    routes = shortest_paths(ports)
    src, dst = np.array([0, 1, 1], dtype=np.int32), np.array([1, 0, 2], dtype=np.int32)
    assert reachable(ports, routes, src, dst).tolist() == [False, False, False]


def test_long_chain_and_wide_switch() -> None:
    for fabric in (
        chain(switches=200, hosts_per_switch=1),
        single_switch(hosts=4096),
        dumbbell(left=3, right=2, trunks=70),
    ):
        ports = ports_of(fabric)
        routes = shortest_paths(ports)
        assert reachable(ports, routes, np.array([0]), np.array([fabric.host_count - 1])).all()
    # More than 64 members: the set does not fit one machine word.
    assert len(next_hops(ports, routes, 5, 4)) == 70


def test_a_regular_fabric_with_dead_cables_still_has_shortest_paths() -> None:
    """Rows of equal switches are worked out once: a dead cable must make their rows differ."""
    fabric = fat_tree(pods=4, edges_per_pod=2, aggs_per_pod=2, cores=4, hosts_per_edge=2)
    ends_a, ends_b = fabric.cable_ends()
    between = np.flatnonzero(np.minimum(ends_a, ends_b) >= fabric.host_count)
    for cables in (between[[0]], between[[3, 9, 17]], between[-5:]):
        down = np.zeros(2 * len(ends_a), dtype=np.bool_)
        down[cable_ports(ends_a, ends_b)[cables].ravel()] = True
        whole = port_table(fabric.host_count, fabric.node_count, ends_a, ends_b)
        routes = shortest_paths(whole, down)
        rest = np.setdiff1d(np.arange(len(ends_a)), cables)
        alive = port_table(fabric.host_count, fabric.node_count, ends_a[rest], ends_b[rest])
        # Ports by their cables: those that are left have other numbers without the dead ones.
        number = np.zeros(len(alive.port_node), dtype=np.int64)
        number[cable_ports(ends_a[rest], ends_b[rest])] = cable_ports(ends_a, ends_b)[rest]
        for node in range(fabric.host_count, fabric.node_count):
            for dst in range(fabric.host_count):
                found = sorted(number[searched_next_hops(alive, node, dst)].tolist())
                assert next_hops(whole, routes, node, dst) == found
