"""Flow completion times and slowdowns, with tails that count what did not finish.

A message that failed or did not finish has an infinite completion time: it stays in every percentile. Left out are only
messages that were not due before the end of the run, and those outside the measured window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import NONE, dictionary_column, float_column, integer_column

SIZE_CLASSES: tuple[tuple[str, int], ...] = (
    ("<= 10 KB", 10**4),
    ("10-100 KB", 10**5),
    ("100 KB-1 MB", 10**6),
    ("1-10 MB", 10**7),
    ("> 10 MB", 2**63 - 1),
)
"""Name and largest payload in bytes of each size class."""

PERCENTILES = (50.0, 90.0, 99.0, 99.9)

COLUMNS = ("label", "bytes", "start_ps", "fct_ps", "slowdown", "measured", "status")
"""Columns of the flows table that are needed here."""


@dataclass(frozen=True)
class Distribution:
    """Completion times of one group of messages; ps, infinite where the percentile falls on one that did not finish."""

    name: str
    count: int  # finished or not
    unfinished: int  # failed, unfinished or never posted although due
    fct_ps: dict[str, float]  # p50, p90, p99, p99.9, max, mean
    slowdown: dict[str, float]


def percentile(sorted_values: np.ndarray, percent: float) -> float:
    """Least value that at least `percent` percent of all values do not exceed (nearest rank); NaN if there are none.

    Unlike an interpolated percentile it is a value that occurred, and stays defined with infinite values.
    """
    if len(sorted_values) == 0:
        return math.nan
    return float(sorted_values[nearest_rank(percent, len(sorted_values)) - 1])


def nearest_rank(percent: float, count: int) -> int:
    """Rank of a percentile among `count` values, 1 to `count`; 0 if there are none."""
    # As a fraction: 99.9 % of 1000 is rank 999, whatever the rounding of the product.
    rank = math.ceil(Fraction(str(percent)) * count / 100)
    return min(max(rank, 1), count)


def counted_times(flows: pa.Table, end_ps: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which messages count, and what they took.

    Parameters
    ----------
    flows
        The flows table, or a part of it.
    end_ps
        When the run ended; messages due then or later do not count. None: none counts that was never posted.

    Returns
    -------
    (rows,) bool, (rows,) float64, (rows,) float64
        Whether it counts; completion time in ps; slowdown, NaN where the ideal is unknown. Both infinite if it did not
        finish.
    """
    status, names = dictionary_column(flows, "status")
    done = status == names.index("done") if names else np.zeros(len(status), np.bool_)
    not_run = status == names.index("not_run") if names else done
    start_ps = integer_column(flows, "start_ps")
    measured = integer_column(flows, "measured").astype(np.bool_)
    due = ~not_run if end_ps is None else ~(not_run & (start_ps >= end_ps))
    fct_ps = integer_column(flows, "fct_ps")
    # Delivered is finished for the receiver, even if the last ACK was still on its way when the run ended.
    finished = (done | (fct_ps != NONE)) & (fct_ps != NONE)
    slowdown = float_column(flows, "slowdown")
    return measured & due, np.where(finished, fct_ps, np.inf), np.where(finished, slowdown, np.inf)


def completion_times(flows: pa.Table, end_ps: int | None = None) -> dict[str, np.ndarray]:
    """Columns of the messages that count.

    Parameters
    ----------
    flows
        The flows table.
    end_ps
        When the run ended; messages due then or later are left out. None: all that were never posted are left out.

    Returns
    -------
    dict
        ``fct_ps`` and ``slowdown`` (float64, infinite if not finished), ``bytes`` (int64), ``label`` (int64 index),
        ``row`` (int64, of the flows table).
    """
    keep, fct_ps, slowdown = counted_times(flows, end_ps)
    return {
        "fct_ps": fct_ps[keep],
        "slowdown": slowdown[keep],
        "bytes": integer_column(flows, "bytes")[keep],
        "label": dictionary_column(flows, "label")[0][keep],
        "row": np.flatnonzero(keep),
    }


def arrived(flows: pa.Table) -> int:
    """Count the unfinished messages whose last byte has arrived: only the last ACK is missing at their sender."""
    status, names = dictionary_column(flows, "status")
    unfinished = status == (names.index("unfinished") if "unfinished" in names else NONE)
    return int(np.count_nonzero(unfinished & (integer_column(flows, "fct_ps") != NONE)))


def by_size(flows: pa.Table, end_ps: int | None = None) -> list[Distribution]:
    """Distributions of all counted messages, then of every size class that has any."""
    times = completion_times(flows, end_ps)
    groups = [_distribution("all", times, np.ones(len(times["bytes"]), np.bool_))]
    below = -1
    for name, largest in SIZE_CLASSES:
        chosen = (times["bytes"] > below) & (times["bytes"] <= largest)
        below = largest
        if chosen.any():
            groups.append(_distribution(name, times, chosen))
    return groups


def by_label(flows: pa.Table, end_ps: int | None = None) -> list[Distribution]:
    """Distribution of every workload that has counted messages."""
    times = completion_times(flows, end_ps)
    _, names = dictionary_column(flows, "label")
    return [
        _distribution(name, times, times["label"] == index)
        for index, name in enumerate(names)
        if (times["label"] == index).any()
    ]


def _distribution(name: str, times: dict[str, np.ndarray], chosen: np.ndarray) -> Distribution:
    fct_ps = np.sort(times["fct_ps"][chosen])
    slowdown = times["slowdown"][chosen]
    return Distribution(
        name=name,
        count=len(fct_ps),
        unfinished=int(np.count_nonzero(np.isinf(fct_ps))),
        fct_ps=_figures(fct_ps),
        slowdown=_figures(np.sort(slowdown[~np.isnan(slowdown)])),
    )


def _figures(sorted_values: np.ndarray, percents: Sequence[float] = PERCENTILES) -> dict[str, float]:
    figures = {f"p{percent:g}": percentile(sorted_values, percent) for percent in percents}
    figures["max"] = float(sorted_values[-1]) if len(sorted_values) else math.nan
    figures["mean"] = float(sorted_values.mean()) if len(sorted_values) else math.nan
    return figures
