"""Usual arrivals at a host, in one piece each: the data packet that is expected, and the ACK that moves on.

Owns      usual_data, usual_acknowledgement.
Invariant what they take they leave as host_arrival would; whatever is not plain they do not touch.
Order     docs/MODEL.md 10 and 11.
"""
from .types cimport (int32_t, uint32_t, uint64_t, ps_t, unlikely, FLAG_CE, FLAG_ECHO, FOREVER, KIND_ACK, MODE_PLAIN,
                     NOTIFY_CNP)
from .packet cimport packet_t
from .plan cimport nic_profile_t
from .state cimport engine_t, host_t, outbox_t, port_t, qp_t, rx_t, control_queue_t
from .control cimport control_is_full, control_put, psn_ahead, psn_wire
from .nic_receive cimport rx_answer


cdef inline bint usual_data(engine_t* e, const host_t* host, const nic_profile_t* nic, outbox_t* boxes, port_t* port,
                            const packet_t* packet, ps_t now) noexcept nogil:
    """Take the data packet that its receiver expects, not the last of its message, and not to be answered by a CNP.

    Whether it is one.
    """
    cdef int32_t slot = e.rx_slot[packet.qp]
    cdef uint32_t marked = packet.flags & FLAG_CE
    cdef control_queue_t* queue
    cdef rx_t* rx
    if unlikely(slot < 0):
        return False
    rx = &host.receivers[slot]
    queue = &boxes[rx.ack_class].control
    if unlikely(rx.state != MODE_PLAIN or psn_ahead(e, packet.psn, rx.expected) != 0
                or rx.expected + 1 == rx.message_end or rx.ack_position > queue.head or control_is_full(queue)):
        return False
    if marked and (nic.notify != NOTIFY_CNP or rx.last_cnp_ps < 0 or now - rx.last_cnp_ps >= nic.cnp_interval_ps):
        return False
    rx.marks += marked
    rx.expected += 1
    rx.since_ack += 1
    if rx.since_ack >= nic.ack_every:
        rx.since_ack = 0
        control_put(port, queue, rx.ack_class, rx_answer(rx, KIND_ACK, psn_wire(e, rx.expected), 0))
        rx.ack_position = queue.tail
        if now < port.busy_until_ps:
            now = port.busy_until_ps
        if now < port.kick_ps:
            port.kick_ps = now
    return True


cdef inline bint usual_acknowledgement(engine_t* e, const host_t* host, const nic_profile_t* nic,
                                       const packet_t* packet, ps_t now) noexcept nogil:
    """Take an ACK that moves a QP on within a message and lets it send no earlier; whether it is one."""
    cdef int32_t slot = e.qp_slot[packet.qp]
    cdef uint64_t ahead
    cdef qp_t* q
    if unlikely(slot < 0):
        return False
    q = &host.qps[slot]
    ahead = psn_ahead(e, packet.psn, q.snd_una)
    # Of what is below snd_nxt, all has been sent; and the next packet of a QP in a ready heap is not held back.
    if unlikely(q.mode != MODE_PLAIN or (packet.flags & FLAG_ECHO) or ahead == 0 or ahead > q.snd_nxt - q.snd_una
                or q.snd_una + ahead >= q.una_end or not (q.in_heap & q.has_timer)):
        return False
    q.snd_una += ahead
    q.deadline_ps = FOREVER if q.snd_una == q.snd_max else now + nic.rto_ps
    return True
