"""A fabric folded until it can be drawn: what is alike becomes one node, and its cables one link.

First the hosts of one switch, then switches of the highest tier with the same neighbours, then the switches of one pod
and tier, and at last neighbours of one tier, in blocks, until few enough links are left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.figures.devices import Devices

HOSTS_SHOWN = 128
"""Most hosts that are drawn one by one."""

LINKS_SHOWN = 400
"""Most links that are drawn, host links included."""


@dataclass(frozen=True, eq=False)
class Folded:
    """What is drawn.

    Attributes
    ----------
    devices
        What it was made of.
    group
        (nodes,) int64, the drawn node of every device.
    members
        (drawn,) int64, how many devices each drawn node stands for.
    names
        Of the drawn nodes: "leaf3", or "h0…15" for several.
    ranks
        (drawn,) int64, as in `Devices`.
    tiers
        One per drawn node.
    links
        (links, 2) int64 drawn nodes, each pair once.
    cables
        (links,) int64, how many cables each stands for.
    notes
        What was folded, in sentences.
    """

    devices: Devices
    group: NDArray[np.int64]
    members: NDArray[np.int64]
    names: list[str]
    ranks: NDArray[np.int64]
    tiers: list[str]
    links: NDArray[np.int64]
    cables: NDArray[np.int64]
    notes: list[str]


def folded(devices: Devices, *, hosts: int = HOSTS_SHOWN, links: int = LINKS_SHOWN) -> Folded:
    """Fold a fabric.

    Parameters
    ----------
    devices
        The whole fabric.
    hosts, links
        The most that are to be left; where nothing is left to fold, more links may be.
    """
    group = np.arange(len(devices.names), dtype=np.int64)
    notes = [devices.note] if devices.note else []
    if devices.host_count > hosts or len(_links(devices, group)[0]) > links:
        group = _hosts_by_switch(devices, group)
    if len(_links(devices, group)[0]) > links:
        group = _twins_on_top(devices, group)
    if len(_links(devices, group)[0]) > links:
        group = _pods(devices, group)
    blocks = 2
    base = group
    while len(_links(devices, group)[0]) > links and blocks <= 2 * len(group):
        group = _blocks(devices, base, blocks)
        blocks *= 2
    notes += _told(devices, group)
    return _made(devices, group, notes)


def _links(devices: Devices, group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of drawn nodes that any cable joins, and the number of cables of each."""
    pairs = np.sort(group[devices.ends], axis=1) if len(devices.ends) else np.zeros((0, 2), dtype=np.int64)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    found, count = np.unique(pairs, axis=0, return_counts=True)
    return found, count


def _neighbours(devices: Devices, group: NDArray[np.int64], above: bool | None = None) -> list[frozenset[int]]:
    """Drawn neighbours of every device: all, or only those of a higher rank."""
    found: list[set[int]] = [set() for _ in devices.names]
    ranks = devices.ranks
    for a, b in devices.ends.tolist():
        if above is None or ranks[b] > ranks[a]:
            found[a].add(int(group[b]))
        if above is None or ranks[a] > ranks[b]:
            found[b].add(int(group[a]))
    return [frozenset(item) for item in found]


def _hosts_by_switch(devices: Devices, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hosts with the same switches become one; so do the switches inside their servers."""
    beside = _neighbours(devices, group, above=True)
    result = group.copy()
    first: dict[frozenset[int], int] = {}
    for host in range(devices.host_count):
        result[host] = first.setdefault(beside[host], host)
    below = _neighbours(devices, result)
    inside: dict[frozenset[int], int] = {}
    for node in np.flatnonzero(devices.ranks < 0).tolist():
        result[node] = inside.setdefault(below[node], node)
    return result


def _twins_on_top(devices: Devices, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Switches of the highest rank that are cabled to the same others become one."""
    top = devices.ranks.max(initial=0)
    if top < 2:
        return group
    beside = _neighbours(devices, group)
    result = group.copy()
    first: dict[frozenset[int], int] = {}
    for node in np.flatnonzero(devices.ranks == top).tolist():
        result[node] = first.setdefault(beside[node], node)
    return result


def _pods(devices: Devices, group: NDArray[np.int64]) -> NDArray[np.int64]:
    """What hangs together without the highest rank is a pod: in it, the switches of each rank become one."""
    ranks = devices.ranks
    top = ranks.max(initial=0)
    if top < 3:
        return group
    pod = _components(len(ranks), devices.ends[(ranks[devices.ends] < top).all(axis=1)])
    result = group.copy()
    first: dict[tuple[int, int], int] = {}
    for node in np.flatnonzero(ranks < top).tolist():
        result[node] = first.setdefault((int(pod[node]), int(ranks[node])), node)
    return result


def _components(count: int, ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """(nodes,) the smallest node of the connected component of each."""
    label = np.arange(count, dtype=np.int64)
    while True:
        lowest = label.copy()
        np.minimum.at(lowest, ends[:, 0], label[ends[:, 1]])
        np.minimum.at(lowest, ends[:, 1], label[ends[:, 0]])
        lowest = lowest[lowest]
        if np.array_equal(lowest, label):
            return label
        label = lowest


def _blocks(devices: Devices, group: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Neighbours of one rank become one, `size` by `size`; at least two of a rank stay."""
    result = group.copy()
    for rank in np.unique(devices.ranks).tolist():
        drawn = np.unique(group[devices.ranks == rank])
        width = min(size, max(1, -(-len(drawn) // 2)))
        becomes = drawn[np.arange(len(drawn)) // width * width]
        mine = devices.ranks == rank
        result[mine] = becomes[np.searchsorted(drawn, group[mine])]
    return result


def _told(devices: Devices, group: NDArray[np.int64]) -> list[str]:
    """What was folded, by tier."""
    parts = []
    for tier in dict.fromkeys(devices.tiers):
        mine = np.array([item == tier for item in devices.tiers], dtype=np.bool_)
        count, drawn = int(mine.sum()), len(np.unique(group[mine]))
        if drawn < count:
            word = "hosts" if tier == "host" else f"{tier} switches".strip()
            parts.append(f"{count:,} {word} as {drawn:,} nodes")
    if not parts:
        return []
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return [f"Folded to be readable: {listed}. A link between folded nodes shows its busiest cable."]


def _made(devices: Devices, group: NDArray[np.int64], notes: list[str]) -> Folded:
    drawn, place = np.unique(group, return_inverse=True)
    place = place.reshape(-1)
    links, cables = _links(devices, place)
    members = np.bincount(place, minlength=len(drawn))
    last = np.zeros(len(drawn), dtype=np.int64)
    np.maximum.at(last, place, np.arange(len(place)))
    names = [
        _joined(devices.names[first], devices.names[end])
        for first, end in zip(drawn.tolist(), last.tolist(), strict=True)
    ]
    return Folded(
        devices=devices,
        group=place,
        members=members,
        names=names,
        ranks=devices.ranks[drawn],
        tiers=[devices.tiers[node] for node in drawn.tolist()],
        links=links,
        cables=cables,
        notes=notes,
    )


def _joined(first: str, last: str) -> str:
    """Of "edge0-0" and "edge0-7" it is "edge0-0…7"."""
    if first == last:
        return first
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    # Whole numbers stay whole: "h8" and "h15" differ in "8" and "15".
    while same and first[same - 1].isdigit():
        same -= 1
    return f"{first}…{last[same:] or last}"
