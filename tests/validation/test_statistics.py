"""DCQCN runs against ten seeds of the simulator: only ECN marks are random."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.validation import runs

RANDOM_RUNS = (
    "B_dcqcn",
    "B_dcqcn_f5",
    "C_dcqcn_buf32",
    "C_dcqcn_buf4",
    "C_dcqcn_paper_buf32",
    "E100_dcqcn_buf4",
    "E100_dcqcn_f5_buf4",
)
SEED_COUNT = 30
P_MIN = 0.001
"""Least p-value of Welch's test, times the number of tests of the run (Bonferroni)."""

SAME_SHARE = 0.002
"""Tolerance of figures that do not vary between the simulator's seeds."""


def recorded_seeds(run: str) -> np.ndarray:
    """(10, flows) completion times of the simulator in ns, each row sorted."""
    table = runs.recorded("seeds")
    by_seed: dict[str, list[int]] = {}
    for name, seed, fct in zip(table["run"], table["seed"], table["fct_ns"], strict=True):
        if name == run:
            by_seed.setdefault(seed, []).append(int(fct))
    return np.sort(np.array(list(by_seed.values())), axis=1)


def own_seeds(run: str, seeds: range) -> np.ndarray:
    """(seeds, flows) our completion times in ns, each row sorted."""
    compiled = runs.compile_run(run)
    return np.sort([runs.simulate(runs.with_seed(compiled, seed)).fct_ns for seed in seeds], axis=1)


def compare(own: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p-values of the ordered completion times that vary, and relative differences of the mean of the others."""
    varies = theirs.std(axis=0) > 0
    p_values = stats.ttest_ind(own[:, varies], theirs[:, varies], axis=0, equal_var=False).pvalue
    shares = own[:, ~varies].mean(axis=0) / theirs[:, ~varies].mean(axis=0) - 1
    return p_values, shares


@pytest.mark.parametrize("run", RANDOM_RUNS)
def test_ordered_completion_times_agree(run):
    own, theirs = own_seeds(run, range(1, SEED_COUNT + 1)), recorded_seeds(run)
    assert len(theirs) == 10 and own.min() > 0
    p_values, shares = compare(own, theirs)
    assert p_values.min() * len(p_values) > P_MIN
    assert (np.abs(shares) <= SAME_SHARE).all()


def test_a_wrong_parameter_is_found():
    """The test has teeth: another increase timer fails it."""
    compiled = runs.compile_run("B_dcqcn")
    timer = compiled.plan.nic_increase_timer_ps // 6
    wrong = runs.replace(compiled, plan=runs.replace(compiled.plan, nic_increase_timer_ps=timer))
    own = np.sort([runs.simulate(runs.with_seed(wrong, seed)).fct_ns for seed in range(1, SEED_COUNT + 1)], axis=1)
    p_values, _ = compare(own, recorded_seeds("B_dcqcn"))
    assert p_values.min() * len(p_values) < P_MIN
