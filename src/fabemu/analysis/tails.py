"""Tails of completion times and slowdowns, by group, with confidence limits: exact, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from fabemu.analysis.batches import Names, Rows, again, integers
from fabemu.analysis.confidence import limit_ranks
from fabemu.analysis.fct import COLUMNS, PERCENTILES, SIZE_CLASSES, counted_times, nearest_rank
from fabemu.analysis.ranks import CELLS, OrderStatistics, keys_of
from fabemu.errors import InputError
from fabemu.result import Run

BY = ("all", "size", "label", "job", "class", "collective")
"""What messages can be grouped by: not at all, size class, workload, job, traffic class, run of a collective."""

FIGURES = ("fct_ps", "slowdown")

SCHEMA = pa.schema(
    [
        pa.field("by", pa.string(), metadata={"meaning": "What the messages are grouped by"}),
        pa.field("group", pa.string(), metadata={"meaning": "Which of them these are"}),
        pa.field("count", pa.int64(), metadata={"meaning": "Messages that have this figure, finished or not"}),
        pa.field("unfinished", pa.int64(), metadata={"meaning": "Of the group, messages that did not finish"}),
        pa.field("figure", pa.string(), metadata={"meaning": "fct_ps (ps) or slowdown (ratio)"}),
        pa.field("percentile", pa.string(), metadata={"meaning": "p50, p90, p99, p99.9 or max"}),
        pa.field("value", pa.float64(), metadata={"meaning": "By nearest rank; infinite if it did not finish"}),
        pa.field("low", pa.float64(), metadata={"meaning": "Lower confidence limit; null if there is none"}),
        pa.field("high", pa.float64(), metadata={"meaning": "Upper confidence limit; null if there is none"}),
    ]
)
"""Columns of what `tails` gives."""


def tails(
    flows: Rows | Run,
    end_ps: int | None = None,
    *,
    by: Sequence[str] = BY,
    confidence: float | None = 0.95,
    cells: int = CELLS * 24,
) -> pa.Table:
    """Percentiles of completion time and slowdown in groups of messages, with confidence limits.

    Counted is what `fabemu.analysis.fct` counts, and percentiles are its nearest ranks: the figures are the same. The
    limits are those of `fabemu.analysis.confidence`: they say how far chance alone would move a percentile if messages
    were drawn independently, which messages that share queues are not.

    Parameters
    ----------
    flows
        The flows table, its record batches, or a run. Of batches one is in memory at a time; they are read some five
        times.
    end_ps
        When the run ended: messages due then or later do not count. None: none counts that was never posted. A run says
        it itself.
    by
        What to group by, some of `BY`. Messages without a job, class or collective are in none of its groups; groups
        whose column the rows lack are left out.
    confidence
        Of the two limits together; None for no limits.
    cells
        Numbers held in memory at a time, 8 bytes each; memory also grows with groups, but not with rows.

    Returns
    -------
    pa.Table
        As in `SCHEMA`: one row per group, figure and percentile. The maximum has no limits. A group ``all`` without a
        message has null values.

    Raises
    ------
    InputError
        A name in `by` is unknown, a column of the rows is missing, or SciPy is, which limits need.
    """
    unknown = [name for name in by if name not in BY]
    if unknown:
        raise InputError(f"messages cannot be grouped by {unknown[0]!r}; by is some of {', '.join(BY)}")
    if isinstance(flows, Run):
        if end_ps is None:
            end_ps = flows.info.get("simulated_ps")
        flows = flows.batches("flows", (*COLUMNS, *BY))
    groupings = [_Grouping(name) for name in dict.fromkeys(by)]
    batches = again(flows, COLUMNS, [name for name in BY if name not in COLUMNS])
    rows = _each(batches, end_ps, groupings, counting=True)
    whole: _Grouping | None = None
    for grouping in groupings:
        only = grouping.holds_all(rows)
        if only and whole is not None:
            grouping.same_as(whole)
            continue
        whole = grouping if only else whole
    searched = [grouping for grouping in groupings if grouping.searched]
    for grouping in searched:
        grouping.seek(confidence, max(cells // (len(FIGURES) * len(searched)), 1000))
    while any(grouping.open for grouping in groupings):
        _each(batches, end_ps, [grouping for grouping in groupings if grouping.open], counting=False)
        for grouping in groupings:
            grouping.narrow()
    tables = [grouping.table() for grouping in groupings]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _each(
    batches: Iterable[pa.RecordBatch], end_ps: int | None, groupings: Sequence[_Grouping], *, counting: bool
) -> int:
    """Show every batch to the groupings; count the messages that count."""
    rows = 0
    for batch in batches:
        keep, fct_ps, slowdown = counted_times(pa.Table.from_batches([batch]), end_ps)
        rows += int(np.count_nonzero(keep))
        left_out = None if keep.all() else ~keep
        keys, lost = (keys_of(fct_ps), keys_of(slowdown)), np.isinf(fct_ps) if counting else None
        for grouping in groupings:
            grouping.take(batch, left_out, keys, lost)
    return rows


class _Grouping:
    """Groups of one kind, and the order statistics of both figures in them."""

    def __init__(self, by: str) -> None:
        self._by = by
        self._names = Names()
        self._number_of = np.full(0, -1)  # of a collective
        self._statistics = [OrderStatistics() for _ in FIGURES]
        self._unfinished = np.zeros(0, np.int64)
        self._same: _Grouping | None = None
        if by == "all":
            self._names.number("all")
        elif by == "size":
            for name, _ in SIZE_CLASSES:
                self._names.number(name)

    @property
    def open(self) -> bool:
        """Whether another pass is needed."""
        return self._same is None and any(statistics.open for statistics in self._statistics)

    @property
    def searched(self) -> bool:
        """Whether there is anything to find that is not known from another grouping."""
        return self._same is None and len(self._names) > 0

    def holds_all(self, rows: int) -> bool:
        """Whether one group has all of so many messages."""
        counts = self._statistics[0].counts
        return rows > 0 and int(counts.max(initial=0)) == rows

    def same_as(self, other: _Grouping) -> None:
        """Take the values of another grouping, one group of which has all messages, as one of this has."""
        self._same = other

    def take(
        self, batch: pa.RecordBatch, left_out: np.ndarray | None, figures: Sequence[np.ndarray], lost: np.ndarray | None
    ) -> None:
        """Take the rows of a batch but those left out; in the first pass with which of them did not finish."""
        group = self._groups(batch)
        if left_out is not None:
            group = np.where(left_out, -1, group)
        groups = len(self._names)
        if lost is not None:
            unfinished = np.bincount(group[lost & (group >= 0)], minlength=groups)
            unfinished[: len(self._unfinished)] += self._unfinished
            self._unfinished = unfinished
        for statistics, keys in zip(self._statistics, figures, strict=True):
            if lost is not None:
                statistics.count(group, keys, groups)
            elif statistics.open:
                statistics.look(group, keys)

    def seek(self, confidence: float | None, cells: int) -> None:
        """Choose the ranks of percentiles and their limits, after everything was counted; share out the memory."""
        groups = len(self._names)
        for statistics in self._statistics:
            statistics.cells = cells
            statistics.count(np.empty(0, np.int64), np.empty(0, np.int64), groups)
            counts = statistics.counts
            ranks = np.zeros((groups, 3 * len(PERCENTILES) + 1), np.int64)
            distinct, place = np.unique(counts, return_inverse=True)
            for number, percent in enumerate(PERCENTILES):
                nearest = np.array([nearest_rank(percent, count) for count in distinct.tolist()], dtype=np.int64)
                ranks[:, 3 * number] = nearest[place.reshape(-1)]
                if confidence is not None:
                    low, high = limit_ranks(percent, counts, confidence)
                    ranks[:, 3 * number + 1], ranks[:, 3 * number + 2] = low, high
            ranks[:, -1] = counts
            statistics.seek(ranks)

    def narrow(self) -> None:
        """End a pass."""
        for statistics in self._statistics:
            if statistics.open:
                statistics.narrow()

    def table(self) -> pa.Table:
        """The rows of these groups."""
        if not len(self._names):
            return SCHEMA.empty_table()
        counts = self._statistics[0].counts
        chosen = [number for number in self._order() if counts[number] > 0 or self._by == "all"]
        percentiles = [*(f"p{percent:g}" for percent in PERCENTILES), "max"]
        per_figure = len(percentiles)
        rows = len(chosen) * len(FIGURES) * per_figure
        values = np.full((len(chosen), len(FIGURES), per_figure, 3), np.nan)
        count = np.zeros((len(chosen), len(FIGURES)), np.int64)
        for number, statistics in enumerate(self._statistics):
            found = statistics.values[chosen] if self._same is None else self._same.row(number)
            values[:, number, :-1] = found[:, :-1].reshape(len(chosen), len(PERCENTILES), 3)
            values[:, number, -1, 0] = found[:, -1]
            count[:, number] = statistics.counts[chosen]
        unfinished = self._unfinished[chosen] if len(self._unfinished) else np.zeros(len(chosen), np.int64)
        name = [self._names.names[number] for number in chosen]
        columns = [
            [self._by] * rows,
            np.repeat(np.array(name, dtype=object), len(FIGURES) * per_figure),
            np.repeat(count.reshape(-1), per_figure),
            np.repeat(unfinished, len(FIGURES) * per_figure),
            np.tile(np.repeat(np.array(FIGURES, dtype=object), per_figure), len(chosen)),
            np.tile(np.array(percentiles, dtype=object), len(chosen) * len(FIGURES)),
            *(values[..., column].reshape(-1) for column in range(3)),
        ]
        arrays = [
            pa.array(column, type=field.type, from_pandas=True) for column, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    def row(self, figure: int) -> np.ndarray:
        """(1, R) values of the group with the most messages."""
        statistics = self._statistics[figure]
        most = int(np.argmax(statistics.counts))
        return statistics.values[most : most + 1]

    def _order(self) -> list[int]:
        numbers = range(len(self._names))
        if self._by == "collective":
            return sorted(numbers, key=lambda number: int(self._names.names[number]))
        return list(numbers)

    def _groups(self, batch: pa.RecordBatch) -> np.ndarray:
        """(rows,) int64 group of each row, -1 for none."""
        if self._by == "all":
            return np.zeros(len(batch), np.int64)
        if self._by == "size":
            return np.searchsorted([largest for _, largest in SIZE_CLASSES], integers(batch, "bytes"))
        if self._by not in batch.schema.names:
            return np.full(len(batch), -1)
        if self._by == "collective":
            return self._collectives(integers(batch, "collective"))
        return self._names.numbers(batch.column(self._by))

    def _collectives(self, numbers: np.ndarray) -> np.ndarray:
        """Groups of runs of collectives, which are numbered from 0."""
        most = int(numbers.max(initial=-1)) + 1
        if most > len(self._number_of):
            more = np.full(max(most, 2 * len(self._number_of)) - len(self._number_of), -1)
            self._number_of = np.append(self._number_of, more)
        known = numbers >= 0
        new = np.unique(numbers[known & (self._number_of[numbers] < 0)]) if most else numbers[:0]
        for number in new.tolist():
            self._number_of[number] = self._names.number(str(number))
        return np.where(known, self._number_of[numbers], -1) if most else numbers
