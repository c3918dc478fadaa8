"""Rings of packets: where their memory comes from, and how they grow.

Owns      arena_t; packets_grow.
Invariant a ring has a power of two of places; its memory belongs to the arena, which is given back as a whole. Rings
          that were outgrown are kept by size and handed out again.

All rings lie close together in large pages: a fabric of a thousand hosts touches tens of thousands of them in turn,
more than the translation buffers of a core hold in small pages.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy
from posix.stdlib cimport posix_memalign
from .types cimport int32_t, uint32_t, unlikely
from .packet cimport packet_t
from .memory cimport LARGE_PAGE, want_large_pages

cdef enum:
    RING_FIRST = 8                # places of a ring that was empty so far
    CHUNK_HEADER = 64             # link to the chunk before; rings start on a cache line

cdef struct arena_t:
    char* fresh                   # of the newest chunk: not handed out yet
    size_t left
    void* chunks                  # the newest; each begins with a pointer to the one before
    void* spare[32]               # by log2 of places; each begins with a pointer to the next


cdef inline int32_t ring_order(uint32_t places) noexcept nogil:
    cdef int32_t order = 0
    while (<uint32_t>1 << order) < places:
        order += 1
    return order


cdef inline packet_t* ring_take(arena_t* arena, uint32_t places) noexcept nogil:
    """Memory of a ring; NULL if there is none."""
    cdef int32_t order = ring_order(places)
    cdef size_t length = places * sizeof(packet_t)
    cdef size_t chunk = LARGE_PAGE
    cdef void* memory = arena.spare[order]
    if memory != NULL:
        arena.spare[order] = (<void**>memory)[0]
        return <packet_t*>memory
    if arena.left < length:
        # What is left of the chunk before is lost: less than the ring that did not fit.
        if length + CHUNK_HEADER > chunk:
            chunk = (length + CHUNK_HEADER + LARGE_PAGE - 1) // LARGE_PAGE * LARGE_PAGE
        if posix_memalign(&memory, LARGE_PAGE, chunk) != 0:
            return NULL
        want_large_pages(memory, chunk)
        (<void**>memory)[0] = arena.chunks
        arena.chunks = memory
        arena.fresh = <char*>memory + CHUNK_HEADER
        arena.left = chunk - CHUNK_HEADER
    memory = arena.fresh
    arena.fresh += length
    arena.left -= length
    return <packet_t*>memory


cdef inline bint packets_grow(arena_t* arena, packet_t** buffer, uint32_t* mask, uint32_t head) noexcept nogil:
    """Double a full ring whose oldest packet is at `head`; False if there is no memory."""
    cdef uint32_t capacity = mask[0] + 1
    cdef uint32_t grown = 2 * capacity if capacity > 0 else RING_FIRST
    cdef uint32_t index, position
    cdef int32_t order
    cdef packet_t* larger = ring_take(arena, grown)
    if unlikely(larger == NULL):
        return False
    for index in range(capacity):
        position = head + index
        memcpy(&larger[position & (grown - 1)], &buffer[0][position & mask[0]], sizeof(packet_t))
    if capacity > 0:
        order = ring_order(capacity)
        (<void**>buffer[0])[0] = arena.spare[order]
        arena.spare[order] = buffer[0]
    buffer[0] = larger
    mask[0] = grown - 1
    return True


cdef inline void arena_free(arena_t* arena) noexcept nogil:
    """Give back the memory of every ring."""
    cdef void* chunk = arena.chunks
    cdef void* before
    while chunk != NULL:
        before = (<void**>chunk)[0]
        free(chunk)
        chunk = before
