"""The PFC watchdog of a switch: polls its queues, finds storms, ends them.

Owns      watchdog_poll.
Invariant storm_count of a switch is the number of its queues in storm, each of which also counts in xoff_count.
Order     ports, then classes; a queue is judged by the state that the queues before it left.
Source    the PFC watchdog of SONiC; docs/MODEL.md 16.
"""
from .types cimport int32_t, int64_t, ps_t, DROP_WATCHDOG, EVENT_ROW_RESTORED, EVENT_ROW_STORM, FOREVER, NONE
from .memory cimport zeroed
from .state cimport engine_t, worker_t, port_t, queue_t, switch_t, watch_t, watchdog_t
from .switch cimport switch_flush
from .trace cimport event_record
from .wake cimport events_count, port_kick
from .watch cimport WATCHDOG_ALERT, WATCHDOG_DROP, watch_set_key, watch_wants_polls


cdef inline int watchdogs_make(engine_t* e, plan) except -1:
    """Take the watchdogs of all switches, and which queues they watch, from the plan."""
    cdef int32_t index, port, klass
    cdef int32_t host_count = e.plan.host_count
    e.watchdogs = <watchdog_t*>zeroed(&e.arena, e.plan.node_count - host_count, sizeof(watchdog_t))
    e.watches = <watch_t*>zeroed(&e.arena, <size_t>e.plan.port_count * e.plan.class_count, sizeof(watch_t))
    for index in range(e.plan.node_count - host_count):
        e.watchdogs[index].poll_ps = plan.watchdog_poll_ps[index]
        e.watchdogs[index].detect_ps = plan.watchdog_detect_ps[index]
        e.watchdogs[index].restore_ps = plan.watchdog_restore_ps[index]
        e.watchdogs[index].action = plan.watchdog_action[index]
        e.watchdogs[index].next_ps = FOREVER
    for port in range(e.host_port_count, e.plan.port_count):
        if not plan.port_watchdog[port] or not e.watchdogs[e.plan.port_node[port] - host_count].poll_ps:
            continue
        for klass in range(e.plan.class_count):
            e.watches[<int64_t>port * e.plan.class_count + klass].is_watched = (e.plan.lossless_mask >> klass) & 1
    return 0


cdef inline bint watchdog_suspects(const watchdog_t* dog, const watch_t* watch, const queue_t* queue,
                                   ps_t now) noexcept nogil:
    """Frames wait, paused, and nothing has moved for the detection time."""
    cdef ps_t since_ps
    if queue.bytes == 0 or queue.pause_until_ps <= now:
        return False
    since_ps = queue.first.time_ps
    if watch.left_ps > since_ps:
        since_ps = watch.left_ps
    return now - since_ps >= dog.detect_ps and 100 * (now - watch.pause_begin_ps) >= 99 * dog.detect_ps


cdef inline void watchdog_poll(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """Look at every watched queue; the next poll is armed while any may need it."""
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef watchdog_t* dog = &e.watchdogs[node - e.plan.host_count]
    cdef int32_t port_id, klass
    cdef int64_t index
    cdef watch_t* watch
    cdef queue_t* queue
    cdef port_t* port
    cdef bint armed = False
    if dog.next_ps != now:
        return
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        port = &e.ports[port_id]
        for klass in range(e.plan.class_count):
            index = <int64_t>port_id * e.plan.class_count + klass
            watch = &e.watches[index]
            if not watch.is_watched:
                continue
            queue = &e.queues[index]
            if watch.in_storm:
                if queue.pause_until_ps <= now - dog.restore_ps:
                    watch.in_storm = 0
                    mmu.storm_count -= 1
                    mmu.xoff_count -= 1
                    event_record(e, w, now, EVENT_ROW_RESTORED, node, port_id, klass, NONE, NONE, NONE)
                    events_count(w, 1, now)
                    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)
            elif watchdog_suspects(dog, watch, queue, now):
                watch.in_storm = 1
                mmu.storm_count += 1
                mmu.xoff_count += 1
                event_record(e, w, now, EVENT_ROW_STORM, node, port_id, klass, NONE, queue.bytes, NONE)
                events_count(w, 1, now)
                if dog.action == WATCHDOG_DROP:
                    switch_flush(e, w, node, port, port_id, klass, DROP_WATCHDOG, now)
                elif dog.action != WATCHDOG_ALERT:
                    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)
            armed |= watch_wants_polls(watch, queue, now)
    dog.next_ps = FOREVER
    if armed:
        dog.next_ps = now + dog.poll_ps
        watch_set_key(e, w, node)
