"""Times of bytes at a rate, exact for any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def bytes_ps(size_bytes: ArrayLike, rate_bps: ArrayLike) -> NDArray[np.int64]:
    """``ceil(size_bytes * 8e12 / rate_bps)`` element by element, of int64 that broadcast: ps.

    Sizes are up to 2^60 bytes, rates up to 9e14 bit/s; the result must fit itself.
    """
    rate = np.asarray(rate_bps, dtype=np.int64)
    # Four digits at a time: bytes x 8e12 does not fit 64 bits.
    total, rest = np.divmod(np.asarray(size_bytes, dtype=np.int64) * 8, rate)
    for _ in range(3):
        digits, rest = np.divmod(rest * 10**4, rate)
        total = total * 10**4 + digits
    result: NDArray[np.int64] = total + (rest > 0)
    return result
