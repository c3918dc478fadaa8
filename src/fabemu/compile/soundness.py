"""Whether an operation graph can run at all: numbers, hosts and times in range, and nothing that waits for itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.cycle import shortest_cycle
from fabemu.errors import ScenarioError
from fabemu.plan import NONE, OP_CALC, OP_RECV, VERB_READ, VERB_SCALE_UP
from fabemu.precedence import cycle, levels
from fabemu.workload.graph import OperationGraph

Int64s = NDArray[np.int64]

SHOWN_MAX = 12
"""Operations of a cycle that a message shows."""
_ROUNDS = 32
"""Operations in a row without a message between them, up to which the order of the messages is looked at alone."""
_KINDS = {OP_RECV: "recv", OP_CALC: "calc"}
_COLUMNS = ("kind", "host", "flow", "duration_ps", "start_ps", "label_id", "collective")


def check_operations(graph: OperationGraph, host_names: Sequence[str]) -> None:
    """Check every operation and every wait by itself.

    Flows are looked at as far as other operations speak of them.

    Raises ScenarioError, with the first operation or wait that is wrong, if columns differ in length; a recv, a calc or
    a wait is on no host, of no kind, or has a number that no flow or operation has; a time is negative; a recv is not
    where its message arrives, or not the only one of it; an operation waits for one of another host.
    """
    hosts, count, total = len(host_names), len(graph.flows), len(graph)
    _check_columns(graph)
    receives = graph.kind == OP_RECV

    def refuse(wrong: NDArray[np.bool_], reason: str, column: NDArray[np.integer] | None = None) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            kind = _KINDS.get(int(graph.kind[at]), "neither recv nor calc")
            value = "" if column is None else f" {column[at]}"
            raise ScenarioError(f"operation {count + at} ({kind}): {reason.format(value)}")

    if len(graph.kind):
        refuse(~receives & (graph.kind != OP_CALC), f"kind{{}}; it must be {OP_RECV} or {OP_CALC}", graph.kind)
        refuse((graph.host < 0) | (graph.host >= hosts), f"host{{}} of {hosts}; hosts are 0 to {hosts - 1}", graph.host)
        refuse(graph.duration_ps < 0, "duration{} ps is negative; it must be 0 or more", graph.duration_ps)
        refuse(graph.start_ps < 0, "start{} ps is negative; it must be 0 or more", graph.start_ps)
        outside = (graph.flow < 0) | (graph.flow >= count)
        refuse(receives & outside, f"flow{{}} of {count}; a recv names the flow that it receives", graph.flow)
        refuse(~receives & (graph.flow != NONE), f"flow{{}}; a calc receives none, which is {NONE}", graph.flow)
        _check_receivers(graph, np.flatnonzero(receives), host_names)

    flows = graph.flows
    if len(flows) and (flows.after.min() < NONE or flows.after.max() >= count):
        at = int(np.flatnonzero((flows.after < NONE) | (flows.after >= count))[0])
        raise ScenarioError(f"flow {at} waits for flow {flows.after[at]} of {count}; none is {NONE}")
    for name in ("before", "after"):
        number = getattr(graph, name)
        if len(number) and (number.min() < 0 or number.max() >= total):
            at = int(np.flatnonzero((number < 0) | (number >= total))[0])
            raise ScenarioError(f"{name}[{at}]: operation {number[at]} of {total}; operations are 0 to {total - 1}")
    _check_neighbours(graph)


def check_order(graph: OperationGraph, host_names: Sequence[str]) -> None:
    """Check that no operation waits for itself, by whatever way.

    An operation waits for those before it; a recv for its message; a message also for the one before it on its queue
    pair, which sends in order. The graph has passed `check_operations`.

    Raises ScenarioError with the operations of one cycle.
    """
    flows, count = graph.flows, len(graph.flows)
    waits = np.flatnonzero(flows.after != NONE)
    if (flows.after[waits] < waits).all() and _follows_messages(graph):
        return
    shared = np.flatnonzero((flows.qp != NONE) & (flows.verb != VERB_SCALE_UP))
    shared = shared[np.argsort(flows.qp[shared], kind="stable")]
    same = flows.qp[shared[1:]] == flows.qp[shared[:-1]]
    receives = np.flatnonzero(graph.kind == OP_RECV)
    before = np.concatenate([flows.after[waits], graph.before, graph.flow[receives], shared[:-1][same]]).astype(
        np.int64
    )
    after = np.concatenate([waits, graph.after, receives + count, shared[1:][same]]).astype(np.int64)
    level = levels(len(graph), before, after)
    if (level >= 0).all():
        return
    found = shortest_cycle(cycle(level, before, after), before, after)
    ahead = dict(zip(shared[1:][same].tolist(), shared[:-1][same].tolist(), strict=True))
    raise ScenarioError(_cycle_message(graph, found, ahead, host_names))


def _check_columns(graph: OperationGraph) -> None:
    lengths = {name: len(getattr(graph, name)) for name in _COLUMNS}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ScenarioError(f"columns of the operation graph differ in length: {shown}")
    if len(graph.before) != len(graph.after):
        raise ScenarioError(
            f"columns of the operation graph differ in length: before {len(graph.before)}, after {len(graph.after)}"
        )


def _check_receivers(graph: OperationGraph, receives: Int64s, names: Sequence[str]) -> None:
    """`receives` are the recvs, counted among the operations that are no messages."""
    flows, count = graph.flows, len(graph.flows)
    flow = graph.flow[receives]
    reads = flows.verb[flow] == VERB_READ
    end = np.where(reads, flows.src[flow], flows.dst[flow])
    # A flow whose end is no host is refused as such.
    wrong = np.flatnonzero((graph.host[receives] != end) & (end >= 0) & (end < len(names)))
    if len(wrong):
        at = int(wrong[0])
        which = "source of that READ" if reads[at] else "destination of that flow"
        raise ScenarioError(
            f"operation {count + receives[at]} (recv): {names[graph.host[receives[at]]]} receives flow {flow[at]}, but "
            f"its bytes go to {names[end[at]]}, the {which}; the recv must be there"
        )
    if (np.bincount(flow, minlength=1) > 1).any():
        twice = int(flow[np.bincount(flow)[flow] > 1][0])
        first, second = (count + receives[flow == twice])[:2].tolist()
        raise ScenarioError(
            f"operations {first} and {second} (recv) both receive flow {twice}; a flow has one recv at most: "
            "have what waits for the second wait for the first"
        )


def _check_neighbours(graph: OperationGraph) -> None:
    """Raise ScenarioError if an operation waits for one of another host."""
    flows = graph.flows
    waits = np.flatnonzero(flows.after != NONE)
    foreign = flows.src[waits] != flows.src[flows.after[waits]]
    if foreign.any():
        at = int(waits[foreign][0])
        raise ScenarioError(f"flow {at} waits for flow {flows.after[at]}, which another host sends")
    if not len(graph.before):
        return
    host = graph.op_host
    foreign = host[graph.before] != host[graph.after]
    if foreign.any():
        edge = int(np.flatnonzero(foreign)[0])
        raise ScenarioError(
            f"operation {graph.after[edge]} of host {host[graph.after[edge]]} waits for operation "
            f"{graph.before[edge]} of host {host[graph.before[edge]]}; what crosses hosts is a message"
        )


def _follows_messages(graph: OperationGraph) -> bool:
    """Whether the numbers of the messages are an order in which everything can be done; if not, there may be another.

    Every operation gets the largest number of a message that it needs (a message: its own). Nothing waits for itself
    if these numbers rise into every message, and numbers of operations rise where they are equal. This spares the
    generators' graphs, whose messages are made in such an order, the walk through all their levels.
    """
    before, after, count = graph.before, graph.after, len(graph.flows)
    if not len(before):
        return True
    need = np.full(len(graph), NONE, dtype=np.int32)
    need[:count] = np.arange(count, dtype=np.int32)
    need[count:] = graph.flow
    into_message = after < count
    rest = np.flatnonzero(~into_message)
    source, target = before[rest], after[rest]
    for _ in range(_ROUNDS):
        late = need[source] > need[target]
        if not late.any():
            break
        np.maximum.at(need, target[late], need[source[late]])
    else:
        return False
    if not (need[before[into_message]] < after[into_message]).all():
        return False
    return bool(((need[source] < need[target]) | (source < target)).all())


def _cycle_message(graph: OperationGraph, found: Sequence[int], ahead: dict[int, int], names: Sequence[str]) -> str:
    """`found` are the operations of a cycle, `ahead` the message before each on its QP."""
    host, flows = graph.op_host, graph.flows
    ordered = False
    shown = []
    for previous, number in zip([found[-1], *found[:-1]], found, strict=True):
        name = names[host[number]]
        if number >= len(flows):
            other = number - len(flows)
            received = graph.kind[other] == OP_RECV
            shown.append(
                f"{name} {f'receives flow {graph.flow[other]}' if received else f'computes (operation {number})'}"
            )
            continue
        behind = ahead.get(number) == previous and flows.after[number] != previous
        ordered |= behind
        does = "reads" if flows.verb[number] == VERB_READ else "sends"
        shown.append(
            f"{name} {does} flow {number}" + (f" (after flow {previous} on their queue pair)" if behind else "")
        )
    if len(shown) > SHOWN_MAX:
        shown[SHOWN_MAX - 1 :] = [f"... ({len(shown) - SHOWN_MAX + 1} more)"]
    chain = " -> ".join([*shown, shown[0]])
    advice = "take one of these waits away"
    if ordered:
        advice += (
            ", or give the messages of the queue pair the order in which they become ready or queue pairs of their own"
        )
    return f"operations wait for each other: {chain}; each waits for the one before it, so none can begin: {advice}"
