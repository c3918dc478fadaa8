"""How many devices have forwarded a packet when a device sends it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.plan import NONE, Plan

_FAR = 255


class Hops:
    """Fewest cables between hosts and devices, found when they are asked for.

    Hosts that are attached to the same switch by one cable share what is found.
    """

    def __init__(self, plan: Plan) -> None:
        """Take the cables of a plan."""
        self._plan = plan
        node = plan.port_node.astype(np.int64)
        self._peer = node[plan.port_peer]
        access = plan.host_access_port.astype(np.int64)
        self._single = access != NONE
        # Where a search starts, and by how many cables a host is away from there.
        hosts = np.arange(plan.host_count)
        self._origin = np.where(self._single, node[np.maximum(access, 0)] if plan.port_count else hosts, hosts)
        self._row = np.full(plan.node_count, NONE, dtype=np.int64)
        self._cables = np.empty((0, plan.node_count), dtype=np.uint8)
        self._used = 0

    def between(self, host: NDArray[np.int64], node: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) cables between hosts and devices, 0 for a host and itself, 255 where there is no way."""
        origin = self._origin[host]
        for start in np.unique(origin[self._row[origin] == NONE]).tolist():
            self._search(start)
        cables = self._cables[self._row[origin], node].astype(np.int64) + self._single[host]
        return np.where(host == node, 0, np.minimum(cables, _FAR))

    def _search(self, start: int) -> None:
        plan = self._plan
        if self._used == len(self._cables):
            grown = np.full((max(16, 2 * self._used), plan.node_count), _FAR, dtype=np.uint8)
            grown[: self._used] = self._cables
            self._cables = grown
        cables = self._cables[self._used]
        self._row[start] = self._used
        self._used += 1
        frontier, distance = np.array([start]), 0
        cables[start] = 0
        ports = plan.node_port_start.astype(np.int64)
        while len(frontier):
            distance += 1
            counts = ports[frontier + 1] - ports[frontier]
            offsets = np.repeat(ports[frontier] - (np.cumsum(counts) - counts), counts)
            reached = np.unique(self._peer[offsets + np.arange(len(offsets))])
            reached = reached[cables[reached] == _FAR]
            cables[reached] = min(distance, _FAR - 1)
            frontier = reached[reached >= plan.host_count]  # hosts do not forward
