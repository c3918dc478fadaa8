"""Deadlocks: queues that wait for each other in a circle, so that none of them can ever move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabemu.plan import EVENT_DEADLOCK
from tests.oracle.credits import blocks
from tests.oracle.device import FOREVER_PS, Port
from tests.oracle.packet import LINK_FRAMES
from tests.oracle.switch import PriorityGroup, Queue, Switch

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator

Waiting = set[tuple[int, int]]
"""Egress queues as (port id, class)."""


class DeadlockWatch:
    """The checks of one run, at whole multiples of the interval and at its end."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.interval_ps = simulator.plan.deadlock_interval_ps
        self.stops = simulator.plan.deadlock_stop
        self.found: Waiting = set()  # by the last check
        self.checked_ps = 0
        self.has_changed = True  # something happened since the last check
        self.reported = 0
        self.has_stopped = False

    def next_time(self) -> int:
        """The next check that can find something else than the last one did, if nothing happens before."""
        if self.interval_ps == 0:
            return FOREVER_PS
        now = max(self.simulator.now, self.checked_ps)
        earliest = now + 1
        if not self.has_changed:
            # Only the end of a pause can change what waits, or that the XOFF which goes on with it has come.
            ports = self.simulator.ports
            times = [ports[port_id].pause_until_ps[c] for port_id, c in self.found]
            times += [pause.start_ps for pause in self.simulator.pauses.standing.values() if pause.start_ps > now]
            earliest = min(times, default=FOREVER_PS)
            if earliest >= FOREVER_PS:
                return FOREVER_PS
            earliest = max(earliest, now + 1)
        return -(-earliest // self.interval_ps) * self.interval_ps

    def is_due(self, now: int) -> bool:
        return self.interval_ps > 0 and now > self.checked_ps and now % self.interval_ps == 0

    def check(self, now: int) -> bool:
        """Look for a deadlock and report a new one; whether that is to end the run."""
        self.checked_ps = now
        self.has_changed = False
        before, self.found = self.found, self.waiting_for_ever(now)
        if not self.found or before:
            return False
        for port_id, class_id in self.cycle():
            switch, port = self.place(port_id)
            self.simulator.record_event(
                now,
                EVENT_DEADLOCK,
                node=switch.node,
                port=port_id,
                class_id=class_id,
                value=switch.queues[port.index][class_id].queue_bytes,
                group=self.reported,
            )
        self.reported += 1
        return self.stops

    def place(self, port_id: int) -> tuple[Switch, Port]:
        switch = self.simulator.devices[self.simulator.plan.port_node[port_id]]
        assert isinstance(switch, Switch)
        return switch, self.simulator.ports[port_id]

    def queue(self, port_id: int, class_id: int) -> Queue:
        switch, port = self.place(port_id)
        return switch.queues[port.index][class_id]

    def target(self, port_id: int, class_id: int) -> tuple[Switch, PriorityGroup] | None:
        """The switch at the other end of a port, and the group that its frames of a class come to."""
        peer = self.simulator.ports[self.simulator.ports[port_id].peer_id]
        switch = self.simulator.devices[self.simulator.plan.port_node[peer.id]]
        if not isinstance(switch, Switch):
            return None
        return switch, switch.groups[peer.index][class_id]

    def is_held(self, switch: Switch, port: Port, class_id: int, now: int) -> bool:
        """Whether a queue waits for room in the next switch, as things stand."""
        queue = switch.queues[port.index][class_id]
        target = self.target(port.id, class_id)
        if not queue.frames or not port.is_up or target is None:
            return False
        if port.credits:
            return not port.can_send(class_id, queue.head_bytes())
        if not port.is_paused(class_id, now) or switch.watchdog.breaks_waits(port):
            return False
        # The pause may be that of an XOFF before, whose XON is still on its way.
        pause = self.simulator.pauses.standing.get((port.peer_id, class_id))
        return pause is not None and 0 <= pause.start_ps <= now

    def waiting_for_ever(self, now: int) -> Waiting:
        """The greatest set of held queues in which each would go on waiting if all else had left."""
        waiting = {
            (port.id, class_id)
            for switch in self.simulator.devices
            if isinstance(switch, Switch)
            for port in switch.ports
            for class_id in range(self.simulator.class_count)
            if self.is_held(switch, port, class_id, now)
        }
        while True:
            left = {key for key in waiting if self.stays(*key, waiting)}
            if left == waiting:
                return waiting
            waiting = left

    def stays(self, port_id: int, class_id: int, waiting: Waiting) -> bool:
        target = self.target(port_id, class_id)
        assert target is not None
        switch, group = target
        credits = self.simulator.ports[port_id].credits
        if credits:
            stuck = sum(blocks(frame) for frame in self.stuck_frames(switch, group, waiting))
            head = self.queue(port_id, class_id).frames[0][0]
            return credits.capacity[class_id] - stuck < blocks(head)
        stuck = self.stuck_bytes(switch, group, waiting)
        shared = max(0, stuck - group.reserved)
        kept_shared = sum(
            max(0, self.stuck_bytes(switch, other, waiting) - other.reserved - other.headroom_used)
            for groups in switch.groups
            for other in groups
        )
        threshold = group.threshold(switch.pool - kept_shared)
        resumes = shared == 0 or shared + group.xon_offset <= threshold
        # XON is judged when a frame leaves the group: never, if all of them are stuck and none comes.
        return stuck > 0 and (not resumes or (stuck == group.used and not self.more_can_come(port_id, class_id)))

    def more_can_come(self, port_id: int, class_id: int) -> bool:
        """Whether frames can join the group at the other end while this queue is paused."""
        switch, port = self.place(port_id)
        target = self.target(port_id, class_id)
        assert target is not None
        on_the_way = [
            frame
            for arrivals in target[0].arrivals.values()
            for peer, frame in arrivals
            if peer.id == port.peer_id and frame.class_id == class_id and frame.kind not in LINK_FRAMES
        ]
        return bool(on_the_way) or switch.has_mapped or target[0].has_mapped

    @staticmethod
    def stuck_frames(switch: Switch, group: PriorityGroup, waiting: Waiting) -> list:
        return [
            frame
            for port in switch.ports
            for class_id, queue in enumerate(switch.queues[port.index])
            if (port.id, class_id) in waiting
            for frame, owner, _ in queue.frames
            if owner is group
        ]

    def stuck_bytes(self, switch: Switch, group: PriorityGroup, waiting: Waiting) -> int:
        return sum(switch.charge(frame) for frame in self.stuck_frames(switch, group, waiting))

    def cycle(self) -> list[tuple[int, int]]:
        """From the smallest queue along those that hold most of what it waits for, the part that repeats."""
        path = [min(self.found)]
        while True:
            port_id, class_id = path[-1]
            target = self.target(port_id, class_id)
            assert target is not None
            switch, group = target
            held = {
                port.id: sum(f.frame_bytes for f in self.stuck_frames(switch, group, {(port.id, class_id)}))
                for port in switch.ports
                if (port.id, class_id) in self.found
            }
            following = min(held, key=lambda port_id: (-held[port_id], port_id)), class_id
            assert held[following[0]] > 0
            if following in path:
                return path[path.index(following) :]
            path.append(following)
