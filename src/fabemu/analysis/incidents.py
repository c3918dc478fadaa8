"""What went wrong in a run, by kind: faults of the scenario, and what the engine found by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import dictionary_column, integer_column

COLUMNS = ("time_ps", "kind", "node", "port")
"""Columns of the events table that are read."""


@dataclass(frozen=True)
class Incident:
    """All events of one kind."""

    kind: str
    count: int
    first_ps: int
    last_ps: int
    where: str  # port or device of the first; empty for the whole fabric


def by_kind(events: pa.Table) -> list[Incident]:
    """Events counted by kind, in order of the first of each."""
    kind, names = dictionary_column(events, "kind")
    time_ps = integer_column(events, "time_ps")
    places = zip(events.column("port").to_pylist(), events.column("node").to_pylist(), strict=True)
    where = [port or node or "" for port, node in places]
    kinds, first, count = np.unique(kind, return_index=True, return_counts=True)
    last_ps = [int(time_ps[kind == number].max()) for number in kinds.tolist()]
    found = [
        Incident(names[number], rows, int(time_ps[index]), last, where[index])
        for number, index, rows, last in zip(kinds.tolist(), first.tolist(), count.tolist(), last_ps, strict=True)
    ]
    return [found[index] for index in np.argsort(first, kind="stable").tolist()]
