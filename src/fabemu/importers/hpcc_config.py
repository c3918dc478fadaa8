"""Configuration files of the HPCC family: which keys fabemu honours, which it refuses, which it leaves out."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from fabemu.deferred import dataclass
from fabemu.importers.hpcc_lines import Line, rate_bps, read_lines, time_ns, whole
from fabemu.units import LIMIT, format_rate

CC_NONE, CC_DCQCN = 0, 1
_CC_NAMES = {CC_NONE: "none", CC_DCQCN: "DCQCN", 3: "HPCC", 7: "TIMELY", 8: "DCTCP", 10: "HPCC-PINT"}

_DEFAULT_ECN_BPS = 100 * 10**9
_DEFAULT_KMIN_BYTES, _DEFAULT_KMAX_BYTES, _DEFAULT_PMAX = 400_000, 1_600_000, 0.2


@dataclass(frozen=True)
class EcnPoint:
    """ECN thresholds of the ports of one rate: bytes, bytes, probability."""

    kmin_bytes: int
    kmax_bytes: int
    pmax: float


@dataclass(frozen=True, kw_only=True)
class HpccConfig:
    """What a configuration says, in the units of its fields' names.

    The defaults are those of the family's "dcqcn" settings, scaled to 100 Gb/s.

    Attributes
    ----------
    ecn
        Thresholds by egress rate in bit/s; empty for the defaults, which grow with the rate.
    given
        Keys that the file has.
    notes
        One line per key that is not carried over.
    """

    source: str = ""
    cc_mode: int = CC_DCQCN
    payload_bytes: int = 1000
    buffer_bytes: int = 32 * 2**20
    ecn_enabled: bool = True
    ecn: dict[int, EcnPoint]
    alpha_timer_ns: int = 1_000
    decrease_timer_ns: int = 4_000
    increase_timer_ns: int = 300_000
    gain: float = 1 / 256
    fast_recovery_steps: int = 1
    clamp_target: bool = False
    rate_ai_bps: int = 20 * 10**6
    rate_hai_bps: int = 200 * 10**6
    rate_min_bps: int = 10**9
    ack_every: int = 1
    stop_ns: int | None = None
    given: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def ecn_at(self, rate: int) -> EcnPoint | None:
        """Thresholds of the ports of one rate in bit/s; None if the file gives others only."""
        if self.ecn:
            return self.ecn.get(rate)
        return EcnPoint(
            _DEFAULT_KMIN_BYTES * rate // _DEFAULT_ECN_BPS,
            _DEFAULT_KMAX_BYTES * rate // _DEFAULT_ECN_BPS,
            _DEFAULT_PMAX,
        )


def default_config() -> HpccConfig:
    """Settings for an import without a configuration file, with a note that says so."""
    return HpccConfig(
        ecn={},
        notes=(
            "no configuration file: the family's DCQCN settings at 100 Gb/s are used (CC_MODE 1, payload 1000 B, "
            "buffer 32 MiB, ECN 400 to 1600 KB with pmax 0.2 at 100 Gb/s and in proportion to the rate, "
            "ALPHA_RESUME_INTERVAL 1, RATE_DECREASE_INTERVAL 4, RP_TIMER 300, EWMA_GAIN 1/256, FAST_RECOVERY_TIMES 1, "
            "RATE_AI 20Mb/s, RATE_HAI 200Mb/s, MIN_RATE 1000Mb/s, no window)",
        ),
    )


def read_config(path: Path) -> HpccConfig:
    """Read a configuration file.

    Raises
    ------
    InputError
        A value is malformed, a key stands twice, or a setting would change the result and cannot be honoured.
    """
    seen: dict[str, Line] = {}
    values: dict[str, Any] = {}
    maps: dict[str, tuple[Line, dict[int, float]]] = {}
    notes: list[str] = []
    for line in read_lines(path):
        key = line.fields[0]
        if key.startswith(("#", "//")):
            continue
        if not _is_key(key):
            raise line.error(f"{line.text()} is not a setting; a line is KEY value")
        if key in seen:
            raise line.error(f"{key} is set twice, first in line {seen[key].number}")
        seen[key] = line
        if key in _MAPS:
            maps[key] = (line, _rate_map(line))
        elif key in _CARRIED:
            name, convert = _CARRIED[key]
            values[name] = convert(line)
        elif key in _REFUSED:
            _refuse(line)
        else:
            notes.append(_left_out(line))
    values["ecn"] = _ecn(maps)
    config = HpccConfig(source=str(path), given=frozenset(seen), notes=(), **values)
    missing = [key for key in _EXPECTED if key not in seen]
    if missing:
        notes.append(f"{path}: not given, so the family's DCQCN settings at 100 Gb/s apply: {', '.join(missing)}")
    for key, meaning in (("HAS_WIN", "0, no window"), ("ACK_HIGH_PRIO", "1, ACKs first and never paused at the NIC")):
        if key not in seen:
            notes.append(f"{path}: {key} is not given and is taken as {meaning}; the simulator's own default differs")
    return replace(config, notes=tuple(notes))


def _is_key(text: str) -> bool:
    """Whether a word looks like the name of a setting."""
    return text[0].isalpha() and text == text.upper() and text.replace("_", "").isalnum()


def _value(line: Line) -> str:
    """The only value of a line."""
    if len(line.fields) != 2:
        raise line.error(f"{line.fields[0]} has {len(line.fields) - 1} values; it takes one")
    return line.fields[1]


def _whole(low: int, high: int) -> Callable[[Line], int]:
    """Converter for a whole number within bounds."""

    def convert(line: Line) -> int:
        number = whole(_value(line))
        if number is None or not low <= number <= high:
            raise line.error(f"{line.fields[0]} is {_value(line)!r}; a whole number from {low} to {high} is needed")
        return number

    return convert


def _flag(line: Line) -> bool:
    """Converter for 0 or 1."""
    return bool(_whole(0, 1)(line))


def _microseconds(line: Line) -> int:
    """Converter for a time in us to ns; the simulator cuts it to whole us."""
    text = _value(line)
    line.number_at(1, line.fields[0])
    value_ns = int(Decimal(text)) * 1000
    if not 0 < value_ns < LIMIT // 1000:
        raise line.error(f"{line.fields[0]} is {text!r}; a time in us, of at least 1, is needed")
    return value_ns


def _rate(line: Line) -> int:
    """Converter for a rate to bit/s."""
    text = "".join(line.fields[1:])
    rate = rate_bps(text)
    if rate is None:
        raise line.error(f"{line.fields[0]} is {text!r}; a rate above 0 such as 50Mb/s is needed")
    return rate


def _gain(line: Line) -> float:
    """Converter for the gain of alpha."""
    _value(line)
    value = line.number_at(1, line.fields[0])
    if not 0 <= value <= 1:
        raise line.error(f"{line.fields[0]} is {line.fields[1]!r}; a number from 0 to 1 is needed")
    return value


def _cc_mode(line: Line) -> int:
    """Converter for the congestion control."""
    number = whole(_value(line))
    if number in (CC_NONE, CC_DCQCN):
        return int(number)
    name = f" ({_CC_NAMES[number]})" if number in _CC_NAMES else ""
    raise line.error(f"CC_MODE {_value(line)}{name} is not supported; supported are 0 (none) and 1 (DCQCN)")


def _buffer(line: Line) -> int:
    """Converter for the buffer, in MiB."""
    return _whole(1, 2**20)(line) * 2**20


def _stop(line: Line) -> int:
    """Converter for the end of the simulation, in seconds."""
    stop_ns = time_ns(_value(line))
    if not stop_ns:
        raise line.error(f"{line.fields[0]} is {line.fields[1]!r}; a time in seconds above 0 is needed")
    return stop_ns


_CARRIED: dict[str, tuple[str, Callable[[Line], Any]]] = {
    "CC_MODE": ("cc_mode", _cc_mode),
    "PACKET_PAYLOAD_SIZE": ("payload_bytes", _whole(1, 2**20)),
    "BUFFER_SIZE": ("buffer_bytes", _buffer),
    "ENABLE_QCN": ("ecn_enabled", _flag),
    "ALPHA_RESUME_INTERVAL": ("alpha_timer_ns", _microseconds),
    "RATE_DECREASE_INTERVAL": ("decrease_timer_ns", _microseconds),
    "RP_TIMER": ("increase_timer_ns", _microseconds),
    "EWMA_GAIN": ("gain", _gain),
    "FAST_RECOVERY_TIMES": ("fast_recovery_steps", _whole(0, 10**6)),
    "CLAMP_TARGET_RATE": ("clamp_target", _flag),
    "RATE_AI": ("rate_ai_bps", _rate),
    "RATE_HAI": ("rate_hai_bps", _rate),
    "MIN_RATE": ("rate_min_bps", _rate),
    "SIMULATOR_STOP_TIME": ("stop_ns", _stop),
}
"""Keys that the scenario honours."""

_MAPS = ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP")

_EXPECTED = (
    "CC_MODE",
    "PACKET_PAYLOAD_SIZE",
    "BUFFER_SIZE",
    "ALPHA_RESUME_INTERVAL",
    "RATE_DECREASE_INTERVAL",
    "RP_TIMER",
    "EWMA_GAIN",
    "FAST_RECOVERY_TIMES",
    "RATE_AI",
    "RATE_HAI",
    "MIN_RATE",
    *_MAPS,
)
"""Keys whose absence deserves a note."""

_REFUSED: dict[str, tuple[float, str]] = {
    "HAS_WIN": (0, "a window per flow is not supported"),
    "L2_ACK_INTERVAL": (1, "an ACK that waits for a number of bytes is not supported"),
    "USE_DYNAMIC_PFC_THRESHOLD": (1, "static PFC thresholds are not supported"),
    "L2_BACK_TO_ZERO": (0, "going back to the first packet of a chunk is not supported"),
    "RATE_BOUND": (1, "flows without a rate limiter are not supported"),
    "ACK_HIGH_PRIO": (1, "ACKs that wait at the NIC while their class is paused are not supported"),
    "ERROR_RATE_PER_LINK": (0, "links that lose packets are not supported yet"),
    "ENABLE_PFC": (1, "running without PFC is not supported"),
    "ENABLE_IRN": (0, "selective repeat (IRN) is not supported"),
    "LB_MODE": (0, "load balancing other than ECMP by flow is not supported"),
}
"""Keys that must have one value, since another would change the result: that value, and why."""

_OTHER_CONTROLS = "it belongs to other congestion controls"
_WINDOWS = "it belongs to windows"
_FILES = "files are arguments of this command, and the run directory holds all results"
_LEFT_OUT = {
    "L2_CHUNK_SIZE": "it acts after losses only, and a lossless class has none",
    "VAR_WIN": _WINDOWS,
    "GLOBAL_T": _WINDOWS,
    "PAUSE_TIME": "the simulator ignores it too",
    "FAST_REACT": _OTHER_CONTROLS,
    "U_TARGET": _OTHER_CONTROLS,
    "MI_THRESH": _OTHER_CONTROLS,
    "INT_MULTI": _OTHER_CONTROLS,
    "MULTI_RATE": _OTHER_CONTROLS,
    "SAMPLE_FEEDBACK": _OTHER_CONTROLS,
    "PINT_LOG_BASE": _OTHER_CONTROLS,
    "PINT_PROB": _OTHER_CONTROLS,
    "DCTCP_RATE_AI": _OTHER_CONTROLS,
    "ENABLE_TRACE": "traces are chosen with [trace] in the scenario",
    "QLEN_MON_START": "queues are sampled during the whole run",
    "QLEN_MON_END": "queues are sampled during the whole run",
}
"""Keys that change no result here, and why they are not carried over."""


def _refuse(line: Line) -> None:
    """Check a key that must have one value."""
    key = line.fields[0]
    wanted, reason = _REFUSED[key]
    _value(line)
    if line.number_at(1, key) != wanted:
        raise line.error(f"{key} {line.fields[1]}: {reason}; only {key} {wanted:g} is")


def _left_out(line: Line) -> str:
    """Note for a key that is not carried over.

    Raises
    ------
    InputError
        A link failure is asked for.
    """
    key = line.fields[0]
    if key == "LINK_DOWN" and any(whole(field) != 0 for field in line.fields[1:]):
        raise line.error(f"{' '.join(line.fields)}: link failures are not supported yet; only LINK_DOWN 0 0 0 is")
    reason = _LEFT_OUT.get(key)
    if key == "LINK_DOWN":
        reason = "no link fails"
    elif key.endswith("_FILE"):
        reason = _FILES
    elif reason is None:
        near = difflib.get_close_matches(key, [*_CARRIED, *_MAPS, *_REFUSED], n=1, cutoff=0.8)
        reason = "unknown key" + (f"; did you mean {near[0]}?" if near else "")
    return f"{line.source}:{line.number}: {key} is not carried over: {reason}"


def _rate_map(line: Line) -> dict[int, float]:
    """Read ``KEY n rate value rate value ...``."""
    key = line.fields[0]
    if len(line.fields) < 2:
        raise line.error(f"{key} is empty; it takes a count and that many pairs of rate and value")
    count = line.integer(1, f"the count of {key}")
    pairs = line.fields[2:]
    if count < 1 or len(pairs) != 2 * count:
        raise line.error(f"{key} says {count} pairs of rate and value, but {len(pairs)} numbers follow")
    result: dict[int, float] = {}
    for index in range(2, len(line.fields), 2):
        rate = rate_bps(line.fields[index])
        if rate is None:
            raise line.error(f"{key}: {line.fields[index]!r} is not a rate in bit/s above 0")
        value = line.number_at(index + 1, f"{key} at {format_rate(rate)}")
        limit = 1.0 if key == "PMAX_MAP" else 2**31 / 1000 - 1
        if not 0 <= value <= limit:
            raise line.error(f"{key} at {format_rate(rate)} is {line.fields[index + 1]}; allowed is 0 to {limit:g}")
        if rate in result:
            raise line.error(f"{key} has {format_rate(rate)} twice")
        result[rate] = value
    return result


def _ecn(maps: dict[str, tuple[Line, dict[int, float]]]) -> dict[int, EcnPoint]:
    """Join the three maps; all or none must be given, for the same rates."""
    if not maps:
        return {}
    line, first = next(iter(maps.values()))
    for key in _MAPS:
        if key not in maps:
            raise line.error(f"{line.fields[0]} without {key}; give KMIN_MAP, KMAX_MAP and PMAX_MAP, or none")
        other_line, other = maps[key]
        odd = sorted(set(first) ^ set(other))
        if odd:
            raise other_line.error(
                f"{key} and {line.fields[0]} are not for the same rates: only one has {format_rate(odd[0])}"
            )
    kmin, kmax, pmax = (maps[key][1] for key in _MAPS)
    points = {}
    for rate in first:
        if kmin[rate] > kmax[rate]:
            raise maps["KMIN_MAP"][0].error(
                f"KMIN_MAP {kmin[rate]:g} is above KMAX_MAP {kmax[rate]:g} at {format_rate(rate)}"
            )
        points[rate] = EcnPoint(int(kmin[rate] * 1000), int(kmax[rate] * 1000), pmax[rate])
    return points
