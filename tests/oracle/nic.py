"""Host adapter: senders, receivers and the transmit choice of its ports (MODEL 10 and 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.dcqcn import congestion_control
from tests.oracle.device import FOREVER_PS, Device, Port
from tests.oracle.hashing import mix32
from tests.oracle.ops import DONE, FAILED, POSTED, Operation, Runner
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
from tests.oracle.switch import ROUTE_NONE, ROUTE_SET_BASE

if TYPE_CHECKING:
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


class Nic(Device):
    """One host."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        super().__init__(simulator, node)
        plan = self.plan
        self.control: list[list[list[Frame]]] = [[[] for _ in range(simulator.class_count)] for _ in self.ports]
        self.runner = Runner(self, simulator.operations)
        qps = range(len(plan.qp_src))
        self.senders = {qp: Sender(self, qp) for qp in qps if plan.qp_src[qp] == node}
        self.receivers = {qp: Receiver(self, qp) for qp in qps if plan.qp_dst[qp] == node}

    def route(self, destination: int, flow_hash: int) -> Port:
        plan = self.plan
        if len(self.ports) == 1:
            return self.ports[0]
        entry = plan.route[plan.node_route_row[self.node] * plan.group_count + plan.host_group[destination]]
        assert entry != ROUTE_NONE
        if entry >= 0:
            port_id = entry
        else:
            chosen = ROUTE_SET_BASE - entry
            start, end = plan.nexthop_start[chosen : chosen + 2]
            port_id = plan.nexthop_port[start + (mix32(flow_hash ^ plan.node_seed[self.node]) * (end - start) >> 32)]
        return self.ports[port_id - self.ports[0].id]

    def post_send(self, op_id: int, now: int) -> None:
        self.senders[self.plan.op_qp[op_id]].posted(now)

    def receive(self, port: Port, frame: Frame, now: int) -> None:
        assert frame.destination == self.node, "a frame reached the wrong host"
        self.simulator.delivered[frame.kind] += 1
        if frame.kind == DATA:
            self.receivers[frame.qp].receive(frame, now)
        elif frame.kind == CNP:
            self.senders[frame.qp].congestion(now)
        else:
            self.senders[frame.qp].acknowledged(frame, now)

    def run_timers(self, now: int) -> None:
        for sender in self.senders.values():
            if sender.deadline_ps == now:
                sender.timeout(now)

    def run_operations(self, now: int) -> None:
        self.runner.run(now)

    def best(self, port: Port, class_id: int) -> Sender | None:
        """The QP of this port and class that is sendable for longest."""
        senders = [
            sender
            for sender in self.senders.values()
            if sender.port is port and sender.class_id == class_id and sender.ready_ps is not None
        ]
        return min(senders, key=lambda sender: (sender.ready_ps, sender.id), default=None)

    def sendable_class(self, port: Port, now: int) -> int | None:
        for class_id, control in enumerate(self.control[port.index]):
            if port.is_paused(class_id, now):
                continue
            sender = self.best(port, class_id)
            if control or (sender is not None and sender.ready_ps is not None and sender.ready_ps <= now):
                return class_id
        return None

    def has_something(self, port: Port, now: int) -> bool:
        return self.sendable_class(port, now) is not None

    def choose(self, port: Port, now: int) -> None:
        class_id = self.sendable_class(port, now)
        assert class_id is not None
        if self.control[port.index][class_id]:
            port.transmit(self.control[port.index][class_id].pop(0), now)
            return
        sender = self.best(port, class_id)
        assert sender is not None and sender.ready_ps is not None
        first = max(port.busy_until_ps, port.pause_until_ps[class_id], sender.ready_ps)
        assert now == first, "an idle link beside a sendable QP"
        port.transmit(sender.send(now), now)

    def next_start(self, port: Port) -> int:
        starts = []
        for class_id, control in enumerate(self.control[port.index]):
            ready = 0 if control else None
            sender = self.best(port, class_id)
            if ready is None and sender is not None:
                ready = sender.ready_ps
            if ready is not None:
                starts.append(max(port.busy_until_ps, port.pause_until_ps[class_id], ready))
        return min(starts, default=FOREVER_PS)

    def next_timer(self) -> int:
        times = [sender.deadline_ps for sender in self.senders.values() if sender.deadline_ps is not None]
        due = self.runner.next_due()
        return min(times + ([] if due is None else [due]), default=FOREVER_PS)

    def verify(self) -> None:
        """Ends of every QP agree on what can be outstanding (MODEL 14)."""
        for sender in self.senders.values():
            receiver = self.simulator.receiver(sender.id)
            assert sender.una <= receiver.expected <= sender.max
        for sender in self.senders.values():
            for message in sender.messages.list:
                operation = self.simulator.operations[message.operation]
                assert operation.status != DONE or operation.delivered_ps >= 0
                if operation.status == POSTED and not sender.failed:
                    assert sender.una < message.end


def operations_of(plan) -> list[Operation]:
    """Fresh operation states."""
    return [Operation(op, count) for op, count in enumerate(plan.op_dependency_count)]
