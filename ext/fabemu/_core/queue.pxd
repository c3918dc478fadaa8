"""Egress queues: frames by value, in blocks that a worker's queues share.

Owns      the blocks of a worker; queue_append, queue_remove, queue_after; first and end of queue_t.
Invariant a queue that is empty holds no block, so memory follows what waits; the block that was given back last is
          taken first, since it is still in the cache.
Order     first in, first out.

A block lies on a multiple of its size, which tells where it ends. In place of its last packet it points to the block
that follows: next to the packet that was written, or read, just before. A spare one points on from its first cache
line, which is the one that will be written first.
"""
from .types cimport int32_t, int64_t, prefetch, unlikely
from .memory cimport arena_carve
from .packet cimport packet_t
from .state cimport queue_t, worker_t

cdef enum:
    BLOCK_BYTES = 256             # seven packets, and room for one more
    BLOCK_PLACES = 8
    SLAB_FIRST = 8                # blocks that are made at once
    SLAB_MOST = 256


cdef inline packet_t** block_next(const packet_t* place) noexcept nogil:
    """A pointer that lies in place of a packet."""
    return <packet_t**>place


cdef inline packet_t* block_of(const packet_t* place) noexcept nogil:
    """The block that a place is in."""
    return <packet_t*>(<size_t>place & ~<size_t>(BLOCK_BYTES - 1))


cdef inline packet_t* block_take(worker_t* w) noexcept nogil:
    """A block with undefined contents; NULL if there is no memory."""
    cdef packet_t* block = <packet_t*>w.spare_blocks
    cdef size_t address
    if block != NULL:
        w.spare_blocks = block_next(block)[0]
        return block_of(block)
    if unlikely(w.fresh_count == 0):
        w.slab_blocks = SLAB_FIRST if w.slab_blocks == 0 else 2 * w.slab_blocks
        if w.slab_blocks > SLAB_MOST:
            w.slab_blocks = SLAB_MOST
        address = <size_t>arena_carve(w.arena, (<size_t>w.slab_blocks + 1) * BLOCK_BYTES)
        if unlikely(address == 0):
            return NULL
        w.fresh_blocks = <char*>((address + BLOCK_BYTES - 1) & ~<size_t>(BLOCK_BYTES - 1))
        w.fresh_count = w.slab_blocks
        w.block_bytes += (<int64_t>w.slab_blocks + 1) * BLOCK_BYTES
    block = <packet_t*>w.fresh_blocks
    w.fresh_blocks += BLOCK_BYTES
    w.fresh_count -= 1
    return block


cdef inline void block_give(worker_t* w, const packet_t* last) noexcept nogil:
    """Give back the block of a packet, which stays as it is until the block is taken."""
    cdef packet_t* place = block_of(last)
    place += place == last
    block_next(place)[0] = <packet_t*>w.spare_blocks
    w.spare_blocks = place


cdef inline bint block_ends(const packet_t* place) noexcept nogil:
    """Whether the places of a block, or none, end before this one."""
    # NULL is the only one of these that begins a block: they are behind a packet.
    return (<size_t>place + sizeof(packet_t)) & (BLOCK_BYTES - 1) <= sizeof(packet_t)


cdef inline packet_t* queue_append(worker_t* w, queue_t* queue) noexcept nogil:
    """The place for one more frame, which the caller fills; NULL if there is no memory."""
    cdef packet_t* place = queue.end
    cdef packet_t* block
    if unlikely(block_ends(place)):
        block = block_take(w)
        if unlikely(block == NULL):
            return NULL
        if queue.first == NULL:
            queue.first = block
        else:
            block_next(place)[0] = block
        place = block
    queue.end = place + 1
    return place


cdef inline void queue_remove(worker_t* w, queue_t* queue) noexcept nogil:
    """Take the first frame off, which stays readable in its place until another is queued."""
    cdef packet_t* place = queue.first + 1
    if place == queue.end:
        block_give(w, queue.first)
        queue.end = NULL
        place = NULL
    elif unlikely(block_ends(place)):
        place = block_next(place)[0]
        block_give(w, queue.first)
    queue.first = place


cdef inline void queue_foresee(const queue_t* queue) noexcept nogil:
    """Have those frames fetched that leave some time after the first, which is there, for they may have waited long.

    From the fourth place of a block on it is known, having been fetched, where the block that follows is.
    """
    cdef const packet_t* first = queue.first
    cdef size_t ahead = <size_t>(first + 4)
    cdef const void* following = &ahead
    # Nothing branches on the place; the pointer may be one that a block before has left, which does no harm.
    cdef size_t is_late = -<size_t>((<size_t>first & (BLOCK_BYTES - 1)) >= 3 * sizeof(packet_t))
    cdef size_t last = <size_t>(block_of(first) + BLOCK_PLACES - 1)
    following = <const void*>(<size_t>following ^ ((<size_t>following ^ last) & is_late))
    prefetch(first + 2)
    prefetch((<const void* const*>following)[0])
    prefetch(<const char*>(<const void* const*>following)[0] + 64)


cdef inline const packet_t* queue_after(const queue_t* queue, const packet_t* packet) noexcept nogil:
    """The frame behind another one; NULL behind the last."""
    packet += 1
    if packet == queue.end:
        return NULL
    if block_ends(packet):
        return block_next(packet)[0]
    return packet
