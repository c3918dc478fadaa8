"""Recursive doubling: pairs of ranks exchange what they have, at twice the distance in every step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives.extent import extents
from fabemu.collectives.schedule import Schedule, assemble, reverse, then


def _core(ranks: NDArray[np.int64], points: NDArray[np.int64], rank_count: int, channel: int, size: int) -> Schedule:
    """All-gather among a power of two of ranks; member v begins with the bytes from points[v] to points[v + 1]."""
    count = len(ranks)
    levels = count.bit_length() - 1
    level = np.arange(levels, dtype=np.int64)[:, None]
    member = np.arange(count, dtype=np.int64)[None, :]
    group = (member >> level) << level
    # Member v waits at level k for what came at all levels j < k.
    later, earlier = np.tril_indices(levels, -1)
    waiter = later[:, None] * count + member
    waited = earlier[:, None] * count + (member ^ (1 << earlier[:, None]))
    return assemble(
        rank_count,
        src=ranks[member],
        dst=ranks[member ^ (1 << level)],
        bytes=points[group + (1 << level)] - points[group],
        src_offset=points[group],
        step=level,
        channel=channel,
        waiter=waiter.reshape(-1),
        waited=waited.reshape(-1),
        input_bytes=size,
    )


def _folded(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Members of the power of two, and those beyond it with their partners.

    With r members more than the power of two, members 0, 2, .., 2r - 2 are left out and stand in for by the next one.
    """
    extra = count - (1 << (count.bit_length() - 1))
    outside = 2 * np.arange(extra, dtype=np.int64)
    inside = np.setdiff1d(np.arange(count, dtype=np.int64), outside)
    return inside, outside, outside + 1


def doubling_all_gather(
    order: NDArray[np.int64], offset: NDArray[np.int64], bytes: NDArray[np.int64], *, channel: int = 0, size: int
) -> Schedule:
    """All-gather by recursive doubling, in place, of any number of ranks.

    Ranks beyond the largest power of two give their block to a partner first and get everything else from it at last.

    Parameters
    ----------
    order
        (n,) rank of each place; `offset` and `bytes` are the blocks of the places, one behind the other.
    size
        Bytes of the buffer of every rank.
    """
    count = len(order)
    inside, outside, partner = _folded(count)
    points = np.append(offset, offset[-1] + bytes[-1])
    # A block of a member inside begins where that of the one it stands in for begins.
    core = _core(order[inside], np.append(_starts(points, inside, partner), points[-1]), count, channel, size)
    if not len(outside):
        return core
    give = assemble(
        count,
        src=order[outside],
        dst=order[partner],
        bytes=bytes[outside],
        src_offset=offset[outside],
        channel=channel,
        input_bytes=size,
    )
    ends = offset[outside] + bytes[outside]
    back = assemble(
        count,
        src=order[partner],
        dst=order[outside],
        bytes=np.stack([offset[outside] - points[0], points[-1] - ends]),
        src_offset=np.stack([np.full(len(outside), points[0]), ends]),
        channel=channel,
        input_bytes=size,
    )
    return then(then(give, core), back)


def _starts(points: NDArray[np.int64], inside: NDArray[np.int64], partner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the bytes of each member inside begin."""
    return points[np.where(np.isin(inside, partner), inside - 1, inside)]


def halving_doubling_all_reduce(
    order: NDArray[np.int64], offset: int, bytes: int, element_bytes: int, *, channel: int = 0, size: int
) -> Schedule:
    """All-reduce by recursive halving and doubling, in place, of any number of ranks.

    Rabenseifner's algorithm (Thakur, Rabenseifner, Gropp 2005): ranks beyond the largest power of two give
    all their data to a partner first and get the result from it at last.
    """
    count = len(order)
    inside, outside, partner = _folded(count)
    starts, sizes = extents(bytes, len(inside), element_bytes, offset)
    gather = _core(order[inside], np.append(starts, starts[-1] + sizes[-1]), count, channel, size)
    core = then(reverse(gather), gather)
    if not len(outside):
        return core
    whole = {"bytes": bytes, "src_offset": offset, "channel": channel, "input_bytes": size}
    give = assemble(count, src=order[outside], dst=order[partner], reduce=True, **whole)
    back = assemble(count, src=order[partner], dst=order[outside], **whole)
    return then(then(give, core), back)
