"""Balance: how evenly the links of each tier are loaded, and which queue pairs share an uplink while others idle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.batches import again, integers
from fabemu.analysis.fabric import RunFabric, run_fabric
from fabemu.analysis.fairness import jain
from fabemu.analysis.intervals import ragged, united
from fabemu.analysis.kernel import compiled
from fabemu.analysis.paths import data_paths
from fabemu.analysis.sampling import Samples, cells, lengths_ps
from fabemu.columns import described_schema
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.result import Run
from fabemu.trace import NONE

FULL = 0.95
"""Utilisation from which a port counts as full."""

ROWS = 1_000_000
"""Times of messages on uplinks in memory at a time; more only if one switch has more."""

SHOWN = 16
"""Queue pairs that a row of `Balance.collisions` names, at most."""


_TEXT, _INTEGER, _REAL = pa.string(), pa.int64(), pa.float64()

TIERS = described_schema(
    ("tier", _TEXT, "Tiers of the devices at both ends, in the direction of sending"),
    ("ports", _INTEGER, "Ports of this tier, idle ones included"),
    ("used", _INTEGER, "Of these, ports that sent anything"),
    ("bytes", _INTEGER, "Bytes of frames sent"),
    ("mean", _REAL, "Mean utilisation of a port over the run"),
    ("max", _REAL, "Greatest utilisation of a port over the run"),
    ("max_over_mean", _REAL, "max / mean: 1 if all are loaded alike"),
    ("jain", _REAL, "Jain index of the ports: 1 if all are loaded alike, 1 / ports if one carries everything"),
    ("jain_mean", _REAL, "Mean over intervals of the index in each, weighted by what was sent in it"),
    ("max_port", _TEXT, "The port with the greatest utilisation"),
)
INTERVALS = described_schema(
    ("start_ps", _INTEGER, "Start of the interval"),
    ("end_ps", _INTEGER, "Its end, or that of the run"),
    ("tier", _TEXT, "As in `tiers`"),
    ("mean", _REAL, "Mean utilisation of a port"),
    ("max", _REAL, "Greatest utilisation of a port"),
    ("jain", _REAL, "Jain index of the ports"),
)
UPLINKS = described_schema(
    ("node", _TEXT, "Switch"),
    ("tier", _TEXT, "Tier of the ports that it chooses among"),
    ("ports", _INTEGER, "How many they are"),
    ("mean", _REAL, "Utilisation of all of them together over the run"),
    ("needed_ps", _INTEGER, "Length of the intervals in which one of them at least was full or had a queue"),
    ("effective", _REAL, "Utilisation of all of them together in these intervals; null if there are none"),
    ("jain", _REAL, "Mean of the Jain index of them in these intervals, weighted by what was sent; null likewise"),
)
COLLISIONS = described_schema(
    ("port", _TEXT, "Uplink"),
    ("node", _TEXT, "Its switch"),
    ("tier", _TEXT, "As in `tiers`"),
    ("queue_pairs", _INTEGER, "Queue pairs with messages that were sent by it"),
    ("most", _INTEGER, "Most of them under way at a time"),
    ("most_ps", _INTEGER, "When that began"),
    ("together", pa.list_(pa.int32()), f"Which they were, at most {SHOWN}"),
    ("hosts", pa.list_(_TEXT), 'The same as "sender->receiver"'),
    ("idle", _INTEGER, "Other uplinks of the switch that no queue pair used then"),
    ("active_ps", _INTEGER, "Time with one queue pair at least"),
    ("shared_ps", _INTEGER, "Time with two at least"),
    ("avoidable_ps", _INTEGER, "Of it, time in which another uplink of the switch had none"),
    ("mean", _REAL, "Queue pairs under way, mean over active_ps"),
)


@dataclass(frozen=True, eq=False)
class Balance:
    """How evenly a run used its fabric.

    Attributes
    ----------
    tiers
        Table as in `TIERS`: load of the links of each tier over the run.
    intervals
        Table as in `INTERVALS`: the same for every sampling interval in which the tier sent anything.
    uplinks
        Table as in `UPLINKS`: use of the ports that a switch chooses among, while they were needed.
    collisions
        Table as in `COLLISIONS`: uplinks that queue pairs shared, the avoidable ones first. None if paths are not
        known.
    notes
        What else must be known: an interrupted run, missing tables, queue pairs that were left out.
    """

    tiers: pa.Table
    intervals: pa.Table
    uplinks: pa.Table
    collisions: pa.Table | None
    notes: tuple[str, ...]


def balance(run: Run, *, full: float = FULL, rows: int = ROWS) -> Balance:
    """How evenly links are loaded, tier by tier, and where the choices of switches collide.

    The Jain index of loads x is (sum x)^2 / (n sum x^2) (Jain, Chiu, Hawe, A quantitative measure of fairness, 1984).
    Queue pairs collide where they are under way by one port at the same time: from the first byte of a message to its
    last byte's arrival. Paths are those of the plan, with the hashes of the run and the routes that it began with;
    queue pairs that meet a switch that chooses by load, by flowlet or for every packet are left out.

    Parameters
    ----------
    run
        With a ports table for loads, a flows table for collisions; what is missing is left out, with a note.
    full
        Utilisation of an interval from which a port counts as full. A port that had a frame waiting on average was
        needed too.
    rows
        Times in memory at a time. The flows table is read once to count and once for every so many.

    Raises
    ------
    InputError
        The run was written by a newer fabemu.
    """
    fabric = run_fabric(run)
    notes = list(fabric.notes)
    tiers, intervals, uplinks = TIERS.empty_table(), INTERVALS.empty_table(), UPLINKS.empty_table()
    try:
        tiers, intervals, uplinks = _loads(run, fabric, full)
    except InputError as error:
        notes.append(f"loads are not known: {error}")
    collisions = None
    if fabric.compiled is not None:
        try:
            collisions = _collisions(run, fabric, rows, notes)
        except InputError as error:
            notes.append(f"collisions are not known: {error}")
    return Balance(tiers, intervals, uplinks, collisions, tuple(notes))


def _loads(run: Run, fabric: RunFabric, full: float) -> tuple[pa.Table, pa.Table, pa.Table]:
    ports, tiers, width = len(fabric.tier), len(fabric.tiers), max(len(fabric.tier), 1)
    busy_ps, carried = np.zeros(ports), np.zeros(ports, np.int64)
    nodes = len(fabric.nodes)
    needed_ps, used_bits, could_bits, even_bits = np.zeros(nodes, np.int64), *(np.zeros(nodes) for _ in range(3))
    rate = fabric.rate_bps.astype(np.float64)
    in_bundle = fabric.bundle >= 0
    bundle_rate = np.bincount(fabric.bundle[in_bundle], rate[in_bundle], minlength=nodes)
    bundle_ports = np.bincount(fabric.bundle[in_bundle], minlength=nodes)
    simulated_ps = run.info.get("simulated_ps")
    frame_bytes = 0 if fabric.compiled is None else fabric.compiled.plan.mtu_bytes
    found: list[np.ndarray] = []
    weighted, weight = np.zeros(tiers), np.zeros(tiers)
    end = 0
    columns = ("port", "bytes", "utilisation", "queue_mean_bytes", "queue_max_bytes")
    for piece in Samples(run.batches("ports", ("start_ps", "end_ps", *columns)), columns, fabric.ports):
        starts, interval = np.unique(piece["start_ps"], return_inverse=True)
        length = np.zeros(len(starts), np.int64)
        lived_ps = lengths_ps(piece["start_ps"], piece["end_ps"], simulated_ps)
        length[interval] = lived_ps
        end = max(end, int(piece["end_ps"].max()))
        # What an interval holds is spread over its whole length in the table.
        spread_ps = piece["end_ps"] - piece["start_ps"]
        stretch = np.where(lived_ps > 0, spread_ps / np.maximum(lived_ps, 1), 0.0)
        busy_ps += np.bincount(piece["port"], piece["utilisation"] * spread_ps, minlength=ports)
        # Classes of one port and interval are rows of their own.
        when, port, cell = cells(interval.reshape(-1), piece["port"], width)
        load = np.bincount(cell, piece["utilisation"] * stretch)
        # A queue that stays in a deadlock was counted to the end of the interval.
        queue = np.bincount(cell, np.minimum(piece["queue_mean_bytes"] * stretch, piece["queue_max_bytes"]))
        np.add.at(carried, piece["port"], piece["bytes"])
        row, tier, place = cells(when, fabric.tier[port], max(tiers, 1))
        total, squares = np.bincount(place, load), np.bincount(place, load * load)
        most = np.zeros(len(row))
        np.maximum.at(most, place, load)
        count = fabric.ports_of_tier[tier]
        index = jain(total, squares, count)
        sent = total > 0
        weighted += np.bincount(tier[sent], (index * total * length[row])[sent], minlength=tiers)
        weight += np.bincount(tier[sent], (total * length[row])[sent], minlength=tiers)
        found.append(
            np.stack([starts[row], starts[row] + length[row], tier, total / count, most, index], axis=1)[sent]
            if sent.any()
            else np.empty((0, 6))
        )
        chosen = fabric.bundle[port] >= 0
        row, node, place = cells(when[chosen], fabric.bundle[port[chosen]], max(nodes, 1))
        needs = np.zeros(len(row), np.bool_)
        np.logical_or.at(needs, place, (load[chosen] >= full) | (queue[chosen] >= max(frame_bytes, 1)))
        bits = np.bincount(place, load[chosen] * rate[port[chosen]], minlength=len(row)) * length[row]
        index = jain(
            np.bincount(place, load[chosen], minlength=len(row)),
            np.bincount(place, load[chosen] ** 2, minlength=len(row)),
            bundle_ports[node],
        )
        even_bits += np.bincount(node[needs], np.nan_to_num(index * bits)[needs], minlength=nodes)
        np.add.at(needed_ps, node[needs], length[row][needs])
        used_bits += np.bincount(node[needs], bits[needs], minlength=nodes)
        could_bits += np.bincount(node[needs], (bundle_rate[node] * length[row])[needs], minlength=nodes)
    span_ps = simulated_ps or max(end, 1)
    share = busy_ps / span_ps
    tables = _tier_rows(fabric, share, carried, weighted, weight), _interval_table(fabric, found)
    return (*tables, _uplink_table(fabric, share, needed_ps, used_bits, could_bits, even_bits))


def _tier_rows(
    fabric: RunFabric, share: np.ndarray, carried: np.ndarray, weighted: np.ndarray, weight: np.ndarray
) -> pa.Table:
    rows = []
    for number, name in enumerate(fabric.tiers):
        mine = np.flatnonzero(fabric.tier == number)
        load = share[mine]
        mean, most = float(load.mean()), int(mine[np.argmax(load)])
        used = int(np.count_nonzero(load))
        rows.append(
            {
                "tier": name,
                "ports": len(mine),
                "used": used,
                "bytes": int(carried[mine].sum()),
                "mean": mean,
                "max": float(share[most]),
                "max_over_mean": float(share[most]) / mean if mean > 0 else None,
                "jain": float(load.sum() ** 2 / (len(load) * (load * load).sum())) if used else None,
                "jain_mean": float(weighted[number] / weight[number]) if weight[number] > 0 else None,
                "max_port": fabric.ports.names[most] if used else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=TIERS)


def _interval_table(fabric: RunFabric, found: list[np.ndarray]) -> pa.Table:
    # Times are whole picoseconds below 2^53 in any run that a table of intervals can hold.
    rows = np.concatenate([np.empty((0, 6)), *found])
    tier = pa.DictionaryArray.from_arrays(pa.array(rows[:, 2].astype(np.int32)), pa.array(fabric.tiers, _TEXT))
    columns = [pa.array(rows[:, place].astype(np.int64)) for place in (0, 1)]
    columns += [tier.dictionary_decode(), *(pa.array(rows[:, place]) for place in (3, 4, 5))]
    return pa.Table.from_arrays(columns, schema=INTERVALS)


def _uplink_table(
    fabric: RunFabric,
    share: np.ndarray,
    needed_ps: np.ndarray,
    used_bits: np.ndarray,
    could_bits: np.ndarray,
    even_bits: np.ndarray,
) -> pa.Table:
    rows = []
    for node in np.unique(fabric.bundle[fabric.bundle >= 0]).tolist():
        mine = np.flatnonzero(fabric.bundle == node)
        rate = fabric.rate_bps[mine].astype(np.float64)
        rows.append(
            {
                "node": fabric.nodes[node],
                "tier": ", ".join(dict.fromkeys(fabric.tiers[tier] for tier in fabric.tier[mine].tolist())),
                "ports": len(mine),
                "mean": float((share[mine] * rate).sum() / rate.sum()),
                "needed_ps": int(needed_ps[node]),
                "effective": float(used_bits[node] / could_bits[node]) if needed_ps[node] else None,
                "jain": float(even_bits[node] / used_bits[node]) if used_bits[node] > 0 else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=UPLINKS)


# Collisions.

_COLUMNS = ("qp", "first_sent_ps", "receiver_done_ps")


def _collisions(run: Run, fabric: RunFabric, most_rows: int, notes: list[str]) -> pa.Table:
    assert fabric.compiled is not None
    plan = fabric.compiled.plan
    paths = data_paths(plan)
    unknown = int(np.count_nonzero(~paths.known))
    if unknown:
        notes.append(
            f"{unknown:,} of {plan.qp_count:,} queue pairs are in no collision here: their packets meet switches that "
            "choose by load, by flowlet or for every packet"
        )
    if plan.route_epochs > 1:
        notes.append("paths are those of the routes that the run began with; a fault changed them later")
    # Uplinks of every queue pair, one behind the other.
    uses = (paths.port >= 0) & paths.known[:, None]
    uses[uses] = fabric.bundle[paths.port[uses]] >= 0
    size = uses.sum(axis=1)
    first, uplink = np.cumsum(size) - size, paths.port[uses].astype(np.int64)
    flows = again(run.batches("flows", _COLUMNS), _COLUMNS)
    per_node = np.zeros(plan.node_count, np.int64)
    for batch in flows:
        qp, _, _ = _under_way(batch, 0)
        count = np.bincount(qp, minlength=plan.qp_count)
        place, of_qp = ragged(first, size)
        per_node += np.bincount(fabric.bundle[uplink[place]], count[of_qp], minlength=plan.node_count).astype(np.int64)
    switches = np.flatnonzero(per_node)
    group = np.cumsum(per_node[switches]) // max(most_rows, 1)
    end_ps = int(run.info.get("simulated_ps") or np.iinfo(np.int64).max)
    result: list[dict[str, Any]] = []
    for number in np.unique(group).tolist():
        chosen = np.zeros(plan.node_count, np.bool_)
        chosen[switches[group == number]] = True
        ports, qps, starts, ends = [], [], [], []
        for batch in flows:
            qp, start, end = _under_way(batch, end_ps)
            place, row = ragged(first[qp], size[qp])
            port = uplink[place]
            mine = chosen[fabric.bundle[port]]
            ports.append(port[mine])
            qps.append(qp[row[mine]])
            starts.append(start[row[mine]])
            ends.append(end[row[mine]])
        columns = [np.concatenate(parts) for parts in (ports, qps, starts, ends)]
        result += _shared(fabric, paths, *columns)
    result.sort(key=lambda item: (-item["avoidable_ps"], -item["shared_ps"], item["port"]))
    return pa.Table.from_pylist(result, schema=COLLISIONS)


def _under_way(batch: pa.RecordBatch, end_ps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queue pair, start and end of messages in the fabric."""
    qp, start = integers(batch, "qp"), integers(batch, "first_sent_ps")
    end = integers(batch, "receiver_done_ps", end_ps)
    mine = (qp != NONE) & (start != NONE)
    return qp[mine], start[mine], np.maximum(end[mine], start[mine])


def _shared(
    fabric: RunFabric, paths: Any, port: np.ndarray, qp: np.ndarray, start: np.ndarray, end: np.ndarray
) -> list[dict[str, Any]]:
    """Rows of the uplinks that queue pairs shared, of some switches."""
    count = len(paths.known)
    # Messages of one queue pair follow each other: together they are one user of the port.
    key, start, end = united(port * count + qp, start, end)
    port, qp = key // count, key % count
    used, place = np.unique(port, return_inverse=True)
    place = place.reshape(-1)
    bundle = fabric.bundle[used]
    size = np.bincount(fabric.bundle[fabric.bundle >= 0], minlength=len(fabric.nodes))
    time_ps = np.concatenate([start, end])
    change = np.repeat([1, -1], len(start))
    both = np.concatenate([place, place])
    order = np.lexsort((time_ps, bundle[both]))
    first = np.searchsorted(bundle, bundle)
    figures = _sweep(
        time_ps[order], change[order], both[order], bundle[both[order]], first, bundle, size[bundle], len(used)
    )
    found = []
    names = fabric.nodes
    # In order of ports: each has its users in one piece.
    begin = np.searchsorted(place, np.arange(len(used) + 1))
    for index in np.flatnonzero(figures[:, 0] >= 2).tolist():
        most, most_ps, idle, active_ps, shared_ps, avoidable_ps, sum_ps = figures[index].tolist()
        mine = slice(begin[index], begin[index + 1])
        there = np.sort(qp[mine][(start[mine] <= most_ps) & (most_ps < end[mine])])[:SHOWN]
        hosts = zip(paths.sender[there].tolist(), paths.receiver[there].tolist(), strict=True)
        number = int(used[index])
        found.append(
            {
                "port": fabric.ports.names[number],
                "node": fabric.nodes[fabric.node[number]],
                "tier": fabric.tiers[fabric.tier[number]],
                "queue_pairs": len(np.unique(qp[mine])),
                "most": most,
                "most_ps": most_ps,
                "together": there.tolist(),
                "hosts": [f"{names[near]}->{names[far]}" for near, far in hosts],
                "idle": idle,
                "active_ps": active_ps,
                "shared_ps": shared_ps,
                "avoidable_ps": avoidable_ps,
                "mean": sum_ps / active_ps if active_ps else None,
            }
        )
    return found


@compiled
def _sweep(time_ps, change, place, bundle, first, bundle_of, size, ports):  # type: ignore[no-untyped-def]
    """(ports, 7): most, when, idle then, active, shared, avoidable, sum over time of the users of each port.

    Changes come in order of bundle and time; ports of a bundle are neighbours, `first` is the first of them.
    """
    found = np.zeros((ports, 7), np.int64)
    users = np.zeros(ports, np.int64)
    used = 0  # ports of the bundle with users
    for index in range(len(time_ps)):
        here = place[index]
        if index == 0 or bundle[index] != bundle[index - 1]:
            used = 0
        else:
            passed = time_ps[index] - time_ps[index - 1]
            other = first[here]
            while passed > 0 and other < ports and bundle_of[other] == bundle[index]:
                if users[other] > 0:
                    found[other, 3] += passed
                    found[other, 6] += passed * users[other]
                if users[other] > 1:
                    found[other, 4] += passed
                    if used < size[other]:
                        found[other, 5] += passed
                other += 1
        before = users[here]
        users[here] += change[index]
        if change[index] > 0 and before == 0:
            used += 1
        elif change[index] < 0 and before == 1:
            used -= 1
        # Others may come at the same instant, and make more of them at the same time, or fewer idle.
        last = index + 1 == len(time_ps) or bundle[index + 1] != bundle[index] or time_ps[index + 1] != time_ps[index]
        if last:
            other = first[here]
            while other < ports and bundle_of[other] == bundle[index]:
                if users[other] > found[other, 0]:
                    found[other, 0] = users[other]
                    found[other, 1] = time_ps[index]
                    found[other, 2] = size[other] - used
                other += 1
    return found
