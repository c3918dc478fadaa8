"""Contents: what lies where before a collective, and what it promises to leave behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.collectives.exchange import staged_offsets
from fabemu.collectives.extent import extents
from fabemu.collectives.schedule import INPUT, OUTPUT, STAGING
from fabemu.deferred import dataclass

ALL_RANKS = -1
"""Origin of a range that is the sum over all ranks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Contents:
    """Ranges of buffers with the data they hold, as columns, (K,) int64 each.

    Byte i of a range holds the contribution that rank `origin` has for position `position + i`; with `ALL_RANKS`, the
    sum of the contributions that all ranks have for it, each exactly once. Positions are a numbering of the data that
    all ranks share, such as the offset in the whole vector.
    """

    rank: NDArray[np.int64]
    buffer: NDArray[np.int64]
    offset: NDArray[np.int64]
    bytes: NDArray[np.int64]
    origin: NDArray[np.int64]
    position: NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Promise:
    """What a collective finds and what it has to leave; nothing is said of other ranges."""

    rank_count: int
    start: Contents  # origin is the rank itself
    end: Contents


def contents(
    rank: ArrayLike, buffer: ArrayLike, offset: ArrayLike, bytes: ArrayLike, origin: ArrayLike, position: ArrayLike
) -> Contents:
    """Contents of columns that broadcast against each other, in the order of the fields; empty ranges left out."""
    columns = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.int64) for x in (rank, buffer, offset, bytes, origin, position))
    )
    keep = np.atleast_1d(columns[3]).reshape(-1) > 0
    names = ("rank", "buffer", "offset", "bytes", "origin", "position")
    return Contents(**{name: column.reshape(-1)[keep] for name, column in zip(names, columns, strict=True)})


def all_reduce_promise(rank_count: int, size_bytes: int) -> Promise:
    """Everyone has the sum."""
    rank = np.arange(rank_count)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, 0, size_bytes, rank, 0),
        end=contents(rank, INPUT, 0, size_bytes, ALL_RANKS, 0),
    )


def all_gather_promise(rank_count: int, size_bytes: int, element_bytes: int = 1) -> Promise:
    """Everyone has all blocks."""
    rank = np.arange(rank_count)
    offset, size = extents(size_bytes, rank_count, element_bytes)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, offset, size, rank, offset),
        end=contents(rank[:, None], INPUT, offset, size, rank, offset),
    )


def reduce_scatter_promise(rank_count: int, size_bytes: int, element_bytes: int = 1) -> Promise:
    """Everyone has the sum of its block."""
    rank = np.arange(rank_count)
    offset, size = extents(size_bytes, rank_count, element_bytes)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, 0, size_bytes, rank, 0),
        end=contents(rank, INPUT, offset, size, ALL_RANKS, offset),
    )


def broadcast_promise(rank_count: int, size_bytes: int, root: int = 0) -> Promise:
    """Everyone has what the root had."""
    return Promise(
        rank_count=rank_count,
        start=contents(root, INPUT, 0, size_bytes, root, 0),
        end=contents(np.arange(rank_count), INPUT, 0, size_bytes, root, 0),
    )


def reduce_promise(rank_count: int, size_bytes: int, root: int = 0) -> Promise:
    """The root has the sum."""
    rank = np.arange(rank_count)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, 0, size_bytes, rank, 0),
        end=contents(root, INPUT, 0, size_bytes, ALL_RANKS, 0),
    )


def gather_promise(rank_count: int, size_bytes: int, root: int = 0, element_bytes: int = 1) -> Promise:
    """The root has the blocks of all others."""
    rank = np.arange(rank_count)
    offset, size = extents(size_bytes, rank_count, element_bytes)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, 0, size, rank, offset),
        end=contents(root, OUTPUT, offset, np.where(rank == root, 0, size), rank, offset),
    )


def scatter_promise(rank_count: int, size_bytes: int, root: int = 0, element_bytes: int = 1) -> Promise:
    """Everyone but the root has its block of what the root had."""
    rank = np.arange(rank_count)
    offset, size = extents(size_bytes, rank_count, element_bytes)
    return Promise(
        rank_count=rank_count,
        start=contents(root, INPUT, 0, size_bytes, root, 0),
        end=contents(rank, OUTPUT, 0, np.where(rank == root, 0, size), root, offset),
    )


def all_to_all_promise(matrix: ArrayLike, ranks_per_node: int | None = None) -> Promise:
    """Everyone has what all others had for it; `matrix` as for `all_to_all_uneven`.

    With `ranks_per_node`, for "hierarchical": what a rank has for the ranks of its own local number on other nodes lies
    in its STAGING buffer too.
    """
    sizes = np.asarray(matrix, dtype=np.int64)
    rank = np.arange(len(sizes))
    sent = np.cumsum(sizes, axis=1) - sizes
    received = np.cumsum(sizes, axis=0) - sizes
    start = contents(rank, INPUT, 0, sizes.sum(axis=1), rank, 0)
    if ranks_per_node is not None:
        passed = (rank[:, None] % ranks_per_node == rank % ranks_per_node) & (rank[:, None] != rank)
        staged = staged_offsets(sizes, ranks_per_node)
        copied = contents(rank[:, None], STAGING, staged, np.where(passed, sizes, 0), rank[:, None], sent)
        start = Contents(**{name: np.append(column, vars(copied)[name]) for name, column in vars(start).items()})
    return Promise(
        rank_count=len(sizes),
        start=start,
        end=contents(
            rank[None, :], OUTPUT, received, np.where(np.eye(len(sizes), dtype=bool), 0, sizes), rank[:, None], sent
        ),
    )


def send_recv_promise(rank_count: int, src: Sequence[int], dst: Sequence[int], bytes: Sequence[int]) -> Promise:
    """Every message has come, behind those before it; messages of a rank to itself are left out."""
    sent, received = [0] * rank_count, [0] * rank_count
    rows = []
    for source, target, size in zip(src, dst, bytes, strict=True):
        if source != target:
            rows.append((target, OUTPUT, received[target], size, source, sent[source]))
        sent[source] += size
        received[target] += size
    rank = np.arange(rank_count)
    return Promise(
        rank_count=rank_count,
        start=contents(rank, INPUT, 0, sent, rank, 0),
        end=contents(*np.array(rows, dtype=np.int64).reshape(-1, 6).T),
    )
