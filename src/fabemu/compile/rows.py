"""Equal rows of columns: what has the same parameters is worked out once, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def group_rows(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct rows of some columns, in lexicographic order.

    Parameters
    ----------
    columns
        (n,) arrays of numbers, at least one.

    Returns
    -------
    (n,) int64, (distinct rows,) int64
        Number of every row, and the first row of each number.
    """
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, rank = np.unique(column, return_inverse=True)
        # Joined column by column, so that the product of two counts never leaves 64 bits.
        _, number = np.unique(number * (int(rank.max(initial=0)) + 1) + rank, return_inverse=True)
    _, first = np.unique(number, return_index=True)
    return number, first
