"""The compiler: every part of the plan, and what it refuses or warns of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fabemu.compile import Compiled, compile_plan
from fabemu.compile.balance import rate_weights
from fabemu.errors import ScenarioError
from fabemu.hashing import hash64, mix32
from fabemu.plan import (
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    CC_DCQCN_ADAPTER,
    CC_DCQCN_PAPER,
    CC_FIXED,
    CC_NONE,
    FOREVER_PS,
    NONE,
    NOTIFY_CNP,
    NOTIFY_ECHO,
    SCHEDULER_CREATION,
    SCHEDULER_WINDOW,
)
from fabemu.scenario import Scenario, scenario_from_dict
from fabemu.workload.flow import FlowTable, flow_table

FLOWS = {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}
SINGLE = {"kind": "single-switch", "hosts": 4}
RDMA, CNP, BEST_EFFORT = 1, 0, 2  # the default classes in served order


def scenario(fabric: dict[str, Any] = SINGLE, **more: Any) -> Scenario:
    return scenario_from_dict({"fabric": fabric, "workload": [FLOWS], **more})


def compiled(fabric: dict[str, Any] = SINGLE, flows: FlowTable | None = None, **more: Any) -> Compiled:
    return compile_plan(scenario(fabric, **more), flows=flows)


def per_class(result: Compiled, field: str, port: str) -> list[int]:
    classes = result.plan.class_count
    first = result.port_names.index(port) * classes
    return getattr(result.plan, field)[first : first + classes].tolist()


def refused(fabric: dict[str, Any] = SINGLE, flows: FlowTable | None = None, **more: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        compiled(fabric, flows, **more)
    return str(error.value)


def table(rows: list[tuple[int, int]], **columns: Any) -> FlowTable:
    src, dst = np.array(rows).reshape(-1, 2).T
    return flow_table(src, dst, columns.pop("size", 1), columns.pop("start", 0), class_id=RDMA, **columns)


# Hashes.


def scalar_hash64(*values: int) -> int:
    mask, total = 2**64 - 1, 0
    for value in values:
        x = ((total ^ value) + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        total = x ^ (x >> 31)
    return total


def test_hashes_equal_their_definition() -> None:
    values = [0, 1, 2**31, 2**63 - 1]
    assert hash64(7, np.array(values), 2**64 - 1).tolist() == [scalar_hash64(7, value, 2**64 - 1) for value in values]
    assert int(hash64(0)[0]) == 0xE220A8397B1DCDAF  # first output of splitmix64 from state 0
    assert mix32(np.array([0, 1])).tolist() == [0, 0x514E28B7]  # murmur3 finaliser


# Nodes, ports, routes.


def test_a_switch_with_too_many_ports() -> None:
    assert refused({"kind": "single-switch", "hosts": 65_536}) == (
        'fabric: switch "sw0" has 65,536 ports; at most 65,535 are supported'
    )


def test_ports_and_names() -> None:
    result = compiled({"kind": "dumbbell", "left": 1, "right": 1, "trunks": 2})
    assert result.node_names == ("h0", "h1", "sw0", "sw1")
    assert result.port_names == (
        "h0->sw0",
        "h1->sw1",
        "sw0->h0",
        "sw0->sw1#0",
        "sw0->sw1#1",
        "sw1->h1",
        "sw1->sw0#0",
        "sw1->sw0#1",
    )
    plan = result.plan
    assert plan.node_port_start.tolist() == [0, 1, 2, 5, 8]
    assert plan.port_peer.tolist() == [2, 5, 0, 6, 7, 1, 3, 4]
    assert plan.nexthop_port.tolist() == [3, 4, 6, 7]
    assert result.class_names == ("cnp", "rdma", "best-effort")
    assert result.host_rate_bps.tolist() == [400 * 10**9] * 2


def test_link_parameters_by_tier_cable_and_override() -> None:
    result = compiled(
        {"kind": "dumbbell", "left": 1, "right": 1, "trunks": 2},
        link={
            "rate": "100Gbps",
            "length": "10m",
            "tier": {"trunk": {"rate": "200Gbps", "delay": "1us"}},
            "override": [{"between": ["sw1", "sw0"], "index": 1, "rate": "50Gbps"}],
        },
    )
    rate = dict(zip(result.port_names, (result.plan.port_rate_bps // 10**9).tolist(), strict=True))
    delay = dict(zip(result.port_names, result.plan.port_delay_ps.tolist(), strict=True))
    assert rate["h0->sw0"] == rate["sw0->h0"] == 100
    assert (rate["sw0->sw1#0"], rate["sw0->sw1#1"], rate["sw1->sw0#1"]) == (200, 50, 50)
    assert (delay["h0->sw0"], delay["sw0->sw1#1"]) == (50_000, 10**6)


def test_ecmp_seeds() -> None:
    result = compiled(seed=5)
    assert result.plan.node_seed.tolist() == [scalar_hash64(5, 4, node) % 2**32 for node in range(5)]
    fixed = compiled(
        {"kind": "chain", "switches": 3}, switch={"ecmp_seed": 77, "override": [{"name": "sw1", "ecmp_seed": 3}]}
    )
    assert fixed.plan.node_seed[3:].tolist() == [77, 3, 77]


def test_equal_scenarios_give_equal_plans() -> None:
    fabric = {"kind": "fat-tree", "k": 4}
    assert compiled(fabric).plan.digest() == compiled(fabric).plan.digest()
    assert compiled(fabric).plan.digest() != compiled(fabric, seed=2).plan.digest()


# Buffers.


def test_priority_groups_and_pool() -> None:
    result = compiled(
        link={"rate": "400Gbps", "length": "100m"},
        switch={"buffer": "64MiB", "pfc": {"reserved": "4KiB", "xon_offset": "2KiB", "alpha": "1/8"}},
    )
    bound = 62_598 + 3 * 16  # the figure for frames of 4,158 B; the first packet of a message has 16 B more
    assert per_class(result, "pq_headroom_bytes", "sw0->h0") == [0, bound, 0]
    assert per_class(result, "pq_reserved_bytes", "sw0->h0") == [0, 4096, 0]
    assert per_class(result, "pq_alpha_q16", "sw0->h0") == [8 << 16, 1 << 13, 8 << 16]
    assert per_class(result, "pq_xon_offset_bytes", "sw0->h0") == [0, 2048, 0]
    assert per_class(result, "pq_egress_alpha_q16", "sw0->h0") == [1 << 16, 0, 1 << 16]
    assert result.plan.switch_buffer_bytes.tolist() == [64 << 20]
    assert result.plan.switch_pool_bytes.tolist() == [(64 << 20) - 4 * (4096 + bound)]
    assert per_class(result, "pq_headroom_bytes", "h0->sw0") == [0, 0, 0]


def test_headroom_counts_the_response_of_the_peer() -> None:
    fabric = {"kind": "chain", "switches": 2}
    link = {"rate": "100Gbps", "length": "5m"}
    slow = {"pfc": {"response_delay": "614.4ns"}}
    everywhere = compiled(fabric, link=link, switch=slow)
    assert set(per_class(everywhere, "pq_headroom_bytes", name)[RDMA] for name in ("sw0->h0", "sw0->sw1")) == {
        20_903 + 48
    }
    assert everywhere.plan.port_pfc_response_ps.tolist() == [614_400] * 6
    only_sw1 = compiled(fabric, link=link, switch={"override": [{"name": "sw1", **slow}]})
    assert per_class(only_sw1, "pq_headroom_bytes", "sw0->sw1")[RDMA] == 20_903 + 48
    assert per_class(only_sw1, "pq_headroom_bytes", "sw1->sw0")[RDMA] == 13_223 + 48
    assert per_class(only_sw1, "pq_headroom_bytes", "sw1->h1")[RDMA] == 20_903 + 48


def test_pause_time_is_rounded_up() -> None:
    assert set(compiled(link={"rate": "400Gbps"}).plan.port_pause_ps.tolist()) == {65535 * 1280}
    assert set(compiled(link={"rate": "7bps"}, switch={"pfc": {"headroom": "100KB"}}).plan.port_pause_ps.tolist()) == {
        -(-65535 * 512 * 10**12 // 7),
    }


def test_ecn_by_rate_class_and_switch() -> None:
    ecn = {
        "kmin": "100KB",
        "kmax": "400KB",
        "pmax": 0.5,
        "by_rate": [{"rate": "100Gbps", "kmin": "10KB", "kmax": "40KB"}],
    }
    fabric = {"kind": "dumbbell", "left": 1, "right": 1}
    result = compiled(
        fabric,
        link={"tier": {"host": {"rate": "100Gbps"}}},
        switch={"ecn": ecn, "override": [{"name": "sw1", "ecn": {"enabled": False}}]},
    )
    never = 2**31 - 1
    assert per_class(result, "pq_kmin_bytes", "sw0->h0") == [never, 10_000, never]
    assert per_class(result, "pq_kmax_bytes", "sw0->sw1") == [never, 400_000, never]
    assert per_class(result, "pq_pmax_q32", "sw0->sw1") == [0, 1 << 31, 0]
    assert per_class(result, "pq_pmax_q32", "sw0->h0") == [0, round(0.2 * 2**32), 0]
    assert per_class(result, "pq_kmin_bytes", "sw1->h1") == [never, never, never]


def test_sum_of_reserved_and_headroom_above_the_buffer() -> None:
    text = refused(switch={"buffer": "100KB", "pfc": {"headroom": "20KB", "reserved": "10KB"}})
    assert text == (
        "switch.buffer: sw0: reserved 40,000 B + headroom 80,000 B = 120,000 B on 4 ports do not fit "
        "buffer = 100KB (100,000 B): 20,000 B too much (fabemu explain FB201)"
    )


def test_buffer_smaller_than_its_headrooms_names_all_switches_once() -> None:
    text = refused({"kind": "leaf-spine", "leaves": 8, "hosts_per_leaf": 1, "spines": 8}, switch={"buffer": "1KB"})
    assert [line.split(": ")[1] for line in text.splitlines()] == ["leaf0 and 7 more", "spine0 and 7 more"]


def test_buffer_that_just_fits() -> None:
    switch = {"pfc": {"headroom": "20KB", "reserved": "5KB"}, "buffer": "100KB"}
    assert compiled(switch=switch, link={"length": "1m"}).plan.switch_pool_bytes.tolist() == [0]


def test_buffer_beyond_64_bits() -> None:
    assert "is more than 64 bits hold" in refused(switch={"buffer": "1000000TiB"})


@pytest.mark.parametrize(
    ("settings", "guaranteed"),
    [
        ({}, True),
        ({"switch": {"pfc": {"headroom": "13271B"}}}, True),
        ({"switch": {"pfc": {"headroom": "13270B"}}}, False),
        ({"compat": "ns3"}, False),
    ],
)
def test_lossless_is_guaranteed_from_the_bound_on(settings: dict[str, Any], guaranteed: bool) -> None:
    result = compiled(link={"rate": "100Gbps", "length": "5m"}, **settings)
    assert result.plan.lossless_guaranteed is guaranteed


def test_a_plan_of_too_many_classes_or_hosts_is_refused() -> None:
    plan = compiled().plan
    with pytest.raises(ValueError, match="9 classes; at most 8"):
        replace(plan, class_lossless=[0] * 9)
    with pytest.raises(ValueError, match="6 hosts, but only 5 nodes"):
        replace(plan, host_count=6)


# Unknown names.


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"switch": {"override": [{"name": "leef0"}]}},
            'name = "leef0": the fabric has no switch "leef0"; did you mean "leaf0"?',
        ),
        ({"switch": {"override": [{"name": "h0"}]}}, '"h0" is a host, not a switch'),
        ({"nic": {"override": [{"name": "h00"}]}}, 'the fabric has no host "h00"; did you mean "h0"?'),
        ({"nic": {"override": [{"name": "spine0"}]}}, '"spine0" is a switch, not a host'),
        (
            {"link": {"override": [{"between": ["leaf0", "spine7"]}]}},
            'the fabric has no device "spine7"; did you mean "spine',
        ),
        (
            {"link": {"override": [{"between": ["leaf0", "leaf1"]}]}},
            '"leaf0", "leaf1": no link joins these two devices',
        ),
        ({"link": {"override": [{"between": ["leaf0", "spine0"], "index": 2}]}}, "2 links join these two devices"),
        (
            {"link": {"override": [{"between": ["leaf0", "h0"], "index": 1}]}},
            "one link joins these two devices: index is 0",
        ),
    ],
)
def test_overrides_of_what_does_not_exist(more: dict[str, Any], message: str) -> None:
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 1, "spines": 2, "uplinks": 2}
    assert message in refused(fabric, **more)


def test_all_wrong_overrides_are_reported_at_once() -> None:
    text = refused(switch={"override": [{"name": "x"}]}, nic={"override": [{"name": "y"}]})
    assert len(text.splitlines()) == 2


def test_tier_that_no_cable_of_a_link_file_has(tmp_path: Any) -> None:
    (tmp_path / "l.csv").write_text("a,b,tier\nh0,sw0,slow\nh1,sw0,\n")
    fabric = {"kind": "graph", "hosts": 2, "switches": 1, "links_csv": "l.csv"}
    good = scenario(fabric, link={"tier": {"slow": {"rate": "10Gbps"}}})
    assert compile_plan(good, base_dir=tmp_path).plan.port_rate_bps.tolist() == [10**10, 4 * 10**11] * 2
    with pytest.raises(ScenarioError, match='no link of the fabric is of tier "slwo"; did you mean "slow"'):
        compile_plan(scenario(fabric, link={"tier": {"slwo": {"rate": "10Gbps"}}}), base_dir=tmp_path)


# Traffic.


def test_qps_are_numbered_by_first_flow_and_keep_order() -> None:
    flows = table([(0, 1), (2, 3), (0, 1), (1, 0), (0, 1)], qp=np.array([-1, 4, 2, -1, 2]), size=np.arange(5))
    plan = compiled(flows=flows).plan
    assert plan.op_qp.tolist() == [0, 1, 2, 3, 2]
    assert plan.qp_src.tolist() == [0, 2, 0, 1]
    assert plan.qp_dst.tolist() == [1, 3, 1, 0]
    assert plan.qp_op_start.tolist() == [0, 1, 2, 4, 5]
    assert plan.qp_op.tolist() == [0, 1, 2, 4, 3]
    assert plan.op_bytes.tolist() == [0, 1, 2, 3, 4]
    assert plan.op_host.tolist() == [0, 2, 0, 1, 0]
    assert set(plan.op_peer.tolist()) == {NONE}


def test_flow_hashes() -> None:
    plan = compiled(flows=table([(0, 1), (0, 1)], sport=np.array([-1, 50_000])), seed=9).plan
    drawn = 49152 + scalar_hash64(9, 3, 0, 0) % 16384
    assert plan.qp_hash.tolist() == [scalar_hash64(0, 1, 17, port, 4791) % 2**32 for port in (drawn, 50_000)]
    ack_ports = [49152 + scalar_hash64(9, 3, qp, 1) % 16384 for qp in (0, 1)]
    assert plan.qp_ack_hash.tolist() == [scalar_hash64(1, 0, 17, port, 4791) % 2**32 for port in ack_ports]


def test_dependencies_become_successors() -> None:
    flows = table([(0, 1), (0, 2), (0, 3), (1, 0)], after=np.array([-1, 0, 0, -1]), start=np.array([5, 6, 7, 1]))
    plan = compiled(flows=flows).plan
    assert plan.op_dependency_count.tolist() == [0, 1, 1, 0]
    assert plan.op_successor_start.tolist() == [0, 2, 2, 2, 2]
    assert plan.op_successor.tolist() == [1, 2]
    assert plan.host_op_start.tolist() == [0, 1, 2, 2, 2]
    assert plan.host_op.tolist() == [0, 3]


def test_operations_of_a_host_are_sorted_by_start_then_id() -> None:
    plan = compiled(flows=table([(0, 1), (1, 0), (0, 2), (0, 3)], start=np.array([9, 0, 3, 3]))).plan
    assert plan.host_op.tolist() == [2, 3, 0, 1]


def test_flow_that_waits_for_another_host() -> None:
    assert "flow 1 waits for flow 0, which another host sends" in refused(
        flows=table([(0, 1), (1, 0)], after=np.array([-1, 0]))
    )


def test_qp_of_two_pairs() -> None:
    text = refused(flows=table([(0, 1), (0, 2)], qp=np.array([0, 0])))
    assert text == "flows 0 and 1 share a QP, but differ in dst: 1 and 2"


def test_flows_that_no_fabric_can_carry() -> None:
    assert refused(flows=table([(0, 4)])) == "flow 0: its destination sw0 is not a host; only hosts send and receive"
    assert refused(flows=table([(0, 99)])) == "flow 0: its destination 99 is not a host; only hosts send and receive"
    assert refused(flows=table([(2, 2)])) == 'flow 0: host "h2" sends to itself'
    assert "negative size" in refused(flows=table([(0, 1)], size=-1))


ISLANDS = {
    "kind": "graph",
    "hosts": ["h0", "h1", "h2", "h3"],
    "switches": ["s", "t"],
    "links": [{"a": "h0", "b": "s"}, {"a": "h1", "b": "s"}, {"a": "h2", "b": "t"}],
}


def test_unreachable_destinations_name_both_hosts() -> None:
    text = refused(ISLANDS, table([(0, 1), (0, 2), (1, 3), (0, 2)]))
    assert text.splitlines() == ["h2 is unreachable from h0: no path", "h3 is unreachable from h1: h3 has no link"]


def test_hosts_may_be_cabled_to_each_other() -> None:
    fabric = {"kind": "graph", "hosts": ["h0", "h1"], "links": [{"a": "h0", "b": "h1"}]}
    result = compiled(fabric)
    assert result.plan.port_peer.tolist() == [1, 0]
    assert result.plan.node_route_row.tolist() == [NONE, NONE]
    assert result.ideal_ps[0] == (4 + 62 + 16 + 20) * 20 + 600_000


def test_empty_traffic() -> None:
    plan = compiled(flows=table([])).plan
    assert (plan.op_count, plan.qp_count) == (0, 0)
    assert plan.host_op_start.tolist() == [0] * 5


# NICs.


def test_profiles_are_shared() -> None:
    nic = {
        "window": "10KB",
        "mtu": 1024,
        "timeout": 3,
        "override": [{"name": "h1", "ack_every": 8}, {"name": "h2", "ack_every": 1}, {"name": "h3", "ack_every": 8}],
    }
    plan = compiled(nic=nic).plan
    assert plan.host_nic.tolist() == [0, 1, 0, 1]
    assert plan.nic_ack_every.tolist() == [1, 8]
    assert plan.nic_window_packets.tolist() == [9, 9]
    assert plan.nic_rto_ps.tolist() == [8 * 4_096_000] * 2
    assert plan.nic_cc.tolist() == [CC_DCQCN_ADAPTER] * 2
    assert plan.nic_notify.tolist() == [NOTIFY_CNP] * 2


def test_congestion_controls() -> None:
    override = [
        {"name": "h1", "cc": {"preset": "paper"}},
        {"name": "h2", "cc": {"kind": "fixed", "rate": "10Gbps"}},
        {"name": "h3", "cc": {"kind": "none"}},
    ]
    plan = compiled(nic={"override": override}).plan
    assert plan.nic_cc[plan.host_nic].tolist() == [CC_DCQCN_ADAPTER, CC_DCQCN_PAPER, CC_FIXED, CC_NONE]
    assert plan.nic_fixed_rate_bps[plan.host_nic].tolist() == [0, 0, 10**10, 0]
    # Receivers must notify as long as some sender listens.
    assert set(plan.nic_notify.tolist()) == {NOTIFY_CNP}
    assert compiled(nic={"cc": {"kind": "none"}}).plan.nic_notify.tolist() == [NOTIFY_ECHO]


# Run.


def test_run_settings() -> None:
    plan = compiled(until="3us", trace={"interval": "7us"}, seed=3).plan
    assert (plan.seed, plan.until_ps, plan.sample_ps, plan.scheduler) == (3, 3_000_000, 7_000_000, SCHEDULER_WINDOW)
    assert compiled().plan.until_ps == FOREVER_PS
    assert compiled(trace={"interval": "off"}).plan.sample_ps == 0
    assert compiled(trace={"tables": ["flows"]}).plan.sample_ps == 0


def test_classes() -> None:
    classes = [
        {"name": "low", "priority": 1, "lossless": True, "ack_class": "high"},
        {"name": "high", "priority": 5, "cnp": True},
    ]
    result = compiled(**{"class": classes})
    plan = result.plan
    assert result.class_names == ("high", "low")
    assert plan.class_lossless.tolist() == [0, 1]
    assert plan.class_ack.tolist() == [0, 0]
    assert plan.cnp_class == 0
    ns3 = compiled(**{"class": classes}, compat="ns3")
    assert ns3.plan.class_ack.tolist() == [0, 1]


# Compatibility with the HPCC family of ns-3 simulators.


def test_ns3_buffer_rule() -> None:
    result = compiled(
        {"kind": "dumbbell", "left": 2, "right": 1},
        compat="ns3",
        link={"rate": "100Gbps", "delay": "1us", "tier": {"trunk": {"rate": "400Gbps"}}},
        switch={"buffer": "32MiB"},
    )
    plan = result.plan
    assert plan.scheduler == SCHEDULER_CREATION
    assert plan.truncate_ns and plan.ns3_buffer and plan.ns3_nic and plan.ns3_pfc and plan.round_robin
    assert per_class(result, "pq_headroom_bytes", "sw0->h0")[RDMA] == 37_500
    assert per_class(result, "pq_headroom_bytes", "sw0->sw1")[RDMA] == 150_000
    assert per_class(result, "pq_alpha_q16", "sw0->h0")[RDMA] == 1 << 13
    assert per_class(result, "pq_alpha_q16", "sw0->sw1")[RDMA] == 1 << 15
    assert per_class(result, "pq_reserved_bytes", "sw0->h0")[RDMA] == 4096
    assert per_class(result, "pq_xon_offset_bytes", "sw0->h0")[RDMA] == 3072
    assert plan.switch_pool_bytes.tolist() == [
        (32 << 20) - 2 * 37_500 - 150_000 - 3 * 4096,
        (32 << 20) - 37_500 - 150_000 - 2 * 4096,
    ]
    assert plan.port_pause_ps.tolist() == [0] * plan.port_count
    assert plan.nic_notify.tolist() == [NOTIFY_ECHO]
    assert plan.nic_decrease_offset_ps.tolist() == [1000]
    assert (plan.header_bytes, plan.reth_bytes, plan.wire_overhead_bytes, plan.frame_min_bytes) == (48, 0, 0, 0)


def test_ns3_times_are_whole_nanoseconds() -> None:
    flows = table([(0, 1)], start=1_234_567)
    plan = compiled(flows=flows, compat="ns3", link={"delay": "1000.7ns"}).plan
    assert plan.op_start_ps.tolist() == [1_234_000]
    assert set(plan.port_delay_ps.tolist()) == {1_000_000}


def test_automatic_alpha_doubles_with_the_rate_but_not_past_one() -> None:
    rates = {"h0": "100Gbps", "h1": "50Gbps", "h2": "200Gbps", "h3": "10Tbps"}
    link = {"override": [{"between": [host, "sw0"], "rate": rate} for host, rate in rates.items()]}
    result = compiled(link=link, switch={"pfc": {"alpha": "auto"}})
    alpha = [per_class(result, "pq_alpha_q16", f"sw0->{host}")[RDMA] for host in rates]
    assert alpha == [1 << 13, 1 << 13, 1 << 14, 1 << 16]


# Size.


def test_4096_ports_on_one_switch() -> None:
    result = compiled({"kind": "single-switch", "hosts": 4096}, switch={"buffer": "8GiB"})
    assert result.plan.port_count == 8192
    assert len(set(result.port_names)) == 8192


def test_10_000_qps_on_one_host() -> None:
    rows = [(0, 1 + index % 3) for index in range(10_000)]
    assert compiled(flows=table(rows)).plan.qp_count == 10_000


def test_ns3_has_no_response_delay() -> None:
    assert not compiled(compat="ns3", switch={"pfc": {"response_delay": "1us"}}).plan.port_pfc_response_ps.any()


def test_load_balancing_is_resolved_by_tier_and_name() -> None:
    fabric = {"kind": "leaf-spine", "spines": 2, "leaves": 2, "hosts_per_leaf": 1}
    table = {
        "tier": {"leaf": {"load_balancing": "spray"}},
        "override": [{"name": "leaf1", "load_balancing": "weighted"}],
    }
    links = [{"between": ["leaf1", "spine1"], "rate": "25Gbps"}]
    plan = compiled(fabric, switch=table, link={"rate": "100Gbps", "override": links}).plan
    names = ["ecmp" if value == 0 else "spray" if value == 1 else "weighted" for value in plan.switch_balance]
    assert sorted(names) == ["ecmp", "ecmp", "spray", "weighted"]
    assert sorted(plan.nexthop_weight.tolist()) == [1, 1, 1, 4]


def test_weights_are_exact_or_rounded() -> None:
    start = np.array([0, 2, 4], dtype=np.int32)
    rates = np.array([25 * 10**9, 400 * 10**9, 10**9 + 1, 3 * 10**9], dtype=np.int64)
    assert rate_weights(start, rates).tolist() == [1, 16, 21845, 65535]
    assert rate_weights(np.array([0], dtype=np.int32), rates[:0]).tolist() == []


def test_load_balancing_is_refused_with_the_compatibility_rules() -> None:
    with pytest.raises(ScenarioError, match=r'switch\.load_balancing.*compat = "ns3" knows ecmp only'):
        scenario(compat="ns3", switch={"load_balancing": "spray"})


def test_parameters_of_flowlets_are_there_for_flowlets_only() -> None:
    fabric = {"kind": "leaf-spine", "spines": 2, "leaves": 2, "hosts_per_leaf": 1}
    tiers = {"leaf": {"load_balancing": "flowlet", "flowlet_gap": "3us"}, "spine": {"load_balancing": "least-loaded"}}
    plan = compiled(fabric, switch={"flowlet_entries": 7, "tier": tiers}).plan
    rows = zip(plan.switch_balance, plan.switch_flowlet_gap_ps, plan.switch_flowlet_entries, strict=True)
    assert {tuple(int(value) for value in row) for row in rows} == {
        (BALANCE_FLOWLET, 3_000_000, 7),
        (BALANCE_LEAST_LOADED, 0, 0),
    }
    assert compiled(nic={"reorder_window": 64, "retransmission": "selective"}).plan.nic_reorder.tolist() == [64]
