"""Scenario tables of faults and of how routing reacts to them; what they make of the fabric is compiled elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from fabemu.scenario.fabric import close_to
from fabemu.scenario.quantity import Duration, HostSet, Probability, Rate, Size, Text, Time, named
from fabemu.scenario.table import Broken, Table, optional
from fabemu.units import format_time

FRAME_KINDS = ("data", "ack", "nak", "cnp", "pfc", "read", "credit")
"""Kinds of frames, by their number in the plan."""

EMPTY_MAP = "the map is empty: nothing would change"

FOLLOWS = ": without it, the fault ends at the run's until, and one of them must be given"


class _Fault(Table):
    """What all faults have in common."""

    start: Time = optional("0us", description="the fault begins")
    end: Time | None = optional(None, description="it is over; without it, it lasts")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.end is not None and self.end <= self.start:
            yield ("end",), f"must be after start = {format_time(self.start)}"

    def repeats(self) -> bool:
        """Whether something happens again and again, or keeps a run going, so that it must end some time."""
        return False


class _LinkFault(_Fault):
    """A fault of a cable."""

    link: tuple[Text, Text] = Field(description="the two devices that the cable joins, in any order")
    index: Annotated[int, Strict(), Field(ge=0)] | None = Field(
        None, description="which of the parallel cables, from 0; all of them if not given"
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.link[0] == self.link[1]:
            yield ("link",), "names one device twice"


class LinkDown(_LinkFault):
    """A cable is dead in both directions. What is in flight is lost; routing reacts as [routing] says."""

    kind: Literal["link-down"] = "link-down"


class Flap(_LinkFault):
    """A cable that goes down again and again."""

    kind: Literal["flap"] = "flap"
    down: Duration = Field(description="how long it is down each time")
    period: Duration = Field(description="from one time to the next")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.down >= self.period:
            yield ("down",), f"must be shorter than period = {format_time(self.period)}"

    def repeats(self) -> bool:
        """Whether it must end some time."""
        return True


class Loss(_LinkFault):
    """A cable that corrupts frames. They take their time on it and are dropped by the receiver."""

    kind: Literal["loss"] = "loss"
    sender: Text | None = optional(
        None, alias="from", description="the end whose frames are lost; those of both if not given"
    )
    rate: Probability | None = optional(None, description="share of frames that are lost; or give ber")
    ber: Probability | None = optional(None, description="bit error rate: large frames are lost more often")
    frames: tuple[Literal["data", "ack", "nak", "cnp", "pfc", "read", "credit"], ...] = optional(
        FRAME_KINDS, description="kinds of frames that are lost"
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if (self.rate is None) == (self.ber is None):
            yield (), 'give one of "rate" (share of frames) and "ber" (bit error rate)'
        if self.sender is not None and self.sender not in self.link:
            yield ("from",), f"must be one of the two devices of the link: {named(self.link)}"
        if not self.frames:
            yield ("frames",), "the list is empty: nothing would be lost"
        elif len(set(self.frames)) < len(self.frames):
            yield ("frames",), "names a kind twice"


class Storm(_Fault):
    """A NIC that sends XOFF without end, whatever it holds."""

    kind: Literal["storm"] = "storm"
    host: Text = Field(description="the host")
    classes: tuple[Text, ...] | None = optional(None, description="lossless classes that it pauses; default: all")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        yield from _classes_rules(self.classes)

    def repeats(self) -> bool:
        """Whether it must end some time."""
        return True


class SlowReceiver(_Fault):
    """A host that takes data in more slowly than its link brings it: at a rate, or with periodic stalls."""

    kind: Literal["slow-receiver"] = "slow-receiver"
    host: Text = Field(description="the host")
    rate: Rate | None = optional(None, description="rate at which it takes frames in; or give stall and period")
    stall: Duration | None = optional(None, description="it takes nothing in for so long")
    period: Duration | None = optional(None, description="from one stall to the next")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.rate is not None and (self.stall is not None or self.period is not None):
            yield ("rate",), "is given beside stall and period: give the one or the others"
        elif self.rate is None and (self.stall is None or self.period is None):
            yield (), 'give "rate", or "stall" and "period"'
        elif self.stall is not None and self.period is not None and self.stall >= self.period:
            yield ("stall",), f"must be shorter than period = {format_time(self.period)}"

    def repeats(self) -> bool:
        """Whether it must end some time."""
        return self.stall is not None and self.rate is None


class _PortFault(_Fault):
    """A setting of ports that is wrong."""

    at: Text = Field(description="the device")
    peer: Text | None = optional(None, description="only its ports to this device; default: all its ports")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        yield from _classes_rules(getattr(self, "classes", None))


class PfcOff(_PortFault):
    """Ports that neither pause their peer nor let themselves be paused."""

    kind: Literal["pfc-off"] = "pfc-off"
    classes: tuple[Text, ...] | None = optional(None, description="lossless classes; default: all")


class EcnOff(_PortFault):
    """Ports of a switch that do not mark."""

    kind: Literal["ecn-off"] = "ecn-off"
    classes: tuple[Text, ...] | None = optional(None, description="classes with ECN; default: all")


class PriorityMap(_Fault):
    """A switch that takes frames of one class for those of another."""

    kind: Literal["priority-map"] = "priority-map"
    switch: Text = Field(description="the switch")
    map: dict[str, Text] = Field(description='as which class each class is treated: { rdma = "best-effort" }')

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if not self.map:
            yield ("map",), EMPTY_MAP


class HeadroomFault(_Fault):
    """Headroom of a switch that is too small."""

    kind: Literal["headroom"] = "headroom"
    switch: Text = Field(description="the switch")
    peer: Text | None = optional(None, description="only its ports to this device; default: all its ports")
    classes: tuple[Text, ...] | None = optional(None, description="lossless classes; default: all")
    headroom: Size = Field(description="headroom of each priority group; not above what it has without the fault")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        yield from _classes_rules(self.classes)


class Reboot(_Fault):
    """A switch that is gone from start to end: all its cables are down and what it held is lost."""

    kind: Literal["reboot"] = "reboot"
    switch: Text = Field(description="the switch")


AnyFault = Annotated[
    LinkDown | Flap | Loss | Storm | SlowReceiver | PfcOff | EcnOff | PriorityMap | HeadroomFault | Reboot,
    Field(discriminator="kind"),
]


class RouteOverride(Table):
    """Next hops of one switch that are given by hand. Later ones go before earlier ones."""

    at: Text = Field(description="the switch")
    to: HostSet = Field(description="destinations")
    via: tuple[Text, ...] = Field(description="neighbouring switches, all cables to each: next hops of equal cost")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if not self.via:
            yield ("via",), "the list is empty: name at least one neighbouring switch"
        elif len(set(self.via)) < len(self.via):
            yield ("via",), "names a switch twice"


class Routing(Table):
    """How routing reacts when a link goes down or up: shortest paths over what is left, after a delay."""

    detection: Time = optional("1ms", description="from the change of a link to its detection")
    convergence: Time = optional("10ms", description="from the detection to new routes on all switches")
    override: tuple[RouteOverride, ...] = optional((), description="next hops given by hand: [[routing.override]]")


def _classes_rules(classes: tuple[str, ...] | None) -> Iterator[Broken]:
    if classes == ():
        yield ("classes",), "the list is empty: leave the key out for all of them"
    elif classes is not None and len(set(classes)) < len(classes):
        yield ("classes",), "names a class twice"


def fault_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield what is wrong between the faults and the rest of a scenario, as far as it is valid."""
    until = parts.get("until")
    for index, fault in enumerate(parts.get("fault", ())):
        place: tuple[str | int, ...] = ("fault", index)
        if parts.get("compat") == "ns3":
            yield (*place, "kind"), 'compat = "ns3" has no faults'
            continue
        if until is not None and fault.start >= until:
            yield (*place, "start"), f"is not before the run's end, until = {format_time(until)}"
        if until is None and fault.end is None and fault.repeats():
            yield place, f'key "end" is missing{FOLLOWS}'
        for inner, message in _class_rules(fault, parts.get("classes", ())):
            yield (*place, *inner), message
    routing = parts.get("routing")
    if routing is not None and routing.override and parts.get("compat") == "ns3":
        yield ("routing", "override"), 'compat = "ns3" has no routes given by hand'


def _class_rules(fault: Any, classes: Any) -> Iterator[Broken]:
    """Yield names of classes that are not there, or not of the kind that the fault is about."""
    by_name = {item.name: item for item in classes}
    if not by_name:
        return
    wanted = [(("classes", number), name) for number, name in enumerate(getattr(fault, "classes", None) or ())]
    for own, treated in getattr(fault, "map", {}).items():
        wanted += [(("map", own), own), (("map", own), treated)]
    for inner, name in wanted:
        if name not in by_name:
            hint = close_to(name, by_name) or f" (classes: {named(list(by_name))})"
            yield inner, f'there is no class "{name}"{hint}'
        elif fault.kind in ("storm", "pfc-off", "headroom") and not by_name[name].lossless:
            yield inner, f'class "{name}" is not lossless: PFC has nothing to do with it'
        elif fault.kind == "ecn-off" and not by_name[name].ecn:
            yield inner, f'class "{name}" has no ECN'
