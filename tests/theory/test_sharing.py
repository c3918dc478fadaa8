"""Drain times, fair shares and back-pressure under PFC."""

from __future__ import annotations

import numpy as np
import pytest

from tests.theory.experiment import MS, NO_CC, NO_ECN, US, Outcome, flow, flows, frames_of, run, wire_ps

RATE_BPS = 100 * 10**9
FULL_PS = wire_ps(4158, RATE_BPS)


def incast(senders: int, size: str, **switch: object) -> dict:
    return {
        "fabric": {"kind": "single-switch", "hosts": senders + 1},
        "link": {"rate": "100Gbps", "delay": "1us"},
        "switch": {"buffer": "16MiB", "ecn": NO_ECN} | switch,
        "nic": NO_CC,
        "workload": [flows(*(flow(f"h{index}", f"h{senders}", size) for index in range(senders)))],
    }


def shares(outcome: Outcome, port: str, from_ps: int, to_ps: int) -> np.ndarray:
    """(Q,) data packets of every QP at a port in a span of time."""
    rows = outcome.packets(port)
    rows = rows[(rows["time_ps"] >= from_ps) & (rows["time_ps"] < to_ps)]
    return np.bincount(rows["qp"], minlength=outcome.plan.qp_count)


def test_incast_drains_at_line_rate() -> None:
    """16 x 1 MB at 100 Gb/s: 16,321,696 B of wire, 1.305736 ms, without a gap in spite of the pauses."""
    outcome = run(incast(16, "1MB"))
    busy_ps = int(outcome.port_totals["busy_ps"][outcome.port("sw0->h16")])
    assert busy_ps == 16_321_696 * 80 == 1_305_735_680
    first_arrival_ps = wire_ps(frames_of(10**6)[0], RATE_BPS) + US
    assert outcome.ops["delivered_ps"].max() == first_arrival_ps + busy_ps + US
    assert outcome.totals["xoffs"] > 0 and outcome.totals["packets_dropped"] == 0


@pytest.mark.parametrize("senders", [2, 3, 8, 16])
def test_line_rate_flows_share_a_receiver_equally(senders: int) -> None:
    """Within one packet at every instant until the first pause takes effect.

    Pauses begin and end at a different packet for each sender, so from then on shares are equal in the long run: all
    flows end within 3 % of the whole time.
    """
    outcome = run(incast(senders, "4MB", buffer="3MiB"), packets=True)
    rows = outcome.packets(f"sw0->h{senders}")
    assert outcome.totals["xoffs"] > 10 * senders
    first_pause_ps = int(outcome.tables["pauses"]["start_ps"].min())
    count = np.zeros(senders, dtype=np.int64)
    for qp in rows["qp"][rows["time_ps"] < first_pause_ps].tolist():
        count[qp] += 1
        assert count.max() - count.min() <= 1
    assert count.min() >= 1
    delivered_ps = outcome.ops["delivered_ps"]
    assert np.ptp(delivered_ps) < 0.03 * delivered_ps.max()


def test_queue_pairs_of_one_host_take_turns() -> None:
    """Backlogged QPs are served round robin, to one receiver or several."""
    scenario = incast(3, "0B")
    scenario["workload"] = [flows(*(flow("h0", f"h{1 + index % 3}", "200KB") for index in range(7)))]
    outcome = run(scenario, packets=True)
    order = outcome.packets("h0->sw0")["qp"]
    rounds = order[: len(order) // 7 * 7].reshape(-1, 7)
    assert (rounds == rounds[0]).all() and sorted(rounds[0].tolist()) == list(range(7))
    assert (np.diff(outcome.packets("h0->sw0")["time_ps"])[7:-7] == FULL_PS).all()


def test_back_pressure_shares_by_ingress_port_not_by_flow() -> None:
    """The parking lot: of one local and three remote flows the local one gets half."""
    scenario = {
        "until": "4ms",
        "fabric": {"kind": "chain", "switches": 2, "hosts_per_switch": 3},
        "link": {"rate": "100Gbps", "delay": "1us"},
        "switch": {"buffer": "4MiB", "ecn": NO_ECN},
        "nic": NO_CC,
        "workload": [flows(*(flow(f"h{index}", "h5", "100MB") for index in (0, 1, 2, 3)))],
    }
    outcome = run(scenario, packets=True)
    share = shares(outcome, "sw1->h5", 1 * MS, 4 * MS)
    share = share / share.sum()
    assert share == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2], abs=0.01)


@pytest.mark.parametrize("slow_gbps", [10, 25, 50])
def test_slow_receiver_pauses_its_sender(slow_gbps: int) -> None:
    """A receiver of rate r holds a sender of rate R paused 1 - r/R of the time.

    A pause begins while a frame is on the wire: it lasts at most that frame longer than the idle time it causes.
    """
    until_ps, settled_ps = 6 * MS, 2 * MS
    scenario = {
        "until": f"{until_ps}ps",
        "fabric": {"kind": "dumbbell", "left": 1, "right": 2},
        "link": {
            "rate": "100Gbps",
            "delay": "1us",
            "override": [{"between": ["sw1", "h1"], "rate": f"{slow_gbps}Gbps"}],
        },
        "switch": {"buffer": "2MiB", "ecn": NO_ECN, "pfc": {"xon_offset": "64KiB"}},
        "nic": NO_CC,
        "workload": [flows(flow("h0", "h1", "200MB"))],
    }
    outcome = run(scenario)
    span_ps = until_ps - settled_ps
    rows, pauses = outcome.tables["ports"], outcome.tables["pauses"]
    for port in ("h0->sw0", "sw0->sw1"):
        sender = outcome.port(port)
        mine = rows[(rows["port"] == sender) & (rows["start_ps"] >= settled_ps)]
        by_peer = pauses[(pauses["port"] == outcome.plan.port_peer[sender]) & (pauses["start_ps"] >= settled_ps)]
        frames_on_the_wire = len(by_peer) * FULL_PS / span_ps
        assert len(by_peer) > 20 and frames_on_the_wire < 0.03
        paused = mine["paused_ps"].sum() / span_ps
        assert -0.01 < paused - (1 - slow_gbps / 100) < frames_on_the_wire + 0.01


def test_victim_behind_a_slow_receiver() -> None:
    """A flow that shares no bottleneck but the paused cable is held to the slow receiver's rate, within 10 %."""
    scenario = {
        "until": "8ms",
        "fabric": {"kind": "dumbbell", "left": 2, "right": 2},
        "link": {"rate": "100Gbps", "delay": "1us", "override": [{"between": ["sw1", "h2"], "rate": "20Gbps"}]},
        "switch": {"buffer": "2MiB", "ecn": NO_ECN},
        "nic": NO_CC,
        "workload": [flows(flow("h0", "h2", "200MB"), flow("h1", "h3", "200MB"))],
    }
    outcome = run(scenario, packets=True)
    victim = shares(outcome, "sw1->h3", 2 * MS, 8 * MS)[1] * (4158 + 20) * 8 / 6e-3
    assert victim == pytest.approx(20e9, rel=0.1)
