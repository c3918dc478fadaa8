"""Designs: which combinations of parameter values are the points of a sweep.

Draws are keyed by the seed of the design, the parameter and the point, so that a design is the same everywhere and a
parameter that is added does not change the draws of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from fabemu.counted import counted
from fabemu.errors import InputError
from fabemu.hashing import hash64
from fabemu.sweeps.key import Key
from fabemu.sweeps.parameter import Parameter

Design = Literal["grid", "list", "random", "lhs"]
DESIGNS: tuple[str, ...] = get_args(Design)
"""Every combination; the first values of all, the second of all, ...; independent draws; a Latin hypercube."""

POINTS_MAX = 20_000
"""Each is validated before anything runs, which takes some 3 ms and 16 kB."""

_STREAM_DRAW, _STREAM_ORDER = 1, 2


def check_design(design: str, parameters: Sequence[Parameter], points: int | None) -> int:
    """How many points a design has.

    Raises
    ------
    InputError
        Parameters, number of points and design do not go together.
    """
    if design not in DESIGNS:
        raise InputError(f"there is no design {design!r}; they are {', '.join(DESIGNS)}")
    if not parameters:
        raise InputError("no parameter: give one or more with --set 'key=[value, value]' or --set 'key=low..high'")
    drawn = design in ("random", "lhs")
    if drawn and points is None:
        raise InputError(f"--design {design} needs the number of points: --points 100")
    if not drawn and points is not None:
        raise InputError(f"--points is for the designs random and lhs; the parameters make the points of a {design}")
    for parameter in parameters:
        if parameter.is_range and not drawn:
            raise InputError(
                f"{parameter.key}: a range needs --design random or lhs with --points; or list the values: [a, b, c]"
            )
    if design == "list":
        lengths = {len(parameter.values) for parameter in parameters}
        if len(lengths) > 1:
            named = ", ".join(f"{parameter.key} {len(parameter.values)}" for parameter in parameters)
            raise InputError(f"--design list takes lists of one length, one element of each for a point; found {named}")
    count = points if points is not None else len(parameters[0].values)
    if design == "grid":
        count = math.prod(len(parameter.values) for parameter in parameters)
    if not 1 <= count <= POINTS_MAX:
        raise InputError(f"{counted(count, 'point')}: a sweep has 1 to {POINTS_MAX:,}")
    return count


def combinations(
    design: str, parameters: Sequence[Parameter], keys: Sequence[Key], points: int | None, seed: int
) -> list[tuple[Any, ...]]:
    """Values of all parameters, point by point.

    Parameters
    ----------
    design, parameters, points
        As `check_design` takes them.
    keys
        The keys of the parameters, in the same order.
    seed
        Of the draws of the designs ``random`` and ``lhs``.

    Raises
    ------
    InputError
        As `check_design`; or a range whose ends are wrong.
    """
    count = check_design(design, parameters, points)
    if design == "grid":
        return list(itertools.product(*(parameter.values for parameter in parameters)))
    if design == "list":
        return list(zip(*(parameter.values for parameter in parameters), strict=True))
    columns = []
    for key, parameter in zip(keys, parameters, strict=True):
        shares = _shares(design, count, seed, parameter.key)
        if parameter.is_range:
            columns.append([key.between(parameter, float(share)) for share in shares])
        else:
            columns.append([parameter.values[int(share * len(parameter.values))] for share in shares])
    return list(zip(*columns, strict=True))


def _shares(design: str, count: int, seed: int, name: str) -> np.ndarray:
    """(count,) float64 in [0, 1): where each point lies along a parameter."""
    index = np.arange(count)
    letters = [len(name), *name.encode()]
    # 53 bits: what a float64 below 1 can hold.
    shares = (hash64(seed, _STREAM_DRAW, *letters, index) >> np.uint64(11)) / 2.0**53
    if design == "random":
        return shares
    # Latin hypercube: the range is cut into as many strips as there are points, and each strip has one point.
    strips = np.empty(count)
    strips[np.argsort(hash64(seed, _STREAM_ORDER, *letters, index), kind="stable")] = index
    return np.minimum((strips + shares) / count, np.nextafter(1.0, 0.0))
