"""Distributions of several settings, one over the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fabemu.errors import InputError
from fabemu.figures.canvas import LEGEND_BELOW, blank, literal, nothing, short
from fabemu.figures.palette import SERIES
from fabemu.figures.scale import time_ticks
from fabemu.report import time_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from fabemu.comparison.result import Comparison

PANELS = (("slowdown", "slowdown (completion time / empty network)"), ("fct_ps", "completion time"))


def compared(comparison: Comparison, workload: str | None = None) -> Figure:
    """Slowdowns and completion times of all settings side by side, as cumulative distributions on log axes.

    Parameters
    ----------
    comparison
        What `fabemu.compare` gave; all seeds of a setting are one curve.
    workload
        Label of the workload; None for all messages.

    Raises
    ------
    InputError
        No setting has messages of this workload, or plotly is not installed.
    """
    chosen = [curve for curve in comparison.curves if curve.workload == workload]
    if workload is not None and not chosen:
        known = dict.fromkeys(curve.workload for curve in comparison.curves if curve.workload is not None)
        raise InputError(f"no setting has messages of a workload {workload!r}; there are {', '.join(known) or 'none'}")
    drawn = [curve for curve in chosen if any(math.isfinite(value) for value in curve.values)]
    if not drawn:
        return nothing("No distributions: no message finished, or the runs have no flows table.")
    names = {group.letter: group.name for group in comparison.groups}
    unfinished = sorted({curve.group for curve in chosen if math.isinf(curve.values[-1])})
    note = f"Messages of {', '.join(unfinished)} did not all finish: these curves end below 100 %."
    figure = blank(430, notes=[note] if unfinished else [])
    for place, (measure, title) in enumerate(PANELS):
        suffix = "" if place == 0 else "2"
        finite: list[float] = []
        for curve in drawn:
            if curve.figure != measure:
                continue
            points = [
                (value, share) for value, share in zip(curve.values, curve.shares, strict=True) if math.isfinite(value)
            ]
            finite += [value for value, _ in points]
            colour = SERIES[list(names).index(curve.group) % len(SERIES)]
            figure.add_scatter(
                x=[value for value, _ in points],
                y=[share for _, share in points],
                name=f"{curve.group}: {short(names[curve.group], 28)} ({curve.count:,})",
                text=[time_text(value) if measure == "fct_ps" else f"{value:.2f}" for value, _ in points],
                mode="lines+markers" if len(points) < 3 else "lines",
                line={"shape": "hv", "color": colour, "width": 2},
                legendgroup=curve.group,
                showlegend=place == 0,
                xaxis=f"x{suffix}",
                yaxis=f"y{suffix}",
                hovertemplate=f"<b>{literal(curve.group)}</b><br>%{{y:.4~p}} took at most %{{text}}<extra></extra>",
            )
        axis = {"type": "log", "title": {"text": title}, "domain": [0.0, 0.47] if place == 0 else [0.55, 1.0]}
        if measure == "fct_ps":
            few = max(finite) < 100 * min(finite)
            places, texts = time_ticks(min(finite), max(finite), (1.0, 2.0, 5.0) if few else (1.0,))
            axis |= {"tickvals": places, "ticktext": texts}
        upright: dict[str, Any] = {"range": [0, 1.02], "tickformat": ".0%", "anchor": f"x{suffix}"}
        if place == 0:
            upright["title"] = {"text": "share of messages"}
        figure.update_layout({f"xaxis{suffix}": axis | {"anchor": f"y{suffix}"}, f"yaxis{suffix}": upright})
    figure.update_layout(legend={**LEGEND_BELOW, "y": -0.2}, hovermode="closest")
    return figure
