"""The NIC: what comes to a host goes to its queue pairs, what a port sends next.

Owns      the dispatch of arrivals and operations; the transmit choice of a host port.
Invariant a port that has something to send has its next choice set.
Order     docs/MODEL.md 9 to 11; within a class control frames go before data.
"""
from libc.stdlib cimport free
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, ps_t, ctz, likely, unlikely, FOREVER, KIND_CNP, KIND_CORRUPT,
                     KIND_DATA, KIND_READ, MODE_PLAIN, MODE_READ, MODE_SELECTIVE, NONE, OP_RECV, OP_SCALE_UP, OP_SEND,
                     RX_NAK_SENT, STATUS_FAILED, STATUS_POSTED, VERB_READ)
from .packet cimport packet_t, packet_class
from .state cimport engine_t, worker_t, port_t, queue_t, host_t, outbox_t, qp_t, ready_t
from .heaps cimport ready_pop, ready_sift_down, timed_pop
from .wake cimport events_count, port_kick
from .operation cimport (SLOT_DONE, host_add_due, host_set_op_key, host_set_timer_key, operation_done, timer_is_live)
from .link cimport burst_t, burst_open
from .control cimport control_bytes, host_burst_close, nic_send_control
from .credit cimport credit_free, credit_limits, credit_lose, credit_spend, credit_suffices, pending_send
from .nic_receive cimport nic_on_data, nic_on_forgotten, rx_begin
from .nic_send cimport (nic_on_acknowledgement, nic_on_notification, nic_send_data, qp_next_bytes, qp_on_timer,
                        qp_post, qp_sendable)
from .scale_up cimport scale_up_post, scale_up_receive
from .read cimport (read_on_data, read_on_notification, read_on_request, read_on_timer, read_post, read_sent)


cdef inline void host_data(engine_t* e, worker_t* w, int32_t node, const packet_t* packet, ps_t now) noexcept nogil:
    """A data packet: to the receiver of its QP, which begins with the first that comes."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t qp = <int32_t>packet.qp
    cdef int32_t slot = e.rx_slot[qp]
    if unlikely(slot < 0):
        if e.plan.qp_verb[qp] == VERB_READ:
            # The requester is done, or has given up.
            return
        if slot == SLOT_DONE:
            nic_on_forgotten(e, w, node, packet, now)
            return
        slot = rx_begin(e, w, host, node, qp,
                        MODE_SELECTIVE if e.plan.nic[e.plan.host_nic[node]].selective else MODE_PLAIN,
                        <uint32_t>e.plan.qp_src[qp])
        if slot < 0:
            return
    if unlikely(host.receivers[slot].state & ~RX_NAK_SENT == MODE_READ):
        read_on_data(e, w, node, packet, slot, now)
    else:
        nic_on_data(e, w, node, packet, slot, now)


cdef inline void host_notification(engine_t* e, worker_t* w, int32_t node, const packet_t* packet,
                                   ps_t now) noexcept nogil:
    """A CNP: to the QP that sends the data, if it still lives."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t slot = e.qp_slot[packet.qp]
    if slot < 0:
        return
    if unlikely(host.qps[slot].mode == MODE_READ):
        read_on_notification(e, node, slot, now)
    else:
        nic_on_notification(e, w, node, host, &host.qps[slot], now)


cdef inline void host_arrival(engine_t* e, worker_t* w, int32_t node, int32_t port_id, const packet_t* packet,
                              ps_t now) noexcept nogil:
    """A frame that has come in by a port of the host is dealt with, and has left its buffer."""
    if unlikely(packet.kind & KIND_CORRUPT):
        credit_lose(e, w, packet, node, port_id, now)
        return
    credit_free(e, w, port_id, <int32_t>packet_class(packet), packet.size, now)
    w.delivered += 1
    w.delivered_bytes += packet.size
    if packet.kind == KIND_DATA:
        host_data(e, w, node, packet, now)
    elif packet.kind == KIND_CNP:
        host_notification(e, w, node, packet, now)
    elif unlikely(packet.kind == KIND_READ):
        read_on_request(e, w, node, packet, now)
    else:
        nic_on_acknowledgement(e, w, node, packet, now)
    if unlikely(e.lanes != NULL):
        host_kick_limited(e, w, node, now)


cdef inline void host_kick_limited(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """Ports with credits choose anew: another queue pair, with a smaller frame, may have come to the front."""
    cdef int32_t port_id
    cdef port_t* port
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        port = &e.ports[port_id]
        if e.plan.port_credit[port_id]:
            port_kick(e, w, port, port_id, now if now > port.busy_until_ps else port.busy_until_ps)


cdef inline bint host_has_credits(const engine_t* e, const host_t* host, const port_t* port, int32_t port_id,
                                  int32_t klass, const outbox_t* box) noexcept nogil:
    """Whether the frame that this class would send next may go; no other frame of the class goes before it."""
    cdef int64_t size
    if box.control.head != box.control.tail:
        size = control_bytes(e, &box.control)
    elif box.ready.count > 0:
        size = qp_next_bytes(e, host, box.ready.entries[0].slot)
    else:
        return True
    return credit_suffices(e, port, port_id, klass, size)


cdef inline void host_run_timers(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """QP timeouts that are due; entries that came too early go back to where their QP's deadline is now."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t qp
    host.timer_key_ps = FOREVER
    while host.timers.count > 0 and host.timers.entries[0].time_ps <= now:
        qp = host.timers.entries[0].id
        timed_pop(&host.timers)
        if not timer_is_live(e, qp):
            continue
        if unlikely(e.plan.qp_verb[qp] == VERB_READ):
            read_on_timer(e, w, node, e.rx_slot[qp], now)
        else:
            qp_on_timer(e, w, node, host, e.qp_slot[qp], now)
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
        if unlikely(e.scale_ups != NULL) and e.scale_ups[node].inbound.count > 0 and (
                e.scale_ups[node].inbound.entries[0].time_ps <= now):
            scale_up_receive(e, w, node, now)
            continue
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
                w.started_ops += 1
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
        if unlikely(e.plan.qp_verb[e.plan.op_qp[op]] == VERB_READ):
            read_post(e, w, node, e.plan.op_qp[op], now)
        else:
            qp_post(e, w, node, e.plan.op_qp[op], now)
    elif kind == OP_RECV:
        if e.op_delivered_ps[e.plan.op_peer[op]] >= 0:
            operation_done(e, w, node, op, now)
    elif kind == OP_SCALE_UP:
        scale_up_post(e, w, node, op, now)
    else:
        host_add_due(e, w, node, now + e.plan.op_duration_ps[op], op)


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


cdef inline void host_send_data(engine_t* e, worker_t* w, int32_t node, burst_t* burst, int32_t port_id, int32_t klass,
                                outbox_t* box, ps_t now) noexcept nogil:
    """Send a packet of the QP that is first in a ready heap."""
    cdef host_t* host = &e.hosts[node]
    cdef ready_t top = box.ready.entries[0]
    cdef qp_t* q = &host.qps[top.slot]
    nic_send_data(e, w, node, burst, port_id, klass, top.slot, now)
    if likely(qp_sendable(q)):
        top.ready_ps = q.next_send_ps
        ready_sift_down(&box.ready, top)
    else:
        q.in_heap = 0
        ready_pop(&box.ready)
        if unlikely(q.mode == MODE_READ):
            read_sent(e, host, top.slot)


cdef inline void host_choose(engine_t* e, worker_t* w, int32_t node, burst_t* burst, int32_t port_id, bint limited,
                             ps_t now) noexcept nogil:
    """Send the frame whose turn it is by a port that is free, if there is one; `limited`: its link has credits."""
    cdef outbox_t* boxes = &e.outboxes[<int64_t>port_id * e.plan.class_count]
    cdef const queue_t* queues = &e.queues[<int64_t>port_id * e.plan.class_count]
    cdef uint32_t mask = burst.port.waiting_mask
    cdef int32_t klass
    cdef outbox_t* box
    cdef int64_t sent_bytes = burst.bytes
    while mask:
        klass = ctz(mask)
        mask &= mask - 1
        box = &boxes[klass]
        if unlikely(queues[klass].pause_until_ps > now):
            continue
        if unlikely(limited) and not host_has_credits(e, &e.hosts[node], burst.port, port_id, klass, box):
            continue
        if box.control.head != box.control.tail:
            nic_send_control(e, w, burst, port_id, &box.control, now)
        elif box.ready.count > 0 and box.ready.entries[0].ready_ps <= now:
            host_send_data(e, w, node, burst, port_id, klass, box, now)
        else:
            continue
        if unlikely(limited):
            credit_spend(e, port_id, klass, burst.bytes - sent_bytes)
        break


cdef inline ps_t host_next_choice_ps(engine_t* e, int32_t node, port_t* port, int32_t port_id, bint limited,
                                     ps_t now) noexcept nogil:
    """When the port chooses next, as things are; FOREVER if it has nothing to send."""
    cdef const outbox_t* boxes = &e.outboxes[<int64_t>port_id * e.plan.class_count]
    cdef const queue_t* queues = &e.queues[<int64_t>port_id * e.plan.class_count]
    cdef uint32_t mask = port.waiting_mask
    cdef ps_t busy_until_ps = port.busy_until_ps
    cdef ps_t next_ps = FOREVER
    cdef ps_t class_ps
    cdef int32_t klass
    cdef const outbox_t* box
    while mask:
        klass = ctz(mask)
        mask &= mask - 1
        box = &boxes[klass]
        if box.control.head == box.control.tail and box.ready.count == 0:
            port.waiting_mask &= <uint8_t>~(1 << klass)
            continue
        if unlikely(limited) and not host_has_credits(e, &e.hosts[node], port, port_id, klass, box):
            continue
        class_ps = outbox_next_ps(box, &queues[klass], now)
        if class_ps < next_ps:
            next_ps = class_ps
            if next_ps <= busy_until_ps:
                return busy_until_ps
    return next_ps


cdef inline void host_transmit(engine_t* e, worker_t* w, int32_t node, int32_t port_id, ps_t now) noexcept nogil:
    """Transmit choice of a host port (MODEL 10)."""
    cdef port_t* port = &e.ports[port_id]
    cdef bint limited = credit_limits(e, port_id)
    cdef ps_t next_ps
    cdef burst_t burst
    port.kick_ps = FOREVER
    if unlikely(e.down != NULL and e.down[port_id]):
        return
    if unlikely(port.pfc_pending):
        pending_send(e, w, port, port_id, now)
    if port.busy_until_ps <= now:
        burst_open(e, &burst, port)
        host_choose(e, w, node, &burst, port_id, limited, now)
        host_burst_close(e, w, &burst, port_id)
    next_ps = host_next_choice_ps(e, node, port, port_id, limited, now)
    if next_ps < FOREVER:
        port_kick(e, w, port, port_id, next_ps)
