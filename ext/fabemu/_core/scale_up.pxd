"""Scale-up hops: messages between hosts of one domain, over links of their own that carry bytes at an exact rate.

Owns      scale_up_t: when a host's way into its domain, and out of it, is free again; messages on their way to it.
Invariant both ends of a message are stepped by the same worker, and it begins to arrive a latency after it starts,
          which is no less than a step, and the hosts go step by step if it is less than two: so none hears within a
          visit of what another does in the same window.
Order     messages leave a host in the order of their posting, and are received in the order (beginning of arrival,
          operation); at one instant ends come before beginnings, and both before operations. docs/MODEL.md 19.
"""
from .types cimport int32_t, int64_t, uint32_t, ps_t, NONE, OP_SCALE_UP, OP_RECV, STATUS_POSTED
from .memory cimport zeroed
from .state cimport engine_t, worker_t, scale_up_t
from .heaps cimport timed_pop, timed_push
from .operation cimport host_add_due, operation_done
from .trace cimport flow_row_t, record_append
from .wake cimport events_count, wake_at


cdef extern from *:
    """
    /* Of an operation's number in `inbound`: it makes the number negative, so that ends come before beginnings. */
    #define FABEMU_ARRIVED ((uint32_t)1 << 31)
    /* Messages are larger than frames: 8e12 times their bytes does not fit 64 bits. */
    static inline int64_t fabemu_message_ps(int64_t bytes, int64_t rate_bps)
    {
        unsigned __int128 bits = (unsigned __int128)bytes * 8000000000000u;
        return (int64_t)((bits + (unsigned __int128)(rate_bps - 1)) / (unsigned __int128)rate_bps);
    }
    """
    const uint32_t ARRIVED "FABEMU_ARRIVED"
    ps_t message_ps "fabemu_message_ps"(int64_t size_bytes, int64_t rate_bps) noexcept nogil


cdef inline int scale_ups_make(engine_t* e) except -1:
    """Every host gets its ports to its domain. Raises ValueError for messages that no domain carries."""
    cdef int32_t op, receive, sender, receiver
    for op in range(e.plan.op_count):
        if e.plan.op_kind[op] != OP_SCALE_UP:
            continue
        sender = e.plan.op_host[op]
        receive = e.plan.op_peer[op]
        receiver = NONE if receive < 0 or e.plan.op_kind[receive] != OP_RECV else e.plan.op_host[receive]
        if receiver < 0 or receiver == sender or e.plan.host_domain[sender] < 0 or (
                e.plan.host_domain[sender] != e.plan.host_domain[receiver]):
            raise ValueError(f"operation {op} of host {sender} has no receiver in its scale-up domain")
        if min(e.plan.host_scale_up_rate_bps[sender], e.plan.host_scale_up_rate_bps[receiver],
               e.plan.host_scale_up_latency_ps[sender]) < 1:
            raise ValueError(f"host {sender} or {receiver} has no scale-up rate or latency")
    e.scale_ups = <scale_up_t*>zeroed(&e.arena, e.plan.host_count, sizeof(scale_up_t))
    return 0


cdef inline bint domains_are_whole(const engine_t* e, const int32_t* owners) noexcept nogil:
    """Whether the hosts of every domain have one owner; those of a domain need not follow each other."""
    cdef int32_t node, domain
    for node in range(e.plan.host_count):
        domain = e.plan.host_domain[node]
        if domain >= 0 and owners[node] != owners[domain]:
            return False
    return True


cdef inline void scale_up_post(engine_t* e, worker_t* w, int32_t node, int32_t op, ps_t now) noexcept nogil:
    """A message to another host of the domain is posted: it starts when those before it have left."""
    cdef scale_up_t* out = &e.scale_ups[node]
    cdef int32_t receiver = e.plan.op_host[e.plan.op_peer[op]]
    cdef ps_t start_ps = now if now > out.out_free_ps else out.out_free_ps
    cdef ps_t arrival_ps = start_ps + e.plan.host_scale_up_latency_ps[node]
    out.out_free_ps = start_ps + message_ps(e.plan.op_bytes[op], e.plan.host_scale_up_rate_bps[node])
    e.op_first_ps[op] = start_ps
    timed_push(e, w, &e.scale_ups[receiver].inbound, arrival_ps, op, receiver)
    wake_at(e, w, receiver, arrival_ps)
    host_add_due(e, w, node, out.out_free_ps, op)


cdef inline void scale_up_receive(engine_t* e, worker_t* w, int32_t node, ps_t now) noexcept nogil:
    """The next message on its way begins to arrive, or has arrived whole."""
    cdef scale_up_t* into = &e.scale_ups[node]
    cdef int32_t op = into.inbound.entries[0].id
    cdef int32_t sender, receive
    cdef ps_t end_ps, sent_ps
    cdef flow_row_t* row
    timed_pop(&into.inbound)
    events_count(w, 1, now)
    if op >= 0:
        # It is taken in as it comes, no faster than it is sent.
        sender = e.plan.op_host[op]
        sent_ps = now + message_ps(e.plan.op_bytes[op], e.plan.host_scale_up_rate_bps[sender])
        end_ps = now if now > into.in_free_ps else into.in_free_ps
        end_ps += message_ps(e.plan.op_bytes[op], e.plan.host_scale_up_rate_bps[node])
        into.in_free_ps = end_ps if end_ps > sent_ps else sent_ps
        timed_push(e, w, &into.inbound, into.in_free_ps, <int32_t>(<uint32_t>op | ARRIVED), node)
        return
    op = <int32_t>(<uint32_t>op & ~ARRIVED)
    e.op_delivered_ps[op] = now
    row = <flow_row_t*>record_append(e, &w.flows)
    if row != NULL:
        row.emit_ps = now
        row.node = node
        row.op = op
    receive = e.plan.op_peer[op]
    if e.op_status[receive] == STATUS_POSTED:
        operation_done(e, w, node, receive, now)
