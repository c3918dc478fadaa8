"""Rules with stable codes, and what they find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from fabemu.counted import counted
from fabemu.deferred import dataclass

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Most severe first: a scenario with an error cannot do what it says; a warning must be looked at before a result is
trusted; a note is a fact of the fabric."""


@dataclass(frozen=True)
class Rule:
    """One thing that the linter looks for, with all that `fabemu explain` says of it."""

    code: str
    severity: Severity
    title: str
    meaning: str  # what is checked, exactly
    reason: str  # why it matters
    formula: str  # "" if there is none
    source: str
    remedy: str

    def at(self, places: str | Iterable[str], message: str, **figures: Any) -> Finding:
        """A finding of this rule at one or more places."""
        return Finding(
            self.code, self.severity, (places,) if isinstance(places, str) else tuple(places), message, figures
        )


@dataclass(frozen=True)
class Finding:
    """One thing found: where, what, and the figures behind it.

    `places` are names of ports, devices or classes, or key paths of the scenario; empty for the whole fabric.
    """

    code: str
    severity: Severity
    places: tuple[str, ...]
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The places in short: "leaf0 and 7 more"."""
        if len(self.places) <= 1:
            return "".join(self.places)
        return f"{self.places[0]} and {len(self.places) - 1} more"

    def __str__(self) -> str:
        """One line: code, place, message."""
        return f"{self.code} {self.place}: {self.message}" if self.places else f"{self.code} {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "places": list(self.places),
            "message": self.message,
            "figures": dict(self.figures),
        }


@dataclass
class Grouped:
    """Joins findings of one rule with the same message: a fabric has thousands of equal ports."""

    rule: Rule
    found: dict[str, tuple[dict[str, None], Mapping[str, Any]]] = field(default_factory=dict)

    def add(self, place: str, message: str, **figures: Any) -> None:
        """Note one place."""
        self.found.setdefault(message, ({}, figures))[0][place] = None

    def findings(self) -> list[Finding]:
        """One finding a message, in the order in which they came."""
        return [self.rule.at(places, message, **figures) for message, (places, figures) in self.found.items()]


SHOWN = 3
"""Findings with one code that are shown in full; a fabric of a hundred thousand hosts has hundreds that are alike."""


@dataclass(frozen=True)
class More:
    """Stands for further findings with a code."""

    code: str
    severity: Severity
    findings: int
    places: int

    def __str__(self) -> str:
        """How many there are."""
        at = f", at {counted(self.places, 'place')}" if self.places else ""
        return f"{self.code}: {self.findings:,} more like these{at}"


def first_of_each(findings: Sequence[Finding]) -> list[Finding | More]:
    """The first `SHOWN` findings with each code, and behind them what stands for the others, if they are several."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    shown: list[Finding | More] = []
    number: Counter[str] = Counter()
    for finding in findings:
        number[finding.code] += 1
        alike = by_code[finding.code]
        if number[finding.code] <= SHOWN or len(alike) == SHOWN + 1:
            shown.append(finding)
        elif number[finding.code] == SHOWN + 1:
            left = alike[SHOWN:]
            shown.append(More(finding.code, finding.severity, len(left), sum(len(item.places) for item in left)))
    return shown
