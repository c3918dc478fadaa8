"""Completion times and slowdowns as distributions: the share of messages that took at most so long, or longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fabemu.analysis import fct
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.figures.canvas import LEGEND_BELOW, blank, literal, nothing, short
from fabemu.figures.palette import INK, MUTED, SERIES
from fabemu.figures.scale import ratio_ticks, time_ticks
from fabemu.report import time_text
from fabemu.result import Run
from fabemu.trace import dictionary_column, integer_column, read_table, table_path

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MEASURES = ("fct_ps", "slowdown")
GROUPINGS = ("size", "label", "job", "class", "collective")
"""By what messages are told apart."""

POINTS = 300
"""Most points of one curve; they are values that occurred, at exact ranks."""

_COLUMNS = (*fct.COLUMNS, "job", "class", "collective")


@dataclass(frozen=True, eq=False)
class Curve:
    """One distribution.

    Attributes
    ----------
    name
        Of the group.
    count, unfinished
        Messages, and those of them that never finished: the curve does not reach their share.
    values
        (points,) float64, increasing; ps or a ratio.
    at_most
        (points,) float64, share of all messages, finished or not, that took at most that.
    """

    name: str
    count: int
    unfinished: int
    values: NDArray[np.float64]
    at_most: NDArray[np.float64]


def curves(run: Run, measure: str = "fct_ps", by: str = "size", points: int = POINTS) -> list[Curve]:
    """Distributions of all messages that count, and of the groups of a grouping, the largest first but sizes in order.

    Raises
    ------
    InputError
        No such measure or grouping, or no flows table.
    """
    if measure not in MEASURES:
        raise InputError(f"no measure {measure!r} of messages; there are {', '.join(MEASURES)}")
    if by not in GROUPINGS:
        raise InputError(f"messages are not told apart by {by!r}, but by {', '.join(GROUPINGS)}")
    flows = read_table(table_path(run.directory, "flows"), _COLUMNS)
    times = fct.completion_times(flows, run.info.get("simulated_ps"))
    values = times[measure]
    found = [_curve("all", values, points)]
    group, names = _groups(run, flows, by, times)
    sizes = np.bincount(group[group >= 0], minlength=len(names))
    order = np.arange(len(names)) if by == "size" else np.argsort(-sizes, kind="stable")
    found += [_curve(names[index], values[group == index], points) for index in order.tolist() if sizes[index]]
    return found


def completion_times(run: Run, *, measure: str = "fct_ps", by: str = "size", tail: bool = False) -> Figure:
    """Distributions of completion times or slowdowns on a log axis.

    Parameters
    ----------
    run
        The run; needs its flows table.
    measure
        "fct_ps" or "slowdown".
    by
        "size", "label", "job", "class" or "collective" (its operation and purpose).
    tail
        Show the share that took longer, on a log axis, instead of the share that took at most so long.

    Raises
    ------
    InputError
        As `curves`.
    """
    from plotly.graph_objects import Scatter

    found = curves(run, measure, by)
    drawn = [item for item in found if len(item.values)]
    if not drawn:
        reason = "no message finished" if found[0].count else "no message counts: none was due in the measured time"
        return nothing(f"No completion times: {reason}.")
    shown = drawn[: 1 + len(SERIES)]
    notes = []
    if len(drawn) > len(shown):
        notes.append(f"The {len(shown) - 1} groups with most messages of {len(drawn) - 1} are drawn.")
    if any(len(item.values) < item.count - item.unfinished for item in shown):
        notes.append(f"A curve has at most {POINTS} points: exact ranks, densest in the tail.")
    if found[0].unfinished:
        notes.append(
            f"{found[0].unfinished:,} of {counted(found[0].count, 'message')} did not finish: curves end below 100 %, "
            "as these count as slower than all others."
        )
    figure = blank(430, notes=notes)
    lowest = min(float(item.values[0]) for item in shown)
    highest = max(float(item.values[-1]) for item in shown)
    for index, item in enumerate(shown):
        share = 1 - item.at_most if tail else item.at_most
        keep = share > 1e-12 if tail else np.ones(len(share), np.bool_)
        texts = [time_text(value) if measure == "fct_ps" else f"{value:.2f}" for value in item.values[keep].tolist()]
        name = f"{short(item.name, 28)} ({item.count:,})"
        said = "took longer than" if tail else "took at most"
        figure.add_trace(
            Scatter(
                x=item.values[keep].tolist(),
                y=share[keep].tolist(),
                name=name,
                text=texts,
                mode="lines+markers" if keep.sum() < 3 else "lines",
                line={
                    "shape": "hv",
                    "color": INK if index == 0 else SERIES[index - 1],
                    "width": 2.4 if index == 0 else 1.7,
                    "dash": "dot" if index == 0 else "solid",
                },
                hovertemplate=f"<b>{literal(item.name)}</b><br>%{{y:.4~p}} {said} %{{text}}<extra></extra>",
            )
        )
    if measure == "fct_ps":
        places, texts = time_ticks(lowest, highest)
        figure.update_xaxes(type="log", tickvals=places, ticktext=texts, title_text="completion time")
    else:
        places = ratio_ticks(lowest, highest)
        texts = [f"{place:g}" for place in places]
        title = "slowdown (completion time / that on an empty network)"
        figure.update_xaxes(type="log", tickvals=places, ticktext=texts, title_text=title)
    if tail:
        figure.update_yaxes(type="log", title_text="share of messages that took longer", tickformat=".4~%", dtick=1)
    else:
        figure.update_yaxes(title_text="share of messages", tickformat=".0%", range=[0, 1.02])
    figure.update_layout(legend={**LEGEND_BELOW, "y": -0.2}, hovermode="closest")
    figure.update_xaxes(spikecolor=MUTED)
    return figure


def _groups(
    run: Run, flows: pa.Table, by: str, times: dict[str, NDArray[np.float64]]
) -> tuple[NDArray[np.int64], list[str]]:
    """(messages that count,) number of the group of each, -1 for none, and the names of the groups."""
    rows = times["row"]
    if by == "size":
        limits = np.array([largest for _, largest in fct.SIZE_CLASSES[:-1]], dtype=np.int64)
        return np.searchsorted(limits, times["bytes"], side="left"), [name for name, _ in fct.SIZE_CLASSES]
    if by != "collective":
        index, names = dictionary_column(flows, by)
        return index[rows], names
    number = integer_column(flows, "collective")[rows]
    try:
        ran = read_table(table_path(run.directory, "collectives"), ("collective", "operation", "purpose"))
    except InputError:
        return np.full(len(rows), -1, dtype=np.int64), []
    kinds = [
        item["operation"] if item["purpose"] is None else f"{item['operation']} ({item['purpose']})"
        for item in ran.to_pylist()
    ]
    names = list(dict.fromkeys(kinds))
    kind_of = np.full(max(int(number.max(initial=-1)), *ran.column("collective").to_pylist(), 0) + 1, -1, np.int64)
    kind_of[integer_column(ran, "collective")] = [names.index(kind) for kind in kinds]
    return np.where(number >= 0, kind_of[np.maximum(number, 0)], -1), names


def _curve(name: str, values: NDArray[np.float64], points: int) -> Curve:
    known = values[~np.isnan(values)]
    finite = np.sort(known[np.isfinite(known)])
    ranks = _ranks(len(finite), points)
    return Curve(
        name=name,
        count=len(known),
        unfinished=len(known) - len(finite),
        values=finite[ranks - 1],
        at_most=ranks / max(len(known), 1),
    )


def _ranks(count: int, points: int) -> NDArray[np.int64]:
    """Ranks 1 to `count` to draw: all, or half of the points evenly and half of them denser towards the tail."""
    if count <= points:
        return np.arange(1, count + 1)
    half = points // 2
    even = np.linspace(1, count, half)
    tail = count + 1 - np.geomspace(1, count, points - half)
    return np.unique(np.concatenate([even, tail]).round().astype(np.int64))
