"""Choices inside an equal-cost set beyond the flow hash (MODEL 8, load balancing).

Owns      the policy of every switch and what it remembers of flows; balance_route and balance_by_state: the port by
          which a packet leaves a switch.
Invariant a choice is a function of the packet, of its instant of arrival and, by policies that look at it, of the
          switch at that instant; never of the order in which devices are visited. By load, a port that is down is
          chosen only if all are.
Source    spraying: Dixit et al., On the Impact of Packet Spraying in Data Center Networks, INFOCOM 2013; weights: WCMP,
          Zhou et al., EuroSys 2014; flowlets: Sinha, Kandula, Katabi, HotNets 2004, with the table of CONGA, Alizadeh
          et al., SIGCOMM 2014; load of the own ports: DRILL, Ghorbani et al., SIGCOMM 2017.
"""
from libc.string cimport memset
from .types cimport (int32_t, int64_t, uint16_t, uint32_t, uint64_t, ps_t, likely, unlikely, BALANCE_ECMP,
                     BALANCE_FLOWLET, BALANCE_LEAST_LOADED, BALANCE_LEAST_LOADED_FLOW, BALANCE_SPRAY,
                     BALANCE_WEIGHTED, FAULT_MEMORY, FOREVER, KIND_DATA, NONE, PSN_MASK)
from .memory cimport arena_give, arena_take
from .rng cimport fold64, mix32
from .packet cimport packet_is_of_link, packet_t
from .plan cimport plan_t
from .state cimport engine_t, flowlet_t, port_t, switch_t, worker_t
from .ecmp cimport ROUTE_SET_BASE, ecmp_choose, ecmp_row

cdef extern from *:
    """
    /* What waits may be more than 64 bits hold of it times 8e12. */
    static inline int64_t fabemu_drain_ps(int64_t bytes, int64_t rate_bps)
    {
        return (int64_t)((unsigned __int128)bytes * 8000000000000u / (unsigned __int128)rate_bps);
    }
    """
    ps_t drain_ps "fabemu_drain_ps"(int64_t size_bytes, int64_t rate_bps) noexcept nogil

cdef enum:
    NOWHERE = 0xffff              # no route, where a local port is noted
    FLOWS_FIRST = 64              # places for flows at first, a power of two


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
    if entry > ROUTE_SET_BASE or (policy != BALANCE_WEIGHTED and packet.kind != KIND_DATA):
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


cdef inline void balance_note(const engine_t* e, const worker_t* w, int32_t node) noexcept nogil:
    """Note in each arrival of this visit where it leaves by a policy without state: a local port, or NOWHERE.

    It is a pass of its own so that loops over arrivals at other switches do not carry it along.
    """
    cdef const int32_t* row = ecmp_row(&e.plan, node)
    cdef uint32_t seed = e.plan.node_seed[node]
    cdef int32_t policy = e.switches[node - e.plan.host_count].balance
    cdef int32_t index, chosen
    cdef uint32_t position
    cdef const port_t* port
    cdef packet_t* packet
    for index in range(w.due_count):
        port = &e.ports[w.due[index]]
        position = port.head
        while position != port.tail:
            packet = &port.ring[position & port.mask]
            if packet.time_ps >= w.limit_ps:
                break
            position += 1
            if packet_is_of_link(packet):
                continue
            chosen = balance_stateless(&e.plan, row, seed, policy, packet)
            packet.ingress = <uint16_t>(chosen - e.plan.node_port_start[node] if chosen >= 0 else NOWHERE)


cdef inline ps_t balance_load(const engine_t* e, int32_t port_id, ps_t now) noexcept nogil:
    """How long a port would take to send what it has: the rest of the frame on the wire, and all that waits."""
    cdef const port_t* port = &e.ports[port_id]
    cdef int64_t size = 0
    cdef int32_t klass
    for klass in range(e.plan.class_count):
        size += e.queues[<int64_t>port_id * e.plan.class_count + klass].bytes
    return drain_ps(size, port.rate_bps) + (port.busy_until_ps - now if port.busy_until_ps > now else 0)


cdef inline bint balance_is_up(const engine_t* e, int32_t port_id) noexcept nogil:
    return e.down == NULL or not e.down[port_id]


cdef inline int32_t balance_least(const engine_t* e, uint32_t seed, const int32_t* members, int32_t count,
                                  const packet_t* packet, ps_t now) noexcept nogil:
    """The port with the least load of those that are up, or of all if none is; among equals, drawn."""
    cdef ps_t least_ps = FOREVER
    cdef ps_t load_ps
    cdef int32_t equals = 0
    cdef int32_t index, drawn
    cdef bint any_up = False
    for index in range(count):
        any_up |= balance_is_up(e, members[index])
    for index in range(count):
        if any_up and not balance_is_up(e, members[index]):
            continue
        load_ps = balance_load(e, members[index], now)
        if load_ps < least_ps:
            least_ps = load_ps
            equals = 0
        equals += load_ps == least_ps
    drawn = balance_draw(seed, packet, equals)
    for index in range(count):
        if any_up and not balance_is_up(e, members[index]):
            continue
        if balance_load(e, members[index], now) == least_ps:
            if drawn == 0:
                return members[index]
            drawn -= 1
    return NONE


cdef inline bint balance_serves(const engine_t* e, const int32_t* members, int32_t count, int32_t port) noexcept nogil:
    """Whether a port that was chosen before is up, and leads to where this packet goes."""
    cdef int32_t index
    for index in range(count):
        if members[index] == port:
            return balance_is_up(e, port)
    return False


cdef inline flowlet_t* flowlets_make(engine_t* e, worker_t* w, int32_t count) noexcept nogil:
    """Empty places; NULL after a fault."""
    cdef flowlet_t* places = <flowlet_t*>arena_take(w.arena, <size_t>count * sizeof(flowlet_t))
    cdef int32_t index
    if unlikely(places == NULL):
        e.fault.code = FAULT_MEMORY
        return NULL
    memset(places, 0, <size_t>count * sizeof(flowlet_t))
    for index in range(count):
        places[index].port = NONE
    return places


cdef inline flowlet_t* flow_find(flowlet_t* places, int32_t count, uint32_t qp) noexcept nogil:
    """The place of a flow, or the free one where it would be; some place is free."""
    cdef uint32_t index = mix32(qp)
    while True:
        index &= <uint32_t>count - 1
        if places[index].port == NONE or places[index].qp == qp:
            return &places[index]
        index += 1


cdef inline flowlet_t* flow_place(engine_t* e, worker_t* w, switch_t* mmu, uint32_t qp) noexcept nogil:
    """Where a switch remembers a flow; NULL after a fault."""
    cdef int32_t count, index
    cdef flowlet_t* places
    cdef flowlet_t* found
    if 2 * mmu.flow_count >= mmu.flowlet_count:
        count = 2 * mmu.flowlet_count if mmu.flowlet_count > 0 else FLOWS_FIRST
        places = flowlets_make(e, w, count)
        if unlikely(places == NULL):
            return NULL
        for index in range(mmu.flowlet_count):
            if mmu.flowlets[index].port != NONE:
                flow_find(places, count, mmu.flowlets[index].qp)[0] = mmu.flowlets[index]
        if mmu.flowlets != NULL:
            arena_give(w.arena, mmu.flowlets, <size_t>mmu.flowlet_count * sizeof(flowlet_t))
        mmu.flowlets = places
        mmu.flowlet_count = count
    found = flow_find(mmu.flowlets, mmu.flowlet_count, qp)
    if found.port == NONE:
        found.qp = qp
        mmu.flow_count += 1
    return found


cdef inline int32_t balance_by_state(engine_t* e, worker_t* w, int32_t node, switch_t* mmu, const packet_t* packet,
                                     ps_t now) noexcept nogil:
    """Port id, or NONE, by a policy that looks at the switch as it is when the packet arrives."""
    cdef const int32_t* members
    cdef flowlet_t* place
    cdef uint32_t seed = e.plan.node_seed[node]
    cdef int32_t entry = ecmp_row(&e.plan, node)[packet.group]
    cdef int32_t count, chosen
    # A corrupt frame is none of these.
    if entry > ROUTE_SET_BASE or packet.kind != KIND_DATA:
        return ecmp_choose(&e.plan, ecmp_row(&e.plan, node), seed, packet.group, packet.dst, packet.hash)
    entry = ROUTE_SET_BASE - entry
    members = &e.plan.nexthop_port[e.plan.nexthop_start[entry]]
    count = e.plan.nexthop_start[entry + 1] - e.plan.nexthop_start[entry]
    if mmu.balance == BALANCE_LEAST_LOADED:
        return balance_least(e, seed, members, count, packet, now)
    if mmu.balance == BALANCE_LEAST_LOADED_FLOW:
        place = flow_place(e, w, mmu, packet.qp)
        if unlikely(place == NULL):
            return NONE
    else:
        if mmu.flowlets == NULL:
            mmu.flowlets = flowlets_make(e, w, mmu.flowlet_count)
            if unlikely(mmu.flowlets == NULL):
                return NONE
        place = &mmu.flowlets[(<uint64_t>mix32(packet.hash ^ seed) * <uint64_t>mmu.flowlet_count) >> 32]
    chosen = place.port
    if (chosen == NONE or (mmu.balance == BALANCE_FLOWLET and now - place.last_ps > mmu.flowlet_gap_ps)
            or not balance_serves(e, members, count, chosen)):
        chosen = balance_least(e, seed, members, count, packet, now)
    place.port = chosen
    place.last_ps = now
    return chosen
