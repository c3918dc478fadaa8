"""Collectives in which ranks have different data for each other: from the INPUT to the OUTPUT buffer.

What a rank has for itself it copies without a transfer. `size_bytes` is what nccl-tests prints as the size: all blocks
together, of the root for gather and scatter, of each rank for all-to-all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.collectives.extent import extents
from fabemu.collectives.schedule import OUTPUT, Schedule, assemble, chunked, over_channels


def gather(
    rank_count: int,
    size_bytes: int,
    *,
    root: int = 0,
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
) -> Schedule:
    """The root ends with the blocks of all ranks, `size_bytes` in all, block b at its place; everyone sends at once.

    Blocks are as even as whole elements allow; every block is split over the `channels` and cut into chunks of
    `chunk_bytes` (0: not cut).

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """
    _check(rank_count, channels, chunk_bytes, element_bytes, root)
    offset, size = _blocks(rank_count, size_bytes, element_bytes)
    other = (root + np.arange(1, rank_count)) % rank_count
    output = np.zeros(rank_count, dtype=np.int64)
    output[root] = size_bytes
    schedule = assemble(
        rank_count,
        src=other,
        dst=root,
        bytes=size[other],
        src_offset=0,
        dst_offset=offset[other],
        dst_buffer=OUTPUT,
        input_bytes=size,
        output_bytes=output,
    )
    return _cut(schedule, channels, chunk_bytes, element_bytes)


def scatter(
    rank_count: int,
    size_bytes: int,
    *,
    root: int = 0,
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
) -> Schedule:
    """Every rank ends with its block of the `size_bytes` of the root, which sends to all at once, the next one first.

    Parameters and errors as for `gather`.
    """
    _check(rank_count, channels, chunk_bytes, element_bytes, root)
    offset, size = _blocks(rank_count, size_bytes, element_bytes)
    other = (root + np.arange(1, rank_count)) % rank_count
    buffer = np.zeros(rank_count, dtype=np.int64)
    buffer[root] = size_bytes
    schedule = assemble(
        rank_count,
        src=root,
        dst=other,
        bytes=size[other],
        src_offset=offset[other],
        dst_offset=0,
        dst_buffer=OUTPUT,
        input_bytes=buffer,
        output_bytes=size,
    )
    return _cut(schedule, channels, chunk_bytes, element_bytes)


def all_to_all(
    rank_count: int,
    size_bytes: int,
    *,
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
    window: int | None = None,
) -> Schedule:
    """Block j of the `size_bytes` of every rank goes to rank j; block i of what a rank ends with came from rank i.

    Blocks are as even as whole elements allow, the same for every sender; a rank whose block is larger receives more.
    Parameters and errors as for `all_to_all_uneven`.
    """
    _check(rank_count, channels, chunk_bytes, element_bytes)
    _, size = _blocks(rank_count, size_bytes, element_bytes)
    return all_to_all_uneven(
        np.broadcast_to(size, (rank_count, rank_count)),
        channels=channels,
        chunk_bytes=chunk_bytes,
        element_bytes=element_bytes,
        window=window,
    )


def all_to_all_uneven(
    matrix: ArrayLike,
    *,
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
    window: int | None = None,
) -> Schedule:
    """All-to-all of `matrix[i, j]` bytes from rank i to rank j, which lie without gaps in the order of the ranks.

    In step s every rank sends to the one s + 1 behind it (shifted pairwise exchange).

    Parameters
    ----------
    matrix
        (R, R) bytes; the diagonal takes room in the buffers and is not sent.
    channels
        Parts of every transfer.
    chunk_bytes
        Transfers are cut into chunks of this size; 0 leaves them whole.
    element_bytes
        Transfers are cut at multiples of it only.
    window
        Steps that a rank may be in at a time: it starts step s when what it receives in step s - window has come. All
        at once unless given.

    Raises
    ------
    ValueError
        The matrix is not square or has negative entries, or a parameter is out of its range.
    """
    sizes = np.asarray(matrix, dtype=np.int64)
    if sizes.ndim != 2 or sizes.shape[0] != sizes.shape[1] or not len(sizes):
        raise ValueError(f"the matrix of an all-to-all is square, one row per rank; this one is {sizes.shape}")
    if (sizes < 0).any():
        i, j = np.argwhere(sizes < 0)[0]
        raise ValueError(f"the matrix of an all-to-all has {sizes[i, j]} bytes from rank {i} to rank {j}")
    count = len(sizes)
    _check(count, channels, chunk_bytes, element_bytes)
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    src_offset = np.cumsum(sizes, axis=1) - sizes
    dst_offset = np.cumsum(sizes, axis=0) - sizes
    step = np.arange(count - 1, dtype=np.int64)[:, None]
    src = np.arange(count, dtype=np.int64)[None, :]
    dst = (src + step + 1) % count
    waiter, waited = _window_waits(sizes, window) if window is not None else ((), ())
    schedule = assemble(
        count,
        src=src,
        dst=dst,
        bytes=sizes[src, dst],
        src_offset=src_offset[src, dst],
        dst_offset=dst_offset[src, dst],
        dst_buffer=OUTPUT,
        step=step,
        waiter=waiter,
        waited=waited,
        input_bytes=sizes.sum(axis=1),
        output_bytes=sizes.sum(axis=0),
    )
    return _cut(schedule, channels, chunk_bytes, element_bytes)


def send_recv(
    rank_count: int,
    src: ArrayLike,
    dst: ArrayLike,
    bytes: ArrayLike,
    *,
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
) -> Schedule:
    """Pairs of ranks: `bytes[k]` go from `src[k]` to `dst[k]`, all at once.

    The messages of a rank lie behind each other in the order in which they are given, those it sends in INPUT, those it
    receives in OUTPUT. A message to the rank itself takes room and is not sent.

    Raises
    ------
    ValueError
        A rank does not exist, bytes are negative, or a parameter is out of its range.
    """
    _check(rank_count, channels, chunk_bytes, element_bytes)
    src, dst, size = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=np.int64)) for x in (src, dst, bytes)))
    for name, rank in (("src", src), ("dst", dst)):
        wrong = (rank < 0) | (rank >= rank_count)
        if wrong.any():
            raise ValueError(f"{name} names rank {rank[wrong][0]}; there are ranks 0..{rank_count - 1}")
    if (size < 0).any():
        raise ValueError(f"a message has {size.min()} bytes; it must be at least 0")
    src_offset, sent = _behind_each_other(src, size, rank_count)
    dst_offset, received = _behind_each_other(dst, size, rank_count)
    schedule = assemble(
        rank_count,
        src=src,
        dst=dst,
        bytes=np.where(src == dst, 0, size),
        src_offset=src_offset,
        dst_offset=dst_offset,
        dst_buffer=OUTPUT,
        input_bytes=sent,
        output_bytes=received,
    )
    return _cut(schedule, channels, chunk_bytes, element_bytes)


def _behind_each_other(
    rank: NDArray[np.int64], size: NDArray[np.int64], rank_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offset of each message among those of its rank, and bytes of each rank."""
    order = np.argsort(rank, kind="stable")
    total = np.zeros(rank_count, dtype=np.int64)
    np.add.at(total, rank, size)
    offset = np.empty_like(size)
    offset[order] = np.cumsum(size[order]) - size[order] - (np.cumsum(total) - total)[rank[order]]
    return offset, total


def _window_waits(sizes: NDArray[np.int64], window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each transfer of a pairwise exchange waits for the last of those into its rank that are `window` steps back.

    Steps in which nothing comes are passed over, so that an empty message does not let a rank run ahead.
    """
    count = len(sizes)
    rank = np.arange(count, dtype=np.int64)
    step = np.arange(count - 1, dtype=np.int64)[:, None]
    source = (rank - step - 1) % count
    last = np.maximum.accumulate(np.where(sizes[source, rank] > 0, step, -1), axis=0)
    waited_step = last[: max(count - 1 - window, 0)]
    later, at = np.nonzero(waited_step >= 0)
    before = waited_step[later, at]
    return (later + window) * count + at, before * count + (at - before - 1) % count


def _blocks(rank_count: int, size_bytes: int, element_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if size_bytes < 0:
        raise ValueError(f"size_bytes is {size_bytes}; it must be at least 0")
    return extents(size_bytes, rank_count, element_bytes)


def _cut(schedule: Schedule, channels: int, chunk_bytes: int, element_bytes: int) -> Schedule:
    """Split over channels, then into chunks."""
    if channels > 1:
        schedule = over_channels(schedule, channels, element_bytes)
    return chunked(schedule, chunk_bytes, element_bytes) if chunk_bytes else schedule


def _check(rank_count: int, channels: int, chunk_bytes: int, element_bytes: int, root: int = 0) -> None:
    """Refuse what no collective can be made of."""
    for name, value, least in (
        ("rank_count", rank_count, 1),
        ("channels", channels, 1),
        ("chunk_bytes", chunk_bytes, 0),
        ("element_bytes", element_bytes, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if not 0 <= root < rank_count:
        raise ValueError(f"root is {root}; with {rank_count} ranks it must be 0..{rank_count - 1}")
