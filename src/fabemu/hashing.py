"""Keyed hashes of MODEL section 2, vectorised.

Every random choice of a run is a function of its key, so nothing depends on what was drawn before. The compiled
core has the same functions; equal keys give equal values here and there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

STREAM_TIE, STREAM_ECN, STREAM_QP, STREAM_ECMP = 1, 2, 3, 4
"""Streams: order of equal-time events, ECN draws, UDP source ports of QPs, ECMP seeds of switches."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _unsigned64(value: ArrayLike | int) -> NDArray[np.uint64]:
    """Two's complement view of integers as at least one-dimensional uint64: Python ints wrap too."""
    if isinstance(value, int):
        return np.array([value & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    return np.atleast_1d(np.asarray(value)).astype(np.uint64)


def mix64(x: ArrayLike | int) -> NDArray[np.uint64]:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014) of each value; at least one-dimensional."""
    h = _unsigned64(x)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def hash64(*values: ArrayLike | int) -> NDArray[np.uint64]:
    """Hash of the key `values`, element by element: scalars and arrays broadcast against each other.

    Returns an array of at least one dimension; `hash64(1, 2)[0]` is the hash of a scalar key.
    """
    total = np.zeros(1, dtype=np.uint64)
    for value in values:
        total = mix64((total ^ _unsigned64(value)) + _GOLDEN)
    return total


def mix32(x: ArrayLike | int) -> NDArray[np.uint32]:
    """Finaliser of 32-bit murmur3 of each value; at least one-dimensional."""
    h = low32(_unsigned64(x))
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def low32(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Low 32 bits of 64-bit hashes."""
    return (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
