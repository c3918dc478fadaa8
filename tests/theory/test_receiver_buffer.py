"""Buffer of a slow receiver: XOFF threshold and headroom bound are enough, and hardly more than that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.headroom.link import RETH_BYTES, Link
from bench.headroom.traffic import worst_traffic
from fabemu.plan import FOREVER_PS
from tests.theory.experiment import HEADER_BYTES, NO_CC, NO_ECN, US, compiled, flow, flows, run_plan

GBPS = 10**9
BEFORE = 3  # largest frames that the receiver holds without XOFF


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("link", [Link(100 * GBPS, 40, 4096), Link(25 * GBPS, 300, 1024, response_ps=614_400)])
def test_buffer_is_enough_and_hardly_more(link: Link, classes: int) -> None:
    """A stopped receiver is one byte short of XOFF; then comes the worst traffic of the link, class after class."""
    largest, feed_rate = link.largest_bytes, 8 * link.rate_bps
    frames = [largest] * BEFORE + worst_traffic(link).forward_bytes.tolist()
    workload = []
    for turn, name in enumerate(["low", "high"][:classes]):
        # The next class has its turn when the one before is paused; its first frame comes to the switch at `sent_ps`.
        posted_ps = 10 * US + turn * 200 * US
        sent_ps = posted_ps + wire_ps(largest, feed_rate) + US
        raises_ps = sent_ps + (BEFORE + 1) * link.wire_ps(largest) + link.delay_ps
        for size in frames:
            as_write = size > largest - RETH_BYTES
            message = flow("h0", "h2", size - HEADER_BYTES - RETH_BYTES * as_write, f"{posted_ps}ps")
            workload.append(flows(message, **{"class": name}, verb="write" if as_write else "send"))
            posted_ps += wire_ps(size, feed_rate)
        workload.append(flows(flow("h2", "h1", link.mtu, f"{raises_ps - 1}ps"), **{"class": "other"}))
    scenario = {
        "until": "500us",
        "fabric": {"kind": "single-switch", "hosts": 3},
        "link": {
            "rate": f"{link.rate_bps}bps",
            "length": f"{link.length_m}m",
            "override": [{"between": ["sw0", "h0"], "rate": f"{feed_rate}bps", "delay": "1us"}],
        },
        "switch": {"ecn": NO_ECN, "pfc": {"response_delay": f"{link.response_ps}ps"}},
        "nic": {**NO_CC, "mtu": link.mtu},
        "class": [
            {"name": "cnp", "priority": 6, "cnp": True},
            {"name": "high", "priority": 4, "lossless": True, "ack_class": "other"},
            {"name": "low", "priority": 3, "lossless": True, "ack_class": "other"},
            {"name": "other", "priority": 0},
        ],
        "fault": [{"kind": "slow-receiver", "host": "h2", "stall": "490us", "period": "495us", "end": "490us"}],
        "workload": workload,
    }
    result = compiled(scenario)
    port = result.port_names.index("h2->sw0")

    def dropped(buffer_bytes: int) -> int:
        xoff, xon, buffer = (
            np.full(result.plan.port_count, value) for value in (BEFORE * largest + 1, BEFORE * largest, FOREVER_PS)
        )
        buffer[port] = buffer_bytes
        plan = replace(result.plan, port_rx_xoff_bytes=xoff, port_rx_xon_bytes=xon, port_rx_buffer_bytes=buffer)
        totals = run_plan(plan, result.port_names).totals
        assert totals["packets_dropped"] == totals["drops_receiver_full"]
        return totals["drops_receiver_full"]

    held = frames[: len(frames) - 2]
    bound = BEFORE * largest + link.terms.total_bytes
    gap = bound - sum(held)
    assert 0 < gap <= 20 * (len(held) - BEFORE - 1) + 4
    assert dropped(classes * bound) == dropped(classes * sum(held)) == 0
    assert dropped(classes * sum(held) - 1) > 0


def wire_ps(size_bytes: int, rate_bps: int) -> int:
    return -(-(size_bytes + 20) * 8 * 10**12 // rate_bps)
