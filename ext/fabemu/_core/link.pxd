"""The link: serialisation, propagation, and the ring of packets in flight.

Owns      wire times, the ring at the receiving port, the digest of departures.
Invariant arrivals on a link are strictly increasing, since one transmission ends before the next begins.
Order     busy_until, then the ring's tail: a packet is visible to the receiver only when it is whole.
"""
from .types cimport (int32_t, int64_t, uint32_t, uint64_t, ps_t, likely, unlikely, FLAG_WIRE, CLASS_SHIFT,
                     FAULT_BUSY, FAULT_MEMORY, KIND_MASK, PSN_MASK)
from .packet cimport packet_t, packets_grow
from .plan cimport plan_t
from .state cimport engine_t, worker_t, port_t
from .trace cimport packet_row_t, record_append
from .wake cimport wake_at


cdef extern from *:
    """
    /* Seconds as a double, then 64.64 fixed point, then whole ns: MODEL 1, time rule truncate_ns. */
    static inline int64_t fabemu_truncated_ns(int64_t bits, int64_t rate_bps)
    {
        double seconds = (double)bits / (double)rate_bps;
        int64_t whole = (int64_t)seconds;
        uint64_t part = (uint64_t)((seconds - (double)whole) * 18446744073709551616.0);
        return whole * 1000000000 + (int64_t)(((unsigned __int128)part * 1000000000u) >> 64);
    }
    """
    int64_t truncated_ns "fabemu_truncated_ns"(int64_t bits, int64_t rate_bps) noexcept nogil


cdef inline ps_t time_of_bytes(const plan_t* plan, int64_t wire_bytes, int64_t rate_bps) noexcept nogil:
    """Serialisation time of bytes that include the wire overhead (MODEL 1)."""
    if plan.truncate_ns:
        return truncated_ns(8 * wire_bytes, rate_bps) * 1000
    return <ps_t>((<uint64_t>wire_bytes * <uint64_t>8000000000000 + <uint64_t>rate_bps - 1) // <uint64_t>rate_bps)


cdef inline ps_t link_wire_ps(const plan_t* plan, const port_t* port, int64_t frame_bytes) noexcept nogil:
    frame_bytes += plan.wire_overhead_bytes
    if likely(port.ps_per_byte != 0):
        return frame_bytes * <int64_t>port.ps_per_byte
    return time_of_bytes(plan, frame_bytes, port.rate_bps)


cdef inline packet_t* link_begin(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int64_t frame_bytes,
                                 ps_t now, ps_t wire_ps) noexcept nogil:
    """Start a transmission: take the port until `now + wire_ps` and give the place for the packet.

    The caller fills it, sets `time_ps` last from port.busy_until_ps + port.delay_ps, and calls link_commit.
    """
    cdef port_t* receiver = &e.ports[port.peer]
    if unlikely(now < port.busy_until_ps):
        e.fault.code = FAULT_BUSY
        e.fault.time_ps = now
        e.fault.node = port.node
        e.fault.port = port_id
        return NULL
    if unlikely(receiver.tail - receiver.head == receiver.mask + 1):
        if not packets_grow(&receiver.ring, &receiver.mask, receiver.head):
            e.fault.code = FAULT_MEMORY
            return NULL
    port.busy_until_ps = now + wire_ps
    port.busy_ps += wire_ps
    w.link_sent += 1
    return &receiver.ring[receiver.tail & receiver.mask]


cdef inline void link_commit(engine_t* e, worker_t* w, port_t* port, int32_t port_id, packet_t* packet,
                             ps_t now) noexcept nogil:
    """Publish the packet that link_begin gave the place for."""
    cdef ps_t arrival_ps = port.busy_until_ps + port.delay_ps
    cdef uint64_t mixed
    cdef packet_row_t* row
    packet.time_ps = arrival_ps
    mixed = (<uint64_t>now * <uint64_t>0x9e3779b97f4a7c15) ^ (
        ((<uint64_t>packet.qp << 32) | packet.psn) * <uint64_t>0xd6e8feb86659fd93)
    mixed += ((<uint64_t>packet.size << 16) | (<uint64_t>packet.kind << 8) | packet.flags)
    mixed = (port.digest ^ mixed) * <uint64_t>0x94d049bb133111eb
    port.digest = mixed ^ (mixed >> 29)
    if unlikely(e.record_packets):
        row = <packet_row_t*>record_append(e, &w.packets)
        if row != NULL:
            row.emit_ps = now
            row.node = port.node
            row.port = port_id
            row.psn = packet.psn & PSN_MASK
            row.qp = <int32_t>packet.qp
            row.frame_bytes = packet.size
            row.kind = packet.kind & KIND_MASK
            row.flags = packet.flags & FLAG_WIRE
            row.klass = packet.flags >> CLASS_SHIFT
    e.ports[port.peer].tail += 1
    if arrival_ps < e.port_next_ps[port.peer]:
        e.port_next_ps[port.peer] = arrival_ps
    wake_at(e, port.peer_node, arrival_ps)
