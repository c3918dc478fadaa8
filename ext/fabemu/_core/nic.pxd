"""The NIC: sending and receiving queue pairs of a host, ACKs, retransmission, operations.

Owns      qp_t and rx_t pools of a host, outboxes of its ports, its timers and due operations.
Invariant snd_una <= snd_nxt <= snd_max, outstanding below 2^23; a sendable QP has exactly one entry in a ready heap.
Order     docs/MODEL.md 9 to 11; within a class control frames go before data.
Source    InfiniBand Architecture 1.4, 9.7 (reliable connection, go-back-N); docs/MODEL.md.
"""
from libc.stdlib cimport free, malloc, realloc
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, likely, unlikely, CC_FIXED, CLASS_SHIFT,
                     EVENT_OPERATION, EVENT_TIMER, FAULT_MEMORY, FAULT_ROUTE, FLAG_CE, FLAG_ECHO, FLAG_FIRST,
                     FLAG_LAST, FOREVER, KIND_ACK, KIND_CNP, KIND_DATA, KIND_NAK, NONE, NOTIFY_CNP, OP_RECV, OP_SEND,
                     PSN_HALF, PSN_MASK, STATUS_DONE, STATUS_FAILED, STATUS_NOT_RUN, STATUS_POSTED)
from .packet cimport packet_t
from .plan cimport nic_profile_t, op_packets
from .state cimport (engine_t, worker_t, port_t, queue_t, host_t, outbox_t, qp_t, rx_t, control_t, control_queue_t,
                     ready_t)
from .heaps cimport event_key, events_push, ready_pop, ready_push, ready_remove, ready_sift_down, timed_pop, timed_push
from .dcqcn cimport cc_init, cc_on_cnp, cc_on_sent, cc_step
from .ecmp cimport ecmp_port
from .link cimport link_begin, link_commit, link_wire_ps, time_of_bytes
from .stats cimport stats_sent
from .trace cimport flow_row_t, record_append
from .wake cimport events_count, port_kick

cdef enum:
    SLOT_NEW = -1
    SLOT_DONE = -2
    SLOT_FAILED = -3


cdef inline int64_t frame_bytes_of(const engine_t* e, int64_t payload_bytes, bint first) noexcept nogil:
    cdef int64_t pad = e.plan.pad_bytes
    cdef int64_t size = (payload_bytes + pad - 1) // pad * pad + e.plan.header_bytes
    if first:
        size += e.plan.reth_bytes
    return size if size > e.plan.frame_min_bytes else e.plan.frame_min_bytes


# Slot pools.

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


cdef inline int32_t rx_take(engine_t* e, host_t* host) noexcept nogil:
    cdef int32_t capacity, slot
    cdef rx_t* grown
    if unlikely(host.rx_free < 0):
        capacity = 2 * host.rx_capacity if host.rx_capacity > 0 else 2
        grown = <rx_t*>realloc(host.receivers, <size_t>capacity * sizeof(rx_t))
        if grown == NULL:
            e.fault.code = FAULT_MEMORY
            return NONE
        host.receivers = grown
        for slot in range(capacity - 1, host.rx_capacity - 1, -1):
            host.receivers[slot].free_next = host.rx_free
            host.rx_free = slot
        host.rx_capacity = capacity
    slot = host.rx_free
    host.rx_free = host.receivers[slot].free_next
    return slot


# Keys of timers and due operations.

cdef inline ps_t host_next_op_ps(const engine_t* e, int32_t node) noexcept nogil:
    cdef const host_t* host = &e.hosts[node]
    cdef ps_t next_ps = FOREVER
    if host.next_op < e.plan.host_op_start[node + 1]:
        next_ps = e.plan.op_start_ps[e.plan.host_op[host.next_op]]
    if host.due.count > 0 and host.due.entries[0].time_ps < next_ps:
        next_ps = host.due.entries[0].time_ps
    return next_ps


cdef inline void host_set_op_key(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    cdef host_t* host = &e.hosts[node]
    cdef ps_t next_ps = host_next_op_ps(e, node)
    if unlikely(e.creation != NULL):
        return
    if next_ps < host.op_key_ps:
        host.op_key_ps = next_ps
        if next_ps < w.limit_ps:
            events_push(e, w, event_key(next_ps - w.window_start_ps, EVENT_OPERATION, 0, 0))
        elif next_ps < w.least_ps:
            w.least_ps = next_ps


cdef inline void host_set_timer_key(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    cdef host_t* host = &e.hosts[node]
    cdef ps_t next_ps
    if unlikely(e.creation != NULL):
        return
    if host.timers.count == 0:
        return
    next_ps = host.timers.entries[0].time_ps
    if next_ps < host.timer_key_ps:
        host.timer_key_ps = next_ps
        if next_ps < w.limit_ps:
            events_push(e, w, event_key(next_ps - w.window_start_ps, EVENT_TIMER, 0, 0))
        elif next_ps < w.least_ps:
            w.least_ps = next_ps


cdef inline void host_add_due(engine_t* e, worker_t* w, int32_t node, ps_t time_ps, int32_t op) noexcept nogil:
    timed_push(e, &e.hosts[node].due, time_ps, op, node)
    host_set_op_key(e, w, node)


# Sending side of a QP.

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


cdef inline void operation_done(engine_t* e, worker_t* w, int32_t node, int32_t op, ps_t now) noexcept nogil:
    """An operation of this host completes: post what waited for it."""
    cdef flow_row_t* row
    cdef int32_t index, successor
    cdef ps_t start_ps
    e.op_status[op] = STATUS_DONE
    e.op_done_ps[op] = now
    w.finished_ops += 1
    if e.plan.op_kind[op] == OP_SEND:
        row = <flow_row_t*>record_append(e, &w.flows)
        if row != NULL:
            row.emit_ps = now
            row.node = node
            row.op = op
    for index in range(e.plan.op_successor_start[op], e.plan.op_successor_start[op + 1]):
        successor = e.plan.op_successor[index]
        e.op_waiting[successor] -= 1
        if e.op_waiting[successor] == 0:
            start_ps = e.plan.op_start_ps[successor]
            host_add_due(e, w, node, start_ps if start_ps > now else now, successor)


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
    q.deadline_ps = FOREVER
    qp_withdraw(e, q)
    qp_release(e, host, slot)


cdef inline uint64_t psn_ahead(uint32_t psn, uint64_t base) noexcept nogil:
    """How far a 24-bit number is ahead of `base`, modulo 2^24."""
    return (<uint64_t>psn - base) & PSN_MASK


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


cdef inline void host_run_operations(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """Post, or complete, every operation that is due, the smallest (time, id) first."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t op
    cdef ps_t due_ps, start_ps
    cdef int32_t listed
    host.op_key_ps = FOREVER
    while True:
        op = NONE
        due_ps = FOREVER
        if host.due.count > 0:
            due_ps = host.due.entries[0].time_ps
            op = host.due.entries[0].id
        if host.next_op < e.plan.host_op_start[node + 1]:
            listed = e.plan.host_op[host.next_op]
            start_ps = e.plan.op_start_ps[listed]
            if start_ps < due_ps or (start_ps == due_ps and listed < op):
                if start_ps > now:
                    break
                host.next_op += 1
                operation_post(e, w, node, listed, now)
                continue
        if due_ps > now:
            break
        timed_pop(&host.due)
        if e.op_status[op] == STATUS_POSTED:
            events_count(w, 1, now)
            operation_done(e, w, node, op, now)
        else:
            operation_post(e, w, node, op, now)
    host_set_op_key(e, w, node)


cdef inline void operation_post(engine_t* e, worker_t* w, int32_t node, int32_t op, ps_t now) noexcept nogil:
    cdef int32_t kind = e.plan.op_kind[op]
    events_count(w, 1, now)
    if e.op_status[op] == STATUS_FAILED:
        return
    e.op_status[op] = STATUS_POSTED
    e.op_posted_ps[op] = now
    if kind == OP_SEND:
        qp_post(e, w, node, e.plan.op_qp[op], now)
    elif kind == OP_RECV:
        if e.op_delivered_ps[e.plan.op_peer[op]] >= 0:
            operation_done(e, w, node, op, now)
    else:
        host_add_due(e, w, node, now + e.plan.op_duration_ps[op], op)


# Receiving side.

cdef inline control_queue_t* outbox_control(engine_t* e, int32_t port_id, int32_t klass) noexcept nogil:
    """Control queue of a class; the compatibility NIC has one for all."""
    if unlikely(e.plan.ns3_nic):
        klass = 0
    return &e.outboxes[<int64_t>port_id * e.plan.class_count + klass].control


cdef inline void control_push(engine_t* e, worker_t* w, int32_t port_id, int32_t klass,
                              const control_t* entry) noexcept nogil:
    cdef control_queue_t* queue = outbox_control(e, port_id, klass)
    cdef uint64_t capacity, grown, index
    cdef control_t* buffer
    if unlikely(queue.tail - queue.head == queue.mask + 1):
        capacity = queue.mask + 1
        grown = 2 * capacity if capacity > 0 else 4
        buffer = <control_t*>malloc(grown * sizeof(control_t))
        if buffer == NULL:
            e.fault.code = FAULT_MEMORY
            return
        for index in range(queue.head, queue.tail):
            buffer[index & (grown - 1)] = queue.buffer[index & queue.mask]
        free(queue.buffer)
        queue.buffer = buffer
        queue.mask = grown - 1
    queue.buffer[queue.tail & queue.mask] = entry[0]
    queue.buffer[queue.tail & queue.mask].flags |= <uint8_t>(klass << CLASS_SHIFT)
    queue.tail += 1


cdef inline void nic_kick(engine_t* e, worker_t* w, int32_t port_id, ps_t now) noexcept nogil:
    cdef port_t* port = &e.ports[port_id]
    port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline void nic_queue_ack(engine_t* e, worker_t* w, rx_t* rx, uint8_t kind, uint8_t echo, ps_t now) noexcept nogil:
    """Queue an ACK or NAK for what the receiver expects next; one that still waits is replaced in place."""
    cdef control_queue_t* queue = outbox_control(e, rx.port, rx.ack_class)
    cdef control_t entry
    cdef control_t* waiting
    rx.since_ack = 0
    if rx.ack_position > queue.head and not e.plan.ns3_nic:
        waiting = &queue.buffer[(rx.ack_position - 1) & queue.mask]
        waiting.kind = kind
        waiting.psn = <uint32_t>(rx.expected & PSN_MASK)
        waiting.flags |= echo
        return
    entry.qp = rx.qp
    entry.psn = <uint32_t>(rx.expected & PSN_MASK)
    entry.hash = rx.hash
    entry.dst = rx.dst
    entry.group = rx.group
    entry.kind = kind
    entry.flags = echo
    control_push(e, w, rx.port, rx.ack_class, &entry)
    rx.ack_position = queue.tail
    nic_kick(e, w, rx.port, now)


cdef inline void nic_on_forgotten(engine_t* e, worker_t* w, int32_t node, const packet_t* packet,
                                  ps_t now) noexcept nogil:
    """A packet of a QP that has received everything: acknowledge it all again."""
    cdef int32_t qp = <int32_t>packet.qp
    cdef int32_t klass = e.plan.class_ack[e.plan.qp_class[qp]]
    cdef int32_t index, port_id
    cdef uint64_t total = 0
    cdef uint64_t position
    cdef control_t entry
    cdef control_queue_t* queue
    for index in range(e.plan.qp_op_start[qp], e.plan.qp_op_start[qp + 1]):
        total += <uint64_t>op_packets(&e.plan, e.plan.qp_op[index])
    entry.qp = qp
    entry.psn = <uint32_t>(total & PSN_MASK)
    entry.hash = e.plan.qp_ack_hash[qp]
    entry.dst = <uint32_t>e.plan.qp_src[qp]
    entry.group = <unsigned short>e.plan.host_group[entry.dst]
    entry.kind = KIND_ACK
    entry.flags = 0
    port_id = ecmp_port(&e.plan, node, entry.group, entry.dst, entry.hash)
    if port_id < 0:
        return
    queue = outbox_control(e, port_id, klass)
    if not e.plan.ns3_nic:
        for position in range(queue.head, queue.tail):
            if queue.buffer[position & queue.mask].qp == qp and queue.buffer[position & queue.mask].kind != KIND_CNP:
                queue.buffer[position & queue.mask].kind = KIND_ACK
                queue.buffer[position & queue.mask].psn = entry.psn
                return
    control_push(e, w, port_id, klass, &entry)
    nic_kick(e, w, port_id, now)


cdef inline int32_t rx_begin(engine_t* e, host_t* host, int32_t node, int32_t qp) noexcept nogil:
    """First packet of a QP at its receiver."""
    cdef int32_t slot = rx_take(e, host)
    cdef rx_t* rx
    if slot < 0:
        return slot
    e.rx_slot[qp] = slot
    rx = &host.receivers[slot]
    rx.expected = 0
    rx.message_end = <uint64_t>op_packets(&e.plan, e.plan.qp_op[e.plan.qp_op_start[qp]])
    rx.last_cnp_ps = -1
    rx.ack_position = 0
    rx.marks = 0
    rx.qp = qp
    rx.message_index = 0
    rx.since_ack = 0
    rx.hash = e.plan.qp_ack_hash[qp]
    rx.dst = <uint32_t>e.plan.qp_src[qp]
    rx.group = <unsigned short>e.plan.host_group[rx.dst]
    rx.ack_class = e.plan.class_ack[e.plan.qp_class[qp]]
    rx.nak_sent = 0
    rx.port = ecmp_port(&e.plan, node, rx.group, rx.dst, rx.hash)
    if unlikely(rx.port < 0):
        e.fault.code = FAULT_ROUTE
        return NONE
    return slot


cdef inline void nic_notify(engine_t* e, worker_t* w, const nic_profile_t* nic, rx_t* rx, ps_t now) noexcept nogil:
    """A marked packet has come: send a CNP unless the last one is too near."""
    cdef control_t entry
    if nic.notify != NOTIFY_CNP or (rx.last_cnp_ps >= 0 and now - rx.last_cnp_ps < nic.cnp_interval_ps):
        return
    rx.last_cnp_ps = now
    entry.qp = rx.qp
    entry.psn = 0
    entry.hash = rx.hash
    entry.dst = rx.dst
    entry.group = rx.group
    entry.kind = KIND_CNP
    entry.flags = 0
    control_push(e, w, rx.port, e.plan.cnp_class, &entry)
    w.cnps += 1
    nic_kick(e, w, rx.port, now)


cdef inline void nic_on_data(engine_t* e, worker_t* w, int32_t node, const packet_t* packet, ps_t now) noexcept nogil:
    """A data packet at its receiver (MODEL 11)."""
    cdef host_t* host = &e.hosts[node]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int32_t qp = <int32_t>packet.qp
    cdef int32_t slot = e.rx_slot[qp]
    cdef uint64_t ahead
    cdef uint8_t echo = 0
    cdef rx_t* rx
    if unlikely(slot < 0):
        if slot == SLOT_DONE:
            nic_on_forgotten(e, w, node, packet, now)
            return
        slot = rx_begin(e, host, node, qp)
        if slot < 0:
            return
    rx = &host.receivers[slot]
    if packet.flags & FLAG_CE:
        rx.marks += 1
        if nic.notify == NOTIFY_CNP:
            nic_notify(e, w, nic, rx, now)
        else:
            echo = FLAG_ECHO
    ahead = psn_ahead(packet.psn, rx.expected)
    if likely(ahead == 0):
        rx.expected += 1
        rx.nak_sent = 0
        rx.since_ack += 1
        if rx.expected == rx.message_end:
            nic_queue_ack(e, w, rx, KIND_ACK, echo, now)
            nic_deliver(e, w, node, host, slot, now)
        elif rx.since_ack >= nic.ack_every:
            nic_queue_ack(e, w, rx, KIND_ACK, echo, now)
    elif ahead >= PSN_HALF:
        nic_queue_ack(e, w, rx, KIND_ACK, echo, now)
    elif not rx.nak_sent:
        rx.nak_sent = 1
        nic_queue_ack(e, w, rx, KIND_NAK, echo, now)


cdef inline void nic_deliver(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot,
                             ps_t now) noexcept nogil:
    """The last byte of a message has come in order."""
    cdef rx_t* rx = &host.receivers[slot]
    cdef int32_t first = e.plan.qp_op_start[rx.qp]
    cdef int32_t count = e.plan.qp_op_start[rx.qp + 1] - first
    cdef int32_t op = e.plan.qp_op[first + rx.message_index]
    cdef int32_t receive = e.plan.op_peer[op]
    e.op_delivered_ps[op] = now
    e.op_marks[op] += rx.marks
    rx.marks = 0
    rx.message_index += 1
    if rx.message_index == count:
        e.rx_slot[rx.qp] = SLOT_DONE
        rx.free_next = host.rx_free
        host.rx_free = slot
    else:
        rx.message_end += <uint64_t>op_packets(&e.plan, e.plan.qp_op[first + rx.message_index])
    if receive >= 0 and e.op_status[receive] == STATUS_POSTED:
        operation_done(e, w, node, receive, now)


cdef inline void host_arrival(engine_t* e, worker_t* w, int32_t node, const packet_t* packet, ps_t now) noexcept nogil:
    cdef int32_t slot
    cdef host_t* host
    w.delivered += 1
    w.delivered_bytes += packet.size
    if packet.kind == KIND_DATA:
        nic_on_data(e, w, node, packet, now)
    elif packet.kind == KIND_CNP:
        slot = e.qp_slot[packet.qp]
        if slot >= 0:
            host = &e.hosts[node]
            nic_on_notification(e, w, node, host, &host.qps[slot], now)
    else:
        nic_on_acknowledgement(e, w, node, packet, now)


# Transmission.

cdef inline void host_count(engine_t* e, worker_t* w, port_t* port, int32_t port_id, int64_t klass, int64_t size,
                            ps_t now) noexcept nogil:
    stats_sent(&e.queues[<int64_t>port_id * e.plan.class_count + klass], size)
    e.port_dirty[port_id] = 1
    port.hops += 1
    port.sent_bytes += size
    w.packet_hops += 1
    w.sent += 1
    w.sent_bytes += size
    e.last_hop_ps = now


cdef inline void nic_send_control(engine_t* e, worker_t* w, port_t* port, int32_t port_id,
                                  control_queue_t* queue, ps_t now) noexcept nogil:
    cdef const control_t* entry = &queue.buffer[queue.head & queue.mask]
    cdef int64_t klass = entry.flags >> CLASS_SHIFT
    cdef int64_t size = e.plan.cnp_bytes if entry.kind == KIND_CNP else e.plan.ack_bytes
    cdef packet_t* packet = link_begin(e, w, port, port_id, size, now, link_wire_ps(&e.plan, port, size))
    if packet == NULL:
        return
    packet.qp = <uint32_t>entry.qp
    packet.psn = entry.psn
    packet.hash = entry.hash
    packet.dst = entry.dst
    packet.size = <unsigned short>size
    packet.kind = entry.kind
    packet.flags = entry.flags
    packet.ingress = 0
    packet.group = entry.group
    queue.head += 1
    host_count(e, w, port, port_id, klass, size, now)
    link_commit(e, w, port, port_id, packet, now)


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


cdef inline ps_t outbox_next_ps(const outbox_t* box, const queue_t* queue, ps_t now) noexcept nogil:
    """When this class of the port can next send: FOREVER if it has nothing."""
    cdef ps_t next_ps = FOREVER
    if box.control.head != box.control.tail:
        next_ps = now
    elif box.ready.count > 0:
        next_ps = box.ready.entries[0].ready_ps
    if next_ps < queue.pause_until_ps:
        next_ps = queue.pause_until_ps
    return next_ps


cdef inline void host_transmit(engine_t* e, worker_t* w, int32_t node, int32_t port_id, ps_t now) noexcept nogil:
    """Transmit choice of a free host port (MODEL 10)."""
    cdef port_t* port = &e.ports[port_id]
    cdef host_t* host = &e.hosts[node]
    cdef outbox_t* boxes = &e.outboxes[<int64_t>port_id * e.plan.class_count]
    cdef queue_t* queues = &e.queues[<int64_t>port_id * e.plan.class_count]
    cdef outbox_t* box
    cdef ready_t top
    cdef qp_t* q
    cdef int32_t klass
    cdef ps_t next_ps, class_ps
    port.kick_ps = FOREVER
    for klass in range(e.plan.class_count):
        box = &boxes[klass]
        if queues[klass].pause_until_ps > now:
            continue
        if box.control.head != box.control.tail:
            nic_send_control(e, w, port, port_id, &box.control, now)
            break
        if box.ready.count > 0 and box.ready.entries[0].ready_ps <= now:
            top = box.ready.entries[0]
            q = &host.qps[top.slot]
            nic_send_data(e, w, node, port, port_id, klass, q, now)
            if qp_sendable(q):
                top.ready_ps = q.next_send_ps
                ready_sift_down(&box.ready, top)
            else:
                q.in_heap = 0
                ready_pop(&box.ready)
            break
    next_ps = FOREVER
    for klass in range(e.plan.class_count):
        class_ps = outbox_next_ps(&boxes[klass], &queues[klass], now)
        if class_ps < next_ps:
            next_ps = class_ps
    if next_ps < FOREVER:
        port_kick(e, w, port, port_id, next_ps if next_ps > port.busy_until_ps else port.busy_until_ps)
