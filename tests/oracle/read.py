"""Both ends of a QP that reads: the requester asks for packets, the responder sends them (MODEL 10 and 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.ops import DONE, POSTED
from tests.oracle.packet import READ, Frame, unwrap, wire_number
from tests.oracle.queue_pair import Connection, DataSink, DataSource, Message

if TYPE_CHECKING:
    from tests.oracle.nic import Nic

AGAIN = 8
"""Flag of a request for packets that were asked for before."""


class Requester(DataSink, Connection):
    """Asks for the packets of its messages, at most so many messages at a time."""

    def __init__(self, nic: Nic, qp: int) -> None:
        DataSink.__init__(self, nic, qp, nic.plan.qp_dst[qp])
        Connection.__init__(self, nic, qp)
        self.next = 0  # first packet that was not asked for yet
        self.nak_sent = False

    def posted(self, now: int) -> None:
        if not self.failed:
            self.request_more(now)

    def outstanding(self) -> list[Message]:
        """Messages asked for of which packets are missing."""
        return [message for message in self.messages.list if self.expected < message.end <= self.next]

    def request_more(self, now: int) -> None:
        available_end = self.messages.available_end()
        for message in self.messages.list:
            if not self.next == message.first < available_end:
                continue
            if len(self.outstanding()) >= self.nic.plan.read_outstanding_max:
                self.nic.simulator.counts["reads_held_back"] += 1
                break
            if self.expected == self.next:
                self.deadline_ps = now + self.rto_ps
            self.next = message.end
            self.request(message.first, again=False)
        self.verify()

    def request(self, first: int, again: bool) -> None:
        number = wire_number(self.nic.plan, first)
        frame = self.control_frame(READ, self.ack_class, number, AGAIN if again else 0)
        frame.count = self.next - first
        self.queue(frame)

    def receive(self, frame: Frame, now: int) -> None:
        if self.failed or self.expected == self.messages.end:
            return
        number = unwrap(self.nic.plan, frame.number, self.expected)
        assert number < self.next, "an answer to what was not asked for"
        self.see_mark(frame, now)
        if number == self.expected:
            message = self.messages.holding(number)
            self.expected += 1
            self.nak_sent = False
            self.retries = 0
            self.deadline_ps = None if self.expected == self.next else now + self.rto_ps
            if self.expected == message.end:
                operation = self.nic.simulator.operations[message.operation]
                operation.delivered_ps = now
                self.nic.runner.complete(operation, now)
                self.request_more(now)
        elif number > self.expected and not self.nak_sent:
            self.nak_sent = True
            self.request(self.expected, again=True)
        self.verify()

    def timeout(self, now: int) -> None:
        self.retries += 1
        self.nic.simulator.counts["timeouts"] += 1
        if self.retries > self.retry_count:
            self.fail(self.nic, self.messages, now)
        else:
            self.request(self.expected, again=True)
            self.deadline_ps = now + self.rto_ps

    def verify(self) -> None:
        assert 0 <= self.expected <= self.next <= self.messages.end
        assert len(self.outstanding()) <= self.nic.plan.read_outstanding_max
        assert self.failed or (self.deadline_ps is None) == (self.expected == self.next)
        for message in self.messages.list:
            operation = self.nic.simulator.operations[message.operation]
            assert (operation.status == DONE) == (message.end <= self.expected)
            assert operation.status != POSTED or not self.failed


class Responder(DataSource):
    """Sends what was asked for, without any wait for answers; knows nothing of a QP that it has served to its end."""

    def __init__(self, nic: Nic, qp: int) -> None:
        super().__init__(nic, qp, nic.plan.qp_src[qp])
        self.nxt = self.end = 0
        self.forgotten = False

    def next_number(self) -> int | None:
        return self.nxt if not self.forgotten and self.nxt < self.end else None

    def requested(self, frame: Frame, now: int) -> None:
        first = unwrap(self.nic.plan, frame.number, self.nxt)
        end = first + frame.count
        assert 0 <= first < end <= self.messages.end
        if frame.flags & AGAIN:
            if self.forgotten:
                self.nic.simulator.counts["revived_responders"] += 1
                self.restart()
                self.forgotten = False
                self.end = end
            self.end = max(self.end, end)
            self.nxt = first
        elif not self.forgotten and first == self.end:
            self.end = end
        self.judge(now)

    def passed(self, number: int, now: int) -> None:
        self.nxt = number + 1
        self.max = max(self.max, self.nxt)
        if self.nxt == self.messages.end:
            self.forgotten = True

    def congestion(self, now: int) -> None:
        if self.forgotten:
            return
        operation = self.messages.holding(max(self.nxt - 1, 0)).operation
        self.nic.simulator.operations[operation].cnps += 1
        self.control.notify(now)
