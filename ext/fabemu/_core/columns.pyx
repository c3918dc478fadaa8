"""Rows of ports and pauses, as an engine drains them, to the columns of their tables.

Owns      write_ports, write_pauses.
Invariant every column is what NumPy would make of the rows: one pass over them takes a third of the time that a pass
          per column does, and these two tables are most of what a run writes by default.
"""
from .types cimport int8_t, int32_t, int64_t
from .port_columns cimport port_columns_find, port_columns_set, port_columns_t, port_row_t
from .trace cimport pause_row_t


cdef const void* rows_at(rows, str field, size_t row_bytes, columns, int64_t first) except? NULL:
    """Where the rows begin; NULL if there are none.

    ValueError if they are none of the engine's, which have such a field and so many bytes, or if there is no room.
    """
    cdef const unsigned char[::1] content
    if <size_t>rows.dtype.itemsize != row_bytes or field not in (rows.dtype.names or ()):
        raise ValueError(f"rows of {row_bytes} bytes with {field}, not {rows.dtype}")
    content = rows.view("u1")
    for name, values in columns.items():
        if len(values) < first + len(rows) or first < 0:
            raise ValueError(f"column {name}: no room for {len(rows)} rows from {first} on in {len(values)}")
    return <const void*>&content[0] if content.shape[0] > 0 else NULL


def write_ports(rows, columns, int64_t first, const int32_t[::1] port_node, const int32_t[::1] port_peer,
                const int64_t[::1] port_rate_bps):
    """Write rows of ports to columns.

    Parameters
    ----------
    rows
        (n,) as `Engine.drain` gives them.
    columns
        Arrays of one length by the names of the table's columns, of the types in docs/TRACES.md, names as int32.
    first
        Place of the first row in them.
    port_node, port_peer, port_rate_bps
        (P,) of the plan.

    Raises
    ------
    ValueError
        The rows are not those of ports, or a column has another type or no room for them.
    """
    cdef const port_row_t* row = <const port_row_t*>rows_at(rows, "tx_bytes", sizeof(port_row_t), columns, first)
    cdef port_columns_t to
    cdef int64_t count = len(rows)
    cdef int64_t index
    if count == 0:
        return
    to.port_node, to.port_peer, to.port_rate_bps = &port_node[0], &port_peer[0], &port_rate_bps[0]
    port_columns_find(&to, columns, first, first + count)
    for index in range(count):
        port_columns_set(&to, first + index, row + index)


def write_pauses(rows, columns, int64_t first, const int32_t[::1] port_node, const int32_t[::1] port_peer):
    """Write rows of pauses to columns; see `write_ports`. Names of the scenario are int32, others int8."""
    cdef const pause_row_t* row = <const pause_row_t*>rows_at(rows, "xoff_ps", sizeof(pause_row_t), columns, first)
    cdef int64_t[::1] xoff_ps = columns["xoff_ps"]
    cdef int64_t[::1] sent_ps = columns["sent_ps"]
    cdef int64_t[::1] start_ps = columns["start_ps"]
    cdef int64_t[::1] xon_ps = columns["xon_ps"]
    cdef int64_t[::1] end_ps = columns["end_ps"]
    cdef int32_t[::1] switch = columns["switch"]
    cdef int32_t[::1] port = columns["port"]
    cdef int32_t[::1] paused_node = columns["paused_node"]
    cdef int32_t[::1] paused_port = columns["paused_port"]
    cdef int32_t[::1] klass = columns["class"]
    cdef int8_t[::1] end = columns["end"]
    cdef int64_t[::1] ingress_bytes = columns["ingress_bytes"]
    cdef int64_t[::1] headroom_bytes = columns["headroom_bytes"]
    cdef int64_t[::1] threshold_bytes = columns["threshold_bytes"]
    cdef int32_t[::1] egress_port = columns["egress_port"]
    cdef int8_t[::1] crossed = columns["crossed"]
    cdef int32_t[::1] parent_port = columns["parent_port"]
    cdef int64_t place
    for place in range(first, first + len(rows)):
        xoff_ps[place] = row.xoff_ps
        sent_ps[place] = row.sent_ps
        start_ps[place] = row.start_ps
        xon_ps[place] = row.xon_ps
        end_ps[place] = row.end_ps
        switch[place] = port_node[row.port]
        port[place] = row.port
        paused_node[place] = port_node[port_peer[row.port]]
        paused_port[place] = port_peer[row.port]
        klass[place] = row.klass
        end[place] = <int8_t>row.end
        ingress_bytes[place] = row.ingress_bytes
        headroom_bytes[place] = row.headroom_bytes
        threshold_bytes[place] = row.threshold_bytes
        egress_port[place] = row.egress_port
        crossed[place] = <int8_t>row.crossed
        parent_port[place] = row.parent_port
        row += 1
