"""Flows to queue pairs and operations: operation i of the plan is flow i of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import ScenarioError
from fabemu.hashing import STREAM_QP, hash64, low32
from fabemu.plan import NONE, OP_SEND, VERB_READ
from fabemu.workload.flow import FlowTable

UDP = 17
ROCE_PORT = 4791
EPHEMERAL_FIRST, EPHEMERAL_COUNT = 49152, 16384
_DATA, _ACK = 0, 1


def compile_traffic(flows: FlowTable, seed: int, host_count: int, *, truncate_ns: bool) -> dict[str, NDArray[Any]]:
    """The `qp_*`, `op_*` and `host_op*` fields of `Plan`, by name.

    QPs are numbered by their first flow. `truncate_ns` cuts start times to whole nanoseconds.

    Raises ScenarioError if flows of one QP differ in source, destination, class or verb, or a flow waits for one of
    another host.
    """
    count = len(flows)
    qp_of_flow, first_flow = _queue_pairs(flows)
    qp_count = len(first_flow)
    src, dst = flows.src[first_flow], flows.dst[first_flow]
    verb = flows.verb[first_flow]
    reads = verb == VERB_READ
    fields = _hashes(seed, np.where(reads, dst, src), np.where(reads, src, dst), flows.sport[first_flow])
    fields |= {"qp_src": src, "qp_dst": dst, "qp_class": flows.class_id[first_flow], "qp_verb": verb}
    fields["qp_op"] = np.argsort(qp_of_flow, kind="stable")
    fields["qp_op_start"] = _offsets(np.bincount(qp_of_flow, minlength=qp_count))

    waits = np.flatnonzero(flows.after != NONE)
    awaited = flows.after[waits]
    foreign = flows.src[waits] != flows.src[awaited]
    if foreign.any():
        at = int(waits[foreign][0])
        raise ScenarioError(f"flow {at} waits for flow {flows.after[at]}, which another host sends")
    order = np.argsort(awaited, kind="stable")
    start_ps = flows.start_ps - flows.start_ps % 1000 if truncate_ns else flows.start_ps
    ready = np.flatnonzero(flows.after == NONE)
    ready = ready[np.lexsort((ready, start_ps[ready], flows.src[ready]))]
    return fields | {
        "op_kind": np.full(count, OP_SEND, dtype=np.uint8),
        "op_host": flows.src,
        "op_qp": qp_of_flow,
        "op_bytes": flows.bytes,
        "op_duration_ps": np.zeros(count, dtype=np.int64),
        "op_start_ps": start_ps,
        "op_peer": np.full(count, NONE, dtype=np.int32),
        "op_dependency_count": (flows.after != NONE).astype(np.int32),
        "op_successor_start": _offsets(np.bincount(awaited, minlength=count)),
        "op_successor": waits[order],
        "host_op_start": _offsets(np.bincount(flows.src[ready], minlength=host_count)),
        "host_op": ready,
    }


def _queue_pairs(flows: FlowTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(F,) QP of every flow and (Q,) first flow of every QP."""
    count = len(flows)
    leader = np.arange(count)
    shared = np.flatnonzero(flows.qp != NONE)
    if len(shared):
        _, first, inverse = np.unique(flows.qp[shared], return_index=True, return_inverse=True)
        leader[shared] = shared[first][inverse]
        for name in ("src", "dst", "class_id", "verb"):
            column = getattr(flows, name)
            wrong = shared[column[shared] != column[leader[shared]]]
            if len(wrong):
                at = int(wrong[0])
                raise ScenarioError(
                    f"flows {leader[at]} and {at} share a QP, but differ in {name.removesuffix('_id')}: "
                    f"{column[leader[at]]} and {column[at]}"
                )
    first_flow = np.flatnonzero(leader == np.arange(count))
    number = np.cumsum(leader == np.arange(count)) - 1
    return number[leader], first_flow


def _hashes(seed: int, src: NDArray[Any], dst: NDArray[Any], sport: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Flow hashes of every QP: of its data, which flow from `src` to `dst`, and of what comes back."""
    qps = np.arange(len(src))

    def drawn(direction: int) -> NDArray[np.int64]:
        # Two QPs between the same hosts draw different ports, and so do the two directions of one.
        draws = hash64(seed, STREAM_QP, qps, direction) % np.uint64(EPHEMERAL_COUNT)
        return draws.astype(np.int64) + EPHEMERAL_FIRST

    data_port = np.where(sport == NONE, drawn(_DATA), sport)
    return {
        "qp_hash": low32(hash64(src, dst, UDP, data_port, ROCE_PORT)),
        "qp_ack_hash": low32(hash64(dst, src, UDP, drawn(_ACK), ROCE_PORT)),
    }


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets of n+1 entries of consecutive groups of the given sizes."""
    return np.concatenate([[0], np.cumsum(counts)])
