"""Whether a change is more than chance: exact permutation tests over seeds, and intervals of the mean change.

Runs of two settings with the same seed see the same random draws of their workloads, so they are paired: then the signs
of the differences are exchangeable if the settings do not matter (Fisher, The Design of Experiments, 1935, chapter 3).
Without such pairs the runs of both are exchangeable between the settings (Pitman, JRSS supplement 4, 1937).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass

EXACT_MAX = 200_000
"""Most permutations that are enumerated; of more, as many are drawn."""

LEVEL = 0.05
"""Below it a change is called significant."""

_BATCH = 4096  # permutations in memory at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """How two groups are compared.

    Attributes
    ----------
    kind
        Paired by seed, independent, or none: fewer than two runs (pairs) to compare.
    first, other
        Numbers of the runs in their groups that are compared; of pairs, in the same order.
    """

    kind: Literal["paired", "independent", "none"]
    first: tuple[int, ...]
    other: tuple[int, ...]

    @property
    def permutations(self) -> int:
        """How many there are."""
        if self.kind == "paired":
            return 2 ** len(self.first)
        return math.comb(len(self.first) + len(self.other), len(self.first)) if self.kind == "independent" else 1

    @property
    def exact(self) -> bool:
        """Whether all permutations are enumerated."""
        return self.permutations <= EXACT_MAX

    @property
    def least_p(self) -> float:
        """The least two-sided p that the number of runs allows: 1 where nothing is tested."""
        return min(1.0, 2 / self.permutations) if self.exact else 2 / (EXACT_MAX + 1)


@dataclass(frozen=True)
class Assessment:
    """What the seeds say about the change of one figure.

    Attributes
    ----------
    p
        Two-sided p-value; None where nothing is tested.
    mean_change
        Mean over the seeds of the other group less that of the first; None if a value is infinite.
    low, high
        95 % interval of the mean change by Student's t (paired) or Welch's (independent), which, other than p, assumes
        that means over the seeds are normal; None where it cannot be had.
    """

    p: float | None = None
    mean_change: float | None = None
    low: float | None = None
    high: float | None = None


def design(first: Sequence[int | None], other: Sequence[int | None]) -> Design:
    """How groups with these seeds are compared: by the seeds that both have, if these are two or more."""
    common = [seed for seed in first if seed is not None and seed in other]
    if len(common) > 1:
        return Design("paired", tuple(map(first.index, common)), tuple(map(other.index, common)))
    if len(first) > 1 and len(other) > 1:
        return Design("independent", tuple(range(len(first))), tuple(range(len(other))))
    return Design("none", (), ())


def assess(plan: Design, first: Mapping[str, Floats], other: Mapping[str, Floats]) -> dict[str, Assessment]:
    """Test the changes of figures.

    Parameters
    ----------
    plan
        As `design` gives it.
    first, other
        By figure: (runs of the group,) values; a figure is tested if it has no NaN in the runs that are compared.

    Returns
    -------
    dict
        By figure, for every figure of both. Where a value is infinite, ranks take the place of the values: two messages
        that never ended are alike, and both are worse than any that did.
    """
    names = [name for name in first if name in other]
    if plan.kind == "none":
        return {name: Assessment() for name in names}
    one = {name: first[name][list(plan.first)] for name in names}
    two = {name: other[name][list(plan.other)] for name in names}
    whole = [name for name in names if not np.isnan(one[name]).any() and not np.isnan(two[name]).any()]
    found = {name: Assessment() for name in names}
    if not whole:
        return found
    paired = plan.kind == "paired"
    samples = [
        _paired_sample(one[name], two[name]) if paired else _pooled_sample(one[name], two[name]) for name in whole
    ]
    p = _p_values(np.stack(samples), len(plan.first), paired=paired, exact=plan.exact)
    for name, value in zip(whole, p.tolist(), strict=True):
        found[name] = Assessment(value, *_interval(one[name], two[name], paired=paired))
    return found


def _paired_sample(first: Floats, other: Floats) -> Floats:
    """(n,) differences whose signs are flipped; signed ranks (mean ranks of ties) if one is infinite."""
    with np.errstate(invalid="ignore"):
        difference = np.where(first == other, 0.0, other - first)  # of two infinite values, too
    if np.isfinite(difference).all():
        return difference
    from scipy.stats import rankdata

    return np.sign(difference) * rankdata(np.abs(difference))


def _pooled_sample(first: Floats, other: Floats) -> Floats:
    """(n + m,) values of both; ranks (mean ranks of ties) if one is infinite."""
    values = np.concatenate([first, other])
    if np.isfinite(values).all():
        return values
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _p_values(samples: Floats, first_count: int, *, paired: bool, exact: bool) -> Floats:
    """(figures,) two-sided p-values of the change of the mean; `samples` is (figures, n)."""
    from scipy.stats import permutation_test

    options: dict[str, Any] = {
        "axis": -1,
        "vectorized": True,
        "n_resamples": np.inf if exact else EXACT_MAX,
        "batch": max(1, _BATCH // len(samples)),
        "alternative": "two-sided",
    }
    if not exact:
        options["random_state"] = np.random.default_rng(1)  # the same p every time
    # Of a figure that never changes every permutation is as extreme; rounding must not make some more so.
    scale = np.abs(samples).max(axis=-1, keepdims=True)
    samples = samples / np.where(scale > 0, scale, 1.0)
    if paired:
        result = permutation_test((samples,), _mean, permutation_type="samples", **options)
    else:
        pair = (samples[:, :first_count], samples[:, first_count:])
        result = permutation_test(pair, _mean_change, permutation_type="independent", **options)
    return np.minimum(np.asarray(result.pvalue, dtype=np.float64), 1.0)


def _mean(values: Floats, axis: int) -> Floats:
    return np.asarray(values.mean(axis=axis))


def _mean_change(first: Floats, other: Floats, axis: int) -> Floats:
    return np.asarray(other.mean(axis=axis) - first.mean(axis=axis))


def _interval(first: Floats, other: Floats, *, paired: bool) -> tuple[float | None, float | None, float | None]:
    """Mean change and the ends of its 95 % interval."""
    if not (np.isfinite(first).all() and np.isfinite(other).all()):
        return None, None, None
    from scipy.stats import t

    mean = float(other.mean() - first.mean())
    if paired:
        squared = float((other - first).var(ddof=1)) / len(first)
        freedom = float(len(first) - 1)
    else:
        parts = [float(values.var(ddof=1)) / len(values) for values in (first, other)]
        squared = sum(parts)
        below = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, other), strict=True))
        freedom = squared**2 / below if below > 0 else 1.0  # Welch and Satterthwaite
    margin = float(t.ppf(0.975, freedom)) * math.sqrt(squared)
    return mean, mean - margin, mean + margin
