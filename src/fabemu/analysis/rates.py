"""Rates of queue pairs over time, from the frames that hosts sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fabemu.analysis.batches import Names, Rows, again, integers
from fabemu.deferred import dataclass
from fabemu.errors import InputError

QUEUE_PAIRS = 256
"""Queue pairs whose rates are kept unless told otherwise: those that sent most."""

CELLS = 20_000_000
"""Most pairs of queue pair and bin that are kept."""

_BINS = 200
_FRAMES = 20  # of a queue pair per bin: one more or less is 5 %
_COLUMNS = ("time_ps", "node", "kind", "qp", "frame_bytes")


@dataclass(frozen=True, eq=False)
class Rates:
    """What queue pairs sent, bin by bin.

    Attributes
    ----------
    qp
        (n,) int64 queue pairs, those that sent most first.
    first_ps, bin_ps
        Start of the first bin, that of the first data, and the length of each. The last bin is that of the last data or
        notification of a queue pair that is kept.
    sent_bytes
        (n, bins) int64 bytes of data frames, retransmissions included, whose transmission by a host began in the bin.
    cnps
        (n, bins) int64 congestion notifications sent for the queue pair, by its receiver.
    total_bytes
        (Q,) int64 bytes of data frames of every queue pair that there is, kept or not.
    """

    qp: np.ndarray
    first_ps: int
    bin_ps: int
    sent_bytes: np.ndarray
    cnps: np.ndarray
    total_bytes: np.ndarray


def rates(
    packets: Rows,
    is_host: Callable[[str], bool],
    *,
    bin_ps: int | None = None,
    queue_pairs: int = QUEUE_PAIRS,
) -> Rates:
    """Data of each queue pair over time.

    Parameters
    ----------
    packets
        The packets table, its record batches, one of which is in memory at a time, or a part of them. Frames that
        switches sent are left out.
    is_host
        Whether a name is that of a host.
    bin_ps
        Length of a bin; None: about 200 of them, longer if the median queue pair sends fewer than 20 frames in one.
    queue_pairs
        How many to keep, at most.

    Raises
    ------
    InputError
        A column is missing, or the bins are too many to keep.
    """
    batches = again(packets, _COLUMNS)
    noted_ps = np.full(0, -1, np.int64)  # of the last notification of each queue pair
    nodes, kinds = Names(), Names()
    hosts = np.zeros(0, np.bool_)
    total, frames = np.zeros(0, np.int64), np.zeros(0, np.int64)
    first_ps, last_ps = np.iinfo(np.int64).max, -1

    def of_hosts(batch, kind: str) -> np.ndarray:
        """Rows of frames of a kind that hosts sent for a queue pair."""
        nonlocal hosts
        node = nodes.numbers(batch.column("node"))
        if len(hosts) < len(nodes):
            hosts = np.array([is_host(name) for name in nodes.names], dtype=np.bool_)
        chosen = kinds.numbers(batch.column("kind")) == kinds.number(kind)
        return np.asarray(chosen & hosts[node] & (integers(batch, "qp") >= 0))

    for batch in batches:
        noted = of_hosts(batch, "cnp")
        qp, time_ps = integers(batch, "qp")[noted], integers(batch, "time_ps")[noted]
        if len(qp):
            noted_ps = np.append(noted_ps, np.full(max(int(qp.max()) + 1 - len(noted_ps), 0), -1, np.int64))
            np.maximum.at(noted_ps, qp, time_ps)
        data = of_hosts(batch, "data")
        qp, time_ps = integers(batch, "qp")[data], integers(batch, "time_ps")[data]
        if not len(qp):
            continue
        most = int(qp.max()) + 1
        if most > len(total):
            total, frames = (np.append(old, np.zeros(most - len(old), np.int64)) for old in (total, frames))
        np.add.at(total, qp, integers(batch, "frame_bytes")[data])
        np.add.at(frames, qp, 1)
        first_ps, last_ps = min(first_ps, int(time_ps.min())), max(last_ps, int(time_ps.max()))
    # Of equal ones the first.
    chosen = np.lexsort((np.arange(len(total)), -total))[: max(queue_pairs, 0)]
    chosen = chosen[total[chosen] > 0]
    if not len(chosen):
        nothing = np.zeros((0, 0), np.int64)
        return Rates(chosen, 0, bin_ps or 1, nothing, nothing, total)
    span_ps = last_ps - first_ps + 1
    noted_ps = noted_ps[chosen[chosen < len(noted_ps)]]
    reach_ps = max(last_ps, int(noted_ps.max(initial=-1))) - first_ps + 1
    if bin_ps is None:
        per_frame_ps = span_ps / float(np.median(frames[chosen]))
        bin_ps = _round_up(max(span_ps / _BINS, min(_FRAMES * per_frame_ps, span_ps / 5)))
    bins = -(-reach_ps // max(bin_ps, 1))
    if bin_ps < 1 or bins * len(chosen) > CELLS:
        raise InputError(
            f"bins of {bin_ps:,} ps are too short: {bins:,} of them for {len(chosen):,} queue pairs are more than "
            f"{CELLS:,}; take at least {-(-reach_ps * len(chosen) // CELLS):,} ps"
        )
    row_of = np.full(len(total), -1, np.int64)
    row_of[chosen] = np.arange(len(chosen))
    sent, cnps = (np.zeros((len(chosen), bins), np.int64) for _ in range(2))
    for batch in batches:
        for kind in ("data", "cnp"):
            mine = of_hosts(batch, kind)
            qp = integers(batch, "qp")[mine]
            row = np.where(qp < len(total), row_of[np.minimum(qp, len(total) - 1)], -1)
            place = (integers(batch, "time_ps")[mine] - first_ps) // bin_ps
            inside = (row >= 0) & (place >= 0) & (place < bins)
            cell = row[inside] * bins + place[inside]
            if kind == "data":
                np.add.at(sent.reshape(-1), cell, integers(batch, "frame_bytes")[mine][inside])
            else:
                np.add.at(cnps.reshape(-1), cell, 1)
    return Rates(chosen, first_ps, bin_ps, sent, cnps, total)


def _round_up(time_ps: float) -> int:
    """The next of 1, 2, 5, 10, 20, ..."""
    size = 1
    while True:
        for step in (1, 2, 5):
            if step * size >= time_ps:
                return step * size
        size *= 10
