"""Memory for the life of an engine, and the arrays of its plan.

Owns      zeroed, times, pointer.
Invariant what they give is zero (or the given time) and starts on a cache line; `engine` frees it.
"""
from posix.stdlib cimport posix_memalign
from libc.string cimport memset
from .types cimport ps_t


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


cdef inline void* zeroed(size_t count, size_t size) except NULL:
    """Zeroed memory for the life of the engine; at least one element."""
    cdef void* memory = NULL
    cdef size_t length = (count * size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    if length == 0:
        length = CACHE_LINE
    # Ports and queues are whole cache lines; large arrays are better off in large pages.
    if posix_memalign(&memory, CACHE_LINE if length < LARGE_PAGE else LARGE_PAGE, length) == 0:
        want_large_pages(memory, length)
        memset(memory, 0, length)
    if memory == NULL:
        raise MemoryError(f"the engine needs {count * size} more bytes than this machine gives")
    return memory


cdef inline ps_t* times(size_t count, ps_t value) except NULL:
    cdef ps_t* memory = <ps_t*>zeroed(count, sizeof(ps_t))
    cdef size_t index
    for index in range(count):
        memory[index] = value
    return memory


cdef inline const void* pointer(array) except? NULL:
    """Data of a contiguous array; it is kept alive by the engine's plan."""
    cdef size_t address = array.ctypes.data
    return <const void*>address
