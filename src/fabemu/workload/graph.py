"""The operation graph: messages, what is computed, and what waits for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.plan import OP_CALC, OP_RECV, VERB_WRITE
from fabemu.workload.flow import NONE, FlowTable, concatenate, flow_table, refuse_too_many, refuse_wrapping


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One run of one collective, as the tables speak of it."""

    label: str  # of its workload
    operation: str  # all-reduce, ...
    algorithm: str
    iteration: int  # of its workload, from 0
    ranks: int
    size_bytes: int  # as nccl-tests counts it
    bus_factor: float  # bus bandwidth = bus_factor x size / time
    ideal_ps: int = NONE  # time that its bound allows; NONE = unknown
    purpose: str | None = None  # of a training step's: what it is for, one of PURPOSES of `fabemu.trace`
    group: int = 0  # of the ranks, among those of the workload that do the same beside each other


@dataclass(frozen=True, eq=False, kw_only=True)
class StepTrack:
    """The steps of a training workload: what each of its ranks computes, one thing after the other.

    Attributes
    ----------
    label
        Of the workload.
    start_ps
        It begins.
    rank_count
        Its ranks.
    steps
        Their number.
    stages, micro_batches
        Of the pipeline.
    tokens
        Of a step.
    flops
        FLOPs of a step, of all ranks, forward and backward.
    peak_flops
        FLOP/s of a rank to which the utilisation refers; None: unknown.
    calc
        (K,) int64, its calcs, counted among the operations that are no messages.
    rank, step
        (K,) int32, of each; those of one rank in their order.
    purpose
        (K,) int8, what its rank may have waited for since the calc before: index into PURPOSES of `fabemu.trace`, or -1
        if it did not wait.
    """

    label: str
    start_ps: int
    rank_count: int
    steps: int
    stages: int
    micro_batches: int
    tokens: int
    flops: int
    peak_flops: int | None
    calc: NDArray[np.int64]
    rank: NDArray[np.int32]
    step: NDArray[np.int32]
    purpose: NDArray[np.int8]


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedJob:
    """A job on its hosts."""

    name: str
    hosts: NDArray[np.int64]  # (R,) in the order of its ranks
    start_ps: int  # it arrives
    labels: tuple[str, ...]  # of its workloads


@dataclass(frozen=True, eq=False, kw_only=True)
class OperationGraph:
    """All operations of a run. Those below ``len(flows)`` send the flow of their number; M others follow.

    Attributes
    ----------
    flows
        The messages.
    kind
        (M,) uint8, OP_RECV or OP_CALC of `fabemu.plan`.
    host
        (M,) int32, host that runs it.
    flow
        (M,) int32, of a recv the flow that it receives, else -1. A flow has one recv at most, on the host where its
        bytes arrive: its destination, or the source of a READ.
    duration_ps
        (M,) int64, of a calc.
    start_ps
        (M,) int64, earliest posting.
    label_id
        (M,) int32, index into `flows.labels`.
    collective
        (M,) int32, index into `collectives`, or -1.
    before, after
        (E,) int32, numbers of operations of one host: the one in `after` is posted when all in `before` that belong to
        it are done. What `flows.after` says is not repeated here. Nothing may wait for itself; a recv waits for its
        message, too, and a message for the one before it on its QP.
    collectives
        By their numbers.
    jobs
        In the order of the scenario.
    tracks
        Of its training workloads.
    """

    flows: FlowTable
    kind: NDArray[np.uint8] = field(default=None, metadata={"dtype": "u1"})  # type: ignore[arg-type]
    host: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    flow: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    duration_ps: NDArray[np.int64] = field(default=None, metadata={"dtype": "i8"})  # type: ignore[arg-type]
    start_ps: NDArray[np.int64] = field(default=None, metadata={"dtype": "i8"})  # type: ignore[arg-type]
    label_id: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    collective: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    before: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    after: NDArray[np.int32] = field(default=None, metadata={"dtype": "i4"})  # type: ignore[arg-type]
    collectives: tuple[Collective, ...] = ()
    jobs: tuple[PlacedJob, ...] = ()
    tracks: tuple[StepTrack, ...] = ()

    def __post_init__(self) -> None:
        """Convert the columns to their types and make them read-only; ScenarioError if one does not fit.

        What the columns say is checked by `fabemu.compile.soundness`.
        """
        refuse_too_many(len(self.flows) + (0 if self.kind is None else len(self.kind)))
        for item in fields(self):
            if "dtype" in item.metadata:
                values = getattr(self, item.name)
                values = np.asarray(() if values is None else values)
                refuse_wrapping(item.name, values, item.metadata["dtype"])
                column = np.ascontiguousarray(values, dtype=item.metadata["dtype"])
                column.flags.writeable = False
                object.__setattr__(self, item.name, column)

    def __len__(self) -> int:
        """Number of operations."""
        return len(self.flows) + len(self.kind)

    @property
    def op_host(self) -> NDArray[np.int32]:
        """(O,) host of every operation."""
        return np.concatenate([self.flows.src, self.host])

    @property
    def op_label_id(self) -> NDArray[np.int32]:
        """(O,) label of every operation."""
        return np.concatenate([self.flows.label_id, self.label_id])

    @property
    def op_collective(self) -> NDArray[np.int32]:
        """(O,) collective of every operation, or -1."""
        return np.concatenate([self.flows.collective, self.collective])

    @property
    def job_of_label(self) -> NDArray[np.int32]:
        """(labels,) number of the job that has each label, or -1."""
        job = {label: index for index, item in enumerate(self.jobs) for label in item.labels}
        return np.array([job.get(label, NONE) for label in self.flows.labels], dtype=np.int32)

    def of_job(self, index: int) -> tuple[OperationGraph, NDArray[np.int64]]:
        """What one job does, without its steps of training, and (n,) the numbers that its operations have here.

        Labels and collectives keep their numbers; those of others are left without operations.
        """
        label_id = [number for number, label in enumerate(self.flows.labels) if label in self.jobs[index].labels]
        keep = np.isin(self.op_label_id, label_id)
        count = len(self.flows)
        number = np.cumsum(keep) - 1
        edge = keep[self.before]
        columns: dict[str, Any] = {
            name: getattr(self, name)[keep[count:]] for name in ("kind", "host", "duration_ps", "start_ps", "label_id")
        }
        flow = self.flow[keep[count:]]
        part = replace(
            self,
            flows=self.flows.rows(keep[:count]),
            flow=np.where(flow == NONE, NONE, number[flow]),
            collective=self.collective[keep[count:]],
            before=number[self.before[edge]],
            after=number[self.after[edge]],
            jobs=(self.jobs[index],),
            tracks=(),
            **columns,
        )
        return part, np.flatnonzero(keep)

    def with_flows(self, flows: FlowTable) -> OperationGraph:
        """The same graph with other columns of the same flows."""
        if len(flows) != len(self.flows):
            raise ValueError(f"{len(flows)} flows in place of {len(self.flows)}")
        return replace(self, flows=flows)


class GraphBuilder:
    """Collects the operations of one workload; the arrays of a call are as long as each other, or single values.

    The numbers that it gives are its own; `build` turns them into those of the graph.
    """

    def __init__(self, *, label: str, class_id: int, verb: int = VERB_WRITE, start_ps: int = 0) -> None:
        """Begin a graph all of whose operations have a label and an earliest start, and its messages a class."""
        self._label = label
        self._class_id = class_id
        self._verb = verb
        self._start_ps = start_ps
        self._send_count = self._other_count = 0
        self._sends: dict[str, list[np.ndarray]] = {}
        self._others: dict[str, list[np.ndarray]] = {}
        self._edges: dict[str, list[np.ndarray]] = {"before": [], "after": []}

    def sends(
        self,
        src: np.ndarray,
        dst: np.ndarray,
        size_bytes: np.ndarray,
        *,
        lane: np.ndarray | int,
        collective: np.ndarray | int = NONE,
        step: np.ndarray | int = NONE,
    ) -> np.ndarray:
        """Add messages between hosts; those of one source, destination and lane share a QP, in the order of adding.

        Gives their numbers, (n,) int64.
        """
        columns = {"src": src, "dst": dst, "bytes": size_bytes, "lane": lane, "collective": collective, "step": step}
        count = self._append(self._sends, columns, _SEND_COLUMNS)
        self._send_count += count
        return np.arange(self._send_count - count, self._send_count)

    def recvs(self, host: np.ndarray, send: np.ndarray, *, collective: np.ndarray | int = NONE) -> np.ndarray:
        """Add the recv, at its receiver `host`, of each message; gives their numbers."""
        return self._add(kind=OP_RECV, host=host, flow=send, duration_ps=0, collective=collective)

    def calcs(
        self, host: np.ndarray, duration_ps: np.ndarray | int, *, collective: np.ndarray | int = NONE
    ) -> np.ndarray:
        """Add a calc of each duration; gives their numbers."""
        return self._add(kind=OP_CALC, host=host, flow=NONE, duration_ps=duration_ps, collective=collective)

    def others(
        self, kind: np.ndarray, host: np.ndarray, send: np.ndarray | int, duration_ps: np.ndarray | int
    ) -> np.ndarray:
        """Add recvs and calcs mixed, each with OP_RECV or OP_CALC; gives their numbers.

        Of a recv `send` is its message, of a calc -1; of a calc `duration_ps` is its length, of a recv 0.
        """
        return self._add(kind=kind, host=host, flow=send, duration_ps=duration_ps, collective=NONE)

    def edges(self, before: np.ndarray, after: np.ndarray) -> None:
        """Have each operation of `after` wait for the one of `before` beside it, which is of the same host."""
        for name, values in (("before", before), ("after", after)):
            self._edges[name].append(np.asarray(values, dtype=np.int64))

    def build(self, collectives: Sequence[Collective] = (), tracks: Sequence[StepTrack] = ()) -> OperationGraph:
        """The graph; tracks have the numbers of calcs as `calcs` gives them."""
        sends = {name: _whole(self._sends.get(name), dtype) for name, dtype in _SEND_COLUMNS.items()}
        lane = sends.pop("lane")
        others = {name: _whole(self._others.get(name), dtype) for name, dtype in _OTHER_COLUMNS.items()}
        count = self._send_count
        columns: dict[str, Any] = {"start_ps": np.full(self._other_count, self._start_ps), **others}
        columns["label_id"] = np.zeros(self._other_count, np.int32)
        for name, parts in self._edges.items():
            number = _whole(parts, "i8")
            columns[name] = np.where(number >= _OTHERS, number - _OTHERS + count, number)
        flows = flow_table(
            sends["src"],
            sends["dst"],
            sends["bytes"],
            self._start_ps,
            class_id=self._class_id,
            verb=self._verb,
            qp=_numbered(sends["src"], sends["dst"], lane),
            collective=sends["collective"],
            step=sends["step"],
            label=self._label,
        )
        own = tuple(replace(track, calc=track.calc - _OTHERS) for track in tracks)
        return OperationGraph(flows=flows, collectives=tuple(collectives), tracks=own, **columns)

    def _add(self, **columns: np.ndarray | int) -> np.ndarray:
        count = self._append(self._others, columns, _OTHER_COLUMNS)
        self._other_count += count
        return np.arange(self._other_count - count, self._other_count) + _OTHERS

    def _append(
        self, parts: dict[str, list[np.ndarray]], columns: Mapping[str, np.ndarray | int], dtypes: Mapping[str, str]
    ) -> int:
        arrays = np.broadcast_arrays(*(np.asarray(values, dtype=dtypes[name]) for name, values in columns.items()))
        count = int(np.atleast_1d(arrays[0]).size)
        refuse_too_many(self._send_count + self._other_count + count)
        for name, values in zip(columns, arrays, strict=True):
            parts.setdefault(name, []).append(np.atleast_1d(values))
        return count


_SEND_COLUMNS = {"src": "i4", "dst": "i4", "bytes": "i8", "lane": "i8", "collective": "i4", "step": "i4"}
_OTHER_COLUMNS = {"kind": "u1", "host": "i4", "flow": "i4", "duration_ps": "i8", "collective": "i4"}
_OTHERS = 2**40
"""Number of a builder's first operation that is no message: their place is not known while there may be more."""


def _whole(parts: Sequence[np.ndarray] | None, dtype: str) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _numbered(src: np.ndarray, dst: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """(n,) a number for every source, destination and lane, counted by first appearance."""
    if not len(src):
        return np.zeros(0, np.int64)
    hosts = int(max(src.max(), dst.max())) + 1
    key = (lane * hosts + src) * hosts + dst
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return number[inverse.reshape(-1)]


def join(parts: Sequence[FlowTable | OperationGraph]) -> OperationGraph:
    """Join what several workloads do to one graph; flows are sorted by start time, see `fabemu.workload.flow`."""
    graphs = [part if isinstance(part, OperationGraph) else OperationGraph(flows=part) for part in parts]
    refuse_too_many(sum(map(len, graphs)))
    flows, row = concatenate([graph.flows for graph in graphs], [len(graph.collectives) for graph in graphs])
    labels = {label: index for index, label in enumerate(flows.labels)}
    columns: dict[str, list[np.ndarray]] = {
        item.name: [np.zeros(0, item.metadata["dtype"])] for item in fields(OperationGraph) if "dtype" in item.metadata
    }
    collectives: list[Collective] = []
    tracks: list[StepTrack] = []
    flow_base, op_base, collective_base = 0, len(flows), 0
    for graph in graphs:
        own = len(graph.flows)
        number = np.concatenate([row[flow_base : flow_base + own], op_base + np.arange(len(graph.kind))])
        of_label = np.array([labels[label] for label in graph.flows.labels] or [0])
        for name, collected in columns.items():
            values = getattr(graph, name)
            if name in ("before", "after"):
                values = number[values]
            elif name == "flow":
                values = np.where(values == NONE, NONE, number[values]) if own else values
            elif name == "label_id":
                values = of_label[values]
            elif name == "collective":
                values = np.where(values == NONE, NONE, values + collective_base)
            collected.append(values)
        collectives.extend(graph.collectives)
        tracks.extend(replace(track, calc=track.calc + op_base - len(flows)) for track in graph.tracks)
        collective_base += len(graph.collectives)
        flow_base += own
        op_base += len(graph.kind)
    joined: dict[str, Any] = {name: np.concatenate(collected) for name, collected in columns.items()}
    return OperationGraph(flows=flows, collectives=tuple(collectives), tracks=tuple(tracks), **joined)
