"""The sending side of a queue pair: messages, acknowledgements, retransmission, data packets.

Owns      the qp_t pool of a host, the ready heaps of its ports, its retransmission timers.
Invariant snd_una <= snd_nxt <= snd_max, outstanding below 2^23; a sendable QP has exactly one entry in a ready heap.
Order     docs/MODEL.md 10.
Source    InfiniBand Architecture 1.4, 9.7 (reliable connection, go-back-N); docs/MODEL.md.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t, likely, unlikely, CC_FIXED,
                     CLASS_SHIFT, FAULT_MEMORY, FAULT_ROUTE, FLAG_ECHO, FLAG_FIRST, FLAG_LAST, FOREVER, KIND_DATA,
                     KIND_MASK, KIND_NAK, MODE_PLAIN, MODE_READ, MODE_SELECTIVE, NONE, PSN_BITS, PSN_HALF,
                     SACK_KIND_BITS, SACK_KIND_SHIFT, STATUS_NOT_RUN, VERB_WRITE)
from .memory cimport array_grow
from .packet cimport packet_shape, packet_t, packet_words
from .plan cimport nic_profile_t, op_packets
from .state cimport engine_t, worker_t, port_t, host_t, qp_t, sacked_t
from .heaps cimport ready_push, ready_remove, timed_push
from .dcqcn cimport cc_init, cc_on_cnp, cc_on_sent, cc_step
from .ecmp cimport ecmp_port
from .link cimport burst_t, burst_begin, time_of_bytes
from .selective cimport (sacked_advance, sacked_begin, sacked_grow, sacked_mark, sacked_recover, sacked_seek,
                         sacked_tells_loss)
from .wake cimport events_count, port_kick
from .operation cimport (SLOT_DONE, SLOT_FAILED, SLOT_NEW, host_set_timer_key, operation_done, operations_fail)
from .control cimport host_commit, psn_ahead, psn_wire


cdef inline int64_t frame_bytes_of(const engine_t* e, int64_t payload_bytes, int64_t extra_bytes) noexcept nogil:
    """Frame of a data packet that has `extra_bytes` of headers beside the usual ones (MODEL 3)."""
    cdef int64_t pad = e.plan.pad_bytes
    cdef int64_t size = (payload_bytes + pad - 1) // pad * pad + e.plan.header_bytes + extra_bytes
    return size if size > e.plan.frame_min_bytes else e.plan.frame_min_bytes


cdef inline int32_t qp_take(engine_t* e, worker_t* w, host_t* host) noexcept nogil:
    cdef int32_t capacity, slot
    if unlikely(host.qp_free < 0):
        capacity = 2 * host.qp_capacity if host.qp_capacity > 0 else 2
        if not array_grow(w.arena, <void**>&host.qps, host.qp_capacity, capacity, sizeof(qp_t)):
            e.fault.code = FAULT_MEMORY
            return NONE
        if e.plan.has_selective and not sacked_grow(e, w, host, capacity):
            return NONE
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


cdef inline uint32_t qp_window(int64_t packets) noexcept nogil:
    """A window as a QP keeps it: no more than PSN_HALF are outstanding whatever it says."""
    return <uint32_t>(packets if packets < PSN_HALF else PSN_HALF)


cdef inline bint qp_sendable(const qp_t* q) noexcept nogil:
    cdef uint64_t outstanding = q.snd_nxt - q.snd_una
    return q.repair or (q.snd_nxt < q.available_end and outstanding < PSN_HALF
                        and (q.window_packets == 0 or outstanding < q.window_packets))


cdef inline void qp_offer(engine_t* e, worker_t* w, host_t* host, qp_t* q, int32_t slot, ps_t now) noexcept nogil:
    """The QP may have become sendable now: enter its ready heap."""
    cdef ps_t ready_ps
    cdef port_t* port
    if q.in_heap or not qp_sendable(q):
        return
    ready_ps = q.next_send_ps if q.next_send_ps > now else now
    q.in_heap = 1
    ready_push(e, w, &e.outboxes[<int64_t>q.port * e.plan.class_count + q.klass].ready, ready_ps, q.qp, slot)
    port = &e.ports[q.port]
    port.waiting_mask |= <uint8_t>(1 << q.klass)
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
        timed_push(e, w, &host.timers, deadline_ps, q.qp, node)
        host_set_timer_key(e, w, node)


cdef inline void qp_release(engine_t* e, host_t* host, int32_t slot) noexcept nogil:
    host.qps[slot].free_next = host.qp_free
    host.qp_free = slot


cdef inline void qp_seek(engine_t* e, host_t* host, int32_t slot) noexcept nogil:
    """Selective repeat: look for the packet to be sent again; a QP that has none and nothing new cannot send."""
    cdef qp_t* q = &host.qps[slot]
    q.repair = sacked_seek(&host.sacked[slot], q.snd_una, q.snd_max)
    if q.in_heap and not qp_sendable(q):
        qp_withdraw(e, q)


cdef inline void qp_rewind(engine_t* e, qp_t* q) noexcept nogil:
    """Go back to the first unacknowledged packet."""
    if q.snd_nxt == q.snd_una:
        return
    q.snd_nxt = q.snd_una
    q.message_index = q.una_index
    q.message_first = q.una_first
    qp_load_message(e, q)


cdef inline int32_t qp_begin(engine_t* e, worker_t* w, host_t* host, int32_t node, int32_t qp, uint8_t mode,
                             uint32_t dst) noexcept nogil:
    """A QP takes a slot at the host that sends its data to `dst`; NONE after a fault."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int32_t slot = qp_take(e, w, host)
    cdef qp_t* q
    if slot < 0:
        return NONE
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
    q.mode = mode
    q.repair = 0
    q.first_extra = 0
    q.last_extra = 0
    q.message_index = 0
    q.available_index = 0
    q.una_index = 0
    q.una_first = 0
    q.una_end = <uint64_t>op_packets(&e.plan, e.plan.qp_op[e.plan.qp_op_start[qp]])
    q.deadline_ps = FOREVER
    q.retries = 0
    q.timeout_una = 0
    q.window_packets = qp_window(nic.window_packets)
    q.hash = e.plan.qp_hash[qp]
    q.dst = dst
    q.group = <uint16_t>e.plan.host_group[dst]
    if mode == MODE_READ:
        q.window_packets = 0
        q.first_extra = <uint16_t>e.plan.aeth_bytes
        q.last_extra = <uint16_t>e.plan.aeth_bytes
    elif e.plan.qp_verb[qp] == VERB_WRITE:
        q.first_extra = <uint16_t>e.plan.reth_bytes
    if mode == MODE_SELECTIVE:
        if q.window_packets == 0 or nic.selective_window < q.window_packets:
            q.window_packets = qp_window(nic.selective_window)
        sacked_begin(e, w, &host.sacked[slot], nic.selective_window, nic.reorder)
    q.port = ecmp_port(&e.plan, node, q.group, q.dst, q.hash)
    if unlikely(q.port < 0):
        e.fault.code = FAULT_ROUTE
        return NONE
    cc_init(&q.cc, e.ports[q.port].rate_bps)
    if nic.cc == CC_FIXED and nic.fixed_rate_bps < q.cc.rate_bps:
        q.cc.rate_bps = nic.fixed_rate_bps
    return slot


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
        slot = qp_begin(e, w, host, node, qp, MODE_SELECTIVE if nic.selective else MODE_PLAIN,
                        <uint32_t>e.plan.qp_dst[qp])
        if slot < 0:
            return
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
    if unlikely(q.mode == MODE_SELECTIVE):
        sacked_advance(&host.sacked[slot], q.snd_una, cumulative)
    q.snd_una = cumulative
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
    if unlikely(q.mode == MODE_SELECTIVE):
        qp_seek(e, host, slot)
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
    cdef uint64_t start = q.una_first
    cdef uint64_t length
    for index in range(q.una_index, count):
        op = e.plan.qp_op[first + index]
        length = <uint64_t>op_packets(&e.plan, op)
        e.op_packets[op] = e.op_retransmissions[op]
        if q.snd_max > start:
            e.op_packets[op] += <int64_t>(length if q.snd_max - start > length else q.snd_max - start)
        start += length
    operations_fail(e, w, node, qp, q.una_index, now)
    e.qp_slot[qp] = SLOT_FAILED
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
    ahead = psn_ahead(e, packet.psn, q.snd_una)
    outstanding = q.snd_max - q.snd_una
    if ahead > outstanding:
        return
    if packet.kind & KIND_MASK == KIND_NAK:
        if unlikely(q.mode == MODE_SELECTIVE):
            nic_on_sack(e, w, node, host, slot, q.snd_una + ahead, packet, now)
        else:
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


cdef inline void nic_on_sack(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot, uint64_t cumulative,
                             const packet_t* packet, ps_t now) noexcept nogil:
    """NAK under selective repeat: all below `cumulative` has come, and one packet beyond it."""
    cdef qp_t* q = &host.qps[slot]
    cdef int32_t qp = q.qp
    cdef uint64_t sack = cumulative + 1 + ((packet.psn >> PSN_BITS) | (
        <uint32_t>(packet.kind >> SACK_KIND_SHIFT) & ((1 << SACK_KIND_BITS) - 1)) << (32 - PSN_BITS))
    if cumulative > q.snd_una:
        qp_acknowledge(e, w, node, host, slot, cumulative, now)
        if e.qp_slot[qp] != slot:
            return
        q = &host.qps[slot]
    if sack >= q.snd_max:
        return
    sacked_mark(&host.sacked[slot], sack)
    if host.sacked[slot].recovery_end == 0 and sacked_tells_loss(&host.sacked[slot], q.snd_una):
        sacked_recover(&host.sacked[slot], q.snd_una, q.snd_max, False)
    qp_seek(e, host, slot)
    qp_offer(e, w, host, q, slot, now)


cdef inline void nic_on_notification(engine_t* e, worker_t* w, int32_t node, const host_t* host, qp_t* q,
                                     ps_t now) noexcept nogil:
    """A CNP or an echo for a live QP."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    e.op_cnps[e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.una_index]] += 1
    if nic.cc > CC_FIXED:
        cc_on_cnp(nic, &q.cc, e.ports[q.port].rate_bps, now)


cdef inline void qp_on_timer(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot,
                             ps_t now) noexcept nogil:
    """The timer entry of a QP has come up: its deadline may have, too."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef qp_t* q = &host.qps[slot]
    q.has_timer = 0
    if q.deadline_ps == FOREVER:
        return
    if q.deadline_ps > now:
        q.has_timer = 1
        timed_push(e, w, &host.timers, q.deadline_ps, q.qp, node)
        return
    events_count(w, 1, now)
    if q.timeout_una != q.snd_una:
        q.timeout_una = q.snd_una
        q.retries = 0
    q.retries += 1
    if q.retries > nic.retry_count:
        qp_fail(e, w, node, host, slot, now)
        return
    if unlikely(q.mode == MODE_SELECTIVE):
        sacked_recover(&host.sacked[slot], q.snd_una, q.snd_max, True)
        qp_seek(e, host, slot)
    else:
        qp_rewind(e, q)
    qp_set_deadline(e, w, node, host, q, now + nic.rto_ps)
    qp_offer(e, w, host, q, slot, now)


cdef inline bint nic_emit_data(engine_t* e, worker_t* w, int32_t node, burst_t* burst, int32_t port_id, int64_t klass,
                               qp_t* q, uint64_t number, int64_t size, uint8_t flags, ps_t now) noexcept nogil:
    """Put a data packet on the wire and set when the QP may send the next one."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int64_t line_rate_bps = burst.port.rate_bps
    cdef packet_t* packet
    if unlikely(q.cc.next_ps <= now):
        cc_step(nic, &q.cc, line_rate_bps, now)
    packet = burst_begin(e, w, burst, port_id, size, now)
    if unlikely(packet == NULL):
        return False
    packet.qp = <uint32_t>q.qp
    packet.psn = psn_wire(e, number)
    packet.hash = q.hash
    packet.dst = q.dst
    packet.size = <unsigned short>size
    packet.kind = KIND_DATA
    packet.flags = flags
    packet.ingress = 0
    packet.group = q.group
    if q.cc.rate_bps == line_rate_bps:
        q.next_send_ps = burst.busy_until_ps
    else:
        q.next_send_ps = now + time_of_bytes(&e.plan, size + e.plan.wire_overhead_bytes, q.cc.rate_bps)
    if q.cc.counts_bytes:
        cc_on_sent(nic, &q.cc, line_rate_bps, size)
    w.data_sent += 1
    host_commit(e, w, burst, port_id, packet, &e.queues[<int64_t>port_id * e.plan.class_count + klass],
                packet_words(<uint32_t>q.qp, psn_wire(e, number)), packet_shape(<uint32_t>size, KIND_DATA, flags),
                now)
    return True


cdef inline int64_t repair_bytes(const engine_t* e, const host_t* host, int32_t slot, int32_t* op,
                                 uint8_t* flags) noexcept nogil:
    """Selective repeat: frame, operation and place in its message of the packet at rtx."""
    cdef const qp_t* q = &host.qps[slot]
    cdef uint64_t number = host.sacked[slot].rtx
    cdef uint64_t first = q.una_first
    cdef uint64_t end = q.una_end
    cdef int32_t position = e.plan.qp_op_start[q.qp] + q.una_index
    cdef int64_t payload = e.plan.mtu_bytes
    cdef int64_t extra = 0
    while number >= end:
        position += 1
        first = end
        end += <uint64_t>op_packets(&e.plan, e.plan.qp_op[position])
    op[0] = e.plan.qp_op[position]
    flags[0] = 0
    if number + 1 == end:
        flags[0] |= FLAG_LAST
        payload = e.plan.op_bytes[op[0]] - <int64_t>(number - first) * e.plan.mtu_bytes
        extra = q.last_extra
    if number == first:
        flags[0] |= FLAG_FIRST
        extra = q.first_extra
    return frame_bytes_of(e, payload, extra)


cdef inline int64_t qp_next_bytes(const engine_t* e, const host_t* host, int32_t slot) noexcept nogil:
    """Frame that nic_send_data would send now."""
    cdef const qp_t* q = &host.qps[slot]
    cdef bint first = q.snd_nxt == q.message_first
    cdef int64_t payload = e.plan.mtu_bytes
    cdef int64_t extra = 0
    cdef int32_t op
    cdef uint8_t flags
    if q.repair:
        return repair_bytes(e, host, slot, &op, &flags)
    if q.snd_nxt + 1 == q.message_end:
        payload = q.message_bytes - <int64_t>(q.snd_nxt - q.message_first) * e.plan.mtu_bytes
        extra = q.last_extra
    if first:
        extra = q.first_extra
    return frame_bytes_of(e, payload, extra)


cdef inline void nic_send_repair(engine_t* e, worker_t* w, int32_t node, burst_t* burst, int32_t port_id,
                                 int64_t klass, int32_t slot, ps_t now) noexcept nogil:
    """Selective repeat: send again the packet at rtx."""
    cdef host_t* host = &e.hosts[node]
    cdef qp_t* q = &host.qps[slot]
    cdef sacked_t* sacked = &host.sacked[slot]
    cdef int32_t op
    cdef uint8_t flags
    cdef int64_t size = repair_bytes(e, host, slot, &op, &flags)
    flags |= <uint8_t>(klass << CLASS_SHIFT)
    e.op_retransmissions[op] += 1
    w.retransmissions += 1
    if nic_emit_data(e, w, node, burst, port_id, klass, q, sacked.rtx, size, flags, now):
        sacked.rtx += 1
        q.repair = sacked_seek(sacked, q.snd_una, q.snd_max)


cdef inline void nic_send_data(engine_t* e, worker_t* w, int32_t node, burst_t* burst, int32_t port_id, int64_t klass,
                               int32_t slot, ps_t now) noexcept nogil:
    """Send the packet at snd_nxt, or one again under selective repeat."""
    cdef qp_t* q = &e.hosts[node].qps[slot]
    cdef uint64_t number = q.snd_nxt
    cdef int64_t size = e.data_full_bytes
    cdef uint8_t flags = <uint8_t>(klass << CLASS_SHIFT)
    cdef int32_t op
    if unlikely(q.repair):
        nic_send_repair(e, w, node, burst, port_id, klass, slot, now)
        return
    if number == q.message_first:
        flags |= FLAG_FIRST
    if number + 1 == q.message_end:
        flags |= FLAG_LAST
        size = frame_bytes_of(e, q.message_bytes - <int64_t>(number - q.message_first) * e.plan.mtu_bytes,
                              q.first_extra if flags & FLAG_FIRST else q.last_extra)
    elif flags & FLAG_FIRST:
        size = frame_bytes_of(e, e.plan.mtu_bytes, q.first_extra)
    if flags & FLAG_FIRST:
        op = e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.message_index]
        if e.op_first_ps[op] < 0:
            e.op_first_ps[op] = now
    if q.snd_una == q.snd_max and q.mode != MODE_READ:
        qp_set_deadline(e, w, node, &e.hosts[node], q, now + e.plan.nic[e.plan.host_nic[node]].rto_ps)
    if unlikely(number < q.snd_max):
        e.op_retransmissions[e.plan.qp_op[e.plan.qp_op_start[q.qp] + q.message_index]] += 1
        w.retransmissions += 1
    else:
        q.snd_max = number + 1
    if not nic_emit_data(e, w, node, burst, port_id, klass, q, number, size, flags, now):
        return
    q.snd_nxt = number + 1
    if flags & FLAG_LAST:
        q.message_index += 1
        q.message_first = q.snd_nxt
        if q.snd_nxt < q.available_end:
            qp_load_message(e, q)
