"""Priority flow control: XOFF and XON of ingress PGs, pause frames, pauses obeyed.

Owns      xoff_mask, pfc_pending and refresh_ps of a port; pause_until of its egress queues; the pause rows.
Invariant every XOFF is followed by an XON, an expiry or the end of the run, and that is what its row says.
Order     a frame's contents are those of the instant at which it starts; the pause takes effect before arrivals of
          that instant.
Source    IEEE 802.1Qbb-2011; docs/MODEL.md 7.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, CROSSED_DYNAMIC, CROSSED_HEADROOM,
                     CROSSED_STATIC, EVENT_PFC, EVENT_TIMER, FAULT_MEMORY, FOREVER, KIND_CORRUPT, KIND_PFC, NONE,
                     PAUSE_END_EXPIRY, PAUSE_END_LINK, PAUSE_END_RUN, PAUSE_END_XON, PENDING_PFC, TIMER_REFRESH)
from .memory cimport ring_grow
from .packet cimport packet_shape, packet_t, packet_words
from .rng cimport fold64
from .state cimport engine_t, worker_t, port_t, queue_t, pause_t, pending_t, pending_queue_t, switch_t
from .heaps cimport event_key, events_push
from .link cimport link_begin, link_commit, link_wire_ps
from .mmu cimport mmu_is_static, mmu_threshold
from .stats cimport port_touch_classes, stats_paused
from .trace cimport pause_row_t, record_append
from .wake cimport port_expect, port_kick
from .watch cimport watch_changed


cdef inline uint64_t pause_digest(ps_t xoff_ps, ps_t sent_ps, ps_t end_ps, int32_t port_id,
                                  int32_t klass) noexcept nogil:
    return fold64(fold64(fold64(fold64(0, <uint64_t>xoff_ps), <uint64_t>sent_ps), <uint64_t>end_ps),
                  (<uint64_t>port_id << 8) | <uint64_t>klass)


cdef inline void pause_cut_rows(engine_t* e, worker_t* w, int32_t port_id, ps_t now) noexcept nogil:
    """The link is dead: rows that were written with an end still to come, their frame being on its way, end now."""
    cdef pause_row_t* rows = <pause_row_t*>w.pauses.data
    cdef pause_row_t* row
    cdef int64_t index
    for index in range(w.pauses.count):
        row = &rows[index]
        if row.port != port_id or row.end_ps <= now:
            continue
        w.row_digest -= pause_digest(row.xoff_ps, row.sent_ps, row.end_ps, port_id, row.klass)
        row.end_ps = row.start_ps if row.start_ps > now else now
        row.end = PAUSE_END_LINK
        row.emit_ps = row.end_ps
        w.row_digest += pause_digest(row.xoff_ps, row.sent_ps, row.end_ps, port_id, row.klass)


cdef inline void pause_row(engine_t* e, worker_t* w, pause_t* pause, int32_t port_id, int32_t klass, int32_t end,
                           ps_t end_ps, ps_t now) noexcept nogil:
    """Write the row and close it."""
    cdef pause_row_t* row = <pause_row_t*>record_append(e, &w.pauses)
    w.row_digest += pause_digest(pause.xoff_ps, pause.sent_ps, end_ps, port_id, klass)
    if row != NULL:
        # The row is final when its end has passed.
        row.emit_ps = end_ps if end_ps > now else now
        row.node = e.ports[port_id].node
        row.port = port_id
        row.xoff_ps = pause.xoff_ps
        row.sent_ps = pause.sent_ps
        row.start_ps = pause.start_ps
        row.xon_ps = pause.xon_ps
        row.end_ps = end_ps
        row.ingress_bytes = pause.ingress_bytes
        row.headroom_bytes = pause.headroom_bytes
        row.threshold_bytes = pause.threshold_bytes
        row.egress_port = pause.egress_port
        row.parent_port = pause.parent_port
        row.crossed = pause.crossed
        row.klass = <uint8_t>klass
        row.end = <uint8_t>end
    pause.xoff_ps = -1


cdef inline int32_t pfc_root(const switch_t* mmu, const queue_t* pg, int32_t first_port) noexcept nogil:
    """Egress port that holds most bytes of the PG; lowest port on ties, -1 if none does."""
    cdef int32_t egress
    cdef int32_t best = -1
    cdef uint32_t most = 0
    for egress in range(mmu.port_count):
        if pg.held[egress] > most:
            most = pg.held[egress]
            best = first_port + egress
    return best


cdef inline pause_t* pause_of(const engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """The two rows of a lossless class: the one being written, the one before, whose XON waits for its frame."""
    return &e.pauses[2 * (<int64_t>port_id * e.lossless_count + e.lossless_index[klass])]


cdef inline pause_t* pause_begin(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int32_t klass,
                                 ps_t now) noexcept nogil:
    """XOFF stands from now on for a class at a port: a new row; the caller fills in why."""
    cdef pause_t* pause = pause_of(e, port_id, klass)
    port.xoff_mask |= <uint8_t>(1 << klass)
    w.xoffs += 1
    if pause.xoff_ps >= 0:
        # XON was decided, but no frame has told the peer yet: the next one ends that row and begins this.
        pause[1] = pause[0]
    pause.xoff_ps = now
    pause.sent_ps = -1
    pause.start_ps = -1
    pause.xon_ps = -1
    pause.peer_until_ps = -1
    return pause


cdef inline void pfc_raise(engine_t* e, worker_t* w, switch_t* mmu, port_t* port, int32_t port_id,
                           int32_t klass, ps_t now) noexcept nogil:
    """XOFF is raised for a PG of this port."""
    cdef int64_t index = <int64_t>port_id * e.plan.class_count + klass
    cdef queue_t* pg = &e.queues[index]
    cdef pause_t* pause = pause_begin(e, w, port, port_id, klass, now)
    mmu.xoff_count += 1
    pause.ingress_bytes = pg.reserved_used_bytes + pg.shared_used_bytes + pg.headroom_used_bytes
    pause.headroom_bytes = pg.headroom_used_bytes
    pause.threshold_bytes = mmu_threshold(e, mmu, pg)
    if pg.headroom_used_bytes > 0:
        pause.crossed = CROSSED_HEADROOM
    else:
        pause.crossed = CROSSED_STATIC if mmu_is_static(e, mmu, pg) else CROSSED_DYNAMIC
    pause.egress_port = pfc_root(mmu, pg, port_id - port.local)
    pause.parent_port = NONE
    if pause.egress_port >= 0 and (
            e.queues[<int64_t>pause.egress_port * e.plan.class_count + klass].pause_until_ps > now):
        pause.parent_port = e.plan.port_peer[pause.egress_port]


cdef inline void pfc_lower(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int32_t klass,
                           ps_t now) noexcept nogil:
    """XON is decided for a PG of this port, or for a class of a host port."""
    cdef pause_t* pause = pause_of(e, port_id, klass)
    port.xoff_mask &= <uint8_t>~(1 << klass)
    if port.node >= e.plan.host_count:
        e.switches[port.node - e.plan.host_count].xoff_count -= 1
    pause.xon_ps = now
    if pause.start_ps < 0:
        pause_row(e, w, pause, port_id, klass, PAUSE_END_XON, now, now)


cdef inline void pfc_silence(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int32_t klass,
                             ps_t now) noexcept nogil:
    """XOFF that stands for a PG is forgotten and no frame is sent; the next one, for whatever class, says XON."""
    cdef pause_t* pause = pause_of(e, port_id, klass)
    if not (port.xoff_mask >> klass) & 1:
        return
    port.xoff_mask &= <uint8_t>~(1 << klass)
    if port.node >= e.plan.host_count:
        e.switches[port.node - e.plan.host_count].xoff_count -= 1
    if port.xoff_mask == 0:
        port.refresh_ps = FOREVER
    if pause.start_ps < 0:
        pause.xon_ps = now
        pause_row(e, w, pause, port_id, klass, PAUSE_END_XON, now, now)


cdef inline void pfc_want_frame(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t now) noexcept nogil:
    port.pfc_pending |= PENDING_PFC
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void pause_told(engine_t* e, worker_t* w, int32_t port_id, int32_t klass, bint xoff, ps_t now,
                            ps_t effect_ps, ps_t pause_ps) noexcept nogil:
    """A frame that speaks of this PG starts now and takes effect at `effect_ps`: keep the row true."""
    cdef pause_t* pause = pause_of(e, port_id, klass)
    if pause[1].xoff_ps >= 0:
        pause_ended(e, w, &pause[1], port_id, klass, now, effect_ps)
    if pause.xoff_ps < 0:
        return
    if xoff:
        if pause.start_ps < 0:
            if pause.sent_ps < 0:
                pause.sent_ps = now
            pause.start_ps = effect_ps
        elif pause.peer_until_ps < effect_ps:
            pause_row_reopen(e, w, pause, port_id, klass, now)
            pause.sent_ps = now
            pause.start_ps = effect_ps
        pause.peer_until_ps = effect_ps + pause_ps if pause_ps > 0 else FOREVER
    else:
        pause_ended(e, w, pause, port_id, klass, now, effect_ps)


cdef inline void pause_sent_in_vain(engine_t* e, int32_t port_id, int32_t klass, bint xoff, ps_t now) noexcept nogil:
    """A frame that speaks of this PG starts now, and the link corrupts it."""
    cdef pause_t* pause = pause_of(e, port_id, klass)
    if xoff and pause.xoff_ps >= 0 and pause.sent_ps < 0:
        pause.sent_ps = now


cdef inline void pause_ended(engine_t* e, worker_t* w, pause_t* pause, int32_t port_id, int32_t klass, ps_t now,
                             ps_t effect_ps) noexcept nogil:
    """The first frame after the XON was decided takes effect at `effect_ps`."""
    if pause.peer_until_ps <= effect_ps:
        pause_row(e, w, pause, port_id, klass, PAUSE_END_EXPIRY, pause.peer_until_ps, now)
    else:
        pause_row(e, w, pause, port_id, klass, PAUSE_END_XON, effect_ps, now)


cdef inline void pause_row_reopen(engine_t* e, worker_t* w, pause_t* pause, int32_t port_id, int32_t klass,
                                  ps_t now) noexcept nogil:
    """The pause ran out at the peer while XOFF stands: end its row, go on with a new one of the same XOFF."""
    cdef ps_t xoff_ps = pause.xoff_ps
    pause_row(e, w, pause, port_id, klass, PAUSE_END_EXPIRY, pause.peer_until_ps, now)
    pause.xoff_ps = xoff_ps


cdef inline void pfc_send(engine_t* e, worker_t* w, port_t* port, int32_t port_id, uint32_t xoff_mask,
                          uint32_t classes, ps_t now) noexcept nogil:
    """Put one PFC frame on the wire; the port is free."""
    cdef ps_t pause_ps = e.plan.port_pause_ps[port_id]
    cdef ps_t effect_ps
    cdef int32_t klass
    cdef packet_t* packet = link_begin(e, w, port, port_id, e.plan.pfc_bytes, now,
                                       link_wire_ps(&e.plan, port, e.plan.pfc_bytes))
    if packet == NULL:
        return
    packet.qp = <uint32_t>0xffffffff
    packet.psn = xoff_mask
    packet.hash = classes
    packet.dst = 0
    packet.size = <unsigned short>e.plan.pfc_bytes
    packet.kind = KIND_PFC
    packet.flags = 0
    packet.ingress = 0
    packet.group = 0
    link_commit(e, w, port, port_id, packet, packet_words(packet.qp, xoff_mask),
                packet_shape(packet.size, KIND_PFC, 0), now)
    w.pfc_sent += 1
    port_touch_classes(e, w, port_id, classes)
    effect_ps = port.busy_until_ps + port.delay_ps + e.plan.port_pfc_response_ps[e.plan.port_peer[port_id]]
    for klass in range(e.plan.class_count):
        if (classes >> klass) & 1:
            if (xoff_mask >> klass) & 1:
                e.queues[<int64_t>port_id * e.plan.class_count + klass].xoff_sent += 1
            if unlikely(packet.kind & KIND_CORRUPT):
                pause_sent_in_vain(e, port_id, klass, (xoff_mask >> klass) & 1, now)
            else:
                pause_told(e, w, port_id, klass, (xoff_mask >> klass) & 1, now, effect_ps, pause_ps)
    if xoff_mask != 0 and pause_ps > 0:
        port.refresh_ps = now + pause_ps // 2
        pfc_set_refresh(e, w, port, port_id)
    else:
        port.refresh_ps = FOREVER


cdef inline void pfc_set_refresh(engine_t* e, worker_t* w, port_t* port, int32_t port_id) noexcept nogil:
    """Put the timer key of this port where it belongs."""
    if port.refresh_ps < w.limit_ps:
        events_push(e, w, event_key(port.refresh_ps - w.window_start_ps, EVENT_TIMER, TIMER_REFRESH,
                                    <uint64_t>port.local))
    else:
        port_expect(e, w, port_id, port.refresh_ps)


cdef inline void pfc_collect(engine_t* e, worker_t* w, const port_t* port, int32_t port_id) noexcept nogil:
    """Take up what a port has to do about pauses in this visit: the frame that repeats them, responses that are due."""
    cdef const pending_queue_t* pending = &e.pendings[port_id]
    cdef uint32_t position
    cdef ps_t time_ps
    if port.refresh_ps < w.limit_ps:
        events_push(e, w, event_key(port.refresh_ps - w.window_start_ps, EVENT_TIMER, TIMER_REFRESH,
                                    <uint64_t>port.local))
    if port.pending_count > 0:
        position = pending.head
        while position != pending.tail:
            time_ps = pending.buffer[position & pending.mask].time_ps
            if time_ps >= w.limit_ps:
                break
            position += 1
            events_push(e, w, event_key(time_ps - w.window_start_ps, EVENT_PFC, 1, <uint64_t>port.local))


cdef inline void pfc_apply(engine_t* e, worker_t* w, port_t* port, int32_t port_id, uint32_t xoff_mask,
                           uint32_t classes, ps_t now) noexcept nogil:
    """A PFC frame takes effect at the port it was sent to."""
    cdef ps_t pause_ps = e.plan.port_pause_ps[e.plan.port_peer[port_id]]
    cdef queue_t* queue
    cdef int32_t klass
    cdef bint resumed = False
    classes &= e.pfc_obey_mask[port_id]
    port_touch_classes(e, w, port_id, classes)
    for klass in range(e.plan.class_count):
        if not (classes >> klass) & 1:
            continue
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        stats_paused(queue, now)
        if (xoff_mask >> klass) & 1:
            queue.xoff_received += 1
            if unlikely(e.watches != NULL) and queue.pause_until_ps < now:
                # A pause that is renewed at or before its end goes on.
                e.watches[<int64_t>port_id * e.plan.class_count + klass].pause_begin_ps = now
            queue.pause_until_ps = now + pause_ps if pause_ps > 0 else FOREVER
            queue.pause_since_ps = now
        elif queue.pause_until_ps > now:
            queue.pause_until_ps = now
            queue.pause_since_ps = -1
            resumed = True
        if unlikely(e.watches != NULL):
            watch_changed(e, w, port.node, <int64_t>port_id * e.plan.class_count + klass, now)
    if resumed:
        port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void pfc_defer(engine_t* e, worker_t* w, port_t* port, int32_t port_id, uint32_t xoff_mask,
                           uint32_t classes, ps_t time_ps) noexcept nogil:
    """Keep a received frame until its response delay is over."""
    cdef pending_queue_t* pending = &e.pendings[port_id]
    cdef pending_t* entry = pending_push(e, w, pending)
    if entry == NULL:
        return
    entry.time_ps = time_ps
    entry.mask = xoff_mask
    entry.classes = classes
    port.pending_count += 1
    if w.lone:
        return
    if time_ps < w.limit_ps:
        events_push(e, w, event_key(time_ps - w.window_start_ps, EVENT_PFC, 1,
                                    <uint64_t>port.local))
    else:
        port_expect(e, w, port_id, time_ps)


cdef inline void pfc_receive(engine_t* e, worker_t* w, port_t* port, int32_t port_id, const packet_t* packet,
                             ps_t now) noexcept nogil:
    """A PFC frame has arrived: it takes effect now, or when the port has responded to it."""
    cdef ps_t response_ps = e.plan.port_pfc_response_ps[port_id]
    w.pfc_received += 1
    if response_ps == 0:
        pfc_apply(e, w, port, port_id, packet.psn, packet.hash, now)
    else:
        pfc_defer(e, w, port, port_id, packet.psn, packet.hash, now + response_ps)


cdef inline ps_t pfc_deferred_ps(const engine_t* e, int32_t port_id) noexcept nogil:
    """When the next frame that the port responds to takes effect; there is one."""
    cdef const pending_queue_t* pending = &e.pendings[port_id]
    return pending.buffer[pending.head & pending.mask].time_ps


cdef inline void pfc_defer_over(engine_t* e, worker_t* w, port_t* port, int32_t port_id, ps_t now) noexcept nogil:
    """The oldest frame that was kept takes effect."""
    cdef pending_queue_t* pending = &e.pendings[port_id]
    cdef pending_t entry = pending.buffer[pending.head & pending.mask]
    pending.head += 1
    port.pending_count -= 1
    pfc_apply(e, w, port, port_id, entry.mask, entry.classes, now)


cdef inline pending_t* pending_push(engine_t* e, worker_t* w, pending_queue_t* pending) noexcept nogil:
    if unlikely(pending.tail - pending.head == pending.mask + 1):
        if not ring_grow(w.arena, <void**>&pending.buffer, &pending.mask, pending.head, 4, sizeof(pending_t)):
            e.fault.code = FAULT_MEMORY
            return NULL
    pending.tail += 1
    return &pending.buffer[(pending.tail - 1) & pending.mask]


cdef inline void pauses_end(engine_t* e, worker_t* w, ps_t end_ps) noexcept nogil:
    """Write the rows of the pauses that stand when a run ends."""
    cdef int32_t port_id, klass, index
    cdef pause_t* pause
    for port_id in range(e.plan.port_count):
        for klass in range(e.plan.class_count):
            for index in range(2 if (e.plan.lossless_mask >> klass) & 1 else 0):
                pause = pause_of(e, port_id, klass) + 1 - index
                if pause.xoff_ps < 0:
                    continue
                if pause.start_ps >= 0 and pause.peer_until_ps <= end_ps:
                    pause_row(e, w, pause, port_id, klass, PAUSE_END_EXPIRY, pause.peer_until_ps, end_ps)
                else:
                    pause_row(e, w, pause, port_id, klass, PAUSE_END_RUN,
                              end_ps if end_ps > pause.start_ps else pause.start_ps, end_ps)
