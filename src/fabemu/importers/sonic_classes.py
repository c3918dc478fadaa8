"""Queues of a SONiC switch as the traffic classes of scenarios: where DSCPs go, weights, and classes that fit."""

from __future__ import annotations

from collections.abc import Sequence

from fabemu.deferred import dataclass
from fabemu.importers.sonic_switch import DSCPS, PRIORITIES, SonicSwitch, usual

_CNP_DSCP = 48
"""What adapters give CNPs by default."""


@dataclass(frozen=True)
class QueueMaps:
    """What most ports make of DSCPs and queues.

    Attributes
    ----------
    queue_of_dscp
        Egress queue of all 64 code points; empty if no map says anything.
    weights
        Weights of the queues with DWRR or WRR; the others are strict.
    """

    queue_of_dscp: dict[int, int]
    weights: dict[int, int]


def queue_maps(switch: SonicSwitch, ports: Sequence[str], notes: list[str]) -> QueueMaps:
    """Find the maps of most of the ports; what differs or cannot be said goes to the notes."""
    found = [tuple(sorted(_queue_of_dscp(switch, port).items())) for port in ports]
    queues = dict(usual(found) or ())
    if len(set(found)) > 1:
        notes.append("maps of DSCPs that differ between ports: those of most ports are taken")
    if not queues:
        notes.append("no DSCP_TO_TC_MAP is in force: classes are told apart by their priority")
    _group_notes(switch, ports, notes)
    schedulers = [tuple(sorted(_weights(switch, port).items())) for port in ports]
    weights = dict(usual(schedulers) or ())
    if len(set(schedulers)) > 1:
        notes.append("weights that differ between ports: those of most ports are taken")
    plain = sorted({*queues.values()} - {queue for port, queue in switch.queue_scheduler if port in ports})
    if weights and plain:
        notes.append(f"queues without scheduler ({', '.join(map(str, plain))}): they are strict here")
    return QueueMaps(queues, weights)


def class_tables(maps: QueueMaps, lossless: Sequence[int], marked: Sequence[int]) -> list[str]:
    """Lines of the [[class]] tables of one class per queue that some DSCP reaches, and one for CNPs.

    Parameters
    ----------
    maps
        Where DSCPs go.
    lossless, marked
        Queues with PFC, and with ECN.
    """
    dscps = {queue: [dscp for dscp in DSCPS if maps.queue_of_dscp.get(dscp) == queue] for queue in PRIORITIES}
    if not maps.queue_of_dscp:
        dscps = {queue: [8 * queue] if queue == 0 or queue in lossless else [] for queue in PRIORITIES}
    used = [queue for queue in reversed(PRIORITIES) if dscps[queue] or queue in lossless]
    lossy = [queue for queue in used if queue not in lossless]
    wanted = maps.queue_of_dscp.get(_CNP_DSCP)
    carrier = wanted if wanted in lossy and wanted != 0 else max((item for item in lossy if item), default=None)
    if carrier is None:
        # A class of its own, which no DSCP of the switch leads to, is better than none.
        free = [queue for queue in reversed(PRIORITIES) if queue not in used]
        carrier = free[0] if free else used[0]
        used = sorted({*used, carrier}, reverse=True)
    taken: set[int] = set()
    lines: list[str] = []
    for queue in used:
        candidates = [_CNP_DSCP] if queue == carrier and _CNP_DSCP in dscps[queue] else dscps[queue]
        dscp = next((item for item in (*candidates, 8 * queue, *DSCPS) if item not in taken), 0)
        taken.add(dscp)
        name = "cnp" if queue == carrier else f"{'lossless' if queue in lossless else 'lossy'}-{queue}"
        lines += [
            "[[class]]",
            f'name = "{name}"',
            f"priority = {queue}",
            f"dscp = {dscp}",
            *(["lossless = true"] if queue in lossless else []),
            *(["ecn = true"] if queue in marked and queue != carrier else []),
            *(["cnp = true"] if queue == carrier else []),
            "",
        ]
    return lines


def _queue_of_dscp(switch: SonicSwitch, port: str) -> dict[int, int]:
    """Queue of every DSCP at a port; what no map has goes to 0, as hardware does it."""
    to_class = switch.map_of(port, "dscp_to_tc_map")
    if to_class is None:
        return {}
    to_queue = switch.map_of(port, "tc_to_queue_map")
    classes = {dscp: to_class.get(dscp, 0) for dscp in DSCPS}
    return {dscp: item if to_queue is None else to_queue.get(item, 0) for dscp, item in classes.items()}


def _weights(switch: SonicSwitch, port: str) -> dict[int, int]:
    found = {}
    for queue in PRIORITIES:
        binding = switch.queue_scheduler.get((port, queue))
        scheduler = None if binding is None or binding.name is None else switch.schedulers.get(binding.name)
        if scheduler is not None and scheduler.kind in ("DWRR", "WRR"):
            found[queue] = scheduler.weight
    return found


def _group_notes(switch: SonicSwitch, ports: Sequence[str], notes: list[str]) -> None:
    """Traffic classes whose priority group is not that of their queue, which cannot be said."""
    shared: dict[int, set[int]] = {}
    crossed: set[tuple[int, int, int]] = set()
    for port in ports:
        to_group, to_queue = switch.map_of(port, "tc_to_pg_map"), switch.map_of(port, "tc_to_queue_map")
        to_class = switch.map_of(port, "dscp_to_tc_map")
        if to_group is None or to_queue is None or to_class is None:
            continue
        for item in set(to_class.values()):
            group, queue = to_group.get(item, 0), to_queue.get(item, 0)
            if group == queue:
                continue
            profile = switch.profile_of(port, group)
            if profile is not None and profile.is_lossless:
                crossed.add((item, group, queue))
            else:
                shared.setdefault(group, set()).add(queue)
    for group, queues in sorted(shared.items()):
        listed = ", ".join(map(str, sorted(queues)))
        queue_noun = "queue" if len(queues) == 1 else "queues"
        notes.append(
            f"traffic of {queue_noun} {listed} uses priority group {group}: every class has one of its own here"
        )
    for item, group, queue in sorted(crossed):
        notes.append(
            f"traffic class {item} uses the lossless priority group {group}, but queue {queue}: here the group of its "
            "queue"
        )
