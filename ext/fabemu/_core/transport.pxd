"""The transport of a plan: verbs, selective repeat, packet numbers; what of it the core refuses; its invariants.

Owns      transport_init, transport_holds.
Invariant what the rooms of queue pairs take for granted of a plan is checked here, once.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint64_t, KIND_READ, PSN_HALF, PSN_MASK, VERB_READ)
from .memory cimport pointer
from .plan cimport plan_t
from .state cimport control_queue_t, engine_t, worker_t

cdef enum:
    SELECTIVE_WINDOW_MAX = 4096   # packets: a NAK has 12 bits for its sack
    READ_MESSAGES_MAX = 255       # a request has 8 bits for the messages it spans


cdef inline int transport_init(engine_t* e, plan) except -1:
    """Read the transport of a plan; the NIC profiles exist.

    Raises ValueError for what the compiler should have refused in the words of a scenario.
    """
    cdef plan_t* p = &e.plan
    cdef int32_t index
    p.qp_verb = <const uint8_t*>pointer(plan.qp_verb)
    p.read_request_bytes = max(plan.read_request_bytes, plan.frame_min_bytes)
    p.aeth_bytes = plan.aeth_bytes
    p.read_outstanding_max = plan.read_outstanding_max
    p.has_read = bool((plan.qp_verb == VERB_READ).any())
    p.has_selective = bool(plan.nic_selective.any())
    for index in range(len(plan.nic_cc)):
        p.nic[index].selective = plan.nic_selective[index]
        p.nic[index].selective_window = plan.nic_selective_window[index]
        p.nic[index].reorder = plan.nic_reorder[index]
        if p.nic[index].reorder < 1:
            raise ValueError(f"NIC profile {index}: a packet cannot be lost before another has come beyond it")
        if p.nic[index].selective and not 1 <= p.nic[index].selective_window <= SELECTIVE_WINDOW_MAX:
            raise ValueError(f"a selective window must be 1 to {SELECTIVE_WINDOW_MAX} packets")
    if not 0 <= plan.psn_start <= PSN_MASK:
        raise ValueError(f"psn_start is {plan.psn_start}; it must be 0 to 2^24 - 1")
    p.psn_start = plan.psn_start
    if not 1 <= plan.read_outstanding_max <= READ_MESSAGES_MAX:
        raise ValueError(f"read_outstanding_max is {plan.read_outstanding_max}; it must be 1 to {READ_MESSAGES_MAX}")
    if p.ns3_nic and (p.has_read or p.has_selective or p.psn_start):
        raise ValueError("the compatibility NIC knows neither READ nor selective repeat nor psn_start")
    if p.has_selective:
        own, peer = plan.host_nic[plan.qp_src], plan.host_nic[plan.qp_dst]
        unlike = (plan.nic_selective[own] != plan.nic_selective[peer]) | (
            (plan.nic_selective[own] == 1) & (plan.nic_selective_window[own] != plan.nic_selective_window[peer]))
        if (unlike & (plan.qp_verb != VERB_READ)).any():
            raise ValueError("both ends of a QP must repeat alike")
    if p.has_read:
        sends = plan.op_qp >= 0
        sizes = plan.op_bytes[sends][plan.qp_verb[plan.op_qp[sends]] == VERB_READ]
        if len(sizes) > 0 and sizes.max() > <int64_t>PSN_HALF * p.mtu_bytes:
            raise ValueError("a READ has more than 2^23 packets")
    return 0


cdef inline list transport_holds(engine_t* e, dict operations):
    """(name, whether it holds, what was found) of each invariant of the transport."""
    cdef worker_t* w = e.worker
    cdef int64_t waiting = 0
    cdef int64_t box
    cdef uint64_t position
    cdef const control_queue_t* control
    for box in range(<int64_t>e.host_port_count * e.plan.class_count):
        control = &e.outboxes[box].control
        for position in range(control.head, control.tail):
            waiting += control.buffer[position & control.mask].kind == KIND_READ
    booked, again = int(operations["packets"].sum()), int(operations["retransmissions"].sum())
    return [
        ("frames_by_kind", w.sent == w.data_sent + w.control_sent,
         f"sent {w.sent}, data {w.data_sent}, control {w.control_sent}"),
        ("transmissions", booked == w.data_sent and again == w.retransmissions,
         f"data {w.data_sent}, of which again {w.retransmissions}; by operation {booked}, {again}"),
        ("requests", w.requests_queued == w.requests + waiting,
         f"asked {w.requests_queued}, sent {w.requests}, waiting {waiting}"),
    ]
