"""One switch: arrival, transmit choice, departure.

Owns      the egress queues of its ports.
Invariant a port with an eligible frame has a transmit key no later than it can send.
Order     docs/MODEL.md 6: route, admit, XOFF, enqueue; at departure release, XON, ECN.
"""
from libc.string cimport memcpy
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, ps_t, ctz, unlikely, DROP_LINK_DOWN,
                     DROP_NO_ROUTE, DROP_WATCHDOG, FAULT_MEMORY, FLAG_CE, FOREVER, KIND_CORRUPT, KIND_DATA, NONE,
                     UNUSUAL_BALANCE, UNUSUAL_CLASS_MAP, UNUSUAL_CREDIT, UNUSUAL_WEIGHTS)
from .packet cimport packet_t, packet_class, packet_shape, packet_words
from .state cimport engine_t, worker_t, port_t, queue_t, switch_t
from .balance cimport balance_by_state, balance_route
from .ecn cimport ecn_marks
from .link cimport link_begin, link_commit, link_wire_ps
from .mmu cimport mmu_admit, mmu_charge, mmu_release, mmu_wants_xoff, mmu_wants_xon
from .credit cimport credit_free, credit_limits, credit_lose, credit_spend, pending_send
from .pfc cimport pfc_lower, pfc_raise, pfc_want_frame
from .queue cimport queue_append, queue_remove
from .schedule cimport schedule_eligible, schedule_emptied, schedule_pick
from .stats cimport drop_record, port_touch, stats_area, stats_headroom, stats_sent
from .ties cimport sort_ports
from .wake cimport hop_noted, port_kick
from .watch cimport WATCHDOG_DROP, WATCHDOG_FORWARD, watch_changed, watch_in_storm

cdef inline uint8_t switch_mark(engine_t* e, worker_t* w, queue_t* queue, int32_t port_id, int32_t klass,
                                const packet_t* packet) noexcept nogil:
    """FLAG_CE if this frame, which leaves the queue, is to be marked."""
    if packet.kind == KIND_DATA and e.plan.class_ecn[klass]:
        if ecn_marks(e, queue, port_id, klass) and e.plan.class_ecn[packet_class(packet)]:
            queue.marks += 1
            w.marks += 1
            return FLAG_CE
    return 0


cdef inline void switch_send(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int32_t klass, queue_t* queue,
                             const packet_t* packet, ps_t now) noexcept nogil:
    """Mark and put one frame on the wire; its bytes have been released."""
    cdef uint8_t marked = switch_mark(e, w, queue, port_id, klass, packet)
    cdef packet_t* place = link_begin(e, w, port, port_id, packet.size, now, link_wire_ps(&e.plan, port, packet.size))
    if place == NULL:
        return
    memcpy(place, packet, sizeof(packet_t))
    place.flags |= marked
    port.hops += 1
    port.sent_bytes += packet.size
    w.packet_hops += 1
    hop_noted(w, now)
    stats_sent(queue, packet.size)
    port_touch(e, w, port_id, klass)
    link_commit(e, w, port, port_id, place, packet_words(packet.qp, packet.psn),
                packet_shape(packet.size, packet.kind, packet.flags) | <uint32_t>marked << 24, now)


cdef inline bint switch_dequeue(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, port_t* port,
                                int32_t port_id, int32_t klass, queue_t* queue, ps_t now) noexcept nogil:
    """Take the head off an egress queue and release its bytes; True if its PG now wants XON.

    The packet stays readable in its place until the next one is queued.
    """
    cdef const packet_t* packet = queue.first
    cdef int32_t ingress_id = first_port + packet.ingress
    cdef queue_t* pg = &e.queues[<int64_t>ingress_id * e.plan.class_count + klass]
    cdef int64_t size = packet.size
    stats_area(queue, now)
    queue_remove(w, queue)
    queue.bytes -= size
    if queue.first == NULL:
        port.waiting_mask &= <uint8_t>~(1 << klass)
    mmu_release(e, mmu, pg, size)
    if unlikely(mmu.unusual & (UNUSUAL_WEIGHTS | UNUSUAL_CREDIT)):
        if queue.first == NULL:
            schedule_emptied(e, port_id, klass)
        credit_free(e, w, ingress_id, klass, size, now)
    if not (e.plan.lossless_mask >> klass) & 1:
        mmu.lossy_bytes -= size
        return False
    if unlikely(e.watches != NULL):
        e.watches[<int64_t>port_id * e.plan.class_count + klass].left_ps = now
    pg.held[port.local] -= <uint32_t>size
    return unlikely((e.ports[ingress_id].xoff_mask >> klass) & 1) and mmu_wants_xon(e, mmu, pg)


cdef inline void switch_depart(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, port_t* port,
                               int32_t port_id, int32_t klass, queue_t* queue, ps_t now) noexcept nogil:
    """Send the head of an egress queue (MODEL 6, departure)."""
    cdef const packet_t* packet = queue.first
    cdef int32_t ingress_id = first_port + packet.ingress
    if switch_dequeue(e, w, mmu, first_port, port, port_id, klass, queue, now):
        pfc_lower(e, w, &e.ports[ingress_id], ingress_id, klass, now)
        pfc_want_frame(e, w, &e.ports[ingress_id], ingress_id, now)
    switch_send(e, w, port, port_id, klass, queue, packet, now)


cdef inline void switch_flush(engine_t* e, worker_t* w, int32_t node, port_t* port, int32_t port_id, int32_t klass,
                              int32_t cause, ps_t now) noexcept nogil:
    """Drop every frame that waits in an egress queue, oldest first; released as in a departure."""
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t first_port = port_id - port.local
    cdef queue_t* queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
    cdef const packet_t* packet
    cdef int32_t ingress_id
    while queue.first != NULL:
        packet = queue.first
        ingress_id = first_port + packet.ingress
        drop_record(e, w, packet, node, ingress_id, klass, port_id, cause, now)
        if switch_dequeue(e, w, mmu, first_port, port, port_id, klass, queue, now):
            pfc_lower(e, w, &e.ports[ingress_id], ingress_id, klass, now)
            pfc_want_frame(e, w, &e.ports[ingress_id], ingress_id, now)


cdef inline int32_t switch_enqueue(engine_t* e, worker_t* w, int32_t node, switch_t* mmu, int32_t ingress_id,
                                   int32_t egress_id, int32_t klass, const packet_t* packet, ps_t now) noexcept nogil:
    """Admit a frame and queue it at its egress port, or drop it. NONE, or the cause."""
    cdef bint lossless = (e.plan.lossless_mask >> klass) & 1
    cdef int64_t egress_index = <int64_t>egress_id * e.plan.class_count + klass
    cdef queue_t* queue = &e.queues[egress_index]
    cdef queue_t* pg = &e.queues[<int64_t>ingress_id * e.plan.class_count + klass]
    cdef int32_t verdict = mmu_admit(e, mmu, pg, queue, egress_index, lossless, packet.size)
    if unlikely(verdict != NONE):
        drop_record(e, w, packet, node, ingress_id, klass, egress_id, verdict, now)
        return verdict
    if unlikely(pg.headroom_used_bytes > 0):
        stats_headroom(e, w, pg, ingress_id, klass)
    if lossless:
        pg.held[e.ports[egress_id].local] += <uint32_t>packet.size
    else:
        mmu.lossy_bytes += packet.size
    port_touch(e, w, egress_id, klass)
    queue_put(e, w, queue, &e.ports[egress_id], <uint16_t>e.ports[ingress_id].local, klass, packet, now)
    return NONE


cdef inline ps_t switch_choose(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, port_t* port,
                               int32_t port_id, ps_t now) noexcept nogil:
    """Transmit choice of a free port; when it must choose next, FOREVER if nothing waits for it."""
    cdef queue_t* queue
    cdef uint32_t mask
    cdef int32_t klass
    cdef ps_t eligible_ps
    cdef ps_t next_ps = FOREVER
    if unlikely(port.pfc_pending):
        pending_send(e, w, port, port_id, now)
        return port.busy_until_ps if port.waiting_mask else FOREVER
    if unlikely(mmu.unusual & (UNUSUAL_WEIGHTS | UNUSUAL_CREDIT)):
        mask = schedule_eligible(e, mmu, port, port_id, now, &next_ps)
        if mask == 0:
            return next_ps
        klass = schedule_pick(e, port_id, mask)
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        if credit_limits(e, port_id):
            credit_spend(e, port_id, klass, queue.first.size)
        switch_depart(e, w, mmu, first_port, port, port_id, klass, queue, now)
        return port.busy_until_ps if port.waiting_mask | port.pfc_pending else FOREVER
    mask = port.waiting_mask
    while mask:
        klass = ctz(mask)
        mask &= mask - 1
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        eligible_ps = queue.first.time_ps + mmu.latency_ps
        if queue.pause_until_ps > eligible_ps and not (mmu.storm_count > 0 and watch_in_storm(
                e, <int64_t>port_id * e.plan.class_count + klass, WATCHDOG_FORWARD, port.node)):
            eligible_ps = queue.pause_until_ps
        if eligible_ps <= now:
            switch_depart(e, w, mmu, first_port, port, port_id, klass, queue, now)
            return port.busy_until_ps if port.waiting_mask | port.pfc_pending else FOREVER
        if eligible_ps < next_ps:
            next_ps = eligible_ps
    return next_ps


cdef inline void switch_transmit(engine_t* e, worker_t* w, int32_t node, int32_t port_id, ps_t now) noexcept nogil:
    """A transmit key of the port has come up."""
    cdef port_t* port = &e.ports[port_id]
    cdef ps_t next_ps
    port.kick_ps = FOREVER
    next_ps = switch_choose(e, w, &e.switches[node - e.plan.host_count], e.plan.node_port_start[node], port, port_id,
                            now)
    if next_ps < FOREVER:
        port_kick(e, w, port, port_id, next_ps)


cdef inline void switch_arrival(engine_t* e, worker_t* w, int32_t node, switch_t* mmu, int32_t ingress_id,
                                int32_t egress_id, const packet_t* packet, ps_t now) noexcept nogil:
    """One frame has arrived on the wire (MODEL 6, arrival)."""
    cdef int32_t klass = <int32_t>packet_class(packet)
    cdef port_t* ingress = &e.ports[ingress_id]
    cdef int32_t verdict
    if unlikely(packet.kind & KIND_CORRUPT):
        credit_lose(e, w, packet, node, ingress_id, now)
        return
    if unlikely(mmu.unusual & UNUSUAL_CLASS_MAP):
        klass = e.class_map[(node - e.plan.host_count) * e.plan.class_count + klass]
    if unlikely(egress_id < 0):
        drop_record(e, w, packet, node, ingress_id, klass, NONE, DROP_NO_ROUTE, now)
        credit_free(e, w, ingress_id, klass, packet.size, now)
        return
    if unlikely(e.down != NULL and e.down[egress_id]):
        drop_record(e, w, packet, node, ingress_id, klass, egress_id, DROP_LINK_DOWN, now)
        credit_free(e, w, ingress_id, klass, packet.size, now)
        return
    if unlikely(mmu.storm_count > 0) and (
            watch_in_storm(e, <int64_t>egress_id * e.plan.class_count + klass, WATCHDOG_DROP, node)
            or watch_in_storm(e, <int64_t>ingress_id * e.plan.class_count + klass, WATCHDOG_DROP, node)):
        drop_record(e, w, packet, node, ingress_id, klass, egress_id, DROP_WATCHDOG, now)
        credit_free(e, w, ingress_id, klass, packet.size, now)
        return
    verdict = switch_enqueue(e, w, node, mmu, ingress_id, egress_id, klass, packet, now)
    if ((e.plan.lossless_mask >> klass) & 1 and not (ingress.xoff_mask >> klass) & 1
            and mmu_wants_xoff(e, mmu, &e.queues[<int64_t>ingress_id * e.plan.class_count + klass])
            and (e.pfc_send_mask[ingress_id] >> klass) & 1):
        pfc_raise(e, w, mmu, ingress, ingress_id, klass, now)
        pfc_want_frame(e, w, ingress, ingress_id, now)
    if verdict == NONE:
        switch_kick(e, w, mmu, egress_id, klass, now)
    else:
        credit_free(e, w, ingress_id, klass, packet.size, now)


cdef inline void switch_kick(engine_t* e, worker_t* w, const switch_t* mmu, int32_t egress_id, int32_t klass,
                             ps_t now) noexcept nogil:
    """A frame was queued now: set the choice at which it can leave at the earliest."""
    cdef port_t* egress = &e.ports[egress_id]
    cdef ps_t pause_until_ps = e.queues[<int64_t>egress_id * e.plan.class_count + klass].pause_until_ps
    cdef ps_t when_ps = now + mmu.latency_ps
    if egress.busy_until_ps > when_ps:
        when_ps = egress.busy_until_ps
    if unlikely(e.watches != NULL):
        watch_changed(e, w, egress.node, <int64_t>egress_id * e.plan.class_count + klass, now)
    if pause_until_ps > when_ps and not (mmu.storm_count > 0 and watch_in_storm(
            e, <int64_t>egress_id * e.plan.class_count + klass, WATCHDOG_FORWARD, egress.node)):
        when_ps = pause_until_ps
    if when_ps < FOREVER:
        port_kick(e, w, egress, egress_id, when_ps)


cdef inline bint switch_is_calm(engine_t* e, worker_t* w, const switch_t* mmu, int32_t node, int32_t count, ps_t now,
                                bint* ordered) noexcept nogil:
    """Route all arrivals of this instant; whether no threshold can be met, whatever their order.

    Then nothing is dropped, no XOFF arises (none stands), and the order matters only between frames for one egress
    port: `ordered` is set if there are such. Lossy frames go by the book: their egress limit depends on the order.
    """
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef int64_t free_bytes = mmu.pool_bytes - mmu.shared_used_bytes - <int64_t>count * e.frame_bytes_max
    cdef int32_t index, klass, egress_id, ingress_id
    cdef port_t* port
    cdef const packet_t* packet
    cdef const queue_t* pg
    cdef bint calm = mmu.unusual == 0 and mmu.xoff_count == 0 and free_bytes >= 0
    for index in range(count):
        ingress_id = first_port + w.arrivals[index]
        port = &e.ports[ingress_id]
        packet = &port.ring[(port.head - 1) & port.mask]
        if unlikely(mmu.unusual & UNUSUAL_BALANCE):
            # One after the other, in their order: each changes what the next one finds.
            w.egress[index] = NONE
            continue
        egress_id = balance_route(e, node, packet)
        w.egress[index] = egress_id
        if not calm:
            continue
        klass = <int32_t>packet_class(packet)
        pg = &e.queues[<int64_t>ingress_id * e.plan.class_count + klass]
        if unlikely(egress_id < 0 or not (e.plan.lossless_mask >> klass) & 1 or pg.headroom_used_bytes > 0
                    or pg.shared_used_bytes + packet.size >= (free_bytes * pg.alpha_q16) >> 16):
            calm = False
            continue
        if e.ports[egress_id].stamp_ps == now:
            ordered[0] = True
        e.ports[egress_id].stamp_ps = now
    return calm


cdef inline void queue_put(engine_t* e, worker_t* w, queue_t* queue, port_t* egress, uint16_t ingress_local,
                           int32_t klass, const packet_t* packet, ps_t now) noexcept nogil:
    """Append an admitted frame to an egress queue."""
    cdef packet_t* place = queue_append(w, queue)
    if unlikely(place == NULL):
        e.fault.code = FAULT_MEMORY
        return
    stats_area(queue, now)
    queue.bytes += packet.size
    if queue.bytes > queue.bytes_max:
        queue.bytes_max = queue.bytes
    memcpy(place, packet, sizeof(packet_t))
    place.ingress = ingress_local
    egress.waiting_mask |= <uint8_t>(1 << klass)


cdef inline void switch_pass(engine_t* e, worker_t* w, switch_t* mmu, port_t* ingress, queue_t* pg, int32_t egress_id,
                             int32_t klass, const packet_t* packet, bint unique, ps_t now) noexcept nogil:
    """One lossless frame of a calm instant: straight through if its egress port is idle, else into the queue."""
    cdef port_t* egress = &e.ports[egress_id]
    cdef queue_t* queue = &e.queues[<int64_t>egress_id * e.plan.class_count + klass]
    cdef int64_t size = packet.size
    cdef ps_t when_ps
    if (egress.busy_until_ps <= now and (egress.waiting_mask | egress.pfc_pending) == 0 and unique
            and mmu.latency_ps == 0 and queue.pause_until_ps <= now):
        # Its choice comes at this very instant, and nothing before it can make a difference. Charge and release
        # cancel out: a PG uses the pool only when its reserve is full, so its counters are a function of its bytes.
        if queue.bytes_max < size:
            queue.bytes_max = size
        switch_send(e, w, egress, egress_id, klass, queue, packet, now)
        return
    mmu_charge(mmu, pg, size)
    pg.held[egress.local] += <uint32_t>size
    port_touch(e, w, egress_id, klass)
    queue_put(e, w, queue, egress, <uint16_t>ingress.local, klass, packet, now)
    when_ps = now + mmu.latency_ps
    if egress.busy_until_ps > when_ps:
        when_ps = egress.busy_until_ps
    if unlikely(e.watches != NULL):
        watch_changed(e, w, egress.node, <int64_t>egress_id * e.plan.class_count + klass, now)
    if queue.pause_until_ps > when_ps:
        when_ps = queue.pause_until_ps
    if when_ps < egress.kick_ps:
        port_kick(e, w, egress, egress_id, when_ps)


cdef inline int32_t switch_egress(engine_t* e, worker_t* w, int32_t node, switch_t* mmu, const packet_t* packet,
                                  ps_t now) noexcept nogil:
    """Port id by which a packet that arrives now leaves, or NONE where there is no route."""
    if unlikely(mmu.unusual & UNUSUAL_BALANCE):
        return balance_by_state(e, w, node, mmu, packet, now)
    return balance_route(e, node, packet)


cdef inline void switch_lone_arrival(engine_t* e, worker_t* w, int32_t node, int32_t ingress_id,
                                     ps_t now) noexcept nogil:
    """The one arrival of an instant at which nothing else happens: switch_arrivals for the usual case, in one piece."""
    cdef port_t* ingress = &e.ports[ingress_id]
    cdef const packet_t* packet = &ingress.ring[(ingress.head - 1) & ingress.mask]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t klass = <int32_t>packet_class(packet)
    cdef int32_t egress_id = switch_egress(e, w, node, mmu, packet, now)
    cdef int64_t free_bytes = mmu.pool_bytes - mmu.shared_used_bytes - packet.size
    cdef queue_t* pg = &e.queues[<int64_t>ingress_id * e.plan.class_count + klass]
    if unlikely(egress_id < 0 or not (e.plan.lossless_mask >> klass) & 1 or mmu.unusual != 0
                or mmu.xoff_count > 0 or pg.headroom_used_bytes > 0 or free_bytes < 0
                or pg.shared_used_bytes + packet.size >= (free_bytes * pg.alpha_q16) >> 16):
        # Lossy, or near a threshold: by the book.
        switch_arrival(e, w, node, mmu, ingress_id, egress_id, packet, now)
        return
    switch_pass(e, w, mmu, ingress, pg, egress_id, klass, packet, True, now)


cdef inline void switch_arrivals(engine_t* e, worker_t* w, int32_t node, int32_t count, ps_t now) noexcept nogil:
    """All arrivals of one instant; w.arrivals holds their local ports, each packet is at its ring's head - 1."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t index, klass
    cdef bint ordered = False
    cdef bint calm = switch_is_calm(e, w, mmu, node, count, now, &ordered)
    cdef port_t* ingress
    cdef const packet_t* packet
    if count > 1 and (ordered or not calm):
        sort_ports(w, w.arrivals, w.egress, count, now)
    for index in range(count):
        ingress = &e.ports[first_port + w.arrivals[index]]
        packet = &ingress.ring[(ingress.head - 1) & ingress.mask]
        if calm:
            klass = <int32_t>packet_class(packet)
            switch_pass(e, w, mmu, ingress,
                        &e.queues[<int64_t>(first_port + w.arrivals[index]) * e.plan.class_count + klass],
                        w.egress[index], klass, packet, not ordered, now)
        else:
            if unlikely(mmu.unusual & UNUSUAL_BALANCE):
                w.egress[index] = balance_by_state(e, w, node, mmu, packet, now)
            switch_arrival(e, w, node, mmu, first_port + w.arrivals[index], w.egress[index], packet, now)
