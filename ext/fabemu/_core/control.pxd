"""Control frames of a host: ACKs, NAKs, CNPs and READ requests that wait for their port.

Owns      the control queues of a host's ports; the comparison of packet numbers on the wire.
Invariant a control queue is a FIFO, and its frames go before the data of their class.
Order     docs/MODEL.md 10 and 11.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, CLASS_SHIFT, FAULT_MEMORY, KIND_CNP,
                     KIND_READ, PSN_MASK)
from .memory cimport ring_grow
from .packet cimport packet_shape, packet_t, packet_words
from .state cimport engine_t, worker_t, port_t, queue_t, control_t, control_queue_t
from .link cimport burst_t, burst_begin, burst_close, burst_commit
from .stats cimport port_touch_classes, stats_sent
from .wake cimport port_kick


cdef inline uint32_t psn_wire(const engine_t* e, uint64_t number) noexcept nogil:
    """A packet number as frames carry it."""
    return <uint32_t>((number + e.plan.psn_start) & PSN_MASK)


cdef inline uint64_t psn_ahead(const engine_t* e, uint32_t psn, uint64_t base) noexcept nogil:
    """How far a number on the wire is ahead of packet `base`, modulo 2^24."""
    return (<uint64_t>psn - base - e.plan.psn_start) & PSN_MASK


cdef inline control_queue_t* outbox_control(engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Control queue of a class; the compatibility NIC has one for all."""
    if unlikely(e.plan.ns3_nic):
        klass = 0
    return &e.outboxes[<int64_t>port_id * e.plan.class_count + klass].control


cdef inline bint control_is_full(const control_queue_t* queue) noexcept nogil:
    return <uint32_t>(queue.tail - queue.head) == queue.mask + 1


cdef inline void control_put(port_t* port, control_queue_t* queue, int32_t klass, control_t entry) noexcept nogil:
    """Put a frame at the end of a queue that has room."""
    entry.flags |= <uint8_t>(klass << CLASS_SHIFT)
    queue.buffer[queue.tail & queue.mask] = entry
    queue.tail += 1
    port.waiting_mask |= <uint8_t>(1 << klass)


cdef inline void control_push(engine_t* e, worker_t* w, int32_t port_id, int32_t klass,
                              const control_t* entry) noexcept nogil:
    cdef control_queue_t* queue = outbox_control(e, port_id, klass)
    if unlikely(control_is_full(queue)):
        if not ring_grow(w.arena, <void**>&queue.buffer, &queue.mask, <uint32_t>queue.head, 4, sizeof(control_t)):
            e.fault.code = FAULT_MEMORY
            return
    control_put(&e.ports[port_id], queue, klass, entry[0])


cdef inline void nic_kick(engine_t* e, worker_t* w, int32_t port_id, ps_t now) noexcept nogil:
    cdef port_t* port = &e.ports[port_id]
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void host_burst_close(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id) noexcept nogil:
    """Publish what a host port has sent in a burst, and count it."""
    cdef uint32_t count = burst.tail - burst.first
    if count == 0:
        return
    w.sent += count
    w.sent_bytes += burst.bytes
    # Which classes they were of is not known any more.
    port_touch_classes(e, w, port_id, (<uint32_t>1 << e.plan.class_count) - 1)
    burst_close(e, w, burst)


cdef inline void host_commit(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id, packet_t* packet,
                             queue_t* queue, uint64_t name, uint32_t shape, ps_t now) noexcept nogil:
    """burst_commit of a packet of a host, whose kicks look at the port itself; `queue` of its class."""
    packet.time_ps = burst.busy_until_ps + burst.delay_ps
    burst.port.busy_until_ps = burst.busy_until_ps
    stats_sent(queue, shape & 0xffff)
    burst_commit(e, w, burst, port_id, packet, name, shape, now)


cdef inline int64_t control_bytes(const engine_t* e, const control_queue_t* queue) noexcept nogil:
    """Frame that nic_send_control would send now."""
    cdef uint8_t kind = queue.buffer[queue.head & queue.mask].kind
    if kind == KIND_CNP:
        return e.plan.cnp_bytes
    if unlikely(kind == KIND_READ):
        return e.plan.read_request_bytes
    return e.plan.ack_bytes


cdef inline void nic_send_control(engine_t* e, worker_t* w, burst_t* burst, int32_t port_id,
                                  control_queue_t* queue, ps_t now) noexcept nogil:
    cdef const control_t* entry = &queue.buffer[queue.head & queue.mask]
    cdef int64_t klass = entry.flags >> CLASS_SHIFT
    cdef int64_t size = control_bytes(e, queue)
    cdef packet_t* packet = burst_begin(e, w, burst, port_id, size, now)
    if unlikely(packet == NULL):
        return
    w.control_sent += 1
    if unlikely(entry.kind == KIND_READ):
        w.requests += 1
    packet.qp = <uint32_t>entry.qp
    packet.psn = entry.psn
    packet.hash = entry.hash
    packet.dst = entry.dst
    packet.size = <unsigned short>size
    packet.kind = entry.kind
    packet.flags = entry.flags
    packet.ingress = 0
    packet.group = entry.group
    queue.head += 1
    host_commit(e, w, burst, port_id, packet, &e.queues[<int64_t>port_id * e.plan.class_count + klass],
                packet_words(<uint32_t>entry.qp, entry.psn), packet_shape(<uint32_t>size, entry.kind, entry.flags),
                now)
