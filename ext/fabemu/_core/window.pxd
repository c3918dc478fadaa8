"""The window engine: which devices run, in what order their events go.

Owns      the wheel's turning, visits of devices.
Invariant when a window begins all arrivals of its devices before its end are known, since what could still send some
          has run to within a step of it (`sides`); results do not depend on where windows are cut.
Order     docs/MODEL.md 5.
"""
from .types cimport (int32_t, int64_t, uint32_t, uint64_t, ps_t, unlikely, ctz64, prefetch, CHECK, EVENT_ARRIVAL,
                     EVENT_PFC, EVENT_TIMER, EVENT_TRANSMIT, FAULT_NONE, FAULT_TIME, FOREVER, KIND_CREDIT,
                     TIMER_REFRESH, TIMER_SERVICE, TIMER_WATCHDOG)
from .memory cimport CACHE_LINE
from .packet cimport packet_t, packet_is_of_link
from .state cimport engine_t, worker_t, port_t, host_t, outbox_t
from .heaps cimport (KEY_CLASS_SHIFT, KEY_PORT_MASK, KEY_TIME_SHIFT, KEY_VARIANT_SHIFT, event_key, events_pop,
                     events_push, timed_pop)
from .action cimport actions_run
from .check cimport check_device, check_host_keys
from .credit cimport credit_learn, credit_limits, credit_refresh, credit_ring_take
from .deadlock cimport deadlock_checks_before
from .express cimport express_try
from .host cimport host_applies, host_approach, host_sight, host_visit
from .inbox cimport inbox_fetch, inbox_sort
from .link cimport link_first
from .operation cimport host_next_op_ps, host_set_op_key, host_set_timer_key, timer_is_live
from .nic cimport host_kick_limited, host_run_operations, host_run_timers, host_transmit
from .pfc cimport pfc_collect, pfc_defer_over, pfc_deferred_ps, pfc_receive, pfc_want_frame
from .interval cimport close_intervals_before
from .sequence cimport sequence_applies, sequence_collect, sequence_run
from .port_columns cimport port_columns_are_full
from .receiver cimport receiver_is_busy, receiver_serve, receiver_set_keys, host_receive
from .switch cimport switch_arrivals, switch_lone_arrival, switch_transmit
from .sides cimport sides_advance, sides_are_level, sides_level, sides_limit, sides_skip
from .ties cimport sort_ports
from .wake cimport DUE_FEW, WHEEL_SLOTS, choice_add, events_count, step_of, wake_at, wake_flag, window_for
from .crew cimport crew_await, crew_begin, crew_call, crew_dismiss, crew_seconds
from .mail cimport mail_clear, mail_read, mail_write
from .watch cimport watch_can_act, watch_is_work, watch_set_key
from .watchdog cimport watchdog_poll
from .workers cimport workers_hops, workers_last_hop_ps, workers_settle

cdef enum:
    RUNNING = 0
    STOPPED = 1
    DRAINED = 2
    FAULTED = 3
    DEADLOCKED = 4
    ROUNDS_MAX = 1000000


cdef extern from *:
    """
    #define FABEMU_STALL_PS ((int64_t)1000000000000)
    #define FABEMU_NO_KEY (~(uint64_t)0)
    #define FABEMU_NEVER (((int64_t)1) << 62)
    """
    # No packet moved for one simulated second, and nothing else is to come: nothing ever will.
    const ps_t STALL_PS "FABEMU_STALL_PS"
    const uint64_t NO_KEY "FABEMU_NO_KEY"
    const int64_t NEVER "FABEMU_NEVER"


cdef inline void visit_due(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """List the ports with something to do before the limit."""
    cdef int32_t port_id, index
    cdef int32_t end = e.plan.node_port_start[node + 1]
    cdef int32_t count = 0
    cdef int32_t* due = w.due
    cdef const ps_t* next_ps = e.port_next_ps
    cdef ps_t time_ps
    cdef ps_t limit_ps = w.limit_ps
    cdef ps_t least_ps = FOREVER
    cdef bint is_due
    # One by one: a wide load of times that were just stored singly would wait for them.
    for port_id in range(e.plan.node_port_start[node], end):
        time_ps = next_ps[port_id]
        # Which ports are due cannot be guessed, so nothing branches on it.
        is_due = time_ps < limit_ps
        due[count] = port_id
        count += is_due
        time_ps |= -<ps_t>is_due & FOREVER
        least_ps = time_ps if time_ps < least_ps else least_ps
    w.due_count = count
    w.least_ps = least_ps
    # So many are always looked at, that nothing branches on their number: any port will do where none is due.
    for index in range(DUE_FEW):
        visit_approach(e, &e.ports[due[index]], limit_ps)
    for index in range(DUE_FEW, count):
        visit_approach(e, &e.ports[due[index]], limit_ps)


cdef inline void visit_approach(const engine_t* e, const port_t* port, ps_t limit_ps) noexcept nogil:
    """Have fetched what a visit reads of a port that is due."""
    # A port that only receives is not looked at where it sends.
    prefetch(<const char*>port + CACHE_LINE * (port.kick_ps >= limit_ps))
    # Several packets of each link are due, two to a cache line.
    prefetch(&port.ring[port.head & port.mask])
    prefetch(&port.ring[(port.head + 2) & port.mask])


cdef inline void visit_collect(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Take up the events of the ports that are due: arrivals in the inbox, the others in the heap."""
    cdef int32_t port_id, index
    cdef port_t* port
    cdef host_t* host
    w.heap_count = 0
    w.inbox_count = 0
    w.inbox_next = 0
    for index in range(w.due_count):
        port_id = w.due[index]
        port = &e.ports[port_id]
        inbox_fetch(e, w, port)
        if port.kick_ps < w.limit_ps:
            events_push(e, w, event_key(port.kick_ps - w.window_start_ps, EVENT_TRANSMIT, 0, <uint64_t>port.local))
        if unlikely(port.refresh_ps < w.limit_ps or port.pending_count > 0):
            pfc_collect(e, w, port, port_id)
    inbox_sort(w)
    if node < e.plan.host_count:
        host = &e.hosts[node]
        host.op_key_ps = FOREVER
        host_set_op_key(e, w, node)
        host.timer_key_ps = FOREVER
        host_set_timer_key(e, w, node)
        if unlikely(e.receivers != NULL):
            receiver_set_keys(e, w, node)
    elif unlikely(e.watches != NULL):
        watch_set_key(e, w, node)


cdef inline void visit_leave(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Note when the ports that were due have their next event, and have the device woken for the earliest of all."""
    cdef int32_t index
    cdef port_t* port
    cdef ps_t next_ps, time_ps
    cdef ps_t least_ps = w.least_ps
    for index in range(w.due_count):
        port = &e.ports[w.due[index]]
        next_ps = port.kick_ps if port.kick_ps < port.refresh_ps else port.refresh_ps
        time_ps = link_first(w, port).time_ps
        next_ps = time_ps if time_ps < next_ps else next_ps
        if unlikely(port.pending_count > 0):
            time_ps = pfc_deferred_ps(e, w.due[index])
            if time_ps < next_ps:
                next_ps = time_ps
        e.port_next_ps[w.due[index]] = next_ps
        least_ps = next_ps if next_ps < least_ps else least_ps
    if least_ps < FOREVER:
        wake_at(e, w, node, least_ps)


cdef inline void visit_pfc(engine_t* e, worker_t* w, int32_t port_id, uint64_t variant, ps_t now) noexcept nogil:
    """A PFC frame at the head of its ring, the next of the inbox (0), or one whose response delay is over (1)."""
    cdef port_t* port = &e.ports[port_id]
    cdef const packet_t* packet
    if variant == 0:
        packet = &port.ring[port.head & port.mask]
        port.head += 1
        w.inbox_next += 1
        w.link_received += 1
        if packet.kind == KIND_CREDIT:
            credit_learn(e, w, port, port_id, credit_ring_take(e, port_id), now)
            return
        pfc_receive(e, w, port, port_id, packet, now)
        return
    events_pop(w)
    pfc_defer_over(e, w, port, port_id, now)


cdef inline void visit_choices(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """Transmit choices of this instant, in keyed order; a departure may add one (XON at another port)."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef bint is_host = node < e.plan.host_count
    # Without XOFF at the device no departure can touch what another port does.
    cdef bint ordered = not is_host and (e.switches[node - e.plan.host_count].xoff_count > 0
                                         or e.switches[node - e.plan.host_count].unusual != 0)
    cdef int32_t done = 0
    cdef int32_t port_id, sorted_count
    while done < w.choice_count:
        if ordered and w.choice_count - done > 1:
            sort_ports(w, w.choices + done, NULL, w.choice_count - done, now)
        sorted_count = w.choice_count
        while done < sorted_count:
            port_id = first_port + w.choices[done]
            done += 1
            # A key that an earlier one has overtaken.
            if e.ports[port_id].kick_ps != now:
                continue
            visit_choice(e, w, node, port_id, now, is_host)
            if ordered and w.choice_count > sorted_count:
                break
    w.choice_count = 0


cdef inline int32_t visit_arrivals(engine_t* e, worker_t* w, int32_t node, uint64_t instant_class) noexcept nogil:
    """Take every arrival of this instant out of the inbox; the number of ports in w.arrivals.

    The rings' heads move on, so each packet is at head - 1.
    """
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef int32_t count = 0
    cdef int32_t local
    while w.inbox_next < w.inbox_count and w.inbox[w.inbox_next] >> KEY_CLASS_SHIFT == instant_class:
        local = <int32_t>(w.inbox[w.inbox_next] & KEY_PORT_MASK)
        w.inbox_next += 1
        w.arrivals[count] = local
        count += 1
        e.ports[first_port + local].head += 1
    w.link_received += count
    return count


cdef inline void visit_timer(engine_t* e, worker_t* w, int32_t node, int32_t port_id, uint64_t timer,
                             ps_t now) noexcept nogil:
    """A timer key of the device has come up; its owner knows whether it still stands."""
    cdef port_t* port = &e.ports[port_id]
    if timer == TIMER_REFRESH:
        if port.refresh_ps == now:
            port.refresh_ps = FOREVER
            if credit_limits(e, port_id):
                if credit_refresh(e, w, port, port_id, now):
                    events_count(w, 1, now)
            elif port.xoff_mask != 0:
                pfc_want_frame(e, w, port, port_id, now)
                events_count(w, 1, now)
    elif timer == TIMER_SERVICE:
        receiver_serve(e, w, node, port_id, now)
    elif timer == TIMER_WATCHDOG:
        watchdog_poll(e, w, node, now)
    elif e.hosts[node].timer_key_ps == now:
        host_run_timers(e, w, node, now)
        if unlikely(e.lanes != NULL):
            host_kick_limited(e, w, node, now)


cdef inline void visit_instant(engine_t* e, worker_t* w, int32_t node, ps_t now, bint is_host) noexcept nogil:
    """Run every event of the device at `now`, class by class (MODEL 5)."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef uint64_t key, event_class
    cdef uint64_t instant = <uint64_t>(now - w.window_start_ps)
    cdef int32_t port_id, count, index
    cdef port_t* port
    while True:
        key = visit_next(w)
        if key >> KEY_TIME_SHIFT != instant:
            break
        event_class = (key >> KEY_CLASS_SHIFT) & 15
        port_id = first_port + <int32_t>(key & KEY_PORT_MASK)
        if event_class == EVENT_ARRIVAL:
            count = visit_arrivals(e, w, node, key >> KEY_CLASS_SHIFT)
            events_count(w, count, now)
            if not is_host:
                switch_arrivals(e, w, node, count, now)
                continue
            if count > 1:
                sort_ports(w, w.arrivals, NULL, count, now)
            for index in range(count):
                port = &e.ports[first_port + w.arrivals[index]]
                host_receive(e, w, node, first_port + w.arrivals[index], &port.ring[(port.head - 1) & port.mask], now)
        elif event_class == EVENT_TRANSMIT:
            # A key that an earlier one overtook may have been set again.
            while w.heap_count > 0 and w.heap[0] == key:
                events_pop(w)
            if e.ports[port_id].kick_ps == now:
                choice_add(e, w, port_id - first_port)
        elif event_class == EVENT_PFC:
            visit_pfc(e, w, port_id, (key >> KEY_VARIANT_SHIFT) & 15, now)
            events_count(w, 1, now)
        elif event_class == EVENT_TIMER:
            events_pop(w)
            visit_timer(e, w, node, port_id, (key >> KEY_VARIANT_SHIFT) & 15, now)
        else:
            events_pop(w)
            if e.hosts[node].op_key_ps == now:
                host_run_operations(e, w, node, now)
    if w.choice_count > 0:
        visit_choices(e, w, node, now)


cdef inline uint64_t visit_next(const worker_t* w) noexcept nogil:
    """The smallest key of inbox and heap; all ones if there is none."""
    cdef uint64_t key = NO_KEY
    if w.inbox_next < w.inbox_count:
        key = w.inbox[w.inbox_next]
    if w.heap_count > 0 and w.heap[0] < key:
        key = w.heap[0]
    return key


cdef inline void visit_plain(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run every event of a plain switch: instants with one event in sequence, the others as visit_device would."""
    cdef ps_t now
    while True:
        now = sequence_run(e, w, node)
        if now < 0:
            break
        if w.choice_count > 0:
            visit_choices(e, w, node, now)
        else:
            visit_instant(e, w, node, now, False)
    w.instant_ps = -1


cdef inline void visit_device(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run every event of one device before w.limit_ps."""
    cdef bint is_host = node < e.plan.host_count
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef int32_t port_id
    cdef uint64_t key, following, event_class
    cdef ps_t now
    w.node = node
    if is_host and host_applies(e, node):
        host_visit(e, w, node)
        if CHECK:
            check_device(e, node)
            check_host_keys(e, node)
        return
    w.instant_ps = -1
    visit_due(e, w, node)
    if not is_host and express_try(e, w, node):
        visit_leave(e, w, node)
        if CHECK:
            check_device(e, node)
        return
    if not is_host and sequence_applies(e, node):
        sequence_collect(e, w, node)
        visit_plain(e, w, node)
        visit_leave(e, w, node)
        if CHECK:
            check_device(e, node)
        return
    visit_collect(e, w, node)
    while True:
        # The smallest key, and the one that follows it.
        key = NO_KEY
        following = NO_KEY
        if w.inbox_next < w.inbox_count:
            key = w.inbox[w.inbox_next]
            if w.inbox_next + 1 < w.inbox_count:
                following = w.inbox[w.inbox_next + 1]
        if w.heap_count > 0:
            if w.heap[0] < key:
                following = key
                key = w.heap[0]
                if w.heap_count > 1 and w.heap[1] < following:
                    following = w.heap[1]
                if w.heap_count > 2 and w.heap[2] < following:
                    following = w.heap[2]
            elif w.heap[0] < following:
                following = w.heap[0]
        if key == NO_KEY:
            break
        now = w.window_start_ps + <ps_t>(key >> KEY_TIME_SHIFT)
        if unlikely(now <= w.instant_ps):
            e.fault.code = FAULT_TIME
        if unlikely(e.fault.code != FAULT_NONE):
            if e.fault.time_ps == 0:
                e.fault.time_ps = now
                e.fault.node = node
            return
        w.instant_ps = now
        event_class = (key >> KEY_CLASS_SHIFT) & 15
        if (key ^ following) >> KEY_TIME_SHIFT == 0 or (
                event_class != EVENT_ARRIVAL and event_class != EVENT_TRANSMIT):
            visit_instant(e, w, node, now, is_host)
            continue
        # One event alone at its instant: what visit_instant would do, without the ceremony.
        port_id = first_port + <int32_t>(key & KEY_PORT_MASK)
        if event_class == EVENT_TRANSMIT:
            events_pop(w)
            if e.ports[port_id].kick_ps == now:
                visit_choice(e, w, node, port_id, now, is_host)
        else:
            w.inbox_next += 1
            w.link_received += 1
            e.ports[port_id].head += 1
            events_count(w, 1, now)
            if is_host:
                host_receive(e, w, node, port_id,
                             &e.ports[port_id].ring[(e.ports[port_id].head - 1) & e.ports[port_id].mask], now)
                if host_next_op_ps(e, node) <= now:
                    visit_instant(e, w, node, now, is_host)
            else:
                switch_lone_arrival(e, w, node, port_id, now)
        if w.choice_count > 0:
            visit_choices(e, w, node, now)
    w.instant_ps = -1
    visit_leave(e, w, node)
    if CHECK:
        check_device(e, node)


cdef inline void visit_choice(engine_t* e, worker_t* w, int32_t node, int32_t port_id, ps_t now,
                              bint is_host) noexcept nogil:
    """One transmit choice."""
    if is_host:
        host_transmit(e, w, node, port_id, now)
    else:
        switch_transmit(e, w, node, port_id, now)
    if e.ports[port_id].busy_until_ps > now:
        events_count(w, 1, now)


cdef inline void visit_ahead(const engine_t* e, int32_t own, int32_t first, uint64_t bits) noexcept nogil:
    """Have the state of the hosts fetched whose turn comes next: those of the lowest two bits, counted from `first`.

    Where there are none it is that of the host whose turn it is: another's may be changing in another thread.
    """
    cdef int32_t node = first + ctz64(bits) if bits else own
    if node >= e.plan.host_count or e.plan.node_port_start[node] == e.plan.node_port_start[node + 1]:
        return
    host_approach(e, node)
    bits &= bits - 1
    node = first + ctz64(bits) if bits else own
    if node < e.plan.host_count and e.plan.node_port_start[node] < e.plan.node_port_start[node + 1]:
        host_sight(e, node)


cdef inline void visit_slot(engine_t* e, worker_t* w, int64_t slot, bint clear) noexcept nogil:
    """Visit every device that is flagged in a slot of the wheel, in the order of their numbers."""
    cdef uint64_t* words = &w.wheel[slot * w.wheel_words]
    cdef uint64_t* tops = &w.wheel_top[slot * w.wheel_tops]
    cdef int64_t top, word
    cdef uint64_t filled, bits
    cdef int32_t node
    for top in range(w.wheel_tops):
        filled = tops[top]
        while filled:
            word = 64 * top + ctz64(filled)
            filled &= filled - 1
            # A visit flags its device in this slot again at most, if the window is cut.
            bits = words[word]
            if clear:
                words[word] = 0
            while bits:
                node = <int32_t>(64 * word + ctz64(bits))
                bits &= bits - 1
                if node < e.plan.host_count:
                    visit_ahead(e, node, <int32_t>(64 * word), bits)
                visit_device(e, w, node)
                if unlikely(e.fault.code != FAULT_NONE):
                    return
        if clear:
            tops[top] = 0
    if clear:
        w.wheel_slots &= ~(<uint64_t>1 << slot)


cdef inline int64_t window_next(const engine_t* e, const worker_t* w) noexcept nogil:
    """The first window not stepped to its end in which a device of the worker wakes; NEVER if there is none."""
    cdef int64_t index = NEVER
    # A side that was cut short waits in the window before while the other is brought to the same instant.
    cdef int64_t first = e.window_index - e.side_mask
    cdef int32_t turned = first & (WHEEL_SLOTS - 1)
    cdef uint64_t slots = w.wheel_slots
    if slots:
        slots = slots >> turned | slots << (-turned & (WHEEL_SLOTS - 1))
        index = first + ctz64(slots)
    if w.far.count > 0 and step_of(e, w.far.entries[0].time_ps) < index:
        # Its window, or the one before.
        index = step_of(e, w.far.entries[0].time_ps)
    return index


cdef inline void window_step(engine_t* e, worker_t* w) noexcept nogil:
    """Run every event of this worker's devices in the present window, before its limit."""
    cdef ps_t time_ps
    cdef int32_t node
    w.window_start_ps = e.window_start_ps
    w.limit_ps = e.limit_ps
    if e.crew_size > 1:
        mail_clear(e, w, e.turn - 2)
        mail_read(e, w, e.turn - 1)
    while w.far.count > 0 and w.far.entries[0].time_ps < e.window_end_ps:
        node = w.far.entries[0].node
        time_ps = w.far.entries[0].time_ps
        e.node_far_ps[node] = FOREVER
        timed_pop(&w.far)
        wake_flag(w, node, window_for(e, node, time_ps))
    visit_slot(e, w, e.window_index & (WHEEL_SLOTS - 1), w.limit_ps == e.window_end_ps)
    w.next_index = window_next(e, w)
    if e.crew_size > 1:
        mail_write(e, w)


cdef inline bint window_seek(engine_t* e) noexcept nogil:
    """Move to the first window with something to do; False if there is none."""
    cdef int64_t best = NEVER
    cdef int32_t index
    for index in range(e.crew_size):
        if e.workers[index].next_index < best:
            best = e.workers[index].next_index
    if unlikely(e.action_next_ps < FOREVER) and step_of(e, e.action_next_ps) < best:
        best = step_of(e, e.action_next_ps)
    if best == NEVER:
        return False
    e.window_index = best
    return True


cdef inline void window_place(engine_t* e) noexcept nogil:
    """Where the present window begins and ends."""
    e.window_start_ps = (e.window_index - e.side_mask) * e.step_ps
    e.window_end_ps = (e.window_index + 1) * e.step_ps


cdef inline void window_meet(engine_t* e) noexcept nogil:
    """Open the present window as far as both sides are to run."""
    window_place(e)
    e.limit_ps = sides_limit(e)
    if e.meet_ps < e.limit_ps:
        e.limit_ps = e.meet_ps
    e.turn += 1


cdef inline int32_t window_open(engine_t* e, worker_t* w, ps_t stop_ps) noexcept nogil:
    """Choose the next window and do what comes before it; RUNNING, or how the run ends."""
    cdef ps_t last_hop_ps
    if e.meet_ps < FOREVER:
        window_meet(e)
        return RUNNING
    if not window_seek(e):
        workers_settle(e)
        return run_is_empty(e, w, stop_ps)
    window_place(e)
    if e.window_start_ps > e.now_ps:
        e.now_ps = e.window_start_ps if e.window_start_ps < stop_ps else stop_ps
    sides_skip(e)
    last_hop_ps = workers_last_hop_ps(e)
    if unlikely(e.now_ps - last_hop_ps > STALL_PS) and not sides_are_level(e):
        # Whether the fabric has stalled is judged where both sides are at one instant.
        sides_level(e)
        window_meet(e)
        return RUNNING
    if unlikely(e.deadlock_next_ps <= e.now_ps or e.now_ps >= stop_ps or e.action_next_ps <= e.now_ps
                or e.now_ps - last_hop_ps > STALL_PS):
        workers_settle(e)
    if unlikely(e.deadlock_next_ps < e.now_ps) and deadlock_checks_before(e, w, e.now_ps):
        return DEADLOCKED
    if e.now_ps >= stop_ps:
        close_intervals_before(e, stop_ps)
        return STOPPED if work_left(e) else DRAINED
    if unlikely(e.now_ps - last_hop_ps > STALL_PS) and window_is_stalled(e, w):
        return DRAINED
    close_intervals_before(e, e.now_ps)
    if unlikely(e.action_next_ps <= e.now_ps):
        actions_run(e, w)
    # A check comes after the actions and before the events of its instant.
    if unlikely(e.deadlock_next_ps == e.now_ps) and deadlock_checks_before(e, w, e.now_ps + 1):
        return DEADLOCKED
    e.limit_ps = sides_limit(e)
    if stop_ps < e.limit_ps:
        e.limit_ps = stop_ps
    if unlikely(e.action_next_ps < e.limit_ps):
        e.limit_ps = e.action_next_ps
    if e.plan.sample_ps > 0 and e.sample_start_ps + e.plan.sample_ps < e.limit_ps:
        e.limit_ps = e.sample_start_ps + e.plan.sample_ps
    if unlikely(e.deadlock_next_ps < e.limit_ps):
        e.limit_ps = e.deadlock_next_ps
    if unlikely(e.now_ps <= last_hop_ps + STALL_PS < e.limit_ps - 1):
        # A stall is first judged at the same instant wherever windows are cut.
        e.limit_ps = last_hop_ps + STALL_PS + 1
    if unlikely(e.now_ps - last_hop_ps > STALL_PS) and (step_of(e, e.now_ps) + 1) * e.step_ps < e.limit_ps:
        # It had not: it is judged once more in every step, so that no side is ahead by then. When it is found to have
        # stalled after all, up to a step of repeated pauses more or less, does depend on the steps.
        e.limit_ps = (step_of(e, e.now_ps) + 1) * e.step_ps
    e.turn += 1
    return RUNNING


cdef inline int32_t run_windows(engine_t* e, ps_t stop_ps, int64_t hop_limit, double patience_s) noexcept nogil:
    """Step until `stop_ps`, until `hop_limit` packet hops in all, or until nothing is left.

    Several threads give up after `patience_s`: where one has lost its core they wait for it, window by window.
    """
    cdef worker_t* w = e.worker
    cdef int64_t rounds = 0
    cdef int32_t index
    cdef int32_t status = RUNNING
    for index in range(e.crew_size):
        e.workers[index].next_index = window_next(e, e.workers[index])
    if e.crew_size > 1:
        patience_s += crew_seconds()
        crew_call(e)
    while status == RUNNING:
        # Windows that hold nothing but timers use up the budget too.
        rounds += 1
        if workers_hops(e) >= hop_limit or rounds > ROUNDS_MAX or (
                rounds > 1 and port_columns_are_full(&e.port_columns)):
            if sides_are_level(e):
                break
            sides_level(e)
        status = window_open(e, w, stop_ps)
        if status != RUNNING:
            break
        if e.crew_size > 1:
            crew_begin(e)
            window_step(e, w)
            crew_await(e)
            if unlikely(crew_seconds() > patience_s):
                rounds = ROUNDS_MAX
        else:
            window_step(e, w)
        if unlikely(e.fault.code != FAULT_NONE):
            status = FAULTED
            break
        sides_advance(e)
    if e.crew_size > 1:
        crew_dismiss(e)
    workers_settle(e)
    return status


cdef inline bint storm_stands(const engine_t* e) noexcept nogil:
    """Whether a host sends XOFF whatever it holds: work that needs no event while the pause has no end."""
    cdef int64_t index
    for index in range(e.host_port_count if e.receivers != NULL else 0):
        if e.receivers[index].storm_mask:
            return True
    return False


cdef inline int32_t run_is_empty(engine_t* e, worker_t* w, ps_t stop_ps) noexcept nogil:
    """No event is left: the run has drained, unless a storm goes on until it is stopped."""
    if stop_ps == FOREVER or not storm_stands(e):
        return DRAINED
    e.now_ps = stop_ps
    close_intervals_before(e, stop_ps)
    return STOPPED


cdef inline bint operations_are_listed(const engine_t* e) noexcept nogil:
    """Whether an operation waits for its time."""
    return e.worker.started_ops < e.plan.host_op_start[e.plan.host_count]


cdef inline bint work_left(const engine_t* e) noexcept nogil:
    """Anything that can still happen, timers of QPs that are done not counted."""
    cdef const worker_t* w = e.worker
    cdef const host_t* host
    cdef int64_t index
    cdef int32_t node
    # What a glance tells comes first: a step of an idle fabric must not walk all of it.
    if w.link_sent != w.link_received or w.sent != w.delivered + w.dropped or e.action_next_ps < FOREVER or (
            operations_are_listed(e)) or watch_is_work(e):
        return True
    if storm_stands(e):
        return True
    for node in range(e.plan.host_count):
        host = &e.hosts[node]
        if host.due.count > 0 or (e.scale_ups != NULL and e.scale_ups[node].inbound.count > 0):
            return True
        for index in range(host.timers.count):
            if timer_is_live(e, host.timers.entries[index].id):
                return True
    for index in range(<int64_t>e.host_port_count * e.plan.class_count):
        if e.outboxes[index].ready.count > 0 or e.outboxes[index].control.head != e.outboxes[index].control.tail:
            return True
    for index in range(e.plan.port_count):
        if e.ports[index].pfc_pending or e.ports[index].pending_count > 0 or (
                e.lanes != NULL and credit_limits(e, <int32_t>index) and e.ports[index].refresh_ps < FOREVER):
            return True
    return False


cdef inline bint window_is_stalled(engine_t* e, worker_t* w) noexcept nogil:
    """Packets wait for one another for ever: only PFC refreshes are left, no operation and no timeout."""
    cdef int32_t node, port_id, klass
    cdef uint32_t position
    cdef const port_t* port
    cdef const outbox_t* box
    cdef host_t* host
    cdef int32_t index
    if e.action_next_ps < FOREVER or operations_are_listed(e):
        return False
    for port_id in range(e.plan.port_count):
        port = &e.ports[port_id]
        position = port.head
        while position != port.tail:
            if not packet_is_of_link(&port.ring[position & port.mask]):
                return False
            position += 1
        if port_id >= e.host_port_count or (e.down != NULL and e.down[port_id]):
            continue
        if e.receivers != NULL and receiver_is_busy(&e.receivers[port_id]):
            return False
        for klass in range(e.plan.class_count):
            box = &e.outboxes[<int64_t>port_id * e.plan.class_count + klass]
            if (box.ready.count > 0 or box.control.head != box.control.tail) and (
                    e.queues[<int64_t>port_id * e.plan.class_count + klass].pause_until_ps < e.now_ps):
                return False
    for node in range(e.plan.host_count):
        host = &e.hosts[node]
        if host.due.count > 0 or (e.scale_ups != NULL and e.scale_ups[node].inbound.count > 0):
            return False
        for index in range(host.timers.count):
            if timer_is_live(e, host.timers.entries[index].id):
                return False
    return not watch_can_act(e)


cdef inline int32_t run_heap(engine_t* e, ps_t stop_ps, int64_t hop_limit) noexcept nogil:
    """The classic scheduler: one heap of devices, one picosecond at a time, no shortcuts. The reference for windows."""
    cdef worker_t* w = e.worker
    cdef int32_t node
    cdef ps_t next_ps, limit_ps
    while True:
        if w.packet_hops >= hop_limit:
            return RUNNING
        if w.far.count == 0 and e.action_next_ps == FOREVER:
            return run_is_empty(e, w, stop_ps)
        next_ps = e.action_next_ps
        if w.far.count > 0 and w.far.entries[0].time_ps < next_ps:
            next_ps = w.far.entries[0].time_ps
        # A check comes after the actions and before the events of its instant.
        limit_ps = next_ps if e.action_next_ps == next_ps else next_ps + 1
        if unlikely(e.deadlock_next_ps < limit_ps) and deadlock_checks_before(
                e, w, limit_ps if next_ps < stop_ps else stop_ps):
            return DEADLOCKED
        if next_ps >= stop_ps:
            e.now_ps = stop_ps
            close_intervals_before(e, stop_ps)
            return STOPPED if work_left(e) else DRAINED
        e.now_ps = next_ps
        if unlikely(e.now_ps - w.last_hop_ps > STALL_PS) and window_is_stalled(e, w):
            return DRAINED
        if unlikely(e.action_next_ps == e.now_ps):
            close_intervals_before(e, e.now_ps)
            actions_run(e, w)
            continue
        node = w.far.entries[0].node
        timed_pop(&w.far)
        if e.node_far_ps[node] != e.now_ps:
            continue
        e.node_far_ps[node] = FOREVER
        close_intervals_before(e, e.now_ps)
        w.window_start_ps = e.now_ps
        w.limit_ps = e.now_ps + 1
        visit_device(e, w, node)
        if unlikely(e.fault.code != FAULT_NONE):
            return FAULTED
