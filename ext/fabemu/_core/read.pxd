"""QPs that read: the requester asks for packets, the responder sends them.

Owns      the requester's rx_t and read_t (at qp_src, slot in e.rx_slot), the responder's qp_t (at qp_dst, slot in
          e.qp_slot), e.read_max.
Invariant expected <= next, at most read_outstanding_max messages and 2^23 packets lie between them; there is a
          deadline exactly while there is something between them. The responder has no deadline and knows nothing of
          a QP that it has served to its end but how far it has been.
Order     docs/MODEL.md 10 and 11.
Source    InfiniBand Architecture 1.4, 9.7.5 (RDMA READ, its requests as the acknowledgement of what came).
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, CC_FIXED, FLAG_AGAIN, FLAG_CE, FOREVER,
                     KIND_READ, MODE_READ, NOTIFY_CNP, PSN_BITS, PSN_HALF, PSN_MASK, RX_NAK_SENT,
                     STATUS_NOT_RUN)
from .packet cimport packet_t
from .plan cimport nic_profile_t, op_packets
from .state cimport engine_t, worker_t, control_t, host_t, qp_t, read_t, rx_t
from .dcqcn cimport cc_on_cnp
from .heaps cimport timed_push
from .wake cimport events_count
from .operation cimport SLOT_DONE, SLOT_FAILED, SLOT_NEW, host_set_timer_key, operation_done, operations_fail
from .control cimport control_push, nic_kick, psn_ahead, psn_wire
from .nic_receive cimport nic_notify, rx_begin
from .nic_send cimport qp_begin, qp_load_message, qp_offer, qp_release


# Requester.

cdef inline void read_set_deadline(engine_t* e, worker_t* w, int32_t node, int32_t slot, ps_t now) noexcept nogil:
    """Something is outstanding: it must come, or be asked for again, within the retransmission timeout."""
    cdef host_t* host = &e.hosts[node]
    cdef read_t* read = &host.reads[slot]
    read.deadline_ps = now + e.plan.nic[e.plan.host_nic[node]].rto_ps
    if not read.has_timer:
        read.has_timer = 1
        timed_push(e, w, &host.timers, read.deadline_ps, host.receivers[slot].qp, node)
        host_set_timer_key(e, w, node)


cdef inline void read_request(engine_t* e, worker_t* w, const rx_t* rx, uint64_t first, int32_t messages,
                              uint8_t flags, ps_t now) noexcept nogil:
    """Queue a request for the packets from `first` to the end of so many messages, the one of `first` counted."""
    cdef control_t entry
    entry.qp = rx.qp
    entry.psn = psn_wire(e, first) | <uint32_t>messages << PSN_BITS
    entry.hash = rx.hash
    entry.dst = rx.dst
    entry.group = rx.group
    entry.kind = KIND_READ
    entry.flags = flags
    control_push(e, w, rx.port, rx.ack_class, &entry)
    w.requests_queued += 1
    nic_kick(e, w, rx.port, now)


cdef inline void read_request_again(engine_t* e, worker_t* w, const rx_t* rx, const read_t* read,
                                    ps_t now) noexcept nogil:
    read_request(e, w, rx, rx.expected, read.requested_index - rx.message_index, FLAG_AGAIN, now)


cdef inline void read_request_more(engine_t* e, worker_t* w, int32_t node, int32_t slot, ps_t now) noexcept nogil:
    """Ask for the messages that are posted, as many as may be outstanding."""
    cdef rx_t* rx = &e.hosts[node].receivers[slot]
    cdef read_t* read = &e.hosts[node].reads[slot]
    cdef uint64_t length
    while (read.requested_index < read.available_index
           and read.requested_index - rx.message_index < e.plan.read_outstanding_max):
        length = <uint64_t>op_packets(&e.plan, e.plan.qp_op[e.plan.qp_op_start[rx.qp] + read.requested_index])
        if read.next + length - rx.expected > PSN_HALF:
            break
        if read.next == rx.expected:
            read_set_deadline(e, w, node, slot, now)
        read_request(e, w, rx, read.next, 1, 0, now)
        read.next += length
        read.requested_index += 1


cdef inline void read_post(engine_t* e, worker_t* w, int32_t node, int32_t qp, ps_t now) noexcept nogil:
    """A message of the QP was posted: ask for what is posted in list order."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t slot = e.rx_slot[qp]
    cdef int32_t first = e.plan.qp_op_start[qp]
    cdef int32_t count = e.plan.qp_op_start[qp + 1] - first
    cdef read_t* read
    if slot == SLOT_FAILED:
        return
    if slot == SLOT_NEW:
        if e.op_status[e.plan.qp_op[first]] == STATUS_NOT_RUN:
            return
        slot = rx_begin(e, w, host, node, qp, MODE_READ, <uint32_t>e.plan.qp_dst[qp])
        if slot < 0:
            return
        read = &host.reads[slot]
        read.next = 0
        read.deadline_ps = FOREVER
        read.requested_index = 0
        read.available_index = 0
        read.retries = 0
        read.has_timer = 0
    read = &host.reads[slot]
    while read.available_index < count and e.op_status[e.plan.qp_op[first + read.available_index]] != STATUS_NOT_RUN:
        read.available_index += 1
    read_request_more(e, w, node, slot, now)


cdef inline void read_end(engine_t* e, host_t* host, int32_t slot, int32_t state) noexcept nogil:
    """The requester is done with the QP, or gives it up."""
    e.rx_slot[host.receivers[slot].qp] = state
    host.receivers[slot].message_index = host.rx_free
    host.rx_free = slot


cdef inline void read_on_data(engine_t* e, worker_t* w, int32_t node, const packet_t* packet, int32_t slot,
                              ps_t now) noexcept nogil:
    """A packet of an answer."""
    cdef host_t* host = &e.hosts[node]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef rx_t* rx = &host.receivers[slot]
    cdef read_t* read = &host.reads[slot]
    cdef int32_t first = e.plan.qp_op_start[rx.qp]
    cdef int32_t count = e.plan.qp_op_start[rx.qp + 1] - first
    cdef int32_t op
    cdef uint64_t ahead
    if packet.flags & FLAG_CE:
        rx.marks += 1
        if nic.notify == NOTIFY_CNP:
            nic_notify(e, w, nic, rx, now)
    ahead = psn_ahead(e, packet.psn, rx.expected)
    if ahead > 0:
        if ahead < PSN_HALF and not rx.state & RX_NAK_SENT:
            rx.state |= RX_NAK_SENT
            read_request_again(e, w, rx, read, now)
        return
    rx.expected += 1
    rx.state = MODE_READ
    read.retries = 0
    if rx.expected == read.next:
        read.deadline_ps = FOREVER
    else:
        read_set_deadline(e, w, node, slot, now)
    if rx.expected != rx.message_end:
        return
    op = e.plan.qp_op[first + rx.message_index]
    e.op_delivered_ps[op] = now
    e.op_marks[op] += rx.marks
    rx.marks = 0
    rx.message_index += 1
    if rx.message_index == count:
        read_end(e, host, slot, SLOT_DONE)
    else:
        rx.message_end += <uint64_t>op_packets(&e.plan, e.plan.qp_op[first + rx.message_index])
        read_request_more(e, w, node, slot, now)
    operation_done(e, w, node, op, now)


cdef inline void read_on_timer(engine_t* e, worker_t* w, int32_t node, int32_t slot, ps_t now) noexcept nogil:
    """The timer entry of the requester has come up: its deadline may have, too."""
    cdef host_t* host = &e.hosts[node]
    cdef rx_t* rx = &host.receivers[slot]
    cdef read_t* read = &host.reads[slot]
    read.has_timer = 0
    if read.deadline_ps == FOREVER:
        return
    if read.deadline_ps > now:
        read.has_timer = 1
        timed_push(e, w, &host.timers, read.deadline_ps, rx.qp, node)
        return
    events_count(w, 1, now)
    read.retries += 1
    if read.retries > e.plan.nic[e.plan.host_nic[node]].retry_count:
        # What its receiver counted belongs to the message that was being received.
        e.op_marks[e.plan.qp_op[e.plan.qp_op_start[rx.qp] + rx.message_index]] += rx.marks
        operations_fail(e, w, node, rx.qp, rx.message_index, now)
        read_end(e, host, slot, SLOT_FAILED)
        return
    read_request_again(e, w, rx, read, now)
    read_set_deadline(e, w, node, slot, now)


# Responder.

cdef inline void read_seek(engine_t* e, qp_t* q, uint64_t first) noexcept nogil:
    """Take up the message that holds packet `first`."""
    cdef int32_t start = e.plan.qp_op_start[q.qp]
    cdef uint64_t length
    while q.message_first > first:
        q.message_index -= 1
        q.message_first -= <uint64_t>op_packets(&e.plan, e.plan.qp_op[start + q.message_index])
    while True:
        length = <uint64_t>op_packets(&e.plan, e.plan.qp_op[start + q.message_index])
        if q.message_first + length > first:
            break
        q.message_first += length
        q.message_index += 1
    qp_load_message(e, q)
    q.snd_nxt = first


cdef inline uint64_t read_span(const engine_t* e, int32_t qp, int32_t index, uint64_t first,
                               int32_t messages) noexcept nogil:
    """End of so many messages from the one at position `index` on, which begins at packet `first`."""
    cdef int32_t position
    for position in range(e.plan.qp_op_start[qp] + index, e.plan.qp_op_start[qp] + index + messages):
        first += <uint64_t>op_packets(&e.plan, e.plan.qp_op[position])
    return first


cdef inline void read_on_request(engine_t* e, worker_t* w, int32_t node, const packet_t* packet,
                                 ps_t now) noexcept nogil:
    """A request at the responder."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t qp = <int32_t>packet.qp
    cdef int32_t slot = e.qp_slot[qp]
    cdef int32_t messages = <int32_t>(packet.psn >> PSN_BITS)
    cdef bint again = packet.flags & FLAG_AGAIN
    cdef uint64_t first, end
    cdef qp_t* q
    if slot < 0:
        if not again and (slot == SLOT_DONE or psn_ahead(e, packet.psn, 0) != 0):
            return
        slot = qp_begin(e, w, host, node, qp, MODE_READ, <uint32_t>e.plan.qp_src[qp])
        if slot < 0:
            return
        host.qps[slot].snd_max = e.read_max[qp]
    q = &host.qps[slot]
    if again:
        # It asks for nothing beyond what follows the packets that were sent.
        first = q.snd_max - ((PSN_MASK + 1 - psn_ahead(e, packet.psn, q.snd_max)) & PSN_MASK)
        read_seek(e, q, first)
        end = read_span(e, qp, q.message_index, q.message_first, messages)
        if end > q.available_end:
            q.available_end = end
    elif psn_ahead(e, packet.psn, q.available_end) == 0:
        first = q.available_end
        q.available_end = read_next_end(e, q, first)
        if q.snd_nxt == first:
            qp_load_message(e, q)
    else:
        return
    q.snd_una = q.snd_nxt
    qp_offer(e, w, host, q, slot, now)


cdef inline uint64_t read_next_end(const engine_t* e, const qp_t* q, uint64_t end) noexcept nogil:
    """End of the message that begins at packet `end`, at or after the one at hand."""
    cdef int32_t position = e.plan.qp_op_start[q.qp] + q.message_index
    cdef uint64_t first = q.message_first
    while first < end:
        first += <uint64_t>op_packets(&e.plan, e.plan.qp_op[position])
        position += 1
    return first + <uint64_t>op_packets(&e.plan, e.plan.qp_op[position])


cdef inline void read_sent(engine_t* e, host_t* host, int32_t slot) noexcept nogil:
    """A packet has left: a QP that is served to its end is forgotten."""
    cdef qp_t* q = &host.qps[slot]
    if q.message_index == e.plan.qp_op_start[q.qp + 1] - e.plan.qp_op_start[q.qp]:
        e.read_max[q.qp] = q.snd_max
        e.qp_slot[q.qp] = SLOT_DONE
        qp_release(e, host, slot)


cdef inline void read_on_notification(engine_t* e, int32_t node, int32_t slot, ps_t now) noexcept nogil:
    """A CNP at the responder: counted for the message of the packet sent last."""
    cdef const qp_t* q = &e.hosts[node].qps[slot]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef int32_t index = q.message_index
    if q.snd_nxt == q.message_first and index > 0:
        index -= 1
    e.op_cnps[e.plan.qp_op[e.plan.qp_op_start[q.qp] + index]] += 1
    if nic.cc > CC_FIXED:
        cc_on_cnp(nic, &e.hosts[node].qps[slot].cc, e.ports[q.port].rate_bps, now)
