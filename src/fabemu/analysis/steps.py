"""What training steps came to: what ranks spent their time on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import PURPOSES, dictionary_column, float_column, integer_column


@dataclass(frozen=True)
class TrainingSteps:
    """The steps of one workload that came to their end. Times are means over them, NaN if there are none."""

    label: str
    job: str | None
    count: int
    unfinished: int
    step_ps: float
    step_max_ps: float
    compute_ps: float  # mean over the ranks, as all that follows
    exposed_ps: float
    tensor_ps: float
    expert_ps: float
    pipeline_ps: float
    data_ps: float
    bubble_share: float
    bubble_ideal: float
    tokens_per_s: float
    utilisation: float  # NaN if no peak is known, too


def by_workload(table: pa.Table) -> list[TrainingSteps]:
    """Training workloads of a `steps` table, in its order."""
    label, labels = dictionary_column(table, "label")
    job, jobs = dictionary_column(table, "job")
    times = {name: integer_column(table, name) for name in _TIMES}
    ideal = float_column(table, "bubble_ideal")
    rates = {name: float_column(table, name) for name in ("tokens_per_s", "utilisation")}
    found = []
    for number in dict.fromkeys(label.tolist()):
        mine = np.flatnonzero(label == number)
        ended = mine[times["step_ps"][mine] >= 0]
        mean = {name: float(values[ended].mean()) if len(ended) else np.nan for name, values in times.items()}
        step_ps = mean["step_ps"]
        # Steps of one workload have as many tokens each: rates are means by time.
        weight = times["step_ps"][ended]
        found.append(
            TrainingSteps(
                label=labels[number],
                job=jobs[job[mine[0]]] if job[mine[0]] >= 0 else None,
                count=len(mine),
                unfinished=len(mine) - len(ended),
                step_max_ps=float(weight.max()) if len(ended) else np.nan,
                bubble_share=mean["pipeline_ps"] / step_ps if step_ps > 0 else np.nan,
                bubble_ideal=float(ideal[mine[0]]),
                **{
                    name: float((values[ended] * weight).sum() / weight.sum()) if weight.sum() else np.nan
                    for name, values in rates.items()
                },
                **mean,
            )
        )
    return found


_TIMES = ("step_ps", "compute_ps", "exposed_ps", *(f"{name}_ps" for name in PURPOSES))
