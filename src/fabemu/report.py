"""The summary of a run: one structure, shown as text to people and as JSON to machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from itertools import zip_longest
from typing import IO, Any

from fabemu.analysis import collectives, drops, fct, incidents, jobs, pauses, steps, utilisation
from fabemu.analysis.collectives import CollectiveTimes
from fabemu.analysis.drops import DropPlace
from fabemu.analysis.incidents import Incident
from fabemu.analysis.jobs import JobOutcome
from fabemu.analysis.pauses import PauseRoots, PauseTotal, PausingPort
from fabemu.analysis.steps import TrainingSteps
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.layout import Section, plain_text, show
from fabemu.result import Run
from fabemu.run_directory import plain
from fabemu.trace import DROP_CAUSES, PURPOSES, integer_column, read_table, table_path

BUSIEST = 5
"""How many links, pausing ports, root ports and places of drops the summary names."""


@dataclass(frozen=True)
class Summary:
    """What a run came to. ``str`` gives the text, `to_dict` what ``--json`` prints."""

    directory: str
    info: dict[str, Any]  # run.json
    sizes: list[fct.Distribution] = field(default_factory=list)  # all messages, then by size class
    labels: list[fct.Distribution] = field(default_factory=list)  # by workload
    pauses: PauseTotal | None = None  # None: no such table
    pausing_ports: list[PausingPort] = field(default_factory=list)
    pause_roots: PauseRoots | None = None
    drop_places: list[DropPlace] = field(default_factory=list)
    deadlocks_closed_ps: list[int | None] = field(default_factory=list)  # of each of info["deadlocks"], as pauses show
    busiest_links: list[utilisation.LinkLoad] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    collectives: list[CollectiveTimes] = field(default_factory=list)  # by workload
    jobs: list[JobOutcome] = field(default_factory=list)
    steps: list[TrainingSteps] = field(default_factory=list)  # by workload
    arrived: int | None = None  # unfinished messages whose last byte has arrived, but not their last ACK
    retransmissions: int | None = None
    cnps: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; infinite and missing figures are null."""
        summary = {key: value for key, value in asdict(self).items() if key not in ("info", "directory")}
        return plain({"directory": self.directory, **self.info, "summary": summary})

    def __str__(self) -> str:
        """As plain text."""
        return plain_text(_sections(self))

    def show(self, stream: IO[str]) -> None:
        """Print to a stream: in colour if it is a terminal and NO_COLOR is not set, else as plain text."""
        show(_sections(self), stream)


def summarise(run: Run) -> Summary:
    """Work out the summary of a run from what it left, table by table."""
    end_ps = run.info.get("simulated_ps")
    found: dict[str, Any] = {}
    flows = _table(run, "flows", (*fct.COLUMNS, "retransmissions", "cnps"))
    if flows is not None:
        found["sizes"] = fct.by_size(flows, end_ps)
        found["labels"] = fct.by_label(flows, end_ps)
        found["arrived"] = fct.arrived(flows)
        found["retransmissions"] = _sum(flows, "retransmissions")
        found["cnps"] = _sum(flows, "cnps")
    paused = _table(run, "pauses", pauses.COLUMNS)
    if paused is not None:
        found["pauses"] = pauses.total(paused)
        found["pausing_ports"] = pauses.pausing_ports(paused, BUSIEST)
        found["pause_roots"] = pauses.pause_roots(paused, BUSIEST)
        found["deadlocks_closed_ps"] = [
            pauses.closing_ps(paused, [queue["port"] for queue in item["queues"]], item["class"], item["time_ps"])
            for item in run.info.get("deadlocks", ())
        ]
    dropped = _table(run, "drops", drops.COLUMNS)
    if dropped is not None:
        found["drop_places"] = drops.worst_places(dropped, BUSIEST)
    events = _table(run, "events", incidents.COLUMNS)
    if events is not None:
        found["incidents"] = incidents.by_kind(events)
    ran = _table(run, "collectives", collectives.COLUMNS)
    if ran is not None:
        found["collectives"] = collectives.by_workload(ran)
    worked = _table(run, "jobs", None)
    if worked is not None:
        found["jobs"] = jobs.outcomes(worked)
    trained = _table(run, "steps", None)
    if trained is not None:
        found["steps"] = steps.by_workload(trained)
    ports = _table(run, "ports", utilisation.COLUMNS)
    if ports is not None:
        found["busiest_links"] = utilisation.busiest_links(ports, end_ps, BUSIEST)
    return Summary(directory=str(run.directory), info=run.info, **found)


def deadlock_text(deadlock: dict[str, Any], closed_ps: int | None = None) -> str:
    """Who waits for whom, in words, from an entry of ``deadlocks`` of run.json, and since when if that is known."""
    since = "" if closed_ps is None else f" (closed at {time_text(closed_ps)})"
    queues = deadlock["queues"]
    names = [f"{queue['port']} ({bytes_text(queue['bytes'])})" for queue in queues]
    return (
        f"deadlock at {time_text(deadlock['time_ps'])} in class {deadlock['class']}{since}: "
        f"{' waits for '.join(names)} waits for {queues[0]['port']}"
    )


def severity_counts(severities: Iterable[str]) -> str:
    """Errors and warnings in short, "2 errors, 3 warnings"; empty if there are none."""
    counts = Counter(severities)
    shown = [(counts[severity], severity) for severity in ("error", "warning") if counts[severity]]
    return ", ".join(counted(count, severity) for count, severity in shown)


def time_text(time_ps: float) -> str:
    """A time to four figures in the unit that suits it; ``inf`` for one that never came."""
    if math.isnan(time_ps):
        return "-"
    if math.isinf(time_ps):
        return "inf"
    return _scaled(time_ps, ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"), (1, "ps")))


def bytes_text(size_bytes: float) -> str:
    """A size to four figures, decimal units."""
    return _scaled(size_bytes, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1, "B")))


def duration_text(seconds: float) -> str:
    """Seconds as people say them: "42 s", "3 min 05 s", "2 h 07 min"."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count_text(value: float) -> str:
    """A count: with thousands separators up to ten million, then to four figures."""
    if abs(value) < 1e7:
        return f"{value:,.0f}"
    return _scaled(value, ((1e12, "T"), (1e9, "G"), (1e6, "M")))


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    for factor, unit in units:
        if abs(value) >= factor or factor == units[-1][0]:
            figure = value / factor
            digits = 0 if factor == 1 else max(0, 3 - int(math.log10(max(abs(figure), 1))))
            return f"{figure:.{digits}f} {unit}"
    return str(value)


def _ratio_text(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "inf" if math.isinf(value) else f"{value:.2f}"


def _share_text(value: float) -> str:
    return f"{100 * value:.1f} %"


def _table(run: Run, name: str, columns: Sequence[str] | None):
    """A table if the run has it; a table that was cut off before its first row counts as not there."""
    try:
        return read_table(table_path(run.directory, name), columns)
    except InputError:
        return None


def _sum(table: Any, column: str) -> int:
    return int(integer_column(table, column, 0).sum())


def _sections(summary: Summary) -> list[Section]:
    sections = [_head(summary)]
    if summary.jobs:
        sections.append(_jobs(summary.jobs))
    if summary.steps:
        sections.append(_training(summary.steps))
    if summary.collectives:
        sections.append(_collectives(summary.collectives))
    if summary.sizes and summary.sizes[0].count:
        sections.append(_times("completion time", "size", summary.sizes, lambda group: group.fct_ps, time_text))
        sections.append(
            _times(
                "slowdown (completion time / ideal)", "size", summary.sizes, lambda group: group.slowdown, _ratio_text
            )
        )
        if len(summary.labels) > 1:
            sections.append(
                _times("completion time by workload", "workload", summary.labels, lambda group: group.fct_ps, time_text)
            )
    if summary.incidents:
        listed = [
            (item.kind, count_text(item.count), time_text(item.first_ps), time_text(item.last_ps), item.where)
            for item in summary.incidents
        ]
        sections.append(Section("incidents", ("incident", "events", "first", "last", "first at"), listed))
    sections.append(_counts(summary))
    if summary.pausing_ports:
        sections.append(_pausing("ports that paused their peers most", summary.pausing_ports))
    if summary.pause_roots is not None and (summary.pause_roots.ports or summary.pause_roots.unknown_count):
        sections.append(_roots(summary.pause_roots))
    if summary.drop_places:
        listed = [
            (
                place.ingress_port,
                place.egress_port or "-",
                place.class_name or "-",
                place.cause,
                count_text(place.count),
            )
            for place in summary.drop_places
        ]
        sections.append(
            Section("ports that dropped most", ("ingress port", "egress port", "class", "cause", "drops"), listed)
        )
    if summary.busiest_links:
        rows = [
            (
                link.port,
                _share_text(link.mean_utilisation),
                _share_text(link.peak_utilisation),
                bytes_text(link.bytes),
                bytes_text(link.queue_max_bytes),
                time_text(link.paused_ps),
            )
            for link in summary.busiest_links
        ]
        columns = ("port", "mean", "peak", "sent", "longest queue", "paused")
        sections.append(Section("busiest links", columns, rows))
    sections.append(_checks(summary))
    sections.append(_foot(summary))
    return sections


def _head(summary: Summary) -> Section:
    info = summary.info
    status = info.get("status", "unknown")
    lines = []
    if status == "running":
        lines.append("the run is still going on, or was killed: the tables hold what was written so far")
    if "error" in info:
        lines.append(str(info["error"]))
    if "simulated_ps" in info:
        messages = info.get("messages", {})
        text = f"{messages.get('done', 0):,} of {counted(messages.get('count', 0), 'message')} done"
        others = [f"{messages[key]:,} {word}" for key, word in _NOT_DONE if messages.get(key)]
        if messages.get("unfinished") and summary.arrived:
            # The tables below count them as finished: their last byte is there.
            place = others.index(f"{messages['unfinished']:,} unfinished")
            others[place] += f" ({summary.arrived:,} of them arrived, but not acknowledged)"
        lines.append(f"simulated {time_text(info['simulated_ps'])}; {', '.join([text, *others])}")
    lines += [
        deadlock_text(deadlock, closed_ps)
        for deadlock, closed_ps in zip_longest(info.get("deadlocks", ()), summary.deadlocks_closed_ps)
    ]
    # `fabemu run` has said them on stderr; in full they would bury the figures.
    found = severity_counts(finding["severity"] for finding in info.get("findings", ()))
    if found:
        lines.append(f"{found} to look at before trusting the figures: see run.json")
    return Section(f"{info.get('name', summary.directory)}: {status}", lines=lines, alarm=status != "finished")


_NOT_DONE = (("failed", "failed"), ("unfinished", "unfinished"), ("not_run", "not run"))


def _times(title: str, first: str, groups: Sequence[fct.Distribution], figures: Any, write: Any) -> Section:
    rows = []
    for group in groups:
        values = figures(group)
        rows.append(
            (group.name, count_text(group.count), str(group.unfinished), *(write(value) for value in values.values()))
        )
    keys = tuple(figures(groups[0]))
    return Section(title, (first, "messages", "unfinished", *keys), rows)


def rate_text(rate_bps: float) -> str:
    """A bandwidth to four figures, decimal units of bytes per second as nccl-tests has them."""
    return "-" if math.isnan(rate_bps) else f"{bytes_text(rate_bps / 8)}/s"


def _collectives(items: Sequence[CollectiveTimes]) -> Section:
    rows = [
        (
            item.label,
            item.operation if item.purpose is None else f"{item.operation} ({item.purpose})",
            item.algorithm,
            str(item.ranks),
            bytes_text(item.size_bytes),
            count_text(item.count),
            str(item.unfinished),
            time_text(item.time_ps),
            time_text(item.time_max_ps),
            time_text(item.ideal_ps),
            rate_text(item.algbw_bps),
            rate_text(item.busbw_bps),
        )
        for item in items
    ]
    columns = ("workload", "collective", "algorithm", "ranks", "bytes", "runs", "unfinished")
    return Section("collectives", (*columns, "time p50", "max", "ideal", "algbw", "busbw"), rows)


def _jobs(items: Sequence[JobOutcome]) -> Section:
    rows = [
        (
            item.name,
            str(item.ranks),
            str(item.nodes),
            time_text(item.start_ps),
            time_text(item.completion_ps),
            time_text(item.compute_ps),
            "-" if math.isnan(item.communication_share) else f"{item.communication_share:.1%}",
            rate_text(item.busbw_bps),
            bytes_text(item.network_bytes),
        )
        for item in items
    ]
    columns = ("job", "ranks", "nodes", "start", "completion", "computing", "communication", "busbw", "by the fabric")
    return Section("jobs", columns, rows)


def _training(items: Sequence[TrainingSteps]) -> Section:
    rows = [
        (
            item.label,
            f"{item.count - item.unfinished} of {item.count}",
            time_text(item.step_ps),
            time_text(item.compute_ps),
            time_text(item.exposed_ps),
            *(time_text(getattr(item, f"{name}_ps")) for name in PURPOSES),
            *("-" if math.isnan(share) else f"{share:.1%}" for share in (item.bubble_share, item.bubble_ideal)),
            "-" if math.isnan(item.tokens_per_s) else count_text(item.tokens_per_s),
            "-" if math.isnan(item.utilisation) else f"{item.utilisation:.1%}",
        )
        for item in items
    ]
    columns = ("workload", "steps", "step", "computing", "exposed", *PURPOSES, "bubble", "ideal", "tokens/s", "MFU")
    return Section("training steps (mean; computing and waiting of a rank)", columns, rows)


def _counts(summary: Summary) -> Section:
    totals = summary.info.get("totals", {})
    lines = []
    if summary.pauses is not None:
        paused = summary.pauses
        text = f"pauses: {count_text(paused.count)}"
        if paused.count:
            text += f", {time_text(paused.paused_ps)} of paused time in all, the longest {time_text(paused.longest_ps)}"
            others = [f"{count} by {end}" for end, count in paused.by_end.items() if count and end != "xon"]
            text += f" (ended {', '.join(others)})" if others else ""
        lines.append(text)
    elif "xoffs" in totals:
        lines.append(f"pauses: {count_text(totals['xoffs'])}")
    if totals:
        cnps = totals.get("cnps", summary.cnps)
        lines.append(f"marks: {count_text(totals.get('marks', 0))}; CNPs: {count_text(cnps or 0)}")
        drops = {cause: totals.get(f"drops_{cause}", 0) for cause in DROP_CAUSES}
        named = ", ".join(f"{count_text(count)} {cause}" for cause, count in drops.items() if count)
        again = totals.get("retransmissions", summary.retransmissions)
        lines.append(f"drops: {named or '0'}; retransmissions: {count_text(again or 0)}")
    return Section("congestion", lines=lines)


def _pausing(title: str, ports: Sequence[PausingPort]) -> Section:
    rows = [
        (item.port, item.class_name, count_text(item.count), time_text(item.paused_ps), time_text(item.longest_ps))
        for item in ports
    ]
    return Section(title, ("port", "class", "pauses", "paused time", "longest"), rows)


def _roots(found: PauseRoots) -> Section:
    rows = [
        (
            item.port,
            item.class_name,
            item.cause,
            count_text(item.count),
            time_text(item.paused_ps),
            time_text(item.longest_ps),
        )
        for item in found.ports
    ]
    for name, count, paused_ps in (
        (f"{found.other_ports:,} more", found.other_count, found.other_paused_ps),
        ("without a root", found.unknown_count, found.unknown_paused_ps),
    ):
        if count:
            rows.append((name, "", "", count_text(count), time_text(paused_ps), ""))
    columns = ("port", "class", "cause", "pauses", "paused time", "longest")
    return Section("ports at the root of the pauses", columns, rows)


def _checks(summary: Summary) -> Section:
    checks = summary.info.get("invariants")
    if checks is None:
        return Section("invariants", lines=["not checked: the run did not come to its end"], alarm=True)
    broken = [check for check in checks if not check["held"]]
    if not broken:
        return Section("invariants", lines=[f"all {len(checks)} held"])
    lines = [f"BROKEN: {check['name']}: {check['detail']}" for check in broken]
    return Section("invariants", lines=lines, alarm=True)


def _foot(summary: Summary) -> Section:
    info = summary.info
    lines = []
    if "totals" in info:
        hops, cpu = info["totals"].get("packet_hops", 0), info.get("cpu_seconds", 0)
        speed, peak = info.get("packet_hops_per_cpu_second", 0), info.get("peak_memory_bytes", 0)
        lines.append(f"{count_text(hops)} packet hops in {cpu:.2f} CPU s: {count_text(speed)} per CPU s")
        lines.append(f"peak memory {bytes_text(peak)}")
        shared = {int(count): part for count, part in info.get("hops_by_threads", {}).items() if int(count) > 1}
        if hops and shared:
            lines.append(f"{sum(shared.values()) / hops:.0%} of the hops on {max(shared)} threads")
    lines.append(f"seed {info.get('seed')}, digest {info.get('digest', '-')}")
    tables = ", ".join(info.get("trace", {}).get("tables", [])) or "none"
    lines.append(f"tables in {summary.directory}: {tables}")
    return Section("run", lines=lines)
