"""What an engine holds now.

Owns      bytes_held.
Invariant everything that has grown since the engine was made is counted once, at its capacity.
"""
from libc.string cimport memset
from .types cimport int64_t, uint32_t
from .footprint cimport footprint_accounts, footprint_operations, shape_t
from .heaps cimport ready_bytes
from .packet cimport packet_t
from .plan cimport plan_t
from .selective cimport companions_bytes
from .state cimport control_t, engine_t, flowlet_t, qp_t, rx_t, timed_t


cdef inline dict bytes_held(engine_t* e, size_t fixed_bytes):
    """Bytes by kind; `fixed_bytes` of the arena had been handed out when the engine had been made."""
    cdef const plan_t* p = &e.plan
    cdef int64_t index, rings = 0, queues = 0, pools = 0
    cdef shape_t shape
    memset(&shape, 0, sizeof(shape_t))
    shape.qp_count = p.qp_count
    shape.op_count = p.op_count
    shape.message_count = p.message_count
    shape.has_reads = p.has_read
    shape.lossless_count = e.lossless_count
    for index in range(p.node_count - p.host_count):
        shape.port_pairs += <int64_t>e.switches[index].port_count * e.switches[index].port_count
        if e.switches[index].flowlets != NULL:
            pools += e.switches[index].flowlet_count * sizeof(flowlet_t)
    for index in range(p.port_count + e.mailbox_count):
        rings += (<int64_t><uint32_t>(e.ports[index].mask + 1)) * sizeof(packet_t)
    for index in range(e.worker_count):
        queues += e.workers[index].block_bytes
    for index in range(p.host_count):
        pools += e.hosts[index].qp_capacity * sizeof(qp_t) + e.hosts[index].rx_capacity * sizeof(rx_t)
        pools += companions_bytes(&e.hosts[index])
        pools += (e.hosts[index].timers.capacity + e.hosts[index].due.capacity) * sizeof(timed_t)
    for index in range(<int64_t>e.host_port_count * p.class_count):
        pools += (<int64_t><uint32_t>(e.outboxes[index].control.mask + 1)) * sizeof(control_t)
        pools += ready_bytes(&e.outboxes[index].ready)
    return {"links": rings, "queues": queues, "qps": pools,
            "fabric": fixed_bytes - footprint_operations(&shape) + footprint_accounts(&shape),
            "operations": footprint_operations(&shape)}
