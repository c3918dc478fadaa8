"""Units of axes: times and sizes in the unit that suits their greatest value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Unit(NamedTuple):
    """A unit of an axis: what a value is divided by, and its name."""

    divisor: float
    name: str


_TIMES = (Unit(1e12, "s"), Unit(1e9, "ms"), Unit(1e6, "us"), Unit(1e3, "ns"), Unit(1, "ps"))
_SIZES = (Unit(1e12, "TB"), Unit(1e9, "GB"), Unit(1e6, "MB"), Unit(1e3, "KB"), Unit(1, "B"))
_FINE = 3.0  # of a unit: below it the next smaller one reads better


def time_unit(largest_ps: float) -> Unit:
    """The unit of an axis of times up to `largest_ps`."""
    return _chosen(largest_ps, _TIMES)


def size_unit(largest_bytes: float) -> Unit:
    """The unit of an axis of sizes up to `largest_bytes`; decimal."""
    return _chosen(largest_bytes, _SIZES)


def _chosen(largest: float, units: tuple[Unit, ...]) -> Unit:
    return next((unit for unit in units if largest >= _FINE * unit.divisor), units[-1])


def decades(lowest: float, highest: float) -> list[float]:
    """Powers of ten from at most `lowest` to at least `highest`, for ticks of a log axis; both greater than 0."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    return [10.0**power for power in range(first, last + 1)]


def time_ticks(lowest_ps: float, highest_ps: float, steps: Sequence[float] = (1.0,)) -> tuple[list[float], list[str]]:
    """Places (ps) and texts of the ticks of a log axis of times: "10 us", "100 us", "1 ms".

    `steps` are the places in each decade, such as 1, 2 and 5 for an axis of few decades.
    """
    decade = decades(max(lowest_ps, 1.0), max(highest_ps, 10.0))
    places = [step * place for place in decade for step in steps]
    texts = []
    for place in places:
        unit = next(unit for unit in _TIMES if place >= unit.divisor)
        texts.append(f"{place / unit.divisor:g} {unit.name}")
    return places, texts


def ratio_ticks(lowest: float, highest: float) -> list[float]:
    """Places of the ticks of a log axis of ratios: 1, 2, 5, 10, 20, ...; only powers of ten over many decades."""
    powers = decades(lowest, max(highest, lowest * 1.01))
    if len(powers) > 5:
        return powers
    return [lead * power for power in powers for lead in (1, 2, 5)]
