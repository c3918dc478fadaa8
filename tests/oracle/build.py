"""Plans by hand: cables, parameters and operations -> Plan, apart from fabemu's own compiler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabemu.plan import (
    BALANCE_ECMP,
    CC_NONE,
    FOREVER_PS,
    NONE,
    NOTIFY_CNP,
    OP_CALC,
    OP_RECV,
    OP_SCALE_UP,
    OP_SEND,
    ROUTE_LOCAL,
    ROUTE_NONE,
    ROUTE_SET_BASE,
    SCHEDULER_WINDOW,
    VERB_WRITE,
    Plan,
)
from tests.oracle.hashing import MASK32, hash64

US = 10**6
"""Picoseconds in a microsecond."""


@dataclass(frozen=True)
class Cable:
    """Two links between nodes a and b; the rate and delay of both directions.

    With `lanes` the cable is under credit flow control: bytes of each class's receive buffer, the last one repeats.
    """

    a: int
    b: int
    rate_bps: int = 100 * 10**9
    delay_ps: int = US
    lanes: tuple[int, ...] = ()
    credit_refresh_ps: int = 0
    weight: int = 1  # among next hops

    def lane(self, class_id: int) -> int:
        return self.lanes[min(class_id, len(self.lanes) - 1)] if self.lanes else 0


@dataclass(frozen=True)
class TrafficClass:
    """Class index = place in the list of classes."""

    lossless: bool = True
    ecn: bool = True
    ack: int = 0


@dataclass(frozen=True)
class PortBuffer:
    """Parameters of one (switch port, class), both as ingress group and as egress queue.

    A host's port has only `pfc_obey`.
    """

    reserved: int = 0
    headroom: int = 10**5
    alpha_q16: int = 65536
    xon_offset: int = 0
    egress_alpha_q16: int = 65536
    kmin: int = 2**30
    kmax: int = 2**30
    pmax_q32: int = 2**32
    static: int = NONE
    egress_static: int = NONE
    quantum: int = 0
    pfc_send: int = 1
    pfc_obey: int = 1
    ecn: int = 1


@dataclass(frozen=True)
class SwitchSpec:
    """One switch: shared pool, latency, and its ports' buffers by class; PFC of its ports."""

    pool: int = 10**7
    latency_ps: int = 0
    buffers: Sequence[PortBuffer] = (PortBuffer(),)  # by class; the last one repeats
    pause_ps: int = 0
    response_ps: int = 0
    cell_bytes: int = 1
    class_map: Sequence[int] = ()  # by class; () for none
    balance: int = BALANCE_ECMP
    flowlet_gap_ps: int = US
    flowlet_entries: int = 64


@dataclass(frozen=True)
class Action:
    """Something that is done to the fabric; fields as in Plan without `action_`."""

    time_ps: int
    kind: int
    target: int = 0
    mask: int = 0
    value: int = 0


@dataclass(frozen=True)
class NicSpec:
    """One NIC profile, fields as in Plan without `nic_`."""

    cc: int = CC_NONE
    notify: int = NOTIFY_CNP
    fixed_rate_bps: int = 10**9
    ack_every: int = 1
    window_packets: int = 0
    rto_ps: int = 10**9
    retry_count: int = 7
    cnp_interval_ps: int = 0
    g: float = 1 / 256
    alpha_init: float = 1.0
    alpha_timer_ps: int = 55 * US
    decrease_timer_ps: int = 4 * US
    decrease_offset_ps: int = 0
    increase_timer_ps: int = 55 * US
    byte_reset: int = 0
    threshold: int = 5
    rate_ai_bps: int = 40 * 10**6
    rate_hai_bps: int = 200 * 10**6
    rate_min_bps: int = 10**8
    min_dec_fac: float = 0.5
    clamp_target: int = 0
    selective: int = 0
    selective_window: int = 1024
    reorder: int = 1
    response_ps: int = 0  # of the ports of its hosts
    pause_ps: int = 0  # in the PFC frames that they send


@dataclass
class Operation:
    """A send (with qp), a recv (with peer), a calc (with duration) or a message inside a domain (with peer)."""

    kind: int
    host: int
    qp: int = NONE
    size: int = 0
    duration_ps: int = 0
    start_ps: int = 0
    peer: int = NONE
    after: list[int] = field(default_factory=list)


@dataclass
class QueuePair:
    """One QP; hashes are drawn from its number unless given."""

    src: int
    dst: int
    class_id: int = 0
    verb: int = VERB_WRITE
    flow_hash: int = NONE
    ack_hash: int = NONE


@dataclass
class Work:
    """Operations and the QPs they use; ids count from 0 in order of creation."""

    qps: list[QueuePair] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def qp(self, src: int, dst: int, class_id: int = 0, verb: int = VERB_WRITE, **hashes: int) -> int:
        self.qps.append(QueuePair(src, dst, class_id, verb, **hashes))
        return len(self.qps) - 1

    def add(self, operation: Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def send(self, qp: int, size: int, start_ps: int = 0, after: Sequence[int] = ()) -> int:
        host = self.qps[qp].src
        return self.add(Operation(OP_SEND, host, qp=qp, size=size, start_ps=start_ps, after=list(after)))

    def recv(self, send: int, start_ps: int = 0, after: Sequence[int] = ()) -> int:
        host = self.qps[self.operations[send].qp].dst
        return self._recv_at(host, send, start_ps, after)

    def scale_up(
        self,
        src: int,
        dst: int,
        size: int,
        start_ps: int = 0,
        after: Sequence[int] = (),
        recv_after: Sequence[int] = (),
    ) -> tuple[int, int]:
        """A message inside a domain and its recv."""
        send = self.add(Operation(OP_SCALE_UP, src, size=size, start_ps=start_ps, after=list(after)))
        return send, self._recv_at(dst, send, 0, recv_after)

    def _recv_at(self, host: int, send: int, start_ps: int, after: Sequence[int]) -> int:
        recv = self.add(Operation(OP_RECV, host, peer=send, start_ps=start_ps, after=list(after)))
        self.operations[send].peer = recv
        return recv

    def calc(self, host: int, duration_ps: int, start_ps: int = 0, after: Sequence[int] = ()) -> int:
        return self.add(Operation(OP_CALC, host, duration_ps=duration_ps, start_ps=start_ps, after=list(after)))


def offsets(lists: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Start array (n+1) and all entries in one list."""
    starts, flat = [0], []
    for items in lists:
        flat.extend(items)
        starts.append(len(flat))
    return starts, flat


class Wiring:
    """Ports, groups and routes of a list of cables; hosts are nodes 0..hosts-1 and never forward."""

    def __init__(self, hosts: int, switches: int, cables: Sequence[Cable]) -> None:
        self.hosts = hosts
        self.nodes = hosts + switches
        ends: list[list[tuple[int, int]]] = [[] for _ in range(self.nodes)]
        for cable_id, cable in enumerate(cables):
            ends[cable.a].append((cable_id, 0))
            ends[cable.b].append((cable_id, 1))
        self.port_start, flat = offsets(ends)  # type: ignore[arg-type]
        self.port_node = [node for node in range(self.nodes) for _ in ends[node]]
        where = {end: port for port, end in enumerate(flat)}
        self.port_peer = [where[cable_id, 1 - side] for cable_id, side in flat]  # type: ignore[misc]
        self.port_cable = [cables[cable_id] for cable_id, _ in flat]  # type: ignore[misc]
        self.cable_ports: list[tuple[int, int]] = [(where[index, 0], where[index, 1]) for index in range(len(cables))]
        self.find_groups()
        self.sets: list[list[int]] = []
        self.route = self.find_routes()

    def ports(self, node: int) -> range:
        return range(self.port_start[node], self.port_start[node + 1])

    def neighbour(self, port: int) -> int:
        return self.port_node[self.port_peer[port]]

    def find_groups(self) -> None:
        """Single-homed hosts of one switch share a group; every other host has its own."""
        self.access = [NONE] * self.hosts
        keys: dict[tuple[str, int], int] = {}
        self.group = []
        self.members: list[int] = []  # one host of each group
        for host in range(self.hosts):
            ports = self.ports(host)
            key = ("host", host)
            if len(ports) == 1 and self.neighbour(ports[0]) >= self.hosts:
                self.access[host] = self.port_peer[ports[0]]
                key = ("switch", self.neighbour(ports[0]))
            if key not in keys:
                keys[key] = len(keys)
                self.members.append(host)
            self.group.append(keys[key])

    def distances(self, target: int, dead: frozenset[int] = frozenset()) -> dict[int, int]:
        """Hops to a node from every node that reaches it through switches only, and not by ports that are dead."""
        distance = {target: 0}
        waiting = deque([target])
        while waiting:
            node = waiting.popleft()
            if node != target and node < self.hosts:
                continue
            for port in self.ports(node):
                other = self.neighbour(port)
                if port not in dead and other not in distance:
                    distance[other] = distance[node] + 1
                    waiting.append(other)
        return distance

    def find_routes(self, dead_cables: Sequence[int] = ()) -> list[int]:
        """One table; the rows of hosts ignore what is dead."""
        dead = frozenset(port for cable in dead_cables for port in self.cable_ports[cable])
        count = len(self.members)
        self.row = [NONE] * self.nodes
        route: list[int] = []
        routed = [node for node in range(self.nodes) if node >= self.hosts or len(self.ports(node)) >= 2]
        whole = [self.distances(host) for host in self.members]
        alive = [self.distances(host, dead) for host in self.members]
        for row, node in enumerate(routed):
            self.row[node] = row
            for group in range(count):
                if node < self.hosts:
                    route.append(self.entry(node, group, whole[group], frozenset()))
                else:
                    route.append(self.entry(node, group, alive[group], dead))
        return route

    def entry(self, node: int, group: int, distance: dict[int, int], dead: frozenset[int]) -> int:
        member = self.members[group]
        if node not in distance or node == member:
            return ROUTE_NONE
        if self.access[member] != NONE and self.port_node[self.access[member]] == node:
            return ROUTE_LOCAL
        nearer = distance[node] - 1
        ports = [
            port
            for port in self.ports(node)
            if port not in dead
            and distance.get(self.neighbour(port)) == nearer
            and (self.neighbour(port) >= self.hosts or self.neighbour(port) == member)
        ]
        if not ports:
            return ROUTE_NONE
        if len(ports) == 1:
            return ports[0]
        if ports not in self.sets:
            self.sets.append(ports)
        return ROUTE_SET_BASE - self.sets.index(ports)


def build_plan(
    hosts: int,
    switches: int,
    cables: Sequence[Cable],
    work: Work,
    *,
    classes: Sequence[TrafficClass] = (TrafficClass(),),
    cnp_class: int = 0,
    switch: SwitchSpec | Sequence[SwitchSpec] = SwitchSpec(),
    nic: NicSpec | Sequence[NicSpec] = NicSpec(),
    host_nic: Sequence[int] | None = None,
    port_buffers: dict[tuple[int, int], PortBuffer] | None = None,
    unrouted: Sequence[tuple[int, int]] = (),
    same_seed: bool = False,
    epochs: Sequence[Sequence[int]] = (),
    actions: Sequence[Action] = (),
    **run: Any,
) -> Plan:
    """A plan from its parts.

    `switch`: one for all or one each; `nic`: profiles, chosen by `host_nic` (default: profile 0 everywhere).
    `port_buffers`: (port, class) -> buffer that replaces the switch's. `unrouted`: (switch, group) entries to remove
    from the first table. `epochs`: of each further table of routes, the cables that are down.
    `run`: any scalar field of Plan (seed, until_ps, mtu_bytes, ...).
    """
    wiring = Wiring(hosts, switches, cables)
    specs = [switch] * switches if isinstance(switch, SwitchSpec) else list(switch)
    profiles = [nic] if isinstance(nic, NicSpec) else list(nic)
    host_nic = [0] * hosts if host_nic is None else list(host_nic)
    count = len(classes)
    ports = range(len(wiring.port_node))
    none = PortBuffer(headroom=0)
    credit = [bool(cable.lanes) for cable in wiring.port_cable]
    lanes = [wiring.port_cable[port].lane(class_id) for port in ports for class_id in range(count)]

    def buffer(port: int, class_id: int) -> PortBuffer:
        node = wiring.port_node[port]
        if node < hosts:
            given = (port_buffers or {}).get((port, class_id), none)
            given = replace(none, pfc_obey=given.pfc_obey)
        else:
            buffers = specs[node - hosts].buffers
            given = (port_buffers or {}).get((port, class_id), buffers[min(class_id, len(buffers) - 1)])
            if not classes[class_id].lossless:
                given = replace(given, headroom=0)
        if credit[port]:
            lane = wiring.port_cable[port].lane(class_id)
            given = replace(given, reserved=lane if node >= hosts else 0, headroom=0, pfc_send=0, pfc_obey=0)
        return given

    buffers = [buffer(port, class_id) for port in ports for class_id in range(count)]
    route = list(wiring.route)
    for index, group in unrouted:
        route[wiring.row[hosts + index] * len(wiring.members) + group] = ROUTE_NONE
    for dead in epochs:
        route += wiring.find_routes(dead)
    actions = sorted(actions, key=lambda action: action.time_ps)
    pools = [spec.pool for spec in specs]
    own = [
        sum(
            buffers[port * count + class_id].reserved + buffers[port * count + class_id].headroom
            for port in wiring.ports(hosts + index)
            for class_id in range(count)
        )
        for index in range(switches)
    ]

    def of_port(switch_field: str) -> list[int]:
        return [
            getattr(specs[node - hosts], switch_field)
            if node >= hosts
            else getattr(profiles[host_nic[node]], switch_field, 0)
            for node in wiring.port_node
        ]

    operations = work.operations
    sends: list[list[int]] = [[] for _ in work.qps]
    successors: list[list[int]] = [[] for _ in operations]
    roots: list[list[int]] = [[] for _ in range(hosts)]
    for op_id, operation in enumerate(operations):
        if operation.kind == OP_SEND:
            sends[operation.qp].append(op_id)
        for before in operation.after:
            assert operations[before].host == operation.host
            successors[before].append(op_id)
        if not operation.after:
            roots[operation.host].append(op_id)
    for root in roots:
        root.sort(key=lambda op_id: (operations[op_id].start_ps, op_id))
    qp_op_start, qp_op = offsets(sends)
    successor_start, successor = offsets(successors)
    host_op_start, host_op = offsets(roots)
    nexthop_start, nexthop_port = offsets(wiring.sets)

    def flow_hash(qp: int, direction: int) -> int:
        given = work.qps[qp].ack_hash if direction else work.qps[qp].flow_hash
        return hash64(0xF10, qp, direction) & MASK32 if given == NONE else given

    values: dict[str, Any] = {
        "seed": 1,
        "until_ps": FOREVER_PS,
        "sample_ps": 0,
        "scheduler": SCHEDULER_WINDOW,
        "truncate_ns": False,
        "ns3_buffer": False,
        "ns3_nic": False,
        "ns3_pfc": False,
        "round_robin": False,
        "mtu_bytes": 4096,
        "header_bytes": 62,
        "reth_bytes": 16,
        "ack_bytes": 66,
        "cnp_bytes": 78,
        "pfc_bytes": 64,
        "wire_overhead_bytes": 20,
        "frame_min_bytes": 64,
        "pad_bytes": 4,
        "class_lossless": [int(item.lossless) for item in classes],
        "class_ecn": [int(item.ecn) for item in classes],
        "class_ack": [item.ack for item in classes],
        "cnp_class": cnp_class,
        "host_count": hosts,
        "node_port_start": wiring.port_start,
        "node_seed": [hash64(0x5EED, 0 if same_seed else node) & MASK32 for node in range(wiring.nodes)],
        "node_route_row": wiring.row,
        "switch_buffer_bytes": [pool + more for pool, more in zip(pools, own, strict=True)],
        "switch_pool_bytes": pools,
        "switch_latency_ps": [spec.latency_ps for spec in specs],
        "port_node": wiring.port_node,
        "port_peer": wiring.port_peer,
        "port_rate_bps": [cable.rate_bps for cable in wiring.port_cable],
        "port_delay_ps": [cable.delay_ps for cable in wiring.port_cable],
        "port_pause_ps": of_port("pause_ps"),
        "port_pfc_response_ps": of_port("response_ps"),
        "pq_reserved_bytes": [item.reserved for item in buffers],
        "pq_headroom_bytes": [item.headroom for item in buffers],
        "pq_alpha_q16": [item.alpha_q16 for item in buffers],
        "pq_xon_offset_bytes": [item.xon_offset for item in buffers],
        "pq_egress_alpha_q16": [item.egress_alpha_q16 for item in buffers],
        "pq_kmin_bytes": [item.kmin for item in buffers],
        "pq_kmax_bytes": [item.kmax for item in buffers],
        "pq_pmax_q32": [item.pmax_q32 for item in buffers],
        "pq_static_bytes": [item.static for item in buffers],
        "pq_egress_static_bytes": [item.egress_static for item in buffers],
        "pq_quantum_bytes": [item.quantum for item in buffers],
        "pq_pfc_send": [item.pfc_send for item in buffers],
        "pq_pfc_obey": [item.pfc_obey for item in buffers],
        "pq_ecn": [item.ecn for item in buffers],
        "switch_cell_bytes": [spec.cell_bytes for spec in specs],
        "switch_class_map": [item for spec in specs for item in (spec.class_map or range(count))],
        "switch_balance": [spec.balance for spec in specs],
        "switch_flowlet_gap_ps": [spec.flowlet_gap_ps for spec in specs],
        "switch_flowlet_entries": [spec.flowlet_entries for spec in specs],
        "port_credit": credit,
        "pq_credit_bytes": lanes,
        "port_credit_refresh_ps": [cable.credit_refresh_ps for cable in wiring.port_cable],
        "route_epochs": 1 + len(epochs),
        "host_group": wiring.group,
        "host_access_port": wiring.access,
        "route": route,
        "group_count": len(wiring.members),
        "nexthop_start": nexthop_start,
        "nexthop_port": nexthop_port,
        "nexthop_weight": [wiring.port_cable[port].weight for port in nexthop_port],
        "host_nic": host_nic,
        "qp_src": [item.src for item in work.qps],
        "qp_dst": [item.dst for item in work.qps],
        "qp_class": [item.class_id for item in work.qps],
        "qp_hash": [flow_hash(qp, 0) for qp in range(len(work.qps))],
        "qp_ack_hash": [flow_hash(qp, 1) for qp in range(len(work.qps))],
        "qp_verb": [item.verb for item in work.qps],
        "qp_op_start": qp_op_start,
        "qp_op": qp_op,
        "op_kind": [item.kind for item in operations],
        "op_host": [item.host for item in operations],
        "op_qp": [item.qp for item in operations],
        "op_bytes": [item.size for item in operations],
        "op_duration_ps": [item.duration_ps for item in operations],
        "op_start_ps": [item.start_ps for item in operations],
        "op_peer": [item.peer for item in operations],
        "op_dependency_count": [len(item.after) for item in operations],
        "op_successor_start": successor_start,
        "op_successor": successor,
        "host_op_start": host_op_start,
        "host_op": host_op,
    }
    for name in NicSpec.__dataclass_fields__:
        if name not in ("response_ps", "pause_ps"):
            values[f"nic_{name}"] = [getattr(profile, name) for profile in profiles]
    for name in Action.__dataclass_fields__:
        values[f"action_{name}"] = [getattr(action, name) for action in actions]
    values.update(run)
    return Plan(**values)
