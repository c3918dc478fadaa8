"""Colours of figures: one set for light ground and one for dark, told apart by colour-blind readers too.

Figures are made in the light colours. Every light colour has its dark counterpart in `DARK`, so that a page can change
the theme of a finished figure by exchanging one for the other. The series are those of Okabe and Ito (2008), darkened
where they would be faint on white; scales go from faint to strong in one hue, and widths of lines follow them.
"""

from __future__ import annotations

from typing import Any

GROUND = "#ffffff"
INK = "#1b2430"
MUTED = "#5c6875"
GRID = "#e4e8ed"
OUTLINE = "#b4bdc8"
IDLE = "#d3d9e0"
HOST = "#8d99a6"
PAUSED = "#e8741c"  # what is stopped: halos of links, roots of storms
UNKNOWN = "#98a2ad"

SERIES = ("#0072b2", "#d98a00", "#009e73", "#c0609a", "#4fa8dc", "#d55e00", "#7a5fc7", "#7d6a3a")
"""Colours of things that are named, in this order."""

USE = ("#b5d3ec", "#7db1dd", "#468dc8", "#1f66aa", "#08396f")
"""Levels of the use of a link, faint to strong."""

PAUSE = ("#fbd9ad", "#f6b466", "#ea8328", "#c25611", "#822f04")
"""Levels of paused time."""

QUEUE = ("#cbe6dc", "#8ecdb6", "#48a98a", "#1b7b60", "#07493a")
"""Levels of the length of a queue."""

LIGHT = (GROUND, INK, MUTED, GRID, OUTLINE, IDLE, HOST, PAUSED, UNKNOWN, *SERIES, *USE, *PAUSE, *QUEUE)

DARK: dict[str, str] = dict(
    zip(
        LIGHT,
        (
            "#161b22",
            "#e6eaf0",
            "#9aa6b4",
            "#2a323c",
            "#566270",
            "#3a4450",
            "#77838f",
            "#ff9a4d",
            "#7c8794",
            *("#4aa8e8", "#f2b134", "#2fc79a", "#e58fc4", "#8fd0f7", "#ff8547", "#a893f0", "#c4ad72"),
            *("#23486e", "#2f6da8", "#4796da", "#86c2f2", "#d6ecff"),
            *("#56310f", "#8d4d16", "#c9752a", "#f7a650", "#ffdfae"),
            *("#1d4a3e", "#2a7560", "#3aa384", "#76cfb3", "#cdf3e5"),
        ),
        strict=True,
    )
)
"""The colour on dark ground of every colour on light ground."""


def in_dark(figure: Any) -> Any:
    """A copy of a figure of this package in the colours for dark ground.

    Parameters
    ----------
    figure
        A `plotly.graph_objects.Figure`.
    """
    return type(figure)(_exchanged(figure.to_plotly_json()))


def _exchanged(value: Any) -> Any:
    if isinstance(value, str):
        return DARK.get(value, value)
    if isinstance(value, dict):
        return {key: _exchanged(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exchanged(item) for item in value]
    return value
