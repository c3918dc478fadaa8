"""Rows on their way to a record batch: columns that are made once and filled anew for every batch.

Rows come a few thousand at a time. To keep what came and join it when a batch is full takes fresh memory for every row
twice, and the system's share of that is more than all else that is done with a row but to compress it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

FIRST_ROWS = 2048
"""Rows that there is room for at first: small tables take no more, others have room for a whole batch after them."""


class Batch:
    """Columns of up to so many rows.

    Parameters
    ----------
    types
        Type of each column by its name, and whether it may hold what is not there: NaN in floats, `none` elsewhere.
    limit
        Most rows.
    none
        What stands for a number that is not there.
    """

    def __init__(self, types: Mapping[str, tuple[np.dtype, bool]], limit: int, none: int) -> None:
        """Take no memory yet."""
        self.rows = 0
        self._types = types
        self._limit = limit
        self._none = none
        self._room = 0
        self._columns: dict[str, np.ndarray] = {}

    @property
    def is_full(self) -> bool:
        """Whether nothing more goes in."""
        return self.rows == self._limit

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The rows, valid until they are cleared."""
        return {name: values[: self.rows] for name, values in self._columns.items()}

    def fill(self, columns: Mapping[str, np.ndarray], first: int, count: int) -> int:
        """Add rows of `columns` from `first` on, `count` at most; say how many went in."""
        held_columns, begin, count = self.reserve(count)
        for name, given in columns.items():
            held = held_columns[name]
            values = given[first : first + count]
            if self._types[name][1] and (values.dtype.kind == "f") != (held.dtype.kind == "f"):
                values = np.where(
                    _missing(values, self._none), np.nan if held.dtype.kind == "f" else self._none, values
                )
            held[begin : begin + count] = values
        self.rows += count
        return count

    def reserve(self, count: int) -> tuple[Mapping[str, np.ndarray], int, int]:
        """Columns to set rows of, from which place on, and how many: `count` at most. Who has set them counts them."""
        begin = self.rows
        count = min(count, self._limit - begin)
        self._make_room(begin + count)
        return self._columns, begin, count

    def room(self) -> tuple[Mapping[str, np.ndarray], int, int]:
        """The same for as many rows as there may be soon: columns, from which place on, and before which."""
        columns, begin, count = self.reserve(max(self._room, FIRST_ROWS) - self.rows or self._limit)
        return columns, begin, begin + count

    def missing(self, name: str) -> np.ndarray | None:
        """(rows,) bool, which values of a column are not there; None if it has no such."""
        return _missing(self._columns[name][: self.rows], self._none) if self._types[name][1] else None

    def clear(self) -> None:
        """Forget the rows; their memory takes the next ones."""
        self.rows = 0

    def _make_room(self, rows: int) -> None:
        if rows <= self._room:
            return
        before = self.columns
        self._room = self._limit if rows > FIRST_ROWS else min(FIRST_ROWS, self._limit)
        self._columns = {name: np.empty(self._room, kind) for name, (kind, _) in self._types.items()}
        for name, values in before.items():
            self._columns[name][: self.rows] = values


def _missing(values: np.ndarray, none: int) -> np.ndarray:
    missing: np.ndarray = np.isnan(values) if values.dtype.kind == "f" else values == none
    return missing
