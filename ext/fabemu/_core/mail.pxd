"""Mail between workers: packets for a device that another thread steps.

Owns      mailboxes and letters.
Invariant the ring, head and tail of a port belong to the worker of its device alone. A link between the devices of two
          workers leads into a mailbox instead, a port of the sender's that stands for the receiving one; what goes in
          during a window arrives in a later one, so the receiver fetches it when the window is over. Letters of one
          window are read during the next, in which the sender writes others: nothing is written and read at once. What
          a letter speaks of stays where it is until the window after that.
"""
from libc.string cimport memcpy
from .types cimport int32_t, int64_t, uint32_t, ps_t, unlikely, FAULT_MEMORY, FOREVER
from .memory cimport arena_give, arena_take
from .packet cimport packet_t, packets_grow
from .state cimport engine_t, letter_t, mailbox_t, port_t, post_t, worker_t
from .wake cimport wake_at, window_for


cdef inline void mail_note(worker_t* w, int32_t box_id) noexcept nogil:
    """The first packet of this window goes into a mailbox."""
    w.noted[w.noted_count] = box_id
    w.noted_count += 1


cdef inline bint mail_grow(engine_t* e, worker_t* w, int32_t box_id) noexcept nogil:
    """Double the ring of a mailbox, and keep the one before for letters that speak of it; False without memory."""
    cdef port_t* port = &e.ports[box_id]
    cdef mailbox_t* box = &e.mailboxes[box_id - e.plan.port_count]
    cdef packet_t* outgrown = port.ring
    cdef uint32_t places = port.mask + 1
    cdef uint32_t index, position
    cdef packet_t* ring
    if places == 0:
        return packets_grow(w.arena, &port.ring, &port.mask, port.head)
    ring = <packet_t*>arena_take(w.arena, 2 * <size_t>places * sizeof(packet_t))
    if unlikely(ring == NULL):
        return False
    for index in range(places):
        position = port.head + index
        memcpy(&ring[position & (2 * places - 1)], &outgrown[position & port.mask], sizeof(packet_t))
    port.ring = ring
    port.mask = 2 * places - 1
    if box.outgrown != NULL and box.outgrown_turn == e.turn:
        # It grew in this window before: no letter has spoken of what it grew to.
        arena_give(w.arena, outgrown, places * sizeof(packet_t))
        return True
    if box.outgrown != NULL:
        arena_give(w.arena, box.outgrown, box.outgrown_places * sizeof(packet_t))
    box.outgrown = outgrown
    box.outgrown_places = places
    box.outgrown_turn = e.turn
    return True


cdef inline post_t* mail_post_of(const engine_t* e, worker_t* w, uint32_t turn, int32_t to) noexcept nogil:
    return &w.posts[(turn & 1) * e.worker_count + to]


cdef inline void mail_clear(engine_t* e, worker_t* w, uint32_t turn) noexcept nogil:
    """The letters that this worker wrote in a window have been read: their packets' places are free again."""
    cdef post_t* post
    cdef const letter_t* letter
    cdef int32_t to, index
    for to in range(e.crew_size):
        post = mail_post_of(e, w, turn, to)
        for index in range(post.count):
            letter = &post.letters[index]
            e.ports[letter.box].head = letter.end
        post.count = 0


cdef inline void mail_write(engine_t* e, worker_t* w) noexcept nogil:
    """Write the letters of this window."""
    cdef int32_t index, box_id
    cdef port_t* port
    cdef mailbox_t* box
    cdef post_t* post
    cdef letter_t* letter
    cdef int64_t window_index
    for index in range(w.noted_count):
        box_id = w.noted[index]
        port = &e.ports[box_id]
        box = &e.mailboxes[box_id - e.plan.port_count]
        post = mail_post_of(e, w, e.turn, box.to)
        letter = &post.letters[post.count]
        post.count += 1
        letter.ring = port.ring
        letter.mask = port.mask
        letter.first = box.posted
        letter.end = port.tail
        letter.box = box_id
        box.posted = port.tail
        window_index = window_for(e, e.plan.port_node[port.peer], e.port_next_ps[box_id])
        if window_index < w.next_index:
            w.next_index = window_index
        e.port_next_ps[box_id] = FOREVER
    w.noted_count = 0


cdef inline void mail_deliver(engine_t* e, worker_t* w, const letter_t* letter) noexcept nogil:
    """Put the packets of a letter into the ring of the port that they are for."""
    cdef int32_t port_id = e.ports[letter.box].peer
    cdef port_t* port = &e.ports[port_id]
    cdef uint32_t position = letter.first
    cdef ps_t arrival_ps = letter.ring[position & letter.mask].time_ps
    while position != letter.end:
        if unlikely(port.tail - port.head == port.mask + 1):
            if not packets_grow(w.arena, &port.ring, &port.mask, port.head):
                e.fault.code = FAULT_MEMORY
                return
        memcpy(&port.ring[port.tail & port.mask], &letter.ring[position & letter.mask], sizeof(packet_t))
        port.tail += 1
        position += 1
    if arrival_ps < e.port_next_ps[port_id]:
        e.port_next_ps[port_id] = arrival_ps
        wake_at(e, w, port.node, arrival_ps)


cdef inline void mail_read(engine_t* e, worker_t* w, uint32_t turn) noexcept nogil:
    """Read what the others have written to this worker in a window."""
    cdef int32_t sender, index
    cdef const post_t* post
    for sender in range(e.crew_size):
        post = mail_post_of(e, e.workers[sender], turn, w.index)
        for index in range(post.count):
            mail_deliver(e, w, &post.letters[index])


cdef inline void mail_settle(engine_t* e) noexcept nogil:
    """Between two windows, nothing else running: have every letter read, so that all packets are at their ports."""
    cdef int32_t index
    for index in range(e.crew_size):
        mail_read(e, e.workers[index], e.turn)
    for index in range(e.crew_size):
        # Those of the window before have been read in the last one.
        mail_clear(e, e.workers[index], e.turn - 1)
        mail_clear(e, e.workers[index], e.turn)
