"""Ports of a fabric with their link parameters and names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.routing import Ports, cable_ports, port_table
from fabemu.scenario.device import Link
from fabemu.scenario.fabric import close_to
from fabemu.scenario.model import Scenario
from fabemu.scenario.scale_up import CREDIT_BLOCK_BYTES, SCALE_UP_TIER
from fabemu.topology.cable import Fabric

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
    scale_up: NDArray[np.bool_]  # (P,) ports of the scale-up network
    cost: NDArray[np.int32] | None  # (P,) what the cable counts in the length of a path; None: 1 everywhere

    def host_rate_bps(self) -> NDArray[np.int64]:
        """(H,) sum of the rates of the NIC ports of every host; 0 for an isolated one."""
        total = np.zeros(self.ports.node_count, dtype=np.int64)
        np.add.at(total, self.ports.port_node, np.where(self.scale_up, 0, self.rate_bps))
        return total[: self.ports.host_count]


def wire(scenario: Scenario, fabric: Fabric) -> Wiring:
    """Number the ports and resolve every cable's parameters.

    Raises ScenarioError if an override or a tier names what the fabric does not have, or a device has too many ports.
    """
    names = fabric.node_names
    ends_a, ends_b = fabric.cable_ends()
    bundles = _Bundles.of(ends_a, ends_b, fabric.node_count)
    _refuse_unknown(scenario, fabric, bundles)

    ports = port_table(fabric.host_count, fabric.node_count, ends_a, ends_b)
    _refuse_wide(ports, names)
    port_of = cable_ports(ends_a, ends_b)
    kind_of_cable, links = _links(scenario, fabric, bundles)
    cable_rate = np.array([link.rate for link in links], dtype=np.int64)[kind_of_cable]
    cable_delay = np.array([link.delay_ps for link in links], dtype=np.int64)[kind_of_cable]
    cable_credit = np.array([_credit_bytes(link) for link in links], dtype=np.int64)[kind_of_cable]
    cable_refresh = np.array([_credit_refresh_ps(link) for link in links], dtype=np.int64)[kind_of_cable]
    port_names = [
        f"{names[node]}->{names[peer]}"
        for node, peer in zip(ports.port_node.tolist(), ports.peer_node.tolist(), strict=True)
    ]
    parallel = np.flatnonzero(bundles.size > 1)
    for cable, number in zip(parallel.tolist(), bundles.number[parallel].tolist(), strict=True):
        for port in port_of[cable].tolist():
            port_names[port] += f"#{number}"
    if scenario.compat == "ns3":
        cable_delay -= cable_delay % 1000

    def at_both_ends(of_cable: NDArray[np.int64]) -> NDArray[np.int64]:
        of_port = np.zeros(len(port_names), dtype=np.int64)
        of_port[port_of] = of_cable[:, None]
        return of_port

    cable_inside = np.array([cable.tier == SCALE_UP_TIER for cable in fabric.cables], dtype=np.int64)
    costs = fabric.hop_costs
    cable_cost = np.array([costs.get(cable.tier, 1) for cable in fabric.cables]) if costs else None

    return Wiring(
        ports,
        at_both_ends(cable_rate),
        at_both_ends(cable_delay),
        tuple(port_names),
        at_both_ends(cable_credit),
        at_both_ends(cable_refresh),
        at_both_ends(cable_inside) != 0,
        None if cable_cost is None else at_both_ends(cable_cost).astype(np.int32),
    )


@dataclass(frozen=True)
class _Bundles:
    """Parallel cables: those between the same two devices, in any direction."""

    key: NDArray[np.int64]  # (cables,) of the two devices, see `key_of`
    size: NDArray[np.int64]  # (cables,) parallel cables, the cable itself included
    number: NDArray[np.int64]  # (cables,) which of them it is, from 0
    node_count: int

    @classmethod
    def of(cls, ends_a: NDArray[np.int32], ends_b: NDArray[np.int32], node_count: int) -> _Bundles:
        """Bundles of the cables `ends_a[i]` - `ends_b[i]`."""
        key = np.minimum(ends_a, ends_b).astype(np.int64) * node_count + np.maximum(ends_a, ends_b)
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")
        number = np.empty(len(key), dtype=np.int64)
        number[order] = np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(key, counts[inverse], number, node_count)

    def key_of(self, a: int, b: int) -> int:
        """Key of two nodes."""
        return min(a, b) * self.node_count + max(a, b)

    def count(self, a: int, b: int) -> int:
        """Cables between two nodes."""
        return int(np.count_nonzero(self.key == self.key_of(a, b)))


def _links(scenario: Scenario, fabric: Fabric, bundles: _Bundles) -> tuple[NDArray[np.int64], list[Link]]:
    """(cables,) kind of every cable, and the parameters of each kind; a cable with an override is a kind of its own."""
    names, ids = fabric.node_names, fabric.node_ids
    overridden = [bundles.key_of(*(ids[name] for name in link.between)) for link in scenario.link.override]
    kinds: dict[tuple[str, int | None, int | None], int] = {}
    links: list[Link] = []

    def resolve(index: int) -> Link:
        cable = fabric.cables[index]
        return scenario.link_for(
            cable.tier,
            names[cable.a],
            names[cable.b],
            int(bundles.number[index]),
            rate=cable.rate_bps,
            delay=cable.delay_ps,
        )

    own = np.isin(bundles.key, overridden)
    kind_of_cable = np.zeros(len(fabric.cables), dtype=np.int64)
    for index, (cable, has_own) in enumerate(zip(fabric.cables, own.tolist(), strict=True)):
        key = (cable.tier, cable.rate_bps, cable.delay_ps)
        if has_own:
            kind_of_cable[index] = len(links)
            links.append(resolve(index))
        elif key in kinds:
            kind_of_cable[index] = kinds[key]
        else:
            kind_of_cable[index] = kinds[key] = len(links)
            links.append(resolve(index))
    return kind_of_cable, links


def _credit_bytes(link: Link) -> int:
    """Receive buffer of each class in whole blocks; 0 without credits."""
    if link.flow_control != "credit":
        return 0
    return max(1, link.credit_buffer // CREDIT_BLOCK_BYTES) * CREDIT_BLOCK_BYTES


def _credit_refresh_ps(link: Link) -> int:
    """Refresh of credits: 0 for none, CREDIT_REFRESH_AUTO."""
    if link.flow_control != "credit" or link.credit_refresh == "off":
        return 0
    return CREDIT_REFRESH_AUTO if link.credit_refresh == "auto" else link.credit_refresh


def _refuse_wide(ports: Ports, names: Sequence[str]) -> None:
    """Raise for devices with more ports than the engine numbers within one."""
    problems = []
    for node in np.flatnonzero(ports.degree > PORTS_MAX).tolist():
        noun = "host" if node < ports.host_count else "switch"
        message = f'{noun} "{names[node]}" has {ports.degree[node]:,} ports; at most {PORTS_MAX:,} are supported'
        problems.append(Problem("", "fabric", message))
    if problems:
        raise ScenarioError(problems)


def _refuse_unknown(scenario: Scenario, fabric: Fabric, bundles: _Bundles) -> None:
    """Raise for overrides of devices and cables that do not exist, and for tiers without a cable."""
    ids = fabric.node_ids
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
        count = bundles.count(*(ids[name] for name in link.between))
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
        elif not bundles.count(ids[item.name], ids[item.peer]):
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
