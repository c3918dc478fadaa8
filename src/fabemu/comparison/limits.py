"""Limits on changes, for continuous integration: which figure may become how much worse."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from fractions import Fraction

from fabemu.comparison.changes import Row
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.headline import NUMBERS
from fabemu.units import UnitError, parse_bytes, parse_rate_bps, parse_ratio, parse_time_ps

_LIMIT = re.compile(r"(.*?\S)\s+([+-]?\d[\d_.]*(?:[eE][+-]?\d+)?\s*[^\d\s.]*)", re.DOTALL)
_PERCENTILE_FIRST = re.compile(r"(p\d+(?:\.\d+)?|max|mean)_(.+)")
_ROUNDING = 1e-12  # relative: what arithmetic with floats may add to a change that is exactly at its limit

ALIASES = {
    "marks": "totals.marks",
    "cnps": "totals.cnps",
    "drops": "totals.packets_dropped",
    "retransmissions": "totals.retransmissions",
    "hops": "totals.packet_hops",
    "pauses": "pauses.count",
    "unfinished": "messages.unfinished",
    "failed": "messages.failed",
    "utilisation": "busiest_link.mean_utilisation",
}
"""Short names of figures."""


@dataclass(frozen=True)
class Limit:
    """How much worse a figure may become.

    Attributes
    ----------
    text
        As the user wrote it.
    figure
        Name of the figure, as written.
    amount
        Percent of the baseline, or an absolute amount with its unit, as text.
    """

    text: str
    figure: str
    amount: str


@dataclass(frozen=True)
class Verdict:
    """One limit and one group.

    Attributes
    ----------
    limit
        As the user wrote it.
    figure
        Name of the figure.
    group
        Letter of the group.
    first, other
        Medians over the seeds of the baseline and of the group.
    worse
        How much worse the group is, in the unit of the figure: below 0 if it is better.
    allowed
        How much worse it may be.
    amount
        The same as the user wrote it.
    unit
        Unit of the numbers.
    has_better
        Whether the figure has a better way at all; of one that has none `worse` is how much it changed.
    exceeded
        Whether it is worse than allowed.
    """

    limit: str
    figure: str
    group: str
    first: float
    other: float
    worse: float
    allowed: float
    amount: str
    unit: str
    has_better: bool
    exceeded: bool


def read_limit(text: str) -> Limit:
    """Read ``"p99_slowdown 5%"``, ``"fct.p99 10us"`` or ``"pauses.count 0"``.

    Raises
    ------
    InputError
        It is not a figure and an amount, or the amount is negative.
    """
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f'"{text}" is no limit: write a figure and how much worse it may become, such as "p99_slowdown 5%", '
            '"fct.p99 10us" or "pauses.count 0"'
        )
    figure, amount = match[1], match[2].replace(" ", "")
    if amount.startswith("-"):
        raise InputError(f'"{text}": the amount cannot be negative: it says how much worse the figure may become')
    if amount.endswith("%"):
        _percent(text, amount)
    return Limit(text.strip(), figure, amount)


def canonical_name(name: str, known: Iterable[str]) -> str:
    """The name of a figure as tables have it.

    Parameters
    ----------
    name
        As a user writes it: the name itself, ``p99_slowdown`` for ``slowdown.p99``, without ``_ps`` or ``totals.``, or
        one of `ALIASES`.
    known
        Names of the figures that there are.

    Raises
    ------
    InputError
        There is no such figure; the message has the nearest names.
    """
    names = dict.fromkeys([*known, *NUMBERS])
    swapped = _PERCENTILE_FIRST.fullmatch(name)
    written = [name, f"{swapped[2]}.{swapped[1]}"] if swapped else [name]
    for text in written:
        for candidate in (
            text,
            ALIASES.get(text, text),
            f"totals.{text}",
            f"{text}_ps",
            f"{text}_bps",
            re.sub(r"(^|\.)fct\.", r"\1fct_ps.", text),
        ):
            if candidate in names:
                return candidate
    near = difflib.get_close_matches(written[-1], [*names, *ALIASES], 3, 0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f" (they are {', '.join(names)})"
    raise InputError(f"there is no figure {name!r}{hint}")


def judge(limits: Iterable[Limit], rows: Iterable[Row], letters: tuple[str, ...]) -> tuple[Verdict, ...]:
    """Hold every group against every limit, by the medians over its seeds.

    A figure that is neither better nor worse by itself (marks, hops) may not change by more, either way. What did not
    finish is infinite: finite to infinite exceeds any limit, infinite to infinite is no change.

    Parameters
    ----------
    limits
        As `read_limit` gives them.
    rows
        The figures with their changes.
    letters
        Of all groups, the baseline first.

    Raises
    ------
    InputError
        There is no such figure, a group does not have it, or the amount has the wrong unit.
    """
    by_name = {row.figure.name: row for row in rows}
    found = []
    for limit in limits:
        name = canonical_name(limit.figure, by_name)
        row = by_name.get(name)
        missing = (
            [letter for letter, value in zip(letters, row.medians, strict=True) if value is None] if row else letters
        )
        if row is None or missing:
            raise InputError(
                f'"{limit.text}": {", ".join(missing)} {"has" if len(missing) == 1 else "have"} no {name}: '
                "the run did not write the table that it comes from, or has nothing of the kind; it cannot be judged"
            )
        first = row.medians[0]
        assert first is not None
        for letter, other in zip(letters[1:], row.medians[1:], strict=True):
            assert other is not None
            worse = _worse(first, other, row.figure.better)
            allowed = _allowed(limit, first, row.figure.unit)
            exceeded = worse > allowed * (1 + _ROUNDING)
            directed = row.figure.better != "neither"
            about = (limit.text, name, letter, first, other, worse, allowed, limit.amount, row.figure.unit)
            found.append(Verdict(*about, directed, exceeded))
    return tuple(found)


def _worse(first: float, other: float, better: str) -> float:
    """How much worse the other value is."""
    if first == other:
        return 0.0
    change = other - first
    return {"less": change, "more": -change, "neither": abs(change)}[better]


def _allowed(limit: Limit, first: float, unit: str) -> float:
    """The amount of a limit in the unit of its figure."""
    if limit.amount.endswith("%"):
        share = float(_percent(limit.text, limit.amount))
        # Any share of what is infinite already is infinite, of which there is no worse.
        return share * abs(first) if math.isfinite(first) or share else 0.0
    return _absolute(limit, unit)


def _absolute(limit: Limit, unit: str) -> float:
    if re.fullmatch(r"\+?0+(\.0*)?", limit.amount):
        return 0.0  # nothing is nothing in every unit
    try:
        if unit == "ps":
            return float(parse_time_ps(limit.amount))
        if unit == "bytes":
            return float(parse_bytes(limit.amount))
        if unit == "bit/s":
            return float(parse_rate_bps(limit.amount))
        return float(parse_ratio(limit.amount))
    except UnitError as error:
        raise InputError(f'"{limit.text}": {error}, or a share such as "5%"') from None


def _percent(text: str, amount: str) -> Fraction:
    try:
        return parse_ratio(amount.removesuffix("%").strip()) / 100
    except UnitError as error:
        raise InputError(f'"{text}": {error}') from None
