"""The operation graph as GOAL text: hosts are ranks; docs/GOAL.md says what the text keeps and what it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.errors import ScenarioError
from fabemu.plan import OP_RECV, VERB_READ
from fabemu.units import format_time
from fabemu.workload.flow import NONE, FlowTable
from fabemu.workload.graph import OperationGraph

Int64s = NDArray[np.int64]

PS_PER_NS = 1_000


@dataclass(frozen=True)
class GoalText:
    """A graph as text.

    Attributes
    ----------
    parts
        The text, rank by rank.
    notes
        What it does not keep, one line each.
    """

    parts: Iterator[str]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Lines:
    """Operations in the order of the text: those of a rank stand together."""

    rank: Int64s
    text: list[str]  # without the label
    before: Int64s
    after: Int64s


def goal_text(graph: OperationGraph, host_count: int, *, calc_unit_ps: int = PS_PER_NS, title: str = "") -> GoalText:
    """Write a graph as GOAL text.

    Rank i is host i. Messages of one source and destination that share a queue pair have one nic number, and tags count
    the messages between them, so that each has a recv of its own. A start time is a calc of that length before what
    starts then.

    Parameters
    ----------
    graph
        The graph.
    host_count
        Number of hosts of the fabric.
    calc_unit_ps
        What the numbers of calc count; times are rounded to it.
    title
        A comment to begin with.

    Raises
    ------
    ScenarioError
        A message is a READ: the language has sends and recvs only.
    """
    flows = graph.flows
    reads = np.flatnonzero(flows.verb == VERB_READ)
    if len(reads):
        label = flows.labels[int(flows.label_id[reads[0]])]
        raise ScenarioError(
            f'{len(reads):,} messages, the first of workload "{label}", are READs; GOAL has send and recv only: export '
            'with verb = "write"'
        )
    notes: list[str] = []
    lines = _lines(graph, calc_unit_ps, notes)
    notes += _lost(graph, calc_unit_ps)
    return GoalText(_parts(lines, host_count, calc_unit_ps, title), tuple(notes))


def _lines(graph: OperationGraph, unit_ps: int, notes: list[str]) -> _Lines:
    flows = graph.flows
    messages, others = len(flows), len(graph.kind)
    tag, nic = _number_in_pair(flows)
    is_recv = graph.kind == OP_RECV
    # Every message needs a recv in the text, whether anybody waits for it or not.
    bare = np.ones(messages, np.bool_)
    bare[graph.flow[is_recv]] = False
    lonely = np.flatnonzero(bare)

    start_ps = np.concatenate([flows.start_ps, graph.start_ps])
    host = graph.op_host.astype(np.int64)
    late = np.flatnonzero(start_ps > 0)
    # One calc for all that starts at one time on one host.
    starts, of_start = np.unique(np.stack([host[late], start_ps[late]], axis=1), axis=0, return_inverse=True)
    first_lonely = messages + others
    first_start = first_lonely + len(lonely)
    number = np.arange(first_start + len(starts))
    rank = np.concatenate([host, flows.dst[lonely], starts[:, 0]])

    length_ps = np.concatenate([graph.duration_ps, starts[:, 1]])
    length = (length_ps + unit_ps // 2) // unit_ps
    rounded = int((length * unit_ps != length_ps).sum())
    if rounded:
        notes.append(
            f"{rounded:,} of {len(length_ps):,} times are rounded to whole {format_time(unit_ps)}; "
            "--calc-unit 1ps keeps them"
        )
    text = [
        f"send {size}b to {dst} tag {of}{_nic(on)}"
        for size, dst, of, on in zip(flows.bytes.tolist(), flows.dst.tolist(), tag.tolist(), nic.tolist(), strict=True)
    ]
    recvs = _recv_texts(flows, tag, nic, np.where(is_recv, graph.flow, 0) if messages else np.zeros(others, np.int64))
    calcs = length.tolist()
    text += [recvs[at] if received else f"calc {calcs[at]}" for at, received in enumerate(is_recv.tolist())]
    text += _recv_texts(flows, tag, nic, lonely)
    text += [f"calc {item}" for item in calcs[others:]]

    waits = np.flatnonzero(flows.after != NONE)
    before = np.concatenate([flows.after[waits], graph.before, first_start + of_start.reshape(-1)]).astype(np.int64)
    after = np.concatenate([waits, graph.after, late]).astype(np.int64)
    # The order that an import gives them, sends before all others, so that they are written again as they were.
    behind = np.where(number < messages, 0, np.where(number < first_start, 2, 1))
    order = np.lexsort((number, behind, rank))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    by_waiting = np.lexsort((place[before], place[after]))
    return _Lines(
        rank=rank[order].astype(np.int64),
        text=[text[at] for at in order.tolist()],
        before=place[before][by_waiting],
        after=place[after][by_waiting],
    )


def _nic(number: int) -> str:
    return f" nic {number}" if number else ""


def _recv_texts(flows: FlowTable, tag: Int64s, nic: Int64s, flow: NDArray[np.integer]) -> list[str]:
    """Statements that receive flows."""
    if not len(flow) or not len(flows):
        return [""] * len(flow)
    columns = (flows.bytes[flow], flows.src[flow], tag[flow], nic[flow])
    return [
        f"recv {size}b from {src} tag {of}{_nic(on)}"
        for size, src, of, on in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _number_in_pair(flows: FlowTable) -> tuple[Int64s, Int64s]:
    """(n,) number of every message, and of its queue pair, among those of its source and destination."""
    count = len(flows)
    if not count:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    pair = flows.src.astype(np.int64) * (int(max(flows.src.max(), flows.dst.max())) + 1) + flows.dst
    tag = _number_in_group(pair)
    # A queue pair is known by its first message; what has one of its own is its first.
    first = np.arange(count)
    shared = np.flatnonzero(flows.qp != NONE)
    if len(shared):
        leader = np.full(int(flows.qp.max()) + 1, count)
        np.minimum.at(leader, flows.qp[shared], shared)
        first[shared] = leader[flows.qp[shared]]
    leads = np.flatnonzero(first == np.arange(count))
    nic = np.zeros(count, dtype=np.int64)
    nic[leads] = _number_in_group(pair[leads])
    return tag, nic[first]


def _number_in_group(group: Int64s) -> Int64s:
    """(n,) how many of the same group come before each."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    number = np.empty(len(group), dtype=np.int64)
    number[order] = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    return number


def _lost(graph: OperationGraph, unit_ps: int) -> list[str]:
    """What the text says nothing of."""
    flows = graph.flows
    lost = []
    if len(flows) and (flows.class_id != flows.class_id[0]).any():
        lost.append("messages of several classes: GOAL has no classes, an import puts all into one")
    ports = int((flows.sport != NONE).sum())
    if ports:
        lost.append(f"{ports:,} source ports that the scenario gives")
    if unit_ps != PS_PER_NS:
        unit = format_time(unit_ps)
        lost.append(f'calc counts {unit}, not ns: import with calc_unit = "{unit}"; other tools read ns')
    return lost


def _parts(lines: _Lines, host_count: int, unit_ps: int, title: str) -> Iterator[str]:
    """The text, piece by piece."""
    if title:
        yield "".join(f"// {line}\n" for line in title.splitlines())
    if unit_ps != PS_PER_NS:
        yield f"// calc counts {format_time(unit_ps)}\n"
    yield f"num_ranks {host_count}\n"
    ranks = np.arange(host_count + 1)
    first = np.searchsorted(lines.rank, ranks).tolist()
    first_edge = (
        np.searchsorted(lines.rank[lines.after], ranks).tolist() if len(lines.after) else [0] * (host_count + 1)
    )
    for rank in range(host_count):
        begin, end = first[rank], first[rank + 1]
        edges = slice(first_edge[rank], first_edge[rank + 1])
        own = [f"l{number}: {text}\n" for number, text in enumerate(lines.text[begin:end], start=1)]
        waits = (lines.after[edges] - begin + 1).tolist()
        awaited = (lines.before[edges] - begin + 1).tolist()
        own += [f"l{later} requires l{earlier}\n" for later, earlier in zip(waits, awaited, strict=True)]
        yield f"rank {rank} {{\n{''.join(own)}}}\n"
