"""Rows of columns, grouped."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabemu.compile.rows import group_rows


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2**62), st.booleans()), min_size=1, max_size=40))
def test_rows_are_numbered_in_their_order(rows: list[tuple[int, int, bool]]) -> None:
    number, first = group_rows([np.array(column) for column in zip(*rows, strict=True)])
    distinct = sorted(set(rows))
    assert number.tolist() == [distinct.index(row) for row in rows]
    assert first.tolist() == [rows.index(row) for row in distinct]


def test_no_rows_have_no_groups() -> None:
    number, first = group_rows([np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)])
    assert len(number) == len(first) == 0
