"""Operations of a host: what is due when, and what a completion posts.

Owns      the keys of due operations and of QP timers, a host's heap of due operations, the states of a QP's slot.
Invariant an operation is done once; its successors are due no earlier than it.
Order     docs/MODEL.md 9: the smallest (time, id) first.
"""
from .types cimport (int32_t, ps_t, unlikely, EVENT_OPERATION, EVENT_ROW_QP_ERROR, EVENT_TIMER, FOREVER, NONE, OP_SEND,
                     STATUS_DONE, STATUS_FAILED, TIMER_QP, VERB_READ)
from .state cimport engine_t, worker_t, host_t
from .heaps cimport event_key, events_push, timed_push
from .trace cimport event_record, flow_row_t, record_append

cdef enum:
    SLOT_NEW = -1
    SLOT_DONE = -2
    SLOT_FAILED = -3


cdef inline ps_t host_next_op_ps(const engine_t* e, int32_t node) noexcept nogil:
    cdef const host_t* host = &e.hosts[node]
    cdef ps_t next_ps = FOREVER
    if host.next_op < e.plan.host_op_start[node + 1]:
        next_ps = e.plan.op_start_ps[e.plan.host_op[host.next_op]]
    if host.due.count > 0 and host.due.entries[0].time_ps < next_ps:
        next_ps = host.due.entries[0].time_ps
    if unlikely(e.scale_ups != NULL) and e.scale_ups[node].inbound.count > 0 and (
            e.scale_ups[node].inbound.entries[0].time_ps < next_ps):
        next_ps = e.scale_ups[node].inbound.entries[0].time_ps
    return next_ps


cdef inline void host_set_op_key(engine_t* e, worker_t* w, int32_t node) noexcept nogil:
    cdef host_t* host = &e.hosts[node]
    cdef ps_t next_ps = host_next_op_ps(e, node)
    if unlikely(e.creation != NULL):
        return
    if next_ps < host.op_key_ps:
        host.op_key_ps = next_ps
        if w.lone:
            return
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
        if w.lone:
            return
        if next_ps < w.limit_ps:
            events_push(e, w, event_key(next_ps - w.window_start_ps, EVENT_TIMER, TIMER_QP, 0))
        elif next_ps < w.least_ps:
            w.least_ps = next_ps


cdef inline void host_add_due(engine_t* e, worker_t* w, int32_t node, ps_t time_ps, int32_t op) noexcept nogil:
    timed_push(e, w, &e.hosts[node].due, time_ps, op, node)
    host_set_op_key(e, w, node)


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


cdef inline void operations_fail(engine_t* e, worker_t* w, int32_t node, int32_t qp, int32_t from_index,
                                 ps_t now) noexcept nogil:
    """A QP has failed: every operation of its list from a position on has."""
    cdef flow_row_t* row
    cdef int32_t position, op
    for position in range(e.plan.qp_op_start[qp] + from_index, e.plan.qp_op_start[qp + 1]):
        op = e.plan.qp_op[position]
        e.op_status[op] = STATUS_FAILED
        e.op_done_ps[op] = now
        w.finished_ops += 1
        row = <flow_row_t*>record_append(e, &w.flows)
        if row != NULL:
            row.emit_ps = now
            row.node = node
            row.op = op
    event_record(e, w, now, EVENT_ROW_QP_ERROR, node, NONE, NONE, qp, NONE, NONE)


cdef inline bint timer_is_live(const engine_t* e, int32_t qp) noexcept nogil:
    """Whether an entry of a host's timer heap can still have an effect: its QP lives at that end."""
    if e.plan.has_read and e.plan.qp_verb[qp] == VERB_READ:
        return e.rx_slot[qp] >= 0
    return e.qp_slot[qp] >= 0
