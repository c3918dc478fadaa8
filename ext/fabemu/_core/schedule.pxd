"""Transmit choice of a switch port with weighted classes or credits.

Owns      cursor and deficits of the weighted classes of a port.
Invariant a class with an empty queue has no deficit.
Order     strict classes first, by number; then deficit round robin over the weighted ones (docs/MODEL.md 6).
Source    Shreedhar & Varghese 1995 (deficit round robin).
"""
from .types cimport int32_t, int64_t, uint32_t, ps_t, FOREVER
from .state cimport engine_t, port_t, queue_t, schedule_t, switch_t
from .credit cimport credit_limits, credit_suffices
from .watch cimport WATCHDOG_FORWARD, watch_in_storm

cdef extern from *:
    int ctz "__builtin_ctz"(uint32_t value) noexcept nogil


cdef inline int64_t schedule_head_bytes(const queue_t* queue) noexcept nogil:
    return queue.first.size


cdef inline uint32_t schedule_eligible(const engine_t* e, const switch_t* mmu, const port_t* port, int32_t port_id,
                                       ps_t now, ps_t* next_ps) noexcept nogil:
    """Classes whose head may leave now; `next_ps`: when the first of the others may. Credits come by themselves."""
    cdef uint32_t waiting = port.waiting_mask
    cdef uint32_t eligible = 0
    cdef bint limited = credit_limits(e, port_id)
    cdef int32_t klass
    cdef ps_t eligible_ps
    cdef const queue_t* queue
    next_ps[0] = FOREVER
    while waiting:
        klass = ctz(waiting)
        waiting &= waiting - 1
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        if limited and not credit_suffices(e, port, port_id, klass, schedule_head_bytes(queue)):
            continue
        eligible_ps = queue.first.time_ps + mmu.latency_ps
        if queue.pause_until_ps > eligible_ps and not (mmu.storm_count > 0 and watch_in_storm(
                e, <int64_t>port_id * e.plan.class_count + klass, WATCHDOG_FORWARD, port.node)):
            eligible_ps = queue.pause_until_ps
        if eligible_ps <= now:
            eligible |= <uint32_t>1 << klass
        elif eligible_ps < next_ps[0]:
            next_ps[0] = eligible_ps
    return eligible


cdef inline int32_t schedule_pick(engine_t* e, int32_t port_id, uint32_t eligible) noexcept nogil:
    """The class to serve, of at least one eligible; its deficit pays for the head."""
    cdef schedule_t* schedule
    cdef uint32_t strict = eligible
    cdef const queue_t* queues = &e.queues[<int64_t>port_id * e.plan.class_count]
    cdef int32_t step, klass
    if e.schedules == NULL:
        return ctz(eligible)
    schedule = &e.schedules[port_id]
    strict &= ~schedule.weighted_mask
    if strict:
        return ctz(strict)
    klass = schedule.cursor
    if not (eligible >> klass) & 1 or schedule.deficit_bytes[klass] < schedule_head_bytes(&queues[klass]):
        for step in range(1, e.plan.class_count + 1):
            klass = (schedule.cursor + step) % e.plan.class_count
            if (eligible >> klass) & 1:
                break
        schedule.cursor = klass
        schedule.deficit_bytes[klass] += e.plan.pq_quantum_bytes[<int64_t>port_id * e.plan.class_count + klass]
    schedule.deficit_bytes[klass] -= schedule_head_bytes(&queues[klass])
    return klass


cdef inline void schedule_emptied(engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """The queue of a class has become empty."""
    if e.schedules != NULL:
        e.schedules[port_id].deficit_bytes[klass] = 0
