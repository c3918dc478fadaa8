"""Invariant CRC of RoCEv2 frames, for many frames at once.

Source: InfiniBand Architecture, volume 1, annex A17 (RoCEv2), "ICRC": the CRC-32 of Ethernet over 8 bytes of ones (in
the place of an InfiniBand link header), the IP header, the UDP header, the transport headers, payload and padding, with
all fields that change on the way taken as ones: type of service, time to live and checksum of IPv4, the checksum of
UDP, and the byte of the base transport header that holds FECN and BECN. It is sent as Ethernet sends its own.

The payload of a simulated frame is all zeros. A zero byte changes the register of a CRC linearly, so any number of them
is a product of 32 x 32 matrices over GF(2), applied by bits of the number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

UInt32s = NDArray[np.uint32]

IPV4_MASKED = (1, 8, 10, 11)
"""Bytes of an IPv4 header that count as ones: type of service, time to live, checksum."""
UDP_MASKED = (6, 7)
"""Bytes of a UDP header that count as ones: its checksum."""
BTH_MASKED = (4,)
"""Bytes of a base transport header that count as ones: FECN, BECN and what is reserved beside them."""

_POLYNOMIAL = np.uint32(0xEDB88320)  # IEEE 802.3, reflected
_LONGEST_BITS = 17  # lengths of zeros below 2^17 bytes


def _byte_table() -> UInt32s:
    register = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        register = np.where(register & 1, (register >> np.uint32(1)) ^ _POLYNOMIAL, register >> np.uint32(1))
    return register


_TABLE = _byte_table()


def _one_zero(register: UInt32s) -> UInt32s:
    return np.asarray(_TABLE[register & np.uint32(0xFF)] ^ (register >> np.uint32(8)))


def _apply(tables: UInt32s, register: UInt32s) -> UInt32s:
    """Apply a linear map, given by (4, 256) images of the four bytes of a register."""
    images = tables[0][register & np.uint32(0xFF)]
    for byte in range(1, 4):
        images = images ^ tables[byte][(register >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return images


def _zero_tables() -> list[UInt32s]:
    """Maps of 1, 2, 4, ... zero bytes."""
    values = np.arange(256, dtype=np.uint32)
    tables = [np.stack([_one_zero(values << np.uint32(8 * byte)) for byte in range(4)])]
    for _ in range(_LONGEST_BITS - 1):
        tables.append(np.stack([_apply(tables[-1], row) for row in tables[-1]]))
    return tables


_ZEROS = _zero_tables()


def icrc(headers: NDArray[np.uint8], zero_bytes: NDArray[np.int64]) -> UInt32s:
    """ICRC of RoCEv2 frames over IPv4 whose payloads are zeros.

    Parameters
    ----------
    headers
        (n, w) uint8: IPv4 header of 20 bytes, UDP header, base transport header and the headers after it.
    zero_bytes
        (n,) bytes of payload and padding behind them, below 2^17.

    Returns
    -------
    numpy.ndarray
        (n,) uint32; on the wire the lowest byte comes first.
    """
    masked = {*IPV4_MASKED, *(20 + byte for byte in UDP_MASKED), *(28 + byte for byte in BTH_MASKED)}
    register = np.full(len(headers), 0xFFFFFFFF, dtype=np.uint32)
    for _ in range(8):
        register = _step(register, np.uint32(0xFF))
    for column in range(headers.shape[1]):
        value = np.uint32(0xFF) if column in masked else headers[:, column].astype(np.uint32)
        register = _step(register, value)
    longest = int(zero_bytes.max(initial=0))
    for bit in range(longest.bit_length()):
        chosen = (zero_bytes >> bit) & 1 == 1
        register = np.where(chosen, _apply(_ZEROS[bit], register), register)
    return ~register


def _step(register: UInt32s, value: UInt32s | np.uint32) -> UInt32s:
    return np.asarray(_TABLE[(register ^ value) & np.uint32(0xFF)] ^ (register >> np.uint32(8)))
