"""Control actions: what happens to the fabric itself at a given time.

Owns      the list of actions and how far it has come; which links are down, which lose frames, which table routes.
Invariant an action at t runs after every event before t and before any event at t, on whatever device; it touches one
          device only, and wakes it for what it leaves behind.
Order     docs/MODEL.md 18: by time, then as listed.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, ctz, unlikely, ACTION_ECN, ACTION_HEADROOM,
                     ACTION_LINK_DOWN, ACTION_LINK_UP, ACTION_LOSS, ACTION_MAP, ACTION_PFC, ACTION_RECEIVER,
                     ACTION_ROUTES, ACTION_STORM, DROP_LINK_DOWN, FOREVER, KINDS_OF_LINKS, KIND_MASK, NONE,
                     PAUSE_END_EXPIRY, PAUSE_END_LINK, PAUSE_END_XON, UNUSUAL_FAULT, WATCH_LOSS)
from .credit cimport credit_free, credit_limits, credit_link_down, credit_link_up
from .memory cimport pointer, zeroed
from .options cimport options_map_class
from .packet cimport packet_t, packet_class
from .state cimport engine_t, worker_t, pause_t, port_t, queue_t, switch_t
from .pfc cimport pause_cut_rows, pause_of, pause_row, pfc_silence
from .receiver cimport host_receiver_rate, host_storm
from .stats cimport drop_record, port_touch, stats_paused
from .switch cimport switch_flush
from .trace cimport event_record
from .wake cimport worker_of, events_count, port_kick, wake_at
from .watch cimport watch_changed


cdef inline int actions_init(engine_t* e, plan) except -1:
    """Borrow the actions of the plan; state of links and routes only if there are any."""
    cdef int64_t index
    cdef int64_t count = len(plan.action_time_ps)
    cdef int64_t queue_count = <int64_t>e.plan.port_count * e.plan.class_count
    e.action_next_ps = FOREVER
    e.plan.action_count = count
    e.plan.route_first = e.plan.route
    if count == 0:
        return 0
    if plan.scheduler == 2:
        raise ValueError("the compatibility scheduler performs no control actions")
    if len(plan.route) % plan.route_epochs:
        raise ValueError(f"{len(plan.route)} route entries are no {plan.route_epochs} tables of one size")
    e.plan.action_time_ps = <const ps_t*>pointer(plan.action_time_ps)
    e.plan.action_kind = <const uint8_t*>pointer(plan.action_kind)
    e.plan.action_target = <const int32_t*>pointer(plan.action_target)
    e.plan.action_mask = <const int32_t*>pointer(plan.action_mask)
    e.plan.action_value = <const int64_t*>pointer(plan.action_value)
    e.plan.loss_q32 = <const uint64_t*>pointer(plan.loss_q32)
    e.plan.pq_kmin_bytes = <const int64_t*>pointer(plan.pq_kmin_bytes)
    e.plan.loss_row_entries = plan.loss_size_max + 1
    e.plan.route_epoch_entries = len(plan.route) // plan.route_epochs
    e.action_next_ps = e.plan.action_time_ps[0]
    e.down = <uint8_t*>zeroed(&e.arena, e.plan.port_count, 1)
    e.lossy = <uint8_t*>zeroed(&e.arena, e.plan.port_count, 1)
    e.loss_row = <int32_t*>zeroed(&e.arena, 8 * <size_t>e.plan.port_count, sizeof(int32_t))
    e.headroom_most_bytes = <int64_t*>zeroed(&e.arena, queue_count, sizeof(int64_t))
    memcpy(e.headroom_most_bytes, pointer(plan.pq_headroom_bytes), queue_count * sizeof(int64_t))
    e.headroom_added_bytes = <int64_t*>zeroed(&e.arena, e.plan.node_count - e.plan.host_count, sizeof(int64_t))
    e.epoch_is_whole = <uint8_t*>zeroed(&e.arena, plan.route_epochs, 1)
    for index in range(8 * <int64_t>e.plan.port_count):
        e.loss_row[index] = NONE
    for index in range(plan.route_epochs):
        e.epoch_is_whole[index] = not (plan.route.reshape(plan.route_epochs, -1)[index] == -1).any()
    # The lane may be taken in the epochs without an entry that drops.
    if e.express_wanted:
        e.express = e.epoch_is_whole[0]
    return 0


cdef inline void fault_begin(switch_t* mmu) noexcept nogil:
    """Something at a switch is for the exact path."""
    mmu.fault_count += 1
    mmu.unusual |= UNUSUAL_FAULT


cdef inline void fault_end(switch_t* mmu) noexcept nogil:
    mmu.fault_count -= 1
    if mmu.fault_count == 0:
        mmu.unusual &= ~<uint32_t>UNUSUAL_FAULT


cdef inline void link_down(engine_t* e, worker_t* w, int32_t port_id, ps_t now) noexcept nogil:
    """The link of this end dies: what is on its way in is lost, and what a switch wanted to send by it."""
    cdef port_t* port = &e.ports[port_id]
    cdef bint is_switch = port.node >= e.plan.host_count
    cdef int64_t first = <int64_t>port_id * e.plan.class_count
    cdef const packet_t* packet
    cdef queue_t* queue
    cdef int32_t klass
    if e.down[port_id]:
        return
    e.down[port_id] = 1
    if is_switch:
        fault_begin(&e.switches[port.node - e.plan.host_count])
    while port.head != port.tail:
        packet = &port.ring[port.head & port.mask]
        port.head += 1
        w.link_received += 1
        if not (KINDS_OF_LINKS >> (packet.kind & KIND_MASK)) & 1:
            drop_record(e, w, packet, port.node, port_id, <int32_t>packet_class(packet), NONE, DROP_LINK_DOWN, now)
            credit_free(e, w, port_id, <int32_t>packet_class(packet), packet.size, now)
    e.pendings[port_id].head = e.pendings[port_id].tail
    port.pending_count = 0
    pause_cut_rows(e, w, port_id, now)
    for klass in range(e.plan.class_count):
        queue = &e.queues[first + klass]
        if queue.pause_until_ps > now:
            stats_paused(queue, now)
            queue.pause_until_ps = now
            queue.pause_since_ps = -1
            port_touch(e, w, port_id, klass)
            if e.watches != NULL:
                watch_changed(e, w, port.node, first + klass, now)
        if (e.plan.lossless_mask >> klass) & 1:
            pause_break_off(e, w, pause_of(e, port_id, klass) + 1, port_id, klass, now)
            pause_break_off(e, w, pause_of(e, port_id, klass), port_id, klass, now)
        if is_switch and (port.xoff_mask >> klass) & 1:
            e.switches[port.node - e.plan.host_count].xoff_count -= 1
    if is_switch and port.xoff_mask:
        e.switches[port.node - e.plan.host_count].headroom_untold = True
    port.xoff_mask = 0
    port.pfc_pending = 0
    port.refresh_ps = FOREVER
    if credit_limits(e, port_id):
        credit_link_down(e, port, port_id)
    if is_switch:
        for klass in range(e.plan.class_count):
            switch_flush(e, w, port.node, port, port_id, klass, DROP_LINK_DOWN, now)


cdef inline void pause_break_off(engine_t* e, worker_t* w, pause_t* pause, int32_t port_id, int32_t klass,
                                 ps_t now) noexcept nogil:
    """End an open row at the death of its link."""
    if pause.xoff_ps < 0:
        return
    if pause.start_ps < 0:
        pause.xon_ps = now
        pause_row(e, w, pause, port_id, klass, PAUSE_END_XON, now, now)
    elif pause.peer_until_ps <= now:
        pause_row(e, w, pause, port_id, klass, PAUSE_END_EXPIRY, pause.peer_until_ps, now)
    else:
        pause_row(e, w, pause, port_id, klass, PAUSE_END_LINK, pause.start_ps if pause.start_ps > now else now, now)


cdef inline void link_up(engine_t* e, worker_t* w, int32_t port_id, ps_t now) noexcept nogil:
    cdef port_t* port = &e.ports[port_id]
    if not e.down[port_id]:
        return
    e.down[port_id] = 0
    if credit_limits(e, port_id):
        credit_link_up(e, port, port_id)
    if port.node >= e.plan.host_count:
        # Nothing waits there.
        fault_end(&e.switches[port.node - e.plan.host_count])
        return
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void link_loss(engine_t* e, int32_t port_id, uint32_t kinds, int32_t row) noexcept nogil:
    """Frames of these kinds that this port sends from now on are lost by the probabilities of a row; -1: none is."""
    cdef int32_t kind, peer_node
    for kind in range(8):
        if (kinds >> kind) & 1:
            e.loss_row[8 * port_id + kind] = row
    e.link_watch |= WATCH_LOSS
    peer_node = e.plan.port_node[e.plan.port_peer[port_id]]
    if not e.lossy[port_id] and peer_node >= e.plan.host_count:
        # Frames that are lost on their way in are for the exact path; some may come long after the rule has ended.
        fault_begin(&e.switches[peer_node - e.plan.host_count])
    e.lossy[port_id] = 1


cdef inline void pfc_switch(engine_t* e, worker_t* w, int32_t port_id, uint32_t classes, bint on,
                            ps_t now) noexcept nogil:
    """Whether a port may raise XOFF for these classes, and lets itself be paused."""
    cdef port_t* port = &e.ports[port_id]
    cdef queue_t* queue
    cdef int32_t klass
    if on:
        e.pfc_send_mask[port_id] |= <uint8_t>classes
        e.pfc_obey_mask[port_id] |= <uint8_t>classes
        return
    if port.node >= e.plan.host_count:
        e.switches[port.node - e.plan.host_count].headroom_untold = True
    e.pfc_send_mask[port_id] &= <uint8_t>~classes
    e.pfc_obey_mask[port_id] &= <uint8_t>~classes
    for klass in range(e.plan.class_count):
        if not (classes >> klass) & 1:
            continue
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        if queue.pause_until_ps > now:
            stats_paused(queue, now)
            queue.pause_until_ps = now
            queue.pause_since_ps = -1
            port_touch(e, w, port_id, klass)
            if e.watches != NULL:
                watch_changed(e, w, port.node, <int64_t>port_id * e.plan.class_count + klass, now)
            port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)
        pfc_silence(e, w, port, port_id, klass, now)


cdef inline void ecn_switch(engine_t* e, int32_t port_id, uint32_t classes, bint on) noexcept nogil:
    cdef int64_t index
    cdef int32_t klass
    for klass in range(e.plan.class_count):
        index = <int64_t>port_id * e.plan.class_count + klass
        if (classes >> klass) & 1:
            # No queue is as long, so none is marked; the departures are counted as ever.
            e.queues[index].kmin_bytes = e.plan.pq_kmin_bytes[index] if on else FOREVER


cdef inline void headroom_set(engine_t* e, int32_t port_id, uint32_t classes, int64_t size) noexcept nogil:
    cdef int64_t index
    cdef int32_t klass
    for klass in range(e.plan.class_count):
        index = <int64_t>port_id * e.plan.class_count + klass
        if not (classes >> klass) & 1:
            continue
        e.queues[index].headroom_bytes = size
        if size > e.headroom_most_bytes[index]:
            e.headroom_added_bytes[e.ports[port_id].node - e.plan.host_count] += size - e.headroom_most_bytes[index]
            e.headroom_most_bytes[index] = size


cdef inline void action_record(engine_t* e, worker_t* w, int32_t kind, int32_t target, uint32_t mask, int64_t value,
                               ps_t now) noexcept nogil:
    """The row of an action in the events table."""
    cdef int32_t klass = NONE
    if kind == ACTION_ROUTES:
        event_record(e, w, now, kind, NONE, NONE, NONE, NONE, value, NONE)
    elif kind == ACTION_MAP:
        event_record(e, w, now, kind, e.plan.host_count + target, NONE, <int32_t>mask, NONE, value, NONE)
    else:
        if (kind == ACTION_PFC or kind == ACTION_ECN or kind == ACTION_HEADROOM or kind == ACTION_STORM) and (
                mask != 0 and mask & (mask - 1) == 0):
            klass = ctz(mask)
        event_record(e, w, now, kind, e.ports[target].node, target, klass, NONE, value, NONE)


cdef inline void action_perform(engine_t* e, worker_t* w, int64_t index, ps_t now) noexcept nogil:
    cdef int32_t kind = e.plan.action_kind[index]
    cdef int32_t target = e.plan.action_target[index]
    cdef uint32_t mask = <uint32_t>e.plan.action_mask[index]
    cdef int64_t value = e.plan.action_value[index]
    action_record(e, w, kind, target, mask, value, now)
    if kind == ACTION_MAP:
        options_map_class(e, e.plan.host_count + target, <int32_t>mask, <int32_t>value)
        return
    if kind == ACTION_ROUTES:
        e.plan.route = e.plan.route_first + value * e.plan.route_epoch_entries
        e.express = e.express_wanted and e.epoch_is_whole[value]
        return
    if kind == ACTION_LINK_DOWN:
        link_down(e, w, target, now)
    elif kind == ACTION_LINK_UP:
        link_up(e, w, target, now)
    elif kind == ACTION_LOSS:
        link_loss(e, target, mask, <int32_t>value)
    elif kind == ACTION_PFC:
        pfc_switch(e, w, target, mask, value != 0, now)
    elif kind == ACTION_ECN:
        ecn_switch(e, target, mask, value != 0)
    elif kind == ACTION_HEADROOM:
        headroom_set(e, target, mask, value)
    elif kind == ACTION_STORM:
        host_storm(e, w, target, mask, value != 0, now)
    elif kind == ACTION_RECEIVER:
        host_receiver_rate(e, target, value, now)
    if w.least_ps < FOREVER:
        wake_at(e, worker_of(e, e.ports[target].node), e.ports[target].node, w.least_ps)


cdef inline void actions_run(engine_t* e, worker_t* w) noexcept nogil:
    """Perform every action of the present time, e.now_ps; every event before it has run."""
    cdef ps_t now = e.now_ps
    # Outside of a visit: whatever is to come goes to port_next_ps and least_ps.
    w.instant_ps = -1
    w.limit_ps = now
    while e.action_next < e.plan.action_count and e.plan.action_time_ps[e.action_next] <= now:
        w.least_ps = FOREVER
        events_count(w, 1, now)
        action_perform(e, w, e.action_next, now)
        e.action_next += 1
    e.action_next_ps = FOREVER
    if e.action_next < e.plan.action_count:
        e.action_next_ps = e.plan.action_time_ps[e.action_next]
