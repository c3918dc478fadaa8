"""The operation graph to queue pairs and operations: operation i of the plan is operation i of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import ScenarioError
from fabemu.hashing import STREAM_QP, hash64, low32
from fabemu.plan import NONE, OP_SCALE_UP, OP_SEND, VERB_READ, VERB_SCALE_UP
from fabemu.workload.flow import FlowTable
from fabemu.workload.graph import OperationGraph

UDP = 17
ROCE_PORT = 4791
EPHEMERAL_FIRST, EPHEMERAL_COUNT = 49152, 16384
_DATA, _ACK = 0, 1


def compile_traffic(graph: OperationGraph, seed: int, host_count: int, *, truncate_ns: bool) -> dict[str, NDArray[Any]]:
    """The `qp_*`, `op_*` and `host_op*` fields of `Plan`, by name.

    QPs are numbered by their first flow. `truncate_ns` cuts start times to whole nanoseconds.

    The graph has passed `fabemu.compile.soundness`. Raises ScenarioError if flows of one QP differ in source,
    destination, class or verb.
    """
    flows = graph.flows
    count = len(flows)
    inside = flows.verb == VERB_SCALE_UP
    qp_of_flow, first_flow = _queue_pairs(flows, ~inside)
    sends = np.flatnonzero(~inside)
    src, dst = flows.src[first_flow], flows.dst[first_flow]
    verb = flows.verb[first_flow]
    reads = verb == VERB_READ
    fields = _hashes(seed, np.where(reads, dst, src), np.where(reads, src, dst), flows.sport[first_flow])
    fields |= {"qp_src": src, "qp_dst": dst, "qp_class": flows.class_id[first_flow], "qp_verb": verb}
    fields["qp_op"] = sends[np.argsort(qp_of_flow[sends], kind="stable")]
    fields["qp_op_start"] = _offsets(np.bincount(qp_of_flow[sends], minlength=len(first_flow)))

    before, after = _waits(graph)
    order = np.argsort(before, kind="stable")
    dependency_count = np.bincount(after, minlength=len(graph)).astype(np.int32)
    start_ps = np.concatenate([flows.start_ps, graph.start_ps])
    if truncate_ns:
        start_ps -= start_ps % 1000
    host = graph.op_host
    ready = np.flatnonzero(dependency_count == 0)
    ready = ready[np.lexsort((ready, start_ps[ready], host[ready]))]
    peer = np.concatenate([np.full(count, NONE, dtype=np.int32), graph.flow])
    received = np.flatnonzero(graph.flow != NONE)
    peer[graph.flow[received]] = count + received
    rest = len(graph.kind)
    return fields | {
        "op_kind": np.concatenate([np.where(inside, OP_SCALE_UP, OP_SEND).astype(np.uint8), graph.kind]),
        "op_host": host,
        "op_qp": np.concatenate([qp_of_flow.astype(np.int32), np.full(rest, NONE, dtype=np.int32)]),
        "op_bytes": np.concatenate([flows.bytes, np.zeros(rest, dtype=np.int64)]),
        "op_duration_ps": np.concatenate([np.zeros(count, dtype=np.int64), graph.duration_ps]),
        "op_start_ps": start_ps,
        "op_peer": peer,
        "op_dependency_count": dependency_count,
        "op_successor_start": _offsets(np.bincount(before, minlength=len(graph))),
        "op_successor": after[order],
        "host_op_start": _offsets(np.bincount(host[ready], minlength=host_count)),
        "host_op": ready,
    }


def _waits(graph: OperationGraph) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(E,) operations that are waited for, and (E,) those that wait."""
    flows = graph.flows
    waits = np.flatnonzero(flows.after != NONE).astype(np.int32)
    awaited = flows.after[waits]
    if not len(graph.before):
        return awaited, waits
    return np.concatenate([awaited, graph.before]), np.concatenate([waits, graph.after])


def _queue_pairs(flows: FlowTable, sent: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(F,) QP of every flow, NONE for those not `sent` by one, and (Q,) first flow of every QP."""
    count = len(flows)
    leader = np.arange(count)
    shared = np.flatnonzero((flows.qp != NONE) & sent)
    if len(shared):
        # QPs are numbered densely, so the first of each is found without sorting.
        first = np.full(int(flows.qp.max()) + 1, count)
        np.minimum.at(first, flows.qp[shared], shared)
        leader[shared] = first[flows.qp[shared]]
        for name in ("src", "dst", "class_id", "verb"):
            column = getattr(flows, name)
            wrong = shared[column[shared] != column[leader[shared]]]
            if len(wrong):
                at = int(wrong[0])
                raise ScenarioError(
                    f"flows {leader[at]} and {at} share a QP, but differ in {name.removesuffix('_id')}: "
                    f"{column[leader[at]]} and {column[at]}"
                )
    leads = (leader == np.arange(count)) & sent
    number = np.cumsum(leads) - 1
    return np.where(sent, number[leader], NONE), np.flatnonzero(leads)


def source_ports(seed: int, sport: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """UDP source ports of queue pairs.

    Parameters
    ----------
    seed
        Of the scenario.
    sport
        (Q,) the ports that flows ask for, NONE to draw one.

    Returns
    -------
    data, answers
        (Q,) of the data, and of what comes back: ACKs, NAKs, CNPs, and the requests of READs.
    """
    qps = np.arange(len(sport))

    def drawn(direction: int) -> NDArray[np.int64]:
        # Two QPs between the same hosts draw different ports, and so do the two directions of one.
        draws = hash64(seed, STREAM_QP, qps, direction) % np.uint64(EPHEMERAL_COUNT)
        return draws.astype(np.int64) + EPHEMERAL_FIRST

    return np.where(sport == NONE, drawn(_DATA), sport), drawn(_ACK)


def _hashes(seed: int, src: NDArray[Any], dst: NDArray[Any], sport: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Flow hashes of every QP: of its data, which flow from `src` to `dst`, and of what comes back."""
    data_port, answer_port = source_ports(seed, sport)
    return {
        "qp_hash": low32(hash64(src, dst, UDP, data_port, ROCE_PORT)),
        "qp_ack_hash": low32(hash64(dst, src, UDP, answer_port, ROCE_PORT)),
    }


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets of n+1 entries of consecutive groups of the given sizes."""
    return np.concatenate([[0], np.cumsum(counts)])
