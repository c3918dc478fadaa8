"""The fabric, its links coloured by what they carried or how long they were paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.figures.canvas import blank, literal
from fabemu.figures.devices import devices_of
from fabemu.figures.folding import HOSTS_SHOWN, LINKS_SHOWN, Folded, folded
from fabemu.figures.link_loads import LinkLoads, link_loads
from fabemu.figures.palette import GROUND, HOST, IDLE, INK, MUTED, OUTLINE, PAUSE, PAUSED, QUEUE, USE
from fabemu.figures.placement import Placement, placed
from fabemu.figures.port_series import MEASURES, PortSeries, port_series
from fabemu.report import bytes_text, time_text
from fabemu.result import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SCALES = {"use": USE, "queue": QUEUE, "paused": PAUSE}
TITLES = {"use": "use of the link", "queue": "longest queue", "paused": "time paused"}
STEPS = {"use": (0.2, 0.4, 0.6, 0.8), "paused": (0.05, 0.2, 0.4, 0.7)}
"""Where the levels of a share end; those of queues are fifths of the longest."""

WIDTHS = (0.8, 1.4, 2.1, 2.9, 3.8, 4.8)
"""Pixels of an idle link and of the five levels."""

INTERVALS_SHOWN = 100
_LABEL_PIXELS = 1080
_ROOMY_PIXELS = 860  # beyond it labels of a rank are smaller
_CHARACTER_PIXELS = 6.0


@dataclass(frozen=True, eq=False)
class FabricView:
    """All that is needed to draw the fabric at any time.

    Attributes
    ----------
    fabric, placement, series, loads
        What is drawn, where, and what it carried.
    x, y
        (2 x links, 2) float64, the half of a link that shows each direction: from the sender to the middle.
    """

    fabric: Folded
    placement: Placement
    series: PortSeries
    loads: LinkLoads
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    def limits(self, measure: str) -> tuple[float, ...]:
        """Where the lower four of the five levels of a measure end."""
        if measure in STEPS:
            return STEPS[measure]
        longest = float(self.loads.values[measure].max(initial=0.0))
        return tuple(longest * fifth / 5 for fifth in range(1, 5))

    def level_names(self, measure: str) -> list[str]:
        """What the idle and the five levels of a measure mean."""
        limits = self.limits(measure)
        if measure == "queue":
            longest = float(self.loads.values[measure].max(initial=0.0))
            ends = [bytes_text(limit) for limit in (*limits, longest)]
            return ["empty", f"up to {ends[0]}", *(f"to {end}" for end in ends[1:])]
        ends = [f"{100 * limit:.0f}" for limit in (*limits, 1.0)]
        starts = ["0", *ends[:-1]]
        idle = "not paused" if measure == "paused" else "idle"
        return [idle, *(f"{start}–{end} %" for start, end in zip(starts, ends, strict=True))]

    def levels(self, measure: str, interval: int, row: int = 0) -> NDArray[np.int64]:
        """(2 x links,) 0 where nothing is, else 1 to 5."""
        values = self.loads.values[measure][row, interval]
        return np.where(values > 0, np.searchsorted(self.limits(measure), values, side="left") + 1, 0)


def fabric_view(
    run: Run, *, hosts: int = HOSTS_SHOWN, links: int = LINKS_SHOWN, intervals: int = INTERVALS_SHOWN
) -> FabricView:
    """Fold the fabric of a run, place it, and gather what its links carried.

    Raises
    ------
    InputError
        There is no ports table, or neither scenario nor table tells the devices.
    """
    series = port_series(run, intervals)
    fabric = folded(devices_of(run), hosts=hosts, links=links)
    placement = placed(fabric)
    ends = fabric.links
    halves = []
    for place in (placement.x, placement.y):
        centre = (place[ends[:, 0]] + place[ends[:, 1]]) / 2
        both = np.stack([np.stack([place[ends[:, side]], centre], axis=1) for side in (0, 1)], axis=1)
        halves.append(both.reshape(-1, 2))
    return FabricView(fabric, placement, series, link_loads(fabric, series), halves[0], halves[1])


def fabric(run: Run, *, measure: str = "use", class_name: str | None = None, slider: bool = True) -> Figure:
    """The fabric of a run.

    The half of a link next to a device shows what that device sends. Links that were paused have a halo.

    Parameters
    ----------
    run
        The run; needs its ports table.
    measure
        "use", "queue" or "paused".
    class_name
        Only this class; None: all together.
    slider
        Add a slider over the intervals; the figure itself shows the whole run.

    Raises
    ------
    InputError
        No such measure or class, or no ports table.
    """
    if measure not in MEASURES:
        raise InputError(f"no measure {measure!r} of links; there are {', '.join(MEASURES)}")
    view = fabric_view(run, intervals=60)
    try:
        row = view.series.row(class_name)
    except ValueError:
        known = ", ".join(view.series.classes) or "none"
        raise InputError(f"no class {class_name!r} in the ports table; there are {known}") from None
    figure = base_figure(view)
    for index, values in enumerate(_moving(view, measure, 0, row)):
        figure.data[index].update(values)
    if slider:
        _add_slider(figure, view, measure, row)
    return figure


def base_figure(view: FabricView) -> Figure:
    """Nodes and labels, with the traces of links still empty: a halo, six levels, and points that tell on hover."""
    from plotly.graph_objects import Scatter

    ring = view.placement.ring
    figure = blank(640 if ring else 460, notes=notes(view))
    count = len(view.x)
    slim = 0.55 if count > 400 else 1.0
    line: dict[str, Any] = {"mode": "lines", "hoverinfo": "skip"}
    figure.add_trace(
        Scatter(x=[], y=[], name="paused", line={"color": PAUSED, "width": 7.5 * slim}, opacity=0.42, **line)
    )
    for level, colour in enumerate((IDLE, *USE)):
        figure.add_trace(
            Scatter(
                x=[], y=[], name=str(level), line={"color": colour, "width": max(WIDTHS[level] * slim, 0.7)}, **line
            )
        )
    figure.add_trace(
        Scatter(
            x=(view.x[:, 0] * 0.62 + view.x[:, 1] * 0.38).round(5).tolist(),
            y=(view.y[:, 0] * 0.62 + view.y[:, 1] * 0.38).round(5).tolist(),
            mode="markers",
            marker={"size": 12, "color": INK, "opacity": 0},
            hovertemplate="%{text}<extra></extra>",
            showlegend=False,
        )
    )
    _add_nodes(figure, view)
    figure.update_xaxes(visible=False, fixedrange=False)
    figure.update_yaxes(visible=False)
    if ring:
        figure.update_yaxes(scaleanchor="x")
        figure.update_xaxes(range=[-1.2, 1.2])
        figure.update_yaxes(range=[-1.1, 1.1])
    else:
        figure.update_xaxes(range=[-0.02, 1.02])
        figure.update_yaxes(range=[-0.1, 1.1])
    figure.update_layout(
        legend={"orientation": "h", "x": 0, "y": -0.02, "yanchor": "top", "itemclick": False, "itemdoubleclick": False},
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="closest",
        dragmode="pan",
    )
    return figure


def _moving(view: FabricView, measure: str, interval: int, row: int) -> list[dict[str, Any]]:
    """What changes with time of the first eight traces: halo, levels, hover texts."""
    levels = view.levels(measure, interval, row)
    stopped = view.loads.values["paused"][row, interval] > 0
    names = view.level_names(measure)
    found: list[dict[str, Any]] = [{**_lines(view, stopped), "showlegend": bool(stopped.any())}]
    for level in range(6):
        colour = IDLE if level == 0 else SCALES[measure][level - 1]
        found.append({**_lines(view, levels == level), "name": names[level], "line": {"color": colour}})
    found.append({"text": _told(view, interval, row)})
    return found


def _lines(view: FabricView, chosen: NDArray[np.bool_]) -> dict[str, list[float | None]]:
    """Halves of links as one line with gaps; a lone gap keeps an empty level in the legend."""
    x, y = view.x[chosen].round(5).tolist(), view.y[chosen].round(5).tolist()
    return {
        "x": [value for half in x for value in (*half, None)] or [None],
        "y": [value for half in y for value in (*half, None)] or [None],
    }


def _told(view: FabricView, interval: int, row: int) -> list[str]:
    loads, names = view.loads, view.fabric.names
    use, queue, paused = (loads.values[name][row, interval] for name in MEASURES)
    texts = []
    for half in range(len(view.x)):
        link, back = divmod(half, 2)
        sender, receiver = view.fabric.links[link][:: -1 if back else 1].tolist()
        lines = [f"<b>{literal(names[sender])} → {literal(names[receiver])}</b>"]
        if loads.ports[half] > 1:
            lines.append(f"{loads.ports[half]:,} cables; of the greatest:")
        lines.append(f"use {100 * use[half]:.1f} %, queue up to {bytes_text(queue[half])}")
        lines.append(f"paused {100 * paused[half]:.1f} % of the time")
        texts.append("<br>".join(lines))
    return texts


def _add_nodes(figure: Figure, view: FabricView) -> None:
    from plotly.graph_objects import Scatter

    fabric, place = view.fabric, view.placement
    for hosts in (False, True):
        chosen = np.flatnonzero((fabric.ranks <= 0) if hosts else (fabric.ranks > 0))
        texts = []
        for node in chosen.tolist():
            many = int(fabric.members[node])
            kind = "host" if hosts else f"{literal(fabric.tiers[node])} switch".strip()
            what = counted(many, kind) if many > 1 else kind
            texts.append(f"<b>{literal(fabric.names[node])}</b><br>{what}")
        figure.add_trace(
            Scatter(
                x=place.x[chosen].round(5).tolist(),
                y=place.y[chosen].round(5).tolist(),
                mode="markers",
                text=texts,
                hovertemplate="%{text}<extra></extra>",
                marker={
                    "symbol": "circle" if hosts else "square",
                    "size": 7 if hosts and len(chosen) > 40 else 10,
                    "color": HOST if hosts else GROUND,
                    "line": {"color": GROUND if hosts else MUTED, "width": 1 if hosts else 1.5},
                },
                showlegend=False,
            )
        )
    for rank in np.unique(fabric.ranks).tolist():
        mine = np.flatnonzero(fabric.ranks == rank)
        names = [fabric.names[node] for node in mine.tolist()]
        if not view.placement.ring:
            needed = sum(len(name) * _CHARACTER_PIXELS + 11 for name in names)
            if needed > _LABEL_PIXELS:
                continue
            tight = needed > _ROOMY_PIXELS
        elif rank <= 0 or len(mine) > 40:
            continue
        else:
            tight = False
        for node, name in zip(mine.tolist(), names, strict=True):
            below = rank <= 0 and not view.placement.ring
            figure.add_annotation(
                x=round(float(place.x[node]), 5),
                y=round(float(place.y[node]), 5),
                text=literal(name),
                showarrow=False,
                yshift=-15 if below else 0,
                font={"size": 9 if tight else 11, "color": MUTED if below else INK},
                bgcolor="rgba(0,0,0,0)" if below else GROUND,
                bordercolor="rgba(0,0,0,0)" if below else OUTLINE,
                borderwidth=0 if below else 1,
                borderpad=1 if below else 2 if tight else 4,
            )


def _add_slider(figure: Figure, view: FabricView, measure: str, row: int) -> None:
    from plotly.graph_objects import Frame, Scatter

    edges = view.series.edges_ps
    names = ["whole run", *(f"from {time_text(edge)}" for edge in edges[:-1].tolist())]
    moving = list(range(8))
    figure.frames = [
        Frame(
            name=str(interval),
            traces=moving,
            data=[Scatter(**values) for values in _moving(view, measure, interval, row)],
        )
        for interval in range(len(names))
    ]
    steps = [
        {
            "label": name,
            "method": "animate",
            "args": [[str(interval)], {"mode": "immediate", "frame": {"duration": 0}, "transition": {"duration": 0}}],
        }
        for interval, name in enumerate(names)
    ]
    figure.update_layout(
        sliders=[{"steps": steps, "active": 0, "pad": {"t": 36}, "currentvalue": {"prefix": ""}}],
        height=figure.layout.height + 90,
    )


def notes(view: FabricView) -> list[str]:
    """What was folded or joined, in sentences."""
    said = list(view.fabric.notes)
    series = view.series
    if series.joined > 1:
        said.append(
            f"{series.joined} sampling intervals each are joined to {series.intervals} of "
            f"{time_text(int(series.length_ps[0]))}: mean use, longest queue."
        )
    return said
