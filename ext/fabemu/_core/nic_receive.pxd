"""The receiving side of a queue pair: what is expected, acknowledged and delivered.

Owns      the rx_t pool of a host.
Invariant packets are delivered once and in order; one ACK or NAK of a QP waits at a time.
Order     docs/MODEL.md 11.
Source    InfiniBand Architecture 1.4, 9.7 (reliable connection, go-back-N); annex A17 (RoCEv2).
"""
from .types cimport (int32_t, uint8_t, uint32_t, uint64_t, ps_t, likely, unlikely, FAULT_MEMORY, FAULT_ROUTE, FLAG_CE,
                     FLAG_ECHO, KIND_ACK, KIND_CNP, KIND_NAK, MODE_PLAIN, MODE_SELECTIVE, NONE, NOTIFY_CNP, PSN_BITS,
                     PSN_HALF, RX_NAK_SENT, SACK_KIND_SHIFT, STATUS_POSTED)
from .memory cimport array_grow
from .packet cimport packet_t
from .plan cimport nic_profile_t, op_packets
from .state cimport engine_t, worker_t, host_t, kept_t, read_t, rx_t, control_t, control_queue_t
from .ecmp cimport ecmp_port
from .selective cimport bit_clear, bit_set, bit_test, kept_begin, kept_grow
from .operation cimport SLOT_DONE, operation_done
from .control cimport control_push, nic_kick, outbox_control, psn_ahead, psn_wire


cdef inline int32_t rx_take(engine_t* e, worker_t* w, host_t* host) noexcept nogil:
    cdef int32_t capacity, slot
    if unlikely(host.rx_free < 0):
        capacity = 2 * host.rx_capacity if host.rx_capacity > 0 else 2
        if not array_grow(w.arena, <void**>&host.receivers, host.rx_capacity, capacity, sizeof(rx_t)):
            e.fault.code = FAULT_MEMORY
            return NONE
        if e.plan.has_selective and not kept_grow(e, w, host, capacity):
            return NONE
        if e.plan.has_read:
            if not array_grow(w.arena, <void**>&host.reads, host.rx_capacity, capacity, sizeof(read_t)):
                e.fault.code = FAULT_MEMORY
                return NONE
        for slot in range(capacity - 1, host.rx_capacity - 1, -1):
            host.receivers[slot].message_index = host.rx_free
            host.rx_free = slot
        host.rx_capacity = capacity
    slot = host.rx_free
    host.rx_free = host.receivers[slot].message_index
    return slot


cdef inline control_t rx_answer(const rx_t* rx, uint8_t kind, uint32_t psn, uint8_t flags) noexcept nogil:
    """A frame from the receiver of a QP to its sender."""
    cdef control_t entry
    entry.qp = rx.qp
    entry.psn = psn
    entry.hash = rx.hash
    entry.dst = rx.dst
    entry.group = rx.group
    entry.kind = kind
    entry.flags = flags
    return entry


cdef inline void nic_queue_ack(engine_t* e, worker_t* w, rx_t* rx, uint8_t kind, uint32_t psn, uint8_t echo,
                               ps_t now) noexcept nogil:
    """Queue an ACK or NAK for what the receiver expects next; one that still waits is replaced in place.

    A NAK of selective repeat is not replaced: no other frame will name its packet.
    """
    cdef control_queue_t* queue = outbox_control(e, rx.port, rx.ack_class)
    cdef control_t entry
    cdef control_t* waiting
    rx.since_ack = 0
    if rx.ack_position > queue.head and not e.plan.ns3_nic:
        waiting = &queue.buffer[(rx.ack_position - 1) & queue.mask]
        if likely(rx.state != MODE_SELECTIVE) or waiting.kind == KIND_ACK:
            waiting.kind = kind
            waiting.psn = psn
            waiting.flags |= echo
            return
    entry = rx_answer(rx, kind, psn, echo)
    control_push(e, w, rx.port, rx.ack_class, &entry)
    rx.ack_position = queue.tail
    nic_kick(e, w, rx.port, now)


cdef inline void nic_on_forgotten(engine_t* e, worker_t* w, int32_t node, const packet_t* packet,
                                  ps_t now) noexcept nogil:
    """A packet of a QP that has received everything: acknowledge it all again."""
    cdef int32_t qp = <int32_t>packet.qp
    cdef bint selective = e.plan.nic[e.plan.host_nic[node]].selective
    cdef int32_t klass = e.plan.class_ack[e.plan.qp_class[qp]]
    cdef int32_t index, port_id
    cdef uint64_t total = 0
    cdef uint64_t position
    cdef uint8_t kind
    cdef control_t entry
    cdef control_queue_t* queue
    for index in range(e.plan.qp_op_start[qp], e.plan.qp_op_start[qp + 1]):
        total += <uint64_t>op_packets(&e.plan, e.plan.qp_op[index])
    entry.qp = qp
    entry.psn = psn_wire(e, total)
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
            if queue.buffer[position & queue.mask].qp != qp:
                continue
            kind = queue.buffer[position & queue.mask].kind
            if kind == KIND_ACK or (kind == KIND_NAK and not selective):
                queue.buffer[position & queue.mask].kind = KIND_ACK
                queue.buffer[position & queue.mask].psn = entry.psn
                return
    control_push(e, w, port_id, klass, &entry)
    nic_kick(e, w, port_id, now)


cdef inline int32_t rx_begin(engine_t* e, worker_t* w, host_t* host, int32_t node, int32_t qp, uint8_t mode,
                             uint32_t dst) noexcept nogil:
    """A QP takes a slot at the host that receives its data and answers to `dst`; NONE after a fault."""
    cdef int32_t slot = rx_take(e, w, host)
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
    rx.dst = dst
    rx.group = <unsigned short>e.plan.host_group[rx.dst]
    rx.ack_class = e.plan.class_ack[e.plan.qp_class[qp]]
    rx.state = mode
    if mode == MODE_SELECTIVE:
        kept_begin(e, w, &host.kept[slot], e.plan.nic[e.plan.host_nic[node]].selective_window)
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
    entry = rx_answer(rx, KIND_CNP, 0, 0)
    control_push(e, w, rx.port, e.plan.cnp_class, &entry)
    w.cnps += 1
    nic_kick(e, w, rx.port, now)


cdef inline void nic_on_data(engine_t* e, worker_t* w, int32_t node, const packet_t* packet, int32_t slot,
                             ps_t now) noexcept nogil:
    """A data packet at its receiver, which has a slot (MODEL 11)."""
    cdef host_t* host = &e.hosts[node]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef uint64_t ahead
    cdef uint8_t echo = 0
    cdef rx_t* rx = &host.receivers[slot]
    if packet.flags & FLAG_CE:
        rx.marks += 1
        if nic.notify == NOTIFY_CNP:
            nic_notify(e, w, nic, rx, now)
        else:
            echo = FLAG_ECHO
    ahead = psn_ahead(e, packet.psn, rx.expected)
    if unlikely(rx.state == MODE_SELECTIVE) and ahead < PSN_HALF:
        nic_keep(e, w, node, host, slot, ahead, echo, now)
    elif likely(ahead == 0):
        rx.expected += 1
        rx.state = MODE_PLAIN
        rx.since_ack += 1
        if rx.expected == rx.message_end:
            nic_queue_ack(e, w, rx, KIND_ACK, psn_wire(e, rx.expected), echo, now)
            nic_deliver(e, w, node, host, slot, now)
        elif rx.since_ack >= nic.ack_every:
            nic_queue_ack(e, w, rx, KIND_ACK, psn_wire(e, rx.expected), echo, now)
    elif ahead >= PSN_HALF:
        nic_queue_ack(e, w, rx, KIND_ACK, psn_wire(e, rx.expected), echo, now)
    elif rx.state != RX_NAK_SENT:
        rx.state = MODE_PLAIN | RX_NAK_SENT
        nic_queue_ack(e, w, rx, KIND_NAK, psn_wire(e, rx.expected), echo, now)


cdef inline void nic_keep(engine_t* e, worker_t* w, int32_t node, host_t* host, int32_t slot, uint64_t ahead,
                          uint8_t echo, ps_t now) noexcept nogil:
    """Selective repeat: a packet that is expected, or `ahead` of that and kept until what is before it has come."""
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef rx_t* rx = &host.receivers[slot]
    cdef kept_t* kept = &host.kept[slot]
    cdef int32_t qp = rx.qp
    if ahead > 0:
        # Nothing comes from beyond the window: it is the sender's as well.
        if ahead < <uint64_t>nic.selective_window:
            bit_set(kept.bits, kept.mask, rx.expected + ahead)
            ahead -= 1
            nic_queue_ack(e, w, rx, <uint8_t>(KIND_NAK | (ahead >> (32 - PSN_BITS)) << SACK_KIND_SHIFT),
                          psn_wire(e, rx.expected) | <uint32_t>ahead << PSN_BITS, echo, now)
        return
    rx.expected += 1
    rx.since_ack += 1
    while bit_test(kept.bits, kept.mask, rx.expected):
        bit_clear(kept.bits, kept.mask, rx.expected)
        rx.expected += 1
        rx.since_ack += 1
    if rx.expected >= rx.message_end or rx.since_ack >= nic.ack_every:
        nic_queue_ack(e, w, rx, KIND_ACK, psn_wire(e, rx.expected), echo, now)
    while e.rx_slot[qp] == slot and rx.expected >= rx.message_end:
        nic_deliver(e, w, node, host, slot, now)


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
        rx.message_index = host.rx_free
        host.rx_free = slot
    else:
        rx.message_end += <uint64_t>op_packets(&e.plan, e.plan.qp_op[first + rx.message_index])
    if receive >= 0 and e.op_status[receive] == STATUS_POSTED:
        operation_done(e, w, node, receive, now)
