"""Trees: up to the root, each rank adding what its children send, and down again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives.order import depths
from fabemu.collectives.schedule import Schedule, assemble


def tree(
    parent: NDArray[np.int64],
    ranks: NDArray[np.int64],
    offset: int,
    bytes: int,
    *,
    up: bool,
    channel: int = 0,
    input_bytes: int,
) -> Schedule:
    """Broadcast down a tree, in place, after a reduction up the same tree if `up` is set.

    A member sends up when all its children have been added to what it has; the root sends down when all its children
    have, everybody else when the data has come from above.

    Parameters
    ----------
    parent
        (n,) parent of each member, -1 for the root.
    ranks
        (n,) rank of each member.
    offset, bytes
        The data, the same range at every rank.
    """
    depth = depths(parent)
    height = int(depth.max()) if len(depth) else 0
    down = np.argsort(depth, kind="stable")[1:]  # the root is alone at depth 0
    count = len(down)
    if not up:
        place = np.full(len(parent), -1, dtype=np.int64)
        place[down] = np.arange(count)
        above = place[parent[down]]
        waiting = above >= 0
        return assemble(
            len(ranks),
            src=ranks[parent[down]],
            dst=ranks[down],
            bytes=bytes,
            src_offset=offset,
            step=depth[down] - 1,
            channel=channel,
            waiter=np.flatnonzero(waiting),
            waited=above[waiting],
            input_bytes=input_bytes,
        )
    rising = down[::-1]
    up_place, down_place = (np.full(len(parent), -1, dtype=np.int64) for _ in range(2))
    up_place[rising] = np.arange(count)
    down_place[down] = count + np.arange(count)
    top = parent[down] == down_root(parent)
    children = down[top]  # of the root
    inner = down[~top]
    return assemble(
        len(ranks),
        src=np.concatenate([ranks[rising], ranks[parent[down]]]),
        dst=np.concatenate([ranks[parent[rising]], ranks[down]]),
        bytes=bytes,
        src_offset=offset,
        reduce=np.arange(2 * count) < count,
        step=np.concatenate([height - depth[rising], height + depth[down] - 1]),
        channel=channel,
        waiter=np.concatenate(
            [up_place[parent[inner]], np.repeat(down_place[children], len(children)), down_place[inner]]
        ),
        waited=np.concatenate([up_place[inner], np.tile(up_place[children], len(children)), down_place[parent[inner]]]),
        input_bytes=input_bytes,
    )


def down_root(parent: NDArray[np.int64]) -> int:
    """The root of a tree of parents."""
    return int(np.argmin(parent))
