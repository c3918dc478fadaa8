"""Mixture of experts: who sends how many tokens to whom, and the matrices of dispatch and combine."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabemu.collectives.extent import extents


def balanced_copies(device_count: int, token_count: int, top_k: int) -> NDArray[np.int64]:
    """Copies of tokens from each device to each, if every expert is asked for equally often, (D, D).

    Tokens are spread evenly over the devices (`extents`), and each is sent to `top_k` experts. What does not divide
    goes one more to the devices that follow the sender, so that no device is favoured.

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """
    _check(device_count, token_count, top_k)
    device = np.arange(device_count, dtype=np.int64)
    _, tokens = extents(token_count, device_count)
    share, rest = np.divmod(tokens * top_k, device_count)
    behind = (device[None, :] - device[:, None] - 1) % device_count
    return share[:, None] + (behind < rest[:, None])


def drawn_experts(draws: ArrayLike, expert_count: int) -> NDArray[np.int64]:
    """Experts of each token, (T, k) different ones, every set of k equally likely.

    Parameters
    ----------
    draws
        (T, k) uniform numbers of [0, 1). The first picks one of all experts, the next one of those that are left.

    Raises
    ------
    ValueError
        There are fewer experts than a token is sent to, or a draw is outside [0, 1).
    """
    uniform = np.atleast_2d(np.asarray(draws, dtype=np.float64))
    top_k = uniform.shape[1]
    if not 1 <= top_k <= expert_count:
        raise ValueError(f"a token cannot be sent to {top_k} different experts of {expert_count}")
    if not ((uniform >= 0) & (uniform < 1)).all():
        raise ValueError("draws must be at least 0 and below 1")
    chosen = np.empty(uniform.shape, dtype=np.int64)
    for pick in range(top_k):
        left = expert_count - pick
        expert = np.minimum((uniform[:, pick] * left).astype(np.int64), left - 1)
        # From the place among the experts that are left to the number among all of them.
        for taken in np.sort(chosen[:, :pick], axis=1).T:
            expert += expert >= taken
        chosen[:, pick] = expert
    return chosen


def drawn_copies(
    draws: ArrayLike, device_count: int, expert_count: int, *, once_per_device: bool = False
) -> NDArray[np.int64]:
    """Copies of tokens from each device to each, if experts are drawn, (D, D).

    Parameters
    ----------
    draws
        (T, k) as for `drawn_experts`; the tokens lie on the devices in their order, spread evenly.
    expert_count
        A multiple of the devices; expert e is on device `e // (expert_count // device_count)`.
    once_per_device
        Whether a token that several experts of a device ask for is sent there once only.

    Raises
    ------
    ValueError
        A parameter is out of its range, or the experts are not spread evenly.
    """
    experts = drawn_experts(draws, expert_count)
    _check(device_count, len(experts), experts.shape[1])
    if expert_count % device_count:
        raise ValueError(
            f"{expert_count} experts are not spread evenly over {device_count} devices; "
            f"take {-(-expert_count // device_count) * device_count}"
        )
    target = np.sort(experts // (expert_count // device_count), axis=1)
    _, tokens = extents(len(experts), device_count)
    pair = np.repeat(np.arange(device_count, dtype=np.int64), tokens)[:, None] * device_count + target
    keep = np.ones(pair.shape, dtype=np.bool_)
    if once_per_device:
        keep[:, 1:] = target[:, 1:] != target[:, :-1]
    return np.bincount(pair[keep], minlength=device_count**2).reshape(device_count, device_count)


def dispatch_matrix(copies: ArrayLike, width: int, element_bytes: int) -> NDArray[np.int64]:
    """Bytes from each device to each when tokens go to their experts: `width` elements a copy; for `all_to_all_uneven`.

    The diagonal is what stays on its device. With 2^20 tokens on 64 devices, top-2, width 4096 and 2 bytes an element,
    balanced, every device sends 264,241,152 bytes.
    """
    return np.asarray(copies, dtype=np.int64) * (width * element_bytes)


def combine_matrix(copies: ArrayLike, width: int, element_bytes: int) -> NDArray[np.int64]:
    """Bytes from each device to each when results come back: the dispatch the other way round.

    A device sends one result for each copy it got; with copies that were sent once per device it adds the results of
    its experts before.
    """
    return dispatch_matrix(copies, width, element_bytes).T.copy()


def _check(device_count: int, token_count: int, top_k: int) -> None:
    for name, value, least in (("device_count", device_count, 1), ("token_count", token_count, 0), ("top_k", top_k, 1)):
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")
