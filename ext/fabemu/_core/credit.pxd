"""Credit flow control of a link, per virtual lane (class): nothing is sent that the receiver has no room for.

Owns      lanes, credits, the credit bit of pfc_pending, refresh_ps of ports with credits.
Invariant 0 <= sent - freed <= capacity of a lane; what a sender knows to be freed never exceeds what is.
Order     the totals in a credit frame are those of the instant at which it starts; they are taken up at its arrival,
          before arrivals of other frames of that instant.
Source    InfiniBand Architecture, volume 1, section 7.9 (absolute credits, blocks of 64 bytes); docs/MODEL.md 7.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, CREDIT_REPEATS, DROP_CORRUPT,
                     FAULT_CREDIT, FAULT_MEMORY, FOREVER, KIND_MASK, KIND_CREDIT, KIND_PFC, NONE, PENDING_CREDIT,
                     PSN_MASK)
from .memory cimport ring_grow
from .packet cimport packet_class, packet_shape, packet_t, packet_words
from .state cimport credit_port_t, engine_t, lane_t, port_t, totals_t, worker_t
from .link cimport link_begin, link_commit, link_peer, link_wire_ps
from .pfc cimport pfc_send, pfc_set_refresh
from .stats cimport drop_record
from .wake cimport port_kick


cdef inline int64_t credit_blocks(int64_t frame_bytes) noexcept nogil:
    return (frame_bytes + 63) // 64


cdef inline bint credit_limits(const engine_t* e, int32_t port_id) noexcept nogil:
    """Whether the port's link has credits."""
    return e.lanes != NULL and e.plan.port_credit[port_id]


cdef inline bint credit_suffices(const engine_t* e, const port_t* port, int32_t port_id, int32_t klass,
                                 int64_t frame_bytes) noexcept nogil:
    """Whether the peer has room for a frame, as far as this end of a link with credits knows."""
    cdef const lane_t* lane = &e.lanes[<int64_t>port_id * e.plan.class_count + klass]
    return (lane.sent - lane.known + credit_blocks(frame_bytes)
            <= e.lanes[<int64_t>link_peer(e, port) * e.plan.class_count + klass].capacity)


cdef inline void credit_spend(engine_t* e, int32_t port_id, int32_t klass, int64_t frame_bytes) noexcept nogil:
    """A frame starts on a link with credits."""
    e.lanes[<int64_t>port_id * e.plan.class_count + klass].sent += credit_blocks(frame_bytes)


cdef inline void credit_free(engine_t* e, worker_t* w, int32_t port_id, int32_t klass, int64_t frame_bytes,
                             ps_t now) noexcept nogil:
    """A frame that came in by this port has left its buffer, in whatever way; nothing on a link without credits."""
    cdef port_t* port
    if not credit_limits(e, port_id):
        return
    port = &e.ports[port_id]
    e.lanes[<int64_t>port_id * e.plan.class_count + klass].freed += credit_blocks(frame_bytes)
    if unlikely(e.down != NULL and e.down[port_id]):
        return
    e.credits[port_id].repeats = 0
    port.pfc_pending |= PENDING_CREDIT
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void credit_send(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t now) noexcept nogil:
    """Put one credit frame on the wire; the port is free."""
    cdef const lane_t* lanes = &e.lanes[<int64_t>port_id * e.plan.class_count]
    cdef ps_t interval_ps = e.plan.port_credit_refresh_ps[port_id]
    cdef totals_t* totals = credit_ring_put(e, w, &e.credits[port.peer])
    cdef int64_t total = 0
    cdef int32_t klass
    cdef packet_t* packet
    port.pfc_pending &= <uint8_t>~PENDING_CREDIT
    packet = link_begin(e, w, port, port_id, e.plan.credit_bytes, now,
                        link_wire_ps(&e.plan, port, e.plan.credit_bytes))
    if packet == NULL or totals == NULL:
        return
    for klass in range(e.plan.class_count):
        totals.freed[klass] = lanes[klass].freed
        total += lanes[klass].freed
    packet.qp = <uint32_t>0xffffffff
    packet.psn = <uint32_t>(total & PSN_MASK)
    packet.hash = 0
    packet.dst = 0
    packet.size = <unsigned short>e.plan.credit_bytes
    packet.kind = KIND_CREDIT
    packet.flags = 0
    packet.ingress = 0
    packet.group = 0
    link_commit(e, w, port, port_id, packet, packet_words(packet.qp, packet.psn),
                packet_shape(packet.size, KIND_CREDIT, 0), now)
    w.credit_frames += 1
    port.refresh_ps = FOREVER
    if interval_ps > 0 and e.credits[port_id].repeats < CREDIT_REPEATS:
        port.refresh_ps = now + interval_ps
        pfc_set_refresh(e, w, port, port_id)


cdef inline void pending_send(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t now) noexcept nogil:
    """Send the frame of flow control that the port owes its peer; the port is free."""
    if port.pfc_pending & PENDING_CREDIT:
        credit_send(e, w, port, port_id, now)
        return
    port.pfc_pending = 0
    pfc_send(e, w, port, port_id, port.xoff_mask, e.plan.lossless_mask, now)


cdef inline totals_t* credit_ring_put(engine_t* e, worker_t* w, credit_port_t* ring) noexcept nogil:
    """Room for the totals of one more credit frame in flight."""
    if unlikely(ring.tail - ring.head == ring.mask + 1):
        if not ring_grow(w.arena, <void**>&ring.ring, &ring.mask, ring.head, 4, sizeof(totals_t)):
            e.fault.code = FAULT_MEMORY
            return NULL
    ring.tail += 1
    return &ring.ring[(ring.tail - 1) & ring.mask]


cdef inline const totals_t* credit_ring_take(engine_t* e, int32_t port_id) noexcept nogil:
    """Totals of the credit frame that arrives, or vanishes, next at the port."""
    cdef credit_port_t* ring = &e.credits[port_id]
    ring.head += 1
    return &ring.ring[(ring.head - 1) & ring.mask]


cdef inline void credit_learn(engine_t* e, worker_t* w, port_t* port, int32_t port_id, const totals_t* totals,
                              ps_t now) noexcept nogil:
    """A credit frame has arrived: what this port may send."""
    cdef lane_t* lanes = &e.lanes[<int64_t>port_id * e.plan.class_count]
    cdef int32_t klass
    for klass in range(e.plan.class_count):
        if unlikely(totals.freed[klass] < lanes[klass].known or totals.freed[klass] > lanes[klass].sent):
            e.fault.code = FAULT_CREDIT
            e.fault.time_ps = now
            e.fault.node = port.node
            e.fault.port = port_id
            return
        lanes[klass].known = totals.freed[klass]
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void credit_lose(engine_t* e, worker_t* w, const packet_t* packet, int32_t node, int32_t port_id,
                             ps_t now) noexcept nogil:
    """A corrupt frame has arrived: dropped before anything else is done with it."""
    cdef int32_t klass = <int32_t>packet_class(packet)
    drop_record(e, w, packet, node, port_id, klass, NONE, DROP_CORRUPT, now)
    if packet.kind & KIND_MASK == KIND_CREDIT:
        credit_ring_take(e, port_id)
    elif packet.kind & KIND_MASK != KIND_PFC:
        credit_free(e, w, port_id, klass, packet.size, now)


cdef inline bint credit_refresh(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t now) noexcept nogil:
    """The refresh timer has run out: tell the peer again, in case the last frame was lost. True if it does."""
    if port.pfc_pending & PENDING_CREDIT:
        return False
    e.credits[port_id].repeats += 1
    port.pfc_pending |= PENDING_CREDIT
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)
    return True


cdef inline void credit_link_down(engine_t* e, port_t* port, int32_t port_id) noexcept nogil:
    """This end of a link is down: nothing is to be told, and what was in flight towards it is gone."""
    port.pfc_pending &= <uint8_t>~PENDING_CREDIT
    port.refresh_ps = FOREVER
    e.credits[port_id].head = e.credits[port_id].tail


cdef inline void credit_link_up(engine_t* e, port_t* port, int32_t port_id) noexcept nogil:
    """The two ends agree again on what this one has freed."""
    cdef int32_t klass
    e.credits[port_id].repeats = 0
    port.pfc_pending &= <uint8_t>~PENDING_CREDIT
    port.refresh_ps = FOREVER
    for klass in range(e.plan.class_count):
        e.lanes[<int64_t>link_peer(e, port) * e.plan.class_count + klass].known = (
            e.lanes[<int64_t>port_id * e.plan.class_count + klass].freed)
