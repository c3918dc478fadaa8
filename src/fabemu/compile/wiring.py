"""Ports of a fabric with their link parameters and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import Problem, ScenarioError
from fabemu.routing import Ports, cable_ports, port_table
from fabemu.scenario.fabric import close_to
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric

CREDIT_BLOCK_BYTES = 64
"""Unit of credits."""

CREDIT_REFRESH_AUTO = -1
"""Refresh of credits that depends on whether their frames can be lost."""

PORTS_MAX = 65_535
"""Ports of one device."""


@dataclass(frozen=True)
class Wiring:
    """All ports: how they are cabled, and at what rate, delay and name."""

    ports: Ports
    rate_bps: NDArray[np.int64]  # (P,)
    delay_ps: NDArray[np.int64]  # (P,) propagation
    names: tuple[str, ...]  # (P,) "leaf0->spine1", with "#0", "#1", ... where cables are parallel
    credit_bytes: NDArray[np.int64]  # (P,) receive buffer of each class on a link with credits, whole blocks; else 0
    credit_refresh_ps: NDArray[np.int64]  # (P,) 0 for none, CREDIT_REFRESH_AUTO

    def host_rate_bps(self) -> NDArray[np.int64]:
        """(H,) sum of the rates of the ports of every host; 0 for an isolated one."""
        total = np.zeros(self.ports.node_count, dtype=np.int64)
        np.add.at(total, self.ports.port_node, self.rate_bps)
        return total[: self.ports.host_count]


def wire(scenario: Scenario, fabric: Fabric) -> Wiring:
    """Number the ports and resolve every cable's parameters.

    Raises ScenarioError if an override or a tier names what the fabric does not have, or a device has too many ports.
    """
    names = fabric.node_names
    pairs = [(min(cable.a, cable.b), max(cable.a, cable.b)) for cable in fabric.cables]
    parallel = Counter(pairs)
    _refuse_unknown(scenario, fabric, parallel)

    ends_a, ends_b = fabric.cable_ends()
    ports = port_table(fabric.host_count, fabric.node_count, ends_a, ends_b)
    _refuse_wide(ports, names)
    port_of = cable_ports(ends_a, ends_b)
    cable_rate = np.zeros(len(fabric.cables), dtype=np.int64)
    cable_delay = np.zeros(len(fabric.cables), dtype=np.int64)
    cable_credit = np.zeros(len(fabric.cables), dtype=np.int64)
    cable_refresh = np.zeros(len(fabric.cables), dtype=np.int64)
    port_names = [""] * len(ports.port_node)
    seen: Counter[tuple[int, int]] = Counter()
    for index, (cable, pair) in enumerate(zip(fabric.cables, pairs, strict=True)):
        number = seen[pair]
        seen[pair] += 1
        name_a, name_b = names[cable.a], names[cable.b]
        link = scenario.link_for(cable.tier, name_a, name_b, number, rate=cable.rate_bps, delay=cable.delay_ps)
        cable_rate[index], cable_delay[index] = link.rate, link.delay_ps
        if link.flow_control == "credit":
            cable_credit[index] = max(1, link.credit_buffer // CREDIT_BLOCK_BYTES) * CREDIT_BLOCK_BYTES
            refresh = link.credit_refresh
            cable_refresh[index] = 0 if refresh == "off" else CREDIT_REFRESH_AUTO if refresh == "auto" else refresh
        mark = f"#{number}" if parallel[pair] > 1 else ""
        port_names[port_of[index, 0]] = f"{name_a}->{name_b}{mark}"
        port_names[port_of[index, 1]] = f"{name_b}->{name_a}{mark}"
    if scenario.compat == "ns3":
        cable_delay -= cable_delay % 1000

    def at_both_ends(of_cable: NDArray[np.int64]) -> NDArray[np.int64]:
        of_port = np.zeros(len(port_names), dtype=np.int64)
        of_port[port_of] = of_cable[:, None]
        return of_port

    return Wiring(
        ports,
        at_both_ends(cable_rate),
        at_both_ends(cable_delay),
        tuple(port_names),
        at_both_ends(cable_credit),
        at_both_ends(cable_refresh),
    )


def _refuse_wide(ports: Ports, names: Sequence[str]) -> None:
    """Raise for devices with more ports than the engine numbers within one."""
    problems = []
    for node in np.flatnonzero(ports.degree > PORTS_MAX).tolist():
        noun = "host" if node < ports.host_count else "switch"
        message = f'{noun} "{names[node]}" has {ports.degree[node]:,} ports; at most {PORTS_MAX:,} are supported'
        problems.append(Problem("", "fabric", message))
    if problems:
        raise ScenarioError(problems)


def _refuse_unknown(scenario: Scenario, fabric: Fabric, parallel: Counter[tuple[int, int]]) -> None:
    """Raise for overrides of devices and cables that do not exist, and for tiers without a cable."""
    ids = {name: node for node, name in enumerate(fabric.node_names)}
    problems: list[Problem] = []

    def refuse(path: str, value: str, message: str) -> None:
        problems.append(Problem("", path, message, f'"{value}"'))

    for index, link in enumerate(scenario.link.override):
        path = f"link.override.{index}.between"
        unknown = [name for name in link.between if name not in ids]
        for name in unknown:
            refuse(path, name, f'the fabric has no device "{name}"{close_to(name, ids)}')
        if unknown:
            continue
        a, b = sorted(ids[name] for name in link.between)
        count = parallel[a, b]
        if not count:
            refuse(path, '", "'.join(link.between), "no link joins these two devices")
        elif link.index is not None and link.index >= count:
            only = "one link joins" if count == 1 else f"{count} links join"
            message = f"{only} these two devices: index is 0" + (f" to {count - 1}" if count > 1 else "")
            problems.append(Problem("", f"link.override.{index}.index", message, str(link.index)))
    for index, item in enumerate(scenario.switch.override):
        path = f"switch.override.{index}.peer"
        if item.peer is None or item.name not in ids:
            continue
        if item.peer not in ids:
            refuse(path, item.peer, f'the fabric has no device "{item.peer}"{close_to(item.peer, ids)}')
        elif not parallel[min(ids[item.name], ids[item.peer]), max(ids[item.name], ids[item.peer])]:
            refuse(path, item.peer, f'no link joins "{item.name}" and this device')
    switches = set(fabric.switch_names)
    hosts = set(fabric.host_names)
    for key, overridden, known, noun in (
        ("switch", [item.name for item in scenario.switch.override], switches, "switch"),
        ("nic", [item.name for item in scenario.nic.override], hosts, "host"),
    ):
        for index, name in enumerate(overridden):
            if name in known:
                continue
            other = f'"{name}" is a {"host" if noun == "switch" else "switch"}, not a {noun}'
            message = other if name in ids else f'the fabric has no {noun} "{name}"{close_to(name, known)}'
            refuse(f"{key}.override.{index}.name", name, message)
    # The tiers of a link file are known only now; the scenario has checked all others.
    if scenario.fabric.link_tiers() is None:
        tiers = {cable.tier for cable in fabric.cables} | {"host", "fabric"}
        for tier in scenario.link.tier:
            if tier not in tiers:
                problems.append(
                    Problem(
                        "", f"link.tier.{tier}", f'no link of the fabric is of tier "{tier}"{close_to(tier, tiers)}'
                    )
                )
    if problems:
        raise ScenarioError(problems)
