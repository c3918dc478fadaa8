"""The global loop: pops the device whose next event is earliest and steps it through that picosecond."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace

import numpy as np

from fabemu.plan import FOREVER_PS, SCHEDULER_CREATION, Plan
from tests.oracle.actions import Actions, may_overtake
from tests.oracle.deadlock import DeadlockWatch
from tests.oracle.device import Device, Port
from tests.oracle.nic import Nic, operations_of
from tests.oracle.packet import CREDIT, LINK_FRAMES, NUMBER_MASK, PFC, Frame
from tests.oracle.pauses import PauseLog
from tests.oracle.queue_pair import Messages, Receiver
from tests.oracle.switch import Switch

RUNNING, STOPPED, DRAINED = range(3)


class UnsupportedError(Exception):
    """The plan asks for a compatibility rule that the oracle does not have."""


class PacketLimitError(Exception):
    """More transmissions than allowed; `at_ps` is the instant of the one too many."""

    def __init__(self, at_ps: int) -> None:
        super().__init__(at_ps)
        self.at_ps = at_ps


@dataclass
class OracleResult:
    """What happened, in the record layouts of the engine.

    `packets` (time_ps, port, kind, flags, class, qp, psn, frame_bytes), sorted by (time, port);
    `pauses` in the column order of :meth:`tests.oracle.pauses.Pause.row`, sorted;
    `drops` (time_ps, node, ingress_port, egress_port, class, cause, kind, qp, psn, frame_bytes), sorted;
    `events` (time_ps, kind, node, port, class, qp, value, group), in order of time;
    `headroom` (time_ps, port, class, bytes in headroom from then on), in order of time.
    """

    packets: list[tuple[int, ...]]
    pauses: list[tuple[int, ...]]
    drops: list[tuple[int, ...]]
    events: list[tuple[int, ...]]
    ops: dict[str, list[int]]
    marks: list[int]
    headroom: list[tuple[int, int, int, int]]
    drained: bool
    deadlocked: bool  # a deadlock has ended the run
    end_ps: int
    counts: Counter[str] = field(default_factory=Counter)


class Simulator:
    """One run of a plan.

    `verify_every`: devices check all their counters after each that many steps; 0 = only at the end.
    Raises AssertionError when an invariant of MODEL 14 is broken, `UnsupportedError` for compatibility rules.
    """

    def __init__(self, plan: Plan, *, verify_every: int = 16, packet_limit: int = 10**7) -> None:
        for name in ("ns3_buffer", "ns3_nic", "ns3_pfc", "round_robin"):
            if getattr(plan, name):
                raise UnsupportedError(name)
        if plan.scheduler == SCHEDULER_CREATION:
            raise UnsupportedError("SCHEDULER_CREATION")
        # Plain lists and ints: numpy integers would wrap silently.
        values = {item.name: getattr(plan, item.name) for item in fields(plan)}
        self.plan = SimpleNamespace(
            **{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        )
        self.class_count = plan.class_count
        self.verify_every = verify_every
        self.packet_limit = packet_limit
        self.now = 0
        self.heap: list[tuple[int, int]] = []
        self.births = 0
        self.counts: Counter[str] = Counter()  # how often the rarer things happened
        self.delivered = [0] * 7
        self.link_frames_in_flight = 0
        self.route_base = 0  # where the tables of the present epoch begin
        self.may_overtake = may_overtake(self.plan)
        self.packets: list[tuple[int, ...]] = []
        self.drops: list[tuple[int, ...]] = []
        self.headroom: list[tuple[int, int, int, int]] = []
        self.events: list[tuple[int, ...]] = []
        self.marks = [0] * plan.port_count
        self.pauses = PauseLog(self)
        self.operations = operations_of(self.plan)
        self.messages = [Messages(self, qp) for qp in range(plan.qp_count)]
        self.devices: list[Device] = [
            Nic(self, node) if node < plan.host_count else Switch(self, node) for node in range(plan.node_count)
        ]
        self.ports: list[Port] = [port for device in self.devices for port in device.ports]
        self.actions = Actions(self)
        self.deadlocks = DeadlockWatch(self)
        self.next_event = [FOREVER_PS] * plan.node_count
        for device in self.devices:
            self.wake(device.node, device.next_event())

    def receiver(self, qp: int) -> Receiver:
        nic = self.devices[self.plan.qp_dst[qp]]
        assert isinstance(nic, Nic)
        return nic.receivers[qp]

    def wake(self, node: int, at: int) -> None:
        self.next_event[node] = at
        if at < FOREVER_PS:
            heapq.heappush(self.heap, (at, node))

    def next_birth(self) -> int:
        self.births += 1
        return self.births - 1

    def deliver(self, port: Port, frame: Frame, at: int, now: int) -> None:
        peer = self.ports[port.peer_id]
        node = self.plan.port_node[peer.id]
        device = self.devices[node]
        assert at > now, "an effect does not come after its cause"
        if frame.kind in LINK_FRAMES and not frame.corrupt:
            at += peer.response_ps if frame.kind == PFC else 0
            device.effects.setdefault(at, []).append((peer, frame))
            self.link_frames_in_flight += 1
        else:
            device.arrivals.setdefault(at, []).append((peer, frame))
        if at < self.next_event[node]:
            self.wake(node, at)

    def record_packet(self, now: int, port_id: int, frame: Frame) -> None:
        row = (now, port_id, frame.kind, frame.flags, frame.class_id, frame.qp, frame.number, frame.frame_bytes)
        self.packets.append(row)
        self.counts[{PFC: "pfc_frames", CREDIT: "credit_frames"}.get(frame.kind, "packet_hops")] += 1
        if len(self.packets) > self.packet_limit:
            raise PacketLimitError(now)

    def record_drop(self, now: int, node: int, ingress: int, egress: int, cause: int, frame: Frame) -> None:
        number = frame.number & NUMBER_MASK
        row = (now, node, ingress, egress, frame.class_id, cause, frame.kind, frame.qp, number, frame.frame_bytes)
        self.drops.append(row)

    def record_event(self, now: int, kind: int, **columns: int) -> None:
        """A row of the `events` table; a column that is left out has nothing to say."""
        names = ("node", "port", "class_id", "qp", "value", "group")
        self.events.append((now, kind, *(columns.get(name, -1) for name in names)))

    def next_step(self) -> int:
        """Time of the next event of any device."""
        while self.heap and self.next_event[self.heap[0][1]] != self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else FOREVER_PS

    def is_storming(self) -> bool:
        """A storm has not ended; the run waits for it."""
        nics = [device for device in self.devices if isinstance(device, Nic)]
        return any(any(receiver.storms) for nic in nics for receiver in nic.slow_receivers)

    def run(self) -> OracleResult:
        """Run to the end of the plan or until nothing is left to happen."""
        steps = 0
        while True:
            at = min(self.next_step(), self.actions.next_time())
            check_ps = self.deadlocks.next_time()
            if check_ps <= at < FOREVER_PS and check_ps < min(self.plan.until_ps, self.actions.next_time()):
                self.deadlocks.has_stopped = self.deadlocks.check(check_ps)
                if self.deadlocks.has_stopped:
                    break
                continue
            if at >= self.plan.until_ps or at >= FOREVER_PS:
                break
            self.deadlocks.has_changed = True
            if self.actions.next_time() == at:
                # Before any event of this instant.
                self.now = at
                self.actions.perform(at)
                for device in self.devices:
                    self.wake(device.node, max(at, device.next_event()))
                    device.verify()
                self.deadlocks.has_stopped = self.deadlocks.is_due(at) and self.deadlocks.check(at)
                if self.deadlocks.has_stopped:
                    break
                continue
            _, node = heapq.heappop(self.heap)
            assert at >= self.now, "time ran back"
            self.now = at
            device = self.devices[node]
            device.step(at)
            following = device.next_event()
            assert following > at, "something was left undone at this instant"
            self.wake(node, following)
            steps += 1
            if self.verify_every and steps % self.verify_every == 0:
                device.verify()
        deadlocked = self.deadlocks.has_stopped
        waits = self.is_storming() or min([*self.next_event, self.actions.next_time()]) < FOREVER_PS
        drained = not deadlocked and not waits
        end_ps = self.deadlocks.checked_ps if deadlocked else self.now if drained else self.plan.until_ps
        if not deadlocked:
            self.deadlocks.check(end_ps)
        self.verify(drained)
        return self.result(drained, end_ps)

    def verify(self, drained: bool) -> None:
        """The invariants of MODEL 14 over the whole fabric."""
        for device in self.devices:
            device.verify()
        flying = sum(
            frame.kind not in LINK_FRAMES
            for device in self.devices
            for arrivals in device.arrivals.values()
            for _, frame in arrivals
        )
        switches = [device for device in self.devices if isinstance(device, Switch)]
        waiting = sum(len(queue.frames) for switch in switches for queues in switch.queues for queue in queues)
        dropped = sum(row[6] not in LINK_FRAMES for row in self.drops)
        nics = [device for device in self.devices if isinstance(device, Nic)]
        waiting += sum(len(receiver.frames) for nic in nics for receiver in nic.slow_receivers)
        assert self.births == sum(self.delivered) + dropped + flying + waiting, "packets are not conserved"
        assert sum(sum(port.pfc.xoff) for port in self.ports) == len(self.pauses.standing)
        if drained:
            assert flying == 0 and self.link_frames_in_flight == 0
            for switch in switches:
                for port, queues in zip(switch.ports, switch.queues, strict=True):
                    for class_id, queue in enumerate(queues):
                        if queue.frames:
                            for_ever = port.blocked_until(class_id) >= FOREVER_PS
                            assert for_ever or not port.can_send(class_id, queue.head_bytes()), (
                                "frames wait for nothing"
                            )

    def result(self, drained: bool, end_ps: int) -> OracleResult:
        names = ("posted_ps", "first_sent_ps", "delivered_ps", "done_ps", "status")
        names += ("packets", "retransmissions", "cnps", "marks")
        return OracleResult(
            packets=sorted(self.packets, key=lambda row: row[:2]),
            pauses=self.pauses.finish(end_ps),
            drops=sorted(self.drops),
            events=self.events,
            ops={name: [getattr(operation, name) for operation in self.operations] for name in names},
            marks=self.marks,
            headroom=self.headroom,
            drained=drained,
            deadlocked=self.deadlocks.has_stopped,
            end_ps=end_ps,
            counts=self.counts,
        )


def simulate(plan: Plan, **options: int) -> OracleResult:
    """Run the oracle on a plan."""
    return Simulator(plan, **options).run()


def simulate_bounded(plan: Plan, packet_limit: int) -> tuple[Plan, OracleResult]:
    """Run a plan; one that takes more transmissions than allowed is cut at that instant.

    Returns the plan that was run to its end, with an earlier `until_ps` if it was cut.
    """
    try:
        return plan, simulate(plan, packet_limit=packet_limit)
    except PacketLimitError as error:
        plan = replace(plan, until_ps=max(1, error.at_ps))
        return plan, simulate(plan, packet_limit=2 * packet_limit)
