"""Room for rows of a table, as its writer has it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.trace import TABLES, arrow_type


def columns_of(table: str, count: int) -> dict[str, np.ndarray]:
    """Columns for so many rows, names as numbers."""
    kinds = {column.name: arrow_type(column) for column in TABLES[table].columns}
    return {
        name: np.zeros(count, (kind.index_type if pa.types.is_dictionary(kind) else kind).to_pandas_dtype())
        for name, kind in kinds.items()
    }
