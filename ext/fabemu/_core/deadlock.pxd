"""Deadlocks: egress queues that wait for one another for ever.

Owns      deadlock_check, the stuck masks, the rows of a cycle.
Invariant the stuck set is the greatest one whose every queue is paused for bytes that only its own members can free, so
          it does not depend on the order in which queues are struck off.
Order     judged between two instants, after the control actions of its time; docs/MODEL.md 17.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, ps_t, EVENT_ROW_DEADLOCK, KIND_MASK, KINDS_OF_LINKS, NONE,
                     UNUSUAL_CLASS_MAP)
from .state cimport engine_t, worker_t, pause_t, port_t, queue_t, switch_t
from .credit cimport credit_blocks, credit_limits, credit_suffices
from .link cimport link_enters_switch, link_peer
from .mmu cimport mmu_threshold_of
from .packet cimport packet_t, packet_class
from .pfc cimport pause_of
from .queue cimport queue_after
from .trace cimport event_record
from .watch cimport WATCHDOG_ALERT


cdef inline int64_t waiting_bytes(const engine_t* e, int32_t port_id, int32_t klass, int32_t egress_id,
                                  int64_t unit) noexcept nogil:
    """What the frames of a PG that wait at one egress port come to, each rounded up to whole units."""
    cdef const queue_t* queue = &e.queues[<int64_t>egress_id * e.plan.class_count + klass]
    cdef int32_t local = e.ports[port_id].local
    cdef const packet_t* packet = queue.first
    cdef int64_t total = 0
    if unit == 1 and (e.plan.lossless_mask >> klass) & 1:
        return e.queues[<int64_t>port_id * e.plan.class_count + klass].held[e.ports[egress_id].local]
    while packet != NULL:
        if packet.ingress == local:
            total += (packet.size + unit - 1) // unit * unit
        packet = queue_after(queue, packet)
    return total


cdef inline int64_t stuck_bytes(const engine_t* e, int32_t port_id, int32_t klass, int64_t unit) noexcept nogil:
    """The same for all stuck egress queues of its switch."""
    cdef int32_t node = e.ports[port_id].node
    cdef int32_t egress_id
    cdef int64_t total = 0
    for egress_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        if (e.stuck_mask[egress_id] >> klass) & 1:
            total += waiting_bytes(e, port_id, klass, egress_id, unit)
    return total


cdef inline int64_t stuck_over(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """What of them is above the PG's reserve."""
    cdef const queue_t* pg = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    cdef int64_t cell_bytes = e.switches[e.ports[port_id].node - e.plan.host_count].cell_bytes
    cdef int64_t over = stuck_bytes(e, port_id, klass, cell_bytes) - <int64_t>pg.reserved_bytes
    return over if over > 0 else 0


cdef inline int64_t stuck_pool(const engine_t* e, int32_t node) noexcept nogil:
    """What stuck frames, those of the headroom aside, will always take of the shared pool of a switch."""
    cdef int32_t port_id, klass
    cdef int64_t kept
    cdef int64_t total = 0
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        for klass in range(e.plan.class_count):
            kept = (stuck_over(e, port_id, klass)
                    - e.queues[<int64_t>port_id * e.plan.class_count + klass].headroom_used_bytes)
            if kept > 0:
                total += kept
    return total


cdef inline bint stays_paused(const engine_t* e, int32_t port_id, int32_t klass, int64_t pool_bytes) noexcept nogil:
    """Whether a PG will never give XON: its stuck frames alone are too much for that, or it has no others, so that
    nothing leaves it and XON is not judged. `pool_bytes` is what such frames take of the pool.

    On a link with credits: whether they leave no room for the frame that waits at the other end.
    """
    cdef const queue_t* pg = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    cdef const switch_t* mmu = &e.switches[e.ports[port_id].node - e.plan.host_count]
    cdef int64_t use
    if credit_limits(e, port_id):
        use = head_bytes(e, link_peer(e, &e.ports[port_id]), klass)
        return (e.lanes[<int64_t>port_id * e.plan.class_count + klass].capacity
                - stuck_bytes(e, port_id, klass, 64) // 64 < credit_blocks(use))
    use = stuck_over(e, port_id, klass)
    if use > 0 and use + <int64_t>pg.xon_offset_bytes > mmu_threshold_of(e, mmu, pg, mmu.pool_bytes - pool_bytes):
        return True
    use = stuck_bytes(e, port_id, klass, mmu.cell_bytes)
    return use > 0 and use == pg.reserved_used_bytes + pg.shared_used_bytes + pg.headroom_used_bytes and not (
        more_can_come(e, port_id, klass))


cdef inline bint more_can_come(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Whether a PG can get frames although the queue of its class at the other end of the link is paused."""
    cdef const port_t* port = &e.ports[port_id]
    cdef const packet_t* packet
    cdef uint32_t position = port.head
    if (e.switches[port.node - e.plan.host_count].unusual
            | e.switches[e.plan.port_node[link_peer(e, port)] - e.plan.host_count].unusual) & UNUSUAL_CLASS_MAP:
        return True
    while position != port.tail:
        packet = &port.ring[position & port.mask]
        if packet_class(packet) == <uint32_t>klass and not (KINDS_OF_LINKS >> (packet.kind & KIND_MASK)) & 1:
            return True
        position += 1
    return False


cdef inline int64_t head_bytes(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Size of the frame that an egress queue would send next."""
    return e.queues[<int64_t>port_id * e.plan.class_count + klass].first.size


cdef inline bint is_held_up(const engine_t* e, int32_t port_id, int32_t klass, ps_t now) noexcept nogil:
    """Whether a queue with frames lacks credits, or is paused by a standing XOFF and no watchdog will free it."""
    cdef const port_t* port = &e.ports[port_id]
    cdef const pause_t* pause = pause_of(e, link_peer(e, port), klass)
    cdef int64_t index = <int64_t>port_id * e.plan.class_count + klass
    if credit_limits(e, port_id):
        return not credit_suffices(e, port, port_id, klass, head_bytes(e, port_id, klass))
    if not (e.ports[link_peer(e, port)].xoff_mask >> klass) & 1 or e.queues[index].pause_until_ps <= now:
        return False
    if pause.start_ps < 0 or pause.start_ps > now:
        # It is paused by an XOFF before this one, whose XON is still on its way.
        return False
    return e.watches == NULL or not e.watches[index].is_watched or (
        e.watchdogs[port.node - e.plan.host_count].action == WATCHDOG_ALERT)


cdef inline bint xoff_stands(const engine_t* e) noexcept nogil:
    """Whether any switch holds its peers up by PFC."""
    cdef int32_t index
    for index in range(e.plan.node_count - e.plan.host_count):
        if e.switches[index].xoff_count > 0:
            return True
    return False


cdef inline bint deadlock_candidates(engine_t* e, ps_t now) noexcept nogil:
    """Mark every queue between switches that is held up; whether there is one."""
    cdef int32_t port_id, klass
    cdef uint8_t mask
    cdef bint found = False
    if e.lanes == NULL and not xoff_stands(e):
        return False
    for port_id in range(e.host_port_count, e.plan.port_count):
        mask = e.ports[port_id].waiting_mask if link_enters_switch(e, &e.ports[port_id]) else 0
        for klass in range(e.plan.class_count if mask else 0):
            if (mask >> klass) & 1 and not is_held_up(e, port_id, klass, now):
                mask &= <uint8_t>~(1 << klass)
        e.stuck_mask[port_id] = mask
        found |= mask != 0
    return found


cdef inline bint deadlock_reduce(engine_t* e, int32_t node) noexcept nogil:
    """Strike off the queues that wait for a PG of this switch and would be let go; whether any was."""
    cdef int64_t pool_bytes = -1
    cdef int32_t port_id, klass, waiting_id
    cdef uint32_t mask
    cdef uint8_t kept
    cdef bint struck = False
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        waiting_id = link_peer(e, &e.ports[port_id])
        mask = e.stuck_mask[waiting_id] if link_enters_switch(e, &e.ports[port_id]) else 0
        if mask == 0:
            continue
        if pool_bytes < 0:
            pool_bytes = stuck_pool(e, node)
        kept = <uint8_t>mask
        for klass in range(e.plan.class_count):
            if (mask >> klass) & 1 and not stays_paused(e, port_id, klass, pool_bytes):
                kept &= <uint8_t>~(1 << klass)
        if kept != mask:
            e.stuck_mask[waiting_id] = kept
            struck = True
    return struck


cdef inline bint deadlock_find(engine_t* e, ps_t now) noexcept nogil:
    """Work out the stuck set at `now`; whether it holds any queue."""
    cdef int32_t node, port_id
    cdef bint struck = True
    if not deadlock_candidates(e, now):
        return False
    while struck:
        struck = False
        for node in range(e.plan.host_count, e.plan.node_count):
            struck |= deadlock_reduce(e, node)
    for port_id in range(e.host_port_count, e.plan.port_count):
        if e.stuck_mask[port_id]:
            return True
    return False


cdef inline int32_t waits_for(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """The stuck egress port at the next switch that holds most of what this queue waits for; lowest port on ties."""
    cdef int32_t ingress_id = link_peer(e, &e.ports[port_id])
    cdef int32_t node = e.plan.port_node[ingress_id]
    cdef int32_t egress_id
    cdef int32_t best = -1
    cdef int64_t most = 0
    cdef int64_t waiting
    for egress_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        if (e.stuck_mask[egress_id] >> klass) & 1:
            waiting = waiting_bytes(e, ingress_id, klass, egress_id, 1)
            if waiting > most:
                most = waiting
                best = egress_id
    return best


cdef inline void deadlock_report(engine_t* e, worker_t* w, ps_t now) noexcept nogil:
    """One row per queue of the cycle that the smallest stuck (port, class) leads to."""
    cdef int32_t port_id = e.host_port_count
    cdef int32_t klass = 0
    cdef int32_t start, _step
    while e.stuck_mask[port_id] == 0:
        port_id += 1
    while not (e.stuck_mask[port_id] >> klass) & 1:
        klass += 1
    # As many steps as there are ports lead into the cycle for sure; it begins where the walk first came into it.
    start = port_id
    for _step in range(e.plan.port_count):
        start = waits_for(e, start, klass)
    while not deadlock_on_cycle(e, start, port_id, klass):
        port_id = waits_for(e, port_id, klass)
    start = port_id
    while True:
        event_record(e, w, now, EVENT_ROW_DEADLOCK, e.ports[port_id].node, port_id, klass, NONE,
                     e.queues[<int64_t>port_id * e.plan.class_count + klass].bytes, e.deadlock_count)
        port_id = waits_for(e, port_id, klass)
        if port_id == start:
            break
    e.deadlock_count += 1


cdef inline bint deadlock_on_cycle(const engine_t* e, int32_t start, int32_t port_id, int32_t klass) noexcept nogil:
    """Whether a port is on the cycle that `start` is on."""
    cdef int32_t walker = start
    while True:
        if walker == port_id:
            return True
        walker = waits_for(e, walker, klass)
        if walker == start:
            return False


cdef inline bint deadlock_check(engine_t* e, worker_t* w, ps_t now) noexcept nogil:
    """Look for a deadlock at `now` and report one that was not there at the last check; whether there is one."""
    cdef bint found = deadlock_find(e, now)
    if found and not e.is_deadlocked:
        deadlock_report(e, w, now)
    e.is_deadlocked = found
    return found


cdef inline bint deadlock_checks_before(engine_t* e, worker_t* w, ps_t limit_ps) noexcept nogil:
    """Make the checks that are due before `limit_ps`; True if the run is to end at one, and e.now_ps is its time then.

    Nothing has happened since the first of them, so the others would find the same.
    """
    cdef ps_t time_ps = e.deadlock_next_ps
    if time_ps >= limit_ps:
        return False
    e.deadlock_next_ps = ((limit_ps - 1) // e.plan.deadlock_interval_ps + 1) * e.plan.deadlock_interval_ps
    if deadlock_check(e, w, time_ps) and e.plan.deadlock_stop:
        e.now_ps = time_ps
        return True
    return False
