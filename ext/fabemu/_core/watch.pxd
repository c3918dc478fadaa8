"""What the PFC watchdog knows of the egress queues of a switch, and what its storms change for frames.

Owns      watch_t: the last departure, the beginning of the pause, the storm flag; the armed poll of a switch.
Invariant a switch has its next poll armed while a queue under watch is paused with frames, or in a storm that will end.
Source    the PFC watchdog of SONiC (detection, restoration, drop or forward); docs/MODEL.md 16.
"""
from .types cimport int32_t, int64_t, uint64_t, ps_t, unlikely, EVENT_TIMER, FOREVER, TIMER_WATCHDOG
from .state cimport engine_t, worker_t, queue_t, watchdog_t, watch_t
from .heaps cimport event_key, events_push

cdef enum:
    WATCHDOG_DROP = 0
    WATCHDOG_FORWARD = 1
    WATCHDOG_ALERT = 2


cdef inline void watch_set_key(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Put the armed poll of the switch that is being visited where it belongs."""
    cdef ps_t next_ps = e.watchdogs[node - e.plan.host_count].next_ps
    if next_ps < w.limit_ps:
        events_push(e, w, event_key(next_ps - w.window_start_ps, EVENT_TIMER, TIMER_WATCHDOG, 0))
    elif next_ps < w.least_ps:
        w.least_ps = next_ps


cdef inline bint watch_wants_polls(const watch_t* watch, const queue_t* queue, ps_t now) noexcept nogil:
    """Whether a poll to come may find something at a queue, with nothing else happening to it."""
    if watch.in_storm:
        return queue.pause_until_ps < FOREVER
    return queue.pause_until_ps > now and queue.bytes > 0


cdef inline void watch_changed(engine_t* e, worker_t* w, int32_t node, int64_t index, ps_t now) noexcept nogil:
    """The pause of a queue (port x class `index`) began, went on or ended, or a frame came to it: are polls needed?"""
    cdef watchdog_t* dog
    if not e.watches[index].is_watched or not watch_wants_polls(&e.watches[index], &e.queues[index], now):
        return
    dog = &e.watchdogs[node - e.plan.host_count]
    if dog.next_ps == FOREVER:
        dog.next_ps = (now // dog.poll_ps + 1) * dog.poll_ps
        watch_set_key(e, w, node)


cdef inline bint watch_in_storm(const engine_t* e, int64_t index, int32_t action, int32_t node) noexcept nogil:
    """Whether a queue is in storm and the watchdog of its switch takes this action."""
    return e.watches[index].in_storm and e.watchdogs[node - e.plan.host_count].action == action


cdef inline bint watch_can_act(const engine_t* e) noexcept nogil:
    """Whether any poll to come will find or restore a queue, with nothing else happening in the fabric."""
    cdef int64_t index
    cdef bint paused
    if e.watches == NULL:
        return False
    for index in range(<int64_t>e.plan.port_count * e.plan.class_count):
        if not e.watches[index].is_watched:
            continue
        paused = e.queues[index].pause_until_ps > e.now_ps
        if (not paused) if e.watches[index].in_storm else (paused and e.queues[index].bytes > 0):
            return True
    return False


cdef inline bint watch_is_work(const engine_t* e) noexcept nogil:
    """Whether a queue in storm waits for its restoration only."""
    cdef int64_t index
    if e.watches == NULL:
        return False
    for index in range(<int64_t>e.plan.port_count * e.plan.class_count):
        if e.watches[index].in_storm and e.queues[index].pause_until_ps < FOREVER:
            return True
    return False
