"""The static deadlock check: rings, valleys after a failure, credits, class maps; and its graph algorithms."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fabemu.compile import Compiled, compile_plan
from fabemu.cycle import components, on_cycles, shortest_cycle
from fabemu.lint import Finding, lint
from fabemu.lint.deadlock import deadlocks
from fabemu.lint.subject import Subject
from fabemu.plan import ACTION_ROUTES, NONE, ROUTE_LOCAL, ROUTE_NONE, ROUTE_SET_BASE, WATCHDOG_ALERT, WATCHDOG_DROP
from fabemu.scenario import Scenario, scenario_from_dict

ALL = [{"kind": "all-to-all", "size": "1B"}]
ONE = [{"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}]
CNP, RDMA, BEST_EFFORT = 0, 1, 2  # the default classes in served order


def ring(count: int) -> dict[str, Any]:
    """Switches s0, s1, ... in a ring, a host at each."""
    links = [{"a": f"h{at}", "b": f"s{at}"} for at in range(count)]
    links += [{"a": f"s{at}", "b": f"s{(at + 1) % count}"} for at in range(count)]
    names = {"hosts": [f"h{at}" for at in range(count)], "switches": [f"s{at}" for at in range(count)]}
    return {"kind": "graph", **names, "links": links}


def compiled(fabric: dict[str, Any], workload: Any = None, **more: Any) -> tuple[Scenario, Compiled]:
    checked = scenario_from_dict({"fabric": fabric, "workload": workload or ALL, **more})
    return checked, compile_plan(checked)


def verdict(checked: Scenario, result: Compiled, **changes: Any) -> list[Finding]:
    """What the check says of a plan, with other values if any are given."""
    changed = replace(result, plan=replace(result.plan, **changes))
    return [item for item in lint(checked, changed) if item.code in ("FB301", "FB302", "FB303")]


def rerouted(result: Compiled, changes: dict[tuple[str, str], str]) -> np.ndarray:
    """Routing table in which (switch, host) leads to a port: {("s0", "h2"): "s0->s1"}."""
    plan = result.plan
    table = plan.route.reshape(-1, plan.group_count).copy()
    for (switch, host), port in changes.items():
        row = plan.node_route_row[result.node_names.index(switch)]
        table[row, plan.host_group[result.node_names.index(host)]] = result.port_names.index(port)
    return table.ravel()


# Verdicts.


@pytest.mark.parametrize(
    ("fabric", "code"),
    [
        ({"kind": "single-switch", "hosts": 3}, "FB303"),
        ({"kind": "chain", "switches": 4}, "FB303"),
        ({"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 2, "spines": 2, "uplinks": 2}, "FB303"),
        ({"kind": "fat-tree", "k": 4}, "FB303"),
        (ring(3), "FB303"),  # every pair is neighbours: nothing passes through
        (ring(4), "FB301"),
        (ring(5), "FB301"),
        (ring(8), "FB301"),
    ],
)
def test_verdicts(fabric: dict[str, Any], code: str) -> None:
    findings = verdict(*compiled(fabric))
    assert {item.code for item in findings} == {code}


def test_the_cycle_is_named_by_device_and_port() -> None:
    (finding,) = verdict(*compiled(ring(5)))
    assert finding.severity == "warning"
    assert finding.figures["cycle"] == ["s0->s1", "s1->s2", "s2->s3", "s3->s4", "s4->s0"]
    assert finding.figures["destinations"] == ["h2", "h3", "h4", "h0", "h1"]
    assert finding.figures["ports_on_cycles"] == 10  # and the other way round
    assert finding.message == (
        "class rdma can deadlock: s0->s1 waits for s1->s2 (frames to h2) waits for s2->s3 (frames to h3) waits for "
        "s3->s4 (frames to h4) waits for s4->s0 (frames to h0) waits for s0->s1 (frames to h1); 10 egress ports are on "
        "such cycles"
    )


def test_three_switches_that_send_the_long_way_round() -> None:
    checked, result = compiled(ring(3))
    clockwise = {(f"s{at}", f"h{(at + 2) % 3}"): f"s{at}->s{(at + 1) % 3}" for at in range(3)}
    (finding,) = verdict(checked, result, route=rerouted(result, clockwise))
    assert finding.code == "FB301" and finding.figures["ports_on_cycles"] == 3
    # Two of the three leave a gap in the ring.
    clockwise.popitem()
    (finding,) = verdict(checked, result, route=rerouted(result, clockwise))
    assert finding.code == "FB303"


def test_traffic_that_leaves_a_gap_is_told_apart() -> None:
    (finding,) = verdict(*compiled(ring(4), ONE))
    assert (finding.code, finding.severity) == ("FB302", "note")
    # Flows two switches on, clockwise or not as ECMP likes: with their ACKs that is every turn.
    opposite = [{"src": f"h{at}", "dst": f"h{(at + 2) % 4}", "size": "1B"} for at in range(4)]
    (finding,) = verdict(*compiled(ring(4), [{"kind": "flows", "flow": opposite}]))
    assert finding.code == "FB301"


def test_acks_in_a_lossless_class_count() -> None:
    # Data one way round an odd ring: h0 to h2, h1 to h3, ... are two links clockwise, ACKs two links back.
    flow = [{"src": f"h{at}", "dst": f"h{(at + 2) % 5}", "size": "1B"} for at in range(5)]
    (finding,) = verdict(*compiled(ring(5), [{"kind": "flows", "flow": flow}]))
    assert finding.figures["ports_on_cycles"] == 10
    classes = [
        {"name": "rdma", "priority": 3, "lossless": True, "ecn": True, "ack_class": "cnp"},
        {"name": "cnp", "priority": 6, "cnp": True},
    ]
    (finding,) = verdict(*compiled(ring(5), [{"kind": "flows", "flow": flow}], **{"class": classes}))
    assert finding.figures["ports_on_cycles"] == 5


def test_a_valley_after_a_reroute() -> None:
    """Leaves that pass traffic down and up again, as after failed links: spine, leaf, spine."""
    checked, result = compiled({"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 1, "spines": 2})
    # leaf0 reaches h1 only by spine0, leaf3 and spine1; leaf2 reaches h3 only by spine1, leaf... and so on.
    valley = {
        ("leaf0", "h1"): "leaf0->spine0",
        ("spine0", "h1"): "spine0->leaf3",
        ("leaf3", "h1"): "leaf3->spine1",
        ("leaf2", "h0"): "leaf2->spine1",
        ("spine1", "h0"): "spine1->leaf1",
        ("leaf1", "h0"): "leaf1->spine0",
    }
    half = dict(list(valley.items())[:3])
    (finding,) = verdict(checked, result, route=rerouted(result, half))
    assert finding.code == "FB303"  # one bounce closes no circle
    (finding,) = verdict(checked, result, route=rerouted(result, valley))
    assert finding.code == "FB301"
    assert set(finding.figures["cycle"]) == {"spine0->leaf3", "leaf3->spine1", "spine1->leaf1", "leaf1->spine0"}


def test_later_routing_tables_and_the_change_between_them() -> None:
    checked, result = compiled(ring(3))
    first = result.plan.route

    def epochs(*tables: np.ndarray, until: int | None = None) -> Finding:
        shown = range(1, len(tables))
        (finding,) = verdict(
            checked,
            result,
            route=np.concatenate(tables),
            route_epochs=len(tables),
            action_time_ps=[at * 10**6 for at in shown],
            action_kind=[ACTION_ROUTES] * len(shown),
            action_target=[0] * len(shown),
            action_mask=[0] * len(shown),
            action_value=list(shown),
        )
        return finding

    clockwise = {(f"s{at}", f"h{(at + 2) % 3}"): f"s{at}->s{(at + 1) % 3}" for at in range(3)}
    bad = epochs(first, rerouted(result, clockwise))
    assert bad.code == "FB301" and bad.message.startswith("class rdma can deadlock with the routes from 1us on: ")
    assert epochs(first, first).code == "FB303"
    # Neither table has a cycle, but frames of the one wait for those of the other.
    parts = list(clockwise.items())
    split = epochs(rerouted(result, dict(parts[:2])), rerouted(result, dict(parts[2:])))
    assert split.code == "FB301" and split.message.startswith("class rdma can deadlock while routes change: ")


def test_only_what_can_be_held_up_counts() -> None:
    checked, result = compiled(ring(5))
    port, classes = result.port_names.index, result.plan.class_count

    def without(field: str, *names: str) -> np.ndarray:
        array = getattr(result.plan, field).copy()
        array[[port(name) * classes + RDMA for name in names]] = 0
        return array

    # One hop on each way round does not send, or does not obey.
    assert verdict(checked, result, pq_pfc_send=without("pq_pfc_send", "s1->s0", "s0->s1"))[0].code == "FB303"
    assert verdict(checked, result, pq_pfc_obey=without("pq_pfc_obey", "s1->s0", "s0->s1"))[0].code == "FB303"
    one_way = verdict(checked, result, pq_pfc_send=without("pq_pfc_send", "s1->s0"))[0]
    assert one_way.code == "FB301" and one_way.figures["cycle"][0] == "s0->s4"
    # Credits hold up whatever PFC does.
    none = np.zeros(len(result.plan.pq_pfc_send))
    credit, lanes = np.ones(result.plan.port_count), np.full(len(none), 64_000)
    held = verdict(checked, result, pq_pfc_send=none, pq_pfc_obey=none, port_credit=credit, pq_credit_bytes=lanes)
    assert held[0].code == "FB301"
    # A fabric of lossy classes never waits.
    lossy = [{"name": "a", "priority": 1}, {"name": "cnp", "priority": 2, "cnp": True}]
    (finding,) = verdict(*compiled(ring(5), **{"class": lossy}))
    assert (finding.code, finding.message) == ("FB303", "cannot deadlock: no class is lossless")


CREDIT = {"flow_control": "credit"}


def test_with_credits_every_class_waits() -> None:
    """Without PFC nobody asks whether a class is lossless: a sender without credits stands still."""
    bulk = [{**ALL[0], "class": "best-effort"}]
    (finding,) = verdict(*compiled(ring(5), bulk, link=CREDIT))
    assert (finding.code, finding.figures["classes"]) == ("FB301", ["cnp", "best-effort"])  # with their notifications
    assert [item.code for item in verdict(*compiled(ring(5), bulk))] == ["FB302"]  # of rdma, which has no flows
    # One link without credits on each way round lets frames of a lossy class go, by dropping them.
    gap = {**CREDIT, "override": [{"between": ["s0", "s1"], "flow_control": "pfc"}]}
    assert verdict(*compiled(ring(5), bulk, link=gap))[0].code == "FB302"
    lossy = [{"name": "a", "priority": 1}, {"name": "cnp", "priority": 2, "cnp": True}]
    (finding,) = verdict(*compiled(ring(5), link=CREDIT, **{"class": lossy}))
    assert finding.code == "FB301" and "a" in finding.figures["classes"]
    (finding,) = verdict(*compiled({"kind": "fat-tree", "k": 4}, link=CREDIT))
    assert finding.code == "FB303" and "buffers of class cnp, rdma, best-effort behind" in finding.message


def test_a_watchdog_does_nothing_about_missing_credits() -> None:
    dog = {"watchdog": {"detection_time": "200ms"}}
    end = "; the PFC watchdog would break it and drop frames"
    assert verdict(*compiled(ring(5), switch=dog))[0].message.endswith(end)
    assert not verdict(*compiled(ring(5), switch=dog, link=CREDIT))[0].message.endswith(end)


def test_a_class_map_takes_a_hop_out_of_the_cycle() -> None:
    checked, result = compiled(ring(5))
    table = result.plan.switch_class_map.reshape(-1, 3).copy()
    table[2, RDMA] = BEST_EFFORT
    assert verdict(checked, result, switch_class_map=table.ravel())[0].code == "FB303"
    # Best-effort frames that all switches take for rdma close the circle as rdma.
    swapped = np.tile([CNP, BEST_EFFORT, RDMA], 5)
    flows = compiled(ring(5), [{**ALL[0], "class": "best-effort"}])
    assert verdict(*flows)[0].code == "FB302"
    assert verdict(*flows, switch_class_map=swapped)[0].code == "FB301"


def test_two_lossless_classes_alike_are_one_finding() -> None:
    classes = [
        {"name": "a", "priority": 5, "lossless": True},
        {"name": "b", "priority": 4, "lossless": True},
        {"name": "cnp", "priority": 0, "cnp": True},
    ]
    (finding,) = verdict(*compiled(ring(5), [{**ALL[0], "class": name} for name in "ab"], **{"class": classes}))
    assert finding.figures["classes"] == ["a", "b"]
    # With traffic in one of them, only that one can deadlock now.
    (finding,) = verdict(*compiled(ring(5), [{**ALL[0], "class": "b"}], **{"class": classes}))
    assert (finding.code, finding.figures["classes"]) == ("FB301", ["b"])


def test_a_watchdog_that_drops_breaks_the_cycle() -> None:
    checked, result = compiled(ring(5))
    plan = result.plan

    def watched(action: int, switches: list[int]) -> str:
        (finding,) = verdict(
            checked,
            result,
            watchdog_poll_ps=[100 if at in switches else 0 for at in range(5)],
            watchdog_detect_ps=[200] * 5,
            watchdog_restore_ps=[200] * 5,
            watchdog_action=[action] * 5,
            port_watchdog=np.ones(plan.port_count),
        )
        return finding.message

    end = "; the PFC watchdog would break it and drop frames"
    assert watched(WATCHDOG_DROP, [2]).endswith(end)
    assert not watched(WATCHDOG_ALERT, [2]).endswith(end)
    assert not watched(WATCHDOG_DROP, []).endswith(end)


def test_hosts_with_several_links() -> None:
    far = {**ring(8), "links": ring(8)["links"] + [{"a": "h0", "b": "s1"}]}
    assert verdict(*compiled(far))[0].code == "FB301"


@pytest.mark.parametrize(
    "fabric",
    [
        {"kind": "fat-tree", "k": 16},
        {"kind": "leaf-spine", "leaves": 64, "hosts_per_leaf": 16, "spines": 32},
        ring(256),
    ],
    ids=["fat-tree", "leaf-spine", "ring"],
)
def test_1024_hosts_in_seconds(fabric: dict[str, Any]) -> None:
    checked, result = compiled(fabric, [{"kind": "permutation", "size": "1B"}])
    start = time.process_time()
    findings = deadlocks(Subject(checked, result))
    assert findings and time.process_time() - start < 5


# A second opinion: every path walked, one by one.


def walked(result: Compiled) -> set[tuple[str, str]]:
    """Dependencies of all pairs of hosts, by walking every choice of every path."""
    plan = result.plan
    route = plan.route.reshape(-1, plan.group_count)
    found: set[tuple[str, str]] = set()

    def ways(node: int, dst: int) -> list[int]:
        if plan.node_route_row[node] == NONE:  # a host with one link
            return [int(plan.node_port_start[node])]
        entry = int(route[plan.node_route_row[node], plan.host_group[dst]])
        if entry >= 0:
            return [entry]
        if entry in (ROUTE_LOCAL, ROUTE_NONE):
            return []
        number = ROUTE_SET_BASE - entry
        return plan.nexthop_port[plan.nexthop_start[number] : plan.nexthop_start[number + 1]].tolist()

    for src in range(plan.host_count):
        for dst in range(plan.host_count):
            seen: set[int] = set()
            front = ways(src, dst) if src != dst else []
            while front:
                port = front.pop()
                node = plan.port_node[plan.port_peer[port]]
                if port in seen or node < plan.host_count:
                    continue
                seen.add(port)
                for way in ways(node, dst):
                    if plan.port_node[port] >= plan.host_count:
                        found.add((result.port_names[port], result.port_names[way]))
                    front.append(way)
    return {pair for pair in found if not pair[1].split("->")[1].startswith("h")}


LINKS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6)


@given(st.integers(3, 7), LINKS, LINKS)
def test_agrees_with_walked_paths(count: int, chords: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    fabric = ring(count)
    extra = {(min(a, b) % count, max(a, b) % count) for a, b in chords}
    fabric["links"] += [{"a": f"s{a}", "b": f"s{b}"} for a, b in sorted(extra) if a != b]
    fabric["links"] += [{"a": f"h{a % count}", "b": f"s{b % count}"} for a, b in more]  # hosts with several links
    checked, result = compiled(fabric)
    pairs = walked(result)
    names = sorted({name for pair in pairs for name in pair})
    number = {name: at for at, name in enumerate(names)}
    source = np.array([number[a] for a, _ in pairs], dtype=np.int64)
    target = np.array([number[b] for _, b in pairs], dtype=np.int64)
    cyclic = components(len(names), source, target)
    findings = deadlocks(Subject(checked, result))
    assert {item.code for item in findings} == {"FB301" if cyclic else "FB303"}
    if cyclic:
        cycle = findings[0].figures["cycle"]
        assert set(zip(cycle, cycle[1:] + cycle[:1], strict=True)) <= pairs
        assert findings[0].figures["ports_on_cycles"] == sum(map(len, cyclic))


# Graphs.

EDGES = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40)


@given(EDGES)
def test_components_agree_with_scipy(edges: list[tuple[int, int]]) -> None:
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    matrix = coo_array((np.ones(len(edges)), (source, target)), shape=(12, 12))
    _, labels = connected_components(matrix, connection="strong")
    loops = {a for a, b in edges if a == b}
    expected = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
    expected = sorted(group for group in expected if len(group) > 1 or group[0] in loops)
    found = components(12, source, target)
    assert found == expected
    assert bool(found) == bool(on_cycles(12, source, target).any())
    for group in found:
        cycle = shortest_cycle(group, source, target)
        assert cycle[0] == group[0] and len(set(cycle)) == len(cycle)
        assert set(zip(cycle, cycle[1:] + cycle[:1], strict=True)) <= set(edges)
