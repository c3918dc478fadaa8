"""A predicted cost on this machine: with the memory there is and the time it takes, as text and as JSON."""

from __future__ import annotations

import math
from typing import Any, Protocol

from fabemu.cost.admission import WARN_SHARE
from fabemu.cost.estimate import Cost, Estimate
from fabemu.cost.machine import Room, size_text
from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.report import duration_text, time_text

_SHORT_SECONDS = 0.1  # below, start-up takes longer
_TENTHS_SECONDS = 9.95  # below, tenths are told


class Measured(Protocol):
    """A speed that was measured, see `fabemu.simulate.Speed`."""

    @property
    def packet_hops(self) -> int:
        """That were done."""

    @property
    def cpu_seconds(self) -> float:
        """That they took."""

    @property
    def hops_per_cpu_second(self) -> float:
        """Packet hops per CPU-second."""


@dataclass(frozen=True)
class CostHere:
    """What a run costs on this machine.

    Attributes
    ----------
    cost
        What it costs on any.
    room
        The memory there is; None if nothing tells.
    speed
        Of the beginning of the run, tried out; None if it was not.
    """

    cost: Cost
    room: Room | None
    speed: Measured | None

    @property
    def seconds(self) -> Estimate | None:
        """CPU time of a run, without building it and without writing traces; None without a speed."""
        if self.speed is None:
            return None
        return self.cost.packet_hops.times(1 / self.speed.hops_per_cpu_second)

    def to_dict(self) -> dict[str, Any]:
        """The ``cost`` of ``fabemu check --cost --json``."""
        found = self.cost.to_dict()
        found["memory_available_bytes"] = None if self.room is None else self.room.bytes
        found["memory_limit"] = None if self.room is None else self.room.limit
        found["cpu_seconds"] = None
        found["speed"] = None
        if self.speed is not None and self.seconds is not None:
            seconds = self.seconds
            found["cpu_seconds"] = {name: round(getattr(seconds, name), 6) for name in ("value", "low", "high")}
            found["speed"] = {
                "packet_hops_per_cpu_second": round(self.speed.hops_per_cpu_second),
                "measured_packet_hops": self.speed.packet_hops,
                "measured_cpu_seconds": round(self.speed.cpu_seconds, 6),
            }
        return found

    def __str__(self) -> str:
        """Lines for a reader."""
        cost = self.cost
        lines = ["a run costs, as predicted:"]

        def line(name: str, text: str) -> None:
            lines.append(f"  {name:12} {text}")

        line("packet hops", _range_text(cost.packet_hops))
        line("events", _range_text(cost.events))
        line("simulated", f"{time_text(cost.simulated_ps)}, if nothing but fair shares slows the senders")
        line("memory", self._memory_text())
        parts = sorted(cost.memory.to_dict().items(), key=lambda item: -item[1])
        line("", ", ".join(f"{name.replace('_', ' ')} {size_text(value)}" for name, value in parts if value >= 1e6))
        rows = [
            f"{table} {counted(cost.rows[table], 'row')}, {size_text(size)}" for table, size in cost.trace_bytes.items()
        ]
        line("traces", f"{size_text(sum(cost.trace_bytes.values()))} on disk")
        if rows:
            line("", "; ".join(rows))
        line("time", self._time_text())
        lines.extend(f"  it may come otherwise: {reason}" for reason in cost.reasons)
        return "\n".join(lines)

    def _memory_text(self) -> str:
        total = self.cost.memory.total
        text = f"{size_text(total)} at its peak, {size_text(self.cost.memory.sure)} of it before the first packet"
        if self.room is None:
            return text
        state = "; there is" if total <= WARN_SHARE * self.room.bytes else "; that may be too much: there is"
        return f"{text}{state} {self.room}"

    def _time_text(self) -> str:
        if self.speed is None or self.seconds is None:
            return "not known: nothing was tried out"
        seconds = self.seconds
        value, low, high = (_seconds_text(item) for item in (seconds.value, seconds.low, seconds.high))
        between = f" ({low} to {high})" if seconds.high >= _SHORT_SECONDS else ""
        return (
            f"{value} of CPU time{between}, without traces: at {_about(self.speed.hops_per_cpu_second)} packet hops/s, "
            f"as measured here for {_seconds_text(self.speed.cpu_seconds)} from the beginning of this run"
        )


def _seconds_text(seconds: float) -> str:
    """A time of a run or a part of it; no run takes none."""
    if seconds < _SHORT_SECONDS:
        return f"under {_SHORT_SECONDS} s"
    return f"{seconds:.1f} s" if seconds < _TENTHS_SECONDS else duration_text(seconds)


def _range_text(estimate: Estimate) -> str:
    return f"{_about(estimate.value)} ({_about(estimate.low)} to {_about(estimate.high)})"


def _about(value: float) -> str:
    """A predicted number to three figures: "6.55 M"."""
    for unit, factor in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= factor:
            return f"{value / factor:.{max(0, 2 - int(math.log10(value / factor)))}f}{unit}"
    return f"{value:.0f}"
