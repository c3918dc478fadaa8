"""Confidence limits of percentiles, whatever the distribution: which ranks bound them."""

from __future__ import annotations

import numpy as np

from fabemu.errors import InputError


def limit_ranks(percent: float, counts: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of the values between which a percentile of the distribution lies with a confidence.

    Of n independent draws, the number B below a quantile p is binomial: the value of rank l lies above it with
    probability P(B < l), that of rank u below it with P(B >= u). The ranks are the innermost for which each of the two
    is at most (1 - confidence) / 2; no property of the distribution enters. Where values repeat they are on the safe
    side (Hahn and Meeker, Statistical Intervals, 5.2; David and Nagaraja, Order Statistics, 7.1).

    Parameters
    ----------
    percent
        Which percentile, between 0 and 100.
    counts
        (n,) int64 numbers of values.
    confidence
        Above 0, below 1.

    Returns
    -------
    (n,) int64, (n,) int64
        Ranks from 1 of the lower and the upper limit; 0 where no rank gives the confidence, such as for the upper limit
        of the 99.9th percentile of 100 values.

    Raises
    ------
    InputError
        The confidence or the percentile is out of range, or SciPy is not installed.
    """
    if not 0 < confidence < 1:
        raise InputError(f"a confidence of {confidence:g} is not between 0 and 1, such as 0.95")
    if not 0 < percent < 100:
        raise InputError(f"the percentile {percent:g} has no confidence limits; it must be between 0 and 100")
    try:
        from scipy.special import betainc
    except ImportError:
        raise InputError(
            "confidence limits need SciPy: pip install 'fabemu[analysis]'; or ask for none with confidence=None"
        ) from None
    share, tail = percent / 100, (1 - confidence) / 2
    distinct, place = np.unique(np.asarray(counts, dtype=np.int64), return_inverse=True)

    def least(rank_is_enough) -> np.ndarray:
        """Least rank in 1..n + 1 from which on a condition holds."""
        low, high = np.ones_like(distinct), distinct + 1
        while (low < high).any():
            middle = (low + high) // 2
            enough = (middle > distinct) | rank_is_enough(np.minimum(middle, np.maximum(distinct, 1)))
            high = np.where(enough & (low < high), middle, high)
            low = np.where(~enough & (low < high), middle + 1, low)
        return low

    size = np.maximum(distinct, 1)
    # P(B >= r) is the regularised incomplete beta function I_p(r, n - r + 1).
    upper = least(lambda rank: betainc(rank, size - rank + 1.0, share) <= tail)
    lower = least(lambda rank: betainc(size - rank + 1.0, rank, 1 - share) > tail) - 1
    upper[upper > distinct] = 0
    return lower[place.reshape(-1)], upper[place.reshape(-1)]
