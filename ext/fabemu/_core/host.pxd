"""A host with one port, stepped by itself: what the window engine would do, without keys to sort.

Owns      host_applies, host_visit; what is fetched ahead of a visit.
Invariant arrivals of one link come in order, and a single port needs no order among ports; so the next event is the
          least of five times, and a tie of two goes by class. It leaves the very state that visiting by keys would.
          What is sent in one visit is one burst.
Order     docs/MODEL.md 5: PFC, arrival, QP timers, operations, transmit choice.
"""
from .types cimport (int32_t, int64_t, uint32_t, ps_t, ctz, unlikely, prefetch, FAULT_NONE, FOREVER, KIND_ACK,
                     KIND_DATA)
from .packet cimport packet_t, packet_is_of_link
from .plan cimport nic_profile_t
from .state cimport engine_t, worker_t, host_t, outbox_t, port_t
from .wake cimport events_count, wake_at
from .operation cimport host_next_op_ps
from .pfc cimport pfc_defer_over, pfc_deferred_ps, pfc_receive
from .link cimport burst_t, burst_open, link_first
from .control cimport host_burst_close
from .nic_usual cimport usual_acknowledgement, usual_data
from .nic cimport (host_arrival, host_choose, host_next_choice_ps, host_run_operations, host_run_timers)


cdef inline bint host_applies(const engine_t* e, int32_t node) noexcept nogil:
    """Whether this host may be stepped by itself: no option and no control action of the run can concern it."""
    return (e.express_wanted and not e.plan.ns3_nic and e.receivers == NULL and e.lanes == NULL
            and e.plan.action_count == 0
            and e.plan.node_port_start[node + 1] - e.plan.node_port_start[node] == 1)


cdef inline void host_sight(const engine_t* e, int32_t node) noexcept nogil:
    """Have fetched what leads to the state of a host that will be visited after the next."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef int32_t klass
    prefetch(&e.ports[port_id])
    prefetch(&e.ports[port_id].ring)
    prefetch(&e.hosts[node])
    for klass in range(e.plan.class_count):
        prefetch(&e.outboxes[<int64_t>port_id * e.plan.class_count + klass])


cdef inline void host_approach(const engine_t* e, int32_t node) noexcept nogil:
    """Have the state of a host fetched that will be visited next."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef const port_t* port = &e.ports[port_id]
    cdef const host_t* host = &e.hosts[node]
    cdef const outbox_t* box
    cdef uint32_t mask = port.waiting_mask
    cdef int32_t klass
    prefetch(&port.ring[port.head & port.mask])
    prefetch(&port.ring[(port.head + 2) & port.mask])
    prefetch(&port.ring[(port.head + 4) & port.mask])
    prefetch(&port.ring[(port.head + 6) & port.mask])
    prefetch(&port.ring[(port.head + 8) & port.mask])
    prefetch(&port.ring[(port.head + 10) & port.mask])
    prefetch(host.qps)
    prefetch(<const char*>host.qps + 64)
    prefetch(host.receivers)
    while mask:
        klass = ctz(mask)
        mask &= mask - 1
        box = &e.outboxes[<int64_t>port_id * e.plan.class_count + klass]
        if box.ready.count > 0:
            prefetch(box.ready.entries)
            prefetch(&box.control.buffer[box.control.head & box.control.mask])
            prefetch(&e.queues[<int64_t>port_id * e.plan.class_count + klass])
    prefetch(&e.ports[port.peer].ring)


cdef inline void host_visit(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run every event of the host before w.limit_ps, and have it woken for the one that follows."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef port_t* port = &e.ports[port_id]
    cdef host_t* host = &e.hosts[node]
    cdef const packet_t* packet
    cdef ps_t limit_ps = w.limit_ps
    cdef ps_t now, arrival_ps, deferred_ps, other_ps
    cdef ps_t event_ps = 0
    cdef int64_t arrivals = 0
    cdef int64_t usual = 0
    cdef int64_t usual_bytes = 0
    cdef outbox_t* boxes = &e.outboxes[<int64_t>port_id * e.plan.class_count]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef burst_t burst
    burst.port = NULL
    w.lone = True
    # The keys are those that the visit before has left; only messages of a scale-up domain come from elsewhere.
    if unlikely(e.scale_ups != NULL):
        host.op_key_ps = host_next_op_ps(e, node)
    while True:
        packet = link_first(w, port)
        arrival_ps = packet.time_ps
        deferred_ps = FOREVER
        other_ps = host.timer_key_ps if host.timer_key_ps < host.op_key_ps else host.op_key_ps
        if unlikely(port.pending_count > 0):
            deferred_ps = pfc_deferred_ps(e, port_id)
            other_ps = deferred_ps if deferred_ps < other_ps else other_ps
        now = arrival_ps if arrival_ps < port.kick_ps else port.kick_ps
        now = other_ps if other_ps < now else now
        if now >= limit_ps:
            break
        if unlikely(other_ps == now) and (arrival_ps > now or (
                deferred_ps == now and not packet_is_of_link(packet))):
            host_run_other(e, w, node, port, port_id, deferred_ps, now)
        elif arrival_ps == now:
            port.head += 1
            arrivals += 1
            event_ps = now
            if (packet.kind == KIND_DATA and usual_data(e, host, nic, boxes, port, packet, now)) or (
                    packet.kind == KIND_ACK and usual_acknowledgement(e, host, nic, packet, now)):
                usual += 1
                usual_bytes += packet.size
                continue
            if unlikely(packet_is_of_link(packet)):
                pfc_receive(e, w, port, port_id, packet, now)
            else:
                host_arrival(e, w, node, port_id, packet, now)
        else:
            if burst.port == NULL:
                burst_open(e, &burst, port)
            port.kick_ps = FOREVER
            host_choose(e, w, node, &burst, port_id, False, now)
            port.kick_ps = host_next_choice_ps(e, node, port, port_id, False, now)
        if unlikely(e.fault.code != FAULT_NONE):
            if e.fault.time_ps == 0:
                e.fault.time_ps = now
                e.fault.node = node
            break
    w.lone = False
    if arrivals > 0:
        w.link_received += arrivals
        w.delivered += usual
        w.delivered_bytes += usual_bytes
        events_count(w, arrivals, event_ps)
    if burst.port != NULL and burst.tail != burst.first:
        events_count(w, burst.tail - burst.first, burst.start_ps)
        host_burst_close(e, w, &burst, port_id)
    now = arrival_ps if arrival_ps < port.kick_ps else port.kick_ps
    if deferred_ps < now:
        now = deferred_ps
    e.port_next_ps[port_id] = now
    if host.timer_key_ps < now:
        now = host.timer_key_ps
    if host.op_key_ps < now:
        now = host.op_key_ps
    if now < FOREVER:
        wake_at(e, w, node, now)


cdef inline void host_run_other(engine_t* e, worker_t* w, int32_t node, port_t* port, int32_t port_id,
                                ps_t deferred_ps, ps_t now) noexcept nogil:
    """What happens at `now` that is neither an arrival nor a transmit choice: the first of its class."""
    if deferred_ps == now:
        pfc_defer_over(e, w, port, port_id, now)
        events_count(w, 1, now)
    elif e.hosts[node].timer_key_ps == now:
        host_run_timers(e, w, node, now)
    else:
        host_run_operations(e, w, node, now)
