"""Frames of RoCEv2 and of PFC as bytes, many at once.

Sources: IEEE 802.3 (Ethernet), 802.1Q (tags, annex D of 802.1Qbb: PFC), RFC 791 and 3168 (IPv4, ECN), RFC 7348 (VXLAN),
InfiniBand Architecture, volume 1, chapter 9 (transport headers) and annex A17 (RoCEv2: UDP, CNP, ICRC).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.export.addresses import PFC_DESTINATION, QP_NUMBER_FIRST, ROCE_PORT, VXLAN_PORT
from fabemu.export.icrc import icrc

Bytes = NDArray[np.uint8]
Ints = NDArray[Any]

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
READ_REQUEST = 0x0C
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0D, 0x0E, 0x0F, 0x10
ACKNOWLEDGE = 0x11
CNP = 0x81
"""Opcodes of base transport headers, of reliable connections and congestion notifications."""

NO_HEADER, RETH, AETH, CNP_RESERVED = range(4)
"""What follows the base transport header."""
EXTENSION_BYTES = (0, 16, 4, 16)
"""Its length."""

SYNDROME_ACK, SYNDROME_NAK_SEQUENCE = 0x1F, 0x60
"""Of acknowledgements: an ACK that gives no credits, and the NAK of a gap in packet numbers."""

ECT0, CE = 2, 3
"""ECN bits: capable, and marked."""

ETHERNET_BYTES, TAG_BYTES, IPV4_BYTES, UDP_BYTES, BTH_BYTES, ICRC_BYTES, VXLAN_BYTES = 14, 4, 20, 8, 12, 4, 8
FCS_BYTES = 4
PFC_BYTES = 34
"""A PFC frame up to its last time, before the padding."""
IPV4_BYTES_MAX = 65_535

_IPV4, _TAGGED, _MAC_CONTROL, _PFC_OPCODE = 0x0800, 0x8100, 0x8808, 0x0101
_UDP, _DO_NOT_FRAGMENT, _PARTITION, _VLAN, _VNI = 17, 0x4000, 0xFFFF, 1, 1
_MIGRATED, _BACKWARD, _ACK_REQUEST = 0x40, 0x40, 0x80


@dataclass(frozen=True)
class Transported:
    """Frames with transport headers, all of one extension and one encapsulation; arrays are (n,) integers.

    Attributes
    ----------
    source_mac, destination_mac
        Of this link.
    source_ip, destination_ip
        Of the end hosts.
    tunnel_source, tunnel_destination
        IPv4 addresses around VXLAN; None without.
    inner_source_mac, inner_destination_mac
        MAC addresses inside VXLAN; None without.
    priority
        802.1Q priority; None for frames without a tag.
    dscp, ecn, ttl, identification
        Of IPv4. Inside VXLAN `ecn` is `inner_ecn` and the time to live is what it was at the sender.
    inner_ecn
        See `ecn`.
    udp_source
        UDP source port.
    opcode, queue_pair, psn
        Of the base transport header; `queue_pair` as in the tables.
    migrated, backward, ack_request
        0 or 1: MigReq, BECN, AckReq.
    extension
        `NO_HEADER`, `RETH`, `AETH` or `CNP_RESERVED`, of all.
    address, key, length
        Of a RETH.
    syndrome, msn
        Of an AETH.
    payload
        Bytes of payload without padding.
    """

    source_mac: Ints
    destination_mac: Ints
    source_ip: Ints
    destination_ip: Ints
    tunnel_source: Ints | None
    tunnel_destination: Ints | None
    inner_source_mac: Ints | None
    inner_destination_mac: Ints | None
    priority: Ints | None
    dscp: Ints
    ecn: Ints
    inner_ecn: Ints
    ttl: Ints
    ttl_sent: int
    identification: Ints
    udp_source: Ints
    opcode: Ints
    queue_pair: Ints
    psn: Ints
    migrated: Ints
    backward: Ints
    ack_request: Ints
    extension: int
    address: Ints
    key: Ints
    length: Ints
    syndrome: Ints
    msn: Ints
    payload: Ints


def put(into: Bytes, column: int, values: Ints | int, width: int) -> None:
    """Write big-endian numbers of `width` bytes, at most 8, into a column of rows of bytes."""
    if isinstance(values, int):
        into[:, column : column + width] = np.frombuffer(values.to_bytes(width, "big"), np.uint8)
    else:
        octets = values.astype(">u8").view(np.uint8).reshape(-1, 8)
        into[:, column : column + width] = octets[:, 8 - width :]


def headers_bytes(extension: int, *, tagged: bool, tunnelled: bool) -> int:
    """Length of all headers of a frame with transport headers."""
    outer = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + VXLAN_BYTES if tunnelled else 0
    inner = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + BTH_BYTES + EXTENSION_BYTES[extension]
    return outer + inner + (TAG_BYTES if tagged else 0)


def transported(frames: Transported) -> tuple[Bytes, Ints, NDArray[np.uint32]]:
    """Headers and ICRC of frames.

    Returns
    -------
    headers
        (n, w) uint8, everything before the payload.
    padded
        (n,) int64, bytes of payload and padding, all zeros.
    icrc
        (n,) uint32, to be put behind them, lowest byte first.
    """
    count = len(frames.opcode)
    tagged, tunnelled = frames.priority is not None, frames.tunnel_source is not None
    padded = (frames.payload.astype(np.int64) + 3) & ~3
    rows = np.zeros((count, headers_bytes(frames.extension, tagged=tagged, tunnelled=tunnelled)), dtype=np.uint8)
    inner_bytes = IPV4_BYTES + UDP_BYTES + BTH_BYTES + EXTENSION_BYTES[frames.extension] + padded + ICRC_BYTES
    at = _ethernet(rows, 0, frames.source_mac, frames.destination_mac, frames.priority)
    if frames.tunnel_source is not None and frames.tunnel_destination is not None:
        assert frames.inner_source_mac is not None and frames.inner_destination_mac is not None
        outer_bytes = IPV4_BYTES + UDP_BYTES + VXLAN_BYTES + ETHERNET_BYTES + inner_bytes
        _ipv4(rows, at, frames, frames.tunnel_source, frames.tunnel_destination, outer_bytes, frames.ecn, frames.ttl)
        _udp(rows, at + IPV4_BYTES, frames.udp_source, VXLAN_PORT, outer_bytes - IPV4_BYTES)
        at += IPV4_BYTES + UDP_BYTES
        rows[:, at] = 0x08  # the VNI is valid
        put(rows, at + 4, _VNI, 3)
        at = _ethernet(rows, at + VXLAN_BYTES, frames.inner_source_mac, frames.inner_destination_mac, None)
        ecn, ttl = frames.inner_ecn, np.full(count, frames.ttl_sent)
    else:
        ecn, ttl = frames.ecn, frames.ttl
    _ipv4(rows, at, frames, frames.source_ip, frames.destination_ip, inner_bytes, ecn, ttl)
    _udp(rows, at + IPV4_BYTES, frames.udp_source, ROCE_PORT, inner_bytes - IPV4_BYTES)
    _transport(rows, at + IPV4_BYTES + UDP_BYTES, frames, padded - frames.payload)
    return rows, padded, icrc(rows[:, at:], padded)


def pfc(source_mac: Ints, enabled: Ints, quanta: Ints) -> Bytes:
    """PFC frames up to the last time, without padding.

    Parameters
    ----------
    source_mac
        (n,) of the ports that send them.
    enabled
        (n,) bit p is set if the frame speaks of priority p.
    quanta
        (n, 8) pause times of the priorities, in units of 512 bit times.
    """
    rows = np.zeros((len(source_mac), PFC_BYTES), dtype=np.uint8)
    put(rows, 0, PFC_DESTINATION, 6)
    put(rows, 6, source_mac, 6)
    put(rows, 12, _MAC_CONTROL, 2)
    put(rows, 14, _PFC_OPCODE, 2)
    put(rows, 16, enabled, 2)
    for priority in range(8):
        put(rows, 18 + 2 * priority, quanta[:, priority], 2)
    return rows


def _ethernet(rows: Bytes, at: int, source: Ints, destination: Ints, priority: Ints | None) -> int:
    """Write an Ethernet header for IPv4; return where what follows begins."""
    put(rows, at, destination, 6)
    put(rows, at + 6, source, 6)
    at += 12
    if priority is not None:
        put(rows, at, _TAGGED, 2)
        put(rows, at + 2, priority << 13 | _VLAN, 2)
        at += TAG_BYTES
    put(rows, at, _IPV4, 2)
    return at + 2


def _ipv4(
    rows: Bytes, at: int, frames: Transported, source: Ints, destination: Ints, length: Ints, ecn: Ints, ttl: Ints
) -> None:
    rows[:, at] = 0x45
    rows[:, at + 1] = frames.dscp << 2 | ecn
    put(rows, at + 2, length, 2)
    put(rows, at + 4, frames.identification, 2)
    put(rows, at + 6, _DO_NOT_FRAGMENT, 2)
    rows[:, at + 8] = ttl
    rows[:, at + 9] = _UDP
    put(rows, at + 12, source, 4)
    put(rows, at + 16, destination, 4)
    words = rows[:, at : at + IPV4_BYTES].astype(np.int64)
    total = (words[:, 0::2] << 8 | words[:, 1::2]).sum(axis=1)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    put(rows, at + 10, 0xFFFF - total, 2)


def _udp(rows: Bytes, at: int, source: Ints, destination: int, length: Ints) -> None:
    put(rows, at, source, 2)
    put(rows, at + 2, destination, 2)
    put(rows, at + 4, length, 2)  # and no checksum, as RoCEv2 allows on IPv4


def _transport(rows: Bytes, at: int, frames: Transported, pad: Ints) -> None:
    rows[:, at] = frames.opcode
    rows[:, at + 1] = frames.migrated * _MIGRATED | pad << 4
    put(rows, at + 2, _PARTITION, 2)
    rows[:, at + 4] = frames.backward * _BACKWARD
    put(rows, at + 5, frames.queue_pair + QP_NUMBER_FIRST, 3)
    rows[:, at + 8] = frames.ack_request * _ACK_REQUEST
    put(rows, at + 9, frames.psn, 3)
    at += BTH_BYTES
    if frames.extension == RETH:
        put(rows, at, frames.address, 8)
        put(rows, at + 8, frames.key, 4)
        put(rows, at + 12, frames.length, 4)
    elif frames.extension == AETH:
        rows[:, at] = frames.syndrome
        put(rows, at + 1, frames.msn, 3)
