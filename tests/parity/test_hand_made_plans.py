"""The plans of the hand-made sequences give the same runs in the core."""

from __future__ import annotations

from types import ModuleType

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import Plan
from tests.oracle import test_oracle_incidents as incidents
from tests.oracle import test_oracle_links as links
from tests.oracle import test_oracle_theory as theory
from tests.oracle.simulator import OracleResult, simulate
from tests.parity.compare import assert_same, run_core

SEQUENCES = [
    (module, name)
    for module in (theory, incidents, links)
    for name in vars(module)
    if name.startswith("test_") and "simulate" in getattr(module, name).__code__.co_names
]


@pytest.mark.parametrize(("module", "name"), SEQUENCES, ids=[name for _, name in SEQUENCES])
def test_core_agrees_with_the_sequence(module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def simulate_both(plan: Plan) -> OracleResult:
        result = simulate(plan)
        assert_same(plan, result, run_core(plan), name)
        return result

    monkeypatch.setattr(module, "simulate", simulate_both)
    getattr(module, name)()
