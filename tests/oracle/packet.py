"""Frames: their sizes, their time on the wire and what they carry (MODEL 1 and 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

DATA, ACK, NAK, CNP, PFC, READ, CREDIT = range(7)
LINK_FRAMES = (PFC, CREDIT)
"""Kinds that live on one link: never buffered, paused, marked or counted as packets."""
CE, FIRST, LAST, ECHO = 1, 2, 4, 8
NUMBER_MASK = 2**24 - 1


@dataclass(slots=True, eq=False)
class Frame:
    """One frame; the same object walks through every hop."""

    kind: int
    class_id: int
    frame_bytes: int
    qp: int = -1
    number: int = 0  # 24 bits as on the wire; the XOFF mask of a PFC frame
    flags: int = 0
    destination: int = -1  # host
    flow_hash: int = 0
    count: int = 0  # of a READ request: packets that are asked for
    sack: int = 0  # of a NAK of selective repeat: 24-bit number of the packet that came
    birth: int = -1  # order of first transmission over the whole run, to see overtaking
    corrupt: bool = False  # lost on the link it is on
    totals: tuple[int, ...] = ()  # of a credit frame: freed blocks of every class


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def wire_ps(plan: SimpleNamespace, frame_bytes: int, rate_bps: int) -> int:
    """Time that one frame occupies a link, or the gap of a paced QP at its rate."""
    size = frame_bytes + plan.wire_overhead_bytes
    if plan.truncate_ns:
        seconds = float(size * 8) / float(rate_bps)
        return (int(math.ldexp(seconds, 64)) * 10**9 >> 64) * 1000
    return ceil_div(size * 8 * 10**12, rate_bps)


def data_bytes(plan: SimpleNamespace, payload: int, extension_bytes: int) -> int:
    padded = ceil_div(payload, plan.pad_bytes) * plan.pad_bytes
    return max(plan.frame_min_bytes, padded + plan.header_bytes + extension_bytes)


def control_bytes(plan: SimpleNamespace, kind: int) -> int:
    size = {
        ACK: plan.ack_bytes,
        NAK: plan.ack_bytes,
        CNP: plan.cnp_bytes,
        PFC: plan.pfc_bytes,
        READ: plan.read_request_bytes,
        CREDIT: plan.credit_bytes,
    }[kind]
    return max(plan.frame_min_bytes, size)


def wire_number(plan: SimpleNamespace, number: int) -> int:
    """The packet number as the frame carries it."""
    return (number + plan.psn_start) & NUMBER_MASK


def unwrap(plan: SimpleNamespace, wire: int, near: int) -> int:
    """The packet number nearest to `near` that a frame carries as `wire`."""
    return near + (wire - plan.psn_start - near + 2**23) % 2**24 - 2**23


def packet_count(plan: SimpleNamespace, message_bytes: int) -> int:
    return max(1, ceil_div(message_bytes, plan.mtu_bytes))
