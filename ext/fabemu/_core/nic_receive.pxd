"""The receiving side of a queue pair: what is expected, acknowledged and delivered.

Owns      the rx_t pool of a host.
Invariant packets are delivered once and in order; one ACK or NAK of a QP waits at a time.
Order     docs/MODEL.md 11.
Source    InfiniBand Architecture 1.4, 9.7 (reliable connection, go-back-N); annex A17 (RoCEv2).
"""
from libc.stdlib cimport realloc
from .types cimport (int32_t, uint8_t, uint32_t, uint64_t, ps_t, likely, unlikely, FAULT_MEMORY, FAULT_ROUTE, FLAG_CE,
                     FLAG_ECHO, KIND_ACK, KIND_CNP, KIND_NAK, NONE, NOTIFY_CNP, PSN_HALF, PSN_MASK, STATUS_POSTED)
from .packet cimport packet_t
from .plan cimport nic_profile_t, op_packets
from .state cimport engine_t, worker_t, host_t, rx_t, control_t, control_queue_t
from .ecmp cimport ecmp_port
from .operation cimport SLOT_DONE, operation_done
from .control cimport control_push, nic_kick, outbox_control, psn_ahead


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
