"""Pauses: who paused most, and which port a storm of pauses goes back to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fabemu.deferred import dataclass
from fabemu.trace import NONE, dictionary_column, integer_column

COLUMNS = (
    "xoff_ps",
    "start_ps",
    "end_ps",
    "port",
    "paused_port",
    "class",
    "end",
    "egress_port",
    "crossed",
    "parent_port",
)
"""Columns of the pauses table that are needed here."""

ROOT_CAUSES = ("congestion", "storm", "receiver")
"""What a port at the root did: its queue grew, or it belongs to a host in a storm or one that takes data in slowly."""


@dataclass(frozen=True)
class PauseTotal:
    """All pauses of a run together."""

    count: int
    paused_ps: int  # sum over pauses
    longest_ps: int
    by_end: dict[str, int]  # count by how they ended


@dataclass(frozen=True)
class PausingPort:
    """Pauses by one port, for one class."""

    port: str
    class_name: str
    count: int
    paused_ps: int
    longest_ps: int


@dataclass(frozen=True)
class RootPort(PausingPort):
    """Pauses of one class that go back to one port."""

    cause: str  # one of ROOT_CAUSES


@dataclass(frozen=True)
class PauseRoots:
    """Where all pauses go back to; together these are all of them."""

    ports: list[RootPort]  # those with the most paused time
    other_ports: int  # how many more there are, and their pauses
    other_count: int
    other_paused_ps: int
    unknown_count: int  # pauses without a port at the root
    unknown_paused_ps: int


def total(pauses: pa.Table) -> PauseTotal:
    """Count, time and ends of all pauses."""
    length_ps = lengths_ps(pauses)
    end, names = dictionary_column(pauses, "end")
    return PauseTotal(
        count=len(length_ps),
        paused_ps=int(length_ps.sum()),
        longest_ps=int(length_ps.max(initial=0)),
        by_end={name: int(np.count_nonzero(end == index)) for index, name in enumerate(names)},
    )


def pausing_ports(pauses: pa.Table, limit: int = 10) -> list[PausingPort]:
    """Ports that paused their peers, those with the most paused time first."""
    port, port_names = dictionary_column(pauses, "port")
    return _ranked(pauses, port, port_names, limit)


def pause_roots(pauses: pa.Table, limit: int = 10) -> PauseRoots:
    """Ports that the pauses go back to, those with the most paused time first.

    A pause is caused by the egress port that most of the bytes waited for. If that port was itself paused at the time,
    the cause is that other pause, and so on: the root is the first egress port that was not paused, or the port of a
    host that raised the first of these pauses by itself, in a storm or because it takes data in slowly.
    """
    egress, names = dictionary_column(pauses, "egress_port")
    port, _ = dictionary_column(pauses, "port")
    crossed, crossed_names = dictionary_column(pauses, "crossed")
    length_ps, first = lengths_ps(pauses), roots(pauses)
    cause = np.zeros(len(port), dtype=np.int64)
    for number, name in enumerate(ROOT_CAUSES):
        if name in crossed_names:
            cause[crossed[first] == crossed_names.index(name)] = number
    root = np.where(cause == 0, egress[first], port[first])
    found: list[RootPort] = []
    for number, name in enumerate(ROOT_CAUSES):
        ranked = _ranked(pauses, np.where(cause == number, root, NONE), names)
        found += [RootPort(**vars(item), cause=name) for item in ranked]
    found.sort(key=lambda item: (-item.paused_ps, -item.count))
    others, unknown = found[limit:], root == NONE
    return PauseRoots(
        ports=found[:limit],
        other_ports=len(others),
        other_count=sum(item.count for item in others),
        other_paused_ps=sum(item.paused_ps for item in others),
        unknown_count=int(np.count_nonzero(unknown)),
        unknown_paused_ps=int(length_ps[unknown].sum()),
    )


def roots(pauses: pa.Table) -> np.ndarray:
    """(rows,) row number of the pause at the root of each pause; its own where nothing is behind it."""
    return ancestry(pauses)[1]


def ancestry(pauses: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The trees of pauses: what is behind each, at its root, and how far away that is.

    Returns
    -------
    (rows,) int64, (rows,) int64, (rows,) int64
        Row number of the pause behind each, and of the one at the root of its tree, its own where there is none;
        number of pauses from the root to it, 1 at the root.
    """
    above, _ = pause_parents(pauses)
    own = np.arange(len(above))
    xoff_ps = integer_column(pauses, "xoff_ps")
    # A pause was decided before it took effect, so a cause is always older: no circles.
    parent = np.where((above >= 0) & (xoff_ps[above] < xoff_ps), above, own) if len(above) else own
    # Every turn doubles how far up each has looked.
    root, steps = parent, (parent != own).astype(np.int64)
    while True:
        further = root[root]
        if np.array_equal(further, root):
            return parent, root, steps + 1
        steps = steps + steps[root]
        root = further


def closing_ps(pauses: pa.Table, ports: Sequence[str], class_name: str, time_ps: int) -> int | None:
    """When a cycle of waiting queues closed: the start of the last of the pauses that hold them at a time.

    Parameters
    ----------
    pauses
        The pauses table.
    ports, class_name
        Egress ports on the cycle, and the class that waits there.
    time_ps
        When the cycle was found.

    Returns
    -------
    int or None
        Time in ps; None unless a pause holds each of them, such as on a cycle of credits.
    """
    start_ps, end_ps = integer_column(pauses, "start_ps"), integer_column(pauses, "end_ps", 2**62)
    paused, names = dictionary_column(pauses, "paused_port")
    class_id, class_names = dictionary_column(pauses, "class")
    held = (start_ps != NONE) & (start_ps <= time_ps) & (time_ps <= end_ps)
    held &= class_id == (class_names.index(class_name) if class_name in class_names else NONE)
    starts = []
    for port in ports:
        here = start_ps[held & (paused == (names.index(port) if port in names else NONE))]
        if not len(here):
            return None
        starts.append(int(here.max()))
    return max(starts, default=None)


def pause_parents(pauses: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The pause behind each pause, by its column `parent_port`, and how many pauses each is directly behind.

    Returns
    -------
    (rows,) int64, (rows,) int64
        Row number of the parent: the pause of `parent_port` for the same class that was in force when XOFF was raised;
        -1 at the root of a storm. Number of children.
    """
    xoff_ps = integer_column(pauses, "xoff_ps")
    start_ps, end_ps = integer_column(pauses, "start_ps"), integer_column(pauses, "end_ps", 2**62)
    port, _ = dictionary_column(pauses, "port")
    wanted, _ = dictionary_column(pauses, "parent_port")
    class_id, class_names = dictionary_column(pauses, "class")
    parent = np.full(len(xoff_ps), -1, dtype=np.int64)
    classes = max(len(class_names), 1)
    # Pauses of one (port, class) do not overlap: the one that covers a time is the last that had started by then.
    started = np.flatnonzero(start_ps != NONE)
    order = started[np.lexsort((start_ps[started], port[started] * classes + class_id[started]))]
    known = len(order)
    asking = np.flatnonzero(wanted != NONE)
    # Both in one sequence by port, class and time, a pause before what asks for it at the same instant: the last pause
    # before a question is the one that it is about, if port and class are.
    key = np.concatenate([port[order], wanted[asking]]) * classes + np.concatenate([class_id[order], class_id[asking]])
    time_ps = np.concatenate([start_ps[order], xoff_ps[asking]])
    sequence = np.lexsort((np.arange(len(key)) >= known, time_ps, key))
    last = np.empty(len(key), dtype=np.int64)
    last[sequence] = np.maximum.accumulate(np.where(sequence < known, sequence, -1))
    last = last[known:]
    same = last >= 0
    same[same] = key[last[same]] == key[known:][same]
    above = order[last[same]]
    covers = end_ps[above] > xoff_ps[asking[same]]
    parent[asking[same][covers]] = above[covers]
    return parent, np.bincount(parent[parent >= 0], minlength=len(parent))


def lengths_ps(pauses: pa.Table) -> np.ndarray:
    """(rows,) int64, how long each pause was in effect, ps; 0 if it never was."""
    start_ps, end_ps = integer_column(pauses, "start_ps"), integer_column(pauses, "end_ps")
    return np.where((start_ps != NONE) & (end_ps != NONE), np.maximum(end_ps - start_ps, 0), 0)


def _ranked(pauses: pa.Table, port: np.ndarray, port_names: list[str], limit: int | None = None) -> list[PausingPort]:
    class_id, class_names = dictionary_column(pauses, "class")
    known = port != NONE
    length_ps = lengths_ps(pauses)[known]
    classes = max(len(class_names), 1)
    keys, place = np.unique(port[known] * classes + class_id[known], return_inverse=True)
    count = np.bincount(place, minlength=len(keys))
    paused_ps, longest_ps = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(paused_ps, place, length_ps)
    np.maximum.at(longest_ps, place, length_ps)
    order = np.lexsort((keys, -count, -paused_ps))[:limit]
    return [
        PausingPort(
            port=port_names[int(keys[index]) // classes],
            class_name=class_names[int(keys[index]) % classes],
            count=int(count[index]),
            paused_ps=int(paused_ps[index]),
            longest_ps=int(longest_ps[index]),
        )
        for index in order
    ]
