"""Collectives of every job over time, one bar each, with the training steps above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fabemu.errors import InputError
from fabemu.figures.canvas import blank, literal, nothing, short
from fabemu.figures.palette import OUTLINE, SERIES, UNKNOWN
from fabemu.figures.scale import time_unit
from fabemu.report import bytes_text, rate_text, time_text
from fabemu.result import Run
from fabemu.trace import read_table, table_path

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BARS_SHOWN = 1500
LANES_SHOWN = 12
"""Most bars above each other of one workload and operation."""


def collectives(run: Run) -> Figure:
    """A bar from the start to the end of every collective, by workload and operation; steps of training on top.

    Raises
    ------
    InputError
        The run has no collectives table.
    """
    rows = read_table(table_path(run.directory, "collectives")).to_pylist()
    end_ps = run.info.get("simulated_ps") or max((row["end_ps"] or 0 for row in rows), default=0)
    begun = [row for row in rows if row["start_ps"] is not None]
    if not begun:
        return nothing("No collective began.")
    unit = time_unit(float(end_ps))
    notes: list[str] = []
    if len(begun) > BARS_SHOWN:
        # The longest are what to look at; those left out are the shortest ones.
        begun = sorted(begun, key=lambda row: -((row["end_ps"] or end_ps) - row["start_ps"]))[:BARS_SHOWN]
        notes.append(f"The {BARS_SHOWN:,} longest collectives of {len(rows):,} are drawn.")
    unfinished = sum(row["end_ps"] is None for row in begun)
    if unfinished:
        notes.append(f"{unfinished:,} that did not end are drawn, hatched, up to the end of the run.")
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in begun:
        groups.setdefault((row["job"] or "", row["label"], row["operation"], row["purpose"] or ""), []).append(row)
    steps = _steps(run)
    lanes: list[tuple[str, int]] = []  # of every block from the top: its name and how many lanes it has
    figure = blank(300, notes=notes)
    kinds = list(dict.fromkeys((key[2], key[3]) for key in groups))
    base = 0
    for label, items in steps.items():
        _add_steps(figure, items, base, end_ps, unit.divisor)
        lanes.append((f"{short(label, 22)} · steps", 1))
        base += 1
    hidden = 0
    for key in sorted(groups, key=lambda item: (item[0], item[1])):
        job, label, operation, purpose = key
        members, lane, left = _packed(groups[key], end_ps)
        hidden += left
        colour = SERIES[kinds.index((operation, purpose)) % len(SERIES)] if kinds else UNKNOWN
        _add_bars(figure, members, [base + number for number in lane], end_ps, unit.divisor, colour)
        count = max(lane, default=0) + 1
        what = f"{operation} ({purpose})" if purpose else operation
        lanes.append((f"{short(f'{job} · {label}' if job and job != label else label, 26)}<br>{literal(what)}", count))
        base += count
    if hidden:
        notes.append(f"{hidden:,} that ran beside {LANES_SHOWN} others of their kind are left out.")
        figure.update_layout(meta={"notes": notes})
    places, texts, edges, top = [], [], [], 0
    for name, count in lanes:
        places.append(top + (count - 1) / 2)
        texts.append(name)
        top += count
        edges.append(top - 0.5)
    for edge in edges[:-1]:
        figure.add_hline(y=edge, line={"color": OUTLINE, "width": 0.8})
    figure.update_layout(
        height=max(200, min(980, 90 + sum(max(34, 16 * count) for _, count in lanes))),
        barmode="overlay",
        showlegend=False,
        bargap=0.22,
        hovermode="closest",
    )
    figure.update_yaxes(tickvals=places, ticktext=texts, range=[top - 0.5, -0.5], showgrid=False)
    figure.update_xaxes(title_text=f"time ({unit.name})", range=[0, end_ps / unit.divisor])
    return figure


def _packed(rows: Sequence[dict[str, Any]], end_ps: int) -> tuple[list[dict[str, Any]], list[int], int]:
    """Collectives with the lane of each, such that none overlap in a lane, and how many found no lane."""
    free_ps: list[int] = []
    chosen, lanes, left = [], [], 0
    for row in sorted(rows, key=lambda item: (item["start_ps"], item["collective"])):
        start_ps, stop_ps = row["start_ps"], row["end_ps"] or end_ps
        lane = next((number for number, time_ps in enumerate(free_ps) if time_ps <= start_ps), len(free_ps))
        if lane >= LANES_SHOWN:
            left += 1
            continue
        if lane == len(free_ps):
            free_ps.append(0)
        free_ps[lane] = stop_ps
        chosen.append(row)
        lanes.append(lane)
    return chosen, lanes, left


def _add_bars(
    figure: Figure, rows: Sequence[dict[str, Any]], lanes: Sequence[int], end_ps: int, divisor: float, colour: str
) -> None:
    from plotly.graph_objects import Bar

    texts = []
    for row in rows:
        lines = [f"<b>{literal(row['label'])}: {row['operation']} {row['iteration']}</b>"]
        if row["job"] is not None:
            lines.append(f"job {literal(row['job'])}")
        lines.append(f"{row['ranks']} ranks, {bytes_text(row['bytes'])}, {row['algorithm']}")
        if row["time_ps"] is None:
            lines.append("did not end")
        else:
            beside = "" if row["ideal_ps"] is None else f" (at least {time_text(row['ideal_ps'])})"
            lines.append(f"{time_text(row['time_ps'])}{beside}")
        lines.append(f"from {time_text(row['start_ps'])}")
        if row["busbw_bps"] is not None:
            lines.append(f"busbw {rate_text(row['busbw_bps'])}")
        if row["last_host"] is not None:
            lines.append(f"last: {literal(row['last_host'])}")
        texts.append("<br>".join(lines))
    figure.add_trace(
        Bar(
            orientation="h",
            base=[row["start_ps"] / divisor for row in rows],
            x=[((row["end_ps"] or end_ps) - row["start_ps"]) / divisor for row in rows],
            y=list(lanes),
            text=texts,
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            marker={
                "color": colour,
                "pattern": {"shape": ["/" if row["end_ps"] is None else "" for row in rows]},
                "line": {"width": 0},
            },
            width=0.72,
        )
    )


def _steps(run: Run) -> dict[str, list[dict[str, Any]]]:
    try:
        rows = read_table(table_path(run.directory, "steps")).to_pylist()
    except InputError:
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["start_ps"] is not None:
            found.setdefault(row["label"], []).append(row)
    return found


def _add_steps(figure: Figure, rows: Sequence[dict[str, Any]], lane: int, end_ps: int, divisor: float) -> None:
    from plotly.graph_objects import Bar

    texts = []
    for row in rows:
        lines = [f"<b>{literal(row['label'])}: step {row['step']}</b>"]
        if row["step_ps"] is None:
            lines.append("did not end")
        else:
            lines.append(time_text(row["step_ps"]))
            lines.append(f"computing {time_text(row['compute_ps'])}, waiting {time_text(row['exposed_ps'])}")
        texts.append("<br>".join(lines))
    figure.add_trace(
        Bar(
            orientation="h",
            base=[row["start_ps"] / divisor for row in rows],
            x=[((row["end_ps"] or end_ps) - row["start_ps"]) / divisor for row in rows],
            y=[lane] * len(rows),
            text=texts,
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            marker={
                "color": [OUTLINE if row["step"] % 2 else UNKNOWN for row in rows],
                "line": {"width": 0},
            },
            width=0.72,
        )
    )
