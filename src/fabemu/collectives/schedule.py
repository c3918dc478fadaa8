"""Schedules: transfers between ranks, as columns, with what each waits for.

Everything here is vectorised. A schedule knows ranks, bytes and order, nothing of hosts, fabrics or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.deferred import dataclass

INPUT, OUTPUT, STAGING = 0, 1, 2
"""Buffers of a rank. Collectives that work in place use `INPUT` alone; data that a rank passes on lies in `STAGING`."""

BUFFERS = 3

MOST_TRANSFERS = 2**31 - 1
"""Transfers are numbered in 32 bits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """Transfers between ranks, as columns; each comes after those it waits for.

    A transfer reads its bytes at `src` when it starts and writes them at `dst` when it has arrived. It may start as
    soon as everything it waits for has arrived, and been reduced where `reduce` says so. Nothing else is ordered: two
    transfers between the same ranks may overtake each other, unless one waits for the other, however indirectly.

    `step` is the step of the algorithm, for traces; it never falls along a wait. Transfers of nothing are left out.
    """

    rank_count: int
    src: NDArray[np.int32]  # (T,) rank
    dst: NDArray[np.int32]  # (T,) rank, another one
    bytes: NDArray[np.int64]  # (T,) at least 1
    src_offset: NDArray[np.int64]  # (T,) byte at which the data is read at src
    dst_offset: NDArray[np.int64]  # (T,) byte at which it is written at dst
    src_buffer: NDArray[np.uint8]  # (T,) INPUT, OUTPUT or STAGING
    dst_buffer: NDArray[np.uint8]  # (T,) the same
    reduce: NDArray[np.bool_]  # (T,) the receiver adds what comes to what it has; else it stores it
    step: NDArray[np.int32]  # (T,)
    channel: NDArray[np.int32]  # (T,)
    wait_start: NDArray[np.int64]  # (T+1,) where the waits of each transfer begin in `wait`
    wait: NDArray[np.int32]  # (W,) transfers into src[t] that must have arrived before t may start; all below t
    input_bytes: int | NDArray[np.int64]  # size of the INPUT buffer of every rank, or (R,) of each
    output_bytes: int | NDArray[np.int64]  # size of the OUTPUT buffer of every rank, or (R,) of each; 0 in place
    staging_bytes: int | NDArray[np.int64] = 0  # size of the STAGING buffer, the same way

    @property
    def transfer_count(self) -> int:
        """Number of transfers."""
        return len(self.src)

    @property
    def step_count(self) -> int:
        """Number of steps."""
        return int(self.step.max()) + 1 if len(self.step) else 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def sent_bytes(self) -> NDArray[np.int64]:
        """Bytes that each rank sends, (R,)."""
        return _sums(self.src, self.bytes, self.rank_count)

    def received_bytes(self) -> NDArray[np.int64]:
        """Bytes that each rank receives, (R,)."""
        return _sums(self.dst, self.bytes, self.rank_count)

    def waiters(self) -> NDArray[np.int64]:
        """The transfer that waits, for every entry of `wait`, (W,)."""
        return np.repeat(np.arange(self.transfer_count, dtype=np.int64), np.diff(self.wait_start))

    def verify(self) -> None:
        """Check the shape of the schedule; what it computes is checked by `fabemu.collectives.semantics`.

        Raises
        ------
        ValueError
            A column has another length or type, a rank, buffer, byte range or wait is out of its range, or a transfer
            waits for one that does not come to where it starts. The message names the first such transfer.
        """
        count = self.transfer_count
        for name, dtype in _COLUMNS.items():
            column = getattr(self, name)
            if column.shape != (count,) or column.dtype != dtype:
                raise ValueError(f"schedule: {name} is {column.dtype}{column.shape}, not {np.dtype(dtype)}({count},)")
        if self.wait_start.shape != (count + 1,) or self.wait_start.dtype != np.int64 or self.wait.dtype != np.int32:
            raise ValueError("schedule: wait_start has one int64 entry more than there are transfers, wait is int32")
        if self.wait_start[0] != 0 or self.wait_start[-1] != len(self.wait) or (np.diff(self.wait_start) < 0).any():
            raise ValueError("schedule: wait_start does not rise from 0 to the length of wait")
        ranks = self.rank_count
        self._refuse((self.src < 0) | (self.src >= ranks), f"starts at a rank outside 0..{ranks - 1}")
        self._refuse((self.dst < 0) | (self.dst >= ranks), f"ends at a rank outside 0..{ranks - 1}")
        self._refuse(self.src == self.dst, "stays on its rank")
        self._refuse(self.bytes < 1, "has no bytes")
        self._refuse((self.src_buffer >= BUFFERS) | (self.dst_buffer >= BUFFERS), "names a buffer that does not exist")
        sizes = np.stack([np.broadcast_to(getattr(self, name), (ranks,)) for name in _SIZES])
        for offset, rank, buffer, verb in (
            (self.src_offset, self.src, self.src_buffer, "reads"),
            (self.dst_offset, self.dst, self.dst_buffer, "writes"),
        ):
            self._refuse(
                (offset < 0) | (offset + self.bytes > sizes[buffer, rank]), f"{verb} outside the buffer of its rank"
            )
        waiter = self.waiters()
        wrong = (self.wait < 0) | (self.wait >= waiter)
        if wrong.any():
            raise ValueError(f"schedule: transfer {waiter[wrong][0]} waits for {self.wait[wrong][0]}, not before it")
        wrong = self.dst[self.wait] != self.src[waiter]
        if wrong.any():
            raise ValueError(
                f"schedule: transfer {waiter[wrong][0]} waits for {self.wait[wrong][0]}, which goes to another rank"
            )
        wrong = self.step[self.wait] > self.step[waiter]
        if wrong.any():
            raise ValueError(f"schedule: transfer {waiter[wrong][0]} waits for a later step, {self.wait[wrong][0]}")

    def _refuse(self, wrong: NDArray[np.bool_], what: str) -> None:
        if wrong.any():
            raise ValueError(f"schedule: transfer {int(np.argmax(wrong))} {what}")


_COLUMNS: dict[str, Any] = {
    "src": np.int32,
    "dst": np.int32,
    "bytes": np.int64,
    "src_offset": np.int64,
    "dst_offset": np.int64,
    "src_buffer": np.uint8,
    "dst_buffer": np.uint8,
    "reduce": np.bool_,
    "step": np.int32,
    "channel": np.int32,
}


_SIZES = ("input_bytes", "output_bytes", "staging_bytes")
"""Fields with the sizes of the buffers, by buffer."""


def assemble(
    rank_count: int,
    *,
    src: ArrayLike,
    dst: ArrayLike,
    bytes: ArrayLike,
    src_offset: ArrayLike,
    dst_offset: ArrayLike | None = None,
    src_buffer: ArrayLike = INPUT,
    dst_buffer: ArrayLike = INPUT,
    reduce: ArrayLike = False,
    step: ArrayLike = 0,
    channel: ArrayLike = 0,
    waiter: ArrayLike = (),
    waited: ArrayLike = (),
    input_bytes: int | NDArray[np.int64],
    output_bytes: int | NDArray[np.int64] = 0,
    staging_bytes: int | NDArray[np.int64] = 0,
) -> Schedule:
    """A schedule of columns that broadcast against each other, transfers of nothing left out.

    `dst_offset` is `src_offset` unless given. Transfer `waiter[i]` waits for transfer `waited[i]`: indices into the
    broadcast columns, flattened in C order, before anything is left out. A wait for a transfer of nothing is left out
    too, so waits must be for data: then nothing is lost with it.
    """
    given: dict[str, Any] = {
        "src": src,
        "dst": dst,
        "bytes": bytes,
        "src_offset": src_offset,
        "dst_offset": src_offset if dst_offset is None else dst_offset,
        "src_buffer": src_buffer,
        "dst_buffer": dst_buffer,
        "reduce": reduce,
        "step": step,
        "channel": channel,
    }
    narrow = {name: np.asarray(value, dtype=_COLUMNS[name]) for name, value in given.items()}
    shape = np.broadcast_shapes(*(value.shape for value in narrow.values())) or (1,)
    count = int(np.prod(shape))
    keep = (np.broadcast_to(narrow["bytes"], shape) > 0).ravel()
    waiting, awaited = np.asarray(waiter, dtype=np.int64), np.asarray(waited, dtype=np.int64)
    columns = {name: np.broadcast_to(value, shape) for name, value in narrow.items()}
    if keep.all():
        columns = {name: np.array(value).reshape(-1) for name, value in columns.items()}
    else:
        columns = {name: value.reshape(-1)[keep] for name, value in columns.items()}
        place = np.cumsum(keep) - 1
        both = keep[waiting] & keep[awaited]
        waiting, awaited = place[waiting[both]], place[awaited[both]]
        count = len(columns["src"])
    wait_start, wait = _rows(waiting, awaited, count)
    return Schedule(
        rank_count=rank_count,
        **columns,
        wait_start=wait_start,
        wait=wait,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        staging_bytes=staging_bytes,
    )


def empty(rank_count: int, input_bytes: int | NDArray[np.int64], output_bytes: int | NDArray[np.int64] = 0) -> Schedule:
    """The schedule without transfers: nothing to send, or nobody to send it to."""
    return assemble(
        rank_count, src=[], dst=[], bytes=[], src_offset=[], input_bytes=input_bytes, output_bytes=output_bytes
    )


def concatenate(schedules: Sequence[Schedule]) -> Schedule:
    """Schedules side by side, none waiting for another, ordered by step; the buffers are the largest of each.

    Raises
    ------
    ValueError
        There are none, or they differ in their number of ranks.
    """
    if not schedules:
        raise ValueError("no schedules to put side by side")
    if len({schedule.rank_count for schedule in schedules}) > 1:
        raise ValueError("schedules side by side must have the same number of ranks")
    if len(schedules) == 1:
        return schedules[0]
    first = np.cumsum([0] + [schedule.transfer_count for schedule in schedules])
    starts = np.cumsum([0] + [len(schedule.wait) for schedule in schedules])
    columns = {name: np.concatenate([getattr(schedule, name) for schedule in schedules]) for name in _COLUMNS}
    wait_start = np.concatenate(
        [schedule.wait_start[:-1] + start for schedule, start in zip(schedules, starts, strict=False)] + [starts[-1:]]
    )
    wait = np.concatenate(
        [schedule.wait + np.int32(offset) for schedule, offset in zip(schedules, first, strict=False)]
    )
    joined = Schedule(
        rank_count=schedules[0].rank_count,
        **columns,
        wait_start=wait_start.astype(np.int64),
        wait=wait.astype(np.int32),
        **_largest(schedules),
    )
    return _by_step(joined)


def then(first: Schedule, second: Schedule) -> Schedule:
    """One schedule after another: a transfer of `second` waits for all of `first` that write what it reads.

    It waits for nothing else: what is ready goes on while the rest of `first` is under way. Writers that others are
    known to come after are not named again, provided that `first` has no races. What a transfer overwrites at its
    destination is not protected; the semantic check finds what that breaks.

    Raises
    ------
    ValueError
        The schedules differ in their number of ranks.
    """
    if first.rank_count != second.rank_count:
        raise ValueError("a schedule and the one after it must have the same number of ranks")
    buffers = _largest([first, second])
    if not first.transfer_count or not second.transfer_count:
        return replace(second if not first.transfer_count else first, **buffers)
    reader, writer = _overlaps(second, first)
    before = first.transfer_count
    columns = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _COLUMNS}
    columns["step"][before:] += first.step_count
    waiter = np.concatenate([first.waiters(), second.waiters() + before, reader + before])
    waited = np.concatenate([first.wait.astype(np.int64), second.wait.astype(np.int64) + before, writer])
    wait_start, wait = _rows(waiter, waited, before + second.transfer_count)
    return Schedule(rank_count=first.rank_count, **columns, wait_start=wait_start, wait=wait, **buffers)


def reverse(schedule: Schedule) -> Schedule:
    """The schedule run backwards, every transfer the other way and reduced where it arrives.

    Turns a broadcast into a reduce and an all-gather into a reduce-scatter: what went from one place to many comes from
    many to one, over the same connections.
    """
    last = schedule.transfer_count - 1
    waiter = last - schedule.wait.astype(np.int64)
    waited = last - schedule.waiters()
    wait_start, wait = _rows(waiter, waited, schedule.transfer_count)
    return replace(
        schedule,
        src=schedule.dst[::-1].copy(),
        dst=schedule.src[::-1].copy(),
        bytes=schedule.bytes[::-1].copy(),
        src_offset=schedule.dst_offset[::-1].copy(),
        dst_offset=schedule.src_offset[::-1].copy(),
        src_buffer=schedule.dst_buffer[::-1].copy(),
        dst_buffer=schedule.src_buffer[::-1].copy(),
        reduce=np.ones(schedule.transfer_count, dtype=np.bool_),
        step=(np.int32(schedule.step_count - 1) - schedule.step[::-1]).astype(np.int32),
        channel=schedule.channel[::-1].copy(),
        wait_start=wait_start,
        wait=wait,
    )


def on_groups(schedule: Schedule, groups: ArrayLike, rank_count: int) -> Schedule:
    """The schedule once for every group of ranks, side by side.

    Parameters
    ----------
    schedule
        Of as many ranks as a group has.
    groups
        (G, R) ranks: rank r of the schedule is `groups[g, r]` in copy g.
    rank_count
        Ranks of the result.
    """
    groups = np.atleast_2d(np.asarray(groups, dtype=np.int32))
    copies, count = len(groups), schedule.transfer_count
    columns: dict[str, Any] = {name: np.tile(getattr(schedule, name), copies) for name in _COLUMNS}
    columns["src"] = groups[:, schedule.src].reshape(-1)
    columns["dst"] = groups[:, schedule.dst].reshape(-1)
    shift = np.arange(copies, dtype=np.int64)[:, None]
    wait_start = np.append(
        (schedule.wait_start[:-1] + shift * len(schedule.wait)).reshape(-1), copies * schedule.wait.size
    )
    wait = (schedule.wait + shift * count).reshape(-1).astype(np.int32)
    sizes: dict[str, Any] = {}
    for name in _SIZES:
        size = getattr(schedule, name)
        if isinstance(size, np.ndarray):
            sizes[name] = np.zeros(rank_count, dtype=np.int64)
            sizes[name][groups] = size
        else:
            sizes[name] = size
    copy = Schedule(rank_count=rank_count, **columns, wait_start=wait_start, wait=wait, **sizes)
    return _by_step(copy)


def chunked(schedule: Schedule, chunk_bytes: int, element_bytes: int = 1) -> Schedule:
    """The schedule with every transfer cut into chunks, so that a chunk may go on as soon as it has come.

    `chunk_bytes` is rounded down to whole elements, but not below one; the last chunk of a transfer is what is left.

    Raises
    ------
    ValueError
        There would be more than 2^31 - 1 chunks.
    """
    chunk = max(chunk_bytes // element_bytes, 1) * element_bytes
    return _cut(schedule, np.full(schedule.transfer_count, chunk, dtype=np.int64))


def split(schedule: Schedule, pieces: int, element_bytes: int = 1) -> Schedule:
    """The schedule with every transfer cut into up to `pieces` parts, as several queue pairs would share a message.

    A part has the bytes of the transfer over `pieces`, rounded up to whole elements, the last one what is left; a
    transfer of few elements has fewer parts. Parts follow each other, so the number of a part in its transfer is its
    place after the first. No byte is lost or sent twice.

    Raises
    ------
    ValueError
        `pieces` is below 1, or there would be more than 2^31 - 1 parts.
    """
    if pieces < 1:
        raise ValueError(f"a transfer cannot be cut into {pieces} pieces; at least 1 is needed")
    elements = -(-schedule.bytes // element_bytes)
    return _cut(schedule, -(-elements // pieces) * element_bytes)


def over_channels(schedule: Schedule, channels: int, element_bytes: int = 1) -> Schedule:
    """The schedule with every transfer cut as by `split`, the first part on channel 0, the next on channel 1 and on."""
    parts = split(schedule, channels, element_bytes)
    elements = -(-schedule.bytes // element_bytes)
    _, number = _runs(-(-schedule.bytes // (-(-elements // channels) * element_bytes)))
    return replace(parts, channel=number.astype(np.int32))


def _cut(schedule: Schedule, piece: NDArray[np.int64]) -> Schedule:
    """Every transfer t in pieces of `piece[t]` bytes; a piece waits for the pieces that bring what it reads."""
    pieces = -(-schedule.bytes // piece)
    if (pieces == 1).all():
        return schedule
    if pieces.sum() > MOST_TRANSFERS:
        raise ValueError(f"{pieces.sum()} pieces are more than {MOST_TRANSFERS} transfers; take larger or fewer pieces")
    owner, number = _runs(pieces)
    first = np.cumsum(pieces) - pieces
    offset = number * piece[owner]
    size = np.minimum(piece[owner], schedule.bytes[owner] - offset)

    # Every piece of a transfer, for everything the transfer waits for.
    waiter, waited = schedule.waiters(), schedule.wait.astype(np.int64)
    pair, number = _runs(pieces[waiter])
    waiting, awaited = first[waiter[pair]] + number, waited[pair]
    low = schedule.src_offset[waiter] - schedule.dst_offset[waited]
    reads = schedule.src_buffer[waiter] == schedule.dst_buffer[waited]
    reads &= (low < schedule.bytes[waited]) & (low + schedule.bytes[waiter] > 0)
    low = low[pair] + offset[waiting]
    high = np.minimum(low + size[waiting], schedule.bytes[awaited]) - 1
    low = np.maximum(low, 0)
    begin, end = low // piece[awaited], high // piece[awaited] + 1
    # A wait that is not for data is for the whole of the other transfer.
    order = ~reads[pair]
    begin[order], end[order] = 0, pieces[awaited[order]]
    entry, number = _runs(np.where(low <= high, np.maximum(end - begin, 0), np.where(order, end, 0)))
    wait_start, wait = _rows(waiting[entry], first[awaited[entry]] + begin[entry] + number, len(owner))
    columns = {name: getattr(schedule, name)[owner] for name in _COLUMNS}
    columns["bytes"] = size
    columns["src_offset"] = columns["src_offset"] + offset
    columns["dst_offset"] = columns["dst_offset"] + offset
    return replace(schedule, **columns, wait_start=wait_start, wait=wait)


def _runs(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For runs of these lengths, one behind the other: the run of every place, and its number in it."""
    run = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return run, np.arange(len(run), dtype=np.int64) - (np.cumsum(lengths) - lengths)[run]


def _rows(
    waiter: NDArray[np.int64], waited: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Start and entries of the waits of each of `count` transfers."""
    if len(waiter) and (np.diff(waiter) < 0).any():
        order = np.lexsort((waited, waiter))
        waiter, waited = waiter[order], waited[order]
    wait_start = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(waiter, minlength=count), out=wait_start[1:])
    return wait_start, waited.astype(np.int32)


def _by_step(schedule: Schedule) -> Schedule:
    """The same schedule with its transfers ordered by step, else as they were."""
    if not (np.diff(schedule.step) < 0).any():
        return schedule
    order = np.argsort(schedule.step, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    wait_start, wait = _rows(place[schedule.waiters()], place[schedule.wait], schedule.transfer_count)
    columns = {name: getattr(schedule, name)[order] for name in _COLUMNS}
    return replace(schedule, **columns, wait_start=wait_start, wait=wait)


def _largest(schedules: Sequence[Schedule]) -> dict[str, Any]:
    """Buffers large enough for all of the schedules."""
    sizes: dict[str, Any] = {}
    for name in _SIZES:
        size = getattr(schedules[0], name)
        for schedule in schedules[1:]:
            size = np.maximum(size, getattr(schedule, name))
        sizes[name] = size if isinstance(size, np.ndarray) and size.ndim else int(size)
    return sizes


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values sorted, each once; by sorting, as hashing of millions takes seconds."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def _sums(rank: NDArray[np.int32], bytes: NDArray[np.int64], rank_count: int) -> NDArray[np.int64]:
    """Bytes by rank, exactly."""
    total = np.zeros(rank_count, dtype=np.int64)
    np.add.at(total, rank, bytes)
    return total


def _overlaps(readers: Schedule, writers: Schedule) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs (reader, writer) where the writer writes bytes that the reader reads, each once, sorted.

    Without the writers that a later store, which is among the pairs, is known to come after: that takes writers without
    races.
    """
    ends = [readers.src_offset + readers.bytes, writers.dst_offset + writers.bytes]
    stride = max(int(end.max()) for end in ends) + 1
    # One line on which the buffers of all ranks lie one behind the other.
    write = (writers.dst.astype(np.int64) * BUFFERS + writers.dst_buffer) * stride + writers.dst_offset
    read = (readers.src.astype(np.int64) * BUFFERS + readers.src_buffer) * stride + readers.src_offset
    points = _distinct(np.concatenate([write, write + writers.bytes]))
    begin = np.searchsorted(points, write)
    writer, number = _runs(np.searchsorted(points, write + writers.bytes) - begin)
    cell = begin[writer] + number
    order = np.argsort(cell, kind="stable")
    by_cell, cell = writer[order], cell[order]
    # A store comes after all that was written to its cell before, in whatever order: it stands for that.
    stored = np.where(writers.reduce[by_cell], -1, np.arange(len(by_cell)))
    last = np.full(len(points), -1, dtype=np.int64)
    np.maximum.at(last, cell, stored)
    needed = np.arange(len(by_cell)) >= last[cell]
    by_cell, cell = by_cell[needed], cell[needed]
    cell_start = np.searchsorted(cell, np.arange(len(points) + 1))
    begin = np.maximum(np.searchsorted(points, read, side="right") - 1, 0)
    reader, number = _runs(np.maximum(np.searchsorted(points, read + readers.bytes) - begin, 0))
    cell = begin[reader] + number
    entry, number = _runs(cell_start[cell + 1] - cell_start[cell])
    reader, writer = reader[entry], by_cell[cell_start[cell[entry]] + number]
    pairs = _distinct(reader * writers.transfer_count + writer)
    return pairs // writers.transfer_count, pairs % writers.transfer_count
