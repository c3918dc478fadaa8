"""Frames: their sizes, their time on the wire and what they carry (MODEL 1 and 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

DATA, ACK, NAK, CNP, PFC = range(5)
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
    birth: int = -1  # order of first transmission over the whole run, to see overtaking


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def wire_ps(plan: SimpleNamespace, frame_bytes: int, rate_bps: int) -> int:
    """Time that one frame occupies a link, or the gap of a paced QP at its rate."""
    size = frame_bytes + plan.wire_overhead_bytes
    if plan.truncate_ns:
        seconds = float(size * 8) / float(rate_bps)
        return (int(math.ldexp(seconds, 64)) * 10**9 >> 64) * 1000
    return ceil_div(size * 8 * 10**12, rate_bps)


def data_bytes(plan: SimpleNamespace, payload: int, is_first: bool) -> int:
    padded = ceil_div(payload, plan.pad_bytes) * plan.pad_bytes
    return max(plan.frame_min_bytes, padded + plan.header_bytes + (plan.reth_bytes if is_first else 0))


def control_bytes(plan: SimpleNamespace, kind: int) -> int:
    size = {ACK: plan.ack_bytes, NAK: plan.ack_bytes, CNP: plan.cnp_bytes, PFC: plan.pfc_bytes}[kind]
    return max(plan.frame_min_bytes, size)


def packet_count(plan: SimpleNamespace, message_bytes: int) -> int:
    return max(1, ceil_div(message_bytes, plan.mtu_bytes))
