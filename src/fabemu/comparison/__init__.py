"""Runs side by side: what differs between their settings, what became of every figure, and whether that is chance."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.comparison.groups import Group
    from fabemu.comparison.result import Comparison
    from fabemu.comparison.significance import Design
    from fabemu.result import Run

__all__ = ["Comparison", "compare"]


def compare(runs: Sequence[str | Path | Run]) -> Comparison:
    """Compare runs; those with the same resolved scenario and different seeds are one setting.

    Parameters
    ----------
    runs
        Run directories or runs; the setting of the first one is the baseline. A directory of ``fabemu sweep --keep``
        stands for all of its runs.

    Returns
    -------
    Comparison
        With several seeds of both settings changes are tested for significance, which needs SciPy (the extra
        ``analysis``); without it, a note says so.

    Raises
    ------
    InputError
        One of them is no run or of a newer fabemu, one is given twice, or there are not two settings.
    """
    from fabemu.comparison import changes, distributions, parameters
    from fabemu.comparison.groups import gather
    from fabemu.comparison.measures import measure
    from fabemu.comparison.result import Comparison

    if isinstance(runs, str | Path):
        runs = [runs]  # one path is no list of letters
    groups = gather(runs)
    measured = [[measure(member.run) for member in group.members] for group in groups]
    plans = changes.designs(groups)
    can_test = importlib.util.find_spec("scipy") is not None
    samples = [distributions.samples(group) for group in groups]
    return Comparison(
        groups=groups,
        parameters=parameters.differences(groups),
        figures=changes.rows(groups, measured, plans, test=can_test),
        designs=plans,
        distances=distributions.distances(groups, samples),
        curves=distributions.curves(groups, samples),
        notes=tuple(_notes(groups, plans, can_test)),
    )


def _notes(groups: tuple[Group, ...], plans: Sequence[Design], can_test: bool) -> Iterator[str]:
    """What to know before trusting the figures."""
    yield from _run_notes(groups)
    yield from _setting_notes(groups)
    for group, plan in zip(groups[1:], plans, strict=True):
        if can_test or plan.kind == "none":
            yield _design_note(groups[0], group, plan)
    tested = any(plan.kind != "none" for plan in plans)
    if tested and not can_test:
        yield "whether changes are more than chance needs SciPy: pip install 'fabemu[analysis]'"
    elif tested:
        yield (
            "* p below 0.05; ? may be chance; p is of each figure by itself: of twenty figures that nothing changed, "
            "one is below 0.05 by chance; the interval is of the mean change, by Student's t"
        )


def _run_notes(groups: tuple[Group, ...]) -> Iterator[str]:
    from fabemu.trace import TABLES, table_path, tables_in, unreadable

    for group in groups:
        for member in group.members:
            place = f"{group.letter}, {member.run.directory}"
            if member.partial is not None:
                yield f"{place}: partial: {member.partial}"
            broken = [check["name"] for check in member.run.info.get("invariants", ()) if not check["held"]]
            if broken:
                yield f"{place}: broken invariants: {', '.join(broken)}"
            there = tables_in(member.run.directory)
            missing = [name for name in TABLES if name in _HEADLINE_TABLES and name not in there]
            if missing:
                yield f"{place}: has no table {', '.join(missing)}: figures from there are missing"
            for name in there:
                if name in _HEADLINE_TABLES and (
                    reason := unreadable(table_path(member.run.directory, name), whole=member.partial is None)
                ):
                    yield f"{place}: {reason}: figures from there are missing or partial"
            if not member.scenario:
                yield f"{place}: does not say which scenario it ran"


_HEADLINE_TABLES = ("flows", "ports", "pauses")


def _setting_notes(groups: tuple[Group, ...]) -> Iterator[str]:
    from fabemu.comparison.parameters import are_different_scenarios, plan_digests, result_digests

    first = groups[0]
    for group in groups[1:]:
        if are_different_scenarios(first, group):
            yield (
                f"{first.letter} ({first.name}) and {group.letter} ({group.name}) are different scenarios: fabric and "
                "workloads differ, so their figures may say nothing about each other"
            )
        results, plans = result_digests((first, group)), plan_digests((first, group))
        if results is not None and len(set(results[1])) == 1:
            yield f"{first.letter} and {group.letter} came out the same, packet by packet (seed {results[0]})"
        elif plans is not None and len(set(plans[1])) == 1 and _scenarios_differ(first, group):
            yield (
                f"{first.letter} and {group.letter} simulated the same plan (seed {plans[0]}): what differs in their "
                "scenarios has no effect"
            )
        if group.members[0].setting == first.members[0].setting:
            yield f"{group.letter} is the setting of {first.letter} again: a run with its seed was given already"


def _scenarios_differ(first: Any, other: Any) -> bool:
    return bool(first.members[0].scenario != other.members[0].scenario)


def _design_note(first: Group, group: Group, plan: Design) -> str:
    pair = f"{group.letter} against {first.letter}"
    if plan.kind == "none":
        return (
            f"{pair}: no p-values: {len(first.members)} and {counted(len(group.members), 'run')} are too few to tell a "
            "change from chance; run both settings with the same six seeds or more"
        )
    if plan.kind == "paired":
        what = f"{counted(len(plan.first), 'pair of runs')} with the same seed: sign-flip test of the mean change"
        more = "six pairs"
    else:
        runs = f"{len(plan.first)} and {counted(len(plan.other), 'run')}"
        what = f"{runs} with different seeds: permutation test of the means"
        more = "four runs of each"
    count = f"all {counted(plan.permutations, 'permutation')}" if plan.exact else "200,000 random permutations"
    text = f"{pair}: {what}, two-sided, {count}"
    if plan.least_p >= 0.05:
        text += f"; p cannot be below {plan.least_p:.4g} with so few: give {more} or more to be able to find p < 0.05"
    return text


def __getattr__(name: str) -> Any:
    if name == "Comparison":
        from fabemu.comparison.result import Comparison

        return Comparison
    raise AttributeError(f"module 'fabemu.comparison' has no attribute {name!r}")
