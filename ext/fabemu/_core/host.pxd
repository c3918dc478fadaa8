"""A host with one port, stepped by itself: what the window engine would do, without keys to sort.

Owns      host_applies, host_visit; what is fetched ahead of a visit.
Invariant arrivals of one link come in order, and a single port needs no order among ports; so the next event is the
          least of five times, and a tie of two goes by class. It leaves the very state that visiting by keys would.
Order     docs/MODEL.md 5: PFC, arrival, QP timers, operations, transmit choice.
"""
from .types cimport int32_t, int64_t, ps_t, unlikely, prefetch, FAULT_NONE, FOREVER
from .packet cimport packet_t, packet_is_of_link
from .state cimport engine_t, worker_t, host_t, outbox_t, port_t
from .wake cimport events_count, wake_at
from .operation cimport host_next_op_ps
from .pfc cimport pfc_defer_over, pfc_deferred_ps, pfc_receive
from .nic cimport host_arrival, host_run_operations, host_run_timers, host_transmit


cdef inline bint host_applies(const engine_t* e, int32_t node) noexcept nogil:
    """Whether this host may be stepped by itself: no option and no control action of the run can concern it."""
    return (e.express_wanted and e.receivers == NULL and e.lanes == NULL and e.plan.action_count == 0
            and e.plan.node_port_start[node + 1] - e.plan.node_port_start[node] == 1)


cdef inline void host_sight(const engine_t* e, int32_t node) noexcept nogil:
    """Have fetched what leads to the state of a host that will be visited after the next."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef int32_t klass
    prefetch(&e.ports[port_id])
    prefetch(&e.ports[port_id].ring)
    prefetch(&e.hosts[node])
    prefetch(&e.hosts[node].timers)
    for klass in range(e.plan.class_count):
        prefetch(&e.outboxes[<int64_t>port_id * e.plan.class_count + klass])


cdef inline void host_approach(const engine_t* e, int32_t node) noexcept nogil:
    """Have the state of a host fetched that will be visited next."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef const port_t* port = &e.ports[port_id]
    cdef const host_t* host = &e.hosts[node]
    cdef const outbox_t* box
    cdef int32_t klass
    prefetch(&port.ring[port.head & port.mask])
    prefetch(&port.ring[(port.head + 2) & port.mask])
    prefetch(&port.ring[(port.head + 4) & port.mask])
    prefetch(&port.ring[(port.head + 6) & port.mask])
    prefetch(&port.ring[(port.head + 8) & port.mask])
    prefetch(&port.ring[(port.head + 10) & port.mask])
    prefetch(host.qps)
    prefetch(<const char*>host.qps + 64)
    prefetch(<const char*>host.qps + 128)
    prefetch(<const char*>host.qps + 192)
    prefetch(host.receivers)
    prefetch(<const char*>host.receivers + 64)
    prefetch(host.timers.entries)
    for klass in range(e.plan.class_count):
        box = &e.outboxes[<int64_t>port_id * e.plan.class_count + klass]
        if box.ready.count > 0:
            prefetch(box.ready.entries)
            prefetch(&box.control.buffer[box.control.head & box.control.mask])
            prefetch(&e.queues[<int64_t>port_id * e.plan.class_count + klass])
            prefetch(&e.queues[<int64_t>port_id * e.plan.class_count + klass].tx_bytes)
    prefetch(&e.ports[port.peer].ring)


cdef inline void host_visit(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run every event of the host before w.limit_ps, and have it woken for the one that follows."""
    cdef int32_t port_id = e.plan.node_port_start[node]
    cdef port_t* port = &e.ports[port_id]
    cdef host_t* host = &e.hosts[node]
    cdef const packet_t* packet = NULL
    cdef ps_t limit_ps = w.limit_ps
    cdef ps_t now, arrival_ps, deferred_ps, other_ps
    cdef ps_t event_ps = 0
    cdef int64_t arrivals = 0
    cdef int64_t events = 0
    w.lone = True
    host.op_key_ps = host_next_op_ps(e, node)
    host.timer_key_ps = host.timers.entries[0].time_ps if host.timers.count > 0 else FOREVER
    while True:
        arrival_ps = FOREVER
        if port.head != port.tail:
            packet = &port.ring[port.head & port.mask]
            arrival_ps = packet.time_ps
        deferred_ps = FOREVER
        if unlikely(port.pending_count > 0):
            deferred_ps = pfc_deferred_ps(e, port_id)
        other_ps = host.timer_key_ps if host.timer_key_ps < host.op_key_ps else host.op_key_ps
        if unlikely(deferred_ps < other_ps):
            other_ps = deferred_ps
        now = arrival_ps if arrival_ps < port.kick_ps else port.kick_ps
        if other_ps < now:
            now = other_ps
        if now >= limit_ps:
            break
        if arrival_ps == now and unlikely(packet_is_of_link(packet)):
            port.head += 1
            arrivals += 1
            events += 1
            event_ps = now
            pfc_receive(e, w, port, port_id, packet, now)
        elif deferred_ps == now:
            events += 1
            event_ps = now
            pfc_defer_over(e, w, port, port_id, now)
        elif arrival_ps == now:
            port.head += 1
            arrivals += 1
            events += 1
            event_ps = now
            host_arrival(e, w, node, port_id, packet, now)
        elif host.timer_key_ps == now:
            host_run_timers(e, w, node, now)
        elif host.op_key_ps == now:
            host_run_operations(e, w, node, now)
        else:
            host_transmit(e, w, node, port_id, now)
            if port.busy_until_ps > now:
                events += 1
                event_ps = now
        if unlikely(e.fault.code != FAULT_NONE):
            if e.fault.time_ps == 0:
                e.fault.time_ps = now
                e.fault.node = node
            break
    w.lone = False
    w.link_received += arrivals
    events_count(w, events, event_ps)
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
