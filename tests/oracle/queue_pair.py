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
    Frame,
    control_bytes,
    data_bytes,
    packet_count,
    unwrap,
    wire_number,
    wire_ps,
)

if TYPE_CHECKING:
    from tests.oracle.nic import Nic
    from tests.oracle.simulator import Simulator

NOTIFY_ECHO = 1
VERB_WRITE, VERB_SEND, VERB_READ = range(3)
EVENT_QP_ERROR = 19


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
        self.plan = plan
        self.qp = qp
        self.operations = simulator.operations
        self.verb = plan.qp_verb[qp]
        self.list: list[Message] = []
        end = 0
        for op_id in plan.qp_op[plan.qp_op_start[qp] : plan.qp_op_start[qp + 1]]:
            first = end
            end += packet_count(plan, plan.op_bytes[op_id])
            self.list.append(Message(op_id, plan.op_bytes[op_id], first, end))
        self.end = end

    def holding(self, number: int) -> Message:
        return next(message for message in self.list if message.first <= number < message.end)

    def available_end(self) -> int:
        """Packets of the messages that are posted, up to the first that is not."""
        end = 0
        for message in self.list:
            if self.operations[message.operation].posted_ps < 0:
                break
            end = message.end
        return end

    def frame(self, number: int) -> Frame:
        """The data frame with a packet number."""
        plan = self.plan
        message = self.holding(number)
        is_first, is_last = number == message.first, number == message.end - 1
        payload = min(plan.mtu_bytes, message.message_bytes - (number - message.first) * plan.mtu_bytes)
        extension = 0
        if self.verb == VERB_WRITE and is_first:
            extension = plan.reth_bytes
        elif self.verb == VERB_READ and (is_first or is_last):
            extension = plan.aeth_bytes
        return Frame(
            DATA,
            plan.qp_class[self.qp],
            data_bytes(plan, payload, extension),
            self.qp,
            wire_number(plan, number),
            (FIRST if is_first else 0) | (LAST if is_last else 0),
            plan.qp_src[self.qp] if self.verb == VERB_READ else plan.qp_dst[self.qp],
            plan.qp_hash[self.qp],
        )


class DataSource:
    """The end of a QP that sends its data packets; what to send next is up to the kind of end."""

    def __init__(self, nic: Nic, qp: int, destination: int) -> None:
        plan = nic.plan
        self.nic = nic
        self.id = qp
        self.class_id = plan.qp_class[qp]
        self.messages = nic.simulator.messages[qp]
        self.profile = plan.host_nic[nic.node]
        self.port = nic.route(destination, plan.qp_hash[qp])
        self.max = 0  # packets below it have been sent before
        self.restart()

    def restart(self) -> None:
        """The state of a QP that has not sent anything."""
        self.control = congestion_control(self.nic.plan, self.profile, self.port.rate_bps)
        self.next_send_ps = 0
        self.ready_ps: int | None = None  # None: not sendable

    def next_number(self) -> int | None:
        """The packet that a transmit choice would send, None if the QP is not sendable."""
        raise NotImplementedError

    def passed(self, number: int, now: int) -> None:
        """A packet is being sent now."""
        raise NotImplementedError

    def judge(self, now: int) -> None:
        """Follow whether the QP is sendable, and since when; called after every change."""
        if self.next_number() is None:
            self.ready_ps = None
        elif self.ready_ps is None:
            self.ready_ps = max(self.next_send_ps, now)

    def next_bytes(self) -> int:
        number = self.next_number()
        assert number is not None
        return self.messages.frame(number).frame_bytes

    def send(self, now: int) -> Frame:
        number = self.next_number()
        assert number is not None
        frame = self.messages.frame(number)
        operation = self.nic.simulator.operations[self.messages.holding(number).operation]
        operation.packets += 1
        if number < self.max:
            operation.retransmissions += 1
        if frame.flags & FIRST and operation.first_sent_ps < 0:
            operation.first_sent_ps = now
        self.control.catch_up(now)
        self.next_send_ps = now + wire_ps(self.nic.plan, frame.frame_bytes, self.control.rate_bps)
        self.control.sent(frame.frame_bytes)
        self.passed(number, now)
        self.ready_ps = None
        self.judge(now)
        return frame

    def congestion(self, now: int) -> None:
        """A CNP, or an echo on an ACK."""
        raise NotImplementedError


class Connection:
    """The end of a QP that waits for the other one: retries, failure and the operations."""

    def __init__(self, nic: Nic, qp: int) -> None:
        profile = nic.plan.host_nic[nic.node]
        self.rto_ps = nic.plan.nic_rto_ps[profile]
        self.retry_count = nic.plan.nic_retry_count[profile]
        self.deadline_ps: int | None = None
        self.retries = 0
        self.failed = False

    def fail(self, nic: Nic, messages: Messages, now: int) -> None:
        """The QP is in error; what it has not done never will be."""
        self.failed = True
        self.deadline_ps = None
        nic.simulator.counts["failed_qps"] += 1
        nic.simulator.record_event(now, EVENT_QP_ERROR, node=nic.node, qp=messages.qp)
        for message in messages.list:
            operation = nic.simulator.operations[message.operation]
            if operation.status != DONE:
                operation.status = FAILED
                operation.done_ps = now


class Sender(DataSource, Connection):
    """Sending half of a QP."""

    def __init__(self, nic: Nic, qp: int) -> None:
        DataSource.__init__(self, nic, qp, nic.plan.qp_dst[qp])
        Connection.__init__(self, nic, qp)
        window = nic.plan.nic_window_packets[self.profile]
        self.limit = min(window or 2**23, 2**23)  # packets that may be outstanding
        self.una = self.nxt = 0
        self.available_end = 0

    def next_number(self) -> int | None:
        sendable = not self.failed and self.nxt < self.available_end and self.nxt - self.una < self.limit
        return self.nxt if sendable else None

    def judge(self, now: int) -> None:
        super().judge(now)
        assert 0 <= self.una <= self.nxt <= self.max <= self.available_end
        assert self.failed or (self.deadline_ps is None) == (self.una == self.max)

    def posted(self, now: int) -> None:
        self.available_end = self.messages.available_end()
        self.judge(now)

    def passed(self, number: int, now: int) -> None:
        if self.una == self.max:
            self.deadline_ps = now + self.rto_ps
        self.nxt = number + 1
        self.max = max(self.max, self.nxt)

    def congestion(self, now: int) -> None:
        if self.failed or self.una == self.messages.end:
            return
        operation = self.messages.holding(self.una).operation
        self.nic.simulator.operations[operation].cnps += 1
        self.control.notify(now)

    def acknowledged(self, frame: Frame, now: int) -> None:
        """An ACK or NAK."""
        if self.failed:
            return
        if frame.flags & ECHO:
            self.congestion(now)
        number = unwrap(self.nic.plan, frame.number, self.una)
        old = self.una
        if old < number <= self.max:
            self.una = number
            self.retries = 0
            self.nxt = max(self.nxt, number)
            self.deadline_ps = None if self.una == self.max else now + self.rto_ps
            self.advanced()
            self.judge(now)
            for message in self.messages.list:
                if old < message.end <= number:
                    self.nic.runner.complete(self.nic.simulator.operations[message.operation], now)
        if frame.kind == NAK and number == self.una < self.max:
            self.missing(frame, now)
            self.judge(now)

    def advanced(self) -> None:
        """`una` has moved on."""

    def missing(self, frame: Frame, now: int) -> None:
        """A NAK says that the receiver lacks packet `una`."""
        self.nxt = self.una
        self.deadline_ps = now + self.rto_ps

    def timeout(self, now: int) -> None:
        self.retries += 1
        self.nic.simulator.counts["timeouts"] += 1
        if self.retries > self.retry_count:
            self.fail(self.nic, self.messages, now)
        else:
            self.deadline_ps = now + self.rto_ps
            self.repeat()
        self.judge(now)

    def repeat(self) -> None:
        """Start again from packet `una`."""
        self.nxt = self.una


class DataSink:
    """The end of a QP that takes its data packets in; both kinds of ends notify congestion alike."""

    def __init__(self, nic: Nic, qp: int, peer: int) -> None:
        plan = nic.plan
        self.nic = nic
        self.id = qp
        self.peer = peer
        self.flow_hash = plan.qp_ack_hash[qp]
        self.ack_class = plan.class_ack[plan.qp_class[qp]]
        self.messages = nic.simulator.messages[qp]
        profile = plan.host_nic[nic.node]
        self.echoes = plan.nic_notify[profile] == NOTIFY_ECHO
        self.cnp_interval_ps = plan.nic_cnp_interval_ps[profile]
        self.port = nic.route(peer, self.flow_hash)
        self.expected = 0
        self.last_cnp_ps: int | None = None

    def see_mark(self, frame: Frame, now: int) -> bool:
        """Count a mark and send a CNP if it is time; whether there was a mark."""
        if not frame.flags & CE:
            return False
        operation = self.messages.holding(self.expected).operation
        self.nic.simulator.operations[operation].marks += 1
        if not self.echoes and (self.last_cnp_ps is None or now - self.last_cnp_ps >= self.cnp_interval_ps):
            self.queue(self.control_frame(CNP, self.nic.plan.cnp_class))
            self.last_cnp_ps = now
        return True

    def control_frame(self, kind: int, class_id: int, number: int = 0, flags: int = 0) -> Frame:
        size = control_bytes(self.nic.plan, kind)
        return Frame(kind, class_id, size, self.id, number, flags, self.peer, self.flow_hash)

    def queue(self, frame: Frame) -> None:
        self.nic.control[self.port.index][frame.class_id].append(frame)


class Receiver(DataSink):
    """Receiving half of a QP."""

    def __init__(self, nic: Nic, qp: int) -> None:
        super().__init__(nic, qp, nic.plan.qp_src[qp])
        self.ack_every = nic.plan.nic_ack_every[nic.plan.host_nic[nic.node]]
        self.since_ack = 0
        self.nak_sent = False

    def receive(self, frame: Frame, now: int) -> None:
        if self.expected == self.messages.end:
            self.answer(ACK, echo=False)
            return
        number = unwrap(self.nic.plan, frame.number, self.expected)
        echo = self.see_mark(frame, now) and self.echoes
        if number == self.expected:
            self.in_order(frame, echo, now)
        elif number < self.expected:
            self.answer(ACK, echo)
        else:
            self.too_early(frame, number, echo)

    def in_order(self, frame: Frame, echo: bool, now: int) -> None:
        """The packet that is expected came."""
        self.nak_sent = False
        is_last = self.take(now)
        assert is_last == bool(frame.flags & LAST)
        if is_last or self.since_ack >= self.ack_every:
            self.answer(ACK, echo)

    def take(self, now: int) -> bool:
        """Pass the packet that is expected on; whether it was the last one of its message."""
        message = self.messages.holding(self.expected)
        self.expected += 1
        self.since_ack += 1
        if self.expected < message.end:
            return False
        operation = self.nic.simulator.operations[message.operation]
        assert operation.delivered_ps < 0, "a message is delivered twice"
        operation.delivered_ps = now
        self.nic.runner.delivered(operation.id, now)
        return True

    def too_early(self, frame: Frame, number: int, echo: bool) -> None:
        """A packet came before one that is still missing."""
        if not self.nak_sent:
            self.nak_sent = True
            self.answer(NAK, echo)

    def replaceable(self, waiting: Frame) -> bool:
        """An answer of this QP that still waits may be replaced by a new one."""
        return waiting.kind in (ACK, NAK)

    def answer(self, kind: int, echo: bool, sack: int = 0) -> None:
        """Queue an ACK or NAK of `expected`, in place of one of this QP that still waits."""
        self.since_ack = 0
        number = wire_number(self.nic.plan, self.expected)
        for waiting in self.nic.control[self.port.index][self.ack_class]:
            if waiting.qp == self.id and self.replaceable(waiting):
                self.nic.simulator.counts["merged_answers"] += 1
                waiting.kind = kind
                waiting.number = number
                waiting.sack = sack
                waiting.flags |= ECHO if echo else 0
                return
        frame = self.control_frame(kind, self.ack_class, number, ECHO if echo else 0)
        frame.sack = sack
        self.queue(frame)
