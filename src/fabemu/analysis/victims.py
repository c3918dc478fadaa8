"""Who made a storm of pauses, and who was held up by it without having anything to do with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fabemu.analysis.intervals import Int64s, ragged, united
from fabemu.analysis.paths import Paths
from fabemu.deferred import dataclass
from fabemu.trace import NONE, dictionary_column, integer_column

COLUMNS = (
    "op",
    "label",
    "job",
    "collective",
    "src",
    "qp",
    "class",
    "bytes",
    "posted_ps",
    "first_sent_ps",
    "receiver_done_ps",
)
"""Columns of the flows table that are read."""

_ROWS_MAX = 1 << 21  # pieces of held time looked at together


@dataclass(frozen=True)
class Culprits:
    """Messages of one workload whose data went by the port at the root of a storm while it lasted."""

    label: str
    job: str | None
    messages: int
    bytes: int
    senders: int  # hosts that their data come from


@dataclass(frozen=True)
class Victims:
    """Messages of one workload that a storm held up although their paths do not lead by its root.

    Times are those in which some port on the path of a message was paused by the storm while the message was posted
    and not yet delivered: what the storm cost it at most, since it may not have had anything to send just then.
    """

    label: str
    job: str | None
    messages: int
    held_ps: int  # sum over messages
    longest_ps: int  # of one message
    message_share: float  # greatest share of a message's own time
    collective_share: float | None  # greatest share of the time of one collective; None: not part of any
    job_share: float | None  # share of the job's completion time; None without a job

    @property
    def share(self) -> float:
        """The share of the largest whole that they are part of: job, else collective, else message."""
        for value in (self.job_share, self.collective_share):
            if value is not None:
                return value
        return self.message_share

    @property
    def share_of(self) -> str:
        """Of what `share` is: job, collective, or message."""
        if self.job_share is not None:
            return "job"
        return "message" if self.collective_share is None else "collective"


@dataclass(frozen=True, eq=False)
class Messages:
    """Messages that went over the fabric, as arrays (m,); times in ps, `end_ps` of the run where not done."""

    op: Int64s
    label: Int64s
    job: Int64s
    collective: Int64s
    qp: Int64s
    class_id: Int64s
    bytes: Int64s
    posted_ps: Int64s
    first_sent_ps: Int64s  # -1: none was sent
    done_ps: Int64s
    labels: list[str]
    jobs: list[str]


def messages_of(flows: pa.Table, end_ps: int) -> Messages:
    """Messages of a flows table that were posted, without those of scale-up domains."""
    label, labels = dictionary_column(flows, "label")
    job, jobs = dictionary_column(flows, "job")
    done_ps = integer_column(flows, "receiver_done_ps")
    columns = {
        "op": integer_column(flows, "op"),
        "label": label,
        "job": job,
        "collective": integer_column(flows, "collective"),
        "qp": integer_column(flows, "qp"),
        "class_id": dictionary_column(flows, "class")[0],
        "bytes": integer_column(flows, "bytes"),
        "posted_ps": integer_column(flows, "posted_ps"),
        "first_sent_ps": integer_column(flows, "first_sent_ps"),
        "done_ps": np.where(done_ps == NONE, end_ps, done_ps),
    }
    keep = (columns["qp"] != NONE) & (columns["posted_ps"] != NONE)
    return Messages(**{name: values[keep] for name, values in columns.items()}, labels=labels, jobs=jobs)


def culprits(messages: Messages, paths: Paths, chosen: NDArray[np.bool_]) -> list[Culprits]:
    """Chosen messages by workload, those with most bytes first."""
    found = []
    index = np.flatnonzero(chosen)
    for label, job, rows in _by_workload(messages, index):
        found.append(
            Culprits(
                label=messages.labels[label],
                job=messages.jobs[job] if job != NONE else None,
                messages=len(rows),
                bytes=int(messages.bytes[rows].sum()),
                senders=len(np.unique(paths.sender[messages.qp[rows]])),
            )
        )
    return sorted(found, key=lambda item: (-item.bytes, item.label))


def victims(
    messages: Messages,
    paths: Paths,
    candidates: NDArray[np.bool_],
    paused: tuple[Int64s, Int64s, Int64s],
    wholes: dict[str, Int64s],
) -> list[Victims]:
    """Candidates that were held up, by workload, those that were held up longest first.

    Parameters
    ----------
    messages, paths
        Of the run.
    candidates
        (m,) bool, messages to look at.
    paused
        Port, start and end of the pauses of the storm.
    wholes
        ``job`` and ``collective``: completion times in ps by number, -1 where there is none; empty without that table.
    """
    index = np.flatnonzero(candidates)
    held_ps = np.zeros(len(messages.op), dtype=np.int64)
    pieces: dict[str, list[tuple[Int64s, Int64s, Int64s]]] = {"job": [], "collective": []}
    kept = dict.fromkeys(pieces, 0)
    for rows, row, start, end in _held(messages, paths, index, paused):
        np.add.at(held_ps, rows[row], end - start)
        for name, parts in pieces.items():
            group = getattr(messages, name)[rows[row]]
            has = (group != NONE) & (group < len(wholes[name]))
            if has.any():
                parts.append(united(group[has], start[has], end[has]))
                kept[name] += len(parts[-1][0])
            if kept[name] > _ROWS_MAX:
                parts[:] = [_joined(parts)]
                kept[name] = len(parts[0][0])
    totals = {}
    for name, parts in pieces.items():
        group, start, end = _joined(parts)
        total = np.zeros(len(wholes[name]), dtype=np.int64)
        np.add.at(total, group, end - start)
        totals[name] = np.divide(total, wholes[name], out=np.zeros(len(total)), where=wholes[name] > 0)
    own_ps = np.maximum(messages.done_ps - messages.posted_ps, 1)
    found = []
    for label, job, rows in _by_workload(messages, index[held_ps[index] > 0]):
        collective = messages.collective[rows]
        collective = collective[(collective != NONE) & (collective < len(totals["collective"]))]
        found.append(
            Victims(
                label=messages.labels[label],
                job=messages.jobs[job] if job != NONE else None,
                messages=len(rows),
                held_ps=int(held_ps[rows].sum()),
                longest_ps=int(held_ps[rows].max()),
                message_share=float((held_ps[rows] / own_ps[rows]).max()),
                collective_share=float(totals["collective"][collective].max()) if len(collective) else None,
                job_share=float(totals["job"][job]) if job != NONE and job < len(totals["job"]) else None,
            )
        )
    return sorted(found, key=lambda item: (-item.held_ps, item.label))


def _by_workload(messages: Messages, index: Int64s) -> list[tuple[int, int, Int64s]]:
    """Label, job and rows of each workload that has any of some rows."""
    if not len(index):
        return []
    jobs = len(messages.jobs) + 1
    key = messages.label[index] * jobs + messages.job[index] + 1
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    parts = np.split(index[order], first[1:])
    return [(value // jobs, value % jobs - 1, rows) for value, rows in zip(keys.tolist(), parts, strict=True)]


def _joined(parts: list[tuple[Int64s, Int64s, Int64s]]) -> tuple[Int64s, Int64s, Int64s]:
    if not parts:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, nothing
    group, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return united(group, start, end)


def _held(messages: Messages, paths: Paths, index: Int64s, paused: tuple[Int64s, Int64s, Int64s]) -> Any:
    """Yield message rows, and (index among them, start, end) of the times in which their paths were paused."""
    port, start, end = united(*paused)
    ports, first = np.unique(port, return_index=True)
    number = np.full(int(max(paths.port.max(initial=0), port.max(initial=0))) + 2, NONE, dtype=np.int64)
    number[ports] = np.arange(len(ports))
    begin, past = first, np.append(first[1:], len(port))
    # Messages that meet the same paused ports are looked at together.
    pairs, pair = np.unique(messages.qp[index], return_inverse=True)
    meets = np.sort(np.where(paths.port[pairs] >= 0, number[paths.port[pairs]], NONE), axis=1)
    sets, which = np.unique(meets, axis=0, return_inverse=True)
    which = which.reshape(-1)[pair.reshape(-1)]
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(len(sets) + 1))
    for row in range(len(sets)):
        met = sets[row][sets[row] >= 0]
        rows = index[order[bounds[row] : bounds[row + 1]]]
        if not len(met) or not len(rows):
            continue
        chosen, _ = ragged(begin[met], past[met] - begin[met])
        _, starts, ends = united(np.zeros(len(chosen), dtype=np.int64), start[chosen], end[chosen])
        posted_ps, done_ps = messages.posted_ps[rows], messages.done_ps[rows]
        low = np.searchsorted(ends, posted_ps, side="right")
        count = np.maximum(np.searchsorted(starts, done_ps, side="left") - low, 0)
        parts = np.flatnonzero(np.diff(np.cumsum(count) // _ROWS_MAX, prepend=0))
        for piece in np.split(np.arange(len(rows)), parts):
            item, of = ragged(low[piece], count[piece])
            message = piece[of]
            yield rows, message, np.maximum(starts[item], posted_ps[message]), np.minimum(ends[item], done_ps[message])
