"""Choices inside an equal-cost set beyond the flow hash (MODEL 8, load balancing).

Owns      the policy of every switch, and balance_route: the port by which a packet leaves a switch.
Invariant a choice is a function of the packet, of its instant of arrival and, by policies that look at it, of the
          switch at that instant; never of the order in which devices are visited.
Source    spraying: Dixit et al., On the Impact of Packet Spraying in Data Center Networks, INFOCOM 2013; weights: WCMP,
          Zhou et al., EuroSys 2014.
"""
from .types cimport (int32_t, int64_t, uint32_t, uint64_t, likely, BALANCE_ECMP, BALANCE_SPRAY, BALANCE_WEIGHTED,
                     KIND_DATA, NONE, PSN_MASK)
from .rng cimport fold64, mix32
from .packet cimport packet_t
from .plan cimport plan_t
from .state cimport engine_t
from .ecmp cimport ROUTE_LOCAL, ROUTE_SET_BASE, ecmp_choose, ecmp_row


cdef inline int32_t balance_draw(uint32_t seed, const packet_t* packet, int32_t count) noexcept nogil:
    """A number below `count`, drawn anew for every packet and arrival."""
    cdef uint64_t draw = fold64(fold64(fold64(0, packet.hash ^ seed), packet.psn & PSN_MASK), <uint64_t>packet.time_ps)
    return <int32_t>(((draw >> 32) * <uint64_t>count) >> 32)


cdef inline int32_t balance_weigh(const plan_t* plan, int32_t start, int32_t count, uint32_t hash) noexcept nogil:
    """Place in the list of next hops: members of a set by their weights and a hash."""
    cdef uint64_t total = 0
    cdef uint64_t drawn
    cdef int32_t place
    for place in range(start, start + count):
        total += plan.nexthop_weight[place]
    drawn = (hash * total) >> 32
    place = start
    while drawn >= plan.nexthop_weight[place]:
        drawn -= plan.nexthop_weight[place]
        place += 1
    return place


cdef inline int32_t balance_stateless(const plan_t* plan, const int32_t* row, uint32_t seed, int32_t policy,
                                      const packet_t* packet) noexcept nogil:
    """Port id by a policy that knows nothing of the switch, or NONE where there is no route."""
    cdef int32_t entry = row[packet.group]
    cdef int32_t start, count
    if entry > ROUTE_SET_BASE or (policy == BALANCE_SPRAY and packet.kind != KIND_DATA):
        return ecmp_choose(plan, row, seed, packet.group, packet.dst, packet.hash)
    entry = ROUTE_SET_BASE - entry
    start = plan.nexthop_start[entry]
    count = plan.nexthop_start[entry + 1] - start
    if policy == BALANCE_SPRAY:
        return plan.nexthop_port[start + balance_draw(seed, packet, count)]
    return plan.nexthop_port[balance_weigh(plan, start, count, mix32(packet.hash ^ seed))]


cdef inline int32_t balance_route(const engine_t* e, int32_t node, const packet_t* packet) noexcept nogil:
    """Port id by which a packet that has arrived at a switch leaves it, or NONE where there is no route."""
    cdef int32_t policy = e.switches[node - e.plan.host_count].balance
    if likely(policy == BALANCE_ECMP):
        return ecmp_choose(&e.plan, ecmp_row(&e.plan, node), e.plan.node_seed[node], packet.group, packet.dst,
                           packet.hash)
    return balance_stateless(&e.plan, ecmp_row(&e.plan, node), e.plan.node_seed[node], policy, packet)
