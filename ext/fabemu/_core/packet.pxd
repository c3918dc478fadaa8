"""The packet: 32 bytes, held by value in rings.

Owns      packet_t; the growth of rings of packets.
Invariant sizeof(packet_t) == 32 (two to a cache line; checked when the engine is made).
Order     a copy writes the whole packet first and single fields afterwards, so that no wide load follows a narrow
          store.
"""
from .types cimport uint8_t, uint16_t, uint32_t, uint64_t, ps_t, CLASS_SHIFT, KIND_CREDIT, KIND_PFC
from .memory cimport arena_t, ring_grow

cdef struct packet_t:
    ps_t time_ps            # arrival at the receiver of the link; in an egress queue: arrival at this switch
    uint32_t qp             # plan QP
    uint32_t psn            # 24-bit packet number; PFC: XOFF bit mask over classes; above: see PSN_BITS
    uint32_t hash           # flow hash of this direction
    uint32_t dst            # destination host
    uint16_t size           # frame bytes
    uint8_t kind            # KIND_*, with KIND_CORRUPT on links
    uint8_t flags           # FLAG_* and the class in bits 4..6
    uint16_t ingress        # local index of the port it came in by (switch queues)
    uint16_t group          # destination group


cdef inline uint32_t packet_class(const packet_t* packet) noexcept nogil:
    return packet.flags >> CLASS_SHIFT


cdef inline uint64_t packet_words(uint32_t low, uint32_t high) noexcept nogil:
    """Two fields that lie side by side, as one word."""
    return low | <uint64_t>high << 32


cdef inline uint32_t packet_shape(uint32_t size, uint32_t kind, uint32_t flags) noexcept nogil:
    """What a frame looks like, as one word: the bits of `size`, `kind` and `flags` as they lie in a packet."""
    return size | kind << 16 | flags << 24


cdef inline uint64_t packet_place(const packet_t* packet) noexcept nogil:
    """packet_shape in the low half; `ingress` and `group` above, 16 bits each."""
    return (packet.size | <uint32_t>packet.kind << 16 | <uint32_t>packet.flags << 24
            | <uint64_t>packet.ingress << 32 | <uint64_t>packet.group << 48)


cdef inline bint packet_is_of_link(const packet_t* packet) noexcept nogil:
    """A frame of flow control, which is not buffered; not if it is corrupt."""
    # The two kinds differ in one bit.
    return packet.kind | (KIND_PFC ^ KIND_CREDIT) == KIND_CREDIT


cdef inline bint packets_grow(arena_t* arena, packet_t** buffer, uint32_t* mask, uint32_t head) noexcept nogil:
    """Double a full ring (8 places at first) whose oldest packet is at `head`; False if there is no memory."""
    return ring_grow(arena, <void**>buffer, mask, head, 8, sizeof(packet_t))
