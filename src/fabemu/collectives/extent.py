"""Extents: a range of bytes, split evenly at whole elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def extents(
    total_bytes: int, parts: int, element_bytes: int = 1, offset: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offset and bytes of each of `parts` parts of a range, (parts,) int64 each.

    Parts differ by at most one element and begin at whole elements from `offset`; if there are fewer elements than
    parts, some are empty. Bytes behind the last whole element belong to the last part that is not empty. The parts
    cover the range exactly.
    """
    elements = -(-total_bytes // element_bytes)
    points = np.minimum(np.arange(parts + 1, dtype=np.int64) * elements // parts * element_bytes, total_bytes)
    return points[:-1] + offset, np.diff(points)
