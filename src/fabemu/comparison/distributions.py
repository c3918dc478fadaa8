"""Distributions of completion times and slowdowns of whole settings, and how far they are from each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.analysis.fct import COLUMNS, completion_times
from fabemu.comparison.groups import Group
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.result import Run
from fabemu.trace import dictionary_column, read_table, table_path

FIGURES = ("slowdown", "fct_ps")

CURVE_POINTS = 400
"""Most points of a curve: enough for a picture, with every value of the tail."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Cumulative distribution of one figure of the messages of one group, all seeds together.

    Attributes
    ----------
    group
        Letter of the group.
    workload
        Label of the workload; None for all messages.
    figure
        ``slowdown`` or ``fct_ps``.
    count
        Messages, finished or not.
    values
        (points,) ascending; infinite for messages that did not finish.
    shares
        (points,) share of the messages that are at or below the value, in 0 to 1.
    """

    group: str
    workload: str | None
    figure: str
    count: int
    values: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Distance:
    """Two-sample Kolmogorov-Smirnov distance of slowdowns between the baseline and another group.

    It is the greatest difference between the two cumulative distributions, in 0 to 1. No p-value goes with it: messages
    of one run slow each other and are no independent draws.
    """

    group: str  # letter of the other group
    workload: str | None  # None: all messages
    first_count: int  # messages of the baseline
    other_count: int
    distance: float


Samples = dict[tuple[str | None, str], Floats]
"""By workload (None: all) and figure: (messages,) ascending values."""


def samples(group: Group) -> Samples:
    """Values of the counted messages of all runs of a group; empty if none has a flows table.

    Which messages count is said by `fabemu.analysis.fct`.
    """
    parts: dict[tuple[str | None, str], list[Floats]] = {}
    for member in group.members:
        for key, values in _values(member.run):
            parts.setdefault(key, []).append(values)
    return {key: np.sort(np.concatenate(values)) for key, values in parts.items()}


def distance(first: Floats, other: Floats) -> float:
    """Two-sample Kolmogorov-Smirnov statistic of ascending values, which may be infinite.

    Raises
    ------
    ValueError
        One of them is empty.
    """
    if not len(first) or not len(other):
        raise ValueError("a distance needs values on both sides")
    places = np.concatenate([first, other])
    below = [np.searchsorted(values, places, side="right") / len(values) for values in (first, other)]
    return float(np.abs(below[0] - below[1]).max())


def distances(groups: Sequence[Group], values: Sequence[Samples]) -> tuple[Distance, ...]:
    """Distances of slowdowns of every group from the first: of all messages, then of each workload that both have."""
    return tuple(_distances(groups, values))


def _distances(groups: Sequence[Group], values: Sequence[Samples]) -> Iterator[Distance]:
    for group, other in zip(groups[1:], values[1:], strict=True):
        for (workload, figure), first in values[0].items():
            there = other.get((workload, figure))
            if figure != "slowdown" or there is None or not len(first) or not len(there):
                continue
            yield Distance(group.letter, workload, len(first), len(there), distance(first, there))


def curves(groups: Sequence[Group], values: Sequence[Samples]) -> tuple[Curve, ...]:
    """Curves of all groups, by workload and figure."""
    keys = dict.fromkeys(key for column in values for key in column)
    return tuple(
        _curve(group.letter, key, column[key])
        for key in keys
        for group, column in zip(groups, values, strict=True)
        if key in column and len(column[key])
    )


def _curve(letter: str, key: tuple[str | None, str], values: Floats) -> Curve:
    count = len(values)
    ranks = np.arange(1, count + 1)
    if count > CURVE_POINTS:
        # Half of the points evenly, half of them denser towards the end: there the picture is about single messages.
        half = CURVE_POINTS // 2
        even = np.linspace(1, count, half).round().astype(np.int64)
        tail = count + 1 - np.geomspace(1, count, half).round().astype(np.int64)
        ranks = np.unique(np.concatenate([even, tail]))
    workload, figure = key
    return Curve(letter, workload, figure, count, tuple(values[ranks - 1].tolist()), tuple((ranks / count).tolist()))


def _values(run: Run) -> Iterator[tuple[tuple[str | None, str], Floats]]:
    try:
        flows = read_table(table_path(run.directory, "flows"), COLUMNS)
    except InputError:
        return  # said among the notes: its figures are missing as well
    times = completion_times(flows, run.info.get("simulated_ps"))
    _, names = dictionary_column(flows, "label")
    present = [index for index in range(len(names)) if (times["label"] == index).any()]
    for figure in FIGURES:
        known = ~np.isnan(times[figure])
        yield (None, figure), times[figure][known]
        # Of a run with one workload that would be the same again.
        for index in present if len(present) > 1 else ():
            yield (names[index], figure), times[figure][known & (times["label"] == index)]
