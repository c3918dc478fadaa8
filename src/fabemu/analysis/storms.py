"""Storms: pauses joined into trees of what caused what, with who made each and who suffered from it.

A pause whose XOFF was raised because of an egress port that was itself paused is a child of that pause
(`fabemu.analysis.pauses.pause_parents`), so pauses form trees. While an egress port is congested it makes one such tree
after another: it resumes its peers as it drains and pauses them again a round trip later. So trees whose roots go back
to the same egress port and class are one storm unless more than `GAP_PS` lies between the end of one and the beginning
of the next. The pauses that a host sends, and those of a switch because of the port that leads to that host, go back to
the same egress port, so they are one storm too, whose cause is the host's.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.intervals import Int64s
from fabemu.analysis.paths import Paths, data_paths
from fabemu.analysis.pauses import ancestry, lengths_ps
from fabemu.analysis.victims import COLUMNS as FLOW_COLUMNS
from fabemu.analysis.victims import Culprits, Messages, Victims, culprits, messages_of, victims
from fabemu.columns import number_array
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.run_directory import plain
from fabemu.trace import NONE, dictionary_column, integer_column, read_table, table_path
from fabemu.units import round_time

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.result import Run

GAP_PS = 10_000_000
"""Trees of one root are one storm unless this much lies between them: some round trips of a fabric."""

CAUSES = ("congestion", "storm", "receiver", "unknown")
"""What made the root: more data for a port than it sends, a host in a storm, a host that takes data in slowly."""

_CONGESTION, _STORM, _RECEIVER, _UNKNOWN = range(4)
_OPEN = 2**62


@dataclass(frozen=True, eq=False)
class Storm:
    """One storm of pauses.

    Attributes
    ----------
    root_port
        Where it began: the egress port that had more to send than it could, or the port of the host that paused its
        switch.
    link
        The port whose data had to wait: `root_port`, or the one that leads to that host.
    class_name
        Traffic class.
    cause
        One of `CAUSES`.
    start_ps, end_ps
        First XOFF, and end of its last pause; or of the run, if `standing`.
    standing
        Some of its pauses held until the run ended.
    pauses
        Pauses, those that never took effect included.
    paused_ps
        Sum of the times for which they were in effect.
    ports
        Ports that were paused.
    spread_ps
        From the first XOFF until the last of these ports was paused for the first time.
    depth
        Pauses from the root to the farthest, both counted.
    tree
        One row per pausing port and class that took part, in the order in which they were reached: `port` (paused its
        peer), `paused_port`, `switch`, `paused_node` (names); `parent` (int32, row of the port behind its first pause,
        null where that was the root), `depth` (int32, rows up to and with the first); `xoff_ps`, `reached_ps`,
        `end_ps` (int64; first XOFF, start of the first pause, end of the last); `pauses` (int64), `paused_ps` (int64),
        `share` (float64, of the duration of the storm).
    culprits
        Who sent by `link` while it lasted, most bytes first; None if not known.
    victims
        Who was held up without sending by `link`, longest first; None if not known.
    notes
        What else must be known to read this.
    """

    root_port: str
    link: str
    class_name: str
    cause: str
    start_ps: int
    end_ps: int
    standing: bool
    pauses: int
    paused_ps: int
    ports: int
    spread_ps: int
    depth: int
    tree: pa.Table = field(repr=False)
    culprits: tuple[Culprits, ...] | None = None
    victims: tuple[Victims, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def duration_ps(self) -> int:
        """From the first XOFF to the end of the last pause."""
        return self.end_ps - self.start_ps

    def sentence(self) -> str:
        """The storm in one sentence."""
        parts = [
            f"the storm began at {self.root_port} (class {self.class_name}) at {round_time(self.start_ps)}",
            self._reason(),
        ]
        text = " ".join(part for part in parts if part)
        hops = "1 hop deep" if self.depth == 1 else f"{self.depth} hops deep"
        lasted = "still stood at the end of the run" if self.standing else f"lasted {round_time(self.duration_ps)}"
        clauses = [f"reached {_count(self.ports, 'port')} in {round_time(self.spread_ps)}, {hops}", lasted]
        if self.victims:
            named = "; ".join(_held_up(item) for item in self.victims[:2])
            rest = len(self.victims) - 2
            clauses.append(f"held up {named}" + (f"; and {_count(rest, 'more workload')}" if rest > 0 else ""))
        elif self.victims is not None:
            clauses.append("held up nobody else")
        return f"{text}, {', '.join(clauses[:-1])}, and {clauses[-1]}"

    def _reason(self) -> str:
        host = self.root_port.split("->")[0]
        who = ""
        if self.culprits:
            named = [_workload(item) for item in self.culprits[:2]]
            rest = len(self.culprits) - 2
            who = " and ".join(named) + (f", and {_count(rest, 'more workload')}" if rest > 0 else "")
        if self.cause == "storm":
            return f"because {host} paused its link in a storm" + (f"; on the way there was {who}" if who else "")
        if self.cause == "receiver":
            return f"because {host} took in data more slowly than they came" + (f"; they were of {who}" if who else "")
        return f"because of {who}" if who else ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, the tree as a list of rows."""
        shown = {name: value for name, value in vars(self).items() if name not in ("tree", "culprits", "victims")}
        found: dict[str, Any] = plain({**shown, "duration_ps": self.duration_ps, "sentence": self.sentence()})
        for name in ("culprits", "victims"):
            items = getattr(self, name)
            found[name] = None if items is None else [plain(vars(item)) for item in items]
        found["tree"] = self.tree.to_pylist()
        return found


def storms(run: Run, limit: int | None = 10, *, gap_ps: int = GAP_PS) -> list[Storm]:
    """Storms of a run, those with most paused time first.

    Parameters
    ----------
    run
        Finished or not.
    limit
        How many; all if None.
    gap_ps
        Trees of one root are one storm unless more than this lies between them.

    Raises
    ------
    InputError
        The run has no `pauses` table.
    """
    source = Source(run.directory, run.info)
    source.table("pauses")
    pauses = run.table("pauses")
    if not len(pauses):
        return []
    rows = _Rows(pauses, run.info.get("simulated_ps"), gap_ps)
    blame = _Blame(source, rows.end_of_run_ps)
    return [rows.storm(number, blame) for number in rows.ranked()[:limit].tolist()]


def storm_of(pauses: pa.Table, *, gap_ps: int = GAP_PS) -> np.ndarray:
    """(rows,) int64, number of the storm that each pause belongs to, by paused time, as `storms` lists them."""
    if not len(pauses):
        return np.empty(0, dtype=np.int64)
    rows = _Rows(pauses, None, gap_ps)
    place = np.empty(rows.count, dtype=np.int64)
    place[rows.ranked()] = np.arange(rows.count)
    return place[rows.storm_of]


class _Rows:
    """The pauses of a run with the storm that each belongs to."""

    def __init__(self, pauses: pa.Table, end_of_run_ps: int | None, gap_ps: int) -> None:
        self.pauses = pauses
        self.xoff_ps, self.start_ps = integer_column(pauses, "xoff_ps"), integer_column(pauses, "start_ps")
        end_ps = integer_column(pauses, "end_ps")
        latest = max(int(end_ps.max()), int(self.start_ps.max()), int(self.xoff_ps.max()))
        self.end_of_run_ps = latest if end_of_run_ps is None else max(latest, end_of_run_ps)
        self.end_ps = np.where(end_ps == NONE, self.end_of_run_ps, end_ps)
        # What ended before it took effect paused nothing.
        self.effective = (self.start_ps != NONE) & (self.start_ps <= self.end_ps)
        self.paused_ps = np.where(end_ps == NONE, np.maximum(self.end_ps - self.start_ps, 0), lengths_ps(pauses))
        self.paused_ps[~self.effective] = 0
        self.port, self.port_names = dictionary_column(pauses, "port")
        self.paused_port, _ = dictionary_column(pauses, "paused_port")
        self.egress, _ = dictionary_column(pauses, "egress_port")
        self.class_id, self.class_names = dictionary_column(pauses, "class")
        ended, ends = dictionary_column(pauses, "end")
        self.held_on = (ended == ends.index("run_end")) | (end_ps == NONE)
        self.parent, self.root, self.depth = ancestry(pauses)
        self._causes()
        self._join(gap_ps)

    def _causes(self) -> None:
        """(rows,) cause of each pause, and the port whose data waited; what matters is those of roots."""
        crossed, names = dictionary_column(self.pauses, "crossed")
        self.cause = np.where(self.egress == NONE, _UNKNOWN, _CONGESTION)
        for number, name in ((_STORM, "storm"), (_RECEIVER, "receiver")):
            self.cause[crossed == names.index(name)] = number
        # Of a host, and where nothing is known, it is the port that was paused.
        self.link = np.where(self.cause == _CONGESTION, self.egress, self.paused_port)

    def _join(self, gap_ps: int) -> None:
        """(rows,) number of the storm of each pause."""
        is_root = self.root == np.arange(len(self.root))
        roots, tree = np.flatnonzero(is_root), (np.cumsum(is_root) - 1)[self.root]
        end_ps = np.zeros(len(roots), dtype=np.int64)
        np.maximum.at(end_ps, tree, self.end_ps)
        key = self.link[roots] * max(len(self.class_names), 1) + self.class_id[roots]
        start_ps = self.xoff_ps[roots]
        order = np.lexsort((start_ps, key))
        key, start_ps, end_ps = key[order], start_ps[order], end_ps[order]
        begins = np.ones(len(roots), dtype=np.bool_)
        begins[1:] = key[1:] != key[:-1]
        # How far the trees of a root and class reach so far: a running maximum that begins anew with each, of ranks
        # instead of times, so that what sets them apart does not overflow.
        times = np.sort(end_ps)
        apart = (np.cumsum(begins) - 1) * len(times)
        reach_ps = times[np.maximum.accumulate(apart + np.searchsorted(times, end_ps)) - apart]
        begins[1:] |= start_ps[1:] > reach_ps[:-1] + gap_ps
        storm = np.empty(len(roots), dtype=np.int64)
        storm[order] = np.cumsum(begins) - 1
        self.count = int(np.count_nonzero(begins))
        self.storm_of = storm[tree]
        self._order = np.argsort(self.storm_of, kind="stable")
        self._bounds = np.searchsorted(self.storm_of[self._order], np.arange(self.count + 1))

    def ranked(self) -> Int64s:
        """Numbers of the storms, those with most paused time first."""
        paused_ps = np.zeros(self.count, dtype=np.int64)
        np.add.at(paused_ps, self.storm_of, self.paused_ps)
        return np.lexsort((np.arange(self.count), -np.bincount(self.storm_of, minlength=self.count), -paused_ps))

    def storm(self, number: int, blame: _Blame) -> Storm:
        """One of them, with who made it and who suffered."""
        rows = self._order[self._bounds[number] : self._bounds[number + 1]]
        roots = rows[self.root[rows] == rows]
        # A host that pauses is behind the congestion of the port that leads to it.
        causes = self.cause[roots]
        host = np.flatnonzero((causes == _STORM) | (causes == _RECEIVER))
        root = int(roots[host[np.argmin(self.xoff_ps[roots[host]])]] if len(host) else roots[0])
        cause, link = int(self.cause[root]), int(self.link[root])
        effective = rows[self.effective[rows]]
        reached_ps = _first(self.paused_port[effective], self.start_ps[effective])
        start_ps, end_ps = int(self.xoff_ps[rows].min()), int(self.end_ps[rows].max())
        class_id = int(self.class_id[root])
        made, suffered, notes = blame.of(
            link,
            class_id,
            start_ps,
            end_ps,
            (self.paused_port[effective], self.start_ps[effective], self.end_ps[effective]),
        )
        return Storm(
            root_port=self.port_names[link if cause == _CONGESTION else int(self.port[root])],
            link=self.port_names[link],
            class_name=self.class_names[class_id],
            cause=CAUSES[cause],
            start_ps=start_ps,
            end_ps=end_ps,
            standing=bool(self.held_on[rows].any()),
            pauses=len(rows),
            paused_ps=int(self.paused_ps[rows].sum()),
            ports=len(reached_ps),
            spread_ps=max(int(reached_ps.max(initial=start_ps)) - start_ps, 0),
            depth=int(self.depth[rows].max()),
            tree=self._tree(effective, max(end_ps - start_ps, 1)),
            culprits=made,
            victims=suffered,
            notes=notes,
        )

    def _tree(self, rows: Int64s, duration_ps: int) -> pa.Table:
        """Pauses of a storm, port by port."""
        order = rows[np.lexsort((rows, self.xoff_ps[rows]))]  # by time: the first of a port is what it begins with
        _, first, node = np.unique(self.port[order], return_index=True, return_inverse=True)
        sequence = np.argsort(first)
        place = np.empty(len(first), dtype=np.int64)
        place[sequence] = np.arange(len(first))
        node = place[node.reshape(-1)]
        opening = order[first[sequence]]
        node_of_port = np.full(len(self.port_names), NONE, dtype=np.int64)
        node_of_port[self.port[opening]] = np.arange(len(opening))
        above = self.parent[opening]
        parent = np.where(above == opening, NONE, node_of_port[self.port[above]])
        depth = np.ones(len(opening), dtype=np.int64)
        for index, behind in enumerate(parent.tolist()):  # a cause is older: its row is above
            if behind != NONE:
                depth[index] = depth[behind] + 1
        count = len(opening)
        reached_ps, end_ps = np.full(count, _OPEN), np.zeros(count, dtype=np.int64)
        np.minimum.at(reached_ps, node, self.start_ps[order])
        np.maximum.at(end_ps, node, self.end_ps[order])
        paused_ps = np.zeros(count, dtype=np.int64)
        np.add.at(paused_ps, node, self.paused_ps[order])
        # One row of each port knows its names.
        named = self.pauses.select(["port", "paused_port", "switch", "paused_node"]).take(
            number_array(opening, pa.int64())
        )
        return pa.table(
            {
                **{name: named.column(name) for name in named.column_names},
                "parent": number_array(parent, pa.int32(), parent == NONE),
                "depth": number_array(depth, pa.int32()),
                "xoff_ps": number_array(self.xoff_ps[opening], pa.int64()),
                "reached_ps": number_array(reached_ps, pa.int64()),
                "end_ps": number_array(end_ps, pa.int64()),
                "pauses": number_array(np.bincount(node, minlength=count), pa.int64()),
                "paused_ps": number_array(paused_ps, pa.int64()),
                "share": number_array(paused_ps / duration_ps, pa.float64()),
            }
        )


class _Blame:
    """Who sent by the root of a storm, and who was held up by it; read when it is first asked."""

    def __init__(self, source: Source, end_ps: int) -> None:
        self._source = source
        self._end_ps = end_ps
        self._notes: list[str] = []
        self._ready = False
        self._messages: Messages | None = None
        self._paths: Paths | None = None
        self._compiled: Compiled | None = None
        self._wholes: dict[str, Int64s] = {}

    def of(
        self, link: int, class_id: int, start_ps: int, end_ps: int, paused: tuple[Int64s, Int64s, Int64s]
    ) -> tuple[tuple[Culprits, ...] | None, tuple[Victims, ...] | None, tuple[str, ...]]:
        """Culprits, victims and notes of a storm that goes back to a port."""
        if not self._ready:
            self._prepare()
        messages, paths, compiled = self._messages, self._paths, self._compiled
        if messages is None or paths is None or compiled is None:
            return None, None, tuple(self._notes)
        plan = compiled.plan
        concerned = (messages.posted_ps < end_ps) & (messages.done_ps > start_ps)
        if np.array_equal(plan.switch_class_map.reshape(-1, plan.class_count), _identity(plan)):
            concerned &= messages.class_id == class_id
        crosses = paths.crosses(link)[messages.qp]
        sent = (messages.first_sent_ps != NONE) & (messages.first_sent_ps < end_ps)
        made = tuple(culprits(messages, paths, concerned & crosses & sent))
        notes = list(self._notes)
        open_paths = concerned & ~paths.known[messages.qp]
        if open_paths.any():
            notes.append(
                f"switches chose the paths of {_count(int(open_paths.sum()), 'message')} by load or for every packet: "
                "who was held up is not known, and who made the storm as far as the link leads to a host"
            )
            return made, None, tuple(notes)
        return made, tuple(victims(messages, paths, concerned & ~crosses, paused, self._wholes)), tuple(notes)

    def _prepare(self) -> None:
        self._ready = True
        source = self._source
        if source.partial:
            self._notes.append(source.partial)
        try:
            flows = read_table(source.table("flows"), FLOW_COLUMNS)
            self._compiled = source.compiled
        except InputError as error:
            self._notes.append(f"who made the storm and who suffered is not known: {error}")
            return
        self._messages = messages_of(flows, self._end_ps)
        self._paths = data_paths(self._compiled.plan)
        if self._compiled.plan.route_epochs > 1:
            self._notes.append("routes changed during the run: paths are those that it began with")
        self._wholes = {
            "job": self._times("jobs", "job", "completion_ps", "start_ps"),
            "collective": self._times("collectives", "collective", "time_ps", "start_ps"),
        }

    def _times(self, table: str, number: str, whole: str, start: str) -> Int64s:
        """Completion times by number; of what did not end, up to the end of the run."""
        path = table_path(self._source.directory, table)
        if not path.is_file():
            return np.empty(0, dtype=np.int64)
        rows = read_table(path, (number, whole, start))
        if table == "jobs":
            index, names = dictionary_column(rows, number)
            count = len(names)
        else:
            index = integer_column(rows, number)
            count = int(index.max(initial=-1)) + 1
        whole_ps, start_ps = integer_column(rows, whole), integer_column(rows, start)
        until_ps = np.where(start_ps == NONE, NONE, self._end_ps - start_ps)
        found = np.full(count, NONE, dtype=np.int64)
        found[index] = np.where(whole_ps == NONE, until_ps, whole_ps)
        return found


def _identity(plan: Any) -> np.ndarray:
    switches = plan.node_count - plan.host_count
    return np.tile(np.arange(plan.class_count, dtype=np.uint8), (switches, 1))


def _first(group: Int64s, time_ps: Int64s) -> Int64s:
    """Least time of each group."""
    order = np.lexsort((time_ps, group))
    _, first = np.unique(group[order], return_index=True)
    return time_ps[order][first]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _workload(item: Culprits) -> str:
    job = f", job {item.job}" if item.job is not None else ""
    return f"{item.label} ({_count(item.messages, 'message')}{job})"


def _held_up(item: Victims) -> str:
    whose = f"job {item.job}" if item.job is not None else item.label
    own = {"job": "its time", "collective": "the time of a collective"}.get(item.share_of)
    if own is None:
        own = "its time" if item.messages == 1 else "their time"
    return f"{_count(item.messages, 'message')} of {whose} for up to {100 * item.share:.3g} % of {own}"
