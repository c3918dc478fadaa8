"""The workers of an engine: which devices each steps, and what they come to together.

Owns      node_worker, the making of workers, the sharing out of devices, sums over workers.
Invariant while no window is stepped, all counters and records are with the first worker and no packet is in the mail.
          Results do not depend on who steps what: a device sees only its own packets, in an order of its own.
"""
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign
from .types cimport (int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, ps_t, ctz64, DROP_CAUSES, FAULT_MEMORY,
                     FOREVER, NONE)
from .memory cimport CACHE_LINE, arena_free, zeroed
from .state cimport (bound_t, engine_t, express_t, letter_t, mailbox_t, port_t, post_t, record_buffer_t, timed_heap_t,
                     timed_t, worker_t)
from .heaps cimport timed_push
from .inbox cimport INBOX_BUCKETS
from .mail cimport mail_settle
from .port_columns cimport port_row_t
from .trace cimport drop_row_t, event_row_t, flow_row_t, packet_row_t, pause_row_t
from .wake cimport DUE_FEW, WHEEL_SLOTS, wake_flag, worker_of


cdef inline int64_t workers_hops(const engine_t* e) noexcept nogil:
    cdef int64_t total = 0
    cdef int32_t index
    for index in range(e.crew_size):
        total += e.workers[index].packet_hops
    return total


cdef inline ps_t workers_last_hop_ps(const engine_t* e) noexcept nogil:
    """When a packet was last put on a link."""
    cdef ps_t last_ps = 0
    cdef int32_t index
    for index in range(e.crew_size):
        if e.workers[index].last_hop_ps > last_ps:
            last_ps = e.workers[index].last_hop_ps
    return last_ps


cdef inline void records_move(engine_t* e, record_buffer_t* to, record_buffer_t* source) noexcept nogil:
    """Put the rows of one buffer behind those of another."""
    cdef char* grown
    if source.count == 0:
        return
    if to.count + source.count > to.capacity:
        grown = <char*>realloc(to.data, <size_t>(2 * (to.count + source.count) * to.size))
        if grown == NULL:
            e.fault.code = FAULT_MEMORY
            return
        to.data = grown
        to.capacity = 2 * (to.count + source.count)
    memcpy(to.data + to.count * to.size, source.data, <size_t>(source.count * source.size))
    to.count += source.count
    source.count = 0


cdef inline void worker_fold(engine_t* e, worker_t* w) noexcept nogil:
    """Give all that a worker has counted and recorded to the first."""
    cdef worker_t* first = e.worker
    cdef int32_t cause
    first.packet_hops += w.packet_hops
    first.events += w.events
    first.pfc_sent += w.pfc_sent
    first.pfc_received += w.pfc_received
    first.credit_frames += w.credit_frames
    first.sent += w.sent
    first.sent_bytes += w.sent_bytes
    first.delivered += w.delivered
    first.delivered_bytes += w.delivered_bytes
    first.dropped += w.dropped
    first.dropped_bytes += w.dropped_bytes
    first.marks += w.marks
    first.xoffs += w.xoffs
    first.row_digest += w.row_digest
    first.link_sent += w.link_sent
    first.link_received += w.link_received
    first.data_sent += w.data_sent
    first.retransmissions += w.retransmissions
    first.cnps += w.cnps
    first.requests += w.requests
    first.requests_queued += w.requests_queued
    first.control_sent += w.control_sent
    first.finished_ops += w.finished_ops
    first.started_ops += w.started_ops
    w.packet_hops = w.events = w.pfc_sent = w.pfc_received = w.credit_frames = 0
    w.sent = w.sent_bytes = w.delivered = w.delivered_bytes = w.dropped = w.dropped_bytes = 0
    w.marks = w.xoffs = w.link_sent = w.link_received = w.data_sent = w.retransmissions = 0
    w.cnps = w.requests = w.requests_queued = w.control_sent = w.finished_ops = w.started_ops = 0
    w.row_digest = 0
    for cause in range(DROP_CAUSES):
        first.drops[cause] += w.drops[cause]
        w.drops[cause] = 0
    if w.last_event_ps > first.last_event_ps:
        first.last_event_ps = w.last_event_ps
    if w.last_hop_ps > first.last_hop_ps:
        first.last_hop_ps = w.last_hop_ps
    records_move(e, &first.flows, &w.flows)
    records_move(e, &first.ports, &w.ports)
    records_move(e, &first.pauses, &w.pauses)
    records_move(e, &first.drop_rows, &w.drop_rows)
    records_move(e, &first.packets, &w.packets)
    records_move(e, &first.event_rows, &w.event_rows)


cdef inline void workers_settle(engine_t* e) noexcept nogil:
    """Between two windows: every packet to its port, everything counted and recorded to the first worker."""
    cdef int32_t index
    if e.crew_size == 1:
        return
    mail_settle(e)
    for index in range(1, e.crew_size):
        worker_fold(e, e.workers[index])


cdef inline int worker_init(engine_t* e, worker_t* w, int32_t index, int32_t ports_max) except -1:
    """What a worker needs to step devices of at most `ports_max` ports."""
    w.index = index
    w.arena = &e.arena if index == 0 else &w.own_arena
    w.wheel_words = (e.plan.node_count + 63) // 64
    w.wheel_tops = (w.wheel_words + 63) // 64
    w.wheel = <uint64_t*>zeroed(w.arena, WHEEL_SLOTS * w.wheel_words, sizeof(uint64_t))
    w.wheel_top = <uint64_t*>zeroed(w.arena, WHEEL_SLOTS * w.wheel_tops, sizeof(uint64_t))
    w.seed = e.plan.seed
    w.never.time_ps = FOREVER
    w.inbox_capacity = 256
    w.inbox = <uint64_t*>zeroed(w.arena, 256, sizeof(uint64_t))
    w.inbox_spare = <uint64_t*>zeroed(w.arena, 256, sizeof(uint64_t))
    w.buckets = <uint32_t*>zeroed(w.arena, INBOX_BUCKETS, sizeof(uint32_t))
    w.touched = <uint64_t*>zeroed(w.arena, (e.plan.port_count + 63) // 64, sizeof(uint64_t))
    w.touched_tops = <uint64_t*>zeroed(w.arena, (e.plan.port_count + 4095) // 4096, sizeof(uint64_t))
    w.heap_capacity = 256
    w.heap = <uint64_t*>zeroed(w.arena, 256, sizeof(uint64_t))
    w.arrivals = <int32_t*>zeroed(w.arena, ports_max, sizeof(int32_t))
    w.due = <int32_t*>zeroed(w.arena, ports_max + DUE_FEW, sizeof(int32_t))
    w.run_end = <int32_t*>zeroed(w.arena, ports_max, sizeof(int32_t))
    w.due_bytes = <int64_t*>zeroed(w.arena, ports_max, sizeof(int64_t))
    w.due_classes = <uint32_t*>zeroed(w.arena, ports_max, sizeof(uint32_t))
    w.due_end = <uint32_t*>zeroed(w.arena, ports_max, sizeof(uint32_t))
    w.express_capacity = 256
    w.express = <express_t*>zeroed(w.arena, 256, sizeof(express_t))
    w.bound = <bound_t*>zeroed(w.arena, ports_max * e.plan.class_count, sizeof(bound_t))
    w.bound_classes = <uint8_t*>zeroed(w.arena, ports_max, 1)
    w.egress = <int32_t*>zeroed(w.arena, ports_max, sizeof(int32_t))
    # Choices can be asked for again within an instant.
    w.choice_capacity = 4 * ports_max + 64
    w.choices = <int32_t*>zeroed(w.arena, w.choice_capacity, sizeof(int32_t))
    w.ties = <uint64_t*>zeroed(w.arena, w.choice_capacity, sizeof(uint64_t))
    w.flows.size = sizeof(flow_row_t)
    w.ports.size = sizeof(port_row_t)
    w.pauses.size = sizeof(pause_row_t)
    w.drop_rows.size = sizeof(drop_row_t)
    w.packets.size = sizeof(packet_row_t)
    w.event_rows.size = sizeof(event_row_t)
    return 0


cdef inline void worker_free(engine_t* e, worker_t* w) noexcept nogil:
    """Give back what does not lie in the engine's arena."""
    cdef int32_t index
    free(w.flows.data)
    free(w.ports.data)
    free(w.pauses.data)
    free(w.drop_rows.data)
    free(w.packets.data)
    free(w.event_rows.data)
    free(w.noted)
    for index in range(2 * e.worker_count if w.posts != NULL else 0):
        free(w.posts[index].letters)
    free(w.posts)
    if w.index > 0:
        arena_free(&w.own_arena)
        free(w)


cdef inline int workers_make(engine_t* e, int32_t count, int32_t ports_max) except -1:
    """Room for workers; the first has all devices."""
    cdef int32_t index
    cdef worker_t* w
    e.workers = <worker_t**>zeroed(&e.arena, count, sizeof(worker_t*))
    e.node_worker = <uint16_t*>zeroed(&e.arena, e.plan.node_count, sizeof(uint16_t))
    e.crew_size = 1
    for index in range(count):
        w = NULL
        if index == 0:
            w = <worker_t*>zeroed(&e.arena, 1, sizeof(worker_t))
        elif posix_memalign(<void**>&w, CACHE_LINE, (sizeof(worker_t) + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE):
            raise MemoryError("no memory for another thread")
        memset(w, 0, sizeof(worker_t))
        e.workers[index] = w
        e.worker_count = index + 1
        worker_init(e, w, index, ports_max)
    e.worker = e.workers[0]
    if count > 1:
        e.mailboxes = <mailbox_t*>zeroed(&e.arena, 0, sizeof(mailbox_t), e.plan.port_count)
        for index in range(count):
            e.workers[index].posts = <post_t*>calloc(2 * <size_t>count, sizeof(post_t))
            if e.workers[index].posts == NULL:
                raise MemoryError("no memory for another thread")
    return 0


cdef inline size_t workers_carved_bytes(const engine_t* e) noexcept nogil:
    """What the arenas have handed out."""
    cdef size_t total = 0
    cdef int32_t index
    for index in range(e.worker_count):
        total += e.workers[index].arena.carved_bytes
    return total


cdef inline int far_share(engine_t* e) except -1:
    """Give every wake-up of a heap of far ones to who steps the device now."""
    cdef int64_t count = 0, kept = 0, entry
    cdef int32_t index
    cdef timed_t* all
    cdef timed_heap_t* heap
    for index in range(e.worker_count):
        count += e.workers[index].far.count
    all = <timed_t*>malloc(<size_t>(count + 1) * sizeof(timed_t))
    if all == NULL:
        raise MemoryError("no memory to share devices among threads")
    for index in range(e.worker_count):
        heap = &e.workers[index].far
        for entry in range(heap.count):
            if e.node_far_ps[heap.entries[entry].node] == heap.entries[entry].time_ps:
                all[kept] = heap.entries[entry]
                kept += 1
        heap.count = 0
    for entry in range(kept):
        heap = &worker_of(e, all[entry].node).far
        timed_push(e, worker_of(e, all[entry].node), heap, all[entry].time_ps, all[entry].id, all[entry].node)
    free(all)
    return 0


cdef inline void wheel_share(engine_t* e) noexcept nogil:
    """Give every flag of a wheel to who steps the device now."""
    cdef int32_t index, node
    cdef int64_t slot, word
    cdef uint64_t bits
    cdef worker_t* w
    for index in range(e.worker_count):
        w = e.workers[index]
        for slot in range(WHEEL_SLOTS if w.wheel_slots else 0):
            if not (w.wheel_slots >> slot) & 1:
                continue
            for word in range(w.wheel_words):
                bits = w.wheel[slot * w.wheel_words + word]
                while bits:
                    node = <int32_t>(64 * word + ctz64(bits))
                    bits &= bits - 1
                    if e.node_worker[node] != index:
                        w.wheel[slot * w.wheel_words + word] &= ~(<uint64_t>1 << (node & 63))
                        wake_flag(worker_of(e, node), node,
                                  e.window_index + ((slot - e.window_index) & (WHEEL_SLOTS - 1)))


cdef inline int mail_share(engine_t* e) except -1:
    """A mailbox for every port whose link leads to another worker's device."""
    cdef int32_t port_id, peer, sender, to
    cdef int32_t box = 0
    cdef int64_t noted
    cdef port_t* port
    cdef post_t* post
    cdef worker_t* w
    for port_id in range(e.plan.port_count):
        port = &e.ports[port_id]
        port.peer = e.plan.port_peer[port_id]
        port.peer_node = e.plan.port_node[port.peer]
    for sender in range(e.crew_size if e.crew_size > 1 else 0):
        w = e.workers[sender]
        noted = 0
        for to in range(2 * e.worker_count):
            w.posts[to].capacity = 0
        for port_id in range(e.plan.port_count):
            port = &e.ports[port_id]
            peer = e.plan.port_peer[port_id]
            to = e.node_worker[e.plan.port_node[peer]]
            if e.node_worker[port.node] != sender or to == sender:
                continue
            noted += 1
            w.posts[to].capacity += 1
            w.posts[e.worker_count + to].capacity += 1
            port.peer = e.plan.port_count + box
            port.peer_node = NONE
            if box == e.mailbox_count:
                memset(&e.ports[port.peer], 0, sizeof(port_t))
                e.ports[port.peer].mask = <uint32_t>0xffffffff
                memset(&e.mailboxes[box], 0, sizeof(mailbox_t))
                e.mailbox_count += 1
            e.mailboxes[box].to = to
            e.mailboxes[box].posted = 0
            e.ports[port.peer].peer = peer
            e.ports[port.peer].head = 0
            e.ports[port.peer].tail = 0
            e.port_next_ps[port.peer] = FOREVER
            box += 1
        w.noted = <int32_t*>realloc(w.noted, <size_t>(noted + 1) * sizeof(int32_t))
        if w.noted == NULL:
            raise MemoryError("no memory to share devices among threads")
        for to in range(2 * e.worker_count):
            post = &w.posts[to]
            post.letters = <letter_t*>realloc(post.letters, <size_t>(post.capacity + 1) * sizeof(letter_t))
            if post.letters == NULL:
                raise MemoryError("no memory to share devices among threads")
    return 0


cdef inline int workers_share(engine_t* e, const int32_t* owners, int32_t count) except -1:
    """From now on `owners[node]` steps a device; the engine is settled."""
    cdef int32_t node
    for node in range(e.plan.node_count):
        e.node_worker[node] = <uint16_t>owners[node]
    e.crew_size = count
    far_share(e)
    wheel_share(e)
    mail_share(e)
    return 0
