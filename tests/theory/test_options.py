"""Options of buffers, classes and links, each against the number that it must give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.headroom import headroom_bound_bytes
from tests.theory.experiment import MS, NO_CC, NO_ECN, US, WIRE_BYTES, Outcome, compiled, flow, flows, run, wire_ps

RATE_BPS = 100 * 10**9
FULL_BYTES = 4158
CLASSES = [
    {"name": "cnp", "priority": 6, "cnp": True},
    {"name": "gold", "priority": 3, "lossless": True, "ecn": True},
    {"name": "silver", "priority": 2, "lossless": True},
    {"name": "best-effort", "priority": 0},
]
GOLD, SILVER, BEST_EFFORT = 1, 2, 3
CREDIT, PFC = 6, 4
HOSTS = ("h0", "h1", "h2", "h3")


def star(
    hosts: int, rows: list[tuple[str, dict[str, Any]]], switch: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Hosts of 100 Gb/s at one switch, lossless classes gold and silver, no congestion control."""
    return {
        "fabric": {"kind": "single-switch", "hosts": hosts},
        "link": {"rate": "100Gbps", "delay": "1us", **more.pop("link", {})},
        "switch": {"buffer": "16MiB", "ecn": NO_ECN} | (switch or {}),
        "nic": NO_CC,
        "class": CLASSES,
        "workload": [
            flows(*(row for of, row in rows if of == name)) | {"class": name}
            for name in dict.fromkeys(of for of, _ in rows)
        ],
    } | more


def flow_of(name: str, src: str, dst: str, size: str) -> tuple[str, dict[str, Any]]:
    return name, flow(src, dst, size)


def sent_between(outcome: Outcome, port: str, from_ps: int, to_ps: int) -> np.ndarray:
    """(C,) bytes on the wire of every class of data at a port in a span of time."""
    rows = outcome.packets(port)
    rows = rows[(rows["time_ps"] >= from_ps) & (rows["time_ps"] < to_ps)]
    return np.bincount(rows["class"], weights=rows["frame_bytes"], minlength=len(CLASSES))


@pytest.mark.parametrize(("gold", "silver"), [(60, 40), (1, 1), (90, 10)])
def test_weights_share_a_link_under_backlog(gold: int, silver: int) -> None:
    """Two lossless classes, both backlogged at the port for half a millisecond: their bytes are as their weights."""
    rows = [flow_of(name, host, "h4", "20MB") for name, host in zip(("gold", "silver") * 2, HOSTS, strict=True)]
    outcome = run(star(5, rows, {"weights": {"gold": gold, "silver": silver}}), packets=True, stop_ps=MS)
    sent = sent_between(outcome, "sw0->h4", 300 * US, 900 * US)
    share = sent[GOLD] / (sent[GOLD] + sent[SILVER])
    # One round more or less of either class in some hundreds.
    round_bytes = (gold + silver) / min(gold, silver) * FULL_BYTES
    assert share == pytest.approx(gold / (gold + silver), abs=2 * round_bytes / sent.sum())
    assert outcome.totals["packets_dropped"] == 0


def test_a_strict_class_goes_before_weighted_ones() -> None:
    """Best-effort has a weight and gold none: gold takes the whole link while it has something to send."""
    rows = [flow_of("gold", "h0", "h2", "5MB"), flow_of("silver", "h1", "h2", "5MB")]
    outcome = run(star(3, rows, {"weights": {"silver": 100}}), packets=True, stop_ps=300 * US)
    sent = sent_between(outcome, "sw0->h2", 50 * US, 300 * US)
    assert sent[SILVER] == 0 and sent[GOLD] > 0.99 * 250 * US * RATE_BPS / 8e12 * FULL_BYTES / (FULL_BYTES + WIRE_BYTES)


@pytest.mark.parametrize("senders", [2, 4, 8])
def test_every_group_stops_at_a_static_threshold(senders: int) -> None:
    """However many are congested, each is paused at its own 100 KB; a dynamic threshold would shrink with their number.

    From XOFF on, a group still gets what is on the way.
    """
    rows = [flow_of("gold", f"h{index}", f"h{senders}", "2MB") for index in range(senders)]
    pfc = {"static": "100KB", "xon_offset": "20KB", "reserved": "0B"}
    outcome = run(star(senders + 1, rows, {"pfc": pfc}))
    pauses = outcome.tables["pauses"]
    first = {int(row["port"]): row for row in pauses[::-1]}
    assert len(first) == senders
    for row in first.values():
        assert row["crossed"] == 2 and row["threshold_bytes"] == 100_000
        assert 100_000 <= row["ingress_bytes"] < 100_000 + FULL_BYTES + 16
    assert outcome.totals["packets_dropped"] == 0


def test_lossy_limits_may_be_static() -> None:
    """A lossy queue takes frames while it holds less than 50 KB: its greatest length is one frame more at most."""
    rows = [flow_of("best-effort", host, "h2", "1MB") for host in ("h0", "h1")]
    lossy = {"static": "1MB", "egress_static": "50KB"}
    outcome = run(star(3, rows, {"lossy": lossy}, trace={"interval": "1us"}), stop_ps=60 * US)
    ports = outcome.tables["ports"]
    longest = ports["queue_max_bytes"][
        (ports["port"] == outcome.port("sw0->h2")) & (ports["class"] == BEST_EFFORT)
    ].max()
    assert 50_000 <= longest < 50_000 + FULL_BYTES
    assert outcome.totals["drops_egress_full"] > 0 and outcome.totals["drops_shared_full"] == 0


@pytest.mark.parametrize("cell", [208, 254])
def test_frames_take_whole_cells(cell: int) -> None:
    """At XOFF a group holds a whole number of cells, as many per frame as the frame needs."""
    rows = [flow_of("gold", host, "h2", "1MB") for host in ("h0", "h1")]
    switch = {"cell": f"{cell}B", "pfc": {"static": "100KB", "reserved": "0B"}}
    outcome = run(star(3, rows, switch))
    held = outcome.tables["pauses"]["ingress_bytes"]
    full = -(-FULL_BYTES // cell) * cell
    assert len(held) > 0 and (held % cell == 0).all()
    assert held[0] in (-(-100_000 // full) * full, 100_000 // full * full + -(-(FULL_BYTES + 16) // cell) * cell)


def test_headroom_in_cells_is_enough_for_the_smallest_frames() -> None:
    """64 B frames take a cell of 208 B each: with the bound none is lost, where that of bytes would be too small."""
    bound = {"rate_bps": RATE_BPS, "delay_ps": 5 * US, "frame_bytes": 4174}
    assert headroom_bound_bytes(**bound, cell_bytes=208) % 208 == 0
    assert headroom_bound_bytes(**bound, cell_bytes=208) > 2.4 * headroom_bound_bytes(**bound) - 2 * 4174
    rows = [flow_of("gold", f"h{index % 8}", "h8", "1B") for index in range(8 * 1500)]
    pfc = {"static": "20KB", "reserved": "0B"}
    small = {"link": {"delay": "5us"}, "frames": {"reth": "0B"}}
    outcome = run(star(9, rows, {"cell": "208B", "pfc": pfc}, **small))
    assert outcome.totals["xoffs"] > 0 and outcome.totals["packets_dropped"] == 0
    in_bytes = headroom_bound_bytes(**bound)
    lost = run(star(9, rows, {"cell": "208B", "pfc": pfc | {"headroom": f"{in_bytes}B"}}, **small))
    assert lost.totals["drops_headroom_full"] > 0


def test_a_port_without_pfc_loses_packets() -> None:
    """One of two senders is cabled to a port with PFC off: only what comes from there is dropped."""
    rows = [flow_of("gold", host, "h2", "4MB") for host in ("h0", "h1")]
    override = [{"name": "sw0", "peer": "h0", "pfc": {"enabled": False}}]
    outcome = run(star(3, rows, {"buffer": "1MiB", "override": override}), stop_ps=5 * MS)
    drops = outcome.tables["drops"]
    assert len(drops) > 0 and set(drops["ingress_port"].tolist()) == {outcome.port("sw0->h0")}
    assert set(outcome.tables["pauses"]["port"].tolist()) == {outcome.port("sw0->h1")}


def test_a_wrong_class_map_makes_lossless_traffic_lossy() -> None:
    """The switch treats gold as best-effort: nothing is paused, what does not fit is dropped as lossy."""
    rows = [flow_of("gold", host, "h3", "4MB") for host in ("h0", "h1", "h2")]
    outcome = run(star(4, rows, {"class_map": {"gold": "best-effort"}, "buffer": "4MiB"}), stop_ps=2 * MS)
    assert outcome.totals["xoffs"] == 0 and outcome.totals["drops_headroom_full"] == 0
    assert outcome.totals["drops_shared_full"] + outcome.totals["drops_egress_full"] > 0
    assert (outcome.tables["drops"]["class"][outcome.tables["drops"]["kind"] == 0] == GOLD).all()


def test_one_port_may_mark_and_another_not() -> None:
    """Marking is on but at the port to h4: its congested queue marks nothing."""
    rows = [flow_of("gold", host, dst, "2MB") for host, dst in zip(HOSTS, ("h4", "h4", "h5", "h5"), strict=True)]
    override = [{"name": "sw0", "peer": "h4", "ecn": {"enabled": False}}]
    ecn = {"enabled": True, "kmin": "5KB", "kmax": "200KB"}
    outcome = run(star(6, rows, {"ecn": ecn, "override": override}))
    marks = outcome.ops["marks"]
    assert marks[:2].sum() == 0 and marks[2:].min() > 0


@pytest.mark.parametrize("blocks", [70, 140, 280, 560, 1120])
def test_a_lane_carries_its_buffer_in_every_round_trip(blocks: int) -> None:
    """Throughput of one lane between two hosts on a cable of 1 us: the smaller of the rate and buffer / round trip.

    A round trip: a frame on the wire and on its way, the credit frame and its way. Only whole frames go.
    """
    rows = [flow_of("gold", "h0", "h1", "20MB")]
    link = {"flow_control": "credit", "credit_buffer": f"{64 * blocks}B"}
    outcome = run(star(2, rows, link=link), packets=True, stop_ps=MS)
    sent = sent_between(outcome, "h0->sw0", 100 * US, 900 * US)[GOLD] * 8e12 / (800 * US)
    frames = blocks // 65  # a full frame takes 65 blocks
    frame_ps = wire_ps(FULL_BYTES, RATE_BPS)
    # The switch frees a frame when it starts to leave, at once; then the credit frame goes, behind an ACK at most.
    round_ps = frame_ps + 2 * US + wire_ps(64, RATE_BPS)
    expected = min(FULL_BYTES * 8e12 / frame_ps, frames * FULL_BYTES * 8e12 / round_ps)
    assert sent == pytest.approx(expected, rel=0.02)
    assert outcome.totals["packets_dropped"] == 0 and outcome.totals["pfc_frames"] == 0


def test_credits_lose_nothing_and_need_no_headroom() -> None:
    """An incast of 8 in a buffer that holds the lanes and nothing else; each sender gets an eighth."""
    rows = [flow_of("gold", f"h{index}", "h8", "1MB") for index in range(8)]
    lane_bytes = 32 * 1024
    switch = {"buffer": f"{lane_bytes * len(CLASSES) * 9}B"}
    link = {"flow_control": "credit", "credit_buffer": f"{lane_bytes}B"}
    outcome = run(star(9, rows, switch, link=link))
    assert (outcome.plan.switch_pool_bytes == 0).all() and (outcome.plan.pq_headroom_bytes == 0).all()
    assert outcome.totals["packets_dropped"] == 0 and outcome.totals["xoffs"] == 0
    busy_ps = int(outcome.port_totals["busy_ps"][outcome.port("sw0->h8")])
    assert outcome.ops["delivered_ps"].max() < 1.02 * busy_ps + 10 * US
    assert np.ptp(outcome.ops["delivered_ps"]) < 0.05 * outcome.ops["delivered_ps"].max()


def test_credits_in_one_tier_and_pfc_in_the_other() -> None:
    """Fabric links with credits, host links with PFC, an incast across: nothing is lost, hosts are paused."""
    rows = [flow_of("gold", f"h{index}", "h7", "1MB") for index in range(6)]
    scenario = star(8, rows, {"buffer": "4MiB"}, link={"tier": {"fabric": {"flow_control": "credit"}}})
    scenario["fabric"] = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2}
    outcome = run(scenario, packets=True)
    kinds = outcome.tables["packets"]
    fabric = [port for port, name in enumerate(outcome.port_names) if "h" not in name.replace("spine", "s")]
    of_fabric = np.isin(kinds["port"], fabric)
    assert outcome.totals["packets_dropped"] == 0 and (outcome.ops["done_ps"] >= 0).all()
    assert outcome.totals["credit_frames"] > 0 and outcome.totals["xoffs"] > 0
    assert not (kinds["kind"][of_fabric] == PFC).any() and not (kinds["kind"][~of_fabric] == CREDIT).any()


def test_a_refreshed_credit_is_told_sixteen_times_more() -> None:
    """One frame each way: the last free of each receiver is told once, and again 16 times, 10 us apart."""
    link = {"flow_control": "credit", "credit_refresh": "10us"}
    outcome = run(star(2, [flow_of("gold", "h0", "h1", "1B")], link=link), packets=True)
    rows = outcome.packets("h1->sw0", CREDIT)
    assert len(rows) == 17 and (np.diff(rows["time_ps"]) == 10 * US).all()


LOST_CREDITS = {"kind": "loss", "link": ["h1", "sw0"], "from": "h1", "rate": 1, "frames": ["credit"]}


@pytest.mark.parametrize(("refresh", "done"), [({}, True), ({"credit_refresh": "off"}, False)])
def test_credits_that_get_lost_are_told_again_by_default(refresh: dict[str, Any], done: bool) -> None:
    """All credit frames of the receiver are lost for 50 us: the lane runs dry until a refresh, 100 us later."""
    fault = LOST_CREDITS | {"start": "10us", "end": "60us"}
    link = {"flow_control": "credit"} | refresh
    rows = [flow_of("gold", "h0", "h1", "1MB")]
    outcome = run(star(2, rows, link=link, fault=[fault], until="3ms"), packets=True)
    assert (outcome.ops["done_ps"][0] >= 0) == done
    sent = outcome.packets("sw0->h1")["time_ps"]
    last_before = sent[sent < 60 * US][-1]
    assert 10 * US < last_before < 20 * US  # 64 KiB after the last credit that came through
    if done:
        # The frame that begins last before the lane is dry is told again 100 us after its start.
        lost = outcome.packets("h1->sw0", CREDIT)["time_ps"]
        told = int(lost[lost < 60 * US][-1]) + 100 * US
        assert told in lost
        assert told + US < sent[sent > 60 * US][0] < told + 2 * US
    else:
        assert (sent < 60 * US).all()


def test_credits_are_told_again_where_their_frames_can_be_lost_and_nowhere_else() -> None:
    """Only at the port that sends them, only by a loss that hits them, only if the scenario does not say itself."""

    def refreshed(*faults: dict[str, Any], **link: Any) -> dict[str, int]:
        rows = [flow_of("gold", "h0", "h1", "1B")]
        item = compiled(star(2, rows, link={"flow_control": "credit"} | link, fault=list(faults), until="1ms"))
        found = dict(zip(item.port_names, item.plan.port_credit_refresh_ps.tolist(), strict=True))
        return {name: value for name, value in found.items() if value}

    assert refreshed() == {}
    assert refreshed(LOST_CREDITS) == {"h1->sw0": 100 * US}
    both = {key: value for key, value in LOST_CREDITS.items() if key != "from"}
    assert refreshed(both) == {"h1->sw0": 100 * US, "sw0->h1": 100 * US}
    assert refreshed(LOST_CREDITS, credit_refresh="off") == {}
    assert set(refreshed(LOST_CREDITS, credit_refresh="7us").values()) == {7 * US}
    assert len(refreshed(credit_refresh="7us")) == 4
    for harmless in (LOST_CREDITS | {"frames": ["data", "ack"]}, LOST_CREDITS | {"rate": 0}):
        assert refreshed(harmless) == {}
    for gone in ({"kind": "link-down", "link": ["h1", "sw0"]}, {"kind": "reboot", "switch": "sw0"}):
        assert refreshed(gone | {"start": "1us", "end": "2us"}) == {}
    whatever = {key: value for key, value in LOST_CREDITS.items() if key != "frames"}
    assert refreshed(whatever) == {"h1->sw0": 100 * US}
    assert refreshed(whatever, flow_control="pfc") == {}


def test_the_pause_behind_a_pause() -> None:
    """Incast over a trunk: the switch of the senders pauses them because its trunk is paused by the one behind it."""
    rows = [flow_of("gold", f"h{index}", "h4", "4MB") for index in range(4)]
    scenario = star(5, rows, {"buffer": "4MiB"})
    scenario["fabric"] = {"kind": "dumbbell", "left": 4, "right": 1}
    scenario["link"]["override"] = [{"between": ["sw1", "h4"], "rate": "25Gbps"}]
    outcome = run(scenario)
    pauses = outcome.tables["pauses"]
    trunk = outcome.port("sw1->sw0")
    by_right = pauses[pauses["port"] == trunk]
    by_left = pauses[pauses["port"] != trunk]
    assert len(by_right) > 0 and (by_right["parent_port"] == -1).all()
    assert (by_left["parent_port"] == trunk).any()


def test_the_engine_refuses_half_a_credit_link() -> None:
    """Both ends have credits or neither, PFC has no place there, and credits are whole blocks."""
    plan = compiled(star(2, [flow_of("gold", "h0", "h1", "1B")], link={"flow_control": "credit"})).plan
    one_end = plan.port_credit.copy()
    one_end[0] = 0
    with pytest.raises(ValueError, match="credits at one end and PFC at the other"):
        replace(plan, port_credit=one_end)
    for wrong in ({"pq_pfc_obey": plan.pq_pfc_obey + 1}, {"pq_credit_bytes": plan.pq_credit_bytes + 1}):
        with pytest.raises(ValueError, match="no PFC, and buffers of whole blocks"):
            Engine(replace(plan, **wrong))
