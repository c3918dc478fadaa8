"""Who sends what over which ports, as the cost model sees a plan: queue pairs with their paths, bytes and caps."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.hashing import hash64, low32
from fabemu.ideal import data_frame_bytes
from fabemu.lint.path import hops
from fabemu.plan import CC_FIXED, NONE, OP_SEND, VERB_READ, Plan

QPS_MAX = 120_000
"""Queue pairs that are looked at, about; of more, some are drawn, and each stands for several."""

HOPS_MAX = 64
"""Links of a path that are looked at; frames that routes drawn by hand send round for ever are dropped by then."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Traffic:
    """The queue pairs of a plan, or a sample of them (n), and their messages (m).

    Attributes
    ----------
    weight
        Queue pairs that each of these stands for.
    qp
        (n,) queue pair.
    ports
        (n, hops) ports that its data leave by, from the sender on; one past the last port where the path is shorter.
    hop_count, control_hop_count
        (n,) links of the path of its data, and of that of its ACKs and CNPs.
    control_ports
        (n, hops) same as `ports` for its ACKs and CNPs.
    cap_bps
        (n,) most bit/s on the wire that the sender puts out, whatever the links carry.
    round_trip_ps
        (n,) least time from a transmission to its acknowledgement.
    message
        (m,) operation.
    message_row
        (m,) index of its queue pair in the arrays above.
    packets, wire_bits
        (m,) data packets and bits on the wire, gaps and preambles included.
    ack_every
        (n,) packets per ACK; 0 = none (READ).
    """

    weight: float
    qp: Ints
    ports: Ints
    hop_count: Ints
    control_ports: Ints
    control_hop_count: Ints
    cap_bps: Floats
    round_trip_ps: Floats
    message: Ints
    message_row: Ints
    packets: Ints
    wire_bits: Floats
    ack_every: Ints


def traffic_of(plan: Plan, *, qps_max: int = QPS_MAX) -> Traffic:
    """Work out paths (with the hashes that the run will use), sizes and caps."""
    qp = _chosen(plan, qps_max)
    row_of_qp = np.full(plan.qp_count, NONE, dtype=np.int64)
    row_of_qp[qp] = np.arange(len(qp))
    reads = plan.qp_verb[qp] == VERB_READ
    sender = np.where(reads, plan.qp_dst[qp], plan.qp_src[qp])
    receiver = np.where(reads, plan.qp_src[qp], plan.qp_dst[qp])
    ports, hop_count = _paths(plan, sender, receiver, plan.qp_hash[qp])
    control_ports, control_hop_count = _paths(plan, receiver, sender, plan.qp_ack_hash[qp])

    sends = np.flatnonzero(plan.op_kind == OP_SEND)
    sends = sends[row_of_qp[plan.op_qp[sends]] != NONE]
    row = row_of_qp[plan.op_qp[sends]]
    packets = np.maximum(1, -(-plan.op_bytes[sends] // plan.mtu_bytes))
    full = int(data_frame_bytes(plan, np.array([plan.mtu_bytes]))[0])
    last = data_frame_bytes(plan, plan.op_bytes[sends] - (packets - 1) * plan.mtu_bytes)
    wire_bytes = (packets - 1) * full + last + packets * plan.wire_overhead_bytes

    nic = plan.host_nic[sender]
    cap_bps = np.where(plan.nic_cc[nic] == CC_FIXED, plan.nic_fixed_rate_bps[nic], np.inf).astype(np.float64)
    one_way_ps = _latency_ps(plan, ports, full) + _latency_ps(plan, control_ports, plan.ack_bytes)
    window_bits = plan.nic_window_packets[nic] * (full + plan.wire_overhead_bytes) * 8.0
    selective_bits = plan.nic_selective_window[nic] * (full + plan.wire_overhead_bytes) * 8.0
    with np.errstate(divide="ignore", invalid="ignore"):
        cap_bps = np.where(window_bits > 0, np.minimum(cap_bps, window_bits / (one_way_ps * 1e-12)), cap_bps)
        selective = np.minimum(cap_bps, selective_bits / (one_way_ps * 1e-12))
    cap_bps = np.where(plan.nic_selective[nic] > 0, selective, cap_bps)
    return Traffic(
        weight=plan.qp_count / max(1, len(qp)),
        qp=qp,
        ports=ports,
        hop_count=hop_count,
        control_ports=control_ports,
        control_hop_count=control_hop_count,
        cap_bps=cap_bps,
        round_trip_ps=one_way_ps,
        message=sends,
        message_row=row,
        packets=packets.astype(np.int64),
        wire_bits=wire_bytes * 8.0,
        ack_every=np.where(reads, 0, plan.nic_ack_every[plan.host_nic[receiver]]).astype(np.int64),
    )


def _chosen(plan: Plan, most: int) -> Ints:
    """Queue pairs to look at: all, or as many as asked for, drawn by a hash; of messages that wait, by whole hosts."""
    everyone = np.arange(plan.qp_count, dtype=np.int64)
    if plan.qp_count <= most:
        return everyone
    limit = int(2**32 * (most / plan.qp_count))
    drawn_by = plan.qp_src.astype(np.int64) if plan.op_dependency_count.any() else everyone
    qp = np.flatnonzero(low32(hash64(drawn_by)) < limit)
    return qp if len(qp) else everyone[: max(1, most)]


def _paths(
    plan: Plan, src: NDArray[np.int32], dst: NDArray[np.int32], flow_hash: NDArray[np.uint32]
) -> tuple[Ints, Ints]:
    """(n, hops) ports, padded with the number of ports, and (n,) hops of the paths of queue pairs."""
    columns: list[Ints] = []
    for active, port in _some(hops(plan, src, dst, flow_hash)):
        column = np.full(len(src), plan.port_count, dtype=np.int64)
        column[active] = port
        columns.append(column)
    ports = np.stack(columns, axis=1) if columns else np.full((len(src), 1), plan.port_count, dtype=np.int64)
    return ports, np.count_nonzero(ports < plan.port_count, axis=1)


def _some(
    steps: Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]],
) -> Iterable[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    for _, step in zip(range(HOPS_MAX), steps, strict=False):
        yield step


def _latency_ps(plan: Plan, ports: Ints, frame_bytes: int) -> Floats:
    """(n,) time of one frame over paths that are idle."""
    latency = np.concatenate([np.zeros(plan.host_count), plan.switch_latency_ps])[plan.port_node]
    bits = (frame_bytes + plan.wire_overhead_bytes) * 8
    each = plan.port_delay_ps + latency + bits * 1e12 / plan.port_rate_bps
    total: Floats = np.append(each, 0.0)[ports].sum(axis=1)
    return total
