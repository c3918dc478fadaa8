"""Both ends of a reliable connection that writes or sends: go-back-N (MODEL 10 and 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.dcqcn import congestion_control
from tests.oracle.ops import DONE, FAILED
from tests.oracle.packet import (
    ACK,
    CE,
    CNP,
    DATA,
    ECHO,
    FIRST,
    LAST,
    NAK,
    NUMBER_MASK,
    Frame,
    control_bytes,
    data_bytes,
    packet_count,
    wire_ps,
)

if TYPE_CHECKING:
    from tests.oracle.nic import Nic
    from tests.oracle.simulator import Simulator

NOTIFY_ECHO = 1


def unwrap(number: int, near: int) -> int:
    """The packet number nearest to `near` whose low 24 bits are `number`."""
    return near + (number - near + 2**23) % 2**24 - 2**23


@dataclass(frozen=True)
class Message:
    """Packets first..end-1 of a QP."""

    operation: int
    message_bytes: int
    first: int
    end: int


class Messages:
    """The whole list of one QP, known to both of its ends."""

    def __init__(self, simulator: Simulator, qp: int) -> None:
        plan = simulator.plan
        self.list: list[Message] = []
        end = 0
        for op_id in plan.qp_op[plan.qp_op_start[qp] : plan.qp_op_start[qp + 1]]:
            first = end
            end += packet_count(plan, plan.op_bytes[op_id])
            self.list.append(Message(op_id, plan.op_bytes[op_id], first, end))
        self.end = end

    def holding(self, number: int) -> Message | None:
        return next((message for message in self.list if message.first <= number < message.end), None)


class Sender:
    """Sending half of a QP."""

    def __init__(self, nic: Nic, qp: int) -> None:
        plan = nic.plan
        self.nic = nic
        self.id = qp
        self.class_id = plan.qp_class[qp]
        self.destination = plan.qp_dst[qp]
        self.flow_hash = plan.qp_hash[qp]
        self.messages = nic.simulator.messages[qp]
        profile = plan.host_nic[nic.node]
        self.window = plan.nic_window_packets[profile]
        self.rto_ps = plan.nic_rto_ps[profile]
        self.retry_count = plan.nic_retry_count[profile]
        self.port = nic.route(self.destination, self.flow_hash)
        self.control = congestion_control(plan, profile, self.port.rate_bps)
        self.una = self.nxt = self.max = 0
        self.available_end = 0
        self.next_send_ps = 0
        self.ready_ps: int | None = None  # None: not sendable
        self.deadline_ps: int | None = None
        self.retries = 0
        self.failed = False

    def judge(self, now: int) -> None:
        """Follow whether the QP is sendable, and since when; called after every change."""
        sendable = (
            not self.failed
            and self.nxt < self.available_end
            and (self.window == 0 or self.nxt - self.una < self.window)
            and self.nxt - self.una < 2**23
        )
        if not sendable:
            self.ready_ps = None
        elif self.ready_ps is None:
            self.ready_ps = max(self.next_send_ps, now)
        assert 0 <= self.una <= self.nxt <= self.max <= self.available_end
        assert self.failed or (self.deadline_ps is None) == (self.una == self.max)

    def posted(self, now: int) -> None:
        operations = self.nic.simulator.operations
        for message in self.messages.list:
            if operations[message.operation].posted_ps < 0:
                break
            self.available_end = message.end
        self.judge(now)

    def send(self, now: int) -> Frame:
        plan = self.nic.plan
        message = self.messages.holding(self.nxt)
        assert message is not None
        operation = self.nic.simulator.operations[message.operation]
        is_first = self.nxt == message.first
        is_last = self.nxt == message.end - 1
        before = (self.nxt - message.first) * plan.mtu_bytes
        payload = min(plan.mtu_bytes, message.message_bytes - before)
        frame = Frame(
            DATA,
            self.class_id,
            data_bytes(plan, payload, is_first),
            self.id,
            self.nxt & NUMBER_MASK,
            (FIRST if is_first else 0) | (LAST if is_last else 0),
            self.destination,
            self.flow_hash,
        )
        operation.packets += 1
        if self.nxt < self.max:
            operation.retransmissions += 1
        if is_first and operation.first_sent_ps < 0:
            operation.first_sent_ps = now
        self.control.catch_up(now)
        self.next_send_ps = now + wire_ps(plan, frame.frame_bytes, self.control.rate_bps)
        self.control.sent(frame.frame_bytes)
        if self.una == self.max:
            self.deadline_ps = now + self.rto_ps
        self.nxt += 1
        self.max = max(self.max, self.nxt)
        self.ready_ps = None
        self.judge(now)
        return frame

    def congestion(self, now: int) -> None:
        """A CNP, or an echo on an ACK."""
        if self.failed or self.una == self.messages.end:
            return
        message = self.messages.holding(self.una)
        assert message is not None
        self.nic.simulator.operations[message.operation].cnps += 1
        self.control.notify(now)

    def acknowledged(self, frame: Frame, now: int) -> None:
        if self.failed:
            return
        if frame.flags & ECHO:
            self.congestion(now)
        number = unwrap(frame.number, self.una)
        advances = self.una < number <= self.max
        if advances:
            old, self.una = self.una, number
            self.retries = 0
            self.nxt = max(self.nxt, number)
            self.deadline_ps = None if self.una == self.max else now + self.rto_ps
            self.judge(now)
            for message in self.messages.list:
                if old < message.end <= number:
                    self.nic.runner.complete(self.nic.simulator.operations[message.operation], now)
        if frame.kind == NAK and (advances or number == self.una) and self.una < self.max:
            self.nxt = self.una
            self.deadline_ps = now + self.rto_ps
            self.judge(now)

    def timeout(self, now: int) -> None:
        self.retries += 1
        self.nic.simulator.counts["timeouts"] += 1
        if self.retries > self.retry_count:
            self.fail(now)
        else:
            self.nxt = self.una
            self.deadline_ps = now + self.rto_ps
        self.judge(now)

    def fail(self, now: int) -> None:
        self.failed = True
        self.nic.simulator.counts["failed_qps"] += 1
        self.deadline_ps = None
        for message in self.messages.list:
            operation = self.nic.simulator.operations[message.operation]
            if operation.status != DONE:
                operation.status = FAILED
                operation.done_ps = now


class Receiver:
    """Receiving half of a QP."""

    def __init__(self, nic: Nic, qp: int) -> None:
        plan = nic.plan
        self.nic = nic
        self.id = qp
        self.sender_host = plan.qp_src[qp]
        self.flow_hash = plan.qp_ack_hash[qp]
        self.ack_class = plan.class_ack[plan.qp_class[qp]]
        self.messages = nic.simulator.messages[qp]
        profile = plan.host_nic[nic.node]
        self.echoes = plan.nic_notify[profile] == NOTIFY_ECHO
        self.ack_every = plan.nic_ack_every[profile]
        self.cnp_interval_ps = plan.nic_cnp_interval_ps[profile]
        self.port = nic.route(self.sender_host, self.flow_hash)
        self.expected = 0
        self.since_ack = 0
        self.nak_sent = False
        self.last_cnp_ps: int | None = None

    def receive(self, frame: Frame, now: int) -> None:
        if self.expected == self.messages.end:
            self.answer(ACK, echo=False)
            return
        number = unwrap(frame.number, self.expected)
        message = self.messages.holding(self.expected)
        assert message is not None
        operation = self.nic.simulator.operations[message.operation]
        marked = bool(frame.flags & CE)
        if marked:
            operation.marks += 1
            if not self.echoes and (self.last_cnp_ps is None or now - self.last_cnp_ps >= self.cnp_interval_ps):
                self.queue(CNP, self.nic.plan.cnp_class, 0, 0)
                self.last_cnp_ps = now
        echo = marked and self.echoes
        if number == self.expected:
            self.expected += 1
            self.nak_sent = False
            self.since_ack += 1
            is_last = self.expected == message.end
            assert is_last == bool(frame.flags & LAST)
            if is_last:
                operation.delivered_ps = now
                self.nic.runner.delivered(operation.id, now)
            if is_last or self.since_ack >= self.ack_every:
                self.answer(ACK, echo)
        elif number < self.expected:
            self.answer(ACK, echo)
        elif not self.nak_sent:
            self.nak_sent = True
            self.answer(NAK, echo)

    def answer(self, kind: int, echo: bool) -> None:
        """Queue an ACK or NAK of `expected`, in place of one of this QP that still waits."""
        self.since_ack = 0
        for waiting in self.nic.control[self.port.index][self.ack_class]:
            if waiting.qp == self.id and waiting.kind in (ACK, NAK):
                self.nic.simulator.counts["merged_answers"] += 1
                waiting.kind = kind
                waiting.number = self.expected & NUMBER_MASK
                waiting.flags |= ECHO if echo else 0
                return
        self.queue(kind, self.ack_class, self.expected & NUMBER_MASK, ECHO if echo else 0)

    def queue(self, kind: int, class_id: int, number: int, flags: int) -> None:
        size = control_bytes(self.nic.plan, kind)
        frame = Frame(kind, class_id, size, self.id, number, flags, self.sender_host, self.flow_hash)
        self.nic.control[self.port.index][class_id].append(frame)
