"""M/D/1: Poisson arrivals of messages of one packet from many hosts to one port."""

from __future__ import annotations

import numpy as np
import pytest

from fabemu.plan import NONE
from fabemu.workload.flow import FlowTable
from tests.theory.experiment import NO_CC, NO_ECN, compiled, flow, flows, run_plan, wire_ps

SENDERS = 64
MESSAGES = 240_000
BATCHES = 40
SERVICE_PS = wire_ps(4096 + 62 + 16, 100 * 10**9)


def arrivals(load: float, class_id: int) -> FlowTable:
    """Messages of 4,096 B at the times of one Poisson process, each from a random host."""
    draws = np.random.default_rng(20_261)
    start_ps = np.cumsum(draws.exponential(SERVICE_PS / load, MESSAGES)).astype(np.int64)
    src = draws.integers(0, SENDERS, MESSAGES)
    fill = np.full(MESSAGES, NONE)
    return FlowTable(
        src=src,
        dst=np.full(MESSAGES, SENDERS),
        bytes=np.full(MESSAGES, 4096),
        start_ps=start_ps,
        class_id=np.full(MESSAGES, class_id),
        label_id=np.zeros(MESSAGES),
        sport=fill,
        qp=src,  # one QP per host
        after=fill,
        labels=("poisson",),
    )


def batch_error(values: np.ndarray) -> float:
    """Standard error of the mean of a correlated series, from the means of its batches."""
    means = values[: len(values) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(BATCHES))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_is_that_of_m_d_1(load: float) -> None:
    """Mean wait rho / (2 (1 - rho)) service times, within 4 standard errors, which are below 3 % of it.

    The hosts' own links are 16 times as fast as the port that all share, so that they neither queue nor space what
    they send: what a host waits for itself is below 0.1 % of the figure. Of all arrivals 1 - rho find the port idle.
    """
    scenario = {
        "fabric": {"kind": "single-switch", "hosts": SENDERS + 1},
        "link": {
            "rate": "1600Gbps",
            "delay": "1us",
            "override": [{"between": ["sw0", f"h{SENDERS}"], "rate": "100Gbps"}],
        },
        "switch": {"buffer": "256MiB", "ecn": NO_ECN, "pfc": {"alpha": "1"}},
        "nic": NO_CC,
        # Stands for the table of flows, which is given to the compiler.
        "workload": [flows(flow("h0", "h1", "4096B"))],
    }
    result = compiled(scenario)
    result = compiled(scenario, arrivals(load, int(result.flows.class_id[0])))
    outcome = run_plan(result.plan)
    assert outcome.totals["xoffs"] == outcome.totals["marks"] == 0
    wait = (outcome.ops["delivered_ps"] - outcome.ops["posted_ps"] - result.ideal_ps) / SERVICE_PS
    assert wait.min() == 0
    wait = wait[MESSAGES // 20 :]  # the queue starts empty
    expected = load / (2 * (1 - load))
    error = batch_error(wait)
    assert error < 0.03 * expected
    assert abs(wait.mean() - expected) < 4 * error
    idle = (wait == 0).astype(float)
    assert abs(idle.mean() - (1 - load)) < 4 * batch_error(idle) + 0.001
