"""What goes into a table comes out of it, whatever batch it was in."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabemu.errors import MachineError
from fabemu.table_writer import TableWriter
from fabemu.trace import NONE, TABLES, Column, TraceNames, arrow_type, is_dictionary, read_table, table_path

NAMES = TraceNames(
    nodes=["h0", "h1", "h2", "s0"],
    ports=["a", "b", "c"],
    classes=["high", "low"],
    labels=["one", "two"],
    host_count=3,
    jobs=["j"],
).dictionaries()
FIRST_ROWS, BATCH_ROWS = 10, 37
"""Rows of a batch in tests, and those that there is room for at first: it is made anew once, as in large batches."""


def drawn(column: Column, nulls: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, list[object]]:
    """Values of a column as they are given to a writer, and as they are to be read."""
    count = len(nulls)
    kind = arrow_type(column)
    if is_dictionary(column):
        names = NAMES[column.kind].to_pylist()
        values = rng.integers(0, len(names), count).astype(kind.index_type.to_pandas_dtype())
        read = [names[value] for value in values]
    elif pa.types.is_floating(kind):
        values = rng.normal(size=count)
        read = values.tolist()
    elif pa.types.is_boolean(kind):
        values = rng.integers(0, 2, count).astype(np.int8 if column.nullable else np.bool_)
        read = values.astype(bool).tolist()
    else:
        values = rng.integers(0, 2**31, count).astype(kind.to_pandas_dtype())
        read = values.tolist()
    if column.nullable:
        values[nulls] = np.nan if values.dtype.kind == "f" else NONE
        read = [None if null else value for null, value in zip(nulls, read, strict=True)]
    return values, read


@pytest.mark.parametrize("table", TABLES)
@given(
    # Pieces of rows as they come, and the share of each that is null.
    pieces=st.lists(
        st.tuples(st.integers(0, 2 * BATCH_ROWS), st.sampled_from([0.0, 0.1, 1.0])), min_size=1, max_size=6
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_batch_holds_its_own_rows(table: str, pieces: list[tuple[int, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected: dict[str, list[object]] = {column.name: [] for column in TABLES[table].columns}
    small = {table: dataclasses.replace(TABLES[table], batch_rows=BATCH_ROWS)}
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch("fabemu.batch.FIRST_ROWS", FIRST_ROWS),
        mock.patch.dict(TABLES, small),
    ):
        writer = TableWriter(Path(directory), table, NAMES, {})
        # Two whole batches are always among them.
        for count, share in [(BATCH_ROWS, 0.0), *pieces, (2 * BATCH_ROWS, 0.0)]:
            columns = {}
            for column in TABLES[table].columns:
                columns[column.name], read = drawn(column, rng.random(count) < share, rng)
                expected[column.name] += read
            writer.append(columns)
        cut = read_table(writer.path)
        whole = len(next(iter(expected.values()))) // BATCH_ROWS * BATCH_ROWS
        assert cut.to_pydict() == {name: values[:whole] for name, values in expected.items()}
        writer.close()
        made = read_table(writer.path)
        made.validate(full=True)
        assert made.to_pydict() == expected


@contextlib.contextmanager
def file_size_at_most(size: int) -> Iterator[None]:
    """As on a disk that has so much room left for each file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def failure(directory: Path) -> str:
    """Write rows of drops until that fails, and let go of the file."""
    rng = np.random.default_rng(0)
    columns = {column.name: drawn(column, np.zeros(5000, bool), rng)[0] for column in TABLES["drops"].columns}
    writer = None
    try:
        writer = TableWriter(directory, "drops", NAMES, {})
        while True:
            writer.append(columns)
    except MachineError as error:
        if writer is not None:
            writer.abandon()
        return str(error)


@pytest.mark.parametrize("size", [500, 20_000])
def test_what_a_full_disk_did_not_take_is_not_tried_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], size: int
) -> None:
    """In the head of the file, and after it; once there is room again, nothing goes behind what was cut off."""
    path = table_path(tmp_path, "drops")
    with file_size_at_most(size):
        assert failure(tmp_path) == f"cannot write {path}: File too large"
    gc.collect()
    assert path.stat().st_size == size
    assert capfd.readouterr().err == ""
