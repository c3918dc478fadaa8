"""Links: which are busiest, over the run and at their peak."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fabemu.analysis.sampling import lengths_ps
from fabemu.deferred import dataclass
from fabemu.trace import dictionary_column, float_column, integer_column

COLUMNS = (
    "start_ps",
    "end_ps",
    "node",
    "port",
    "peer",
    "bytes",
    "utilisation",
    "queue_max_bytes",
    "paused_ps",
    "marks",
    "drops",
)
"""Columns of the ports table that are needed here."""


@dataclass(frozen=True)
class LinkLoad:
    """What one link (the sending side of one port) carried, all classes together."""

    port: str
    node: str
    peer: str
    bytes: int
    mean_utilisation: float  # 0..1, over the whole run
    peak_utilisation: float  # 0..1, in the busiest sampling interval; in what there was of it if there is only one
    queue_max_bytes: int  # longest queue of one class
    paused_ps: int  # sum over classes
    marks: int
    drops: int  # of frames that arrived on this port


def busiest_links(ports: pa.Table, end_ps: int | None = None, limit: int = 10) -> list[LinkLoad]:
    """Links with the greatest mean utilisation first.

    Parameters
    ----------
    ports
        The ports table.
    end_ps
        Length of the run, which may have ended before its last interval; None: the end of that.
    limit
        How many.
    """
    if len(ports) == 0:
        return []
    port, port_names = dictionary_column(ports, "port")
    node, node_names = dictionary_column(ports, "node")
    peer, _ = dictionary_column(ports, "peer")
    start_ps, stop_ps = integer_column(ports, "start_ps"), integer_column(ports, "end_ps")
    utilisation = float_column(ports, "utilisation")
    span_ps = end_ps or max(int(stop_ps.max()), 1)
    count = len(port_names)

    busy_ps = np.bincount(port, utilisation * (stop_ps - start_ps), count)
    intervals, interval = np.unique(start_ps, return_inverse=True)
    if len(intervals) == 1:
        # Among others an unfinished interval stays whole: the last frame of a run fills the moment that it takes.
        lived_ps = lengths_ps(start_ps, stop_ps, end_ps)
        utilisation = np.where(lived_ps > 0, utilisation * (stop_ps - start_ps) / np.maximum(lived_ps, 1), utilisation)
    # Classes of one port and interval are rows of their own: add them before looking for the peak.
    cells, cell = np.unique(port * len(intervals) + interval, return_inverse=True)
    peak = np.zeros(count)
    np.maximum.at(peak, cells // len(intervals), np.bincount(cell, utilisation))
    # A frame counts whole where it began: the last one of a full interval reaches beyond its end.
    peak = np.minimum(peak, 1.0)

    def sums(name: str) -> np.ndarray:
        result = np.zeros(count, np.int64)
        np.add.at(result, port, integer_column(ports, name))
        return result

    carried, paused_ps, marks, drops = sums("bytes"), sums("paused_ps"), sums("marks"), sums("drops")
    queue_max = np.zeros(count, np.int64)
    np.maximum.at(queue_max, port, integer_column(ports, "queue_max_bytes"))
    node_of, peer_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
    node_of[port], peer_of[port] = node, peer
    order = np.lexsort((np.arange(count), -busy_ps))
    return [
        LinkLoad(
            port=port_names[index],
            node=node_names[node_of[index]],
            peer=node_names[peer_of[index]],
            bytes=int(carried[index]),
            mean_utilisation=min(float(busy_ps[index] / span_ps), 1.0),
            peak_utilisation=float(peak[index]),
            queue_max_bytes=int(queue_max[index]),
            paused_ps=int(paused_ps[index]),
            marks=int(marks[index]),
            drops=int(drops[index]),
        )
        for index in order[:limit]
        if busy_ps[index] > 0
    ]
