"""Buffers, PFC and ECN of all switch ports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.credit import refuse_wrong_credits
from fabemu.compile.rows import group_rows
from fabemu.compile.wiring import Wiring
from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.headroom import headroom_bound_bytes, ns3_headroom_bytes
from fabemu.plan import NONE
from fabemu.scenario.device import Pfc, Switch
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric
from fabemu.units import format_bytes

NEVER_MARK_BYTES = 2**31 - 1
"""ECN threshold that no queue reaches."""

_Q16 = 1 << 16
_Q32 = 1 << 32
_INT64_MAX = 2**63 - 1
_AUTO_ALPHA = Fraction(1, 8)

# Columns of the parameters of one kind of port, one value per class.
_RESERVED, _HEADROOM, _ALPHA, _XON, _EGRESS_ALPHA, _KMIN, _KMAX, _PMAX, _STATIC, _EGRESS_STATIC, _QUANTUM = range(11)
_COLUMNS = 11


@dataclass(frozen=True)
class FrameLimits:
    """What the buffers must know of frames, bytes."""

    largest_bytes: int
    pfc_bytes: int
    wire_overhead_bytes: int
    smallest_bytes: int


@dataclass(frozen=True)
class _PortKind:
    """Ports that share all their parameters."""

    switch: Switch
    rate_bps: int
    delay_ps: int
    response_ps: int  # of the peer, to the PFC frames that this port sends
    credit_bytes: int  # receive buffer of each class on a link with credits, else 0

    @property
    def pfc(self) -> Pfc:
        """Parameters of the lossless classes at such a port."""
        return self.switch.pfc.at_link(self.rate_bps, self.delay_ps)

    @property
    def has_pfc(self) -> bool:
        """Whether PFC is in force there."""
        return self.pfc.enabled and not self.credit_bytes


@dataclass(frozen=True)
class Buffers:
    """Fields of `Plan` by name."""

    fields: dict[str, NDArray[Any]]
    lossless_guaranteed: bool  # see `Plan`


def compile_buffers(
    scenario: Scenario, fabric: Fabric, wiring: Wiring, switches: Sequence[Switch], frames: FrameLimits
) -> Buffers:
    """Work out every priority group and egress queue.

    The PFC response delay of a host is that of the switch it is cabled to.

    Raises ScenarioError when the reserved and headroom bytes of a switch do not fit its buffer.
    """
    ports = wiring.ports
    host_count, port_count = fabric.host_count, len(ports.port_node)
    classes = scenario.classes_by_priority
    response_ps = _response_ps(scenario, wiring, switches)
    refuse_wrong_credits(scenario, fabric, wiring, switches, frames.largest_bytes)
    at_peer = {
        node: by_peer
        for node, switch in enumerate(switches, start=host_count)
        if (by_peer := scenario.switch_ports_for(fabric.node_names[node], switch))
    }
    kind_of_port = np.full(port_count, -1, dtype=np.int64)
    first_switch_port = int(ports.node_port_start[host_count])
    kind_of_port[first_switch_port:], members = _port_kinds(fabric, wiring, switches, at_peer, response_ps)

    nic_rate_bps = int(wiring.rate_bps[0]) if first_switch_port else 0  # the first host that has a cable
    table = np.zeros((len(members) + 1, _COLUMNS, len(classes)), dtype=np.int64)  # the last row is for hosts' ports
    table[-1, [_KMIN, _KMAX]] = NEVER_MARK_BYTES
    table[-1, [_STATIC, _EGRESS_STATIC]] = NONE
    for index, kind in enumerate(members):
        table[index] = _kind_parameters(scenario, kind, nic_rate_bps, frames)
    per_port = table[kind_of_port]

    lossless = np.array([item.lossless for item in classes])
    pool_bytes, problems = _pools(scenario, fabric, wiring, switches, members, kind_of_port, per_port, lossless)
    if problems:
        raise ScenarioError(problems)
    pause_ps = np.zeros(port_count, dtype=np.int64)
    if scenario.compat != "ns3":
        kind_pause = [-(-kind.switch.pfc.quanta * 512 * 10**12 // kind.rate_bps) for kind in members] + [0]
        pause_ps = np.array(kind_pause, dtype=np.int64)[kind_of_port]
        # Hosts have no such key: their pauses, at the rate of the same link, are those of the switch.
        pause_ps[:first_switch_port] = pause_ps[ports.port_peer[:first_switch_port]]
    short = _any_short(members, table, frames, lossless)
    names = (
        "pq_reserved_bytes",
        "pq_headroom_bytes",
        "pq_alpha_q16",
        "pq_xon_offset_bytes",
        "pq_egress_alpha_q16",
        "pq_kmin_bytes",
        "pq_kmax_bytes",
        "pq_pmax_q32",
        "pq_static_bytes",
        "pq_egress_static_bytes",
        "pq_quantum_bytes",
    )
    has_pfc = np.array([kind.has_pfc for kind in members] + [True])[kind_of_port] & (wiring.credit_bytes == 0)
    unpaused = [kind for kind in members if lossless.any() and not kind.has_pfc and not kind.credit_bytes]
    fields: dict[str, NDArray[Any]] = {name: per_port[:, column].ravel() for column, name in enumerate(names)}
    fields |= {
        "port_pause_ps": pause_ps,
        "port_pfc_response_ps": response_ps,
        "switch_buffer_bytes": np.array([switch.buffer for switch in switches], dtype=np.int64),
        "switch_pool_bytes": pool_bytes,
        "switch_latency_ps": np.array([switch.latency for switch in switches], dtype=np.int64),
        "switch_cell_bytes": np.array([switch.cell for switch in switches], dtype=np.int32),
        "switch_class_map": _class_maps(scenario, switches),
        "pq_pfc_send": np.repeat(has_pfc, len(classes)),
        "pq_pfc_obey": np.repeat(has_pfc, len(classes)),
        "port_credit": wiring.credit_bytes > 0,
        "pq_credit_bytes": np.repeat(wiring.credit_bytes, len(classes)),
    }
    mapped = any(switch.class_map for switch in switches)
    guaranteed = scenario.compat != "ns3" and not short and not unpaused and not mapped
    return Buffers(fields, lossless_guaranteed=guaranteed)


def _port_kinds(
    fabric: Fabric,
    wiring: Wiring,
    switches: Sequence[Switch],
    at_peer: Mapping[int, Mapping[str, Switch]],
    response_ps: NDArray[np.int64],
) -> tuple[NDArray[np.int64], list[_PortKind]]:
    """Kind of every port of a switch, in their order, and the kinds.

    `at_peer` has the parameters of ports with overrides of their own, by node and name of the peer.
    """
    ports = wiring.ports
    first = int(ports.node_port_start[fabric.host_count])
    tables: list[Switch] = []
    numbers: dict[int, int] = {}  # switches of one tier without an override share one object

    def number(switch: Switch) -> int:
        if id(switch) not in numbers:
            numbers[id(switch)] = len(tables)
            tables.append(switch)
        return numbers[id(switch)]

    table_of_node = np.array([number(switch) for switch in switches], dtype=np.int64)
    table_of_port = table_of_node[ports.port_node[first:] - fabric.host_count]
    for node, by_peer in at_peer.items():
        own = np.arange(ports.node_port_start[node], ports.node_port_start[node + 1])
        for peer, switch in by_peer.items():
            table_of_port[own[ports.peer_node[own] == fabric.node_ids[peer]] - first] = number(switch)
    columns = (
        table_of_port,
        wiring.rate_bps[first:],
        wiring.delay_ps[first:],
        response_ps[ports.port_peer[first:]],
        wiring.credit_bytes[first:],
    )
    kind, examples = group_rows(columns)
    rows = zip(*(column[examples].tolist() for column in columns), strict=True)
    return kind, [_PortKind(tables[table], *parameters) for table, *parameters in rows]


def _class_maps(scenario: Scenario, switches: Sequence[Switch]) -> NDArray[np.uint8]:
    """(S*C,) class as which every switch treats every class."""
    maps = np.tile(np.arange(len(scenario.classes), dtype=np.uint8), (len(switches), 1))
    for row, switch in zip(maps, switches, strict=True):
        for own, treated in switch.class_map.items():
            row[scenario.class_id(own)] = scenario.class_id(treated)
    return maps.ravel()


def dynamic_alpha(switch: Switch, rate_bps: int, nic_rate_bps: int) -> Fraction:
    """Ingress alpha of the lossless classes at a port of this rate.

    "auto" is 1/8 up to the rate of the NICs and twice as much for every doubling above it, at most 1.
    """
    if switch.pfc.alpha is not None and switch.pfc.alpha != "auto":
        return switch.pfc.alpha
    alpha = _AUTO_ALPHA
    while nic_rate_bps and rate_bps > nic_rate_bps and alpha < 1:
        alpha *= 2
        rate_bps //= 2
    return alpha


def _response_ps(scenario: Scenario, wiring: Wiring, switches: Sequence[Switch]) -> NDArray[np.int64]:
    """(P,) from receipt of a PFC frame to its effect."""
    ports = wiring.ports
    if scenario.compat == "ns3":
        return np.zeros(len(ports.port_node), dtype=np.int64)
    # Hosts have no such key: they respond as fast as the switch at the other end.
    of_node = np.zeros(ports.node_count, dtype=np.int64)
    of_node[ports.host_count :] = [switch.pfc.response_delay for switch in switches]
    own, other = of_node[ports.port_node], of_node[ports.peer_node]
    return np.where(ports.port_node < ports.host_count, other, own)


def _bound_bytes(kind: _PortKind, frames: FrameLimits) -> int:
    """Headroom that a priority group of such a port needs."""
    return headroom_bound_bytes(
        rate_bps=kind.rate_bps,
        delay_ps=kind.delay_ps,
        response_ps=kind.response_ps,
        frame_bytes=frames.largest_bytes,
        pfc_bytes=frames.pfc_bytes,
        wire_overhead_bytes=frames.wire_overhead_bytes,
        cell_bytes=kind.switch.cell,
        frame_min_bytes=frames.smallest_bytes,
    )


def _kind_parameters(scenario: Scenario, kind: _PortKind, nic_rate_bps: int, frames: FrameLimits) -> NDArray[np.int64]:
    """(columns, C) parameters of one kind of port."""
    classes = scenario.classes_by_priority
    switch, pfc, lossy = kind.switch, kind.pfc, kind.switch.lossy
    if pfc.headroom != "auto":
        headroom = pfc.headroom
    elif scenario.compat == "ns3":
        headroom = ns3_headroom_bytes(rate_bps=kind.rate_bps, delay_ps=kind.delay_ps)
    else:
        headroom = _bound_bytes(kind, frames)
    alpha = dynamic_alpha(switch, kind.rate_bps, nic_rate_bps)
    marking = switch.ecn.at_rate(kind.rate_bps)
    values = np.zeros((_COLUMNS, len(classes)), dtype=np.int64)
    quanta = _quanta(switch, frames.largest_bytes)
    static: tuple[int | None, int | None]
    for column, item in enumerate(classes):
        if item.lossless:
            ingress = (pfc.reserved, headroom, _q16(alpha), pfc.xon_offset, 0)
            static = (pfc.static, None)
        else:
            ingress = (lossy.reserved, 0, _q16(lossy.alpha or Fraction(0)), 0, _q16(lossy.egress_alpha or Fraction(0)))
            static = (lossy.static, lossy.egress_static)
        if kind.credit_bytes:
            # The reserve holds all that the credits promise: nothing else is ever used.
            ingress = (kind.credit_bytes, 0, ingress[_ALPHA], ingress[_XON], ingress[_EGRESS_ALPHA])
        values[: _EGRESS_ALPHA + 1, column] = ingress
        values[[_STATIC, _EGRESS_STATIC], column] = [NONE if size is None else size for size in static]
        values[_QUANTUM, column] = quanta.get(item.name, 0)
        if switch.ecn.enabled and item.ecn:
            values[_KMIN : _PMAX + 1, column] = (marking.kmin, marking.kmax, round(marking.pmax * _Q32))
        else:
            values[_KMIN : _PMAX + 1, column] = (NEVER_MARK_BYTES, NEVER_MARK_BYTES, 0)
    return values


def _quanta(switch: Switch, largest_bytes: int) -> dict[str, int]:
    """DWRR quanta by class, in exactly the ratio of the weights; the least is at least the largest frame."""
    if not switch.weights:
        return {}
    common = math.gcd(*switch.weights.values())
    unit = -(-largest_bytes * common // min(switch.weights.values()))
    return {name: weight // common * unit for name, weight in switch.weights.items()}


def _q16(alpha: Fraction) -> int:
    """Alpha in units of 1/65536, never 0: a threshold of nothing would be another rule."""
    return max(1, round(alpha * _Q16))


def _pools(
    scenario: Scenario,
    fabric: Fabric,
    wiring: Wiring,
    switches: Sequence[Switch],
    members: Sequence[_PortKind],
    kind_of_port: NDArray[np.int64],
    per_port: NDArray[np.int64],
    lossless: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], list[Problem]]:
    """(S,) shared pool of every switch, and what does not fit."""
    ports = wiring.ports
    first = int(ports.node_port_start[fabric.host_count])
    owner = ports.port_node[first:] - fabric.host_count
    if scenario.compat == "ns3":
        # That simulator sets aside one headroom and one reserve per port, whatever the number of classes.
        rules = [
            (kind.pfc.reserved, ns3_headroom_bytes(rate_bps=kind.rate_bps, delay_ps=kind.delay_ps))
            if kind.pfc.headroom == "auto"
            else (kind.pfc.reserved, kind.pfc.headroom)
            for kind in members
        ]
        terms = np.array([*rules, (0, 0)], dtype=np.int64).reshape(-1, 2)[kind_of_port[first:]]
        reserved_of_port, headroom_of_port = terms[:, 0], terms[:, 1]
    else:
        reserved_of_port = per_port[first:, _RESERVED].sum(axis=1)
        headroom_of_port = per_port[first:, _HEADROOM].sum(axis=1)
    reserved = np.zeros(fabric.switch_count, dtype=np.int64)
    headroom = np.zeros(fabric.switch_count, dtype=np.int64)
    np.add.at(reserved, owner, reserved_of_port)
    np.add.at(headroom, owner, headroom_of_port)
    buffer = np.array([switch.buffer for switch in switches], dtype=np.int64)
    pool = buffer - reserved - headroom
    port_count = np.diff(ports.node_port_start)[fabric.host_count :]

    found: list[tuple[str, str]] = []
    for index in np.flatnonzero(pool < 0).tolist():
        total = int(reserved[index] + headroom[index])
        found.append(
            (
                f"reserved {_count(reserved[index])} + headroom {_count(headroom[index])} = {_count(total)} on "
                f"{port_count[index]} ports do not fit buffer = {_shown(int(buffer[index]))}: "
                f"{_count(total - int(buffer[index]))} too much (fabemu explain FB201)",
                fabric.switch_names[index],
            )
        )
    # The dynamic threshold is a product of pool and alpha in 64 bits.
    alpha_max = np.zeros(fabric.switch_count, dtype=np.int64)
    np.maximum.at(alpha_max, owner, per_port[first:, [_ALPHA, _EGRESS_ALPHA]].max(axis=(1, 2), initial=1))
    for index in np.flatnonzero(pool > _INT64_MAX // np.maximum(alpha_max, 1)).tolist():
        found.append(
            (
                f"buffer = {_shown(int(buffer[index]))} with an alpha of {alpha_max[index] / _Q16:g} is more than 64 "
                f"bits hold; at most {_count(_INT64_MAX // int(alpha_max[index]))} are supported",
                fabric.switch_names[index],
            )
        )
    return pool, [Problem("", "switch.buffer", f"{owners}: {text}") for text, owners in _grouped(found)]


def _any_short(
    members: Sequence[_PortKind], table: NDArray[np.int64], frames: FrameLimits, lossless: NDArray[np.bool_]
) -> bool:
    """Whether the headroom of some kind of port is below its bound; `fabemu.lint` says which and why."""
    return bool(lossless.any()) and any(
        kind.has_pfc and int(table[index, _HEADROOM, lossless].min()) < _bound_bytes(kind, frames)
        for index, kind in enumerate(members)
    )


def _grouped(found: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join equal texts: (text, "leaf0 and 7 more")."""
    owners: dict[str, list[str]] = {}
    for text, owner in found:
        owners.setdefault(text, [])
        if owner not in owners[text][-1:]:
            owners[text].append(owner)
    return [
        (text, names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more")
        for text, names in owners.items()
    ]


def _count(size_bytes: int) -> str:
    """Bytes in full: sums must be comparable digit by digit."""
    return f"{size_bytes:,} B"


def _shown(size_bytes: int) -> str:
    """Bytes as a user writes them, with the full figure."""
    text = format_bytes(size_bytes)
    return text if text == f"{size_bytes}B" else f"{text} ({_count(size_bytes)})"
