"""Counts for people: "1 message", "2,000 messages"."""

from __future__ import annotations

_HISSING = ("s", "x", "z", "ch", "sh")


def counted(count: int, noun: str) -> str:
    """So many of what `noun` names in the singular; of a noun with something behind it, such as "pair of ports"."""
    return f"{count:,} {agreeing(count, noun)}"


def agreeing(count: int, noun: str) -> str:
    """The noun alone, for counts that stand as the user wrote them."""
    return noun if count == 1 else plural(noun)


def plural(noun: str) -> str:
    """More than one of what a noun names."""
    head, of, rest = noun.partition(" of ")
    return f"{head}{'es' if head.endswith(_HISSING) else 's'}{of}{rest}"
