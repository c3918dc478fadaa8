"""The use at which a dynamic threshold stops a priority group."""

from __future__ import annotations

Q16 = 1 << 16


def reached_bytes(pool_bytes: int, alpha_q16: int, congested: int) -> int:
    """Use of each of `congested` equal priority groups that fill a pool up to their dynamic threshold.

    The threshold is alpha times the free pool: T = alpha (P - k T), so T = alpha P / (1 + k alpha).
    """
    return pool_bytes * alpha_q16 // (Q16 + congested * alpha_q16)
