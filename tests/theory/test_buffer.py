"""Dynamic thresholds (Choudhury and Hahne 1998), and headroom that is enough."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fabemu.headroom import headroom_bound_bytes
from tests.theory.experiment import NO_CC, NO_ECN, compiled, flow, flows, run_plan

FRAME_BYTES = 4174  # the largest: first packet of a message


@pytest.mark.parametrize("alpha", ["1/16", "1/8", "1/2", "1", "2"])
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_groups_that_fill_stop_at_the_dynamic_threshold(groups: int, alpha: str) -> None:
    """k groups that fill a pool P together raise XOFF at aP / (1 + ka)."""
    scenario = {
        "until": "300us",
        "fabric": {"kind": "single-switch", "hosts": groups + 1},
        # The receiver takes next to nothing, so that what arrives stays.
        "link": {
            "rate": "100Gbps",
            "delay": "1us",
            "override": [{"between": ["sw0", f"h{groups}"], "rate": "1Mbps"}],
        },
        "switch": {"buffer": "2MiB", "ecn": NO_ECN, "pfc": {"alpha": alpha, "reserved": "0B"}},
        "nic": NO_CC,
        "workload": [flows(*(flow(f"h{index}", f"h{groups}", "100MB") for index in range(groups)))],
    }
    result = compiled(scenario)
    outcome = run_plan(result.plan, result.port_names)
    first = outcome.tables["pauses"]
    pool, a = int(result.plan.switch_pool_bytes[0]), Fraction(alpha)
    expected = a * pool / (1 + groups * a)
    assert len(np.unique(first["port"])) == len(first) == groups
    held = first["ingress_bytes"] - first["headroom_bytes"]
    assert np.abs(held - float(expected)).max() <= FRAME_BYTES
    assert outcome.totals["packets_dropped"] == 0


@pytest.mark.parametrize("alpha", ["1/4", "1", "4"])
def test_lossy_queue_stops_at_its_egress_limit(alpha: str) -> None:
    """One queue of a lossy class holds at most aP / (1 + a) and a frame."""
    scenario = {
        "until": "300us",
        "fabric": {"kind": "single-switch", "hosts": 5},
        "link": {"rate": "100Gbps", "delay": "1us"},
        "switch": {"buffer": "2MiB", "ecn": NO_ECN, "lossy": {"alpha": "8", "egress_alpha": alpha}},
        "nic": NO_CC,
        "workload": [flows(*(flow(f"h{index}", "h4", "100MB") for index in range(4)), **{"class": "best-effort"})],
    }
    result = compiled(scenario)
    outcome = run_plan(result.plan, result.port_names)
    rows = outcome.tables["ports"]
    held = int(rows["queue_max_bytes"][rows["port"] == outcome.port("sw0->h4")].max())
    pool, a = int(result.plan.switch_pool_bytes[0]), Fraction(alpha)
    assert abs(held - float(a * pool / (1 + a))) <= 2 * FRAME_BYTES
    assert outcome.totals["drops_egress_full"] == outcome.totals["packets_dropped"] > 0


def adversarial_incast(rate_gbps: int, delay_ns: int, mtu: int, response_ns: int) -> dict:
    """Everyone sends to one receiver, and the receiver's full frames make every PFC frame wait."""
    senders = 6
    back = [flow(f"h{senders}", f"h{index}", "4MB") for index in range(senders)]
    across = [flow(f"h{senders + 1 + index}", f"h{index}", "4MB") for index in range(senders)]
    return {
        "until": "300us",
        "fabric": {"kind": "single-switch", "hosts": 2 * senders + 1},
        "link": {"rate": f"{rate_gbps}Gbps", "delay": f"{delay_ns}ns"},
        "switch": {
            "buffer": "64MiB",
            "ecn": NO_ECN,
            "pfc": {"reserved": "0B", "xon_offset": "0B", "response_delay": f"{response_ns}ns"},
        },
        "nic": {**NO_CC, "mtu": mtu},
        "workload": [flows(*(flow(f"h{index}", f"h{senders}", "4MB") for index in range(senders)), *back, *across)],
    }


@pytest.mark.parametrize("pool_bytes", [1, 20_000, 300_000])
@pytest.mark.parametrize(
    ("rate_gbps", "delay_ns", "mtu", "response_ns"),
    [(100, 25, 4096, 0), (100, 25, 4096, 614), (400, 1500, 4096, 614), (800, 600, 1024, 0), (33, 777, 4096, 100)],
)
def test_bound_is_enough(rate_gbps: int, delay_ns: int, mtu: int, response_ns: int, pool_bytes: int) -> None:
    """With headroom at the bound nothing is dropped, however small the shared pool."""
    plan = compiled(adversarial_incast(rate_gbps, delay_ns, mtu, response_ns)).plan
    bound = headroom_bound_bytes(
        rate_bps=rate_gbps * 10**9,
        delay_ps=delay_ns * 1000,
        response_ps=response_ns * 1000,
        frame_bytes=mtu + 62 + 16,
    )
    lossless = plan.pq_headroom_bytes[plan.pq_headroom_bytes > 0]
    assert (lossless == bound).all()
    outcome = run_plan(replace(plan, switch_pool_bytes=np.array([pool_bytes])))
    assert outcome.totals["xoffs"] > 10
    assert outcome.totals["packets_dropped"] == 0


@pytest.mark.parametrize(("rate_gbps", "delay_ns"), [(100, 25), (400, 1500)])
def test_bound_is_close(rate_gbps: int, delay_ns: int) -> None:
    """The same traffic drops when three frames of the bound are missing: the test above is a hard one."""
    plan = compiled(adversarial_incast(rate_gbps, delay_ns, 4096, 0)).plan
    short = np.maximum(0, plan.pq_headroom_bytes - 3 * FRAME_BYTES)
    outcome = run_plan(
        replace(plan, switch_pool_bytes=np.array([20_000]), pq_headroom_bytes=short, lossless_guaranteed=False)
    )
    assert outcome.totals["drops_headroom_full"] == outcome.totals["packets_dropped"] > 0
