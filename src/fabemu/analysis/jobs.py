"""When jobs were done, and how long they waited for their network."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import dictionary_column, float_column, integer_column


@dataclass(frozen=True)
class JobOutcome:
    """One job. Figures are NaN where it did not come to its end."""

    name: str
    ranks: int
    nodes: int
    start_ps: int
    completion_ps: float
    unfinished: int  # messages
    compute_ps: int  # mean over the ranks
    communication_share: float
    busbw_bps: float
    network_bytes: int
    scale_up_bytes: int


def outcomes(table: pa.Table) -> list[JobOutcome]:
    """The jobs of a `jobs` table, in its order."""
    index, names = dictionary_column(table, "job")
    integers = ("ranks", "nodes", "start_ps", "unfinished", "compute_ps", "network_bytes", "scale_up_bytes")
    columns = {name: integer_column(table, name) for name in integers}
    completion = integer_column(table, "completion_ps")
    floats = {name: float_column(table, name) for name in ("communication_share", "busbw_bps")}
    return [
        JobOutcome(
            name=names[index[row]],
            completion_ps=float(completion[row]) if completion[row] >= 0 else np.nan,
            communication_share=float(floats["communication_share"][row]),
            busbw_bps=float(floats["busbw_bps"][row]),
            **{name: int(values[row]) for name, values in columns.items()},
        )
        for row in range(len(index))
    ]
