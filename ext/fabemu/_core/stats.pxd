"""Counters of the open sampling interval, per (port, class).

Owns      area, maxima, paused time, the ports that have any.
Invariant the area is bytes x time between any two changes of the queue, summed in the order of the changes.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, KINDS_OF_LINKS, KIND_MASK,
                     PSN_MASK)
from .packet cimport packet_t, packet_class
from .rng cimport fold64
from .state cimport engine_t, worker_t, queue_t
from .trace cimport drop_row_t, record_append


cdef inline void stats_area(queue_t* queue, ps_t now) noexcept nogil:
    """Bring the integral up to `now`, before the queue changes."""
    # A double, since 10 MB over a second is past 63 bits.
    if queue.bytes > 0:
        queue.area_byte_ps += <double>queue.bytes * <double>(now - queue.area_since_ps)
    queue.area_since_ps = now


cdef inline void port_touch(engine_t* e, worker_t* w, int32_t port_id, int32_t klass) noexcept nogil:
    """A class of the port has something to say of the open interval."""
    if unlikely(not (e.port_touched[port_id] >> klass) & 1):
        port_touch_first(e, w, port_id, <uint32_t>1 << klass)


cdef inline void port_touch_classes(engine_t* e, worker_t* w, int32_t port_id, uint32_t classes) noexcept nogil:
    """The same for a set of classes."""
    if unlikely((classes & ~<uint32_t>e.port_touched[port_id]) != 0):
        port_touch_first(e, w, port_id, classes)


cdef inline void port_touch_first(engine_t* e, worker_t* w, int32_t port_id, uint32_t classes) noexcept nogil:
    """The same for the first time in the interval."""
    e.port_touched[port_id] |= <uint8_t>(classes & ((<uint32_t>1 << e.plan.class_count) - 1))
    port_note(w, port_id)


cdef inline void port_note(worker_t* w, int32_t port_id) noexcept nogil:
    """Put a port among those of which this worker knows that they have something to say."""
    w.touched[port_id >> 6] |= <uint64_t>1 << (port_id & 63)
    w.touched_tops[port_id >> 12] |= <uint64_t>1 << ((port_id >> 6) & 63)


cdef inline void stats_sent(queue_t* queue, int64_t frame_bytes) noexcept nogil:
    queue.tx_bytes += frame_bytes
    queue.tx_frames += 1


cdef inline void stats_headroom_held(queue_t* pg) noexcept nogil:
    """Take what the headroom of a priority group holds into its greatest use."""
    cdef uint32_t used = 0xFFFFFFFFU if pg.headroom_used_bytes > 0xFFFFFFFFU else <uint32_t>pg.headroom_used_bytes
    if used > pg.headroom_max_bytes:
        pg.headroom_max_bytes = used


cdef inline void stats_headroom(engine_t* e, worker_t* w, queue_t* pg, int32_t ingress_id,
                                int32_t klass) noexcept nogil:
    """A frame has gone into the headroom of a priority group."""
    stats_headroom_held(pg)
    port_touch(e, w, ingress_id, klass)


cdef inline void stats_paused(queue_t* queue, ps_t now) noexcept nogil:
    """Bring the paused time up to `now`, before the pause changes."""
    cdef ps_t end
    if queue.pause_since_ps >= 0:
        end = now if now < queue.pause_until_ps else queue.pause_until_ps
        if end > queue.pause_since_ps:
            queue.paused_ps += end - queue.pause_since_ps
        queue.pause_since_ps = now if queue.pause_until_ps > now else -1


cdef inline void drop_record(engine_t* e, worker_t* w, const packet_t* packet, int32_t node, int32_t ingress_port,
                             int32_t klass, int32_t egress_port, int32_t cause, ps_t now) noexcept nogil:
    """Count and record the loss of a packet: the row names its own class, the counter that as which it was treated."""
    cdef drop_row_t* row = <drop_row_t*>record_append(e, &w.drop_rows)
    cdef queue_t* queue = &e.queues[<int64_t>ingress_port * e.plan.class_count + klass]
    w.drops[cause] += 1
    if not (KINDS_OF_LINKS >> (packet.kind & KIND_MASK)) & 1:
        w.dropped += 1
        w.dropped_bytes += packet.size
        queue.drops += 1
        port_touch(e, w, ingress_port, klass)
    w.row_digest += fold64(fold64(fold64(fold64(0, <uint64_t>now), <uint64_t>ingress_port),
                                  (<uint64_t>packet.qp << 32) | packet.psn), <uint64_t>cause)
    if row == NULL:
        return
    row.emit_ps = now
    row.node = node
    row.ingress_port = ingress_port
    row.egress_port = egress_port
    row.qp = <int32_t>packet.qp
    row.psn = packet.psn & PSN_MASK
    row.frame_bytes = packet.size
    row.klass = <uint8_t>packet_class(packet)
    row.cause = <uint8_t>cause
    row.kind = packet.kind & KIND_MASK
