"""A table of a run as comma-separated values: its columns by their names, which have the units."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow import csv

from fabemu.export.output import replacing
from fabemu.recorded.source import Source
from fabemu.trace import TABLES, is_dictionary, read_batches


def export_csv(directory: Path, table: str, output: Path | BinaryIO, *, force: bool = False) -> int:
    """Write one table.

    The first line has the names of the columns. Names are in quotes, null is an empty field, flags are true and false.
    Lines end in a line feed, and the text is UTF-8.

    Parameters
    ----------
    directory
        Run directory.
    table
        One of its tables.
    output
        File to make, or an open binary stream.
    force
        Replace an existing file.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    InputError
        No run, or no such table.
    OutputError, MachineError
        The file exists, or cannot be written.
    """
    path = Source.open(directory).table(table)
    if not isinstance(output, Path):
        return _write(path, table, output)
    with replacing(output, force=force, inside=directory) as file:
        return _write(path, table, file)


def _write(path: Path, table: str, file: BinaryIO) -> int:
    columns = TABLES[table].columns
    names = [is_dictionary(column) for column in columns]
    kinds = [
        pa.string() if name else pa.type_for_alias(column.kind) for column, name in zip(columns, names, strict=True)
    ]
    schema = pa.schema([pa.field(column.name, kind) for column, kind in zip(columns, kinds, strict=True)])
    rows = 0
    batches = iter(read_batches(path))
    first = next(batches, None)  # before the names of the columns go out: the table may be damaged
    with csv.CSVWriter(file, schema) as writer:
        for batch in chain(() if first is None else (first,), batches):
            if not len(batch):
                continue
            arrays = [batch.column(column.name) for column in columns]
            decoded = [item.dictionary_decode() if name else item for item, name in zip(arrays, names, strict=True)]
            writer.write_batch(pa.record_batch(decoded, schema=schema))
            rows += len(batch)
    return rows
