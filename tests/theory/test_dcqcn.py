"""DCQCN by hand, and at its fixed point (Zhu et al., SIGCOMM 2015 and CoNEXT 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from tests.theory.experiment import CNP, MS, US, Outcome, flow, flows, run, wire_ps

LINE_BPS = 100 * 10**9


def one_sender(cc: dict[str, Any], crowd_bytes: int, until: str) -> Outcome:
    """h0 sends with DCQCN; h1 crowds the receiver at line rate for a while and listens to nobody."""
    scenario = {
        "until": until,
        "fabric": {"kind": "single-switch", "hosts": 3},
        "link": {"rate": "100Gbps", "delay": "1us"},
        # Every packet that leaves another one behind is marked.
        "switch": {"ecn": {"kmin": "0B", "kmax": "0B", "pmax": 1.0}},
        "nic": {"cc": {"kind": "dcqcn"} | cc, "override": [{"name": "h1", "cc": {"kind": "none"}}]},
        "workload": [flows(flow("h0", "h2", "100MB"), flow("h1", "h2", crowd_bytes))],
    }
    outcome = run(scenario, packets=True)
    assert outcome.totals["xoffs"] == 0
    return outcome


def cnp_arrivals_ps(outcome: Outcome) -> list[int]:
    """When CNPs reached h0."""
    return (outcome.packets("sw0->h0", CNP)["time_ps"] + wire_ps(78, LINE_BPS) + US).tolist()


def expect_gaps(outcome: Outcome, changes: list[tuple[int, int]]) -> None:
    """Check that each packet of h0 is followed by the gap of the rate at its start.

    `changes`: (time from which it holds, rate), ascending. At a CNP's own instant the old rate would still hold, but
    no packet starts there.
    """
    rows = outcome.packets("h0->sw0")
    starts = rows["time_ps"].tolist()
    sizes = rows["frame_bytes"].tolist()
    times, rates = np.array([time for time, _ in changes]), [rate for _, rate in changes]
    seen = set()
    for index in range(len(starts) - 1):
        current = int(np.searchsorted(times, starts[index], side="right")) - 1
        seen.add(current)
        assert starts[index + 1] - starts[index] == wire_ps(sizes[index], rates[current]), (index, current)
    assert seen == set(range(len(changes)))


def test_one_cnp_and_fast_recovery() -> None:
    """Half the rate at the first CNP, then half way back to the line rate every 55 us."""
    outcome = one_sender({"preset": "paper", "cnp_interval": "1s"}, 200_000, "600us")
    (cut_ps,) = cnp_arrivals_ps(outcome)
    rate, changes = LINE_BPS // 2, [(0, LINE_BPS), (cut_ps, LINE_BPS // 2)]
    for step in range(1, 11):
        # The target is the line rate, and stays there: further increases only halve the rest as well.
        rate = LINE_BPS // 2 + rate // 2
        if cut_ps + step * 55 * US < 600 * US:
            changes.append((cut_ps + step * 55 * US, rate))
    assert abs(changes[-1][1] - LINE_BPS * (1 - 0.5 ** (len(changes) - 1))) < 10
    expect_gaps(outcome, changes)


def test_two_cnps_fast_recovery_and_additive_increase() -> None:
    """A quarter after the second CNP, five halvings of the way to half, then 40 Mb/s more in every 55 us."""
    outcome = one_sender({"preset": "paper", "cnp_interval": "30us"}, 280_000, "800us")
    first_ps, second_ps = cnp_arrivals_ps(outcome)
    assert second_ps - first_ps < 55 * US
    target, rate = LINE_BPS // 2, LINE_BPS // 4  # alpha stays 1: (1 - g) + g
    changes = [(0, LINE_BPS), (first_ps, LINE_BPS // 2), (second_ps, rate)]
    for step in range(1, 14):
        if step > 5:
            target += 40 * 10**6
        rate = target // 2 + rate // 2
        changes.append((second_ps + step * 55 * US, rate))
    assert changes[7][1] == pytest.approx(LINE_BPS * (0.5 - 0.25 / 2**5), abs=5)
    expect_gaps(outcome, [change for change in changes if change[0] < 799 * US])


def test_byte_counter_raises_the_rate() -> None:
    """Without a timer in reach, every 1,000,000 B of frames after the CNP bring the rate half way back."""
    cc = {"preset": "paper", "cnp_interval": "1s", "increase_timer": "1s", "byte_reset": "1MB"}
    outcome = one_sender(cc, 200_000, "600us")
    (cut_ps,) = cnp_arrivals_ps(outcome)
    rows = outcome.packets("h0->sw0")
    after = rows[rows["time_ps"] > cut_ps]
    counted = np.cumsum(after["frame_bytes"].astype(np.int64))
    rate, changes = LINE_BPS // 2, [(0, LINE_BPS), (cut_ps, LINE_BPS // 2)]
    for step in range(1, 9):
        full = np.flatnonzero(counted >= step * 1_000_000)
        if len(full) == 0 or full[0] + 2 >= len(after):
            break
        rate = LINE_BPS // 2 + rate // 2
        # The packet that fills the counter still has the gap of the rate before.
        changes.append((int(after["time_ps"][full[0] + 1]), rate))
    assert len(changes) > 5
    expect_gaps(outcome, changes)


def test_adapter_cuts_at_its_check_and_recovers_by_its_timer() -> None:
    """ConnectX: the first cut comes 4 us after the first CNP, by alpha as four alpha updates have left it.

    alpha starts at 1023/1024 and decays at 1, 2, 3 and 4 us: at one instant the alpha timer comes before the check.
    """
    cc = {"preset": "connectx", "cnp_interval": "1s", "byte_reset": "0B"}
    outcome = one_sender(cc, 200_000, "1200us")
    (first_ps,) = cnp_arrivals_ps(outcome)
    alpha = 1023 / 1024
    for _ in range(4):
        alpha *= 1 - 5 / 1024
    cut_ps = first_ps + 4 * US
    rate = int(LINE_BPS * (1 - alpha / 2))
    changes = [(0, LINE_BPS), (cut_ps, rate)]
    for step in range(1, 4):
        rate = LINE_BPS // 2 + rate // 2
        changes.append((cut_ps + step * 300 * US, rate))
    expect_gaps(outcome, [change for change in changes if change[0] < 1199 * US])


CAPACITY_BPS = 40 * 10**9
MTU = 1024
WIRE_BITS = (MTU + 62 + 20) * 8
CAPACITY = CAPACITY_BPS / WIRE_BITS  # packets/s
KMIN, KMAX, PMAX = 5_000, 800_000, 0.04  # the slope of Zhu et al., extended so that the queue never reaches its end
CNP_S, TIMER_S = 50e-6, 55e-6
COUNTER = 10e6 / (MTU + 62)  # packets per step of the byte counter
RECOVERY_STEPS = 5
RATE_AI = 40e6 / WIRE_BITS  # packets/s per step


def fluid_fixed_point(count: int) -> float:
    """Marking probability at which the fluid model of Zhu et al. (2015, section 5) stands still at C/N each."""
    rate = CAPACITY / count

    def surplus(p: float) -> float:
        """Rise less fall of the current rate, with the target where it stands still."""
        quiet = 1 - p
        cuts = (1 - quiet ** (CNP_S * rate)) / CNP_S  # per second
        alpha = 1 - quiet ** (TIMER_S * rate)
        by_bytes = rate * p / (quiet**-COUNTER - 1)  # increase events per second
        by_timer = rate * p / (quiet ** -(TIMER_S * rate) - 1)
        additive = by_bytes * quiet ** (RECOVERY_STEPS * COUNTER)
        additive += by_timer * quiet ** (RECOVERY_STEPS * TIMER_S * rate)
        gap = RATE_AI * additive / cuts  # target less current rate
        return gap / 2 * (by_bytes + by_timer) - rate * alpha / 2 * cuts

    return float(brentq(surplus, 1e-6, 0.05))


def closed_fixed_point(count: int) -> float:
    """Form for small p: p* = cbrt(R_AI N^2 / (tau C^2) (1/B + N/(T C))^2) (Zhu et al. 2016, theorem 1)."""
    pace = 1 / COUNTER + count / (TIMER_S * CAPACITY)
    return float(np.cbrt(RATE_AI * count**2 / (TIMER_S * CAPACITY**2) * pace**2))


def renewal_fixed_point(count: int) -> float:
    """As the fluid model, but from one CNP to the next: none within 50 us, then a mark ends each wait.

    k timer events fall between two CNPs, and the byte counter never fills. Per cycle alpha falls k times and rises
    once; the cut of alpha/2 is halved k times; m = k - 5 additive steps raise the target, and the rate follows.
    """
    rate = CAPACITY / count

    def surplus(p: float) -> float:
        def at_least(k: int) -> float:
            return 1.0 if k == 0 else (1 - p) ** (rate * (k * TIMER_S - CNP_S))

        events = range(10 + int(60 / (p * rate * TIMER_S)))
        share = [at_least(k) - at_least(k + 1) for k in events]
        alpha = 1 / (1 + sum(k * part for k, part in zip(events, share, strict=True)))
        fall = rate * alpha / 2 * sum(part * 0.5**k for k, part in zip(events, share, strict=True))
        steps = [max(0, k - RECOVERY_STEPS) for k in events]
        rise = RATE_AI * sum(part * (m - 1 + 0.5**m) for m, part in zip(steps, share, strict=True))
        return rise - fall

    return float(brentq(surplus, 1e-5, 0.05))


@pytest.mark.parametrize("count", [2, 4, 8])
def test_fixed_point(count: int) -> None:
    """N flows through one port for 0.3 s: full use, equal rates, and the marking probability of theory.

    The port is used above 99.5 %, each rate is within 8 % of C/N. The marking probability is within 10 % of the renewal
    argument and of the closed form. It lies above the full fluid model, which lets CNPs follow each other at once, by
    less than 40 %. The mean queue is where RED gives that probability, within 10 %.
    """
    until_ps, settled_ps = 400 * MS, 100 * MS
    scenario = {
        "seed": 5,
        "until": f"{until_ps}ps",
        "fabric": {"kind": "single-switch", "hosts": count + 1},
        "link": {"rate": "40Gbps", "delay": "500ns"},
        "switch": {"buffer": "64MiB", "ecn": {"kmin": f"{KMIN}B", "kmax": f"{KMAX}B", "pmax": PMAX}},
        "nic": {"mtu": MTU, "ack_every": 8, "cc": {"kind": "dcqcn", "preset": "paper"}},
        "trace": {"interval": "10ms"},
        "workload": [flows(*(flow(f"h{index}", f"h{count}", "10GB") for index in range(count)))],
    }
    outcome = run(scenario)
    rows = outcome.tables["ports"]
    rows = rows[rows["start_ps"] >= settled_ps]
    out = rows[rows["port"] == outcome.port(f"sw0->h{count}")]
    span_ps = until_ps - settled_ps
    used = out["wire_bytes"].sum() * 8e12 / span_ps / CAPACITY_BPS
    assert 0.995 < used <= 1.0001
    sent = np.array([rows["tx_bytes"][rows["port"] == outcome.port(f"h{index}->sw0")].sum() for index in range(count)])
    assert np.abs(sent / sent.mean() - 1).max() < 0.08
    marked = out["marks"].sum() / out["tx_frames"].sum()
    expected = renewal_fixed_point(count)
    assert marked == pytest.approx(expected, rel=0.1)
    assert marked == pytest.approx(closed_fixed_point(count), rel=0.1)
    assert 1 < marked / fluid_fixed_point(count) < 1.4
    queue = out["queue_byte_ps"].sum() / span_ps
    assert queue == pytest.approx(KMIN + expected / PMAX * (KMAX - KMIN), rel=0.1)
    assert outcome.totals["xoffs"] == outcome.totals["packets_dropped"] == 0
