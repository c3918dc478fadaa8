"""Options of switches and links that most fabrics do without: what makes a switch unusual.

Owns      the switches' `unusual` bits as the plan sets them; masks of PFC; class maps; weights; credits' arrays.
Invariant a switch without any option has no bit set, and its packets pay nothing for those that others have.
"""
from .types cimport (int32_t, int64_t, uint8_t, uint32_t, BALANCE_FLOWLET, BALANCE_LEAST_LOADED_FLOW,
                     UNUSUAL_BALANCE, UNUSUAL_BY_THE_BOOK, UNUSUAL_CELLS, UNUSUAL_CLASS_MAP, UNUSUAL_CREDIT,
                     UNUSUAL_STATIC, UNUSUAL_WEIGHTS)
from .memory cimport zeroed
from .state cimport credit_port_t, engine_t, lane_t, schedule_t, switch_t


cdef inline int options_init(engine_t* e, plan) except -1:
    """Read the options of a plan; the ports and switches exist."""
    cdef int32_t port, klass, node, local
    cdef int32_t classes = e.plan.class_count
    cdef int64_t index
    cdef uint8_t[::1] send = bytearray(plan.pq_pfc_send.tobytes())
    cdef uint8_t[::1] obey = bytearray(plan.pq_pfc_obey.tobytes())
    cdef uint8_t[::1] balance = bytearray(plan.switch_balance.tobytes())
    cdef switch_t* mmu
    e.pfc_send_mask = <uint8_t*>zeroed(&e.arena, e.plan.port_count, 1)
    e.pfc_obey_mask = <uint8_t*>zeroed(&e.arena, e.plan.port_count, 1)
    e.class_map = <uint8_t*>zeroed(&e.arena, <size_t>(e.plan.node_count - e.plan.host_count) * classes, 1)
    for port in range(e.plan.port_count):
        for klass in range(classes):
            e.pfc_send_mask[port] |= <uint8_t>((send[port * classes + klass] != 0) << klass)
            e.pfc_obey_mask[port] |= <uint8_t>((obey[port * classes + klass] != 0) << klass)
        node = e.plan.port_node[port]
        if node >= e.plan.host_count and e.plan.lossless_mask & ~<uint32_t>e.pfc_send_mask[port]:
            e.switches[node - e.plan.host_count].headroom_untold = True
    if plan.pq_quantum_bytes.any():
        e.schedules = <schedule_t*>zeroed(&e.arena, e.plan.port_count, sizeof(schedule_t))
    if plan.port_credit.any():
        limited = plan.port_credit.repeat(classes) != 0
        if (plan.pq_pfc_send | plan.pq_pfc_obey)[limited].any() or (plan.pq_credit_bytes[limited] % 64).any():
            raise ValueError("a link with credits has no PFC, and buffers of whole blocks of 64 bytes")
        e.lanes = <lane_t*>zeroed(&e.arena, <size_t>e.plan.port_count * classes, sizeof(lane_t))
        e.credits = <credit_port_t*>zeroed(&e.arena, e.plan.port_count, sizeof(credit_port_t))
        for port in range(e.plan.port_count):
            e.credits[port].mask = <uint32_t>0xffffffff
            for klass in range(classes):
                e.lanes[<int64_t>port * classes + klass].capacity = (
                    e.plan.pq_credit_bytes[<int64_t>port * classes + klass] // 64)
    for node in range(e.plan.host_count, e.plan.node_count):
        mmu = &e.switches[node - e.plan.host_count]
        if not e.shortcuts or e.plan.ns3_buffer:
            mmu.unusual |= UNUSUAL_BY_THE_BOOK
        mmu.balance = balance[node - e.plan.host_count]
        if mmu.balance >= BALANCE_FLOWLET:
            mmu.unusual |= UNUSUAL_BALANCE
        if mmu.balance == BALANCE_FLOWLET:
            mmu.flowlet_count = plan.switch_flowlet_entries[node - e.plan.host_count]
            mmu.flowlet_gap_ps = plan.switch_flowlet_gap_ps[node - e.plan.host_count]
            if mmu.flowlet_count < 1:
                raise ValueError(f"switch {node - e.plan.host_count}: no room for flowlets")
        if mmu.balance > BALANCE_LEAST_LOADED_FLOW:
            raise ValueError(f"switch {node - e.plan.host_count}: there is no load balancing {mmu.balance}")
        if mmu.cell_bytes > 1:
            mmu.unusual |= UNUSUAL_CELLS
        for local in range(mmu.port_count):
            port = e.plan.node_port_start[node] + local
            if e.plan.port_credit[port]:
                mmu.unusual |= UNUSUAL_CREDIT
            for klass in range(classes):
                index = <int64_t>port * classes + klass
                if e.plan.pq_static_bytes[index] >= 0 or e.plan.pq_egress_static_bytes[index] >= 0:
                    mmu.unusual |= UNUSUAL_STATIC
                if e.plan.pq_quantum_bytes[index] > 0:
                    mmu.unusual |= UNUSUAL_WEIGHTS
                    e.schedules[port].weighted_mask |= <uint32_t>1 << klass
                    e.schedules[port].cursor = klass
        for klass in range(classes):
            options_map_class(e, node, klass, e.plan.switch_class_map[(node - e.plan.host_count) * classes + klass])
    return 0


cdef inline void options_map_class(engine_t* e, int32_t node, int32_t klass, int32_t treated) noexcept nogil:
    """From now on the switch treats frames of `klass` as `treated`."""
    cdef uint8_t* treatment = &e.class_map[<int64_t>(node - e.plan.host_count) * e.plan.class_count]
    cdef switch_t* mmu = &e.switches[node - e.plan.host_count]
    treatment[klass] = <uint8_t>treated
    # A map that is the identity again stays by the book: queues may still hold frames of other classes.
    if treated != klass:
        mmu.unusual |= UNUSUAL_CLASS_MAP
