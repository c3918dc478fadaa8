"""``pg_profile_lookup.ini``: headroom and thresholds of a lossless priority group by speed and cable."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.importers.sonic_json import read_text
from fabemu.importers.sonic_switch import Binding, Profile, SonicSwitch
from fabemu.units import format_length

_COLUMNS = ("speed", "cable", "size", "xon", "xoff", "threshold", "xon_offset")


@dataclass(frozen=True)
class LookupLine:
    """One line: bit/s, metres, bytes; `threshold` is the exponent of alpha in a dynamic pool, bytes in a static one."""

    line: int
    rate_bps: int
    cable_m: Fraction
    size_bytes: int
    xon_bytes: int
    xoff_bytes: int
    threshold: int
    xon_offset_bytes: int | None


@dataclass(frozen=True)
class Lookup:
    """All lines, in the order of the file."""

    source: str
    lines: tuple[LookupLine, ...]

    def find(self, rate_bps: int | None, cable_m: Fraction | None) -> LookupLine | None:
        """The line of exactly this speed and cable, as SONiC looks it up."""
        return next((item for item in self.lines if (item.rate_bps, item.cable_m) == (rate_bps, cable_m)), None)


def read_lookup(path: Path) -> Lookup:
    """Read the table; comments, blank lines, tabs and a missing last line end are fine.

    Raises
    ------
    InputError
        The file cannot be read, is empty, or a line is malformed or gives a speed and cable again.
    """
    lines: list[LookupLine] = []
    seen: dict[tuple[int, Fraction], int] = {}
    for number, text in enumerate(read_text(path).splitlines(), start=1):
        fields = text.split("#", 1)[0].split()
        if not fields:
            continue
        where = f"{path}:{number}"
        if not len(_COLUMNS) - 1 <= len(fields) <= len(_COLUMNS):
            raise InputError(
                f"{where}: {len(fields)} columns; a line has {', '.join(_COLUMNS[:-1])} and perhaps {_COLUMNS[-1]}"
            )
        numbers: list[int] = []
        cable = Fraction(0)
        for column, field in zip(_COLUMNS, fields, strict=False):
            if column == "cable":
                match = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)m", field, re.ASCII)
                if match is None:
                    raise InputError(f'{where}: cable is "{field}"; a length in metres is needed, such as 300m')
                cable = Fraction(match[1])
                continue
            if not re.fullmatch(r"-?\d{1,15}" if column == "threshold" else r"\d{1,15}", field, re.ASCII):
                raise InputError(f'{where}: {column} is "{field}"; a whole number is needed')
            numbers.append(int(field))
        if not 10 <= numbers[0] <= 10**8:
            raise InputError(f"{where}: speed is {numbers[0]}; Mb/s, 10 to 100000000, are needed")
        speed, size, xon, xoff, threshold = numbers[:5]
        offset = numbers[5] if len(numbers) > 5 else None
        line = LookupLine(number, speed * 10**6, cable, size, xon, xoff, threshold, offset)
        key = (line.rate_bps, line.cable_m)
        if key in seen:
            raise InputError(f"{where}: {fields[0]} and {fields[1]} are in line {seen[key]} already")
        seen[key] = number
        lines.append(line)
    if not lines:
        raise InputError(f"{path}: no line of speed, cable, size, xon, xoff and threshold")
    return Lookup(str(path), tuple(lines))


def look_up(switch: SonicSwitch, lookup: Lookup) -> None:
    """Give the priority groups that the switch computes the profiles of the lookup file, as its buffer manager does.

    A profile is called ``pg_lossless_SPEED_CABLE_profile`` and belongs to ``ingress_lossless_pool``. Groups for whose
    speed and cable there is no line stay `computed`.
    """
    pool = switch.pools.get("ingress_lossless_pool")
    dynamic = pool is None or pool.mode != "static"
    for (name, number), keys in list(switch.computed.items()):
        port = switch.ports.get(name)
        if port is None or port.rate_bps is None or port.cable_m is None:
            continue
        line = lookup.find(port.rate_bps, port.cable_m)
        if line is None:
            continue
        profile = f"pg_lossless_{port.rate_bps // 10**6}_{format_length(port.cable_m)}_profile"
        switch.profiles.setdefault(
            profile,
            Profile(
                profile,
                None if pool is None else pool.name,
                size_bytes=line.size_bytes,
                xon_bytes=line.xon_bytes,
                xoff_bytes=line.xoff_bytes,
                xon_offset_bytes=line.xon_offset_bytes,
                dynamic_th=line.threshold if dynamic else None,
                static_bytes=None if dynamic else line.threshold,
            ),
        )
        switch.groups[name, number] = Binding(profile, keys)
        del switch.computed[name, number]
