"""Fairness: how evenly queue pairs that share a bottleneck are served, and when they come to their fair share."""

from __future__ import annotations

import numpy as np

from fabemu.analysis.intervals import united
from fabemu.deferred import dataclass

BINS_LEAST = 5
"""Bins that a period must have to be judged."""

HOLD = 3
"""Bins in which rates must stay near their fair share before they count as converged."""


@dataclass(frozen=True, eq=False)
class Period:
    """A time in which the same queue pairs had something to send.

    Attributes
    ----------
    start_ps, end_ps
        From when to when.
    members
        (n,) rows of the queue pairs, two at least.
    bins
        Numbers of the bins that lie wholly within it.
    """

    start_ps: int
    end_ps: int
    members: np.ndarray
    bins: range


def periods(
    row: np.ndarray, start_ps: np.ndarray, end_ps: np.ndarray, first_ps: int, bin_ps: int, bins: int
) -> list[Period]:
    """Times in which the users of one bottleneck do not change, of `BINS_LEAST` bins at least.

    Parameters
    ----------
    row, start_ps, end_ps
        (n,) int64 which queue pair had something to send, from when to when. Pauses of one below a bin are overlooked.
    first_ps, bin_ps, bins
        The bins.
    """
    row, start_ps, end_ps = united(row, start_ps, end_ps + bin_ps)
    end_ps = end_ps - bin_ps
    changes = np.unique(np.concatenate([start_ps, end_ps]))
    # Two that change within a bin, one after the other, leave no whole bin between them.
    found = []
    for begin, end in zip(changes[:-1].tolist(), changes[1:].tolist(), strict=True):
        inner = range(max(-(-(begin - first_ps) // bin_ps), 0), min((end - first_ps) // bin_ps, bins))
        if len(inner) < BINS_LEAST:
            continue
        members = np.unique(row[(start_ps <= begin) & (end <= end_ps)])
        if len(members) >= 2:
            found.append(Period(begin, end, members, inner))
    return found


def jain(total: np.ndarray, squares: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Jain index from the sums of loads, of their squares, and their number; NaN where there is no load."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(squares > 0, total * total / (count * squares), np.nan)


def jain_index(amounts: np.ndarray) -> np.ndarray:
    """(bins,) Jain index of (n, bins) amounts: (sum x)^2 / (n sum x^2); NaN where there are none."""
    total, squares = amounts.sum(axis=0, dtype=np.float64), (amounts.astype(np.float64) ** 2).sum(axis=0)
    return jain(total, squares, len(amounts))


def converged(amounts: np.ndarray, within: float) -> int | None:
    """First bin from which on all of (n, bins) amounts are near their mean, for `HOLD` bins and to the end.

    Near is what differs by `within` of the mean at most. None if there is no such bin.
    """
    mean = amounts.mean(axis=0)
    near = (np.abs(amounts - mean) <= within * mean).all(axis=0) & (mean > 0)
    away = np.flatnonzero(~near)
    first = int(away[-1]) + 1 if len(away) else 0
    return first if amounts.shape[1] - first >= HOLD else None
