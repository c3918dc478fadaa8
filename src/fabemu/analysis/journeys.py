"""The way of the last packet of every message, hop by hop, and the packets that were sent again."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.plan import NONE, VERB_READ, Plan
from fabemu.recorded.frames import Frames
from fabemu.recorded.transport import PSN_BITS, Messages

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Asked:
    """Messages that are looked at, as arrays (m,), and where each operation is among them.

    Attributes
    ----------
    op, qp
        int64 operation and queue pair.
    posted_ps, done_ps
        int64, posted, and delivered.
    receiver
        int64 host that its data go to.
    selective
        bool, whether its receiver keeps packets that come too early.
    slot
        (O,) int64, index of each operation, -1 for others.
    """

    op: Int64s
    qp: Int64s
    posted_ps: Int64s
    done_ps: Int64s
    receiver: Int64s
    selective: NDArray[np.bool_]
    slot: Int64s

    @classmethod
    def of(cls, plan: Plan, op: Int64s, posted_ps: Int64s, done_ps: Int64s) -> Asked:
        """Messages by operation, with what the plan knows of them."""
        qp = plan.op_qp[op].astype(np.int64)
        reads = plan.qp_verb[qp] == VERB_READ
        receiver = np.where(reads, plan.qp_src[qp], plan.qp_dst[qp]).astype(np.int64)
        slot = np.full(plan.op_count, NONE, dtype=np.int64)
        slot[op] = np.arange(len(op))
        selective = (plan.nic_selective[plan.host_nic[receiver]] != 0) & ~reads
        return cls(op, qp, posted_ps, done_ps, receiver, selective, slot)


@dataclass(frozen=True, eq=False)
class Journeys:
    """The way of the last packet of each message asked for: of its copy that was taken.

    Attributes
    ----------
    known
        (m,) bool, whether the table has it all.
    sent_ps
        (m,) int64, its transmission at the sending host started; -1 if not known.
    sender_port
        (m,) int64, by which port; -1 if not known.
    arrived_ps
        (m,) int64, it arrived at the receiver.
    start
        (m+1,) int64, its hops in the arrays that follow.
    port, time_ps, wire_ps
        (h,) int64, port that it left by, start of its transmission, and how long that took.
    again_packet, again_ps
        (r,) int64, data packets that had been sent before, counted over all queue pairs, and when they were sent;
        in order of packet and time.
    """

    known: NDArray[np.bool_]
    sent_ps: Int64s
    sender_port: Int64s
    arrived_ps: Int64s
    start: Int64s
    port: Int64s
    time_ps: Int64s
    wire_ps: Int64s
    again_packet: Int64s
    again_ps: Int64s


@dataclass(frozen=True, eq=False)
class Lost:
    """Data packets that were dropped, as arrays (d,): when, where, having come by which port."""

    time_ps: Int64s
    node: Int64s
    ingress_port: Int64s
    qp: Int64s
    psn: Int64s


def journeys(plan: Plan, messages: Messages, asked: Asked, rows: Iterable[Frames], lost: Lost) -> Journeys:
    """Follow the last packets of messages through the fabric.

    Parameters
    ----------
    plan, messages
        Of the run.
    asked
        Messages.
    rows
        Its transmissions, in order of time.
    lost
        Its dropped data packets.
    """
    found = _Collector(plan, messages, asked)
    for part in rows:
        found.add(part)
    return found.journeys(lost)


class _Collector:
    """Transmissions of last packets, and of packets that had been sent before."""

    def __init__(self, plan: Plan, messages: Messages, asked: Asked) -> None:
        self._plan, self._messages, self._asked = plan, messages, asked
        self._sent = np.zeros(plan.qp_count, dtype=np.int64)  # past the highest packet that a host has sent
        self._last: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
        self._again: list[tuple[Int64s, Int64s]] = []

    def add(self, rows: Frames) -> None:
        """Take the next transmissions."""
        last = np.flatnonzero(rows.last)
        if len(last):
            slot = self._asked.slot[self._plan.qp_op[self._messages.message(rows.packet[last])]]
            mine = slot != NONE
            last, slot = last[mine], slot[mine]
            self._last.append((slot, rows.time_ps[last], rows.port[last], rows.wire_ps[last]))
        sent = np.flatnonzero(rows.host & rows.data)
        if not len(sent):
            return
        order = sent[np.argsort(rows.qp[sent], kind="stable")]
        qp, packet = rows.qp[order], rows.packet[order]
        first = np.flatnonzero(np.diff(qp, prepend=NONE))
        # Packets are counted over all queue pairs: those of one lie above those of the one before it.
        carried = packet.copy()
        carried[first] = np.maximum(packet[first], self._sent[qp[first]] - 1)
        highest = np.maximum.accumulate(carried)
        before = np.empty_like(highest)
        before[1:] = highest[:-1]
        before[first] = self._sent[qp[first]] - 1
        again = packet <= before
        past = np.append(first[1:], len(qp)) - 1
        self._sent[qp[past]] = highest[past] + 1
        if again.any():
            self._again.append((packet[again], rows.time_ps[order[again]]))

    def journeys(self, lost: Lost) -> Journeys:
        """What came of them."""
        plan, asked = self._plan, self._asked
        slot, time_ps, port, wire = _joined(self._last, 4)
        order = np.argsort(slot, kind="stable")
        slot, time_ps, port, wire = slot[order], time_ps[order], port[order], wire[order]
        host = plan.port_node[port] < plan.host_count
        start = np.searchsorted(slot, np.arange(len(asked.op) + 1))
        copies = np.zeros(len(asked.op), dtype=np.int64)
        np.add.at(copies, slot[host], 1)
        arrived_ps = time_ps + wire + plan.port_delay_ps[port]
        peer = plan.port_node[plan.port_peer[port]].astype(np.int64)
        latency_ps = self._latency_ps(peer)
        # Of one copy the rows are its hops, each where the one before led to.
        follows = np.ones(len(slot), dtype=np.bool_)
        same = slot[1:] == slot[:-1]
        follows[1:] = ~same | (
            (plan.port_node[port[1:]] == peer[:-1]) & (time_ps[1:] >= arrived_ps[:-1] + latency_ps[:-1])
        )
        follows[start[:-1][start[:-1] < len(slot)]] &= host[start[:-1][start[:-1] < len(slot)]]
        broken = np.zeros(len(asked.op), dtype=np.bool_)
        broken[slot[~follows]] = True
        final = np.maximum(start[1:] - 1, 0)
        some = start[1:] > start[:-1]
        whole = some & (copies == 1) & ~broken
        whole[whole] = peer[final[whole]] == asked.receiver[whole]
        whole[whole] = arrived_ps[final[whole]] <= asked.done_ps[whole]
        keep = whole[slot]
        again_packet, again_ps = _joined(self._again, 2)
        order = np.lexsort((again_ps, again_packet))
        parts = [(slot[keep], time_ps[keep], port[keep], wire[keep])]
        doubtful = np.flatnonzero(some & ~whole)
        if len(doubtful):
            gone = self._gone(lost, doubtful)
            for one in doubtful.tolist():
                hops = slice(start[one], start[one + 1])
                chain = self._accepted(one, time_ps[hops], port[hops], wire[hops], gone[one])
                if chain:
                    chosen = np.array(chain) + start[one]
                    parts.append((slot[chosen], time_ps[chosen], port[chosen], wire[chosen]))
                    whole[one] = True
        return self._result(whole, parts, again_packet[order], again_ps[order])

    def _result(
        self,
        known: NDArray[np.bool_],
        parts: list[tuple[Int64s, Int64s, Int64s, Int64s]],
        again_packet: Int64s,
        again_ps: Int64s,
    ) -> Journeys:
        slot, time_ps, port, wire = _joined(parts, 4)
        order = np.lexsort((time_ps, slot))
        slot, time_ps, port, wire = slot[order], time_ps[order], port[order], wire[order]
        start = np.searchsorted(slot, np.arange(len(known) + 1))
        sent_ps, sender_port, arrived_ps = (np.full(len(known), NONE, dtype=np.int64) for _ in range(3))
        first, final = start[:-1][known], start[1:][known] - 1
        sent_ps[known], sender_port[known] = time_ps[first], port[first]
        arrived_ps[known] = time_ps[final] + wire[final] + self._plan.port_delay_ps[port[final]]
        return Journeys(known, sent_ps, sender_port, arrived_ps, start, port, time_ps, wire, again_packet, again_ps)

    def _latency_ps(self, node: Int64s) -> Int64s:
        """(n,) pipeline latency of devices, 0 of hosts."""
        plan = self._plan
        latency = np.concatenate([np.zeros(plan.host_count, dtype=np.int64), plan.switch_latency_ps])
        return np.asarray(latency[node])

    def _gone(self, lost: Lost, doubtful: Int64s) -> defaultdict[int, list[tuple[int, int, int]]]:
        """Losses of the last packets of some messages: time, node and ingress port, by message."""
        plan, messages, asked = self._plan, self._messages, self._asked
        found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        position = np.full(plan.op_count, NONE, dtype=np.int64)
        position[plan.qp_op] = np.arange(len(plan.qp_op))
        mask = (1 << PSN_BITS) - 1
        numbers = defaultdict(list)
        for one in doubtful.tolist():
            qp = asked.qp[one : one + 1]
            final = messages.end(position[asked.op[one : one + 1]]) - 1 - messages.packet(qp, np.zeros(1, np.int64))
            numbers[int(qp[0]), int(final[0] + plan.psn_start) & mask].append(one)
        mine = np.flatnonzero(np.isin(lost.qp, asked.qp[doubtful]))
        columns = (lost.qp, lost.psn & mask, lost.time_ps, lost.node, lost.ingress_port)
        for qp, psn, time_ps, node, ingress in zip(*(values[mine].tolist() for values in columns), strict=True):
            for one in numbers.get((qp, psn), ()):
                found[one].append((time_ps, node, ingress))
        return found

    def _accepted(
        self, one: int, time_ps: Int64s, port: Int64s, wire: Int64s, gone: list[tuple[int, int, int]]
    ) -> list[int] | None:
        """Rows of the copy that the receiver took; None if the table does not have it.

        Frames pass a device in the order in which they came, as far as they do not go different ways. So each row at a
        device is the copy that has waited there longest, without those that were dropped.
        """
        plan, asked = self._plan, self._asked
        waiting: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # arrival, ingress port, copy
        copies: list[list[int]] = []
        losses = sorted(gone, reverse=True)
        peers = plan.port_peer[port].tolist()
        nodes = plan.port_node[port].tolist()
        arrivals = (time_ps + wire + plan.port_delay_ps[port]).tolist()
        for row, now in enumerate(time_ps.tolist()):
            while losses and losses[-1][0] <= now:
                _lose(waiting, *losses.pop())
            node = nodes[row]
            if node < plan.host_count:
                copies.append([row])
                copy = len(copies) - 1
            else:
                latency = int(plan.switch_latency_ps[node - plan.host_count])
                ready = [item for item in waiting[node] if item[0] + latency <= now]
                if not ready:
                    return None
                waiting[node].remove(ready[0])
                copy = ready[0][2]
                copies[copy].append(row)
            insort(waiting[int(plan.port_node[peers[row]])], (arrivals[row], peers[row], copy))
        while losses:
            _lose(waiting, *losses.pop())
        done_ps = int(asked.done_ps[one])
        came = [item for item in waiting[int(asked.receiver[one])] if item[0] <= done_ps]
        if not came:
            return None
        # What keeps packets has taken the first copy. Otherwise copies before the one that was taken came too early.
        return copies[came[0][2] if asked.selective[one] else came[-1][2]]


def _lose(waiting: defaultdict[int, list[tuple[int, int, int]]], time_ps: int, node: int, ingress_port: int) -> None:
    """A copy is dropped at a device: the one that arrives then, or the one that has waited longest."""
    here = [item for item in waiting[node] if item[1] == ingress_port and item[0] <= time_ps]
    if here:
        waiting[node].remove(next((item for item in here if item[0] == time_ps), here[0]))


def _joined(parts: Sequence[tuple[Int64s, ...]], columns: int) -> tuple[Int64s, ...]:
    if not parts:
        return tuple(np.empty(0, dtype=np.int64) for _ in range(columns))
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))
