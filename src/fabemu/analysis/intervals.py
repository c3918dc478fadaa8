"""Unions of many intervals of time, group by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def united(group: Int64s, start: Int64s, end: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Join the intervals of each group that overlap or touch.

    Parameters
    ----------
    group, start, end
        (n,) group, and half-open interval [start, end) with start <= end.

    Returns
    -------
    (m,) int64, (m,) int64, (m,) int64
        Group, start and end of the joined intervals, in order of group and start.
    """
    if not len(group):
        return group, start, end
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    rank = np.repeat(np.arange(len(first)), np.diff(first, append=len(group)))
    base = int(start.min())
    span = int(end.max()) - base + 1
    reach = np.empty(len(end), dtype=np.int64)
    # A running maximum within groups: one over all of them, each lifted above the one before. As many at once as fit.
    step = max(1, 2**62 // span)
    for lowest in range(0, len(first), step):
        part = slice(first[lowest], first[lowest + step] if lowest + step < len(first) else len(group))
        lift = (rank[part] - lowest) * span
        reach[part] = np.maximum.accumulate(end[part] - base + lift) - lift + base
    opens = np.ones(len(group), dtype=np.bool_)
    opens[1:] = (group[1:] != group[:-1]) | (start[1:] > reach[:-1])
    begin = np.flatnonzero(opens)
    last = np.append(begin[1:], len(group)) - 1
    return group[begin], start[begin], reach[last]


def ragged(first: Int64s, count: Int64s) -> tuple[Int64s, Int64s]:
    """Expand runs of indices.

    Returns
    -------
    (m,) int64, (m,) int64
        For each run i the numbers first[i], first[i] + 1, ... (count[i] of them), and i itself.
    """
    row = np.repeat(np.arange(len(count)), count)
    offset = np.cumsum(count) - count
    return first[row] + np.arange(len(row)) - offset[row], row
