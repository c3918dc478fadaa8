"""The order in which rows of ports and pauses leave.

Owns      ports_leave and pauses_leave.
Invariant the order is that of a stable sort by (emit_ps, node), of pauses by what else tells them apart too, however
          the rows came.
Order     rows of ports come interval by interval, in each as the ports were touched: one interval is sorted at a time.
"""
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcpy, memset
from .types cimport int32_t, int64_t, uint32_t, ps_t
from .state cimport record_buffer_t
from .trace cimport pause_row_t, port_row_t

cdef enum:
    FEW = 32  # rows that are sorted by insertion


cdef inline void ports_sort_few(const port_row_t* rows, int32_t* order, int64_t count) noexcept nogil:
    """Sort indices of rows by port, stably, one by one."""
    cdef int64_t index, position
    cdef int32_t row
    for index in range(1, count):
        row = order[index]
        position = index
        while position > 0 and rows[order[position - 1]].port > rows[row].port:
            order[position] = order[position - 1]
            position -= 1
        order[position] = row


cdef inline void ports_sort_pass(const port_row_t* rows, const int32_t* of, int32_t* to, int64_t count,
                                 uint32_t shift) noexcept nogil:
    """Sort indices of rows by eight bits of the port, stably."""
    cdef int64_t[256] place
    cdef int64_t index, next_place = 0, here
    cdef uint32_t digit
    memset(place, 0, sizeof(place))
    for index in range(count):
        place[(<uint32_t>rows[of[index]].port >> shift) & 255] += 1
    for digit in range(256):
        here = place[digit]
        place[digit] = next_place
        next_place += here
    for index in range(count):
        digit = (<uint32_t>rows[of[index]].port >> shift) & 255
        to[place[digit]] = of[index]
        place[digit] += 1


cdef inline void ports_sort(const port_row_t* rows, int32_t* order, int32_t* spare, int64_t count) noexcept nogil:
    """Sort indices of rows of one instant by port, stably."""
    cdef int64_t index
    cdef int32_t most = 0
    cdef uint32_t shift = 0
    cdef bint is_sorted = True
    for index in range(count):
        if rows[order[index]].port < most:
            is_sorted = False
        else:
            most = rows[order[index]].port
    if is_sorted:
        return
    if count <= FEW:
        ports_sort_few(rows, order, count)
        return
    while (<uint32_t>most >> shift) > 0:
        ports_sort_pass(rows, order, spare, count, shift)
        memcpy(order, spare, count * sizeof(int32_t))
        shift += 8
        if shift == 32:
            break


cdef inline int ports_compare(const void* one, const void* other) noexcept nogil:
    """Order of two rows of ports in one buffer, given pointers to them: none are equal."""
    cdef const port_row_t* a = (<const port_row_t* const*>one)[0]
    cdef const port_row_t* b = (<const port_row_t* const*>other)[0]
    if a.emit_ps != b.emit_ps:
        return -1 if a.emit_ps < b.emit_ps else 1
    if a.port != b.port:
        return -1 if a.port < b.port else 1
    return (a > b) - (a < b)


cdef inline int pauses_compare(const void* one, const void* other) noexcept nogil:
    """Order of two rows of pauses in one buffer, given pointers to them: none are equal."""
    cdef const pause_row_t* a = (<const pause_row_t* const*>one)[0]
    cdef const pause_row_t* b = (<const pause_row_t* const*>other)[0]
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


cdef inline bint rows_leave(record_buffer_t* buffer, char* to,
                            int (*compare)(const void*, const void*) noexcept nogil) noexcept nogil:
    """Copy all rows in the order of `compare`; false if there is no memory."""
    cdef int64_t index
    cdef const char** row = <const char**>malloc(<size_t>(buffer.count + 1) * sizeof(char*))
    if row == NULL:
        return False
    for index in range(buffer.count):
        row[index] = buffer.data + index * buffer.size
    qsort(row, <size_t>buffer.count, sizeof(char*), compare)
    for index in range(buffer.count):
        memcpy(to + index * buffer.size, row[index], buffer.size)
    free(row)
    return True


cdef inline bint ports_leave(record_buffer_t* buffer, port_row_t* to) noexcept nogil:
    """Copy all rows of ports in their order and empty the buffer; false, and it is full, if there is no memory."""
    cdef const port_row_t* rows = <const port_row_t*>buffer.data
    cdef int64_t index, first = 0, count = buffer.count
    cdef int32_t* order
    for index in range(1, count):
        if rows[index].emit_ps < rows[index - 1].emit_ps:
            if not rows_leave(buffer, <char*>to, ports_compare):
                return False
            buffer.count = 0
            return True
    order = <int32_t*>malloc(<size_t>(2 * count + 1) * sizeof(int32_t))
    if order == NULL:
        return False
    for index in range(count):
        order[index] = <int32_t>index
    for index in range(1, count + 1):
        if index == count or rows[index].emit_ps != rows[first].emit_ps:
            ports_sort(rows, order + first, order + count, index - first)
            first = index
    for index in range(count):
        to[index] = rows[order[index]]
    free(order)
    buffer.count = 0
    return True


cdef inline bint pauses_leave(record_buffer_t* buffer, pause_row_t* to, ps_t end_ps, int64_t* left) noexcept nogil:
    """Copy all rows of pauses in their order; false if there is no memory.

    Those that are final at `end_ps` come first, `left` of them; the others stay in the buffer too.
    """
    cdef int64_t low = 0, high = buffer.count, middle
    if not rows_leave(buffer, <char*>to, pauses_compare):
        return False
    while low < high:
        middle = (low + high) // 2
        if to[middle].emit_ps < end_ps:
            low = middle + 1
        else:
            high = middle
    left[0] = low
    buffer.count -= low
    if buffer.count > 0:
        memcpy(buffer.data, to + low, buffer.count * buffer.size)
    return True
