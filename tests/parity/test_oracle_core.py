"""Oracle and core agree on every packet at every hop, every pause, drop, mark and completion."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import FOREVER_PS, SCHEDULER_CLASSIC, Plan
from tests.oracle.simulator import simulate_bounded
from tests.parity.compare import assert_same, run_core
from tests.property.strategies import PACKET_LIMIT, example_settings, plans, tag


@example_settings()
@given(plans())
def test_core_agrees_with_the_oracle(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT)
    tag(oracle)
    core = run_core(plan)
    assert_same(plan, oracle, core)
    # An empty headroom is the scenario's choice here; every other invariant must hold.
    broken = [verdict for verdict in core.verdicts if not verdict[1] and "headroom_full" not in verdict[0]]
    assert not broken


@example_settings(0.3)
@given(plans(), st.integers(1, 5), st.sampled_from([1, 7, 100, 10**6]), st.integers(1, 10**9))
def test_results_do_not_depend_on_budgets_stops_or_windows(plan: Plan, divisor: int, budget: int, step_ps: int) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    if oracle.end_ps // step_ps > 1_000:
        step_ps = oracle.end_ps // 1_000 + 1
    steps = itertools.islice(itertools.repeat((step_ps, budget)), 2_000)
    core = run_core(plan, steps=steps, window_divisor=divisor)
    assert_same(plan, oracle, core, f"window_divisor={divisor} budget={budget} step_ps={step_ps}")
    assert core.digest == run_core(plan).digest
    by_budget = run_core(plan, steps=iter([(FOREVER_PS, budget)] * 200))
    assert_same(plan, oracle, by_budget, f"budget={budget}")


@example_settings(0.3)
@given(plans())
def test_classic_scheduler_agrees_with_windows(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    classic = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    assert_same(plan, oracle, classic, "SCHEDULER_CLASSIC")
    window = run_core(plan)
    assert classic.ops == window.ops
    assert classic.digest == window.digest
