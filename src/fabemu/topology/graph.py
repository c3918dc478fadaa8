"""Explicit devices and cables, from the scenario or from a CSV file."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Sequence
from pathlib import Path

from fabemu.errors import InputError
from fabemu.scenario.fabric import GraphLink, delay_of_length
from fabemu.scenario.quantity import RATE_LIMIT_BPS
from fabemu.topology.cable import Cable, Fabric
from fabemu.units import format_rate, parse_length_m, parse_rate_bps, parse_time_ps

COLUMNS = ("a", "b", "rate", "delay", "length", "tier")
"""Columns of a link file; the first two are required."""

_PROBLEMS_MAX = 20
"""A file of the wrong kind is wrong in every line; nobody reads more than these."""


def graph_fabric(host_names: Sequence[str], switch_names: Sequence[str], cables: list[Cable]) -> Fabric:
    """A fabric of the given devices; every switch has the tier "switch"."""
    return Fabric(list(host_names), list(switch_names), ["switch"] * len(switch_names), cables)


def link_cables(links: Sequence[GraphLink], host_names: Sequence[str], switch_names: Sequence[str]) -> list[Cable]:
    """Cables of the links of a scenario, whose ends it has checked."""
    ids = _node_ids(host_names, switch_names)
    return [_cable(ids[link.a], ids[link.b], link.tier, link.rate, link.delay_ps, len(host_names)) for link in links]


def read_link_file(path: Path, host_names: Sequence[str], switch_names: Sequence[str]) -> list[Cable]:
    """Read the cables of a CSV file with a header; lines that start with # are comments.

    Raises InputError, which names the file and the line of everything that is wrong: unreadable file, missing or
    unknown columns, unknown devices (with the nearest name), links of a device to itself, wrong units.
    """
    rows = _rows(_text(path), path)
    if not rows:
        raise InputError(f"{path}: no header line; write a,b or {','.join(COLUMNS)}")
    (header_line, header), *rows = rows
    columns = _header(header, f"{path}:{header_line}")
    ids = _node_ids(host_names, switch_names)
    cables: list[Cable] = []
    problems: list[str] = []
    for line, values in rows:
        try:
            cables.append(_row_cable(values, columns, ids, len(host_names)))
        except ValueError as error:
            problems.append(f"{path}:{line}: {error}")
    if problems:
        hidden = len(problems) - _PROBLEMS_MAX
        shown = problems[:_PROBLEMS_MAX] + ([f"{path}: and {hidden} more lines with errors"] if hidden > 0 else [])
        raise InputError("\n".join(shown))
    return cables


def _text(path: Path) -> str:
    """Whole text of a regular file."""
    # A FIFO would block for ever and a directory gives a poor message.
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file")
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: invalid UTF-8 at byte {error.start}") from None


def _rows(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Line number and stripped values of every line that is not empty and no comment."""
    # csv counts lines as it reads, so comments are dropped after it, not before.
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for values in reader:
            values = [value.strip() for value in values]
            if any(values) and not values[0].startswith("#"):
                rows.append((reader.line_num, values))
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}") from None
    return rows


def _header(names: Sequence[str], where: str) -> list[str]:
    """Column names in their order."""
    columns = [name.lower() for name in names]
    for name in columns:
        if name not in COLUMNS:
            hint = _did_you_mean(name, COLUMNS)
            raise InputError(f'{where}: unknown column "{name}"; allowed are {", ".join(COLUMNS)}{hint}')
        if columns.count(name) > 1:
            raise InputError(f'{where}: column "{name}" appears twice')
    missing = [name for name in COLUMNS[:2] if name not in columns]
    if missing:
        raise InputError(f'{where}: no column "{missing[0]}"; the header names the columns, such as a,b,rate,delay')
    return columns


def _row_cable(values: Sequence[str], columns: Sequence[str], ids: dict[str, int], host_count: int) -> Cable:
    """Cable of one line; raises ValueError with what is wrong."""
    if len(values) > len(columns):
        raise ValueError(f"{len(values)} values for {len(columns)} columns")
    row = dict.fromkeys(COLUMNS, "") | dict(zip(columns, values, strict=False))
    ends = []
    for side in ("a", "b"):
        name = row[side]
        if not name:
            raise ValueError(f'no device in column "{side}"')
        if name not in ids:
            raise ValueError(f'there is no device "{name}" in hosts or switches{_did_you_mean(name, ids)}')
        ends.append(ids[name])
    if ends[0] == ends[1]:
        raise ValueError(f'the link joins "{row["a"]}" to itself')
    if row["delay"] and row["length"]:
        raise ValueError("delay and length are both given: give one of them")
    delay_ps = parse_time_ps(row["delay"]) if row["delay"] else None
    if row["length"]:
        exact_ps = delay_of_length(parse_length_m(row["length"]))
        if exact_ps.denominator != 1:
            raise ValueError(f"length {row['length']} gives no whole number of picoseconds at 5 ns/m")
        delay_ps = int(exact_ps)
    rate_bps = parse_rate_bps(row["rate"]) if row["rate"] else None
    if rate_bps is not None and rate_bps > RATE_LIMIT_BPS:
        raise ValueError(f"rate {row['rate']} is above {format_rate(RATE_LIMIT_BPS)}")
    return _cable(ends[0], ends[1], row["tier"] or None, rate_bps, delay_ps, host_count)


def _cable(a: int, b: int, tier: str | None, rate_bps: int | None, delay_ps: int | None, host_count: int) -> Cable:
    """A cable with its tier worked out: "host" if an end is a host, else "fabric"."""
    return Cable(a, b, tier or ("host" if min(a, b) < host_count else "fabric"), rate_bps, delay_ps)


def _node_ids(host_names: Sequence[str], switch_names: Sequence[str]) -> dict[str, int]:
    """Node id of every name."""
    return {name: node for node, name in enumerate([*host_names, *switch_names])}


def _did_you_mean(name: str, names: Sequence[str] | dict[str, int]) -> str:
    """The nearest name for the end of a message, or nothing."""
    near = difflib.get_close_matches(name, list(names) if len(names) < 5_000 else [], 1, 0.6)
    return f'; did you mean "{near[0]}"?' if near else ""
