"""A host port that takes data in more slowly than its link brings it: one FIFO, and XOFF when it fills (MODEL 7)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.oracle.credits import blocks
from tests.oracle.device import RECEIVER_FULL, Port
from tests.oracle.packet import DATA, Frame, ceil_div
from tests.oracle.pauses import CROSSED_RECEIVER, CROSSED_STORM, Reason

if TYPE_CHECKING:
    from tests.oracle.nic import Nic

STOPPED, UNLIMITED = 0, -1


class SlowReceiver:
    """What has arrived at one host port and is not processed yet, and the port's wish for XOFF."""

    def __init__(self, nic: Nic, port: Port) -> None:
        plan = nic.plan
        self.nic = nic
        self.port = port
        self.lossless = plan.class_lossless
        self.xoff_bytes = plan.port_rx_xoff_bytes[port.id]
        self.xon_bytes = plan.port_rx_xon_bytes[port.id]
        self.buffer_bytes = plan.port_rx_buffer_bytes[port.id]
        self.rate_bps = UNLIMITED
        self.frames: deque[Frame] = deque()
        self.held_bytes = [0] * nic.simulator.class_count
        self.service_end_ps: int | None = None  # of the head
        # XOFF stands while one of these wants it, unless it was taken away (a dead link, PFC turned off).
        self.storms = [False] * nic.simulator.class_count
        self.wants = [False] * nic.simulator.class_count

    def arrive(self, frame: Frame, now: int) -> None:
        if frame.kind != DATA or (self.rate_bps == UNLIMITED and not self.frames):
            self.nic.process(self.port, frame, now)
            return
        if sum(self.held_bytes) + frame.frame_bytes > self.buffer_bytes:
            self.nic.drop(self.port, -1, RECEIVER_FULL, frame, now)
            return
        class_id = frame.class_id
        self.nic.simulator.counts["held_by_receiver"] += 1
        self.frames.append(frame)
        self.held_bytes[class_id] += frame.frame_bytes
        if self.lossless[class_id] and self.held_bytes[class_id] >= self.xoff_bytes:
            self.wants[class_id] = True
            if self.port.pfc_send[class_id] and not self.port.pfc.xoff[class_id]:
                reason = Reason(CROSSED_RECEIVER, self.held_bytes[class_id], threshold_bytes=self.xoff_bytes)
                self.port.pfc.raise_xoff(class_id, now, reason)
        self.start(now)

    def start(self, now: int) -> None:
        """Start on the head if nothing is in service."""
        if self.service_end_ps is not None or not self.frames or self.rate_bps == STOPPED:
            return
        service_ps = 0
        if self.rate_bps != UNLIMITED:
            service_ps = ceil_div(self.frames[0].frame_bytes * 8 * 10**12, self.rate_bps)
        self.service_end_ps = now + service_ps

    def run_timer(self, now: int) -> None:
        """The head's service is over, and that of all behind it that take no time."""
        while self.service_end_ps == now:
            self.service_end_ps = None
            frame = self.frames.popleft()
            class_id = frame.class_id
            self.held_bytes[class_id] -= frame.frame_bytes
            if self.wants[class_id] and self.held_bytes[class_id] <= self.xon_bytes:
                self.wants[class_id] = False
                self.resume(class_id, now)
            self.nic.process(self.port, frame, now)
            self.start(now)

    def set_rate(self, rate_bps: int, now: int) -> None:
        self.rate_bps = rate_bps
        self.start(now)

    def storm(self, class_id: int, on: bool, now: int) -> None:
        if on == self.storms[class_id]:
            return
        self.storms[class_id] = on
        if not on:
            self.resume(class_id, now)
        elif not self.port.pfc.xoff[class_id]:
            self.port.pfc.raise_xoff(class_id, now, Reason(CROSSED_STORM))

    def resume(self, class_id: int, now: int) -> None:
        """XON, unless somebody still wants XOFF."""
        if self.port.pfc.xoff[class_id] and not self.storms[class_id] and not self.wants[class_id]:
            self.port.pfc.clear_xoff(class_id, now)

    def held_blocks(self) -> list[int]:
        held = [0] * len(self.held_bytes)
        for frame in self.frames:
            held[frame.class_id] += blocks(frame)
        return held

    def verify(self) -> None:
        """The counters are those of the FIFO, which fits its buffer and moves unless it is stopped."""
        for class_id, held_bytes in enumerate(self.held_bytes):
            assert held_bytes == sum(frame.frame_bytes for frame in self.frames if frame.class_id == class_id)
            assert not self.wants[class_id] or held_bytes > self.xon_bytes
        assert sum(self.held_bytes) <= self.buffer_bytes
        assert self.rate_bps == STOPPED or (self.service_end_ps is not None) == bool(self.frames)
