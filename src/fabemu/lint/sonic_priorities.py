"""SONiC: the way of a priority from DSCP to traffic class, priority group, queue and PFC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from fabemu.importers.sonic_switch import DSCPS, PRIORITIES, QOS_MAPS, SonicSwitch
from fabemu.lint.finding import Finding, Grouped, Rule

_SOURCE = "SONiC QoS maps; IEEE 802.1Qbb"

UNMAPPED = Rule(
    "FB630",
    "warning",
    "a DSCP that nobody maps",
    "A DSCP_TO_TC_MAP that is in force leaves out some of the 64 code points.",
    "Packets with such a DSCP go to traffic class 0, whatever they need: a RoCE class that is not listed is lossy.",
    "",
    _SOURCE,
    "List all 64 code points.",
)
NOWHERE = Rule(
    "FB631",
    "error",
    "a traffic class without queue or priority group",
    "A traffic class that some DSCP has is missing from TC_TO_QUEUE_MAP or TC_TO_PRIORITY_GROUP_MAP of the same port.",
    "The hardware uses queue or priority group 0, or drops.",
    "",
    _SOURCE,
    "Map every traffic class that is used.",
)
LOSSY_GROUP = Rule(
    "FB632",
    "error",
    "a lossless priority on a lossy priority group",
    "PFC is enabled for a priority, and its priority group has no profile with xoff.",
    "There is no headroom and no XOFF threshold: this hop drops packets of the lossless class instead of pausing.",
    "",
    _SOURCE,
    "Bind a lossless profile to the priority group, or take the priority out of pfc_enable.",
)
NO_PFC = Rule(
    "FB633",
    "error",
    "a lossless priority group without PFC",
    "A priority group has a profile with xoff, and pfc_enable of its port does not have its priority.",
    "No pause frame is sent when the group fills: its headroom fills too, then packets are dropped.",
    "",
    _SOURCE,
    "Add the priority to pfc_enable of the port.",
)
UNREACHED = Rule(
    "FB634",
    "warning",
    "a PFC priority that no DSCP reaches",
    "PFC is enabled for a priority, and no DSCP leads to its priority group through the maps of the port.",
    "The class that was meant to be lossless travels in another one.",
    "",
    _SOURCE,
    "Correct DSCP_TO_TC_MAP or TC_TO_PRIORITY_GROUP_MAP.",
)
UNEVEN = Rule(
    "FB635",
    "warning",
    "PFC off on some ports",
    "Ports that are up have different PFC priorities.",
    "One port without PFC is enough for a lossless class to lose packets.",
    "",
    _SOURCE,
    "Enable the same priorities on every port on the way.",
)
WRONG_QUEUE = Rule(
    "FB636",
    "error",
    "PFC pauses another queue than the one the class uses",
    "A traffic class with PFC leaves by the queue of TC_TO_QUEUE_MAP; a pause of its priority stops the queue of "
    "MAP_PFC_PRIORITY_TO_QUEUE. They differ.",
    "The neighbour's pause stops the wrong traffic, and the class goes on sending until the neighbour drops.",
    "",
    _SOURCE,
    "Let both maps name the same queue.",
)
MIXED = Rule(
    "FB637",
    "warning",
    "other traffic in a lossless priority group",
    "A traffic class is mapped to a priority group with PFC, but leaves by a queue that is not paused with it.",
    "Its packets fill the group and pause traffic that has nothing to do with them.",
    "",
    _SOURCE,
    "Give the class a priority group of its own, or a lossy one.",
)
EGRESS = Rule(
    "FB638",
    "warning",
    "a lossless queue with the egress limit of lossy ones",
    "A queue that PFC pauses has the same profile in BUFFER_QUEUE as a queue that is not lossless, and not meant to be "
    "by its priority group (FB633) or the PFC of other ports (FB635).",
    "Lossless packets are dropped at the egress limit while their priority group still has room.",
    "",
    _SOURCE,
    "Bind an egress profile to the lossless queues that never limits them.",
)
RULES = (UNMAPPED, NOWHERE, LOSSY_GROUP, NO_PFC, UNREACHED, UNEVEN, WRONG_QUEUE, MIXED, EGRESS)


def check_priorities(switch: SonicSwitch) -> Iterator[Finding]:
    """What is wrong with maps and PFC."""
    yield from _dscps(switch)
    yield from _classes(switch)
    yield from _groups(switch)
    yield from _uneven(switch)
    yield from _egress(switch)


def _dscps(switch: SonicSwitch) -> Iterator[Finding]:
    used = {qos.maps["dscp_to_tc_map"] for qos in switch.qos.values() if "dscp_to_tc_map" in qos.maps}
    for name, entries in switch.maps.get("DSCP_TO_TC_MAP", {}).items():
        missing = [dscp for dscp in DSCPS if dscp not in entries]
        if name in used and missing:
            text = f"maps no DSCP {spans(missing)} ({len(missing)} of 64)"
            yield UNMAPPED.at(switch.tables.at(("DSCP_TO_TC_MAP", name)), text, missing=missing)


def _classes(switch: SonicSwitch) -> Iterator[Finding]:
    nowhere, wrong_queue, mixed = Grouped(NOWHERE), Grouped(WRONG_QUEUE), Grouped(MIXED)
    for port in switch.data_ports:
        qos = switch.qos.get(port)
        if qos is None or not switch.is_up(port):
            continue
        to_group, to_queue = switch.map_of(port, "tc_to_pg_map"), switch.map_of(port, "tc_to_queue_map")
        classes = sorted(set((switch.map_of(port, "dscp_to_tc_map") or {}).values()))
        paused = {switch.group_of(port, priority): priority for priority in sorted(switch.pfc_of(port))}
        for traffic_class in classes:
            for entries, key in ((to_queue, "tc_to_queue_map"), (to_group, "tc_to_pg_map")):
                if entries is not None and traffic_class not in entries:
                    text = f"{QOS_MAPS[key]} {qos.maps.get(key, '')} has no traffic class {traffic_class}"
                    nowhere.add(switch.tables.at(qos.keys), text, traffic_class=traffic_class)
            if to_group is None or to_queue is None:
                continue
            group, queue = to_group.get(traffic_class), to_queue.get(traffic_class)
            if group not in paused or group is None or queue is None:
                continue
            stopped = switch.queue_of(port, paused[group])
            if queue == stopped:
                continue
            own = traffic_class == paused[group]
            text = (
                f"traffic class {traffic_class} uses priority group {group}, whose pause (priority {paused[group]}) "
                f"stops queue {stopped}, but it leaves by queue {queue}"
            )
            (wrong_queue if own else mixed).add(switch.tables.at(qos.keys), text, traffic_class=traffic_class)
    for found in (nowhere, wrong_queue, mixed):
        yield from found.findings()


def _groups(switch: SonicSwitch) -> Iterator[Finding]:
    at = switch.tables.at
    lossy, no_pfc, unreached = Grouped(LOSSY_GROUP), Grouped(NO_PFC), Grouped(UNREACHED)
    for port in switch.data_ports:
        if not switch.is_up(port):
            continue
        qos = switch.qos.get(port)
        priorities = sorted(switch.pfc_of(port))
        groups = {switch.group_of(port, priority) for priority in priorities}
        for priority in priorities:
            group = switch.group_of(port, priority)
            profile = switch.profile_of(port, group)
            if profile is not None and not profile.is_lossless:
                text = f"PFC is on for priority {priority}, but its priority group has {profile.name} without xoff"
                lossy.add(at(switch.groups[port, group].keys), text, priority=priority)
        for number in PRIORITIES:
            profile = switch.profile_of(port, number)
            if profile is not None and profile.is_lossless and number not in groups and switch.qos:
                enabled = f"pfc_enable = {','.join(map(str, priorities))}" if priorities else "PFC is off"
                text = f"priority group {number} is lossless ({profile.name}), but {enabled}"
                no_pfc.add(at(switch.groups[port, number].keys), text, group=number)
        to_class, to_group = switch.map_of(port, "dscp_to_tc_map"), switch.map_of(port, "tc_to_pg_map")
        if qos is None or to_class is None or to_group is None:
            continue
        reached = {to_group.get(traffic_class) for traffic_class in to_class.values()}
        for priority in priorities:
            if switch.group_of(port, priority) not in reached:
                text = f"PFC is on for priority {priority}, but no DSCP leads to priority group {priority}"
                unreached.add(at(qos.keys), text, priority=priority)
    for found in (lossy, no_pfc, unreached):
        yield from found.findings()


def _uneven(switch: SonicSwitch) -> Iterator[Finding]:
    enabled = {port: switch.pfc_of(port) for port in switch.data_ports if switch.is_up(port)}
    counts = Counter(enabled.values())
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda item: (counts[item], len(item)))
    found = Grouped(UNEVEN)
    for port, priorities in enabled.items():
        if priorities == usual:
            continue
        qos = switch.qos.get(port)
        place = switch.tables.at(qos.keys if qos is not None else ("PORT", port))
        has = f"PFC for priority {spans(priorities)}" if priorities else "no PFC"
        others = f"have it for {spans(usual)}" if usual else "have none"
        found.add(place, f"has {has}; {counts[usual]} of {len(enabled)} ports {others}", port=port)
    yield from found.findings()


def _egress(switch: SonicSwitch) -> Iterator[Finding]:
    found = Grouped(EGRESS)
    up = {port: switch.pfc_of(port) for port in switch.data_ports if switch.is_up(port)}
    meant = frozenset().union(*up.values())
    for port in switch.data_ports:
        lossless = {switch.queue_of(port, priority) for priority in switch.pfc_of(port)}
        # A queue whose PFC is on at other ports only is lossless by intention: FB635 says what is wrong with it.
        forgotten = {switch.queue_of(port, priority) for priority in meant} - lossless
        # So is one whose priority group is lossless: FB633.
        forgotten |= {
            switch.queue_of(port, number)
            for number in PRIORITIES
            if (profile := switch.profile_of(port, number)) is not None and profile.is_lossless
        } - lossless
        others = {
            binding.name
            for (name, queue), binding in switch.queue_buffers.items()
            if name == port and queue not in lossless | forgotten and binding.name is not None
        }
        for queue in sorted(lossless):
            binding = switch.queue_buffers.get((port, queue))
            if binding is not None and binding.name in others:
                text = f"queue {queue} is lossless and has {binding.name}, as lossy queues have"
                found.add(switch.tables.at(binding.keys), text, queue=queue)
    yield from found.findings()


def spans(numbers: Iterable[int]) -> str:
    """Write numbers in short: ``0-2, 7``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
