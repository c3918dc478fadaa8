"""What a message waited for at the host that sends it: pauses, other frames, earlier messages, its rate, repeats."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabemu.analysis.intervals import Cover
from fabemu.analysis.journeys import Asked, Journeys
from fabemu.deferred import dataclass
from fabemu.plan import NONE, VERB_READ, Plan
from fabemu.recorded.frames import Frames
from fabemu.recorded.transport import Messages

Int64s = NDArray[np.int64]

PARTS = ("queue_pair", "request", "serialisation", "paused", "contention", "pacing", "retransmission")
"""What the time between the posting of a message and the last packet's start is made of."""


@dataclass(frozen=True, eq=False)
class Sending:
    """Time at the sender by what it was spent on, each (m,) int64 ps; see `fabemu.analysis.budget`."""

    queue_pair: Int64s
    request: Int64s
    serialisation: Int64s
    paused: Int64s
    contention: Int64s
    pacing: Int64s
    retransmission: Int64s


def sending(
    plan: Plan, messages: Messages, asked: Asked, ways: Journeys, paused: Cover, rows: Iterable[Frames]
) -> Sending:
    """Account for the time from the posting of messages to the start of their last packets.

    Parameters
    ----------
    plan, messages
        Of the run.
    asked, ways
        Messages, and the ways of their last packets.
    paused
        Times in which ports could not send a class, by port x classes + class.
    rows
        Transmissions in order of time.
    """
    ledger = _Ledger(plan, messages, asked, ways, paused)
    for part in rows:
        ledger.add(part)
    return Sending(**ledger.spent)


class _Ledger:
    """Time by message, booked from one of its transmissions to the next.

    Of every host port it keeps the time for which it has been busy while the class of a message was not paused: the
    difference between two moments is what other frames took of the time between.
    """

    def __init__(self, plan: Plan, messages: Messages, asked: Asked, ways: Journeys, paused: Cover) -> None:
        self._plan, self._messages, self._asked, self._ways, self._paused = plan, messages, asked, ways, paused
        count = len(asked.op)
        self.spent = {name: np.zeros(count, dtype=np.int64) for name in PARTS}
        self._class = plan.qp_class.astype(np.int64)
        self._reads = plan.qp_verb == VERB_READ
        # Host ports, by class: busy time up to the last frame's start; that frame.
        self._busy = np.zeros((plan.class_count, plan.port_count), dtype=np.int64)
        self._port_time = np.full(plan.port_count, NONE, dtype=np.int64)
        self._port_wire = np.zeros(plan.port_count, dtype=np.int64)
        self._port_busy = np.zeros((plan.class_count, plan.port_count), dtype=np.int64)
        # Queue pairs: end of the last frame, and the busy time then.
        self._pair_end = np.full(plan.qp_count, NONE, dtype=np.int64)
        self._pair_busy = np.zeros(plan.qp_count, dtype=np.int64)
        # Messages: when posted, the busy time then; of the last frame its start, end, the busy time then, what it was.
        self._posted_busy = np.zeros(count, dtype=np.int64)
        self._time, self._end = np.full(count, NONE, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._end_busy = np.zeros(count, dtype=np.int64)
        self._wasted, self._again = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        posts = np.flatnonzero(ways.known)
        self._requested: dict[int, list[int]] = {}  # times of the requests that were made again, by queue pair
        self._posts = posts[np.argsort(asked.posted_ps[posts], kind="stable")]
        self._next_post = 0
        self._repeats()

    def _repeats(self) -> None:
        """Packets that were sent again before the last packet of their message was, and when for the last time."""
        ways, asked = self._ways, self._asked
        slot = asked.slot[self._plan.qp_op[self._messages.message(ways.again_packet)]]
        counts = slot != NONE
        counts[counts] = ways.again_ps[counts] <= ways.sent_ps[slot[counts]]
        packet, time_ps = ways.again_packet[counts], ways.again_ps[counts]
        past = np.flatnonzero(np.diff(packet, append=NONE))  # in order of packet and time: the last of each
        self._repeated, self._repeated_ps = packet[past], time_ps[past]
        self._again_packet, first = np.unique(ways.again_packet, return_index=True)
        self._again_ps = ways.again_ps[first]

    def add(self, rows: Frames) -> None:
        """Book the next transmissions."""
        host = np.flatnonzero(rows.host)
        if not len(host):
            return
        for row in np.flatnonzero(rows.again & rows.host).tolist():
            self._requested.setdefault(int(rows.qp[row]), []).append(int(rows.time_ps[row]))
        order = host[np.argsort(rows.port[host], kind="stable")]
        port, time_ps, wire = rows.port[order], rows.time_ps[order], rows.wire_ps[order]
        qp, data = rows.qp[order], rows.data[order]
        first = np.flatnonzero(np.diff(port, prepend=NONE))
        past = np.append(first[1:], len(port)) - 1
        rank = np.repeat(np.arange(len(first)), np.diff(first, append=len(port)))
        own_class = np.where(data, self._class[np.where(data, qp, 0)] if len(self._class) else 0, NONE)
        busy = np.zeros(len(port), dtype=np.int64)  # at the start of each row, as its class sees it
        took = np.zeros(len(port), dtype=np.int64)  # what the row adds to it
        posts = self._due(int(rows.time_ps[-1]))
        for number in range(self._plan.class_count):
            mine = own_class == number
            asking = posts[self._class[self._asked.qp[posts]] == number]
            key = port * self._plan.class_count + number
            free = wire - (self._paused.before(key, time_ps + wire) - self._paused.before(key, time_ps))
            total = np.cumsum(free)
            carried = self._busy[number][port[first]] - (total[first] - free[first])
            start = total - free + carried[rank]
            busy[mine], took[mine] = start[mine], free[mine]
            self._post(asking, number, port, time_ps, wire, start)
            self._busy[number][port[past]] = start[past] + free[past]
            self._port_busy[number][port[past]] = start[past]
        self._port_time[port[past]], self._port_wire[port[past]] = time_ps[past], wire[past]
        chosen = np.flatnonzero(data)
        if len(chosen):
            self._book(
                qp[chosen],
                rows.packet[order[chosen]],
                time_ps[chosen],
                wire[chosen],
                port[chosen],
                busy[chosen],
                took[chosen],
            )

    def _due(self, until_ps: int) -> Int64s:
        """Messages that were posted by a time, and have not been looked at."""
        asked = self._asked
        last = int(np.searchsorted(asked.posted_ps[self._posts], until_ps, side="right"))
        found = self._posts[self._next_post : last]
        self._next_post = max(last, self._next_post)
        return found

    def _post(self, slot: Int64s, number: int, port: Int64s, time_ps: Int64s, wire: Int64s, start: Int64s) -> None:
        """Note how long ports had been busy when messages were posted."""
        if not len(slot):
            return
        posted_ps, at = self._asked.posted_ps[slot], self._ways.sender_port[slot]
        times = np.unique(time_ps)
        step = len(times) + 1
        place = port * step + np.searchsorted(times, time_ps)
        row = np.searchsorted(place, at * step + np.searchsorted(times, posted_ps)) - 1  # the last one before
        here = row >= 0
        here[here] = port[row[here]] == at[here]
        row = np.maximum(row, 0)
        begun = np.where(here, time_ps[row], self._port_time[at])
        until = np.minimum(posted_ps, begun + np.where(here, wire[row], self._port_wire[at]))
        base = np.where(here, start[row], self._port_busy[number][at])
        key = at * self._plan.class_count + number
        part = until - begun - (self._paused.before(key, until) - self._paused.before(key, begun))
        self._posted_busy[slot] = np.where(begun == NONE, 0, base + part)

    def _book(
        self, qp: Int64s, packet: Int64s, time_ps: Int64s, wire: Int64s, port: Int64s, busy: Int64s, took: Int64s
    ) -> None:
        """Book data packets; arrays in order of time within each port."""
        order = np.argsort(qp, kind="stable")
        qp, packet, time_ps, wire, port, busy, took = (
            values[order] for values in (qp, packet, time_ps, wire, port, busy, took)
        )
        end, end_busy = time_ps + wire, busy + took
        first = np.flatnonzero(np.diff(qp, prepend=NONE))
        past = np.append(first[1:], len(qp)) - 1
        # The frame of the same queue pair before each.
        turn, turn_busy = np.empty_like(end), np.empty_like(end)
        turn[1:], turn_busy[1:] = end[:-1], end_busy[:-1]
        turn[first], turn_busy[first] = self._pair_end[qp[first]], self._pair_busy[qp[first]]
        self._pair_end[qp[past]], self._pair_busy[qp[past]] = end[past], end_busy[past]
        slot = self._asked.slot[self._plan.qp_op[self._messages.message(packet)]]
        mine = slot != NONE
        mine[mine] = time_ps[mine] <= self._ways.sent_ps[slot[mine]]
        chosen = np.flatnonzero(mine)
        chosen = chosen[np.argsort(slot[chosen], kind="stable")]
        if len(chosen):
            self._pairs(
                slot[chosen],
                packet[chosen],
                time_ps[chosen],
                end[chosen],
                port[chosen],
                busy[chosen],
                end_busy[chosen],
                turn[chosen],
                turn_busy[chosen],
            )

    def _pairs(
        self,
        slot: Int64s,
        packet: Int64s,
        time_ps: Int64s,
        end: Int64s,
        port: Int64s,
        busy: Int64s,
        end_busy: Int64s,
        turn: Int64s,
        turn_busy: Int64s,
    ) -> None:
        """Book the time from one transmission of a message to the next; arrays in order of message and time."""
        asked, spent = self._asked, self.spent
        # Sent once more before the last packet of its message was; sent before.
        wasted, row = _found(packet, self._repeated)
        wasted[wasted] = time_ps[wasted] < self._repeated_ps[row]
        again, row = _found(packet, self._again_packet)
        again[again] = time_ps[again] >= self._again_ps[row]
        first = np.flatnonzero(np.diff(slot, prepend=NONE))
        past = np.append(first[1:], len(slot)) - 1

        def before(values: NDArray, carried: NDArray) -> NDArray:
            found = np.empty_like(values)
            found[1:] = values[:-1]
            found[first] = carried[slot[first]]
            return found

        last_time = before(time_ps, self._time)
        last_end, last_busy = before(end, self._end), before(end_busy, self._end_busy)
        last_wasted, last_again = before(wasted, self._wasted), before(again, self._again)
        for values, state in ((time_ps, self._time), (end, self._end), (end_busy, self._end_busy)):
            state[slot[past]] = values[past]
        self._wasted[slot[past]], self._again[slot[past]] = wasted[past], again[past]

        opening = last_time == NONE
        posted_ps = asked.posted_ps[slot]
        later = opening & (turn > posted_ps)
        since = np.where(opening, np.where(later, turn, posted_ps), last_end)
        since_busy = np.where(opening, np.where(later, turn_busy, self._posted_busy[slot]), last_busy)
        _add(spent["queue_pair"], slot, later, turn - posted_ps)
        repeat = ~opening & last_wasted
        _add(spent["retransmission"], slot, repeat, time_ps - last_time)
        useful = ~opening & ~last_wasted
        _add(spent["serialisation"], slot, useful, last_end - last_time)
        request = opening & self._reads[asked.qp[slot]]
        repeated = self._asked_again(asked.qp[slot], request, since, time_ps)
        _add(spent["retransmission"], slot, request, repeated)
        _add(spent["request"], slot, request, time_ps - since - repeated)
        plain = ~request & ~repeat
        key = port * self._plan.class_count + self._class[asked.qp[slot]]
        paused = self._paused.before(key, time_ps) - self._paused.before(key, since)
        others = busy - since_busy
        idle = time_ps - since - paused - others
        _add(spent["paused"], slot, plain, paused)
        _add(spent["contention"], slot, plain, others)
        # With nothing new to send it waited until it knew what was lost.
        lost = again & ~last_again & ~opening
        _add(spent["pacing"], slot, plain & ~lost, idle)
        _add(spent["retransmission"], slot, plain & lost, idle)

    def _asked_again(self, qp: Int64s, request: NDArray[np.bool_], since: Int64s, until: Int64s) -> Int64s:
        """(n,) time from which a READ waited for its first packet to the last request that was made again meanwhile."""
        found = np.zeros(len(qp), dtype=np.int64)
        if not self._requested:
            return found
        for row in np.flatnonzero(request).tolist():
            times = self._requested.get(int(qp[row]))
            place = bisect_left(times, int(until[row])) if times else 0
            if times and place:
                found[row] = max(0, times[place - 1] - int(since[row]))
        return found


def _found(values: Int64s, known: Int64s) -> tuple[NDArray[np.bool_], Int64s]:
    """(n,) whether values are in an ascending array, and where those that are."""
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_), np.empty(0, dtype=np.int64)
    row = np.minimum(np.searchsorted(known, values), len(known) - 1)
    there = np.asarray(known[row] == values)
    return there, row[there]


def _add(total: Int64s, slot: Int64s, chosen: NDArray[np.bool_], values: Int64s) -> None:
    np.add.at(total, slot[chosen], values[chosen])
