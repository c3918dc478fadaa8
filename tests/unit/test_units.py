"""Units: exact both ways, and messages that name the fix."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabemu.units import (
    BYTE_UNITS,
    LIMIT,
    RATE_UNITS,
    TIME_UNITS,
    UnitError,
    format_bytes,
    format_length,
    format_rate,
    format_ratio,
    format_time,
    parse_bytes,
    parse_length_m,
    parse_rate_bps,
    parse_ratio,
    parse_time_ps,
)


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("1.5us", 1_500_000),
        ("0ns", 0),
        ("614.4ns", 614_400),
        ("1ps", 1),
        ("2 ms", 2 * 10**9),
        (" 3s ", 3 * 10**12),
        ("1e-3us", 1_000),
        ("4.096µs", 4_096_000),
        ("1_000ns", 10**6),
        ("0.001ms", 10**6),
    ],
)
def test_times(text: str, time_ps: int) -> None:
    assert parse_time_ps(text) == time_ps


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("400Gbps", 400 * 10**9),
        ("1.6Tbps", 1_600 * 10**9),
        ("25 Gbit/s", 25 * 10**9),
        ("100Gb/s", 100 * 10**9),
        ("5Mbps", 5 * 10**6),
        ("9kbps", 9_000),
        ("1bps", 1),
        ("0.1Gbps", 10**8),
        ("25000000000.0bps", 25 * 10**9),
    ],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("32MiB", 32 * 2**20),
        ("9KB", 9_000),
        ("9kB", 9_000),
        ("64B", 64),
        ("0B", 0),
        ("10TB", 10**13),
        ("1.5KiB", 1_536),
        ("1GB", 10**9),
        ("2GiB", 2**31),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("value", "ratio"),
    [
        ("1/8", Fraction(1, 8)),
        ("2:1", Fraction(2)),
        (0.5, Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        (8, Fraction(8)),
        ("0.25", Fraction(1, 4)),
        (1e-3, Fraction(1, 1000)),
        (0, Fraction(0)),
        ("1 / 3", Fraction(1, 3)),
    ],
)
def test_ratios(value: object, ratio: Fraction) -> None:
    assert parse_ratio(value) == ratio


def test_lengths() -> None:
    assert parse_length_m("120m") == 120
    assert parse_length_m("0.5 km") == 500
    assert parse_length_m("3cm") == Fraction(3, 100)
    assert format_length(Fraction(1, 2)) == "0.5m"


@pytest.mark.parametrize(
    ("parse", "value", "message"),
    [
        (parse_rate_bps, "400Gb", 'a rate needs /s: write "400Gbps", not "400Gb"'),
        (parse_rate_bps, "400G", 'a rate needs /s: write "400Gbps", not "400G"'),
        (parse_rate_bps, "400 Gbit", 'a rate needs /s: write "400Gbps", not "400 Gbit"'),
        (parse_rate_bps, "50GB/s", 'a rate is in bits, not bytes: write 8 times the number with "Gbps", not "50GB/s"'),
        (
            parse_rate_bps,
            "5 apples",
            '"apples" is not a unit of rate: use bps, kbps, Mbps, Gbps or Tbps, such as "400Gbps"',
        ),
        (
            parse_rate_bps,
            "400gbps",
            '"gbps" is not a unit of rate: use bps, kbps, Mbps, Gbps or Tbps; did you mean "400Gbps"?',
        ),
        (
            parse_rate_bps,
            400,
            'a rate needs a unit: write "400Gbps" or the like (bps, kbps, Mbps, Gbps or Tbps), not 400',
        ),
        (
            parse_rate_bps,
            "400",
            'a rate needs a unit: write "400Gbps" or the like (bps, kbps, Mbps, Gbps or Tbps)',
        ),
        (parse_rate_bps, "0Gbps", 'a rate must be above 0: write for example "400Gbps" (found "0Gbps")'),
        (parse_rate_bps, "-5Gbps", 'a rate cannot be negative: "-5Gbps"'),
        (parse_rate_bps, "1.5bps", '"1.5bps" is not a whole number of bit/s'),
        (parse_rate_bps, "fast", '"fast" is not a rate: write a number and a unit (bps, kbps, Mbps, Gbps or Tbps), '
         'such as "400Gbps"'),
        (parse_rate_bps, True, 'a rate is needed, such as "400Gbps", found true'),
        (parse_rate_bps, ["1Gbps"], "a rate is needed, such as \"400Gbps\", found ['1Gbps']"),
        (parse_time_ps, 5, 'a time needs a unit: write "5us" or the like (ps, ns, us, ms or s), not 5'),
        (parse_time_ps, "5 US", '"US" is not a unit of time: use ps, ns, us, ms or s; did you mean "5us"?'),
        (parse_time_ps, "0.1ps", '"0.1ps" is not a whole number of picoseconds'),
        (parse_time_ps, "60 days", '"days" is not a unit of time: use ps, ns, us, ms or s, such as "1.5us"'),
        (parse_time_ps, "5e6s", '"5e6s" is too large: a time must be below 2**62 picoseconds'),
        (parse_time_ps, "1e999s", '"1e999s" is out of range'),
        (parse_time_ps, "infus", '"infus" is not a time: write a number and a unit (ps, ns, us, ms or s), '
         'such as "1.5us"'),
        (parse_bytes, "9kb", 'a size is in bytes: write "9KB" if you mean bytes, not "9kb"'),
        (parse_bytes, "400Gbps", 'a size is needed, "400Gbps" is a rate: write for example "64KiB"'),
        (
            parse_bytes,
            "9kib",
            '"kib" is not a unit of size: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB; did you mean "9KiB"?',
        ),
        (parse_bytes, "-1B", 'a size cannot be negative: "-1B"'),
        (parse_bytes, "0.3B", '"0.3B" is not a whole number of bytes'),
        (parse_bytes, "5000000TB", '"5000000TB" is too large: a size must be below 2**62 bytes'),
        (parse_ratio, "1/0", '"1/0" divides by zero: write a number such as 0.5, or "1/8", or "2:1"'),
        (parse_ratio, "x", '"x" is not a ratio: write a number such as 0.5, or "1/8", or "2:1"'),
        (parse_ratio, "1/2/3", '"1/2/3" is not a ratio: write a number such as 0.5, or "1/8", or "2:1"'),
        (parse_ratio, -0.5, 'a ratio cannot be negative, found -0.5: write a number such as 0.5, or "1/8", or "2:1"'),
        (parse_ratio, float("nan"), 'a ratio must be finite, found nan: '
         'write a number such as 0.5, or "1/8", or "2:1"'),
        (parse_ratio, None, 'a ratio is needed, found None: write a number such as 0.5, or "1/8", or "2:1"'),
    ],
)  # fmt: skip
def test_messages(parse, value, message) -> None:
    with pytest.raises(UnitError) as caught:
        parse(value)
    assert str(caught.value) == message


def test_the_largest_value_is_below_the_limit() -> None:
    assert parse_bytes(f"{LIMIT - 1}B") == LIMIT - 1
    with pytest.raises(UnitError, match=r"too large"):
        parse_bytes(f"{LIMIT}B")


def test_formats() -> None:
    assert format_time(0) == "0us"
    assert format_time(1_500_000) == "1.5us"
    assert format_time(83_560) == "83.56ns"
    assert format_rate(400 * 10**9) == "400Gbps"
    assert format_rate(1_600 * 10**9) == "1600Gbps"
    assert format_rate(10**12) == "1Tbps"
    assert format_bytes(65_536) == "64KiB"
    assert format_bytes(400_000) == "400KB"
    assert format_bytes(0) == "0B"
    assert format_bytes(1_001) == "1001B"
    assert format_ratio(Fraction(1, 8)) == "1/8"


whole = st.integers(0, LIMIT - 1)


@given(whole)
def test_times_round_trip(time_ps: int) -> None:
    assert parse_time_ps(format_time(time_ps)) == time_ps


@given(whole)
def test_sizes_round_trip(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == size_bytes


@given(st.integers(1, LIMIT - 1))
def test_rates_round_trip(rate_bps: int) -> None:
    assert parse_rate_bps(format_rate(rate_bps)) == rate_bps


@given(st.integers(0, 10**9), st.integers(0, 6))
def test_lengths_round_trip(digits: int, places: int) -> None:
    length = Fraction(digits, 10**places)
    assert parse_length_m(format_length(length)) == length


@given(st.fractions(min_value=0, max_value=10**6, max_denominator=10**6))
def test_ratios_round_trip(ratio: Fraction) -> None:
    assert parse_ratio(format_ratio(ratio)) == ratio


@given(st.floats(0, 1e9, allow_subnormal=False).filter(lambda value: value == 0 or value > 1e-40))
def test_a_float_is_the_decimal_that_was_written(value: float) -> None:
    assert float(parse_ratio(value)) == value


@given(st.integers(0, 10**6), st.sampled_from(sorted(TIME_UNITS)), st.sampled_from(["", " "]))
def test_every_time_unit(number: int, unit: str, gap: str) -> None:
    if number * TIME_UNITS[unit] < LIMIT:
        assert parse_time_ps(f"{number}{gap}{unit}") == number * TIME_UNITS[unit]


@given(st.integers(1, 10**5), st.sampled_from(sorted(RATE_UNITS)))
def test_every_rate_unit(number: int, unit: str) -> None:
    assert parse_rate_bps(f"{number}{unit}") == number * RATE_UNITS[unit]


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTE_UNITS)))
def test_every_size_unit(number: int, unit: str) -> None:
    if number * BYTE_UNITS[unit] < LIMIT:
        assert parse_bytes(f"{number}{unit}") == number * BYTE_UNITS[unit]


@given(st.text(max_size=12) | st.from_regex(r"-?[0-9.e_]{1,8} ?[a-zA-Z/]{0,6}", fullmatch=True))
def test_any_text_is_a_value_or_a_unit_error(text: str) -> None:
    for parse in (parse_time_ps, parse_bytes, parse_rate_bps, parse_length_m, parse_ratio):
        try:
            assert parse(text) >= 0
        except UnitError as error:
            assert str(error)
