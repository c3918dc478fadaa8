"""Figures of settings side by side: medians over the seeds, and their change against the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np

from fabemu.comparison.groups import Group
from fabemu.comparison.significance import LEVEL, Assessment, Design, assess, design
from fabemu.deferred import dataclass
from fabemu.headline import Figure

Direction = Literal["better", "worse", "changed", "same", "unknown"]


@dataclass(frozen=True)
class Change:
    """What became of one figure in one group.

    Attributes
    ----------
    group
        Letter of the group.
    absolute
        Its median less that of the baseline, in the unit of the figure; infinite if one did not finish, 0 if neither
        did. None if one of them has no such figure.
    relative
        The same over the baseline: 0.05 is 5 % more. None where the baseline is zero or infinite and the change is not.
    direction
        Better, worse, changed (of a figure that is neither), same or unknown.
    assessment
        What the seeds say about it.
    significant
        Whether p is below 0.05.
    """

    group: str
    absolute: float | None
    relative: float | None
    direction: Direction
    assessment: Assessment = field(default_factory=Assessment)

    @property
    def significant(self) -> bool:
        """Whether p is below `significance.LEVEL`."""
        return self.assessment.p is not None and self.assessment.p < LEVEL


@dataclass(frozen=True)
class Row:
    """One figure of all groups.

    Attributes
    ----------
    figure
        Name, unit, meaning, and which way is better.
    values
        By group, by run: the value, None where a run does not have it.
    medians
        By group: over the runs that have it; None if none has.
    changes
        Of every group but the first.
    """

    figure: Figure
    values: tuple[tuple[float | None, ...], ...]
    medians: tuple[float | None, ...]
    changes: tuple[Change, ...]

    @property
    def is_same(self) -> bool:
        """Whether all runs of all groups have one value."""
        return len({value for group in self.values for value in group}) == 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, infinite values as the text "inf"."""
        return {
            "name": self.figure.name,
            "unit": self.figure.unit,
            "meaning": self.figure.meaning,
            "better": self.figure.better,
            "values": [[json_number(value) for value in group] for group in self.values],
            "medians": [json_number(value) for value in self.medians],
            "changes": [
                {
                    "group": change.group,
                    "absolute": json_number(change.absolute),
                    "relative": json_number(change.relative),
                    "direction": change.direction,
                    "significant": change.significant,
                    "p": change.assessment.p,
                    "mean_change": json_number(change.assessment.mean_change),
                    "interval": None
                    if change.assessment.low is None
                    else [json_number(change.assessment.low), json_number(change.assessment.high)],
                }
                for change in self.changes
            ],
        }


def json_number(value: float | None) -> float | str | None:
    """A number as JSON can hold it: an infinite one as "inf" or "-inf", since null would be one that is not there."""
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def designs(groups: Sequence[Group]) -> tuple[Design, ...]:
    """How each group but the first is compared with the first."""
    return tuple(design(groups[0].seeds, group.seeds) for group in groups[1:])


def rows(
    groups: Sequence[Group],
    measured: Sequence[Sequence[Mapping[Figure, float]]],
    plans: Sequence[Design],
    *,
    test: bool,
) -> tuple[Row, ...]:
    """Figures of all groups with their changes.

    Parameters
    ----------
    groups
        The first is the baseline.
    measured
        By group, by run: what `measures.measure` gave.
    plans
        As `designs` gives them.
    test
        Whether to test significance, which needs SciPy.
    """
    figures = {figure.name: figure for group in measured for run in group for figure in run}
    by_name = [[{figure.name: value for figure, value in run.items()} for run in group] for group in measured]
    arrays = [
        {name: np.array([run.get(name, math.nan) for run in group], dtype=np.float64) for name in figures}
        for group in by_name
    ]
    assessed = [
        assess(plan, arrays[0], other) if test else dict.fromkeys(figures, Assessment())
        for plan, other in zip(plans, arrays[1:], strict=True)
    ]
    found = []
    for name, figure in figures.items():
        medians = tuple(_median(group[name]) for group in arrays)
        found.append(
            Row(
                figure,
                tuple(tuple(run.get(name) for run in group) for group in by_name),
                medians,
                tuple(
                    _change(group.letter, figure, medians[0], median, tested[name])
                    for group, median, tested in zip(groups[1:], medians[1:], assessed, strict=True)
                ),
            )
        )
    return tuple(found)


def _median(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else None


def _change(letter: str, figure: Figure, first: float | None, other: float | None, tested: Assessment) -> Change:
    if first is None or other is None:
        return Change(letter, None, None, "unknown")
    if first == other:
        return Change(letter, 0.0, 0.0, "same", tested)
    absolute = other - first
    relative = absolute / abs(first) if first and math.isfinite(first) else None
    direction: Direction = "changed"
    if figure.better != "neither":
        direction = "better" if (absolute < 0) == (figure.better == "less") else "worse"
    return Change(letter, absolute, relative, direction, tested)
