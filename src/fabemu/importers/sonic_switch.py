"""One switch as its SONiC configuration describes it: ports, pools, profiles, maps and watchdog, in exact units.

Names are resolved (old references ``[TABLE|name]`` and plain ones), keys of several ports and ranges are spread out
(``Ethernet0,Ethernet4|3-4``). What cannot be read is left out and noted as a fault; so are references to nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import field
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.importers.sonic_json import Fault, Keys, SonicTables, key_path, read_tables

PRIORITIES = range(8)
"""Numbers of priority groups, queues and PFC priorities."""

DSCPS = range(64)

COMPUTED = "NULL"
"""Profile of a priority group for which the switch computes one from speed, cable and MTU."""

COLOURS = ("green", "yellow", "red")

ECN_COLOURS = {
    "ecn_none": (),
    "ecn_green": ("green",),
    "ecn_yellow": ("yellow",),
    "ecn_red": ("red",),
    "ecn_green_yellow": ("green", "yellow"),
    "ecn_green_red": ("green", "red"),
    "ecn_yellow_red": ("yellow", "red"),
    "ecn_all": COLOURS,
}

QOS_MAPS = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "pfc_to_pg_map": "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
}
"""Table of each field of PORT_QOS_MAP that is read."""

TABLES = (
    "PORT",
    "CABLE_LENGTH",
    "BUFFER_POOL",
    "BUFFER_PROFILE",
    "BUFFER_PG",
    "BUFFER_QUEUE",
    "WRED_PROFILE",
    "QUEUE",
    "SCHEDULER",
    "PORT_QOS_MAP",
    *QOS_MAPS.values(),
    "PFC_WD",
    "LOSSLESS_TRAFFIC_PATTERN",
    "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
    "DEVICE_NEIGHBOR",
    "DEVICE_METADATA",
)
"""Tables that are read; a file has dozens of others."""

_NUMBER_MAX = 2**53
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
_REFERENCE = re.compile(r"\[\w+[|:](.*)\]")
_CABLE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s*m")


@dataclass(frozen=True)
class Port:
    """A front panel port; rate in bit/s, MTU in bytes, cable in metres, None where nothing is said."""

    name: str
    rate_bps: int | None
    mtu_bytes: int | None
    cable_m: Fraction | None
    is_up: bool
    neighbour: str | None


@dataclass(frozen=True)
class Pool:
    """A buffer pool; sizes in bytes, `xoff_bytes` the shared headroom pool, None where nothing is said."""

    name: str
    direction: str
    mode: str
    size_bytes: int | None
    xoff_bytes: int | None


@dataclass(frozen=True)
class Profile:
    """A buffer profile; bytes, `dynamic_th` the exponent of alpha, None where nothing is said."""

    name: str
    pool: str | None
    size_bytes: int | None
    xon_bytes: int | None
    xoff_bytes: int | None
    xon_offset_bytes: int | None
    dynamic_th: int | None
    static_bytes: int | None

    @property
    def is_lossless(self) -> bool:
        """Whether a priority group of this profile has headroom."""
        return bool(self.xoff_bytes)

    @property
    def alpha(self) -> Fraction | None:
        """Share of the free pool, 2^dynamic_th."""
        return None if self.dynamic_th is None else Fraction(2) ** self.dynamic_th


@dataclass(frozen=True)
class Wred:
    """A WRED profile. By colour: thresholds in bytes and probability in percent, None where nothing is said."""

    name: str
    ecn: str
    enabled: dict[str, bool]
    minimum_bytes: dict[str, int | None]
    maximum_bytes: dict[str, int | None]
    percent: dict[str, int | None]

    @property
    def marks(self) -> bool:
        """Whether packets of some colour are marked."""
        return bool(ECN_COLOURS.get(self.ecn))


@dataclass(frozen=True)
class Binding:
    """What a priority group or queue is given, and where: a name, or None where nothing can be read."""

    name: str | None
    keys: Keys


@dataclass(frozen=True)
class Scheduler:
    """A scheduler: ``STRICT``, ``DWRR`` or ``WRR``, and its weight."""

    name: str
    kind: str
    weight: int


@dataclass(frozen=True)
class PortQos:
    """Maps and PFC of one port; `pfc` is None where nothing is said."""

    maps: dict[str, str]
    pfc: frozenset[int] | None
    watched: frozenset[int] | None
    keys: Keys


@dataclass(frozen=True)
class Watch:
    """Watchdog of one port, times in ms."""

    action: str
    detection_ms: int | None
    restoration_ms: int | None
    keys: Keys


T = TypeVar("T", bound=Hashable)

Group = tuple[str, int]
"""Port and number of a priority group or queue."""


@dataclass
class SonicSwitch:
    """One switch; `Group` is (port, number)."""

    tables: SonicTables
    ports: dict[str, Port] = field(default_factory=dict)
    pools: dict[str, Pool] = field(default_factory=dict)
    profiles: dict[str, Profile] = field(default_factory=dict)
    groups: dict[Group, Binding] = field(default_factory=dict)
    queue_buffers: dict[Group, Binding] = field(default_factory=dict)
    queue_wred: dict[Group, Binding] = field(default_factory=dict)
    queue_scheduler: dict[Group, Binding] = field(default_factory=dict)
    wreds: dict[str, Wred] = field(default_factory=dict)
    schedulers: dict[str, Scheduler] = field(default_factory=dict)
    maps: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    qos: dict[str, PortQos] = field(default_factory=dict)
    watch: dict[str, Watch] = field(default_factory=dict)
    poll_ms: int | None = None
    default_dynamic_th: int | None = None
    over_subscribe_ratio: int | None = None
    hostname: str | None = None
    faults: list[Fault] = field(default_factory=list)
    computed: dict[Group, Keys] = field(default_factory=dict)
    """Priority groups with PFC whose profile the switch makes, and what says so; see `look_up`."""
    dangling: list[tuple[Keys, str, str]] = field(default_factory=list)
    """References to nothing: where, the table, the name."""
    clashes: list[tuple[Keys, Keys, Group]] = field(default_factory=list)
    """Groups that two keys give different values: the one that counts, the other, the group."""
    foreign: set[str] = field(default_factory=set)
    """Keys of queues towards ports of other chips or line cards of a chassis."""

    def map_of(self, port: str, key: str) -> dict[int, int] | None:
        """Map in force at a port, by its field in PORT_QOS_MAP; None if it has none."""
        for owner in (port, "global"):
            qos = self.qos.get(owner)
            if qos is not None and key in qos.maps:
                return self.maps.get(QOS_MAPS[key], {}).get(qos.maps[key])
        return None

    def profile_of(self, port: str, group: int) -> Profile | None:
        """Profile of an ingress priority group; None if it has none, or one that the switch computes."""
        binding = self.groups.get((port, group))
        return None if binding is None or binding.name is None else self.profiles.get(binding.name)

    def pfc_of(self, port: str) -> frozenset[int]:
        """PFC priorities that a port sends and obeys."""
        qos = self.qos.get(port)
        return frozenset() if qos is None or qos.pfc is None else qos.pfc

    def queue_of(self, port: str, priority: int) -> int:
        """Egress queue that a PFC priority pauses at a port: its own number unless a map says otherwise."""
        return (self.map_of(port, "pfc_to_queue_map") or {}).get(priority, priority)

    def group_of(self, port: str, priority: int) -> int:
        """Ingress priority group of a PFC priority at a port: its own number unless a map says otherwise."""
        return (self.map_of(port, "pfc_to_pg_map") or {}).get(priority, priority)

    def is_up(self, port: str) -> bool:
        """Whether a port takes part; one that is not in PORT does only if there is no PORT."""
        return self.ports[port].is_up if port in self.ports else not self.ports

    def lossless_groups(self) -> Iterator[tuple[Group, Profile, Binding]]:
        """Priority groups with headroom, of the ports that are up."""
        for group, binding in self.groups.items():
            profile = self.profiles.get(binding.name or "")
            if profile is not None and profile.is_lossless and self.is_up(group[0]):
                yield group, profile, binding

    def reserved_bytes(self, pool: str) -> int:
        """What the priority groups of all ports that are up reserve in a pool."""
        total = 0
        for (port, _), binding in self.groups.items():
            profile = self.profiles.get(binding.name or "")
            if profile is not None and profile.pool == pool and self.is_up(port):
                total += profile.size_bytes or 0
        return total

    @property
    def data_ports(self) -> list[str]:
        """Ports that anything is said about, in the order of the file; of PORT if there is one."""
        if self.ports:
            return list(self.ports)
        named = [port for port, _ in (*self.groups, *self.queue_wred)]
        return list(dict.fromkeys([*(port for port in self.qos if port != "global"), *named]))


def read_switch(path: Path) -> SonicSwitch:
    """Read a SONiC configuration.

    Raises
    ------
    InputError
        The file cannot be read, is no JSON, or has none of the tables of a SONiC switch's buffers and QoS.
    """
    tables = read_tables(path)
    malformed = {fault.keys[0] for fault in tables.faults}
    if not any(name in tables.tables or name in malformed for name in TABLES):
        found = ", ".join(list(tables.tables)[:5])
        has = f"it has {found}" + (" ..." if len(tables.tables) > 5 else "") if found else "it has no table"
        raise InputError(
            f"{path}: not the configuration of a SONiC switch: none of PORT, BUFFER_POOL, BUFFER_PROFILE, BUFFER_PG, "
            f"PORT_QOS_MAP and the other tables of buffers and QoS is there; {has}"
        )
    return _Reader(tables).switch


class _Reader:
    """Fills in one switch, table by table; names come before what refers to them."""

    def __init__(self, tables: SonicTables) -> None:
        self.tables = tables
        read = set(TABLES)
        faults = [fault for fault in tables.faults if fault.keys[0] in read]
        self.switch = SonicSwitch(tables, faults=faults)
        self._noted: set[object] = set()  # a key of several ports comes several times
        self._owners: dict[str, str] = {}  # of the queues of a port, as the keys of a chassis name line card and chip
        self._metadata()
        self._ports()
        self._pools()
        self._profiles()
        self._groups()
        self._queues()
        self._maps()
        self._qos()
        self._watchdog()
        self._computed()

    # Values

    def fault(self, keys: Keys, message: str) -> None:
        fault = Fault("value", keys, message)
        if self._is_new(fault):
            self.switch.faults.append(fault)

    def _is_new(self, thing: object) -> bool:
        """Whether something has not been noted yet; from now on it has."""
        new = thing not in self._noted
        self._noted.add(thing)
        return new

    def number(self, keys: Keys, *, low: int = 0, high: int = _NUMBER_MAX, noun: str = "a whole number") -> int | None:
        """Whole number in a field; None if there is none, noted if it is something else."""
        text = self.tables.table(keys[0])[keys[1]].get(keys[2])
        return None if text is None else self.whole(text, keys, low, high, noun)

    def whole(self, text: str, keys: Keys, low: int, high: int, noun: str) -> int | None:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            self.fault(keys, f'is "{_short(text)}"; {noun} is needed')
            return None
        if not low <= int(text) <= high:
            limits = f"{low} or more" if high == _NUMBER_MAX else f"{low} to {high}"
            self.fault(keys, f"is {int(text)}; {noun} is {limits}")
            return None
        return int(text)

    def numbers(self, text: str, keys: Keys) -> Iterator[int]:
        """Numbers of priorities: ``3-4``, ``3,4``, ``3``."""
        for part in filter(None, (item.strip() for item in text.split(","))):
            match = _RANGE.fullmatch(part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
            if match is None or first > last or last not in PRIORITIES:
                self.fault(keys, f'"{_short(part)}" is no number 0 to 7 and no range of them, such as 3-4')
                continue
            yield from range(first, last + 1)

    def reference(self, text: str, table: str, keys: Keys) -> str | None:
        """Name that a field refers to; noted if the table has no such entry."""
        match = _REFERENCE.fullmatch(text)
        name = match[1] if match else text
        if name in self.tables.table(table):
            return name
        if self._is_new((keys, table, name)):
            self.switch.dangling.append((keys, table, name))
        return None

    def port_groups(self, table: str) -> Iterator[tuple[str, int, str]]:
        """Spread out the keys of a table of priority groups or queues: port, number, key.

        In a chassis, a chip has queues towards the ports of all chips and line cards: ``card|chip|port|number``. Those
        towards ports of others say nothing of this one.
        """
        for key in self.tables.table(table):
            *owner, ports, numbers = key.split("|") if "|" in key else ("", "", "")
            if not ports:
                self.fault((table, key), "is no port and number, such as Ethernet0|3-4")
                continue
            for number in self.numbers(numbers, (table, key)):
                for port in filter(None, (name.strip() for name in ports.split(","))):
                    if not owner or self._is_own("|".join(owner), port):
                        yield port, number, key
                    else:
                        self.switch.foreign.add(key)

    def _is_own(self, owner: str, port: str) -> bool:
        """Whether a port that a key of a chassis names is one of this switch."""
        if port not in self._own_ports:
            return False
        own = "|".join(filter(None, (self.switch.hostname, self._asic)))
        if self.switch.hostname and self._asic:
            return owner.casefold() == own.casefold()
        return self._owners.setdefault(port, owner) == owner

    # Tables

    def _metadata(self) -> None:
        metadata = self.tables.table("DEVICE_METADATA").get("localhost", {})
        self.switch.hostname = metadata.get("hostname")
        self._asic = metadata.get("asic_name")
        # Ports that tables without line cards and chips speak of.
        spoken = [
            name.strip()
            for table in ("BUFFER_PG", "PORT_QOS_MAP")
            for key in self.tables.table(table)
            for name in key.split("|")[0].split(",")
        ]
        self._own_ports = set(self.tables.table("PORT")) or set(spoken)
        for key in self.tables.table("DEFAULT_LOSSLESS_BUFFER_PARAMETER"):
            keys: Keys = ("DEFAULT_LOSSLESS_BUFFER_PARAMETER", key)
            self.switch.default_dynamic_th = self.number((*keys, "default_dynamic_th"), low=-8, high=8)
            self.switch.over_subscribe_ratio = self.number((*keys, "over_subscribe_ratio"))

    def _ports(self) -> None:
        cables: dict[str, Fraction] = {}
        for key, fields in self.tables.table("CABLE_LENGTH").items():
            for port, text in fields.items():
                match = _CABLE.fullmatch(text)
                if match is None:
                    self.fault(("CABLE_LENGTH", key, port), f'is "{_short(text)}"; a length in metres is needed: 300m')
                else:
                    cables[port] = Fraction(match[1])
        neighbours = self.tables.table("DEVICE_NEIGHBOR")
        # A port is down unless it is said to be up; but a file that says it of none is an excerpt.
        usual_status = "down" if any("admin_status" in item for item in self.tables.table("PORT").values()) else "up"
        for name, fields in self.tables.table("PORT").items():
            keys = ("PORT", name)
            speed = self.number((*keys, "speed"), low=10, high=10**8, noun="a speed in Mb/s")
            self.switch.ports[name] = Port(
                name,
                None if speed is None else speed * 10**6,
                self.number((*keys, "mtu"), low=68, high=65_535, noun="an MTU in bytes"),
                cables.get(name),
                fields.get("admin_status", usual_status) != "down",
                neighbours.get(name, {}).get("name"),
            )

    def _pools(self) -> None:
        for name, fields in self.tables.table("BUFFER_POOL").items():
            keys = ("BUFFER_POOL", name)
            direction, mode = fields.get("type", ""), fields.get("mode", "")
            if direction not in ("ingress", "egress", "both"):
                self.fault((*keys, "type"), f'is "{_short(direction)}"; ingress or egress is needed')
            if mode not in ("dynamic", "static"):
                self.fault((*keys, "mode"), f'is "{_short(mode)}"; dynamic or static is needed')
            size, xoff = self.number((*keys, "size")), self.number((*keys, "xoff"))
            self.switch.pools[name] = Pool(name, direction, mode, size, xoff)

    def _profiles(self) -> None:
        for name, fields in self.tables.table("BUFFER_PROFILE").items():
            keys = ("BUFFER_PROFILE", name)
            pool = self.reference(fields["pool"], "BUFFER_POOL", (*keys, "pool")) if "pool" in fields else None
            self.switch.profiles[name] = Profile(
                name,
                pool,
                size_bytes=self.number((*keys, "size")),
                xon_bytes=self.number((*keys, "xon")),
                xoff_bytes=self.number((*keys, "xoff")),
                xon_offset_bytes=self.number((*keys, "xon_offset")),
                dynamic_th=self.number((*keys, "dynamic_th"), low=-8, high=8, noun="an exponent of alpha"),
                static_bytes=self.number((*keys, "static_th")),
            )

    def _groups(self) -> None:
        for table, bindings in (("BUFFER_PG", self.switch.groups), ("BUFFER_QUEUE", self.switch.queue_buffers)):
            for port, number, key in self.port_groups(table):
                keys = (table, key, "profile")
                text = self.tables.table(table)[key].get("profile")
                if text is None:
                    self.fault(keys[:2], "has no profile")
                name = text if text in (None, COMPUTED) else self.reference(text, "BUFFER_PROFILE", keys)
                self._bind(bindings, (port, number), Binding(name, keys))

    def _queues(self) -> None:
        for name, fields in self.tables.table("SCHEDULER").items():
            keys = ("SCHEDULER", name)
            kind = fields.get("type", "")
            if kind not in ("STRICT", "DWRR", "WRR"):
                self.fault((*keys, "type"), f'is "{_short(kind)}"; STRICT, DWRR or WRR is needed')
            weight = self.number((*keys, "weight"), low=1, high=100, noun="a weight")
            self.switch.schedulers[name] = Scheduler(name, kind, 1 if weight is None else weight)
        for name in self.tables.table("WRED_PROFILE"):
            self._wred(name)
        for port, number, key in self.port_groups("QUEUE"):
            for field_name, table, bindings in (
                ("wred_profile", "WRED_PROFILE", self.switch.queue_wred),
                ("scheduler", "SCHEDULER", self.switch.queue_scheduler),
            ):
                text = self.tables.table("QUEUE")[key].get(field_name)
                if text is not None:
                    place: Keys = ("QUEUE", key, field_name)
                    found = self.reference(text, table, place)
                    self._bind(bindings, (port, number), Binding(found, place))

    def _wred(self, name: str) -> None:
        keys = ("WRED_PROFILE", name)
        fields = self.tables.table("WRED_PROFILE")[name]
        ecn = fields.get("ecn", "ecn_none")
        if ecn not in ECN_COLOURS:
            self.fault((*keys, "ecn"), f'is "{_short(ecn)}"; one of {", ".join(ECN_COLOURS)} is needed')
        enabled = {}
        for colour in COLOURS:
            text = fields.get(f"wred_{colour}_enable", "false").lower()
            if text not in ("true", "false"):
                self.fault((*keys, f"wred_{colour}_enable"), f'is "{_short(text)}"; true or false is needed')
            enabled[colour] = text == "true"
        self.switch.wreds[name] = Wred(
            name,
            ecn,
            enabled,
            {colour: self.number((*keys, f"{colour}_min_threshold")) for colour in COLOURS},
            {colour: self.number((*keys, f"{colour}_max_threshold")) for colour in COLOURS},
            {
                colour: self.number((*keys, f"{colour}_drop_probability"), high=100, noun="a percentage")
                for colour in COLOURS
            },
        )

    def _maps(self) -> None:
        for table in QOS_MAPS.values():
            sources = DSCPS if table == "DSCP_TO_TC_MAP" else PRIORITIES
            maps = self.switch.maps.setdefault(table, {})
            for name, fields in self.tables.table(table).items():
                entries = maps.setdefault(name, {})
                for key, value in fields.items():
                    keys = (table, name, key)
                    source = self.whole(key, keys, 0, sources[-1], "a key of this map")
                    target = self.whole(value, keys, 0, PRIORITIES[-1], "a value of this map")
                    if source is not None and target is not None:
                        entries[source] = target

    def _qos(self) -> None:
        for key, fields in self.tables.table("PORT_QOS_MAP").items():
            keys = ("PORT_QOS_MAP", key)
            maps = {}
            for name, table in QOS_MAPS.items():
                if name in fields:
                    found = self.reference(fields[name], table, (*keys, name))
                    if found is not None:
                        maps[name] = found
            priorities = []
            for name in ("pfc_enable", "pfcwd_sw_enable"):
                text = fields.get(name)
                priorities.append(None if text is None else frozenset(self.numbers(text, (*keys, name))))
            for port in filter(None, (part.strip() for part in key.split("|")[-1].split(","))):
                self.switch.qos[port] = PortQos(maps, priorities[0], priorities[1], keys)

    def _watchdog(self) -> None:
        for key, fields in self.tables.table("PFC_WD").items():
            keys = ("PFC_WD", key)
            if key == "GLOBAL":
                self.switch.poll_ms = self.number((*keys, "POLL_INTERVAL"), low=1, noun="a time in ms")
                continue
            action = fields.get("action", "drop")
            if action not in ("drop", "forward", "alert"):
                self.fault((*keys, "action"), f'is "{_short(action)}"; drop, forward or alert is needed')
                action = "drop"
            detection = self.number((*keys, "detection_time"), low=1, noun="a time in ms")
            restoration = self.number((*keys, "restoration_time"), low=1, noun="a time in ms")
            for port in filter(None, (part.strip() for part in key.split(","))):
                self.switch.watch[port] = Watch(action, detection, restoration, keys)

    def _computed(self) -> None:
        for port in self.switch.data_ports:
            for priority in sorted(self.switch.pfc_of(port)) if self.switch.is_up(port) else ():
                group = (port, self.switch.group_of(port, priority))
                binding = self.switch.groups.get(group)
                if binding is None:
                    self.switch.computed[group] = self.switch.qos[port].keys
                elif binding.name == COMPUTED:
                    self.switch.computed[group] = binding.keys

    def _bind(self, bindings: dict[Group, Binding], group: Group, binding: Binding) -> None:
        other = bindings.get(group)
        differ = other is not None and other.name != binding.name
        if other is not None and differ and self._is_new((binding.keys, other.keys)):
            self.switch.clashes.append((binding.keys, other.keys, group))
        bindings[group] = binding


def usual(values: Iterable[T]) -> T | None:
    """The most frequent value, the first of equals; None of none."""
    counts = Counter(values)
    return max(counts, key=lambda value: counts[value]) if counts else None


def _short(text: str) -> str:
    """A value for a message."""
    shown = text if len(text) <= 40 else text[:37] + "..."
    return "".join(char if char.isprintable() else "?" for char in shown)


__all__ = [
    "COLOURS",
    "COMPUTED",
    "DSCPS",
    "ECN_COLOURS",
    "PRIORITIES",
    "QOS_MAPS",
    "TABLES",
    "Binding",
    "Group",
    "Pool",
    "Port",
    "PortQos",
    "Profile",
    "Scheduler",
    "SonicSwitch",
    "Watch",
    "Wred",
    "key_path",
    "read_switch",
    "usual",
]
