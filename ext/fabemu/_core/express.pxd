"""The express lane: a switch that can meet no threshold within a window serves each egress port by itself.

Owns      express_try and the lists of this visit's arrivals by egress queue.
Invariant it leaves the very state that visiting instant by instant would: with no XOFF standing and none possible,
          ports do not touch each other, and what a PG holds in reserved and shared is a function of its bytes alone.
          So a frame that comes and goes within the visit is never charged, and never copied into a queue.
Order     within an egress port as in docs/MODEL.md 5: arrivals of an instant in keyed order, then the choice. Pauses do
          not change within the visit, so when a frame can leave is known when the one before it has left: there are
          no events, only the frames in their order.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t, ctz, likely, unlikely, prefetch,
                     prefetch_write, BALANCE_ECMP, CLASS_SHIFT, FAULT_MEMORY, FAULT_NONE, FLAG_CE, FOREVER, KIND_DATA,
                     KIND_MASK, KINDS_OF_LINKS)
from .memory cimport array_grow
from .packet cimport packet_place, packet_shape, packet_t, packet_words
from .state cimport bound_t, engine_t, express_t, worker_t, port_t, queue_t, switch_t
from .heaps cimport KEY_TIME_SHIFT
from .credit cimport pending_send
from .balance cimport balance_note
from .ecmp cimport ecmp_choose, ecmp_row
from .ecn cimport ecn_draws
from .inbox cimport inbox_add, inbox_sort
from .link cimport burst_t, burst_close, burst_open, burst_send
from .mmu cimport mmu_charge, mmu_release
from .queue cimport queue_append, queue_foresee, queue_remove
from .stats cimport port_touch, stats_area
from .ties cimport sort_ports
from .wake cimport events_count, port_expect

cdef extern from *:
    """
    #define FABEMU_NO_FLOW (~(uint64_t)0)
    """
    const uint64_t NO_FLOW "FABEMU_NO_FLOW"    # no host has so great a number

cdef enum:
    SHAPE_INGRESS = 32            # bits of a shape: where `ingress` begins
    SHAPE_KIND = 16
    SHAPE_FLAGS = 24


cdef inline bint express_room(engine_t* e, worker_t* w) noexcept nogil:
    """Have room for all that may arrive in this visit: its lists do not move afterwards."""
    cdef int64_t count = 0
    cdef int64_t capacity = w.express_capacity
    cdef int32_t index
    for index in range(w.due_count):
        count += e.ports[w.due[index]].tail - e.ports[w.due[index]].head
    if likely(count <= capacity):
        return True
    while capacity < count:
        capacity *= 2
    if not array_grow(w.arena, <void**>&w.express, w.express_capacity, capacity, sizeof(express_t)):
        e.fault.code = FAULT_MEMORY
        return False
    w.express_capacity = capacity
    return True


cdef inline void express_approach(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Have the state of an egress port that will be served fetched."""
    cdef const queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    prefetch(&e.ports[port_id])
    prefetch(&e.ports[port_id].ring)
    prefetch(queue)
    prefetch(&queue.kmin_bytes)


cdef inline void express_prepare(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Have what an egress port will read and write fetched: the head of its queue, the tails of queue and link."""
    cdef const port_t* port = &e.ports[port_id]
    cdef const port_t* receiver = &e.ports[port.peer]
    cdef const queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    prefetch_write(&receiver.ring[receiver.tail & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 2) & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 4) & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 6) & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 8) & receiver.mask])
    prefetch_write(&receiver.ring[(receiver.tail + 10) & receiver.mask])
    if queue.first != NULL:
        # Where its block ends does not matter to a prefetch.
        prefetch(queue.first)
        prefetch(queue.first + 2)
        prefetch(queue.first + 4)
        prefetch(queue.first + 6)
        prefetch_write(queue.end)


cdef inline void express_insert(bound_t* bound, express_t* inserted) noexcept nogil:
    """Put an arrival where it belongs in a list whose last one is not earlier; ties are left to a sort."""
    cdef ps_t time_ps = inserted.time_ps
    cdef express_t* before = bound.cursor
    cdef int32_t steps = 0
    # Arrivals of one link come in order: go on from where the last of them went.
    if (before.shape ^ inserted.shape) >> SHAPE_INGRESS & 0xffff:
        before = bound.head
        if before.time_ps >= time_ps:
            bound.mixed = before.time_ps == time_ps
            inserted.next = before
            bound.head = inserted
            return
    # There is a later one, since the last is not earlier.
    while before.next.time_ps < time_ps:
        before = before.next
        steps += 1
        if unlikely(steps == 64):
            bound.mixed = 1
            break
    if before.next.time_ps == time_ps:
        bound.mixed = 1
    inserted.next = before.next
    before.next = inserted


cdef inline int64_t express_route(const engine_t* e, int32_t node, const packet_t* packet) noexcept nogil:
    """Place in w.bound of the first queue of the port by which a packet leaves."""
    return <int64_t>(ecmp_choose(&e.plan, ecmp_row(&e.plan, node), e.plan.node_seed[node], packet.group, packet.dst,
                                 packet.hash) - e.plan.node_port_start[node]) * e.plan.class_count


cdef inline void express_begin(engine_t* e, worker_t* w, int32_t node, int64_t place, int32_t klass,
                               int32_t* touched) noexcept nogil:
    """The first arrival for an egress queue."""
    cdef int32_t local = <int32_t>(place // e.plan.class_count)
    if w.bound_classes[local] == 0:
        w.choices[touched[0]] = local
        touched[0] += 1
    w.bound_classes[local] |= <uint8_t>(1 << klass)
    express_approach(e, e.plan.node_port_start[node] + local, klass)


cdef inline int32_t express_gather(engine_t* e, worker_t* w, int32_t node, int32_t* touched) noexcept nogil:
    """Put this visit's arrivals into lists by egress queue; their number, or -1 if one is for the exact path.

    `touched` counts the egress ports, whose local numbers are in w.choices.
    """
    cdef ps_t limit_ps = w.limit_ps
    cdef express_t* entry
    cdef express_t* last
    cdef bound_t* bound
    cdef bound_t* bounds = w.bound
    cdef const switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef uint64_t shape, ingress, flow
    # The two flows of this link that came last, usually data and acknowledgements, and where they go.
    cdef uint64_t first_flow = NO_FLOW
    cdef uint64_t second_flow = NO_FLOW
    cdef int64_t first_place = 0
    cdef int64_t second_place = 0
    cdef int64_t place
    cdef int32_t index
    cdef uint32_t position, tail, mask, classes, klass
    cdef int64_t bytes
    cdef const port_t* port
    cdef const packet_t* ring
    cdef const packet_t* packet
    cdef ps_t time_ps
    w.inbox_bytes = 0
    if unlikely(not express_room(e, w)):
        return -1
    entry = w.express
    for index in range(w.due_count):
        port = &e.ports[w.due[index]]
        if unlikely(port.pending_count > 0 or port.refresh_ps < limit_ps):
            return -1
        ring = port.ring
        mask = port.mask
        tail = port.tail
        ingress = <uint64_t>port.local << SHAPE_INGRESS
        position = port.head
        bytes = 0
        classes = 0
        while position != tail:
            packet = &ring[position & mask]
            time_ps = packet.time_ps
            if time_ps >= limit_ps:
                break
            shape = packet_place(packet)
            if unlikely((KINDS_OF_LINKS >> (shape >> SHAPE_KIND & KIND_MASK)) & 1):
                return -1
            position += 1
            flow = packet_words(packet.hash, packet.dst)
            # Data and ACKs take turns: which of the two it is cannot be guessed, so there is no branch between them.
            place = first_place if flow == first_flow else second_place
            if unlikely((flow != first_flow) & (flow != second_flow)):
                if unlikely(mmu.balance != BALANCE_ECMP):
                    place = <int64_t>packet.ingress * e.plan.class_count
                else:
                    place = express_route(e, node, packet)
                    second_flow = first_flow
                    second_place = first_place
                    first_flow = flow
                    first_place = place
            klass = <uint32_t>shape >> (SHAPE_FLAGS + CLASS_SHIFT)
            bound = &bounds[place + klass]
            entry.packet = packet
            entry.time_ps = time_ps
            entry.shape = (shape & ~(<uint64_t>0xffff << SHAPE_INGRESS)) | ingress
            entry.next = NULL
            classes |= <uint32_t>1 << klass
            bytes += <int64_t>(shape & 0xffff)
            last = bound.tail
            if last == NULL:
                bound.head = entry
                bound.tail = entry
                express_begin(e, w, node, place, <int32_t>klass, touched)
            elif last.time_ps < time_ps or bound.mixed:
                last.next = entry
                bound.tail = entry
            else:
                express_insert(bound, entry)
            bound.cursor = entry
            entry += 1
        if classes:
            # Where frames that stay are charged.
            klass = ctz(classes)
            prefetch_write(&e.queues[<int64_t>w.due[index] * e.plan.class_count + klass].reserved_used_bytes)
            prefetch_write(&mmu.held[(<int64_t>e.lossless_index[klass] * mmu.port_count + port.local)
                                     * mmu.port_count])
        w.due_end[index] = position
        w.due_bytes[index] = bytes
        w.due_classes[index] = classes
        w.inbox_bytes += bytes
    return <int32_t>(entry - w.express)


cdef inline void express_forget(const engine_t* e, worker_t* w, int32_t touched) noexcept nogil:
    """Empty the lists."""
    cdef int32_t index, local
    cdef uint32_t classes
    cdef bound_t* bound
    for index in range(touched):
        local = w.choices[index]
        classes = w.bound_classes[local]
        w.bound_classes[local] = 0
        while classes:
            bound = &w.bound[local * e.plan.class_count + ctz(classes)]
            classes &= classes - 1
            bound.head = NULL
            bound.tail = NULL
            bound.mixed = 0


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
    # No PG has more than all of them; as a rule XOFF stands for one that uses headroom.
    if mmu.headroom_untold or mmu.shared_used_bytes + w.inbox_bytes >= (free_bytes * mmu.alpha_min_q16) >> 16:
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


cdef inline void express_sort(engine_t* e, worker_t* w, bound_t* bound) noexcept nogil:
    """Bring the arrivals for one egress queue into order: by time, those of an instant in keyed order."""
    cdef express_t* entry = bound.head
    cdef express_t* last = NULL
    cdef int64_t first, end, position
    bound.mixed = 0
    w.inbox_count = 0
    while entry != NULL:
        inbox_add(e, w, (<uint64_t>(entry.time_ps - w.window_start_ps) << KEY_TIME_SHIFT)
                  | <uint64_t>(entry - w.express))
        entry = entry.next
    inbox_sort(w)
    first = 0
    while first < w.inbox_count:
        end = first + 1
        while end < w.inbox_count and w.inbox[end] >> KEY_TIME_SHIFT == w.inbox[first] >> KEY_TIME_SHIFT:
            end += 1
        for position in range(first, end):
            w.egress[position - first] = <int32_t>(w.inbox[position] & ((1 << KEY_TIME_SHIFT) - 1))
            w.arrivals[position - first] = express_ingress(&w.express[w.egress[position - first]])
        if end - first > 1:
            sort_ports(w, w.arrivals, w.egress, <int32_t>(end - first), w.express[w.egress[0]].time_ps)
        for position in range(end - first):
            entry = &w.express[w.egress[position]]
            if last == NULL:
                bound.head = entry
            else:
                last.next = entry
            last = entry
        first = end
    last.next = NULL
    bound.tail = last


cdef inline int32_t express_ingress(const express_t* entry) noexcept nogil:
    """Local port by which it came."""
    return <int32_t>(entry.shape >> SHAPE_INGRESS & 0xffff)


cdef inline void express_leave(engine_t* e, worker_t* w, switch_t* mmu, queue_t* queue, int32_t first_port,
                               int32_t local, int32_t klass, const express_t* entry) noexcept nogil:
    """A frame that still waits at the end of the visit: charge it and put it into its queue."""
    cdef queue_t* pg = &e.queues[<int64_t>(first_port + express_ingress(entry)) * e.plan.class_count + klass]
    cdef int64_t size = <int64_t>(entry.shape & 0xffff)
    cdef packet_t* place = queue_append(w, queue)
    if unlikely(place == NULL):
        e.fault.code = FAULT_MEMORY
        return
    mmu_charge(mmu, pg, size)
    if (e.plan.lossless_mask >> klass) & 1:
        pg.held[local] += <uint32_t>size
    else:
        mmu.lossy_bytes += size
    memcpy(place, entry.packet, sizeof(packet_t))
    place.ingress = <uint16_t>express_ingress(entry)


cdef inline void express_release(engine_t* e, switch_t* mmu, int32_t first_port, int32_t local, int32_t klass,
                                 uint64_t shape) noexcept nogil:
    """The head of a queue leaves: give its bytes back."""
    cdef queue_t* pg = &e.queues[
        <int64_t>(first_port + <int32_t>(shape >> SHAPE_INGRESS & 0xffff)) * e.plan.class_count + klass]
    cdef int64_t size = <int64_t>(shape & 0xffff)
    mmu_release(e, mmu, pg, size)
    if (e.plan.lossless_mask >> klass) & 1:
        pg.held[local] -= <uint32_t>size
    else:
        mmu.lossy_bytes -= size


cdef inline ps_t express_arrived_ps(const queue_t* queue, const bound_t* bound) noexcept nogil:
    """When the frame arrived that leaves next: in the queue, or else in this visit; FOREVER if there is none."""
    if queue.first != NULL:
        return queue.first.time_ps
    return bound.head.time_ps if bound.head != NULL else FOREVER


cdef inline ps_t express_ready_ps(const queue_t* queue, const bound_t* bound, ps_t latency_ps) noexcept nogil:
    """When that frame may leave, its port being free."""
    cdef ps_t ready_ps = express_arrived_ps(queue, bound)
    if ready_ps < FOREVER:
        ready_ps += latency_ps
    return ready_ps if ready_ps > queue.pause_until_ps else queue.pause_until_ps


cdef inline void express_run(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, int32_t local,
                             int32_t klass, ps_t until_ps, ps_t below_ps, ps_t others_ps) noexcept nogil:
    """Send frames of one class: first those of its queue, then the arrivals of this visit.

    It ends with the first that would leave at or after `until_ps`, or that would have its port wait beyond `below_ps`,
    when one of a class below can leave. `others_ps`: when the first frame of any other class has arrived.
    """
    cdef int32_t port_id = first_port + local
    cdef queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    cdef bound_t* bound = &w.bound[local * e.plan.class_count + klass]
    cdef burst_t burst
    cdef const packet_t* first = queue.first
    cdef const packet_t* packet
    cdef const express_t* arriving = bound.cursor
    cdef express_t* next = bound.head
    cdef uint32_t marked
    cdef uint64_t shape
    cdef uint64_t ecn_count = queue.ecn_count
    cdef int64_t bytes = queue.bytes
    cdef int64_t bytes_max = queue.bytes_max
    cdef int64_t kmin_bytes = queue.kmin_bytes
    cdef int64_t size
    cdef int64_t events = 0
    cdef uint32_t marks = 0
    cdef double area_byte_ps = queue.area_byte_ps
    cdef ps_t since_ps = queue.area_since_ps
    cdef ps_t pause_until_ps = queue.pause_until_ps
    cdef ps_t latency_ps = mmu.latency_ps
    cdef ps_t time_ps, now
    cdef bint has_ecn = e.plan.class_ecn[klass] != 0
    cdef bint counts
    burst_open(e, &burst, &e.ports[port_id])
    if burst.busy_until_ps < e.now_ps:
        # What frames waited for may have been done away with by a control action.
        burst.busy_until_ps = e.now_ps
    while True:
        if first != NULL:
            packet = first
            time_ps = packet.time_ps
        elif next != NULL:
            packet = next.packet
            time_ps = next.time_ps
        else:
            break
        now = time_ps + latency_ps
        if now < pause_until_ps:
            now = pause_until_ps
        if now <= burst.busy_until_ps:
            now = burst.busy_until_ps
        elif below_ps < now:
            break
        if now >= until_ps:
            break
        if first != NULL:
            shape = packet_place(packet)
            queue_remove(w, queue)
            first = queue.first
            if first != NULL:
                queue_foresee(queue)
            express_release(e, mmu, first_port, local, klass, shape)
            time_ps = -1
        else:
            shape = next.shape
            if next != arriving:
                time_ps = -1
            next = next.next
        size = <int64_t>(shape & 0xffff)
        if time_ps == now and (next == NULL or next.time_ps > now) and others_ps > now:
            # Straight through: the choice is part of its arrival.
            arriving = next
            if bytes_max < size:
                bytes_max = size
        else:
            while arriving != NULL and arriving.time_ps <= now:
                if bytes > 0:
                    area_byte_ps += <double>bytes * <double>(arriving.time_ps - since_ps)
                since_ps = arriving.time_ps
                bytes += <int64_t>(arriving.shape & 0xffff)
                if bytes > bytes_max:
                    bytes_max = bytes
                arriving = arriving.next
                events += 1
            area_byte_ps += <double>bytes * <double>(now - since_ps)
            since_ps = now
            bytes -= size
        marked = 0
        counts = has_ecn & ((shape >> SHAPE_KIND & 0xff) == KIND_DATA)
        if unlikely(counts & (bytes > kmin_bytes)) and ecn_draws(e, queue, port_id, klass, bytes, ecn_count):
            marks += 1
            marked = FLAG_CE
        ecn_count += counts
        burst_send(e, w, &burst, port_id, packet, <uint32_t>shape, marked, now)
    size = burst.tail - burst.first
    if size > 0:
        queue.bytes = bytes
        queue.bytes_max = bytes_max
        queue.area_byte_ps = area_byte_ps
        queue.area_since_ps = since_ps
        queue.tx_bytes += burst.bytes
        queue.tx_frames += size
        queue.ecn_count = ecn_count
        if marks:
            queue.marks += marks
            w.marks += marks
        bound.head = next
        bound.cursor = <express_t*>arriving
        port_touch(e, w, port_id, klass)
        events_count(w, events + size, burst.start_ps)
        burst_close(e, w, &burst)


cdef inline void express_begin_class(engine_t* e, worker_t* w, bound_t* bound) noexcept nogil:
    """Have the arrivals of a queue in order; from now on the cursor is at the first that its bytes do not count."""
    if unlikely(bound.mixed):
        express_sort(e, w, bound)
    bound.cursor = bound.head


cdef inline ps_t express_end_class(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, int32_t local,
                                   int32_t klass) noexcept nogil:
    """Count and keep the arrivals that stay, and empty the list; when the first frame may leave."""
    cdef port_t* port = &e.ports[first_port + local]
    cdef queue_t* queue = &e.queues[<int64_t>(first_port + local) * e.plan.class_count + klass]
    cdef bound_t* bound = &w.bound[local * e.plan.class_count + klass]
    cdef const express_t* entry = bound.cursor
    cdef int64_t events = 0
    cdef ps_t ready_ps = express_ready_ps(queue, bound, mmu.latency_ps)
    if entry != NULL:
        while entry != NULL:
            stats_area(queue, entry.time_ps)
            queue.bytes += <int64_t>(entry.shape & 0xffff)
            if queue.bytes > queue.bytes_max:
                queue.bytes_max = queue.bytes
            entry = entry.next
            events += 1
        port_touch(e, w, first_port + local, klass)
        events_count(w, events, queue.area_since_ps)
    entry = bound.head
    while entry != NULL:
        express_leave(e, w, mmu, queue, first_port, local, klass, entry)
        entry = entry.next
    if queue.first != NULL:
        port.waiting_mask |= <uint8_t>(1 << klass)
    else:
        port.waiting_mask &= <uint8_t>~(1 << klass)
    bound.head = NULL
    bound.tail = NULL
    return ready_ps


cdef inline void express_take_turns(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, int32_t local,
                                    uint32_t classes) noexcept nogil:
    """Send frames of several classes: at any time of those that can leave, the first."""
    cdef const port_t* port = &e.ports[first_port + local]
    cdef const queue_t* queues = &e.queues[<int64_t>(first_port + local) * e.plan.class_count]
    cdef const bound_t* bounds = &w.bound[local * e.plan.class_count]
    cdef uint32_t mask
    cdef int32_t klass
    cdef int32_t chosen = 0
    cdef ps_t now, free_ps, ready_ps, arrived_ps, until_ps, below_ps, others_ps
    # Without memory for a frame on its way nothing moves on.
    while likely(e.fault.code == FAULT_NONE):
        free_ps = port.busy_until_ps if port.busy_until_ps > e.now_ps else e.now_ps
        now = FOREVER
        mask = classes
        while mask:
            klass = ctz(mask)
            mask &= mask - 1
            ready_ps = express_ready_ps(&queues[klass], &bounds[klass], mmu.latency_ps)
            if ready_ps < free_ps:
                ready_ps = free_ps
            if ready_ps < now:
                now = ready_ps
                chosen = klass
        if now >= w.limit_ps:
            return
        until_ps = w.limit_ps
        below_ps = FOREVER
        others_ps = FOREVER
        mask = classes & ~(<uint32_t>1 << chosen)
        while mask:
            klass = ctz(mask)
            mask &= mask - 1
            arrived_ps = express_arrived_ps(&queues[klass], &bounds[klass])
            if arrived_ps < others_ps:
                others_ps = arrived_ps
            ready_ps = express_ready_ps(&queues[klass], &bounds[klass], mmu.latency_ps)
            if klass > chosen:
                if ready_ps < below_ps:
                    below_ps = ready_ps
            elif ready_ps < until_ps:
                until_ps = ready_ps
        express_run(e, w, mmu, first_port, local, chosen, until_ps, below_ps, others_ps)


cdef inline void express_serve(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port,
                               int32_t local) noexcept nogil:
    """Serve one egress port to the end of the visit."""
    cdef int32_t port_id = first_port + local
    cdef port_t* port = &e.ports[port_id]
    cdef uint32_t classes = w.bound_classes[local] | port.waiting_mask
    cdef uint32_t mask
    cdef ps_t next_ps, ready_ps
    if unlikely(port.pfc_pending):
        if port.kick_ps < w.limit_ps:
            events_count(w, 1, port.kick_ps)
            pending_send(e, w, port, port_id, port.kick_ps)
            port.kick_ps = FOREVER
    else:
        port.kick_ps = FOREVER
    w.bound_classes[local] = 0
    if classes == 0:
        return
    mask = classes
    while mask:
        express_begin_class(e, w, &w.bound[local * e.plan.class_count + ctz(mask)])
        mask &= mask - 1
    if likely(classes & (classes - 1) == 0):
        express_run(e, w, mmu, first_port, local, ctz(classes), w.limit_ps, FOREVER, FOREVER)
    else:
        express_take_turns(e, w, mmu, first_port, local, classes)
    next_ps = FOREVER
    mask = classes
    while mask:
        ready_ps = express_end_class(e, w, mmu, first_port, local, ctz(mask))
        mask &= mask - 1
        if ready_ps < next_ps:
            next_ps = ready_ps
    if next_ps < FOREVER:
        if next_ps < port.busy_until_ps:
            next_ps = port.busy_until_ps
        if next_ps < port.kick_ps:
            port.kick_ps = next_ps
    if port.kick_ps < FOREVER:
        port_expect(e, w, port_id, port.kick_ps)


cdef inline int32_t express_class(const worker_t* w, const port_t* port) noexcept nogil:
    """A class that the port has frames of."""
    cdef uint32_t classes = w.bound_classes[port.local] | port.waiting_mask
    return ctz(classes) if classes else 0


cdef inline bint express_try(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """Run the whole visit, if nothing in it can meet a threshold; False, and nothing has changed, otherwise."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t touched = 0
    cdef int32_t index, local, count
    cdef const port_t* port
    if not e.express or mmu.xoff_count > 0 or mmu.unusual != 0:
        return False
    if unlikely(e.watches != NULL) and e.watchdogs[node - e.plan.host_count].poll_ps > 0:
        # The watchdog wants to know of every departure.
        return False
    if unlikely(mmu.balance != BALANCE_ECMP):
        balance_note(e, w, node)
    count = express_gather(e, w, node, &touched)
    if count < 0 or not express_applies(e, w, node):
        express_forget(e, w, touched)
        return False
    for index in range(w.due_count):
        port = &e.ports[w.due[index]]
        if w.bound_classes[port.local] == 0 and port.kick_ps < w.limit_ps:
            w.choices[touched] = port.local
            touched += 1
            express_approach(e, w.due[index], express_class(w, port))
    for index in range(touched):
        prefetch(&e.ports[e.ports[first_port + w.choices[index]].peer].ring)
    for index in range(touched):
        if index + 1 < touched:
            local = w.choices[index + 1]
            express_prepare(e, first_port + local, express_class(w, &e.ports[first_port + local]))
        express_serve(e, w, mmu, first_port, w.choices[index])
    # The packets were read in their rings until now.
    for index in range(w.due_count):
        e.ports[w.due[index]].head = w.due_end[index]
    w.link_received += count
    return True
