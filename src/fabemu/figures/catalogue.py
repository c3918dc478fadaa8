"""Figures by name, for those who ask for one."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fabemu.errors import InputError
from fabemu.figures.budgets import budgets
from fabemu.figures.collectives import collectives
from fabemu.figures.completion_times import completion_times
from fabemu.figures.fabric import fabric
from fabemu.figures.storm_tree import storm_tree
from fabemu.figures.timelines import timelines
from fabemu.figures.training_steps import training_steps
from fabemu.result import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Entry(NamedTuple):
    """A figure: how it is made of a run, and what it shows."""

    make: Callable[[Run], Figure]
    meaning: str


FIGURES: dict[str, Entry] = {
    "fabric": Entry(lambda run: fabric(run, slider=False), "links by their use, over the whole run"),
    "fabric-queue": Entry(lambda run: fabric(run, measure="queue", slider=False), "links by their longest queue"),
    "fabric-paused": Entry(lambda run: fabric(run, measure="paused", slider=False), "links by the time paused"),
    "completion-times": Entry(completion_times, "distributions of completion times by size"),
    "completion-times-by-workload": Entry(
        lambda run: completion_times(run, by="label"), "distributions of completion times by workload"
    ),
    "slowdown": Entry(lambda run: completion_times(run, measure="slowdown"), "distributions of slowdowns by size"),
    "tail": Entry(
        lambda run: completion_times(run, measure="slowdown", tail=True), "share of messages slowed down more"
    ),
    "timelines": Entry(timelines, "use, queue and paused time of the ports used most"),
    "timelines-queue": Entry(lambda run: timelines(run, rank="queue"), "the same of those with the longest queue"),
    "timelines-paused": Entry(lambda run: timelines(run, rank="paused"), "the same of those paused longest"),
    "storm-tree": Entry(storm_tree, "the storm with most paused time as a tree"),
    "collectives": Entry(collectives, "collectives and training steps over time"),
    "budgets": Entry(budgets, "where the time of the slowest messages went"),
    "training-steps": Entry(training_steps, "what ranks spent training steps on"),
}
"""Names of all figures."""


def figure(run: Run, name: str) -> Figure:
    """A figure by its name.

    Raises
    ------
    InputError
        No such figure, or the run lacks what it needs.
    """
    return entry(name).make(run)


def entry(name: str) -> Entry:
    """What makes a figure.

    Raises
    ------
    InputError
        No such figure; the message lists those there are.
    """
    if name not in FIGURES:
        near = difflib.get_close_matches(name, FIGURES, 1)
        hint = f"did you mean {near[0]!r}? The figures" if near else "the figures"
        raise InputError(f"no figure {name!r}; {hint} are {', '.join(FIGURES)}")
    return FIGURES[name]
