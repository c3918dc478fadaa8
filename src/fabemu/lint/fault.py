"""What holds only while a [[fault]] does: the rules on PFC, headroom and class maps, at every state of the fabric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fabemu.deferred import dataclass
from fabemu.distinct import distinct
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.headroom import SHORT, short_headrooms
from fabemu.lint.pausing import CROSSED, LOSSY, OFF, hops_without, mapped_hops
from fabemu.lint.subject import Subject
from fabemu.plan import ACTION_HEADROOM, ACTION_MAP, ACTION_PFC, Plan
from fabemu.units import format_time

_CHECKS: tuple[tuple[str, int, Callable[[Subject], list[Finding]], tuple[Rule, ...]], ...] = (
    ("pfc-off", ACTION_PFC, hops_without, (OFF,)),
    ("priority-map", ACTION_MAP, mapped_hops, (LOSSY, CROSSED)),
    ("headroom", ACTION_HEADROOM, short_headrooms, (SHORT,)),
)


@dataclass(frozen=True)
class _Span:
    """What was found at one place from one time on."""

    start_ps: int
    fault: str
    figures: dict[str, Any]


def faulted(subject: Subject) -> list[Finding]:
    """FB101, FB103, FB104 and FB105 where a fault brings them about."""
    findings: list[Finding] = []
    for kind, action, check, rules in _CHECKS:
        found = {rule.code: Grouped(rule) for rule in rules}
        if (subject.plan.action_kind == action).any():
            for (code, place, message), span, end_ps in _spans(subject, kind, action, check):
                if code in found:
                    until = (
                        f"from {format_time(span.start_ps)} {'on' if end_ps is None else f'to {format_time(end_ps)}'}"
                    )
                    found[code].add(place, f"{message} ({until}, by {span.fault})", **span.figures)
        findings += [finding for group in found.values() for finding in group.findings()]
    return findings


def _spans(
    subject: Subject, kind: str, action: int, check: Callable[[Subject], list[Finding]]
) -> Iterator[tuple[tuple[str, str, str], _Span, int | None]]:
    """Code, place and message of what is found at some times only, with its begin and its end, None for none."""
    always = set(_places(check(subject)))
    current: dict[tuple[str, str, str], _Span] = {}
    for time_ps, plan in _states(subject.plan, action):
        now = _places(check(replace(subject, compiled=replace(subject.compiled, plan=plan))))
        for key in [key for key in current if key not in now]:
            yield key, current.pop(key), time_ps
        begun = [
            f"fault.{index}"
            for index, fault in enumerate(subject.scenario.fault)
            if fault.kind == kind and fault.start == time_ps
        ]
        for key, figures in now.items():
            if key not in always and key not in current:
                current[key] = _Span(time_ps, " and ".join(begun) or "faults that overlap", figures)
    for key, span in current.items():
        yield key, span, None


def _places(findings: list[Finding]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (finding.code, place, finding.message): dict(finding.figures)
        for finding in findings
        for place in finding.places
    }


def _states(plan: Plan, action: int) -> Iterator[tuple[int, Plan]]:
    """The plan as it is from each time on at which actions of one kind happen."""
    chosen = np.flatnonzero(plan.action_kind == action)
    classes = plan.class_count
    names = {
        ACTION_PFC: ("pq_pfc_send", "pq_pfc_obey"),
        ACTION_MAP: ("switch_class_map",),
        ACTION_HEADROOM: ("pq_headroom_bytes",),
    }[action]
    arrays = {name: getattr(plan, name).copy() for name in names}
    for time_ps in distinct(plan.action_time_ps[chosen]).tolist():
        for at in chosen[plan.action_time_ps[chosen] == time_ps].tolist():
            target, mask, value = int(plan.action_target[at]), int(plan.action_mask[at]), int(plan.action_value[at])
            # The mask of a map is a class by its number, of all others one bit a class.
            items = [mask] if action == ACTION_MAP else [item for item in range(classes) if mask >> item & 1]
            for array in arrays.values():
                array[[target * classes + item for item in items]] = value
        yield time_ps, replace(plan, **{name: array.copy() for name, array in arrays.items()})
