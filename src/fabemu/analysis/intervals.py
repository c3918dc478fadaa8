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


class Cover:
    """Intervals of time by key, asked for how much of them lies before a time.

    Parameters
    ----------
    key, start, end
        (n,) key, and half-open interval; those of one key may overlap.
    """

    def __init__(self, key: Int64s, start: Int64s, end: Int64s) -> None:
        """Join and sort them."""
        self._key, self._start, self._end = united(key, start, end)
        self._total = np.concatenate([[0], np.cumsum(self._end - self._start)])
        # Key and time as one number: the time as its rank among all starts, so that it fits.
        self._times = np.unique(self._start)
        self._step = len(self._times) + 1
        self._place = self._key * self._step + np.searchsorted(self._times, self._start) + 1
        self._keys, self._first = np.unique(self._key, return_index=True)

    @property
    def keys(self) -> Int64s:
        """Keys that have any interval, ascending."""
        return self._keys

    def before(self, key: Int64s, time: Int64s) -> Int64s:
        """(n,) how much of the intervals of each key lies before each time."""
        found = np.zeros(len(key), dtype=np.int64)
        if not len(self._keys):
            return found
        row = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        asked = np.flatnonzero(self._keys[row] == key)
        if not len(asked):
            return found
        time, first = time[asked], self._first[row[asked]]
        place = key[asked] * self._step + np.searchsorted(self._times, time, side="right")
        last = np.searchsorted(self._place, place, side="right") - 1
        inside = np.flatnonzero(last >= first)
        last = last[inside]
        covered = self._total[last] - self._total[first[inside]]
        covered += np.minimum(time[inside], self._end[last]) - self._start[last]
        found[asked[inside]] = covered
        return found
