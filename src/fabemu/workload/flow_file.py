"""Flows from a file: CSV, or Arrow IPC (Feather)."""

from __future__ import annotations

import csv
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather

from fabemu.errors import InputError
from fabemu.scenario.fabric import close_to
from fabemu.scenario.quantity import named
from fabemu.scenario.workload import FlowFile
from fabemu.units import LIMIT, UnitError, parse_time_ps
from fabemu.workload.context import VERBS, WorkloadContext
from fabemu.workload.flow import NONE, FlowTable, flow_table
from fabemu.workload.hosts import SelectorError

REQUIRED = ("src", "dst", "bytes")
STARTS = ("start_ps", "start", "start_s")
OPTIONAL = ("sport", "qp", "class", "verb")

_ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")


class _Rows:
    """The rows of a file as text or numbers, and where each of them stands."""

    def __init__(self, path: Path, table: pa.Table, is_csv: bool) -> None:
        self.path = path
        self.table = table
        self.is_csv = is_csv

    def error(self, row: int, reason: str) -> InputError:
        """Error in a row, counted from 0."""
        if not self.is_csv:
            return InputError(f"{self.path}: row {row}: {reason}")
        return InputError(f"{self.path}:{_csv_line(self.path, row)}: {reason}")

    def column(self, name: str) -> pa.Array:
        """A column as one array."""
        column = self.table.column(name).combine_chunks()
        return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def file_flows(table: FlowFile, context: WorkloadContext) -> FlowTable:
    """Flows of a `flow-file` workload, in the order of the file.

    Columns are found by name: `src` and `dst` (host names; in an Arrow file also integers, the hosts' positions),
    `bytes`, one of `start_ps`, `start` (with unit) and `start_s` (rounded to whole ps), and if wanted `sport`, `qp`
    (flows with the same value, ends, class and verb share a QP, in order), `class` and `verb`. An empty value in one of
    the last four means the default. Times count from the workload's `start`.

    Raises
    ------
    InputError
        The file cannot be read, has wrong columns, or a value is wrong; file and line are named.
    """
    path = context.base_dir / table.path
    rows = _Rows(path, *_read(path))
    _check_columns(rows)
    src, dst = _hosts(rows, "src", context), _hosts(rows, "dst", context)
    same = np.flatnonzero(src == dst)
    if len(same):
        row = int(same[0])
        raise rows.error(row, f'host "{context.hosts.names[int(src[row])]}" sends to itself')
    size_bytes = _integers(rows, "bytes", 0, LIMIT - 1)
    start_ps = _starts(rows)
    late = np.flatnonzero(start_ps >= LIMIT - table.start)
    if len(late):
        raise rows.error(int(late[0]), "the start time is too large")
    class_id = _classes(rows, context)
    verb = _verbs(rows, context)
    return flow_table(
        src,
        dst,
        size_bytes,
        table.start + start_ps,
        class_id=class_id,
        sport=_integers(rows, "sport", 0, 65535) if "sport" in rows.table.column_names else NONE,
        qp=_queue_pairs(rows, src, dst, class_id, verb),
        verb=verb,
        label=context.label,
    )


def _read(path: Path) -> tuple[pa.Table, bool]:
    """Read the table, and tell whether it is CSV (all columns text) or Arrow."""
    # Opening a FIFO would wait for ever.
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file")
    try:
        if path.suffix.lower() in _ARROW_SUFFIXES:
            return pa.feather.read_table(path), False
        with path.open("rb") as file:
            header = file.readline()
        if not header.strip():
            raise InputError(f"{path}: no header line; it names the columns, such as src,dst,bytes,start_ps")
        try:
            names = next(csv.reader([header.decode("utf-8-sig")]))
        except UnicodeDecodeError:
            raise InputError(f"{path}:1: not a text file: invalid UTF-8") from None
        except csv.Error as error:
            raise InputError(f"{path}:1: {error}") from None
        names = [name.strip() for name in names]
        return (
            pa.csv.read_csv(
                path,
                read_options=pa.csv.ReadOptions(column_names=names, skip_rows=1),
                convert_options=pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
                ),
            ),
            True,
        )
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except pa.ArrowInvalid as error:
        raise InputError(_syntax_error(path, str(error))) from None


def _syntax_error(path: Path, reason: str) -> str:
    """Say where a CSV file goes wrong; pyarrow gives no line."""
    if path.suffix.lower() in _ARROW_SUFFIXES:
        return f"{path}: not an Arrow file: {reason}"
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            width = len(next(reader, []))
            for values in reader:
                if values and len(values) != width:
                    return f"{path}:{reader.line_num}: {len(values)} values, but the header names {width} columns"
    except UnicodeDecodeError as error:
        return f"{path}: not a text file: invalid UTF-8 at byte {error.start}"
    except csv.Error as error:
        return f"{path}:{reader.line_num}: {error}"
    return f"{path}: {reason.splitlines()[0]}"


def _csv_line(path: Path, row: int) -> int:
    """Line of a row of a CSV file; empty lines are no rows."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        next(reader, None)
        found = -1
        for values in reader:
            found += bool(values)
            if found == row:
                break
        return reader.line_num


def _check_columns(rows: _Rows) -> None:
    """Check the names of the columns."""
    names = rows.table.column_names
    where = f"{rows.path}:1" if rows.is_csv else str(rows.path)
    allowed = (*REQUIRED, *STARTS, *OPTIONAL)
    for name in names:
        if name not in allowed:
            hint = close_to(name, allowed) or f"; allowed are {', '.join(allowed)}"
            raise InputError(f'{where}: unknown column "{name}"{hint}')
        if names.count(name) > 1:
            raise InputError(f'{where}: column "{name}" appears twice')
    for name in REQUIRED:
        if name not in names:
            raise InputError(f'{where}: no column "{name}"; needed are src, dst, bytes and one of {", ".join(STARTS)}')
    starts = [name for name in STARTS if name in names]
    if len(starts) != 1:
        found = " and ".join(starts) if starts else "none"
        raise InputError(f"{where}: one column of {', '.join(STARTS)} is needed, found {found}")


def _hosts(rows: _Rows, name: str, context: WorkloadContext) -> np.ndarray:
    """Host ids of a column of names, or of positions."""
    column = rows.column(name)
    if pa.types.is_integer(column.type):
        ids = _integers(rows, name, 0, len(context.hosts) - 1)
        return ids
    code, names = _encoded(rows, name)
    ids = np.zeros(len(names), dtype=np.int64)
    problems: dict[int, str] = {}
    for index, host in enumerate(names):
        try:
            ids[index] = context.hosts.id(host)
        except SelectorError as error:
            problems[index] = str(error)
    if problems:
        row = int(np.flatnonzero(np.isin(code, list(problems)))[0])
        raise rows.error(row, f"{name}: {problems[int(code[row])]}")
    return ids[code]


def _encoded(rows: _Rows, name: str) -> tuple[np.ndarray, list[str]]:
    """Codes, (n,) int64, and the different values of a column as text; a missing value is ""."""
    column = rows.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f'{rows.path}: column "{name}" has type {column.type}; texts are needed')
    encoded = pc.dictionary_encode(pc.fill_null(column, ""))
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), [
        text.strip() for text in encoded.dictionary.to_pylist()
    ]


def _integers(rows: _Rows, name: str, low: int, high: int) -> np.ndarray:
    """Whole numbers of a column within bounds; an empty value is NONE where a default exists."""
    column = rows.column(name)
    optional = name in OPTIONAL
    if pa.types.is_integer(column.type):
        null = column.is_null().to_numpy(zero_copy_only=False)
        try:
            values = pc.fill_null(column.cast(pa.int64()), NONE).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            raise InputError(f'{rows.path}: column "{name}" has values that do not fit int64') from None
        wrong = ((values < low) | (values > high)) & ~(null & optional)
        if wrong.any():
            row = int(np.argmax(wrong))
            shown = "missing" if null[row] else str(int(values[row]))
            raise rows.error(row, f"{name} is {shown}; a whole number from {low} to {high} is needed")
        return values
    code, texts = _encoded(rows, name)
    numbers = np.zeros(len(texts), dtype=np.int64)
    bad = []
    for index, text in enumerate(texts):
        if optional and not text:
            numbers[index] = NONE
            continue
        number = int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 30 else None
        if number is None or not low <= number <= high:
            bad.append(index)
        else:
            numbers[index] = number
    if bad:
        row = int(np.flatnonzero(np.isin(code, bad))[0])
        raise rows.error(row, f"{name} is {texts[int(code[row])]!r}; a whole number from {low} to {high} is needed")
    return numbers[code]


def _starts(rows: _Rows) -> np.ndarray:
    """Start times in ps, from whichever column there is."""
    names = rows.table.column_names
    if "start_ps" in names:
        return _integers(rows, "start_ps", 0, LIMIT - 1)
    name = "start" if "start" in names else "start_s"
    column = rows.column(name)
    if name == "start_s" and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        seconds = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        wrong = ~((seconds >= 0) & (seconds * 1e12 < LIMIT))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise rows.error(row, f"start_s is {seconds[row]}; a time of 0 or more is needed")
        return np.rint(seconds * 1e12).astype(np.int64)
    code, texts = _encoded(rows, name)
    times = np.zeros(len(texts), dtype=np.int64)
    problems: dict[int, str] = {}
    for index, text in enumerate(texts):
        try:
            times[index] = parse_time_ps(text) if name == "start" else _seconds_ps(text)
        except UnitError as error:
            problems[index] = str(error)
    if problems:
        row = int(np.flatnonzero(np.isin(code, list(problems)))[0])
        raise rows.error(row, f"{name}: {problems[int(code[row])]}")
    return times[code]


def _seconds_ps(text: str) -> int:
    """Seconds as text to the nearest ps, exactly."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value < Decimal(LIMIT) / 10**12:
        raise UnitError(f"{text!r} is not a time of 0 or more seconds")
    return int((value * 10**12).to_integral_value())


def _classes(rows: _Rows, context: WorkloadContext) -> np.ndarray | int:
    """Class ids; an empty value means the workload's class."""
    if "class" not in rows.table.column_names:
        return context.class_id
    code, texts = _encoded(rows, "class")
    ids = np.zeros(len(texts), dtype=np.int64)
    names = [item.name for item in context.scenario.classes]
    for index, text in enumerate(texts):
        if not text:
            ids[index] = context.class_id
        elif text in names:
            ids[index] = context.scenario.class_id(text)
        else:
            hint = close_to(text, names) or f" (classes: {named(names)})"
            raise rows.error(int(np.flatnonzero(code == index)[0]), f'there is no class "{text}"{hint}')
    return ids[code]


def _verbs(rows: _Rows, context: WorkloadContext) -> np.ndarray | int:
    """Verbs by number; an empty value means the workload's verb."""
    if "verb" not in rows.table.column_names:
        return context.verb
    code, texts = _encoded(rows, "verb")
    for index, text in enumerate(texts):
        if text and text not in VERBS:
            hint = close_to(text, VERBS) or f" (verbs: {', '.join(VERBS)})"
            raise rows.error(int(np.flatnonzero(code == index)[0]), f'there is no verb "{text}"{hint}')
    return np.array([VERBS.index(text) if text else context.verb for text in texts], dtype=np.int64)[code]


def _queue_pairs(
    rows: _Rows, src: np.ndarray, dst: np.ndarray, class_id: np.ndarray | int, verb: np.ndarray | int
) -> np.ndarray | int:
    """Numbers of the shared QPs; an empty value is a QP of its own."""
    if "qp" not in rows.table.column_names:
        return NONE
    code, texts = _encoded(rows, "qp")
    named = np.array([bool(text) for text in texts], dtype=bool)[code] if texts else np.zeros(0, dtype=bool)
    qp = np.full(len(code), NONE, dtype=np.int64)
    if named.any():
        # Equal texts after stripping are one name.
        first: dict[str, int] = {}
        canonical = np.array([first.setdefault(text, len(first)) for text in texts], dtype=np.int64)[code]
        others = (np.broadcast_to(column, len(code)) for column in (class_id, verb))
        keys = np.stack([canonical, src, dst, *others], axis=1)[named]
        _, qp[named] = np.unique(keys, axis=0, return_inverse=True)
    return qp
