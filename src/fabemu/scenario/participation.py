"""What the tables of all workloads have in common: who takes part, when, and how."""

from collections.abc import Iterator
from typing import Literal

from fabemu.scenario.quantity import HostSet, Text, Time
from fabemu.scenario.table import Broken, Table, optional
from fabemu.units import format_time


class Workload(Table):
    """What all workloads have in common."""

    label: Text | None = optional(
        None, description="name in the traces; default: the kind, numbered if there are several"
    )
    class_name: Text | None = optional(
        None,
        alias="class",
        description="traffic class; default: the lossless class of highest priority that does not carry CNPs",
    )
    verb: Literal["write", "send", "read"] = optional(
        "write", description="RDMA WRITE or SEND: src sends to dst; READ: src reads from dst"
    )
    job: Text | None = optional(None, description="job whose hosts take part and from whose arrival times count")
    start: Time = optional("0us", description="the workload begins")
    stop: Time | None = optional(None, description="no flow starts at this time or later")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.stop is not None and self.stop <= self.start:
            yield ("stop",), f"must be after start = {format_time(self.start)}"


class Spread(Workload):
    """A workload over a set of hosts."""

    hosts: HostSet = optional("all", description="hosts that take part")
