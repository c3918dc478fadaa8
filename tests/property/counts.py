"""How many examples the property tests ran, from what pytest says with --hypothesis-show-statistics.

``pytest tests/property tests/parity tests/oracle --hypothesis-show-statistics | python -m tests.property.counts``
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

_TEST = re.compile(r"(tests/\S+::\S+):")
_EXAMPLES = re.compile(r"\s+- (\d+) passing(?: examples)?, (\d+) failing(?: examples)?(?:, and|,) (\d+) invalid")


class Counts(NamedTuple):
    """Examples of one test, in all phases."""

    passing: int
    failing: int
    invalid: int


def counts(lines: Iterable[str]) -> dict[str, Counts]:
    """Examples by test, in the order of the report."""
    found: dict[str, Counts] = {}
    test = ""
    for line in lines:
        if match := _TEST.fullmatch(line.rstrip()):
            test = match[1]
        elif (match := _EXAMPLES.match(line)) and test:
            before = found.get(test, Counts(0, 0, 0))
            found[test] = Counts(*(old + int(new) for old, new in zip(before, match.groups(), strict=True)))
    return found


def table(found: dict[str, Counts]) -> str:
    """A line a test and one for all."""
    total = Counts(*(sum(column) for column in zip(*found.values(), strict=True))) if found else Counts(0, 0, 0)
    rows = [("test", "passing", "failing", "invalid"), *((test, *map(str, item)) for test, item in found.items())]
    rows.append((f"{len(found)} tests", *map(str, total)))
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:<{width}}  " + "  ".join(f"{cell:>8}" for cell in row[1:]) for row in rows)


if __name__ == "__main__":
    print(table(counts(sys.stdin)))
