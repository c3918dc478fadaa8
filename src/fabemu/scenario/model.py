"""The scenario: everything a user can say about a run, validated and frozen.

Attributes have the names of the TOML keys and hold exact values: picoseconds, bit/s, bytes (see the unit in the field's
annotation); a word such as "auto" stays that word. `class` is a keyword in Python, so that [[class]] is `classes` and a
workload's `class` is `class_name`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.device import (
    Frames,
    Link,
    LinkOverride,
    LinkTable,
    Nic,
    NicOverride,
    NicTable,
    Switch,
    SwitchOverride,
    SwitchTable,
)
from fabemu.scenario.fabric import AnyFabric, close_to
from fabemu.scenario.fault import AnyFault, Routing, fault_rules
from fabemu.scenario.incident import Deadlock, Receiver
from fabemu.scenario.job import Job, job_rules
from fabemu.scenario.presets import NS3_DEFAULTS
from fabemu.scenario.quantity import NOT_PRINTABLE, Duration, Flag, IntervalOrOff, Text, Time, is_printable, named
from fabemu.scenario.scale_up import SCALE_UP_TIER, ScaleUp, scale_up_rules
from fabemu.scenario.table import Broken, Table, broken_deeply, optional, overlay, raise_broken
from fabemu.scenario.workload import AnyWorkload, Poisson
from fabemu.units import format_time

CLASSES_MAX = 8
NO_TRAFFIC = "there is no traffic: add at least one [[workload]]"

FROM_PRIORITY: Any = None
"""Default of a DSCP, which follows from the priority; never the value of a valid table."""


class TrafficClass(Table):
    """One traffic class."""

    name: Text = Field(description="its name")
    priority: Annotated[int, Strict(), Field(ge=0, le=7)] = Field(
        description="strict priority, 7 is served first; also its PFC priority"
    )
    lossless: Flag = optional(False, description="PFC keeps it from losing packets")
    ecn: Flag = optional(False, description="its data packets are ECN-capable")
    dscp: Annotated[int, Strict(), Field(ge=0, le=63)] = optional(
        FROM_PRIORITY, description="DSCP: a name of the class only, which no device looks at"
    )
    ack_class: Text = optional("same", description="class of the ACKs of its data: same, or a name")
    cnp: Flag = optional(False, description="carries the congestion notifications; true for exactly one class")

    @model_validator(mode="before")
    @classmethod
    def _default_dscp(cls, values: Any) -> Any:
        # A class selector code point is what untouched equipment uses.
        if isinstance(values, dict) and values.get("dscp") is None:
            priority = values.get("priority")
            known = isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 7
            return {**values, "dscp": 8 * priority if known and priority is not None else 0}
        return values


def default_classes() -> tuple[TrafficClass, ...]:
    """One lossless class for RDMA, one for CNPs, one lossy class."""
    return (
        TrafficClass(name="rdma", priority=3, lossless=True, ecn=True, dscp=26),
        TrafficClass(name="cnp", priority=6, dscp=48, cnp=True),
        TrafficClass(name="best-effort", priority=0, dscp=0),
    )


def class_rules(classes: Mapping[int, TrafficClass], *, complete: bool = True) -> Iterator[Broken]:
    """Yield what is wrong between the classes, given by index; `complete` if none was left out."""
    if len(classes) > CLASSES_MAX:
        yield (CLASSES_MAX,), f"at most {CLASSES_MAX} classes are supported, found {len(classes)}"
    for key in ("name", "priority", "dscp"):
        first: dict[Any, str] = {}
        for index, item in classes.items():
            value = getattr(item, key)
            if key == "dscp" and any(
                other.priority == item.priority for other in classes.values() if other is not item
            ):
                continue  # said already, of the priority
            if value in first:
                same = "name" if key == "name" else f'{key} as "{first[value]}"'
                yield (index, key), f"two classes cannot have the same {same}"
            first.setdefault(value, item.name)
    names = [item.name for item in classes.values()]
    if not complete:
        return
    for index, item in classes.items():
        if item.ack_class != "same" and item.ack_class not in names:
            yield (index, "ack_class"), f'there is no class "{item.ack_class}"{close_to(item.ack_class, names)}'
    carriers = [index for index, item in classes.items() if item.cnp]
    if not carriers:
        yield (), "exactly one class must have cnp = true, to carry the congestion notifications; none has"
    for index in carriers[1:]:
        yield (index, "cnp"), f'exactly one class must have cnp = true; "{classes[carriers[0]].name}" has it already'


def _check_workloads(workloads: tuple[Any, ...]) -> tuple[Any, ...]:
    if not workloads:
        raise ValueError(NO_TRAFFIC)
    return workloads


def _check_classes(classes: tuple[TrafficClass, ...]) -> tuple[TrafficClass, ...]:
    raise_broken(class_rules(dict(enumerate(classes))))
    return classes


class Trace(Table):
    """Which tables a run writes."""

    interval: IntervalOrOff = optional(
        "100us", description="sampling interval of the ports table, at least 100ns; off: no ports table"
    )
    tables: tuple[
        Literal["flows", "ports", "pauses", "drops", "events", "collectives", "jobs", "steps", "packets"], ...
    ] = optional(
        ("flows", "ports", "pauses", "drops", "events", "collectives", "jobs", "steps"),
        description="tables to write; packets (every transmission) only on request, collectives, jobs and steps if any",
    )
    packets: Literal["all", "budget"] = optional(
        "all",
        description="rows of the packets table: all transmissions, or what budgets of messages need: those of hosts "
        "and, at switches, those of the last packet of each message",
    )


def with_compatibility_defaults(values: Any) -> Any:
    """Fill in what `compat = "ns3"` changes, where the values do not say otherwise; give new values."""
    if isinstance(values, dict) and values.get("compat") == "ns3":
        return _filled(values, NS3_DEFAULTS)
    return values


def _filled(values: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for key, default in defaults.items():
        if key not in result:
            result[key] = default
        elif isinstance(result[key], dict) and isinstance(default, Mapping):
            result[key] = _filled(result[key], default)
    return result


def scenario_rules(parts: Mapping[str, Any], workloads: Mapping[int, Any]) -> Iterator[Broken]:
    """Yield what is wrong between the tables.

    Parameters
    ----------
    parts
        Valid top-level values by attribute name; what is itself wrong may be missing.
    workloads
        Valid workloads by index.
    """
    if not is_printable(parts.get("name", "")):
        yield ("name",), NOT_PRINTABLE
    for index, item in workloads.items():
        if not is_printable(item.label or ""):
            yield ("workload", index, "label"), NOT_PRINTABLE
    frames, nic = parts.get("frames"), parts.get("nic")
    if frames is not None and nic is not None:
        yield from frames.size_rules(nic.mtu)
    yield from _time_rules(parts, workloads)
    yield from workload_class_rules(
        parts.get("classes", ()), {index: item.class_name for index, item in workloads.items() if item.class_name}
    )
    yield from _tier_rules(parts)
    yield from scale_up_rules(parts)
    yield from _overlay_rules(parts)
    yield from _ns3_rules(parts)
    yield from fault_rules(parts)
    yield from job_rules(parts, workloads)
    yield from _switch_class_rules(parts)
    if parts.get("compat") == "ns3":
        yield from _compatibility_rules(parts)
        for index, item in workloads.items():
            if item.verb != "write":
                yield ("workload", index, "verb"), 'compat = "ns3" knows WRITE only'


def workload_class_rules(classes: Iterable[TrafficClass], named_classes: Mapping[int, str]) -> Iterator[Broken]:
    """Yield which workloads, given by index, name a class that is not there; nothing if no classes are known."""
    names = [item.name for item in classes]
    for index, name in named_classes.items():
        if names and name not in names:
            hint = close_to(name, names) or f" (classes: {named(names)})"
            yield ("workload", index, "class"), f'there is no class "{name}"{hint}'


def _time_rules(parts: Mapping[str, Any], workloads: Mapping[int, Any]) -> Iterator[Broken]:
    measure, until = parts.get("measure"), parts.get("until")
    if measure is not None:
        if measure[0] >= measure[1]:
            yield ("measure",), "the measured time must end after it begins: measure = [from, to]"
        elif until is not None and measure[0] >= until:
            yield ("measure",), f"begins after the run's end, until = {format_time(until)}"
    for index, workload in workloads.items():
        if isinstance(workload, Poisson) and workload.stop is None and until is None:
            yield (
                ("workload", index),
                'key "stop" is missing: arrivals must end some time, at stop or at the run\'s until',
            )
        if until is not None and workload.start >= until:
            yield ("workload", index, "start"), f"is not before the run's end, until = {format_time(until)}"


def _ns3_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Refuse what the other simulators do not have."""
    if parts.get("compat") != "ns3":
        return
    switch, deadlock, nic = parts.get("switch"), parts.get("deadlock"), parts.get("nic")
    if nic is not None:
        usual = Receiver()
        if nic.first_psn != 0:
            yield ("nic", "first_psn"), 'packet numbers of compat = "ns3" begin with 0'
        tables = [(("nic",), nic), *((("nic", "override", index), over) for index, over in enumerate(nic.override))]
        for at, item in tables:
            if (item.reorder_window or 1) > 1:
                yield (*at, "reorder_window"), 'compat = "ns3" knows go-back-n only: it needs none'
            if item.retransmission == "selective":
                yield (*at, "retransmission"), 'compat = "ns3" knows go-back-n only'
            for key in Receiver.model_fields:
                given = None if item.receiver is None else getattr(item.receiver, key)
                if given not in (None, getattr(usual, key)):
                    yield (*at, "receiver", key), 'hosts of compat = "ns3" keep up with their links: it has no receiver'
    if deadlock is not None and deadlock.interval != "off":
        yield ("deadlock", "interval"), 'compat = "ns3" has no checks for deadlocks'
    if switch is not None:
        places: list[tuple[tuple[str | int, ...], Any]] = [(("switch",), switch)]
        places += [(("switch", "tier", tier), over) for tier, over in switch.tier.items()]
        places += [(("switch", "override", index), over) for index, over in enumerate(switch.override)]
        for place, table in places:
            if table.watchdog is not None and table.watchdog.detection_time not in (None, "off"):
                yield (*place, "watchdog", "detection_time"), 'compat = "ns3" has no PFC watchdog'


def _tier_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    fabric = parts.get("fabric")
    if fabric is None:
        return
    for key, tiers in (("link", fabric.link_tiers()), ("switch", fabric.switch_tiers())):
        table = parts.get(key)
        if table is None or tiers is None:
            continue
        for tier in table.tier:
            if tier == SCALE_UP_TIER:
                yield (key, "tier", tier), "the scale-up network has a table of its own: [scale_up]"
            elif tier not in tiers:
                hint = close_to(tier, tiers) or f" (tiers: {named(tiers)})"
                yield (key, "tier", tier), f'a {fabric.kind} fabric has no {key} tier "{tier}"{hint}'


def _device_tables(parts: Mapping[str, Any], key: str) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield [link] or [switch] as far as it is valid, its tiers and its overrides, each with its path."""
    table = parts.get(key)
    if table is None:
        return
    yield (key,), table
    for tier, over in table.tier.items():
        yield (key, "tier", tier), over
    for index, over in enumerate(table.override):
        yield (key, "override", index), over


def _switch_class_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield names in weights and class maps that are not those of classes."""
    names = [item.name for item in parts.get("classes", ())]
    for path, table in _device_tables(parts, "switch"):
        named_classes = [("weights", name, name) for name in table.weights or ()]
        for own, treated in (table.class_map or {}).items():
            named_classes += [("class_map", own, own), ("class_map", own, treated)]
        for key, place, name in named_classes:
            if names and name not in names:
                hint = close_to(name, names) or f" (classes: {named(names)})"
                yield (*path, key, place), f'there is no class "{name}"{hint}'


def _compatibility_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield options that the rules of compat = "ns3" do not have."""
    reason = 'compat = "ns3" does not have it'
    for path, table in _device_tables(parts, "link"):
        if table.flow_control == "credit":
            yield (*path, "flow_control"), reason
    for path, table in _device_tables(parts, "switch"):
        if (table.cell or 1) > 1:
            yield (*path, "cell"), reason
        for key in ("weights", "class_map"):
            if getattr(table, key):
                yield (*path, key), reason
        if table.load_balancing not in (None, "ecmp"):
            yield (*path, "load_balancing"), 'compat = "ns3" knows ecmp only'
        if table.pfc is not None and table.pfc.enabled is False:
            yield (*path, "pfc", "enabled"), reason
        for key, inner in (("pfc", "static"), ("lossy", "static"), ("lossy", "egress_static")):
            if getattr(table, key) is not None and getattr(getattr(table, key), inner) is not None:
                yield (*path, key, inner), reason


def _overlay_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Check tiers and overrides as they come out over what they are laid over."""
    switch, nic, fabric = parts.get("switch"), parts.get("nic"), parts.get("fabric")
    if switch is not None:
        base = overlay(switch, None, Switch)
        by_tier = {tier: overlay(base, over, Switch) for tier, over in switch.tier.items()}
        for tier, table in by_tier.items():
            for path, message in broken_deeply(table):
                yield ("switch", "tier", tier, *path), message
        for index, over in enumerate(switch.override):
            tier_of = fabric.switch_tier(over.name) if fabric is not None else None
            whole = by_tier.get(tier_of, base)
            if over.peer is not None:
                for other in switch.override:
                    if other.name == over.name and other.peer is None:
                        whole = overlay(whole, other, Switch)
            for path, message in broken_deeply(overlay(whole, over, Switch)):
                yield ("switch", "override", index, *path), message
    if nic is not None:
        for index, over in enumerate(nic.override):
            for path, message in broken_deeply(overlay(nic, over, Nic)):
                yield ("nic", "override", index, *path), message


class Scenario(Table):
    """One run: a fabric, its devices, its traffic and what to record."""

    name: Text = optional("scenario", description="name of the run; default: the file's name")
    seed: Annotated[int, Strict(), Field(ge=0, le=2**63 - 1)] = Field(1, description="seed of all random draws")
    until: Duration | None = optional(None, description="the run ends here at the latest; without it, when all is done")
    compat: Literal["none", "ns3"] = optional(
        "none",
        description="ns3: rules and defaults of the HPCC family of ns-3 simulators, see docs/MODEL.md section 13",
    )
    measure: tuple[Time, Time] | None = optional(
        None,
        description="[from, to]: only flows that start in it count in the summary, of collectives those posted in it;"
        " default: all",
    )
    fabric: AnyFabric = Field(description="topology")
    scale_up: ScaleUp | None = optional(None, description="network of the GPUs of one node besides the fabric")
    frames: Frames = optional(default_factory=dict, description="frame sizes")
    link: LinkTable = optional(default_factory=dict, description="links")
    switch: SwitchTable = optional(default_factory=dict, description="switches")
    nic: NicTable = optional(default_factory=dict, description="network adapters of the hosts")
    classes: Annotated[tuple[TrafficClass, ...], AfterValidator(_check_classes)] = optional(
        default_factory=default_classes,
        alias="class",
        description="traffic classes; default: rdma (priority 3, lossless, ECN), cnp (6) and best-effort (0)",
    )
    workload: Annotated[tuple[AnyWorkload, ...], AfterValidator(_check_workloads)] = optional(
        description="traffic, one or more", json_schema_extra={"minItems": 1}
    )
    job: tuple[Job, ...] = optional((), description="sets of GPUs that work together")
    deadlock: Deadlock = optional(default_factory=dict, description="checks for deadlocks")
    routing: Routing = optional(default_factory=dict, description="how routing reacts to links that go down or up")
    fault: tuple[AnyFault, ...] = optional((), description="what goes wrong")
    trace: Trace = optional(default_factory=dict, description="what is recorded")

    @model_validator(mode="before")
    @classmethod
    def _fill_compatibility_defaults(cls, values: Any) -> Any:
        return with_compatibility_defaults(values)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the tables."""
        parts = {key: getattr(self, key) for key in Scenario.model_fields if key != "workload"}
        yield from scenario_rules(parts, dict(enumerate(self.workload)))

    @model_validator(mode="after")
    def _name_workloads(self) -> Self:
        """Fill in the labels and classes that the workloads leave open."""
        kinds = [item.kind for item in self.workload if item.label is None]
        taken = {item.label for item in self.workload}
        named_workloads = []
        for index, item in enumerate(self.workload):
            update: dict[str, Any] = {}
            if item.label is None:
                alone = kinds.count(item.kind) == 1 and item.kind not in taken
                update["label"] = item.kind if alone else f"{item.kind}-{index}"
            if item.class_name is None:
                update["class_name"] = self.default_class.name
            named_workloads.append(item.model_copy(update=update) if update else item)
        # The model is frozen for its users; this is still its making.
        self.__dict__["workload"] = tuple(named_workloads)
        return self

    @property
    def classes_by_priority(self) -> tuple[TrafficClass, ...]:
        """The classes as they are served, highest priority first: the order of class ids everywhere."""
        return tuple(sorted(self.classes, key=lambda item: -item.priority))

    @property
    def default_class(self) -> TrafficClass:
        """Class of workloads that name none."""
        ordered = self.classes_by_priority
        candidates = [item for item in ordered if item.lossless and not item.cnp] or [
            item for item in ordered if not item.cnp
        ]
        return (candidates or list(ordered))[0]

    def class_id(self, name: str) -> int:
        """Id of the class of this name in served order; KeyError if there is none."""
        for index, item in enumerate(self.classes_by_priority):
            if item.name == name:
                return index
        raise KeyError(name)

    @property
    def class_ack_ids(self) -> tuple[int, ...]:
        """For every class in served order, the id of the class of its ACKs."""
        return tuple(
            index if item.ack_class == "same" else self.class_id(item.ack_class)
            for index, item in enumerate(self.classes_by_priority)
        )

    @property
    def cnp_class_id(self) -> int:
        """Id of the class that carries CNPs."""
        return next(index for index, item in enumerate(self.classes_by_priority) if item.cnp)

    @cached_property
    def _resolved(self) -> dict[tuple[Any, ...], Any]:
        return {}

    @cached_property
    def _link_overrides(self) -> dict[frozenset[str], list[LinkOverride]]:
        by_pair: dict[frozenset[str], list[LinkOverride]] = {}
        for item in self.link.override:
            by_pair.setdefault(frozenset(item.between), []).append(item)
        return by_pair

    @cached_property
    def _switch_overrides(self) -> dict[str, list[SwitchOverride]]:
        return _by_name(self.switch.override)

    @cached_property
    def _nic_overrides(self) -> dict[str, list[NicOverride]]:
        return _by_name(self.nic.override)

    def link_for(
        self,
        tier: str,
        name_a: str,
        name_b: str,
        index: int = 0,
        *,
        rate: int | None = None,
        delay: int | None = None,
    ) -> Link:
        """Resolve the parameters of one cable: [link], then its tier, then what the cable says itself, then overrides.

        Parameters
        ----------
        tier
            Tier of the cable.
        name_a, name_b
            The devices at its ends, in any order.
        index
            Which of the parallel cables between the two, from 0.
        rate, delay
            bit/s and ps of a graph's own link; None if it has none.
        """
        link = self._cached(("link", tier), lambda: self._link_of_tier(tier))
        if rate is not None or delay is not None:
            update: dict[str, Any] = {}
            if rate is not None:
                update["rate"] = rate
            if delay is not None:
                update |= {"delay": delay, "length": None}
            link = link.model_copy(update=update)
        for item in self._link_overrides.get(frozenset((name_a, name_b)), ()):
            if item.index is None or item.index == index:
                link = overlay(link, item, Link)
        return link

    def _link_of_tier(self, tier: str) -> Link:
        """[link] and its tier; the cables of the scale-up network have a table of their own."""
        if tier == SCALE_UP_TIER and self.scale_up is not None:
            return self.scale_up.link(self.frames, self.nic.mtu)
        return overlay(self.link, self.link.tier.get(tier), Link)

    def _switch_of_tier(self, tier: str) -> Switch:
        """[switch] and its tier; the switches of the scale-up network have a table of their own."""
        if tier == SCALE_UP_TIER and self.scale_up is not None:
            lanes = self.fabric.gpus_of_node * len(self.classes)
            return self.scale_up.switch(self.frames, self.nic.mtu, lanes)
        return overlay(self.switch, self.switch.tier.get(tier), Switch)

    def switch_for(self, tier: str, name: str) -> Switch:
        """Resolve the parameters of one switch: [switch], then its tier, then its overrides.

        Raises
        ------
        ScenarioError
            Tier and override together break a rule that each alone keeps.
        """
        switch = self._cached(("switch", tier), lambda: self._switch_of_tier(tier))
        items = [item for item in self._switch_overrides.get(name, ()) if item.peer is None]
        for item in items:
            switch = overlay(switch, item, Switch)
        if items:
            _refuse_broken(switch, "switch.override", name)
        return switch

    def switch_ports_for(self, name: str, switch: Switch) -> dict[str, Switch]:
        """Give the parameters at the ports of a switch to those peers that have overrides of their own, by peer.

        Parameters
        ----------
        name
            The switch.
        switch
            Its parameters, by `switch_for`.

        Raises
        ------
        ScenarioError
            Several overrides together break a rule that each alone keeps.
        """
        by_peer: dict[str, Switch] = {}
        for item in self._switch_overrides.get(name, ()):
            if item.peer is not None:
                by_peer[item.peer] = overlay(by_peer.get(item.peer, switch), item, Switch)
        for peer, table in by_peer.items():
            _refuse_broken(table, "switch.override", f"{name} to {peer}")
        return by_peer

    def nic_for(self, name: str) -> Nic:
        """Resolve the parameters of one host's NIC: [nic], then its overrides.

        Raises
        ------
        ScenarioError
            Several overrides together break a rule that each alone keeps.
        """
        nic = self._cached(("nic",), lambda: overlay(self.nic, None, Nic))
        items = self._nic_overrides.get(name, ())
        for item in items:
            nic = overlay(nic, item, Nic)
        if items:
            _refuse_broken(nic, "nic.override", name)
        return nic

    def _cached(self, key: tuple[Any, ...], make: Any) -> Any:
        if key not in self._resolved:
            self._resolved[key] = make()
        return self._resolved[key]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some values replaced, unchecked, as pydantic does; what was derived from them is derived anew."""
        copy = super().model_copy(update=update, deep=deep)
        for key in ("_resolved", "_link_overrides", "_switch_overrides", "_nic_overrides"):
            copy.__dict__.pop(key, None)
        return copy

    def to_toml(self) -> str:
        """Write the scenario fully resolved, every default spelt out; loading the text gives an equal scenario."""
        from fabemu.scenario.write import scenario_toml

        return scenario_toml(self)


def _by_name(items: Iterable[Any]) -> dict[str, list[Any]]:
    by_name: dict[str, list[Any]] = {}
    for item in items:
        by_name.setdefault(item.name, []).append(item)
    return by_name


def _refuse_broken(table: Table, path: str, name: str) -> None:
    problems = [
        Problem(f'{path} of "{name}"', ".".join(map(str, inner)), message) for inner, message in broken_deeply(table)
    ]
    if problems:
        raise ScenarioError(problems)
