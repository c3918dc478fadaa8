"""Rows of the `ports` table, whole sampling intervals at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fabemu.analysis.batches import Names, Rows, again, integers
from fabemu.columns import number_values
from fabemu.errors import InputError
from fabemu.trace import TABLES, is_dictionary

_NAMED = {column.name for column in TABLES["ports"].columns if is_dictionary(column)}


class Samples:
    """Columns of the `ports` table in pieces that hold every row of the intervals in them.

    Attributes
    ----------
    names
        Names behind the numbers of each column of names.
    """

    def __init__(self, rows: Rows, columns: Sequence[str], ports: Names | None = None) -> None:
        """Take the rows, and which columns are wanted beside ``start_ps`` and ``end_ps``.

        Parameters
        ----------
        rows
            The table, or its batches.
        columns
            Names of columns; one that the rows lack is left out of the pieces.
        ports
            Numbers of ports that are known; by default they are numbered as they come.
        """
        self._columns = ("start_ps", "end_ps", *columns)
        self._batches = again(rows, ("start_ps", "end_ps", "port"), columns)
        self.names = {name: Names() for name in columns if name in _NAMED}
        if ports is not None:
            self.names["port"] = ports

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Pieces in order of time: a (rows,) array of every column, int64 or float64.

        Raises
        ------
        InputError
            The rows are not in order of time, as every run writes them; or one of ``start_ps``, ``end_ps`` and ``port``
            is missing.
        """
        carried: list[dict[str, np.ndarray]] = []
        last = np.iinfo(np.int64).min
        for batch in self._batches:
            if not len(batch):
                continue
            columns = {name: self._numbers(batch, name) for name in self._columns if name in batch.schema.names}
            start = columns["start_ps"]
            if start[0] < last or (np.diff(start) < 0).any():
                raise InputError("the rows of the ports table are not in order of time: sort them by start_ps")
            cut = int(np.searchsorted(start, start[-1]))
            if start[-1] > last or not carried:
                # The last interval may go on in the next batch.
                head = [*carried, {name: values[:cut] for name, values in columns.items()}] if cut else carried
                if head:
                    yield _joined(head)
                carried = [{name: values[cut:] for name, values in columns.items()}]
            else:
                carried.append(columns)
            last = int(start[-1])
        if carried:
            yield _joined(carried)

    def _numbers(self, batch, name: str) -> np.ndarray:
        if name in self.names:
            return self.names[name].numbers(batch.column(name))
        column = batch.column(name)
        if str(column.type) == "double":
            return number_values(column, np.nan)
        return integers(batch, name)


def lengths_ps(start_ps: np.ndarray, end_ps: np.ndarray, simulated_ps: int | None) -> np.ndarray:
    """How long the run was in each interval.

    The last interval of a run that drained is recorded to its end, though the run was over before.

    Parameters
    ----------
    start_ps, end_ps
        (rows,) int64, as the `ports` table has them.
    simulated_ps
        End of the run; None or 0 if it is not known: then intervals count as they are.

    Returns
    -------
    (rows,) int64
        From 0, the length of an interval in which the run no longer was.
    """
    if not simulated_ps:
        return end_ps - start_ps
    return np.maximum(np.minimum(end_ps, simulated_ps) - start_ps, 0)


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def cells(first: np.ndarray, second: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that belong together by two numbers.

    Parameters
    ----------
    first, second
        (rows,) int64, `second` from 0 and below `width`.

    Returns
    -------
    (n,) int64, (n,) int64, (rows,) int64
        The pairs that occur, in order, and to which of them each row belongs.
    """
    keys, place = np.unique(first * width + second, return_inverse=True)
    return keys // width, keys % width, place.reshape(-1)
