"""Empty figures in the style of this package, and texts in them."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fabemu.errors import InputError
from fabemu.figures.palette import GRID, GROUND, INK, MUTED, OUTLINE, SERIES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def graph_objects() -> ModuleType:
    """The module ``plotly.graph_objects``.

    Raises
    ------
    InputError
        Plotly is not installed.
    """
    try:
        import plotly.graph_objects as module
    except ImportError:
        raise InputError("figures need plotly: install it with pip install 'fabemu[report]'") from None
    return module


def literal(text: object) -> str:
    """A name as plotly shows it as it is: plotly reads tags and entities in every text."""
    return html.escape(_CONTROL.sub("�", str(text)), quote=False)


def short(text: object, characters: int = 40) -> str:
    """`literal`, with the middle of long names left out."""
    name = str(text)
    if len(name) > characters:
        half = (characters - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return literal(name)


def blank(height: int, *, notes: Sequence[str] = (), **layout: Any) -> Figure:
    """A figure without data.

    Parameters
    ----------
    height
        In pixels; the width is that of the place it is shown in.
    notes
        What was left out or joined, in sentences; kept in ``figure.layout.meta["notes"]``.
    layout
        Further keys of plotly's layout.
    """
    go = graph_objects()
    axis = {
        "gridcolor": GRID,
        "linecolor": OUTLINE,
        "tickcolor": OUTLINE,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "title": {"font": {"size": 12, "color": MUTED}, "standoff": 8},
        "tickfont": {"size": 11, "color": MUTED},
    }
    template = go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": INK},
            "paper_bgcolor": GROUND,
            "plot_bgcolor": GROUND,
            "colorway": list(SERIES),
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": GROUND,
                "bordercolor": OUTLINE,
                "font": {"color": INK, "size": 12, "family": FONT},
                "align": "left",
                "namelength": -1,
            },
            "legend": {"font": {"size": 11, "color": INK}, "bgcolor": "rgba(0,0,0,0)"},
            "margin": {"l": 56, "r": 18, "t": 18, "b": 44},
        }
    )
    figure = go.Figure(layout={"template": template, "height": height, "meta": {"notes": list(notes)}})
    figure.update_layout(**layout)
    return figure


def nothing(sentence: str, *, height: int = 160) -> Figure:
    """A figure that says why it shows nothing."""
    figure = blank(height, notes=[sentence])
    figure.add_annotation(
        text=literal(sentence), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font={"color": MUTED}
    )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def notes_of(figure: Figure) -> list[str]:
    """What a figure of this package left out or joined, in sentences."""
    meta = figure.layout.meta or {}
    return list(meta.get("notes", ()))


LEGEND_BELOW: dict[str, Any] = {"orientation": "h", "yanchor": "top", "y": -0.16, "xanchor": "left", "x": 0}
"""A legend in rows below the axis."""
