"""Load balancing of the switches, and the weights of their next hops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.routes import Tables
from fabemu.plan import (
    BALANCE_ECMP,
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    BALANCE_LEAST_LOADED_FLOW,
    BALANCE_SPRAY,
    BALANCE_WEIGHTED,
)
from fabemu.scenario.device import Switch

POLICIES = {
    "ecmp": BALANCE_ECMP,
    "weighted": BALANCE_WEIGHTED,
    "spray": BALANCE_SPRAY,
    "flowlet": BALANCE_FLOWLET,
    "least-loaded": BALANCE_LEAST_LOADED,
    "least-loaded-flow": BALANCE_LEAST_LOADED_FLOW,
}
"""Values of `switch.load_balancing`."""

WEIGHT_MAX = 65_535
"""Greatest weight of a next hop: those of a set, at most 65,535 of them, add up to less than 2^32."""


def compile_balance(switches: Sequence[Switch], tables: Tables, rate_bps: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Work out the policy of every switch and the weights of next hops.

    Parameters
    ----------
    switches
        Their parameters, in order of node.
    tables
        The routes.
    rate_bps
        (P,) rate of every port.

    Returns
    -------
    dict
        Fields of `Plan` by name; none where all switches do as in the default.
    """
    policies = np.array([POLICIES[switch.load_balancing] for switch in switches], dtype=np.uint8)
    fields: dict[str, NDArray[Any]] = {}
    if (policies != BALANCE_ECMP).any():
        fields["switch_balance"] = policies
    flowlets = policies == BALANCE_FLOWLET
    if flowlets.any():
        fields["switch_flowlet_gap_ps"] = np.where(flowlets, [switch.flowlet_gap for switch in switches], 0)
        fields["switch_flowlet_entries"] = np.where(flowlets, [switch.flowlet_entries for switch in switches], 0)
    if (policies == BALANCE_WEIGHTED).any():
        fields["nexthop_weight"] = rate_weights(tables.nexthop_start, rate_bps[tables.nexthop_port])
    return fields


def rate_weights(start: NDArray[np.int32], rate_bps: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Weights of the members of equal-cost sets, in proportion to their rates.

    Parameters
    ----------
    start
        (sets + 1,) where each set begins.
    rate_bps
        Rate of every member.

    Returns
    -------
    numpy.ndarray
        uint32, 1 to 65,535 each: multiples of the greatest common divisor of the rates of a set if that is enough, else
        rounded, with 65,535 for the fastest.
    """
    if not len(rate_bps):
        return np.zeros(0, dtype=np.uint32)
    first, size = start[:-1], np.diff(start)
    weights = rate_bps // np.repeat(np.gcd.reduceat(rate_bps, first), size)
    greatest = np.repeat(np.maximum.reduceat(weights, first), size)
    rounded = np.maximum(1, np.rint(weights * (WEIGHT_MAX / greatest)))
    return np.where(greatest <= WEIGHT_MAX, weights, rounded).astype(np.uint32)
