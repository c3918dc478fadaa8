"""Runs without chance in them: every completion time and every PFC frame, to the nanosecond."""

from __future__ import annotations

import pytest

from tests.validation import runs

EXACT = {
    "A_dcqcn": (6, 0),
    "B_none": (2, 268),
    "C_none_buf32": (16, 0),
    "C_none_buf4": (16, 824),
    "E100_none_buf4": (5, 2626),
}
"""Flows and PFC frames of each run."""


@pytest.mark.parametrize("run", EXACT)
def test_run_is_equal_to_the_nanosecond(run):
    outcome = runs.simulate(runs.compile_run(run), frames=True)
    table = runs.recorded(f"{run}_fct")
    assert outcome.start_ns.tolist() == [int(value) for value in table["start_ns"]]
    assert outcome.fct_ns.tolist() == [int(value) for value in table["fct_ns"]]
    assert outcome.pfc == runs.recorded_pfc(run)
    assert (len(outcome.fct_ns), len(outcome.pfc)) == EXACT[run]
    assert outcome.broken == []
