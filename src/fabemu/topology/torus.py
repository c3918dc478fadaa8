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


def dimension_order_steps(dimensions: Sequence[int]) -> list[NDArray[np.int64]]:
    """Per axis (size, S): the neighbour along it to which switch s sends what goes to coordinate c; s if it is there.

    A packet corrects its x, then y, then z: it takes the step of the first axis that has one. Each is the shorter way
    round its ring. Where both ways are equally long, half a ring of an even number, it goes up from even places and
    down from odd ones, so that both ways are used.
    """
    places = _places(dimensions)
    steps = []
    for axis, size in enumerate(dimensions):
        ahead = (np.arange(size)[:, None] - places[axis]) % size
        up = (2 * ahead < size) | ((2 * ahead == size) & (places[axis] % 2 == 0))
        moved = (places[axis] + np.where(ahead == 0, 0, np.where(up, 1, -1))) % size
        steps.append(np.arange(places.shape[1]) + (moved - places[axis]) * math.prod(dimensions[:axis]))
    return steps


def coordinates(dimensions: Sequence[int], switch: int) -> tuple[int, ...]:
    """Place of a switch along every axis."""
    place = []
    for size in dimensions:
        switch, along = divmod(switch, size)
        place.append(along)
    return tuple(place)


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
