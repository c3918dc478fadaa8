"""Time that is covered by intervals of several hosts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabemu.outcome import _covered_ps


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 12)), max_size=12))
def test_overlaps_count_once(intervals: list[tuple[int, int, int]]) -> None:
    covered = {(host, moment) for host, start, length in intervals for moment in range(start, start + length)}
    host, start, length = (np.array([item[place] for item in intervals], dtype=np.int64) for place in range(3))
    assert _covered_ps(host, start, start + length) == len(covered)


def test_times_of_days_do_not_overflow() -> None:
    far = 10**18
    host, start = np.arange(50), np.full(50, far)
    assert _covered_ps(host, start, start + 7 * far) == 50 * 7 * far
