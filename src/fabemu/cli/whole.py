"""Whole numbers on the command line: what is none is told what would be one."""

from __future__ import annotations

from collections.abc import Callable

import click


class Whole(click.IntRange):
    """A whole number from `least` to `most`, or from `least` on."""

    def __init__(self, least: int, most: int | None = None) -> None:
        """See the class."""
        super().__init__(least, most)
        self._allowed = _range_text(least, most)

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or an error that says which are allowed."""
        return int(super().convert(_digits(self, value, self._allowed, param, ctx), param, ctx))


class WholeJudgedLater(click.ParamType):
    """A whole number that is refused by what takes it if it is out of range, with more to say; `most` may be asked."""

    name = "integer"

    def __init__(self, least: int, most: int | Callable[[], int] | None = None) -> None:
        """See the class."""
        self._least = least
        self._most = most

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or an error that says which are allowed."""
        most = self._most() if callable(self._most) else self._most
        return _digits(self, value, _range_text(self._least, most), param, ctx)


def _range_text(least: int, most: int | None) -> str:
    return f"from {least:,} on" if most is None else f"{least:,} to {most:,}"


def _digits(
    kind: click.ParamType, value: str | int, allowed: str, param: click.Parameter | None, ctx: click.Context | None
) -> int:
    try:
        return int(value)
    except ValueError:
        kind.fail(f"{value!r} is not a whole number; allowed is {allowed}", param, ctx)


def _cores() -> int:
    from fabemu.threads import cores

    return cores()


SEED = Whole(0, 2**63 - 1)
"""A seed of random draws."""

THREADS = WholeJudgedLater(1, _cores)
"""A number of threads."""
