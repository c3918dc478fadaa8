"""What a run came to, in a few sentences: done or not, the tail, drops, jobs and training steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from fabemu.analysis.alarms import Incident
from fabemu.analysis.fct import Distribution
from fabemu.analysis.health import Health, examine
from fabemu.analysis.jobs import JobOutcome
from fabemu.analysis.steps import TrainingSteps
from fabemu.analysis.storms import Storm, storms
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.report import Summary, count_text, deadlock_text, severity_counts, summarise, time_text
from fabemu.result import Run
from fabemu.run_directory import plain
from fabemu.trace import DROP_CAUSES, PURPOSES, table_path, unreadable

_HEADLINE_TABLES = ("flows", "ports", "pauses")

NAMED = 4
"""How many jobs and incidents are named one by one."""


@dataclass(frozen=True)
class Sentence:
    """One thing that can be said of a run.

    Attributes
    ----------
    topic
        "partial", "status", "tail", "pauses", "drops", "health", "jobs", "steps", "checks" or "missing".
    text
        A whole sentence, or several.
    alarm
        Whether it is bad.
    """

    topic: str
    text: str
    alarm: bool = False


@dataclass(frozen=True)
class Answer:
    """The sentences of a run, the most important first.

    Attributes
    ----------
    summary
        What `fabemu run` prints, as values.
    partial
        Why the run is not whole; None if it is.
    storms
        Those of `fabemu.analysis.storms`, all of them; None without a pauses table.
    health
        What `fabemu.analysis.health` found; None where nothing could be looked at.
    sentences
        What can be said.
    """

    summary: Summary
    partial: str | None
    storms: list[Storm] | None
    health: Health | None
    sentences: tuple[Sentence, ...]

    def __str__(self) -> str:
        """One sentence a line."""
        return "\n".join(sentence.text for sentence in self.sentences)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        info = self.summary.info
        found: dict[str, Any] = plain(
            {
                "directory": self.summary.directory,
                "name": info.get("name"),
                "status": info.get("status"),
                "partial": self.partial,
                "answer": [vars(sentence) for sentence in self.sentences],
            }
        )
        return found


def answer(run: Run) -> Answer:
    """Say what a run came to, as far as its tables are there."""
    summary = summarise(run)
    partial = Source(run.directory, run.info).partial
    is_whole = partial is None and "totals" in run.info  # else nobody knows what did not happen
    raged, health = _storms(run), _health(run)
    incidents = list(_incidents(health))
    sentences = [*_status(summary, partial), *_tail(summary), *_pauses(summary, is_whole=is_whole)]
    if raged and not any(raged[0].sentence() in sentence.text for sentence in incidents):
        sentences.append(_worst_storm(raged))
    sentences += [*_drops(summary), *incidents]
    sentences += [*_jobs(summary.jobs), *_steps(summary.steps), *_checks(summary), *_missing(run, partial)]
    return Answer(summary, partial, raged, health, tuple(sentences))


def _storms(run: Run) -> list[Storm] | None:
    try:
        return storms(run, limit=None)
    except InputError:
        return None


def _health(run: Run) -> Health | None:
    try:
        return examine(run)
    except InputError:
        return None


def _status(summary: Summary, partial: str | None) -> Iterable[Sentence]:
    info = summary.info
    name, status = info.get("name", summary.directory), info.get("status", "unknown")
    if partial is not None:
        yield Sentence("partial", f"PARTIAL: {partial}.", alarm=True)
    if "error" in info:
        yield Sentence("status", f"{str(info['error']).rstrip('.')}.", alarm=True)
    if "simulated_ps" not in info:
        yield Sentence("status", f"{name}: {status}.", alarm=True)
        return
    messages = info.get("messages", {})
    count, done = messages.get("count", 0), messages.get("done", 0)
    after = f"after {time_text(info['simulated_ps'])} of simulated time"
    if not count:
        yield Sentence("status", f"{name}: {status} {after}; it has no messages.")
    elif done == count:
        words = "its message is done" if count == 1 else f"all {count:,} messages are done"
        yield Sentence("status", f"{name}: {status}, {words} {after}.")
    else:
        others = [
            f"{messages[key]:,} {word}"
            for key, word in (("failed", "failed"), ("unfinished", "unfinished"), ("not_run", "not begun"))
            if messages.get(key)
        ]
        are = "is" if count == 1 else "are"
        text = f"{name}: {status}, {done:,} of {counted(count, 'message')} {are} done {after}"
        yield Sentence("status", f"{text}, {', '.join(others)}." if others else f"{text}.", alarm=True)
    for deadlock, closed_ps in zip(
        info.get("deadlocks", ()),
        [*summary.deadlocks_closed_ps, *[None] * len(info.get("deadlocks", ()))],
        strict=False,
    ):
        text = deadlock_text(deadlock, closed_ps)
        yield Sentence("status", f"{text[0].upper()}{text[1:]}.", alarm=True)


def _tail(summary: Summary) -> Iterable[Sentence]:
    if not summary.sizes or not summary.sizes[0].count:
        return
    everything = summary.sizes[0]
    times, ratios = everything.fct_ps, everything.slowdown
    if math.isinf(times["p50"]):
        share = everything.unfinished / everything.count
        yield Sentence("tail", f"{share:.1%} of the messages that count did not finish: there is no tail to speak of.")
        return
    parts = [f"half of the messages took at most {time_text(times['p50'])}"]
    known = [key for key in ("p99", "max") if not math.isinf(times[key])]
    names = {"p99": "99 % at most", "max": "the slowest"}
    parts += [f"{names[key]} {time_text(times[key])}" for key in known]
    text = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
    text = f"{text[0].upper()}{text[1:]}"
    slower = [ratios[key] for key in ("p50", *known)]
    if all(math.isfinite(value) for value in slower):
        where = {"p99": "at the 99th percentile", "max": "at most"}
        listed = [f"{slower[0]:.2f} at the median"]
        listed += [f"{value:.2f} {where[key]}" for key, value in zip(known, slower[1:], strict=True)]
        text += f"; slowdown against an empty network {', '.join(listed)}"
    yield Sentence("tail", f"{text}.")
    if everything.unfinished:
        yield Sentence("tail", f"{everything.unfinished:,} of {everything.count:,} did not finish.", alarm=True)
    worst = _worst(summary.sizes[1:])
    if worst is not None and len(summary.sizes) > 2:
        yield Sentence(
            "tail", f"The tail is worst for messages of {worst.name}: p99 slowdown {worst.slowdown['p99']:.2f}."
        )


def _worst(groups: Sequence[Distribution]) -> Distribution | None:
    finite = [group for group in groups if math.isfinite(group.slowdown["p99"])]
    return max(finite, key=lambda group: group.slowdown["p99"], default=None)


def _pauses(summary: Summary, *, is_whole: bool) -> Iterable[Sentence]:
    if summary.pauses is None:
        return
    if not summary.pauses.count:
        if is_whole:
            yield Sentence("pauses", "No link was ever paused.")
        return
    total = summary.pauses
    if total.count == 1:
        yield Sentence("pauses", f"One link was paused once, for {time_text(total.paused_ps)}.")
        return
    yield Sentence(
        "pauses",
        f"Links were paused {count_text(total.count)} times, {time_text(total.paused_ps)} in all, "
        f"{time_text(total.longest_ps)} the longest.",
    )


def _worst_storm(raged: Sequence[Storm]) -> Sentence:
    text = raged[0].sentence()
    if len(raged) == 1:
        return Sentence("pauses", f"{text[0].upper()}{text[1:]}.")
    return Sentence("pauses", f"Of {len(raged):,} storms the one with most paused time: {text}.")


def _incidents(health: Health | None) -> Iterable[Sentence]:
    if health is None:
        return
    if not health.incidents:
        unchecked = f"; {', '.join(health.unchecked)} could not be looked for" if health.unchecked else ""
        yield Sentence("health", f"No health check found anything{unchecked}.")
        return
    alike: dict[str, list[Incident]] = {}
    for incident in health.incidents:
        alike.setdefault(incident.root.code, []).append(incident)
    for code, found in list(alike.items())[:NAMED]:
        first = found[0]
        beside = []
        if first.others:
            beside.append(f"{counted(len(first.others), 'more alert')} with it")
        if len(found) > 1:
            beside.append(f"{len(found) - 1:,} more of {code}")
        severity = f"{first.severity[0].upper()}{first.severity[1:]}"
        text = f"{severity}: {first.root.sentence}" + (f" ({', '.join(beside)})" if beside else "")
        yield Sentence("health", f"{text}.", alarm=first.severity == "critical")
    rest = sum(len(found) for found in list(alike.values())[NAMED:])
    if rest:
        yield Sentence("health", f"There {'is' if rest == 1 else 'are'} {counted(rest, 'more incident')}.")


def _drops(summary: Summary) -> Iterable[Sentence]:
    totals = summary.info.get("totals", {})
    if not totals:
        return
    drops = {cause: totals.get(f"drops_{cause}", 0) for cause in DROP_CAUSES}
    named = ", ".join(f"{count_text(count)} {cause.replace('_', ' ')}" for cause, count in drops.items() if count)
    if named:
        where = ""
        if summary.drop_places:
            most = summary.drop_places[0]
            at_egress = most.cause == "egress_full" and most.egress_port is not None
            where = f", most at {most.egress_port}" if at_egress else f", most of them came by {most.ingress_port}"
            where = f"{where} ({count_text(most.count)})"
        yield Sentence("drops", f"Frames were dropped: {named}{where}.", alarm=True)
    else:
        yield Sentence("drops", "No frame was dropped.")


def _jobs(jobs: Sequence[JobOutcome]) -> Iterable[Sentence]:
    for job in jobs[:NAMED]:
        if math.isnan(job.completion_ps):
            are = "is" if job.unfinished == 1 else "are"
            text = f"Job {job.name} did not come to its end: {job.unfinished:,} of its messages {are} not done."
            yield Sentence("jobs", text, alarm=True)
            continue
        text = f"Job {job.name} took {time_text(job.completion_ps)}"
        if not math.isnan(job.communication_share):
            text += f"; its ranks computed in {1 - job.communication_share:.0%} of it and waited for data otherwise"
        yield Sentence("jobs", f"{text}.")
    if len(jobs) > NAMED:
        rest = len(jobs) - NAMED
        yield Sentence("jobs", f"There {'is' if rest == 1 else 'are'} {counted(rest, 'more job')}.")


def _steps(workloads: Sequence[TrainingSteps]) -> Iterable[Sentence]:
    for item in workloads[:NAMED]:
        if math.isnan(item.step_ps) or item.step_ps <= 0:
            yield Sentence("steps", f"No step of {item.label} came to its end.", alarm=True)
            continue
        waits = {name: getattr(item, f"{name}_ps") / item.step_ps for name in PURPOSES}
        listed = ", ".join(
            f"{share:.0%} for {name}"
            for name, share in sorted(waits.items(), key=lambda pair: -pair[1])
            if share >= 0.005
        )
        text = f"A step of {item.label} took {time_text(item.step_ps)}: {item.compute_ps / item.step_ps:.0%} computing"
        yield Sentence("steps", f"{text}, waiting {listed}." if listed else f"{text}.")


def _checks(summary: Summary) -> Iterable[Sentence]:
    for check in summary.info.get("invariants") or ():
        if not check["held"]:
            yield Sentence("checks", f"Invariant {check['name']} is broken: {check['detail']}.", alarm=True)
    found = severity_counts(finding["severity"] for finding in summary.info.get("findings", ()))
    if found:
        yield Sentence("checks", f"The scenario has {found} to look at before trusting the figures.", alarm=True)


def _missing(run: Run, partial: str | None) -> Iterable[Sentence]:
    there = set(run.tables)
    gone = [name for name in _HEADLINE_TABLES if name not in there]
    if gone:
        yield Sentence("missing", f"Not recorded, so not looked at: {', '.join(gone)}.")
    for name in _HEADLINE_TABLES:
        if name in there and (reason := unreadable(table_path(run.directory, name), whole=partial is None)):
            yield Sentence("missing", f"{reason}.", alarm=True)
