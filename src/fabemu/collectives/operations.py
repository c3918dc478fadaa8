"""Collectives in which ranks have the same data, or blocks of it: by the names and sizes of NCCL, in place.

`size_bytes` is what nccl-tests prints as the size: the data of one rank for all-reduce, broadcast and reduce; all
blocks together for all-gather and reduce-scatter. Buffer offsets are those of NCCL in place: block b of n lies at its
place among all blocks, in the INPUT buffer, for all-gather before and after, for reduce-scatter too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.collectives.doubling import doubling_all_gather, halving_doubling_all_reduce
from fabemu.collectives.extent import extents
from fabemu.collectives.order import double_tree, node_count, node_double_tree, rank_orders, rooted_double_tree
from fabemu.collectives.ring import chain, ring
from fabemu.collectives.schedule import (
    Schedule,
    assemble,
    chunked,
    concatenate,
    empty,
    on_groups,
    over_channels,
    reverse,
    then,
)
from fabemu.collectives.tree import tree

PIPELINE_CHUNK_BYTES = 512 * 1024
"""Chunk of pipelined algorithms unless given: the buffer of a channel of NCCL, 4 MiB (NCCL_BUFFSIZE), in 8 slots."""

SMALL_BYTES_PER_RANK = 64 * 1024
"""Data below this, per rank, is a matter of latency: `auto` takes the algorithm with few steps."""

ALL_REDUCE = ("ring", "tree", "halving_doubling", "hierarchical")
ALL_GATHER = ("ring", "doubling", "direct")
REDUCE_SCATTER = ("ring", "halving", "direct")
BROADCAST = REDUCE = ("ring", "tree")


def all_reduce(
    rank_count: int,
    size_bytes: int,
    *,
    algorithm: str = "auto",
    channels: int = 1,
    chunk_bytes: int | None = None,
    element_bytes: int = 1,
    ring_order: ArrayLike | None = None,
    ranks_per_node: int | None = None,
    local_algorithm: str = "direct",
) -> Schedule:
    """Every rank ends with the sum of the `size_bytes` of all.

    Parameters
    ----------
    algorithm
        "ring": reduce-scatter, then all-gather on a ring per channel. "tree": two complementing binary trees per
        channel, each with half of the data, up and down; over nodes with a chain inside each if `ranks_per_node` is
        given. "halving_doubling": recursive halving, then doubling. "hierarchical": reduce-scatter inside each node, a
        ring across the nodes for each local rank, all-gather inside each node; needs `ranks_per_node`. "auto": "tree"
        below 64 KiB per rank, else "hierarchical" if there are several nodes of several ranks, else "ring".
    channels
        Parts of the data, each with a ring or trees of its own (`order.rank_orders`).
    chunk_bytes
        Transfers are cut into chunks of this size, each of which goes on as soon as it has come; 0 leaves them whole.
        Trees have 512 KiB unless it is given, other algorithms are left whole.
    element_bytes
        Data is split at multiples of it only.
    ring_order
        (R,) or (channels, R) order of the ranks in rings and trees; `ranks_per_node` counts in it.
    local_algorithm
        Inside the nodes of "hierarchical": "direct" (everyone to everyone at once) or "ring".

    Raises
    ------
    ValueError
        A parameter is out of its range, or the ranks are not whole nodes.
    """
    _check(rank_count, size_bytes, channels, chunk_bytes, element_bytes)
    algorithm = chosen_algorithm("all_reduce", algorithm, rank_count, size_bytes, ranks_per_node)
    if algorithm == "hierarchical" and ranks_per_node is None:
        raise ValueError("all_reduce: hierarchical needs ranks_per_node")
    if ranks_per_node is not None:
        node_count(rank_count, ranks_per_node)
    if local_algorithm not in ("direct", "ring"):
        raise ValueError(f'all_reduce: unknown local_algorithm "{local_algorithm}"; one of direct, ring')
    offset, size = extents(size_bytes, channels, element_bytes)
    plain = algorithm in {"hierarchical", "halving_doubling"}
    orders = rank_orders(rank_count, channels, ring_order, None if plain else ranks_per_node)
    if rank_count == 1 or size_bytes == 0:
        return empty(rank_count, size_bytes)
    if algorithm == "ring":
        blocks = [extents(int(size[c]), rank_count, element_bytes, int(offset[c])) for c in range(channels)]
        schedule = ring(
            orders,
            np.stack([block[0] for block in blocks]),
            np.stack([block[1] for block in blocks]),
            scatter=True,
            gather=True,
            input_bytes=size_bytes,
        )
    elif algorithm == "tree":
        if ranks_per_node is None:
            parents = double_tree(rank_count)
        else:
            parents = node_double_tree(rank_count // ranks_per_node, ranks_per_node)
            if ring_order is None or np.ndim(ring_order) < 2:  # else the orders of the channels are taken as they are
                orders = _node_heads(rank_count, channels, ring_order, ranks_per_node)
        schedule = _halves(parents, orders, offset, size, element_bytes, up=True, input_bytes=size_bytes)
    elif algorithm == "halving_doubling":
        schedule = concatenate(
            [
                halving_doubling_all_reduce(
                    orders[c], int(offset[c]), int(size[c]), element_bytes, channel=c, size=size_bytes
                )
                for c in range(channels)
            ]
        )
    else:
        schedule = concatenate(
            [
                _hierarchical(
                    orders[c], int(offset[c]), int(size[c]), element_bytes, ranks_per_node or 1, local_algorithm, c
                )
                for c in range(channels)
            ]
        )
    return _pipelined(schedule, chunk_bytes, element_bytes, algorithm == "tree")


def all_gather(
    rank_count: int,
    size_bytes: int,
    *,
    algorithm: str = "auto",
    channels: int = 1,
    chunk_bytes: int | None = None,
    element_bytes: int = 1,
    ring_order: ArrayLike | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """Every rank ends with the blocks of all ranks, `size_bytes` in all.

    Parameters
    ----------
    algorithm
        "ring": blocks go round a ring per channel. "doubling": recursive doubling, the number of steps logarithmic.
        "direct": everyone sends its block to everyone at once. "auto": "doubling" below 64 KiB per rank, unless there
        is a ring_order, else "ring".
    channels, chunk_bytes, element_bytes, ring_order, ranks_per_node
        As for `all_reduce`; every block is split over the channels, for "doubling" every transfer. `ranks_per_node`
        makes no difference but to rings. "doubling" sends neighbouring blocks together and takes no order.

    Raises
    ------
    ValueError
        A parameter is out of its range, or the ranks are not whole nodes.
    """
    _check(rank_count, size_bytes, channels, chunk_bytes, element_bytes)
    if algorithm == "auto" and ring_order is not None:
        algorithm = "ring"  # "doubling" takes no order
    algorithm = chosen_algorithm("all_gather", algorithm, rank_count, size_bytes)
    return _blocks(
        rank_count, size_bytes, algorithm, channels, chunk_bytes, element_bytes, ring_order, ranks_per_node, gather=True
    )


def reduce_scatter(
    rank_count: int,
    size_bytes: int,
    *,
    algorithm: str = "auto",
    channels: int = 1,
    chunk_bytes: int | None = None,
    element_bytes: int = 1,
    ring_order: ArrayLike | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """Every rank ends with the sum over all ranks of its block of their `size_bytes`.

    What else lies in the buffer afterwards is not defined.

    Parameters
    ----------
    algorithm
        "ring": partial sums go round a ring per channel. "halving": recursive halving. "direct": everyone sends each
        block to whom it belongs, at once. "auto": "halving" below 64 KiB per rank, unless there
        is a ring_order, else "ring".
    channels, chunk_bytes, element_bytes, ring_order, ranks_per_node
        As for `all_gather`.

    Raises
    ------
    ValueError
        A parameter is out of its range, or the ranks are not whole nodes.
    """
    _check(rank_count, size_bytes, channels, chunk_bytes, element_bytes)
    if algorithm == "auto" and ring_order is not None:
        algorithm = "ring"  # "halving" takes no order
    algorithm = chosen_algorithm("reduce_scatter", algorithm, rank_count, size_bytes)
    return _blocks(
        rank_count,
        size_bytes,
        algorithm,
        channels,
        chunk_bytes,
        element_bytes,
        ring_order,
        ranks_per_node,
        gather=False,
    )


def broadcast(
    rank_count: int,
    size_bytes: int,
    *,
    root: int = 0,
    algorithm: str = "auto",
    channels: int = 1,
    chunk_bytes: int | None = None,
    element_bytes: int = 1,
    ring_order: ArrayLike | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """Every rank ends with the `size_bytes` of the root.

    Parameters
    ----------
    root
        The rank that has the data.
    algorithm
        "ring": along a ring per channel, from the root to the last. "tree": two complementing binary trees per channel
        below the root, each with half of the data. "auto": "tree" below 64 KiB per rank, else "ring".
    channels, element_bytes, ring_order, ranks_per_node
        As for `all_reduce`; every order is begun at the root.
    chunk_bytes
        512 KiB unless given; 0 leaves transfers whole.

    Raises
    ------
    ValueError
        A parameter is out of its range, or the ranks are not whole nodes.
    """
    _check(rank_count, size_bytes, channels, chunk_bytes, element_bytes, root)
    algorithm = chosen_algorithm("broadcast", algorithm, rank_count, size_bytes)
    schedule = _down(rank_count, size_bytes, root, algorithm, channels, element_bytes, ring_order, ranks_per_node)
    return _pipelined(schedule, chunk_bytes, element_bytes, True)


def reduce(
    rank_count: int,
    size_bytes: int,
    *,
    root: int = 0,
    algorithm: str = "auto",
    channels: int = 1,
    chunk_bytes: int | None = None,
    element_bytes: int = 1,
    ring_order: ArrayLike | None = None,
    ranks_per_node: int | None = None,
) -> Schedule:
    """The root ends with the sum of the `size_bytes` of all ranks: a broadcast backwards.

    What lies in the buffers of the other ranks afterwards is not defined. Parameters and errors as for `broadcast`.
    """
    _check(rank_count, size_bytes, channels, chunk_bytes, element_bytes, root)
    algorithm = chosen_algorithm("reduce", algorithm, rank_count, size_bytes)
    schedule = _down(rank_count, size_bytes, root, algorithm, channels, element_bytes, ring_order, ranks_per_node)
    return _pipelined(reverse(schedule), chunk_bytes, element_bytes, True)


def _blocks(
    rank_count: int,
    size_bytes: int,
    algorithm: str,
    channels: int,
    chunk_bytes: int | None,
    element_bytes: int,
    ring_order: ArrayLike | None,
    ranks_per_node: int | None,
    *,
    gather: bool,
) -> Schedule:
    """All-gather, or reduce-scatter."""
    orders = rank_orders(rank_count, channels, ring_order, ranks_per_node if algorithm == "ring" else None)
    if algorithm in {"doubling", "halving"} and (orders != np.arange(rank_count)).any():
        raise ValueError(f"{algorithm} sends neighbouring blocks together and takes no ring_order; leave it out")
    if ranks_per_node is not None:
        node_count(rank_count, ranks_per_node)
    if rank_count == 1 or size_bytes == 0:
        return empty(rank_count, size_bytes)
    start, size = extents(size_bytes, rank_count, element_bytes)
    parts = [extents(int(size[b]), channels, element_bytes, int(start[b])) for b in range(rank_count)]
    offset = np.stack([part[0] for part in parts], axis=1)  # (channels, blocks)
    bytes = np.stack([part[1] for part in parts], axis=1)
    if algorithm == "ring":
        channel = np.arange(channels)[:, None]
        schedule = ring(
            orders,
            offset[channel, orders],
            bytes[channel, orders],
            scatter=not gather,
            gather=gather,
            input_bytes=size_bytes,
        )
    elif algorithm == "direct":
        schedule = concatenate(
            [_direct_all_gather(orders[c], offset[c], bytes[c], c, size_bytes) for c in range(channels)]
        )
    else:
        # What is sent at a time is several blocks, so it is the transfers that the channels share.
        schedule = over_channels(doubling_all_gather(orders[0], start, size, size=size_bytes), channels, element_bytes)
    if not gather and algorithm != "ring":
        schedule = reverse(schedule)
    return _pipelined(schedule, chunk_bytes, element_bytes, False)


def _direct_all_gather(
    order: NDArray[np.int64], offset: NDArray[np.int64], bytes: NDArray[np.int64], channel: int, size_bytes: int
) -> Schedule:
    """Everyone sends its block to everyone, first to the next one of the order."""
    count = len(order)
    shift = np.arange(1, count)[:, None]
    place = np.arange(count)[None, :]
    return assemble(
        count,
        src=order[place],
        dst=order[(place + shift) % count],
        bytes=bytes[order[place]],
        src_offset=offset[order[place]],
        channel=channel,
        input_bytes=size_bytes,
    )


def _down(
    rank_count: int,
    size_bytes: int,
    root: int,
    algorithm: str,
    channels: int,
    element_bytes: int,
    ring_order: ArrayLike | None,
    ranks_per_node: int | None,
) -> Schedule:
    """A broadcast, not yet cut into chunks."""
    orders = rank_orders(rank_count, channels, ring_order, ranks_per_node)
    place = np.argmax(orders == root, axis=1)
    orders = np.take_along_axis(orders, (np.arange(rank_count) + place[:, None]) % rank_count, axis=1)
    if rank_count == 1 or size_bytes == 0:
        return empty(rank_count, size_bytes)
    offset, size = extents(size_bytes, channels, element_bytes)
    if algorithm == "ring":
        return chain(orders, offset, size, input_bytes=size_bytes)
    parents = rooted_double_tree(rank_count)
    return _halves(parents, orders, offset, size, element_bytes, up=False, input_bytes=size_bytes)


def _halves(
    parents: NDArray[np.int64],
    orders: NDArray[np.int64],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    element_bytes: int,
    *,
    up: bool,
    input_bytes: int,
) -> Schedule:
    """Two trees per channel, each with half of its data."""
    trees = []
    for channel, order in enumerate(orders):
        half_offset, half = extents(int(size[channel]), 2, element_bytes, int(offset[channel]))
        for which in range(2):
            trees.append(
                tree(
                    parents[which],
                    order,
                    int(half_offset[which]),
                    int(half[which]),
                    up=up,
                    channel=channel,
                    input_bytes=input_bytes,
                )
            )
    return concatenate(trees)


def _node_heads(rank_count: int, channels: int, ring_order: ArrayLike | None, ranks_per_node: int) -> NDArray[np.int64]:
    """Orders whose channel c begins every node at local rank c and runs through it in order."""
    orders = rank_orders(rank_count, channels, ring_order)
    local = (np.arange(ranks_per_node) + np.arange(channels)[:, None]) % ranks_per_node
    node = np.arange(rank_count // ranks_per_node) * ranks_per_node
    places = (node[None, :, None] + local[:, None, :]).reshape(channels, rank_count)
    return np.take_along_axis(orders, places, axis=1)


def _hierarchical(
    order: NDArray[np.int64],
    offset: int,
    size: int,
    element_bytes: int,
    ranks_per_node: int,
    local_algorithm: str,
    channel: int,
) -> Schedule:
    """One channel of a hierarchical all-reduce."""
    rank_count = len(order)
    nodes = order.reshape(-1, ranks_per_node)
    end = offset + size
    shard_offset, shard = extents(size, ranks_per_node, element_bytes, offset)
    local = np.arange(ranks_per_node)
    if local_algorithm == "ring":
        scatter, gather = (
            ring(local[None], shard_offset[None], shard[None], scatter=not last, gather=last, input_bytes=end)
            for last in (False, True)
        )
    else:
        gather = _direct_all_gather(local, shard_offset, shard, 0, end)
        scatter = reverse(gather)
    across = []
    for column in range(ranks_per_node):
        block_offset, block = extents(int(shard[column]), len(nodes), element_bytes, int(shard_offset[column]))
        one = ring(
            np.arange(len(nodes))[None], block_offset[None], block[None], scatter=True, gather=True, input_bytes=end
        )
        across.append(on_groups(one, nodes[:, column], rank_count))
    schedule = then(
        then(on_groups(scatter, nodes, rank_count), concatenate(across)), on_groups(gather, nodes, rank_count)
    )
    return replace(schedule, channel=np.full(schedule.transfer_count, channel, dtype=np.int32))


def _check(
    rank_count: int, size_bytes: int, channels: int, chunk_bytes: int | None, element_bytes: int, root: int = 0
) -> None:
    """Refuse what no collective can be made of."""
    for name, value, least in (
        ("rank_count", rank_count, 1),
        ("size_bytes", size_bytes, 0),
        ("channels", channels, 1),
        ("chunk_bytes", chunk_bytes or 0, 0),
        ("element_bytes", element_bytes, 1),
    ):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
    if not 0 <= root < rank_count:
        raise ValueError(f"root is {root}; with {rank_count} ranks it must be 0..{rank_count - 1}")


def chosen_algorithm(
    operation: str, algorithm: str, rank_count: int, size_bytes: int, ranks_per_node: int | None = None
) -> str:
    """The algorithm that an operation of this module follows: as asked, or by the bytes per rank if that is "auto".

    Raises
    ------
    ValueError
        The operation has no such algorithm.
    """
    known, small = {
        "all_reduce": (ALL_REDUCE, "tree"),
        "all_gather": (ALL_GATHER, "doubling"),
        "reduce_scatter": (REDUCE_SCATTER, "halving"),
        "broadcast": (BROADCAST, "tree"),
        "reduce": (REDUCE, "tree"),
    }[operation]
    if algorithm == "auto":
        if size_bytes < SMALL_BYTES_PER_RANK * rank_count:
            return small
        several = ranks_per_node is not None and 1 < ranks_per_node < rank_count
        return "hierarchical" if several and "hierarchical" in known else "ring"
    if algorithm not in known:
        raise ValueError(f'{operation}: unknown algorithm "{algorithm}"; one of auto, {", ".join(known)}')
    return algorithm


def _pipelined(schedule: Schedule, chunk_bytes: int | None, element_bytes: int, always: bool) -> Schedule:
    """Cut into chunks, if asked to or if the algorithm is made of them."""
    chunk = (PIPELINE_CHUNK_BYTES if always else 0) if chunk_bytes is None else chunk_bytes
    return chunked(schedule, chunk, element_bytes) if chunk else schedule
