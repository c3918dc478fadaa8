"""How a switch chooses inside an equal-cost set (MODEL 8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from fabemu.plan import BALANCE_ECMP, BALANCE_WEIGHTED
from tests.oracle.hashing import hash64, mix32
from tests.oracle.packet import DATA, Frame

if TYPE_CHECKING:
    from tests.oracle.switch import Switch

ONE_PATH = (BALANCE_ECMP, BALANCE_WEIGHTED)
"""Policies under which all packets of one queue pair and direction take one path."""


def divides_flows(plan: SimpleNamespace) -> bool:
    """Whether some switch may send packets of one queue pair by different ports."""
    return any(policy not in ONE_PATH for policy in plan.switch_balance)


class Balance:
    """The policy of one switch."""

    def __init__(self, switch: Switch) -> None:
        plan = switch.plan
        self.switch = switch
        self.seed = plan.node_seed[switch.node]
        self.policy = plan.switch_balance[switch.node - plan.host_count]

    def choose(self, members: list[int], weights: list[int], frame: Frame, now: int) -> int:
        """The port id, of several with their weights."""
        hashed = mix32(frame.flow_hash ^ self.seed)
        if self.policy == BALANCE_WEIGHTED:
            drawn = hashed * sum(weights) >> 32
            total = 0
            for member, weight in zip(members, weights, strict=True):
                total += weight
                if drawn < total:
                    return member
            raise AssertionError("a draw beyond all weights")
        if self.policy == BALANCE_ECMP or frame.kind != DATA:
            return members[hashed * len(members) >> 32]
        return members[self.draw(len(members), frame, now)]

    def draw(self, count: int, frame: Frame, now: int) -> int:
        """A number below `count` that every packet draws anew."""
        return (hash64(frame.flow_hash ^ self.seed, frame.number, now) >> 32) * count >> 32
