"""Messages and operations of collectives, in closed form: no schedule is built.

Sizes are counted in elements, as multisets: how many transfers there are of each size. Cutting evenly gives two sizes
for one, so a few entries stand for billions of transfers. The formulas are those of modules of `fabemu.collectives`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fabemu.collectives.operations import PIPELINE_CHUNK_BYTES, chosen_algorithm
from fabemu.scenario.workload import Collective

Sizes = Counter[int]
"""Number of transfers by their elements."""


class Load(NamedTuple):
    """What a workload makes at least."""

    messages: int
    operations: int  # messages, recvs and computations
    pairs: int  # queue pairs


NOTHING = Load(0, 0, 0)


def collective_load(table: Collective, ranks: int, node_ranks: Sequence[int]) -> Load:
    """Count what a `collective` workload makes, at least: exactly but for hierarchical algorithms and drawn experts.

    Parameters
    ----------
    table
        The workload.
    ranks
        Their number, exactly.
    node_ranks
        Ranks that each node may have, all nodes the same: what cannot be excluded, 1 for nodes that differ.
    """
    loads = [_load(table, ranks, each) for each in node_ranks] or [_load(table, ranks, 1)]
    return Load(*(min(values) for values in zip(*loads, strict=True)))


def _load(table: Collective, ranks: int, node_ranks: int) -> Load:
    found = _exchange(table, ranks, node_ranks)
    if found is None:
        sizes, pairs = _reduction(table, ranks, node_ranks)
    else:
        sizes, pairs = found
    messages = sum(_cut(sizes, table.qps).values())
    added = 0
    if table.reduce_rate is not None and table.operation in ("reduce-scatter", "reduce", "all-reduce"):
        added = messages // 2 if table.operation == "all-reduce" else messages
    # Every rank joins what it did, and computes; what has nothing to send has its own beginning.
    each = 2 * messages + added + (ranks if messages else 2 * ranks)
    return Load(table.iterations * messages, table.iterations * each, min(pairs, messages))


def _reduction(table: Collective, ranks: int, node_ranks: int) -> tuple[Sizes, int]:
    """Transfers of an operation of `fabemu.collectives.operations`, in chunks, and pairs of ranks at least."""
    size_bytes, channels = table.size or 0, table.channels
    elements = -(-size_bytes // table.element)
    total = Counter({elements: 1})
    pairs = ranks - 1  # what everyone sees to must come to everyone
    several = node_ranks if 1 < node_ranks < ranks else None
    algorithm = chosen_algorithm(
        table.operation.replace("-", "_"), table.algorithm.replace("-", "_"), ranks, size_bytes, several
    )
    piped = table.operation in ("broadcast", "reduce") or (table.operation == "all-reduce" and algorithm == "tree")
    if table.operation in ("broadcast", "reduce"):
        parts = _split(total, channels) if algorithm == "ring" else _split(_split(total, channels), 2)
        sizes = _times(parts, ranks - 1)
    elif table.operation == "all-reduce":
        parts = _split(total, channels)
        if algorithm == "ring":
            sizes = _times(_split(parts, ranks), 2 * (ranks - 1))
        elif algorithm == "tree":
            sizes = _times(_split(parts, 2), 2 * (ranks - 1))
        elif algorithm == "halving_doubling":
            sizes = _halving_doubling(parts, ranks)
        else:
            nodes = ranks // node_ranks
            shards = _split(parts, node_ranks)
            sizes = _times(shards, 2 * nodes * (node_ranks - 1)) + _times(_split(shards, nodes), 2 * (nodes - 1))
    elif algorithm in ("doubling", "halving"):
        sizes = _cut(_doubling(elements, ranks), channels)
    else:
        blocks = _split(total, ranks)
        sizes = _times(_split(blocks, channels), ranks - 1)
        if algorithm == "direct":
            pairs = (ranks - 1) * sum(blocks.values())
    chunk_bytes = (PIPELINE_CHUNK_BYTES if piped else 0) if table.chunk is None else table.chunk
    return _chunked(sizes, chunk_bytes, table.element), pairs


def _exchange(table: Collective, ranks: int, node_ranks: int) -> tuple[Sizes, int] | None:
    """Transfers of an operation of `fabemu.collectives.exchange`, in chunks, and pairs; None if it is none of them."""
    elements = -(-(table.size or 0) // table.element)
    blocks = _split(Counter({elements: 1}), ranks)
    chunk_bytes = table.chunk or 0
    nodes = ranks // node_ranks
    by_node = table.algorithm == "hierarchical" and node_ranks > 1
    if table.operation == "send-recv":
        sizes = _times(Counter({elements: 1}), ranks if ranks > 1 else 0)
    elif table.operation in ("gather", "scatter"):
        own = (table.root + 1) * elements // ranks - table.root * elements // ranks
        sizes = blocks - Counter({own: 1})
    elif table.matrix is not None or table.is_moe:
        sizes = _times(_tokens(table, ranks) if table.is_moe else _entries(table), 1)
        if by_node:
            # Each entry has a message of its own: inside a node, or the one across to which the node adds others.
            return Counter({1: sum(sizes.values())}), 0
    elif table.operation == "all-to-all":
        sizes = _times(blocks, nodes * (node_ranks - 1) if by_node else ranks - 1)
    else:
        return None
    pairs = 0 if by_node else sum(sizes.values())
    sizes = _chunked(_cut(sizes, table.channels), chunk_bytes, table.element)
    if by_node:
        # Across, the blocks of a node for a rank go together; the last element of each may be a short one.
        unit = max(chunk_bytes // table.element, 1) if chunk_bytes else max(elements, 1) * node_ranks
        sizes[1] += sum((nodes - 1) * -(-(node_ranks * (size - 1) + 1) // unit) * n for size, n in blocks.items())
    return sizes, pairs


def _entries(table: Collective) -> Sizes:
    """Transfers of a matrix."""
    lines = enumerate(table.matrix or ())
    return Counter(
        -(-size // table.element) for row, line in lines for column, size in enumerate(line) if column != row
    )


def _tokens(table: Collective, ranks: int) -> Sizes:
    """Transfers of tokens to experts, balanced (`fabemu.collectives.experts`); none if experts are drawn."""
    sizes: Sizes = Counter()
    if table.routing != "balanced":
        return sizes
    for tokens, senders in _split(Counter({table.tokens or 0: 1}), ranks).items():
        share, rest = divmod(tokens * table.top_k, ranks)
        for copies, receivers in ((share + 1, rest), (share, ranks - 1 - rest)):
            sizes[-(-copies * table.width * table.token_element // table.element)] += senders * receivers
    return sizes


def _halving_doubling(parts: Sizes, ranks: int) -> Sizes:
    """As `fabemu.collectives.doubling.halving_doubling_all_reduce`."""
    levels = ranks.bit_length() - 1
    sizes = _times(parts, 2 * (ranks - (1 << levels)))
    for level in range(levels):
        sizes += _times(_split(parts, 1 << (levels - level)), 2 << level)
    return sizes


def _doubling(elements: int, ranks: int) -> Sizes:
    """As `fabemu.collectives.doubling.doubling_all_gather`."""
    share, rest = divmod(elements, ranks)

    def point(block: np.ndarray) -> np.ndarray:
        return block * share + block * rest // ranks

    levels = ranks.bit_length() - 1
    extra = ranks - (1 << levels)
    member = np.arange((1 << levels) + 1, dtype=np.int64)
    start = point(member + np.minimum(member, extra))
    sizes: Sizes = Counter()
    for level in range(levels):
        sizes += _times(_counted(np.diff(start[:: 1 << level])), 1 << level)
    outside = 2 * np.arange(extra, dtype=np.int64)
    begin, end = point(outside), point(outside + 1)
    for more in (end - begin, begin, elements - end):  # given, and what comes back before and behind it
        sizes += _counted(more)
    return sizes


def _counted(values: np.ndarray) -> Sizes:
    size, count = np.unique(values, return_counts=True)
    return Counter(dict(zip(size.tolist(), count.tolist(), strict=True)))


def _times(sizes: Sizes, factor: int) -> Sizes:
    return Counter({size: count * factor for size, count in sizes.items() if size and count * factor > 0})


def _split(sizes: Sizes, parts: int) -> Sizes:
    """Evenly, as `fabemu.collectives.extent.extents`."""
    result: Sizes = Counter()
    for size, count in sizes.items():
        least, longer = divmod(size, parts)
        result[least] += count * (parts - longer)
        result[least + 1] += count * longer
    return Counter({size: count for size, count in result.items() if size and count})


def _cut(sizes: Sizes, pieces: int) -> Sizes:
    """Into up to `pieces` of the same size, the last one what is left: `fabemu.collectives.schedule.split`."""
    result: Sizes = Counter()
    for size, count in sizes.items():
        if size:
            _cut_at(result, size, count, -(-size // pieces))
    return result


def _cut_at(result: Sizes, size: int, count: int, piece: int) -> None:
    full = -(-size // piece) - 1
    if full:
        result[piece] += count * full
    result[size - full * piece] += count


def _chunked(sizes: Sizes, chunk_bytes: int, element_bytes: int) -> Sizes:
    """As `fabemu.collectives.schedule.chunked`; 0 leaves them whole."""
    result: Sizes = Counter()
    for size, count in sizes.items():
        if size:
            _cut_at(result, size, count, max(chunk_bytes // element_bytes, 1) if chunk_bytes else size)
    return result
