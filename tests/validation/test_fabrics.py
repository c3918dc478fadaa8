"""Fabrics with ECMP: the simulator's next hops depend on heap addresses, so distributions are compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.validation import runs

CLASSES = ((0, 30_000), (30_000, 100_000), (100_000, 1_000_000), (1_000_000, 2**62))
"""Size classes of flows in bytes: above the first, up to the second."""

P_MIN = 0.01
"""Least p-value of a two-sample Kolmogorov-Smirnov test, times the number of classes (Bonferroni)."""

PACKET_HOPS = {"D_k4": 2 * 2_496_752, "D_ls128": 2 * 8_175_268}
"""Data and ACK hops of the simulator: paths are equally long, so the numbers must be the same."""


def compare(run: str, seed: int) -> tuple[list[float], int]:
    """p-value of every size class (slowdown over the ideal time), and packet hops."""
    compiled = runs.with_seed(runs.compile_fabric_run(run), seed)
    outcome = runs.simulate(compiled)
    table = runs.recorded(f"{run}_dcqcn_fct")
    theirs = np.array([int(value) for value in table["fct_ns"]])
    sizes = compiled.flows.bytes
    assert sizes.tolist() == [int(value) for value in table["size"]]
    assert outcome.fct_ns.min() > 0 and outcome.broken == []
    p_values = []
    for low, high in CLASSES:
        mine = (sizes > low) & (sizes <= high)
        ideal = compiled.ideal_ps[mine] / 1000
        p_values.append(float(stats.ks_2samp(outcome.fct_ns[mine] / ideal, theirs[mine] / ideal).pvalue))
    return p_values, outcome.totals["packet_hops"]


@pytest.mark.parametrize("run", ["D_k4", pytest.param("D_ls128", marks=pytest.mark.slow)])
def test_slowdowns_agree_by_size_class(run):
    p_values, hops = compare(run, seed=1)
    assert hops == PACKET_HOPS[run]
    assert min(p_values) * len(p_values) > P_MIN
