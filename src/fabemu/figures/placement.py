"""Where nodes of a folded fabric are drawn: tiers above each other, or a ring where one tier is cabled to itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.figures.folding import Folded

_RING = 0.86  # radius of the switches on a ring, of 1 for their hosts


@dataclass(frozen=True, eq=False)
class Placement:
    """Places of nodes.

    Attributes
    ----------
    x, y
        (drawn,) float64, within 0 and 1 in tiers, -1 and 1 on a ring.
    ring
        Whether nodes stand on a ring.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    ring: bool


def placed(fabric: Folded) -> Placement:
    """Places of the drawn nodes of a fabric."""
    order = _order_in_rank(fabric)
    ranks = fabric.ranks
    same = ranks[fabric.links[:, 0]] == ranks[fabric.links[:, 1]]
    level = fabric.links[same]
    if len(level) and (np.abs(order[level[:, 0]] - order[level[:, 1]]) > 1).any():
        return _on_ring(fabric, order)
    return _in_tiers(fabric, order)


def _order_in_rank(fabric: Folded) -> NDArray[np.int64]:
    """(drawn,) place of every node in its rank, by number."""
    order = np.zeros(len(fabric.names), dtype=np.int64)
    for rank in np.unique(fabric.ranks).tolist():
        mine = fabric.ranks == rank
        order[mine] = np.arange(int(mine.sum()))
    return order


def _mean_x(fabric: Folded, x: NDArray[np.float64], others: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(drawn,) mean place of those neighbours that are among `others`; NaN without any."""
    total, count = np.zeros(len(x)), np.zeros(len(x))
    for near, far in ((0, 1), (1, 0)):
        ends = fabric.links[others[fabric.links[:, far]]]
        np.add.at(total, ends[:, near], x[ends[:, far]])
        np.add.at(count, ends[:, near], 1)
    return np.divide(total, count, out=np.full(len(x), np.nan), where=count > 0)


def _in_tiers(fabric: Folded, order: NDArray[np.int64]) -> Placement:
    ranks = fabric.ranks
    x, y = np.zeros(len(ranks)), np.zeros(len(ranks))
    for rank in np.unique(ranks[ranks > 0]).tolist():
        mine = ranks == rank
        x[mine] = (order[mine] + 0.5) / mine.sum()
    for rank, others in ((0, ranks == 1), (-1, ranks == 0)):
        # Hosts stand below their switches, and switches inside servers below their hosts.
        mine = np.flatnonzero(ranks == rank)
        wanted = _mean_x(fabric, x, others)[mine]
        sequence = mine[np.lexsort((mine, np.nan_to_num(wanted, nan=2.0)))]
        x[sequence] = (np.arange(len(sequence)) + 0.5) / max(len(sequence), 1)
    lowest, highest = int(ranks.min(initial=0)), int(ranks.max(initial=0))
    y[:] = (ranks - lowest) / max(highest - lowest, 1)
    return Placement(x, y, ring=False)


def _on_ring(fabric: Folded, order: NDArray[np.int64]) -> Placement:
    ranks = fabric.ranks
    x, y = np.zeros(len(ranks)), np.zeros(len(ranks))
    around = ranks == 1
    turn = np.zeros(len(ranks))
    turn[around] = 2 * np.pi * order[around] / max(around.sum(), 1)
    x[around], y[around] = _RING * np.sin(turn[around]), _RING * np.cos(turn[around])
    for rank in np.unique(ranks[ranks > 1]).tolist():
        mine = ranks == rank
        angle = 2 * np.pi * (order[mine] + 0.5) / mine.sum()
        radius = 0.0 if mine.sum() == 1 else 0.4 / (rank - 1)
        x[mine], y[mine] = radius * np.sin(angle), radius * np.cos(angle)
    # Hosts fan out beyond their switch; those in several places stand at the first.
    parent: dict[int, int] = {}
    for a, b in fabric.links.tolist():
        for host, switch in ((a, b), (b, a)):
            if ranks[host] <= 0 and ranks[switch] == 1:
                parent.setdefault(host, switch)
    fans: dict[int, list[int]] = {}
    for host, switch in sorted(parent.items()):
        fans.setdefault(switch, []).append(host)
    step = 2 * np.pi / max(around.sum(), 1)
    for switch, hosts in fans.items():
        spread = (np.arange(len(hosts)) - (len(hosts) - 1) / 2) / max(len(hosts), 2) * 0.8 * step
        x[hosts], y[hosts] = np.sin(turn[switch] + spread), np.cos(turn[switch] + spread)
    return Placement(x, y, ring=True)
