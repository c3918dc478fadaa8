"""Rows come in pieces of any size and type, and the file is the same as if pyarrow had been given all at once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabemu.batch import FIRST_ROWS, Batch
from fabemu.table_writer import TableWriter
from fabemu.trace import NONE, TABLES, TraceNames, is_dictionary, read_table

TYPES = {
    "plain": (np.dtype(np.int64), False),
    "id": (np.dtype(np.int32), True),
    "share": (np.dtype(np.float64), True),
    "flag": (np.dtype(np.bool_), False),
}
NAMES = TraceNames(["h0", "h1", "sw0"], ["p0", "p1", "p2"], ["cnp", "rdma"], ["web", "log"], 2, ["j0", "j1"])


def rows(count: int, first: int = 0) -> dict[str, np.ndarray]:
    number = np.arange(first, first + count)
    return {
        "plain": number,
        "id": np.where(number % 3 == 0, NONE, number),
        "share": np.where(number % 5 == 0, np.nan, number / 4),
        "flag": number % 2,
    }


@given(st.lists(st.integers(0, 3000), max_size=6), st.sampled_from([5, FIRST_ROWS, FIRST_ROWS + 1, 5000]))
def test_what_goes_in_comes_out_batch_by_batch(pieces: list[int], limit: int) -> None:
    batch = Batch(TYPES, limit, NONE)
    came: list[dict[str, np.ndarray]] = []
    missing: list[np.ndarray] = []

    def take() -> None:
        assert batch.missing("plain") is None
        assert batch.rows <= limit
        lack = batch.missing("id")
        assert lack is not None
        missing.append(lack)
        came.append({name: values.copy() for name, values in batch.columns.items()})
        batch.clear()

    total = 0
    for piece in pieces:
        done = 0
        while done < piece:
            done += batch.fill(rows(piece, total), done, piece - done)
            if batch.is_full:
                take()
        total += piece
    if batch.rows:
        take()
    assert [len(part["plain"]) for part in came[:-1]] == [limit] * (len(came) - 1)
    for name, (kind, _) in TYPES.items() if came else ():
        values = np.concatenate([part[name] for part in came])
        assert values.dtype == kind
        np.testing.assert_array_equal(values, rows(total)[name].astype(kind))
    if came:
        np.testing.assert_array_equal(np.concatenate(missing), np.arange(total) % 3 == 0)


@pytest.mark.parametrize(
    ("limit", "before", "room"),
    [
        (5000, 0, (0, FIRST_ROWS)),
        (5000, FIRST_ROWS - 1, (FIRST_ROWS - 1, FIRST_ROWS)),
        (5000, FIRST_ROWS, (FIRST_ROWS, 5000)),
        (5000, 4999, (4999, 5000)),
        (5000, 5000, (0, 5000)),  # a batch that was full, and is cleared
        (40, 0, (0, 40)),
        (40, 39, (39, 40)),
    ],
)
def test_room_is_for_few_rows_first_and_for_the_whole_batch_then(
    limit: int, before: int, room: tuple[int, int]
) -> None:
    batch = Batch(TYPES, limit, NONE)
    done = 0
    while done < before:
        done += batch.fill(rows(before), done, before - done)
    if batch.is_full:
        batch.clear()
    columns, first, end = batch.room()
    assert (first, end) == room
    assert {len(values) for values in columns.values()} == {FIRST_ROWS if 40 < end <= FIRST_ROWS else limit}
    for name, values in rows(end - first, first).items():
        columns[name][first:end] = values
    batch.rows += end - first
    assert batch.columns["plain"].tolist() == list(range(end))


def test_rows_that_are_set_are_counted_and_written_when_a_batch_is_full(tmp_path: Path) -> None:
    columns, _ = table_rows("drops", TABLES["drops"].batch_rows, seed=1)
    expected = TableWriter(tmp_path, "drops", NAMES.dictionaries(), {})
    expected.append(columns)
    expected.close()
    as_appended = expected.path.read_bytes()
    writer = TableWriter(tmp_path, "drops", NAMES.dictionaries(), {})
    sizes = []
    while writer.rows == 0:
        room, first, end = writer.room()
        sizes.append(end - first)
        for name, values in columns.items():
            room[name][first:end] = values[first:end]
        writer.add_set(end - first)
    assert sizes == [FIRST_ROWS, TABLES["drops"].batch_rows - FIRST_ROWS]
    writer.close()
    assert writer.path.read_bytes() == as_appended


def test_a_full_batch_that_an_interrupt_has_kept_from_the_file_is_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, _ = table_rows("drops", TABLES["drops"].batch_rows, seed=1)
    writer = TableWriter(tmp_path, "drops", NAMES.dictionaries(), {})

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append(columns)
    assert writer.rows == 0
    assert writer.room()[1:] == (0, TABLES["drops"].batch_rows)
    writer.close()
    assert read_table(writer.path).num_rows == TABLES["drops"].batch_rows


def test_what_is_not_there_is_so_in_numbers_of_either_kind() -> None:
    batch = Batch(TYPES, 10, NONE)
    given_rows = rows(2)
    given_rows["id"] = np.array([np.nan, 7.0])
    given_rows["share"] = np.array([NONE, 7])
    batch.fill(given_rows, 0, 2)
    assert batch.columns["id"].tolist() == [NONE, 7]
    assert np.isnan(batch.columns["share"][0]) and batch.columns["share"][1] == 7
    for name in ("id", "share"):
        missing = batch.missing(name)
        assert missing is not None and missing.tolist() == [True, False]


def table_rows(table: str, count: int, seed: int) -> tuple[dict[str, np.ndarray], list[pa.Array]]:
    """Columns as a recorder gives them, of any types that hold their values; and as pyarrow makes them."""
    rng = np.random.default_rng(seed)
    columns, expected = {}, []
    dictionaries = NAMES.dictionaries()
    for column in TABLES[table].columns:
        null = rng.random(count) < 0.3 if column.nullable else np.zeros(count, np.bool_)
        if is_dictionary(column):
            names = dictionaries[column.kind]
            values = np.where(null, NONE, rng.integers(0, len(names), count))
            columns[column.name] = values.astype(rng.choice(["i1", "i4", "i8"]))
            indices = pa.array(values, pa.int8() if len(names) > 3 else pa.int32(), mask=null)
            expected.append(pa.DictionaryArray.from_arrays(indices, names).cast(pa.string()))
        elif column.kind == "bool":
            columns[column.name] = rng.integers(0, 2, count).astype(rng.choice(["?", "i8", "u1"]))
            expected.append(pa.array(columns[column.name].astype(np.bool_)))
        elif column.kind == "float64":
            columns[column.name] = np.where(null, np.nan, rng.random(count))
            expected.append(pa.array(columns[column.name], mask=null))
        else:
            columns[column.name] = np.where(null, NONE, rng.integers(0, 100, count))
            expected.append(pa.array(columns[column.name], column.kind, mask=null))
    return columns, expected


@pytest.mark.parametrize("table", TABLES)
def test_files_hold_what_was_given_and_do_not_depend_on_its_pieces(table: str) -> None:
    count = TABLES[table].batch_rows * 2 + 700
    columns, expected = table_rows(table, count, seed=len(table))
    written = []
    for step in (count, 2500, 999):
        with TemporaryDirectory() as directory:
            writer = TableWriter(Path(directory), table, NAMES.dictionaries(), {})
            for first in range(0, count, step):
                writer.append({name: values[first : first + step] for name, values in columns.items()})
            assert writer.rows == 2 * TABLES[table].batch_rows
            writer.close()
            assert writer.rows == count
            written.append(writer.path.read_bytes())
            read = read_table(writer.path)
    assert len(set(written)) == 1
    for column, values in zip(TABLES[table].columns, expected, strict=True):
        found = read.column(column.name).combine_chunks()
        assert (found.cast(pa.string()) if is_dictionary(column) else found).equals(values), column.name
