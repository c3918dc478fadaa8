"""Routing tables of a run: paths of the fabric, next hops given by hand, and what is left when links are down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.paths import fabric_routes
from fabemu.compile.wiring import Wiring
from fabemu.deferred import dataclass
from fabemu.distinct import distinct
from fabemu.errors import Problem, ScenarioError
from fabemu.plan import NONE, ROUTE_SET_BASE
from fabemu.routing import GROUPS_MAX, TABLE_ENTRIES_MAX, Routes
from fabemu.scenario.fabric import close_to
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric
from fabemu.workload.hosts import HostNames, SelectorError


@dataclass(frozen=True)
class Detour:
    """Next hops of one switch given by hand."""

    node: int
    hosts: NDArray[np.int64]  # destinations
    ports: NDArray[np.int32]  # next hops, ascending
    index: int  # in the scenario


@dataclass(frozen=True)
class Tables:
    """Routes of every set of dead links that a run meets; `routes.route` holds the first table only."""

    routes: Routes
    route: NDArray[np.int32]  # (epochs, rows, G)
    nexthop_start: NDArray[np.int32]
    nexthop_port: NDArray[np.int32]


def compile_detours(scenario: Scenario, fabric: Fabric, wiring: Wiring) -> list[Detour]:
    """Resolve `routing.override`. Raises ScenarioError for switches, hosts and neighbours that are not there."""
    ids = fabric.node_ids
    hosts = HostNames(fabric.host_names, fabric.switch_names)
    ports = wiring.ports
    detours: list[Detour] = []
    problems: list[Problem] = []
    for index, item in enumerate(scenario.routing.override):
        place = f"routing.override.{index}"
        if item.at not in fabric.switch_names:
            problems.append(Problem("", f"{place}.at", not_a_switch(fabric, item.at), f'"{item.at}"'))
            continue
        node = ids[item.at]
        own = np.arange(ports.node_port_start[node], ports.node_port_start[node + 1], dtype=np.int32)
        chosen = np.zeros(len(own), dtype=np.bool_)
        for number, name in enumerate(item.via):
            if name not in fabric.switch_names:
                problems.append(Problem("", f"{place}.via.{number}", not_a_switch(fabric, name), f'"{name}"'))
                continue
            towards = ports.peer_node[own] == ids[name]
            if not towards.any():
                message = f'no link joins "{item.at}" and this switch'
                problems.append(Problem("", f"{place}.via.{number}", message, f'"{name}"'))
            chosen |= towards
        try:
            to = hosts.select(item.to)
        except SelectorError as error:
            problems.append(Problem("", f"{place}.to", str(error)))
            continue
        detours.append(Detour(node, to, own[chosen], index))
    if problems:
        raise ScenarioError(problems)
    return detours


def not_a_switch(fabric: Fabric, name: str) -> str:
    """Say why a name is not that of a switch."""
    if name in fabric.host_names:
        return f'"{name}" is a host, not a switch'
    return f'the fabric has no switch "{name}"{close_to(name, fabric.switch_names)}'


def compile_routes(
    fabric: Fabric, wiring: Wiring, shortest: Routes, detours: Sequence[Detour], dead: Iterable[frozenset[int]]
) -> Tables:
    """Routes with every link up, then with each set of dead ports.

    Parameters
    ----------
    fabric, wiring
        The fabric.
    shortest
        Its routes with every link up, by `fabric_routes`.
    detours
        Next hops given by hand; of one whose links are all dead the shortest paths are left.
    dead
        Sets of ports whose links are down, both ends of each; the tables come in their order, after the first.

    Raises
    ------
    ScenarioError
        Routes given by hand lead round in a circle, or the tables are larger than supported.
    """
    ports = wiring.ports
    tables: list[NDArray[np.int32]] = []
    sizes: list[NDArray[np.int32]] = []  # of the sets of all tables, which share one list
    members: list[NDArray[np.int32]] = []
    first: Routes | None = None
    for down in [frozenset[int](), *dead]:
        is_down = np.zeros(len(ports.port_node), dtype=np.bool_)
        is_down[list(down)] = True
        routes = fabric_routes(fabric, wiring, is_down) if down else shortest
        routes = _detoured(routes, [replace(item, ports=item.ports[~is_down[item.ports]]) for item in detours])
        if detours:
            _refuse_circles(fabric, wiring, routes, detours)
        if (len(tables) + 1) * routes.route.size > TABLE_ENTRIES_MAX:
            raise ScenarioError(f"the routing tables have more than {TABLE_ENTRIES_MAX} entries: too many links fail")
        table = routes.route.copy()
        table[table <= ROUTE_SET_BASE] -= sum(map(len, sizes))
        if first is None:
            first = routes
        else:
            # A queue pair keeps the port of its host.
            hosts = routes.node_route_row[: fabric.host_count]
            table[hosts[hosts >= 0]] = tables[0][hosts[hosts >= 0]]
        tables.append(table)
        sizes.append(np.diff(routes.nexthop_start))
        members.append(routes.nexthop_port)
    assert first is not None
    start = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32)
    return Tables(first, np.stack(tables), start, np.concatenate(members).astype(np.int32))


def _detoured(routes: Routes, detours: Sequence[Detour]) -> Routes:
    """Put next hops given by hand into the table; hosts of one group that they tell apart get groups of their own."""
    if not detours:
        return routes
    # Which overrides apply to a host decides, within its group, which hosts still share their routes.
    marks = np.zeros((len(routes.host_group), len(detours)), dtype=np.uint8)
    for column, item in enumerate(detours):
        marks[item.hosts, column] = 1
    keys = np.concatenate([routes.host_group[:, None], marks], axis=1)
    distinct, host_group = np.unique(keys, axis=0, return_inverse=True)
    if len(distinct) > GROUPS_MAX:
        raise ScenarioError(f"routes given by hand make {len(distinct)} groups of destinations; at most {GROUPS_MAX}")
    route = routes.route[:, distinct[:, 0]].copy()
    starts = routes.nexthop_start.tolist()
    members = [routes.nexthop_port]
    for column, item in enumerate(detours):
        if not len(item.ports):
            continue
        entry = int(item.ports[0])
        if len(item.ports) > 1:
            entry = ROUTE_SET_BASE - (len(starts) - 1)
            starts.append(starts[-1] + len(item.ports))
            members.append(item.ports)
        route[routes.node_route_row[item.node], distinct[:, 1 + column] == 1] = entry
    return replace(
        routes,
        host_group=host_group.reshape(-1).astype(np.int32),
        route=route,
        nexthop_start=np.array(starts, dtype=np.int32),
        nexthop_port=np.concatenate(members).astype(np.int32),
    )


def _refuse_circles(fabric: Fabric, wiring: Wiring, routes: Routes, detours: Sequence[Detour]) -> None:
    """Raise if a packet could come to one switch twice."""
    ports = wiring.ports
    node_of_row = np.full(len(routes.route), NONE, dtype=np.int64)
    has_row = routes.node_route_row >= 0
    node_of_row[routes.node_route_row[has_row]] = np.flatnonzero(has_row)
    touched = distinct(routes.host_group[np.concatenate([item.hosts for item in detours])])
    for group in touched.tolist():
        following: dict[int, set[int]] = {}
        for node, entry in zip(node_of_row.tolist(), routes.route[:, group].tolist(), strict=True):
            if node < fabric.host_count or (ROUTE_SET_BASE < entry < 0):
                continue
            hops = [entry]
            if entry <= ROUTE_SET_BASE:
                number = ROUTE_SET_BASE - entry
                hops = routes.nexthop_port[routes.nexthop_start[number] : routes.nexthop_start[number + 1]].tolist()
            peers = {int(ports.peer_node[port]) for port in hops}
            following[node] = {peer for peer in peers if peer >= fabric.host_count}
        circle = _circle(following)
        if circle:
            host = fabric.host_names[int(np.flatnonzero(routes.host_group == group)[0])]
            names = " -> ".join(fabric.node_names[node] for node in [*circle, circle[0]])
            guilty = [item.index for item in detours if item.node in circle]
            place = f"routing.override.{guilty[0]}" if guilty else "routing.override"
            raise ScenarioError(Problem("", place, f"packets to {host} would go round in a circle: {names}"))


def _circle(following: dict[int, set[int]]) -> list[int]:
    """Find a cycle of a graph, as its nodes in order; empty if there is none."""
    done: set[int] = set()
    for root in following:
        path: list[int] = []
        on_path: set[int] = set()
        stack: list[tuple[int, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                on_path.discard(node)
                done.add(node)
                continue
            if node in on_path:
                return path[path.index(node) :]
            if node in done:
                continue
            path.append(node)
            on_path.add(node)
            stack.append((node, True))
            stack.extend((peer, False) for peer in sorted(following.get(node, ()), reverse=True))
    return []
