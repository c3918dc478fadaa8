"""Use, queue and paused time of the ports that matter, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.errors import InputError
from fabemu.figures.canvas import blank, literal, nothing, short
from fabemu.figures.palette import SERIES
from fabemu.figures.port_series import MEASURES, PortSeries, port_series
from fabemu.figures.scale import size_unit, time_unit
from fabemu.report import bytes_text, time_text
from fabemu.result import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

INTERVALS_SHOWN = 200
PORTS_SHOWN = 6
_TITLES = {"use": "use of the link", "queue": "longest queue", "paused": "time paused"}
_RANKED = {"use": "used most", "queue": "with the longest queue", "paused": "paused longest"}


def top_ports(series: PortSeries, rank: str, row: int = 0, limit: int = PORTS_SHOWN) -> list[int]:
    """Ports with the greatest value of a measure over the run, those with none left out."""
    values = series.whole(rank, row)
    order = np.argsort(-values, kind="stable")[:limit]
    return [port for port in order.tolist() if values[port] > 0]


def timelines(
    run: Run,
    *,
    rank: str = "use",
    class_name: str | None = None,
    limit: int = PORTS_SHOWN,
    series: PortSeries | None = None,
) -> Figure:
    """Three panels over time: use, longest queue and paused share of the ports that lead in one of them.

    Parameters
    ----------
    run
        The run; needs its ports table.
    rank
        "use", "queue" or "paused": by what ports are chosen.
    class_name
        Only this class; None: all together.
    limit
        How many ports.
    series
        What `port_series` gave for this run, to save reading it again.

    Raises
    ------
    InputError
        No such measure or class, or no ports table.
    """
    from plotly.graph_objects import Scatter

    if rank not in MEASURES:
        raise InputError(f"no measure {rank!r} of ports; there are {', '.join(MEASURES)}")
    if series is None:
        series = port_series(run, INTERVALS_SHOWN)
    try:
        row = series.row(class_name)
    except ValueError:
        known = ", ".join(series.classes) or "none"
        raise InputError(f"no class {class_name!r} in the ports table; there are {known}") from None
    if limit < 1:
        raise InputError(f"limit = {limit}: at least one port must be drawn")
    chosen = top_ports(series, rank, row, min(limit, len(SERIES)))
    if not chosen:
        what = {"use": "sent anything", "queue": "had a queue", "paused": "was paused"}[rank]
        return nothing(f"No port {what}{'' if class_name is None else f' in class {class_name}'}.")
    active = int(np.count_nonzero(series.whole(rank, row)))
    notes = [f"The {len(chosen)} ports {_RANKED[rank]} of {active:,} with any."] if active > len(chosen) else []
    if series.joined > 1:
        notes.append(
            f"{series.joined} sampling intervals each are joined to one point of "
            f"{time_text(int(series.length_ps[0]))}: mean use, longest queue."
        )
    figure = blank(620, notes=notes)
    unit = time_unit(float(series.edges_ps[-1]))
    longest = max(float(series.line("queue", port, row).max(initial=0.0)) for port in chosen)
    sizes = size_unit(longest)
    x = (series.edges_ps / unit.divisor).tolist()
    for index, port in enumerate(chosen):
        for panel, measure in enumerate(MEASURES, start=1):
            values = series.line(measure, port, row)
            scaled = values / sizes.divisor if measure == "queue" else values
            if measure == "queue":
                texts = [bytes_text(value) for value in values.tolist()]
            else:
                texts = [f"{100 * value:.1f} %" for value in values.tolist()]
            figure.add_trace(
                Scatter(
                    # The last value is drawn to the end of its interval.
                    x=x,
                    y=[*scaled.round(6).tolist(), float(scaled[-1])],
                    text=[*texts, texts[-1]],
                    xaxis="x",
                    yaxis="y" if panel == 1 else f"y{panel}",
                    name=short(series.ports[port]),
                    legendgroup=str(index),
                    showlegend=panel == 1,
                    mode="lines",
                    line={"shape": "hv", "width": 1.8, "color": SERIES[index]},
                    hovertemplate=f"<b>{literal(series.ports[port])}</b><br>{_TITLES[measure]} %{{text}}"
                    f"<br>from %{{x:.5~g}} {unit.name}<extra></extra>",
                )
            )
    figure.update_layout(_panels(unit.name, sizes.name))
    return figure


def _panels(time_name: str, size_name: str) -> dict[str, Any]:
    share = {"tickformat": ".0%", "rangemode": "tozero"}
    return {
        "xaxis": {"title": {"text": f"time ({time_name})"}, "anchor": "y3", "rangemode": "tozero"},
        "yaxis": {"domain": [0.70, 1.0], "title": {"text": "use"}, **share},
        "yaxis2": {"domain": [0.35, 0.65], "title": {"text": f"queue ({size_name})"}, "rangemode": "tozero"},
        "yaxis3": {"domain": [0.0, 0.30], "title": {"text": "paused"}, **share},
        "legend": {"orientation": "h", "x": 0, "y": -0.12, "yanchor": "top"},
        "hovermode": "closest",
    }
