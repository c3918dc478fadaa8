"""ECN marking: RED on the instantaneous egress queue, at dequeue.

Owns      the decision; the count of ECN-capable departures is in queue_t.
Order     after the frame's own bytes have left the queue.
Source    RFC 3168; Floyd & Jacobson 1993 (linear probability); docs/MODEL.md 6.
"""
from .types cimport int64_t, uint64_t
from .rng cimport ecn_hash
from .state cimport engine_t, queue_t


cdef inline bint ecn_draws(const engine_t* e, const queue_t* queue, int64_t port, int64_t klass, int64_t bytes,
                           uint64_t count) noexcept nogil:
    """Decide for the `count`-th data frame that leaves, with `bytes` behind it: more than kmin."""
    cdef uint64_t draw
    if bytes > queue.kmax_bytes:
        return True
    draw = ecn_hash(e.plan.seed, <uint64_t>port, <uint64_t>klass, count) >> 32
    return (draw * <uint64_t>(queue.kmax_bytes - queue.kmin_bytes)
            < <uint64_t>e.plan.pq_pmax_q32[port * e.plan.class_count + klass]
            * <uint64_t>(bytes - queue.kmin_bytes))


cdef inline bint ecn_marks(const engine_t* e, queue_t* queue, int64_t port, int64_t klass) noexcept nogil:
    """Decide for one data frame that leaves; queue.bytes excludes it."""
    queue.ecn_count += 1
    # A frame that leaves the queue empty needs none of its limits.
    return (queue.bytes > 0 and queue.bytes > queue.kmin_bytes
            and ecn_draws(e, queue, port, klass, queue.bytes, queue.ecn_count - 1))
