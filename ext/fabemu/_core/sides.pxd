"""The two sides of a fabric: devices of one are linked to devices of the other alone, so each side runs ahead by turns.

Owns      node_side, side_mask, side_ps, meet_ps.
Invariant what a side sends arrives a step later or more. So when one has run to the end of step j, the other may run to
          the end of step j + 1: a window is two steps long, and those of the two sides overlap by one. A fabric that
          does not come apart in two is one side, and its windows are one step long.
Order     sides only differ while windows are stepped: what concerns the whole fabric (the end of an interval, actions,
          checks for deadlocks, the judgement of a stall, the end of a call) finds both at one instant.
"""
from libc.stdlib cimport free, malloc
from .types cimport int32_t, uint8_t, ps_t, FOREVER
from .plan cimport plan_t
from .state cimport engine_t
from .wake cimport step_of

cdef enum:
    SIDE_UNKNOWN = 255


cdef inline bint sides_colour(const plan_t* plan, uint8_t* side, int32_t* stack, int32_t start) noexcept nogil:
    """Give every device that is linked to `start`, over whatever others, its side; False if there are no two."""
    cdef int32_t count = 1
    cdef int32_t node, port, other
    side[start] = 0
    stack[0] = start
    while count > 0:
        count -= 1
        node = stack[count]
        for port in range(plan.node_port_start[node], plan.node_port_start[node + 1]):
            other = plan.port_node[plan.port_peer[port]]
            if side[other] == side[node]:
                return False
            if side[other] == SIDE_UNKNOWN:
                side[other] = side[node] ^ 1
                stack[count] = other
                count += 1
    return True


cdef inline int sides_find(engine_t* e, bint hosts_are_near) except -1:
    """Tell the sides of all devices. Raises MemoryError.

    `hosts_are_near`: those of a scale-up domain reach each other in a step or more, but within two.
    """
    cdef int32_t node
    cdef int32_t* stack = <int32_t*>malloc((e.plan.node_count + 1) * sizeof(int32_t))
    if stack == NULL:
        raise MemoryError("no memory for the sides of the fabric")
    for node in range(e.plan.node_count):
        e.node_side[node] = SIDE_UNKNOWN
    e.side_mask = 1
    e.hosts_are_near = hosts_are_near
    # Hosts come first: so each is of side 0, unless it is linked to others by an odd number of switches more or fewer.
    for node in range(e.plan.node_count):
        if e.side_mask and e.node_side[node] == SIDE_UNKNOWN and not sides_colour(
                &e.plan, e.node_side, stack, node):
            e.side_mask = 0
        if hosts_are_near and node < e.plan.host_count and e.plan.host_domain[node] >= 0 and e.node_side[node] != 0:
            e.side_mask = 0
    free(stack)
    e.meet_ps = FOREVER
    return 0


cdef inline ps_t sides_limit(const engine_t* e) noexcept nogil:
    """Up to where the devices of the present window may run."""
    cdef ps_t middle_ps = e.window_end_ps - e.step_ps
    if e.hosts_are_near and e.side_mask and (e.window_index & 1) == 0 and e.side_ps[0] < middle_ps:
        return middle_ps
    return e.window_end_ps


cdef inline bint sides_are_level(const engine_t* e) noexcept nogil:
    """Whether both sides have run to the same instant."""
    return not e.side_mask or e.side_ps[0] == e.side_ps[1]


cdef inline void sides_level(engine_t* e) noexcept nogil:
    """Have the side that is behind run to where the other is, and no farther."""
    e.meet_ps = e.side_ps[0] if e.side_ps[0] > e.side_ps[1] else e.side_ps[1]


cdef inline void sides_skip(engine_t* e) noexcept nogil:
    """Nothing was to run before e.now_ps."""
    cdef int32_t side
    for side in range(2):
        if e.side_ps[side] < e.now_ps:
            e.side_ps[side] = e.now_ps


cdef inline void sides_advance(engine_t* e) noexcept nogil:
    """The devices of a side have run to e.limit_ps: see how far all have come, and which window is next.

    A side whose window was cut short is where something concerns the whole fabric: the other goes there too.
    """
    cdef int32_t side = <int32_t>e.window_index & e.side_mask
    cdef bint was_cut = e.limit_ps < sides_limit(e)
    cdef ps_t other_ps
    e.side_ps[side] = e.limit_ps
    other_ps = e.side_ps[side ^ e.side_mask]
    e.now_ps = other_ps if other_ps < e.limit_ps else e.limit_ps
    if other_ps == e.limit_ps:
        e.meet_ps = FOREVER
        e.window_index = step_of(e, e.limit_ps)
        return
    if was_cut and e.meet_ps == FOREVER:
        e.meet_ps = e.limit_ps
    if was_cut or e.limit_ps == e.window_end_ps:
        e.window_index += 1
