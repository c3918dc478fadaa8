"""A plain switch stepped event by event, its usual events in one piece each.

Owns      sequence_applies, sequence_collect, sequence_run.
Invariant it leaves the very state that switch_arrival and switch_transmit would: no option, fault or watchdog concerns
          the switch, and nothing else happens at it at the instant of an event that is dealt with here.
Order     docs/MODEL.md 6. A frame that meets an idle port is neither charged nor queued if no threshold can be met:
          charge and release cancel out, and XON is judged by the departures of the frame's own PG alone.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t, ctz, likely, unlikely, prefetch,
                     prefetch_write, BALANCE_ECMP, EVENT_ARRIVAL, EVENT_PFC, EVENT_TRANSMIT, FAULT_BUSY, FAULT_MEMORY,
                     FAULT_NONE, FAULT_RELEASE, FAULT_TIME, FLAG_CE, FOREVER, KIND_CORRUPT, KIND_DATA, KIND_PFC, NONE)
from .memory cimport array_grow
from .packet cimport packet_is_of_link, packet_t, packet_class, packet_shape, packet_words
from .state cimport engine_t, worker_t, port_t, queue_t, switch_t
from .heaps cimport (KEY_CLASS_SHIFT, KEY_PORT_MASK, KEY_TIME_SHIFT, event_key, events_pop, events_push,
                     events_sift_down)
from .balance cimport NOWHERE, balance_note
from .ecmp cimport ecmp_draw, ecmp_row
from .ecn cimport ecn_draws
from .inbox cimport INBOX_END, inbox_merge, inbox_room
from .link cimport link_announce, link_digest, link_grow, link_look, link_wire_ps
from .mmu cimport mmu_wants_xoff
from .pfc cimport pfc_collect, pfc_lower, pfc_raise, pfc_receive, pfc_want_frame
from .queue cimport queue_append, queue_foresee, queue_remove
from .stats cimport port_touch, stats_area, stats_headroom, stats_sent
from .switch cimport switch_arrival, switch_transmit
from .wake cimport hop_noted, events_count, port_expect, port_kick

cdef enum:
    SEQUENCE_SPARE = 3            # places after the last key of heap and inbox
    AHEAD = 4                     # events between the first look at the port that receives and the second: 2^n


cdef inline bint sequence_applies(const engine_t* e, int32_t node) noexcept nogil:
    """Whether a switch may be stepped this way."""
    return (e.express_wanted and e.switches[node - e.plan.host_count].unusual == 0
            and (e.watches == NULL or e.watchdogs[node - e.plan.host_count].poll_ps == 0))


cdef inline bint sequence_close(engine_t* e, worker_t* w) noexcept nogil:
    """Put keys that no event has behind those of the heap, to which others may have added; False after a fault."""
    if unlikely(w.heap_count + SEQUENCE_SPARE > w.heap_capacity):
        if not array_grow(w.arena, <void**>&w.heap, w.heap_capacity, 2 * <int64_t>w.heap_capacity, sizeof(uint64_t)):
            e.fault.code = FAULT_MEMORY
            return False
        w.heap_capacity *= 2
    w.heap[w.heap_count] = INBOX_END
    w.heap[w.heap_count + 1] = INBOX_END
    w.heap[w.heap_count + 2] = INBOX_END
    return e.fault.code == FAULT_NONE


cdef inline bint sequence_open(engine_t* e, worker_t* w) noexcept nogil:
    """The same for heap and inbox."""
    cdef int64_t capacity = w.inbox_capacity
    if unlikely(w.inbox_count + SEQUENCE_SPARE > capacity):
        if not (array_grow(w.arena, <void**>&w.inbox, capacity, 2 * capacity, sizeof(uint64_t))
                and array_grow(w.arena, <void**>&w.inbox_spare, capacity, 2 * capacity, sizeof(uint64_t))):
            e.fault.code = FAULT_MEMORY
            return False
        w.inbox_capacity = 2 * capacity
    w.inbox[w.inbox_count] = INBOX_END
    w.inbox[w.inbox_count + 1] = INBOX_END
    return sequence_close(e, w)


cdef inline void sequence_approach(const engine_t* e, int32_t ingress_id, int32_t egress_id,
                                   int32_t klass) noexcept nogil:
    """Have fetched what an arrival meets at both its ports."""
    cdef int64_t class_count = e.plan.class_count
    prefetch(&e.ports[egress_id])
    prefetch(&e.queues[egress_id * class_count + klass])
    prefetch(&e.queues[egress_id * class_count + klass].kmin_bytes)
    prefetch(&e.queues[ingress_id * class_count + klass].reserved_used_bytes)


cdef inline void sequence_reach(const engine_t* e, int32_t* receivers, uint32_t turn, int32_t port_id) noexcept nogil:
    """Have fetched where a port receives, and where the next frame will lie of one that was looked at before."""
    cdef const port_t* before = &e.ports[receivers[turn & (AHEAD - 1)]]
    prefetch(&e.ports[port_id].ring)
    prefetch_write(&before.ring[before.tail & before.mask])
    receivers[turn & (AHEAD - 1)] = port_id


cdef inline void sequence_collect(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Take up the events of the ports that are due, as visit_collect does, and route the arrivals.

    Where each arrival leaves is noted in the packet, as a local port, or NOWHERE. Fetched ahead is what is far: the
    ends of links, frames that may have waited long, and in a large fabric all else that an event meets.
    """
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef const int32_t* routes = ecmp_row(&e.plan, node)
    cdef uint32_t seed = e.plan.node_seed[node]
    cdef bint balanced = e.switches[node - e.plan.host_count].balance != BALANCE_ECMP
    cdef int64_t class_count = e.plan.class_count
    cdef ps_t window_start_ps = w.window_start_ps
    cdef ps_t limit_ps = w.limit_ps
    cdef bint is_large = e.is_large
    cdef bint is_shared = e.crew_size > 1
    cdef int32_t[AHEAD] receivers
    cdef uint32_t turn = 0
    cdef uint64_t usual
    cdef int64_t count = 0
    cdef int64_t first            # key of a port's arrivals
    cdef int32_t sources = 0      # ports with arrivals
    cdef int32_t index, egress_id, local, port_id
    cdef uint32_t position, tail, mask
    cdef port_t* port
    cdef const queue_t* queue
    cdef packet_t* ring
    cdef packet_t* packet
    cdef uint64_t* keys
    cdef ps_t time_ps
    if unlikely(balanced):
        balance_note(e, w, node)
    for index in range(AHEAD):
        receivers[index] = first_port
    w.heap_count = 0
    w.inbox_next = 0
    for index in range(w.due_count):
        port_id = w.due[index]
        port = &e.ports[port_id]
        position = port.head
        tail = port.tail
        if position != tail:
            if unlikely(count + (tail - position) >= w.inbox_capacity):
                if not inbox_room(e, w, count + (tail - position) + 1):
                    return
            keys = w.inbox
            ring = port.ring
            mask = port.mask
            usual = event_key(0, EVENT_ARRIVAL, 0, <uint64_t>port.local)
            first = count
            while position != tail:
                packet = &ring[position & mask]
                time_ps = packet.time_ps
                if time_ps >= limit_ps:
                    break
                position += 1
                if unlikely(packet_is_of_link(packet)):
                    keys[count] = event_key(time_ps - window_start_ps, EVENT_PFC, 0, <uint64_t>port.local)
                    count += 1
                    continue
                keys[count] = <uint64_t>(time_ps - window_start_ps) << KEY_TIME_SHIFT | usual
                count += 1
                if unlikely(balanced):
                    local = NONE if packet.ingress == NOWHERE else <int32_t>packet.ingress
                else:
                    egress_id = ecmp_draw(&e.plan, routes, seed, packet.group, packet.dst, packet.hash)
                    # Below 0 without a route.
                    local = egress_id - (first_port & ~(egress_id >> 31))
                if unlikely(local < 0):
                    packet.ingress = NOWHERE
                    continue
                packet.ingress = <uint16_t>local
                if is_large:
                    sequence_approach(e, port_id, first_port + local, <int32_t>packet_class(packet))
                    # The port at the other end, unless that is another thread's.
                    sequence_reach(e, receivers, turn, e.ports[first_port + local].peer if is_shared
                                   else e.plan.port_peer[first_port + local])
                    turn += 1
                else:
                    prefetch(&e.ports[e.ports[first_port + local].peer].ring)
            w.run_end[sources] = <int32_t>count
            keys[count] = INBOX_END
            sources += count > first
            count += count > first
        if port.kick_ps < limit_ps:
            events_push(e, w, event_key(port.kick_ps - window_start_ps, EVENT_TRANSMIT, 0, <uint64_t>port.local))
            if is_large:
                sequence_reach(e, receivers, turn, port.peer)
                turn += 1
            else:
                prefetch(&e.ports[port.peer].ring)
            if port.waiting_mask:
                queue = &e.queues[port_id * class_count + ctz(port.waiting_mask)]
                prefetch(&queue.kmin_bytes)
                prefetch(queue.first)
                prefetch(queue.first + 2)
        if unlikely(port.refresh_ps < limit_ps or port.pending_count > 0):
            pfc_collect(e, w, port, port_id)
    inbox_merge(w, sources)


cdef inline void sequence_pop(worker_t* w) noexcept nogil:
    """Take the first key off the heap."""
    events_pop(w)
    w.heap[w.heap_count] = INBOX_END


cdef inline ps_t sequence_run(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run the events of the switch, as long as each is alone at its instant; -1 when none is left, or after a fault.

    Else the instant that is to be run otherwise. If an event has brought about several transmit choices of its own
    instant, those are to be run.
    """
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef port_t* ports = e.ports
    cdef queue_t* queues = e.queues
    cdef int64_t class_count = e.plan.class_count
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef uint32_t lossless_mask = e.plan.lossless_mask
    cdef ps_t latency_ps = mmu.latency_ps
    cdef ps_t window_start_ps = w.window_start_ps
    cdef int64_t hops = 0
    cdef int64_t events = 0
    cdef ps_t last_ps = 0         # of the last of them
    cdef ps_t last_hop_ps = 0
    cdef ps_t result_ps = -1
    cdef ps_t now, when_ps, next_ps, wire_ps
    cdef ps_t before_ps = w.instant_ps
    cdef const uint64_t* arrival
    cdef const uint64_t* heap
    cdef uint64_t key, following, usual
    cdef port_t* port
    cdef port_t* ingress
    cdef port_t* receiver
    cdef queue_t* queue
    cdef queue_t* pg
    cdef const packet_t* packet
    cdef packet_t* place
    cdef int32_t klass, port_id, ingress_id
    cdef int64_t size, free_bytes, rest, part
    cdef uint32_t mask
    cdef uint8_t marked
    cdef bint arrives, lossless, passes, keyed, counts
    if not sequence_open(e, w):
        return -1
    arrival = w.inbox + w.inbox_next
    heap = w.heap
    while True:
        # The smallest key, and the one that follows it. In inbox and heap one bit tells the usual event from others.
        key = arrival[0]
        arrives = key < heap[0]
        if arrives:
            following = arrival[1] if arrival[1] < heap[0] else heap[0]
            usual = key & (<uint64_t>EVENT_ARRIVAL << KEY_CLASS_SHIFT)
        else:
            following = key
            key = heap[0]
            if key == INBOX_END:
                break
            if heap[1] < following:
                following = heap[1]
            if heap[2] < following:
                following = heap[2]
            usual = key & (<uint64_t>EVENT_TRANSMIT << KEY_CLASS_SHIFT)
        now = window_start_ps + <ps_t>(key >> KEY_TIME_SHIFT)
        if unlikely(now <= before_ps):
            e.fault.code = FAULT_TIME
            break
        before_ps = now
        w.instant_ps = now
        if (key ^ following) >> KEY_TIME_SHIFT == 0:
            result_ps = now
            break
        port_id = first_port + <int32_t>(key & KEY_PORT_MASK)
        port = &ports[port_id]
        passes = False
        keyed = False
        if usual == 0:
            packet = &port.ring[port.head & port.mask]
            if not arrives or packet.kind != KIND_PFC:
                result_ps = now
                break
            arrival += 1
            port.head += 1
            events += 1
            last_ps = now
            pfc_receive(e, w, port, port_id, packet, now)
            if unlikely(not sequence_close(e, w)):
                break
            heap = w.heap
            if w.choice_count == 0:
                continue
        elif arrives:
            arrival += 1
            ingress = port
            ingress_id = port_id
            packet = &port.ring[port.head & port.mask]
            port.head += 1
            klass = <int32_t>packet_class(packet)
            port_id = packet.ingress
            events += 1
            last_ps = now
            if unlikely(port_id == NOWHERE or packet.kind & KIND_CORRUPT):
                switch_arrival(e, w, node, mmu, ingress_id, NONE, packet, now)
                if unlikely(e.fault.code != FAULT_NONE):
                    break
                continue
            port_id += first_port
            port = &ports[port_id]
            pg = &queues[ingress_id * class_count + klass]
            queue = &queues[port_id * class_count + klass]
            lossless = (lossless_mask >> klass) & 1
            size = packet.size
            free_bytes = mmu.pool_bytes - mmu.shared_used_bytes
            rest = size - (<int64_t>pg.reserved_bytes - pg.reserved_used_bytes)
            when_ps = now + latency_ps
            if port.busy_until_ps > when_ps:
                when_ps = port.busy_until_ps
            if queue.pause_until_ps > when_ps:
                when_ps = queue.pause_until_ps
            if when_ps == now and (port.waiting_mask | port.pfc_pending) == 0 and (
                    (not (ingress.xoff_mask >> klass) & 1 and pg.headroom_used_bytes == 0 and free_bytes >= size
                     and pg.shared_used_bytes + size < ((free_bytes - size) * pg.alpha_q16) >> 16)
                    if lossless else
                    (rest <= 0 or (rest <= free_bytes and pg.shared_used_bytes < (free_bytes * pg.alpha_q16) >> 16
                                   and (free_bytes * e.plan.pq_egress_alpha_q16[port_id * class_count + klass])
                                   >> 16 > 0))):
                # Straight through: its choice comes at this very instant.
                passes = True
                queue.bytes_max = size if size > queue.bytes_max else queue.bytes_max
                # Where nothing is paused that counts as one event.
                events += not lossless or mmu.xoff_count > 0
            else:
                if (rest <= 0) | ((rest <= free_bytes) & (
                        pg.shared_used_bytes < (free_bytes * pg.alpha_q16) >> 16) & (lossless or queue.bytes < (
                            free_bytes * e.plan.pq_egress_alpha_q16[port_id * class_count + klass]) >> 16)):
                    # Reserved first, the rest to the pool.
                    rest = rest if rest > 0 else 0
                    pg.reserved_used_bytes += size - rest
                    pg.shared_used_bytes += rest
                    mmu.shared_used_bytes += rest
                elif lossless and rest <= pg.headroom_bytes - pg.headroom_used_bytes:
                    pg.reserved_used_bytes = pg.reserved_bytes
                    pg.headroom_used_bytes += rest
                    stats_headroom(e, w, pg, ingress_id, klass)
                else:
                    # It will be dropped, and may raise XOFF all the same.
                    switch_arrival(e, w, node, mmu, ingress_id, port_id, packet, now)
                    if unlikely(not sequence_close(e, w)):
                        break
                    heap = w.heap
                    if w.choice_count > 0:
                        result_ps = now
                        break
                    continue
                stats_area(queue, now)
                queue.bytes += size
                queue.bytes_max = queue.bytes if queue.bytes > queue.bytes_max else queue.bytes_max
                place = queue_append(w, queue)
                if unlikely(place == NULL):
                    e.fault.code = FAULT_MEMORY
                    break
                memcpy(place, packet, sizeof(packet_t))
                place.ingress = <uint16_t>ingress.local
                port.waiting_mask |= <uint8_t>(1 << klass)
                port_touch(e, w, port_id, klass)
                if lossless:
                    pg.held[port_id - first_port] += <uint32_t>size
                    if not (ingress.xoff_mask >> klass) & 1 and mmu_wants_xoff(e, mmu, pg) and (
                            e.pfc_send_mask[ingress_id] >> klass) & 1:
                        pfc_raise(e, w, mmu, ingress, ingress_id, klass, now)
                        pfc_want_frame(e, w, ingress, ingress_id, now)
                        if unlikely(not sequence_close(e, w)):
                            break
                        heap = w.heap
                else:
                    mmu.lossy_bytes += size
                if when_ps < port.kick_ps:
                    port_kick(e, w, port, port_id, when_ps)
                    if unlikely(not sequence_close(e, w)):
                        break
                    heap = w.heap
                if w.choice_count == 0:
                    continue
        else:
            keyed = True
        if unlikely(w.choice_count > 1):
            result_ps = now
            break
        # What leaves at this instant: the frame that passes, or what the choice is that has a key, or that another
        # event has brought about.
        while True:
            if not passes:
                if not keyed:
                    port_id = first_port + w.choices[0]
                    port = &ports[port_id]
                    w.choice_count = 0
                if unlikely(port.kick_ps != now):
                    # A key that an earlier one has overtaken.
                    if keyed:
                        sequence_pop(w)
                    keyed = False
                    if w.choice_count == 1:
                        continue
                    break
                if unlikely(port.pfc_pending):
                    if keyed:
                        events_pop(w)
                    keyed = False
                    events += 1
                    last_ps = now
                    switch_transmit(e, w, node, port_id, now)
                    if unlikely(not sequence_close(e, w)):
                        break
                    heap = w.heap
                    if w.choice_count == 1:
                        continue
                    break
                port.kick_ps = FOREVER
                next_ps = FOREVER
                packet = NULL
                queue = NULL
                klass = 0
                mask = port.waiting_mask
                while mask:
                    klass = ctz(mask)
                    mask &= mask - 1
                    queue = &queues[port_id * class_count + klass]
                    packet = queue.first
                    when_ps = packet.time_ps + latency_ps
                    if queue.pause_until_ps > when_ps:
                        when_ps = queue.pause_until_ps
                    if when_ps <= now:
                        break
                    packet = NULL
                    if when_ps < next_ps:
                        next_ps = when_ps
                if packet != NULL:
                    events += 1
                    last_ps = now
                    size = packet.size
                    ingress_id = first_port + packet.ingress
                    pg = &queues[ingress_id * class_count + klass]
                    stats_area(queue, now)
                    queue_remove(w, queue)
                    queue.bytes -= size
                    if queue.first == NULL:
                        port.waiting_mask &= <uint8_t>~(1 << klass)
                    else:
                        # The PG of the frame that follows, and the frames after that.
                        prefetch(&queues[(first_port + queue.first.ingress) * class_count + klass].reserved_used_bytes)
                        queue_foresee(queue)
                    # Headroom, then shared, then reserved.
                    rest = size
                    part = pg.headroom_used_bytes if pg.headroom_used_bytes < rest else rest
                    pg.headroom_used_bytes -= part
                    rest -= part
                    part = pg.shared_used_bytes if pg.shared_used_bytes < rest else rest
                    pg.shared_used_bytes -= part
                    mmu.shared_used_bytes -= part
                    pg.reserved_used_bytes -= rest - part
                    if unlikely((pg.reserved_used_bytes | mmu.shared_used_bytes) < 0):
                        e.fault.code = FAULT_RELEASE
                        break
                    if (lossless_mask >> klass) & 1:
                        pg.held[port.local] -= <uint32_t>size
                        # mmu_wants_xon in one piece, for no part of it can be guessed.
                        free_bytes = mmu.pool_bytes - mmu.shared_used_bytes
                        if unlikely((ports[ingress_id].xoff_mask >> klass) & (pg.headroom_used_bytes == 0) & (
                                (pg.shared_used_bytes == 0) | (pg.shared_used_bytes + <int64_t>pg.xon_offset_bytes
                                                               <= (free_bytes * pg.alpha_q16) >> 16))):
                            pfc_lower(e, w, &ports[ingress_id], ingress_id, klass, now)
                            pfc_want_frame(e, w, &ports[ingress_id], ingress_id, now)
                            if unlikely(not sequence_close(e, w)):
                                break
                            heap = w.heap
                    else:
                        mmu.lossy_bytes -= size
                    next_ps = FOREVER
                    if port.waiting_mask | port.pfc_pending:
                        next_ps = now + link_wire_ps(&e.plan, port, size)
                if next_ps < port.kick_ps:
                    port.kick_ps = next_ps
                    if next_ps >= w.limit_ps:
                        port_expect(e, w, port_id, next_ps)
                        if keyed:
                            sequence_pop(w)
                    elif keyed:
                        events_sift_down(w, 0, event_key(next_ps - window_start_ps, EVENT_TRANSMIT, 0,
                                                         <uint64_t>port.local))
                    else:
                        events_push(e, w, event_key(next_ps - window_start_ps, EVENT_TRANSMIT, 0,
                                                    <uint64_t>port.local))
                        if unlikely(not sequence_close(e, w)):
                            break
                        heap = w.heap
                elif keyed:
                    sequence_pop(w)
                keyed = False
                if packet == NULL:
                    if w.choice_count == 1:
                        continue
                    break
            passes = False
            # The frame starts to leave.
            marked = 0
            counts = (packet.kind == KIND_DATA) & (e.plan.class_ecn[klass] != 0)
            # A frame that leaves the queue empty needs none of its limits.
            if counts & (queue.bytes > 0) and queue.bytes > queue.kmin_bytes and ecn_draws(
                    e, queue, port_id, klass, queue.bytes, queue.ecn_count):
                queue.marks += 1
                w.marks += 1
                marked = FLAG_CE
            queue.ecn_count += counts
            receiver = &ports[port.peer]
            wire_ps = link_wire_ps(&e.plan, port, size)
            if unlikely(now < port.busy_until_ps):
                e.fault.code = FAULT_BUSY
                e.fault.time_ps = now
                e.fault.node = node
                e.fault.port = port_id
                break
            if unlikely(receiver.tail - receiver.head == receiver.mask + 1):
                if not link_grow(e, w, port.peer, receiver.head):
                    break
            port.busy_until_ps = now + wire_ps
            port.busy_ps += wire_ps
            place = &receiver.ring[receiver.tail & receiver.mask]
            memcpy(place, packet, sizeof(packet_t))
            place.flags |= marked
            when_ps = port.busy_until_ps + port.delay_ps
            place.time_ps = when_ps
            # Read from where the packet was: a wide load of what was just stored in parts would wait for it.
            port.digest = link_digest(port.digest, packet_words(packet.qp, packet.psn), packet_shape(
                packet.size, packet.kind, packet.flags) | <uint32_t>marked << 24, now)
            if unlikely(e.link_watch):
                link_look(e, w, port, port_id, place, now)
            receiver.tail += 1
            link_announce(e, w, port, receiver.tail - receiver.head == 1, when_ps)
            port.hops += 1
            port.sent_bytes += size
            hops += 1
            last_hop_ps = now
            stats_sent(queue, size)
            port_touch(e, w, port_id, klass)
            if likely(w.choice_count != 1):
                break
        if unlikely(w.choice_count > 0):
            result_ps = now
            break
        if unlikely(e.fault.code != FAULT_NONE):
            break
    if unlikely(e.fault.code != FAULT_NONE):
        result_ps = -1
        if e.fault.time_ps == 0:
            e.fault.time_ps = before_ps
            e.fault.node = node
    w.link_received += arrival - (w.inbox + w.inbox_next)
    w.inbox_next = arrival - w.inbox
    w.link_sent += hops
    w.packet_hops += hops
    hop_noted(w, last_hop_ps)
    if events > 0:
        events_count(w, events, last_ps)
    return result_ps
