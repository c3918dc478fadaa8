"""Paths of a fabric: shortest ones, the dimension order of a torus, and the scale-up network inside nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.wiring import Wiring
from fabemu.distinct import distinct
from fabemu.errors import Problem, ScenarioError
from fabemu.plan import NONE
from fabemu.routing import GROUPS_MAX, TABLE_ENTRIES_MAX, Routes, shortest_paths
from fabemu.topology.cable import Fabric
from fabemu.topology.torus import coordinates, dimension_order_steps

_COLUMNS = 256
"""Groups of destinations at a time: bounds memory, and writes the table in runs."""


def fabric_routes(fabric: Fabric, wiring: Wiring, down: NDArray[np.bool_] | None = None) -> Routes:
    """Routes of a fabric as its kind wants them.

    Parameters
    ----------
    fabric, wiring
        The fabric.
    down
        (P,) ports whose cable is dead, both its ends.

    Raises
    ------
    ScenarioError
        The fabric has more groups of destinations, or the table more entries, than are supported.
    """
    if wiring.scale_up.any():
        _refuse_large(fabric)
    routes = shortest_paths(wiring.ports, down, wiring.cost)
    if fabric.dimensions:
        routes = _dimension_order(fabric, wiring, routes, down)
    return _inside_nodes(fabric, wiring, routes)


def _refuse_large(fabric: Fabric) -> None:
    """Raise for clusters in which every GPU cannot have routes of its own."""
    gpus, nodes = int((fabric.host_node != NONE).sum()), fabric.node_count
    if gpus > GROUPS_MAX or gpus * nodes > TABLE_ENTRIES_MAX:
        message = (
            f"with packets every one of the {gpus:,} GPUs has routes of its own: {gpus * nodes:,} entries in a table"
            f" of {nodes:,} devices, where {GROUPS_MAX:,} GPUs and {TABLE_ENTRIES_MAX:,} entries are supported;"
            ' use model = "analytic", or fewer GPUs'
        )
        raise ScenarioError(Problem("", "scale_up.model", message, '"packets"'))


def _dimension_order(fabric: Fabric, wiring: Wiring, routes: Routes, down: NDArray[np.bool_] | None) -> Routes:
    """Lay dimension order over the shortest paths between the switches of a torus, the first ones of the fabric.

    Towards a switch that it leads to over a dead cable, all switches use shortest paths: mixed routes could go round in
    a circle.
    """
    ports, hosts = wiring.ports, fabric.host_count
    switches = int(np.prod(fabric.dimensions))
    own, peer = ports.port_node.astype(np.int64) - hosts, ports.peer_node.astype(np.int64) - hosts
    ring_ports = np.flatnonzero((own >= 0) & (own < switches) & (peer >= 0) & (peer < switches))
    keys = own[ring_ports] * switches + peer[ring_ports]
    order = np.argsort(keys, kind="stable")
    keys, ring_ports = keys[order], ring_ports[order]

    # The switch of a group is that of the NIC of its hosts; hosts of a network beside the torus have another.
    group, first_host = np.unique(routes.host_group, return_index=True)
    has_port = ports.degree[first_host] > 0
    group, first_host = group[has_port], first_host[has_port]
    switch_of_group = peer[ports.node_port_start[first_host]]
    in_torus = (switch_of_group >= 0) & (switch_of_group < switches)
    group, switch_of_group = group[in_torus], switch_of_group[in_torus]

    # (size, S) by axis: the port of the step towards each coordinate, NONE where a switch is there.
    everyone = np.arange(switches)
    port_of_step = []
    for steps in dimension_order_steps(fabric.dimensions):
        found = np.searchsorted(keys, everyone * switches + steps)
        port_of_step.append(np.where(steps == everyone, NONE, ring_ports[np.minimum(found, len(keys) - 1)]))
    table = routes.route.copy()
    rows = routes.node_route_row[hosts : hosts + switches]
    for first in range(0, len(group), _COLUMNS):
        targets = switch_of_group[first : first + _COLUMNS]
        chosen = np.empty((switches, len(targets)), dtype=np.int32)
        for column, target in enumerate(targets.tolist()):
            ports_towards = np.full(switches, NONE)
            for along, place in zip(port_of_step, coordinates(fabric.dimensions, target), strict=True):
                ports_towards = np.where(ports_towards == NONE, along[place], ports_towards)
            if down is not None and down[ports_towards[ports_towards != NONE]].any():
                ports_towards[:] = NONE
            chosen[:, column] = ports_towards
        before = table[rows[:, None], group[first : first + _COLUMNS]]
        table[rows[:, None], group[first : first + _COLUMNS]] = np.where(chosen == NONE, before, chosen)
    return replace(routes, route=table)


def _inside_nodes(fabric: Fabric, wiring: Wiring, routes: Routes) -> Routes:
    """Send what stays in a node by its scale-up switch alone, also where another path is as short."""
    if not wiring.scale_up.any():
        return routes
    ports, hosts = wiring.ports, fabric.host_count
    table = routes.route.copy()
    # The only port of a host without a NIC needs no row.
    own = np.flatnonzero(wiring.scale_up & (ports.port_node < hosts))
    own = own[routes.node_route_row[ports.port_node[own]] != NONE]
    host = ports.port_node[own]
    for server in distinct(fabric.host_node[host]).tolist():
        inside = fabric.host_node[host] == server
        columns = routes.host_group[fabric.host_node == server]
        table[np.ix_(routes.node_route_row[host[inside]], columns)] = own[inside].astype(np.int32)[:, None]
    return replace(routes, route=table)
