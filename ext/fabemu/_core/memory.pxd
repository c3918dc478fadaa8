"""Memory of an engine: the arena that all its state lies in, and the arrays of its plan.

Owns      arena_t; zeroed, times and what they take; the growth of arrays and rings; pointer.
Invariant what grows lies in blocks that are powers of two of cache lines; one that was outgrown is kept by size and
          handed out again. All of it goes back together when the engine ends.

Everything lies close together in large pages: a fabric of a thousand hosts touches tens of thousands of rings and
heaps in turn, far more than the translation buffers of a core hold in small pages.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign
from .types cimport int32_t, int64_t, uint32_t, ps_t, unlikely


cdef extern from *:
    """
    #include <sys/mman.h>
    static inline void fabemu_want_large_pages(void* memory, size_t length)
    {
    #ifdef MADV_HUGEPAGE
        if (length >= 2097152) (void)madvise(memory, length, MADV_HUGEPAGE);
    #endif
    }
    """
    void want_large_pages "fabemu_want_large_pages"(void* memory, size_t length) noexcept nogil


cdef enum:
    CACHE_LINE = 64
    LARGE_PAGE = 2097152
    CHUNK_FIRST = 65536           # a small fabric needs no large page
    BLOCK_ORDERS = 48

cdef struct arena_t:
    char* fresh                   # of the newest chunk: not handed out yet
    size_t left
    size_t chunk_bytes            # usual size of the newest chunk
    void* chunks                  # the newest; each begins with a pointer to the one before
    void* spare[BLOCK_ORDERS]     # by log2 of bytes; each block begins with a pointer to the next
    size_t carved_bytes           # handed out so far, whole cache lines


cdef inline void* arena_carve(arena_t* arena, size_t length) noexcept nogil:
    """So many bytes on a cache line, contents undefined; NULL if there is no memory."""
    cdef size_t chunk
    cdef void* memory = NULL
    length = (length + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    if arena.left < length:
        # What is left of the chunk before is lost.
        arena.chunk_bytes = CHUNK_FIRST if arena.chunk_bytes == 0 else 2 * arena.chunk_bytes
        if arena.chunk_bytes > LARGE_PAGE:
            arena.chunk_bytes = LARGE_PAGE
        chunk = arena.chunk_bytes
        if chunk < length + CACHE_LINE:
            chunk = length + CACHE_LINE
            if chunk > LARGE_PAGE:
                chunk = (chunk + LARGE_PAGE - 1) // LARGE_PAGE * LARGE_PAGE
        if posix_memalign(&memory, CACHE_LINE if chunk < LARGE_PAGE else LARGE_PAGE, chunk) != 0:
            return NULL
        want_large_pages(memory, chunk)
        (<void**>memory)[0] = arena.chunks
        arena.chunks = memory
        arena.fresh = <char*>memory + CACHE_LINE
        arena.left = chunk - CACHE_LINE
    memory = arena.fresh
    arena.fresh += length
    arena.left -= length
    arena.carved_bytes += length
    return memory


cdef inline int32_t block_order(size_t length) noexcept nogil:
    """log2 of the bytes of the block that holds `length`."""
    cdef int32_t order = 6
    while (<size_t>1 << order) < length:
        order += 1
    return order


cdef inline void* arena_take(arena_t* arena, size_t length) noexcept nogil:
    """A block, contents undefined, that can be given back; NULL if there is no memory."""
    cdef int32_t order = block_order(length)
    cdef void* memory = arena.spare[order]
    if memory == NULL:
        return arena_carve(arena, <size_t>1 << order)
    arena.spare[order] = (<void**>memory)[0]
    return memory


cdef inline void arena_give(arena_t* arena, void* memory, size_t length) noexcept nogil:
    """Take back a block that was taken for `length` bytes."""
    cdef int32_t order = block_order(length)
    (<void**>memory)[0] = arena.spare[order]
    arena.spare[order] = memory


cdef inline bint array_grow(arena_t* arena, void** array, int64_t count, int64_t capacity, size_t size) noexcept nogil:
    """Move a full array of `count` elements to where `capacity` have room; False if there is no memory."""
    cdef void* larger = arena_take(arena, <size_t>capacity * size)
    if unlikely(larger == NULL):
        return False
    if count > 0:
        memcpy(larger, array[0], <size_t>count * size)
        arena_give(arena, array[0], <size_t>count * size)
    array[0] = larger
    return True


cdef inline bint ring_grow(arena_t* arena, void** ring, uint32_t* mask, uint32_t head, uint32_t first,
                           size_t size) noexcept nogil:
    """Double a full ring whose oldest element is at `head` (`first` places at first); False if there is no memory.

    `mask` is one less than the places, a power of two; all ones before the first growth.
    """
    cdef uint32_t capacity = mask[0] + 1
    cdef uint32_t grown = 2 * capacity if capacity > 0 else first
    cdef uint32_t index, position
    cdef char* larger = <char*>arena_take(arena, grown * size)
    if unlikely(larger == NULL):
        return False
    for index in range(capacity):
        position = head + index
        memcpy(larger + (position & (grown - 1)) * size, <char*>ring[0] + (position & mask[0]) * size, size)
    if capacity > 0:
        arena_give(arena, ring[0], capacity * size)
    ring[0] = larger
    mask[0] = grown - 1
    return True


cdef inline void arena_free(arena_t* arena) noexcept nogil:
    """Give every block back to the system."""
    cdef void* chunk = arena.chunks
    cdef void* before
    while chunk != NULL:
        before = (<void**>chunk)[0]
        free(chunk)
        chunk = before


cdef inline int64_t zeroed_bytes(int64_t count, size_t size) noexcept nogil:
    """What `zeroed` and `times` take for so many elements."""
    cdef int64_t length = count * <int64_t>size if count > 0 else <int64_t>size
    return (length + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


cdef inline void* zeroed(arena_t* arena, size_t count, size_t size, size_t spare=0) except NULL:
    """Zeroed memory for the life of the engine; at least one cache line.

    Behind it room for `spare` elements more, which take no memory until they are written.
    """
    cdef size_t length = count * size if count > 0 else size
    cdef void* memory = arena_carve(arena, length + spare * size)
    if memory == NULL:
        raise MemoryError(f"the engine needs {count * size} more bytes than this machine gives")
    memset(memory, 0, length)
    return memory


cdef inline ps_t* times(arena_t* arena, size_t count, ps_t value, size_t spare=0) except NULL:
    cdef ps_t* memory = <ps_t*>zeroed(arena, count, sizeof(ps_t), spare)
    cdef size_t index
    for index in range(count):
        memory[index] = value
    return memory


cdef inline const void* pointer(array) except? NULL:
    """Data of a contiguous array; it is kept alive by the engine's plan."""
    cdef size_t address = array.ctypes.data
    return <const void*>address
