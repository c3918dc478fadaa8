"""Blocks of capture files.

Source: PCAP Next Generation (pcapng) capture file format, draft-ietf-opsawg-pcapng: section header, interface
description and enhanced packet blocks, little-endian.
"""

from __future__ import annotations

import struct

ETHERNET = 1
"""Link type."""
PACKET_HEAD_BYTES = 28
"""Enhanced packet block before the frame: type, length, interface, time stamp, captured and original length."""
PACKET_TYPE = 6
NANOSECONDS, PICOSECONDS = 9, 12
"""Resolutions of time stamps: negative powers of ten of a second."""

_SECTION_TYPE, _INTERFACE_TYPE, _BYTE_ORDER = 0x0A0D0D0A, 1, 0x1A2B3C4D
_OPTION_COMMENT, _SECTION_APPLICATION = 1, 4
_IF_NAME, _IF_DESCRIPTION, _IF_SPEED, _IF_TSRESOL, _IF_FCSLEN = 2, 3, 8, 9, 13
_OPTION_BYTES_MAX = 65_535


def section_block(application: str, comments: list[str]) -> bytes:
    """Section header block with the program that wrote it and comments."""
    options = b"".join(_option(_OPTION_COMMENT, comment.encode()) for comment in comments)
    options += _option(_SECTION_APPLICATION, application.encode()) + _option(0, b"")
    return _block(_SECTION_TYPE, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + options)


def interface_block(
    name: str, description: str, speed_bps: int, *, resolution: int = NANOSECONDS, snap_bytes: int = 0
) -> bytes:
    """Interface description block of an Ethernet interface whose frames come without FCS.

    Parameters
    ----------
    name, description
        What tools show.
    speed_bps
        Rate of the link.
    resolution
        `NANOSECONDS` or `PICOSECONDS`.
    snap_bytes
        Most bytes of a frame that are captured; 0 for all.
    """
    options = _option(_IF_NAME, name.encode()) + _option(_IF_DESCRIPTION, description.encode())
    options += _option(_IF_SPEED, struct.pack("<Q", speed_bps)) + _option(_IF_TSRESOL, bytes([resolution]))
    options += _option(_IF_FCSLEN, b"\0") + _option(0, b"")
    return _block(_INTERFACE_TYPE, struct.pack("<HHI", ETHERNET, 0, snap_bytes) + options)


def _option(code: int, value: bytes) -> bytes:
    value = value[:_OPTION_BYTES_MAX]
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)
