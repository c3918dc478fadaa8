"""Rings: every rank sends to the next one and receives from the one before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives.schedule import Schedule, assemble


def ring(
    orders: NDArray[np.int64],
    block_offset: NDArray[np.int64],
    block_bytes: NDArray[np.int64],
    *,
    scatter: bool,
    gather: bool,
    input_bytes: int,
) -> Schedule:
    """Reduce-scatter and all-gather on rings, in place, one after the other if both are asked for.

    In every step each rank sends one block to the next; n - 1 steps of each phase. After the first phase the rank at
    place p of the ring has the sum of block p of its channel, after the second everyone has all of them. A transfer
    waits for the one that brought its block to its rank.

    Parameters
    ----------
    orders
        (C, n) ranks in the order of the ring of each channel.
    block_offset, block_bytes
        (C, n) the block that belongs to each place of the ring.
    scatter, gather
        Whether there is a first and a second phase.
    """
    channels, count = orders.shape
    first, last = (0 if scatter else count - 1), (2 * count - 2 if gather else count - 1)
    step = np.arange(first, last, dtype=np.int64)[:, None, None]
    channel = np.arange(channels, dtype=np.int64)[None, :, None]
    place = np.arange(count, dtype=np.int64)[None, None, :]
    block = np.broadcast_to((place - 1 - step) % count, (max(last - first, 0), channels, count))
    size = channels * count
    index = np.arange(block.size, dtype=np.int64).reshape(block.shape)
    before = index[1:] - size - 1 + np.where(place == 0, count, 0)
    return assemble(
        len(orders[0]),
        src=orders[channel, place],
        dst=orders[channel, (place + 1) % count],
        bytes=block_bytes[channel, block],
        src_offset=block_offset[channel, block],
        reduce=step < count - 1,
        step=step - first,
        channel=channel,
        waiter=index[1:].reshape(-1),
        waited=before.reshape(-1),
        input_bytes=input_bytes,
    )


def chain(
    orders: NDArray[np.int64], offset: NDArray[np.int64], bytes: NDArray[np.int64], *, input_bytes: int
) -> Schedule:
    """Broadcast along each order: from its first rank to the second, and on to the last, in place.

    Parameters
    ----------
    orders
        (C, n) ranks of each channel, the root first.
    offset, bytes
        (C,) the data of each channel.
    """
    channels, count = orders.shape
    index = np.arange(max(count - 1, 0) * channels, dtype=np.int64)
    return assemble(
        count,
        src=orders[:, :-1].T,
        dst=orders[:, 1:].T,
        bytes=bytes[None, :],
        src_offset=offset[None, :],
        step=np.arange(max(count - 1, 0))[:, None],
        channel=np.arange(channels)[None, :],
        waiter=index[channels:],
        waited=index[channels:] - channels,
        input_bytes=input_bytes,
    )
