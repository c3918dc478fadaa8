"""Whether the routed fabric can deadlock: cycles of buffers that wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabemu.cycle import components, on_cycles, shortest_cycle
from fabemu.deferred import dataclass
from fabemu.lint.finding import Finding, Rule
from fabemu.lint.reach import Dependencies, Words, demand_by_class, dependencies, everything, routed
from fabemu.lint.subject import Subject
from fabemu.plan import ACTION_ROUTES, WATCHDOG_ALERT, Plan
from fabemu.units import format_time

_FORMULA = (
    "Graph: one node per egress queue (port, class) from switch to switch that PFC or credits can hold up; an edge "
    "from (p, c) to (q, c) if frames can come over p and leave by q, for some destination, by any equal-cost choice. "
    "A deadlock needs a cycle."
)
_SOURCE = (
    "Dally & Seitz, Deadlock-Free Message Routing in Multiprocessor Interconnection Networks, IEEE Trans. Computers "
    "1987; for PFC: Hu et al., Deadlocks in Datacenter Networks: Why Do They Form, and How to Avoid Them, HotNets "
    "2016."
)
PRONE = Rule(
    code="FB301",
    severity="warning",
    title="routing can deadlock under this traffic",
    meaning="The routes of the scenario's flows (with their ACKs) form a cyclic buffer dependency in a class that "
    "waits, a lossless one or any on links with credits: in one of the routing tables, or while one replaces another.",
    reason="If the buffers of the cycle fill, each waits for the next and none ever drains. The pauses spread to the "
    "whole fabric and last until a device restarts. A cycle is necessary for that, not sufficient.",
    formula=_FORMULA,
    source=_SOURCE,
    remedy="Route up then down only (no valley), or give each way round its own class; a PFC watchdog breaks a "
    "deadlock at the price of lost frames.",
)
LATENT = Rule(
    code="FB302",
    severity="note",
    title="routing can deadlock under other traffic",
    meaning="As FB301, if every host may send to every other; the scenario's own flows form no cycle.",
    reason="The fabric is safe only as long as nobody uses the missing paths.",
    formula=_FORMULA,
    source=_SOURCE,
    remedy="As FB301.",
)
FREE = Rule(
    code="FB303",
    severity="note",
    title="cannot deadlock",
    meaning="Whatever hosts send to each other, no routing table, nor the change from one to another, makes buffers "
    "wait for each other in a circle.",
    reason="Pauses always end when receivers go on taking frames.",
    formula=_FORMULA,
    source=_SOURCE,
    remedy="Nothing to do.",
)
RULES = (PRONE, LATENT, FREE)


@dataclass(frozen=True)
class _Cycle:
    """A cycle of egress ports, with one destination group for each step to the next, and how far its like reach."""

    ports: list[int]
    groups: list[int]
    classes: list[int]
    queue_count: int  # egress ports on any cycle of these classes
    watched: bool  # no cycle is left without the queues of a watchdog that drops or forwards
    when: str


def deadlocks(subject: Subject) -> list[Finding]:
    """FB301, FB302 or FB303."""
    plan = subject.plan
    stages = list(_stages(plan))
    latent = _first_cycles(subject, stages, dict.fromkeys(range(plan.class_count), everything(plan)))
    if latent:  # the scenario's own flows can form no cycle that all together do not
        prone = _first_cycles(subject, stages, demand_by_class(plan))
        return [_finding(subject, PRONE if prone else LATENT, cycle) for cycle in prone or latent]
    channels = (plan.port_node >= plan.host_count) & (subject.peer_node >= plan.host_count)
    if not channels.any():
        return [FREE.at((), "cannot deadlock: no link joins two switches")]
    names = [subject.compiled.class_names[item] for item in _waiting(subject)]
    if not names:
        return [FREE.at((), "cannot deadlock: no class is lossless")]
    whenever = f", in any of {plan.route_epochs} routing tables" if plan.route_epochs > 1 else ""
    return [
        FREE.at(
            (),
            f"cannot deadlock: the buffers of class {', '.join(names)} behind {int(channels.sum()):,} links between "
            f"switches depend on each other in no circle, whatever hosts send{whenever}",
            channels=int(channels.sum()),
        )
    ]


def _first_cycles(subject: Subject, stages: list[tuple[list[Words], str]], demands: dict[int, Words]) -> list[_Cycle]:
    """Cycles of the first stage that has any."""
    return next(filter(None, (_cycles(subject, tables, demands, when) for tables, when in stages)), [])


def _stages(plan: Plan) -> Iterator[tuple[list[Words], str]]:
    """Routing tables, one by one with the time from which each holds, then all of them as they replace each other."""
    distinct: dict[bytes, Words] = {}
    length = len(plan.route) // plan.route_epochs
    since = {0: ""}
    for action in np.flatnonzero(plan.action_kind == ACTION_ROUTES).tolist():
        time_ps = int(plan.action_time_ps[action])
        since.setdefault(int(plan.action_value[action]), f" with the routes from {format_time(time_ps)} on")
    for epoch in range(plan.route_epochs):
        key = plan.route[epoch * length : (epoch + 1) * length].tobytes()
        if key not in distinct and epoch in since:
            distinct[key] = routed(plan, epoch)
            yield [distinct[key]], since[epoch]
    if len(distinct) > 1:
        yield list(distinct.values()), " while routes change"


def _cycles(subject: Subject, tables: list[Words], demands: dict[int, Words], when: str) -> list[_Cycle]:
    plan = subject.plan
    known: dict[int, Dependencies] = {}  # equal demands are one object
    found: dict[bytes, _Cycle] = {}
    for waiting in _waiting(subject):
        held = _can_be_held(subject, waiting)
        parts: list[tuple[Dependencies, NDArray[np.int64]]] = []
        for item, demand in demands.items():
            here = subject.treated[:, item] == waiting  # nodes that treat frames of class `item` so
            if not here[plan.host_count :].any():
                continue
            if id(demand) not in known:
                known[id(demand)] = dependencies(plan, tables, demand)
            edges = known[id(demand)]
            kept = held[edges.port] & held[edges.next_port] & here[plan.port_node[edges.next_port]]
            parts.append((edges, np.stack([edges.port[kept], edges.next_port[kept]], axis=1)))
        joined = np.concatenate([pairs for _, pairs in parts] or [np.zeros((0, 2), dtype=np.int64)])
        joined = joined[on_cycles(plan.port_count, joined[:, 0], joined[:, 1])]
        if not len(joined):
            continue
        key = joined.tobytes()
        if key in found:
            found[key].classes.append(waiting)
            continue
        groups = components(plan.port_count, joined[:, 0], joined[:, 1])
        ports = shortest_cycle(groups[0], joined[:, 0], joined[:, 1])
        steps = list(zip(ports, ports[1:] + ports[:1], strict=True))
        towards = [
            next(edges.group(*step) for edges, pairs in parts if (pairs == step).all(axis=1).any()) for step in steps
        ]
        free = ~_watched(plan)
        free = free[joined[:, 0]] & free[joined[:, 1]]
        left = on_cycles(plan.port_count, joined[free, 0], joined[free, 1])
        found[key] = _Cycle(ports, towards, [waiting], sum(map(len, groups)), not left.any(), when)
    return list(found.values())


def _waiting(subject: Subject) -> list[int]:
    """Classes that can be held up between switches: lossless ones, and all others too where there are credits."""
    plan = subject.plan
    between = (plan.port_node >= plan.host_count) & (subject.peer_node >= plan.host_count)
    with_credits = (between & (plan.port_credit != 0)).any()
    waiting: list[int] = np.flatnonzero(subject.lossless | with_credits).tolist()
    return waiting


def _can_be_held(subject: Subject, item: int) -> NDArray[np.bool_]:
    """(P,) egress queues of a class, from switch to switch, that the receiver can hold up."""
    plan = subject.plan
    between = (plan.port_node >= plan.host_count) & (subject.peer_node >= plan.host_count)
    sends = subject.queues("pq_pfc_send")[plan.port_peer, item] != 0
    obeys = subject.queues("pq_pfc_obey")[:, item] != 0
    held: NDArray[np.bool_] = between & ((plan.port_credit != 0) | (subject.lossless[item] & sends & obeys))
    return held


def _watched(plan: Plan) -> NDArray[np.bool_]:
    """(P,) ports whose queues a watchdog empties or lets go when they stand still; it knows pauses only, no credits."""
    acts = (plan.watchdog_poll_ps > 0) & (plan.watchdog_action != WATCHDOG_ALERT)
    of_node = np.concatenate([np.zeros(plan.host_count, dtype=bool), acts])
    watched: NDArray[np.bool_] = of_node[plan.port_node] & (plan.port_watchdog != 0) & (plan.port_credit == 0)
    return watched


def _finding(subject: Subject, rule: Rule, cycle: _Cycle) -> Finding:
    plan = subject.plan
    ports = [subject.port(port) for port in cycle.ports]
    hosts = [subject.node(int(np.flatnonzero(plan.host_group == group)[0])) for group in cycle.groups]
    names = ", ".join(subject.compiled.class_names[item] for item in cycle.classes)
    ring = zip(ports[1:] + ports[:1], hosts, strict=True)
    waits = " ".join([ports[0], *(f"waits for {port} (frames to {host})" for port, host in ring)])
    end = "; the PFC watchdog would break it and drop frames" if cycle.watched else ""
    return rule.at(
        ports,
        f"class {names} can deadlock{cycle.when}: {waits}; {cycle.queue_count} egress ports are on such cycles{end}",
        cycle=ports,
        destinations=hosts,
        classes=[subject.compiled.class_names[item] for item in cycle.classes],
        ports_on_cycles=cycle.queue_count,
    )
