"""Rows of ports, and the columns of their table that they go to.

Owns      port_row_t, port_columns_t; port_columns_find, port_columns_are_full, port_columns_set.
Invariant every column is what NumPy would make of the rows.
"""
from .types cimport int32_t, int64_t, uint8_t, uint32_t, ps_t

cdef struct port_row_t:
    ps_t emit_ps                  # end of the interval
    int32_t port
    uint8_t klass
    uint8_t pad_0
    uint8_t pad_1
    uint8_t pad_2
    ps_t start_ps
    int64_t tx_bytes
    int64_t wire_bytes            # with gaps between frames
    int64_t tx_frames
    double area_byte_ps
    int64_t bytes_max
    ps_t paused_ps
    uint32_t xoff_sent
    uint32_t xoff_received
    uint32_t marks
    uint32_t drops
    uint32_t headroom_max_bytes
    uint32_t pad_3

cdef struct port_columns_t:
    const int32_t* port_node      # of the plan, as the two that follow
    const int32_t* port_peer
    const int64_t* port_rate_bps
    int64_t first                 # place of the first row
    int64_t place                 # of the next
    int64_t end                   # where the room for rows ends
    int64_t* start_ps
    int64_t* end_ps
    int32_t* node
    int32_t* port
    int32_t* peer
    int32_t* klass
    int64_t* sent_bytes
    int64_t* frames
    double* utilisation
    double* queue_mean_bytes
    int64_t* queue_max_bytes
    int64_t* paused_ps
    int64_t* xoff_sent
    int64_t* xoff_received
    int64_t* marks
    int64_t* drops
    int64_t* headroom_max_bytes


cdef inline int64_t* int64_column(columns, str name, int64_t end) except? NULL:
    """A column with room up to `end`, above 0; ValueError if it has none or is of another type."""
    cdef int64_t[::1] values = columns[name]
    column_has_room(name, values.shape[0], end)
    return &values[0]


cdef inline int32_t* int32_column(columns, str name, int64_t end) except? NULL:
    """The same, of names."""
    cdef int32_t[::1] values = columns[name]
    column_has_room(name, values.shape[0], end)
    return &values[0]


cdef inline double* float_column(columns, str name, int64_t end) except? NULL:
    """The same, of floats."""
    cdef double[::1] values = columns[name]
    column_has_room(name, values.shape[0], end)
    return &values[0]


cdef inline int column_has_room(str name, int64_t length, int64_t end) except -1:
    if length < end:
        raise ValueError(f"column {name}: no room for rows up to {end} in {length}")
    return 0


cdef inline int port_columns_find(port_columns_t* to, columns, int64_t first, int64_t end) except -1:
    """Have rows go to the places of arrays from `first` on, before `end`.

    The arrays are those of the table's columns by their names, of the types in docs/TRACES.md, names as int32.
    ValueError if there is no such room or one is of another type.
    """
    if not 0 <= first < end:
        raise ValueError(f"no room for rows of ports from {first} to {end}")
    to.start_ps = int64_column(columns, "start_ps", end)
    to.end_ps = int64_column(columns, "end_ps", end)
    to.node = int32_column(columns, "node", end)
    to.port = int32_column(columns, "port", end)
    to.peer = int32_column(columns, "peer", end)
    to.klass = int32_column(columns, "class", end)
    to.sent_bytes = int64_column(columns, "bytes", end)
    to.frames = int64_column(columns, "frames", end)
    to.utilisation = float_column(columns, "utilisation", end)
    to.queue_mean_bytes = float_column(columns, "queue_mean_bytes", end)
    to.queue_max_bytes = int64_column(columns, "queue_max_bytes", end)
    to.paused_ps = int64_column(columns, "paused_ps", end)
    to.xoff_sent = int64_column(columns, "xoff_sent", end)
    to.xoff_received = int64_column(columns, "xoff_received", end)
    to.marks = int64_column(columns, "marks", end)
    to.drops = int64_column(columns, "drops", end)
    to.headroom_max_bytes = int64_column(columns, "headroom_max_bytes", end)
    to.first = to.place = first
    to.end = end
    return 0


cdef inline bint port_columns_are_full(const port_columns_t* to) noexcept nogil:
    """Whether there are columns and their room is used up."""
    return to.place == to.end and to.end > 0


cdef inline void port_columns_set(const port_columns_t* to, int64_t place, const port_row_t* row) noexcept nogil:
    """Set every column of one row."""
    cdef double length_ps = <double>(row.emit_ps - row.start_ps)
    to.start_ps[place] = row.start_ps
    to.end_ps[place] = row.emit_ps
    to.node[place] = to.port_node[row.port]
    to.port[place] = row.port
    to.peer[place] = to.port_node[to.port_peer[row.port]]
    to.klass[place] = row.klass
    to.sent_bytes[place] = row.tx_bytes
    to.frames[place] = row.tx_frames
    if length_ps > 0:
        # Wire time in ps = bytes x 8e12 / rate.
        to.utilisation[place] = <double>row.wire_bytes * 8e12 / <double>to.port_rate_bps[row.port] / length_ps
        to.queue_mean_bytes[place] = row.area_byte_ps / length_ps
    else:
        # An interval of no length carries nothing.
        to.utilisation[place] = to.queue_mean_bytes[place] = 0
    to.queue_max_bytes[place] = row.bytes_max
    to.paused_ps[place] = row.paused_ps
    to.xoff_sent[place] = row.xoff_sent
    to.xoff_received[place] = row.xoff_received
    to.marks[place] = row.marks
    to.drops[place] = row.drops
    to.headroom_max_bytes[place] = row.headroom_max_bytes
