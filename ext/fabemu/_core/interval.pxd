"""The closing of sampling intervals.

Owns      close_interval, close_intervals_before, intervals_end; the rows of ports.
Invariant rows leave interval by interval, in each by port and class, whoever touched the ports and in whatever order;
          rows that are all zero are left out.
Order     closed when everything before its end has happened, by one thread, while the others wait.
"""
from .types cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, ctz, ctz64, likely, prefetch_write
from .state cimport engine_t, worker_t, queue_t
from .stats cimport port_note, stats_area, stats_headroom_held, stats_paused
from .port_columns cimport port_columns_set, port_row_t
from .trace cimport record_room

cdef enum:
    AHEAD = 2                     # ports whose statistics are fetched while those of another are written


cdef inline int64_t interval_ports(engine_t* e) noexcept nogil:
    """List the ports that any worker has touched, in their order, and forget who has; the number of them."""
    cdef int64_t words = (e.plan.port_count + 63) // 64
    cdef int64_t count = 0
    cdef int64_t top, word
    cdef int32_t index
    cdef uint64_t filled, bits
    for top in range((words + 63) // 64):
        filled = 0
        for index in range(e.worker_count):
            filled |= e.workers[index].touched_tops[top]
            e.workers[index].touched_tops[top] = 0
        while filled:
            word = 64 * top + ctz64(filled)
            filled &= filled - 1
            bits = 0
            for index in range(e.worker_count):
                bits |= e.workers[index].touched[word]
                e.workers[index].touched[word] = 0
            while bits:
                e.closing[count] = <int32_t>(64 * word + ctz64(bits))
                bits &= bits - 1
                count += 1
    return count


cdef inline void close_ahead(engine_t* e, int32_t port_id) noexcept nogil:
    """Have what `close_port` looks at fetched."""
    cdef uint32_t classes = e.port_touched[port_id]
    cdef queue_t* queue
    while classes:
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + ctz(classes)]
        classes &= classes - 1
        prefetch_write(queue)
        prefetch_write(&queue.pause_since_ps)
        prefetch_write(&queue.area_byte_ps)


cdef inline uint32_t close_port(engine_t* e, worker_t* w, int32_t port_id, ps_t end_ps) noexcept nogil:
    """Write the rows of one port for the open interval; the classes that have something to say of the next already."""
    cdef uint32_t classes = e.port_touched[port_id]
    cdef uint32_t more = 0
    cdef int32_t klass
    cdef queue_t* queue
    cdef port_row_t row
    cdef port_row_t* room
    while classes:
        klass = ctz(classes)
        classes &= classes - 1
        queue = &e.queues[<int64_t>port_id * e.plan.class_count + klass]
        stats_area(queue, end_ps)
        stats_paused(queue, end_ps)
        if (queue.tx_frames | queue.bytes_max | queue.paused_ps) != 0 or queue.area_byte_ps != 0 or (
                queue.xoff_sent | queue.xoff_received | queue.marks | queue.drops | queue.headroom_max_bytes) != 0:
            row.emit_ps = end_ps
            row.port = port_id
            row.klass = <uint8_t>klass
            row.pad_0 = row.pad_1 = row.pad_2 = row.pad_3 = 0
            row.start_ps = e.sample_start_ps
            row.tx_bytes = queue.tx_bytes
            row.wire_bytes = queue.tx_bytes + queue.tx_frames * e.plan.wire_overhead_bytes
            row.tx_frames = queue.tx_frames
            row.area_byte_ps = queue.area_byte_ps
            row.bytes_max = queue.bytes_max
            row.paused_ps = queue.paused_ps
            row.xoff_sent = queue.xoff_sent
            row.xoff_received = queue.xoff_received
            row.marks = queue.marks
            row.drops = queue.drops
            row.headroom_max_bytes = queue.headroom_max_bytes
            if likely(e.port_columns.place < e.port_columns.end):
                port_columns_set(&e.port_columns, e.port_columns.place, &row)
                e.port_columns.place += 1
            else:
                room = <port_row_t*>record_room(e, &w.ports)
                if room == NULL:
                    return more
                room[0] = row
        queue.tx_bytes = 0
        queue.tx_frames = 0
        queue.area_byte_ps = 0
        queue.bytes_max = queue.bytes
        queue.paused_ps = 0
        queue.xoff_sent = 0
        queue.xoff_received = 0
        queue.marks = 0
        queue.drops = 0
        queue.headroom_max_bytes = 0
        stats_headroom_held(queue)
        if queue.bytes > 0 or queue.pause_since_ps >= 0 or queue.headroom_max_bytes > 0:
            more |= <uint32_t>1 << klass
    return more


cdef inline bint close_interval(engine_t* e, ps_t end_ps) noexcept nogil:
    """Write the rows of the open interval and start the next.

    Only classes of ports that were touched are looked at, whatever the size of the fabric. Returned is whether any has
    something to say of the next interval already.
    """
    cdef int64_t count = interval_ports(e)
    cdef int64_t position
    cdef int32_t port_id
    cdef bint more = False
    for position in range(count):
        port_id = e.closing[position]
        if position + AHEAD < count:
            close_ahead(e, e.closing[position + AHEAD])
        e.port_touched[port_id] = <uint8_t>close_port(e, e.worker, port_id, end_ps)
        if e.port_touched[port_id]:
            port_note(e.worker, port_id)
            more = True
    e.sample_start_ps = end_ps
    return more


cdef inline void close_intervals_before(engine_t* e, ps_t time_ps) noexcept nogil:
    """Close every interval that ends at or before `time_ps`; idle ones are stepped over."""
    cdef ps_t sample_ps = e.plan.sample_ps
    while sample_ps > 0 and e.sample_start_ps + sample_ps <= time_ps:
        if not close_interval(e, e.sample_start_ps + sample_ps) and e.sample_start_ps + sample_ps <= time_ps:
            e.sample_start_ps = time_ps // sample_ps * sample_ps


cdef inline void intervals_end(engine_t* e, ps_t end_ps, bint is_drained) noexcept nogil:
    """Close the last intervals of a run that ends."""
    cdef ps_t sample_ps = e.plan.sample_ps
    if sample_ps == 0:
        return
    while e.sample_start_ps + sample_ps <= end_ps:
        close_interval(e, e.sample_start_ps + sample_ps)
    # A drained fabric stays as it is to the end of the interval; a run that was stopped has no more to tell.
    if is_drained:
        close_interval(e, e.sample_start_ps + sample_ps)
    elif end_ps > e.sample_start_ps:
        close_interval(e, end_ps)
