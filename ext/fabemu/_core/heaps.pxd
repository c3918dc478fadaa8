"""Binary heaps: event keys of the device being stepped, timed entries, QPs that wait for their send time.

Owns      the key layout: time within the window (40 bits), event class (4), variant (4), local port (16).
Invariant keys of one device are unique up to stale ones, which their handlers recognise.
Order     time, class, port. Where MODEL 5 asks for the keyed order of ports, the window room takes all keys of one
          instant and
          class out together and sorts them.
"""
from .types cimport (int32_t, int64_t, uint64_t, ps_t, unlikely, FAULT_MEMORY)
from .memory cimport array_grow
from .state cimport engine_t, worker_t, timed_t, timed_heap_t, ready_t, ready_heap_t

cdef enum:
    KEY_TIME_SHIFT = 24
    KEY_CLASS_SHIFT = 20
    KEY_VARIANT_SHIFT = 16
    KEY_PORT_MASK = 0xffff


cdef inline uint64_t event_key(ps_t offset_ps, uint64_t event_class, uint64_t variant, uint64_t port) noexcept nogil:
    return ((<uint64_t>offset_ps << KEY_TIME_SHIFT) | (event_class << KEY_CLASS_SHIFT)
            | (variant << KEY_VARIANT_SHIFT) | port)


cdef inline void events_sift_down(worker_t* w, int32_t index, uint64_t key) noexcept nogil:
    cdef uint64_t* heap = w.heap
    cdef int32_t count = w.heap_count
    cdef int32_t child
    while True:
        child = 2 * index + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[index] = heap[child]
        index = child
    heap[index] = key


cdef inline void events_push(engine_t* e, worker_t* w, uint64_t key) noexcept nogil:
    cdef int32_t index = w.heap_count
    cdef int32_t parent
    if unlikely(index == w.heap_capacity):
        if not array_grow(w.arena, <void**>&w.heap, index, 2 * <int64_t>w.heap_capacity, sizeof(uint64_t)):
            e.fault.code = FAULT_MEMORY
            return
        w.heap_capacity *= 2
    w.heap_count = index + 1
    while index > 0:
        parent = (index - 1) >> 1
        if key >= w.heap[parent]:
            break
        w.heap[index] = w.heap[parent]
        index = parent
    w.heap[index] = key


cdef inline void events_pop(worker_t* w) noexcept nogil:
    w.heap_count -= 1
    if w.heap_count > 0:
        events_sift_down(w, 0, w.heap[w.heap_count])


cdef inline bint timed_less(const timed_t* a, const timed_t* b) noexcept nogil:
    return a.time_ps < b.time_ps or (a.time_ps == b.time_ps and a.id < b.id)


cdef inline void timed_push(engine_t* e, worker_t* w, timed_heap_t* heap, ps_t time_ps, int32_t id,
                            int32_t node) noexcept nogil:
    cdef timed_t entry
    cdef int64_t index = heap.count
    cdef int64_t parent, capacity
    if unlikely(index == heap.capacity):
        capacity = 2 * heap.capacity if heap.capacity > 0 else 8
        if not array_grow(w.arena, <void**>&heap.entries, index, capacity, sizeof(timed_t)):
            e.fault.code = FAULT_MEMORY
            return
        heap.capacity = capacity
    entry.time_ps = time_ps
    entry.id = id
    entry.node = node
    heap.count += 1
    while index > 0:
        parent = (index - 1) >> 1
        if not timed_less(&entry, &heap.entries[parent]):
            break
        heap.entries[index] = heap.entries[parent]
        index = parent
    heap.entries[index] = entry


cdef inline void timed_pop(timed_heap_t* heap) noexcept nogil:
    cdef int64_t index = 0
    cdef int64_t child
    cdef timed_t entry
    heap.count -= 1
    if heap.count == 0:
        return
    entry = heap.entries[heap.count]
    while True:
        child = 2 * index + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and timed_less(&heap.entries[child + 1], &heap.entries[child]):
            child += 1
        if not timed_less(&heap.entries[child], &entry):
            break
        heap.entries[index] = heap.entries[child]
        index = child
    heap.entries[index] = entry


cdef inline bint ready_less(const ready_t* a, const ready_t* b) noexcept nogil:
    return a.ready_ps < b.ready_ps or (a.ready_ps == b.ready_ps and a.qp < b.qp)


cdef inline void ready_sift_down_from(ready_heap_t* heap, int32_t index, ready_t entry) noexcept nogil:
    """Put `entry` at a free place, or below it."""
    cdef int32_t child
    while True:
        child = 2 * index + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and ready_less(&heap.entries[child + 1], &heap.entries[child]):
            child += 1
        if not ready_less(&heap.entries[child], &entry):
            break
        heap.entries[index] = heap.entries[child]
        index = child
    heap.entries[index] = entry


cdef inline void ready_sift_down(ready_heap_t* heap, ready_t entry) noexcept nogil:
    """Put `entry` where the top was."""
    ready_sift_down_from(heap, 0, entry)


cdef inline void ready_pop(ready_heap_t* heap) noexcept nogil:
    heap.count -= 1
    if heap.count > 0:
        ready_sift_down(heap, heap.entries[heap.count])


cdef inline void ready_remove(ready_heap_t* heap, int32_t qp) noexcept nogil:
    """Take the entry of one QP out, wherever it is; the last one takes its place."""
    cdef int32_t index = 0
    cdef int32_t parent
    cdef ready_t entry
    while index < heap.count and heap.entries[index].qp != qp:
        index += 1
    if unlikely(index == heap.count):
        return
    heap.count -= 1
    if index == heap.count:
        return
    entry = heap.entries[heap.count]
    while index > 0:
        parent = (index - 1) >> 1
        if not ready_less(&entry, &heap.entries[parent]):
            break
        heap.entries[index] = heap.entries[parent]
        index = parent
    ready_sift_down_from(heap, index, entry)


cdef inline void ready_init(ready_heap_t* heap) noexcept nogil:
    """An empty heap, with room for one entry where it lies: from then on it must not move."""
    heap.entries = &heap.own
    heap.count = 0
    heap.capacity = 1


cdef inline bint ready_grow(worker_t* w, ready_heap_t* heap) noexcept nogil:
    """Move the entries of a full heap to where more have room; False if there is no memory."""
    cdef int32_t capacity = 4 if heap.capacity == 1 else 2 * heap.capacity
    # The entry that lies in the heap itself is copied; its place is no block to be given back.
    cdef int32_t moved = 0 if heap.capacity == 1 else heap.count
    if unlikely(not array_grow(w.arena, <void**>&heap.entries, moved, capacity, sizeof(ready_t))):
        return False
    if moved == 0:
        heap.entries[0] = heap.own
    heap.capacity = capacity
    return True


cdef inline int64_t ready_bytes(const ready_heap_t* heap) noexcept nogil:
    """What a heap takes besides itself."""
    return 0 if heap.capacity == 1 else heap.capacity * <int64_t>sizeof(ready_t)


cdef inline void ready_push(engine_t* e, worker_t* w, ready_heap_t* heap, ps_t ready_ps, int32_t qp,
                            int32_t slot) noexcept nogil:
    cdef ready_t entry
    cdef int32_t index = heap.count
    cdef int32_t parent
    if unlikely(index == heap.capacity) and not ready_grow(w, heap):
        e.fault.code = FAULT_MEMORY
        return
    entry.ready_ps = ready_ps
    entry.qp = qp
    entry.slot = slot
    heap.count += 1
    while index > 0:
        parent = (index - 1) >> 1
        if not ready_less(&entry, &heap.entries[parent]):
            break
        heap.entries[index] = heap.entries[parent]
        index = parent
    heap.entries[index] = entry
