"""Symbolic runs of schedules: whether everyone ends with what a collective promises, whatever the order.

Data is followed as counts of contributions by rank, for every range of bytes that some transfer treats as one. A
transfer takes what lies at its source when it starts and leaves it at its destination when it arrives, any time
later, and nothing but the declared waits orders transfers.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives.contents import ALL_RANKS, Contents, Promise
from fabemu.collectives.schedule import BUFFERS, Schedule
from fabemu.deferred import dataclass

MANNERS = ("random", "newest", "starts first")
"""How a run orders what may happen: at random; the newest transfer goes on first, so that old ones linger between
start and arrival; everything that may start has done so before anything arrives."""

_NOTHING = -1  # position of data that was never there


class SemanticError(ValueError):
    """A schedule does not do what it promises, or does so only if it is lucky with the order."""


def check(
    schedule: Schedule, promise: Promise, seeds: tuple[int, ...] = (0,), manners: tuple[str, ...] = MANNERS
) -> None:
    """Check a schedule against a promise: its shape, its races, and one run in every manner for each of the seeds.

    Without races all runs end alike, so that one manner is enough where time counts; more check the checker.

    Raises
    ------
    ValueError
        The schedule is malformed (`Schedule.verify`).
    SemanticError
        It has a race, or a run goes wrong (`find_race`, `run`).
    """
    schedule.verify()
    if schedule.rank_count != promise.rank_count:
        raise SemanticError(f"{schedule.rank_count} ranks, promised for {promise.rank_count}")
    race = find_race(schedule)
    if race is not None:
        raise SemanticError(str(race))
    cells = _cells(schedule, promise)
    for seed in seeds:
        for manner in manners:
            _run(schedule, promise, cells, manner, np.random.default_rng(seed))


def run(schedule: Schedule, promise: Promise, manner: str = "random", seed: int = 0) -> None:
    """Run a schedule once, in one order that its waits allow.

    Raises
    ------
    SemanticError
        A transfer sends what was never there or adds data of different positions, or some rank does not end with each
        contribution exactly once. The message names the transfer, or the rank and the byte.
    """
    if manner not in MANNERS:
        raise ValueError(f'unknown manner "{manner}"; one of {", ".join(MANNERS)}')
    _run(schedule, promise, _cells(schedule, promise), manner, np.random.default_rng(seed))


@dataclass(frozen=True)
class Race:
    """Two accesses to the same bytes of a rank that no chain of waits orders."""

    rank: int
    writer: int  # transfer that arrives there
    other: int  # transfer that reads there, or arrives there too
    reads: bool

    def __str__(self) -> str:
        """One sentence."""
        verb = "is read by" if self.reads else "is written by"
        return (
            f"race at rank {self.rank}: what transfer {self.writer} writes {verb} transfer {self.other}, "
            "and nothing says which comes first"
        )


def find_race(schedule: Schedule) -> Race | None:
    """The first race of a schedule, or None: then every order gives the same.

    Exact: reachability over waits is worked out for every pair. An arrival comes before the start of all that waits
    for it, directly or not; a transfer starts before it arrives. Two arrivals that both add may come in any order.
    Takes T^2 / 8 bytes for T transfers.
    """
    count = schedule.transfer_count
    before = np.zeros((count, -(-count // 8)), dtype=np.uint8)  # bit u of row t: u has arrived when t starts
    start, wait = schedule.wait_start.tolist(), schedule.wait.tolist()
    for transfer in range(count):
        row = before[transfer]
        for awaited in wait[start[transfer] : start[transfer + 1]]:
            row |= before[awaited]
            row[awaited >> 3] |= 1 << (awaited & 7)

    def arrived(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (before[later, earlier >> 3] >> (earlier & 7)) & 1 > 0

    write_key = schedule.dst.astype(np.int64) * BUFFERS + schedule.dst_buffer
    read_key = schedule.src.astype(np.int64) * BUFFERS + schedule.src_buffer
    by_write, by_read = np.argsort(write_key, kind="stable"), np.argsort(read_key, kind="stable")
    keys = np.unique(write_key)
    write_bounds = np.searchsorted(write_key[by_write], [keys, keys + 1])
    read_bounds = np.searchsorted(read_key[by_read], [keys, keys + 1])
    write_end, read_end = schedule.dst_offset + schedule.bytes, schedule.src_offset + schedule.bytes
    for index, key in enumerate(keys.tolist()):
        writes = by_write[write_bounds[0, index] : write_bounds[1, index]]
        reads = by_read[read_bounds[0, index] : read_bounds[1, index]]
        meet = (schedule.dst_offset[writes][:, None] < read_end[reads]) & (
            schedule.src_offset[reads] < write_end[writes][:, None]
        )
        writer, reader = (side[place] for side, place in zip((writes, reads), np.nonzero(meet), strict=True))
        open_ = ~(arrived(writer, reader) | arrived(reader, writer))
        if open_.any():
            return Race(key // BUFFERS, int(writer[open_][0]), int(reader[open_][0]), True)
        meet = (schedule.dst_offset[writes][:, None] < write_end[writes]) & (
            schedule.dst_offset[writes] < write_end[writes][:, None]
        )
        one, two = (writes[place] for place in np.nonzero(np.triu(meet, 1)))
        open_ = ~(arrived(one, two) | arrived(two, one)) & ~(schedule.reduce[one] & schedule.reduce[two])
        if open_.any():
            return Race(key // BUFFERS, int(one[open_][0]), int(two[open_][0]), False)
    return None


def _cells(schedule: Schedule, promise: Promise) -> list[NDArray[np.int64]]:
    """Boundaries of ranges that nothing cuts, sorted, by rank * BUFFERS + buffer.

    What is cut at a source is cut at the destination too, and the other way round.
    """
    keys = promise.rank_count * BUFFERS
    source = schedule.src.astype(np.int64) * BUFFERS + schedule.src_buffer
    target = schedule.dst.astype(np.int64) * BUFFERS + schedule.dst_buffer
    ranges = [(source, schedule.src_offset, schedule.bytes), (target, schedule.dst_offset, schedule.bytes)]
    ranges += [(side.rank * BUFFERS + side.buffer, side.offset, side.bytes) for side in (promise.start, promise.end)]
    key = np.concatenate([part[0] for part in ranges] * 2)
    point = np.concatenate([part[1] for part in ranges] + [part[1] + part[2] for part in ranges])
    if (schedule.src_offset == schedule.dst_offset).all() and (schedule.src_buffer == schedule.dst_buffer).all():
        # Nothing moves: the same boundaries everywhere.
        return [np.unique(point)] * keys
    sets = [set(point[key == place].tolist()) for place in range(keys)]
    moves = list(
        zip(
            *(column.tolist() for column in (source, target, *(part[1] for part in ranges[:2]), schedule.bytes)),
            strict=True,
        )
    )
    changed = True
    while changed:
        changed = False
        for here, there, read, written, size in moves:
            inside = {x - read for x in sets[here] if read < x < read + size}
            outside = {x - written for x in sets[there] if written < x < written + size}
            if inside != outside:
                sets[here] |= {x + read for x in outside}
                sets[there] |= {x + written for x in inside}
                changed = True
    return [np.array(sorted(points), dtype=np.int64) for points in sets]


class _State:
    """Counts of contributions by rank, and the position they are for, in every cell."""

    def __init__(self, promise: Promise, cells: list[NDArray[np.int64]]) -> None:
        self.cells = cells
        lists = {id(points): points.tolist() for points in cells}  # many ranks may share one
        self.points = [lists[id(points)] for points in cells]
        self.count = [np.zeros((max(len(points) - 1, 0), promise.rank_count), dtype=np.int32) for points in cells]
        self.position = [np.full(len(counts), _NOTHING, dtype=np.int64) for counts in self.count]
        for key, origin, position, cut in self.ranges(promise.start):
            self.count[key][cut, origin] = 1
            self.position[key][cut] = position

    def cut(self, key: int, offset: int, size: int) -> slice:
        points = self.points[key]
        begin = bisect_left(points, offset)
        return slice(begin, bisect_left(points, offset + size, begin))

    def ranges(self, side: Contents):
        """Key, origin, positions of the cells and cells of each range."""
        for rank, buffer, offset, size, origin, position in zip(
            *(getattr(side, name).tolist() for name in ("rank", "buffer", "offset", "bytes", "origin", "position")),
            strict=True,
        ):
            key = rank * BUFFERS + buffer
            cut = self.cut(key, offset, size)
            yield key, origin, self.cells[key][cut] - offset + position, cut


def _run(
    schedule: Schedule, promise: Promise, cells: list[NDArray[np.int64]], manner: str, random: np.random.Generator
) -> None:
    state = _State(promise, cells)
    count = schedule.transfer_count
    source = (schedule.src.astype(np.int64) * BUFFERS + schedule.src_buffer).tolist()
    target = (schedule.dst.astype(np.int64) * BUFFERS + schedule.dst_buffer).tolist()
    read, written, size = (x.tolist() for x in (schedule.src_offset, schedule.dst_offset, schedule.bytes))
    adds = schedule.reduce.tolist()
    missing = np.diff(schedule.wait_start).tolist()
    followers: list[list[int]] = [[] for _ in range(count)]
    for waiter, awaited in zip(schedule.waiters().tolist(), schedule.wait.tolist(), strict=True):
        followers[awaited].append(waiter)
    ready = [transfer for transfer in range(count) if not missing[transfer]]
    flying: list[tuple[int, NDArray[np.int32], NDArray[np.int64]]] = []
    choices = iter(random.random(4 * count).tolist())
    while ready or flying:
        starts = bool(ready) and (not flying or manner != "random" or next(choices) < 0.5)
        if starts:
            transfer = _taken(ready, manner, choices)
            cut = state.cut(source[transfer], read[transfer], size[transfer])
            position = state.position[source[transfer]][cut].copy()
            if (position == _NOTHING).any():
                raise SemanticError(f"transfer {transfer} sends what rank {schedule.src[transfer]} does not have")
            flying.append((transfer, state.count[source[transfer]][cut].copy(), position))
            continue
        transfer, counts, position = _taken(flying, manner, choices)
        key = target[transfer]
        cut = state.cut(key, written[transfer], size[transfer])
        if adds[transfer]:
            if (state.position[key][cut] != position).any():
                raise SemanticError(
                    f"transfer {transfer} adds to other data than it brings, at rank {schedule.dst[transfer]}"
                )
            state.count[key][cut] += counts
        else:
            state.count[key][cut] = counts
            state.position[key][cut] = position
        for follower in followers[transfer]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)
    if any(missing):
        raise SemanticError(f"transfer {next(t for t in range(count) if missing[t])} never starts")
    _judge(state, promise)


def _taken(pool: list, manner: str, choices):
    """One of the pool, removed: any of them, or the newest."""
    if manner != "newest":
        place = int(next(choices) * len(pool))
        pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()


def _judge(state: _State, promise: Promise) -> None:
    """Refuse an end that is not the promised one."""
    for key, origin, position, cut in state.ranges(promise.end):
        wanted = np.ones(promise.rank_count, dtype=np.int32)
        if origin != ALL_RANKS:
            wanted[:] = 0
            wanted[origin] = 1
        wrong = (state.position[key][cut] != position) | (state.count[key][cut] != wanted).any(axis=1)
        if wrong.any():
            cell = cut.start + int(np.argmax(wrong))
            found = np.flatnonzero(state.count[key][cell])
            counts = ", ".join(f"{state.count[key][cell, rank]} x rank {rank}" for rank in found[:6]) or "nothing"
            more = ", .." if len(found) > 6 else ""
            raise SemanticError(
                f"rank {key // BUFFERS} ends with {counts}{more} for position {state.position[key][cell]} at byte "
                f"{state.cells[key][cell]}; promised for position {position[cell - cut.start]}: "
                + ("each rank once" if origin == ALL_RANKS else f"rank {origin} once")
            )
