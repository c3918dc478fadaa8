"""Buffers: how long queues were, how much headroom was used, how near thresholds came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.batches import Names, integers
from fabemu.analysis.fabric import RunFabric, run_fabric
from fabemu.analysis.fct import PERCENTILES, nearest_rank
from fabemu.analysis.ranks import OrderStatistics, keys_of
from fabemu.analysis.sampling import Samples
from fabemu.columns import described_schema
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.lint.subject import NEVER_MARK_BYTES
from fabemu.lint.threshold import reached_bytes
from fabemu.plan import ACTION_HEADROOM, NONE
from fabemu.result import Run

FIGURES = ("queue_mean_bytes", "queue_max_bytes")

_TEXT, _INTEGER, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


QUEUES = described_schema(
    ("tier", _TEXT, "Tiers of the devices at both ends, in the direction of sending"),
    ("class", _TEXT, "Traffic class"),
    ("figure", _TEXT, "queue_mean_bytes or queue_max_bytes of an interval, as in the ports table"),
    ("ports", _INTEGER, "Ports of the tier, idle ones included"),
    ("intervals", _INTEGER, "Intervals of these ports together: what the percentiles are of"),
    *((f"p{percent:g}", _REAL, "Percentile over ports and intervals, by nearest rank, B") for percent in PERCENTILES),
    ("max", _REAL, "The greatest, B"),
)
HEADROOM = described_schema(
    ("port", _TEXT, "Ingress port of a switch"),
    ("node", _TEXT, "The switch"),
    ("tier", _TEXT, "As in `queues`, in the direction in which this port sends"),
    ("class", _TEXT, "Traffic class"),
    ("configured_bytes", _INTEGER, "Headroom of the priority group"),
    ("used_bytes", _INTEGER, "Most of it that was in use; null if the run says nothing of it"),
    ("exact", _FLAG, "False: a lower bound, of the pauses table; what came after XOFF is not in it"),
    ("unused_bytes", _INTEGER, "configured_bytes - used_bytes"),
)
SWITCHES = described_schema(
    ("node", _TEXT, "Switch"),
    ("buffer_bytes", _INTEGER, "Its whole buffer"),
    ("pool_bytes", _INTEGER, "Of it, what priority groups share"),
    ("configured_bytes", _INTEGER, "Of it, headroom of all priority groups"),
    ("used_bytes", _INTEGER, "Sum of the greatest use of each; they need not have come at the same time"),
    ("unused_bytes", _INTEGER, "configured_bytes - used_bytes: what this run would not have missed"),
    ("unused_share", _REAL, "unused_bytes / buffer_bytes"),
    ("exact", _FLAG, "False: used_bytes is a lower bound, so the others are upper ones"),
)
THRESHOLDS = described_schema(
    ("port", _TEXT, "Egress port of a switch"),
    ("node", _TEXT, "The switch"),
    ("tier", _TEXT, "As in `queues`"),
    ("class", _TEXT, "Traffic class"),
    ("queue_max_bytes", _INTEGER, "Greatest length of the queue"),
    ("max_ps", _INTEGER, "Start of the first interval with that length"),
    ("kmin_bytes", _INTEGER, "Length from which frames may be marked; null if none are"),
    ("kmax_bytes", _INTEGER, "Length above which all are marked"),
    ("above_kmin", _REAL, "Share of the intervals in which the mean length was above kmin"),
    ("above_kmax", _REAL, "Same for kmax"),
    ("xoff_bytes", _INTEGER, "Least bytes at which a priority group that has the pool to itself raises XOFF; lossless"),
    ("of_xoff", _REAL, "queue_max_bytes / xoff_bytes: from 1 on, one ingress port alone could have raised XOFF"),
    ("xoffs", _INTEGER, "Pauses that the switch began because of this queue; null without a pauses table"),
    ("limit_bytes", _INTEGER, "Length from which frames of a lossy class are dropped if nothing else is in the pool"),
    ("of_limit", _REAL, "queue_max_bytes / limit_bytes"),
)


@dataclass(frozen=True, eq=False)
class Buffers:
    """What the buffers of a run held.

    Attributes
    ----------
    queues
        Table as in `QUEUES`: percentiles of the lengths of egress queues by tier and class.
    headroom
        Table as in `HEADROOM`: use of the headroom of every priority group that has any, the fullest first. None if the
        plan is not known.
    switches
        Table as in `SWITCHES`: the same added up, those with most to give back first. None likewise.
    thresholds
        Table as in `THRESHOLDS`: how near each egress queue of a switch that held anything came to what acts on it, the
        nearest to XOFF first. None likewise.
    notes
        What else must be known: an interrupted run, missing tables.
    """

    queues: pa.Table
    headroom: pa.Table | None
    switches: pa.Table | None
    thresholds: pa.Table | None
    notes: tuple[str, ...]


def buffers(run: Run) -> Buffers:
    """How full the buffers of a run were, against what they were made for.

    Percentiles are over ports and sampling intervals, each counted once, those in which nothing happened with an empty
    queue. Intervals are equally long but for the last, so these are percentiles over time: of a queue averaged over an
    interval, which hides peaks, and of the greatest length in an interval, which no moment of it exceeds.

    Parameters
    ----------
    run
        With a ports table. Headroom is exact if that has the column ``headroom_max_bytes``; otherwise the pauses table
        gives a lower bound: what was in use when XOFF was raised.

    Raises
    ------
    InputError
        The run was written by a newer fabemu.
    """
    fabric = run_fabric(run)
    notes = list(fabric.notes)
    seen = _Seen(len(fabric.tier))
    queues = QUEUES.empty_table()
    try:
        queues = _queues(run, fabric, seen)
    except InputError as error:
        notes.append(f"queues are not known: {error}")
    pauses: _Pauses | None = None
    try:
        pauses = _pauses(run, fabric)
    except InputError as error:
        notes.append(f"pauses are not known: {error}")
    if fabric.compiled is None:
        return Buffers(queues, None, None, None, tuple(notes))
    if (fabric.compiled.plan.action_kind == ACTION_HEADROOM).any():
        notes.append("a fault changed the headroom of a group: configured_bytes is what it began with")
    headroom = _headroom(fabric, seen, pauses)
    if seen.headroom is None:
        if pauses is None:
            notes.append("how much headroom was used is not known: neither the ports nor the pauses table says so")
        else:
            notes.append("headroom used is a lower bound: the ports table has no column headroom_max_bytes")
    switches = _switches(fabric, headroom)
    return Buffers(queues, headroom, switches, _thresholds(fabric, seen, pauses), tuple(notes))


class _Seen:
    """What the ports table says of every port and class."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self.classes = Names()
        self.intervals = 0
        self.headroom: np.ndarray | None = None  # most in use
        self.most = np.zeros(0, np.int64)  # longest queue
        self.most_ps = np.zeros(0, np.int64)
        self.above_kmin = np.zeros(0, np.int64)  # intervals
        self.above_kmax = np.zeros(0, np.int64)

    def grow(self, classes: int) -> None:
        """Make room for classes."""
        for name in ("most", "most_ps", "above_kmin", "above_kmax", "headroom"):
            old = getattr(self, name)
            if old is not None and len(old) < self.ports * classes:
                wide = np.zeros((self.ports, classes), np.int64)
                if len(old):
                    wide[:, : len(old) // self.ports] = old.reshape(self.ports, -1)
                setattr(self, name, wide.reshape(-1))


def _class_ids(fabric: RunFabric, classes: Names) -> np.ndarray:
    """Number in the plan of each class of a table, -1 for one that the plan does not have."""
    known = {} if fabric.compiled is None else {name: at for at, name in enumerate(fabric.compiled.class_names)}
    return np.array([known.get(name, NONE) for name in classes.names], dtype=np.int64)


def _queues(run: Run, fabric: RunFabric, seen: _Seen) -> pa.Table:
    columns = ("port", "class", *FIGURES, "headroom_max_bytes")
    samples = Samples(run.batches("ports", ("start_ps", "end_ps", *columns)), columns, fabric.ports)
    seen.classes = samples.names["class"]
    statistics = [OrderStatistics() for _ in FIGURES]
    tiers = len(fabric.tiers)
    end_ps = length_ps = 0
    for piece in samples:
        end_ps = max(end_ps, int(piece["end_ps"].max()))
        length_ps = max(length_ps, int((piece["end_ps"] - piece["start_ps"]).max()))
        classes = len(seen.classes)
        seen.grow(classes)
        _note(fabric, seen, piece, classes)
        group = fabric.tier[piece["port"]] + piece["class"] * tiers
        for statistic, figure in zip(statistics, FIGURES, strict=True):
            statistic.count(_full(group, piece[figure]), keys_of(piece[figure]), tiers * classes)
    sample_ps = fabric.compiled.plan.sample_ps if fabric.compiled is not None else length_ps
    span_ps = max(run.info.get("simulated_ps") or 0, end_ps)
    seen.intervals = -(-span_ps // sample_ps) if sample_ps else 0
    groups = tiers * len(seen.classes)
    total = np.tile(fabric.ports_of_tier, len(seen.classes)) * seen.intervals
    ranks = np.array([[nearest_rank(percent, cells) for percent in PERCENTILES] for cells in total.tolist()])
    ranks = ranks.reshape(groups, len(PERCENTILES))
    for statistic in statistics:
        statistic.count(np.empty(0, np.int64), np.empty(0, np.int64), groups)
        empty = np.maximum(total - statistic.counts, 0)
        wanted = np.concatenate([np.maximum(ranks - empty[:, None], 0), statistic.counts[:, None]], axis=1)
        statistic.seek(wanted)
    while any(statistic.open for statistic in statistics):
        for piece in samples:
            group = fabric.tier[piece["port"]] + piece["class"] * tiers
            for statistic, figure in zip(statistics, FIGURES, strict=True):
                if statistic.open:
                    statistic.look(_full(group, piece[figure]), keys_of(piece[figure]))
        for statistic in statistics:
            if statistic.open:
                statistic.narrow()
    rows = []
    for group in np.flatnonzero(statistics[1].counts).tolist():
        tier, class_id = group % tiers, group // tiers
        for statistic, figure in zip(statistics, FIGURES, strict=True):
            values = np.nan_to_num(statistic.values[group]).tolist()
            row: dict[str, Any] = {"tier": fabric.tiers[tier], "class": seen.classes.names[class_id]}
            row |= {"figure": figure, "ports": int(fabric.ports_of_tier[tier]), "intervals": int(total[group])}
            names = (*(f"p{percent:g}" for percent in PERCENTILES), "max")
            rows.append(row | dict(zip(names, values, strict=True)))
    rows.sort(key=lambda row: (fabric.tiers.index(row["tier"]), row["class"], row["figure"]))
    return pa.Table.from_pylist(rows, schema=QUEUES)


def _full(group: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Group of rows with anything in their queue; empty ones are counted with those that have no row."""
    return np.where(length > 0, group, NONE)


def _note(fabric: RunFabric, seen: _Seen, piece: dict[str, np.ndarray], classes: int) -> None:
    """Take what the rows say of single queues."""
    place = piece["port"] * classes + piece["class"]
    length, before = piece["queue_max_bytes"], seen.most.copy()
    np.maximum.at(seen.most, place, length)
    # Of each queue that is longer than ever, the first row that says so.
    new = np.flatnonzero((length == seen.most[place]) & (length > before[place]))
    new = new[np.unique(place[new], return_index=True)[1]]
    seen.most_ps[place[new]] = piece["start_ps"][new]
    # Null in tables of the first schema version.
    if "headroom_max_bytes" in piece and (piece["headroom_max_bytes"] != NONE).any():
        if seen.headroom is None:
            seen.headroom = np.zeros(seen.ports * classes, np.int64)
        np.maximum.at(seen.headroom, place, piece["headroom_max_bytes"])
    if fabric.compiled is not None:
        mean = piece["queue_mean_bytes"]
        for count, name in ((seen.above_kmin, "pq_kmin_bytes"), (seen.above_kmax, "pq_kmax_bytes")):
            threshold = _of_plan(fabric, name, seen.classes)[piece["port"], piece["class"]]
            np.add.at(count, place[mean > threshold], 1)


def _of_plan(fabric: RunFabric, name: str, classes: Names) -> np.ndarray:
    """(P, classes of the table) values of an array of the plan; 2^62 for classes that it does not have."""
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    ids = _class_ids(fabric, classes)
    values = getattr(plan, name).reshape(plan.port_count, plan.class_count)
    return np.where(ids >= 0, values[:, np.maximum(ids, 0)], 2**62)


@dataclass(frozen=True)
class _Pauses:
    """What the pauses table says by port and class of the plan: most headroom at XOFF; XOFFs by egress port."""

    headroom: np.ndarray
    xoffs: np.ndarray


def _pauses(run: Run, fabric: RunFabric) -> _Pauses:
    plan_classes = 0 if fabric.compiled is None else fabric.compiled.plan.class_count
    shape = (len(fabric.tier), max(plan_classes, 1))
    found = _Pauses(np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    classes = Names()
    for batch in run.batches("pauses", ("port", "class", "headroom_bytes", "egress_port")):
        if fabric.compiled is None or not len(batch):
            continue
        of_class = classes.numbers(batch.column("class"))
        class_id = _class_ids(fabric, classes)[of_class]
        port, egress = (fabric.ports.numbers(batch.column(name)) for name in ("port", "egress_port"))
        np.maximum.at(found.headroom, (port, class_id), integers(batch, "headroom_bytes"))
        known = egress != NONE
        np.add.at(found.xoffs, (egress[known], class_id[known]), 1)
    return found


def _headroom(fabric: RunFabric, seen: _Seen, pauses: _Pauses | None) -> pa.Table:
    assert fabric.compiled is not None
    plan, names = fabric.compiled.plan, fabric.compiled.class_names
    configured = plan.pq_headroom_bytes.reshape(plan.port_count, plan.class_count)
    used: np.ndarray | None = None if pauses is None else pauses.headroom
    if seen.headroom is not None:
        used = np.zeros_like(configured)
        ids = _class_ids(fabric, seen.classes)
        used[:, ids[ids >= 0]] = seen.headroom.reshape(plan.port_count, -1)[:, ids >= 0]
    exact = seen.headroom is not None
    sends = plan.pq_pfc_send.reshape(plan.port_count, plan.class_count)
    rows = []
    ports, classes = np.nonzero((configured > 0) & (plan.port_node >= plan.host_count)[:, None])
    for port, class_id in zip(ports.tolist(), classes.tolist(), strict=True):
        size = int(configured[port, class_id])
        most = None if used is None else int(used[port, class_id])
        rows.append(
            {
                "port": fabric.ports.names[port],
                "node": fabric.nodes[fabric.node[port]],
                "tier": fabric.tiers[fabric.tier[port]],
                "class": names[class_id],
                "configured_bytes": size,
                "used_bytes": most,
                # Headroom in use raises XOFF: without a pause none was used.
                "exact": None if most is None else exact or (most == 0 and bool(sends[port, class_id])),
                "unused_bytes": None if most is None else size - most,
            }
        )
    rows.sort(key=lambda row: (-(row["used_bytes"] or 0) / row["configured_bytes"], -(row["used_bytes"] or 0)))
    return pa.Table.from_pylist(rows, schema=HEADROOM)


def _switches(fabric: RunFabric, headroom: pa.Table) -> pa.Table:
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in headroom.to_pylist():
        groups.setdefault(row["node"], []).append(row)
    number = {name: at for at, name in enumerate(fabric.nodes)}
    rows = []
    for node, mine in groups.items():
        switch = number[node] - plan.host_count
        buffer_bytes = int(plan.switch_buffer_bytes[switch])
        configured = sum(row["configured_bytes"] for row in mine)
        known = all(row["used_bytes"] is not None for row in mine)
        used = sum(row["used_bytes"] for row in mine) if known else None
        rows.append(
            {
                "node": node,
                "buffer_bytes": buffer_bytes,
                "pool_bytes": int(plan.switch_pool_bytes[switch]),
                "configured_bytes": configured,
                "used_bytes": used,
                "unused_bytes": None if used is None else configured - used,
                "unused_share": None if used is None else (configured - used) / buffer_bytes,
                "exact": all(row["exact"] for row in mine) if known else None,
            }
        )
    rows.sort(key=lambda row: -(row["unused_bytes"] or 0))
    return pa.Table.from_pylist(rows, schema=SWITCHES)


def _thresholds(fabric: RunFabric, seen: _Seen, pauses: _Pauses | None) -> pa.Table:
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    width = len(seen.classes)
    most = seen.most.reshape(len(fabric.tier), width) if width else np.zeros((len(fabric.tier), 0), np.int64)
    ids = _class_ids(fabric, seen.classes)
    xoff = _xoff_bytes(fabric)
    rows = []
    ports, columns = np.nonzero((most > 0) & (ids >= 0) & (plan.port_node >= plan.host_count)[:, None])
    for port, column in zip(ports.tolist(), columns.tolist(), strict=True):
        class_id, length = int(ids[column]), int(most[port, column])
        place, queue = port * plan.class_count + class_id, port * width + column
        switch = int(plan.port_node[port]) - plan.host_count
        marks = int(plan.pq_kmin_bytes[place]) < NEVER_MARK_BYTES and bool(plan.pq_ecn[place])
        row: dict[str, Any] = {
            "port": fabric.ports.names[port],
            "node": fabric.nodes[fabric.node[port]],
            "tier": fabric.tiers[fabric.tier[port]],
            "class": seen.classes.names[column],
            "queue_max_bytes": length,
            "max_ps": int(seen.most_ps[queue]),
        }
        if marks:
            row["kmin_bytes"] = int(plan.pq_kmin_bytes[place])
            row["kmax_bytes"] = int(plan.pq_kmax_bytes[place])
            row["above_kmin"] = float(seen.above_kmin[queue] / seen.intervals)
            row["above_kmax"] = float(seen.above_kmax[queue] / seen.intervals)
        if plan.class_lossless[class_id]:
            least = int(xoff[switch, class_id])
            if least < 2**62:
                row["xoff_bytes"], row["of_xoff"] = least, length / max(least, 1)
            row["xoffs"] = None if pauses is None else int(pauses.xoffs[port, class_id])
        else:
            limit = int(plan.pq_egress_static_bytes[place])
            if limit == NONE:
                pool = int(plan.switch_pool_bytes[switch])
                limit = reached_bytes(pool, int(plan.pq_egress_alpha_q16[place]), 1)
            row["limit_bytes"], row["of_limit"] = limit, length / max(limit, 1)
        rows.append(row)
    rows.sort(key=lambda row: (-row.get("of_xoff", 0), -row.get("of_limit", 0), -row["queue_max_bytes"]))
    return pa.Table.from_pylist([{name: row.get(name) for name in THRESHOLDS.names} for row in rows], schema=THRESHOLDS)


def _xoff_bytes(fabric: RunFabric) -> np.ndarray:
    """(S, C) least bytes of one priority group that raise XOFF if it has the pool to itself; 2^62 where none can."""
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    found = np.full((plan.node_count - plan.host_count, plan.class_count), 2**62, dtype=np.int64)
    ports = np.flatnonzero((plan.port_node >= plan.host_count) & (plan.port_credit == 0))
    for class_id in range(plan.class_count):
        place = ports * plan.class_count + class_id
        switch = plan.port_node[ports] - plan.host_count
        dynamic = [
            reached_bytes(pool, alpha, 1)
            for pool, alpha in zip(
                plan.switch_pool_bytes[switch].tolist(), plan.pq_alpha_q16[place].tolist(), strict=True
            )
        ]
        static = plan.pq_static_bytes[place]
        reach = np.where(static == NONE, np.array(dynamic, dtype=np.int64), static) + plan.pq_reserved_bytes[place]
        np.minimum.at(found[:, class_id], switch, np.where(plan.pq_pfc_send[place] != 0, reach, 2**62))
    return found
