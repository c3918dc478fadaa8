"""Where the time of a message went: its completion time, split into what it was spent on, to the picosecond.

The time from the posting of a message to its delivery is cut at moments that the `packets` table has: transmissions at
its sender, and the hops of its last packet (of the copy that its receiver took). Every piece is booked once, so the
parts add up to the completion time exactly and none is negative.

**At the sender**, from the posting to the start of the last packet. Time in which the port sends a packet of the
message for the last time is *serialisation*. Of the rest, in this order: until the queue pair has sent what was posted
before, *queue pair*; from the first start of a packet that had to be sent again until its last copy started, and what
was idle before the first packet of a repeat, *retransmission*; while PFC held the class, or the port's link was down,
*paused*; while frames of others were sent, *contention*; what remains, *pacing*: the port was free, and a rate, a
window or, on links with credits, their lack held the message back. Of a READ all before the first packet of the
answer, but for the queue pair's earlier answers, is *request*: its way, and what it and the answer waited for; until
the last of the requests that had to be made again, it is *retransmission*.

**On the way**, of the last packet: its wire time on every link is *serialisation*, then *propagation*; at every switch
the *latency* of its pipeline, then *paused* or *queueing*.

**At the receiver**, from the arrival of the last packet to the delivery: *retransmission* if packets of the queue pair
were sent again meanwhile, else *receiver* if it takes data in slowly, else *reordering*: an earlier packet had been
overtaken. Only with selective repeat can a message wait for packets before its last one.

Messages inside scale-up domains have one part, *scale-up*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fabemu.analysis.account import PARTS as FABRIC_PARTS
from fabemu.analysis.account import account
from fabemu.analysis.journeys import Asked, Lost
from fabemu.columns import number_array, text_array
from fabemu.errors import InputError
from fabemu.plan import OP_SCALE_UP
from fabemu.recorded.frames import Frames, Wire, frames
from fabemu.recorded.source import Source
from fabemu.recorded.transport import Messages
from fabemu.trace import NONE, dictionary_column, integer_column, read_table, table_path

if TYPE_CHECKING:
    from fabemu.result import Run

Int64s = NDArray[np.int64]

PARTS = (*FABRIC_PARTS, "scale_up_ps")
"""Columns of `budget` that add up to `total_ps`."""

_FLOW_COLUMNS = ("op", "label", "job", "src", "dst", "bytes", "start_ps", "posted_ps", "receiver_done_ps")


def budget(run: Run, ops: Sequence[int] | None = None) -> pa.Table:
    """Where the time of messages went.

    Parameters
    ----------
    run
        Recorded with ``--trace budget`` or ``--trace packets``.
    ops
        Operations (`op` of the flows table); None for all that were delivered.

    Returns
    -------
    pa.Table
        One row per message that was delivered, in order of `op`: `op`, `label`, `job`, `src`, `dst`, `bytes`;
        `waited_ps`, from the start that the scenario allows to the posting; `total_ps`, the completion time;
        `elapsed_ps`, both; then the parts of `PARTS`, which add up to `total_ps`. All times are int64, ps. Parts are
        null where the packets table does not have the whole way of the last packet: in a run that was cut off. The
        schema metadata ``fabemu.notes`` is a JSON list of what else must be known.

    Raises
    ------
    InputError
        The run has no packets or flows table, its scenario is not that of the run, or an operation of `ops` is not a
        message that was delivered.
    """
    read = _Read(run, ops)
    parts = read.account.parts()
    flows, inside = read.flows, read.inside
    posted_ps, done_ps = (integer_column(flows, name) for name in ("posted_ps", "receiver_done_ps"))
    total_ps, waited_ps = done_ps - posted_ps, posted_ps - integer_column(flows, "start_ps")
    columns = {name: flows.column(name) for name in ("op", "label", "job", "src", "dst", "bytes")}
    for name, values in (("waited_ps", waited_ps), ("total_ps", total_ps), ("elapsed_ps", waited_ps + total_ps)):
        columns[name] = number_array(values, pa.int64())
    unknown = np.zeros(len(flows), dtype=np.bool_)
    unknown[~inside] = ~read.account.ways.known
    for name in PARTS:
        values = np.zeros(len(flows), dtype=np.int64)
        values[~inside] = parts.get(name, 0)
        if name == "scale_up_ps":
            values[inside] = total_ps[inside]
        columns[name] = number_array(values, pa.int64(), unknown)
    return pa.table(columns).replace_schema_metadata({"fabemu.notes": json.dumps(read.notes)})


def budget_hops(run: Run, op: int) -> pa.Table:
    """The way of the last packet of a message, hop by hop.

    Returns
    -------
    pa.Table
        One row per link: `hop`, `port` and, int64 in ps: `arrived_ps` (at the sender: posted), `sent_ps`,
        `queueing_ps` (at the sender: all that held it up there but pauses), `paused_ps`, `serialisation_ps` (at the
        sender: of all its packets), `propagation_ps`, `latency_ps` (of the switch). Without what the message waited for
        after the last packet had arrived they add up to its completion time.

    Raises
    ------
    InputError
        As `budget` does; or it stayed inside a scale-up domain; or the table does not have its way.
    """
    read = _Read(run, [op])
    if read.inside.any():
        raise InputError(f"op {op} stayed inside a scale-up domain: it has no hops")
    found = read.account
    if not found.ways.known[0]:
        raise InputError(f"the packets table does not have the way of the last packet of op {op}: the run was cut off")
    hops, ways, spent = found.hops, found.ways, found.spent
    held = sum(getattr(spent, name) for name in ("queue_pair", "request", "contention", "pacing", "retransmission"))
    columns = {
        "arrived_ps": hops.arrived,
        "sent_ps": ways.time_ps,
        "queueing_ps": np.where(hops.first, held, hops.queueing),
        "paused_ps": np.where(hops.first, spent.paused, hops.paused),
        "serialisation_ps": ways.wire_ps + np.where(hops.first, spent.serialisation, 0),
        "propagation_ps": hops.propagation,
        "latency_ps": hops.latency,
    }
    names = text_array([read.compiled.port_names[port] for port in ways.port.tolist()])
    numbers = {name: number_array(values, pa.int64()) for name, values in columns.items()}
    return pa.table({"hop": number_array(np.arange(len(names)), pa.int32()), "port": names, **numbers})


def slowest_ops(run: Run, count: int) -> list[int]:
    """Operations of the messages with the longest completion times, the longest first.

    Raises
    ------
    InputError
        The run has no flows table.
    """
    source = Source(run.directory, run.info)
    flows = read_table(source.table("flows"), ("op", "fct_ps"))
    op, fct_ps = integer_column(flows, "op"), integer_column(flows, "fct_ps")
    done = np.flatnonzero(fct_ps != NONE)
    longest = done[np.lexsort((op[done], -fct_ps[done]))][:count]
    return [int(number) for number in op[longest]]


class _Read:
    """One run with the account of the messages that are asked for."""

    def __init__(self, run: Run, ops: Sequence[int] | None) -> None:
        """Read everything.

        Raises
        ------
        InputError
            See `budget`.
        """
        source = Source(run.directory, run.info)
        packets = source.table("packets", level="budget")
        self.notes = [source.partial] if source.partial else []
        self.flows = _chosen(read_table(source.table("flows"), _FLOW_COLUMNS), ops)
        self.compiled = source.compiled
        plan = self.compiled.plan
        op = integer_column(self.flows, "op")
        self.inside = plan.op_kind[op] == OP_SCALE_UP
        posted_ps, done_ps = (integer_column(self.flows, name) for name in ("posted_ps", "receiver_done_ps"))
        fabric = ~self.inside
        asked = Asked.of(plan, op[fabric], posted_ps[fabric], done_ps[fabric])
        messages, wire = Messages(plan), Wire(plan)

        def rows() -> Iterator[Frames]:
            if len(asked.op):
                yield from frames(packets, plan, messages, wire)

        self.account = account(plan, asked, rows, self._pauses(source, int(done_ps.max(initial=0))), _lost(source))
        lacking = int(np.count_nonzero(~self.account.ways.known))
        if lacking:
            self.notes.append(f"the packets table does not have the whole way of {lacking:,} messages")

    def _pauses(self, source: Source, end_ps: int) -> tuple[Int64s, Int64s, Int64s]:
        """Port x classes + class, start and end of the pauses."""
        path = table_path(source.directory, "pauses")
        if not path.is_file():
            self.notes.append("the run has no pauses table: what was paused counts as queueing or pacing")
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing, nothing
        pauses = read_table(path, ("start_ps", "end_ps", "paused_port", "class"))
        start_ps, until_ps = integer_column(pauses, "start_ps"), integer_column(pauses, "end_ps", end_ps)
        classes = self.compiled.plan.class_count
        key = dictionary_column(pauses, "paused_port")[0] * classes + dictionary_column(pauses, "class")[0]
        held = (start_ps != NONE) & (start_ps < until_ps)
        return key[held], start_ps[held], until_ps[held]


def _chosen(flows: pa.Table, ops: Sequence[int] | None) -> pa.Table:
    """Delivered messages, in order of `op`.

    Raises InputError if one that is asked for is not there.
    """
    op = integer_column(flows, "op")
    done = (integer_column(flows, "receiver_done_ps") != NONE) & (integer_column(flows, "posted_ps") != NONE)
    rows = np.flatnonzero(done)
    if ops is not None:
        beyond = [number for number in ops if not 0 <= number < 2**31]
        if beyond:
            raise InputError(f"op {beyond[0]} is no message of the flows table; see its column `op`")
        wanted = np.unique(np.asarray(ops, dtype=np.int64))
        missing = np.setdiff1d(wanted, op)
        if len(missing):
            raise InputError(f"op {missing[0]} is no message of the flows table; see its column `op`")
        undone = np.setdiff1d(wanted, op[rows])
        if len(undone):
            raise InputError(f"op {undone[0]} was not delivered: it has no completion time")
        rows = rows[np.isin(op[rows], wanted)]
    return flows.take(number_array(rows[np.argsort(op[rows])], pa.int64()))


def _lost(source: Source) -> Lost:
    """Data packets of the drops table; none without one."""
    path = table_path(source.directory, "drops")
    names = ("time_ps", "node", "ingress_port", "qp", "psn", "kind")
    if not path.is_file():
        return Lost(*(np.empty(0, dtype=np.int64) for _ in range(5)))
    drops = read_table(path, names)
    kind, kinds = dictionary_column(drops, "kind")
    data = kind == (kinds.index("data") if kinds else NONE)
    return Lost(
        integer_column(drops, "time_ps")[data],
        dictionary_column(drops, "node")[0][data],
        dictionary_column(drops, "ingress_port")[0][data],
        integer_column(drops, "qp")[data],
        integer_column(drops, "psn")[data],
    )
