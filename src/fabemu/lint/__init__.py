"""The linter: what a user should know of a scenario before running it, as findings with stable codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fabemu.lint.finding import Finding, Rule
from fabemu.lint.linter import lint

if TYPE_CHECKING:
    from fabemu.lint.catalogue import CATALOGUE, explanation

__all__ = ["CATALOGUE", "Finding", "Rule", "explanation", "lint"]


def __getattr__(name: str) -> Any:
    # The catalogue holds the rules of SONiC configurations too, which no run needs.
    if name not in ("CATALOGUE", "explanation"):
        raise AttributeError(f"module 'fabemu.lint' has no attribute {name!r}")
    from fabemu.lint import catalogue

    return getattr(catalogue, name)
