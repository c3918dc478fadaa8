"""Health checks of a run, as an operator's monitor would raise them, and the incidents that they belong to.

Each check looks at one thing (`fabemu.analysis.alarms` says which, and from when on it counts) and gives alerts with
the ports and workloads that they are about. Alerts of one root are one incident. Roots are, in this order: deadlocks;
links that went down; storms of pauses, by root port and class, those with most paused time first. A storm that shares
a port with the cycle of a deadlock belongs to it, and one whose root was itself paused by a larger storm belongs to
that. Any other alert belongs to the first root that it shares a port with and that had begun before the alert was
over; or else a workload, one that made a storm or was held up by it. What belongs to no root stands alone;
uneven uplinks of several switches are one incident then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fabemu.analysis import fct
from fabemu.analysis.alarms import ALARMS, DEFAULTS, SEVERITIES, Alert, Incident, Severity, Thresholds
from fabemu.analysis.balance import balance
from fabemu.analysis.buffers import buffers
from fabemu.analysis.paths import data_paths
from fabemu.analysis.pauses import lengths_ps
from fabemu.analysis.storms import Storm, storms
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.plan import CC_FIXED, CC_NONE
from fabemu.recorded.source import Source
from fabemu.trace import NONE, dictionary_column, integer_column, table_path, unreadable
from fabemu.units import round_time

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.result import Run

STORMS_MAX = 100
"""Storms that are looked at, those with most paused time."""

ALERTS_MAX = 200
"""Alerts of one kind that are given each by itself; of more, the notes say how many."""

PAIRS_MAX = 20
"""Queue pairs in error that an alert names."""

_NEEDED = {
    "flows": ("FH104", "FH201", "FH402", "FH503"),
    "ports": ("FH105", "FH106", "FH401"),
    "pauses": ("FH101", "FH102", "FH103", "FH104", "FH105"),
    "drops": ("FH301", "FH302", "FH303"),
    "events": ("FH107", "FH501", "FH502", "FH504"),
}
"""Codes that say nothing for sure without all rows of a table."""

_ROOTS = ("FH501", "FH504", "FH102", "FH103", "FH101")
_LOSSES = ("FH107", "FH301", "FH302", "FH502")
_NO_ROOM = ("headroom_full", "shared_full", "egress_full", "receiver_full")
_LOST = ("link_down", "corrupt", "no_route")


@dataclass(frozen=True)
class Health:
    """What a run was found to suffer from.

    Attributes
    ----------
    incidents
        Most severe first, then in order of time.
    notes
        What could not be checked, and why.
    unchecked
        Codes of the alarms that could not be looked for.
    damaged
        Tables that cannot be read to their end, of a run that came to its own.
    """

    incidents: tuple[Incident, ...]
    notes: tuple[str, ...]
    unchecked: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """An alert with what it is about."""

    alert: Alert
    ports: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()  # workloads that belong to it
    weight: int = 0  # of a root: the larger one explains more


def check(run: Run, thresholds: Thresholds = DEFAULTS) -> list[Incident]:
    """Incidents of a run, most severe first; see `examine`."""
    return list(examine(run, thresholds).incidents)


def examine(run: Run, thresholds: Thresholds = DEFAULTS) -> Health:
    """Look through a run for what an operator would be alerted to.

    Parameters
    ----------
    run
        Finished or not; tables that it lacks are noted, and the checks that need them left out.
    thresholds
        From when on something is worth an alert.
    """
    looked = _Examination(run, thresholds)
    found: list[_Found] = []
    checks: tuple[tuple[Callable[[], Iterable[_Found]], tuple[str, ...]], ...] = (
        (looked.deadlocks, ("FH501",)),
        (looked.links, ("FH504",)),
        (looked.storms, ("FH101", "FH102", "FH103")),
        (looked.victims, ("FH104",)),
        (looked.unmarked, ("FH105",)),
        (looked.headroom, ("FH106",)),
        (looked.watchdog, ("FH107",)),
        (looked.marks, ("FH201",)),
        (looked.drops, ("FH301", "FH302", "FH303")),
        (looked.uplinks, ("FH401",)),
        (looked.tails, ("FH402",)),
        (looked.errors, ("FH502",)),
        (looked.unfinished, ("FH503",)),
    )
    for look, codes in checks:
        found += looked.some(look, codes)
    looked.note_damage()
    if looked.is_cut and not found:
        # What is missing may be what it suffered from.
        looked.unchecked |= {code for _, codes in checks for code in codes}
    notes, unchecked = tuple(dict.fromkeys(looked.notes)), tuple(sorted(looked.unchecked))
    return Health(tuple(_joined(found)), notes, unchecked, tuple(looked.damaged))


def _joined(found: list[_Found]) -> Iterator[Incident]:
    """Alerts as incidents, most severe first."""
    roots = [item for item in found if item.alert.code in _ROOTS]
    roots.sort(key=lambda item: (_ROOTS.index(item.alert.code) if item.alert.code in _ROOTS[:2] else 2, -item.weight))
    members: dict[int, list[_Found]] = {index: [] for index in range(len(roots))}
    taken: set[int] = set()
    reach = [(item.ports, item.labels) for item in roots]
    for index, root in enumerate(roots):
        for other, storm in enumerate(roots):
            if other <= index or other in taken or index in taken or storm.alert.code not in _ROOTS[2:]:
                continue
            if root.alert.code == "FH501":
                belongs = bool(storm.ports & root.ports)
            else:  # of storms: the smaller one may have begun first, and been paused later
                belongs = root.alert.code in _ROOTS[2:] and storm.alert.code == "FH101"
                belongs &= storm.alert.where in root.ports and _meet(storm.alert, root.alert)
            if belongs:
                taken.add(other)
                members[index].append(storm)
                reach[index] = (reach[index][0] | storm.ports, reach[index][1] | storm.labels)
    alone: list[_Found] = []
    for item in found:
        if item.alert.code in _ROOTS:
            continue
        place = _place(item, roots, reach, taken)
        if place is None:
            alone.append(item)
        else:
            members[place].append(item)
    incidents = [
        Incident(root.alert, tuple(item.alert for item in sorted(members[index], key=_order)))
        for index, root in enumerate(roots)
        if index not in taken
    ]
    incidents += _alone(alone)
    yield from sorted(
        incidents, key=lambda item: (SEVERITIES.index(item.severity), item.root.since_ps or 0, item.root.code)
    )


def _alone(found: list[_Found]) -> Iterator[Incident]:
    """Alerts without a root: those that share a port with losses or errors belong to these.

    Uneven uplinks are of one traffic and one way of choosing, wherever they are: one incident, the worst switch first.
    """
    groups: list[tuple[_Found, list[_Found]]] = []
    for item in sorted(found, key=lambda item: (item.alert.code not in _LOSSES, *_order(item))):
        for root, others in groups:
            caused = root.alert.code in _LOSSES and root.ports & item.ports and item.alert.code not in _LOSSES
            if caused or root.alert.code == item.alert.code == "FH401":
                others.append(item)
                break
        else:
            groups.append((item, []))
    for root, others in groups:
        yield Incident(root.alert, tuple(item.alert for item in others))


def _order(item: _Found) -> tuple[int, str, float, str]:
    alert = item.alert
    return SEVERITIES.index(alert.severity), alert.code, alert.figures.get("effective", 0.0), alert.where


def _place(
    item: _Found, roots: list[_Found], reach: list[tuple[frozenset[str], frozenset[str]]], taken: set[int]
) -> int | None:
    """The root that an alert belongs to: by its ports, else by its workloads."""
    for shared in (lambda index: reach[index][0] & item.ports, lambda index: reach[index][1] & item.labels):
        for index, root in enumerate(roots):
            if index not in taken and shared(index) and _meet(item.alert, root.alert):
                return index
    return None


def _meet(alert: Alert, root: Alert) -> bool:
    """Whether an alert was not over before its root began."""
    return alert.until_ps is None or root.since_ps is None or alert.until_ps >= root.since_ps


class _Examination:
    """One run and what is known of it."""

    def __init__(self, run: Run, thresholds: Thresholds) -> None:
        self._run, self._thresholds = run, thresholds
        self._source = Source(run.directory, run.info)
        self.notes: list[str] = [self._source.partial] if self._source.partial else []
        self.unchecked: set[str] = set()
        self.damaged: list[str] = []
        self._ended_by = run.info.get("ended_by")

    def some(self, look: Callable[[], Iterable[_Found]], codes: tuple[str, ...]) -> list[_Found]:
        """What one check finds; what it lacks is noted."""
        found: list[_Found] = []
        try:
            found += look()
        except InputError as error:
            self.notes.append(str(error))
            self.unchecked |= set(codes)
        if len(found) > ALERTS_MAX:
            self.notes.append(f"{found[0].alert.code}: {len(found) - ALERTS_MAX} more alerts are left out")
        return sorted(found, key=lambda item: -item.weight)[:ALERTS_MAX]

    # What several checks need.

    @property
    def is_cut(self) -> bool:
        """Whether the run did not end by itself or by its user, so that its tables may lack anything."""
        return self._source.partial is not None and self._run.info.get("status") != "interrupted"

    def note_damage(self) -> None:
        """Note tables that cannot be read, or are cut though the run came to its end, and what they were needed for."""
        for name, codes in _NEEDED.items():
            path = table_path(self._run.directory, name)
            if path.is_file() and (reason := unreadable(path, whole=self._source.partial is None)):
                self.notes.append(reason)
                self.unchecked |= set(codes)
                if not self.is_cut:  # a run that was killed may leave anything
                    self.damaged.append(name)

    @cached_property
    def _end_ps(self) -> int:
        """Length of the run; of one that was killed, up to its last message."""
        known = self._run.info.get("simulated_ps")
        if isinstance(known, int) and known > 0:
            return known
        times = [1]
        for table, column in (("flows", "sender_done_ps"), ("pauses", "end_ps"), ("ports", "end_ps")):
            if table in self._run.tables:
                times.append(int(integer_column(self._table(table), column).max(initial=1)))
        return max(times)

    def _table(self, name: str) -> pa.Table:
        """A table; raises InputError if the run does not have it."""
        self._source.table(name)
        return self._run.table(name)

    @cached_property
    def _compiled(self) -> Compiled | None:
        try:
            return self._source.compiled
        except InputError as error:
            self.notes.append(str(error))
            return None

    @cached_property
    def _storms(self) -> list[list[Storm]]:
        """Storms by root port and class, those with most paused time first."""
        groups: dict[tuple[str, str, str], list[Storm]] = defaultdict(list)
        for storm in storms(self._run, STORMS_MAX):
            groups[storm.link, storm.class_name, storm.cause].append(storm)
        return sorted(groups.values(), key=lambda group: -sum(storm.paused_ps for storm in group))

    @cached_property
    def _events(self) -> list[dict[str, Any]]:
        return self._table("events").to_pylist()

    def _kind(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event["kind"] in kinds]

    # The checks, each an iterator of what it finds.

    def deadlocks(self) -> Iterator[_Found]:
        """FH501."""
        for time_ps, class_name, queues in self._cycles():
            ports = list(queues)
            held = sum(queues.values())
            figures = {"cycle": ports, "class": class_name, "bytes": held}
            sentence = (
                f"{_count(len(ports), 'queue')} wait for one another for ever, found at "
                f"{round_time(time_ps)}: {', '.join(ports[:4])}{', ...' if len(ports) > 4 else ''}"
            )
            alert = _alert("FH501", ports[0], time_ps, None, sentence, "a deadlock", figures)
            yield _Found(alert, frozenset(ports), weight=held)

    def _cycles(self) -> Iterator[tuple[int, str | None, dict[str, int]]]:
        """When each deadlock was found, its class, and bytes by port: of run.json, or of the events of a killed run."""
        if self._run.info.get("deadlocks"):
            for cycle in self._run.info["deadlocks"]:
                yield cycle["time_ps"], cycle["class"], {queue["port"]: queue["bytes"] for queue in cycle["queues"]}
            return
        groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for event in self._kind("deadlock"):
            groups[event["group"]].append(event)
        for rows in groups.values():
            yield rows[0]["time_ps"], rows[0]["class"], {row["port"]: row["value"] or 0 for row in rows}

    def links(self) -> Iterator[_Found]:
        """FH504, one alert a link."""
        down: dict[str, list[int]] = defaultdict(list)
        up: dict[str, list[int]] = defaultdict(list)
        for event in self._kind("link_down", "link_up"):
            (down if event["kind"] == "link_down" else up)[event["port"]].append(event["time_ps"])
        seen: set[str] = set()
        for port, times in down.items():
            other = "->".join(reversed(port.split("#")[0].split("->")))
            number = port.partition("#")[2]
            other += f"#{number}" if number else ""
            if other in seen:
                continue
            seen.add(port)
            back = up.get(port, [])
            gone_ps = sum((next((item for item in back if item > time), self._end_ps)) - time for time in times)
            until_ps = max(back) if len(back) >= len(times) else None
            often = f" {len(times)} times" if len(times) > 1 else ""
            rest = "" if until_ps is not None else ", and stayed so to the end of the run"
            sentence = f"the link of {port} went down{often} at {round_time(times[0])}, for {round_time(gone_ps)}{rest}"
            figures = {"times": len(times), "down_ps": gone_ps}
            alert = _alert("FH504", port, times[0], until_ps, sentence, f"{port} down", figures)
            yield _Found(alert, frozenset((port, other)), weight=gone_ps)

    def storms(self) -> Iterator[_Found]:
        """FH101 to FH103, one alert a root port and class."""
        limits = self._thresholds
        for group in self._storms:
            held = _held_by_port(group)
            worst = max(held, key=lambda port: held[port], default="")
            share = held.get(worst, 0) / self._end_ps
            first, largest = group[0], max(group, key=lambda storm: storm.paused_ps)
            code = {"storm": "FH102", "receiver": "FH103"}.get(first.cause, "FH101")
            if code != "FH102" and share < limits.pause_share:
                continue
            paused_ps = sum(storm.paused_ps for storm in group)
            pauses = sum(storm.pauses for storm in group)
            figures = {
                "storms": len(group),
                "pauses": pauses,
                "paused_ps": paused_ps,
                "ports": len(held),
                "depth": max(storm.depth for storm in group),
                "most_paused_port": worst,
                "share": share,
                "class": first.class_name,
                "made_by": sorted({item.label for storm in group for item in storm.culprits or ()}),
            }
            goes = "goes" if pauses == 1 else "go"
            sentence = f"{largest.sentence()}; it held {worst} for {100 * share:.3g} % of the run"
            if len(group) > 1:
                sentence = (
                    f"{len(group)} storms began at {first.root_port} (class {first.class_name}) and held {worst} for "
                    f"{100 * share:.3g} % of the run; the worst: {largest.sentence()}"
                )
            alert = _alert(
                code,
                first.root_port,
                min(storm.start_ps for storm in group),
                max(storm.end_ps for storm in group),
                sentence,
                f"{counted(pauses, 'pause')} that {goes} back to {first.root_port}",
                figures,
                "critical" if share >= limits.pause_share_critical else None,
            )
            made = {item.label for storm in group for item in storm.culprits or ()}
            suffered = {item.label for storm in group for item in storm.victims or ()}
            yield _Found(alert, _ports_of(group), frozenset(made | suffered), paused_ps)
        for storm in (storm for group in self._storms for storm in group):
            self.notes += [note for note in storm.notes if note not in self.notes]

    def victims(self) -> Iterator[_Found]:
        """FH104, one alert a root and workload."""
        for group in self._storms:
            worst: dict[tuple[str, str | None], tuple[float, Any, Storm]] = {}
            for storm in group:
                for item in storm.victims or ():
                    key = item.label, item.job
                    if item.share > worst.get(key, (-1.0,))[0]:
                        worst[key] = item.share, item, storm
            for share, item, storm in worst.values():
                if share < self._thresholds.victim_share:
                    continue
                whose = f"job {item.job}" if item.job is not None else f"workload {item.label}"
                what = f"{_count(item.messages, 'message')} of {whose} held up for up to {100 * share:.3g} % of "
                own = {"job": "its time", "collective": "the time of a collective"}.get(item.share_of, "their time")
                alert = _alert(
                    "FH104",
                    item.label,
                    storm.start_ps,
                    storm.end_ps,
                    f"{what}{own} by a storm that began at {storm.root_port}, where they do not go",
                    what + own,
                    {"messages": item.messages, "held_ps": item.held_ps, "share": share, "of": item.share_of},
                )
                yield _Found(alert, frozenset((storm.link,)), frozenset((item.label,)), item.held_ps)

    def unmarked(self) -> Iterator[_Found]:
        """FH105, one alert a port and class."""
        groups = [group for group in self._storms if group[0].cause == "congestion"]
        groups = [group for group in groups if sum(storm.pauses for storm in group) >= self._thresholds.unmarked_pauses]
        if not groups:
            return
        ends = {(group[0].link, group[0].class_name): max(storm.end_ps for storm in group) for group in groups}
        marks: dict[tuple[str, str], int] = defaultdict(int)
        self._source.table("ports")
        for batch in self._run.batches("ports", ("start_ps", "port", "class", "marks")):
            table = pa.Table.from_batches([batch])
            rows = np.flatnonzero(integer_column(table, "marks") > 0)
            port, ports = dictionary_column(table, "port")
            class_id, classes = dictionary_column(table, "class")
            count, start_ps = integer_column(table, "marks")[rows], integer_column(table, "start_ps")[rows]
            place = port[rows] * len(classes) + class_id[rows]
            for key, end_ps in ends.items():
                if key[0] in ports and key[1] in classes:
                    here = place == ports.index(key[0]) * len(classes) + classes.index(key[1])
                    marks[key] += int(count[here & (start_ps < end_ps)].sum())
        for group in groups:
            key = group[0].link, group[0].class_name
            if marks[key]:
                continue
            pauses = sum(storm.pauses for storm in group)
            what = f"{counted(pauses, 'pause')}, and not one mark at {key[0]} (class {key[1]})"
            alert = _alert(
                "FH105",
                key[0],
                min(storm.start_ps for storm in group),
                ends[key],
                f"{what}: PFC acted, ECN did not",
                what,
                {"pauses": pauses, "marks": 0, "class": key[1]},
            )
            yield _Found(alert, frozenset((key[0],)), weight=pauses)

    def headroom(self) -> Iterator[_Found]:
        """FH106, one alert a switch and class."""
        found = buffers(self._run).headroom
        if found is None:
            return
        if found.num_rows and found.column("used_bytes").null_count == found.num_rows:
            self._source.table("ports")
        groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for row in found.to_pylist():
            if row["used_bytes"] and row["used_bytes"] >= self._thresholds.headroom_share * row["configured_bytes"]:
                groups[row["node"], row["class"]].append(row)
        for (node, class_name), rows in groups.items():
            worst = max(rows, key=lambda row: row["used_bytes"] / row["configured_bytes"])
            share = worst["used_bytes"] / worst["configured_bytes"]
            what = f"{100 * share:.3g} % of the headroom of {worst['port']} (class {class_name}) in use"
            more = f", as nearly at {_count(len(rows) - 1, 'more port')} of {node}" if len(rows) > 1 else ""
            figures = {**{name: worst[name] for name in ("used_bytes", "configured_bytes")}, "ports": len(rows)}
            alert = _alert("FH106", worst["port"], None, None, what + more, what, {**figures, "share": share})
            yield _Found(alert, frozenset(row["port"] for row in rows), weight=worst["used_bytes"])

    def watchdog(self) -> Iterator[_Found]:
        """FH107, one alert a port."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in self._kind("watchdog_storm"):
            groups[event["port"]].append(event)
        lost = self._lost_at(("watchdog",)) if groups and "drops" in self._run.tables else {}
        for port, rows in groups.items():
            frames = sum(count for (ingress, egress), count in lost.items() if port in (ingress, egress))
            dropped = f", and {_count(frames, 'frame')} dropped for it" if frames else ""
            classes = sorted({row["class"] for row in rows})
            times = "once" if len(rows) == 1 else f"{len(rows)} times"
            what = f"the watchdog found a storm at {port} {times}{dropped}"
            since = rows[0]["time_ps"]
            figures = {"found": len(rows), "dropped_frames": frames, "classes": classes}
            alert = _alert("FH107", port, since, None, f"{what}, first at {round_time(since)}", what, figures)
            yield _Found(alert, frozenset((port,)), weight=frames)

    def _lost_at(self, causes: tuple[str, ...]) -> dict[tuple[str, str | None], int]:
        """Frames dropped for some causes, by ingress and egress port."""
        drops = self._table("drops")
        cause, names = dictionary_column(drops, "cause")
        ingress, ports = dictionary_column(drops, "ingress_port")
        egress, _ = dictionary_column(drops, "egress_port")
        chosen = np.isin(cause, [names.index(name) for name in causes if name in names])
        keys, count = np.unique(np.stack([ingress[chosen], egress[chosen]]), axis=1, return_counts=True)
        return {
            (ports[first], ports[second] if second != NONE else None): number
            for first, second, number in zip(*keys.tolist(), count.tolist(), strict=True)
        }

    def marks(self) -> Iterator[_Found]:
        """FH201, one alert a workload."""
        flows = self._table("flows")
        label, labels = dictionary_column(flows, "label")
        if not len(label):
            return
        marks, cnps = integer_column(flows, "marks"), integer_column(flows, "cnps")
        sender, senders = np.zeros(len(label), np.int64), 1
        deaf = np.zeros(len(label), np.bool_)
        if self._compiled is not None and self._compiled.plan.qp_count:
            plan = self._compiled.plan
            qp = integer_column(flows, "qp")
            sender, senders = np.where(qp != NONE, data_paths(plan).sender[qp], 0), plan.host_count
            deaf = (qp != NONE) & np.isin(plan.nic_cc[plan.host_nic[sender]], (CC_NONE, CC_FIXED))
        # A host was notified if it was for any of the workload's messages: one that it just ended gets no notification.
        place = label * senders + sender
        told = np.bincount(place, cnps, minlength=len(labels) * senders)[place] > 0
        unheeded = np.where(deaf | ~told, marks, 0)
        lost = np.bincount(label, unheeded, minlength=len(labels)).astype(np.int64)
        for number in np.flatnonzero(lost >= max(self._thresholds.marks, 1)).tolist():
            mine = label == number
            count, total = int(lost[number]), int(marks[mine].sum())
            some = "some of " if count < total else ""
            without = bool(deaf[mine & (unheeded > 0)].any())
            why = "have no congestion control" if without else "were not notified"
            what = f"{count:,} {f'of {total:,} ' if some else ''}marks of {labels[number]} changed no rate"
            figures = {"marks": count, "cnps": int(cnps[mine].sum())}
            alert = _alert("FH201", labels[number], None, None, f"{what}: {some}its senders {why}", what, figures)
            yield _Found(alert, labels=frozenset((labels[number],)), weight=count)

    def drops(self) -> Iterator[_Found]:
        """FH301 to FH303, one alert a device, class and cause."""
        drops = self._table("drops")
        if not len(drops):
            return
        cause, causes = dictionary_column(drops, "cause")
        class_id, classes = dictionary_column(drops, "class")
        ingress, ports = dictionary_column(drops, "ingress_port")
        egress, _ = dictionary_column(drops, "egress_port")
        time_ps = integer_column(drops, "time_ps")
        lossless = np.zeros(len(classes) + 1, np.bool_)  # the last is that of no class
        if self._compiled is not None:
            lossless[: len(classes)] = self._compiled.plan.class_lossless != 0
        no_room = np.isin(cause, [causes.index(name) for name in _NO_ROOM])
        certain = cause == causes.index("headroom_full")
        broken = no_room & (lossless[class_id] | certain)
        lost = np.isin(cause, [causes.index(name) for name in _LOST])
        node, nodes = dictionary_column(drops, "node")
        for chosen, code in ((broken, "FH301"), (lost, "FH302"), (no_room & ~broken, "FH303")):
            rows = np.flatnonzero(chosen)
            keys, group = np.unique(
                np.stack([node[rows], class_id[rows], cause[rows]], axis=1), axis=0, return_inverse=True
            )
            for number, (place, name, why) in enumerate(keys.tolist()):
                mine = rows[group.reshape(-1) == number]
                came = sorted(ports[item] for item in np.unique(ingress[mine]).tolist())
                away = sorted(ports[item] for item in np.unique(egress[mine]).tolist() if item != NONE)
                shown = f" of class {classes[name]}" if name != NONE else ""
                by = f"that came by {came[0]}" if len(came) == 1 else f"that came by {len(came)} ports"
                what = f"{_count(len(mine), 'frame')}{shown} {by} dropped at {nodes[place]} ({causes[why]})"
                since, until = int(time_ps[mine].min()), int(time_ps[mine].max())
                figures = {"frames": len(mine), "cause": causes[why], "ingress_ports": came, "egress_ports": away}
                sentence = f"{what}, the first at {round_time(since)}"
                alert = _alert(code, nodes[place], since, until, sentence, what, figures)
                yield _Found(alert, frozenset((*came, *away)), weight=len(mine))

    def uplinks(self) -> Iterator[_Found]:
        """FH401, one alert a switch."""
        self._source.table("ports")
        held = self._held_by_node() if "pauses" in self._run.tables else {}
        for row in balance(self._run).uplinks.to_pylist():
            needed = min(row["needed_ps"] / self._end_ps, 1.0)
            if row["effective"] is None or row["ports"] < 2 or needed < self._thresholds.needed_share:
                continue
            # What is paused carries nothing, however even the choices are.
            paused = held.get(row["node"], 0) > self._thresholds.paused_share * row["ports"] * row["needed_ps"]
            if row["effective"] >= self._thresholds.effective_share or paused:
                continue
            # Uplinks that are loaded alike wait for their senders, not for one another.
            if row["jain"] is None or row["jain"] >= self._thresholds.even_index:
                continue
            share = f"{100 * row['effective']:.3g} %"
            what = f"the {row['ports']} uplinks of {row['node']} carried {share} of what they could while one was full"
            figures = {name: row[name] for name in ("ports", "mean", "needed_ps", "effective", "jain")}
            sentence = f"{what} or had frames waiting, which was {100 * needed:.3g} % of the run"
            alert = _alert("FH401", row["node"], None, None, sentence, what, figures)
            yield _Found(alert, self._uplinks_of(row["node"]), weight=row["needed_ps"])

    def _held_by_node(self) -> dict[str, int]:
        """Paused time of all ports of every device together."""
        pauses = self._table("pauses")
        node, names = dictionary_column(pauses, "paused_node")
        held = np.zeros(len(names), np.int64)
        np.add.at(held, node, lengths_ps(pauses))
        return dict(zip(names, held.tolist(), strict=True))

    def _uplinks_of(self, node: str) -> frozenset[str]:
        """Ports of a switch that lead to other switches."""
        if self._compiled is None or node not in self._compiled.node_names:
            return frozenset()
        plan, names = self._compiled.plan, self._compiled.port_names
        number = self._compiled.node_names.index(node)
        ports = range(plan.node_port_start[number], plan.node_port_start[number + 1])
        return frozenset(names[port] for port in ports if plan.port_node[plan.port_peer[port]] >= plan.host_count)

    def tails(self) -> Iterator[_Found]:
        """FH402, one alert a workload."""
        flows = self._table("flows")
        times = fct.completion_times(flows, self._end_ps)
        _, labels = dictionary_column(flows, "label")
        for number, label in enumerate(labels):
            slowdown = times["slowdown"][times["label"] == number]
            slowdown = np.sort(slowdown[np.isfinite(slowdown)])
            if len(slowdown) < self._thresholds.tail_messages:
                continue
            median, tail = fct.percentile(slowdown, 50), fct.percentile(slowdown, 99)
            if median <= 0 or tail < self._thresholds.tail_ratio * median:
                continue
            what = f"the slowest of {label} took {tail / median:.3g} times as long as the median"
            figures = {"messages": len(slowdown), "p50": median, "p99": tail, "max": float(slowdown[-1])}
            sentence = f"{what}: slowdown {tail:.3g} at the 99th percentile, {median:.3g} at the median"
            alert = _alert("FH402", label, None, None, sentence, what, figures)
            yield _Found(alert, labels=frozenset((label,)), weight=len(slowdown))

    def errors(self) -> Iterator[_Found]:
        """FH502, one alert a sending host."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in self._kind("qp_error"):
            groups[event["node"]].append(event)
        if not groups:
            return
        paths = data_paths(self._compiled.plan) if self._compiled is not None else None
        for host, rows in groups.items():
            pairs = sorted(row["qp"] for row in rows)
            ports: set[str] = set()
            if paths is not None and self._compiled is not None:
                names = self._compiled.port_names
                ports = {names[port] for port in np.unique(paths.port[pairs]).tolist() if port != NONE}
            what = f"{_count(len(pairs), 'queue pair')} of {host} in error"
            since = min(row["time_ps"] for row in rows)
            sentence = f"{what}, the first at {round_time(since)}"
            alert = _alert("FH502", host, since, None, sentence, what, {"queue_pairs": pairs[:PAIRS_MAX]})
            yield _Found(alert, frozenset(ports), weight=len(pairs))

    def unfinished(self) -> Iterator[_Found]:
        """FH503, one alert a workload."""
        flows = self._table("flows")
        status, names = dictionary_column(flows, "status")
        if not len(status):
            return
        label, labels = dictionary_column(flows, "label")
        due = integer_column(flows, "start_ps") < self._end_ps
        failed = status == names.index("failed")
        left = (status != names.index("done")) & ~failed & due & (integer_column(flows, "fct_ps") == NONE)
        whole = not self._source.partial and self._ended_by != "until"
        stuck = bool(self._kind("deadlock")) if "events" in self._run.tables else False
        for number in np.unique(label[failed | left]).tolist():
            mine = label == number
            counts = {"failed": int(np.count_nonzero(failed & mine)), "unfinished": int(np.count_nonzero(left & mine))}
            shown = " and ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            what = f"{shown} of {_count(int(np.count_nonzero(mine)), 'message')} of {labels[number]}"
            severity: Severity = "critical" if whole or stuck or counts["failed"] else "warning"
            figures = {**counts, "messages": int(np.count_nonzero(mine))}
            alert = _alert("FH503", labels[number], None, None, what, what, figures, severity)
            yield _Found(alert, labels=frozenset((labels[number],)), weight=sum(counts.values()))


def _alert(
    code: str,
    where: str,
    since_ps: int | None,
    until_ps: int | None,
    sentence: str,
    phrase: str,
    figures: dict[str, Any],
    severity: Severity | None = None,
) -> Alert:
    return Alert(code, severity or ALARMS[code].severity, where, since_ps, until_ps, sentence, phrase, figures)


def _held_by_port(group: list[Storm]) -> dict[str, int]:
    """Paused time of every port that some storms reached."""
    held: dict[str, int] = defaultdict(int)
    for storm in group:
        for port, paused_ps in zip(
            storm.tree.column("paused_port").to_pylist(), storm.tree.column("paused_ps").to_pylist(), strict=True
        ):
            held[port] += paused_ps
    return held


def _ports_of(group: list[Storm]) -> frozenset[str]:
    """Ports that some storms are about: the root, what paused, what was paused."""
    found = {name for storm in group for name in (storm.root_port, storm.link)}
    for storm in group:
        found.update(storm.tree.column("port").to_pylist(), storm.tree.column("paused_port").to_pylist())
    return frozenset(found)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
