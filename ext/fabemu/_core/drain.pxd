"""The order in which rows of pauses leave.

Owns      pauses_leave.
Invariant rows leave when they are final, in the order of their end and of what else tells them apart, however they
          came.
Order     rows come window by window and within one device by device, so each goes a few places ahead at most; where
          that does not hold, as in rows of several threads put together, they are sorted from scratch.
"""
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy
from .types cimport int64_t, ps_t
from .state cimport record_buffer_t
from .trace cimport pause_row_t

cdef enum:
    MOVES = 16  # places that a row may go ahead, on the average, before all are sorted from scratch


cdef inline int pauses_compare(const pause_row_t* a, const pause_row_t* b) noexcept nogil:
    """Order of two rows in one buffer: none are equal."""
    if a.emit_ps != b.emit_ps:
        return -1 if a.emit_ps < b.emit_ps else 1
    if a.node != b.node:
        return -1 if a.node < b.node else 1
    if a.port != b.port:
        return -1 if a.port < b.port else 1
    if a.klass != b.klass:
        return -1 if a.klass < b.klass else 1
    if a.xoff_ps != b.xoff_ps:
        return -1 if a.xoff_ps < b.xoff_ps else 1
    if a.start_ps != b.start_ps:
        return -1 if a.start_ps < b.start_ps else 1
    return (a > b) - (a < b)


cdef inline int pauses_compare_at(const void* one, const void* other) noexcept nogil:
    """The same, given pointers to pointers."""
    return pauses_compare((<const pause_row_t* const*>one)[0], (<const pause_row_t* const*>other)[0])


cdef inline void pauses_sort(const pause_row_t** row, int64_t count) noexcept nogil:
    """Put pointers to rows in their order."""
    cdef int64_t index, place
    cdef int64_t moves = MOVES * count
    cdef const pause_row_t* one
    for index in range(1, count):
        one = row[index]
        place = index
        while place > 0 and pauses_compare(row[place - 1], one) > 0:
            row[place] = row[place - 1]
            place -= 1
        row[place] = one
        moves -= index - place
        if moves < 0:
            qsort(row, <size_t>count, sizeof(void*), pauses_compare_at)
            return


cdef inline bint pauses_leave(record_buffer_t* buffer, pause_row_t* to, ps_t end_ps, int64_t* left) noexcept nogil:
    """Copy all rows in their order; false if there is no memory.

    Those that are final at `end_ps` come first, `left` of them; the others stay in the buffer too.
    """
    cdef const pause_row_t* rows = <const pause_row_t*>buffer.data
    cdef int64_t count = buffer.count, index
    cdef const pause_row_t** row = <const pause_row_t**>malloc(<size_t>(count + 1) * sizeof(void*))
    if row == NULL:
        return False
    for index in range(count):
        row[index] = rows + index
    pauses_sort(row, count)
    for index in range(count):
        to[index] = row[index][0]
    free(row)
    while count > 0 and to[count - 1].emit_ps >= end_ps:
        count -= 1
    left[0] = count
    buffer.count -= count
    if buffer.count > 0:
        memcpy(buffer.data, to + count, buffer.count * buffer.size)
    return True
