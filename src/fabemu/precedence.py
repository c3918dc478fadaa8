"""The order that waits leave: how deep each of many operations lies, and the cycle if there is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

_NARROW = 64
_PATIENCE = 500
"""Levels of fewer operations than `_NARROW` are walked one by one, after so many of them."""


def levels(count: int, before: Int64s, after: Int64s) -> Int64s:
    """(count,) the longest chain of dependencies that leads to each operation; -1 in cycles, and behind them.

    Parameters
    ----------
    count
        Number of operations.
    before, after
        (E,) the operation in `after` waits for the one in `before`.
    """
    level = np.full(count, -1, dtype=np.int64)
    waits = np.bincount(after, minlength=count)
    order = np.argsort(before, kind="stable")
    successor = after[order]
    start = np.concatenate([[0], np.cumsum(np.bincount(before, minlength=count))])
    front = np.flatnonzero(waits == 0)
    depth = narrow = 0
    while len(front):
        level[front] = depth
        depth += 1
        narrow += len(front) < _NARROW
        if narrow > _PATIENCE:
            return _one_by_one(level, waits, successor, start, front)
        length = start[front + 1] - start[front]
        skipped = np.cumsum(length) - length
        edges = np.repeat(start[front] - skipped, length) + np.arange(int(length.sum()))
        reached, times = np.unique(successor[edges], return_counts=True)
        waits[reached] -= times
        front = reached[waits[reached] == 0]
    return level


def _one_by_one(level: Int64s, waits: Int64s, successor: Int64s, start: Int64s, front: Int64s) -> Int64s:
    """Go on from a front whose level is known: long thin graphs have more levels than arrays are good for."""
    depth, left, after, first = level.tolist(), waits.tolist(), successor.tolist(), start.tolist()
    now = front.tolist()
    while now:
        later = []
        for operation in now:
            deeper = depth[operation] + 1
            for at in range(first[operation], first[operation + 1]):
                reached = after[at]
                left[reached] -= 1
                if not left[reached]:
                    depth[reached] = deeper
                    later.append(reached)
        now = later
    return np.array(depth, dtype=np.int64)


def cycle(level: Int64s, before: Int64s, after: Int64s) -> list[int]:
    """Operations of one cycle, each waiting for the one before it and the first for the last.

    `level` is what `levels` gave, with at least one -1. The cycle begins at its smallest number.
    """
    stuck = (level[before] < 0) & (level[after] < 0)
    awaited = np.full(len(level), -1, dtype=np.int64)
    # The last of several wins; whichever it is, the walk never leaves what is stuck, so it meets itself.
    awaited[after[stuck]] = before[stuck]
    seen: dict[int, int] = {}
    walk: list[int] = []
    at = int(np.flatnonzero(level < 0)[0])
    while at not in seen:
        seen[at] = len(walk)
        walk.append(at)
        at = int(awaited[at])
    found = walk[seen[at] :][::-1]
    least = found.index(min(found))
    return found[least:] + found[:least]
