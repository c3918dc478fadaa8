"""Shared-buffer switch: admission, PFC, ECN (MODEL 6 to 8)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.oracle.balance import Balance
from tests.oracle.credits import blocks
from tests.oracle.device import FOREVER_PS, LINK_DOWN, WATCHDOG, Device, Port
from tests.oracle.hashing import STREAM_ECN, hash64
from tests.oracle.packet import CE, DATA, Frame, ceil_div
from tests.oracle.pauses import CROSSED_DYNAMIC, CROSSED_HEADROOM, CROSSED_STATIC, Reason
from tests.oracle.scheduler import Scheduler
from tests.oracle.watchdog import Watchdog

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
        self.headroom = self.headroom_greatest = plan.pq_headroom_bytes[row]
        self.alpha_q16 = plan.pq_alpha_q16[row]
        self.static_bytes = plan.pq_static_bytes[row]
        self.xon_offset = plan.pq_xon_offset_bytes[row]
        self.reserved_used = 0
        self.shared_used = 0
        self.headroom_used = 0

    @property
    def used(self) -> int:
        return self.reserved_used + self.shared_used + self.headroom_used

    @property
    def is_xoff(self) -> bool:
        return self.port.pfc.xoff[self.class_id]

    def threshold(self, free: int) -> int:
        return free * self.alpha_q16 >> 16 if self.static_bytes < 0 else self.static_bytes

    def release(self, size: int) -> int:
        """Give back the bytes of a frame: headroom first, then shared, then reserved. Returns the shared ones."""
        from_headroom = min(size, self.headroom_used)
        self.headroom_used -= from_headroom
        from_shared = min(size - from_headroom, self.shared_used)
        self.shared_used -= from_shared
        self.reserved_used -= size - from_headroom - from_shared
        return from_shared

    def may_resume(self, free: int) -> bool:
        """Whether an XOFF that stands has to end now."""
        if self.headroom_used > 0:
            return False
        return self.shared_used == 0 or self.shared_used + self.xon_offset <= self.threshold(free)


class Queue:
    """FIFO of one (egress port, class), with the ECN parameters of its departures."""

    def __init__(self, simulator: Simulator, port: Port, class_id: int) -> None:
        plan = simulator.plan
        row = port.id * simulator.class_count + class_id
        self.egress_alpha_q16 = plan.pq_egress_alpha_q16[row]
        self.egress_static_bytes = plan.pq_egress_static_bytes[row]
        self.may_mark = bool(plan.pq_ecn[row])
        self.kmin = plan.pq_kmin_bytes[row]
        self.kmax = plan.pq_kmax_bytes[row]
        self.pmax_q32 = plan.pq_pmax_q32[row]
        self.frames: deque[tuple[Frame, PriorityGroup, int]] = deque()  # with the instant of eligibility
        self.queue_bytes = 0
        self.left_ps = 0  # when a frame last left, in any way
        self.data_departures = 0

    def limit(self, free: int) -> int:
        """Of a lossy class."""
        return free * self.egress_alpha_q16 >> 16 if self.egress_static_bytes < 0 else self.egress_static_bytes

    def eligible_ps(self) -> int:
        return self.frames[0][2]

    def head_bytes(self) -> int:
        return self.frames[0][0].frame_bytes


class Switch(Device):
    """One switch."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        super().__init__(simulator, node)
        index = node - self.plan.host_count
        self.pool = self.plan.switch_pool_bytes[index]
        self.buffer = self.plan.switch_buffer_bytes[index]
        self.latency_ps = self.plan.switch_latency_ps[index]
        self.cell_bytes = self.plan.switch_cell_bytes[index]
        classes = range(simulator.class_count)
        start = index * len(classes)
        self.class_map = self.plan.switch_class_map[start : start + len(classes)]
        self.has_mapped = self.class_map != [*classes]  # frames of some class were treated as those of another
        self.shared_used = 0
        self.groups = [[PriorityGroup(simulator, port, class_id) for class_id in classes] for port in self.ports]
        self.queues = [[Queue(simulator, port, class_id) for class_id in classes] for port in self.ports]
        self.schedulers = [Scheduler(simulator, port) for port in self.ports]
        self.watchdog = Watchdog(self)
        self.balance = Balance(self)

    @property
    def free(self) -> int:
        return self.pool - self.shared_used

    def charge(self, frame: Frame) -> int:
        """What a frame takes in the shared buffer."""
        return ceil_div(frame.frame_bytes, self.cell_bytes) * self.cell_bytes

    def route(self, frame: Frame, now: int) -> Port | None:
        plan = self.plan
        row = plan.node_route_row[self.node]
        entry = plan.route[self.simulator.route_base + row * plan.group_count + plan.host_group[frame.destination]]
        if entry == ROUTE_NONE:
            return None
        if entry == ROUTE_LOCAL:
            port_id = plan.host_access_port[frame.destination]
        elif entry >= 0:
            port_id = entry
        else:
            chosen = ROUTE_SET_BASE - entry
            start, end = plan.nexthop_start[chosen : chosen + 2]
            port_id = self.balance.choose(plan.nexthop_port[start:end], plan.nexthop_weight[start:end], frame, now)
        port = self.ports[port_id - self.ports[0].id]
        assert port.id == port_id
        return port

    def receive(self, port: Port, frame: Frame, now: int) -> None:
        egress = self.route(frame, now)
        if egress is None:
            self.drop(port, -1, NO_ROUTE, frame, now)
            return
        if not egress.is_up:
            self.drop(port, egress.id, LINK_DOWN, frame, now)
            return
        class_id = self.class_map[frame.class_id]
        if self.watchdog.drops(port, egress, class_id):
            self.drop(port, egress.id, WATCHDOG, frame, now)
            return
        lossless = self.plan.class_lossless[class_id]
        group = self.groups[port.index][class_id]
        queue = self.queues[egress.index][class_id]
        before = group.headroom_used
        cause = self.admit(group, queue, self.charge(frame), lossless)
        self.note_headroom(group, before, now)
        if cause is not None:
            assert not port.credits, "credits for more than the buffer"
            self.drop(port, egress.id, cause, frame, now)
        # Judged before the frame joins its queue, after a drop too; the record counts the frame if it was admitted.
        if lossless and port.pfc_send[class_id] and not group.is_xoff and group.used > 0:
            threshold = group.threshold(self.free)
            if group.headroom_used > 0 or group.shared_used >= threshold:
                admitted = (egress.index, frame.frame_bytes) if cause is None else None
                port.pfc.raise_xoff(class_id, now, self.reason(group, threshold, admitted, now))
        if cause is None:
            queue.queue_bytes += frame.frame_bytes
            queue.frames.append((frame, group, now + self.latency_ps))

    def note_headroom(self, group: PriorityGroup, before: int, now: int) -> None:
        if group.headroom_used != before:
            self.simulator.headroom.append((now, group.port.id, group.class_id, group.headroom_used))

    def admit(self, group: PriorityGroup, queue: Queue, size: int, lossless: bool) -> int | None:
        """Charge a frame; the cause of its drop if there is no room."""
        take = min(size, group.reserved - group.reserved_used)
        rest = size - take
        free = self.free
        ingress_ok = group.shared_used < group.threshold(free) and rest <= free
        egress_ok = lossless or queue.queue_bytes < queue.limit(free)
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
            return HEADROOM_FULL
        else:
            return EGRESS_FULL if ingress_ok else SHARED_FULL
        return None

    def reason(self, group: PriorityGroup, threshold: int, admitted: tuple[int, int] | None, now: int) -> Reason:
        """Why a priority group raises XOFF, and who is behind it."""
        crossed = CROSSED_DYNAMIC if group.static_bytes < 0 else CROSSED_STATIC
        if group.headroom_used > 0:
            crossed = CROSSED_HEADROOM
        egress_id, parent = self.fullest_egress(group, admitted), -1
        if egress_id >= 0:
            egress = self.simulator.ports[egress_id]
            parent = egress.peer_id if egress.is_paused(group.class_id, now) else -1
        return Reason(crossed, group.used, group.headroom_used, threshold, egress_id, parent)

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

    def run_own_timers(self, now: int) -> None:
        pass

    def run_polls(self, now: int) -> None:
        self.watchdog.run_timer(now)

    def next_own_timer(self) -> int:
        return self.watchdog.next_timer()

    def run_operations(self, now: int) -> None:
        pass

    def is_eligible(self, port: Port, class_id: int, now: int) -> bool:
        queue = self.queues[port.index][class_id]
        if not queue.frames or queue.eligible_ps() > now or port.blocked_until(class_id) > now:
            return False
        return port.can_send(class_id, queue.head_bytes())

    def heads(self, port: Port, now: int) -> dict[int, int]:
        """The classes that can send now, with the size of their first frame."""
        return {
            class_id: queue.head_bytes()
            for class_id, queue in enumerate(self.queues[port.index])
            if self.is_eligible(port, class_id, now)
        }

    def sendable_class(self, port: Port, now: int) -> int | None:
        return self.schedulers[port.index].choice(self.heads(port, now))

    def send_frame(self, port: Port, class_id: int, now: int) -> None:
        queue = self.queues[port.index][class_id]
        assert port.started_at_once(class_id, queue.eligible_ps(), now), "an idle link beside an eligible frame"
        self.schedulers[port.index].serve(class_id, self.heads(port, now))
        frame = self.take_out(port, class_id, now)
        if frame.kind == DATA and self.marks(frame, class_id, queue) and self.draws_mark(port, class_id, queue):
            frame.flags |= CE
            self.simulator.marks[port.id] += 1
        queue.data_departures += frame.kind == DATA
        port.transmit(frame, now)

    def take_out(self, port: Port, class_id: int, now: int) -> Frame:
        """The head of a queue leaves the buffer, for the link or for nowhere."""
        queue = self.queues[port.index][class_id]
        frame, group, _ = queue.frames.popleft()
        queue.queue_bytes -= frame.frame_bytes
        queue.left_ps = now
        before = group.headroom_used
        self.shared_used -= group.release(self.charge(frame))
        self.note_headroom(group, before, now)
        if group.is_xoff and group.may_resume(self.free):
            group.port.pfc.clear_xoff(group.class_id, now)
        self.free_credits(group.port, frame)
        if not queue.frames:
            self.schedulers[port.index].emptied(class_id)
        return frame

    def flush(self, port: Port, now: int) -> None:
        for class_id in range(self.simulator.class_count):
            self.flush_queue(port, class_id, LINK_DOWN, now)

    def flush_queue(self, port: Port, class_id: int, cause: int, now: int) -> None:
        """Drop all frames of an egress queue."""
        queue = self.queues[port.index][class_id]
        while queue.frames:
            ingress = queue.frames[0][1].port
            frame = self.take_out(port, class_id, now)
            self.simulator.record_drop(now, self.node, ingress.id, port.id, cause, frame)

    def marks(self, frame: Frame, class_id: int, queue: Queue) -> bool:
        """Whether a queue marks data of this frame's class, treated as of another, at all."""
        return bool(queue.may_mark and self.plan.class_ecn[class_id] and self.plan.class_ecn[frame.class_id])

    def draws_mark(self, port: Port, class_id: int, queue: Queue) -> bool:
        waiting = queue.queue_bytes
        if waiting <= queue.kmin:
            return False
        if waiting > queue.kmax:
            return True
        draw = hash64(self.plan.seed, STREAM_ECN, port.id, class_id, queue.data_departures) >> 32
        return draw * (queue.kmax - queue.kmin) < queue.pmax_q32 * (waiting - queue.kmin)

    def next_frame(self, port: Port) -> int:
        starts = [
            max(port.busy_until_ps, port.blocked_until(class_id), queue.eligible_ps())
            for class_id, queue in enumerate(self.queues[port.index])
            if queue.frames and port.can_send(class_id, queue.head_bytes())
        ]
        return min(starts, default=FOREVER_PS)

    def held_blocks(self, port: Port) -> list[int]:
        held = [0] * self.simulator.class_count
        for queues in self.queues:
            for queue in queues:
                for frame, group, _ in queue.frames:
                    if group.port is port:
                        held[frame.class_id] += blocks(frame)
        return held

    def verify(self) -> None:
        """Every counter equals the bytes that are really held, none is negative, none above its size (MODEL 14)."""
        held: dict[int, int] = {}
        for queues in self.queues:
            for queue in queues:
                assert queue.queue_bytes == sum(frame.frame_bytes for frame, _, _ in queue.frames)
                for frame, group, _ in queue.frames:
                    held[id(group)] = held.get(id(group), 0) + self.charge(frame)
        shared = total = 0
        for groups in self.groups:
            for group in groups:
                assert group.used == held.get(id(group), 0), "a priority group does not hold what its counters say"
                assert 0 <= group.reserved_used <= group.reserved
                assert 0 <= group.headroom_used <= group.headroom_greatest
                assert group.shared_used >= 0
                # A PG that holds nothing could never send XON.
                assert group.used > 0 or not group.is_xoff, "XOFF stands for an empty priority group"
                shared += group.shared_used
                total += group.used
        assert shared == self.shared_used <= self.pool
        assert total <= self.buffer
        self.verify_links()
