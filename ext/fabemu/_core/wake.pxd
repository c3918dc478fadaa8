"""When a device must be visited, and when a port must choose.

Owns      a worker's wheel of 64 windows and its heap of far wake-ups; transmit keys of ports.
Invariant every event of a device within the wheel's reach has its device flagged in its window that holds it, or in an
          earlier one; farther ones have an entry in `far` that is not later. A visit ends by waking its device for what
          it leaves behind.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint64_t, ps_t, unlikely, EVENT_TRANSMIT, FAULT_CHOICES)
from .state cimport engine_t, worker_t, port_t
from .heaps cimport event_key, events_push, timed_push

cdef extern from *:
    """
    static inline uint64_t fabemu_high_product(uint64_t a, uint64_t b)
    {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    """
    uint64_t high_product "fabemu_high_product"(uint64_t a, uint64_t b) noexcept nogil

cdef enum:
    WHEEL_SLOTS = 64
    WHEEL_REACH = 60              # after a cut the windows go two back, and one more is looked at: in all below 64
    DUE_FEW = 3                   # ports that are looked at ahead in every visit, due or not


cdef inline void events_count(worker_t* w, int64_t count, ps_t now) noexcept nogil:
    """Events with an effect have run at `now`."""
    w.events += count
    w.last_event_ps = now if now > w.last_event_ps else w.last_event_ps


cdef inline void hop_noted(worker_t* w, ps_t now) noexcept nogil:
    """A packet starts at `now`; devices of a window are visited one after the other, so times may go back."""
    w.last_hop_ps = now if now > w.last_hop_ps else w.last_hop_ps


cdef inline worker_t* worker_of(engine_t* e, int32_t node) noexcept nogil:
    """Who steps a device."""
    return e.workers[e.node_worker[node]]


cdef inline void step_set(engine_t* e, ps_t step_ps) noexcept nogil:
    """Divide time into steps of this length, 1 or more."""
    e.step_ps = step_ps
    e.step_inverse = ~<uint64_t>0 // <uint64_t>step_ps


cdef inline int64_t step_of(const engine_t* e, ps_t time_ps) noexcept nogil:
    """Number of the step that holds a time."""
    # For times below 2^63 the product is the quotient, or one less.
    cdef int64_t index = <int64_t>high_product(<uint64_t>time_ps, e.step_inverse)
    return index + (time_ps - index * e.step_ps >= e.step_ps)


cdef inline int64_t window_for(const engine_t* e, int32_t node, ps_t time_ps) noexcept nogil:
    """Number of the window in which a device runs what it has at a time."""
    cdef int64_t index = step_of(e, time_ps)
    # Windows with an odd number are those of side 1: theirs and the others' begin and end by turns.
    return index + ((index ^ e.node_side[node]) & e.side_mask)


cdef inline void wake_flag(worker_t* w, int32_t node, int64_t window_index) noexcept nogil:
    cdef int64_t slot = window_index & (WHEEL_SLOTS - 1)
    cdef uint64_t* word = &w.wheel[slot * w.wheel_words + (node >> 6)]
    # Whether it is the first in its word cannot be guessed.
    w.wheel_top[slot * w.wheel_tops + (node >> 12)] |= <uint64_t>1 << ((node >> 6) & 63)
    w.wheel_slots |= <uint64_t>1 << slot
    word[0] |= <uint64_t>1 << (node & 63)


cdef inline void wake_far(engine_t* e, worker_t* w, int32_t node, ps_t time_ps) noexcept nogil:
    if e.node_far_ps[node] > time_ps:
        e.node_far_ps[node] = time_ps
        timed_push(e, w, &w.far, time_ps, node, node)


cdef inline void wake_at(engine_t* e, worker_t* w, int32_t node, ps_t time_ps) noexcept nogil:
    """Have `node`, which is of this worker, visited in its window that holds `time_ps`."""
    cdef int64_t window_index
    if unlikely(e.by_heap):
        wake_far(e, w, node, time_ps)
        return
    if unlikely(e.creation != NULL):
        return
    window_index = window_for(e, node, time_ps)
    if unlikely(window_index - e.window_index > WHEEL_REACH):
        wake_far(e, w, node, time_ps)
    else:
        wake_flag(w, node, window_index)


cdef inline void port_expect(engine_t* e, worker_t* w, int32_t port_id, ps_t time_ps) noexcept nogil:
    """The port of the device being visited has an event after this visit."""
    if time_ps < e.port_next_ps[port_id]:
        e.port_next_ps[port_id] = time_ps
    if time_ps < w.least_ps:
        w.least_ps = time_ps


cdef inline void choice_add(engine_t* e, worker_t* w, int32_t local) noexcept nogil:
    """A port of the device has a transmit choice at this instant."""
    if unlikely(w.choice_count == w.choice_capacity):
        e.fault.code = FAULT_CHOICES
        return
    w.choices[w.choice_count] = local
    w.choice_count += 1


cdef inline void port_kick(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t time_ps) noexcept nogil:
    """Have the port make a transmit choice at `time_ps`, unless one is set for no later."""
    if port.kick_ps <= time_ps:
        return
    if unlikely(e.creation != NULL):
        e.touched_port = port_id
        return
    port.kick_ps = time_ps
    if w.lone:
        return
    if time_ps == w.instant_ps:
        choice_add(e, w, port.local)
    elif time_ps < w.limit_ps:
        events_push(e, w, event_key(time_ps - w.window_start_ps, EVENT_TRANSMIT, 0, <uint64_t>port.local))
    else:
        port_expect(e, w, port_id, time_ps)
