"""Ideal completion times against a walk over the grid of packets and hops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fabemu._core.engine import Engine
from hypothesis import given, settings
from hypothesis import strategies as st

from fabemu.compile import Compiled, compile_plan
from fabemu.plan import FOREVER_PS
from fabemu.scenario import scenario_from_dict
from fabemu.workload.flow import flow_table

DRAINED = 2


def compiled(fabric: dict[str, Any], flows: list[dict[str, Any]], **more: Any) -> Compiled:
    data = {"fabric": fabric, "workload": [{"kind": "flows", "flow": flows}], **more}
    return compile_plan(scenario_from_dict(data))


def walked_ps(
    payloads: list[int],
    rates_bps: list[int],
    delays_ps: list[int],
    *,
    latency_ps: int = 0,
    pace_bps: int | None = None,
    header: int = 62,
    reth: int = 16,
    minimum: int = 64,
    pad: int = 4,
    overhead: int = 20,
) -> int:
    """Arrival of the last packet, one packet and one hop at a time."""
    free = [0] * len(rates_bps)
    arrived = 0
    for number, payload in enumerate(payloads):
        frame = max(minimum, -(-payload // pad) * pad + header + (reth if number == 0 else 0))
        bits = (frame + overhead) * 8 * 10**12
        for hop, (rate, delay) in enumerate(zip(rates_bps, delays_ps, strict=True)):
            ready = 0 if hop == 0 else arrived + latency_ps
            start = max(ready, free[hop])
            busy = rate if hop or pace_bps is None else min(rate, pace_bps)
            free[hop] = start + -(-bits // busy)
            arrived = start + -(-bits // rate) + delay
    return arrived


def cut(size: int, mtu: int) -> list[int]:
    count = max(1, -(-size // mtu))
    return [mtu] * (count - 1) + [size - (count - 1) * mtu]


def chain_with(rates: list[int], delays: list[int]) -> dict[str, Any]:
    """A graph whose only path from a to b has the given links."""
    names = ["a", *[f"s{index}" for index in range(len(rates) - 1)], "b"]
    links = [
        {"a": x, "b": y, "rate": f"{rate}bps", "delay": f"{delay}ps"}
        for x, y, rate, delay in zip(names[:-1], names[1:], rates, delays, strict=True)
    ]
    return {"kind": "graph", "hosts": ["a", "b"], "switches": names[1:-1], "links": links}


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(
        st.integers(0, 4000) | st.sampled_from([0, 255, 256, 257, 511, 512, 513, 768]), min_size=1, max_size=4
    ),
    rates=st.lists(st.integers(10**9, 10**12) | st.just(10**11), min_size=1, max_size=6),
    delay=st.integers(0, 10**6),
    latency=st.integers(0, 10**6),
    pace=st.none() | st.integers(10**8, 10**12),
    reth=st.sampled_from([0, 16, 200]),
    minimum=st.sampled_from([0, 64, 300]),
)
def test_equals_the_walk(
    sizes: list[int], rates: list[int], delay: int, latency: int, pace: int | None, reth: int, minimum: int
) -> None:
    delays = [delay + index for index in range(len(rates))]
    nic: dict[str, Any] = {"mtu": 256}
    if pace is not None:
        nic["cc"] = {"kind": "fixed", "rate": f"{pace}bps"}
    result = compiled(
        chain_with(rates, delays),
        [{"src": "a", "dst": "b", "size": f"{size}B"} for size in sizes],
        nic=nic,
        frames={"reth": f"{reth}B", "minimum": f"{minimum}B"},
        switch={"latency": f"{latency}ps", "buffer": "8GiB"},
    )
    expected = [
        walked_ps(cut(size, 256), rates, delays, latency_ps=latency, pace_bps=pace, reth=reth, minimum=minimum)
        for size in sizes
    ]
    assert result.ideal_ps.tolist() == expected


def test_one_megabyte_over_one_switch_at_100_gbps() -> None:
    result = compiled(
        {"kind": "single-switch", "hosts": 2},
        [{"src": "h0", "dst": "h1", "size": "1MB"}],
        link={"rate": "100Gbps", "delay": "1us"},
    )
    # 245 packets: 1,020,106 B of wire on the first link, then the last packet once more, and two propagations.
    assert result.ideal_ps.tolist() == [81_608_480 + 2_000_000 + 335_520]
    # The slowest path through the grid passes the first packet twice, as it carries the RETH.
    assert result.ideal_ps[0] == walked_ps(cut(10**6, 4096), [10**11] * 2, [10**6] * 2)


def test_whole_nanoseconds_under_ns3() -> None:
    result = compiled(
        {"kind": "single-switch", "hosts": 2},
        [{"src": "h0", "dst": "h1", "size": size} for size in ("1000B", "10MB")],
        link={"rate": "100Gbps", "delay": "1us"},
        compat="ns3",
    )
    # The published completion times, which end with the ACK at the sender, less its way back.
    way_back_ps = (4 + 1000 + 4 + 1000) * 1000
    assert result.ideal_ps.tolist() == [4_174_000 - way_back_ps, 834_091_000 - way_back_ps]


def test_prefers_the_fastest_of_uneven_links() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 1, "spines": 2}
    slow = {"link": {"rate": "100Gbps", "override": [{"between": ["leaf0", "spine0"], "rate": "10Gbps"}]}}
    flows = [{"src": "h0", "dst": "h1", "size": "100KB"}]
    assert (
        compiled(fabric, flows, **slow).ideal_ps.tolist()
        == compiled(fabric, flows, link={"rate": "100Gbps"}).ideal_ps.tolist()
    )


def test_ten_terabytes_do_not_overflow() -> None:
    flows = [{"src": "h0", "dst": "h1", "size": "10TB"}]
    fabric = {"kind": "single-switch", "hosts": 2}
    seconds = compiled(fabric, flows, link={"rate": "400Gbps"}).ideal_ps[0] / 1e12
    assert seconds == pytest.approx(204.004, rel=1e-4)
    slow = compiled(fabric, flows, link={"rate": "1Mbps"}, switch={"buffer": "1TiB"})
    assert slow.ideal_ps.tolist() == [FOREVER_PS]


def test_many_flows_in_chunks_keep_their_order() -> None:
    count = 70_000
    result = compiled(
        {"kind": "chain", "switches": 3},
        [{"src": "h0", "dst": "h1", "size": "1B"}],
    )
    flows = result.flows
    size = np.arange(count) % 977
    src, dst = np.zeros(count, dtype=int), 1 + np.arange(count) % 2
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "chain", "switches": 3},
            "workload": [{"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}],
        }
    )
    table = flow_table(src, dst, size, 0, class_id=int(flows.class_id[0]))
    ideal = compile_plan(scenario, flows=table).ideal_ps
    for row in (0, 32_767, 32_768, 65_535, 65_536, count - 1):
        hops = 3 if dst[row] == 1 else 4
        assert ideal[row] == walked_ps([int(size[row])], [400 * 10**9] * hops, [600_000] * hops)


@pytest.mark.parametrize(
    ("fabric", "more"),
    [
        ({"kind": "fat-tree", "k": 4}, {}),
        (
            {"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 2, "spines": 2, "uplinks": 2},
            {"link": {"tier": {"host": {"rate": "100Gbps"}}}, "switch": {"latency": "300ns"}},
        ),
        (
            {"kind": "chain", "switches": 4},
            {
                "link": {"rate": "73Gbps", "tier": {"trunk": {"rate": "31Gbps"}}},
                "nic": {"cc": {"kind": "fixed", "rate": "20Gbps"}},
            },
        ),
        (
            {"kind": "dumbbell", "left": 3, "right": 3, "trunks": 3},
            {"compat": "ns3", "link": {"rate": "100Gbps", "delay": "1us", "tier": {"trunk": {"rate": "400Gbps"}}}},
        ),
    ],
    ids=["fat-tree", "slow-hosts", "paced-below-slow-trunk", "ns3"],
)
def test_the_engine_takes_exactly_this_long_on_an_empty_network(fabric: dict[str, Any], more: dict[str, Any]) -> None:
    first = {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}
    scenario = scenario_from_dict({"fabric": fabric, "workload": [first], **more})
    draw = np.random.default_rng(1)
    hosts, count = compile_plan(scenario).plan.host_count, 60
    src = draw.integers(0, hosts, count)
    dst = (src + draw.integers(1, hosts, count)) % hosts
    size = np.where(np.arange(count) % 2, draw.integers(0, 9_000, count), draw.integers(0, 300_000, count))
    # One millisecond apart, so that each has the network for itself.
    result = compile_plan(scenario, flows=flow_table(src, dst, size, np.arange(count) * 10**9, class_id=1))
    engine = Engine(result.plan)
    assert engine.run(FOREVER_PS - 1, 10**9) == DRAINED
    ops = engine.ops()
    assert (ops["delivered_ps"] - ops["posted_ps"]).tolist() == result.ideal_ps.tolist()
