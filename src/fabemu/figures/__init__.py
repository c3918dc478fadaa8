"""Figures of a run as `plotly.graph_objects.Figure`, for notebooks and the report.

Each takes a `fabemu.result.Run`. What was left out or joined so that a figure stays readable is in
``figure.layout.meta["notes"]`` (`notes_of`). They are drawn on light ground; `in_dark` gives them on dark.
"""

from __future__ import annotations

from fabemu.figures.budgets import budgets
from fabemu.figures.canvas import notes_of
from fabemu.figures.catalogue import FIGURES, figure
from fabemu.figures.collectives import collectives
from fabemu.figures.compared import compared
from fabemu.figures.completion_times import completion_times
from fabemu.figures.fabric import fabric
from fabemu.figures.palette import in_dark
from fabemu.figures.picture import png
from fabemu.figures.storm_tree import storm_tree
from fabemu.figures.timelines import timelines
from fabemu.figures.training_steps import training_steps

__all__ = [
    "FIGURES",
    "budgets",
    "collectives",
    "compared",
    "completion_times",
    "fabric",
    "figure",
    "in_dark",
    "notes_of",
    "png",
    "storm_tree",
    "timelines",
    "training_steps",
]
