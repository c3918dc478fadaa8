"""Shared-buffer switch: admission, PFC, ECN, strict priority (MODEL 6 to 8)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.oracle.device import FOREVER_PS, Device, Port
from tests.oracle.hashing import STREAM_ECN, hash64, mix32
from tests.oracle.packet import CE, DATA, PFC, Frame, control_bytes

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator

HEADROOM_FULL, SHARED_FULL, EGRESS_FULL, NO_ROUTE = range(4)
ROUTE_NONE, ROUTE_LOCAL, ROUTE_SET_BASE = -1, -2, -16


class PriorityGroup:
    """Buffer use of one (ingress port, class)."""

    def __init__(self, simulator: Simulator, port: Port, class_id: int) -> None:
        plan = simulator.plan
        row = port.id * simulator.class_count + class_id
        self.port = port
        self.class_id = class_id
        self.reserved = plan.pq_reserved_bytes[row]
        self.headroom = plan.pq_headroom_bytes[row]
        self.alpha_q16 = plan.pq_alpha_q16[row]
        self.xon_offset = plan.pq_xon_offset_bytes[row]
        self.reserved_used = 0
        self.shared_used = 0
        self.headroom_used = 0
        self.is_xoff = False

    @property
    def used(self) -> int:
        return self.reserved_used + self.shared_used + self.headroom_used


class Queue:
    """FIFO of one (egress port, class), with the ECN parameters of its departures."""

    def __init__(self, simulator: Simulator, port: Port, class_id: int) -> None:
        plan = simulator.plan
        row = port.id * simulator.class_count + class_id
        self.egress_alpha_q16 = plan.pq_egress_alpha_q16[row]
        self.kmin = plan.pq_kmin_bytes[row]
        self.kmax = plan.pq_kmax_bytes[row]
        self.pmax_q32 = plan.pq_pmax_q32[row]
        self.frames: deque[tuple[Frame, PriorityGroup, int]] = deque()  # with the instant of eligibility
        self.queue_bytes = 0
        self.data_departures = 0


class Switch(Device):
    """One switch."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        super().__init__(simulator, node)
        index = node - self.plan.host_count
        self.pool = self.plan.switch_pool_bytes[index]
        self.buffer = self.plan.switch_buffer_bytes[index]
        self.latency_ps = self.plan.switch_latency_ps[index]
        self.shared_used = 0
        classes = range(simulator.class_count)
        self.groups = [[PriorityGroup(simulator, port, class_id) for class_id in classes] for port in self.ports]
        self.queues = [[Queue(simulator, port, class_id) for class_id in classes] for port in self.ports]
        self.pfc_pending = [False] * len(self.ports)
        self.refresh_ps: list[int | None] = [None] * len(self.ports)

    def threshold(self, group: PriorityGroup) -> int:
        return (self.pool - self.shared_used) * group.alpha_q16 >> 16

    def route(self, frame: Frame) -> Port | None:
        plan = self.plan
        row = plan.node_route_row[self.node]
        entry = plan.route[row * plan.group_count + plan.host_group[frame.destination]]
        if entry == ROUTE_NONE:
            return None
        if entry == ROUTE_LOCAL:
            port_id = plan.host_access_port[frame.destination]
        elif entry >= 0:
            port_id = entry
        else:
            chosen = ROUTE_SET_BASE - entry
            start, end = plan.nexthop_start[chosen : chosen + 2]
            number = mix32(frame.flow_hash ^ plan.node_seed[self.node]) * (end - start) >> 32
            port_id = plan.nexthop_port[start + number]
        port = self.ports[port_id - self.ports[0].id]
        assert port.id == port_id
        return port

    def receive(self, port: Port, frame: Frame, now: int) -> None:
        plan, simulator = self.plan, self.simulator
        egress = self.route(frame)
        if egress is None:
            simulator.record_drop(now, self.node, port.id, -1, NO_ROUTE, frame)
            return
        lossless = plan.class_lossless[frame.class_id]
        group = self.groups[port.index][frame.class_id]
        queue = self.queues[egress.index][frame.class_id]
        size = frame.frame_bytes

        take = min(size, group.reserved - group.reserved_used)
        rest = size - take
        free = self.pool - self.shared_used
        ingress_ok = group.shared_used < self.threshold(group) and rest <= free
        egress_ok = lossless or queue.queue_bytes < free * queue.egress_alpha_q16 >> 16
        cause = None
        if rest == 0:
            group.reserved_used += take
        elif ingress_ok and egress_ok:
            group.reserved_used += take
            group.shared_used += rest
            self.shared_used += rest
        elif lossless and rest <= group.headroom - group.headroom_used:
            group.reserved_used += take
            group.headroom_used += rest
        elif lossless:
            cause = HEADROOM_FULL
        else:
            cause = EGRESS_FULL if ingress_ok else SHARED_FULL
        if cause is not None:
            simulator.record_drop(now, self.node, port.id, egress.id, cause, frame)
        # Judged before the frame joins its queue, after a drop too; the record counts the frame if it was admitted.
        if lossless and not group.is_xoff and group.used > 0:
            threshold = self.threshold(group)
            if group.headroom_used > 0 or group.shared_used >= threshold:
                group.is_xoff = True
                self.pfc_pending[port.index] = True
                admitted = (egress.index, size) if cause is None else None
                simulator.pauses.raised(now, group, threshold, self.fullest_egress(group, admitted))
        if cause is None:
            queue.queue_bytes += size
            queue.frames.append((frame, group, now + self.latency_ps))

    def fullest_egress(self, group: PriorityGroup, admitted: tuple[int, int] | None) -> int:
        """Egress port that holds most bytes of a PG; the lowest of equal ones, -1 if it holds nothing."""
        best, best_bytes = -1, 0
        for port in self.ports:
            frames = self.queues[port.index][group.class_id].frames
            held = sum(frame.frame_bytes for frame, owner, _ in frames if owner is group)
            if admitted is not None and admitted[0] == port.index:
                held += admitted[1]
            if held > best_bytes:
                best, best_bytes = port.id, held
        return best

    def run_timers(self, now: int) -> None:
        for port in self.ports:
            if self.refresh_ps[port.index] == now:
                self.refresh_ps[port.index] = None
                if any(group.is_xoff for group in self.groups[port.index]):
                    self.pfc_pending[port.index] = True
                    self.simulator.counts["refreshes"] += 1

    def run_operations(self, now: int) -> None:
        pass

    def sendable_class(self, port: Port, now: int) -> int | None:
        for class_id, queue in enumerate(self.queues[port.index]):
            if queue.frames and not port.is_paused(class_id, now) and queue.frames[0][2] <= now:
                return class_id
        return None

    def has_something(self, port: Port, now: int) -> bool:
        return self.pfc_pending[port.index] or self.sendable_class(port, now) is not None

    def choose(self, port: Port, now: int) -> None:
        if self.pfc_pending[port.index]:
            self.send_pfc(port, now)
            return
        class_id = self.sendable_class(port, now)
        assert class_id is not None
        queue = self.queues[port.index][class_id]
        frame, group, eligible_ps = queue.frames.popleft()
        first = max(port.busy_until_ps, port.pause_until_ps[class_id], eligible_ps)
        assert now == first, "an idle link beside an eligible frame"
        self.depart(port, class_id, queue, frame, group, now)
        port.transmit(frame, now)

    def depart(self, port: Port, class_id: int, queue: Queue, frame: Frame, group: PriorityGroup, now: int) -> None:
        plan = self.plan
        queue.queue_bytes -= frame.frame_bytes
        left = frame.frame_bytes
        from_headroom = min(left, group.headroom_used)
        group.headroom_used -= from_headroom
        left -= from_headroom
        from_shared = min(left, group.shared_used)
        group.shared_used -= from_shared
        self.shared_used -= from_shared
        left -= from_shared
        group.reserved_used -= left

        if group.is_xoff and group.headroom_used == 0:
            below = group.shared_used + group.xon_offset <= self.threshold(group)
            if group.shared_used == 0 or below:
                group.is_xoff = False
                self.pfc_pending[group.port.index] = True
                self.simulator.pauses.cleared(now, group)

        if plan.class_ecn[class_id] and frame.kind == DATA:
            number = queue.data_departures
            queue.data_departures += 1
            if self.draws_mark(port, class_id, queue, number):
                frame.flags |= CE
                self.simulator.marks[port.id] += 1

    def draws_mark(self, port: Port, class_id: int, queue: Queue, number: int) -> bool:
        waiting = queue.queue_bytes
        if waiting <= queue.kmin:
            return False
        if waiting > queue.kmax:
            return True
        draw = hash64(self.plan.seed, STREAM_ECN, port.id, class_id, number) >> 32
        return draw * (queue.kmax - queue.kmin) < queue.pmax_q32 * (waiting - queue.kmin)

    def send_pfc(self, port: Port, now: int) -> None:
        mask = sum(1 << group.class_id for group in self.groups[port.index] if group.is_xoff)
        self.pfc_pending[port.index] = False
        self.refresh_ps[port.index] = now + port.pause_ps // 2 if mask and port.pause_ps else None
        frame = Frame(PFC, 0, control_bytes(self.plan, PFC), number=mask)
        self.simulator.pauses.frame_sent(now, self.groups[port.index], frame)
        port.transmit(frame, now)

    def next_start(self, port: Port) -> int:
        if self.pfc_pending[port.index]:
            return port.busy_until_ps
        starts = [
            max(port.busy_until_ps, port.pause_until_ps[class_id], queue.frames[0][2])
            for class_id, queue in enumerate(self.queues[port.index])
            if queue.frames
        ]
        return min(starts, default=FOREVER_PS)

    def next_timer(self) -> int:
        return min((timer for timer in self.refresh_ps if timer is not None), default=FOREVER_PS)

    def verify(self) -> None:
        """Every counter equals the bytes that are really held, none is negative, none above its size (MODEL 14)."""
        held: dict[int, int] = {}
        for queues in self.queues:
            for queue in queues:
                assert queue.queue_bytes == sum(frame.frame_bytes for frame, _, _ in queue.frames)
                for frame, group, _ in queue.frames:
                    held[id(group)] = held.get(id(group), 0) + frame.frame_bytes
        shared = total = 0
        for groups in self.groups:
            for group in groups:
                assert group.used == held.get(id(group), 0), "a priority group does not hold what its counters say"
                assert 0 <= group.reserved_used <= group.reserved
                assert 0 <= group.headroom_used <= group.headroom
                assert group.shared_used >= 0
                # A PG that holds nothing could never send XON.
                assert group.used > 0 or not group.is_xoff, "XOFF stands for an empty priority group"
                shared += group.shared_used
                total += group.used
        assert shared == self.shared_used <= self.pool
        assert total <= self.buffer
