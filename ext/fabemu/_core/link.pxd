"""The link: serialisation, propagation, and the ring of packets in flight.

Owns      wire times, the ring at the receiving port, the digest of departures; bursts: several transmissions of one
          port that share the reading and writing of its state.
Invariant arrivals on a link are strictly increasing, since one transmission ends before the next begins.
Order     busy_until, then the ring's tail: a packet is visible to the receiver only when it is whole.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, likely, unlikely, CLASS_SHIFT,
                     FAULT_BUSY, FAULT_MEMORY, FLAG_LAST, FLAG_WIRE, KIND_CORRUPT, KIND_MASK, PSN_MASK,
                     WATCH_ENDS, WATCH_LOSS, WATCH_RECORD)
from .packet cimport packet_shape, packet_t, packet_words, packets_grow
from .plan cimport plan_t
from .rng cimport loss_draw
from .state cimport engine_t, worker_t, port_t
from .trace cimport packet_row_t, record_append
from .mail cimport mail_grow, mail_note
from .wake cimport hop_noted, wake_at


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


cdef inline int32_t link_peer(const engine_t* e, const port_t* port) noexcept nogil:
    """The port at the other end of the cable, which port.peer is not where another thread steps that device."""
    return port.peer if port.peer < e.plan.port_count else e.ports[port.peer].peer


cdef inline bint link_enters_switch(const engine_t* e, const port_t* port) noexcept nogil:
    return e.plan.port_node[link_peer(e, port)] >= e.plan.host_count


cdef inline bint link_grow(engine_t* e, worker_t* w, int32_t receiver_id, uint32_t head) noexcept nogil:
    """Make room for more packets in flight towards a port; False, and a fault, if there is no memory."""
    cdef port_t* receiver = &e.ports[receiver_id]
    cdef bint grown
    if unlikely(receiver_id >= e.plan.port_count):
        grown = mail_grow(e, w, receiver_id)
    else:
        grown = packets_grow(w.arena, &receiver.ring, &receiver.mask, head)
    if not grown:
        e.fault.code = FAULT_MEMORY
    return grown


cdef inline const packet_t* link_first(const worker_t* w, const port_t* port) noexcept nogil:
    """The packet that arrives next at a port; one that never does if none is in flight."""
    cdef size_t never = <size_t>&w.never
    cdef size_t first = <size_t>&port.ring[port.head & port.mask]
    # Whether there is one cannot be guessed, so nothing branches on it.
    return <const packet_t*>(never ^ ((first ^ never) & -<size_t>(port.head != port.tail)))


cdef inline void link_announce(engine_t* e, worker_t* w, const port_t* port, bint alone,
                               ps_t arrival_ps) noexcept nogil:
    """Packets are in flight, the first of them arrives at `arrival_ps`: see that the receiver is awake then.

    `alone`: no others were in flight before. If there were, it is awake for them; another worker wants to know of both.
    """
    if not alone and likely(port.peer_node >= 0):
        return
    if arrival_ps >= e.port_next_ps[port.peer]:
        # It is awake before, and its visit wakes it again for what is left.
        return
    e.port_next_ps[port.peer] = arrival_ps
    if unlikely(port.peer_node < 0):
        mail_note(w, port.peer)
    else:
        wake_at(e, w, port.peer_node, arrival_ps)


cdef inline uint64_t link_digest(uint64_t digest, uint64_t name, uint32_t shape, ps_t now) noexcept nogil:
    """The digest of a port after one more departure: packet_words of qp and psn, packet_shape, start."""
    digest ^= (<uint64_t>now * <uint64_t>0x9e3779b97f4a7c15) ^ (name * <uint64_t>0xd6e8feb86659fd93 + shape)
    digest *= <uint64_t>0x94d049bb133111eb
    return digest ^ (digest >> 29)


cdef inline void link_record(engine_t* e, worker_t* w, const port_t* port, int32_t port_id, const packet_t* packet,
                             ps_t now) noexcept nogil:
    """Write the row of a transmission start."""
    cdef packet_row_t* row = <packet_row_t*>record_append(e, &w.packets)
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


cdef inline void link_look(engine_t* e, worker_t* w, const port_t* port, int32_t port_id, packet_t* packet,
                           ps_t now) noexcept nogil:
    """A transmission start in a run that records them, or that has links that lose frames."""
    cdef int32_t loss_row
    if e.link_watch & WATCH_RECORD and (not e.link_watch & WATCH_ENDS or port.node < e.plan.host_count
                                        or packet.flags & FLAG_LAST):
        link_record(e, w, port, port_id, packet, now)
    if e.link_watch & WATCH_LOSS:
        loss_row = e.loss_row[8 * port_id + (packet.kind & KIND_MASK)]
        if loss_row >= 0 and (loss_draw(e.plan.seed, <uint64_t>port_id, <uint64_t>now)
                              < e.plan.loss_q32[loss_row * e.plan.loss_row_entries + packet.size]):
            packet.kind |= KIND_CORRUPT


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
        if not link_grow(e, w, port.peer, receiver.head):
            return NULL
    port.busy_until_ps = now + wire_ps
    port.busy_ps += wire_ps
    w.link_sent += 1
    return &receiver.ring[receiver.tail & receiver.mask]


cdef inline void link_commit(engine_t* e, worker_t* w, port_t* port, int32_t port_id, packet_t* packet,
                             uint64_t name, uint32_t shape, ps_t now) noexcept nogil:
    """Publish the packet that link_begin gave the place for; `name` and `shape` as in link_digest."""
    cdef port_t* receiver = &e.ports[port.peer]
    cdef ps_t arrival_ps = port.busy_until_ps + port.delay_ps
    packet.time_ps = arrival_ps
    port.digest = link_digest(port.digest, name, shape, now)
    if unlikely(e.link_watch):
        link_look(e, w, port, port_id, packet, now)
    receiver.tail += 1
    link_announce(e, w, port, receiver.tail - receiver.head == 1, arrival_ps)


cdef struct burst_t:
    port_t* port
    port_t* receiver
    packet_t* ring
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint32_t first                # tail when it was opened
    uint32_t ps_per_byte
    int32_t overhead_bytes
    int64_t bytes
    ps_t delay_ps
    ps_t busy_until_ps
    ps_t busy_ps
    ps_t start_ps                 # of the last transmission
    uint64_t digest


cdef inline void burst_open(engine_t* e, burst_t* burst, port_t* port) noexcept nogil:
    """Take a port's sending state; nothing else may send by it until burst_close."""
    burst.port = port
    burst.receiver = &e.ports[port.peer]
    burst.ring = burst.receiver.ring
    burst.mask = burst.receiver.mask
    burst.head = burst.receiver.head
    burst.tail = burst.receiver.tail
    burst.first = burst.tail
    burst.ps_per_byte = port.ps_per_byte
    burst.overhead_bytes = e.plan.wire_overhead_bytes
    burst.bytes = 0
    burst.delay_ps = port.delay_ps
    burst.busy_until_ps = port.busy_until_ps
    burst.busy_ps = 0
    burst.start_ps = 0
    burst.digest = port.digest


cdef inline packet_t* burst_begin(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id, int64_t frame_bytes,
                                  ps_t now) noexcept nogil:
    """Start a transmission, as link_begin does: give the place for the packet, with its time set after it is filled.

    burst_commit follows.
    """
    cdef ps_t wire_ps
    if likely(burst.ps_per_byte != 0):
        wire_ps = (frame_bytes + burst.overhead_bytes) * <int64_t>burst.ps_per_byte
    else:
        wire_ps = link_wire_ps(&e.plan, burst.port, frame_bytes)
    if unlikely(now < burst.busy_until_ps):
        e.fault.code = FAULT_BUSY
        e.fault.time_ps = now
        e.fault.node = burst.port.node
        e.fault.port = port_id
        return NULL
    if unlikely(burst.tail - burst.head == burst.mask + 1):
        if not link_grow(e, w, burst.port.peer, burst.head):
            return NULL
        burst.ring = burst.receiver.ring
        burst.mask = burst.receiver.mask
    burst.busy_until_ps = now + wire_ps
    burst.busy_ps += wire_ps
    return &burst.ring[burst.tail & burst.mask]


cdef inline void burst_commit(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id, packet_t* place,
                              uint64_t name, uint32_t shape, ps_t now) noexcept nogil:
    """Count the packet at the place that burst_begin gave; `name` and `shape` as in link_digest."""
    burst.digest = link_digest(burst.digest, name, shape, now)
    if unlikely(e.link_watch):
        link_look(e, w, burst.port, port_id, place, now)
    burst.tail += 1
    burst.bytes += shape & 0xffff
    burst.start_ps = now


cdef inline void burst_send(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id, const packet_t* packet,
                            uint32_t shape, uint32_t marked, ps_t now) noexcept nogil:
    """Put a copy of the packet on the wire, with more flags; `shape` is its packet_shape."""
    cdef packet_t* place = burst_begin(e, w, burst, port_id, shape & 0xffff, now)
    if unlikely(place == NULL):
        return
    memcpy(place, packet, sizeof(packet_t))
    place.time_ps = burst.busy_until_ps + burst.delay_ps
    if marked:
        place.flags |= <uint8_t>marked
    # Read from where the packet was: a wide load of what was just stored in parts would wait for it.
    burst_commit(e, w, burst, port_id, place, packet_words(packet.qp, packet.psn), shape | marked << 24, now)


cdef inline void burst_close(engine_t* e, worker_t* w, burst_t* burst) noexcept nogil:
    """Publish what was sent and give the port its state back."""
    cdef port_t* port = burst.port
    cdef uint32_t count = burst.tail - burst.first
    if count == 0:
        return
    port.busy_until_ps = burst.busy_until_ps
    port.busy_ps += burst.busy_ps
    port.digest = burst.digest
    port.hops += count
    port.sent_bytes += burst.bytes
    w.link_sent += count
    w.packet_hops += count
    hop_noted(w, burst.start_ps)
    burst.receiver.tail = burst.tail
    link_announce(e, w, port, burst.first == burst.head, burst.ring[burst.first & burst.mask].time_ps)
