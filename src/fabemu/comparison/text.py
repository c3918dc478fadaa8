"""A comparison as sections of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fabemu.comparison.changes import Change
from fabemu.comparison.groups import Group
from fabemu.comparison.limits import Verdict
from fabemu.comparison.result import Comparison
from fabemu.counted import counted
from fabemu.layout import Section
from fabemu.report import bytes_text, count_text, rate_text, time_text

SHOWN_PARAMETERS = 40
"""More keys that differ than these are counted; ``--json`` has them all."""

_NAMES = frozenset({"setting", "scenario", "runs", "parameter", "figure", "workload", "limit", "", "is"})
_VALUE_MAX = 60  # characters of a parameter that are shown


def sections(comparison: Comparison, verdicts: Sequence[Verdict] = ()) -> list[Section]:
    """Everything that `Comparison` has, for people; limits if it was held against any."""
    found = [_settings(comparison), _parameters(comparison)]
    found += _figures(comparison)
    if comparison.distances:
        found.append(_distances(comparison))
    if verdicts:
        found.append(_limits(verdicts))
    if comparison.notes:
        found.append(Section("notes", lines=list(comparison.notes)))
    return found


def value_text(unit: str, value: float | None) -> str:
    """A figure in the unit that suits it; "-" if it is not there, "inf" for what did not finish."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if unit in _UNITS:
        return _UNITS[unit](value)
    return count_text(value) if value == round(value) and abs(value) < 1e15 else f"{value:.4g}"


_UNITS: dict[str, Callable[[float], str]] = {"ps": time_text, "bytes": bytes_text, "bit/s": rate_text}


def verdict_text(verdict: Verdict) -> str:
    """What a limit came to, in one sentence."""
    unit, change = verdict.unit, verdict.other - verdict.first if verdict.other != verdict.first else 0.0
    share = ""
    if verdict.first and math.isfinite(verdict.first) and math.isfinite(change):
        share = f" ({change / abs(verdict.first):+.1%})"
    text = (
        f"{verdict.figure} of {verdict.group} is {value_text(unit, verdict.other)} instead of "
        f"{value_text(unit, verdict.first)}{share}"
    )
    if verdict.exceeded:
        how = "worse" if verdict.has_better else "changed"
        return f"{text}: {how} by {value_text(unit, verdict.worse)}, more than the {verdict.amount} allowed"
    return f"{text}: within the {verdict.amount} allowed"


def _settings(comparison: Comparison) -> Section:
    rows = [
        (
            group.letter + (" (baseline)" if index == 0 else ""),
            group.name,
            _seeds_text(group),
            _places_text(group),
        )
        for index, group in enumerate(comparison.groups)
    ]
    runs = sum(len(group.members) for group in comparison.groups)
    title = f"comparing {counted(len(comparison.groups), 'setting')}, {counted(runs, 'run')}"
    return Section(title, ("setting", "scenario", "seeds", "runs"), rows, names=_NAMES | {"seeds"})


def _seeds_text(group: Group) -> str:
    seeds = [str(seed) if seed is not None else "?" for seed in group.seeds]
    return ", ".join(seeds) if len(seeds) <= 6 else f"{seeds[0]}, {seeds[1]}, ..., {seeds[-1]} ({len(seeds)})"


def _places_text(group: Group) -> str:
    places = [str(member.run.directory) for member in group.members]
    return places[0] if len(places) == 1 else f"{places[0]} ... {places[-1]}"


def _parameters(comparison: Comparison) -> Section:
    shown = comparison.parameters[:SHOWN_PARAMETERS]
    rows = [(item.key, *(_shortened(value) for value in item.values)) for item in shown]
    hidden = len(comparison.parameters) - len(shown)
    if hidden:
        rows.append((f"... {hidden} more in --json", *("" for _ in comparison.groups)))
    if not rows:
        return Section("parameters that differ", lines=["none"])
    return Section("parameters that differ", ("parameter", *comparison.letters), rows, names=_NAMES)


def _shortened(value: str | None) -> str:
    if value is None:
        return "-"
    shown = value if value.isprintable() else "".join(char if char.isprintable() else "?" for char in value)
    return shown if len(shown) <= _VALUE_MAX else f"{shown[: _VALUE_MAX - 3]}..."


def _figures(comparison: Comparison) -> Iterator[Section]:
    several = any(len(group.members) > 1 for group in comparison.groups)
    tested = [
        any(row.changes[index].assessment.p is not None for row in comparison.figures)
        for index in range(len(comparison.designs))
    ]
    columns = ["figure", comparison.letters[0]]
    for letter, has_p in zip(comparison.letters[1:], tested, strict=True):
        columns += [letter, f"{letter} - {comparison.letters[0]}", "%"]
        columns += ["95 % of the mean change", "p"] if has_p else []
        columns += ["is"]
    rows = []
    for row in comparison.figures:
        if row.is_same:
            continue
        unit = row.figure.unit
        cells = [row.figure.name, value_text(unit, row.medians[0])]
        for change, median, has_p in zip(row.changes, row.medians[1:], tested, strict=True):
            cells += [value_text(unit, median), *_change_cells(unit, change)]
            cells += _test_cells(unit, change) if has_p else []
            cells += [_direction_text(change)]
        rows.append(tuple(cells))
    title = "figures" + (" (medians over the seeds)" if several else "")
    if rows:
        yield Section(title, tuple(columns), rows, names=_NAMES)
    same = [row for row in comparison.figures if row.is_same]
    if same:
        lines = _wrapped([f"{row.figure.name} {value_text(row.figure.unit, row.medians[0])}" for row in same])
        yield Section("the same in all runs", lines=lines)


def _change_cells(unit: str, change: Change) -> list[str]:
    if change.absolute is None:
        return ["-", "-"]
    if change.absolute == 0:
        return ["0", "0.0"]
    relative = "-" if change.relative is None else f"{100 * change.relative:+.1f}"
    return [_signed(unit, change.absolute), relative]


def _signed(unit: str, value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{value_text(unit, abs(value))}"


def _test_cells(unit: str, change: Change) -> list[str]:
    tested = change.assessment
    if tested.p is None:
        return ["-", "-"]
    interval = (
        "-"
        if tested.low is None or tested.high is None
        else f"{_signed(unit, tested.low)} .. {_signed(unit, tested.high)}"
    )
    return [interval, f"{tested.p:.4f}" + ("*" if change.significant else "")]


def _direction_text(change: Change) -> str:
    if change.direction == "unknown":
        return "-"
    may_be_chance = change.assessment.p is not None and not change.significant and change.direction != "same"
    return f"{change.direction}?" if may_be_chance else change.direction


def _wrapped(items: Sequence[str], width: int = 110) -> list[str]:
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= width:
            lines[-1] += f"; {item}"
        else:
            lines.append(item)
    return lines


def _distances(comparison: Comparison) -> Section:
    rows = [
        (
            item.workload if item.workload is not None else "all",
            item.group,
            count_text(item.first_count),
            count_text(item.other_count),
            f"{item.distance:.3f}",
        )
        for item in comparison.distances
    ]
    columns = ("workload", "setting", f"messages of {comparison.letters[0]}", "messages", "distance")
    return Section("distance of slowdowns (Kolmogorov-Smirnov, 0 to 1)", columns, rows, names=_NAMES)


def _limits(verdicts: Sequence[Verdict]) -> Section:
    lines = [f"{'EXCEEDED' if item.exceeded else 'held'}: {verdict_text(item)}" for item in verdicts]
    return Section("limits", lines=lines, alarm=any(item.exceeded for item in verdicts))
