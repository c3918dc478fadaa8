"""Watchdogs, receive buffers of hosts and deadlock checks, as the plan has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.buffers import FrameLimits
from fabemu.compile.rows import group_rows
from fabemu.compile.wiring import Wiring
from fabemu.errors import Problem, ScenarioError
from fabemu.headroom import headroom_bound_bytes
from fabemu.plan import WATCHDOG_ALERT, WATCHDOG_DROP, WATCHDOG_FORWARD
from fabemu.scenario.device import Switch
from fabemu.scenario.fabric import close_to
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric

_ACTIONS = {"drop": WATCHDOG_DROP, "forward": WATCHDOG_FORWARD, "alert": WATCHDOG_ALERT}


def compile_incidents(
    scenario: Scenario, fabric: Fabric, wiring: Wiring, switches: Sequence[Switch], frames: FrameLimits
) -> dict[str, Any]:
    """Fields of `Plan` by name.

    Raises ScenarioError when a watchdog is to watch a port that its switch does not have.
    """
    interval = scenario.deadlock.interval
    return {
        **_watchdogs(fabric, wiring, switches),
        **_receivers(scenario, fabric, wiring, switches, frames),
        "deadlock_interval_ps": 0 if interval == "off" else interval,
        "deadlock_stop": scenario.deadlock.stop,
    }


def _watchdogs(fabric: Fabric, wiring: Wiring, switches: Sequence[Switch]) -> dict[str, NDArray[Any]]:
    """`watchdog_*` (S,) and `port_watchdog` (P,)."""
    ports = wiring.ports
    dogs = [switch.watchdog for switch in switches]
    watched = np.zeros(len(ports.port_node), dtype=np.uint8)
    problems: dict[str, None] = {}
    found: set[str] = set()
    named: set[str] = set()
    for node, dog in enumerate(dogs, start=fabric.host_count):
        if dog.detection_time == "off":
            continue
        own = slice(ports.node_port_start[node], ports.node_port_start[node + 1])
        peers = ports.peer_node[own]
        if dog.ports == "all":
            watched[own] = 1
        elif dog.ports == "host":
            watched[own] = peers < fabric.host_count
        else:
            names = [fabric.node_names[peer] for peer in peers.tolist()]
            wanted = (dog.ports,) if isinstance(dog.ports, str) else dog.ports
            watched[own] = [name in wanted for name in names]
            found.update(names)
            named.update(wanted)
            for name in wanted:
                if name not in fabric.node_ids:
                    hint = close_to(name, ["all", "host", *fabric.node_names])
                    problems[f'there is no device "{name}" in the fabric{hint}'] = None
    for name in sorted(named & set(fabric.node_names) - found):
        problems[f'no switch with this watchdog has a port to "{name}"'] = None
    if problems:
        raise ScenarioError(Problem("", "switch.watchdog.ports", message) for message in problems)
    on = np.array([dog.detection_time != "off" for dog in dogs], dtype=bool)

    def times(values: Sequence[Any]) -> NDArray[np.int64]:
        return np.where(on, np.array([0 if value == "off" else value for value in values], dtype=np.int64), 0)

    return {
        "watchdog_poll_ps": times([dog.poll_interval for dog in dogs]),
        "watchdog_detect_ps": times([dog.detection_time for dog in dogs]),
        "watchdog_restore_ps": times([dog.restoration_time for dog in dogs]),
        "watchdog_action": np.array([_ACTIONS[dog.action] for dog in dogs], dtype=np.uint8),
        "port_watchdog": watched,
    }


def _receivers(
    scenario: Scenario, fabric: Fabric, wiring: Wiring, switches: Sequence[Switch], frames: FrameLimits
) -> dict[str, NDArray[np.int64]]:
    """`port_rx_*` (P,) of the hosts' ports."""
    ports = wiring.ports
    lossless = sum(item.lossless for item in scenario.classes)
    fields = {
        f"port_rx_{key}_bytes": np.zeros(len(ports.port_node), dtype=np.int64) for key in ("xoff", "xon", "buffer")
    }
    host_ports = np.arange(int(ports.node_port_start[fabric.host_count]))
    peers = ports.peer_node[host_ports]
    receivers = [scenario.nic_for(name).receiver for name in fabric.host_names]
    # Hosts without an override share one object: look at it once.
    by_number = {id(receiver): receiver for receiver in receivers}
    number = np.array([id(receiver) for receiver in receivers], dtype=np.int64)[ports.port_node[host_ports]]
    of_switch = np.array([switch.pfc.response_delay for switch in switches], dtype=np.int64)
    response_ps = np.zeros(len(host_ports), dtype=np.int64)
    at_switch = peers >= fabric.host_count
    response_ps[at_switch] = of_switch[peers[at_switch] - fabric.host_count]
    columns = (number, wiring.rate_bps[host_ports], wiring.delay_ps[host_ports], response_ps)
    kind, examples = group_rows(columns)
    values: list[tuple[int, int, int]] = []
    for own, rate, delay, response in zip(*(column[examples].tolist() for column in columns), strict=True):
        receiver = by_number[own]
        buffer = receiver.buffer
        if buffer == "auto":
            bound = headroom_bound_bytes(
                rate_bps=rate,
                delay_ps=delay,
                response_ps=response,
                frame_bytes=frames.largest_bytes,
                pfc_bytes=frames.pfc_bytes,
                wire_overhead_bytes=frames.wire_overhead_bytes,
            )
            buffer = max(1, lossless) * (receiver.xoff + bound)
        values.append((receiver.xoff, receiver.xon, buffer))
    if values:
        of_port = np.array(values, dtype=np.int64)[kind]
        for column, name in enumerate(fields):
            fields[name][host_ports] = of_port[:, column]
    return fields
