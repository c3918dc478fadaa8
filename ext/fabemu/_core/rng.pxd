"""Keyed hashes: every random choice is a function of its key.

Owns      mix32, mix64, hash64 and the stream numbers (MODEL 2).
Invariant no hidden state: equal keys give equal draws, whatever ran before.
Source    splitmix64 finaliser (Steele, Lea, Flood 2014); murmur3 finaliser.
"""
from .types cimport uint32_t, uint64_t

cdef enum:
    STREAM_TIE = 1
    STREAM_ECN = 2
    STREAM_LOSS = 5


cdef inline uint64_t mix64(uint64_t x) noexcept nogil:
    x ^= x >> 30
    x *= <uint64_t>0xbf58476d1ce4e5b9
    x ^= x >> 27
    x *= <uint64_t>0x94d049bb133111eb
    x ^= x >> 31
    return x


cdef inline uint64_t fold64(uint64_t h, uint64_t value) noexcept nogil:
    """One step of hash64; start with h = 0."""
    return mix64((h ^ value) + <uint64_t>0x9e3779b97f4a7c15)


cdef inline uint32_t mix32(uint32_t x) noexcept nogil:
    x ^= x >> 16
    x *= <uint32_t>0x85ebca6b
    x ^= x >> 13
    x *= <uint32_t>0xc2b2ae35
    x ^= x >> 16
    return x


cdef inline uint64_t tie_prefix(uint64_t seed, uint64_t node) noexcept nogil:
    """What the keys of one device's ties share (MODEL 5); fold in the time and the port."""
    return fold64(fold64(fold64(0, seed), STREAM_TIE), node)


cdef inline uint64_t loss_draw(uint64_t seed, uint64_t port, uint64_t start_ps) noexcept nogil:
    """Draw of a frame whose transmission by a port of a lossy link starts then (MODEL 18), below 2^32."""
    return fold64(fold64(fold64(fold64(0, seed), STREAM_LOSS), port), start_ps) >> 32


cdef inline uint64_t ecn_hash(uint64_t seed, uint64_t port, uint64_t klass, uint64_t count) noexcept nogil:
    """Draw of the count-th ECN-capable departure of a queue (MODEL 6)."""
    return fold64(fold64(fold64(fold64(fold64(0, seed), STREAM_ECN), port), klass), count)
