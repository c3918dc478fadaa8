"""The sending side of a queue pair: messages, acknowledgements, retransmission, data packets.

Owns      the qp_t pool of a host, the ready heaps of its ports, its retransmission timers.
Invariant snd_una <= snd_nxt <= snd_max, outstanding below 2^23; a sendable QP has exactly one entry in a ready heap.
Order     docs/MODEL.md 10.
Source    InfiniBand Architecture 1.4, 9.7 (reliable connection, go-back-N); docs/MODEL.md.
"""
from libc.stdlib cimport realloc
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, likely, unlikely, CC_FIXED, CLASS_SHIFT,
                     EVENT_ROW_QP_ERROR, FAULT_MEMORY, FAULT_ROUTE, FLAG_ECHO, FLAG_FIRST, FLAG_LAST, FOREVER,
                     KIND_DATA, KIND_NAK, NONE, PSN_HALF, PSN_MASK, STATUS_FAILED, STATUS_NOT_RUN)
from .packet cimport packet_t
from .plan cimport nic_profile_t, op_packets
from .state cimport engine_t, worker_t, port_t, host_t, qp_t
from .heaps cimport ready_push, ready_remove, timed_pop, timed_push
from .dcqcn cimport cc_init, cc_on_cnp, cc_on_sent, cc_step
from .ecmp cimport ecmp_port
from .link cimport link_begin, link_commit, link_wire_ps, time_of_bytes
from .trace cimport flow_row_t, event_record, record_append
from .wake cimport events_count, port_kick
from .operation cimport SLOT_DONE, SLOT_FAILED, SLOT_NEW, host_set_timer_key, operation_done
from .control cimport host_count, psn_ahead


cdef inline int64_t frame_bytes_of(const engine_t* e, int64_t payload_bytes, bint first) noexcept nogil:
    cdef int64_t pad = e.plan.pad_bytes
    cdef int64_t size = (payload_bytes + pad - 1) // pad * pad + e.plan.header_bytes
    if first:
        size += e.plan.reth_bytes
    return size if size > e.plan.frame_min_bytes else e.plan.frame_min_bytes


cdef inline int32_t qp_take(engine_t* e, host_t* host) noexcept nogil:
    cdef int32_t capacity, slot
    cdef qp_t* grown
    if unlikely(host.qp_free < 0):
        capacity = 2 * host.qp_capacity if host.qp_capacity > 0 else 2
        grown = <qp_t*>realloc(host.qps, <size_t>capacity * sizeof(qp_t))
        if grown == NULL:
            e.fault.code = FAULT_MEMORY
            return NONE
        host.qps = grown
        for slot in range(capacity - 1, host.qp_capacity - 1, -1):
            host.qps[slot].free_next = host.qp_free
            host.qp_free = slot
        host.qp_capacity = capacity
    slot = host.qp_free
    host.qp_free = host.qps[slot].free_next
    return slot


cdef inline void qp_load_message(engine_t* e, qp_t* q) noexcept nogil:
    """Take up the message at position message_index, which begins at message_first."""
    cdef int32_t op = e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.message_index]
    q.message_bytes = e.plan.op_bytes[op]
    q.message_end = q.message_first + <uint64_t>op_packets(&e.plan, op)


cdef inline bint qp_sendable(const qp_t* q) noexcept nogil:
    cdef uint64_t outstanding = q.snd_nxt - q.snd_una
    return (q.snd_nxt < q.available_end and outstanding < PSN_HALF
            and (q.window_packets == 0 or outstanding < <uint64_t>q.window_packets))


cdef inline void qp_offer(engine_t* e, worker_t* w, host_t* host, qp_t* q, int32_t slot, ps_t now) noexcept nogil:
    """The QP may have become sendable now: enter its ready heap."""
    cdef ps_t ready_ps
    cdef port_t* port
    if q.in_heap or not qp_sendable(q):
        return
    ready_ps = q.next_send_ps if q.next_send_ps > now else now
    q.in_heap = 1
    ready_push(e, &e.outboxes[<int64_t>q.port * e.plan.class_count + q.klass].ready, ready_ps, q.qp, slot)
    port = &e.ports[q.port]
    if ready_ps < port.busy_until_ps:
        ready_ps = port.busy_until_ps
    port_kick(e, w, port, q.port, ready_ps)


cdef inline void qp_withdraw(engine_t* e, qp_t* q) noexcept nogil:
    """Take a QP that can no longer send out of its ready heap (rare: after loss only)."""
    if q.in_heap:
        q.in_heap = 0
        ready_remove(&e.outboxes[<int64_t>q.port * e.plan.class_count + q.klass].ready, q.qp)


cdef inline void qp_set_deadline(engine_t* e, worker_t* w, int32_t node, host_t* host, qp_t* q,
                                 ps_t deadline_ps) noexcept nogil:
    q.deadline_ps = deadline_ps
    if not q.has_timer:
        q.has_timer = 1
        timed_push(e, &host.timers, deadline_ps, q.qp, node)
        host_set_timer_key(e, w, node)


cdef inline void qp_release(engine_t* e, host_t* host, int32_t slot) noexcept nogil:
    host.qps[slot].free_next = host.qp_free
    host.qp_free = slot


cdef inline void qp_rewind(engine_t* e, qp_t* q) noexcept nogil:
    """Go back to the first unacknowledged packet."""
    if q.snd_nxt == q.snd_una:
        return
    q.snd_nxt = q.snd_una
    q.message_index = q.una_index
    q.message_first = q.una_first
    qp_load_message(e, q)


cdef inline void qp_post(engine_t* e, worker_t* w, int32_t node, int32_t qp, ps_t now) noexcept nogil:
    """A message of the QP was posted: make available what is posted in list order."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t slot = e.qp_slot[qp]
    cdef int32_t first = e.plan.qp_op_start[qp]
    cdef int32_t count = e.plan.qp_op_start[qp + 1] - first
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int32_t op
    cdef bint was_empty
    cdef qp_t* q
    if slot == SLOT_FAILED:
        return
    if slot == SLOT_NEW:
        if e.op_status[e.plan.qp_op[first]] == STATUS_NOT_RUN:
            return
        slot = qp_take(e, host)
        if slot < 0:
            return
        e.qp_slot[qp] = slot
        q = &host.qps[slot]
        q.next_send_ps = 0
        q.snd_nxt = 0
        q.snd_una = 0
        q.snd_max = 0
        q.available_end = 0
        q.message_first = 0
        q.message_end = 0
        q.message_bytes = 0
        q.qp = qp
        q.klass = e.plan.qp_class[qp]
        q.in_heap = 0
        q.has_timer = 0
        q.message_index = 0
        q.available_index = 0
        q.una_index = 0
        q.una_first = 0
        q.una_end = <uint64_t>op_packets(&e.plan, e.plan.qp_op[first])
        q.deadline_ps = FOREVER
        q.retries = 0
        q.window_packets = nic.window_packets
        q.hash = e.plan.qp_hash[qp]
        q.dst = <uint32_t>e.plan.qp_dst[qp]
        q.group = <uint32_t>e.plan.host_group[q.dst]
        q.port = ecmp_port(&e.plan, node, q.group, q.dst, q.hash)
        if unlikely(q.port < 0):
            e.fault.code = FAULT_ROUTE
            return
        cc_init(&q.cc, e.ports[q.port].rate_bps)
        if nic.cc == CC_FIXED and nic.fixed_rate_bps < q.cc.rate_bps:
            q.cc.rate_bps = nic.fixed_rate_bps
    q = &host.qps[slot]
    was_empty = q.snd_nxt == q.available_end
    while q.available_index < count:
        op = e.plan.qp_op[first + q.available_index]
        if e.op_status[op] == STATUS_NOT_RUN:
            break
        q.available_end += <uint64_t>op_packets(&e.plan, op)
        q.available_index += 1
    if was_empty and q.snd_nxt < q.available_end:
        qp_load_message(e, q)
    qp_offer(e, w, host, q, slot, now)


cdef inline void qp_acknowledge(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot,
                                uint64_t cumulative, ps_t now) noexcept nogil:
    """snd_una advances to `cumulative`; the QP's slot is free again if that was its last packet."""
    cdef qp_t* q = &host.qps[slot]
    cdef int32_t qp = q.qp
    cdef int32_t first = e.plan.qp_op_start[qp]
    cdef int32_t count = e.plan.qp_op_start[qp + 1] - first
    cdef int32_t op
    cdef bint behind
    q.snd_una = cumulative
    q.retries = 0
    behind = q.snd_nxt < cumulative
    while q.una_index < count and q.una_end <= cumulative:
        op = e.plan.qp_op[first + q.una_index]
        q.una_index += 1
        q.una_first = q.una_end
        if q.una_index < count:
            q.una_end += <uint64_t>op_packets(&e.plan, e.plan.qp_op[first + q.una_index])
        e.op_packets[op] = op_packets(&e.plan, op) + e.op_retransmissions[op]
        operation_done(e, w, node, op, now)
    if behind:
        q.snd_nxt = cumulative
        q.message_index = q.una_index
        q.message_first = q.una_first
        if q.una_index < count and q.snd_nxt < q.available_end:
            qp_load_message(e, q)
        if not qp_sendable(q):
            qp_withdraw(e, q)
    if q.una_index == count:
        e.qp_slot[qp] = SLOT_DONE
        qp_withdraw(e, q)
        qp_release(e, host, slot)
        return
    if q.snd_una == q.snd_max:
        q.deadline_ps = FOREVER
    else:
        qp_set_deadline(e, w, node, host, q, now + e.plan.nic[e.plan.host_nic[node]].rto_ps)
    qp_offer(e, w, host, q, slot, now)


cdef inline void qp_fail(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot, ps_t now) noexcept nogil:
    """Retries are exhausted: every operation of the QP that is not done has failed."""
    cdef qp_t* q = &host.qps[slot]
    cdef int32_t qp = q.qp
    cdef int32_t first = e.plan.qp_op_start[qp]
    cdef int32_t count = e.plan.qp_op_start[qp + 1] - first
    cdef int32_t index, op
    cdef flow_row_t* row
    cdef uint64_t start = q.una_first
    cdef uint64_t length
    for index in range(q.una_index, count):
        op = e.plan.qp_op[first + index]
        length = <uint64_t>op_packets(&e.plan, op)
        e.op_packets[op] = e.op_retransmissions[op]
        if q.snd_max > start:
            e.op_packets[op] += <int64_t>(length if q.snd_max - start > length else q.snd_max - start)
        start += length
        e.op_status[op] = STATUS_FAILED
        e.op_done_ps[op] = now
        w.finished_ops += 1
        row = <flow_row_t*>record_append(e, &w.flows)
        if row != NULL:
            row.emit_ps = now
            row.node = node
            row.op = op
    e.qp_slot[qp] = SLOT_FAILED
    event_record(e, w, now, EVENT_ROW_QP_ERROR, node, NONE, NONE, qp, NONE, NONE)
    q.deadline_ps = FOREVER
    qp_withdraw(e, q)
    qp_release(e, host, slot)


cdef inline void nic_on_acknowledgement(engine_t* e, worker_t* w, int32_t node, const packet_t* packet,
                                        ps_t now) noexcept nogil:
    """ACK or NAK at the sender."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t slot = e.qp_slot[packet.qp]
    cdef qp_t* q
    cdef uint64_t ahead, outstanding
    if slot < 0:
        return
    q = &host.qps[slot]
    if packet.flags & FLAG_ECHO:
        nic_on_notification(e, w, node, host, q, now)
    ahead = psn_ahead(packet.psn, q.snd_una)
    outstanding = q.snd_max - q.snd_una
    if ahead > outstanding:
        return
    if packet.kind == KIND_NAK:
        nic_on_nak(e, w, node, host, slot, q.snd_una + ahead, ahead > 0, now)
    elif ahead > 0:
        qp_acknowledge(e, w, node, host, slot, q.snd_una + ahead, now)


cdef inline void nic_on_nak(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot, uint64_t cumulative,
                            bint progress, ps_t now) noexcept nogil:
    cdef qp_t* q = &host.qps[slot]
    cdef int32_t qp = q.qp
    if progress:
        qp_acknowledge(e, w, node, host, slot, cumulative, now)
        if e.qp_slot[qp] != slot:
            return
        q = &host.qps[slot]
    if q.snd_una < q.snd_max:
        qp_rewind(e, q)
        qp_set_deadline(e, w, node, host, q, now + e.plan.nic[e.plan.host_nic[node]].rto_ps)
        qp_offer(e, w, host, q, slot, now)


cdef inline void nic_on_notification(engine_t* e, worker_t* w, int32_t node, const host_t* host, qp_t* q,
                                     ps_t now) noexcept nogil:
    """A CNP or an echo for a live QP."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    e.op_cnps[e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.una_index]] += 1
    if nic.cc > CC_FIXED:
        cc_on_cnp(nic, &q.cc, e.ports[q.port].rate_bps, now)


cdef inline void host_run_timers(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """QP timeouts that are due; entries that came too early go back to where their QP's deadline is now."""
    cdef host_t* host = &e.hosts[node]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int32_t qp, slot
    cdef qp_t* q
    host.timer_key_ps = FOREVER
    while host.timers.count > 0 and host.timers.entries[0].time_ps <= now:
        qp = host.timers.entries[0].id
        timed_pop(&host.timers)
        slot = e.qp_slot[qp]
        if slot < 0:
            continue
        q = &host.qps[slot]
        q.has_timer = 0
        if q.deadline_ps == FOREVER:
            continue
        if q.deadline_ps > now:
            q.has_timer = 1
            timed_push(e, &host.timers, q.deadline_ps, qp, node)
            continue
        events_count(w, 1, now)
        q.retries += 1
        if q.retries > nic.retry_count:
            qp_fail(e, w, node, host, slot, now)
            continue
        qp_rewind(e, q)
        qp_set_deadline(e, w, node, host, q, now + nic.rto_ps)
        qp_offer(e, w, host, q, slot, now)
    host_set_timer_key(e, w, node)


cdef inline int64_t qp_next_bytes(const engine_t* e, const qp_t* q) noexcept nogil:
    """Frame that nic_send_data would send now."""
    cdef bint first = q.snd_nxt == q.message_first
    cdef int64_t payload_bytes = e.plan.mtu_bytes
    if q.snd_nxt + 1 == q.message_end:
        payload_bytes = q.message_bytes - <int64_t>(q.snd_nxt - q.message_first) * e.plan.mtu_bytes
    return frame_bytes_of(e, payload_bytes, first)


cdef inline void nic_send_data(engine_t* e, worker_t* w, int32_t node, port_t* port, int32_t port_id, int64_t klass,
                               qp_t* q, ps_t now) noexcept nogil:
    """Send the packet at snd_nxt and set when the next one may go."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef uint64_t number = q.snd_nxt
    cdef int64_t size = e.data_full_bytes
    cdef uint8_t flags = <uint8_t>(klass << CLASS_SHIFT)
    cdef int32_t op
    cdef ps_t wire_ps
    cdef packet_t* packet
    if number == q.message_first:
        flags |= FLAG_FIRST
    if number + 1 == q.message_end:
        flags |= FLAG_LAST
        size = frame_bytes_of(e, q.message_bytes - <int64_t>(number - q.message_first) * e.plan.mtu_bytes,
                              flags & FLAG_FIRST)
    elif flags & FLAG_FIRST:
        size = frame_bytes_of(e, e.plan.mtu_bytes, True)
    if flags & FLAG_FIRST:
        op = e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.message_index]
        if e.op_first_ps[op] < 0:
            e.op_first_ps[op] = now
    if q.snd_una == q.snd_max:
        qp_set_deadline(e, w, node, &e.hosts[node], q, now + nic.rto_ps)
    if unlikely(number < q.snd_max):
        e.op_retransmissions[e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.message_index]] += 1
        w.retransmissions += 1
    else:
        q.snd_max = number + 1
    if q.cc.next_ps <= now:
        cc_step(nic, &q.cc, port.rate_bps, now)
    wire_ps = link_wire_ps(&e.plan, port, size)
    packet = link_begin(e, w, port, port_id, size, now, wire_ps)
    if packet == NULL:
        return
    packet.qp = <uint32_t>q.qp
    packet.psn = <uint32_t>(number & PSN_MASK)
    packet.hash = q.hash
    packet.dst = q.dst
    packet.size = <unsigned short>size
    packet.kind = KIND_DATA
    packet.flags = flags
    packet.ingress = 0
    packet.group = <unsigned short>q.group
    if likely(q.cc.rate_bps == port.rate_bps):
        q.next_send_ps = now + wire_ps
    else:
        q.next_send_ps = now + time_of_bytes(&e.plan, size + e.plan.wire_overhead_bytes, q.cc.rate_bps)
    if q.cc.counts_bytes:
        cc_on_sent(nic, &q.cc, port.rate_bps, size)
    q.snd_nxt = number + 1
    if flags & FLAG_LAST:
        q.message_index += 1
        q.message_first = q.snd_nxt
        if q.snd_nxt < q.available_end:
            qp_load_message(e, q)
    w.data_sent += 1
    host_count(e, w, port, port_id, klass, size, now)
    link_commit(e, w, port, port_id, packet, now)
