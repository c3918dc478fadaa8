"""Ties: the order of ports at one device and instant.

Owns      sort_ports.
Invariant the order depends on seed, node, time and port only, and favours no port for ever (MODEL 5).
"""
from .types cimport int32_t, uint64_t, ps_t
from .rng cimport fold64, tie_prefix
from .state cimport worker_t


cdef inline void sort_ports(worker_t* w, int32_t* ports, int32_t* companions, int32_t count, ps_t now) noexcept nogil:
    """Put local ports, and what goes with them (may be NULL), into the keyed order of this instant."""
    cdef uint64_t prefix = fold64(tie_prefix(w.seed, <uint64_t>w.node), <uint64_t>now)
    cdef uint64_t tie
    cdef int32_t index, position, port
    cdef int32_t companion = 0
    for index in range(count):
        port = ports[index]
        if companions != NULL:
            companion = companions[index]
        tie = fold64(prefix, <uint64_t>port)
        position = index
        while position > 0 and (w.ties[position - 1] > tie
                                or (w.ties[position - 1] == tie and ports[position - 1] > port)):
            w.ties[position] = w.ties[position - 1]
            ports[position] = ports[position - 1]
            if companions != NULL:
                companions[position] = companions[position - 1]
            position -= 1
        w.ties[position] = tie
        ports[position] = port
        if companions != NULL:
            companions[position] = companion
