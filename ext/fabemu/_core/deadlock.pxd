"""Deadlocks: egress queues that wait for one another for ever.

Owns      deadlock_check, the stuck masks, the rows of a cycle.
Invariant the stuck set is the greatest one whose every queue is paused for bytes that only its own members can free, so
          it does not depend on the order in which queues are struck off.
Order     judged between two instants, after the control actions of its time; docs/MODEL.md 17.
"""
from .types cimport int32_t, int64_t, uint8_t, uint32_t, ps_t, EVENT_ROW_DEADLOCK, NONE
from .state cimport engine_t, worker_t, port_t, queue_t, switch_t
from .mmu cimport mmu_charged, mmu_threshold_of
from .trace cimport event_record
from .watch cimport WATCHDOG_ALERT


cdef inline int64_t stuck_bytes(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Bytes of a PG that wait in stuck egress queues of its switch."""
    cdef const uint32_t* held = e.queues[<int64_t>port_id * e.plan.class_count + klass].held
    cdef int32_t node = e.ports[port_id].node
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef int32_t egress_id
    cdef int64_t total = 0
    for egress_id in range(first_port, e.plan.node_port_start[node + 1]):
        if (e.stuck_mask[egress_id] >> klass) & 1 and held[egress_id - first_port] > 0:
            if e.switches[node - e.plan.host_count].cell_bytes == 1:
                total += held[egress_id - first_port]
            else:
                total += charged_bytes(e, egress_id, klass, port_id - first_port)
    return total


cdef inline int64_t charged_bytes(const engine_t* e, int32_t egress_id, int32_t klass, int32_t ingress) noexcept nogil:
    """What the frames of an egress queue that came in by one port (local index) take of the buffer, in cells."""
    cdef const queue_t* queue = &e.queues[<int64_t>egress_id * e.plan.class_count + klass]
    cdef const switch_t* mmu = &e.switches[e.ports[egress_id].node - e.plan.host_count]
    cdef uint32_t position = queue.head
    cdef int64_t total = 0
    while position != queue.tail:
        if queue.buffer[position & queue.mask].ingress == ingress:
            total += mmu_charged(mmu, queue.buffer[position & queue.mask].size)
        position += 1
    return total


cdef inline int64_t stuck_over(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """What of them is above the PG's reserve."""
    cdef int64_t over = stuck_bytes(e, port_id, klass) - (
        <int64_t>e.queues[<int64_t>port_id * e.plan.class_count + klass].reserved_bytes)
    return over if over > 0 else 0


cdef inline int64_t stuck_pool(const engine_t* e, int32_t node) noexcept nogil:
    """Use of the shared pool of a switch if nothing was left in it but stuck frames."""
    cdef int32_t port_id, klass
    cdef int64_t total = 0
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        for klass in range(e.plan.class_count):
            if (e.plan.lossless_mask >> klass) & 1:
                total += stuck_over(e, port_id, klass)
    return total


cdef inline bint stays_paused(const engine_t* e, int32_t port_id, int32_t klass, int64_t pool_bytes) noexcept nogil:
    """Whether a PG would give no XON with its stuck frames alone, `pool_bytes` being the pool's use by such frames."""
    cdef const queue_t* pg = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    cdef const switch_t* mmu = &e.switches[e.ports[port_id].node - e.plan.host_count]
    cdef int64_t use = stuck_over(e, port_id, klass)
    return use > 0 and use + <int64_t>pg.xon_offset_bytes > mmu_threshold_of(
        e, mmu, pg, mmu.pool_bytes - pool_bytes)


cdef inline bint deadlock_candidates(engine_t* e, ps_t now) noexcept nogil:
    """Mark every queue that is paused by the XOFF of a switch and that no watchdog will free; whether there is one."""
    cdef int32_t port_id, klass
    cdef int64_t index
    cdef uint8_t mask
    cdef bint found = False
    cdef const port_t* port
    for port_id in range(e.plan.node_port_start[e.plan.host_count], e.plan.port_count):
        port = &e.ports[port_id]
        mask = 0
        if port.peer_node >= e.plan.host_count:
            mask = port.waiting_mask & e.ports[port.peer].xoff_mask
        for klass in range(e.plan.class_count if mask else 0):
            index = <int64_t>port_id * e.plan.class_count + klass
            if e.queues[index].pause_until_ps <= now or (
                    e.watches != NULL and e.watches[index].is_watched
                    and e.watchdogs[port.node - e.plan.host_count].action != WATCHDOG_ALERT):
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
        waiting_id = e.ports[port_id].peer
        mask = e.stuck_mask[waiting_id] if e.ports[port_id].peer_node >= e.plan.host_count else 0
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
    for port_id in range(e.plan.node_port_start[e.plan.host_count], e.plan.port_count):
        if e.stuck_mask[port_id]:
            return True
    return False


cdef inline int32_t waits_for(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """The stuck egress port at the next switch that holds most of what this queue waits for; lowest port on ties."""
    cdef const port_t* port = &e.ports[port_id]
    cdef const uint32_t* held = e.queues[<int64_t>port.peer * e.plan.class_count + klass].held
    cdef int32_t first_port = e.plan.node_port_start[port.peer_node]
    cdef int32_t egress_id
    cdef int32_t best = -1
    cdef uint32_t most = 0
    for egress_id in range(first_port, e.plan.node_port_start[port.peer_node + 1]):
        if (e.stuck_mask[egress_id] >> klass) & 1 and held[egress_id - first_port] > most:
            most = held[egress_id - first_port]
            best = egress_id
    return best


cdef inline void deadlock_report(engine_t* e, worker_t* w, ps_t now) noexcept nogil:
    """One row per queue of the cycle that the smallest stuck (port, class) leads to."""
    cdef int32_t port_id = e.plan.node_port_start[e.plan.host_count]
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
