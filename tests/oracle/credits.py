"""Credits of one end of a link: what this port may send, and what it has to give back to its peer.

Totals are absolute, in blocks of 64 bytes, by class; a class is a virtual lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.packet import CREDIT, NUMBER_MASK, Frame, ceil_div, control_bytes

if TYPE_CHECKING:
    from tests.oracle.device import Port

BLOCK_BYTES = 64
CREDIT_REPEATS = 16


def blocks(frame: Frame) -> int:
    return ceil_div(frame.frame_bytes, BLOCK_BYTES)


class Credits:
    """Both halves of credit flow control at one port."""

    def __init__(self, port: Port) -> None:
        plan = port.simulator.plan
        self.port = port
        self.simulator = port.simulator
        classes = range(port.simulator.class_count)
        lanes = [plan.pq_credit_bytes[port.peer_id * len(classes) + class_id] for class_id in classes]
        assert all(lane % BLOCK_BYTES == 0 for lane in lanes)
        # Towards the peer.
        self.capacity = [lane // BLOCK_BYTES for lane in lanes]
        self.sent = [0 for _ in classes]
        self.freed_known = [0 for _ in classes]
        # From the peer.
        self.freed = [0 for _ in classes]
        self.is_pending = False
        self.interval_ps = plan.port_credit_refresh_ps[port.id]
        self.refresh_ps: int | None = None
        self.repeats = 0

    def can_send(self, class_id: int, frame_bytes: int) -> bool:
        outstanding = self.sent[class_id] - self.freed_known[class_id]
        return outstanding + ceil_div(frame_bytes, BLOCK_BYTES) <= self.capacity[class_id]

    def spend(self, frame: Frame) -> None:
        assert self.can_send(frame.class_id, frame.frame_bytes), "a frame starts without credits"
        self.sent[frame.class_id] += blocks(frame)

    def free(self, frame: Frame) -> None:
        """A frame that came in here has left its buffer."""
        self.freed[frame.class_id] += blocks(frame)
        if self.port.is_up:
            self.is_pending = True
            self.repeats = 0

    def learn(self, totals: tuple[int, ...]) -> None:
        """A credit frame has arrived."""
        for class_id, total in enumerate(totals):
            assert self.freed_known[class_id] <= total <= self.sent[class_id], "credits out of nothing"
            self.freed_known[class_id] = total

    def run_timer(self, now: int) -> None:
        if self.refresh_ps == now:
            self.refresh_ps = None
            if not self.is_pending:
                self.is_pending = True
                self.repeats += 1
                self.simulator.counts["credit_refreshes"] += 1

    def send(self, now: int) -> None:
        totals = tuple(self.freed)
        self.is_pending = False
        repeats = self.interval_ps > 0 and self.repeats < CREDIT_REPEATS
        self.refresh_ps = now + self.interval_ps if repeats else None
        size = control_bytes(self.simulator.plan, CREDIT)
        self.port.transmit(Frame(CREDIT, 0, size, number=sum(totals) & NUMBER_MASK, totals=totals), now)

    def link_down(self) -> None:
        self.is_pending = False
        self.refresh_ps = None

    def link_up(self) -> None:
        """The two ends of the link agree again on what this one has freed."""
        self.is_pending = False
        self.refresh_ps = None
        self.repeats = 0
        peer = self.simulator.ports[self.port.peer_id].credits
        assert peer is not None
        peer.learn(tuple(self.freed))

    def verify(self, flying: list[int], held: list[int]) -> None:
        """What the peer has sent and this end has not freed is on the wire or in the buffer, and fits it."""
        peer = self.simulator.ports[self.port.peer_id].credits
        assert peer is not None
        for class_id, sent in enumerate(peer.sent):
            outstanding = sent - self.freed[class_id]
            assert 0 <= outstanding <= peer.capacity[class_id], "more credits than buffer"
            assert outstanding == flying[class_id] + held[class_id], "credits are not conserved"
            assert peer.freed_known[class_id] <= self.freed[class_id]
