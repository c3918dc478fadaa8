"""Physical values with their unit, as text, to exact integers and back: the only place that parses units.

Times become picoseconds, rates bit/s, sizes bytes, rates of computation FLOP/s; nothing passes through a float. A value
that is no whole number of the base unit, or that does not fit the engine's range (below 2**62), is an error, as is a
number without a unit.
"""

from __future__ import annotations

import difflib
import math
import re
from decimal import Decimal
from fractions import Fraction

LIMIT = 2**62
"""Values stay below this, so that sums of two fit an int64."""

TIME_UNITS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
BYTE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
LENGTH_UNITS = {"mm": Fraction(1, 1000), "cm": Fraction(1, 100), "m": Fraction(1), "km": Fraction(1000)}
RATE_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
RATE_UNITS = {
    prefix + bits: factor for bits in ("bps", "b/s", "bit/s", "bits/s") for prefix, factor in RATE_PREFIXES.items()
}
COMPUTE_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
COMPUTE_UNITS = {
    prefix + unit: factor for unit in ("FLOP/s", "FLOPS", "flop/s") for prefix, factor in COMPUTE_PREFIXES.items()
}

_NUMBER = re.compile(r"([+-]?)(\d+(?:_\d+)*(?:\.\d+(?:_\d+)*)?(?:[eE][+-]?\d{1,4})?)\s*(.*)", re.ASCII | re.DOTALL)
_DIGITS_MAX = 60


class UnitError(ValueError):
    """A physical value is written wrongly; the message says what was found, what is allowed and the likely fix."""


def parse_time_ps(value: object) -> int:
    """Parse a time of zero or more, such as "1.5us", to picoseconds.

    Raises
    ------
    UnitError
        Not a text with a unit, negative, finer than a picosecond or too large.
    """
    return _parse(value, "time", TIME_UNITS, "1.5us", "ps, ns, us, ms or s", "picoseconds", "us")


def parse_bytes(value: object) -> int:
    """Parse a size of zero or more, such as "32MiB" or "9KB", to bytes.

    Raises
    ------
    UnitError
        Not a text with a unit, negative, no whole number of bytes or too large.
    """
    return _parse(value, "size", BYTE_UNITS, "64KiB", "B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", "bytes", "B")


def parse_rate_bps(value: object) -> int:
    """Parse a rate above zero, such as "400Gbps", to bit/s.

    Raises
    ------
    UnitError
        Not a text with a unit, zero or negative, no whole number of bit/s or too large.
    """
    rate = _parse(value, "rate", RATE_UNITS, "400Gbps", "bps, kbps, Mbps, Gbps or Tbps", "bit/s", "Gbps")
    if rate == 0:
        raise UnitError(f'a rate must be above 0: write for example "400Gbps" (found {_shown(value)})')
    return rate


def parse_flops(value: object) -> int:
    """Parse a rate of computation above zero, such as "400TFLOP/s", to FLOP/s.

    Raises
    ------
    UnitError
        Not a text with a unit, zero or negative, no whole number of FLOP/s or too large.
    """
    allowed = "GFLOP/s, TFLOP/s or PFLOP/s"
    flops = _parse(value, "rate of computation", COMPUTE_UNITS, "400TFLOP/s", allowed, "FLOP/s", "TFLOP/s")
    if flops == 0:
        raise UnitError(
            f'a rate of computation must be above 0: write for example "400TFLOP/s" (found {_shown(value)})'
        )
    return flops


def parse_length_m(value: object) -> Fraction:
    """Parse a length of zero or more, such as "120m", to metres, exactly.

    Raises
    ------
    UnitError
        Not a text with a unit, negative or too large.
    """
    return _parse_exact(value, "length", LENGTH_UNITS, "120m", "mm, cm, m or km", "m")


def parse_ratio(value: object) -> Fraction:
    """Parse a ratio of zero or more: a number, "0.5", "1/8" or "2:1", exactly (0.1 is one tenth).

    Raises
    ------
    UnitError
        Not a ratio, negative, not finite or with a zero divisor.
    """
    wanted = 'write a number such as 0.5, or "1/8", or "2:1"'
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction, Decimal)):
        raise UnitError(f"a ratio is needed, found {_shown(value)}: {wanted}")
    if isinstance(value, str):
        parts = re.split(r"\s*[/:]\s*", value.strip())
        numbers = [_NUMBER.fullmatch(part) for part in parts]
        if len(parts) > 2 or not all(match and not match[3] for match in numbers):
            raise UnitError(f"{_shown(value)} is not a ratio: {wanted}")
        terms = [_fraction(match[1], match[2], value) for match in numbers if match]
        if len(terms) == 2 and terms[1] == 0:
            raise UnitError(f"{_shown(value)} divides by zero: {wanted}")
        ratio = terms[0] / terms[1] if len(terms) == 2 else terms[0]
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise UnitError(f"a ratio must be finite, found {value}: {wanted}")
        # The shortest decimal that denotes the float is what the user wrote.
        ratio = Fraction(repr(value))
    else:
        ratio = Fraction(value)
    if ratio < 0:
        raise UnitError(f"a ratio cannot be negative, found {_shown(value)}: {wanted}")
    return ratio


def format_time(time_ps: int) -> str:
    """Write picoseconds exactly in the largest unit that is not above the value: 1500000 -> "1.5us"."""
    units = (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3), ("ps", 1))
    return _format_decimal(time_ps, units) if time_ps else "0us"


def round_time(time_ps: float) -> str:
    """Write picoseconds for people, with four digits: 1559450360 -> "1.559 ms"."""
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if abs(time_ps) >= factor:
            return f"{time_ps / factor:.4g} {unit}"
    return f"{time_ps:.4g} ps"


def format_rate(rate_bps: int) -> str:
    """Write bit/s exactly in the largest unit that is not above the value: 400 * 10**9 -> "400Gbps"."""
    units: tuple[tuple[str, int], ...] = (
        ("Tbps", 10**12),
        ("Gbps", 10**9),
        ("Mbps", 10**6),
        ("kbps", 10**3),
        ("bps", 1),
    )
    if 10**12 <= rate_bps < 10**13 and rate_bps % 10**12:
        units = units[1:]  # 1600Gbps is what people say, not 1.6Tbps
    return _format_decimal(rate_bps, units)


def format_flops(flops: int) -> str:
    """Write FLOP/s exactly in the largest unit that is not above the value: 4 * 10**14 -> "400TFLOP/s"."""
    units = tuple((f"{prefix}FLOP/s", factor) for prefix, factor in reversed(COMPUTE_PREFIXES.items()))
    return _format_decimal(flops, units)


def format_bytes(size_bytes: int) -> str:
    """Write bytes exactly, in the largest unit of which they are a whole number: 65536 -> "64KiB"."""
    units = (
        ("TiB", 2**40),
        ("TB", 10**12),
        ("GiB", 2**30),
        ("GB", 10**9),
        ("MiB", 2**20),
        ("MB", 10**6),
        ("KiB", 2**10),
        ("KB", 10**3),
    )
    for unit, factor in units:
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes}B"


def format_length(length_m: Fraction) -> str:
    """Write a length in metres exactly: Fraction(1, 2) -> "0.5m"."""
    return f"{_decimal_text(length_m)}m"


def format_ratio(ratio: Fraction) -> str:
    """Write a ratio exactly: "8" or "1/8"."""
    return str(ratio)


def _parse(
    value: object, noun: str, units: dict[str, int], example: str, allowed: str, base: str, likely_unit: str
) -> int:
    """Parse to a whole number of the base unit."""
    exact = _parse_exact(value, noun, units, example, allowed, likely_unit)
    if exact.denominator != 1:
        raise UnitError(f"{_shown(value)} is not a whole number of {base}")
    if exact >= LIMIT:
        raise UnitError(f"{_shown(value)} is too large: a {noun} must be below 2**62 {base}")
    return int(exact)


def _parse_exact(
    value: object,
    noun: str,
    units: dict[str, int] | dict[str, Fraction],
    example: str,
    allowed: str,
    likely_unit: str,
) -> Fraction:
    """Parse number and unit; the shared part of all units."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UnitError(f'a {noun} must be finite, found {value}: write for example "{example}"')
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise UnitError(f'a {noun} needs a unit: write "{value}{likely_unit}" or the like ({allowed}), not {value}')
    if not isinstance(value, str):
        raise UnitError(f'a {noun} is needed, such as "{example}", found {_shown(value)}')
    match = _NUMBER.fullmatch(value.strip())
    if match is None:
        raise UnitError(f'"{value}" is not a {noun}: write a number and a unit ({allowed}), such as "{example}"')
    sign, digits, unit = match[1], match[2], re.sub(r"\s+", "", match[3])
    if not unit:
        raise UnitError(f'a {noun} needs a unit: write "{value.strip()}{likely_unit}" or the like ({allowed})')
    if unit not in units:
        raise UnitError(_unknown_unit(value, sign + digits, unit, noun, units, allowed, example))
    number = _fraction(sign, digits, value)
    if number < 0:
        raise UnitError(f'a {noun} cannot be negative: "{value}"')
    return number * units[unit]


def _unknown_unit(
    value: str,
    number: str,
    unit: str,
    noun: str,
    units: dict[str, int] | dict[str, Fraction],
    allowed: str,
    example: str,
) -> str:
    """Say why a unit is not one, with the likely fix."""
    if noun == "rate":
        bits = re.fullmatch(r"([kKMGT]?)(b|bit|bits|)", unit)
        if bits:
            return f'a rate needs /s: write "{number}{bits[1]}bps", not "{value}"'
        per_second_bytes = re.fullmatch(r"([kKMGT]i?|)(Bps|B/s|byte/s|bytes/s|B)", unit)
        if per_second_bytes:
            prefix = per_second_bytes[1][:1]
            return f'a rate is in bits, not bytes: write 8 times the number with "{prefix}bps", not "{value}"'
    if noun == "size":
        bits = re.fullmatch(r"([kKmMgGtT]?)(b|bit|bits)", unit)
        if bits:
            return f'a size is in bytes: write "{number}{bits[1].upper()}B" if you mean bytes, not "{value}"'
        if unit in RATE_UNITS:
            return f'a size is needed, "{value}" is a rate: write for example "{example}"'
    folded = {name.casefold(): name for name in units}
    near = folded.get(unit.casefold())
    if near is None:
        close = difflib.get_close_matches(unit, list(units), 1, 0.6)
        near = close[0] if close else None
    hint = f'; did you mean "{number}{near}"?' if near else f', such as "{example}"'
    return f'"{unit}" is not a unit of {noun}: use {allowed}{hint}'


def _fraction(sign: str, digits: str, value: object) -> Fraction:
    """Convert a checked decimal exactly, refusing those whose expansion would be absurdly long."""
    decimal = Decimal(sign + digits)
    if len(digits) > _DIGITS_MAX or (decimal and abs(decimal.adjusted()) > _DIGITS_MAX):
        raise UnitError(f"{_shown(value)} is out of range")
    return Fraction(decimal)


def _format_decimal(value: int, units: tuple[tuple[str, int], ...]) -> str:
    """Write an integer in the first unit that is not above it."""
    for unit, factor in units:
        if abs(value) >= factor:
            return f"{_decimal_text(Fraction(value, factor))}{unit}"
    return f"{value}{units[-1][0]}"


def _decimal_text(value: Fraction) -> str:
    """Write a fraction whose denominator divides a power of ten, exactly."""
    places = 0
    while value.denominator != 1:
        value *= 10
        places += 1
        if places > 2 * _DIGITS_MAX:
            raise ValueError("not a terminating decimal")
    digits = str(abs(value.numerator)).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if value < 0 else text


def _shown(value: object) -> str:
    """Show a value as a user of TOML writes it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
