"""ECN and CNPs: how often queues marked, what senders did about it, and whether they came to share fairly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.batches import again, integers
from fabemu.analysis.fabric import RunFabric, run_fabric
from fabemu.analysis.fairness import converged, jain_index, periods
from fabemu.analysis.intervals import united
from fabemu.analysis.paths import Paths, data_paths
from fabemu.analysis.rates import QUEUE_PAIRS, Rates, rates
from fabemu.analysis.sampling import Samples
from fabemu.columns import described_schema
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.lint.subject import NEVER_MARK_BYTES
from fabemu.plan import NONE
from fabemu.recorded.source import Source
from fabemu.result import Run

WITHIN = 0.25
"""Share of the fair share within which rates count as fair."""

_MERGE_ROWS = 2_000_000
_TEXT, _INTEGER, _REAL = pa.string(), pa.int64(), pa.float64()


CURVE = described_schema(
    ("tier", _TEXT, "Tiers of the devices at both ends, in the direction of sending"),
    ("class", _TEXT, "Traffic class"),
    ("kmin_bytes", _INTEGER, "Length of the queue up to which nothing is marked; null if the plan is not known"),
    ("kmax_bytes", _INTEGER, "Length above which everything is"),
    ("pmax", _REAL, "Probability of a mark at kmax"),
    ("from_bytes", _REAL, "Intervals whose mean length of the queue is at least this"),
    ("to_bytes", _REAL, "and below this; null for all that are longer"),
    ("intervals", _INTEGER, "How many they are, over all ports"),
    ("frames", _INTEGER, "Frames sent in them"),
    ("marks", _INTEGER, "Packets marked in them"),
    ("rate", _REAL, "marks / frames"),
    ("expected", _REAL, "The same if the queue had had its mean length all the time"),
)
RATES = described_schema(
    ("qp", _INTEGER, "Queue pair"),
    ("sender", _TEXT, "Host that sends its data; null if the plan is not known"),
    ("receiver", _TEXT, "Host that receives them"),
    ("start_ps", _INTEGER, "Start of the bin"),
    ("bytes", _INTEGER, "Bytes of data frames that the host began to send in it"),
    ("rate_bps", _REAL, "Per length of the bin, bit/s"),
    ("cnps", _INTEGER, "Congestion notifications that its receiver sent in it"),
)
FAIRNESS = described_schema(
    ("port", _TEXT, "The bottleneck that the queue pairs share"),
    ("class", _TEXT, "Their class"),
    ("start_ps", _INTEGER, "Start of the bin"),
    ("queue_pairs", _INTEGER, "How many had something to send"),
    ("rate_bps", _REAL, "What they sent together, bit/s"),
    ("jain", _REAL, "Jain index of their rates"),
)
CONVERGENCE = described_schema(
    ("port", _TEXT, "The bottleneck that the queue pairs share"),
    ("class", _TEXT, "Their class"),
    ("start_ps", _INTEGER, "From when on these queue pairs, and no others, had something to send"),
    ("end_ps", _INTEGER, "Until when"),
    ("queue_pairs", _INTEGER, "How many they are"),
    ("converged_ps", _INTEGER, "From start_ps until all rates stayed near their mean; null if they never did"),
    ("jain_mean", _REAL, "Mean of the Jain index of their rates over the bins"),
    ("share_bps", _REAL, "Mean rate of one of them, bit/s"),
    ("used", _REAL, "What they sent together, over the rate of the port"),
)


@dataclass(frozen=True, eq=False)
class Marking:
    """Marks and rates of a run.

    Attributes
    ----------
    curve
        Table as in `CURVE`: how often packets were marked, against the length of the queue.
    rates
        Table as in `RATES`: data of each queue pair over time; bins with nothing are left out. None without a packets
        table.
    fairness
        Table as in `FAIRNESS`: how even rates were, over time. None if rates, paths or flows are not known.
    convergence
        Table as in `CONVERGENCE`: when rates became fair, for each time in which the same queue pairs shared a
        bottleneck. None likewise.
    bin_ps
        Length of the bins of rates, None without.
    notes
        What else must be known.
    """

    curve: pa.Table
    rates: pa.Table | None
    fairness: pa.Table | None
    convergence: pa.Table | None
    bin_ps: int | None
    notes: tuple[str, ...]


def marking(run: Run, *, bin_ps: int | None = None, queue_pairs: int = QUEUE_PAIRS, within: float = WITHIN) -> Marking:
    """Marks against queues, rates over time, fairness and convergence.

    The bottleneck of a queue pair is the port of its path with the most data of all queue pairs per rate. Its fair
    share is the mean rate of the queue pairs of one class that have the same bottleneck and something to send: from the
    first byte of a message to the bin with its last. A time in which these do not change is judged if it has five
    bins; rates have converged when all of them stay within `within` of the fair share to its end, three bins at least.

    Parameters
    ----------
    run
        With a ports table for the curve; with a packets table (``--trace budget`` or ``--trace packets``) for rates.
    bin_ps
        Length of a bin; None: about 200 of them, longer for queue pairs that send few frames.
    queue_pairs
        Queue pairs whose rates are kept, those that sent most.
    within
        Share of the fair share by which rates may differ from it.

    Raises
    ------
    InputError
        The run was written by a newer fabemu, or the bins are too many to keep.
    """
    fabric = run_fabric(run)
    notes = list(fabric.notes)
    curve = CURVE.empty_table()
    try:
        curve = _curve(run, fabric)
    except InputError as error:
        notes.append(f"marks against queues are not known: {error}")
    if "packets" not in run.tables:
        try:
            Source.open(run.directory).table("packets")
        except InputError as error:
            notes.append(f"rates are not known: {error}; --trace budget will do")
        return Marking(curve, None, None, None, None, tuple(notes))
    found = rates(run.batches("packets"), _hosts(run, fabric), bin_ps=bin_ps, queue_pairs=queue_pairs)
    paths = None if fabric.compiled is None else data_paths(fabric.compiled.plan)
    kept = len(found.qp)
    if kept < np.count_nonzero(found.total_bytes):
        notes.append(
            f"rates are those of the {kept:,} queue pairs that sent most of {np.count_nonzero(found.total_bytes):,}"
        )
    table = _rate_table(found, fabric, paths)
    if paths is None or "flows" not in run.tables:
        notes.append("fairness is not known: it needs the plan and the flows table")
        return Marking(curve, table, None, None, found.bin_ps, tuple(notes))
    if not paths.known.all():
        notes.append(
            "of queue pairs whose packets take several paths, only the ports that all of them pass can be bottlenecks"
        )
    fairness, convergence = _fairness(run, fabric, paths, found, within)
    return Marking(curve, table, fairness, convergence, found.bin_ps, tuple(notes))


def _hosts(run: Run, fabric: RunFabric) -> Any:
    if fabric.compiled is not None:
        names = set(fabric.nodes[: fabric.compiled.plan.host_count])
    else:
        names = set()
        if "flows" in run.tables:
            for batch in run.batches("flows", ("src", "dst")):
                names.update(batch.column("src").dictionary.to_pylist(), batch.column("dst").dictionary.to_pylist())
                break
    return names.__contains__


# Marks against the queue.


@dataclass(frozen=True)
class _Kind:
    """Queues of one tier and class with the same marking."""

    tier: int
    class_name: str
    kmin_bytes: int | None
    kmax_bytes: int | None
    pmax: float | None

    @property
    def edges(self) -> np.ndarray:
        """Ascending edges of the lengths that are told apart, from 0; what is longer than the last is one more."""
        if self.kmin_bytes is None or self.kmax_bytes is None:
            return np.concatenate([[0.0], 2.0 ** np.arange(12, 27)])
        low, high = float(self.kmin_bytes), float(self.kmax_bytes)
        below, between = np.linspace(0, low, 5), np.linspace(low, high, 9)
        return np.unique(np.concatenate([below, between, [1.5 * high, 2 * high, 4 * high]]))

    def expected(self, length: np.ndarray) -> np.ndarray:
        """Probability of a mark at a length of the queue (MODEL 6)."""
        if self.kmin_bytes is None or self.kmax_bytes is None or self.pmax is None:
            return np.full(len(length), np.nan)
        slope = self.pmax * (length - self.kmin_bytes) / max(self.kmax_bytes - self.kmin_bytes, 1)
        return np.where(length <= self.kmin_bytes, 0.0, np.where(length > self.kmax_bytes, 1.0, slope))


def _curve(run: Run, fabric: RunFabric) -> pa.Table:
    columns = ("port", "class", "frames", "marks", "queue_mean_bytes")
    samples = Samples(run.batches("ports", ("start_ps", "end_ps", *columns)), columns, fabric.ports)
    kinds: dict[_Kind, int] = {}
    kind_of: dict[int, int] = {}  # of a queue: port and class
    sums: list[np.ndarray] = []
    classes = samples.names["class"]
    for piece in samples:
        width = 256  # more classes than a table has
        queue, place = np.unique(piece["port"] * width + piece["class"], return_inverse=True)
        for number in queue.tolist():
            if number not in kind_of:
                kind = _kind(fabric, number // width, classes.names[number % width])
                kind_of[number] = kinds.setdefault(kind, len(kinds)) if kind is not None else NONE
                if len(sums) < len(kinds):
                    sums.append(np.zeros((len(list(kinds)[-1].edges), 4)))
        of_row = np.array([kind_of[number] for number in queue.tolist()], dtype=np.int64)[place.reshape(-1)]
        length = piece["queue_mean_bytes"]
        for kind, number in kinds.items():
            mine = of_row == number
            if not mine.any():
                continue
            at = np.searchsorted(kind.edges, length[mine], side="right") - 1
            frames = piece["frames"][mine]
            amounts = (None, frames, piece["marks"][mine], frames * kind.expected(length[mine]))
            for column, amount in enumerate(amounts):
                sums[number][:, column] += np.bincount(at, amount, minlength=len(sums[number]))
    rows: list[dict[str, Any]] = []
    for kind, number in kinds.items():
        edges = kind.edges
        if kind.kmin_bytes is None and not sums[number][:, 2].any():
            continue
        for at in np.flatnonzero(sums[number][:, 0]).tolist():
            intervals, frames, marks, expected = sums[number][at].tolist()
            rows.append(
                {
                    "tier": fabric.tiers[kind.tier],
                    "class": kind.class_name,
                    "kmin_bytes": kind.kmin_bytes,
                    "kmax_bytes": kind.kmax_bytes,
                    "pmax": kind.pmax,
                    "from_bytes": float(edges[at]),
                    "to_bytes": float(edges[at + 1]) if at + 1 < len(edges) else None,
                    "intervals": int(intervals),
                    "frames": int(frames),
                    "marks": int(marks),
                    "rate": marks / frames if frames else None,
                    "expected": expected / frames if frames and kind.pmax is not None else None,
                }
            )
    rows.sort(
        key=lambda row: (fabric.tiers.index(row["tier"]), row["class"], row["kmin_bytes"] or 0, row["from_bytes"])
    )
    return pa.Table.from_pylist(rows, schema=CURVE)


def _kind(fabric: RunFabric, port: int, class_name: str) -> _Kind | None:
    """What a queue marks like; None if it never does."""
    tier = int(fabric.tier[port])
    if fabric.compiled is None:
        return _Kind(tier, class_name, None, None, None)
    plan, names = fabric.compiled.plan, fabric.compiled.class_names
    if class_name not in names:
        return _Kind(tier, class_name, None, None, None)
    place = port * plan.class_count + names.index(class_name)
    kmin, kmax = int(plan.pq_kmin_bytes[place]), int(plan.pq_kmax_bytes[place])
    if kmin >= NEVER_MARK_BYTES:
        return None
    return _Kind(tier, class_name, kmin, kmax, float(plan.pq_pmax_q32[place] / 2**32))


# Rates.


def _rate_table(found: Rates, fabric: RunFabric, paths: Paths | None) -> pa.Table:
    row, place = np.nonzero((found.sent_bytes > 0) | (found.cnps > 0))
    qp, sent = found.qp[row], found.sent_bytes[row, place]
    ends: list[pa.Array] = [pa.nulls(len(row), _TEXT)] * 2
    if paths is not None:
        names = np.array(fabric.nodes, dtype=object)
        ends = [pa.array(names[side[qp]], _TEXT) for side in (paths.sender, paths.receiver)]
    start = found.first_ps + place * found.bin_ps
    columns = [pa.array(qp), *ends, pa.array(start), pa.array(sent), pa.array(sent * 8e12 / found.bin_ps)]
    return pa.Table.from_arrays([*columns, pa.array(found.cnps[row, place])], schema=RATES)


def _fairness(run: Run, fabric: RunFabric, paths: Paths, found: Rates, within: float) -> tuple[pa.Table, pa.Table]:
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    bottleneck = bottlenecks(paths, found.total_bytes, fabric.rate_bps)[found.qp]
    group = np.where(bottleneck >= 0, bottleneck * plan.class_count + plan.qp_class[found.qp], NONE)
    active_row, active_start, active_end = _active(run, found)
    fairness: list[pa.Table] = []
    rows: list[dict[str, Any]] = []
    shared, count = np.unique(group[group >= 0], return_counts=True)
    for number in shared[count >= 2].tolist():
        port, class_id = number // plan.class_count, number % plan.class_count
        mine = group[active_row] == number
        names = {"port": fabric.ports.names[port], "class": fabric.compiled.class_names[class_id]}
        times = active_row[mine], active_start[mine], active_end[mine]
        for period in periods(*times, found.first_ps, found.bin_ps, found.sent_bytes.shape[1]):
            amounts = found.sent_bytes[period.members, period.bins.start : period.bins.stop]
            index = jain_index(amounts)
            together = amounts.sum(axis=0) * 8e12 / found.bin_ps
            bins = len(period.bins)
            start = found.first_ps + np.arange(period.bins.start, period.bins.stop) * found.bin_ps
            columns = [pa.array([name] * bins, _TEXT) for name in names.values()]
            columns += [pa.array(start), pa.array([len(period.members)] * bins, _INTEGER), pa.array(together)]
            fairness.append(pa.Table.from_arrays([*columns, pa.array(index, from_pandas=True)], schema=FAIRNESS))
            first = converged(amounts, within)
            begun = period.bins.start if first is None else period.bins.start + first
            rows.append(
                {
                    **names,
                    "start_ps": period.start_ps,
                    "end_ps": period.end_ps,
                    "queue_pairs": len(period.members),
                    # A period that begins within a bin has converged at its beginning at the earliest.
                    "converged_ps": None
                    if first is None
                    else 0
                    if first == 0
                    else found.first_ps + begun * found.bin_ps - period.start_ps,
                    "jain_mean": None if np.isnan(index).all() else float(np.nanmean(index)),
                    "share_bps": float(together.mean() / len(period.members)),
                    "used": float(together.mean() / fabric.rate_bps[port]),
                }
            )
    rows.sort(key=lambda row: (row["port"], row["class"], row["start_ps"]))
    empty = FAIRNESS.empty_table()
    return pa.concat_tables([empty, *fairness]), pa.Table.from_pylist(rows, schema=CONVERGENCE)


def bottlenecks(paths: Paths, total_bytes: np.ndarray, rate_bps: np.ndarray) -> np.ndarray:
    """(Q,) port of each path with the most data of all queue pairs per rate, the first of equal ones; -1 for none."""
    amount = np.zeros(len(paths.known))
    amount[: len(total_bytes)] = total_bytes[: len(amount)]
    inside = paths.port >= 0
    carried = np.bincount(paths.port[inside], np.broadcast_to(amount[:, None], inside.shape)[inside], len(rate_bps))
    # The last entry is no port.
    load = np.append(carried / np.maximum(rate_bps, 1), -1.0)
    if not paths.port.shape[1]:
        return np.full(len(amount), NONE, np.int64)
    best = np.argmax(load[paths.port], axis=1)
    return paths.port[np.arange(len(best)), best].astype(np.int64)


def _active(run: Run, found: Rates) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times in which each kept queue pair had something to send, by its row."""
    columns = ("qp", "first_sent_ps", "sender_done_ps", "receiver_done_ps")
    row_of = np.full(max(len(found.total_bytes), 1), NONE, np.int64)
    row_of[found.qp] = np.arange(len(found.qp))
    end_ps = int(run.info.get("simulated_ps") or found.first_ps + found.sent_bytes.shape[1] * found.bin_ps)
    merged = [np.zeros(0, np.int64)] * 3
    pending: list[list[np.ndarray]] = []
    waiting = 0
    for batch in again(run.batches("flows", columns), columns):
        qp, start = integers(batch, "qp"), integers(batch, "first_sent_ps")
        end = integers(batch, "sender_done_ps")
        # Of a READ, or without its last acknowledgement, the arrival of its last byte; else it still goes on.
        arrived = integers(batch, "receiver_done_ps")
        end = np.where(end != NONE, end, np.where(arrived != NONE, arrived, end_ps))
        row = np.where((qp >= 0) & (qp < len(row_of)), row_of[np.clip(qp, 0, len(row_of) - 1)], NONE)
        mine = (row != NONE) & (start != NONE)
        pending.append([row[mine], start[mine], np.maximum(end, start)[mine]])
        waiting += int(np.count_nonzero(mine))
        if waiting > _MERGE_ROWS:
            merged, pending, waiting = _merged(merged, pending), [], 0
    row, start, end = _merged(merged, pending)
    # With its last packet sent, a queue pair has nothing more to send, though it waits for acknowledgements. The bin
    # with that packet is filled in part.
    bins = np.arange(found.sent_bytes.shape[1])
    last = np.maximum.accumulate(np.where(found.sent_bytes > 0, bins, 0), axis=1)
    at = np.clip((end - found.first_ps) // found.bin_ps, 0, len(bins) - 1)
    end = np.minimum(end, found.first_ps + last[row, at] * found.bin_ps)
    return row, start, np.maximum(end, start)


def _merged(first: list[np.ndarray], others: list[list[np.ndarray]]) -> list[np.ndarray]:
    columns = [np.concatenate(parts) for parts in zip(first, *others, strict=True)]
    return list(united(columns[0], columns[1], columns[2]))
