"""The lines and values of the text files of the HPCC family, with the place of everything that is wrong.

The simulators read these files token by token with C++ streams. Here the lines count, since a wrong token must be
reported where it stands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.scenario.quantity import RATE_LIMIT_BPS

_RATE = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(?:([kKMGT]i?)?(bps|b/s|Bps|B/s))?")
_PREFIX = {None: 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    prefix + "i": 1024**power for prefix, power in (("k", 1), ("K", 1), ("M", 2), ("G", 3), ("T", 4))
}
_TIME = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-z]*)")
_TIME_NS = {
    "": Fraction(10**9),
    "s": Fraction(10**9),
    "ms": Fraction(10**6),
    "us": Fraction(10**3),
    "ns": Fraction(1),
    "ps": Fraction(1, 10**3),
    "fs": Fraction(1, 10**6),
}


@dataclass(frozen=True)
class Line:
    """One line that is not blank.

    Attributes
    ----------
    source
        Path of the file, for messages.
    number
        Number of the line, from 1.
    fields
        Its words.
    """

    source: str
    number: int
    fields: tuple[str, ...]

    def error(self, reason: str) -> InputError:
        """Error that names file, line and reason."""
        return InputError(f"{self.source}:{self.number}: {reason}")

    def text(self) -> str:
        """The line for a message, shortened and quoted."""
        text = " ".join(self.fields)
        return repr(text if len(text) <= 60 else text[:57] + "...")

    def integer(self, index: int, noun: str) -> int:
        """Field `index` as a whole number; also ``25.0`` and ``1e9``.

        Raises
        ------
        InputError
            It is none; `noun` says what it should have been.
        """
        value = whole(self.fields[index])
        if value is None:
            raise self.error(f"{noun} is {self.fields[index]!r}; a whole number is needed")
        return value

    def number_at(self, index: int, noun: str) -> float:
        """Field `index` as a finite number.

        Raises
        ------
        InputError
            It is none; `noun` says what it should have been.
        """
        try:
            value = float(self.fields[index])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(f"{noun} is {self.fields[index]!r}; a number is needed")
        return value


def read_lines(path: Path) -> list[Line]:
    """Read all lines that are not blank; any line ends, tabs, and a missing last line end are fine.

    Raises
    ------
    InputError
        The file cannot be read, is no text, or is empty.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: invalid UTF-8 at byte {error.start}") from None
    lines = [
        Line(str(path), number, tuple(words))
        for number, words in enumerate((line.split() for line in text.split("\n")), start=1)
        if words
    ]
    if not lines:
        raise InputError(f"{path}: the file is empty")
    return lines


def counted(lines: list[Line], said: int, said_in: Line, noun: str, matches: Iterator[bool]) -> list[Line]:
    """Take the `said` lines that the header announces, and check that it told the truth.

    Parameters
    ----------
    lines
        The lines after the header.
    said
        Number of data lines according to the header.
    said_in
        The header line.
    noun
        What a data line holds, such as "link".
    matches
        For each of `lines`, whether it looks like data; prose may follow the data.

    Raises
    ------
    InputError
        There are more or fewer; both numbers are named, and the first line that is too much or is no data.
    """
    flags = list(matches)
    data = [line for line, flag in zip(lines, flags, strict=True) if flag]
    if len(data) > said:
        surplus = data[said]
        raise surplus.error(
            f"surplus {noun} {surplus.text()}: the header in line {said_in.number} says {said} {noun}s, "
            f"but the file has {len(data)}"
        )
    for line, flag in zip(lines[:said], flags[:said], strict=True):
        if not flag and len(data) == said:
            raise line.error(f"{line.text()} is not a {noun}; text may only follow the last one")
    if len(data) < said:
        # A line before the last data line is one that was mistyped, not prose.
        last = max((index for index, flag in enumerate(flags) if flag), default=-1)
        for line, flag in zip(lines[:last], flags[:last], strict=True):
            if not flag:
                raise line.error(f"{line.text()} is not a {noun}")
        end = lines[last + 1] if last + 1 < len(lines) else None
        found = f"the header says {said} {noun}s, but the file has {len(data)}"
        raise said_in.error(found + (f"; line {end.number}, {end.text()}, is none" if end else ""))
    return data


def whole(text: str) -> int | None:
    """Parse a whole number, also written ``25000000000.0`` or ``1e12``; None if it is none."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if not value.is_finite() or abs(value.adjusted()) > 40 or value != value.to_integral_value():
        return None
    return int(value)


def rate_bps(text: str) -> int | None:
    """Parse a rate: bare bit/s, possibly with a fraction of zero, or with a unit.

    None if it is none, is not above 0, is no whole number of bit/s or is above 100 Tb/s.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        return None
    # Expanding a huge exponent would take for ever.
    if abs(number.adjusted()) > 40:
        return None
    value = Fraction(number) * _PREFIX[match[2]] * (8 if match[3] in ("Bps", "B/s") else 1)
    return int(value) if value.denominator == 1 and 1 <= value <= RATE_LIMIT_BPS else None


def time_ns(text: str) -> int | None:
    """Parse a time to the whole ns that ns-3 makes of it; None if it is none, negative or too large.

    A bare number is in seconds. ns-3 reads the number as a double, keeps it as fixed point with 64 fractional bits
    and truncates the product with the unit: 2.001 s becomes 2000999999 ns.
    """
    match = _TIME.fullmatch(text)
    if match is None or match[2] not in _TIME_NS:
        return None
    try:
        value = float(match[1])
    except ValueError:
        return None
    if not 0 <= value < 2**62:
        return None
    fixed = math.floor(Fraction(value) * 2**64)
    result = math.floor(Fraction(fixed, 2**64) * _TIME_NS[match[2]])
    return result if result < 2**62 // 1000 else None
