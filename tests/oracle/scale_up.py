"""Messages inside a scale-up domain (MODEL 19)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.oracle.nic import Nic

END, BEGINNING = range(2)


def message_ps(size: int, rate_bps: int) -> int:
    """Time of a message on a link that carries bytes and nothing else, rounded up."""
    return -(-size * 8 * 10**12 // rate_bps)


class ScaleUp:
    """A host's way into its domain and out of it."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.simulator = nic.simulator
        self.plan = nic.plan
        self.rate_bps = self.plan.host_scale_up_rate_bps[nic.node]
        self.latency_ps = self.plan.host_scale_up_latency_ps[nic.node]
        self.out_free_ps = 0
        self.in_free_ps = 0
        self.inbound: list[tuple[int, int, int]] = []

    def next_due(self) -> int | None:
        return self.inbound[0][0] if self.inbound else None

    def post(self, op_id: int, now: int) -> int:
        """Start the message when those before it have left; the instant at which it has left."""
        receiver = self.plan.op_host[self.plan.op_peer[op_id]]
        assert receiver != self.nic.node
        assert self.plan.host_domain[receiver] == self.plan.host_domain[self.nic.node] >= 0
        start = max(now, self.out_free_ps)
        self.out_free_ps = start + message_ps(self.plan.op_bytes[op_id], self.rate_bps)
        self.simulator.operations[op_id].first_sent_ps = start
        peer = self.simulator.devices[receiver]
        heapq.heappush(peer.runner.scale_up.inbound, (start + self.latency_ps, BEGINNING, op_id))
        if start + self.latency_ps < self.simulator.next_event[receiver]:
            self.simulator.wake(receiver, start + self.latency_ps)
        return self.out_free_ps

    def receive(self, now: int) -> None:
        """All that begins to arrive, or has arrived, at this instant."""
        while self.inbound and self.inbound[0][0] <= now:
            at, what, op_id = heapq.heappop(self.inbound)
            assert at == now
            if what == BEGINNING:
                size = self.plan.op_bytes[op_id]
                sender = self.simulator.devices[self.plan.op_host[op_id]].runner.scale_up
                taken = max(now, self.in_free_ps) + message_ps(size, self.rate_bps)
                self.in_free_ps = max(taken, now + message_ps(size, sender.rate_bps))
                heapq.heappush(self.inbound, (self.in_free_ps, END, op_id))
            else:
                self.simulator.operations[op_id].delivered_ps = now
                self.simulator.counts["scale_up_messages"] += 1
                self.nic.runner.delivered(op_id, now)
