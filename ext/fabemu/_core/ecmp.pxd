"""Next hops: the port by which a packet leaves a node.

Owns      the choice inside an equal-cost set, by flow hash and per-node seed (MODEL 8).
Invariant packets of one QP and direction take one path.
"""
from .types cimport int32_t, int64_t, uint32_t, uint64_t, NONE
from .rng cimport mix32
from .plan cimport plan_t

cdef enum:
    ROUTE_LOCAL = -2
    ROUTE_SET_BASE = -16


cdef inline int32_t ecmp_choose(const plan_t* plan, const int32_t* row, uint32_t seed, uint32_t group, uint32_t dst,
                                uint32_t hash) noexcept nogil:
    """Port id by a node's row of routes and its seed, or NONE where there is no route."""
    cdef int32_t entry = row[group]
    cdef int32_t start, count
    if entry >= 0:
        return entry
    if entry == ROUTE_LOCAL:
        return plan.host_access_port[dst]
    if entry > ROUTE_SET_BASE:
        return NONE
    entry = ROUTE_SET_BASE - entry
    start = plan.nexthop_start[entry]
    count = plan.nexthop_start[entry + 1] - start
    return plan.nexthop_port[start + <int32_t>((<uint64_t>mix32(hash ^ seed) * <uint64_t>count) >> 32)]


cdef inline int32_t ecmp_draw(const plan_t* plan, const int32_t* row, uint32_t seed, uint32_t group, uint32_t dst,
                              uint32_t hash) noexcept nogil:
    """ecmp_choose, for packets of which none is like the one before: nothing branches on the kind of their entries.

    What an entry of each kind leads to is looked up, and one is taken; it is the port itself, or NONE, if it is of no
    other kind.
    """
    cdef int32_t entry = row[group]
    cdef int32_t is_set = -<int32_t>(entry <= ROUTE_SET_BASE)
    cdef int32_t is_local = -<int32_t>(entry == ROUTE_LOCAL)
    cdef int32_t number = (ROUTE_SET_BASE - entry) & is_set
    cdef int32_t start = plan.nexthop_start[number]
    cdef int32_t count = plan.nexthop_start[number + 1] - start
    cdef int32_t drawn = plan.nexthop_port[start + <int32_t>((<uint64_t>mix32(hash ^ seed) * <uint64_t>count) >> 32)]
    return (drawn & is_set) | (plan.host_access_port[dst] & is_local) | (entry & ~(is_set | is_local))


cdef inline const int32_t* ecmp_row(const plan_t* plan, int32_t node) noexcept nogil:
    """The routes of a node that has some, by destination group."""
    return &plan.route[<int64_t>plan.node_route_row[node] * plan.group_count]


cdef inline int32_t ecmp_port(const plan_t* plan, int32_t node, uint32_t group, uint32_t dst,
                              uint32_t hash) noexcept nogil:
    """Port id, or NONE where there is no route."""
    cdef int32_t start
    if plan.node_route_row[node] < 0:
        # A host with one port, or none.
        start = plan.node_port_start[node]
        return start if plan.node_port_start[node + 1] > start else NONE
    return ecmp_choose(plan, ecmp_row(plan, node), plan.node_seed[node], group, dst, hash)
