"""How a switch chooses inside an equal-cost set (MODEL 8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from fabemu.plan import (
    ACTION_LINK_DOWN,
    BALANCE_ECMP,
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    BALANCE_LEAST_LOADED_FLOW,
    BALANCE_SPRAY,
    BALANCE_WEIGHTED,
)
from tests.oracle.hashing import hash64, mix32
from tests.oracle.packet import DATA, Frame

if TYPE_CHECKING:
    from tests.oracle.switch import Switch

ONE_PATH = (BALANCE_ECMP, BALANCE_WEIGHTED)
"""Policies under which all packets of one queue pair and direction take one path."""


def divides_flows(plan: SimpleNamespace) -> bool:
    """Whether some switch may send packets of one queue pair by different ports."""
    one_path = ONE_PATH if ACTION_LINK_DOWN in plan.action_kind else (*ONE_PATH, BALANCE_LEAST_LOADED_FLOW)
    return any(policy not in one_path for policy in plan.switch_balance)


class Balance:
    """The policy of one switch."""

    def __init__(self, switch: Switch) -> None:
        plan = switch.plan
        self.switch = switch
        self.seed = plan.node_seed[switch.node]
        index = switch.node - plan.host_count
        self.policy = plan.switch_balance[index]
        self.gap_ps = plan.switch_flowlet_gap_ps[index]
        self.entries = plan.switch_flowlet_entries[index]
        self.remembered: dict[int, tuple[int, int]] = {}  # by QP or place of flowlets: port, and the last packet's time

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
        if self.policy == BALANCE_SPRAY:
            return members[self.draw(len(members), frame, now)]
        if self.policy == BALANCE_LEAST_LOADED:
            return self.least_loaded(members, frame, now)
        if self.policy == BALANCE_LEAST_LOADED_FLOW:
            place, gap_ps = frame.qp, None
        else:
            assert self.policy == BALANCE_FLOWLET
            place, gap_ps = hashed * self.entries >> 32, self.gap_ps
        port_id, last_ps = self.remembered.get(place, (-1, 0))
        late = gap_ps is not None and now - last_ps > gap_ps
        if late or port_id not in members or not self.is_up(port_id):
            port_id = self.least_loaded(members, frame, now)
        self.remembered[place] = port_id, now
        return port_id

    def is_up(self, port_id: int) -> bool:
        return self.switch.simulator.ports[port_id].is_up

    def load_ps(self, port_id: int, now: int) -> int:
        port = self.switch.simulator.ports[port_id]
        waiting = sum(queue.queue_bytes for queue in self.switch.queues[port.index])
        return max(port.busy_until_ps - now, 0) + waiting * 8 * 10**12 // port.rate_bps

    def least_loaded(self, members: list[int], frame: Frame, now: int) -> int:
        candidates = [member for member in members if self.is_up(member)] or members
        loads = [self.load_ps(member, now) for member in candidates]
        best = [member for member, load in zip(candidates, loads, strict=True) if load == min(loads)]
        self.switch.simulator.counts["choices_by_load"] += len(best) < len(candidates)
        return best[self.draw(len(best), frame, now)]

    def draw(self, count: int, frame: Frame, now: int) -> int:
        """A number below `count` that every packet draws anew."""
        return (hash64(frame.flow_hash ^ self.seed, frame.number, now) >> 32) * count >> 32
