"""Engine records to trace rows: ids stay numbers, what follows from others is added, rows go to the table writers.

Holds one batch per table and one flag per operation, whatever the length of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from fabemu._core.columns import write_pauses, write_ports
from fabemu.outcome import collective_rows, job_rows, step_rows
from fabemu.plan import FOREVER_PS, OP_SCALE_UP, VERB_READ, VERB_SCALE_UP, Plan
from fabemu.table_writer import TableWriter
from fabemu.trace import EVENT_KINDS, FLOW_STATUSES, NONE, PACKET_KINDS, TABLES, TraceNames
from fabemu.workload.graph import OperationGraph

_NOT_RUN, _POSTED, _DONE, _FAILED = range(4)  # `status` of Engine.ops()

_STATUS_OF_ENGINE = np.array(
    [FLOW_STATUSES.index(name) for name in ("not_run", "unfinished", "done", "failed")], dtype=np.int8
)
_EVENT_INDEX = np.full(max(EVENT_KINDS) + 1, NONE, dtype=np.int8)
_EVENT_INDEX[list(EVENT_KINDS)] = np.arange(len(EVENT_KINDS))
_KIND_DATA, _KIND_PFC = PACKET_KINDS.index("data"), PACKET_KINDS.index("pfc")
_FLAG_MARKED, _FLAG_FIRST, _FLAG_LAST, _FLAG_ECHO = 1, 2, 4, 8


class _Operations(Protocol):
    """What the recorder asks of an engine."""

    def ops(self) -> Mapping[str, np.ndarray]:
        """See the engine."""
        ...

    def fill_ports(self, columns: Mapping[str, np.ndarray], first: int, end: int) -> None:
        """See the engine."""
        ...

    def filled_ports(self) -> int:
        """See the engine."""
        ...


class Recorder:
    """Writes the tables of one run.

    Parameters
    ----------
    directory
        Run directory.
    tables
        Tables to write.
    plan
        What is simulated.
    names
        Names behind its numbers.
    graph
        Its operations, by the numbers of the plan.
    op_measured, op_ideal_ps
        (O,) whether the summary counts the operation, and ideal completion time (-1: unknown).
    host_node
        (H,) server of every host.
    measure
        When messages of collectives must be posted to count, ps; None: whenever, or never.
    provenance
        Entries for the schema metadata.

    Raises
    ------
    MachineError
        From every method, if a table cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        tables: Collection[str],
        plan: Plan,
        names: TraceNames,
        graph: OperationGraph,
        op_measured: np.ndarray,
        op_ideal_ps: np.ndarray,
        provenance: Mapping[str, str],
        host_node: np.ndarray,
        measure: tuple[int, int] | None = None,
    ) -> None:
        """Create the tables."""
        self._plan = plan
        self._graph = graph
        self._op_label = graph.op_label_id
        self._op_job = graph.job_of_label[self._op_label] if len(self._op_label) else self._op_label
        self._host_node = host_node
        self._op_measured = op_measured
        self._measure = measure
        self._op_ideal_ps = op_ideal_ps
        self._ended: list[np.ndarray] = []
        self._ended_count = 0
        # Every look at the engine copies the state of all operations: some twenty looks per run at most.
        self._ended_limit = max(TABLES["flows"].batch_rows, plan.op_count // 20)
        self._written = np.zeros(plan.op_count, dtype=np.bool_)
        dictionaries = names.dictionaries()
        self._writers: dict[str, TableWriter] = {}
        try:
            for table in TABLES:
                if table in tables:
                    self._writers[table] = TableWriter(directory, table, dictionaries, provenance)
        except BaseException:
            self.abandon()
            raise

    @property
    def rows(self) -> dict[str, int]:
        """Rows written so far, by table."""
        return {table: writer.rows for table, writer in self._writers.items()}

    def expect(self, engine: _Operations) -> None:
        """Have the engine set rows of ports in their table as they come, until they are recorded."""
        if "ports" in self._writers:
            engine.fill_ports(*self._writers["ports"].room())

    def record(self, records: Mapping[str, np.ndarray], engine: _Operations) -> None:
        """Take what `Engine.drain` gave."""
        if "ports" in self._writers:
            self._writers["ports"].add_set(engine.filled_ports())
        for table, write in (("ports", self._write_ports), ("pauses", self._write_pauses)):
            rows = records.get(table)
            if table in self._writers and rows is not None:
                self._writers[table].append_rows(rows, write)
        for table, convert in (("drops", self._drops), ("events", self._events), ("packets", self._packets)):
            rows = records.get(table)
            if table in self._writers and rows is not None and len(rows):
                self._writers[table].append(convert(rows))
        ended = records.get("flows")
        if "flows" in self._writers and ended is not None and len(ended):
            self._ended.append(np.array(ended["op"], dtype=np.int64))
            self._ended_count += len(ended)
            if self._ended_count >= self._ended_limit:
                self._write_ended(engine)

    def close(self, engine: _Operations, end_ps: int) -> None:
        """Write the messages that did not end by the end of the run, what has tables of its own, and the footers."""
        if "flows" in self._writers:
            self._write_ended(engine)
            rest = np.flatnonzero(~self._written & self._plan.is_message)
            state = engine.ops()
            step = TABLES["flows"].batch_rows
            for first in range(0, len(rest), step):
                self._writers["flows"].append(self._flows(rest[first : first + step], state))
        self._write_outcome(engine, end_ps)
        for writer in self._writers.values():
            writer.close()

    def abandon(self) -> None:
        """Let go of all files after a failure."""
        for writer in self._writers.values():
            writer.abandon()

    def _write_outcome(self, engine: _Operations, end_ps: int) -> None:
        if not {"collectives", "jobs", "steps"} & set(self._writers):
            return
        graph, state = self._graph, engine.ops()
        collectives = None
        if graph.collectives:
            receiver = self._receiver(np.arange(len(graph.flows)))
            collectives = collective_rows(graph, self._plan, state, receiver)
            if "collectives" in self._writers:
                self._writers["collectives"].append(collectives)
        if "jobs" in self._writers:
            rows = job_rows(graph, self._plan, state, end_ps, collectives, self._host_node)
            self._writers["jobs"].append(rows)
        if "steps" in self._writers and graph.tracks:
            self._writers["steps"].append(step_rows(graph, state))

    def _write_ended(self, engine: _Operations) -> None:
        if not self._ended:
            return
        ended = np.concatenate(self._ended)
        self._ended, self._ended_count = [], 0
        self._written[ended] = True
        self._writers["flows"].append(self._flows(ended, engine.ops()))

    def _flows(self, op: np.ndarray, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        plan = self._plan
        inside = plan.op_kind[op] == OP_SCALE_UP
        qp = plan.op_qp[op]
        posted_ps, delivered_ps = state["posted_ps"][op], state["delivered_ps"][op]
        delivered = (delivered_ps >= 0) & (posted_ps >= 0)
        ideal_ps = np.where(self._op_ideal_ps[op] >= FOREVER_PS, NONE, self._op_ideal_ps[op])
        fct_ps = np.where(delivered, delivered_ps - posted_ps, NONE)
        slowdown = np.full(len(op), np.nan)
        np.divide(fct_ps, ideal_ps, out=slowdown, where=delivered & (ideal_ps > 0))
        return {
            "op": op,
            "label": self._op_label[op],
            "job": self._op_job[op],
            "collective": self._graph.flows.collective[op],
            "step": self._graph.flows.step[op],
            "src": plan.op_host[op],
            "dst": self._receiver(op),
            "qp": qp,
            "class": np.where(inside, NONE, self._of_queue_pair(plan.qp_class, qp)),
            "verb": np.where(inside, VERB_SCALE_UP, self._of_queue_pair(plan.qp_verb, qp)),
            "bytes": plan.op_bytes[op],
            "start_ps": plan.op_start_ps[op],
            "posted_ps": posted_ps,
            "first_sent_ps": state["first_sent_ps"][op],
            "receiver_done_ps": delivered_ps,
            "sender_done_ps": state["done_ps"][op],
            "fct_ps": fct_ps,
            "ideal_ps": ideal_ps,
            "slowdown": slowdown,
            "packets": state["packets"][op],
            "retransmissions": state["retransmissions"][op],
            "cnps": state["cnps"][op],
            "marks": state["marks"][op],
            "measured": self._measured(op, posted_ps),
            "status": _STATUS_OF_ENGINE[state["status"][op]],
        }

    def _measured(self, op: np.ndarray, posted_ps: np.ndarray) -> np.ndarray:
        """Whether the summary counts messages: those of collectives by when they were posted, others by their start."""
        if self._measure is None:
            return self._op_measured[op]
        chained = self._graph.flows.collective[op] != NONE
        begin_ps, end_ps = self._measure
        return np.where(chained, (posted_ps >= begin_ps) & (posted_ps < end_ps), self._op_measured[op])

    def _receiver(self, op: np.ndarray) -> np.ndarray:
        """Host at the other end of messages."""
        plan = self._plan
        inside = plan.op_kind[op] == OP_SCALE_UP
        return np.where(inside, plan.op_host[plan.op_peer[op]], self._of_queue_pair(plan.qp_dst, plan.op_qp[op]))

    @staticmethod
    def _of_queue_pair(values: np.ndarray, qp: np.ndarray) -> np.ndarray:
        """Values of queue pairs; anything where there is none."""
        return values[qp].astype(np.int64) if len(values) else np.zeros(len(qp), np.int64)

    def _write_ports(self, rows: np.ndarray, columns: Mapping[str, np.ndarray], first: int) -> None:
        plan = self._plan
        write_ports(rows, columns, first, plan.port_node, plan.port_peer, plan.port_rate_bps)

    def _write_pauses(self, rows: np.ndarray, columns: Mapping[str, np.ndarray], first: int) -> None:
        write_pauses(rows, columns, first, self._plan.port_node, self._plan.port_peer)

    def _drops(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        qp = rows["qp"]
        between_ports = qp < 0  # PFC and credit frames belong to a link, not to a queue pair
        known = np.where(between_ports, 0, qp)
        # ACK, NAK and CNP travel against the data, and so do requests; of a READ the data come from the destination.
        forward = (rows["kind"] == _KIND_DATA) != (self._of_queue_pair(self._plan.qp_verb, known) == VERB_READ)
        src = np.where(between_ports, NONE, self._of_queue_pair(self._plan.qp_src, known))
        dst = np.where(between_ports, NONE, self._of_queue_pair(self._plan.qp_dst, known))
        return {
            "time_ps": rows["time_ps"],
            "node": rows["node"],
            "ingress_port": rows["ingress_port"],
            "egress_port": rows["egress_port"],
            "class": np.where(between_ports, NONE, rows["class"].astype(np.int16)),
            "cause": rows["cause"],
            "kind": rows["kind"],
            "qp": qp,
            "src": np.where(forward, src, dst),
            "dst": np.where(forward, dst, src),
            "psn": np.where(between_ports, NONE, rows["psn"]),
            "frame_bytes": rows["frame_bytes"],
        }

    def _events(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "time_ps": rows["time_ps"],
            "kind": _EVENT_INDEX[rows["kind"]],
            "node": rows["node"],
            "port": rows["port"],
            "class": rows["class"],
            "qp": rows["qp"],
            "value": rows["value"],
            "group": rows["group"],
        }

    def _packets(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        is_pfc = rows["kind"] == _KIND_PFC
        flags = rows["flags"]
        return {
            "time_ps": rows["time_ps"],
            "node": self._plan.port_node[rows["port"]],
            "port": rows["port"],
            "kind": rows["kind"],
            "class": rows["class"],
            "qp": np.where(is_pfc, NONE, rows["qp"]),
            "psn": np.where(is_pfc, NONE, rows["psn"]),
            "xoff_mask": np.where(is_pfc, rows["psn"], NONE),
            "frame_bytes": rows["frame_bytes"],
            "marked": flags & _FLAG_MARKED != 0,
            "first": flags & _FLAG_FIRST != 0,
            "last": flags & _FLAG_LAST != 0,
            "echo": flags & _FLAG_ECHO != 0,
        }
