"""Ideal completion times: how long each message takes on an otherwise empty network.

Counted from posting to the arrival of the last byte at the receiver, by the rules of MODEL: store and forward at every
switch, pipeline latency, and the pacing of the sender. Control frames, windows and congestion control other than a
fixed rate do not enter, nor do the frames that return credits. The result is exact: a message that has the network for
itself takes this long to the picosecond, unless frames that return the credits of its acknowledgements come in between.

**Path.** Where a device has several equal-cost next hops, the one with the highest rate is taken, then the one with the
shortest cable, then the lowest port: a message that hashing puts on a slower path of an uneven fabric is slower than
ideal. In an even fabric all choices give the same time. Load balancing plays no part: a message whose packets spread
over several links that are slower than its host's may be faster than ideal.

A READ counts from its posting: its request goes first, by a path chosen in the same way, and the answer follows as a
message of the responder.

**Formula.** A message is a first packet (in a WRITE it carries the RETH), equal packets in the middle, and a last one.
Packet p starts on hop h when it has arrived there and packet p - 1 has left, so the completion time is the longest path
through the grid of packets and hops, in which every point costs its wire time. As all middle packets cost the same, a
longest path moves from one packet to the next on at most three hops: the first packet is followed up to some hop, the
last one from some hop on, and the rest queue behind each other at the slowest hop between. The maximum over these hops
is found in one pass from each side. A sender slower than its link costs its pacing gap instead of the wire time at the
first hop.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.plan import (
    CC_FIXED,
    FOREVER_PS,
    NONE,
    OP_SCALE_UP,
    OP_SEND,
    ROUTE_LOCAL,
    ROUTE_NONE,
    ROUTE_SET_BASE,
    VERB_READ,
    VERB_WRITE,
    Plan,
)
from fabemu.rate import bytes_ps

_CHUNK = 1 << 15  # messages at a time: bounds memory and keeps the columns in cache

Int64s = NDArray[np.int64]


def ideal_completion_ps(plan: Plan) -> Int64s:
    """(O,) picoseconds from posting to delivery of every message on an empty network; NONE for other operations.

    Times that do not fit are FOREVER_PS. Raises ValueError if a send has no route.
    """
    result = np.full(plan.op_count, NONE, dtype=np.int64)
    sends = np.flatnonzero(plan.op_kind == OP_SEND)
    preferred = _preferred_ports(plan)
    for first in range(0, len(sends), _CHUNK):
        chunk = sends[first : first + _CHUNK]
        qps = plan.op_qp[chunk]
        verb = plan.qp_verb[qps]
        src, dst = plan.qp_src[qps], plan.qp_dst[qps]
        sender, receiver = np.where(verb == VERB_READ, dst, src), np.where(verb == VERB_READ, src, dst)
        ports, lengths, constant_ps = _paths(plan, preferred, sender, receiver)
        result[chunk] = _completion_ps(plan, plan.op_bytes[chunk], verb, sender, ports, lengths) + constant_ps
        reads = np.flatnonzero(verb == VERB_READ)
        if len(reads):
            result[chunk[reads]] += _request_ps(plan, preferred, src[reads], dst[reads])
    inside = np.flatnonzero(plan.op_kind == OP_SCALE_UP)
    if len(inside):
        result[inside] = _inside_ps(plan, inside)
    np.minimum(result, FOREVER_PS, out=result)
    return result


def _inside_ps(plan: Plan, op: Int64s) -> Int64s:
    """(n,) of messages inside scale-up domains: MODEL 19."""
    sender, receiver = plan.op_host[op], plan.op_host[plan.op_peer[op]]
    rate_bps = np.minimum(plan.host_scale_up_rate_bps[sender], plan.host_scale_up_rate_bps[receiver])
    total: Int64s = bytes_ps(plan.op_bytes[op], rate_bps) + plan.host_scale_up_latency_ps[sender]
    return total


def wire_ps(frame_bytes: Int64s, rate_bps: Int64s, *, overhead_bytes: int, truncate_ns: bool) -> Int64s:
    """Time of frames on the wire (MODEL 1), element by element."""
    bits = (frame_bytes + overhead_bytes) * 8
    if truncate_ns:
        # Seconds as a double, 64.64 fixed point, whole ns. One factor is below 2**64, the other below 2**32.
        seconds = bits / rate_bps
        whole = np.floor(seconds)
        part = ((seconds - whole) * 2.0**64).astype(np.uint64)
        high, low = (part >> np.uint64(32)) * np.uint64(10**9), (part & np.uint64(2**32 - 1)) * np.uint64(10**9)
        part_ns = (high + (low >> np.uint64(32))) >> np.uint64(32)
        return (whole.astype(np.int64) * 10**9 + part_ns.astype(np.int64)) * 1000
    return -(-bits * 10**12 // rate_bps)


def data_frame_bytes(plan: Plan, payload_bytes: Int64s, extra_bytes: Int64s | int = 0) -> Int64s:
    """Frame of a data packet (MODEL 3) of each payload, with what its place and verb add to the header."""
    padded = -(-payload_bytes // plan.pad_bytes) * plan.pad_bytes
    return np.maximum(plan.frame_min_bytes, padded + plan.header_bytes + extra_bytes)


def _request_ps(plan: Plan, preferred: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]) -> Int64s:
    """(n,) from the posting of a READ to the arrival of its request at the responder."""
    ports, lengths, constant_ps = _paths(plan, preferred, src, dst)
    frame = np.full((1, 1), max(plan.frame_min_bytes, plan.read_request_bytes), dtype=np.int64)
    each = wire_ps(
        frame, plan.port_rate_bps[ports], overhead_bytes=plan.wire_overhead_bytes, truncate_ns=plan.truncate_ns
    )
    present = np.arange(ports.shape[1])[None, :] < lengths[:, None]
    total: Int64s = np.where(present, each, 0).sum(axis=1) + constant_ps
    return total


def ideal_paths(
    plan: Plan, src: NDArray[np.int32], dst: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Paths that ideal completion times are of.

    Parameters
    ----------
    plan
        With the routes.
    src, dst
        (n,) hosts.

    Returns
    -------
    ports
        (n, hops) ports that the path leaves devices by, padded with 0.
    lengths
        (n,) hops of each path.

    Raises
    ------
    ValueError
        A pair has no route.
    """
    ports, lengths, _ = _paths(plan, _preferred_ports(plan), src, dst)
    return ports, lengths


def _preferred_ports(plan: Plan) -> NDArray[np.int32]:
    """(sets,) the port of every equal-cost set that the ideal path takes."""
    set_count = len(plan.nexthop_start) - 1
    set_of_member = np.repeat(np.arange(set_count), np.diff(plan.nexthop_start))
    members = plan.nexthop_port
    order = np.lexsort((members, plan.port_delay_ps[members], -plan.port_rate_bps[members], set_of_member))
    return members[order[plan.nexthop_start[:-1]]] if set_count else members


def _paths(
    plan: Plan, preferred: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], Int64s]:
    """Ports of every path, (n, hops) padded with 0; (n,) hops; (n,) propagation and pipeline latency."""
    count = len(src)
    group = plan.host_group[dst]
    route = plan.route.reshape(-1, plan.group_count)
    latency_ps = np.concatenate([np.zeros(plan.host_count, dtype=np.int64), plan.switch_latency_ps])
    columns: list[NDArray[np.int32]] = []
    lengths = np.zeros(count, dtype=np.int64)
    constant_ps = np.zeros(count, dtype=np.int64)
    node = src.astype(np.int32)
    active = np.arange(count)
    while len(active):
        if len(columns) > plan.node_count:
            raise ValueError("the routes lead in a circle")
        here, towards = node[active], dst[active]
        row = plan.node_route_row[here]
        routed = row != NONE
        entry = np.full(len(active), ROUTE_NONE, dtype=np.int32)
        entry[routed] = route[row[routed], group[active[routed]]]
        is_set = entry <= ROUTE_SET_BASE
        port = np.where(is_set, 0, entry)
        if is_set.any():
            port[is_set] = preferred[ROUTE_SET_BASE - entry[is_set]]
        port = np.where(entry == ROUTE_LOCAL, plan.host_access_port[towards], port)
        # A host with one port has no row.
        port[~routed] = plan.node_port_start[here[~routed]]
        if (port < 0).any():
            raise ValueError("a send has no route")
        column = np.zeros(count, dtype=np.int32)
        column[active] = port
        columns.append(column)
        lengths[active] += 1
        constant_ps[active] += plan.port_delay_ps[port] + latency_ps[here]
        node[active] = plan.port_node[plan.port_peer[port]]
        active = active[node[active] != towards]
    ports = np.stack(columns, axis=1) if columns else np.zeros((count, 0), dtype=np.int32)
    return ports, lengths, constant_ps


def _completion_ps(
    plan: Plan,
    size_bytes: Int64s,
    verb: NDArray[np.uint8],
    src: NDArray[np.int32],
    ports: NDArray[np.int32],
    lengths: NDArray[np.int64],
) -> Int64s:
    """(n,) longest path through the grid of packets and hops, without the constant delays."""
    mtu = plan.mtu_bytes
    packets = np.maximum(1, -(-size_bytes // mtu))
    last_payload = size_bytes - (packets - 1) * mtu
    first_extra = np.select([verb == VERB_WRITE, verb == VERB_READ], [plan.reth_bytes, plan.aeth_bytes], 0)
    last_extra = np.where(verb == VERB_READ, plan.aeth_bytes, 0)
    first_frame = data_frame_bytes(plan, np.minimum(size_bytes, mtu), first_extra)
    middle_frame = data_frame_bytes(plan, np.full(len(size_bytes), mtu, dtype=np.int64))
    last_frame = np.where(packets == 1, first_frame, data_frame_bytes(plan, last_payload, last_extra))

    def wire(frame_bytes: Int64s, rate_bps: Int64s) -> Int64s:
        return wire_ps(frame_bytes, rate_bps, overhead_bytes=plan.wire_overhead_bytes, truncate_ns=plan.truncate_ns)

    hop_count = ports.shape[1]
    present = np.arange(hop_count)[None, :] < lengths[:, None]
    rate_bps = plan.port_rate_bps[ports]
    first, middle, last = (
        np.where(present, wire(frame[:, None], rate_bps), 0) for frame in (first_frame, middle_frame, last_frame)
    )
    nic = plan.host_nic[src]
    pace_bps = np.where(
        plan.nic_cc[nic] == CC_FIXED, np.minimum(plan.nic_fixed_rate_bps[nic], rate_bps[:, 0]), rate_bps[:, 0]
    )
    first_gap, middle_gap = wire(first_frame, pace_bps), wire(middle_frame, pace_bps)

    # From the right: the last packet alone from hop h on, and the best way on for a middle packet at hop h.
    last_from = np.cumsum(last[:, ::-1], axis=1)[:, ::-1]
    onward = np.empty_like(middle)
    for hop in reversed(range(hop_count)):
        descend = (middle_gap if hop == 0 else middle[:, hop]) + last_from[:, hop]
        if hop + 1 < hop_count:
            proceed = middle[:, hop] + onward[:, hop + 1]
            # Past the end of a shorter path there is nothing to proceed to.
            inside = lengths > hop + 1
            descend = np.where(inside, np.maximum(descend, proceed), descend)
        onward[:, hop] = descend

    # From the left: the first packet up to some hop, then one middle packet up to (not over) hop h.
    first_up_to = np.cumsum(first, axis=1)
    one = first_up_to[:, -1]  # padding adds nothing
    two = first_gap + last_from[:, 0]
    inward = first_gap
    rest = np.maximum(packets - 3, 0)
    many = inward + rest * middle_gap + onward[:, 0]
    # int64 may wrap in a message of years; the same figure in floating point tells.
    rough = rest.astype(np.float64) * np.maximum(middle_gap, middle.max(axis=1)).astype(np.float64)
    for hop in range(1, hop_count):
        inside = lengths > hop
        two = np.where(inside, np.maximum(two, first_up_to[:, hop] + last_from[:, hop]), two)
        inward = np.maximum(inward + middle[:, hop - 1], first_up_to[:, hop])
        many = np.where(inside, np.maximum(many, inward + rest * middle[:, hop] + onward[:, hop]), many)
    total = np.where(packets == 1, one, np.where(packets == 2, two, many))
    return np.where(rough > FOREVER_PS / 2, FOREVER_PS, total)
