"""Writes the tables of a run: Arrow IPC files that grow batch by batch.

Whatever ends a run, its files are readable up to the last batch that was complete.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from fabemu.batch import Batch
from fabemu.columns import number_array
from fabemu.errors import MachineError
from fabemu.trace import NONE, TABLES, Column, arrow_type, is_dictionary, table_path, table_schema

_NUMBERED_BY_CORE = ("ports", "pauses")
"""Tables whose names are numbers of ports and what belongs to them, as the core has them: none is out of range."""
_LZ4_LEVELS = {"pauses": -64}
"""Below 0, how readily LZ4 gives up on what does not repeat, as times of pauses never do: they take half the CPU time,
and a quarter more bytes. Files of other tables would grow by half or more."""
_BUFFER_BYTES = 524288  # of small pieces, before they are written


class TableWriter:
    """Writes one table as rows come, holding at most one batch of them.

    Parameters
    ----------
    directory
        Existing run directory.
    table
        A key of `TABLES`.
    dictionaries
        From `TraceNames.dictionaries`.
    provenance
        See `table_schema`.

    Raises
    ------
    MachineError
        From every method, if the file cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        table: str,
        dictionaries: Mapping[str, pa.Array],
        provenance: Mapping[str, str],
    ) -> None:
        """Create the file and write its head."""
        self.path = table_path(directory, table)
        self.rows = 0
        self._is_checked = table not in _NUMBERED_BY_CORE
        self._names = {column.name for column in TABLES[table].columns}
        self._schema = table_schema(table, provenance)
        self._columns = [
            (column.name, field.type, dictionaries.get(column.kind) if is_dictionary(column) else None)
            for column, field in zip(TABLES[table].columns, self._schema, strict=True)
        ]
        types = {column.name: (_held_type(column), column.nullable) for column in TABLES[table].columns}
        self._batch = Batch(types, TABLES[table].batch_rows, NONE)
        # Columns of full batches in which nothing is null: Arrow sees the memory of the batch, whatever rows it holds;
        # of truth values, which it packs, it has a copy. A table that has no others is one thing to Arrow.
        self._whole: dict[str, pa.Array] = {}
        self._whole_batch: pa.RecordBatch | None = None
        self._may_be_null = any(nullable for _, nullable in types.values())
        self._streams: list[pa.NativeFile] = []  # the file, and what gathers small pieces before it
        try:
            self._streams.append(pa.OSFile(os.fsencode(self.path), "wb"))
            self._streams.append(pa.BufferedOutputStream(self._streams[0], _BUFFER_BYTES))
            self._out = self._streams[1]
            codec = pa.Codec("lz4", compression_level=_LZ4_LEVELS.get(table))
            options = ipc.IpcWriteOptions(compression=codec, use_threads=False)
            self._writer = ipc.new_file(self._out, self._schema, options=options)
            # Dictionaries go out with the first batch: an empty one makes the file readable from its start.
            self._write({name: np.empty(0, np.int64) for name in types})
        except OSError as error:
            self.abandon()
            raise self._failure(error) from error

    def append(self, columns: Mapping[str, np.ndarray]) -> None:
        """Add rows: one array per column, of one length; ids as numbers.

        Raises KeyError if other columns are given.
        """
        if columns.keys() != self._names:
            raise KeyError(f"{self.path.name}: {sorted(columns.keys() ^ self._names)}")
        rows = len(next(iter(columns.values())))
        done = 0
        while done < rows:
            done += self._batch.fill(columns, done, rows - done)
            if self._batch.is_full:
                self._write_batch()

    def room(self) -> tuple[Mapping[str, np.ndarray], int, int]:
        """Where rows may be set before anything else is added: all columns, from which place on, and before which."""
        if self._batch.is_full:
            # An interrupt came before it was written.
            self._write_batch()
        return self._batch.room()

    def add_set(self, count: int) -> None:
        """Add as many rows as have been set in `room`."""
        self._batch.rows += count
        if self._batch.is_full:
            self._write_batch()

    def append_rows(self, rows: np.ndarray, write: Callable[[np.ndarray, Mapping[str, np.ndarray], int], None]) -> None:
        """Add rows of the core, (n,) structured.

        `write` is called with some of them, all columns of the table and the place of the first in them, to set every
        column.
        """
        done = 0
        while done < len(rows):
            columns, first, count = self._batch.reserve(len(rows) - done)
            write(rows[done : done + count], columns, first)
            # Only now: after an interrupt there is nothing in the batch that was not written.
            self.add_set(count)
            done += count

    def close(self) -> None:
        """Write what is pending and the footer."""
        try:
            if self._batch.rows:
                self._write_batch()
            self._writer.close()
            self._out.close()
        except OSError as error:
            raise self._failure(error) from error

    def abandon(self) -> None:
        """Let go of the file without another word, after a failure; what is in it stays readable."""
        # What could not be written would be tried again when it is collected, and Arrow prints if that fails.
        for stream in self._streams:
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                stream.close()

    def _write_batch(self) -> None:
        try:
            self._write(self._batch.columns)
        except OSError as error:
            raise self._failure(error) from error
        self.rows += self._batch.rows
        self._batch.clear()

    def _write(self, columns: Mapping[str, np.ndarray]) -> None:
        batch = self._whole_batch if self._batch.is_full else None
        if batch is None:
            arrays = [self._array(columns, *column) for column in self._columns]
            batch = pa.record_batch(arrays, schema=self._schema)
            if self._batch.is_full and len(self._whole) == len(arrays) and not self._may_be_null:
                self._whole_batch = batch
        self._writer.write_batch(batch)
        # What a killed run leaves is whole up to here.
        self._out.flush()

    def _array(
        self, columns: Mapping[str, np.ndarray], name: str, kind: pa.DataType, names: pa.Array | None
    ) -> pa.Array:
        null = self._batch.missing(name) if self._batch.rows else None
        lasts = self._batch.is_full and not pa.types.is_boolean(kind) and (null is None or not null.any())
        if lasts and name in self._whole:
            return self._whole[name]
        array = number_array(columns[name], kind if names is None else kind.index_type, null)
        if names is not None:
            array = pa.DictionaryArray.from_arrays(array, names, safe=self._is_checked)
        if lasts:
            self._whole[name] = array
        return array

    def _failure(self, error: OSError) -> MachineError:
        # The text of Arrow's errors is about its own calls; the number says what the system meant.
        reason = os.strerror(error.errno) if error.errno else error
        return MachineError(f"cannot write {self.path}: {reason}")


def _held_type(column: Column) -> np.dtype:
    """NumPy type of the numbers that a column holds; null is NaN, or `NONE`."""
    kind = arrow_type(column)
    if isinstance(kind, pa.DictionaryType):
        kind = kind.index_type
    if pa.types.is_boolean(kind) and column.nullable:
        kind = pa.int8()
    return np.dtype(kind.to_pandas_dtype())
