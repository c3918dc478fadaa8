"""Scenario tables of what watches a lossless fabric, and of hosts that hold it up."""

from collections.abc import Iterator
from typing import Literal

from fabemu.scenario.quantity import Duration, Flag, HostSet, Interval, IntervalOrOff, PositiveSize, Size, SizeOrAuto
from fabemu.scenario.table import Broken, Table, optional
from fabemu.units import format_bytes, format_time


class Watchdog(Table):
    """PFC watchdog of a switch, with the semantics and the names of SONiC."""

    detection_time: IntervalOrOff = optional(
        "off", description="a lossless queue that is paused and has not moved for so long is in storm; off: no watchdog"
    )
    restoration_time: Duration = optional("200ms", description="it is restored when it has not been paused for so long")
    poll_interval: Interval = optional("100ms", description="how often the queues are looked at")
    action: Literal["drop", "forward", "alert"] = optional(
        "drop",
        description="while in storm. drop: what is in the queue, goes to it or comes in by its port and class is "
        "dropped; forward: its pauses are ignored; alert: nothing, but for the event",
    )
    ports: HostSet = optional(
        "all", description="watched ports: all, host (those to hosts), or the devices they lead to"
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.detection_time == "off":
            return
        for key in ("detection_time", "restoration_time"):
            if getattr(self, key) < self.poll_interval:
                yield (
                    (key,),
                    f"is shorter than poll_interval = {format_time(self.poll_interval)}: nothing is seen between two "
                    "polls",
                )


class Receiver(Table):
    """Receive buffer of a host that does not keep up with its link, as a fault can make it; else it is never used."""

    xoff: PositiveSize = optional("64KiB", description="the host pauses a lossless class when it holds so much of it")
    xon: Size = optional("32KiB", description="and lets it go on at so much")
    buffer: SizeOrAuto = optional(
        "auto",
        description="data frames beyond so many bytes in all are dropped; auto: xoff and the headroom of the link for "
        "each lossless class, which is what they take; data of lossy classes shares the buffer",
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.xon >= self.xoff:
            yield ("xon",), f"{format_bytes(self.xon)} is not below xoff = {format_bytes(self.xoff)}"
        if self.buffer != "auto" and self.buffer < self.xoff:
            yield ("buffer",), f"is below xoff = {format_bytes(self.xoff)}"


class Deadlock(Table):
    """Checks for egress queues that wait for one another for ever. One is always made at the end of a run."""

    interval: IntervalOrOff = optional("off", description="how often to check during the run")
    stop: Flag = optional(False, description="end the run at the check that finds a deadlock")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.stop and self.interval == "off":
            yield ("stop",), 'needs checks during the run: write for example interval = "100us"'
