"""Stragglers of collectives: which rank was last, by how much, and what made it so.

From the tables alone: a message is taken to have waited for the last one of its collective that had come to its sender
when it was posted. Going back from the last message in this way gives a chain whose parts add up to the time of the
collective exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.batches import Names, again, integers
from fabemu.analysis.kernel import compiled
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.result import Run
from fabemu.trace import NONE
from fabemu.units import round_time

ROWS = 1_000_000
"""Messages in memory at a time; more only if one collective has more."""

WHYS = (
    "retransmission",
    "paused",
    "rate reduction",
    "shared links",
    "computing",
    "late start",
    "none",
    "unfinished",
    "unknown",
)
"""What can have made a rank last; see `stragglers`."""

_EVEN = 0.02  # share of a collective's time from which a delay is worth a word
_COLUMNS = (
    "op",
    "label",
    "job",
    "collective",
    "src",
    "dst",
    "class",
    "verb",
    "posted_ps",
    "first_sent_ps",
    "receiver_done_ps",
    "ideal_ps",
    "retransmissions",
    "cnps",
    "marks",
)

_TEXT, _INTEGER = pa.string(), pa.int64()
SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"meaning": meaning})
        for name, kind, meaning in (
            ("collective", _INTEGER, "Its number, as in the flows table"),
            ("label", _TEXT, "Label of its workload"),
            ("job", _TEXT, "Job that the workload belongs to"),
            ("operation", _TEXT, "all-reduce, all-gather, ..."),
            ("ranks", _INTEGER, "Hosts that receive messages of it"),
            ("host", _TEXT, "Host that had its last message last; of an unfinished one, the one that waits for `flow`"),
            ("flow", _INTEGER, "That message; of an unfinished one, the first posted of those that did not come"),
            ("start_ps", _INTEGER, "The collective began"),
            ("end_ps", _INTEGER, "It ended"),
            ("time_ps", _INTEGER, "end_ps - start_ps"),
            ("later_ps", _INTEGER, "Last message of the slowest rank after that of the median rank"),
            ("later_posted_ps", _INTEGER, "Of it: the message was posted later"),
            ("later_unsent_ps", _INTEGER, "Of it: it waited longer at its sender before its first byte left"),
            ("later_network_ps", _INTEGER, "Of it: it took longer from its first byte to its last"),
            ("chain", _INTEGER, "Messages of the chain that ends with `flow`"),
            ("chain_start_ps", _INTEGER, "From the start of the collective until the first of them was posted"),
            ("chain_ideal_ps", _INTEGER, "Their completion times on an empty network"),
            ("chain_excess_ps", _INTEGER, "What they took beyond that"),
            ("chain_gap_ps", _INTEGER, "Between the arrival of one and the posting of the next: computing, mostly"),
            ("chain_after_ps", _INTEGER, "From the arrival of `flow` to the end of the collective"),
            ("slow_flow", _INTEGER, "Message of the chain with the greatest excess"),
            ("slow_src", _TEXT, "Its sender"),
            ("slow_dst", _TEXT, "Its receiver"),
            ("slow_excess_ps", _INTEGER, "Its excess"),
            ("slow_paused_ps", _INTEGER, "Time for which its sender was paused meanwhile; null without a pauses table"),
            ("slow_retransmissions", _INTEGER, "Its packets that were sent again"),
            ("slow_cnps", _INTEGER, "Congestion notifications that its sender received for it"),
            ("slow_marks", _INTEGER, "Its packets that arrived with a mark"),
            ("why", _TEXT, "One of WHYS: the greatest part of what was not ideal"),
            ("sentence", _TEXT, "The same in words"),
        )
    ]
)
"""Columns of what `stragglers` gives."""


def stragglers(run: Run, *, rows: int = ROWS) -> pa.Table:
    """The slowest rank of every collective, and why it was.

    `why` is what the greatest part of the chain was lost to. Messages slower than on an empty network, by the one with
    the greatest excess: ``retransmission`` if packets of it were sent again, ``paused`` if its sender was for at least
    half of the excess, ``rate reduction`` if its sender received CNPs, else ``shared links``. Between messages:
    ``computing``. Before the first one: ``late start``. ``none`` if all this is below 2 % of the time.

    Parameters
    ----------
    run
        With a flows table; collectives and pauses tables say more.
    rows
        Messages held in memory at a time. The flows table is read once to count and once for every so many.

    Returns
    -------
    pa.Table
        As in `SCHEMA`, one row per collective in order of their numbers; empty if there are none. Times of an
        unfinished collective are null.

    Raises
    ------
    InputError
        The run has neither a flows nor a collectives table.
    """
    known = _collectives(run)
    if "flows" not in run.tables:
        if not known:
            raise InputError(
                f"{run.directory}: has neither a flows nor a collectives table; run it with [trace] tables"
            )
        return _table([_without_flows(row) for row in known.values()])
    flows = again(run.batches("flows", _COLUMNS), (), _COLUMNS)
    counts = np.zeros(0, np.int64)
    for batch in flows:
        if "collective" not in batch.schema.names:
            return SCHEMA.empty_table()
        found = integers(batch, "collective")
        part = np.bincount(found[found >= 0])
        longer, shorter = (part, counts) if len(part) > len(counts) else (counts, part)
        longer[: len(shorter)] += shorter
        counts = longer
    members = np.flatnonzero(counts)
    group = np.cumsum(counts[members]) // max(rows, 1)
    result: list[dict[str, Any]] = []
    for number in np.unique(group).tolist():
        chosen = members[group == number]
        messages = _Messages.of(flows, chosen, int(counts[chosen].sum()))
        result += _rows(messages, chosen, known)
    if "pauses" in run.tables:
        _add_pauses(run, result)
    for row in result:
        row["why"], row["sentence"] = _why(row)
    return _table(result)


@dataclass(frozen=True)
class _Messages:
    """Messages of some collectives, in order of collective, receiver and arrival; what did not arrive comes last."""

    columns: dict[str, np.ndarray]
    hosts: list[str]
    classes: list[str]
    labels: list[str]
    jobs: list[str]

    @classmethod
    def of(cls, flows: Any, chosen: np.ndarray, count: int) -> _Messages:
        names = {name: Names() for name in ("host", "class", "label", "job", "verb")}
        numbers = {name: np.empty(count, np.int64) for name in _COLUMNS}
        filled = 0
        for batch in flows:
            collective = integers(batch, "collective")
            mine = np.flatnonzero(np.isin(collective, chosen))
            if not len(mine):
                continue
            part = slice(filled, filled + len(mine))
            for name in _COLUMNS:
                kind = {"src": "host", "dst": "host"}.get(name, name)
                if name not in batch.schema.names:
                    numbers[name][part] = NONE
                elif kind in names:
                    numbers[name][part] = names[kind].numbers(batch.column(name))[mine]
                else:
                    numbers[name][part] = integers(batch, name)[mine]
            filled += len(mine)
        reads = numbers.pop("verb") == (names["verb"].number("read"))
        src, dst = numbers.pop("src"), numbers.pop("dst")
        numbers["sender"], numbers["receiver"] = np.where(reads, dst, src), np.where(reads, src, dst)
        # A message inside a node has no packets, and so no first one.
        unsent = numbers["first_sent_ps"] == NONE
        numbers["first_sent_ps"][unsent] = numbers["posted_ps"][unsent]
        done = numbers["receiver_done_ps"]
        done[done == NONE] = np.iinfo(np.int64).max
        order = np.lexsort((numbers["op"], done, numbers["receiver"], numbers["collective"]))
        for name in list(numbers):  # one after the other: the unsorted one is let go
            numbers[name] = numbers[name][order]
        return cls(
            numbers,
            names["host"].names,
            names["class"].names,
            names["label"].names,
            names["job"].names,
        )


def _rows(messages: _Messages, chosen: np.ndarray, known: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
    column = messages.columns
    collective, receiver, done = column["collective"], column["receiver"], column["receiver_done_ps"]
    hosts = max(len(messages.hosts), 1)
    key = collective * hosts + receiver
    # One segment for every rank; its last message is when it was done.
    first = np.flatnonzero(np.diff(key, prepend=-1))
    last = np.append(first[1:], len(key)) - 1
    segment = np.searchsorted(key[first], collective * hosts + column["sender"])
    segment[segment == len(first)] = 0
    segment[key[first][segment] != collective * hosts + column["sender"]] = NONE
    bounds = np.searchsorted(collective[first], np.append(chosen, chosen[-1] + 1))
    result, ends = [], []
    for number, begin, end in zip(chosen.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = slice(first[begin], last[end - 1] + 1)
        ranks = last[begin:end]
        ranks = ranks[np.lexsort((column["op"][ranks], done[ranks]))]
        row = _identity(messages, int(first[begin]), number, known.get(number, {}))
        row["ranks"] = len(ranks)
        result.append(row)
        if done[ranks[-1]] == np.iinfo(np.int64).max:
            ends.append(NONE)
            _add_open(row, messages, np.arange(rows.start, rows.stop))
            continue
        slow, median = int(ranks[-1]), int(ranks[(len(ranks) - 1) // 2])
        ends.append(slow)
        posted = column["posted_ps"]
        if row["start_ps"] is None:
            row["start_ps"] = int(posted[rows].min())
        if row["end_ps"] is None:
            row["end_ps"] = int(done[slow])
        row["time_ps"] = row["end_ps"] - row["start_ps"]
        row["host"], row["flow"] = messages.hosts[receiver[slow]], int(column["op"][slow])
        row["later_ps"] = int(done[slow] - done[median])
        sent = column["first_sent_ps"]
        row["later_posted_ps"] = int(posted[slow] - posted[median])
        row["later_unsent_ps"] = int(sent[slow] - posted[slow] - (sent[median] - posted[median]))
        row["later_network_ps"] = int(done[slow] - sent[slow] - (done[median] - sent[median]))
    ideal = np.where(column["ideal_ps"] == NONE, done - column["posted_ps"], column["ideal_ps"])
    chains = _chains(np.array(ends, dtype=np.int64), segment, first, last, done, column["posted_ps"], ideal)
    for row, end, (count, ideal_ps, excess_ps, gap_ps, begun_ps, worst) in zip(
        result, ends, chains.tolist(), strict=True
    ):
        if end == NONE:
            continue
        row["chain"], row["chain_ideal_ps"], row["chain_excess_ps"] = count, ideal_ps, excess_ps
        row["chain_gap_ps"], row["chain_start_ps"] = gap_ps, begun_ps - row["start_ps"]
        row["chain_after_ps"] = row["end_ps"] - int(done[end])
        _add_slow(row, messages, worst, int(done[worst] - column["posted_ps"][worst] - ideal[worst]))
    return result


@compiled
def _chains(ends, segment, first, last, done, posted, ideal):  # type: ignore[no-untyped-def]
    """(n, 6) of each chain: messages, ideal, excess, gaps, when the first was posted, row with the greatest excess."""
    found = np.zeros((len(ends), 6), np.int64)
    for number in range(len(ends)):
        row = ends[number]
        if row < 0:
            continue
        worst = row
        # No chain is longer than there are messages, even if some take no time.
        for _ in range(len(done)):
            excess = done[row] - posted[row] - ideal[row]
            found[number, 0] += 1
            found[number, 1] += ideal[row]
            found[number, 2] += excess
            found[number, 4] = posted[row]
            if excess > done[worst] - posted[worst] - ideal[worst]:
                worst = row
            place = segment[row]
            if place < 0 or done[first[place]] > posted[row]:
                break
            low, high = first[place], last[place] + 1
            while high - low > 1:
                middle = (low + high) // 2
                if done[middle] <= posted[row]:
                    low = middle
                else:
                    high = middle
            if posted[low] >= posted[row]:
                break
            found[number, 3] += posted[row] - done[low]
            row = low
        found[number, 5] = worst
    return found


def _collectives(run: Run) -> dict[int, dict[str, Any]]:
    """Rows of the collectives table by their numbers."""
    if "collectives" not in run.tables:
        return {}
    wanted = ("collective", "label", "job", "operation", "start_ps", "end_ps", "time_ps", "last_host", "last_flow")
    try:
        return {row["collective"]: row for batch in run.batches("collectives", wanted) for row in batch.to_pylist()}
    except InputError:
        return {}  # cut off before its first row


def _identity(messages: _Messages, row: int, number: int, known: Mapping[str, Any]) -> dict[str, Any]:
    column = messages.columns
    job = int(column["job"][row])
    return {
        "collective": number,
        "label": messages.labels[column["label"][row]],
        "job": messages.jobs[job] if job >= 0 else None,
        "operation": known.get("operation"),
        "start_ps": known.get("start_ps"),
        "end_ps": known.get("end_ps"),
    }


def _add_open(row: dict[str, Any], messages: _Messages, members: np.ndarray) -> None:
    """What an unfinished collective waits for: the first posted of the messages that did not come."""
    column = messages.columns
    missing = members[column["receiver_done_ps"][members] == np.iinfo(np.int64).max]
    posted = column["posted_ps"][missing]
    row["end_ps"] = None
    row["_missing"], row["_waiting"] = len(missing), int(np.count_nonzero(posted == NONE))
    if row["_waiting"] == len(missing):
        return
    there = missing[posted != NONE]
    first = int(there[np.lexsort((column["op"][there], column["posted_ps"][there]))[0]])
    row["host"], row["flow"] = messages.hosts[column["receiver"][first]], int(column["op"][first])
    _add_slow(row, messages, first, None)


def _add_slow(row: dict[str, Any], messages: _Messages, worst: int, excess_ps: int | None) -> None:
    column = messages.columns
    row["slow_flow"], row["slow_excess_ps"] = int(column["op"][worst]), excess_ps
    row["slow_src"] = messages.hosts[column["sender"][worst]]
    row["slow_dst"] = messages.hosts[column["receiver"][worst]]
    for name in ("retransmissions", "cnps", "marks"):
        row[f"slow_{name}"] = int(column[name][worst])
    class_id = int(column["class"][worst])
    row["_class"] = messages.classes[class_id] if class_id >= 0 else None
    row["_posted_ps"], row["_done_ps"] = int(column["posted_ps"][worst]), int(column["receiver_done_ps"][worst])


def _add_pauses(run: Run, rows: list[dict[str, Any]]) -> None:
    """For how long the sender of each slow message was paused while it was under way."""
    places: dict[tuple[str, str | None], int] = {}
    chosen = [row for row in rows if row.get("slow_flow") is not None]
    place = np.array([places.setdefault((row["slow_src"], row["_class"]), len(places)) for row in chosen], np.int64)
    posted = np.array([row["_posted_ps"] for row in chosen], np.int64)
    done = np.array([row["_done_ps"] for row in chosen], np.int64)
    order = np.lexsort((posted, place))
    place, posted, done = place[order], posted[order], done[order]
    first = np.searchsorted(place, np.arange(len(places) + 1))
    # The latest end so far, so that a look back knows where to stop.
    reach = done.copy()
    for begin, end in pairwise(first):
        np.maximum.accumulate(reach[begin:end], out=reach[begin:end])
    paused = np.zeros(len(order), np.int64)
    nodes, classes = Names(), Names()
    run_end = run.info.get("simulated_ps") or np.iinfo(np.int64).max
    try:
        for batch in run.batches("pauses", ("start_ps", "end_ps", "paused_node", "class")):
            node, class_id = nodes.numbers(batch.column("paused_node")), classes.numbers(batch.column("class"))
            table = np.array(
                [[places.get((name, of_class), NONE) for of_class in classes.names] for name in nodes.names], np.int64
            ).reshape(len(nodes), len(classes))
            where = table[node, class_id]
            start, end = integers(batch, "start_ps"), integers(batch, "end_ps", run_end)
            mine = (where != NONE) & (start != NONE)
            _overlaps(where[mine], start[mine], end[mine], first, posted, done, reach, paused)
    except InputError:
        return
    for index, target in enumerate(order.tolist()):
        chosen[target]["slow_paused_ps"] = min(int(paused[index]), int(done[index] - posted[index]))


@compiled
def _overlaps(where, start, end, first, posted, done, reach, paused):  # type: ignore[no-untyped-def]
    for pause in range(len(where)):
        low, high = first[where[pause]], first[where[pause] + 1]
        row = low + np.searchsorted(posted[low:high], end[pause]) - 1
        while row >= low and reach[row] > start[pause]:
            shared = min(done[row], end[pause]) - max(posted[row], start[pause])
            if shared > 0:
                paused[row] += shared
            row -= 1


def _why(row: Mapping[str, Any]) -> tuple[str, str]:
    """Cause and sentence."""
    name = f"{row['operation'] or 'collective'} {row['collective']} of {row['label']}"
    if "_missing" in row:
        text = f"{name} is not done: {row['_missing']:,} of its messages did not come"
        if row.get("flow") is None:
            return "unfinished", f"{text}; none of these was posted"
        text += f", first {row['flow']} from {row['slow_src']} to {row['slow_dst']}"
        return "unfinished", f"{text}; {row['_waiting']:,} were never posted" if row["_waiting"] else text
    time_ps = row["time_ps"]
    parts = {
        "network": row["chain_excess_ps"],
        "computing": row["chain_gap_ps"] + row["chain_after_ps"],
        "late start": row["chain_start_ps"],
    }
    cause = max(parts, key=lambda part: parts[part])
    ranks = counted(row["ranks"], "rank")
    last = f"{name}: {row['host']} was last, {round_time(row['later_ps'])} after the median of {ranks}"
    amount = f"{round_time(max(parts[cause], 0))} of {round_time(time_ps)}"
    chain = f"a chain of {counted(row['chain'], 'message')}"
    if parts[cause] <= _EVEN * time_ps:
        return "none", f"{last}; {chain} took about its ideal time"
    if cause == "computing":
        return cause, f"{last}; {amount} went to computing between the messages of {chain}"
    if cause == "late start":
        return cause, f"{last}; {amount} passed before the first of {chain} was posted"
    text = (
        f"{last}; {amount} went to the network along {chain}, most of it ({round_time(row['slow_excess_ps'])}) to "
        f"message {row['slow_flow']} from {row['slow_src']} to {row['slow_dst']}"
    )
    if row["slow_retransmissions"]:
        again = row["slow_retransmissions"]
        were = "was" if again == 1 else "were"
        return "retransmission", f"{text}, of which {counted(again, 'packet')} {were} sent again"
    if row.get("slow_paused_ps") and row["slow_paused_ps"] >= row["slow_excess_ps"] / 2:
        return "paused", f"{text}, whose sender was paused for {round_time(row['slow_paused_ps'])}"
    if row["slow_cnps"]:
        return "rate reduction", f"{text}, whose sender received {row['slow_cnps']:,} CNPs"
    return "shared links", f"{text}, which waited for others on its way"


def _without_flows(known: Mapping[str, Any]) -> dict[str, Any]:
    row = {
        name: known.get(name) for name in ("collective", "label", "job", "operation", "start_ps", "end_ps", "time_ps")
    }
    row |= {"host": known.get("last_host"), "flow": known.get("last_flow"), "why": "unknown"}
    row["sentence"] = "the run has no flows table, which says why"
    return row


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    names = SCHEMA.names
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], schema=SCHEMA)
