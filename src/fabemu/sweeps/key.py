"""What a key of a scenario holds: its unit, its values as numbers, and numbers as its values."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import Any

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.scenario.load import apply_overrides
from fabemu.scenario.problems import table_at
from fabemu.scenario.quantity import Quantity
from fabemu.scenario.shape import table_keys
from fabemu.scenario.write import quantity_of
from fabemu.sweeps.parameter import Parameter, override, written

_DIGITS = 6
"""Significant digits of values drawn from a range of fractions: enough to tell points apart, and short to read."""


@dataclass(frozen=True)
class Key:
    """One key of a scenario."""

    path: str  # as the user wrote it
    quantity: Quantity | None = None  # how its values are read; None: as they are
    is_known: bool = True  # whether scenarios have such a key

    @property
    def unit(self) -> str:
        """What its numbers count: "bytes", "ps", "bit/s"; empty for plain numbers and words."""
        unit = self.quantity.unit.split(" (")[0] if self.quantity is not None else ""
        return unit if unit in ("bytes", "ps", "bit/s", "m") else ""

    def base(self, value: Any) -> int | float | bool | str | None:
        """A value of the file as a number in base units; words stay words, what is no single value is None."""
        if isinstance(value, bool):
            return value
        if self.quantity is not None and not self.quantity.lists:
            try:
                value = self.quantity.parse(value)
            except ValueError:
                return value if isinstance(value, str) else None
        if isinstance(value, Fraction):
            return float(value)
        return value if isinstance(value, int | float | str) else None

    def refuse_equals(self, parameter: Parameter) -> None:
        """Raise InputError if two values of the list are one, written in two ways."""
        seen: dict[Any, int] = {}
        for index, value in enumerate(parameter.values):
            first = seen.setdefault(self._meant(value), index)
            if first != index:
                both = f"{written(parameter.values[first])} and {written(value)}"
                raise InputError(f"{self.path}: {both} are the same value; list it once")

    def _meant(self, value: Any) -> Hashable:
        """What a value of the file says, however it is written; equal to that of no other value."""
        if self.quantity is not None:
            with contextlib.suppress(ValueError, TypeError):  # what it says to a list is said of its elements
                return self.quantity.parse(value)
        if isinstance(value, Mapping):
            return frozenset((key, self._meant(item)) for key, item in value.items())
        if isinstance(value, list | tuple):
            return ("list", *map(self._meant, value))
        # To Python, true is 1.
        return ("bool", value) if isinstance(value, bool) else value

    def between(self, parameter: Parameter, share: float) -> Any:
        """The value of the file that lies at a share (0 up to but not including 1) of the way along a range.

        Raises
        ------
        InputError
            If the ends are not two numbers of this key, the first below the second.
        """
        low, high = self.ends(parameter)
        whole = isinstance(low, int) and isinstance(high, int)
        if parameter.log:
            ratio = float(high) / float(low)
            number: Any = float(low) * ratio**share
        elif isinstance(low, int) and isinstance(high, int):
            number = low + int(Fraction(share) * (high - low + 1))
        else:
            number = float(low) + share * (float(high) - float(low))
        if whole:
            number = min(max(round(number), low), high)
        else:
            number = min(max(float(f"{number:.{_DIGITS}g}"), float(low)), float(high))
        if whole and self.quantity is not None:
            return self.quantity.write(number)
        return f"{number:.{_DIGITS}g}m" if self.unit == "m" else number

    def ends(self, parameter: Parameter) -> tuple[Any, Any]:
        """The ends of a range as numbers; raises InputError if they are none, or in the wrong order."""
        shown = f"{self.path} = {written(parameter.low)}..{written(parameter.high)}"
        ends = []
        for end in (parameter.low, parameter.high):
            number = end
            if self.quantity is not None:
                try:
                    number = self.quantity.parse(end)
                except ValueError as error:
                    raise InputError(f"{shown}: {error}") from None
            if isinstance(number, bool) or not isinstance(number, int | float | Fraction):
                raise InputError(f"{shown}: a range needs a number at both ends; list the values instead: [a, b, c]")
            ends.append(number)
        low, high = ends
        if not low < high:
            raise InputError(f"{shown}: a range goes from its lower end to its higher one")
        if parameter.log and low <= 0:
            raise InputError(f"{shown}: a logarithmic range begins above 0")
        return low, high


def find_key(data: Mapping[str, Any], path: str) -> Key:
    """Look a key up in the schema, for the tables that these data choose by their kinds.

    Parameters
    ----------
    data
        Parsed TOML of the scenario, with all other parameters set.
    path
        The key path, as for ``--set``.
    """
    copy = copied(data)
    placed, _ = apply_overrides(copy, [override(path, 0)])
    if not placed:
        return Key(path, is_known=False)
    keys = next(iter(placed))
    table = table_at(keys[:-1], data)
    info = table_keys(table).get(str(keys[-1])) if table is not None else None
    return Key(path, is_known=False) if info is None else Key(path, quantity_of(info))


def copied(value: Any) -> Any:
    """A copy of tables and lists, so that changes do not reach the caller's."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value
