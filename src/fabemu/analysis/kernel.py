"""Loops over rows, compiled by Numba when they are first called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop; what was compiled is kept beside its source for the next process, if that can be written."""
    try:
        return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no place for the cache
        return njit(nogil=True)(function)  # type: ignore[no-any-return]
