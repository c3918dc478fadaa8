"""Records that leave the core: fixed-size rows in growing buffers.

Owns      the row structs (their numpy dtypes are in engine.pyx), record_room and record_append.
Invariant within a buffer the rows of one device are in the order of its events; those of ports come in their final
          order (interval.pxd), a drain sorts the others by (emit_ps, node), stably: so tables do not depend on windows
          or on how often they are drained.
"""
from libc.stdlib cimport realloc
from libc.string cimport memset
from .types cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, ps_t, unlikely, FAULT_MEMORY
from .rng cimport fold64
from .state cimport engine_t, record_buffer_t, worker_t

cdef struct flow_row_t:
    ps_t emit_ps
    int32_t node
    int32_t op

cdef struct pause_row_t:
    ps_t emit_ps
    int32_t node
    int32_t port
    ps_t xoff_ps
    ps_t sent_ps
    ps_t start_ps
    ps_t xon_ps
    ps_t end_ps
    int64_t ingress_bytes
    int64_t headroom_bytes
    int64_t threshold_bytes
    int32_t egress_port
    int32_t parent_port
    uint8_t klass
    uint8_t end
    uint8_t crossed
    uint8_t pad_0
    int32_t pad_1

cdef struct drop_row_t:
    ps_t emit_ps
    int32_t node
    int32_t ingress_port
    int32_t egress_port
    int32_t qp
    int64_t psn
    int32_t frame_bytes
    uint8_t klass
    uint8_t cause
    uint8_t kind
    uint8_t pad

cdef struct packet_row_t:
    ps_t emit_ps
    int32_t node
    int32_t port
    int64_t psn
    int32_t qp
    int32_t frame_bytes
    uint8_t kind
    uint8_t flags
    uint8_t klass
    uint8_t pad_0
    int32_t pad_1


cdef struct event_row_t:
    ps_t emit_ps
    int32_t node
    int32_t port
    int64_t value
    int32_t klass
    int32_t qp
    int32_t group
    uint8_t kind
    uint8_t pad_0
    uint8_t pad_1
    uint8_t pad_2


cdef inline void* record_room(engine_t* e, record_buffer_t* buffer) noexcept nogil:
    """Room for one more row, of which every byte is to be set; NULL (and a fault) when there is no memory."""
    cdef int64_t capacity
    cdef char* grown
    if unlikely(buffer.count == buffer.capacity):
        capacity = 2 * buffer.capacity if buffer.capacity > 0 else 256
        grown = <char*>realloc(buffer.data, <size_t>(capacity * buffer.size))
        if grown == NULL:
            e.fault.code = FAULT_MEMORY
            return NULL
        buffer.data = grown
        buffer.capacity = capacity
    buffer.count += 1
    return buffer.data + (buffer.count - 1) * buffer.size


cdef inline void* record_append(engine_t* e, record_buffer_t* buffer) noexcept nogil:
    """The same for a row that has nothing but zeros: it has padding, and what leaves are the same bytes every time."""
    cdef void* row = record_room(e, buffer)
    if row != NULL:
        memset(row, 0, <size_t>buffer.size)
    return row


cdef inline void event_record(engine_t* e, worker_t* w, ps_t now, int32_t kind, int32_t node, int32_t port,
                              int32_t klass, int32_t qp, int64_t value, int32_t group) noexcept nogil:
    """Something worth telling has happened; NONE for what does not apply."""
    cdef event_row_t* row = <event_row_t*>record_append(e, &w.event_rows)
    w.row_digest += fold64(fold64(fold64(fold64(1, <uint64_t>now), (<uint64_t>kind << 32) | <uint32_t>port),
                                  (<uint64_t>klass << 32) | <uint32_t>qp), <uint64_t>value)
    if row == NULL:
        return
    row.emit_ps = now
    row.node = node
    row.port = port
    row.value = value
    row.klass = klass
    row.qp = qp
    row.group = group
    row.kind = <uint8_t>kind
