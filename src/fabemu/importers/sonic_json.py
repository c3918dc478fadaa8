"""A SONiC configuration as its JSON text says it: tables, keys and fields with their lines, and what is malformed.

Two shapes are read: nested, ``{TABLE: {key: {field: "value"}}}``, and the flat dump ``{"TABLE|key": {...}}``. All
values are texts in SONiC; what is not becomes a `Fault`, so that one wrong value does not hide the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from fabemu.deferred import dataclass
from fabemu.errors import InputError

FILE_BYTES_MAX = 64 * 2**20

Keys = tuple[str, ...]
"""Table, key and field, as far as they go."""

FaultKind = Literal["type", "number", "value", "repeated"]


@dataclass(frozen=True)
class Fault:
    """One malformed thing.

    Attributes
    ----------
    kind
        ``type``: of the wrong JSON type, left out; ``number``: a JSON number or boolean where SONiC has texts, read as
        its text; ``value``: a text that does not say what it should; ``repeated``: a key that is given twice.
    keys
        Where it is.
    message
        What was found and what should be there.
    """

    kind: FaultKind
    keys: Keys
    message: str


@dataclass
class SonicTables:
    """Tables of one file.

    Attributes
    ----------
    source
        Path of the file, for messages.
    tables
        Field values by table, key and field; trimmed texts.
    lines
        Line of every table, key and field, from 1.
    faults
        What is malformed.
    """

    source: str
    tables: dict[str, dict[str, dict[str, str]]]
    lines: dict[Keys, int]
    faults: list[Fault] = field(default_factory=list)

    def where(self, keys: Keys) -> str:
        """File and line of a field, or of the nearest thing around it."""
        for length in range(len(keys), 0, -1):
            line = self.lines.get(keys[:length])
            if line is not None:
                return f"{self.source}:{line}"
        return self.source

    def at(self, keys: Keys) -> str:
        """File, line and key path: ``config_db.json:12: BUFFER_PROFILE.egress.size``."""
        return f"{self.where(keys)}: {key_path(keys)}" if keys else self.source

    def table(self, name: str) -> dict[str, dict[str, str]]:
        """Entries of a table by key; empty if there is none."""
        return self.tables.get(name, {})


def key_path(keys: Keys) -> str:
    """Write keys for a message."""
    return ".".join(keys)


def read_tables(path: Path) -> SonicTables:
    """Read a SONiC configuration.

    Raises
    ------
    InputError
        The file cannot be read, is no JSON, or is not shaped like a SONiC configuration.
    """
    source = str(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{source}: the file is empty; a SONiC configuration is a JSON object of tables")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "; this is a template, not a configuration" if "{%" in text or "{{" in text else ""
        raise InputError(f"{source}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}{hint}") from None
    except RecursionError:
        raise InputError(f"{source}: not a SONiC configuration: it is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{source}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{source}: not a SONiC configuration: {json_type(data)} instead of an object of tables")
    asics = [name for name in data if re.fullmatch(r"localhost|asic\d+", name)]
    if asics and len(asics) == len(data):
        raise InputError(
            f"{source}: holds {len(asics)} name spaces ({', '.join(asics)}); save the configuration of one as a file"
        )
    result = SonicTables(source, {}, {})
    for keys, line, again in _positions(text):
        split = _flat(keys)
        if again:
            message = f"is given a second time; the one in line {result.lines[split]} is hidden by it"
            result.faults.append(Fault("repeated", split, message))
        for length in range(1, len(split)):
            result.lines.setdefault(split[:length], line)
        result.lines[split] = line
    for name, value in data.items():
        table, separator, key = name.partition("|")
        if separator:
            _add_entry(result, table, key, value)
        elif not isinstance(value, dict):
            message = f"is {json_type(value)}; a table is an object"
            result.faults.append(Fault("type", (table,), message))
        else:
            result.tables.setdefault(table, {})
            for key, entry in value.items():
                _add_entry(result, table, key, entry)
    return result


def read_text(path: Path) -> str:
    """Read a text file.

    Raises
    ------
    InputError
        It cannot be read, is no regular file, is too large or is not UTF-8.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a regular file")
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # a name that holds a NUL
        raise InputError(f"{path}: {error}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise InputError(f"{path}: larger than {FILE_BYTES_MAX // 2**20} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not a text file: invalid UTF-8 at byte {error.start}") from None


def json_type(value: Any) -> str:
    """Name a JSON value's type for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


def _flat(keys: Keys) -> Keys:
    """Split the first key of a flat dump."""
    table, separator, key = keys[0].partition("|")
    return (table, key, *keys[1:]) if separator else keys


def _add_entry(result: SonicTables, table: str, key: str, entry: Any) -> None:
    """Add one entry, with its values as texts."""
    if not isinstance(entry, dict):
        message = f"is {json_type(entry)}; an entry is an object of fields"
        result.faults.append(Fault("type", (table, key), message))
        return
    fields: dict[str, str] = {}
    for name, value in entry.items():
        keys = (table, key, name)
        if isinstance(value, str):
            fields[name] = value.strip()
        elif isinstance(value, (bool, int, float)):
            fields[name] = json.dumps(value)
            message = f'is {json_type(value)}; SONiC keeps texts: write "{fields[name]}"'
            result.faults.append(Fault("number", keys, message))
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            fields[name] = ",".join(item.strip() for item in value)
        else:
            result.faults.append(Fault("type", keys, f"is {json_type(value)}; a value is a text"))
    if fields.get("NULL") == "NULL":  # what the database has for an entry without fields
        del fields["NULL"]
    result.tables.setdefault(table, {})[key] = fields


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]', re.DOTALL)
_DEEPEST = 3


def _positions(text: str) -> Iterator[tuple[Keys, int, bool]]:
    """Yield the keys of objects, to the depth of fields, with their lines, of a text that a JSON reader has accepted.

    The flag says whether the object had the key already.
    """
    path: list[str | None] = []  # of every open object its current key; None for a list
    seen: list[set[str]] = []
    expect_key = False
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "{":
            path.append("")
            seen.append(set())
            expect_key = True
        elif token == "[":
            path.append(None)
            seen.append(set())
            expect_key = False
        elif token in "}]":
            path.pop()
            seen.pop()
            expect_key = False
        elif token == ",":
            expect_key = bool(path) and path[-1] is not None
        elif token != ":" and expect_key:
            key = json.loads(token, strict=False)
            path[-1] = key
            expect_key = False
            if len(path) <= _DEEPEST and None not in path:
                line += text.count("\n", counted, match.start())
                counted = match.start()
                yield tuple(part for part in path if part is not None), line, key in seen[-1]
                seen[-1].add(key)
