"""What collectives took, by workload: in the figures of nccl-tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import dictionary_column, float_column, integer_column

COLUMNS = (
    "label",
    "job",
    "operation",
    "algorithm",
    "purpose",
    "ranks",
    "bytes",
    "start_ps",
    "end_ps",
    "time_ps",
    "ideal_ps",
    "algbw_bps",
    "busbw_bps",
)
"""Columns of the `collectives` table that are read."""


@dataclass(frozen=True)
class CollectiveTimes:
    """Runs of the same collective of one workload. Figures are NaN where no run came to its end."""

    label: str
    job: str | None
    operation: str
    algorithm: str
    purpose: str | None  # in a training step
    ranks: int
    size_bytes: int
    count: int
    unfinished: int
    time_ps: float  # median of the finished ones
    time_max_ps: float
    ideal_ps: float
    algbw_bps: float  # of the median
    busbw_bps: float


def by_workload(table: pa.Table) -> list[CollectiveTimes]:
    """Collectives of every workload, those of one operation, algorithm, purpose, number of ranks and size together."""
    names = {name: dictionary_column(table, name) for name in ("label", "job", "operation", "algorithm", "purpose")}
    keys = [names[name][0] for name in names] + [integer_column(table, name) for name in ("ranks", "bytes")]
    time_ps, ideal_ps = integer_column(table, "time_ps"), integer_column(table, "ideal_ps")
    factor = np.divide(
        float_column(table, "busbw_bps"),
        float_column(table, "algbw_bps"),
        out=np.full(len(time_ps), np.nan),
        where=float_column(table, "algbw_bps") > 0,
    )
    if not len(time_ps):
        return []
    rows = np.stack(keys, axis=1)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    found = []
    for number in np.argsort(first):
        chosen = np.flatnonzero(group == number)
        times = time_ps[chosen][time_ps[chosen] >= 0]
        values = rows[chosen[0]]
        label, job, operation, algorithm, purpose = (
            names[name][1][index] if index >= 0 else None for name, index in zip(names, values, strict=False)
        )
        median = float(np.median(times)) if len(times) else np.nan
        algbw = float(values[6]) * 8e12 / median if median > 0 else np.nan
        finite = factor[chosen][~np.isnan(factor[chosen])]
        found.append(
            CollectiveTimes(
                label=str(label),
                job=job,
                operation=str(operation),
                algorithm=str(algorithm),
                purpose=purpose,
                ranks=int(values[5]),
                size_bytes=int(values[6]),
                count=len(chosen),
                unfinished=len(chosen) - len(times),
                time_ps=median,
                time_max_ps=float(times.max()) if len(times) else np.nan,
                ideal_ps=float(ideal_ps[chosen[0]]) if ideal_ps[chosen[0]] >= 0 else np.nan,
                algbw_bps=algbw,
                busbw_bps=algbw * float(finite[0]) if len(finite) else np.nan,
            )
        )
    return found
