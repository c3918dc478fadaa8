"""Rows of a table, batch by batch and as often as wanted, whatever they come from."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from fabemu.columns import number_values
from fabemu.errors import InputError
from fabemu.trace import NONE

BATCH_ROWS = 65536
"""Rows of the batches that a table in memory is cut into, and that small ones are joined to."""

Rows: TypeAlias = "pa.Table | Iterable[pa.RecordBatch]"
"""What analyses take: a table, or its record batches, such as `fabemu.result.Run.batches` gives."""


def again(rows: Rows, columns: Sequence[str], optional: Sequence[str] = ()) -> Iterable[pa.RecordBatch]:
    """Batches that can be iterated over any number of times.

    Parameters
    ----------
    rows
        A table, or record batches. Batches that can be had only once, such as those of a generator, are put into a
        temporary file as they come.
    columns, optional
        Columns to keep: those that have to be there, and those that are kept if they are.

    Raises
    ------
    InputError
        While iterated over: a column is missing.
    """
    if isinstance(rows, pa.Table):
        rows = rows.to_batches(max_chunksize=BATCH_ROWS)
    chosen = _Chosen(rows, tuple(columns), tuple(name for name in optional if name not in columns))
    return _Spooled(chosen) if isinstance(rows, Iterator) else chosen


class _Chosen:
    def __init__(self, rows: Iterable[pa.RecordBatch], columns: Sequence[str], optional: Sequence[str]) -> None:
        self._rows = rows
        self._columns = columns
        self._optional = optional

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        parts: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._rows:
            names = batch.schema.names
            missing = [name for name in self._columns if name not in names]
            if missing:
                raise InputError(f"these rows have no column {missing[0]!r}; they have {', '.join(names) or 'none'}")
            chosen = batch.select([*self._columns, *(name for name in self._optional if name in names)])
            if parts and (rows + len(chosen) > BATCH_ROWS or chosen.schema != parts[0].schema):
                yield _joined(parts)
                parts, rows = [], 0
            parts.append(chosen)
            rows += len(chosen)
        if parts:
            yield _joined(parts)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several: loops over batches cost as much as those over some thousand rows."""
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts).unify_dictionaries().combine_chunks()
    return table.to_batches()[0] if len(table) else parts[0]


class _Spooled:
    def __init__(self, rows: Iterable[pa.RecordBatch]) -> None:
        self._file = tempfile.TemporaryFile(prefix="fabemu-")  # noqa: SIM115 - lives as long as this
        writer = None
        for batch in rows:
            # In a stream, other dictionaries may follow.
            if writer is None:
                writer = ipc.new_stream(self._file, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
        self._empty = writer is None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._empty:
            return
        self._file.seek(0)
        yield from ipc.open_stream(pa.PythonFile(self._file, "r"))


class Names:
    """Numbers for the names in a dictionary column, the same in all batches, whatever their dictionaries."""

    def __init__(self) -> None:
        """No name is known."""
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._dictionary: pa.Array | None = None
        self._map = np.empty(0, np.int64)

    def __len__(self) -> int:
        """How many names are known."""
        return len(self.names)

    def numbers(self, column: pa.Array) -> np.ndarray:
        """(rows,) int64 number of each name, -1 for null; a column of plain strings is encoded first."""
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        dictionary = column.dictionary
        if self._dictionary is None or not self._dictionary.equals(dictionary):
            self._dictionary = dictionary
            found = [self.number(name) for name in dictionary.to_pylist()]
            self._map = np.array([*found, NONE], dtype=np.int64)
        # Null is -1, the last entry of the map.
        return self._map[number_values(column.indices, NONE)]

    def number(self, name: str) -> int:
        """Number of one name, a new one if it is not known."""
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def integers(batch: pa.RecordBatch, name: str, missing: int = NONE) -> np.ndarray:
    """(rows,) int64 values of a column, `missing` for null."""
    return number_values(batch.column(name), missing).astype(np.int64, copy=False)


def floats(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """(rows,) float64 values of a column, NaN for null."""
    column = batch.column(name)
    values = number_values(column, np.nan if pa.types.is_floating(column.type) else NONE)
    return values.astype(np.float64, copy=False)
