"""Where the time of the slowest messages went, as stacked bars that add up to their completion times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabemu.analysis.budget import PARTS, budget, slowest_ops
from fabemu.figures.canvas import blank, literal, nothing, short
from fabemu.figures.palette import HOST, IDLE, MUTED, OUTLINE, PAUSED, SERIES, UNKNOWN
from fabemu.figures.scale import time_unit
from fabemu.report import bytes_text, time_text
from fabemu.result import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MESSAGES_SHOWN = 20

COLOURS = {
    "serialisation_ps": UNKNOWN,
    "propagation_ps": OUTLINE,
    "latency_ps": IDLE,
    "queueing_ps": SERIES[0],
    "paused_ps": PAUSED,
    "contention_ps": SERIES[4],
    "pacing_ps": SERIES[2],
    "retransmission_ps": SERIES[5],
    "queue_pair_ps": SERIES[6],
    "request_ps": SERIES[7],
    "reordering_ps": SERIES[3],
    "receiver_ps": SERIES[1],
    "scale_up_ps": HOST,
}
"""What cannot be helped is grey."""


def budgets(run: Run, ops: Sequence[int] | None = None) -> Figure:
    """A bar per message, split into what its completion time was spent on.

    Parameters
    ----------
    run
        Recorded with ``--trace budget`` or ``--trace packets``.
    ops
        Messages, by `op` of the flows table; None: the slowest that were delivered.

    Raises
    ------
    InputError
        As `fabemu.analysis.budget.budget` does.
    """
    from plotly.graph_objects import Bar

    chosen = slowest_ops(run, MESSAGES_SHOWN) if ops is None else list(ops)
    table = budget(run, chosen)
    by_op = {row["op"]: row for row in table.to_pylist()}
    notes = [str(note) for note in json.loads((table.schema.metadata or {}).get(b"fabemu.notes", b"[]"))]
    rows = [by_op[op] for op in chosen]
    known = [row for row in rows if row[PARTS[0]] is not None]
    if not known:
        return nothing("No message was delivered whose way was recorded.")
    if len(known) < len(rows):
        notes.append(f"{len(rows) - len(known):,} messages are left out: not all of their way was recorded.")
    if ops is None:
        notes.append(f"The {len(known):,} messages with the longest completion times.")
    unit = time_unit(float(max(row["total_ps"] for row in known)))
    figure = blank(max(220, 130 + 24 * len(known)), notes=notes)
    for part in sorted(PARTS, key=list(COLOURS).index):
        values = [row[part] for row in known]
        if not any(values):
            continue
        title = part.removesuffix("_ps").replace("_", " ")
        figure.add_trace(
            Bar(
                orientation="h",
                x=[value / unit.divisor for value in values],
                y=list(range(len(known))),
                name=title,
                text=[
                    f"<b>op {row['op']}, {literal(row['src'])} → {literal(row['dst'])}</b><br>"
                    f"{literal(row['label'])}, {bytes_text(row['bytes'])}, {time_text(row['total_ps'])} in all<br>"
                    f"{title} {time_text(value)} ({value / max(row['total_ps'], 1):.1%})"
                    for row, value in zip(known, values, strict=True)
                ],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
                marker={"color": COLOURS[part], "line": {"width": 0}},
            )
        )
    names = [f"{row['op']}: {short(row['src'], 16)} → {short(row['dst'], 16)}" for row in known]
    figure.update_layout(
        barmode="stack",
        bargap=0.25,
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 11, "color": MUTED}},
        margin={"l": 56, "r": 18, "t": 40, "b": 44},
    )
    figure.update_yaxes(tickvals=list(range(len(known))), ticktext=names, autorange="reversed", showgrid=False)
    figure.update_xaxes(title_text=f"completion time ({unit.name})", rangemode="tozero")
    return figure
