"""Faults of a scenario: what each does, in numbers, and the same whichever scheduler runs it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.compile.compiled import Compiled
from fabemu.plan import (
    ACTION_HEADROOM,
    ACTION_LINK_DOWN,
    ACTION_LINK_UP,
    ACTION_LOSS,
    ACTION_MAP,
    ACTION_PFC,
    ACTION_ROUTES,
    FOREVER_PS,
    NONE,
    SCHEDULER_CLASSIC,
    SCHEDULER_WINDOW,
)
from fabemu.scenario import scenario_from_dict
from fabemu.trace import DROP_CAUSES

US = 1_000_000
NS = 1_000
LINK_DOWN, CORRUPT = DROP_CAUSES.index("link_down"), DROP_CAUSES.index("corrupt")
FRAME_PS = 85_520  # at 100 Gb/s: 1049 B, with preamble and gap, of a packet in the middle of a message

# h0, h1 - leaf0 = spine0, spine1 = leaf1 - h2, h3
LEAF_SPINE = """
[fabric]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 2
spines = 2
[link]
rate = "100Gbps"
delay = "1us"
[nic]
mtu = 1024
timeout = 3
[nic.cc]
kind = "none"
[trace]
interval = "off"
[routing]
detection = "20us"
convergence = "30us"
"""
# h0, h1 - sw0 - sw1 - h2, h3
CHAIN = LEAF_SPINE.replace(
    'kind = "leaf-spine"\nleaves = 2\nhosts_per_leaf = 2\nspines = 2',
    'kind = "dumbbell"\nleft = 2\nright = 2',
)


def compiled(base: str, flows: list[tuple[str, str, str]], *faults: dict[str, Any], **more: Any) -> Compiled:
    scenario = tomllib.loads(base) | more
    listed = [{"src": src, "dst": dst, "size": size} for src, dst, size in flows]
    scenario["workload"] = [{"kind": "flows", "flow": listed}]
    scenario["fault"] = list(faults)
    return compile_plan(scenario_from_dict(scenario))


def run(plan, **options: Any) -> tuple[Engine, dict[str, np.ndarray]]:
    engine = Engine(plan, packets=True, **options)
    while engine.run(FOREVER_PS if plan.until_ps == FOREVER_PS else plan.until_ps, 1 << 40) == 0:
        pass
    engine.finish()
    assert all(held for _, held, _ in engine.verify()), engine.verify()
    return engine, engine.drain()


def outcome(item: Compiled) -> tuple[Engine, dict[str, np.ndarray]]:
    """Run a plan by every scheduler; all must tell the same, row by row."""
    engine, records = run(item.plan)
    for scheduler, options in (
        (SCHEDULER_WINDOW, {"express": False}),
        (SCHEDULER_WINDOW, {"window_divisor": 3}),
        (SCHEDULER_WINDOW, {"window_divisor": 64}),
        (SCHEDULER_CLASSIC, {}),
    ):
        other, rows = run(replace(item.plan, scheduler=scheduler), **options)
        assert (other.digest, other.now_ps) == (engine.digest, engine.now_ps)
        for table in ("pauses", "drops", "events", "packets"):
            assert rows[table].tobytes() == records[table].tobytes(), table
    return engine, records


def port(item: Compiled, name: str) -> int:
    return item.port_names.index(name)


def statuses(engine: Engine) -> list[int]:
    return engine.ops()["status"].tolist()


def actions(item: Compiled) -> list[tuple[int, int, int, int, int]]:
    plan = item.plan
    columns = (plan.action_time_ps, plan.action_kind, plan.action_target, plan.action_mask, plan.action_value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def link_down(start: str, end: str | None = None, link: tuple[str, str] = ("sw0", "sw1")) -> dict[str, Any]:
    return {"kind": "link-down", "link": list(link), "start": start} | ({"end": end} if end else {})


def test_what_is_in_flight_when_a_link_dies_is_lost_and_nothing_else():
    item = compiled(CHAIN, [("h0", "h2", "1MB")], link_down("40us", "41us"))
    engine, records = outcome(item)
    before = 40 * US
    sent, drops = records["packets"], records["drops"]
    for name in ("sw0->sw1", "sw1->sw0"):
        sender = port(item, name)
        own = sent[(sent["port"] == sender) & (sent["time_ps"] < before)]
        wire_ps = (own["frame_bytes"].astype(np.int64) + 20) * 80
        flying = own[own["time_ps"] + wire_ps + US >= before]
        lost = drops[(drops["ingress_port"] == item.plan.port_peer[sender]) & (drops["egress_port"] == NONE)]
        assert len(flying) >= 2
        assert lost["psn"].tolist() == flying["psn"].tolist()
        assert (lost["time_ps"] == before).all() and (lost["cause"] == LINK_DOWN).all()
    # 1086 B data frames leave back to back: one every 88.48 ns, 12 whole ones in 1.08848 us.
    data = drops[(drops["egress_port"] == NONE) & (drops["kind"] == 0)]
    assert len(data) == 12
    assert statuses(engine) == [2]
    # Over before it could be detected: routing knows nothing of it.
    assert ACTION_ROUTES not in item.plan.action_kind


def test_a_dead_link_sends_nothing_and_takes_nothing():
    item = compiled(CHAIN, [("h0", "h2", "1MB"), ("h3", "h1", "1MB")], link_down("20us", "60us"))
    engine, records = outcome(item)
    sent = records["packets"]
    for name in ("sw0->sw1", "sw1->sw0"):
        times = sent["time_ps"][sent["port"] == port(item, name)]
        assert not ((times >= 20 * US) & (times < 60 * US)).any()
        assert (times < 20 * US).any() and (times >= 60 * US).any()
    drops = records["drops"]
    late = drops[drops["egress_port"] != NONE]
    assert set(late["cause"].tolist()) == {LINK_DOWN}
    assert late["time_ps"].max() < 60 * US
    assert statuses(engine) == [2, 2]


def test_packets_are_black_holed_until_routing_has_converged_and_not_after():
    item = compiled(
        LEAF_SPINE,
        [("h0", "h2", "4MB"), ("h0", "h3", "4MB"), ("h1", "h2", "4MB"), ("h1", "h3", "4MB")],
        link_down("50us", link=("leaf0", "spine1")),
        until="2ms",
    )
    engine, records = outcome(item)
    drops = records["drops"]
    assert set(drops["cause"].tolist()) == {LINK_DOWN}
    assert drops["time_ps"].min() == 50 * US
    converged = 50 * US + 50 * US
    assert converged - 2 * US < drops["time_ps"].max() < converged
    assert (drops["egress_port"] == port(item, "leaf0->spine1")).sum() > 100
    assert statuses(engine) == [2, 2, 2, 2]
    assert [row for row in actions(item) if row[1] == ACTION_ROUTES] == [(converged, ACTION_ROUTES, NONE, 0, 1)]
    # Who drops, counts.
    totals = engine.totals()
    assert totals["drops_link_down"] == len(drops) == totals["packets_dropped"]


def test_a_link_that_comes_up_again_is_used_again_after_the_same_delay():
    item = compiled(
        LEAF_SPINE,
        [("h0", "h2", "4MB"), ("h1", "h3", "4MB"), ("h0", "h3", "4MB"), ("h1", "h2", "4MB")],
        link_down("50us", "200us", link=("leaf0", "spine1")),
    )
    engine, records = outcome(item)
    sent = records["packets"]
    times = sent["time_ps"][sent["port"] == port(item, "leaf0->spine1")]
    assert len(times) and not ((times >= 50 * US) & (times < 250 * US)).any()
    assert (times >= 250 * US).any()
    assert statuses(engine) == [2] * 4


def test_a_host_whose_link_is_dead_keeps_what_it_has():
    item = compiled(CHAIN, [("h0", "h2", "100KB")], link_down("0us", "10us", link=("h0", "sw0")))
    engine, records = outcome(item)
    assert records["packets"]["time_ps"].min() == 10 * US
    assert len(records["drops"]) == 0
    assert statuses(engine) == [2]
    assert engine.ops()["first_sent_ps"].tolist() == [10 * US]


def test_a_queue_pair_that_never_gets_through_fails_after_its_retries():
    item = compiled(CHAIN, [("h0", "h2", "100KB")], link_down("5us"))
    engine, records = outcome(item)
    assert statuses(engine) == [3]
    # 4.096 us x 2^3, eight times: seven retries and the end.
    assert engine.ops()["done_ps"][0] == 8 * 32_768 * NS
    assert (records["events"]["kind"] == 19).sum() == 1


def test_a_pause_ends_with_its_link():
    # Two senders to one receiver: h0 is paused when its link dies.
    slow = {"override": [{"between": ["sw1", "h2"], "rate": "10Gbps"}], "rate": "100Gbps", "delay": "1us"}
    item = compiled(
        CHAIN,
        [("h0", "h2", "2MB"), ("h1", "h2", "2MB")],
        link_down("205us", "400us", link=("h0", "sw0")),
        link=slow,
        switch={"buffer": "600KB"},
        until="1ms",
    )
    _, records = outcome(item)
    pauses = records["pauses"]
    at_link = pauses[pauses["port"] == port(item, "sw0->h0")]
    assert len(at_link)
    by_link = at_link[at_link["end"] == 3]
    assert len(by_link) <= 1
    assert (by_link["end_ps"] == 205 * US).all()
    assert not ((at_link["xoff_ps"] > 205 * US) & (at_link["xoff_ps"] < 400 * US)).any()


@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_the_share_of_lost_frames_is_the_rate(rate):
    item = compiled(
        CHAIN,
        [("h0", "h2", "10MB")],
        {"kind": "loss", "link": ["sw0", "sw1"], "from": "sw0", "rate": rate, "frames": ["data"]},
        until="3ms",
    )
    _, records = run(item.plan)
    sent = (records["packets"]["port"] == port(item, "sw0->sw1")).sum()
    lost = records["drops"]
    assert set(lost["cause"].tolist()) == {CORRUPT} and set(lost["kind"].tolist()) == {0}
    assert (lost["ingress_port"] == port(item, "sw1->sw0")).all()
    deviation = np.sqrt(sent * rate * (1 - rate))
    assert abs(len(lost) - sent * rate) < 4 * deviation


def test_a_bit_error_rate_hits_large_frames_more_often():
    fault = {"kind": "loss", "link": ["sw0", "sw1"], "ber": 1e-6}
    plan = compiled(CHAIN, [("h0", "h2", "1MB")], fault).plan
    table = plan.loss_q32.reshape(-1, plan.loss_size_max + 1)
    for size in (64, 1086):
        assert table[0, size] / 2**32 == pytest.approx(1 - (1 - 1e-6) ** (8 * size), abs=2**-32)
    engine, records = outcome(compiled(CHAIN, [("h0", "h2", "1MB"), ("h3", "h1", "1MB")], fault, until="2ms"))
    assert (records["drops"]["cause"] == CORRUPT).sum() > 10
    assert statuses(engine) == [2, 2]


def test_every_kind_of_frame_can_be_lost_alone():
    flows = [("h0", "h2", "1MB"), ("h1", "h2", "1MB")]
    for kind, number in (("data", 0), ("ack", 1), ("pfc", 4)):
        fault = {"kind": "loss", "link": ["h0", "sw0"], "rate": 0.3, "frames": [kind]}
        item = compiled(CHAIN, flows, fault, switch={"buffer": "400KB"}, until="3ms")
        _, records = outcome(item)
        assert set(records["drops"]["kind"][records["drops"]["cause"] == CORRUPT].tolist()) == {number}
    assert (records["drops"]["qp"] == NONE).all()


def test_a_lost_xon_lets_the_pause_run_out():
    # Every PFC frame after the first XOFF is lost: the pause ends by itself, 65535 x 512 bit times after it began.
    flows = [("h0", "h2", "600KB"), ("h1", "h2", "600KB")]
    quiet = compiled(CHAIN, flows, switch={"buffer": "400KB"})
    _, records = run(quiet.plan)
    first = records["pauses"][records["pauses"]["port"] == port(quiet, "sw0->h0")][0]
    begin = int(first["sent_ps"]) + 1
    fault = {"kind": "loss", "link": ["h0", "sw0"], "from": "sw0", "rate": 1, "frames": ["pfc"], "start": f"{begin}ps"}
    engine, records = outcome(compiled(CHAIN, flows, fault, switch={"buffer": "400KB"}))
    row = records["pauses"][records["pauses"]["port"] == port(quiet, "sw0->h0")][0]
    pause_ps = -(-65535 * 512 * 10**12 // (100 * 10**9))
    assert (row["start_ps"], row["end"]) == (first["start_ps"], 1)
    assert row["end_ps"] == row["start_ps"] + pause_ps
    assert statuses(engine) == [2, 2]


def test_pfc_off_at_one_hop_loses_packets_and_the_end_of_it_none():
    flows = [("h0", "h2", "3MB"), ("h1", "h2", "3MB")]
    fault = {"kind": "pfc-off", "at": "sw0", "peer": "h0", "end": "300us"}
    guarded = compiled(CHAIN, flows, switch={"buffer": "400KB"})
    engine, _ = outcome(guarded)
    assert guarded.plan.lossless_guaranteed and engine.totals()["packets_dropped"] == 0
    item = compiled(CHAIN, flows, fault, switch={"buffer": "400KB"})
    assert not item.plan.lossless_guaranteed
    engine, records = outcome(item)
    drops = records["drops"]
    assert len(drops) > 50 and drops["time_ps"].max() < 305 * US
    assert set(drops["ingress_port"].tolist()) == {port(item, "sw0->h0")}
    assert statuses(engine) == [2, 2]


def test_ecn_off_marks_nothing():
    ecn = {"buffer": "2MB", "ecn": {"kmin": "10KB", "kmax": "20KB"}}
    flows = [("h0", "h2", "1MB"), ("h1", "h2", "1MB")]
    engine, _ = outcome(compiled(CHAIN, flows, switch=ecn))
    assert engine.totals()["marks"] > 100
    engine, _ = outcome(compiled(CHAIN, flows, {"kind": "ecn-off", "at": "sw0"}, switch=ecn))
    assert engine.totals()["marks"] == 0
    late = {"kind": "ecn-off", "at": "sw0", "peer": "sw1", "start": "50us"}
    engine, records = outcome(compiled(CHAIN, flows, late, switch=ecn))
    assert engine.totals()["marks"] > 0
    marked = records["packets"][records["packets"]["flags"] & 1 != 0]
    assert marked["time_ps"].max() < 60 * US


def test_a_wrong_priority_map_makes_a_lossless_class_lossy():
    flows = [("h0", "h2", "3MB"), ("h1", "h2", "3MB")]
    fault = {"kind": "priority-map", "switch": "sw0", "map": {"rdma": "best-effort"}, "start": "10us", "end": "90us"}
    item = compiled(CHAIN, flows, fault, switch={"buffer": "400KB", "lossy": {"egress_alpha": "1/8"}})
    engine, records = outcome(item)
    names = item.class_names
    rdma, other = names.index("rdma"), names.index("best-effort")
    assert [row[1:] for row in actions(item)] == [(ACTION_MAP, 0, rdma, other), (ACTION_MAP, 0, rdma, rdma)]
    drops = records["drops"]
    assert len(drops) and set(drops["cause"].tolist()) == {DROP_CAUSES.index("egress_full")}
    assert drops["time_ps"].min() >= 10 * US and drops["time_ps"].max() < 90 * US
    assert statuses(engine) == [2, 2]


def test_headroom_that_is_too_small_drops_and_is_put_back():
    flows = [("h0", "h2", "3MB"), ("h1", "h2", "3MB")]
    fault = {"kind": "headroom", "switch": "sw0", "peer": "h0", "headroom": "1KB", "end": "100us"}
    item = compiled(CHAIN, flows, fault, switch={"buffer": "400KB"})
    engine, records = outcome(item)
    at = port(item, "sw0->h0")
    rdma = item.class_names.index("rdma")
    given = int(item.plan.pq_headroom_bytes[at * len(item.class_names) + rdma])
    assert [row[1:] for row in actions(item)] == [
        (ACTION_HEADROOM, at, 1 << rdma, 1000),
        (ACTION_HEADROOM, at, 1 << rdma, given),
    ]
    drops = records["drops"]
    assert len(drops) and drops["time_ps"].max() < 100 * US
    assert set(drops["ingress_port"].tolist()) == {at}
    assert set(drops["cause"].tolist()) == {DROP_CAUSES.index("headroom_full")}
    assert statuses(engine) == [2, 2]


def test_a_storm_pauses_its_switch_and_loses_nothing():
    flows = [("h0", "h2", "2MB"), ("h1", "h3", "2MB")]
    fault = {"kind": "storm", "host": "h2", "start": "20us", "end": "120us"}
    item = compiled(CHAIN, flows, fault, switch={"buffer": "2MB"})
    engine, records = outcome(item)
    assert engine.totals()["packets_dropped"] == 0 and statuses(engine) == [2, 2]
    storm = records["pauses"][records["pauses"]["port"] == port(item, "h2->sw1")]
    assert len(storm) == 1 and storm["xoff_ps"][0] == 20 * US and storm["xon_ps"][0] == 120 * US
    sent = records["packets"]
    times = sent["time_ps"][sent["port"] == port(item, "sw1->h2")]
    assert not ((times >= storm["start_ps"][0]) & (times < storm["end_ps"][0])).any()


PATIENT = {"mtu": 1024, "timeout": 9, "cc": {"kind": "none"}}


@pytest.mark.parametrize(
    ("fault", "share"),
    # While it stalls, 64 KiB are taken in, of the 500 KB that could come in a period.
    [({"rate": "25Gbps"}, 0.25), ({"stall": "30us", "period": "40us", "end": "2ms"}, 0.25 + 65.5 / 500)],
)
def test_a_slow_receiver_sets_the_pace(fault, share):
    item = compiled(CHAIN, [("h0", "h2", "2MB")], {"kind": "slow-receiver", "host": "h2", **fault}, nic=PATIENT)
    engine, records = outcome(item)
    assert len(records["drops"]) == 0 and statuses(engine) == [2]
    frames = records["packets"][records["packets"]["port"] == port(item, "sw1->h2")]["frame_bytes"].sum()
    spent_ps = int(engine.ops()["delivered_ps"][0])
    assert spent_ps * share == pytest.approx(frames * 80, rel=0.12)


def test_a_flapping_link_is_down_again_and_again():
    fault = {"kind": "flap", "link": ["sw0", "sw1"], "down": "5us", "period": "50us", "start": "10us", "end": "112us"}
    item = compiled(CHAIN, [("h0", "h2", "3MB")], fault, routing={"detection": "1ms", "convergence": "0us"})
    ports = {port(item, "sw0->sw1"), port(item, "sw1->sw0")}
    for kind, times in ((ACTION_LINK_DOWN, (10, 60, 110)), (ACTION_LINK_UP, (15, 65, 112))):
        rows = [row for row in actions(item) if row[1] == kind]
        assert {row[2] for row in rows} == ports
        assert sorted({row[0] // US for row in rows}) == list(times) and len(rows) == 6
    engine, records = outcome(item)
    assert statuses(engine) == [2]
    sent = records["packets"]
    times = sent["time_ps"][np.isin(sent["port"], list(ports))]
    for start, end in ((10, 15), (60, 65), (110, 112)):
        assert not ((times >= start * US) & (times < end * US)).any()


def test_a_switch_that_reboots_loses_what_it_held():
    item = compiled(
        LEAF_SPINE,
        [("h0", "h2", "2MB"), ("h0", "h3", "2MB"), ("h1", "h2", "2MB"), ("h1", "h3", "2MB")],
        {"kind": "reboot", "switch": "spine0", "start": "40us", "end": "140us"},
        nic=PATIENT,
    )
    engine, records = outcome(item)
    ups = [row for row in actions(item) if row[1] == ACTION_LINK_UP]
    downs = [row for row in actions(item) if row[1] == ACTION_LINK_DOWN]
    assert len(ups) == len(downs) == 4
    drops = records["drops"]
    spine = item.node_names.index("spine0")
    assert ((drops["node"] == spine) & (drops["time_ps"] == 40 * US)).any()
    sent = records["packets"]
    at_spine = np.isin(sent["port"], np.flatnonzero(item.plan.port_node == spine))
    assert not (at_spine & (sent["time_ps"] >= 40 * US) & (sent["time_ps"] < 140 * US)).any()
    assert statuses(engine) == [2] * 4


def test_a_link_that_two_faults_hold_is_down_once():
    item = compiled(CHAIN, [("h0", "h2", "1KB")], link_down("10us", "30us"), link_down("20us", "40us"))
    kinds = [(time // US, kind) for time, kind, *_ in actions(item) if kind != ACTION_ROUTES]
    assert kinds == [(10, ACTION_LINK_DOWN)] * 2 + [(40, ACTION_LINK_UP)] * 2


def test_what_the_end_of_the_run_forestalls_is_left_out():
    faults = [link_down("10us", "90us"), {"kind": "pfc-off", "at": "sw0", "peer": "sw1", "end": "100us"}]
    item = compiled(CHAIN, [("h0", "h2", "1KB")], *faults, until="50us")
    assert [(time // US, kind) for time, kind, *_ in actions(item)] == [
        (0, ACTION_PFC),
        (10, ACTION_LINK_DOWN),
        (10, ACTION_LINK_DOWN),
    ]


def test_a_run_goes_on_to_its_last_action():
    engine, records = outcome(compiled(CHAIN, [("h0", "h2", "1KB")], link_down("500us", "700us")))
    assert engine.now_ps == 750 * US  # routes
    assert records["events"]["time_ps"].tolist() == [500 * US] * 2 + [550 * US] + [700 * US] * 2 + [750 * US]
    assert statuses(engine) == [2]


def test_losses_of_both_directions_and_some_kinds():
    fault = {"kind": "loss", "link": ["sw1", "sw0"], "rate": 0.5, "frames": ["ack", "nak"], "end": "20us"}
    item = compiled(CHAIN, [("h0", "h2", "1KB")], fault)
    mask = 0b110
    ends = sorted([port(item, "sw0->sw1"), port(item, "sw1->sw0")])
    rows = actions(item)
    assert [row[:2] for row in rows] == [(0, ACTION_LOSS)] * 2 + [(20 * US, ACTION_LOSS)] * 2
    assert sorted(row[2] for row in rows[:2]) == ends
    assert {row[3:] for row in rows[:2]} == {(mask, 0)} and {row[3:] for row in rows[2:]} == {(mask, NONE)}


OVERRIDE = {"at": "leaf0", "to": ["h3"], "via": ["spine1"]}


def test_next_hops_given_by_hand():
    flows = [("h0", "h2", "1MB"), ("h0", "h3", "1MB"), ("h1", "h2", "1MB"), ("h1", "h3", "1MB")]
    item = compiled(LEAF_SPINE, flows, routing={"override": [OVERRIDE]})
    engine, records = outcome(item)
    sent = records["packets"]
    data = sent[(sent["kind"] == 0) & (sent["port"] == port(item, "leaf0->spine0"))]
    assert set(item.plan.qp_dst[data["qp"]].tolist()) <= {2}
    other = sent[(sent["kind"] == 0) & (sent["port"] == port(item, "leaf0->spine1"))]
    assert (item.plan.qp_dst[other["qp"]] == 3).sum() == 2 * 977
    # Only the destination that was told apart has a group of its own.
    assert item.plan.host_group.tolist() == [0, 0, 1, 2]
    assert statuses(engine) == [2] * 4


def test_shortest_paths_are_left_when_the_links_of_an_override_are_dead():
    flows = [("h0", "h3", "3MB"), ("h1", "h3", "3MB")]
    routing = {"override": [OVERRIDE], "detection": "10us", "convergence": "0us"}
    item = compiled(LEAF_SPINE, flows, link_down("30us", link=("leaf0", "spine1")), routing=routing, until="2ms")
    engine, records = outcome(item)
    sent = records["packets"]
    around = sent[(sent["kind"] == 0) & (sent["port"] == port(item, "leaf0->spine0"))]
    assert around["time_ps"].min() >= 40 * US
    assert statuses(engine) == [2, 2]


def test_parallel_cables_fail_one_by_one():
    base = CHAIN.replace("right = 2", "right = 2\ntrunks = 2")
    fault = link_down("10us") | {"index": 1}
    item = compiled(base, [("h0", "h2", "2MB"), ("h1", "h3", "2MB")], fault, until="1ms")
    downs = {row[2] for row in actions(item) if row[1] == ACTION_LINK_DOWN}
    assert downs == {port(item, "sw0->sw1#1"), port(item, "sw1->sw0#1")}
    engine, _ = outcome(item)
    assert statuses(engine) == [2, 2]


def test_faults_survive_being_written_and_read():
    from fabemu.scenario import scenario_from_toml

    scenario = tomllib.loads(LEAF_SPINE)
    scenario["workload"] = [{"kind": "permutation", "size": "1KB"}]
    scenario["routing"]["override"] = [OVERRIDE]
    scenario["fault"] = [
        link_down("1us", link=("leaf0", "spine1")),
        {"kind": "loss", "link": ["leaf0", "spine1"], "from": "leaf0", "ber": 1e-12, "end": "2us"},
        {"kind": "priority-map", "switch": "leaf0", "map": {"rdma": "best-effort"}},
        {"kind": "slow-receiver", "host": "h0", "stall": "1us", "period": "3us", "end": "9us"},
        {"kind": "headroom", "switch": "leaf1", "classes": ["rdma"], "headroom": "1KB"},
    ]
    first = scenario_from_dict(scenario)
    again = scenario_from_toml(first.to_toml())
    assert again == first
    assert compile_plan(again).plan.digest() == compile_plan(first).plan.digest()
