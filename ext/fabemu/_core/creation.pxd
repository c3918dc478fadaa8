"""The compatibility scheduler: one global heap, ties in order of creation, as in the HPCC family of ns-3 simulators.

Owns      creation_t: pending events, the cyclic QP list of every host port, which ports are transmitting.
Invariant every event that a transmission causes is created when it starts: its end first, then the arrival at the peer.
          DCQCN timers of the adapter machine are events too, since their place among equal times matters: cc.next_ps
          is FOREVER.
Order     docs/MODEL.md 13. A choice is made inside the event that allows it, not at the end of its instant.
Source    github.com/alibaba-edu/High-Precision-Congestion-Control, behaviour described in docs/VALIDATION.md.
"""
from libc.stdlib cimport calloc, free, realloc
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, CC_ADAPTER, DROP_NO_ROUTE,
                     FAULT_MEMORY, FAULT_NONE, FOREVER, KIND_DATA, KIND_PFC, NONE, OP_SEND, STATUS_POSTED)
from .packet cimport packet_t, packet_class
from .plan cimport nic_profile_t
from .state cimport (engine_t, worker_t, cc_t, host_t, pending_queue_t, pending_t, port_t, qp_t, queue_t, switch_t,
                     timed_heap_t)
from .dcqcn cimport cc_decrease, cc_increase, cc_restart_stages
from .heaps cimport timed_pop, timed_push
from .ecmp cimport ecmp_port
from .mmu cimport mmu_wants_xoff
from .operation cimport SLOT_NEW, operation_done
from .link cimport burst_t, burst_open
from .control cimport host_burst_close, nic_send_control
from .nic_send cimport nic_send_data, qp_sendable
from .nic cimport host_arrival, host_run_timers, operation_post
from .pfc cimport pending_push, pfc_apply, pfc_lower, pfc_raise, pfc_send
from .stats cimport drop_record
from .switch cimport switch_dequeue, switch_enqueue, switch_send
from .interval cimport close_intervals_before
from .window cimport DRAINED, FAULTED, RUNNING, STOPPED, work_left

cdef enum:
    CREATION_TX_END = 0
    CREATION_ARRIVAL = 1
    CREATION_OPERATION = 2        # id is the operation
    CREATION_AVAILABLE = 3
    CREATION_READ_FLOWS = 4       # no id: operations of this instant are installed, then the next instant is awaited
    CREATION_INSTALL = 5          # id is the operation
    CREATION_TIMER = 6            # id is the host
    CREATION_ALPHA = 7            # id is the QP, here and below
    CREATION_DECREASE = 8
    CREATION_INCREASE = 9

cdef struct creation_event_t:
    ps_t time_ps
    uint64_t sequence
    int32_t kind
    int32_t id

cdef struct qp_list_t:
    int32_t* qps
    int32_t count
    int32_t capacity
    int32_t last                  # position served last
    ps_t available_ps             # pending wake-up for the next send time; FOREVER = none

cdef struct creation_t:
    creation_event_t* heap
    int64_t count
    int64_t capacity
    uint64_t sequence
    uint8_t* transmitting         # per port
    qp_list_t* lists              # per host port
    timed_heap_t starts           # (start, operation) of operations without dependencies that are not yet read


cdef inline bint creation_less(const creation_event_t* a, const creation_event_t* b) noexcept nogil:
    return a.time_ps < b.time_ps or (a.time_ps == b.time_ps and a.sequence < b.sequence)


cdef inline void creation_push(engine_t* e, creation_t* c, ps_t time_ps, int32_t kind, int32_t id) noexcept nogil:
    cdef creation_event_t event
    cdef creation_event_t* grown
    cdef int64_t index = c.count
    cdef int64_t parent
    if unlikely(index == c.capacity):
        c.capacity = 2 * c.capacity if c.capacity > 0 else 256
        grown = <creation_event_t*>realloc(c.heap, <size_t>c.capacity * sizeof(creation_event_t))
        if grown == NULL:
            e.fault.code = FAULT_MEMORY
            return
        c.heap = grown
    event.time_ps = time_ps
    event.sequence = c.sequence
    event.kind = kind
    event.id = id
    c.sequence += 1
    c.count += 1
    while index > 0:
        parent = (index - 1) >> 1
        if not creation_less(&event, &c.heap[parent]):
            break
        c.heap[index] = c.heap[parent]
        index = parent
    c.heap[index] = event


cdef inline void creation_pop(creation_t* c) noexcept nogil:
    cdef int64_t index = 0
    cdef int64_t child
    cdef creation_event_t event
    c.count -= 1
    if c.count == 0:
        return
    event = c.heap[c.count]
    while True:
        child = 2 * index + 1
        if child >= c.count:
            break
        if child + 1 < c.count and creation_less(&c.heap[child + 1], &c.heap[child]):
            child += 1
        if not creation_less(&c.heap[child], &event):
            break
        c.heap[index] = c.heap[child]
        index = child
    c.heap[index] = event


cdef inline void creation_init(engine_t* e, creation_t* c) noexcept nogil:
    """Operations without dependencies wait in order of (start, id); one event reads those of the next instant."""
    cdef int32_t op, port
    e.touched_port = NONE
    c.transmitting = <uint8_t*>calloc(e.plan.port_count + 1, 1)
    c.lists = <qp_list_t*>calloc(e.host_port_count + 1, sizeof(qp_list_t))
    if c.transmitting == NULL or c.lists == NULL:
        e.fault.code = FAULT_MEMORY
        return
    for port in range(e.host_port_count):
        c.lists[port].available_ps = FOREVER
    for op in range(e.plan.op_count):
        if e.plan.op_dependency_count[op] == 0:
            timed_push(e, e.worker, &c.starts, e.plan.op_start_ps[op], op, e.plan.op_host[op])
    creation_await_flows(e, c)


cdef inline void creation_await_flows(engine_t* e, creation_t* c) noexcept nogil:
    """Have the operations of the next instant read."""
    if c.starts.count > 0:
        creation_push(e, c, c.starts.entries[0].time_ps, CREATION_READ_FLOWS, NONE)


cdef inline void creation_read_flows(engine_t* e, creation_t* c, ps_t now) noexcept nogil:
    """Install the operations of this instant: each is posted two events of no duration later."""
    while c.starts.count > 0 and c.starts.entries[0].time_ps <= now:
        creation_push(e, c, now, CREATION_INSTALL, c.starts.entries[0].id)
        e.hosts[c.starts.entries[0].node].next_op += 1
        e.worker.started_ops += 1
        timed_pop(&c.starts)
    creation_await_flows(e, c)


cdef inline void creation_free(engine_t* e, creation_t* c) noexcept nogil:
    cdef int32_t port
    if c.lists != NULL:
        for port in range(e.host_port_count):
            free(c.lists[port].qps)
    free(c.lists)
    free(c.transmitting)
    free(c.heap)


cdef inline void creation_started(engine_t* e, creation_t* c, int32_t port_id) noexcept nogil:
    """A transmission has started: its end, then its arrival."""
    cdef port_t* port = &e.ports[port_id]
    c.transmitting[port_id] = 1
    creation_push(e, c, port.busy_until_ps, CREATION_TX_END, port_id)
    creation_push(e, c, port.busy_until_ps + port.delay_ps, CREATION_ARRIVAL, port.peer)


cdef inline void creation_send_pfc(engine_t* e, worker_t* w, creation_t* c, int32_t port_id, int32_t klass, bint xoff,
                                   ps_t now) noexcept nogil:
    """Queue one PFC frame for one class; it leaves now if the port is idle."""
    cdef pending_t* frame = pending_push(e, w, &e.pendings[port_id])
    if frame == NULL:
        return
    frame.time_ps = now
    frame.classes = <uint32_t>1 << klass
    frame.mask = frame.classes if xoff else 0
    if not c.transmitting[port_id]:
        creation_send_next_pfc(e, w, c, port_id, now)


cdef inline void creation_send_next_pfc(engine_t* e, worker_t* w, creation_t* c, int32_t port_id,
                                        ps_t now) noexcept nogil:
    cdef pending_queue_t* frames = &e.pendings[port_id]
    cdef pending_t frame = frames.buffer[frames.head & frames.mask]
    frames.head += 1
    pfc_send(e, w, &e.ports[port_id], port_id, frame.mask, frame.classes, now)
    creation_started(e, c, port_id)


cdef inline void creation_switch_transmit(engine_t* e, worker_t* w, creation_t* c, int32_t node, int32_t port_id,
                                          ps_t now) noexcept nogil:
    """PFC frames first, then round robin over the classes, from low to high priority."""
    cdef port_t* port = &e.ports[port_id]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t first_port = e.plan.node_port_start[node]
    cdef int32_t count = e.plan.class_count
    cdef int32_t step, klass, ingress_id
    cdef queue_t* queue
    cdef const packet_t* packet
    if e.pendings[port_id].head != e.pendings[port_id].tail:
        creation_send_next_pfc(e, w, c, port_id, now)
        return
    if port.waiting_mask == 0:
        return
    for step in range(1, count + 1):
        klass = (<int32_t>port.last_class - step + count) % count
        queue = &e.queues[<int64_t>port_id * count + klass]
        if queue.first == NULL or queue.pause_until_ps > now:
            continue
        port.last_class = <uint8_t>klass
        packet = queue.first
        ingress_id = first_port + packet.ingress
        if switch_dequeue(e, w, mmu, first_port, port, port_id, klass, queue, now):
            pfc_lower(e, w, &e.ports[ingress_id], ingress_id, klass, now)
            creation_send_pfc(e, w, c, ingress_id, klass, False, now)
        switch_send(e, w, port, port_id, klass, queue, packet, now)
        creation_started(e, c, port_id)
        return


cdef inline void creation_host_transmit(engine_t* e, worker_t* w, creation_t* c, int32_t node, int32_t port_id,
                                        ps_t now) noexcept nogil:
    """ACKs first, never paused; then the next QP of the cyclic list whose send time has come."""
    cdef port_t* port = &e.ports[port_id]
    cdef host_t* host = &e.hosts[node]
    cdef qp_list_t* qps = &c.lists[port_id]
    cdef int32_t count = qps.count
    cdef int32_t step, position, slot, kept
    cdef int32_t chosen = NONE
    cdef int32_t finished = NONE
    cdef ps_t next_ps = FOREVER
    cdef qp_t* q
    cdef burst_t burst
    if e.outboxes[<int64_t>port_id * e.plan.class_count].control.head != (
            e.outboxes[<int64_t>port_id * e.plan.class_count].control.tail):
        burst_open(e, &burst, port)
        nic_send_control(e, w, &burst, port_id, &e.outboxes[<int64_t>port_id * e.plan.class_count].control, now)
        host_burst_close(e, w, &burst, port_id)
        creation_started(e, c, port_id)
        return
    for step in range(1, count + 1):
        position = (step + qps.last) % count
        slot = e.qp_slot[qps.qps[position]]
        if slot < 0:
            if finished == NONE or position < finished:
                finished = position
            continue
        q = &host.qps[slot]
        if not qp_sendable(q) or e.queues[<int64_t>port_id * e.plan.class_count + q.klass].pause_until_ps > now:
            continue
        if q.next_send_ps > now:
            continue
        chosen = position
        break
    if finished != NONE:
        # Finished QPs leave the list; the position served last is not adjusted.
        kept = finished
        for position in range(finished + 1, count):
            if e.qp_slot[qps.qps[position]] >= 0:
                if position == chosen:
                    chosen = kept
                qps.qps[kept] = qps.qps[position]
                kept += 1
        qps.count = kept
    if chosen != NONE:
        qps.last = chosen
        q = &host.qps[e.qp_slot[qps.qps[chosen]]]
        burst_open(e, &burst, port)
        nic_send_data(e, w, node, &burst, port_id, q.klass, e.qp_slot[qps.qps[chosen]], now)
        host_burst_close(e, w, &burst, port_id)
        creation_started(e, c, port_id)
        return
    for position in range(qps.count):
        slot = e.qp_slot[qps.qps[position]]
        if slot < 0:
            continue
        q = &host.qps[slot]
        if q.snd_nxt < q.available_end and q.next_send_ps < next_ps:
            next_ps = q.next_send_ps
    if qps.available_ps == FOREVER and next_ps < FOREVER and next_ps > now:
        qps.available_ps = next_ps
        creation_push(e, c, next_ps, CREATION_AVAILABLE, port_id)


cdef inline void creation_transmit(engine_t* e, worker_t* w, creation_t* c, int32_t port_id, ps_t now) noexcept nogil:
    """Make the port choose, if it is idle."""
    cdef int32_t node
    if c.transmitting[port_id]:
        return
    node = e.ports[port_id].node
    if node < e.plan.host_count:
        creation_host_transmit(e, w, c, node, port_id, now)
    else:
        creation_switch_transmit(e, w, c, node, port_id, now)


cdef inline void creation_settle(engine_t* e, worker_t* w, creation_t* c, int32_t node, ps_t now) noexcept nogil:
    """After an event at a host: schedule what it made due, then let the port it touched choose."""
    cdef host_t* host = &e.hosts[node]
    cdef int32_t touched = e.touched_port
    while host.due.count > 0:
        creation_push(e, c, host.due.entries[0].time_ps, CREATION_OPERATION, host.due.entries[0].id)
        timed_pop(&host.due)
    if host.timers.count > 0 and host.timers.entries[0].time_ps < host.timer_key_ps:
        host.timer_key_ps = host.timers.entries[0].time_ps
        creation_push(e, c, host.timer_key_ps, CREATION_TIMER, node)
    e.touched_port = NONE
    if touched >= 0:
        creation_transmit(e, w, c, touched, now)


cdef inline void creation_switch_arrival(engine_t* e, worker_t* w, creation_t* c, int32_t node, int32_t ingress_id,
                                         const packet_t* packet, ps_t now) noexcept nogil:
    """Charge, PFC check, enqueue, transmit."""
    cdef int32_t klass = <int32_t>packet_class(packet)
    cdef port_t* ingress = &e.ports[ingress_id]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    cdef int32_t egress_id = ecmp_port(&e.plan, node, packet.group, packet.dst, packet.hash)
    if egress_id < 0:
        drop_record(e, w, packet, node, ingress_id, klass, NONE, DROP_NO_ROUTE, now)
        return
    if switch_enqueue(e, w, node, mmu, ingress_id, egress_id, klass, packet, now) != NONE:
        return
    if ((e.plan.lossless_mask >> klass) & 1 and not (ingress.xoff_mask >> klass) & 1
            and mmu_wants_xoff(e, mmu, &e.queues[<int64_t>ingress_id * e.plan.class_count + klass])):
        pfc_raise(e, w, mmu, ingress, ingress_id, klass, now)
        creation_send_pfc(e, w, c, ingress_id, klass, True, now)
    creation_transmit(e, w, c, egress_id, now)


cdef inline void creation_operation(engine_t* e, worker_t* w, creation_t* c, int32_t op, ps_t now) noexcept nogil:
    """Post an operation, or complete a calc; a QP that is new joins the list of its port."""
    cdef int32_t node = e.plan.op_host[op]
    cdef int32_t qp = e.plan.op_qp[op]
    cdef bint is_new
    cdef qp_list_t* qps
    cdef int32_t* grown
    if e.op_status[op] == STATUS_POSTED:
        operation_done(e, w, node, op, now)
        return
    is_new = e.plan.op_kind[op] == OP_SEND and e.qp_slot[qp] == SLOT_NEW
    operation_post(e, w, node, op, now)
    if e.plan.op_kind[op] != OP_SEND or e.qp_slot[qp] < 0:
        return
    e.touched_port = e.hosts[node].qps[e.qp_slot[qp]].port
    if is_new:
        qps = &c.lists[e.touched_port]
        if qps.count == qps.capacity:
            qps.capacity = 2 * qps.capacity if qps.capacity > 0 else 4
            grown = <int32_t*>realloc(qps.qps, <size_t>qps.capacity * sizeof(int32_t))
            if grown == NULL:
                e.fault.code = FAULT_MEMORY
                return
            qps.qps = grown
        qps.qps[qps.count] = qp
        qps.count += 1


cdef inline void creation_host_arrival(engine_t* e, worker_t* w, creation_t* c, int32_t node, const packet_t* packet,
                                       ps_t now) noexcept nogil:
    """An ACK lets its QP's port choose, whatever it changed; the first echo of a QP starts its DCQCN timers."""
    cdef int32_t slot = NONE
    cdef int32_t port_id = NONE
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef cc_t* cc
    if packet.kind != KIND_DATA:
        slot = e.qp_slot[packet.qp]
        if slot >= 0:
            port_id = e.hosts[node].qps[slot].port
    host_arrival(e, w, node, e.plan.node_port_start[node], packet, now)
    if port_id >= 0:
        e.touched_port = port_id
        if nic.cc == CC_ADAPTER and e.qp_slot[packet.qp] == slot:
            cc = &e.hosts[node].qps[slot].cc
            if cc.next_ps != FOREVER:
                cc.next_ps = FOREVER
                creation_push(e, c, cc.alpha_next_ps, CREATION_ALPHA, <int32_t>packet.qp)
                creation_push(e, c, cc.decrease_next_ps, CREATION_DECREASE, <int32_t>packet.qp)
    creation_settle(e, w, c, node, now)


cdef inline void creation_rate_timer(engine_t* e, creation_t* c, int32_t kind, int32_t qp, ps_t now) noexcept nogil:
    """One DCQCN timer of a live QP (MODEL 12, machine `adapter`)."""
    cdef int32_t node = e.plan.qp_src[qp]
    cdef const nic_profile_t* nic = &e.plan.nic[e.plan.host_nic[node]]
    cdef qp_t* q = &e.hosts[node].qps[e.qp_slot[qp]]
    cdef cc_t* cc = &q.cc
    cdef ps_t line_rate_bps = e.ports[q.port].rate_bps
    if kind == CREATION_ALPHA:
        cc.alpha = (1.0 - nic.g) * cc.alpha + (nic.g if cc.cnp_alpha else 0.0)
        cc.cnp_alpha = 0
        cc.alpha_next_ps = now + nic.alpha_timer_ps
        creation_push(e, c, cc.alpha_next_ps, CREATION_ALPHA, qp)
    elif kind == CREATION_DECREASE:
        cc.decrease_next_ps = now + nic.decrease_timer_ps
        creation_push(e, c, cc.decrease_next_ps, CREATION_DECREASE, qp)
        if not cc.cnp_decrease:
            return
        if cc.timer_stage > 0 or cc.byte_stage > 0 or nic.clamp_target:
            cc.target_bps = cc.rate_bps
        cc_decrease(nic, cc)
        cc_restart_stages(cc)
        cc.counts_bytes = 1
        cc.cnp_decrease = 0
        cc.increase_next_ps = now + nic.increase_timer_ps
        creation_push(e, c, cc.increase_next_ps, CREATION_INCREASE, qp)
    else:
        cc.increase_next_ps = now + nic.increase_timer_ps
        creation_push(e, c, cc.increase_next_ps, CREATION_INCREASE, qp)
        cc_increase(nic, cc, line_rate_bps)
        cc.timer_stage += 1


cdef inline bint creation_is_stale(engine_t* e, const creation_event_t* event) noexcept nogil:
    """Timers of QPs that are done, or that were restarted: time does not pass for them."""
    cdef int32_t slot
    cdef host_t* host
    if event.kind < CREATION_TIMER:
        return False
    if event.kind == CREATION_TIMER:
        host = &e.hosts[event.id]
        if host.timer_key_ps != event.time_ps:
            return True
        while host.timers.count > 0 and e.qp_slot[host.timers.entries[0].id] < 0:
            timed_pop(&host.timers)
        if host.timers.count == 0:
            host.timer_key_ps = FOREVER
        return host.timers.count == 0
    slot = e.qp_slot[event.id]
    if slot < 0:
        return True
    return (event.kind == CREATION_INCREASE
            and e.hosts[e.plan.qp_src[event.id]].qps[slot].cc.increase_next_ps != event.time_ps)


cdef inline void creation_event(engine_t* e, worker_t* w, creation_t* c, const creation_event_t* event) noexcept nogil:
    cdef ps_t now = event.time_ps
    cdef int32_t id = event.id
    cdef int32_t node
    cdef port_t* port
    cdef packet_t packet
    if event.kind == CREATION_TX_END:
        c.transmitting[id] = 0
        creation_transmit(e, w, c, id, now)
    elif event.kind == CREATION_ARRIVAL:
        port = &e.ports[id]
        packet = port.ring[port.head & port.mask]
        port.head += 1
        w.link_received += 1
        node = port.node
        if packet.kind == KIND_PFC:
            w.pfc_received += 1
            pfc_apply(e, w, port, id, packet.psn, packet.hash, now)
            e.touched_port = NONE
            if packet.psn == 0:
                creation_transmit(e, w, c, id, now)
        elif node < e.plan.host_count:
            creation_host_arrival(e, w, c, node, &packet, now)
        else:
            creation_switch_arrival(e, w, c, node, id, &packet, now)
    elif event.kind == CREATION_OPERATION:
        node = e.plan.op_host[id]
        creation_operation(e, w, c, id, now)
        creation_settle(e, w, c, node, now)
    elif event.kind == CREATION_AVAILABLE:
        c.lists[id].available_ps = FOREVER
        creation_transmit(e, w, c, id, now)
    elif event.kind == CREATION_READ_FLOWS:
        creation_read_flows(e, c, now)
    elif event.kind == CREATION_INSTALL:
        creation_push(e, c, now, CREATION_OPERATION, id)
    elif event.kind == CREATION_TIMER:
        host_run_timers(e, w, id, now)
        creation_settle(e, w, c, id, now)
    else:
        creation_rate_timer(e, c, event.kind, id, now)


cdef inline int32_t run_creation(engine_t* e, creation_t* c, ps_t stop_ps, int64_t hop_limit) noexcept nogil:
    """Step the global heap, as window.run_windows does for windows."""
    cdef worker_t* w = e.worker
    cdef creation_event_t event
    while True:
        if w.packet_hops >= hop_limit:
            return RUNNING
        if c.count == 0:
            return DRAINED
        event = c.heap[0]
        if event.time_ps >= stop_ps:
            e.now_ps = stop_ps
            close_intervals_before(e, stop_ps)
            return STOPPED if c.count > 0 and work_left(e) else DRAINED
        creation_pop(c)
        if creation_is_stale(e, &event):
            continue
        e.now_ps = event.time_ps
        close_intervals_before(e, e.now_ps)
        creation_event(e, w, c, &event)
        if event.kind < CREATION_READ_FLOWS:
            w.events += 1
            w.last_event_ps = e.now_ps
        if unlikely(e.fault.code != FAULT_NONE):
            return FAULTED
