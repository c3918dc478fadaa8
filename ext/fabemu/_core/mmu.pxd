"""Shared packet buffer of one switch.

Owns      bytes held per ingress priority group (PG) in reserved, shared pool and headroom; bytes per (ingress,
          egress) of lossless classes.
Invariant pool used == sum of shared use over PGs; every byte admitted is released once, headroom first; no counter
          goes negative.
Order     admit and judge XOFF at wire arrival; release when transmission starts, before XON and the ECN decision.
Source    Choudhury & Hahne 1998 (dynamic threshold); docs/MODEL.md 6 and 13.
"""
from .types cimport (int32_t, int64_t, unlikely, DROP_EGRESS_FULL, DROP_HEADROOM_FULL, DROP_SHARED_FULL,
                     FAULT_RELEASE, NONE, UNUSUAL_STATIC)
from .state cimport engine_t, queue_t, switch_t


cdef inline bint mmu_is_static(const engine_t* e, const switch_t* mmu, const queue_t* pg) noexcept nogil:
    return mmu.unusual & UNUSUAL_STATIC != 0 and e.plan.pq_static_bytes[pg - e.queues] >= 0


cdef inline int64_t mmu_threshold_of(const engine_t* e, const switch_t* mmu, const queue_t* pg,
                                     int64_t free_bytes) noexcept nogil:
    """Threshold of a PG when so much of the pool is free."""
    if unlikely(mmu_is_static(e, mmu, pg)):
        return e.plan.pq_static_bytes[pg - e.queues]
    return (free_bytes * pg.alpha_q16) >> 16


cdef inline int64_t mmu_threshold(const engine_t* e, const switch_t* mmu, const queue_t* pg) noexcept nogil:
    return mmu_threshold_of(e, mmu, pg, mmu.pool_bytes - mmu.shared_used_bytes)


cdef inline int64_t mmu_charged(const switch_t* mmu, int64_t frame_bytes) noexcept nogil:
    """What a frame takes in the counts of the buffer: whole cells."""
    return (frame_bytes + mmu.cell_bytes - 1) // mmu.cell_bytes * mmu.cell_bytes


cdef inline int64_t mmu_over(const queue_t* pg) noexcept nogil:
    """Use above the reserve, compatibility rule (there shared_used counts the reserve too)."""
    if pg.shared_used_bytes > <int64_t>pg.reserved_bytes:
        return pg.shared_used_bytes - <int64_t>pg.reserved_bytes
    return 0


cdef inline int32_t mmu_admit_ns3(const engine_t* e, switch_t* mmu, queue_t* pg, int64_t size) noexcept nogil:
    cdef int64_t threshold = mmu_threshold(e, mmu, pg)
    cdef int64_t after, charge
    if pg.headroom_used_bytes + size > pg.headroom_bytes and mmu_over(pg) + size > threshold:
        return DROP_HEADROOM_FULL
    after = pg.shared_used_bytes + size
    if after <= <int64_t>pg.reserved_bytes:
        pg.shared_used_bytes = after
    elif after - <int64_t>pg.reserved_bytes > threshold:
        pg.headroom_used_bytes += size
    else:
        charge = after - <int64_t>pg.reserved_bytes
        if charge > size:
            charge = size
        pg.shared_used_bytes = after
        mmu.shared_used_bytes += charge
    return NONE


cdef inline int32_t mmu_admit(engine_t* e, switch_t* mmu, queue_t* pg, const queue_t* egress, int64_t egress_index,
                              bint lossless, int64_t size) noexcept nogil:
    """Charge a frame to its PG. NONE, or the cause for which it is dropped."""
    cdef int64_t take, rest, free_bytes
    cdef int32_t cause
    if unlikely(mmu.unusual != 0):
        return mmu_admit_unusual(e, mmu, pg, egress, egress_index, lossless, size)
    take = <int64_t>pg.reserved_bytes - pg.reserved_used_bytes
    if take >= size:
        pg.reserved_used_bytes += size
        return NONE
    rest = size - take
    free_bytes = mmu.pool_bytes - mmu.shared_used_bytes
    if pg.shared_used_bytes < (free_bytes * pg.alpha_q16) >> 16 and rest <= free_bytes:
        if lossless or egress.bytes < (free_bytes * e.plan.pq_egress_alpha_q16[egress_index]) >> 16:
            pg.reserved_used_bytes += take
            pg.shared_used_bytes += rest
            mmu.shared_used_bytes += rest
            return NONE
        cause = DROP_EGRESS_FULL
    else:
        cause = DROP_SHARED_FULL
    if not lossless:
        return cause
    if rest <= pg.headroom_bytes - pg.headroom_used_bytes:
        pg.reserved_used_bytes += take
        pg.headroom_used_bytes += rest
        return NONE
    return DROP_HEADROOM_FULL


cdef inline int32_t mmu_admit_unusual(engine_t* e, switch_t* mmu, queue_t* pg, const queue_t* egress,
                                      int64_t egress_index, bint lossless, int64_t frame_bytes) noexcept nogil:
    """mmu_admit with every option: static limits, cells, the compatibility rule."""
    cdef int64_t size = mmu_charged(mmu, frame_bytes)
    cdef int64_t free_bytes = mmu.pool_bytes - mmu.shared_used_bytes
    cdef int64_t take = <int64_t>pg.reserved_bytes - pg.reserved_used_bytes
    cdef int64_t rest, limit_bytes
    cdef bint fits
    if e.plan.ns3_buffer:
        return mmu_admit_ns3(e, mmu, pg, size)
    if take > size:
        take = size
    rest = size - take
    limit_bytes = e.plan.pq_egress_static_bytes[egress_index]
    if limit_bytes < 0:
        limit_bytes = (free_bytes * e.plan.pq_egress_alpha_q16[egress_index]) >> 16
    fits = rest == 0 or (pg.shared_used_bytes < mmu_threshold(e, mmu, pg) and rest <= free_bytes)
    if fits and (rest == 0 or lossless or egress.bytes < limit_bytes):
        pg.reserved_used_bytes += take
        pg.shared_used_bytes += rest
        mmu.shared_used_bytes += rest
        return NONE
    if not lossless:
        return DROP_EGRESS_FULL if fits else DROP_SHARED_FULL
    if rest <= pg.headroom_bytes - pg.headroom_used_bytes:
        pg.reserved_used_bytes += take
        pg.headroom_used_bytes += rest
        return NONE
    return DROP_HEADROOM_FULL


cdef inline void mmu_charge(switch_t* mmu, queue_t* pg, int64_t size) noexcept nogil:
    """Charge a frame that is known to fit: reserved first, the rest to the pool."""
    cdef int64_t rest = size - (<int64_t>pg.reserved_bytes - pg.reserved_used_bytes)
    if rest <= 0:
        pg.reserved_used_bytes += size
    else:
        pg.reserved_used_bytes = pg.reserved_bytes
        pg.shared_used_bytes += rest
        mmu.shared_used_bytes += rest


cdef inline void mmu_release(engine_t* e, switch_t* mmu, queue_t* pg, int64_t size) noexcept nogil:
    """Give a frame's bytes back: headroom, then shared, then reserved."""
    cdef int64_t part, over
    if unlikely(mmu.unusual != 0):
        size = mmu_charged(mmu, size)
    part = pg.headroom_used_bytes if pg.headroom_used_bytes < size else size
    pg.headroom_used_bytes -= part
    size -= part
    if unlikely(e.plan.ns3_buffer):
        over = mmu_over(pg)
        mmu.shared_used_bytes -= size if size < over else over
        pg.shared_used_bytes -= size
    else:
        part = pg.shared_used_bytes if pg.shared_used_bytes < size else size
        pg.shared_used_bytes -= part
        mmu.shared_used_bytes -= part
        pg.reserved_used_bytes -= size - part
    if unlikely((pg.reserved_used_bytes | pg.shared_used_bytes | mmu.shared_used_bytes) < 0):
        e.fault.code = FAULT_RELEASE


cdef inline bint mmu_wants_xoff(const engine_t* e, const switch_t* mmu, const queue_t* pg) noexcept nogil:
    if pg.headroom_used_bytes > 0:
        return True
    if unlikely(e.plan.ns3_buffer):
        return mmu_over(pg) >= mmu_threshold(e, mmu, pg)
    # A PG that holds nothing has no departure to come that could judge XON.
    return pg.shared_used_bytes >= mmu_threshold(e, mmu, pg) and (pg.shared_used_bytes | pg.reserved_used_bytes) > 0


cdef inline bint mmu_wants_xon(const engine_t* e, const switch_t* mmu, const queue_t* pg) noexcept nogil:
    cdef int64_t used
    if pg.headroom_used_bytes > 0:
        return False
    used = mmu_over(pg) if e.plan.ns3_buffer else pg.shared_used_bytes
    return used == 0 or used + <int64_t>pg.xon_offset_bytes <= mmu_threshold(e, mmu, pg)
