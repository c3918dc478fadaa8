"""PFC watchdog of one switch: finds queues that are paused for too long, and acts until the pause is over.

Polls come at whole multiples of the interval. Those that would find nothing are never made: what a poll would find can
be told in advance from what has happened so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabemu.plan import EVENT_WATCHDOG_RESTORED, EVENT_WATCHDOG_STORM, WATCHDOG_DROP, WATCHDOG_FORWARD
from tests.oracle.device import FOREVER_PS, WATCHDOG, Port
from tests.oracle.packet import ceil_div

if TYPE_CHECKING:
    from tests.oracle.switch import Switch


class Watchdog:
    """All watched queues of a switch."""

    def __init__(self, switch: Switch) -> None:
        plan = switch.plan
        index = switch.node - plan.host_count
        self.switch = switch
        self.simulator = switch.simulator
        self.poll_ps = plan.watchdog_poll_ps[index]
        self.detect_ps = plan.watchdog_detect_ps[index]
        self.restore_ps = plan.watchdog_restore_ps[index]
        self.action = plan.watchdog_action[index]
        self.storms: set[tuple[int, int]] = set()  # (port index, class)
        lossless = [class_id for class_id, yes in enumerate(plan.class_lossless) if yes]
        self.watched = [
            (port, class_id)
            for port in switch.ports
            for class_id in lossless
            if self.poll_ps > 0 and plan.port_watchdog[port.id]
        ]

    def breaks_waits(self, port: Port) -> bool:
        """Whether the queues of a port cannot wait for ever."""
        return (
            self.poll_ps > 0
            and bool(self.simulator.plan.port_watchdog[port.id])
            and self.action in (WATCHDOG_DROP, WATCHDOG_FORWARD)
        )

    def drops(self, ingress: Port, egress: Port, class_id: int) -> bool:
        """Whether a frame may not come in because its queue, or that of the port it comes by, is in a storm."""
        if self.action != WATCHDOG_DROP:
            return False
        return (egress.index, class_id) in self.storms or (ingress.index, class_id) in self.storms

    def since(self, port: Port, class_id: int) -> int:
        """When the queue last moved: a frame left it, or it became not empty."""
        queue = self.switch.queues[port.index][class_id]
        arrived = queue.frames[0][2] - self.switch.latency_ps
        return max(arrived, queue.left_ps)

    def finds_storm(self, port: Port, class_id: int, now: int) -> bool:
        queue = self.switch.queues[port.index][class_id]
        return (
            bool(queue.frames)
            and port.is_paused(class_id, now)
            and now - self.since(port, class_id) >= self.detect_ps
            and 100 * (now - port.pause_begin_ps[class_id]) >= 99 * self.detect_ps
        )

    def finds_calm(self, port: Port, class_id: int, now: int) -> bool:
        return not port.is_paused(class_id, now) and now - port.pause_until_ps[class_id] >= self.restore_ps

    def next_timer(self) -> int:
        """The first poll to come that finds something, if nothing else happens before."""
        # Polls of an instant at which the fabric was only acted upon are still to come.
        earliest = max(self.switch.stepped_ps + 1, self.simulator.now)
        return min((self.next_finding(*queue, earliest) for queue in self.watched), default=FOREVER_PS)

    def next_finding(self, port: Port, class_id: int, earliest: int) -> int:
        until = port.pause_until_ps[class_id]
        if (port.index, class_id) in self.storms:
            return self.poll_at(max(until + self.restore_ps, earliest)) if until < FOREVER_PS else FOREVER_PS
        if not self.switch.queues[port.index][class_id].frames:
            return FOREVER_PS
        paused_enough = port.pause_begin_ps[class_id] + ceil_div(99 * self.detect_ps, 100)
        at = self.poll_at(max(self.since(port, class_id) + self.detect_ps, paused_enough, earliest))
        return at if at < until else FOREVER_PS

    def poll_at(self, earliest: int) -> int:
        return ceil_div(earliest, self.poll_ps) * self.poll_ps

    def run_timer(self, now: int) -> None:
        """A poll, if this is the time of one."""
        if not self.watched or now == 0 or now % self.poll_ps:
            return
        for port, class_id in self.watched:
            key = (port.index, class_id)
            queue = self.switch.queues[port.index][class_id]
            columns = {"node": self.switch.node, "port": port.id, "class_id": class_id}
            if key in self.storms:
                if self.finds_calm(port, class_id, now):
                    self.storms.remove(key)
                    port.ignores_pause_since[class_id] = None
                    self.simulator.record_event(now, EVENT_WATCHDOG_RESTORED, **columns)
            elif self.finds_storm(port, class_id, now):
                self.storms.add(key)
                self.simulator.record_event(now, EVENT_WATCHDOG_STORM, value=queue.queue_bytes, **columns)
                if self.action == WATCHDOG_DROP:
                    self.switch.flush_queue(port, class_id, WATCHDOG, now)
                elif self.action == WATCHDOG_FORWARD:
                    port.ignores_pause_since[class_id] = now
