"""The ports table as series over time: use, queue and paused time of every port, all classes together or one of them.

Intervals are joined until few enough are left. Then the use is the mean over them, the queue the longest, the paused
time the sum. Over classes the use is the sum, the queue the sum, and the paused share that of the class paused longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabemu.analysis.sampling import lengths_ps
from fabemu.deferred import dataclass
from fabemu.result import Run
from fabemu.trace import dictionary_column, float_column, integer_column, read_table, table_path

COLUMNS = (
    "start_ps",
    "end_ps",
    "node",
    "port",
    "peer",
    "class",
    "utilisation",
    "queue_max_bytes",
    "paused_ps",
)
"""Columns of the ports table that are read."""

MEASURES = ("use", "queue", "paused")
"""What there is of every port and interval: share of the link's rate, bytes, share of the time."""


@dataclass(frozen=True, eq=False)
class PortSeries:
    """What every port did in every interval.

    Attributes
    ----------
    ports, nodes, peers
        Names by port number, and those of the devices at both ends.
    classes
        Names of the classes that occur.
    edges_ps
        (intervals + 1,) int64, where intervals begin and end.
    joined
        How many sampling intervals each of them holds.
    port, interval
        (cells,) int64, which port and interval each cell is of; sorted, each pair once.
    use, queue, paused
        (classes + 1, cells) float64; row 0 is of all classes together. Use and paused as shares, queue in bytes.
    """

    ports: Sequence[str]
    nodes: Sequence[str]
    peers: Sequence[str]
    classes: Sequence[str]
    edges_ps: NDArray[np.int64]
    joined: int
    port: NDArray[np.int64]
    interval: NDArray[np.int64]
    use: NDArray[np.float64]
    queue: NDArray[np.float64]
    paused: NDArray[np.float64]

    @property
    def intervals(self) -> int:
        """How many there are."""
        return len(self.edges_ps) - 1

    def measure(self, name: str) -> NDArray[np.float64]:
        """(classes + 1, cells) values of one of `MEASURES`."""
        values: NDArray[np.float64] = getattr(self, name)
        return values

    def row(self, class_name: str | None) -> int:
        """Row of a class; 0 for all together. Raises ValueError if the run has no such class."""
        return 0 if class_name is None else list(self.classes).index(class_name) + 1

    @cached_property
    def length_ps(self) -> NDArray[np.int64]:
        """(intervals,) int64."""
        return np.diff(self.edges_ps)

    def whole(self, name: str, row: int = 0) -> NDArray[np.float64]:
        """(ports,) a measure over the whole run: mean use, longest queue, paused share."""
        values, count = self.measure(name)[row], len(self.ports)
        result = np.zeros(count)
        if name == "queue":
            np.maximum.at(result, self.port, values)
            return result
        np.add.at(result, self.port, values * self.length_ps[self.interval])
        return result / max(int(self.edges_ps[-1] - self.edges_ps[0]), 1)

    def line(self, name: str, port: int, row: int = 0) -> NDArray[np.float64]:
        """(intervals,) a measure of one port."""
        result = np.zeros(self.intervals)
        first, last = np.searchsorted(self.port, [port, port + 1])
        result[self.interval[first:last]] = self.measure(name)[row, first:last]
        return result


def port_series(run: Run, most: int = 100) -> PortSeries:
    """Read the ports table.

    Parameters
    ----------
    run
        The run.
    most
        How many intervals may be left.

    Raises
    ------
    InputError
        There is no ports table.
    """
    table = read_table(table_path(run.directory, "ports"), COLUMNS)
    start_ps, end_ps = integer_column(table, "start_ps"), integer_column(table, "end_ps")
    port, ports = dictionary_column(table, "port")
    node, names = dictionary_column(table, "node")
    peer, _ = dictionary_column(table, "peer")
    class_id, class_names = dictionary_column(table, "class")
    length_ps = end_ps - start_ps
    node_of, peer_of = np.full(len(ports), -1, np.int64), np.full(len(ports), -1, np.int64)
    node_of[port], peer_of[port] = node, peer

    # The last interval may be shorter than the others, so the longest is the sampling interval.
    sample_ps = int(length_ps.max(initial=1))
    # The tables go on to the end of it, though the run may be over before.
    simulated_ps = int(run.info.get("simulated_ps") or 0)
    finish_ps = simulated_ps or int(end_ps.max(initial=1))
    lived_ps = lengths_ps(start_ps, end_ps, simulated_ps)
    samples = max(-(-finish_ps // sample_ps), 1)
    joined = _round_up(-(-samples // max(most, 1)))
    sample = np.minimum(start_ps // sample_ps, samples - 1)  # what happened at the very end has a row of the next
    step_ps = joined * sample_ps
    count = -(-samples // joined)
    edges_ps = np.minimum(np.arange(count + 1, dtype=np.int64) * step_ps, finish_ps)

    seen = np.unique(class_id)
    slot = np.zeros(max(len(class_names), 1), np.int64)
    slot[seen] = np.arange(len(seen))
    # One cell per port and joined interval; queues are added per sampling interval before the longest is taken.
    fine, fine_of = np.unique(port * samples + sample, return_inverse=True)
    fine_of = fine_of.reshape(-1)
    cells, cell_of_fine = np.unique(fine // samples * count + fine % samples // joined, return_inverse=True)
    cell_of_fine = cell_of_fine.reshape(-1)
    cell = cell_of_fine[fine_of]
    span_ps = np.maximum(np.diff(edges_ps), 1)[cells % count]
    rows = len(seen) + 1
    use, queue, paused = (np.zeros((rows, len(cells))) for _ in MEASURES)
    carried = float_column(table, "utilisation") * length_ps
    waiting = integer_column(table, "queue_max_bytes").astype(np.float64)
    stopped = np.minimum(integer_column(table, "paused_ps"), lived_ps).astype(np.float64)
    for number, class_number in enumerate(seen.tolist(), start=1):
        mine = class_id == class_number
        np.add.at(use[number], cell[mine], carried[mine])
        np.maximum.at(queue[number], cell[mine], waiting[mine])
        np.add.at(paused[number], cell[mine], stopped[mine])
    use[0] = use[1:].sum(axis=0)
    np.maximum.at(queue[0], cell_of_fine, np.bincount(fine_of, waiting, len(fine)))
    paused[0] = paused[1:].max(axis=0, initial=0.0)
    return PortSeries(
        ports=ports,
        nodes=[names[index] if index >= 0 else "" for index in node_of.tolist()],
        peers=[names[index] if index >= 0 else "" for index in peer_of.tolist()],
        classes=[class_names[index] for index in seen.tolist()],
        edges_ps=edges_ps,
        joined=joined,
        port=cells // count,
        interval=cells % count,
        use=use / span_ps,
        queue=queue,
        paused=paused / span_ps,
    )


def _round_up(factor: int) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ...: intervals that read well."""
    power = 1
    while True:
        for lead in (1, 2, 5):
            if factor <= lead * power:
                return lead * power
        power *= 10
