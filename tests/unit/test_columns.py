"""Columns made buffer by buffer are those that pyarrow makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabemu.columns import number_array, number_values, text_array

KINDS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float64(), pa.bool_()]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64]),
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=40),
    st.booleans(),
    st.integers(0, 12),
)
def test_same_as_pyarrow_makes_them(
    kind: pa.DataType, source: type, drawn: list[tuple[int, bool]], nullable: bool, cut: int
) -> None:
    values = np.array([value for value, _ in drawn], source)
    if pa.types.is_boolean(kind):
        values = values % 2
    null = np.array([is_null for _, is_null in drawn], np.bool_) if nullable else None
    made = number_array(values, kind, null)
    made.validate(full=True)
    expected = pa.array(values.astype(np.bool_) if pa.types.is_boolean(kind) else values, kind, mask=null)
    assert made.equals(expected)
    assert made.null_count == expected.null_count
    # And back, from anywhere in the array.
    part = number_values(made[cut:], 7)
    filled = [7 if value is None else value for value in expected[cut:].to_pylist()]
    assert part.tolist() == ([bool(value) for value in filled] if pa.types.is_boolean(kind) else filled)


def test_columns_of_records_are_taken_as_they_lie() -> None:
    records = np.array([(1, 2.5), (3, np.nan)], dtype=[("id", np.int32), ("share", np.float64)])
    assert number_array(records["id"], pa.int64()).to_pylist() == [1, 3]
    shares = number_array(records["share"], pa.float64(), np.isnan(records["share"]))
    assert shares.to_pylist() == [2.5, None]
    assert np.isnan(number_values(shares, np.nan)[1])


@pytest.mark.parametrize("texts", [[], ["a"], ["", "leaf0->h1", "", "Grüße"]])
def test_texts(texts: list[str]) -> None:
    made = text_array(texts)
    made.validate(full=True)
    assert made.equals(pa.array(texts, pa.string()))
