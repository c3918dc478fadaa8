"""Selective repeat, after IRN (Mittal et al., SIGCOMM 2018): every packet that comes too early is kept and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.packet import ACK, NAK, Frame, unwrap, wire_number
from tests.oracle.queue_pair import Receiver, Sender

if TYPE_CHECKING:
    from tests.oracle.nic import Nic


class SelectiveSender(Sender):
    """Sends again only what the receiver lacks: `una`, and what is below a packet that it has."""

    def __init__(self, nic: Nic, qp: int) -> None:
        super().__init__(nic, qp)
        self.limit = min(self.limit, nic.plan.nic_selective_window[self.profile])
        self.sacked: set[int] = set()
        self.reorder = nic.plan.nic_reorder[self.profile]
        self.recovery_end: int | None = None  # in recovery until `una` is here
        self.after_timeout = False  # the recovery
        self.repeat_from = 0

    def lost_number(self) -> int | None:
        """The lowest packet that is to be sent again, in recovery."""
        if self.recovery_end is None:
            return None
        highest = max(self.sacked, default=-1)
        for number in range(max(self.repeat_from, self.una), self.max):
            if number not in self.sacked and self.is_lost(number, highest):
                return number
        return None

    def is_lost(self, number: int, highest: int) -> bool:
        """Of a packet that is not sacked, in recovery."""
        if self.after_timeout or self.reorder == 1:
            return number == self.una or number < highest
        return number + self.reorder <= highest

    def next_number(self) -> int | None:
        if self.failed:
            return None
        lost = self.lost_number()
        return super().next_number() if lost is None else lost

    def passed(self, number: int, now: int) -> None:
        assert number not in self.sacked, "a packet that the receiver has is sent again"
        if number < self.max:
            self.repeat_from = number + 1
        else:
            super().passed(number, now)

    def advanced(self) -> None:
        self.sacked = {number for number in self.sacked if number >= self.una}
        assert self.una not in self.sacked, "the receiver lacks a packet that it has named"
        if self.recovery_end is not None and self.una >= self.recovery_end:
            self.recovery_end = None

    def missing(self, frame: Frame, now: int) -> None:
        sack = unwrap(self.nic.plan, frame.sack, self.una)
        assert self.una < sack < self.max
        self.sacked.add(sack)
        if self.recovery_end is None and self.una + self.reorder <= max(self.sacked):
            self.recover(after_timeout=False)
        self.nic.simulator.counts["patience"] += self.recovery_end is None

    def repeat(self) -> None:
        self.recover(after_timeout=True)

    def recover(self, *, after_timeout: bool) -> None:
        """Go into recovery."""
        self.nic.simulator.counts["recoveries"] += 1
        self.after_timeout = after_timeout
        self.recovery_end = self.max
        self.repeat_from = self.una


class SelectiveReceiver(Receiver):
    """Keeps what comes too early."""

    def __init__(self, nic: Nic, qp: int) -> None:
        super().__init__(nic, qp)
        self.window = nic.plan.nic_selective_window[nic.plan.host_nic[nic.node]]
        self.kept: set[int] = set()

    def in_order(self, frame: Frame, echo: bool, now: int) -> None:
        passed_last = self.take(now)
        while self.expected in self.kept:
            self.kept.remove(self.expected)
            passed_last |= self.take(now)
        assert all(number > self.expected for number in self.kept)
        if passed_last or self.since_ack >= self.ack_every:
            self.answer(ACK, echo)

    def too_early(self, frame: Frame, number: int, echo: bool) -> None:
        assert number - self.expected < self.window, "a packet is beyond the receiver's bitmap"
        self.kept.add(number)
        self.answer(NAK, echo, wire_number(self.nic.plan, number))

    def replaceable(self, waiting: Frame) -> bool:
        """Only an ACK: each NAK names a packet, and no other frame will name it."""
        return waiting.kind == ACK
