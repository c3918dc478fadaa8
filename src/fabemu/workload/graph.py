"""The operation graph: messages, what is computed, and what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from fabemu.plan import OP_CALC, OP_RECV
from fabemu.workload.flow import NONE, FlowTable, concatenate


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
        (M,) int32, of a recv the flow that it receives, else -1. A flow has one recv at most.
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
        it are done. What `flows.after` says is not repeated here.
    collectives
        By their numbers.
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

    def __post_init__(self) -> None:
        """Convert the columns to their types and make them read-only."""
        for item in fields(self):
            if "dtype" in item.metadata:
                values = getattr(self, item.name)
                column = np.ascontiguousarray(() if values is None else values, dtype=item.metadata["dtype"])
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

    def with_flows(self, flows: FlowTable) -> OperationGraph:
        """The same graph with other columns of the same flows."""
        if len(flows) != len(self.flows):
            raise ValueError(f"{len(flows)} flows in place of {len(self.flows)}")
        return replace(self, flows=flows)


@dataclass
class GraphBuilder:
    """Collects the operations that follow the flows of one graph; every array of a call is as long as the others."""

    flow_count: int
    label: str = ""
    _parts: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _count: int = 0

    def recvs(self, host: np.ndarray, flow: np.ndarray, *, start_ps: int, collective: np.ndarray | int) -> np.ndarray:
        """Add a recv of each flow; gives their numbers."""
        return self._add(OP_RECV, host, flow, 0, start_ps, collective)

    def calcs(
        self, host: np.ndarray, duration_ps: np.ndarray | int, *, start_ps: int, collective: np.ndarray | int
    ) -> np.ndarray:
        """Add a calc of each duration; gives their numbers."""
        return self._add(OP_CALC, host, NONE, duration_ps, start_ps, collective)

    def edges(self, before: np.ndarray, after: np.ndarray) -> None:
        """Have each operation of `after` wait for the one of `before` beside it."""
        self._append(before=np.asarray(before), after=np.asarray(after))

    def build(self, flows: FlowTable, collectives: Sequence[Collective] = ()) -> OperationGraph:
        """The graph, whose flows have the label of the builder."""
        if len(flows) != self.flow_count:
            raise ValueError(f"{len(flows)} flows, announced were {self.flow_count}")
        columns = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        label_id = np.zeros(self._count, np.int32)
        return OperationGraph(flows=flows, collectives=tuple(collectives), label_id=label_id, **columns)

    def _add(
        self,
        kind: int,
        host: np.ndarray,
        flow: np.ndarray | int,
        duration_ps: np.ndarray | int,
        start_ps: int,
        collective: np.ndarray | int,
    ) -> np.ndarray:
        count = len(host)

        def column(value: np.ndarray | int, dtype: str) -> np.ndarray:
            return np.broadcast_to(np.asarray(value, dtype=dtype), (count,))

        self._append(
            kind=column(kind, "u1"),
            host=column(host, "i4"),
            flow=column(flow, "i4"),
            duration_ps=column(duration_ps, "i8"),
            start_ps=column(start_ps, "i8"),
            collective=column(collective, "i4"),
        )
        first = self.flow_count + self._count
        self._count += count
        return np.arange(first, first + count)

    def _append(self, **columns: np.ndarray) -> None:
        for name, values in columns.items():
            self._parts.setdefault(name, []).append(values)


def join(parts: Sequence[FlowTable | OperationGraph]) -> OperationGraph:
    """Join what several workloads do to one graph; flows are sorted by start time, see `fabemu.workload.flow`."""
    graphs = [part if isinstance(part, OperationGraph) else OperationGraph(flows=part) for part in parts]
    flows, row = concatenate([graph.flows for graph in graphs], [len(graph.collectives) for graph in graphs])
    labels = {label: index for index, label in enumerate(flows.labels)}
    columns: dict[str, list[np.ndarray]] = {
        item.name: [np.zeros(0, item.metadata["dtype"])] for item in fields(OperationGraph) if "dtype" in item.metadata
    }
    collectives: list[Collective] = []
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
        collective_base += len(graph.collectives)
        flow_base += own
        op_base += len(graph.kind)
    return OperationGraph(
        flows=flows,
        collectives=tuple(collectives),
        **{name: np.concatenate(collected) for name, collected in columns.items()},
    )
