"""Schedules of collectives as operations of hosts: what each rank sends, receives, adds and waits for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives.schedule import Schedule, split
from fabemu.rate import bytes_ps
from fabemu.workload.flow import NONE
from fabemu.workload.graph import GraphBuilder

Int64s = NDArray[np.int64]


class Program:
    """Ranks on hosts, and what they do one after another.

    Every rank does what it is given in order: the next thing begins when all of what it had to receive, to send and to
    compute before is done. Ranks do not wait for each other but by messages.
    """

    def __init__(self, builder: GraphBuilder, hosts: Int64s, *, slowdown: NDArray[np.float64] | None = None) -> None:
        """Begin with nothing.

        Parameters
        ----------
        builder
            Where the operations go.
        hosts
            (R,) host of every rank.
        slowdown
            (R,) how many times as long each rank computes as is said; default: as said.
        """
        self._builder = builder
        self._lanes = 0
        self.hosts = hosts
        self.slowdown = np.ones(len(hosts)) if slowdown is None else slowdown

    def connections(self, count: int) -> int:
        """Queue pairs of their own for something that is done: the first of `count` numbers of lanes."""
        self._lanes += count
        return self._lanes - count

    def compute(self, ranks: Int64s, duration_ps: Int64s | int, after: Int64s, *, collective: int = NONE) -> Int64s:
        """Have ranks compute, each after the operation beside it or at once if that is -1; gives what ends it, (n,)."""
        length_ps = np.rint(np.broadcast_to(duration_ps, (len(ranks),)) * self.slowdown[ranks]).astype(np.int64)
        calc = self._builder.calcs(self.hosts[ranks], length_ps, collective=collective)
        waits = np.flatnonzero(after != NONE)
        self._builder.edges(after[waits], calc[waits])
        return calc

    def run(
        self,
        schedule: Schedule,
        ranks: Int64s,
        after: Int64s,
        *,
        lanes: int,
        qps: int = 1,
        element_bytes: int = 1,
        reduce_rate_bps: int | None = None,
        collective: Int64s | int = NONE,
    ) -> tuple[Int64s, Int64s]:
        """Have ranks run a schedule.

        Parameters
        ----------
        schedule
            What to run.
        ranks
            (S,) of the program, in the order of those of the schedule.
        after
            (S,) operation that each waits for before it begins, or -1.
        lanes
            First lane of its connections: `connections` of the schedule's channels times `qps`.
        qps
            Queue pairs that share the messages of each connection and channel.
        element_bytes
            Messages are cut at multiples of it.
        reduce_rate_bps
            Rate at which what is received is added to what is there; None: at once.
        collective
            Number of the collective, for tables; (S,) if several groups run side by side.

        Returns
        -------
        before, rank
            Operations that end it, (n,), and the rank of the schedule that each belongs to, (n,).
        """
        whole = schedule
        if qps > 1:
            schedule = split(whole, qps, element_bytes)
        builder, host = self._builder, self.hosts[ranks]
        src, dst = schedule.src, schedule.dst
        lane = lanes + schedule.channel.astype(np.int64) * qps
        if qps > 1:
            lane += _number_in_run(schedule, whole)
        number = np.broadcast_to(collective, (len(ranks),))
        send = builder.sends(
            host[src], host[dst], schedule.bytes, lane=lane, collective=number[src], step=schedule.step
        )
        recv = builder.recvs(host[dst], send, collective=number[dst])
        begun = np.flatnonzero(after[dst] != NONE)
        builder.edges(after[dst[begun]], recv[begun])
        waits = np.diff(schedule.wait_start) > 0
        begun = np.flatnonzero(~waits & (after[src] != NONE))
        builder.edges(after[src[begun]], send[begun])

        arrived = recv
        if reduce_rate_bps is not None and schedule.reduce.any():
            adds = np.flatnonzero(schedule.reduce)
            length_ps = bytes_ps(schedule.bytes[adds], reduce_rate_bps)
            calc = builder.calcs(
                host[dst[adds]],
                np.rint(length_ps * self.slowdown[ranks[dst[adds]]]).astype(np.int64),
                collective=number[dst[adds]],
            )
            builder.edges(recv[adds], calc)
            arrived = recv.copy()
            arrived[adds] = calc
        builder.edges(arrived[schedule.wait], send[schedule.waiters()])

        # What nothing in the schedule waits for ends it: the last arrivals, and the last message of each queue pair.
        awaited = np.zeros(schedule.transfer_count, np.bool_)
        awaited[schedule.wait] = True
        last_in = np.flatnonzero(~awaited)
        last_out = _last_of_each(src, dst, lane)
        return np.concatenate([arrived[last_in], send[last_out]]), np.concatenate([dst[last_in], src[last_out]])

    def send(
        self,
        src: Int64s,
        dst: Int64s,
        size_bytes: Int64s | int,
        after: Int64s,
        *,
        lanes: int,
        qps: int = 1,
        element_bytes: int = 1,
        collective: Int64s | int = NONE,
    ) -> tuple[Int64s, Int64s]:
        """Have each rank of `src` send to the one of `dst` beside it, after the operation beside it.

        The other parameters are those of `run`, `collective` by message.

        Returns
        -------
        recv, place
            Operations that end it at the receivers, (n,), and the place of each in `dst`, (n,).
        """
        count = len(src)
        size = np.broadcast_to(size_bytes, (count,))
        # As `split` cuts: parts of equal elements, rounded up, the last one what is left.
        elements = -(-size // element_bytes)
        part_bytes = -(-elements // qps) * element_bytes
        part = np.arange(qps)[:, None]
        cut = np.clip(size - part * part_bytes, 0, part_bytes)
        keep = (cut > 0) | (part == 0)
        number, place = np.nonzero(keep)
        sent = self._builder.sends(
            self.hosts[src[place]],
            self.hosts[dst[place]],
            cut[keep],
            lane=lanes + number,
            collective=np.broadcast_to(collective, (count,))[place],
            step=0,
        )
        waits = np.flatnonzero(after[place] != NONE)
        self._builder.edges(after[place[waits]], sent[waits])
        recv = self._builder.recvs(
            self.hosts[dst[place]], sent, collective=np.broadcast_to(collective, (count,))[place]
        )
        return recv, place

    def hold(self, before: Int64s, after: Int64s) -> None:
        """Have each operation of `after` wait for the one of `before` beside it, of the same rank."""
        self._builder.edges(before, after)

    def join(
        self,
        before: Int64s,
        rank: Int64s,
        ranks: Int64s,
        after: Int64s,
        *,
        duration_ps: Int64s | int = 0,
        collective: int = NONE,
    ) -> Int64s:
        """Have each rank go on when all operations that end something are done; gives what that is, (n,).

        Parameters
        ----------
        before, rank
            As `run` gives them; `rank` counts in `ranks`.
        ranks
            (S,) of the program.
        after
            (S,) what each waited for before; it is what one waits for that had nothing to do.
        duration_ps
            Time that it computes then.
        collective
            Number of the collective, for tables.
        """
        idle = np.ones(len(ranks), np.bool_)
        idle[rank] = False
        joined = self.compute(ranks, duration_ps, np.where(idle, after, NONE), collective=collective)
        self._builder.edges(before, joined[rank])
        return joined


def _number_in_run(parts: Schedule, whole: Schedule) -> Int64s:
    """(T,) which part of its transfer each transfer of a split schedule is."""
    # Parts follow each other, and their bytes add up to those of the transfer.
    ends = np.cumsum(parts.bytes)
    of_whole = np.searchsorted(np.cumsum(whole.bytes), ends, side="left")
    first = np.searchsorted(of_whole, of_whole, side="left")
    number: Int64s = np.arange(len(of_whole)) - first
    return number


def _last_of_each(src: NDArray[np.int32], dst: NDArray[np.int32], lane: Int64s) -> Int64s:
    """Index of the last message of every source, destination and lane."""
    count = len(src)
    if not count:
        return np.zeros(0, np.int64)
    ranks = int(max(src.max(), dst.max())) + 1
    key = (lane * ranks + src) * ranks + dst
    _, backwards = np.unique(key[::-1], return_index=True)
    last: Int64s = count - 1 - backwards
    return last
