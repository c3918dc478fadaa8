"""The express lane: a switch that can meet no threshold within a window serves each egress port by itself.

Owns      express_applies, express_run, the lists of arrivals per egress port.
Invariant it leaves the very state that visiting instant by instant would: with no XOFF standing and none possible,
          ports do
          not touch each other, and what a PG holds in reserved and shared is a function of its bytes alone.
Order     within an egress port as in docs/MODEL.md 5: arrivals of an instant in keyed order, then the choice.
"""
from .types cimport int32_t, int64_t, uint16_t, uint32_t, ps_t, unlikely, prefetch, FOREVER
from .packet cimport packet_t, packet_class
from .state cimport engine_t, worker_t, port_t, queue_t, switch_t
from .heaps cimport KEY_PORT_MASK
from .ecmp cimport ecmp_port
from .mmu cimport mmu_charge
from .switch cimport queue_put, switch_choose, switch_send
from .ties cimport sort_ports
from .wake cimport events_count, port_expect


cdef inline bint express_applies(const engine_t* e, const worker_t* w, int32_t node) noexcept nogil:
    """Whether no arrival of this visit can be dropped or raise XOFF, even if nothing left in the meantime."""
    cdef const switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int64_t free_bytes = mmu.pool_bytes - mmu.shared_used_bytes - w.inbox_bytes
    cdef const queue_t* pg
    cdef int32_t index, klass
    cdef uint32_t classes
    cdef uint32_t present = 0
    if not e.express or w.has_special or mmu.xoff_count > 0 or mmu.unusual != 0 or free_bytes < 0:
        return False
    for index in range(w.due_count):
        classes = w.due_classes[index]
        present |= classes
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
    """Whether no egress limit can be met by frames of these lossy classes, wherever they go."""
    cdef int32_t port_id, klass
    cdef int64_t limit_bytes
    for klass in range(e.plan.class_count):
        if not (classes >> klass) & 1:
            continue
        limit_bytes = e.egress_alpha_min_q16[(node - e.plan.host_count) * e.plan.class_count + klass]
        limit_bytes = (free_bytes * limit_bytes) >> 16
        if w.inbox_bytes >= limit_bytes:
            return False
        for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
            if (e.ports[port_id].waiting_mask >> klass) & 1 and (
                    e.queues[<int64_t>port_id * e.plan.class_count + klass].bytes + w.inbox_bytes >= limit_bytes):
                return False
    return True


cdef inline void express_order_ties(engine_t* e, worker_t* w, int32_t local, int32_t first, ps_t now) noexcept nogil:
    """Put the arrivals of one instant, from list entry `first` on, into keyed order."""
    cdef int32_t count = 0
    cdef int32_t entry = first
    cdef int32_t index, after
    while entry >= 0 and w.express_packets[entry].time_ps == now:
        w.arrivals[count] = <int32_t>(w.inbox[entry] & KEY_PORT_MASK)
        w.egress[count] = entry
        count += 1
        entry = w.express_next[entry]
    after = entry
    sort_ports(w, w.arrivals, w.egress, count, now)
    # The entries of the run change places by swapping what they stand for: relink them.
    w.express_first = w.egress[0]
    for index in range(count - 1):
        w.express_next[w.egress[index]] = w.egress[index + 1]
    w.express_next[w.egress[count - 1]] = after


cdef inline void express_serve(engine_t* e, worker_t* w, switch_t* mmu, int32_t first_port, int32_t port_id,
                               int32_t entry) noexcept nogil:
    """Serve one egress port to the end of the visit: its arrivals from list entry `entry` on, and its choices."""
    cdef port_t* port = &e.ports[port_id]
    cdef port_t* ingress
    cdef queue_t* queue
    cdef queue_t* pg
    cdef const packet_t* packet
    cdef ps_t next_ps = port.kick_ps
    cdef ps_t arrival_ps, when_ps
    cdef ps_t ordered_ps = -1
    cdef int32_t klass, following
    port.kick_ps = FOREVER
    while True:
        arrival_ps = FOREVER
        if entry >= 0:
            arrival_ps = w.express_packets[entry].time_ps
        if next_ps < arrival_ps:
            if next_ps >= w.limit_ps:
                break
            when_ps = next_ps
            next_ps = switch_choose(e, w, mmu, first_port, port, port_id, when_ps)
            if port.busy_until_ps > when_ps:
                events_count(w, 1, when_ps)
            continue
        if entry < 0:
            break
        following = w.express_next[entry]
        if unlikely(following >= 0 and arrival_ps != ordered_ps
                    and w.express_packets[following].time_ps == arrival_ps):
            express_order_ties(e, w, port.local, entry, arrival_ps)
            entry = w.express_first
            following = w.express_next[entry]
            ordered_ps = arrival_ps
        packet = w.express_packets[entry]
        klass = <int32_t>packet_class(packet)
        ingress = &e.ports[first_port + <int32_t>(w.inbox[entry] & KEY_PORT_MASK)]
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        events_count(w, 1, arrival_ps)
        if (next_ps == FOREVER and port.busy_until_ps <= arrival_ps and (port.waiting_mask | port.pfc_pending) == 0
                and mmu.latency_ps == 0 and queue.pause_until_ps <= arrival_ps
                and (following < 0 or w.express_packets[following].time_ps > arrival_ps)):
            if queue.bytes_max < packet.size:
                queue.bytes_max = packet.size
            switch_send(e, w, port, port_id, klass, queue, packet, arrival_ps)
        else:
            pg = &e.queues[<int64_t>(first_port + ingress.local) * e.plan.class_count + klass]
            mmu_charge(mmu, pg, packet.size)
            if (e.plan.lossless_mask >> klass) & 1:
                pg.held[port.local] += <uint32_t>packet.size
            e.port_dirty[port_id] = 1
            queue_put(e, queue, port, <uint16_t>ingress.local, klass, packet, arrival_ps)
            when_ps = arrival_ps + mmu.latency_ps
            if port.busy_until_ps > when_ps:
                when_ps = port.busy_until_ps
            if queue.pause_until_ps > when_ps:
                when_ps = queue.pause_until_ps
            if when_ps < next_ps:
                next_ps = when_ps
        entry = following
    port.kick_ps = next_ps
    if next_ps < FOREVER:
        port_expect(e, w, port_id, next_ps)


cdef inline void express_run(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    """The whole visit: arrivals go to lists of their egress ports; ports with a list or a choice due are served."""
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t touched = 0
    cdef int32_t index, local, egress_id
    cdef int64_t entry
    cdef port_t* ingress
    cdef const packet_t* packet
    for entry in range(w.inbox_count):
        ingress = &e.ports[first_port + <int32_t>(w.inbox[entry] & KEY_PORT_MASK)]
        packet = &ingress.ring[ingress.head & ingress.mask]
        ingress.head += 1
        egress_id = ecmp_port(&e.plan, node, packet.group, packet.dst, packet.hash)
        local = egress_id - first_port
        w.express_packets[entry] = packet
        w.express_next[entry] = -1
        if w.express_head[local] < 0:
            w.express_head[local] = <int32_t>entry
            prefetch(&e.queues[<int64_t>egress_id * e.plan.class_count + <int32_t>packet_class(packet)])
            prefetch(&e.ports[e.ports[egress_id].peer].ring)
            w.choices[touched] = local
            touched += 1
        else:
            w.express_next[w.express_tail[local]] = <int32_t>entry
        w.express_tail[local] = <int32_t>entry
    w.link_received += w.inbox_count
    for index in range(w.due_count):
        local = w.due[index] - first_port
        if w.express_head[local] < 0 and e.ports[w.due[index]].kick_ps < w.limit_ps:
            express_serve(e, w, mmu, first_port, w.due[index], -1)
    for index in range(touched):
        local = w.choices[index]
        entry = w.express_head[local]
        w.express_head[local] = -1
        express_serve(e, w, mmu, first_port, first_port + local, <int32_t>entry)
