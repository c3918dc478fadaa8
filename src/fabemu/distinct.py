"""Distinct values of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Give what `numpy.unique` gives of numbers without a NaN, without importing masked arrays for it.

    Parameters
    ----------
    values
        Of any shape.

    Returns
    -------
    (n,) of the same type
        Every value once, ascending.
    """
    ordered = np.sort(values, axis=None)
    differs = np.ones(len(ordered), dtype=bool)
    differs[1:] = ordered[1:] != ordered[:-1]
    return ordered[differs]
