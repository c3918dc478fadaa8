"""Fabrics of GPU clusters: names, degrees, paths, servers and rails, and what is said of wrong ones."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fabemu.compile import Compiled, compile_plan
from fabemu.cost.footprint import counts_of
from fabemu.cost.size import counts_of_scenario, route_bytes
from fabemu.errors import ScenarioError
from fabemu.lint import lint
from fabemu.plan import NONE, ROUTE_LOCAL, ROUTE_NONE, ROUTE_SET_BASE
from fabemu.scenario import Scenario, scenario_from_dict
from fabemu.topology.cable import Fabric
from fabemu.topology.dragonfly import dragonfly

FLOW = {"kind": "flows", "flow": [{"src": "x", "dst": "y", "size": "1B"}]}
ALL_TO_ALL = {"kind": "all-to-all", "size": "1B"}


def scenario(table: dict[str, Any], **more: Any) -> Scenario:
    return scenario_from_dict({"fabric": table, "workload": [FLOW], **more})


def compiled(table: dict[str, Any], hosts: Any = "all", **more: Any) -> Compiled:
    return compile_plan(scenario(table, **{"workload": [{**ALL_TO_ALL, "hosts": hosts}], **more}))


def refusal(table: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        compile_plan(scenario(table, **more))
    return str(error.value)


def degrees(fabric: Fabric) -> dict[str, int]:
    degree = Counter(fabric.node_names[end] for cable in fabric.cables for end in (cable.a, cable.b))
    return {name: degree[name] for name in fabric.node_names}


def next_ports(plan: Any, node: int, dst: int) -> list[int]:
    """Ports by which a node may send towards a host: a host has one, or a row of the table."""
    row = plan.node_route_row[node]
    if row == NONE:
        return [int(plan.node_port_start[node])]
    entry = int(plan.route[row * plan.group_count + plan.host_group[dst]])
    if entry >= 0:
        return [entry]
    if entry == ROUTE_LOCAL:
        return [int(plan.host_access_port[dst])]
    if entry == ROUTE_NONE:
        return []
    number = ROUTE_SET_BASE - entry
    return plan.nexthop_port[plan.nexthop_start[number] : plan.nexthop_start[number + 1]].tolist()


def paths(item: Compiled, src: str, dst: str) -> list[list[str]]:
    """All paths that the tables allow, as the names of the switches between."""
    plan, ids = item.plan, item.fabric.node_ids
    peer = plan.port_node[plan.port_peer]

    def onward(node: int, trail: list[str]) -> list[list[str]]:
        assert len(trail) <= plan.node_count, "the routes lead in a circle"
        found = []
        for port in next_ports(plan, node, ids[dst]):
            following = int(peer[port])
            name = item.node_names[following]
            found += [trail] if following == ids[dst] else onward(following, [*trail, name])
        return found

    return onward(ids[src], [])


# Nodes.


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "single-switch", "hosts": 10},
        {"kind": "leaf-spine", "leaves": 5, "hosts_per_leaf": 2, "spines": 1},
        {"kind": "fat-tree", "pods": 5, "edges_per_pod": 1, "aggs_per_pod": 1, "cores": 1, "hosts_per_edge": 2},
        {"kind": "graph", "hosts": 10},
        {"kind": "torus", "dimensions": [5, 2]},
        {"kind": "dragonfly", "groups": 5, "routers_per_group": 2, "global_links": 2},
    ],
)
def test_hosts_that_make_no_whole_nodes(table: dict[str, Any]) -> None:
    message = "the fabric has 10 hosts, not a multiple of gpus_per_node = 4: 8 or 12 would make whole nodes"
    assert refusal({**table, "gpus_per_node": 4}).endswith(f"fabric.gpus_per_node = 4: {message}")
    assert scenario({**table, "gpus_per_node": 5}).fabric.gpus_of_node == 5


def test_hosts_in_turn_make_the_nodes_of_other_fabrics() -> None:
    table = {"kind": "fat-tree", "k": 4}
    plain = compiled(table).fabric
    assert plain.host_node.tolist() == list(range(16))
    assert set(plain.host_rail.tolist()) == {NONE}
    fabric = compiled({**table, "gpus_per_node": 4}).fabric
    assert fabric.host_names == plain.host_names
    assert fabric.host_node.tolist() == [host // 4 for host in range(16)]
    assert fabric.server_count == 4


def test_scale_up_needs_nodes_of_several_gpus() -> None:
    single = {"kind": "single-switch", "hosts": 8}
    assert "every node of this fabric has one: give gpus_per_node in [fabric]" in refusal(single, scale_up={})
    chain = {"kind": "chain", "switches": 8}
    assert "a chain fabric has no nodes of several GPUs" in refusal(chain, scale_up={})
    single["gpus_per_node"] = 4
    table = scenario(single, scale_up={}).scale_up
    assert table is not None
    assert (table.model, table.bandwidth, table.latency) == ("analytic", 3_600 * 10**9, 500_000)
    assert "an even number of ps" in refusal(single, scale_up={"model": "packets", "latency": "3ps"})
    assert 'compat = "ns3" does not have it' in refusal(single, scale_up={}, compat="ns3")
    by_tier = {"tier": {"scale-up": {"rate": "1Tbps"}}}
    assert "the scale-up network has a table of its own: [scale_up]" in refusal(single, scale_up={}, link=by_tier)


# Rails.


def test_rail_optimised() -> None:
    item = compiled({"kind": "rail", "nodes": 3, "gpus_per_node": 2, "spines": 2, "uplinks": 2})
    fabric = item.fabric
    assert fabric.host_names == ["n0g0", "n0g1", "n1g0", "n1g1", "n2g0", "n2g1"]
    assert fabric.switch_names == ["rail0", "rail1", "spine0", "spine1"]
    assert fabric.host_node.tolist() == [0, 0, 1, 1, 2, 2]
    assert fabric.host_rail.tolist() == [0, 1, 0, 1, 0, 1]
    assert degrees(fabric) == dict.fromkeys(fabric.host_names, 1) | {
        "rail0": 3 + 4, "rail1": 3 + 4, "spine0": 4, "spine1": 4
    }  # fmt: skip
    assert paths(item, "n0g1", "n2g1") == [["rail1"]]
    assert Counter(map(tuple, paths(item, "n0g0", "n0g1"))) == {
        ("rail0", "spine0", "rail1"): 4,
        ("rail0", "spine1", "rail1"): 4,
    }


def test_rails_of_several_units() -> None:
    item = compiled({"kind": "rail", "nodes": 5, "gpus_per_node": 2, "spines": 1, "nodes_per_leaf": 2})
    assert item.fabric.switch_names == ["rail0-0", "rail0-1", "rail0-2", "rail1-0", "rail1-1", "rail1-2", "spine0"]
    assert paths(item, "n2g1", "n3g1") == [["rail1-1"]]
    assert paths(item, "n2g1", "n4g1") == [["rail1-1", "spine0", "rail1-2"]]
    assert degrees(item.fabric)["rail1-2"] == 2  # the last unit is not full
    table = {"kind": "rail", "nodes": 5, "gpus_per_node": 2, "spines": 1, "nodes_per_leaf": 6}
    assert refusal(table).endswith("fabric.nodes_per_leaf = 6: there are 5 nodes only: at most 5, or leave it out")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
def test_paths_of_rails_are_as_many_and_as_long_as_their_spines_say(
    nodes: int, gpus: int, per_leaf: int, spines: int, uplinks: int, planes: int
) -> None:
    assume(nodes * gpus > 1 and per_leaf <= nodes)
    table = {"kind": "rail", "nodes": nodes, "gpus_per_node": gpus, "spines": spines, "nodes_per_leaf": per_leaf}
    item = compiled({**table, "uplinks": uplinks, "planes": planes})
    fabric = item.fabric
    for src, dst in _some_pairs(nodes * gpus):
        unit = fabric.host_node // per_leaf
        one_leaf = fabric.host_rail[src] == fabric.host_rail[dst] and unit[src] == unit[dst]
        found = paths(item, fabric.host_names[src], fabric.host_names[dst])
        assert {len(path) for path in found} == {1 if one_leaf else 3}
        assert len(found) == planes * (1 if one_leaf else spines * uplinks**2)


@pytest.mark.parametrize(
    ("table", "planes"),
    [
        ({"kind": "rail", "nodes": 3, "gpus_per_node": 2, "spines": 2}, 2),
        ({"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 3, "spines": 2, "gpus_per_node": 3}, 3),
        ({"kind": "rail-only", "nodes": 3, "gpus_per_node": 2}, 2),
    ],
)
def test_planes_are_separate_up_to_the_host(table: dict[str, Any], planes: int) -> None:
    hosts = "n*g0" if table["kind"] == "rail-only" else "all"
    one, several = compiled(table, hosts), compiled({**table, "planes": planes}, hosts)
    assert several.fabric.host_names == one.fabric.host_names
    assert several.fabric.switch_names == [
        f"p{plane}-{name}" for plane in range(planes) for name in one.fabric.switch_names
    ]
    assert several.fabric.host_node.tolist() == one.fabric.host_node.tolist()
    first, last = (one.fabric.host_names[0], one.fabric.host_names[-2 if hosts == "n*g0" else -1])
    expected = paths(one, first, last)
    assert paths(several, first, last) == [
        [f"p{plane}-{name}" for name in path] for plane in range(planes) for path in expected
    ]


def test_rail_only_does_not_join_its_rails() -> None:
    table = {"kind": "rail-only", "nodes": 3, "gpus_per_node": 2}
    item = compiled(table, "n*g1")
    assert item.fabric.switch_names == ["rail0", "rail1"]
    assert paths(item, "n0g1", "n2g1") == [["rail1"]]
    text = refusal(table, workload=[{"kind": "flows", "flow": [{"src": "n0g0", "dst": "n1g1", "size": "1B"}]}])
    assert "n1g1 is unreachable from n0g0: they are in rails 0 and 1, and no path joins these" in text
    assert "send to the GPU of the other rail in the own node by [scale_up], and from there along that rail" in text
    assert 'or use kind = "rail", whose spines join the rails' in text
    everything = refusal(table, workload=[{"kind": "all-to-all", "size": "1B"}])
    assert everything.count("a rail-only fabric does not join its rails") == 1


# Torus.


def test_torus() -> None:
    fabric = compiled({"kind": "torus", "dimensions": [4, 3], "hosts_per_switch": 2}).fabric
    assert fabric.switch_names[:6] == ["t0-0", "t1-0", "t2-0", "t3-0", "t0-1", "t1-1"]
    assert Counter(cable.tier for cable in fabric.cables) == {"host": 24, "x": 12, "y": 12}
    assert set(list(degrees(fabric).values())[24:]) == {2 + 4}
    joined = {frozenset((fabric.node_names[cable.a], fabric.node_names[cable.b])) for cable in fabric.cables}
    assert frozenset(("t3-1", "t0-1")) in joined
    assert frozenset(("t1-0", "t1-2")) in joined
    assert frozenset(("t0-0", "t2-0")) not in joined
    flat = compiled({"kind": "torus", "dimensions": [2, 3, 2]}).fabric
    assert Counter(cable.tier for cable in flat.cables) == {"host": 12, "x": 6, "y": 12, "z": 6}
    assert flat.switch_names[:3] == ["t0-0-0", "t1-0-0", "t0-1-0"]


def test_dimension_order_goes_along_x_then_y_then_z() -> None:
    item = compiled({"kind": "torus", "dimensions": [5, 5, 5]})
    host = {name: f"h{index}" for index, name in enumerate(item.fabric.switch_names)}
    # By hand: x from 1 down to 4 is the shorter way (2 steps), y up 1, z up 2.
    expected = ["t1-1-1", "t0-1-1", "t4-1-1", "t4-2-1", "t4-2-2", "t4-2-3"]
    assert paths(item, host["t1-1-1"], host["t4-2-3"]) == [expected]
    assert paths(item, host["t4-2-3"], host["t1-1-1"]) == [["t4-2-3", "t0-2-3", "t1-2-3", "t1-1-3", "t1-1-2", "t1-1-1"]]


def test_ties_of_a_torus_go_up_from_even_places_and_down_from_odd_ones() -> None:
    item = compiled({"kind": "torus", "dimensions": [4, 2]})
    assert paths(item, "h0", "h2") == [["t0-0", "t1-0", "t2-0"]]
    assert paths(item, "h1", "h3") == [["t1-0", "t0-0", "t3-0"]]
    assert paths(item, "h2", "h0") == [["t2-0", "t3-0", "t0-0"]]
    assert paths(item, "h3", "h1") == [["t3-0", "t2-0", "t1-0"]]


def test_a_torus_may_take_all_shortest_paths() -> None:
    item = compiled({"kind": "torus", "dimensions": [4, 4], "routing": "shortest"})
    assert sorted(paths(item, "h0", "h5")) == [["t0-0", "t0-1", "t1-1"], ["t0-0", "t1-0", "t1-1"]]


def test_dimension_order_gives_way_where_a_cable_is_dead() -> None:
    fault = {"kind": "link-down", "link": ["t1-0", "t2-0"], "start": "1us"}
    item = compiled({"kind": "torus", "dimensions": [4, 4]}, fault=[fault])
    plan = item.plan
    assert plan.route_epochs == 2
    whole, broken = plan.route.reshape(2, -1)
    # Of the columns, those change whose tree of dimension-order paths has the cable, and as a whole.
    changed = (whole != broken).reshape(-1, plan.group_count).any(axis=0)
    peer = plan.port_node[plan.port_peer]
    ids = item.fabric.node_ids
    ends = {ids["t1-0"], ids["t2-0"]}
    used = [
        any(
            {node, int(peer[port])} == ends
            for node in range(plan.host_count, plan.node_count)
            for port in next_ports(plan, node, group)  # one host per switch: groups are hosts
        )
        for group in range(plan.group_count)
    ]
    assert changed.tolist() == used
    assert 0 < sum(used) < plan.group_count


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        ([4], "a torus has two or three dimensions, not 1 dimension: write [4, 4] or [4, 4, 4]"),
        ([2, 2, 2, 2], "a torus has two or three dimensions, not 4 dimensions: write [4, 4] or [4, 4, 4]"),
        ([4, 1], "a ring of 1 switch: a torus needs at least 2 along y"),
        ([4, 4, 1], "a ring of 1 switch: a torus needs at least 2 along z; leave z out"),
        ([10_000, 10_000], "this fabric has 100,000,000 hosts; at most 1,000,000 are supported"),
    ],
)
def test_wrong_tori(dimensions: list[int], message: str) -> None:
    assert message in refusal({"kind": "torus", "dimensions": dimensions})


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 5), min_size=2, max_size=3), st.integers(1, 2), st.sampled_from(["all", "one"]))
def test_paths_of_a_torus_are_as_long_as_its_rings_say(sizes: list[int], per_switch: int, way: str) -> None:
    routing = "dimension-order" if way == "one" else "shortest"
    item = compiled({"kind": "torus", "dimensions": sizes, "hosts_per_switch": per_switch, "routing": routing})
    places = [np.unravel_index(at, sizes[::-1])[::-1] for at in range(int(np.prod(sizes)))]
    for src, dst in _some_pairs(len(places)):
        length = sum(
            min((a - b) % size, (b - a) % size) for a, b, size in zip(places[src], places[dst], sizes, strict=True)
        )
        found = paths(item, f"h{src * per_switch}", f"h{dst * per_switch}")
        assert {len(path) for path in found} == {length + 1}
        assert len(found) == 1 or way == "all"


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        ({"kind": "torus", "dimensions": [4, 4, 2]}, {"FB303"}),
        ({"kind": "torus", "dimensions": [3, 4]}, {"FB303"}),
        ({"kind": "torus", "dimensions": [5, 3]}, {"FB301"}),
        ({"kind": "torus", "dimensions": [4, 4], "routing": "shortest"}, {"FB301"}),
        ({"kind": "dragonfly", "groups": 9, "routers_per_group": 4, "global_links": 2}, {"FB301"}),
        ({"kind": "rail", "nodes": 4, "gpus_per_node": 2, "spines": 2, "planes": 2}, {"FB303"}),
    ],
)
def test_the_linter_knows_which_fabrics_can_deadlock(table: dict[str, Any], codes: set[str]) -> None:
    checked = scenario(table, workload=[ALL_TO_ALL])
    assert {item.code for item in lint(checked, compile_plan(checked)) if item.code.startswith("FB30")} == codes


def test_the_linter_compares_the_rails_of_gpus_and_planes() -> None:
    table = {"kind": "rail", "nodes": 4, "gpus_per_node": 2, "spines": 2, "planes": 2}
    slow = [{"between": ["n1g0", "p1-rail0"], "rate": "100Gbps"}]
    more = {"frontend": {"storage_hosts": 2}}  # whose hosts have one port: no rail of anything
    for fabric in (table, {**table, **more}):
        # The host, and all of the plane that differs from the other.
        for overrides, expected in (([], []), (slow, ["n1g0", "p1-rail0"])):
            checked = scenario(fabric, workload=[{**ALL_TO_ALL, "hosts": "n*g*"}], link={"override": overrides})
            found = [item for item in lint(checked, compile_plan(checked)) if item.code == "FB324"]
            assert sorted(place for item in found for place in item.places) == expected


# Dragonfly.


def test_dragonfly() -> None:
    table = {"kind": "dragonfly", "groups": 9, "routers_per_group": 4, "hosts_per_router": 2, "global_links": 2}
    item = compiled(table)
    fabric = item.fabric
    assert fabric.switch_names[:5] == ["r0-0", "r0-1", "r0-2", "r0-3", "r1-0"]
    assert Counter(cable.tier for cable in fabric.cables) == {"host": 72, "local": 9 * 6, "global": 36}
    assert set(list(degrees(fabric).values())[72:]) == {2 + 3 + 2}
    between = Counter(_groups_of(fabric, cable) for cable in fabric.cables if cable.tier == "global")
    assert between == {frozenset((a, b)): 1 for a in range(9) for b in range(a)}


def _groups_of(fabric: Fabric, cable: Any) -> frozenset[int]:
    return frozenset(int(fabric.node_names[end][1:].partition("-")[0]) for end in (cable.a, cable.b))


def test_minimal_paths_of_a_dragonfly_cross_one_global_link() -> None:
    """Also where a way over a third group would have fewer links."""
    item = compiled({"kind": "dragonfly", "groups": 9, "routers_per_group": 4, "global_links": 2})
    lengths: Counter[int] = Counter()
    for src in range(36):
        for dst in range(36):
            if src == dst:
                continue
            for path in paths(item, f"h{src}", f"h{dst}"):
                groups = [name[1:].partition("-")[0] for name in path]
                assert len(set(groups)) <= 2
                assert sum(a != b for a, b in pairwise(groups)) == (src // 4 != dst // 4)
                lengths[len(path) - 1] += 1
    assert set(lengths) == {1, 2, 3}  # hops between routers: the diameter is 3
    # 36 global cables: 72 ordered pairs of routers are neighbours by one; 12 more of each of 9 groups locally.
    assert lengths[1] == 72 + 9 * 12


def test_left_over_global_ports_of_a_dragonfly_are_paired() -> None:
    # 4 x 2 = 8 ports of a group, 3 other groups: two rounds, and two ports that lead to the groups before and after.
    fabric = dragonfly(groups=4, routers_per_group=4, hosts_per_router=1, global_links=2)
    between = Counter(_groups_of(fabric, cable) for cable in fabric.cables if cable.tier == "global")
    assert between == {frozenset((a, b)): 2 + (abs(a - b) in (1, 3)) for a in range(4) for b in range(a)}
    assert set(list(degrees(fabric).values())[16:]) == {1 + 3 + 2}
    # An odd port of an odd number of groups stays dark.
    dark = dragonfly(groups=3, routers_per_group=3, hosts_per_router=1, global_links=1)
    assert sorted(Counter(list(degrees(dark).values())[9:]).items()) == [(3, 3), (4, 6)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
def test_every_pair_of_a_dragonfly_is_at_most_three_hops_apart(groups: int, routers: int, links: int) -> None:
    assume(groups <= routers * links + 1)
    assume(groups * routers > 1)
    item = compiled({"kind": "dragonfly", "groups": groups, "routers_per_group": routers, "global_links": links})
    degree = degrees(item.fabric)
    assert all(degree[name] <= 1 + routers - 1 + links for name in item.fabric.switch_names)
    for src, dst in _some_pairs(groups * routers):
        found = paths(item, f"h{src}", f"h{dst}")
        assert found
        if src // routers == dst // routers:
            assert {len(path) - 1 for path in found} == {1}
        else:
            assert max(len(path) - 1 for path in found) <= 3


def test_dragonflies_that_cannot_be_wired() -> None:
    table = {"kind": "dragonfly", "groups": 10, "routers_per_group": 4, "global_links": 2}
    assert refusal(table).endswith(
        "fabric.groups = 10: 4 routers x 2 global links of a group reach 8 other groups: at most 9 groups, or"
        " global_links = 3"
    )
    with pytest.raises(ValueError, match="8 global links of a group do not reach 9 others"):
        dragonfly(groups=10, routers_per_group=4, hosts_per_router=1, global_links=2)
    assert "Valiant" in refusal({**table, "groups": 9, "routing": "valiant"})


def _some_pairs(count: int) -> list[tuple[int, int]]:
    """All pairs of few, every pair with the first and the last of many."""
    return [
        (src, dst)
        for src in range(count)
        for dst in range(count)
        if src != dst and (count <= 12 or {src, dst} & {0, count - 1})
    ]


# Storage.


def test_storage_on_a_network_of_its_own() -> None:
    frontend = {"storage_hosts": 3, "storage_leaves": 2, "leaves": 2, "spines": 2}
    table = {"kind": "rail", "nodes": 4, "gpus_per_node": 2, "spines": 1, "frontend": frontend}
    item = compiled(table, ["n*f", "s*"])
    fabric = item.fabric
    assert fabric.host_names[8:] == ["n0f", "n1f", "n2f", "n3f", "s0", "s1", "s2"]
    assert fabric.host_node.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, *[NONE] * 7]
    assert fabric.host_rail.tolist() == [0, 1] * 4 + [NONE] * 7
    assert fabric.frontend_hosts.tolist() == [8, 9, 10, 11]
    assert fabric.storage_hosts.tolist() == [12, 13, 14]
    assert fabric.switch_names[3:] == ["fleaf0", "fleaf1", "sleaf0", "sleaf1", "fspine0", "fspine1"]
    assert paths(item, "n1f", "s2") == [["fleaf0", "fspine0", "sleaf1"], ["fleaf0", "fspine1", "sleaf1"]]
    assert paths(item, "n0g0", "n1g1") == [["rail0", "spine0", "rail1"]]
    assert paths(item, "n0g0", "s0") == paths(item, "s0", "n0g0") == []

    text = refusal(table, workload=[{"kind": "flows", "flow": [{"src": "n1g1", "dst": "s0", "size": "1B"}]}])
    assert "s0 is unreachable from n1g1: n1g1 is on the fabric of the GPUs, s0 on the frontend network" in text
    assert "storage is reached by the frontend NICs of the nodes, n0f and so on" in text
    assert 'fabric.frontend.converged = true; traffic among GPUs alone has hosts = "n*g*"' in text


@pytest.mark.parametrize(
    ("table", "gpu", "expected"),
    [
        ({"kind": "rail", "nodes": 2, "gpus_per_node": 2, "spines": 1}, "n1g1", ["rail1", "spine0", "sleaf1"]),
        ({"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 1}, "h3", ["leaf1", "spine0", "sleaf1"]),
        ({"kind": "single-switch", "hosts": 4}, "h3", ["sw0", "sleaf1"]),
    ],
)
def test_converged_storage(table: dict[str, Any], gpu: str, expected: list[str]) -> None:
    frontend = {"storage_hosts": 3, "storage_leaves": 2, "converged": True}
    item = compiled({**table, "frontend": frontend})
    assert paths(item, gpu, "s2") == [expected]
    assert item.fabric.host_names[4:] == ["s0", "s1", "s2"]
    assert len(item.fabric.frontend_hosts) == 0
    if table["kind"] != "single-switch":
        both = compiled({**table, "planes": 2, "frontend": frontend})
        assert paths(both, gpu, "s2") == [[f"p{plane}-{name}" for name in expected] for plane in range(2)]


def test_converged_storage_of_a_fat_tree_is_behind_its_cores() -> None:
    item = compiled(
        {"kind": "fat-tree", "k": 4, "gpus_per_node": 4, "frontend": {"storage_hosts": 1, "converged": True}}
    )
    found = paths(item, "h0", "s0")
    assert {path[2] for path in found} == {"core0", "core1", "core2", "core3"}
    assert {(path[0], path[3]) for path in found} == {("edge0-0", "sleaf0")}


@pytest.mark.parametrize(
    ("table", "frontend", "message"),
    [
        (
            {"kind": "torus", "dimensions": [2, 2]},
            {"storage_hosts": 1, "converged": True},
            "a torus fabric has no spines that storage leaves could be cabled to",
        ),
        (
            {"kind": "rail-only", "nodes": 2},
            {"storage_hosts": 1, "converged": True},
            "a rail-only fabric has no spines that storage leaves could be cabled to",
        ),
        (
            {"kind": "single-switch", "hosts": 2},
            {"storage_hosts": 1, "converged": True, "spines": 2},
            "a converged frontend has no network of its own: leave it out, or converged = false",
        ),
        (
            {"kind": "single-switch", "hosts": 2},
            {"storage_hosts": 1, "storage_leaves": 2},
            "more leaves than storage hosts: at most 1",
        ),
        (
            {"kind": "single-switch", "hosts": 4, "gpus_per_node": 2},
            {"storage_hosts": 1, "leaves": 3},
            "more leaves than nodes: at most 2",
        ),
        ({"kind": "chain", "switches": 2}, {"storage_hosts": 1}, "unknown key"),
    ],
)
def test_wrong_storage(table: dict[str, Any], frontend: dict[str, Any], message: str) -> None:
    assert message in refusal({**table, "frontend": frontend})


# All kinds.

KINDS: list[dict[str, Any]] = [
    {"kind": "rail", "nodes": 4, "gpus_per_node": 4, "spines": 2, "nodes_per_leaf": 2, "planes": 2},
    {"kind": "rail-only", "nodes": 4, "gpus_per_node": 4},
    {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2, "planes": 2, "gpus_per_node": 2},
    {"kind": "torus", "dimensions": [4, 2, 3], "gpus_per_node": 2},
    {
        "kind": "dragonfly",
        "groups": 5,
        "routers_per_group": 2,
        "hosts_per_router": 2,
        "global_links": 2,
        "gpus_per_node": 2,
    },
    {"kind": "fat-tree", "k": 4, "gpus_per_node": 4, "frontend": {"storage_hosts": 4, "converged": True}},
    {"kind": "rail", "nodes": 4, "gpus_per_node": 2, "spines": 2, "frontend": {"storage_hosts": 4}},
]


@pytest.mark.parametrize("scale_up", [None, {"model": "packets"}], ids=["", "scale-up"])
@pytest.mark.parametrize("table", KINDS, ids=lambda table: table["kind"])
def test_sizes_are_known_before_anything_is_built(table: dict[str, Any], scale_up: dict[str, Any] | None) -> None:
    hosts = ["n*g0"] if table["kind"] in ("rail", "rail-only") else "all"
    item = scenario(table, workload=[{**ALL_TO_ALL, "hosts": hosts}], **({"scale_up": scale_up} if scale_up else {}))
    plan = compile_plan(item).plan
    before, after = counts_of_scenario(item), counts_of(plan)
    assert before.hosts == after.hosts
    assert before.credits == after.credits
    if route_bytes(item):
        assert 0.5 * plan.route.nbytes <= route_bytes(item) <= plan.route.nbytes
    assert before.host_ports == after.host_ports
    for name in ("nodes", "ports", "widest_ports", "port_pairs"):
        least, real = getattr(before, name), getattr(after, name)
        assert least <= real
        assert least == real or "frontend" in table


@pytest.mark.parametrize("table", KINDS, ids=lambda table: table["kind"])
def test_tiers_of_names_are_those_of_the_fabric(table: dict[str, Any]) -> None:
    """By the name alone, overrides find the tier that they are laid over."""
    item = scenario(table)
    hosts = ["n*g0"] if table["kind"] in ("rail", "rail-only") else "all"
    fabric = compiled(table, hosts).fabric
    assert [item.fabric.switch_tier(name) for name in fabric.switch_names] == fabric.switch_tiers
    assert set(fabric.switch_tiers) == set(item.fabric.switch_tiers())
    assert {cable.tier for cable in fabric.cables} == set(item.fabric.link_tiers() or ())
