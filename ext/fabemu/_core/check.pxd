"""Self-verification of the check build, after every visit of a device.

Owns      check_device.
Invariant queue bytes equal the frames that wait; the shared pool equals the sum over PGs; nothing is negative or
          above its size; a port's next event is never later than what it holds; what a host keeps of its timers and
          operations is what they say.
"""
from .types cimport int32_t, int64_t, FAULT_NONE, FAULT_POOL, FAULT_QUEUE, FAULT_RELEASE, FAULT_TIME, FOREVER
from .packet cimport packet_t
from .queue cimport queue_after
from .state cimport engine_t, host_t, port_t, queue_t, switch_t
from .operation cimport host_next_op_ps


cdef inline void check_device(engine_t* e, int32_t node) noexcept nogil:
    """Walk the state of one device; the first broken promise becomes the fault of the run."""
    cdef int32_t port_id, klass
    cdef const packet_t* packet
    cdef int64_t waiting
    cdef int64_t pool = 0
    cdef const port_t* port
    cdef const queue_t* queue
    cdef const switch_t* mmu
    for port_id in range(e.plan.node_port_start[node], e.plan.node_port_start[node + 1]):
        port = &e.ports[port_id]
        if port.kick_ps < e.port_next_ps[port_id] or (
                port.head != port.tail and port.ring[port.head & port.mask].time_ps < e.port_next_ps[port_id]):
            check_fault(e, FAULT_QUEUE, node, port_id)
        for klass in range(e.plan.class_count):
            queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
            waiting = 0
            packet = queue.first
            while packet != NULL:
                waiting += packet.size
                packet = queue_after(queue, packet)
            if waiting != queue.bytes or (
                    node >= e.plan.host_count and (queue.first != NULL) != ((port.waiting_mask >> klass) & 1)):
                check_fault(e, FAULT_QUEUE, node, port_id)
            if (queue.reserved_used_bytes | queue.shared_used_bytes | queue.headroom_used_bytes) < 0:
                check_fault(e, FAULT_RELEASE, node, port_id)
            if queue.headroom_used_bytes > queue.headroom_bytes and not e.plan.ns3_buffer and e.down == NULL:
                check_fault(e, FAULT_POOL, node, port_id)
            pool += queue.shared_used_bytes
    if node >= e.plan.host_count and not e.plan.ns3_buffer:
        mmu = &e.switches[node - e.plan.host_count]
        if pool != mmu.shared_used_bytes or pool > mmu.pool_bytes:
            check_fault(e, FAULT_POOL, node, -1)


cdef inline void check_host_keys(engine_t* e, int32_t node) noexcept nogil:
    """Compare the keys that a host with one port keeps from visit to visit with what they stand for."""
    cdef const host_t* host = &e.hosts[node]
    if host.op_key_ps != host_next_op_ps(e, node) or host.timer_key_ps != (
            host.timers.entries[0].time_ps if host.timers.count > 0 else FOREVER):
        check_fault(e, FAULT_TIME, node, -1)


cdef inline void check_fault(engine_t* e, int32_t code, int32_t node, int32_t port_id) noexcept nogil:
    if e.fault.code == FAULT_NONE:
        e.fault.code = code
        e.fault.time_ps = e.now_ps
        e.fault.node = node
        e.fault.port = port_id
