"""Rows of the `pauses` table: one for each XOFF and, after an expiry, for each refresh that pauses anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.device import FOREVER_PS
from tests.oracle.packet import Frame, wire_ps

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator
    from tests.oracle.switch import PriorityGroup

END_XON, END_EXPIRY, END_RUN = range(3)


@dataclass
class Pause:
    """One row; times in ps, -1 = never."""

    xoff_ps: int
    port: int
    class_id: int
    ingress_bytes: int
    headroom_bytes: int
    threshold_bytes: int
    egress_port: int
    sent_ps: int = -1
    start_ps: int = -1
    xon_ps: int = -1
    end_ps: int = -1
    end: int = END_RUN
    until_ps: int = -1  # when the pause runs out at the paused port, by all frames sent so far

    def row(self) -> tuple[int, ...]:
        """Columns in the order of the `pauses` record."""
        return (
            self.xoff_ps,
            self.sent_ps,
            self.start_ps,
            self.xon_ps,
            self.end_ps,
            self.port,
            self.class_id,
            self.end,
            self.ingress_bytes,
            self.headroom_bytes,
            self.threshold_bytes,
            self.egress_port,
        )


class PauseLog:
    """Follows every XOFF from its decision to its end at the paused port."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.closed: list[Pause] = []
        self.standing: dict[tuple[int, int], Pause] = {}  # XOFF stands for (port, class)
        self.leaving: dict[tuple[int, int], Pause] = {}  # XON is decided, its frame not yet sent

    def raised(self, now: int, group: PriorityGroup, threshold: int, egress_port: int) -> None:
        key = (group.port.id, group.class_id)
        assert key not in self.standing, "XOFF raised twice"
        self.standing[key] = Pause(now, *key, group.used, group.headroom_used, threshold, egress_port)

    def cleared(self, now: int, group: PriorityGroup) -> None:
        key = (group.port.id, group.class_id)
        pause = self.standing.pop(key)
        pause.xon_ps = now
        if pause.sent_ps < 0:
            self.close(pause, now, END_XON)
        else:
            assert key not in self.leaving
            self.leaving[key] = pause

    def frame_sent(self, now: int, groups: list[PriorityGroup], frame: Frame) -> None:
        port = groups[0].port
        peer = self.simulator.ports[port.peer_id]
        effect = now + wire_ps(self.simulator.plan, frame.frame_bytes, port.rate_bps) + port.delay_ps + peer.response_ps
        until = effect + port.pause_ps if port.pause_ps else FOREVER_PS
        for group in groups:
            key = (port.id, group.class_id)
            leaving = self.leaving.pop(key, None)
            if leaving is not None:
                expired = effect >= leaving.until_ps
                self.close(leaving, min(effect, leaving.until_ps), END_EXPIRY if expired else END_XON)
            assert group.is_xoff == (key in self.standing)
            if group.is_xoff:
                pause = self.standing[key]
                if pause.sent_ps >= 0 and effect > pause.until_ps:
                    self.close(pause, pause.until_ps, END_EXPIRY)
                    pause = Pause(
                        pause.xoff_ps,
                        *key,
                        pause.ingress_bytes,
                        pause.headroom_bytes,
                        pause.threshold_bytes,
                        pause.egress_port,
                    )
                    self.standing[key] = pause
                if pause.sent_ps < 0:
                    pause.sent_ps = now
                    pause.start_ps = effect
                pause.until_ps = until

    def close(self, pause: Pause, end_ps: int, end: int) -> None:
        pause.end_ps = end_ps
        pause.end = end
        self.closed.append(pause)

    def finish(self, end_of_run_ps: int) -> list[tuple[int, ...]]:
        """All rows, sorted; what has not ended by then ends with the run."""
        for pause in [*self.standing.values(), *self.leaving.values()]:
            if pause.sent_ps >= 0 and pause.until_ps <= end_of_run_ps:
                self.close(pause, pause.until_ps, END_EXPIRY)
            else:
                self.close(pause, end_of_run_ps, END_RUN)
        for pause in self.closed:
            if pause.end_ps > end_of_run_ps:
                pause.end_ps = end_of_run_ps
                pause.end = END_RUN
            pause.end_ps = max(pause.end_ps, pause.start_ps)
        return sorted(pause.row() for pause in self.closed)
