"""The inbox: the arrivals of one visit, sorted once instead of kept in a heap.

Owns      inbox_add, inbox_fetch, inbox_merge, inbox_sort.
Invariant every arrival before the limit is known when a visit begins, so nothing is added later.
Order     by whole key: time, class, port.
"""
from libc.string cimport memcpy, memset
from .types cimport (int32_t, int64_t, uint32_t, uint64_t, ps_t, unlikely, EVENT_ARRIVAL, EVENT_PFC, FAULT_MEMORY)
from .heaps cimport KEY_TIME_SHIFT, event_key
from .memory cimport array_grow
from .packet cimport packet_is_of_link, packet_t
from .state cimport engine_t, port_t, worker_t

cdef extern from *:
    """
    #define FABEMU_INBOX_END (~(uint64_t)0)
    """
    const uint64_t INBOX_END "FABEMU_INBOX_END"    # no key

cdef enum:
    INBOX_BUCKETS = 1024
    INBOX_SMALL = 12


cdef inline bint inbox_room(engine_t* e, worker_t* w, int64_t count) noexcept nogil:
    """Make room for that many keys in all; False, and a fault, if there is no memory."""
    cdef int64_t capacity = w.inbox_capacity
    while capacity < count:
        if not (array_grow(w.arena, <void**>&w.inbox, capacity, 2 * capacity, sizeof(uint64_t))
                and array_grow(w.arena, <void**>&w.inbox_spare, capacity, 2 * capacity, sizeof(uint64_t))):
            e.fault.code = FAULT_MEMORY
            return False
        capacity *= 2
        w.inbox_capacity = capacity
    return True


cdef inline void inbox_add(engine_t* e, worker_t* w, uint64_t key) noexcept nogil:
    if unlikely(w.inbox_count == w.inbox_capacity):
        if not inbox_room(e, w, w.inbox_count + 1):
            return
    w.inbox[w.inbox_count] = key
    w.inbox_count += 1


cdef inline void inbox_fetch(engine_t* e, worker_t* w, const port_t* port) noexcept nogil:
    """Add the arrivals at a port before the limit."""
    cdef const packet_t* ring = port.ring
    cdef const packet_t* packet
    cdef uint32_t mask = port.mask
    cdef uint32_t position = port.head
    cdef uint32_t tail = port.tail
    cdef uint64_t local = <uint64_t>port.local
    cdef ps_t start_ps = w.window_start_ps
    cdef ps_t limit_ps = w.limit_ps
    cdef int64_t count = w.inbox_count
    cdef uint64_t* keys
    if unlikely(count + (tail - position) > w.inbox_capacity):
        if not inbox_room(e, w, count + (tail - position)):
            return
    keys = w.inbox
    while position != tail:
        packet = &ring[position & mask]
        if packet.time_ps >= limit_ps:
            break
        keys[count] = event_key(packet.time_ps - start_ps, EVENT_PFC if packet_is_of_link(packet) else EVENT_ARRIVAL,
                                0, local)
        position += 1
        count += 1
    w.inbox_count = count


cdef inline void inbox_spread(worker_t* w, int64_t count) noexcept nogil:
    """One stable pass that leaves every key near its place: by the leading bits of its time within the visit."""
    cdef uint64_t span = <uint64_t>(w.limit_ps - w.window_start_ps)
    cdef uint64_t buckets = 16
    cdef uint64_t bucket
    cdef uint32_t shift = KEY_TIME_SHIFT
    cdef uint32_t place, size
    cdef int64_t index
    cdef uint64_t* swapped
    while buckets < INBOX_BUCKETS and <int64_t>buckets < count:
        buckets *= 2
    while span >> (shift - KEY_TIME_SHIFT) >= buckets:
        shift += 1
    memset(w.buckets, 0, buckets * sizeof(uint32_t))
    for index in range(count):
        w.buckets[w.inbox[index] >> shift] += 1
    place = 0
    for bucket in range(buckets):
        size = w.buckets[bucket]
        w.buckets[bucket] = place
        place += size
    for index in range(count):
        bucket = w.inbox[index] >> shift
        w.inbox_spare[w.buckets[bucket]] = w.inbox[index]
        w.buckets[bucket] += 1
    swapped = w.inbox
    w.inbox = w.inbox_spare
    w.inbox_spare = swapped


cdef inline uint64_t* inbox_join(const uint64_t* first, const uint64_t* second, int64_t count,
                                 uint64_t* place) noexcept nogil:
    """Merge two runs of `count` keys in all, each with INBOX_END behind it, into one; the place behind its end."""
    cdef const uint64_t* last = place + count
    cdef uint64_t a, b, later
    while place != last:
        a = first[0]
        b = second[0]
        # Which is smaller cannot be guessed, so nothing branches on it.
        later = b < a
        place[0] = a ^ ((a ^ b) & -later)
        first += 1 - later
        second += later
        place += 1
    place[0] = INBOX_END
    return place + 1


cdef inline void inbox_merge(worker_t* w, int32_t runs) noexcept nogil:
    """Bring keys into order that lie in runs, each in order, with INBOX_END behind it where w.run_end says."""
    cdef int32_t* ends = w.run_end
    cdef const uint64_t* keys
    cdef uint64_t* place
    cdef uint64_t* swapped
    cdef int32_t run, merged, begin, middle
    while runs > 1:
        merged = 0
        run = 0
        begin = 0
        keys = w.inbox
        place = w.inbox_spare
        while run + 1 < runs:
            middle = ends[run] + 1
            place = inbox_join(&keys[begin], &keys[middle], ends[run] - begin + ends[run + 1] - middle, place)
            begin = ends[run + 1] + 1
            ends[merged] = <int32_t>(place - w.inbox_spare) - 1
            merged += 1
            run += 2
        if run < runs:
            memcpy(place, &keys[begin], (ends[run] + 1 - begin) * sizeof(uint64_t))
            ends[merged] = <int32_t>(place - w.inbox_spare) + ends[run] - begin
            merged += 1
        runs = merged
        swapped = w.inbox
        w.inbox = w.inbox_spare
        w.inbox_spare = swapped
    w.inbox_count = ends[0] if runs > 0 else 0


cdef inline void inbox_sort(worker_t* w) noexcept nogil:
    cdef int64_t count = w.inbox_count
    cdef int64_t index, position
    cdef uint64_t key
    cdef uint64_t* keys
    if count > INBOX_SMALL:
        # Keys of one link are sorted already, and so are all keys of a host with one.
        index = 1
        while index < count and w.inbox[index - 1] < w.inbox[index]:
            index += 1
        if index == count:
            return
        inbox_spread(w, count)
    keys = w.inbox
    for index in range(1, count):
        key = keys[index]
        position = index
        while position > 0 and keys[position - 1] > key:
            keys[position] = keys[position - 1]
            position -= 1
        keys[position] = key
