"""The compiled plan: everything the engine reads, as flat constant arrays.

Names, TOML and Python objects of the scenario end here. ``docs/MODEL.md`` says what each value means for a packet.
Shapes use: N nodes, H hosts (nodes 0..H-1), P ports, C classes, S switches (node H+i is switch i), Q queue pairs (QPs),
O operations, K NIC profiles, G route groups.
"""

from __future__ import annotations

import hashlib
from dataclasses import field, fields

import numpy as np

from fabemu.deferred import dataclass

NONE = -1
CLASSES_MAX = 8
FOREVER_PS = 2**62
"""A time that never comes."""

OP_SEND, OP_RECV, OP_CALC, OP_SCALE_UP = 0, 1, 2, 3
CC_NONE, CC_FIXED, CC_DCQCN_PAPER, CC_DCQCN_ADAPTER = 0, 1, 2, 3
NOTIFY_CNP, NOTIFY_ECHO = 0, 1
SCHEDULER_WINDOW, SCHEDULER_CLASSIC, SCHEDULER_CREATION = 0, 1, 2
"""Window engine; one global heap with the device-local order; one global heap with ties in creation order (ns3)."""

ROUTE_NONE, ROUTE_LOCAL, ROUTE_SET_BASE = -1, -2, -16
"""Route entries: >= 0 a port id; ROUTE_SET_BASE - s is ECMP set s."""


BALANCE_ECMP, BALANCE_SPRAY, BALANCE_WEIGHTED, BALANCE_FLOWLET = range(4)
BALANCE_LEAST_LOADED, BALANCE_LEAST_LOADED_FLOW = range(4, 6)
"""How a switch chooses inside an equal-cost set (MODEL 8)."""
VERB_WRITE, VERB_SEND, VERB_READ, VERB_SCALE_UP = 0, 1, 2, 3
"""Verbs of queue pairs, and in tables of messages the one of what stays inside a scale-up domain."""
WATCHDOG_DROP, WATCHDOG_FORWARD, WATCHDOG_ALERT = 0, 1, 2

ACTION_LINK_DOWN, ACTION_LINK_UP, ACTION_ROUTES, ACTION_LOSS, ACTION_PFC, ACTION_ECN, ACTION_MAP = range(7)
ACTION_HEADROOM, ACTION_STORM, ACTION_RECEIVER = range(7, 10)
"""What happens to the fabric at a given time; ``docs/MODEL.md`` says what each does with target, mask and value."""

EVENT_WATCHDOG_STORM, EVENT_WATCHDOG_RESTORED, EVENT_DEADLOCK, EVENT_QP_ERROR = 16, 17, 18, 19
"""Kinds of rows of the `events` table beside the actions themselves."""


def _array(dtype: str):
    return field(metadata={"dtype": dtype})


def _option(dtype: str, shape: str, fill: int = 0):
    """An array that may be left out: ``shape`` names its length, ``fill`` is the value of every element then."""
    return field(default=None, metadata={"dtype": dtype, "shape": shape, "fill": fill})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Constant input of one simulation run."""

    # Run.
    seed: int  # 0 .. 2**64-1
    until_ps: int  # the run ends here at the latest; FOREVER_PS for none
    sample_ps: int  # length of a `ports` interval; 0 turns the table off
    scheduler: int  # SCHEDULER_*
    truncate_ns: bool  # compatibility time rule (MODEL 1)
    ns3_buffer: bool  # compatibility buffer rule (MODEL 13)
    ns3_nic: bool  # compatibility NIC: cyclic QP list, ACKs first, never paused and not merged
    ns3_pfc: bool  # compatibility PFC: one frame per change, no expiry
    round_robin: bool  # switch queues: round robin over classes instead of strict priority

    # Frames (MODEL 3), bytes.
    mtu_bytes: int
    header_bytes: int
    reth_bytes: int
    ack_bytes: int
    cnp_bytes: int
    pfc_bytes: int
    wire_overhead_bytes: int
    frame_min_bytes: int
    pad_bytes: int  # 1 for no padding

    # Classes, highest strict priority first.
    class_lossless: np.ndarray = _array("u1")  # (C,) 0 or 1
    class_ecn: np.ndarray = _array("u1")  # (C,) 1 if its data is ECN-capable
    class_ack: np.ndarray = _array("u1")  # (C,) class of the ACKs and NAKs of data in this class
    cnp_class: int

    # Nodes.
    host_count: int
    node_port_start: np.ndarray = _array("i4")  # (N+1,)
    node_seed: np.ndarray = _array("u4")  # (N,) ECMP seed
    node_route_row: np.ndarray = _array("i4")  # (N,) row of `route`, NONE for hosts with fewer than two ports
    switch_buffer_bytes: np.ndarray = _array("i8")  # (S,) whole buffer
    switch_pool_bytes: np.ndarray = _array("i8")  # (S,) shared pool: buffer less reserved and headroom
    switch_latency_ps: np.ndarray = _array("i8")  # (S,) pipeline

    # Ports. A port's link is the direction it sends in.
    port_node: np.ndarray = _array("i4")  # (P,)
    port_peer: np.ndarray = _array("i4")  # (P,) port at the other end
    port_rate_bps: np.ndarray = _array("i8")  # (P,)
    port_delay_ps: np.ndarray = _array("i8")  # (P,) propagation
    port_pause_ps: np.ndarray = _array("i8")  # (P,) pause time in the PFC frames this port sends; 0 = until XON
    port_pfc_response_ps: np.ndarray = _array("i8")  # (P,) from receipt of a PFC frame to its effect

    # Per (port, class), index port * C + class. Bytes, unless said.
    pq_reserved_bytes: np.ndarray = _array("i8")  # (P*C,) ingress
    pq_headroom_bytes: np.ndarray = _array("i8")  # (P*C,) ingress
    pq_alpha_q16: np.ndarray = _array("i8")  # (P*C,) ingress dt_alpha x 65536
    pq_xon_offset_bytes: np.ndarray = _array("i8")  # (P*C,) ingress
    pq_egress_alpha_q16: np.ndarray = _array("i8")  # (P*C,) egress limit of lossy classes x 65536
    pq_kmin_bytes: np.ndarray = _array("i8")  # (P*C,) egress ECN
    pq_kmax_bytes: np.ndarray = _array("i8")  # (P*C,) below 2**31
    pq_pmax_q32: np.ndarray = _array("i8")  # (P*C,) pmax x 2**32

    # Routing (MODEL 8).
    host_group: np.ndarray = _array("i4")  # (H,) destination group, below 65536
    host_access_port: np.ndarray = _array("i4")  # (H,) switch-side port of a single-homed host, else NONE
    route: np.ndarray = _array("i4")  # (rows * G,) see ROUTE_*
    group_count: int
    nexthop_start: np.ndarray = _array("i4")  # (sets+1,)
    nexthop_port: np.ndarray = _array("i4")  # port ids

    # NIC profiles.
    host_nic: np.ndarray = _array("i4")  # (H,) profile
    nic_cc: np.ndarray = _array("u1")  # (K,) CC_*
    nic_notify: np.ndarray = _array("u1")  # (K,) NOTIFY_*, applied by the receiver
    nic_fixed_rate_bps: np.ndarray = _array("i8")  # (K,)
    nic_ack_every: np.ndarray = _array("i4")  # (K,) packets
    nic_window_packets: np.ndarray = _array("i8")  # (K,) 0 = none
    nic_rto_ps: np.ndarray = _array("i8")  # (K,)
    nic_retry_count: np.ndarray = _array("i4")  # (K,)
    nic_cnp_interval_ps: np.ndarray = _array("i8")  # (K,)
    nic_g: np.ndarray = _array("f8")  # (K,) DCQCN g, weight of the new value
    nic_alpha_init: np.ndarray = _array("f8")  # (K,)
    nic_alpha_timer_ps: np.ndarray = _array("i8")  # (K,) Ta
    nic_decrease_timer_ps: np.ndarray = _array("i8")  # (K,) Td, adapter only
    nic_decrease_offset_ps: np.ndarray = _array("i8")  # (K,) added to the first check only
    nic_increase_timer_ps: np.ndarray = _array("i8")  # (K,) Tr
    nic_byte_reset: np.ndarray = _array("i8")  # (K,) 0 = no byte counter
    nic_threshold: np.ndarray = _array("i4")  # (K,) F
    nic_rate_ai_bps: np.ndarray = _array("i8")  # (K,)
    nic_rate_hai_bps: np.ndarray = _array("i8")  # (K,)
    nic_rate_min_bps: np.ndarray = _array("i8")  # (K,)
    nic_min_dec_fac: np.ndarray = _array("f8")  # (K,) least R_new / R_old of one decrease, 0..1
    nic_clamp_target: np.ndarray = _array("u1")  # (K,)

    # Queue pairs.
    qp_src: np.ndarray = _array("i4")  # (Q,) host
    qp_dst: np.ndarray = _array("i4")  # (Q,) host
    qp_class: np.ndarray = _array("u1")  # (Q,)
    qp_hash: np.ndarray = _array("u4")  # (Q,) flow hash of the data direction
    qp_ack_hash: np.ndarray = _array("u4")  # (Q,) flow hash of ACKs, NAKs and CNPs
    qp_op_start: np.ndarray = _array("i4")  # (Q+1,)
    qp_op: np.ndarray = _array("i4")  # send operations of each QP, in order

    # Operations.
    op_kind: np.ndarray = _array("u1")  # (O,) OP_*
    op_host: np.ndarray = _array("i4")  # (O,) host that runs it
    op_qp: np.ndarray = _array("i4")  # (O,) QP of a send, else NONE
    op_bytes: np.ndarray = _array("i8")  # (O,) payload of a send
    op_duration_ps: np.ndarray = _array("i8")  # (O,) of a calc
    op_start_ps: np.ndarray = _array("i8")  # (O,) earliest posting
    op_peer: np.ndarray = _array("i4")  # (O,) recv <-> send that it matches, else NONE
    op_dependency_count: np.ndarray = _array("i4")  # (O,)
    op_successor_start: np.ndarray = _array("i4")  # (O+1,)
    op_successor: np.ndarray = _array("i4")  # operations of the same host
    host_op_start: np.ndarray = _array("i4")  # (H+1,)
    host_op: np.ndarray = _array("i4")  # operations without dependencies, by (start_ps, id) within a host

    # Vouched for by the compiler: every headroom is at least its bound, so a headroom_full drop is a broken invariant.
    lossless_guaranteed: bool = False

    # Incidents and options. Left out, each array is filled with the value that turns it off.
    # Buffers and scheduling.
    pq_static_bytes: np.ndarray = _option("i8", "pq", NONE)  # ingress threshold instead of alpha; NONE = dynamic
    pq_egress_static_bytes: np.ndarray = _option("i8", "pq", NONE)  # egress limit of lossy classes; NONE = dynamic
    switch_cell_bytes: np.ndarray = _option("i4", "switch", 1)  # buffers count whole cells of this size
    pq_quantum_bytes: np.ndarray = _option("i4", "pq")  # DWRR at switch egress; 0 = strict
    pq_pfc_send: np.ndarray = _option("u1", "pq", 1)  # XOFF may be raised for this PG
    pq_pfc_obey: np.ndarray = _option("u1", "pq", 1)  # a PFC frame can pause this egress queue
    pq_ecn: np.ndarray = _option("u1", "pq", 1)  # frames that leave this queue may be marked
    switch_class_map: np.ndarray = _option("u1", "switch*class")  # class as which a switch treats a frame

    # Load balancing (MODEL 8).
    switch_balance: np.ndarray = _option("u1", "switch")  # (S,) BALANCE_*
    switch_flowlet_gap_ps: np.ndarray = _option("i8", "switch")  # (S,) BALANCE_FLOWLET only
    switch_flowlet_entries: np.ndarray = _option("i4", "switch")  # (S,) same
    nexthop_weight: np.ndarray = _option("u4", "nexthop", 1)  # of `nexthop_port`; those of a set add up to below 2**32

    # Credits.
    port_credit: np.ndarray = _option("u1", "port")  # the link uses credits instead of PFC; equal at both ends
    pq_credit_bytes: np.ndarray = _option("i8", "pq")  # receive buffer of the virtual lane, a multiple of 64
    port_credit_refresh_ps: np.ndarray = _option("i8", "port")  # of the credit frames this port sends; 0 = none
    credit_bytes: int = 64  # credit frame

    # Control actions, by time.
    action_time_ps: np.ndarray = _option("i8", "none")  # (A,) ascending
    action_kind: np.ndarray = _option("u1", "none")  # (A,) ACTION_*
    action_target: np.ndarray = _option("i4", "none")  # (A,) port, or switch
    action_mask: np.ndarray = _option("i4", "none")  # (A,) bits of classes or frame kinds; MAP: the frame's own class
    action_value: np.ndarray = _option("i8", "none")  # (A,)
    route_epochs: int = 1  # `route` holds this many tables, one after the other; ECMP sets are shared
    loss_size_max: int = 0  # greatest frame size in `loss_q32`
    loss_q32: np.ndarray = _option("u8", "none")  # (rows * (loss_size_max + 1),) loss probability x 2**32 by frame size

    # Slow receivers: (P,), host ports only.
    port_rx_xoff_bytes: np.ndarray = _option("i8", "port", FOREVER_PS)
    port_rx_xon_bytes: np.ndarray = _option("i8", "port")
    port_rx_buffer_bytes: np.ndarray = _option("i8", "port", FOREVER_PS)

    # PFC watchdog.
    watchdog_poll_ps: np.ndarray = _option("i8", "switch")  # 0 = no watchdog
    watchdog_detect_ps: np.ndarray = _option("i8", "switch")
    watchdog_restore_ps: np.ndarray = _option("i8", "switch")
    watchdog_action: np.ndarray = _option("u1", "switch")  # WATCHDOG_*
    port_watchdog: np.ndarray = _option("u1", "port")  # the port's queues are watched

    # Deadlock checks.
    deadlock_interval_ps: int = 0  # 0 = only when the fabric stalls and at the end of a run
    deadlock_stop: bool = False

    # Transport.
    qp_verb: np.ndarray = _option("u1", "qp")  # VERB_*
    read_request_bytes: int = 78
    aeth_bytes: int = 4
    read_outstanding_max: int = 16
    nic_selective: np.ndarray = _option("u1", "nic")  # (K,) selective repeat instead of go-back-N
    nic_selective_window: np.ndarray = _option("i4", "nic", 1024)  # (K,) packets
    nic_reorder: np.ndarray = _option("i4", "nic", 1)  # (K,) packets by which one may come late before it is lost
    psn_start: int = 0  # packet number 0 is this on the wire

    # Scale-up domains: hosts that also reach each other without the fabric, by operations of kind OP_SCALE_UP.
    host_domain: np.ndarray = _option("i4", "host", NONE)  # (H,) first host of the domain; NONE = of none
    host_scale_up_rate_bps: np.ndarray = _option("i8", "host")  # (H,) in each direction
    host_scale_up_latency_ps: np.ndarray = _option("i8", "host")  # (H,) from the host to any other of its domain

    def __post_init__(self) -> None:
        """Convert every array to its contiguous dtype and make it read-only.

        Raises ValueError for more than 8 classes, more hosts than nodes, or links with credits at one end.
        """
        lengths = {
            "none": 0,
            "host": self.host_count,
            "port": self.port_count,
            "pq": self.port_count * self.class_count,
            "switch": self.node_count - self.host_count,
            "switch*class": (self.node_count - self.host_count) * self.class_count,
            "qp": self.qp_count,
            "nexthop": len(self.nexthop_port),
            "nic": len(self.nic_cc),
        }
        if self.switch_class_map is None:
            identity = np.tile(np.arange(self.class_count, dtype="u1"), self.node_count - self.host_count)
            object.__setattr__(self, "switch_class_map", identity)
        for item in fields(self):
            dtype = item.metadata.get("dtype")
            if dtype is not None and getattr(self, item.name) is None:
                filled = np.full(lengths[item.metadata["shape"]], item.metadata["fill"])
                object.__setattr__(self, item.name, filled)
            if dtype is not None:
                array = np.array(getattr(self, item.name), dtype=dtype, order="C")
                array.flags.writeable = False
                object.__setattr__(self, item.name, array)
        if self.class_count > CLASSES_MAX:
            raise ValueError(f"{self.class_count} classes; at most {CLASSES_MAX}")
        if not np.array_equal(self.port_credit, self.port_credit[self.port_peer]):
            raise ValueError("links with credits at one end and PFC at the other")
        if self.host_count > self.node_count:
            raise ValueError(f"{self.host_count} hosts, but only {self.node_count} nodes")

    @property
    def node_count(self) -> int:
        """Hosts and switches."""
        return len(self.node_port_start) - 1

    @property
    def port_count(self) -> int:
        """Ports of all nodes."""
        return len(self.port_node)

    @property
    def class_count(self) -> int:
        """Traffic classes, 1..8."""
        return len(self.class_lossless)

    @property
    def qp_count(self) -> int:
        """Queue pairs."""
        return len(self.qp_src)

    @property
    def op_count(self) -> int:
        """Operations."""
        return len(self.op_kind)

    @property
    def is_message(self) -> np.ndarray:
        """(O,) bool: operations that send."""
        return (self.op_kind == OP_SEND) | (self.op_kind == OP_SCALE_UP)

    @property
    def message_count(self) -> int:
        """Operations up to the last that sends: what is known of messages is kept for so many."""
        sends = np.flatnonzero(self.is_message)
        return int(sends[-1]) + 1 if len(sends) else 0

    def digest(self) -> str:
        """SHA-256 over every field, in hex: the identity of a run."""
        total = hashlib.sha256()
        for item in fields(self):
            value = getattr(self, item.name)
            total.update(item.name.encode())
            total.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return total.hexdigest()
