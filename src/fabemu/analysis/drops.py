"""Drops: where most frames were lost, and why."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import NONE, dictionary_column

COLUMNS = ("ingress_port", "egress_port", "class", "cause")
"""Columns of the drops table that are needed here."""


@dataclass(frozen=True)
class DropPlace:
    """Frames of one class that were dropped for one cause between two ports of a device."""

    ingress_port: str  # by which they had come
    egress_port: str | None  # by which they were to leave; None for frames that ended here, or had no route
    class_name: str | None  # None for frames of flow control
    cause: str
    count: int


def worst_places(drops: pa.Table, limit: int = 10) -> list[DropPlace]:
    """Places where frames were dropped, those with the most first."""
    columns = [dictionary_column(drops, name) for name in COLUMNS]
    keys, count = np.unique(np.stack([indices for indices, _ in columns], axis=1), axis=0, return_counts=True)

    def name(column: int, index: int) -> str | None:
        return None if index == NONE else columns[column][1][index]

    return [
        DropPlace(
            ingress_port=name(0, keys[row][0]) or "",
            egress_port=name(1, keys[row][1]),
            class_name=name(2, keys[row][2]),
            cause=name(3, keys[row][3]) or "",
            count=int(count[row]),
        )
        for row in np.argsort(-count, kind="stable")[:limit].tolist()
    ]
