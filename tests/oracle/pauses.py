"""Rows of the `pauses` table: one for each XOFF and, after an expiry, for each refresh that pauses anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.oracle.packet import Frame, wire_ps

if TYPE_CHECKING:
    from tests.oracle.device import Port
    from tests.oracle.simulator import Simulator

FOREVER_PS = 2**62
END_XON, END_EXPIRY, END_RUN, END_LINK = range(4)
CROSSED_HEADROOM, CROSSED_DYNAMIC, CROSSED_STATIC, CROSSED_STORM, CROSSED_RECEIVER = range(5)


@dataclass(frozen=True)
class Reason:
    """What was crossed when XOFF was raised, and the congestion behind it."""

    crossed: int
    ingress_bytes: int = 0
    headroom_bytes: int = 0
    threshold_bytes: int = 0
    egress_port: int = -1
    parent_port: int = -1


@dataclass
class Pause:
    """One row; times in ps, -1 = never."""

    xoff_ps: int
    port: int
    class_id: int
    reason: Reason
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
            self.reason.ingress_bytes,
            self.reason.headroom_bytes,
            self.reason.threshold_bytes,
            self.reason.egress_port,
            self.reason.crossed,
            self.reason.parent_port,
        )


class PauseLog:
    """Follows every XOFF from its decision to its end at the paused port."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.closed: list[Pause] = []
        self.standing: dict[tuple[int, int], Pause] = {}  # XOFF stands for (port, class)
        self.leaving: dict[tuple[int, int], Pause] = {}  # XOFF stands no more, the peer has not been told yet

    def raised(self, now: int, port_id: int, class_id: int, reason: Reason) -> None:
        key = (port_id, class_id)
        assert key not in self.standing, "XOFF raised twice"
        self.standing[key] = Pause(now, port_id, class_id, reason)

    def cleared(self, now: int, port_id: int, class_id: int) -> None:
        """XON is decided."""
        pause = self.standing.pop((port_id, class_id))
        pause.xon_ps = now
        self.leave(pause, now)

    def switched_off(self, now: int, port_id: int, class_id: int) -> None:
        """XOFF ends without an XON: PFC has been turned off here."""
        pause = self.standing.pop((port_id, class_id))
        if pause.start_ps < 0:
            pause.xon_ps = now
        self.leave(pause, now)

    def leave(self, pause: Pause, now: int) -> None:
        key = (pause.port, pause.class_id)
        if pause.start_ps < 0:
            # No frame of it has reached, or will reach, the peer.
            self.close(pause, now, END_XON)
        else:
            assert key not in self.leaving
            self.leaving[key] = pause

    def link_down(self, now: int, port_id: int, class_id: int) -> None:
        """Nothing that this port said holds any longer."""
        key = (port_id, class_id)
        for pause in self.closed:
            if (pause.port, pause.class_id) == key and pause.end_ps > now:
                pause.end_ps = max(now, pause.start_ps)
                pause.end = END_LINK
        standing = self.standing.pop(key, None)
        if standing is not None and standing.start_ps < 0:
            standing.xon_ps = now
            self.close(standing, now, END_XON)
            standing = None
        for pause in (standing, self.leaving.pop(key, None)):
            if pause is None:
                continue
            if pause.until_ps <= now:
                self.close(pause, pause.until_ps, END_EXPIRY)
            else:
                self.close(pause, max(now, pause.start_ps), END_LINK)

    def frame_sent(self, now: int, port: Port, frame: Frame) -> None:
        """A PFC frame has started; `frame.number` is the mask of the classes whose XOFF stands."""
        plan = self.simulator.plan
        peer = self.simulator.ports[port.peer_id]
        effect = now + wire_ps(plan, frame.frame_bytes, port.rate_bps) + port.delay_ps + peer.response_ps
        until = effect + port.pause_ps if port.pause_ps else FOREVER_PS
        for class_id, lossless in enumerate(plan.class_lossless):
            if not lossless:
                continue
            key = (port.id, class_id)
            assert bool(frame.number >> class_id & 1) == (key in self.standing)
            if frame.corrupt:
                # It tells the peer nothing.
                if key in self.standing and self.standing[key].sent_ps < 0:
                    self.standing[key].sent_ps = now
                continue
            leaving = self.leaving.pop(key, None)
            if leaving is not None:
                expired = effect >= leaving.until_ps
                self.close(leaving, min(effect, leaving.until_ps), END_EXPIRY if expired else END_XON)
            if key in self.standing:
                pause = self.standing[key]
                if pause.start_ps >= 0 and effect > pause.until_ps:
                    self.close(pause, pause.until_ps, END_EXPIRY)
                    pause = self.standing[key] = Pause(pause.xoff_ps, port.id, class_id, pause.reason)
                if pause.sent_ps < 0:
                    pause.sent_ps = now
                if pause.start_ps < 0:
                    pause.start_ps = effect
                pause.until_ps = until

    def close(self, pause: Pause, end_ps: int, end: int) -> None:
        pause.end_ps = end_ps
        pause.end = end
        self.closed.append(pause)

    def finish(self, end_of_run_ps: int) -> list[tuple[int, ...]]:
        """All rows, sorted; what has not ended by then ends with the run."""
        for pause in [*self.standing.values(), *self.leaving.values()]:
            if pause.start_ps >= 0 and pause.until_ps <= end_of_run_ps:
                self.close(pause, pause.until_ps, END_EXPIRY)
            else:
                self.close(pause, end_of_run_ps, END_RUN)
        for pause in self.closed:
            if pause.end_ps > end_of_run_ps:
                pause.end_ps = end_of_run_ps
                pause.end = END_RUN
            pause.end_ps = max(pause.end_ps, pause.start_ps)
        return sorted(pause.row() for pause in self.closed)
