"""Selective repeat: which packets of a queue pair came too early, at both ends.

Owns      sacked_t and kept_t: rings of bits, one for every packet that may be ahead.
Invariant a ring has a place for every packet of the window; the bit of snd_una, or of `expected`, is never set.
Order     docs/MODEL.md 10 and 11: rtx only grows within a recovery.
Source    IRN: Mittal et al., Revisiting Network Support for RDMA, SIGCOMM 2018.
"""
from libc.string cimport memset
from .types cimport int32_t, int64_t, uint64_t, FAULT_MEMORY
from .memory cimport arena_take, array_grow
from .state cimport engine_t, host_t, kept_t, read_t, sacked_t, worker_t


cdef inline bint bit_test(const uint64_t* bits, uint64_t mask, uint64_t number) noexcept nogil:
    return (bits[(number & mask) >> 6] >> (number & 63)) & 1


cdef inline void bit_set(uint64_t* bits, uint64_t mask, uint64_t number) noexcept nogil:
    bits[(number & mask) >> 6] |= <uint64_t>1 << (number & 63)


cdef inline void bit_clear(uint64_t* bits, uint64_t mask, uint64_t number) noexcept nogil:
    bits[(number & mask) >> 6] &= ~(<uint64_t>1 << (number & 63))


cdef inline uint64_t ring_mask(int64_t window) noexcept nogil:
    """One less than the places of a ring: a power of two, whole words."""
    cdef uint64_t places = 64
    while places < <uint64_t>window:
        places *= 2
    return places - 1


cdef inline uint64_t* bits_clear(engine_t* e, worker_t* w, uint64_t* bits, uint64_t mask) noexcept nogil:
    """An empty ring of bits, where it was or new; NULL after a fault."""
    if bits == NULL:
        bits = <uint64_t*>arena_take(w.arena, (mask + 1) >> 3)
        if bits == NULL:
            e.fault.code = FAULT_MEMORY
            return NULL
    memset(bits, 0, (mask + 1) >> 3)
    return bits


cdef inline bint sacked_grow(engine_t* e, worker_t* w, host_t* host, int32_t capacity) noexcept nogil:
    """Give the slots of qps up to `capacity` a companion; those that are there keep their ring."""
    if not array_grow(w.arena, <void**>&host.sacked, host.qp_capacity, capacity, sizeof(sacked_t)):
        e.fault.code = FAULT_MEMORY
        return False
    memset(&host.sacked[host.qp_capacity], 0, <size_t>(capacity - host.qp_capacity) * sizeof(sacked_t))
    return True


cdef inline bint kept_grow(engine_t* e, worker_t* w, host_t* host, int32_t capacity) noexcept nogil:
    """The same for the slots of receivers."""
    if not array_grow(w.arena, <void**>&host.kept, host.rx_capacity, capacity, sizeof(kept_t)):
        e.fault.code = FAULT_MEMORY
        return False
    memset(&host.kept[host.rx_capacity], 0, <size_t>(capacity - host.rx_capacity) * sizeof(kept_t))
    return True


cdef inline void sacked_begin(engine_t* e, worker_t* w, sacked_t* sacked, int64_t window,
                              int64_t reorder) noexcept nogil:
    """A QP takes the slot: an empty ring."""
    sacked.reorder = <uint64_t>reorder
    sacked.all_lost = False
    sacked.rtx = 0
    sacked.top = 0
    sacked.recovery_end = 0
    sacked.mask = ring_mask(window)
    sacked.bits = bits_clear(e, w, sacked.bits, sacked.mask)


cdef inline void kept_begin(engine_t* e, worker_t* w, kept_t* kept, int64_t window) noexcept nogil:
    """A receiver takes the slot: an empty ring."""
    kept.mask = ring_mask(window)
    kept.bits = bits_clear(e, w, kept.bits, kept.mask)


cdef inline void sacked_mark(sacked_t* sacked, uint64_t number) noexcept nogil:
    bit_set(sacked.bits, sacked.mask, number)
    if number + 1 > sacked.top:
        sacked.top = number + 1


cdef inline void sacked_advance(sacked_t* sacked, uint64_t before, uint64_t una) noexcept nogil:
    """snd_una has moved from `before`: its packets give their places back; a recovery may be over."""
    cdef uint64_t number
    if sacked.top > before:
        for number in range(before, una if una < sacked.top else sacked.top):
            bit_clear(sacked.bits, sacked.mask, number)
    if una >= sacked.recovery_end:
        sacked.recovery_end = 0


cdef inline void sacked_recover(sacked_t* sacked, uint64_t una, uint64_t end, bint timed_out) noexcept nogil:
    """Go into recovery: what is lost is sent again from snd_una on."""
    sacked.recovery_end = end
    sacked.rtx = una
    sacked.all_lost = timed_out or sacked.reorder == 1


cdef inline bint sacked_tells_loss(const sacked_t* sacked, uint64_t una) noexcept nogil:
    """Whether a packet has come so far beyond snd_una that snd_una must be lost."""
    return una + sacked.reorder < sacked.top


cdef inline bint sacked_seek(sacked_t* sacked, uint64_t una, uint64_t end) noexcept nogil:
    """Move rtx to the next packet that is to be sent again; False if there is none.

    That is the lowest one the receiver has not named, if it is lost.
    """
    cdef uint64_t number = sacked.rtx if sacked.rtx > una else una
    if sacked.recovery_end == 0:
        return False
    while number < end and bit_test(sacked.bits, sacked.mask, number):
        number += 1
    sacked.rtx = number
    if sacked.all_lost:
        return number < end and (number == una or number + 1 < sacked.top)
    return number + sacked.reorder < sacked.top


cdef inline int64_t companions_bytes(const host_t* host) noexcept:
    """Memory of the companions of a host's slots."""
    cdef int64_t total = 0
    cdef int32_t slot
    if host.sacked != NULL:
        total += host.qp_capacity * sizeof(sacked_t)
        for slot in range(host.qp_capacity):
            if host.sacked[slot].bits != NULL:
                total += (host.sacked[slot].mask + 1) // 8
    if host.kept != NULL:
        total += host.rx_capacity * sizeof(kept_t)
        for slot in range(host.rx_capacity):
            if host.kept[slot].bits != NULL:
                total += (host.kept[slot].mask + 1) // 8
    if host.reads != NULL:
        total += host.rx_capacity * sizeof(read_t)
    return total
