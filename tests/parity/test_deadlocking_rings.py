"""Random rings, many of which deadlock: core and oracle tell the same of them."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import EVENT_DEADLOCK, SCHEDULER_CLASSIC, SCHEDULER_WINDOW, Plan
from tests.oracle.simulator import simulate
from tests.parity.compare import assert_same, run_core
from tests.property.rings import ring_plans
from tests.property.strategies import example_settings, tag


@example_settings(0.5)
@given(ring_plans(), st.sampled_from([SCHEDULER_WINDOW, SCHEDULER_CLASSIC]))
def test_core_and_oracle_find_the_same_deadlocks(plan: Plan, scheduler: int) -> None:
    oracle = simulate(plan)
    tag(oracle)
    rows = [row for row in oracle.events if row[1] == EVENT_DEADLOCK]
    event(f"{len({row[7] for row in rows})} deadlocks")
    core = run_core(plan, scheduler=scheduler)
    assert_same(plan, oracle, core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []
