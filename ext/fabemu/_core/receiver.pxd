"""A host that receives slower than its link, or pauses it for no reason: frames that wait to be processed, host PFC.

Owns      receiver_t: the FIFO of a host port and its service, and why XOFF stands there (a full buffer, a storm).
Invariant bytes == frames in the FIFO, the one in service included; XOFF stands for a class while the host storms or
          wants it; at most one frame is in service.
Order     a service ends as a timer, before QP timeouts, and its frame is then dealt with like an arrival; docs/MODEL.md
          15.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, CROSSED_RECEIVER, CROSSED_STORM,
                     DROP_RECEIVER_FULL, EVENT_TIMER, FAULT_MEMORY, FOREVER, KIND_DATA, NONE, TIMER_SERVICE)
from .packet cimport packet_t, packet_class, packets_grow
from .state cimport engine_t, worker_t, pause_t, port_t, receiver_t
from .memory cimport zeroed
from .heaps cimport event_key, events_push
from .credit cimport credit_free
from .nic cimport host_arrival
from .pfc cimport pause_begin, pfc_lower, pfc_want_frame
from .stats cimport drop_record
from .wake cimport worker_of, events_count, wake_at


cdef inline int receivers_make(engine_t* e) except -1:
    """Every host port gets a receiver: unlimited, no storm."""
    cdef int64_t index
    e.receivers = <receiver_t*>zeroed(&e.arena, e.host_port_count, sizeof(receiver_t))
    for index in range(e.host_port_count):
        e.receivers[index].mask = <uint32_t>0xffffffff
        e.receivers[index].rate_bps = -1
        e.receivers[index].end_ps = FOREVER
    return 0


cdef inline bint receiver_is_busy(const receiver_t* receiver) noexcept nogil:
    """A service is going on, which will end."""
    return receiver.in_service


cdef inline void receiver_set_key(engine_t* e, worker_t* w, int32_t port_id) noexcept nogil:
    """Put the end of the service where it belongs; the host is being visited."""
    cdef const receiver_t* receiver = &e.receivers[port_id]
    if receiver.end_ps < w.limit_ps:
        events_push(e, w, event_key(receiver.end_ps - w.window_start_ps, EVENT_TIMER, TIMER_SERVICE,
                                    <uint64_t>e.ports[port_id].local))
    elif receiver.end_ps < w.least_ps:
        w.least_ps = receiver.end_ps


cdef inline void receiver_set_keys(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    cdef int32_t port_id
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        receiver_set_key(e, w, port_id)


cdef inline void receiver_start(receiver_t* receiver, ps_t now) noexcept nogil:
    """Take the head into service, if there is one and the host is not stopped."""
    cdef uint64_t size
    if receiver.head == receiver.tail or receiver.rate_bps == 0:
        return
    receiver.in_service = 1
    receiver.end_ps = now
    if receiver.rate_bps > 0:
        size = receiver.buffer[receiver.head & receiver.mask].size
        receiver.end_ps += <ps_t>((size * <uint64_t>8000000000000 + <uint64_t>receiver.rate_bps - 1)
                                  // <uint64_t>receiver.rate_bps)


cdef inline void host_raise(engine_t* e, worker_t* w, int32_t port_id, int32_t klass, uint8_t crossed, int64_t bytes,
                            int64_t threshold_bytes, ps_t now) noexcept nogil:
    """XOFF is raised by a host, unless it stands."""
    cdef pause_t* pause
    cdef port_t* port = &e.ports[port_id]
    if (port.xoff_mask >> klass) & 1:
        return
    pause = pause_begin(e, w, port, port_id, klass, now)
    pfc_want_frame(e, w, port, port_id, now)
    pause.ingress_bytes = bytes
    pause.headroom_bytes = 0
    pause.threshold_bytes = threshold_bytes
    pause.crossed = crossed
    pause.egress_port = NONE
    pause.parent_port = NONE


cdef inline bint receiver_takes(engine_t* e, worker_t* w, int32_t node, int32_t port_id, const packet_t* packet,
                                ps_t now) noexcept nogil:
    """Put a data frame that has just arrived into the FIFO, or lose it; False if it is to be processed at once."""
    cdef receiver_t* receiver = &e.receivers[port_id]
    cdef int32_t klass = <int32_t>packet_class(packet)
    cdef packet_t* place
    if receiver.rate_bps < 0 and receiver.head == receiver.tail:
        return False
    if receiver.bytes + packet.size > e.plan.port_rx_buffer_bytes[port_id]:
        drop_record(e, w, packet, node, port_id, klass, NONE, DROP_RECEIVER_FULL, now)
        credit_free(e, w, port_id, klass, packet.size, now)
        return True
    if receiver.tail - receiver.head == receiver.mask + 1:
        if not packets_grow(w.arena, &receiver.buffer, &receiver.mask, receiver.head):
            e.fault.code = FAULT_MEMORY
            return True
    place = &receiver.buffer[receiver.tail & receiver.mask]
    memcpy(place, packet, sizeof(packet_t))
    receiver.tail += 1
    receiver.bytes += packet.size
    receiver.class_bytes[klass] += packet.size
    if (e.plan.lossless_mask >> klass) & 1 and receiver.class_bytes[klass] >= e.plan.port_rx_xoff_bytes[port_id]:
        receiver.want_mask |= <uint8_t>(1 << klass)
        if (e.pfc_send_mask[port_id] >> klass) & 1:
            host_raise(e, w, port_id, klass, CROSSED_RECEIVER, receiver.class_bytes[klass],
                       e.plan.port_rx_xoff_bytes[port_id], now)
    if not receiver.in_service:
        receiver_start(receiver, now)
        receiver_set_key(e, w, port_id)
    return True


cdef inline void host_receive(engine_t* e, worker_t* w, int32_t node, int32_t port_id, const packet_t* packet,
                              ps_t now) noexcept nogil:
    """A frame has arrived at a host: processed now, or when the host comes to it."""
    if unlikely(e.receivers != NULL) and packet.kind == KIND_DATA and receiver_takes(e, w, node, port_id, packet, now):
        return
    host_arrival(e, w, node, port_id, packet, now)


cdef inline void receiver_serve(engine_t* e, worker_t* w, int32_t node, int32_t port_id, ps_t now) noexcept nogil:
    """The service of the head has ended: process it, and what follows it in no time."""
    cdef receiver_t* receiver = &e.receivers[port_id]
    cdef packet_t packet
    cdef int32_t klass
    while receiver.in_service and receiver.end_ps == now:
        memcpy(&packet, &receiver.buffer[receiver.head & receiver.mask], sizeof(packet_t))
        klass = <int32_t>packet_class(&packet)
        receiver.head += 1
        receiver.bytes -= packet.size
        receiver.class_bytes[klass] -= packet.size
        receiver.in_service = 0
        receiver.end_ps = FOREVER
        events_count(w, 1, now)
        host_arrival(e, w, node, port_id, &packet, now)
        if (receiver.want_mask >> klass) & 1 and receiver.class_bytes[klass] <= e.plan.port_rx_xon_bytes[port_id]:
            receiver.want_mask &= <uint8_t>~(1 << klass)
            host_settle(e, w, port_id, klass, now)
        receiver_start(receiver, now)
    receiver_set_key(e, w, port_id)


cdef inline void host_settle(engine_t* e, worker_t* w, int32_t port_id, int32_t klass, ps_t now) noexcept nogil:
    """XON is decided if XOFF stands and nothing asks for it any more."""
    cdef const receiver_t* receiver = &e.receivers[port_id]
    cdef port_t* port = &e.ports[port_id]
    if (port.xoff_mask >> klass) & 1 and not ((receiver.storm_mask | receiver.want_mask) >> klass) & 1:
        pfc_lower(e, w, port, port_id, klass, now)
        pfc_want_frame(e, w, port, port_id, now)


cdef inline void host_storm(engine_t* e, worker_t* w, int32_t port_id, uint32_t classes, bint on,
                            ps_t now) noexcept nogil:
    """A control action: the host begins or stops to send XOFF for these classes, whatever it holds."""
    cdef receiver_t* receiver = &e.receivers[port_id]
    cdef int32_t klass
    classes &= e.plan.lossless_mask
    for klass in range(e.plan.class_count):
        # One that is on, or over, already is no reason that comes or goes.
        if not (classes >> klass) & 1 or (receiver.storm_mask >> klass) & 1 == on:
            continue
        if not on:
            receiver.storm_mask &= <uint8_t>~(1 << klass)
            host_settle(e, w, port_id, klass, now)
            continue
        receiver.storm_mask |= <uint8_t>(1 << klass)
        host_raise(e, w, port_id, klass, CROSSED_STORM, 0, 0, now)


cdef inline void host_receiver_rate(engine_t* e, int32_t port_id, int64_t rate_bps, ps_t now) noexcept nogil:
    """A control action: the host receives at this rate from the next start on; 0 = stopped, -1 = unlimited."""
    cdef receiver_t* receiver = &e.receivers[port_id]
    receiver.rate_bps = rate_bps
    if not receiver.in_service:
        receiver_start(receiver, now)
        if receiver.in_service:
            wake_at(e, worker_of(e, e.ports[port_id].node), e.ports[port_id].node, receiver.end_ps)
