"""What the ranks of training workloads spent their steps on, as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabemu.figures.canvas import LEGEND_BELOW, blank, literal, nothing, short
from fabemu.figures.palette import SERIES, UNKNOWN
from fabemu.figures.scale import time_unit
from fabemu.report import time_text
from fabemu.result import Run
from fabemu.trace import PURPOSES, read_table, table_path

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEPS_SHOWN = 60
PARTS = ("compute", *PURPOSES)
_TITLES = {"compute": "computing", **{name: f"waiting: {name}" for name in PURPOSES}}


def training_steps(run: Run) -> Figure:
    """A bar per step: computing, and waiting for each kind of communication; means over the ranks.

    Raises
    ------
    InputError
        The run has no steps table.
    """
    from plotly.graph_objects import Bar

    rows = read_table(table_path(run.directory, "steps")).to_pylist()
    ended = [row for row in rows if row["step_ps"] is not None]
    if not ended:
        return nothing("No training step came to its end.")
    notes = []
    if len(ended) < len(rows):
        notes.append(f"{len(rows) - len(ended):,} steps did not end and are left out.")
    if len(ended) > STEPS_SHOWN:
        notes.append(f"The first {STEPS_SHOWN} steps of {len(ended):,} are drawn.")
        ended = ended[:STEPS_SHOWN]
    unit = time_unit(float(max(row["step_ps"] for row in ended)))
    several = len({row["label"] for row in ended}) > 1
    names = [f"{short(row['label'], 18)} {row['step']}" if several else f"step {row['step']}" for row in ended]
    figure = blank(max(170, 110 + 26 * len(ended)), notes=notes)
    for index, part in enumerate(PARTS):
        values = [row[f"{part}_ps"] or 0 for row in ended]
        if not any(values):
            continue
        figure.add_trace(
            Bar(
                orientation="h",
                x=[value / unit.divisor for value in values],
                y=list(range(len(ended))),
                name=_TITLES[part],
                text=[
                    f"<b>{literal(row['label'])}, step {row['step']}</b><br>{_TITLES[part]} {time_text(value)} "
                    f"({value / max(row['step_ps'], 1):.1%})"
                    for row, value in zip(ended, values, strict=True)
                ],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
                marker={"color": UNKNOWN if part == "compute" else SERIES[index - 1], "line": {"width": 0}},
            )
        )
    figure.update_layout(
        barmode="stack",
        bargap=0.3,
        hovermode="closest",
        legend={**LEGEND_BELOW, "y": 1.0, "yanchor": "bottom"},
        margin={"l": 56, "r": 18, "t": 44, "b": 44},
    )
    figure.update_yaxes(tickvals=list(range(len(ended))), ticktext=names, autorange="reversed", showgrid=False)
    figure.update_xaxes(title_text=f"time ({unit.name}), mean over the ranks")
    return figure
