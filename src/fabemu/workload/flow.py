"""The flow table: every message of a run, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields

import numpy as np

from fabemu.deferred import dataclass
from fabemu.errors import ScenarioError
from fabemu.plan import VERB_WRITE

NONE = -1
OPERATIONS_MAX = 2**31 - 1
"""Operations of a run, messages among them: the plan numbers them with 32 bits."""


def refuse_too_many(count: int) -> None:
    """Raise ScenarioError if there are more operations than a plan can number."""
    if count > OPERATIONS_MAX:
        raise ScenarioError(f"{count:,} operations; a run has {OPERATIONS_MAX:,} at most: make it shorter or smaller")


def refuse_wrapping(name: str, values: np.ndarray, dtype: str) -> None:
    """Raise ScenarioError if a value of the column `name` does not fit its integer type: NumPy cuts it silently."""
    if not values.size or np.can_cast(values.dtype, dtype):
        return
    limits = np.iinfo(dtype)
    for value in (values.min(), values.max()):
        if not limits.min <= value <= limits.max:
            raise ScenarioError(f"column {name}: {value} is outside {limits.min} to {limits.max}")


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowTable:
    """All flows of a run, ordered by start time; at equal times in the order in which the scenario gives them.

    Attributes
    ----------
    src, dst
        (n,) int32, host ids, never the same.
    bytes
        (n,) int64, payload bytes, 0 or more.
    start_ps
        (n,) int64, time at which the flow is posted.
    class_id
        (n,) uint8, traffic class, numbered in the order in which classes are served.
    label_id
        (n,) int32, index into `labels`.
    sport
        (n,) int32, UDP source port, or -1 to derive it from the QP.
    qp
        (n,) int32, flows with the same value share a QP and are sent in table order; -1 is a QP of its own. The values
        are dense, numbered by first appearance.
    after
        (n,) int32, index of the flow of the same source that must be done at its sender first, or -1. It is below the
        flow's own index or starts no later.
    verb
        (n,) uint8, VERB_* of `fabemu.plan`; WRITE if left out. A READ moves its bytes from dst to src; what has
        VERB_SCALE_UP stays inside a scale-up domain.
    collective
        (n,) int32, number of the collective that the flow is part of, or -1.
    step
        (n,) int32, step of that collective, or -1.
    labels
        Labels of the workloads.
    warnings
        What a user should look at before trusting the result.
    """

    src: np.ndarray = field(metadata={"dtype": "i4"})
    dst: np.ndarray = field(metadata={"dtype": "i4"})
    bytes: np.ndarray = field(metadata={"dtype": "i8"})
    start_ps: np.ndarray = field(metadata={"dtype": "i8"})
    class_id: np.ndarray = field(metadata={"dtype": "u1"})
    label_id: np.ndarray = field(metadata={"dtype": "i4"})
    sport: np.ndarray = field(metadata={"dtype": "i4"})
    qp: np.ndarray = field(metadata={"dtype": "i4"})
    after: np.ndarray = field(metadata={"dtype": "i4"})
    verb: np.ndarray = field(default_factory=lambda: np.array(VERB_WRITE), metadata={"dtype": "u1"})
    collective: np.ndarray = field(default_factory=lambda: np.array(NONE), metadata={"dtype": "i4"})
    step: np.ndarray = field(default_factory=lambda: np.array(NONE), metadata={"dtype": "i4"})
    labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Convert the columns to their types and make them read-only; ScenarioError if one does not fit."""
        refuse_too_many(len(self.src))
        for item in fields(self):
            dtype = item.metadata.get("dtype")
            if dtype is not None:
                refuse_wrapping(item.name, np.asarray(getattr(self, item.name)), dtype)
                column = np.array(getattr(self, item.name), dtype=dtype, order="C")
                if column.ndim == 0:
                    column = np.full(len(self.src), column)
                column.flags.writeable = False
                object.__setattr__(self, item.name, column)

    def __len__(self) -> int:
        """Number of flows."""
        return len(self.src)

    def rows(self, keep: np.ndarray) -> FlowTable:
        """Give the rows for which `keep`, (n,) bool, is true.

        Raises
        ------
        ValueError
            A row that stays waits for one that goes.
        """
        new_index = np.cumsum(keep) - 1
        after = self.after[keep]
        waits = after != NONE
        if not keep[after[waits]].all():
            raise ValueError("a flow that stays waits for one that goes")
        after = np.where(waits, new_index[after], NONE)
        columns = {
            item.name: getattr(self, item.name)[keep]
            for item in fields(self)
            if "dtype" in item.metadata and item.name != "after"
        }
        return FlowTable(**columns, after=after, labels=self.labels, warnings=self.warnings)


def flow_table(
    src: np.ndarray,
    dst: np.ndarray,
    size_bytes: np.ndarray | int,
    start_ps: np.ndarray | int,
    *,
    class_id: np.ndarray | int,
    sport: np.ndarray | int = NONE,
    qp: np.ndarray | int = NONE,
    after: np.ndarray | int = NONE,
    verb: np.ndarray | int = VERB_WRITE,
    collective: np.ndarray | int = NONE,
    step: np.ndarray | int = NONE,
    label: str = "",
    warnings: Sequence[str] = (),
) -> FlowTable:
    """Build the table of one workload; single values stand for whole columns.

    The rows keep the given order; `concatenate` sorts. `qp` and `collective` numbers and `after` indices are local to
    this table.
    """
    count = len(src)

    def column(value: np.ndarray | int) -> np.ndarray:
        return np.broadcast_to(np.asarray(value), (count,))

    return FlowTable(
        src=src,
        dst=dst,
        bytes=column(size_bytes),
        start_ps=column(start_ps),
        class_id=column(class_id),
        label_id=column(0),
        sport=column(sport),
        qp=column(qp),
        after=column(after),
        verb=column(verb),
        collective=column(collective),
        step=column(step),
        labels=(label,),
        warnings=tuple(warnings),
    )


def concatenate(
    tables: Sequence[FlowTable], collective_counts: Sequence[int] | None = None
) -> tuple[FlowTable, np.ndarray]:
    """Join the tables of several workloads and sort by start time.

    The sort is stable: flows of one time keep the order of the workloads and, within one, of its rows. Workloads with
    equal labels share the label, but never a QP or a collective.

    Parameters
    ----------
    tables
        The tables.
    collective_counts
        How many collectives each speaks of; by default those that flows are part of.

    Returns
    -------
    FlowTable
        All flows.
    (n,) int64
        Its row of every flow, the tables one after the other.
    """
    labels: list[str] = []
    columns: dict[str, list[np.ndarray]] = {
        item.name: [np.zeros(0, dtype=item.metadata["dtype"])] for item in fields(FlowTable) if "dtype" in item.metadata
    }
    base = {"qp": 0, "after": 0, "collective": 0}
    for index, table in enumerate(tables):
        for label in table.labels:
            if label not in labels:
                labels.append(label)
        new_id = np.array([labels.index(label) for label in table.labels] or [0])
        for name, parts in columns.items():
            part = getattr(table, name)
            if name == "label_id":
                part = new_id[part]
            elif name in base:
                part = np.where(part == NONE, NONE, part.astype(np.int64) + base[name])
            parts.append(part)
        base["qp"] += int(table.qp.max(initial=NONE)) + 1
        count = int(table.collective.max(initial=NONE)) + 1 if collective_counts is None else collective_counts[index]
        base["collective"] += count
        base["after"] += len(table)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}

    order = np.argsort(joined["start_ps"], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    joined = {name: values[order] for name, values in joined.items()}
    if len(order):
        joined["after"] = np.where(joined["after"] == NONE, NONE, rank[joined["after"]])
    joined["qp"] = _renumber(joined["qp"])
    table = FlowTable(
        **joined, labels=tuple(labels), warnings=tuple(warning for table in tables for warning in table.warnings)
    )
    return table, rank


def _renumber(qp: np.ndarray) -> np.ndarray:
    """Number shared QPs densely by first appearance; NONE stays."""
    shared = np.flatnonzero(qp != NONE)
    result = np.full(len(qp), NONE, dtype=np.int64)
    if len(shared):
        _, first, inverse = np.unique(qp[shared], return_index=True, return_inverse=True)
        number = np.empty(len(first), dtype=np.int64)
        number[np.argsort(first, kind="stable")] = np.arange(len(first))
        result[shared] = number[inverse]
    return result
