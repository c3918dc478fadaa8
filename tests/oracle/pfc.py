"""The sending half of PFC at one port, of a switch or a host: XOFF by class, frames and their refresh (MODEL 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.packet import PFC, Frame, control_bytes
from tests.oracle.pauses import Reason

if TYPE_CHECKING:
    from tests.oracle.device import Port


class PfcSender:
    """XOFF of the classes of one port, and the PFC frames that say so."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.simulator = port.simulator
        self.xoff = [False] * port.simulator.class_count
        self.is_pending = False
        self.refresh_ps: int | None = None

    def raise_xoff(self, class_id: int, now: int, reason: Reason) -> None:
        """XOFF stands from now on; a frame that says so becomes pending."""
        assert not self.xoff[class_id], "XOFF raised twice"
        assert self.simulator.plan.class_lossless[class_id]
        self.xoff[class_id] = True
        self.is_pending = True
        self.simulator.pauses.raised(now, self.port.id, class_id, reason)

    def clear_xoff(self, class_id: int, now: int) -> None:
        """XON is decided."""
        assert self.xoff[class_id]
        self.xoff[class_id] = False
        self.is_pending = True
        self.simulator.pauses.cleared(now, self.port.id, class_id)

    def switch_off(self, class_id: int, now: int) -> None:
        """PFC of a class is turned off: its XOFF ends without a frame."""
        if self.xoff[class_id]:
            self.simulator.pauses.switched_off(now, self.port.id, class_id)
            self.forget(class_id)

    def link_down(self, now: int) -> None:
        """All XOFF end, and nothing is left to be said."""
        for class_id in range(len(self.xoff)):
            self.simulator.pauses.link_down(now, self.port.id, class_id)
            self.forget(class_id)
        self.is_pending = False

    def forget(self, class_id: int) -> None:
        self.xoff[class_id] = False
        if not any(self.xoff):
            self.refresh_ps = None

    def run_timer(self, now: int) -> None:
        if self.refresh_ps == now:
            self.refresh_ps = None
            if any(self.xoff):
                self.is_pending = True
                self.simulator.counts["refreshes"] += 1

    def send(self, now: int) -> None:
        """Send one frame with the state of all classes as of now."""
        mask = sum(1 << class_id for class_id, stands in enumerate(self.xoff) if stands)
        self.is_pending = False
        self.refresh_ps = now + self.port.pause_ps // 2 if mask and self.port.pause_ps else None
        frame = Frame(PFC, 0, control_bytes(self.simulator.plan, PFC), number=mask)
        self.port.transmit(frame, now)
        self.simulator.pauses.frame_sent(now, self.port, frame)
