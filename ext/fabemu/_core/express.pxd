"""The express lane: a switch that can meet no threshold within a window serves each egress port by itself.

Owns      express_try and the lists of this visit's arrivals by egress port.
Invariant it leaves the very state that visiting instant by instant would: with no XOFF standing and none possible,
          ports do not touch each other, and what a PG holds in reserved and shared is a function of its bytes alone.
          So a frame that comes and goes within the visit is never charged, and never copied into a queue.
Order     within an egress port as in docs/MODEL.md 5: arrivals of an instant in keyed order, then the choice.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t, ctz, unlikely, prefetch,
                     prefetch_write, FAULT_MEMORY, FOREVER, KIND_MASK, KINDS_OF_LINKS, NONE)
from .memory cimport array_grow
from .packet cimport packet_t, packet_class, packets_grow
from .state cimport bound_t, engine_t, express_t, worker_t, port_t, queue_t, switch_t
from .heaps cimport KEY_TIME_SHIFT
from .credit cimport pending_send
from .ecmp cimport ecmp_choose, ecmp_row
from .inbox cimport inbox_add, inbox_sort
from .link cimport burst_t, burst_close, burst_open, burst_send
from .mmu cimport mmu_charge
from .stats cimport port_touch, stats_area, stats_sent
from .switch cimport switch_dequeue, switch_mark
from .ties cimport sort_ports
from .wake cimport events_count, port_expect


cdef inline bint express_grow(engine_t* e, worker_t* w) noexcept nogil:
    if not array_grow(w.arena, <void**>&w.express, w.express_capacity, 2 * w.express_capacity, sizeof(express_t)):
        e.fault.code = FAULT_MEMORY
        return False
    w.express_capacity *= 2
    return True


cdef inline void express_approach(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Have the state of an egress port that will be served fetched."""
    cdef const queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    prefetch(&e.ports[port_id])
    prefetch(queue)
    prefetch(&queue.tx_bytes)


cdef inline void express_prepare(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Have what an egress port will read and write fetched: the head of its queue, the tails of queue and link."""
    cdef const port_t* port = &e.ports[port_id]
    cdef const port_t* receiver = &e.ports[port.peer]
    cdef const queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    prefetch_write(&receiver.ring[receiver.tail & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 2) & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 4) & receiver.mask])
    if queue.head != queue.tail:
        prefetch(&queue.buffer[queue.head & queue.mask])
        prefetch(&queue.buffer[(queue.head + 2) & queue.mask])
        prefetch(&queue.buffer[(queue.head + 4) & queue.mask])
        prefetch_write(&queue.buffer[queue.tail & queue.mask])
        prefetch_write(&queue.buffer[(queue.tail + 2) & queue.mask])
        prefetch_write(&queue.buffer[(queue.tail + 4) & queue.mask])


cdef inline void express_insert(express_t* list, bound_t* bound, int32_t inserted) noexcept nogil:
    """Put an arrival where it belongs in a list whose last one is not earlier; ties are left to a sort."""
    cdef ps_t time_ps = list[inserted].time_ps
    cdef int32_t before = bound.cursor
    cdef int32_t steps = 0
    # Arrivals of one link come in order: go on from where the last of them went.
    if list[before].ingress != list[inserted].ingress:
        before = bound.head
        if list[before].time_ps >= time_ps:
            bound.mixed = list[before].time_ps == time_ps
            list[inserted].next = before
            bound.head = inserted
            return
    # There is a later one, since the last is not earlier.
    while list[list[before].next].time_ps < time_ps:
        before = list[before].next
        steps += 1
        if unlikely(steps == 64):
            bound.mixed = 1
            break
    if list[list[before].next].time_ps == time_ps:
        bound.mixed = 1
    list[inserted].next = list[before].next
    list[before].next = inserted


cdef inline int32_t express_gather(engine_t* e, worker_t* w, int32_t node, int32_t* touched) noexcept nogil:
    """Put this visit's arrivals into lists by egress port; their number, or -1 if one is for the exact path.

    `touched` counts the egress ports, whose local numbers are in w.choices.
    """
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef const int32_t* routes = ecmp_row(&e.plan, node)
    cdef uint32_t seed = e.plan.node_seed[node]
    cdef ps_t limit_ps = w.limit_ps
    cdef express_t* list = w.express
    cdef bound_t* bound
    cdef int32_t count = 0
    cdef int32_t index, egress_id, ingress
    cdef uint32_t position, tail, mask, classes
    cdef int64_t bytes
    cdef const port_t* port
    cdef const packet_t* ring
    cdef const packet_t* packet
    cdef express_t* entry
    w.inbox_bytes = 0
    for index in range(w.due_count):
        port = &e.ports[w.due[index]]
        if unlikely(port.pending_count > 0 or port.refresh_ps < limit_ps):
            return -1
        ring = port.ring
        mask = port.mask
        tail = port.tail
        ingress = port.local
        position = port.head
        bytes = 0
        classes = 0
        while position != tail:
            packet = &ring[position & mask]
            if packet.time_ps >= limit_ps:
                break
            position += 1
            if unlikely((KINDS_OF_LINKS >> (packet.kind & KIND_MASK)) & 1):
                return -1
            if unlikely(count == w.express_capacity):
                if not express_grow(e, w):
                    return -1
                list = w.express
            egress_id = ecmp_choose(&e.plan, routes, seed, packet.group, packet.dst, packet.hash)
            bound = &w.bound[egress_id - first_port]
            entry = &list[count]
            entry.packet = packet
            entry.time_ps = packet.time_ps
            entry.ingress = ingress
            entry.next = -1
            entry.klass = <int32_t>packet_class(packet)
            classes |= <uint32_t>1 << packet_class(packet)
            bytes += packet.size
            if not (bound.classes >> packet_class(packet)) & 1:
                bound.classes |= <uint16_t>(1 << packet_class(packet))
                express_approach(e, egress_id, <int32_t>packet_class(packet))
            if bound.head < 0:
                bound.head = count
                bound.tail = count
                bound.last_ps = packet.time_ps
                w.choices[touched[0]] = egress_id - first_port
                touched[0] += 1
            elif bound.last_ps < packet.time_ps or bound.mixed:
                list[bound.tail].next = count
                bound.tail = count
                bound.last_ps = packet.time_ps
            else:
                express_insert(list, bound, count)
            bound.cursor = count
            count += 1
        if classes:
            # Where frames that stay are charged.
            prefetch_write(&e.queues[<int64_t>w.due[index] * e.plan.class_count + ctz(classes)].reserved_used_bytes)
        w.due_end[index] = position
        w.due_bytes[index] = bytes
        w.due_classes[index] = classes
        w.inbox_bytes += bytes
    return count


cdef inline bint express_applies(const engine_t* e, const worker_t* w, int32_t node) noexcept nogil:
    """Whether no arrival of this visit can be dropped or raise XOFF, even if nothing left in the meantime."""
    cdef const switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int64_t free_bytes = mmu.pool_bytes - mmu.shared_used_bytes - w.inbox_bytes
    cdef const queue_t* pg
    cdef int32_t index, klass
    cdef uint32_t classes
    cdef uint32_t present = 0
    if free_bytes < 0:
        return False
    for index in range(w.due_count):
        present |= w.due_classes[index]
    # No PG has more than all of them; XOFF stands for one that uses headroom.
    if mmu.shared_used_bytes + w.inbox_bytes >= (free_bytes * mmu.alpha_min_q16) >> 16:
        for index in range(w.due_count):
            classes = w.due_classes[index]
            for klass in range(e.plan.class_count):
                if not (classes >> klass) & 1:
                    continue
                pg = &e.queues[<int64_t>w.due[index] * e.plan.class_count + klass]
                if pg.headroom_used_bytes > 0 or (
                        pg.shared_used_bytes + w.due_bytes[index] >= (free_bytes * pg.alpha_q16) >> 16):
                    return False
    present &= ~e.plan.lossless_mask
    return present == 0 or express_fits_lossy(e, w, node, present, free_bytes)


cdef inline bint express_fits_lossy(const engine_t* e, const worker_t* w, int32_t node, uint32_t classes,
                                    int64_t free_bytes) noexcept nogil:
    """Whether frames of these lossy classes meet no limit of a PG or an egress queue, wherever they go."""
    cdef const switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef const queue_t* pg
    cdef int32_t index, klass
    cdef int64_t least_q16
    for klass in range(e.plan.class_count):
        if not (classes >> klass) & 1:
            continue
        least_q16 = e.egress_alpha_min_q16[(node - e.plan.host_count) * e.plan.class_count + klass]
        if mmu.lossy_bytes + w.inbox_bytes >= (free_bytes * least_q16) >> 16:
            return False
        for index in range(w.due_count):
            pg = &e.queues[<int64_t>w.due[index] * e.plan.class_count + klass]
            if (w.due_classes[index] >> klass) & 1 and (
                    pg.shared_used_bytes + w.due_bytes[index] >= (free_bytes * pg.alpha_q16) >> 16):
                return False
    return True


cdef inline void express_sort(engine_t* e, worker_t* w, int32_t local) noexcept nogil:
    """Bring the arrivals for one egress port into order: by time, those of an instant in keyed order."""
    cdef bound_t* bound = &w.bound[local]
    cdef int32_t index = bound.head
    cdef int64_t first, end, position
    cdef int32_t entry, last
    cdef ps_t now
    w.inbox_count = 0
    while index >= 0:
        inbox_add(e, w, (<uint64_t>(w.express[index].time_ps - w.window_start_ps) << KEY_TIME_SHIFT)
                  | <uint64_t>index)
        index = w.express[index].next
    inbox_sort(w)
    last = -1
    first = 0
    while first < w.inbox_count:
        end = first + 1
        while end < w.inbox_count and w.inbox[end] >> KEY_TIME_SHIFT == w.inbox[first] >> KEY_TIME_SHIFT:
            end += 1
        for position in range(first, end):
            entry = <int32_t>(w.inbox[position] & ((1 << KEY_TIME_SHIFT) - 1))
            w.egress[position - first] = entry
            w.arrivals[position - first] = w.express[entry].ingress
        if end - first > 1:
            now = w.express[w.egress[0]].time_ps
            sort_ports(w, w.arrivals, w.egress, <int32_t>(end - first), now)
        for position in range(end - first):
            entry = w.egress[position]
            if last < 0:
                bound.head = entry
            else:
                w.express[last].next = entry
            last = entry
        first = end
    w.express[last].next = -1


cdef inline void express_leave(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, port_t* port,
                               queue_t* queue, const express_t* entry) noexcept nogil:
    """A frame that still waits at the end of the visit: charge it and put it into its queue."""
    cdef queue_t* pg = &e.queues[<int64_t>(first_port + entry.ingress) * e.plan.class_count + entry.klass]
    cdef packet_t* place
    mmu_charge(mmu, pg, entry.packet.size)
    if (e.plan.lossless_mask >> entry.klass) & 1:
        pg.held[port.local] += <uint32_t>entry.packet.size
    else:
        mmu.lossy_bytes += entry.packet.size
    if unlikely(queue.tail - queue.head == queue.mask + 1):
        if not packets_grow(w.arena, &queue.buffer, &queue.mask, queue.head):
            e.fault.code = FAULT_MEMORY
            return
    place = &queue.buffer[queue.tail & queue.mask]
    memcpy(place, entry.packet, sizeof(packet_t))
    place.ingress = <uint16_t>entry.ingress
    queue.tail += 1


cdef inline void express_serve(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, int32_t port_id,
                               int32_t arriving) noexcept nogil:
    """Serve one egress port to the end of the visit: its arrivals from list entry `arriving` on, and its choices."""
    cdef port_t* port = &e.ports[port_id]
    cdef queue_t* queues = &e.queues[<int64_t>port_id * e.plan.class_count]
    cdef express_t* arrivals = w.express
    cdef express_t* entry
    cdef queue_t* queue = queues
    cdef const packet_t* packet
    cdef burst_t burst
    cdef int32_t heads[8]
    cdef int32_t tails[8]
    cdef uint32_t fresh = 0       # classes in which arrivals of this visit wait
    cdef uint32_t mask
    cdef ps_t latency_ps = mmu.latency_ps
    cdef ps_t next_ps = port.kick_ps
    cdef ps_t arrival_ps = arrivals[arriving].time_ps if arriving >= 0 else FOREVER
    cdef ps_t eligible_ps
    cdef ps_t now = -1
    cdef int64_t events = 0
    cdef int32_t klass = 0
    port.kick_ps = FOREVER
    burst.port = NULL
    burst.count = 0
    burst.busy_until_ps = port.busy_until_ps
    while True:
        if next_ps < arrival_ps:
            # A transmit choice.
            if next_ps >= w.limit_ps:
                break
            now = next_ps
            next_ps = FOREVER
            if unlikely(port.pfc_pending):
                burst_close(e, w, &burst)
                pending_send(e, w, port, port_id, now)
                burst.port = NULL
                burst.count = 0
                burst.busy_until_ps = port.busy_until_ps
                events += 1
                if port.waiting_mask | fresh:
                    next_ps = port.busy_until_ps
                continue
            packet = NULL
            mask = port.waiting_mask | fresh
            while mask:
                klass = ctz(mask)
                mask &= mask - 1
                queue = &queues[klass]
                entry = NULL
                if queue.head != queue.tail:
                    packet = &queue.buffer[queue.head & queue.mask]
                else:
                    entry = &arrivals[heads[klass]]
                    packet = entry.packet
                eligible_ps = packet.time_ps + latency_ps
                if queue.pause_until_ps > eligible_ps:
                    eligible_ps = queue.pause_until_ps
                if eligible_ps > now:
                    if eligible_ps < next_ps:
                        next_ps = eligible_ps
                    packet = NULL
                    continue
                if entry == NULL:
                    switch_dequeue(e, w, mmu, first_port, port, port_id, klass, queue, now)
                else:
                    stats_area(queue, now)
                    queue.bytes -= packet.size
                    heads[klass] = entry.queue_next
                    if entry.queue_next < 0:
                        fresh &= ~(<uint32_t>1 << klass)
                break
            if packet == NULL:
                continue
        elif arriving < 0:
            break
        else:
            entry = &arrivals[arriving]
            packet = entry.packet
            klass = entry.klass
            queue = &queues[klass]
            events += 1
            now = arrival_ps
            arriving = entry.next
            arrival_ps = arrivals[arriving].time_ps if arriving >= 0 else FOREVER
            if (next_ps < FOREVER or burst.busy_until_ps > now or latency_ps > 0 or arrival_ps == now
                    or queue.pause_until_ps > now or (port.waiting_mask | port.pfc_pending | fresh) != 0):
                stats_area(queue, now)
                queue.bytes += packet.size
                if queue.bytes > queue.bytes_max:
                    queue.bytes_max = queue.bytes
                eligible_ps = now + latency_ps
                if (fresh >> klass) & 1:
                    arrivals[tails[klass]].queue_next = <int32_t>(entry - arrivals)
                    tails[klass] = <int32_t>(entry - arrivals)
                    entry.queue_next = -1
                elif eligible_ps >= w.limit_ps:
                    # It stays, and so will all that follow it in its class.
                    express_leave(e, w, mmu, first_port, port, queue, entry)
                    port.waiting_mask |= <uint8_t>(1 << klass)
                    port_touch(e, w, port_id)
                else:
                    heads[klass] = <int32_t>(entry - arrivals)
                    tails[klass] = <int32_t>(entry - arrivals)
                    entry.queue_next = -1
                    fresh |= <uint32_t>1 << klass
                if burst.busy_until_ps > eligible_ps:
                    eligible_ps = burst.busy_until_ps
                if queue.pause_until_ps > eligible_ps:
                    eligible_ps = queue.pause_until_ps
                if eligible_ps < next_ps:
                    next_ps = eligible_ps
                continue
            # Its choice comes at this very instant, and nothing before it can make a difference.
            events -= 1
            if queue.bytes_max < packet.size:
                queue.bytes_max = packet.size
        events += 1
        stats_sent(queue, packet.size)
        if burst.port == NULL:
            burst_open(e, &burst, port)
        burst_send(e, w, &burst, port_id, packet, switch_mark(e, w, queue, port_id, klass, packet), now)
        if port.waiting_mask | fresh:
            next_ps = burst.busy_until_ps
    burst_close(e, w, &burst)
    if events > 0:
        events_count(w, events, now)
    if burst.count > 0 or fresh:
        port_touch(e, w, port_id)
    port.waiting_mask |= <uint8_t>fresh
    while fresh:
        klass = ctz(fresh)
        fresh &= fresh - 1
        arriving = heads[klass]
        while arriving >= 0:
            express_leave(e, w, mmu, first_port, port, &queues[klass], &arrivals[arriving])
            arriving = arrivals[arriving].queue_next
    port.kick_ps = next_ps
    if next_ps < FOREVER:
        port_expect(e, w, port_id, next_ps)


cdef inline bint express_try(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run the whole visit, if nothing in it can meet a threshold; False, and nothing has changed, otherwise."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t touched = 0
    cdef int32_t index, local, count, klass
    cdef const port_t* port
    cdef bound_t* bound
    if not e.express or mmu.xoff_count > 0 or mmu.unusual != 0:
        return False
    if unlikely(e.watches != NULL) and e.watchdogs[node - e.plan.host_count].poll_ps > 0:
        # The watchdog wants to know of every departure.
        return False
    count = express_gather(e, w, node, &touched)
    if count < 0 or not express_applies(e, w, node):
        for index in range(touched):
            bound = &w.bound[w.choices[index]]
            bound.head = NONE
            bound.classes = 0
            bound.mixed = 0
        return False
    for index in range(w.due_count):
        local = w.due[index] - first_port
        port = &e.ports[w.due[index]]
        if w.bound[local].head < 0 and port.kick_ps < w.limit_ps:
            w.choices[touched] = local
            touched += 1
            express_approach(e, w.due[index], ctz(port.waiting_mask) if port.waiting_mask else 0)
    for index in range(touched):
        prefetch(&e.ports[e.ports[first_port + w.choices[index]].peer].ring)
    for index in range(touched):
        if index + 1 < touched:
            local = w.choices[index + 1]
            klass = 0
            if w.bound[local].head >= 0:
                klass = w.express[w.bound[local].head].klass
            elif e.ports[first_port + local].waiting_mask:
                klass = ctz(e.ports[first_port + local].waiting_mask)
            express_prepare(e, first_port + local, klass)
        local = w.choices[index]
        bound = &w.bound[local]
        if unlikely(bound.mixed):
            bound.mixed = 0
            express_sort(e, w, local)
        express_serve(e, w, mmu, first_port, first_port + local, bound.head)
        bound.head = NONE
        bound.classes = 0
    # The packets were read in their rings until now.
    for index in range(w.due_count):
        e.ports[w.due[index]].head = w.due_end[index]
    w.link_received += count
    return True
