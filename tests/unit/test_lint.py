"""The linter: every rule with a scenario that just meets it and one that just does not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fabemu.compile import Compiled, compile_plan
from fabemu.headroom import headroom_bound_bytes
from fabemu.lint import CATALOGUE, Finding, explanation, lint
from fabemu.lint.catalogue import FAMILIES
from fabemu.lint.path import hops
from fabemu.plan import (
    ACTION_HEADROOM,
)
from fabemu.scenario import Scenario, scenario_from_dict

FLOWS = {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}
SINGLE = {"kind": "single-switch", "hosts": 4}
CHAIN = {"kind": "chain", "switches": 3}
CNP, RDMA, BEST_EFFORT = 0, 1, 2  # the default classes in served order
SHORT_LINK = {"rate": "100Gbps", "length": "5m"}


def scenario(fabric: dict[str, Any] = SINGLE, **more: Any) -> Scenario:
    return scenario_from_dict({"fabric": fabric, "workload": [FLOWS], **more})


def of_plan(checked: Scenario, compiled: Compiled, **changes: Any) -> tuple[Finding, ...]:
    """Findings of a plan with other values."""
    return lint(checked, replace(compiled, plan=replace(compiled.plan, **changes)))


def found(
    code: str, fabric: dict[str, Any] = SINGLE, *, congested_ports: int | None = None, **more: Any
) -> list[Finding]:
    """Findings of one code of a scenario."""
    checked = scenario(fabric, **more)
    findings = lint(checked, compile_plan(checked), congested_ports=congested_ports)
    return [finding for finding in findings if finding.code == code]


def warnings(fabric: dict[str, Any] = SINGLE, **more: Any) -> list[str]:
    """Findings of a scenario, but for notes."""
    checked = scenario(fabric, **more)
    return [str(finding) for finding in lint(checked, compile_plan(checked)) if finding.severity != "note"]


def changed(name: str, compiled: Compiled, places: dict[tuple[str, int], int]) -> np.ndarray:
    """A (port, class) array of a plan with other values at named ports."""
    array = getattr(compiled.plan, name).copy()
    for (port, item), value in places.items():
        array[compiled.port_names.index(port) * compiled.plan.class_count + item] = value
    return array


def codes(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.code for finding in findings}


# The catalogue.


def test_every_rule_is_explained() -> None:
    for code, rule in CATALOGUE.items():
        assert re.fullmatch(r"FB\d{3}", code) and code[:3] in FAMILIES
        assert rule.title and rule.meaning and rule.reason and rule.remedy
        assert rule.source or code[:3] == "FB9"
        text = explanation(rule)
        assert text.startswith(f"{code}: {rule.title} ({rule.severity})") and "How to fix it" in text


def test_a_plain_scenario_has_one_note() -> None:
    checked = scenario()
    (finding,) = lint(checked, compile_plan(checked))
    assert (finding.code, finding.severity) == ("FB303", "note")


def test_the_most_severe_comes_first() -> None:
    checked = scenario(switch={"pfc": {"quanta": 1}, "ecn": {"kmin": "20MB", "kmax": "40MB"}}, nic={"window": "1B"})
    severities = [finding.severity for finding in lint(checked, compile_plan(checked))]
    assert severities == ["error", "warning", "warning", "note"]


# Headroom.


def test_headroom_below_the_bound() -> None:
    (finding,) = found("FB101", link=SHORT_LINK, switch={"pfc": {"headroom": "13270B"}})
    assert finding.place == "sw0->h0 and 3 more"
    assert finding.message == (
        "headroom 13,270 B is below the 13,271 B that 100Gbps, 25ns and frames of 4,174 B need (raising frame 4,174 + "
        "waiting 4,194 + PFC frame 84 + propagation 625 + last frame 4,194): lossless classes may drop; it is enough "
        "for cables of up to 4 m"
    )
    assert sum(finding.figures["terms_bytes"].values()) == finding.figures["bound_bytes"] == 13_271
    assert found("FB101", link=SHORT_LINK, switch={"pfc": {"headroom": "13271B"}}) == []


def test_headroom_counts_the_response_of_the_peer_and_the_cells() -> None:
    checked = scenario(link=SHORT_LINK, switch={"pfc": {"headroom": "13271B"}})
    compiled = compile_plan(checked)
    slow = compiled.plan.port_pfc_response_ps.copy()
    slow[compiled.port_names.index("h2->sw0")] = 80
    (finding,) = [item for item in of_plan(checked, compiled, port_pfc_response_ps=slow) if item.code == "FB101"]
    assert finding.places == ("sw0->h2",) and finding.figures["terms_bytes"]["response"] == 1
    (finding,) = [item for item in of_plan(checked, compiled, switch_cell_bytes=[208]) if item.code == "FB101"]
    assert finding.figures["bound_bytes"] == headroom_bound_bytes(
        rate_bps=10**11, delay_ps=25_000, frame_bytes=4174, cell_bytes=208
    )
    # 58 frames of 64 B, a cell each, in the 4,903 B between; the first and the last frame take 21 cells.
    assert finding.figures["terms_bytes"]["cells"] == 58 * 208 - 4903 + 2 * 21 * 208 - 4174 - 4194


def test_headroom_made_for_a_smaller_mtu() -> None:
    bound = headroom_bound_bytes(rate_bps=10**11, delay_ps=25_000, frame_bytes=2048 + 78)
    (finding,) = found("FB503", link=SHORT_LINK, switch={"pfc": {"headroom": f"{bound}B"}})
    assert finding.message == f"headroom {bound:,} B is enough for an MTU of 2048, but nic.mtu is 4096"
    (finding,) = found("FB503", link=SHORT_LINK, switch={"pfc": {"headroom": f"{bound - 1}B"}})
    assert "MTU of 1024" in finding.message
    assert found("FB503", link=SHORT_LINK, nic={"mtu": 2048}, switch={"pfc": {"headroom": f"{bound}B"}}) == []


def test_receiver_buffer_behind_its_xoff() -> None:
    checked = scenario(link=SHORT_LINK)
    compiled = compile_plan(checked)
    xoff, buffer = (np.full(compiled.plan.port_count, 2**62) for _ in range(2))
    xoff[0], buffer[0] = 10_000, 10_000 - 1 + 13_271
    assert "FB107" not in codes(of_plan(checked, compiled, port_rx_xoff_bytes=xoff, port_rx_buffer_bytes=buffer))
    buffer[0] -= 1
    findings = of_plan(checked, compiled, port_rx_xoff_bytes=xoff, port_rx_buffer_bytes=buffer)
    (finding,) = [item for item in findings if item.code == "FB107"]
    assert finding.places == ("h0->sw0",) and finding.severity == "error"


# PFC.


def test_pause_shorter_than_its_refresh() -> None:
    # The largest frame takes 83.88 ns at 400 Gb/s; one quantum is 1.28 ns.
    (finding,) = found("FB102", switch={"pfc": {"quanta": 131}})
    assert finding.message.startswith("quanta = 131 pause for 167.68ns, less than twice the 83.88ns")
    assert found("FB102", switch={"pfc": {"quanta": 132}}) == []
    assert found("FB102", switch={"pfc": {"quanta": 1}}, compat="ns3") == []


@pytest.mark.parametrize(
    ("field", "port", "place", "text"),
    [
        ("pq_pfc_send", "sw1->sw0", "sw1->sw0", "sends no PFC for the lossless class rdma"),
        ("pq_pfc_obey", "sw0->sw1", "sw0->sw1", "does not obey PFC for the lossless class rdma"),
        ("pq_pfc_obey", "h1->sw1", "h1->sw1", "does not obey PFC"),
    ],
)
def test_pfc_off_on_a_hop(field: str, port: str, place: str, text: str) -> None:
    checked = scenario(CHAIN)
    compiled = compile_plan(checked)
    off = changed(field, compiled, {(port, RDMA): 0})
    (finding,) = [item for item in of_plan(checked, compiled, **{field: off}) if item.code == "FB103"]
    assert finding.places == (place,) and finding.message.startswith(text)
    assert "FB103" not in codes(
        of_plan(checked, compiled, **{field: changed(field, compiled, {(port, BEST_EFFORT): 0})})
    )
    credit = np.ones(compiled.plan.port_count)
    lanes = np.full(compiled.plan.port_count * 3, 64_000)
    with_credits = of_plan(checked, compiled, **{field: off}, port_credit=credit, pq_credit_bytes=lanes)
    assert "FB103" not in codes(with_credits)


def mapped(maps: dict[int, list[int]], fabric: dict[str, Any] = CHAIN, **more: Any) -> list[Finding]:
    """FB104 and FB105 with class maps by switch."""
    checked = scenario(fabric, **more)
    compiled = compile_plan(checked)
    table = compiled.plan.switch_class_map.reshape(-1, compiled.plan.class_count).copy()
    for switch, row in maps.items():
        table[switch] = row
    findings = of_plan(checked, compiled, switch_class_map=table.ravel())
    return [item for item in findings if item.code in ("FB104", "FB105")]


def test_class_lossless_on_one_hop_and_lossy_on_the_next() -> None:
    lossy, *crossed = mapped({1: [CNP, BEST_EFFORT, BEST_EFFORT]})
    assert (lossy.code, set(lossy.places)) == ("FB104", {"h1->sw1", "sw0->sw1", "sw2->sw1"})
    assert lossy.message == "class rdma is lossless here (rdma) and lossy at sw1 (best-effort)"
    # On the way out of sw1 they wait as best-effort, which the others' PFC frames for rdma do not pause.
    assert [(item.code, *item.places) for item in crossed] == [("FB105", "sw1->sw0"), ("FB105", "sw1->sw2")]
    assert mapped({}) == mapped({1: [BEST_EFFORT, RDMA, BEST_EFFORT]}) == []


def test_pause_of_the_wrong_priority() -> None:
    classes = [
        {"name": "a", "priority": 5, "lossless": True},
        {"name": "b", "priority": 4, "lossless": True},
        {"name": "cnp", "priority": 0, "cnp": True},
    ]
    more: dict[str, Any] = {"class": classes}
    findings = mapped({0: [1, 1, 2], 1: [1, 1, 2], 2: [1, 1, 2]}, **more)
    assert {item.code for item in findings} == {"FB105"}
    assert {place for item in findings for place in item.places} == {"h0->sw0", "h1->sw1", "h2->sw2"}
    assert findings[0].message.startswith("frames of class a wait here as a, but their buffer at sw0 pauses b")
    assert mapped({}, **more) == []


# Buffers.


def test_buffer_oversubscribed() -> None:
    checked = scenario(switch={"buffer": "1MB", "pfc": {"headroom": "100KB", "reserved": "50KB"}})
    compiled = compile_plan(checked)
    assert "FB201" not in codes(lint(checked, compiled))
    pool = compiled.plan.switch_pool_bytes + 1
    (finding,) = [item for item in of_plan(checked, compiled, switch_pool_bytes=pool) if item.code == "FB201"]
    assert finding.message == (
        "reserved 200,000 B + headroom 400,000 B + pool 400,001 B = 1,000,001 B are more than the buffer of 1,000,000 B"
    )


def test_buffer_oversubscribed_after_a_fault() -> None:
    checked = scenario(switch={"buffer": "1MB", "pfc": {"headroom": "100KB"}})
    compiled = compile_plan(checked)

    def with_faults(*values: int) -> list[Finding]:
        port = compiled.port_names.index("sw0->h0")
        findings = of_plan(
            checked,
            compiled,
            action_time_ps=[10**6] * len(values),
            action_kind=[ACTION_HEADROOM] * len(values),
            action_target=[port + at for at in range(len(values))],
            action_mask=[1 << RDMA] * len(values),
            action_value=values,
        )
        return [item for item in findings if item.code == "FB201"]

    (finding,) = with_faults(100_001)
    assert finding.message.endswith("buffer of 1,000,000 B from 1us on, after a fault")
    assert with_faults(100_000) == with_faults(100_001, 99_999) == []  # what happens at once counts together


def test_nothing_left_to_share() -> None:
    # A pool of P with alpha 1 gives one group P / 2; two frames are 8,348 B.
    def pool(size: int) -> list[Finding]:
        pfc = {"headroom": "20000B", "reserved": "0B", "alpha": 1}
        return found("FB202", link=SHORT_LINK, switch={"buffer": f"{80_000 + size}B", "pfc": pfc})

    (finding,) = pool(2 * 8348 - 1)
    assert finding.message.startswith("of a pool of 16,695 B one priority group may use 8,347 B")
    assert pool(2 * 8348) == []


# ECN.

SHALLOW: dict[str, Any] = {"buffer": "1000KB", "pfc": {"headroom": "100KB", "reserved": "0B", "alpha": 1}}


def marking(code: str, kmin: str, kmax: str, **more: Any) -> list[Finding]:
    ecn = {"kmin": kmin, "kmax": kmax, **more.pop("ecn", {})}
    return found(code, link=SHORT_LINK, switch={**SHALLOW, "ecn": ecn}, **more)


def test_ecn_above_the_threshold_of_one_group() -> None:
    # Pool 600,000 B; one group of alpha 1 stops at half of it.
    (finding,) = marking("FB203", "301KB", "400KB")
    assert str(finding) == (
        "FB203 sw0: ECN kmin = 301KB (301,000 B) is above the PFC threshold 300,000 B that one congested priority "
        "group reaches (pool 600,000 B, alpha 1): PFC pauses before any packet is marked"
    )
    (finding,) = marking("FB204", "300KB", "301KB")
    assert "ECN kmax = 301KB (301,000 B) is above the PFC threshold 300,000 B" in finding.message
    assert marking("FB203", "300KB", "301KB") == marking("FB204", "100KB", "300KB") == []
    assert marking("FB203", "301KB", "400KB", ecn={"enabled": False}) == []


def test_ecn_above_the_threshold_of_many_groups() -> None:
    # Three congested groups of alpha 1 stop at a quarter of the pool each.
    (finding,) = marking("FB203", "151KB", "160KB", congested_ports=3)
    assert "PFC threshold 150,000 B that each of 3 congested ports reaches" in finding.message
    (finding,) = marking("FB207", "150KB", "151KB", congested_ports=3)
    assert finding.severity == "note" and finding.figures["threshold_bytes"] == 150_000
    assert marking("FB203", "150KB", "151KB", congested_ports=3) == []
    assert marking("FB207", "100KB", "150KB", congested_ports=3) == marking("FB207", "100KB", "151KB") == []


def test_congested_ports_follow_from_the_traffic() -> None:
    incast = {"kind": "incast", "receiver": "h0", "fan_in": 3, "size": "1MB"}
    (finding,) = marking("FB203", "151KB", "160KB", workload=[incast])
    assert finding.figures["congested_ports"] == 3
    # One sender per receiver congests nothing.
    shift = {"kind": "permutation", "pattern": "shift", "size": "1MB"}
    assert marking("FB203", "151KB", "160KB", workload=[shift]) == []


def test_static_threshold_below_ecn() -> None:
    checked = scenario()
    compiled = compile_plan(checked)
    ports = [name for name in compiled.port_names if name.startswith("sw0")]

    def static(size: int) -> set[str]:
        array = changed("pq_static_bytes", compiled, {(port, RDMA): size for port in ports})
        return codes(of_plan(checked, compiled, pq_static_bytes=array)) & {"FB203", "FB204"}

    assert (static(399_999), static(400_000), static(1_600_000)) == ({"FB203"}, {"FB204"}, set())


def test_marks_that_nobody_makes() -> None:
    off = {"ecn": {"enabled": False}}
    (finding,) = found("FB205", switch=off)
    assert finding.place == "class rdma" and "1 queue pairs run DCQCN, but no switch marks it" in finding.message
    assert found("FB205", switch=off, nic={"cc": {"kind": "none"}}) == found("FB205") == []
    classes = [{"name": "rdma", "priority": 3, "lossless": True}, {"name": "cnp", "priority": 6, "cnp": True}]
    (finding,) = found("FB205", **{"class": classes})
    assert "the class is not ECN-capable" in finding.message


def test_ecn_off_on_a_hop() -> None:
    (finding,) = found("FB206", CHAIN, switch={"override": [{"name": "sw1", "ecn": {"enabled": False}}]})
    assert set(finding.places) == {"sw1->h1", "sw1->sw0", "sw1->sw2"}
    assert found("FB206", CHAIN) == found("FB206", CHAIN, switch={"ecn": {"enabled": False}}) == []


# Hashes.


def test_equal_hash_seeds_in_two_tiers() -> None:
    fat_tree = {"kind": "fat-tree", "k": 4}
    (finding,) = found("FB311", fat_tree, switch={"ecmp_seed": 7})
    assert finding.place == "agg0-0 and 7 more"
    assert finding.message == (
        "chooses among 2 next hops with the seed 7 of a switch before it on the path: flows that came by one of 2 ways "
        "before use 1 of them"
    )
    assert found("FB311", fat_tree) == []
    assert found("FB311", fat_tree, switch={"tier": {"edge": {"ecmp_seed": 7}, "agg": {"ecmp_seed": 8}}}) == []
    # All leaves alike, but no second choice behind a spine.
    leaf_spine = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 2}
    assert found("FB311", leaf_spine, switch={"ecmp_seed": 7}) == []
    assert found("FB311", {**leaf_spine, "uplinks": 2}, switch={"ecmp_seed": 7})


def test_packets_overtake_each_other_where_gaps_count_as_losses() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 2}
    across = [{"kind": "flows", "flow": [{"src": "h0", "dst": "h2", "size": "1B"}]}]
    patient = {"retransmission": "selective", "reorder_window": 2}
    for name in ("spray", "least-loaded", "flowlet"):
        policy = {"load_balancing": name}
        (finding,) = found("FB312", fabric, switch=policy, workload=across)
        assert finding.places == ("leaf0",)
        assert finding.message == (
            f"load_balancing = {name} lets packets of one queue pair overtake each other, and 1 queue pairs of the "
            "scenario repeat what is overtaken"
        )
        assert found("FB312", fabric, switch=policy, workload=across, nic={"retransmission": "selective"})
        assert found("FB312", fabric, switch=policy, workload=across, nic=patient) == []
        # h1 is under the same leaf; spines have one way down.
        assert found("FB312", fabric, switch=policy) == []
        assert found("FB312", fabric, switch={"tier": {"spine": policy}}, workload=across) == []
        reads = [{**across[0], "verb": "read"}]
        (finding,) = found("FB312", fabric, switch=policy, workload=reads, nic=patient)
        assert finding.places == ("leaf1",)
    for name in ("ecmp", "weighted", "least-loaded-flow"):
        assert found("FB312", fabric, switch={"load_balancing": name}, workload=across) == []


def test_choices_by_load_are_not_polarised() -> None:
    fat_tree = {"kind": "fat-tree", "k": 4}
    assert found("FB311", fat_tree, switch={"ecmp_seed": 7, "load_balancing": "weighted"})
    for name in ("spray", "flowlet", "least-loaded", "least-loaded-flow"):
        assert found("FB311", fat_tree, switch={"ecmp_seed": 7, "load_balancing": name}) == []


def test_weighted_next_hops_may_differ_in_rate() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 2}
    across = [{"kind": "flows", "flow": [{"src": "h0", "dst": "h2", "size": "1B"}]}]
    slow = {"override": [{"between": ["leaf0", "spine1"], "rate": "100Gbps"}]}
    assert found("FB323", fabric, link=slow, workload=across)
    assert found("FB323", fabric, link=slow, workload=across, switch={"load_balancing": "spray"})
    for name in ("weighted", "flowlet", "least-loaded", "least-loaded-flow"):
        assert found("FB323", fabric, link=slow, workload=across, switch={"load_balancing": name}) == []


def test_polarised_flows_really_leave_next_hops_idle() -> None:
    checked = scenario(
        {"kind": "fat-tree", "k": 4}, switch={"ecmp_seed": 7}, workload=[{"kind": "all-to-all", "size": "1B"}]
    )
    plan = compile_plan(checked).plan
    used: set[int] = set()
    for _, port in hops(plan, plan.qp_src, plan.qp_dst, plan.qp_hash):
        used |= set(port.tolist())
    aggs = range(plan.host_count + 8, plan.host_count + 16)
    up = [port for port in plan.nexthop_port.tolist() if plan.port_node[port] in aggs]
    assert len(up) == 16 and len(used & set(up)) == 8


# Capacity.


def test_oversubscription_is_a_note() -> None:
    leaf_spine = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 3, "spines": 2}
    (finding,) = found("FB321", leaf_spine)
    assert (finding.severity, finding.place) == ("note", "leaf0 and 1 more")
    assert finding.message == "1200Gbps down, 800Gbps up, 1.5:1 (tier leaf)"
    assert found("FB321", {**leaf_spine, "hosts_per_leaf": 2}) == []
    assert found("FB321", {"kind": "dumbbell", "left": 2, "right": 1})[0].places == ("sw0",)


def test_switches_of_one_tier_oversubscribed_differently() -> None:
    leaf_spine = {"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 2, "spines": 2}
    slow = {"override": [{"between": ["leaf1", "spine0"], "rate": "200Gbps"}]}
    (finding,) = found("FB322", leaf_spine, link=slow)
    assert finding.places == ("leaf1",)
    assert finding.message == "800Gbps down, 600Gbps up, 1.33:1; most switches of tier leaf have 1:1"
    fast = {"override": [{"between": ["leaf1", "spine0"], "rate": "800Gbps"}]}
    assert found("FB322", leaf_spine, link=fast) == found("FB322", leaf_spine) == []


def test_equal_cost_next_hops_of_different_rates() -> None:
    leaf_spine = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 1, "spines": 2}
    slow = {"override": [{"between": ["leaf1", "spine0"], "rate": "200Gbps"}]}
    (finding,) = found("FB323", leaf_spine, link=slow)
    assert finding.places == ("leaf1",) and "1 of 200Gbps and 1 of 400Gbps" in finding.message
    even = {"tier": {"fabric": {"rate": "200Gbps"}}}
    assert found("FB323", leaf_spine, link=even) == []
    # No flow meets the uneven set.
    assert (
        found(
            "FB323",
            {**leaf_spine, "leaves": 3},
            link={"override": [dict(slow["override"][0], between=["leaf2", "spine0"])]},
        )
        == []
    )


def planes(*cables: tuple[str, str], rates: dict[int, str] | None = None) -> list[Finding]:
    links = [{"a": a, "b": b, "rate": (rates or {}).get(at, "400Gbps")} for at, (a, b) in enumerate(cables)]
    switches = sorted({b for _, b in cables})
    fabric = {"kind": "graph", "hosts": ["h0", "h1", "h2"], "switches": switches, "links": links}
    return found("FB324", fabric)


RAILS = [(f"h{host}", f"rail{rail}") for host in range(3) for rail in range(2)]


def test_rails_that_do_not_match() -> None:
    assert planes(*RAILS) == []
    host, plane = planes(*RAILS[:-1])  # h2 lacks rail 1
    assert (host.places, host.message) == (("h2",), "has 1 link of 400Gbps; most hosts have 2 links of 400Gbps")
    assert plane.places == ("rail1",) and "1 switch, 2 links to hosts of 800Gbps" in plane.message
    slower = planes(*RAILS, rates={5: "200Gbps"})
    assert slower[0].message == "has 1 link of 200Gbps and 1 link of 400Gbps; most hosts have 2 links of 400Gbps"
    # The same links everywhere, but both of h2 in one plane.
    (plane,) = planes(*RAILS[:4], ("h2", "rail0"), ("h2", "rail0"))
    assert plane.message == (
        "its plane has 1 switch, 2 links to hosts of 800Gbps; other planes have 1 switch, 4 links to hosts of 1600Gbps"
    )


def test_hosts_with_one_link_are_no_rails() -> None:
    links = [{"a": f"h{host}", "b": "s", "rate": f"{100 * (host + 1)}Gbps"} for host in range(3)]
    fabric = {"kind": "graph", "hosts": ["h0", "h1", "h2"], "switches": ["s"], "links": links}
    assert found("FB324", fabric) == []


# Timers.


def test_cnp_interval_longer_than_the_rate_timer() -> None:
    cc = {"increase_timer": "5us", "cnp_interval": "5001ns"}
    (finding,) = found("FB401", nic={"cc": cc})
    assert str(finding) == (
        "FB401 h0 to h1: cnp_interval = 5.001us of the receiver is longer than increase_timer = 5us of the sender"
    )
    assert found("FB401", nic={"cc": {**cc, "cnp_interval": "5us"}}) == []
    # It is the receiver's interval and the sender's timer.
    receiver = {"override": [{"name": "h1", "cc": {"cnp_interval": "1ms"}}]}
    assert found("FB401", nic=receiver) and not found(
        "FB401", nic={"override": [{**receiver["override"][0], "name": "h0"}]}
    )


def test_cnp_interval_longer_than_the_alpha_timer_of_the_paper() -> None:
    cc = {"preset": "paper", "alpha_timer": "40us"}
    (finding,) = found("FB401", nic={"cc": cc})
    assert "alpha_timer = 40us" in finding.message
    assert found("FB401", nic={"cc": {"preset": "paper"}}) == []
    assert found("FB401", nic={"cc": {"alpha_timer": "1us", "cnp_interval": "4us"}}) == []  # adapters sample alpha


def test_timeout_below_the_round_trip() -> None:
    # On 400 Gb/s the byte's frame of 82 B takes 2.04 ns on the wire and its ACK of 66 B 1.72 ns, over two hops each.
    def timeout(delay: str, exponent: int) -> list[Finding]:
        return found("FB402", link={"delay": delay}, nic={"timeout": exponent})

    (finding,) = timeout("2048ns", 1)
    assert finding.place == "h0 to h1" and finding.severity == "error"
    assert finding.figures == {"timeout_ps": 8_192_000, "round_trip_ps": 8_192_000 + 2 * (2_040 + 1_720)}
    assert timeout("2046120ps", 1) == []
    assert timeout("2046121ps", 1)


def test_watchdog_polls_too_rarely() -> None:
    checked = scenario()
    compiled = compile_plan(checked)

    def polling(poll: int) -> set[str]:
        findings = of_plan(
            checked, compiled, watchdog_poll_ps=[poll], watchdog_detect_ps=[200], watchdog_restore_ps=[200]
        )
        return codes(findings) & {"FB403"}

    assert (polling(200), polling(201)) == (set(), {"FB403"})


# Frames.


def test_frame_larger_than_a_credit_buffer() -> None:
    checked = scenario()
    compiled = compile_plan(checked)
    credit = np.ones(compiled.plan.port_count)

    def lanes(size: int) -> list[Finding]:
        array = np.full(compiled.plan.port_count * 3, size)
        findings = of_plan(checked, compiled, port_credit=credit, pq_credit_bytes=array)
        return [item for item in findings if item.code == "FB501"]

    assert lanes(66 * 64) == []  # 4,174 B are 65.2 blocks
    assert len(lanes(65 * 64)) == 3 and lanes(65 * 64)[0].severity == "error"


def test_frame_larger_than_a_quantum() -> None:
    checked = scenario()
    compiled = compile_plan(checked)

    def quantum(size: int) -> list[Finding]:
        array = changed("pq_quantum_bytes", compiled, {("sw0->h1", BEST_EFFORT): size})
        return [item for item in of_plan(checked, compiled, pq_quantum_bytes=array) if item.code == "FB502"]

    assert quantum(4174) == quantum(0) == []
    assert quantum(4173)[0].places == ("sw0->h1",)


# The scenario itself.


def test_device_without_a_link() -> None:
    links = [{"a": "h0", "b": "s"}, {"a": "h1", "b": "s"}]
    fabric = {"kind": "graph", "hosts": ["h0", "h1", "h2"], "switches": ["s"], "links": links}
    assert warnings(fabric) == ["FB902 h2: no link"]
    assert warnings({**fabric, "links": [*links, {"a": "h2", "b": "s"}]}) == []


def test_remarks_about_files() -> None:
    checked = scenario()
    compiled = compile_plan(checked)
    flows = replace(compiled.flows, warnings=("line 3 is odd",))
    remarked = replace(compiled, graph=replace(compiled.graph, flows=flows))
    assert [str(item) for item in lint(checked, remarked) if item.severity == "warning"] == ["FB903 line 3 is odd"]


def test_findings_of_large_fabrics_are_short() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 16, "hosts_per_leaf": 16, "spines": 16}
    lines = warnings(fabric, switch={"pfc": {"headroom": "1KB"}, "ecn": {"kmin": "60MB", "kmax": "70MB"}})
    assert len(lines) <= 4
    assert re.match(r"FB101 leaf0->h0 and \d+ more: ", lines[0])


def test_acks_of_the_compatibility_mode_stay_in_their_class() -> None:
    classes = [
        {"name": "low", "priority": 1, "lossless": True, "ecn": True, "ack_class": "high"},
        {"name": "high", "priority": 5, "cnp": True},
    ]
    (finding,) = found("FB901", compat="ns3", **{"class": classes})
    assert str(finding) == (
        'FB901 class.0.ack_class: has no effect: compat = "ns3" keeps ACKs in the class of their data'
    )
    assert found("FB901", **{"class": classes}) == []


# Settings without effect.

SPREAD = {"kind": "permutation", "size": "1B"}
WAVE = {"kind": "incast", "size": "1B", "receiver": "h0", "fan_in": 2}


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        (
            {"compat": "ns3", "switch": {"latency": "1us"}},
            'switch.latency: has no effect: switches of compat = "ns3" have no pipeline delay',
        ),
        (
            {"compat": "ns3", "switch": {"tier": {"switch": {"pfc": {"response_delay": "1ns"}}}}},
            'switch.tier.switch.pfc.response_delay: has no effect: PFC frames of compat = "ns3" act when they arrive',
        ),
        (
            {"compat": "ns3", "switch": {"override": [{"name": "sw0", "pfc": {"quanta": 7}}]}},
            'switch.override.0.pfc.quanta: has no effect: pauses of compat = "ns3" last until XON',
        ),
        (
            {"compat": "ns3", "switch": {"lossy": {"egress_alpha": 2}}},
            'switch.lossy.egress_alpha: has no effect: the buffer rule of compat = "ns3" has no egress limit',
        ),
        (
            {"nic": {"cc": {"preset": "paper", "decrease_timer": "9us"}}},
            'nic.cc.decrease_timer: has no effect: preset = "paper" cuts the rate at every CNP',
        ),
        (
            {"nic": {"cc": {"preset": "paper", "min_dec_fac": 0.25}}},
            'nic.cc.min_dec_fac: has no effect: preset = "paper" puts no bound on one decrease',
        ),
        (
            {"nic": {"cc": {"preset": "paper", "clamp_target": False}}},
            'nic.cc.clamp_target: has no effect: preset = "paper" always sets the target to the rate before the cut',
        ),
        (
            {"nic": {"override": [{"name": "h1", "cc": {"preset": "ns3", "cnp_interval": "9us"}}]}},
            'nic.override.0.cc.cnp_interval: has no effect: preset = "ns3" echoes marks on ACKs and sends no CNP',
        ),
        (
            {"nic": {"cc": {"rate": "1Gbps"}}},
            'nic.cc.rate: has no effect: it is the rate of kind = "fixed", and this one is "dcqcn"',
        ),
        (
            {"nic": {"window": "4095B"}},
            "nic.window: has no effect: it is below nic.mtu = 4096, and one packet may always be sent",
        ),
        (
            {"workload": [FLOWS, SPREAD | {"shift": 2}]},
            'workload.1.shift: has no effect: it belongs to pattern = "shift"',
        ),
        ({"workload": [WAVE | {"period": "1us"}]}, "workload.0.period: has no effect: there is one wave"),
        (
            {"link": {"tier": {"host": {"credit_buffer": "1MB"}}}},
            'link.tier.host.credit_buffer: has no effect: no link has flow_control = "credit"',
        ),
        (
            {"link": {"credit_refresh": "1us"}},
            'link.credit_refresh: has no effect: no link has flow_control = "credit"',
        ),
        (
            {"nic": {"receiver": {"xoff": "100KB"}}},
            "nic.receiver.xoff: has no effect: only a [[fault]] of kind slow-receiver fills that buffer",
        ),
        (
            {"nic": {"override": [{"name": "h0", "receiver": {"buffer": "1MB"}}]}},
            "nic.override.0.receiver.buffer: has no effect: only a [[fault]] of kind slow-receiver fills that buffer",
        ),
        (
            {"switch": {"watchdog": {"action": "forward"}}},
            "switch.watchdog.action: has no effect: there is no watchdog without a detection_time",
        ),
        (
            {"switch": {"watchdog": {"detection_time": "1s"}}, "link": {"flow_control": "credit"}},
            "switch.watchdog: has no effect: all ports that it watches have credits, where nothing is paused",
        ),
        (
            {
                "switch": {"watchdog": {"detection_time": "1s"}},
                "class": [{"name": "a", "priority": 1}, {"name": "b", "priority": 2, "cnp": True}],
            },
            "switch.watchdog: has no effect: there is no lossless class",
        ),
        ({"routing": {"convergence": "1us"}}, "routing.convergence: has no effect: no link goes down"),
    ],
)
def test_a_setting_without_effect_is_a_warning(settings: dict[str, Any], warning: str) -> None:
    (finding,) = found("FB901", **({"workload": [FLOWS]} | settings))
    assert str(finding) == f"FB901 {warning}"


@pytest.mark.parametrize(
    "settings",
    [
        {"compat": "ns3"},
        {"switch": {"latency": "1us", "lossy": {"egress_alpha": 2}, "pfc": {"response_delay": "1ns"}}},
        {"nic": {"cc": {"preset": "paper", "cnp_interval": "9us"}}},
        {"nic": {"cc": {"decrease_timer": "9us", "clamp_target": True}, "window": "4096B"}},
        {"nic": {"cc": {"rate": "1Gbps"}, "override": [{"name": "h0", "cc": {"kind": "fixed"}}]}},
        {"workload": [SPREAD | {"pattern": "shift", "shift": 2}, WAVE | {"period": "1us", "waves": 2}]},
        {
            "switch": {"watchdog": {"detection_time": "1s"}},
            "link": {
                "flow_control": "credit",
                "credit_buffer": "1MB",
                "override": [{"between": ["h0", "sw0"], "flow_control": "pfc"}],
            },
        },
        {"link": {"credit_buffer": "1MB", "override": [{"between": ["h0", "sw0"], "flow_control": "credit"}]}},
        {
            "switch": {
                "watchdog": {"action": "alert"},
                "override": [{"name": "sw0", "watchdog": {"detection_time": "1s"}}],
            }
        },
        {
            "until": "1ms",
            "nic": {"receiver": {"xoff": "100KB"}},
            "routing": {"convergence": "1us"},
            "fault": [
                {"kind": "slow-receiver", "host": "h0", "rate": "1Gbps"},
                {"kind": "reboot", "switch": "sw0", "start": "1us"},
            ],
        },
    ],
)
def test_settings_with_effect_and_defaults_are_no_warnings(settings: dict[str, Any]) -> None:
    assert warnings(**({"workload": [FLOWS]} | settings)) == []
