"""Order statistics of many groups of numbers: exact, in a few passes over rows that need not fit into memory.

Numbers that are not negative are ordered like their bits. The first pass counts; each further one narrows the interval
of bits in which a wanted rank lies by counting what falls into its parts, or collects what is in it once that is little
(distribution: Knuth, The Art of Computer Programming, volume 3, 5.2.5; passes with limited memory: Munro and Paterson,
Selection and sorting with limited storage, Theoretical Computer Science 12, 1980).
"""

from __future__ import annotations

import numpy as np

from fabemu.analysis.kernel import compiled

_INFINITE = int(np.array(np.inf).view(np.int64))
_PARTS_LEAST_BITS, _PARTS_MOST_BITS = 4, 16

CELLS = 500_000
"""Counters and collected numbers that are held at a time; more only if there are more groups than that is for."""


class OrderStatistics:
    """Values of chosen ranks in each of many groups.

    First `count` every batch, then `seek` ranks; while `open`, `look` at every batch and `narrow`; then `values`.

    Attributes
    ----------
    cells
        Numbers held at a time, see `CELLS`; may be changed between passes.
    counts
        (G,) int64 numbers in each group. NaN does not count, nor do rows of group -1.
    open
        True if another pass is needed.
    values
        (G, R) float64 values of the ranks that were sought, NaN where there is none.
    """

    def __init__(self, cells: int = CELLS) -> None:
        """No rows yet; see `CELLS`."""
        self.cells = cells
        self.counts = np.zeros(0, np.int64)
        self.values: np.ndarray = np.zeros((0, 0))
        self.open = False
        self._lowest = np.zeros(0, np.int64)
        self._highest = np.zeros(0, np.int64)  # of the finite ones
        self._infinite = np.zeros(0, np.int64)  # how many are not

    def count(self, group: np.ndarray, keys: np.ndarray, groups: int) -> None:
        """Take one batch of the first pass.

        Parameters
        ----------
        group
            (rows,) int64, below `groups`; -1 for rows that are left out.
        keys
            (rows,) what `keys_of` gives for the numbers, which are not negative, but may be infinite.
        groups
            Groups known so far.

        Raises
        ------
        ValueError
            A number is negative.
        """
        more = groups - len(self.counts)
        if more > 0:
            self.counts = np.append(self.counts, np.zeros(more, np.int64))
            self._lowest = np.append(self._lowest, np.full(more, _INFINITE))
            self._highest = np.append(self._highest, np.zeros(more, np.int64))
            self._infinite = np.append(self._infinite, np.zeros(more, np.int64))
        if _count(group, keys, self.counts, self._lowest, self._highest, self._infinite):
            raise ValueError("order statistics of negative numbers are not known here")

    def seek(self, ranks: np.ndarray) -> None:
        """Choose the ranks: (G, R) int64 from 1, 0 for none."""
        counts = self.counts
        if len(ranks) != len(counts) or (ranks < 0).any() or (ranks > counts[:, None]).any():
            raise ValueError("ranks are 1 to the count of their group, or 0")
        self._shape = ranks.shape
        group = np.repeat(np.arange(len(counts)), ranks.shape[1])
        rank = ranks.reshape(-1)
        self._group, self._rank = group, rank
        # Infinite ones are known: they would stretch the interval of all others.
        finite = counts[group] - self._infinite[group]
        self._first = np.where(rank >= finite, self._highest[group], self._lowest[group])
        self._last = np.where(rank == 1, self._lowest[group], self._highest[group])
        self._first[rank > finite] = self._last[rank > finite] = _INFINITE
        self._below = np.zeros(len(rank), np.int64)  # numbers of the group below the interval
        self._inside = finite
        self._prepare()

    def look(self, group: np.ndarray, keys: np.ndarray) -> None:
        """Take one batch of a further pass, as `count` was given it."""
        _look(
            group,
            keys,
            self._interval_of_group,
            self._low,
            self._high,
            self._shift,
            self._offset,
            self._collects,
            self._filled,
            self._cell,
        )

    def narrow(self) -> None:
        """End a pass."""
        cell, offset = self._cell, self._offset
        size = np.diff(np.append(offset, len(cell)))
        kept = np.repeat(self._collects, size)
        _sort(cell, offset[self._collects], size[self._collects])
        collects = self._collects[self._interval]
        chosen = self._targets[collects]
        place = offset[self._interval[collects]] + self._rank[chosen] - self._below[chosen] - 1
        self._first[chosen] = self._last[chosen] = cell[place]

        cell[kept] = 0
        total = np.cumsum(cell)
        chosen, interval = self._targets[~collects], self._interval[~collects]
        before = np.where(offset[interval] > 0, total[offset[interval] - 1], 0)
        part = np.searchsorted(total, before + self._rank[chosen] - self._below[chosen])
        self._below[chosen] += total[part] - cell[part] - before
        self._inside[chosen] = cell[part]
        first = self._low[interval] + ((part - offset[interval]) << self._shift[interval])
        self._first[chosen] = first
        # Not as the lesser of two ends: that of the last part may lie beyond what an integer holds.
        self._last[chosen] = first + np.minimum(self._high[interval] - first, (1 << self._shift[interval]) - 1)
        self._prepare()

    def _prepare(self) -> None:
        """Lay out the next pass: which intervals are open, and what happens to the numbers in them."""
        self._targets = np.flatnonzero((self._rank > 0) & (self._first < self._last))
        self.open = len(self._targets) > 0
        if not self.open:
            numbers = np.where(self._rank > 0, self._first, 0).view(np.float64)
            self.values = np.where(self._rank > 0, numbers, np.nan).reshape(self._shape)
            return
        chosen = self._targets
        keys = np.stack([self._group[chosen], self._first[chosen]], axis=1)
        keys, row, interval = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        self._interval = interval.reshape(-1)
        group, self._low = keys[:, 0], np.ascontiguousarray(keys[:, 1])
        self._high, inside = self._last[chosen[row]], self._inside[chosen[row]]
        self._interval_of_group = np.searchsorted(group, np.arange(len(self.counts) + 1))
        order = np.argsort(inside, kind="stable")
        self._collects = np.zeros(len(order), np.bool_)
        self._collects[order] = np.cumsum(inside[order]) <= self.cells // 2
        others = int(np.count_nonzero(~self._collects))
        bits = max(_PARTS_LEAST_BITS, min(_PARTS_MOST_BITS, (self.cells // 2 // max(others, 1)).bit_length() - 1))
        span_bits = np.frexp((self._high - self._low).astype(np.float64))[1]  # at least its bits
        self._shift = np.maximum(span_bits - bits, 0).astype(np.int64)
        parts = ((self._high - self._low) >> self._shift) + 1
        size = np.where(self._collects, inside, parts)
        self._offset = np.cumsum(size) - size
        self._cell = np.zeros(int(size.sum()), np.int64)
        self._filled = np.zeros(len(size), np.int64)


def keys_of(numbers: np.ndarray) -> np.ndarray:
    """(rows,) int64 bits of float64 numbers, as ordered as these are if they are not negative."""
    # Adding zero makes a positive zero of a negative one.
    return (np.asarray(numbers, dtype=np.float64) + 0.0).view(np.int64)


@compiled
def _count(group, bits, counts, lowest, highest, infinite):  # type: ignore[no-untyped-def]
    for row in range(len(group)):
        number, key = group[row], bits[row]
        if number < 0 or (key & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000:
            continue
        if key < 0:
            return True
        counts[number] += 1
        if key == 0x7FF0000000000000:
            infinite[number] += 1
            continue
        lowest[number] = min(lowest[number], key)
        highest[number] = max(highest[number], key)
    return False


@compiled
def _sort(cell, offset, size):  # type: ignore[no-untyped-def]
    for part in range(len(offset)):
        cell[offset[part] : offset[part] + size[part]].sort()


@compiled
def _look(group, bits, interval_of_group, low, high, shift, offset, collects, filled, cell):  # type: ignore[no-untyped-def]
    for row in range(len(group)):
        number, key = group[row], bits[row]
        if number < 0:
            continue
        # The last interval that begins at or below the number.
        interval, past = interval_of_group[number], interval_of_group[number + 1]
        if interval == past or key < low[interval]:
            continue
        while past - interval > 1:
            middle = (interval + past) // 2
            if low[middle] <= key:
                interval = middle
            else:
                past = middle
        if key <= high[interval]:
            if collects[interval]:
                cell[offset[interval] + filled[interval]] = key
                filled[interval] += 1
            else:
                cell[offset[interval] + ((key - low[interval]) >> shift[interval])] += 1
