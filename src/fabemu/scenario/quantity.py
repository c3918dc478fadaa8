"""Field types of the scenario: text with a unit in the file, an exact integer or fraction in the model."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from fabemu import units
from fabemu.deferred import dataclass

RATE_LIMIT_BPS = 10**14
"""No port is faster than 100 Tb/s: it keeps products of bytes and 8e12 over the rate meaningful."""

NOT_PRINTABLE = "must not hold control characters"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Quantity:
    """How one kind of value is read, written and described; used as an annotation of a model field."""

    parse: Callable[[Any], Any]
    format: Callable[[Any], Any]
    unit: str
    """What the attribute holds, for the reference page."""
    example: str
    words: tuple[str, ...] = ()
    """Words allowed besides a value; the attribute then holds the word."""
    minimum: Any = None
    above: Any = None
    maximum: Any = None
    lists: bool = False
    """Whether a list is one value of this kind, not several."""
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"}, compare=False)

    def read(self, value: object) -> Any:
        """Parse a value of the file; raises ValueError with the message for the user."""
        if isinstance(value, str) and value in self.words:
            return value
        try:
            parsed = self.parse(value)
        except ValueError as error:
            raise ValueError(str(error) + self._word_hint(value)) from None
        if self.above is not None and not parsed > self.above:
            raise ValueError(f"must be above {self._limit(self.above)}")
        if self.minimum is not None and parsed < self.minimum:
            raise ValueError(f"must be at least {self._limit(self.minimum)}")
        if self.maximum is not None and parsed > self.maximum:
            raise ValueError(f"must be at most {self._limit(self.maximum)}")
        return parsed

    def write(self, value: Any) -> Any:
        """Give the value of the file that reads as this one."""
        return value if isinstance(value, str) and value in self.words else self.format(value)

    def _limit(self, value: Any) -> Any:
        return 0 if value == 0 else value if isinstance(self.write(value), float) else self.write(value)

    def _word_hint(self, value: object) -> str:
        if not self.words:
            return ""
        close = difflib.get_close_matches(value, self.words, 1, 0.6) if isinstance(value, str) else []
        if close:
            return f'; did you mean "{close[0]}"?'
        return f"; or {named(self.words)}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic call `read`."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe what the file may hold."""
        return {**self.schema, "examples": [self.example, *self.words]}


def named(values: Sequence[str]) -> str:
    """Write alternatives for a message: '"a", "b" or "c"'."""
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def _time(**limits: Any) -> Quantity:
    return Quantity(units.parse_time_ps, units.format_time, "ps", "1.5us", **limits)


def _size(**limits: Any) -> Quantity:
    return Quantity(units.parse_bytes, units.format_bytes, "bytes", "64KiB", **limits)


def _ratio(**limits: Any) -> Quantity:
    schema = {"type": ["string", "number"]}
    return Quantity(units.parse_ratio, units.format_ratio, "ratio (Fraction)", "1/8", schema=schema, **limits)


def _share(**limits: Any) -> Quantity:
    """Read a ratio that the model keeps as a float."""
    schema = {"type": ["string", "number"]}
    return Quantity(lambda value: float(units.parse_ratio(value)), float, "ratio", "0.5", schema=schema, **limits)


def _parse_mtu(value: object) -> int:
    """Read a payload size: a bare number of bytes is what everybody writes, a size with unit is fine too."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return units.parse_bytes(value)
    raise ValueError(f"a payload size in bytes is needed, such as 4096, found {value!r}")


def parse_integer(value: object) -> int:
    """Read a whole number, strictly."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, found {shown(value)}")
    return value


def is_printable(name: str) -> bool:
    """Tell whether a name leaves the terminal, and the line, of those who are shown it alone."""
    return _CONTROL.search(name) is None


def shown(value: object) -> str:
    """Write a value as TOML would, for messages; long ones are cut."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        text = '"' + _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + '"'
    elif isinstance(value, dict):
        inner = ", ".join(f"{key} = {shown(item)}" for key, item in list(value.items())[:8])
        text = "{ " + inner + " }" if inner else "{}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(shown(item) for item in value[:8]) + (", ...]" if len(value) > 8 else "]")
    elif isinstance(value, int) and value.bit_length() > 300:
        text = "(a very long number)"
    else:
        text = str(value)
    return text if len(text) <= 80 else text[:76] + " ..."


def _parse_names(value: object) -> str | tuple[str, ...]:
    """Read a set of hosts: "all", one name, "first:last" or a list of names."""
    if isinstance(value, str):
        if not value.strip() or any(not part for part in value.split(":")) or value.count(":") > 1:
            raise ValueError('a host set is "all", one name, a range such as "h0:h63", or a list of names')
        return value
    if isinstance(value, (list, tuple)):
        wrong = [item for item in value if not isinstance(item, str) or not item]
        if wrong:
            raise ValueError(f"a list of host names holds texts only, found {shown(wrong[0])}")
        if not value:
            raise ValueError("a list of host names cannot be empty")
        if len(set(value)) != len(value):
            raise ValueError(f'host "{_repeated(value)}" is listed twice')
        return tuple(value)
    raise ValueError(
        f'a host set is "all", one name, a range such as "h0:h63", or a list of names; found {shown(value)}'
    )


def _parse_devices(value: object) -> int | tuple[str, ...]:
    """Read the devices of a graph: a count or a list of names."""
    if isinstance(value, (list, tuple)):
        for item in value:
            if not isinstance(item, str) or not item:
                raise ValueError(f"a list of device names holds texts only, found {shown(item)}")
        if len(set(value)) != len(value):
            raise ValueError(f'device "{_repeated(value)}" is listed twice')
        for item in value:
            if not is_printable(item):
                raise ValueError(NOT_PRINTABLE)
        return tuple(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"must be a count of 0 or more, or a list of names; found {shown(value)}")
    if value > DEVICES_MAX:
        raise ValueError(f"at most {DEVICES_MAX:,} devices")
    return value


def _repeated(names: Sequence[str]) -> str:
    """Give the first name that comes again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("no name is repeated")


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _same(value: Any) -> Any:
    return value


DEVICES_MAX = 1_000_000
"""Hosts, or switches, of one fabric."""

_NAME_SET_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}
_COUNT_OR_NAMES_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "string"}}]
}

Time = Annotated[int, _time()]
"""Picoseconds, zero or more."""
Duration = Annotated[int, _time(above=0)]
"""Picoseconds, above zero."""
Interval = Annotated[int, _time(minimum=100_000)]
"""Picoseconds, at least 100 ns."""
AutoDurationOrOff = Annotated[int | Literal["auto", "off"], _time(above=0, words=("auto", "off"))]
IntervalOrOff = Annotated[int | Literal["off"], _time(minimum=100_000, words=("off",))]
"""Picoseconds, at least 100 ns: shorter samples say nothing that packets do not, in far more bytes."""
Rate = Annotated[int, Quantity(units.parse_rate_bps, units.format_rate, "bit/s", "400Gbps", maximum=RATE_LIMIT_BPS)]
"""bit/s, above zero."""
Flops = Annotated[int, Quantity(units.parse_flops, units.format_flops, "FLOP/s", "400TFLOP/s")]
"""FLOP/s, above zero."""
Size = Annotated[int, _size()]
"""Bytes, zero or more."""
Size32 = Annotated[int, _size(maximum=2**32 - 1)]
"""Bytes that the engine holds in 32 bits."""
PositiveSize = Annotated[int, _size(above=0)]
CellSize = Annotated[int, _size(above=0, maximum=65_535)]
SizeOrAuto = Annotated[int | Literal["auto"], _size(words=("auto",))]
SizeOrNone = Annotated[int | Literal["none"], _size(above=0, words=("none",))]
Length = Annotated[
    Fraction, Quantity(units.parse_length_m, units.format_length, "m (Fraction)", "120m", maximum=Fraction(10**8))
]
Alpha = Annotated[Fraction, _ratio(above=0, maximum=Fraction(1024))]
AlphaOrAuto = Annotated[Fraction | Literal["auto"], _ratio(above=0, maximum=Fraction(1024), words=("auto",))]
Ratio = Annotated[Fraction, _ratio(above=0, maximum=Fraction(1024))]
Probability = Annotated[float, _share(maximum=1)]
Load = Annotated[float, _share(above=0, maximum=1)]
Mtu = Annotated[
    int,
    Quantity(_parse_mtu, _same, "bytes", "4096", minimum=1, maximum=1 << 20, schema={"type": ["integer", "string"]}),
]
HashSeed = Annotated[
    int | Literal["per-switch"],
    Quantity(
        parse_integer,
        _same,
        "32-bit number",
        "7",
        words=("per-switch",),
        minimum=0,
        maximum=2**32 - 1,
        schema={"type": ["integer", "string"]},
    ),
]
HostSet = Annotated[
    str | tuple[str, ...], Quantity(_parse_names, _listed, "host names", "h0:h63", lists=True, schema=_NAME_SET_SCHEMA)
]
Devices = Annotated[
    int | tuple[str, ...],
    Quantity(_parse_devices, _listed, "count or names", "16", lists=True, schema=_COUNT_OR_NAMES_SCHEMA),
]
Text = Annotated[str, Strict(), Field(min_length=1)]
Count = Annotated[int, Strict(), Field(ge=1, le=DEVICES_MAX)]
Flag = Annotated[bool, Strict()]
Weight = Annotated[int, Strict(), Field(ge=1, le=1000)]
