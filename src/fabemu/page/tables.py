"""Rows for the tables of a page: slowest messages, ports, collectives, jobs, training steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.jobs import JobOutcome
from fabemu.analysis.storms import Storm
from fabemu.figures.port_series import PortSeries
from fabemu.page.blocks import Cell, TableBlock
from fabemu.report import bytes_text, count_text, rate_text, time_text
from fabemu.result import Run
from fabemu.trace import float_column, integer_column, read_table, table_path

ROWS_SHOWN = 200
"""Most rows of a table."""

_FLOWS = (
    "op",
    "label",
    "job",
    "src",
    "dst",
    "class",
    "bytes",
    "posted_ps",
    "fct_ps",
    "slowdown",
    "retransmissions",
    "cnps",
    "marks",
    "measured",
    "status",
)


def slowest_messages(run: Run) -> TableBlock:
    """Messages with the greatest slowdown, those that did not finish first.

    Raises
    ------
    InputError
        The run has no flows table.
    """
    flows = read_table(table_path(run.directory, "flows"), _FLOWS)
    slowdown = float_column(flows, "slowdown")
    posted = integer_column(flows, "posted_ps") >= 0
    # Posted and never delivered is slower than everything else.
    key = np.where(integer_column(flows, "fct_ps") >= 0, np.nan_to_num(slowdown, nan=0.0), np.inf)
    order = np.lexsort((np.arange(len(key)), -key, ~posted))[:ROWS_SHOWN]
    rows = []
    for item in flows.take(pa.array(order, pa.int64())).to_pylist():
        rows.append(
            [
                _number(item["op"]),
                _text(item["label"]),
                _text(item["job"]),
                _text(item["src"]),
                _text(item["dst"]),
                _text(item["class"]),
                _size(item["bytes"]),
                _time(item["posted_ps"]),
                _time(item["fct_ps"]),
                _ratio(item["slowdown"] if item["fct_ps"] is not None else None),
                _number(item["retransmissions"]),
                _number(item["cnps"]),
                _number(item["marks"]),
                _text(item["status"]),
            ]
        )
    columns: tuple[str, ...] = (
        "op",
        "workload",
        "job",
        "from",
        "to",
        "class",
        "size",
        "posted",
        "completion",
        "slowdown",
    )
    columns += ("sent again", "CNPs", "marks", "status")
    return TableBlock(
        key="messages",
        caption="Slowest messages",
        columns=columns,
        rows=rows,
        numbers=frozenset(columns) - {"workload", "job", "from", "to", "class", "status"},
        note=_left_out(len(rows), len(flows), "messages", "with the greatest slowdown"),
    )


def ports(series: PortSeries) -> TableBlock:
    """Ports by their use, with their longest queue and paused time."""
    use, queue, paused = (series.whole(name) for name in ("use", "queue", "paused"))
    peak = np.zeros(len(use))
    np.maximum.at(peak, series.port, series.use[0])
    # Those that lead in any of the three, so that sorting by any of them shows its first.
    leading: list[int] = []
    for values in (paused, queue, use):
        leading += [port for port in np.argsort(-values, kind="stable")[: ROWS_SHOWN // 3].tolist() if values[port] > 0]
    chosen = sorted(set(leading), key=lambda port: -use[port])
    rows = [
        [
            Cell(series.ports[port]),
            Cell(series.nodes[port]),
            Cell(series.peers[port]),
            _share(use[port]),
            _share(peak[port]),
            _size(int(queue[port])),
            _share(paused[port]),
        ]
        for port in chosen
    ]
    active = len(np.unique(series.port))
    columns: tuple[str, ...] = ("port", "device", "peer", "mean use", "peak use", "longest queue", "paused")
    return TableBlock(
        key="ports",
        caption="Ports",
        columns=columns,
        rows=rows,
        numbers=frozenset(columns[3:]),
        note=_left_out(len(rows), active, "ports", "that lead in use, queue or paused time"),
    )


def storm_list(found: Sequence[Storm], total: int | None = None) -> TableBlock:
    """Storms, those with most paused time first."""
    rows = [
        [
            _number(number),
            _text(storm.root_port),
            _text(storm.class_name),
            _text(storm.cause),
            _time(storm.start_ps),
            _time(storm.duration_ps),
            _number(storm.pauses),
            _time(storm.paused_ps),
            _number(storm.ports),
            _number(storm.depth),
            _time(storm.spread_ps),
        ]
        for number, storm in enumerate(found)
    ]
    columns: tuple[str, ...] = (
        "storm",
        "root",
        "class",
        "cause",
        "began",
        "lasted",
        "pauses",
        "paused time",
        "ports",
        "hops deep",
    )
    columns += ("spread in",)
    note = _left_out(len(rows), total, "storms", "with most paused time") if total is not None else ""
    numbers = frozenset(columns) - {"root", "class", "cause"}
    return TableBlock("storms", "Storms", columns, rows, numbers, note)


def collectives(run: Run) -> TableBlock:
    """Runs of collectives, the longest first.

    Raises
    ------
    InputError
        The run has no collectives table.
    """
    items = read_table(table_path(run.directory, "collectives")).to_pylist()
    total = len(items)
    items.sort(key=lambda item: -(item["time_ps"] if item["time_ps"] is not None else math.inf))
    rows = [
        [
            _text(item["job"]),
            _text(item["label"]),
            _text(item["operation"]),
            _text(item["purpose"]),
            _text(item["algorithm"]),
            _number(item["iteration"]),
            _number(item["ranks"]),
            _size(item["bytes"]),
            _time(item["start_ps"]),
            _time(item["time_ps"]),
            _time(item["ideal_ps"]),
            _rate(item["busbw_bps"]),
            _text(item["last_host"]),
        ]
        for item in items[:ROWS_SHOWN]
    ]
    columns: tuple[str, ...] = (
        "job",
        "workload",
        "operation",
        "purpose",
        "algorithm",
        "run",
        "ranks",
        "size",
        "start",
        "time",
    )
    columns += ("at least", "busbw", "last host")
    return TableBlock(
        "collectives",
        "Collectives",
        columns,
        rows,
        frozenset(columns[5:-1]),
        _left_out(len(rows), total, "collectives", "that took longest"),
    )


def jobs(items: Sequence[JobOutcome]) -> TableBlock:
    """Jobs in the order of the scenario."""
    rows = [
        [
            _text(item.name),
            _number(item.ranks),
            _number(item.nodes),
            _time(item.start_ps),
            _time(item.completion_ps),
            _time(item.compute_ps),
            _share(item.communication_share),
            _rate(item.busbw_bps),
            _size(item.network_bytes),
            _number(item.unfinished),
        ]
        for item in items[:ROWS_SHOWN]
    ]
    columns: tuple[str, ...] = (
        "job",
        "ranks",
        "nodes",
        "start",
        "completion",
        "computing",
        "not computing",
        "busbw",
        "by the fabric",
    )
    columns += ("not done",)
    note = _left_out(len(rows), len(items), "jobs", "that come first")
    return TableBlock("jobs", "Jobs", columns, rows, frozenset(columns[1:]), note)


def percentiles(groups: Iterable[dict[str, Any]]) -> TableBlock:
    """Percentiles with their confidence limits, from rows of `fabemu.analysis.tails.tails`."""
    order = ("p50", "p90", "p99", "p99.9", "max")
    found: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for item in groups:
        found.setdefault((item["by"], item["group"], item["figure"]), {})[item["percentile"]] = item
    rows = []
    for (by, group, figure), values in list(found.items())[:ROWS_SHOWN]:
        any_of = next(iter(values.values()))
        name = "completion time" if figure == "fct_ps" else "slowdown"
        cells = [Cell("" if by == "all" else by), Cell(group), Cell(name)]
        cells += [_number(any_of["count"]), _number(any_of["unfinished"])]
        rows.append([*cells, *(_limited(values.get(key), figure) for key in order)])
    columns: tuple[str, ...] = ("by", "group", "figure", "messages", "unfinished", *order)
    note = _left_out(len(rows), len(found), "groups", "that come first")
    note = f"{note} Below each: 95 % confidence limits, as far as there are enough messages.".strip()
    return TableBlock("percentiles", "Percentiles", columns, rows, frozenset(columns[3:]), note)


def _limited(item: dict[str, Any] | None, figure: str) -> Cell:
    if item is None or item["value"] is None:
        return Cell("–", math.inf)
    write = time_text if figure == "fct_ps" else _ratio_text
    text = write(item["value"])
    if item["low"] is not None and item["high"] is not None:
        text += f"\n{write(item['low'])} – {write(item['high'])}"
    return Cell(text, item["value"])


def _ratio_text(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.2f}"


def _left_out(shown: int, total: int | None, what: str, which: str) -> str:
    return f"The {shown:,} {what} {which} of {total:,}." if total is not None and shown < total else ""


def _text(value: str | None) -> Cell:
    return Cell("–" if value is None else value)


def _number(value: int | None) -> Cell:
    return Cell("–", -math.inf) if value is None else Cell(count_text(value), value)


def _size(value: int | None) -> Cell:
    return Cell("–", -math.inf) if value is None else Cell(bytes_text(value), value)


def _time(value: float | None) -> Cell:
    return Cell("–", math.inf) if value is None or math.isnan(value) else Cell(time_text(value), value)


def _ratio(value: float | None) -> Cell:
    return Cell("–", math.inf) if value is None else Cell(f"{value:.2f}", value)


def _rate(value: float | None) -> Cell:
    return Cell("–", -math.inf) if value is None or math.isnan(value) else Cell(rate_text(value), value)


def _share(value: float) -> Cell:
    return Cell("–", -math.inf) if math.isnan(value) else Cell(f"{100 * value:.1f} %", float(value))
