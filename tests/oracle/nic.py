"""Host adapter: its queue pairs and the transmit choice of its ports (MODEL 10 and 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.device import FOREVER_PS, Device, Port
from tests.oracle.hashing import mix32
from tests.oracle.ops import DONE, POSTED, Operation, Runner
from tests.oracle.packet import CNP, DATA, READ, Frame
from tests.oracle.queue_pair import VERB_READ, DataSource, Receiver, Sender
from tests.oracle.read import Requester, Responder
from tests.oracle.receiver import SlowReceiver
from tests.oracle.selective import SelectiveReceiver, SelectiveSender
from tests.oracle.switch import ROUTE_NONE, ROUTE_SET_BASE

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator


class Nic(Device):
    """One host."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        super().__init__(simulator, node)
        plan = self.plan
        self.control: list[list[list[Frame]]] = [[[] for _ in range(simulator.class_count)] for _ in self.ports]
        self.slow_receivers = [SlowReceiver(self, port) for port in self.ports]
        self.runner = Runner(self, simulator.operations)
        qps = range(len(plan.qp_src))
        is_read = [verb == VERB_READ for verb in plan.qp_verb]
        is_selective = plan.nic_selective[plan.host_nic[node]]
        sender, receiver = (SelectiveSender, SelectiveReceiver) if is_selective else (Sender, Receiver)
        own = [qp for qp in qps if plan.qp_src[qp] == node]
        other = [qp for qp in qps if plan.qp_dst[qp] == node]
        # By QP: this host's ends that send data, that wait for an answer, and that take data in.
        self.senders = {qp: sender(self, qp) for qp in own if not is_read[qp]}
        self.receivers = {qp: receiver(self, qp) for qp in other if not is_read[qp]}
        self.requesters = {qp: Requester(self, qp) for qp in own if is_read[qp]}
        self.responders = {qp: Responder(self, qp) for qp in other if is_read[qp]}
        self.sources: dict[int, DataSource] = {**self.senders, **self.responders}
        self.sinks: dict[int, Receiver | Requester] = {**self.receivers, **self.requesters}
        self.connections: dict[int, Sender | Requester] = {**self.senders, **self.requesters}

    def route(self, destination: int, flow_hash: int) -> Port:
        plan = self.plan
        if len(self.ports) == 1:
            return self.ports[0]
        # By the first tables for ever: a QP belongs to one port.
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
        self.connections[self.plan.op_qp[op_id]].posted(now)

    def receive(self, port: Port, frame: Frame, now: int) -> None:
        self.slow_receivers[port.index].arrive(frame, now)

    def process(self, port: Port, frame: Frame, now: int) -> None:
        """A frame has been taken in."""
        assert frame.destination == self.node, "a frame reached the wrong host"
        self.simulator.delivered[frame.kind] += 1
        if frame.kind == DATA:
            self.sinks[frame.qp].receive(frame, now)
        elif frame.kind == CNP:
            self.sources[frame.qp].congestion(now)
        elif frame.kind == READ:
            self.responders[frame.qp].requested(frame, now)
        else:
            self.senders[frame.qp].acknowledged(frame, now)
        self.free_credits(port, frame)

    def run_own_timers(self, now: int) -> None:
        for receiver in self.slow_receivers:
            receiver.run_timer(now)
        for _, connection in sorted(self.connections.items()):
            if connection.deadline_ps == now:
                connection.timeout(now)

    def run_operations(self, now: int) -> None:
        self.runner.run(now)

    def best(self, port: Port, class_id: int) -> DataSource | None:
        """The QP of this port and class that is sendable for longest."""
        senders = [
            sender
            for sender in self.sources.values()
            if sender.port is port and sender.class_id == class_id and sender.ready_ps is not None
        ]
        return min(senders, key=lambda sender: (sender.ready_ps, sender.id), default=None)

    def candidate(self, port: Port, class_id: int) -> tuple[int, int] | None:
        """(ready at, frame bytes) of what a class would send first."""
        control = self.control[port.index][class_id]
        if control:
            return 0, control[0].frame_bytes
        sender = self.best(port, class_id)
        if sender is None:
            return None
        assert sender.ready_ps is not None
        return sender.ready_ps, sender.next_bytes()

    def sendable_class(self, port: Port, now: int) -> int | None:
        for class_id in range(self.simulator.class_count):
            candidate = self.candidate(port, class_id)
            if candidate is None or candidate[0] > now or port.is_paused(class_id, now):
                continue
            if port.can_send(class_id, candidate[1]):
                return class_id
        return None

    def send_frame(self, port: Port, class_id: int, now: int) -> None:
        if self.control[port.index][class_id]:
            port.transmit(self.control[port.index][class_id].pop(0), now)
            return
        sender = self.best(port, class_id)
        assert sender is not None and sender.ready_ps is not None
        assert port.started_at_once(class_id, sender.ready_ps, now), "an idle link beside a sendable QP"
        port.transmit(sender.send(now), now)

    def next_frame(self, port: Port) -> int:
        starts = []
        for class_id in range(self.simulator.class_count):
            candidate = self.candidate(port, class_id)
            if candidate is not None and port.can_send(class_id, candidate[1]):
                starts.append(max(port.busy_until_ps, port.pause_until_ps[class_id], candidate[0]))
        return min(starts, default=FOREVER_PS)

    def held_blocks(self, port: Port) -> list[int]:
        return self.slow_receivers[port.index].held_blocks()

    def next_own_timer(self) -> int:
        times = [end.deadline_ps for end in self.connections.values() if end.deadline_ps is not None]
        times += [receiver.service_end_ps for receiver in self.slow_receivers if receiver.service_end_ps is not None]
        due = self.runner.next_due()
        return min(times + ([] if due is None else [due]), default=FOREVER_PS)

    def verify(self) -> None:
        """Ends of every QP agree on what can be outstanding (MODEL 14)."""
        for receiver in self.slow_receivers:
            receiver.verify()
        for requester in self.requesters.values():
            requester.verify()
        for sender in self.senders.values():
            assert sender.una <= self.simulator.receiver(sender.id).expected <= sender.max
        for sender in self.senders.values():
            for message in sender.messages.list:
                operation = self.simulator.operations[message.operation]
                assert operation.status != DONE or operation.delivered_ps >= 0
                if operation.status == POSTED and not sender.failed:
                    assert sender.una < message.end
        self.verify_links()


def operations_of(plan) -> list[Operation]:
    """Fresh operation states."""
    return [Operation(op, count) for op, count in enumerate(plan.op_dependency_count)]
