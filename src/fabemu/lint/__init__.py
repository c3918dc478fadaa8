"""The linter: what a user should know of a scenario before running it, as findings with stable codes."""

from fabemu.lint.catalogue import CATALOGUE, explanation
from fabemu.lint.finding import Finding, Rule
from fabemu.lint.linter import lint

__all__ = ["CATALOGUE", "Finding", "Rule", "explanation", "lint"]
