"""All rules by code, and what `fabemu explain` says of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Protocol

from fabemu.lint import (
    buffer,
    capacity,
    deadlock,
    effect,
    ending,
    frame,
    headroom,
    marking,
    pausing,
    polarisation,
    reordering,
    sonic,
    timer,
    wiring,
)
from fabemu.lint.finding import Rule

_MODULES = (
    headroom,
    pausing,
    buffer,
    marking,
    deadlock,
    polarisation,
    reordering,
    capacity,
    timer,
    frame,
    effect,
    ending,
    wiring,
    sonic,
)
CATALOGUE: dict[str, Rule] = {
    rule.code: rule
    for rule in sorted((rule for module in _MODULES for rule in module.RULES), key=lambda rule: rule.code)
}
"""Every rule by its code. A code never changes its meaning, and is never used again."""

FAMILIES = {
    "FB1": "PFC and headroom",
    "FB2": "Buffers and ECN",
    "FB3": "Routing and capacity",
    "FB4": "Timers",
    "FB5": "Frame sizes",
    "FB6": "SONiC configurations",
    "FB9": "The scenario itself",
}
"""What the first digit of a code says."""

_LINE = 100


class Explained(Protocol):
    """What has a code that people ask about: a rule of the linter, or an alarm of the health checks."""

    @property
    def code(self) -> str:
        """Its code."""

    @property
    def severity(self) -> str:
        """How bad it is."""

    @property
    def title(self) -> str:
        """What it is, in some words."""

    @property
    def meaning(self) -> str:
        """What is checked, exactly."""

    @property
    def reason(self) -> str:
        """Why it matters."""

    @property
    def formula(self) -> str:
        """Empty if there is none."""

    @property
    def source(self) -> str:
        """Where it is from."""

    @property
    def remedy(self) -> str:
        """What to do."""


def explanation(rule: Explained) -> str:
    """All about one rule, as text."""
    parts = [f"{rule.code}: {rule.title} ({rule.severity})", _filled(rule.meaning)]
    for heading, text in (
        ("Why it matters", rule.reason),
        ("Formula", rule.formula),
        ("Source", rule.source),
        ("How to fix it", rule.remedy),
    ):
        if text:
            parts.append(f"{heading}\n{textwrap.indent(_filled(text, _LINE - 2), '  ')}")
    return "\n\n".join(parts)


def listing(rules: Iterable[Explained]) -> str:
    """Codes with their severity and title, one a line."""
    return "\n".join(f"{rule.code}  {rule.severity:8}  {rule.title}" for rule in rules)


def _filled(text: str, width: int = _LINE) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
