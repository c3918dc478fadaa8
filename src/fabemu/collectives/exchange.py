"""Collectives in which ranks have different data for each other: from the INPUT to the OUTPUT buffer.

What a rank has for itself it copies without a transfer. `size_bytes` is what nccl-tests prints as the size: all blocks
together, of the root for gather and scatter, of each rank for all-to-all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.collectives.extent import extents
from fabemu.collectives.order import node_count
from fabemu.collectives.schedule import INPUT, OUTPUT, STAGING, Schedule, assemble, chunked, over_channels


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


ALL_TO_ALL = ("pairwise", "hierarchical")


def all_to_all(
    rank_count: int,
    size_bytes: int,
    *,
    algorithm: str = "pairwise",
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
    window: int | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """Block j of the `size_bytes` of every rank goes to rank j; block i of what a rank ends with came from rank i.

    Blocks are as even as whole elements allow, the same for every sender; a rank whose block is larger receives more.
    Parameters and errors as for `all_to_all_uneven`.
    """
    _check(rank_count, channels, chunk_bytes, element_bytes)
    _, size = _blocks(rank_count, size_bytes, element_bytes)
    return all_to_all_uneven(
        np.broadcast_to(size, (rank_count, rank_count)),
        algorithm=algorithm,
        channels=channels,
        chunk_bytes=chunk_bytes,
        element_bytes=element_bytes,
        window=window,
        ranks_per_node=ranks_per_node,
    )


def all_to_all_uneven(
    matrix: ArrayLike,
    *,
    algorithm: str = "pairwise",
    channels: int = 1,
    chunk_bytes: int = 0,
    element_bytes: int = 1,
    window: int | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """All-to-all of `matrix[i, j]` bytes from rank i to rank j, which lie without gaps in the order of the ranks.

    Parameters
    ----------
    matrix
        (R, R) bytes; the diagonal takes room in the buffers and is not sent.
    algorithm
        "pairwise": in step s every rank sends to the one s + 1 behind it. "hierarchical": data for another node goes to
        the rank of the sender's own node that has the local number of the receiver, and from there across, in one
        message with what the rest of the node has for the same rank; so only equal local numbers talk across nodes.
    channels
        Parts of every transfer.
    chunk_bytes
        Transfers are cut into chunks of this size; 0 leaves them whole.
    element_bytes
        Transfers are cut at multiples of it only.
    window
        Of "pairwise": steps that a rank may be in at a time; it starts step s when what it receives in step s - window
        has come. All at once unless given.
    ranks_per_node
        Of "hierarchical": consecutive ranks that form a node.

    Raises
    ------
    ValueError
        The matrix is not square or has negative entries, a parameter is out of its range or does not go with the
        algorithm, or the ranks are not whole nodes.
    """
    sizes = np.asarray(matrix, dtype=np.int64)
    if sizes.ndim != 2 or sizes.shape[0] != sizes.shape[1] or not len(sizes):
        raise ValueError(f"the matrix of an all-to-all is square, one row per rank; this one is {sizes.shape}")
    if (sizes < 0).any():
        i, j = np.argwhere(sizes < 0)[0]
        raise ValueError(f"the matrix of an all-to-all has {sizes[i, j]} bytes from rank {i} to rank {j}")
    _check(len(sizes), channels, chunk_bytes, element_bytes)
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1")
    if algorithm not in ALL_TO_ALL:
        raise ValueError(f'all_to_all: unknown algorithm "{algorithm}"; one of {", ".join(ALL_TO_ALL)}')
    if algorithm == "pairwise":
        if ranks_per_node is not None:
            node_count(len(sizes), ranks_per_node)
        schedule = _pairwise(sizes, window)
    else:
        if ranks_per_node is None:
            raise ValueError("all_to_all: hierarchical needs ranks_per_node")
        if window is not None:
            raise ValueError("all_to_all: hierarchical has no steps that a window could hold; leave window out")
        node_count(len(sizes), ranks_per_node)
        schedule = _hierarchical(sizes, ranks_per_node)
    return _cut(schedule, channels, chunk_bytes, element_bytes)


def _pairwise(sizes: NDArray[np.int64], window: int | None) -> Schedule:
    count = len(sizes)
    src_offset = np.cumsum(sizes, axis=1) - sizes
    dst_offset = np.cumsum(sizes, axis=0) - sizes
    step = np.arange(count - 1, dtype=np.int64)[:, None]
    src = np.arange(count, dtype=np.int64)[None, :]
    dst = (src + step + 1) % count
    waiter, waited = _window_waits(sizes, window) if window is not None else ((), ())
    return assemble(
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


def staged_offsets(sizes: NDArray[np.int64], ranks_per_node: int) -> NDArray[np.int64]:
    """Where the data from rank i to rank j of another node lies in the STAGING buffer of whom passes it on, (R, R).

    That is the rank of i's node with the local number of j. By node of the receiver, then by sender, without gaps: what
    crosses in one message lies together, and so does what the rank has itself, which it copies there beforehand. Data
    that stays in its node takes no room.
    """
    count = len(sizes)
    nodes = count // ranks_per_node
    # Axes: node and local number of the sender, of the receiver.
    parts = sizes.reshape(nodes, ranks_per_node, nodes, ranks_per_node).copy()
    parts[np.arange(nodes), :, np.arange(nodes), :] = 0
    # In one buffer: node of the sender and local number of the receiver fixed.
    lines = parts.transpose(0, 3, 2, 1).reshape(nodes, ranks_per_node, -1)
    offset = (np.cumsum(lines, axis=2) - lines).reshape(nodes, ranks_per_node, nodes, ranks_per_node)
    return offset.transpose(0, 3, 2, 1).reshape(count, count)


def _hierarchical(sizes: NDArray[np.int64], ranks_per_node: int) -> Schedule:
    count = len(sizes)
    nodes = count // ranks_per_node
    src_offset = np.cumsum(sizes, axis=1) - sizes
    dst_offset = np.cumsum(sizes, axis=0) - sizes
    staged = staged_offsets(sizes, ranks_per_node)
    first = np.arange(nodes, dtype=np.int64) * ranks_per_node

    # Inside the nodes: to a receiver of the node itself, or to whom passes it on.
    shift = np.arange(1, ranks_per_node, dtype=np.int64)[:, None, None]
    behind = np.arange(nodes, dtype=np.int64)[None, :, None]
    sender = np.broadcast_to(np.arange(count, dtype=np.int64)[None, None, :], (len(shift), nodes, count)).reshape(-1)
    node = sender // ranks_per_node
    to_node = (node + np.broadcast_to(behind, (len(shift), nodes, count)).reshape(-1)) % nodes
    local = (sender + np.broadcast_to(shift, (len(shift), nodes, count)).reshape(-1)) % ranks_per_node
    receiver = to_node * ranks_per_node + local
    stays = to_node == node

    # Across: from each rank to those of its local number.
    rank = np.arange(count, dtype=np.int64)[None, :]
    far = (rank + np.arange(1, nodes, dtype=np.int64)[:, None] * ranks_per_node) % count
    totals = np.add.reduceat(sizes, first, axis=0)  # node of the senders, receiver
    across_bytes = totals[rank // ranks_per_node, far]
    opening = rank // ranks_per_node * ranks_per_node  # first sender of the node
    inside, across = len(sender), far.size
    # Every message across waits for what others of the node have brought for it.
    place = np.full((count, count), -1, dtype=np.int64)
    place[rank, far] = inside + np.arange(across).reshape(far.shape)
    relay = node * ranks_per_node + local
    waited = np.flatnonzero(~stays)
    staging = np.zeros(count, dtype=np.int64)
    np.add.at(staging, np.broadcast_to(rank, far.shape), across_bytes)
    return assemble(
        count,
        src=np.concatenate([sender, np.broadcast_to(rank, far.shape).reshape(-1)]),
        dst=np.concatenate([np.where(stays, receiver, relay), far.reshape(-1)]),
        bytes=np.concatenate([sizes[sender, receiver], across_bytes.reshape(-1)]),
        src_offset=np.concatenate([src_offset[sender, receiver], staged[opening, far].reshape(-1)]),
        dst_offset=np.concatenate(
            [
                np.where(stays, dst_offset[sender, receiver], staged[sender, receiver]),
                dst_offset[opening, far].reshape(-1),
            ]
        ),
        src_buffer=np.where(np.arange(inside + across) < inside, INPUT, STAGING),
        dst_buffer=np.concatenate([np.where(stays, OUTPUT, STAGING), np.full(across, OUTPUT)]),
        step=np.where(np.arange(inside + across) < inside, 0, 1),
        waiter=place[relay[waited], receiver[waited]],
        waited=waited,
        input_bytes=sizes.sum(axis=1),
        output_bytes=sizes.sum(axis=0),
        staging_bytes=staging,
    )


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
