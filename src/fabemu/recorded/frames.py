"""Rows of the `packets` table as numbers, with what the plan knows of each frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fabemu.columns import number_values
from fabemu.deferred import dataclass
from fabemu.ideal import wire_ps
from fabemu.plan import Plan
from fabemu.recorded.transport import Messages, PacketNumbers
from fabemu.trace import NONE, PACKET_KINDS, read_batches

COLUMNS = ("time_ps", "port", "kind", "qp", "psn", "frame_bytes", "last", "echo")
"""Columns of the packets table that are read."""

_DATA, _CNP, _READ = (PACKET_KINDS.index(kind) for kind in ("data", "cnp", "read"))

Int64s = NDArray[np.int64]


class Wire:
    """Times of frames on the links of a plan."""

    def __init__(self, plan: Plan) -> None:
        """Take the rates of the links."""
        self._plan = plan
        self._rates, self._rate_of_port = np.unique(plan.port_rate_bps, return_inverse=True)
        self._table = np.empty((len(self._rates), 0), dtype=np.int64)

    def ps(self, port: Int64s, frame_bytes: Int64s) -> Int64s:
        """(n,) wire times of frames at ports: MODEL 1."""
        size = int(frame_bytes.max(initial=0)) + 1
        if size > self._table.shape[1]:
            sizes = np.arange(max(size, 2 * self._table.shape[1]), dtype=np.int64)
            self._table = wire_ps(
                np.tile(sizes, (len(self._rates), 1)),
                np.repeat(self._rates[:, None], len(sizes), axis=1),
                overhead_bytes=self._plan.wire_overhead_bytes,
                truncate_ns=self._plan.truncate_ns,
            )
        return np.asarray(self._table[self._rate_of_port[port], frame_bytes])


@dataclass(frozen=True, eq=False)
class Frames:
    """Transmissions in order of time: of hosts all, of switches the last packets of messages; all arrays (n,).

    Attributes
    ----------
    time_ps, wire_ps
        int64, start, and how long they take the port.
    port
        int64, port id.
    host
        bool, whether a host sends it.
    data
        bool, whether it is a data packet.
    qp
        int64, queue pair; -1 for those of links.
    packet
        int64, of data: number of the packet, counted over all queue pairs; else -1.
    last
        bool, of data: last packet of its message.
    again
        bool, whether it is a READ request for what was asked for before.
    """

    time_ps: Int64s
    wire_ps: Int64s
    port: Int64s
    host: NDArray[np.bool_]
    data: NDArray[np.bool_]
    qp: Int64s
    packet: Int64s
    last: NDArray[np.bool_]
    again: NDArray[np.bool_]


def frames(path: Path, plan: Plan, messages: Messages, wire: Wire) -> Iterator[Frames]:
    """Read a packets table, one record batch at a time.

    Raises
    ------
    InputError
        As `fabemu.trace.read_batches` does.
    """
    numbers = PacketNumbers(plan, messages.packets)
    for batch in read_batches(path, COLUMNS):
        rows = {name: _values(batch, name) for name in COLUMNS}
        yield frames_of(rows, plan, messages, wire, numbers)


def frames_of(
    rows: Mapping[str, NDArray], plan: Plan, messages: Messages, wire: Wire, numbers: PacketNumbers
) -> Frames:
    """Rows of a packets table as transmissions: arrays by the names of `COLUMNS`, with -1 for null.

    Frames that switches send are left out, but for the last packets of messages, unless the numbers of others need
    them.
    """
    host = plan.port_node[rows["port"]] < plan.host_count
    last = rows["last"].astype(np.bool_)
    if not numbers.needs_all:
        wanted = np.flatnonzero(host | last)
        if len(wanted) < len(host):
            rows = {name: values[wanted] for name, values in rows.items()}
            host, last = host[wanted], last[wanted]
    kind, qp, port = rows["kind"], rows["qp"].astype(np.int64), rows["port"].astype(np.int64)
    carried = (qp >= 0) & (kind != _CNP)
    data = kind == _DATA
    packet = np.full(len(kind), NONE, dtype=np.int64)
    number = numbers.unwrap(qp[carried], rows["psn"][carried].astype(np.int64))
    packet[data] = messages.packet(qp[data], number[data[carried]])
    return Frames(
        time_ps=rows["time_ps"],
        wire_ps=wire.ps(port, rows["frame_bytes"].astype(np.int64)),
        port=port,
        host=host,
        data=data,
        qp=qp,
        packet=packet,
        last=last & data,
        again=rows["echo"].astype(np.bool_) & (kind == _READ),  # one flag of the wire for both
    )


def _values(batch: pa.RecordBatch, name: str) -> NDArray[np.int64]:
    column = batch.column(name)
    if isinstance(column, pa.DictionaryArray):
        column = column.indices
    return number_values(column, NONE)
