"""What the links of a folded fabric carried, by direction and interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.figures.folding import Folded
from fabemu.figures.port_series import MEASURES, PortSeries


@dataclass(frozen=True, eq=False)
class LinkLoads:
    """Use, queue and paused share of every drawn link; of several ports behind one it is that of the greatest.

    Attributes
    ----------
    values
        By measure: (classes + 1, intervals + 1, 2 x links) float64. Row 0 of the first axis is all classes together,
        row 0 of the second the whole run. Direction 2 i is from the first node of link i to its second, 2 i + 1 back.
    ports
        (2 x links,) how many ports send in each direction.
    busiest
        (2 x links,) name of the port that is used most over the run; empty if none is.
    """

    values: dict[str, NDArray[np.float64]]
    ports: NDArray[np.int64]
    busiest: list[str]


def link_loads(fabric: Folded, series: PortSeries) -> LinkLoads:
    """Gather the ports of every drawn link."""
    place = {name: int(drawn) for name, drawn in zip(fabric.devices.names, fabric.group, strict=True)}
    number = {(int(a), int(b)): index for index, (a, b) in enumerate(fabric.links.tolist())}
    direction = np.full(len(series.ports), -1, dtype=np.int64)
    for port, (node, peer) in enumerate(zip(series.nodes, series.peers, strict=True)):
        a, b = place.get(node, -1), place.get(peer, -1)
        link = number.get((min(a, b), max(a, b)))
        if link is not None:
            direction[port] = 2 * link + (a > b)
    directions = 2 * len(fabric.links)
    drawn = direction[series.port] >= 0
    into, when = direction[series.port[drawn]], series.interval[drawn] + 1
    values = {}
    for name in MEASURES:
        cells = series.measure(name)
        result = np.zeros((len(cells), series.intervals + 1, directions))
        for row in range(len(cells)):
            np.maximum.at(result[row], (when, into), cells[row, drawn])
            known = direction >= 0
            np.maximum.at(result[row, 0], direction[known], series.whole(name, row)[known])
        values[name] = result
    use = series.whole("use")
    order = np.lexsort((-use, direction))
    order = order[(direction[order] >= 0) & (use[order] > 0)]
    first = order[np.unique(direction[order], return_index=True)[1]] if len(order) else order
    busiest = [""] * directions
    for port in first.tolist():
        busiest[direction[port]] = series.ports[port]
    ends_a = np.repeat(fabric.cables, 2)
    return LinkLoads(values=values, ports=ends_a, busiest=busiest)
