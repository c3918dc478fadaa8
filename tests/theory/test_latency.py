"""Store and forward, to the picosecond."""

from __future__ import annotations

import pytest

from tests.theory.experiment import NO_CC, NO_ECN, compiled, flow, flows, frames_of, run, run_plan, wire_ps

RATES_BPS = (100 * 10**9, 40 * 10**9, 33_333_333_333, 7 * 10**9, 25_781_250_000, 299_792_458)
DELAYS_PS = (600_000, 1_000_000, 1, 123_457, 0, 5_000_000)
LATENCY_PS = 450_001


def line(rates_bps: list[int], delays_ps: list[int], size_bytes: int, **nic: object) -> dict:
    """Two hosts, joined by as many cables as there are rates with switches between them."""
    nodes = ["a", *(f"s{index}" for index in range(len(rates_bps) - 1)), "b"]
    links = [
        {"a": nodes[index], "b": nodes[index + 1], "rate": f"{rate}bps", "delay": f"{delay}ps"}
        for index, (rate, delay) in enumerate(zip(rates_bps, delays_ps, strict=True))
    ]
    return {
        "fabric": {"kind": "graph", "hosts": ["a", "b"], "switches": nodes[1:-1], "links": links},
        "switch": {"latency": f"{LATENCY_PS}ps", "ecn": NO_ECN},
        "nic": {**NO_CC, **nic},
        "workload": [flows(flow("a", "b", size_bytes))],
    }


def store_and_forward_ps(frames: list[int], rates_bps: list[int], delays_ps: list[int], gaps_ps: list[int]) -> int:
    """Arrival of the last frame, frame by frame and cable by cable; the sender paces with `gaps_ps`."""
    ready_ps = [sum(gaps_ps[:index]) for index in range(len(frames))]
    for hop, (rate, delay) in enumerate(zip(rates_bps, delays_ps, strict=True)):
        free_ps = 0
        for index, frame in enumerate(frames):
            start_ps = max(ready_ps[index] + (LATENCY_PS if hop else 0), free_ps)
            free_ps = start_ps + wire_ps(frame, rate)
            ready_ps[index] = free_ps + delay
    return ready_ps[-1]


@pytest.mark.parametrize("size_bytes", [0, 1, 4096, 4097, 10_001, 300_000])
@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5, 6])
def test_one_message_over_unequal_cables(hops: int, size_bytes: int) -> None:
    rates, delays = list(RATES_BPS[:hops]), list(DELAYS_PS[:hops])
    frames = frames_of(size_bytes)
    gaps = [wire_ps(frame, rates[0]) for frame in frames]
    result = compiled(line(rates, delays, size_bytes))
    outcome = run_plan(result.plan)
    expected = store_and_forward_ps(frames, rates, delays, gaps)
    assert outcome.ops["delivered_ps"][0] == expected
    assert result.ideal_ps[0] == expected
    assert outcome.totals["xoffs"] == 0


@pytest.mark.parametrize("rate_bps", [100 * 10**9, 33_333_333_333])
@pytest.mark.parametrize("hops", [1, 2, 3, 4, 5, 6])
def test_one_message_over_equal_cables(hops: int, rate_bps: int) -> None:
    """The whole message once, its first frame once more per further hop, and the constant delays."""
    frames = frames_of(100_000)
    expected = (
        sum(wire_ps(frame, rate_bps) for frame in frames)
        + (hops - 1) * (wire_ps(frames[0], rate_bps) + LATENCY_PS)
        + hops * 600_000
    )
    outcome = run(line([rate_bps] * hops, [600_000] * hops, 100_000))
    assert outcome.ops["delivered_ps"][0] == expected


def test_acknowledgement_returns_the_same_way() -> None:
    rates, delays = list(RATES_BPS[:4]), list(DELAYS_PS[:4])
    outcome = run(line(rates, delays, 4096))
    back = sum(wire_ps(66, rate) + delay for rate, delay in zip(rates, delays, strict=True)) + 3 * LATENCY_PS
    assert outcome.ops["done_ps"][0] == outcome.ops["delivered_ps"][0] + back


def test_fixed_rate_spaces_the_packets() -> None:
    """Gaps are those of the pacing rate, rounded up, whatever the cables are."""
    rates, delays, pace = [100 * 10**9] * 3, [600_000] * 3, 7_777_777_777
    scenario = line(rates, delays, 50_000, cc={"kind": "fixed", "rate": f"{pace}bps"})
    frames = frames_of(50_000)
    outcome = run(scenario, packets=True)
    gaps = [wire_ps(frame, pace) for frame in frames]
    assert outcome.packets("a->s0")["time_ps"].tolist() == [sum(gaps[:index]) for index in range(len(frames))]
    assert outcome.ops["delivered_ps"][0] == store_and_forward_ps(frames, rates, delays, gaps)


def test_megabyte_through_one_switch() -> None:
    """1 MB at 100 Gb/s and 2 x 1 us: 1,020,106 B of wire, and the first frame twice: 83.944 us."""
    outcome = run(
        {
            "fabric": {"kind": "single-switch", "hosts": 2},
            "link": {"rate": "100Gbps", "delay": "1us"},
            "switch": {"ecn": NO_ECN},
            "nic": NO_CC,
            "workload": [flows(flow("h0", "h1", "1MB"))],
        }
    )
    assert outcome.totals["data_packets"] == 245
    assert outcome.port_totals["busy_ps"][outcome.port("sw0->h1")] == 1_020_106 * 80
    assert outcome.ops["delivered_ps"][0] == 83_944_000
