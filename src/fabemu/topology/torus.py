"""Torus: a grid of switches whose rows, columns and pillars are rings; and its dimension-order routing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered

_AXES = "xyz"


def torus(*, dimensions: Sequence[int], hosts_per_switch: int) -> Fabric:
    """Hosts h0.. on switches t{x}-{y}[-{z}], x growing first; every switch is cabled to the next of each of its rings.

    A ring of two switches has one cable. Cable tiers "host", "x", "y", "z", switch tier "switch".
    """
    switch_count = math.prod(dimensions)
    host_count = switch_count * hosts_per_switch
    cables = host_cables([hosts_per_switch] * switch_count, range(host_count, host_count + switch_count))
    places = _places(dimensions)
    for axis, size in enumerate(dimensions):
        following = places.copy()
        following[axis] = (following[axis] + 1) % size
        peers = host_count + _numbers(following, dimensions)
        # The only cable of a ring of two is that of its first switch.
        begins = np.flatnonzero(places[axis] == 0) if size == 2 else np.arange(switch_count)
        cables.extend(Cable(host_count + switch, int(peers[switch]), _AXES[axis]) for switch in begins.tolist())
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=["t" + "-".join(map(str, place)) for place in places.T.tolist()],
        switch_tiers=["switch"] * switch_count,
        cables=cables,
    )


def dimension_order_next(dimensions: Sequence[int], target: int) -> NDArray[np.int64]:
    """(S,) the switch to which every switch sends what goes to switch `target`; itself at the target.

    A packet first corrects its x, then y, then z, each the shorter way round its ring. Where both ways are equally
    long, half a ring of an even number, it goes up from even places and down from odd ones: both ways are used.
    """
    places = _places(dimensions)
    following = places.copy()
    open_ = np.ones(places.shape[1], dtype=np.bool_)  # switches whose step is not found yet
    for axis, size in enumerate(dimensions):
        ahead = (places[axis, target] - places[axis]) % size
        goes = open_ & (ahead != 0)
        up = (2 * ahead < size) | ((2 * ahead == size) & (places[axis] % 2 == 0))
        following[axis, goes] = (places[axis, goes] + np.where(up[goes], 1, -1)) % size
        open_ &= ~goes
    return _numbers(following, dimensions)


def _places(dimensions: Sequence[int]) -> NDArray[np.int64]:
    """(axes, S) coordinates of every switch."""
    numbers = np.arange(math.prod(dimensions))
    # The first axis grows first, as the last does for NumPy.
    return np.stack(np.unravel_index(numbers, tuple(reversed(dimensions)))[::-1]).astype(np.int64)


def _numbers(places: NDArray[np.int64], dimensions: Sequence[int]) -> NDArray[np.int64]:
    """(n,) switches at (axes, n) coordinates."""
    strides = np.concatenate([[1], np.cumprod(dimensions)[:-1]])
    numbers: NDArray[np.int64] = (places * strides[:, None]).sum(axis=0)
    return numbers
