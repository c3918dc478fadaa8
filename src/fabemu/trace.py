"""Trace tables: their Arrow schemas, and a reader that also takes what a killed run left.

A table is one Arrow IPC file. Its dictionaries (names of hosts, ports, classes, causes) are written up front, its
record batches have a fixed number of rows, and nothing in it depends on the clock: the same run gives the same bytes.
An IPC file is the magic ``ARROW1`` and then an IPC stream, with a footer at the very end; a file whose writer was
killed has no footer, and is read as that stream up to its last complete batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from fabemu.columns import number_values, text_array
from fabemu.damage import undamaged, whole_batches
from fabemu.deferred import dataclass
from fabemu.errors import InputError

SCHEMA_VERSION = 2
"""Grows when a column changes its name, type, unit or meaning, or goes away."""

NONE = -1
"""Value of an id or a time that is not there; written as null."""

PAUSE_ENDS = ("xon", "expiry", "run_end", "link")
DROP_CAUSES = (
    "headroom_full",
    "shared_full",
    "egress_full",
    "no_route",
    "watchdog",
    "link_down",
    "corrupt",
    "receiver_full",
)
PACKET_KINDS = ("data", "ack", "nak", "cnp", "pfc", "read", "credit")
XOFF_CAUSES = ("headroom", "dynamic_threshold", "static_threshold", "storm", "receiver")
EVENT_KINDS = {
    0: "link_down",
    1: "link_up",
    2: "routes",
    3: "loss",
    4: "pfc",
    5: "ecn",
    6: "class_map",
    7: "headroom",
    8: "storm",
    9: "receiver",
    16: "watchdog_storm",
    17: "watchdog_restored",
    18: "deadlock",
    19: "qp_error",
}
"""Kinds of events by their number in the plan: control actions, and what the engine finds by itself."""
FLOW_STATUSES = ("done", "failed", "unfinished", "not_run")
VERBS = ("write", "send", "read", "scale-up")
"""Verbs of messages by their number in the plan."""

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all-to-all",
    "send-recv",
    "moe-dispatch",
    "moe-combine",
)
"""Operations of collectives."""
ALGORITHMS = ("ring", "tree", "halving-doubling", "hierarchical", "doubling", "halving", "direct", "pairwise")
"""Algorithms that they follow."""

PURPOSES = ("tensor", "expert", "pipeline", "data")
"""What collectives of a training step are for."""

ENUMS: dict[str, tuple[str, ...]] = {
    "collective": COLLECTIVES,
    "algorithm": ALGORITHMS,
    "purpose": PURPOSES,
    "pause_end": PAUSE_ENDS,
    "drop_cause": DROP_CAUSES,
    "packet_kind": PACKET_KINDS,
    "event_kind": tuple(EVENT_KINDS.values()),
    "xoff_cause": XOFF_CAUSES,
    "flow_status": FLOW_STATUSES,
    "verb": VERBS,
}

_ALONE_BYTES = 2**23
"""Files up to this size are read by the calling thread alone: Arrow's pools of threads take longer to start, and crash
where the address space has no room for them."""

_FILE_PREFIX_BYTES = 8  # "ARROW1" and two bytes of padding, before the stream part


@dataclass(frozen=True)
class Column:
    """One column of a table.

    ``kind`` is an Arrow type name (``int64``, ``float64``, ``bool``, ...) or the name of a dictionary: ``host``,
    ``node``, ``port``, ``class``, ``label``, ``job``, or a key of `ENUMS`. In a nullable column -1 (NaN for floats) is
    null.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class TableFormat:
    """Name, meaning, columns and batch size of one table."""

    name: str
    meaning: str
    batch_rows: int
    columns: tuple[Column, ...]


_CLASS = Column("class", "class", "name", "Traffic class")

TABLES: dict[str, TableFormat] = {
    table.name: table
    for table in (
        TableFormat(
            "flows",
            "One row per message (send operation). Finished and failed messages come in the order in which they ended; "
            "those that did not end follow in order of `op` when the run is closed.",
            8192,
            (
                Column("op", "int32", "index", "Operation number in the plan"),
                Column("label", "label", "name", "Label of the workload that made the message"),
                Column("job", "job", "name", "Job that the workload belongs to", nullable=True),
                Column(
                    "collective", "int32", "index", "Row of the collectives table that it is part of", nullable=True
                ),
                Column("step", "int32", "index", "Step of the collective's algorithm", nullable=True),
                Column("src", "host", "name", "Sending host; of a READ the one that reads"),
                Column("dst", "host", "name", "Receiving host; of a READ the one that is read from"),
                Column(
                    "qp",
                    "int32",
                    "index",
                    "Queue pair that carried it; its messages keep their order; null inside a scale-up domain",
                    nullable=True,
                ),
                Column("class", "class", "name", "Traffic class; null inside a scale-up domain", nullable=True),
                Column("verb", "verb", "name", "write, send, read, or scale-up: it stayed inside a scale-up domain"),
                Column("bytes", "int64", "B", "Payload of the message"),
                Column("start_ps", "int64", "ps", "Earliest time at which it may be posted, as the scenario says"),
                Column(
                    "posted_ps",
                    "int64",
                    "ps",
                    "Posted: its dependencies were done and its start had come",
                    nullable=True,
                ),
                Column("first_sent_ps", "int64", "ps", "Transmission of its first packet started", nullable=True),
                Column(
                    "receiver_done_ps", "int64", "ps", "Its last byte arrived in order at the receiver", nullable=True
                ),
                Column(
                    "sender_done_ps", "int64", "ps", "Its last packet was acknowledged at the sender", nullable=True
                ),
                Column("fct_ps", "int64", "ps", "Completion time: receiver_done_ps - posted_ps", nullable=True),
                Column("ideal_ps", "int64", "ps", "Completion time on an empty network", nullable=True),
                Column("slowdown", "float64", "ratio", "fct_ps / ideal_ps", nullable=True),
                Column("packets", "int64", "packets", "Data packets sent for it, retransmissions included"),
                Column("retransmissions", "int64", "packets", "Data packets sent again"),
                Column("cnps", "int64", "packets", "Congestion notifications that its sender received"),
                Column("marks", "int64", "packets", "Data packets that arrived with a congestion mark"),
                Column("measured", "bool", "flag", "True if its start lies in the `measure` window of the scenario"),
                Column(
                    "status",
                    "flow_status",
                    "name",
                    "done, failed, unfinished (posted, not done), or not_run (never posted)",
                ),
            ),
        ),
        TableFormat(
            "ports",
            "One row per port, class and sampling interval in which something happened: no row means all zero. "
            "The egress side, unless a column says ingress.",
            16384,
            (
                Column("start_ps", "int64", "ps", "Start of the interval"),
                Column("end_ps", "int64", "ps", "End of the interval"),
                Column("node", "node", "name", "Host or switch that the port belongs to"),
                Column("port", "port", "name", "Port"),
                Column("peer", "node", "name", "Host or switch at the other end of the link"),
                _CLASS,
                Column("bytes", "int64", "B", "Frame bytes whose transmission started in the interval"),
                Column("frames", "int64", "frames", "Frames whose transmission started in the interval"),
                Column(
                    "utilisation",
                    "float64",
                    "ratio",
                    "Wire time of these frames, gaps included, per length of the interval",
                ),
                Column("queue_mean_bytes", "float64", "B", "Mean length of the egress queue over time"),
                Column("queue_max_bytes", "int64", "B", "Greatest length of the egress queue"),
                Column("paused_ps", "int64", "ps", "Time for which the peer held this class paused"),
                Column("xoff_sent", "int64", "count", "Ingress: XOFF raised against the peer"),
                Column("xoff_received", "int64", "count", "PFC frames received that paused this class"),
                Column("marks", "int64", "packets", "Packets marked when they left the queue"),
                Column("drops", "int64", "frames", "Ingress: frames dropped that arrived on this port"),
                Column(
                    "headroom_max_bytes",
                    "int64",
                    "B",
                    "Ingress: most bytes in the headroom of the priority group; null in tables of schema version 1",
                ),
            ),
        ),
        TableFormat(
            "pauses",
            "One row per pause: from an XOFF of one port of a switch or host for one class to the end of the pause at "
            "its peer, in the order in which they ended.",
            16384,
            (
                Column("xoff_ps", "int64", "ps", "The switch decided to pause"),
                Column("sent_ps", "int64", "ps", "Transmission of the PFC frame started", nullable=True),
                Column("start_ps", "int64", "ps", "The pause took effect at the paused port", nullable=True),
                Column("xon_ps", "int64", "ps", "The switch decided to resume", nullable=True),
                Column("end_ps", "int64", "ps", "The pause ended at the paused port", nullable=True),
                Column("switch", "node", "name", "Switch, or host, that paused its peer"),
                Column("port", "port", "name", "Its port: the ingress that filled up"),
                Column("paused_node", "node", "name", "Host or switch that was paused"),
                Column("paused_port", "port", "name", "Its port, which had to stop sending"),
                _CLASS,
                Column(
                    "end",
                    "pause_end",
                    "name",
                    "How it ended: xon, expiry (the pause time ran out), run_end, or link (the link went down)",
                ),
                Column("ingress_bytes", "int64", "B", "Held by the priority group when XOFF was raised"),
                Column("headroom_bytes", "int64", "B", "Of these, in headroom"),
                Column("threshold_bytes", "int64", "B", "Threshold at that moment"),
                Column("egress_port", "port", "name", "Egress port that most of these bytes waited for", nullable=True),
                Column(
                    "crossed",
                    "xoff_cause",
                    "name",
                    "What raised XOFF: headroom in use, a dynamic_threshold or static_threshold, a storm of the host, "
                    "or a slow receiver",
                ),
                Column(
                    "parent_port",
                    "port",
                    "name",
                    "Port whose pause held up that egress port when XOFF was raised; none at the root of a storm",
                    nullable=True,
                ),
            ),
        ),
        TableFormat(
            "drops",
            "One row per dropped frame, in order of time.",
            8192,
            (
                Column("time_ps", "int64", "ps", "When it was dropped"),
                Column("node", "node", "name", "Where"),
                Column("ingress_port", "port", "name", "Port on which it had arrived"),
                Column("egress_port", "port", "name", "Port that it was to leave by", nullable=True),
                Column("class", "class", "name", "Traffic class; null for pfc and credit", nullable=True),
                Column(
                    "cause",
                    "drop_cause",
                    "name",
                    "No room: headroom_full, shared_full, egress_full, receiver_full (at a slow host). Otherwise: "
                    "no_route, link_down (lost with its link, or on its way to a dead one), corrupt (a bit error), or "
                    "watchdog",
                ),
                Column("kind", "packet_kind", "name", "data, ack, nak, cnp, pfc, read, or credit"),
                Column("qp", "int32", "index", "Queue pair it belonged to; null for pfc and credit", nullable=True),
                Column("src", "host", "name", "Host that sent the frame; null for pfc and credit", nullable=True),
                Column("dst", "host", "name", "Host that it was sent to; null for pfc and credit", nullable=True),
                Column(
                    "psn",
                    "int64",
                    "number",
                    "Packet number: of the data, or the next one that an ACK or NAK asks for; null for pfc and credit",
                    nullable=True,
                ),
                Column("frame_bytes", "int32", "B", "Its size"),
            ),
        ),
        TableFormat(
            "events",
            "One row per incident: every control action that a fault of the scenario asked for, and what was found on "
            "the way, in order of time.",
            1024,
            (
                Column("time_ps", "int64", "ps", "When"),
                Column(
                    "kind",
                    "event_kind",
                    "name",
                    "Faults: link_down, link_up, routes (another table is in force), loss, pfc, ecn, class_map, "
                    "headroom, storm, receiver. Found: watchdog_storm, watchdog_restored, deadlock, qp_error",
                ),
                Column("node", "node", "name", "Where; null for routes", nullable=True),
                Column("port", "port", "name", "Port; null if it is the whole device", nullable=True),
                Column("class", "class", "name", "Traffic class; null for none, or several", nullable=True),
                Column("qp", "int32", "index", "Queue pair of a qp_error", nullable=True),
                Column(
                    "value",
                    "int64",
                    "see meaning",
                    "routes: number of the table, 0 at first. loss: number of the loss rule. pfc, ecn, storm: 1 "
                    "on, 0 off. class_map: number of the class as which frames are treated. headroom: bytes. "
                    "receiver: bit/s, 0 stopped. watchdog_storm, deadlock: bytes that wait in the queue. Null if "
                    "there is none, and for a receiver without a limit or a link without loss",
                    nullable=True,
                ),
                Column(
                    "group",
                    "int32",
                    "index",
                    "Deadlock: rows of one cycle have one number and stand in its order; each waits for the next",
                    nullable=True,
                ),
            ),
        ),
        TableFormat(
            "collectives",
            "One row per run of a collective, in the order of the scenario; the table is there if it has any.",
            8192,
            (
                Column("collective", "int32", "index", "Its number, as in the flows table"),
                Column("label", "label", "name", "Label of its workload"),
                Column("job", "job", "name", "Job that the workload belongs to", nullable=True),
                Column("operation", "collective", "name", "all-reduce, all-gather, ..."),
                Column("algorithm", "algorithm", "name", "ring, tree, ..."),
                Column(
                    "purpose",
                    "purpose",
                    "name",
                    "In a training step: between tensor, expert, pipeline or data ranks",
                    nullable=True,
                ),
                Column("iteration", "int32", "count", "Runs of the same workload before it"),
                Column("ranks", "int32", "count", "GPUs that take part"),
                Column("bytes", "int64", "B", "Size, as nccl-tests counts it"),
                Column("start_ps", "int64", "ps", "The first rank began", nullable=True),
                Column("end_ps", "int64", "ps", "The last rank had all that it was to receive", nullable=True),
                Column("time_ps", "int64", "ps", "end_ps - start_ps", nullable=True),
                Column("ideal_ps", "int64", "ps", "Least time on an empty network", nullable=True),
                Column("algbw_bps", "float64", "bit/s", "bytes over time_ps", nullable=True),
                Column("busbw_bps", "float64", "bit/s", "algbw_bps times the bus factor of nccl-tests", nullable=True),
                Column("messages", "int64", "count", "Messages between ranks"),
                Column("scale_up_bytes", "int64", "B", "Bytes of those that came, inside scale-up domains"),
                Column("network_bytes", "int64", "B", "Bytes of those that came, by the fabric"),
                Column("last_host", "host", "name", "Host of the rank that was last", nullable=True),
                Column("last_flow", "int32", "index", "Message (`op` of flows) that came last", nullable=True),
            ),
        ),
        TableFormat(
            "jobs",
            "One row per job, in the order of the scenario; the table is there if it has any.",
            1024,
            (
                Column("job", "job", "name", "Its name"),
                Column("ranks", "int32", "count", "GPUs"),
                Column("nodes", "int32", "count", "Servers that they are in"),
                Column("start_ps", "int64", "ps", "It arrived"),
                Column("end_ps", "int64", "ps", "Its last operation was done", nullable=True),
                Column("completion_ps", "int64", "ps", "end_ps - start_ps", nullable=True),
                Column("messages", "int64", "count", "Messages"),
                Column("unfinished", "int64", "count", "Of its messages, those that were not done"),
                Column("scale_up_bytes", "int64", "B", "Bytes of messages that came, inside scale-up domains"),
                Column("network_bytes", "int64", "B", "Bytes of messages that came, by the fabric"),
                Column("compute_ps", "int64", "ps", "Time in which a rank computed, mean over the ranks"),
                Column(
                    "communication_share",
                    "float64",
                    "ratio",
                    "Share of its completion time in which a rank did not compute, mean over the ranks",
                    nullable=True,
                ),
                Column("busbw_bps", "float64", "bit/s", "Of its collectives, mean over their time", nullable=True),
            ),
        ),
        TableFormat(
            "steps",
            "One row per step of a training workload, in the order of the scenario; the table is there if it has any. "
            "A step ends when its last rank has, and the next one begins then. Times of ranks are means over them.",
            1024,
            (
                Column("label", "label", "name", "Label of its workload"),
                Column("job", "job", "name", "Job that the workload belongs to", nullable=True),
                Column("step", "int32", "count", "Steps of the workload before it"),
                Column("start_ps", "int64", "ps", "It began: the step before it ended", nullable=True),
                Column("end_ps", "int64", "ps", "The last rank had done with it", nullable=True),
                Column("step_ps", "int64", "ps", "end_ps - start_ps", nullable=True),
                Column("compute_ps", "int64", "ps", "A rank computed", nullable=True),
                Column(
                    "exposed_ps",
                    "int64",
                    "ps",
                    "A rank did not compute, as it waited for others: the sum of the four columns that follow",
                    nullable=True,
                ),
                Column("tensor_ps", "int64", "ps", "Of it, for all-reduces between tensor ranks", nullable=True),
                Column("expert_ps", "int64", "ps", "Of it, for tokens on their way to experts or back", nullable=True),
                Column(
                    "pipeline_ps",
                    "int64",
                    "ps",
                    "Of it, for another stage, which may itself compute or wait, or at the end for the others",
                    nullable=True,
                ),
                Column("data_ps", "int64", "ps", "Of it, for gradients to be reduced or parameters", nullable=True),
                Column("bubble_share", "float64", "ratio", "pipeline_ps over step_ps", nullable=True),
                Column(
                    "bubble_ideal",
                    "float64",
                    "ratio",
                    "The same if nothing but computing took time: (stages - 1) / (micro-batches + stages - 1)",
                ),
                Column("tokens", "int64", "count", "Tokens that it trained on"),
                Column("tokens_per_s", "float64", "1/s", "Tokens over step_ps", nullable=True),
                Column("flops", "float64", "FLOP/s", "FLOPs of the model over step_ps and ranks", nullable=True),
                Column("utilisation", "float64", "ratio", "flops over the peak that the scenario names", nullable=True),
            ),
        ),
        TableFormat(
            "packets",
            "One row per transmission: every frame at every hop, in order of time.",
            65536,
            (
                Column("time_ps", "int64", "ps", "Transmission started"),
                Column("node", "node", "name", "Host or switch that sent it"),
                Column("port", "port", "name", "Port that it left by"),
                Column("kind", "packet_kind", "name", "data, ack, nak, cnp, pfc, read, or credit"),
                _CLASS,
                Column("qp", "int32", "index", "Queue pair it belongs to; null for pfc", nullable=True),
                Column("psn", "int32", "number", "Packet number on the wire, modulo 2^24; null for pfc", nullable=True),
                Column(
                    "xoff_mask",
                    "int32",
                    "bits",
                    "Bit c is set if class number c is paused; null unless pfc",
                    nullable=True,
                ),
                Column("frame_bytes", "int32", "B", "Its size"),
                Column("marked", "bool", "flag", "Carries the congestion mark (CE)"),
                Column("first", "bool", "flag", "First packet of its message"),
                Column("last", "bool", "flag", "Last packet of its message"),
                Column("echo", "bool", "flag", "Acknowledgement that echoes a congestion mark"),
            ),
        ),
    )
}


@dataclass(frozen=True)
class TraceNames:
    """What the numbers in the tables stand for; become the dictionaries of the files."""

    nodes: Sequence[str]  # (N,) hosts first
    ports: Sequence[str]  # (P,)
    classes: Sequence[str]  # (C,) highest priority first
    labels: Sequence[str]  # workloads
    host_count: int
    jobs: Sequence[str] = ()

    def dictionaries(self) -> dict[str, pa.Array]:
        """Dictionary values by the `Column.kind` that uses them."""
        lists: dict[str, Sequence[str]] = {
            "host": self.nodes[: self.host_count],
            "node": self.nodes,
            "port": self.ports,
            "class": self.classes,
            "label": self.labels,
            "job": self.jobs,
            **ENUMS,
        }
        return {kind: text_array(values) for kind, values in lists.items()}


def is_dictionary(column: Column) -> bool:
    """Whether a column holds names rather than plain values."""
    return column.kind in ENUMS or column.kind in ("host", "node", "port", "class", "label", "job")


def arrow_type(column: Column) -> pa.DataType:
    """Arrow type of a column: a plain one, or a dictionary of strings."""
    if column.kind in ENUMS:
        return pa.dictionary(pa.int8(), pa.string())
    if is_dictionary(column):
        return pa.dictionary(pa.int32(), pa.string())
    return pa.type_for_alias(column.kind)


def table_schema(table: str, provenance: Mapping[str, str] | None = None) -> pa.Schema:
    """Arrow schema of a table, with unit and meaning of every column.

    Parameters
    ----------
    table
        A key of `TABLES`.
    provenance
        Further entries of the schema metadata (plan digest, seed, version), prefixed ``fabemu.``.
    """
    form = TABLES[table]
    columns = [
        pa.field(
            column.name,
            arrow_type(column),
            nullable=column.nullable,
            metadata={"unit": column.unit, "meaning": column.meaning},
        )
        for column in form.columns
    ]
    metadata = {"fabemu.table": table, "fabemu.schema_version": str(SCHEMA_VERSION)}
    metadata.update({f"fabemu.{key}": value for key, value in sorted((provenance or {}).items())})
    return pa.schema(columns, metadata=metadata)


def table_path(directory: Path, table: str) -> Path:
    """Where a table lies in a run directory."""
    return directory / f"{table}.arrow"


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one table of a run, finished or not.

    Parameters
    ----------
    path
        The ``.arrow`` file.
    columns
        Only these columns; all if None.

    Returns
    -------
    pa.Table
        All complete batches. A file that was cut off while it was written gives what came before the cut.

    Raises
    ------
    InputError
        If the file is missing, damaged, is no fabemu table, has a newer schema version, or lacks a column.
    """
    source, reader = _open_file(path)
    with undamaged(path, InputError):
        table = _read_stream_part(path, source) if reader is None else reader.read_all()
    table = _with_later_columns(table)
    if columns is None:
        form = TABLES.get((table.schema.metadata or {}).get(b"fabemu.table", b"").decode())
        wanted = [column.name for column in form.columns] if form is not None else []
    else:
        wanted = list(columns)
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}: it is not as fabemu wrote it")
    return table.select(list(columns)) if columns is not None else table


def _open_file(path: Path, *, mapped: bool = True) -> tuple[pa.NativeFile, ipc.RecordBatchFileReader | None]:
    """Open a table; no reader if it was cut off."""
    try:
        if path.stat().st_size <= _ALONE_BYTES:
            source = pa.BufferReader(path.read_bytes())
        else:
            name = os.fsencode(path)  # of any bytes
            source = pa.memory_map(name, "r") if mapped else pa.OSFile(name, "rb")
    except FileNotFoundError:
        reason = "was it asked for in [trace] tables or --trace?"
        if path.stem in ("collectives", "jobs", "steps"):
            reason = f"only a scenario that has {'training ' if path.stem == 'steps' else ''}{path.stem} writes it"
        raise InputError(f"{path}: no such table; {reason}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        with undamaged(path, InputError):
            reader = ipc.open_file(source, options=_options(source))
    except InputError:
        return source, None
    _check_schema(path, reader.schema)
    return source, reader


def unreadable(path: Path, *, whole: bool = False) -> str | None:
    """Why a table that is there cannot be read, or None; it is read for that.

    One that was cut off can be read up to the cut, as those of runs that were killed; `whole`: it should not be cut.
    """
    try:
        source, reader = _open_file(path, mapped=False)
        if reader is None:
            _open_stream(path, source)
            return f"{path}: is cut off: what came after the cut is missing" if whole else None
        with undamaged(path, InputError):
            for index in range(reader.num_record_batches):
                reader.get_batch(index)
    except InputError as error:
        return str(error)
    return None


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Batches:
    """Record batches of one table of a run, finished or not; see `Batches`."""
    return Batches(path, columns)


class Batches:
    """Record batches of one table, read anew whenever they are iterated over, with one in memory at a time.

    Parameters
    ----------
    path
        The ``.arrow`` file.
    columns
        Only these columns, in the order of the table; what the table lacks is left out. All if None.

    Raises
    ------
    InputError
        While iterated over, as `read_table` does.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        """Remember where they are; nothing is opened yet."""
        self.path = path
        self.columns = columns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """One batch after the other."""
        # Not mapped into memory: pages of a large file would count as this process's own.
        source, reader = _open_file(self.path, mapped=False)
        if reader is None:
            for batch in whole_batches(_open_stream(self.path, source, self.columns)):
                yield from self._current(batch)
            return
        if self.columns is not None:
            reader = ipc.open_file(source, options=_options(source, reader.schema, self.columns))
        for index in range(reader.num_record_batches):
            with undamaged(self.path, InputError):
                batch = reader.get_batch(index)
            yield from self._current(batch)

    def _current(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return _with_later_columns(pa.Table.from_batches([batch]), self.columns).to_batches()


def _with_later_columns(table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """A table of an older schema version, with the columns (of those asked for) that came later: nulls."""
    metadata = table.schema.metadata or {}
    form = TABLES.get(metadata.get(b"fabemu.table", b"").decode())
    if form is None or metadata.get(b"fabemu.schema_version") == str(SCHEMA_VERSION).encode():
        return table
    asked = [column for column in form.columns if columns is None or column.name in columns]
    for place, column in enumerate(asked):
        if column.name not in table.column_names:
            values = pa.nulls(table.num_rows, arrow_type(column))
            table = table.add_column(place, pa.field(column.name, arrow_type(column)), values)
    return table


def _options(source: pa.NativeFile, schema: pa.Schema | None = None, columns: Sequence[str] = ()) -> ipc.IpcReadOptions:
    """How to read a table: all of it, or only these columns of a schema."""
    chosen = set(columns)
    fields = [number for number, name in enumerate(schema.names) if name in chosen] if schema is not None else []
    return ipc.IpcReadOptions(use_threads=source.size() > _ALONE_BYTES, included_fields=fields)


def _read_stream_part(path: Path, source: pa.NativeFile) -> pa.Table:
    """Batches of an IPC file without a footer, up to the first incomplete one."""
    reader = _open_stream(path, source)
    return pa.Table.from_batches(list(whole_batches(reader)), reader.schema)


def _open_stream(
    path: Path, source: pa.NativeFile, columns: Sequence[str] | None = None
) -> ipc.RecordBatchStreamReader:
    """The stream inside an IPC file without a footer."""
    size = source.size()
    source.seek(0)
    if size == 0:
        raise InputError(f"{path}: is empty: the run ended before it wrote anything")
    if source.read(_FILE_PREFIX_BYTES)[:6] != b"ARROW1":
        raise InputError(f"{path}: is not an Arrow IPC file")
    try:
        reader = ipc.open_stream(source, options=_options(source))
    except (pa.ArrowInvalid, OSError):
        raise InputError(f"{path}: is cut off inside its header: the run ended before it wrote a row") from None
    _check_schema(path, reader.schema)
    if columns is not None:
        source.seek(_FILE_PREFIX_BYTES)
        reader = ipc.open_stream(source, options=_options(source, reader.schema, columns))
    return reader


def _check_schema(path: Path, schema: pa.Schema) -> None:
    metadata = schema.metadata or {}
    version = metadata.get(b"fabemu.schema_version")
    if version is None:
        raise InputError(f"{path}: is an Arrow file, but not a fabemu table")
    if int(version) > SCHEMA_VERSION:
        raise InputError(
            f"{path}: has schema version {int(version)}, this fabemu reads up to {SCHEMA_VERSION}; use a newer fabemu"
        )


def dictionary_column(table: pa.Table, name: str) -> tuple[np.ndarray, list[str]]:
    """Indices and values of a dictionary column.

    Returns
    -------
    indices
        (rows,) int64, -1 for null.
    values
        The names, shared by all batches of the file.
    """
    column = table.column(name)
    values: list[str] = []
    parts: list[np.ndarray] = []
    for chunk in column.chunks:
        values = values or chunk.dictionary.to_pylist()
        parts.append(number_values(chunk.indices, NONE).astype(np.int64))
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), values


def integer_column(table: pa.Table, name: str, missing: int = NONE) -> np.ndarray:
    """(rows,) int64 values of a column, `missing` for null."""
    parts = [number_values(chunk, missing) for chunk in table.column(name).chunks]
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


def float_column(table: pa.Table, name: str) -> np.ndarray:
    """(rows,) float64 values of a column, NaN for null."""
    parts = [number_values(chunk, np.nan) for chunk in table.column(name).chunks]
    return np.concatenate(parts).astype(np.float64, copy=False) if parts else np.empty(0, np.float64)


def tables_in(directory: Path) -> Iterable[str]:
    """Names of the tables that a run directory holds."""
    return [name for name in TABLES if table_path(directory, name).is_file()]
