"""What hosts and switches share: ports, and the order of events within one instant (MODEL 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.hashing import STREAM_TIE, hash64
from tests.oracle.packet import PFC, Frame, wire_ps

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator

FOREVER_PS = 2**62


class Port:
    """One end of a cable: the sender of its own link and the receiver of its peer's."""

    def __init__(self, simulator: Simulator, port_id: int, index: int) -> None:
        plan = simulator.plan
        self.simulator = simulator
        self.id = port_id
        self.index = index
        self.rate_bps = plan.port_rate_bps[port_id]
        self.delay_ps = plan.port_delay_ps[port_id]
        self.peer_id = plan.port_peer[port_id]
        self.response_ps = plan.port_pfc_response_ps[port_id]
        self.pause_ps = plan.port_pause_ps[port_id]
        self.busy_until_ps = 0
        self.pause_until_ps = [0] * simulator.class_count
        self.last_birth: dict[tuple[int, int], int] = {}

    def is_free(self, now: int) -> bool:
        return self.busy_until_ps <= now

    def is_paused(self, class_id: int, now: int) -> bool:
        return now < self.pause_until_ps[class_id]

    def transmit(self, frame: Frame, now: int) -> None:
        """Put a frame on the wire; its arrival (or a PFC frame's effect) is known from here on."""
        simulator = self.simulator
        assert self.is_free(now), "a link carries more than its rate"
        if frame.kind != PFC:
            assert not self.is_paused(frame.class_id, now)
            if frame.birth < 0:
                frame.birth = simulator.next_birth()
            key = (frame.qp, frame.class_id)
            assert self.last_birth.get(key, -1) < frame.birth, "packets of one QP overtake each other on a link"
            self.last_birth[key] = frame.birth
        wire = wire_ps(simulator.plan, frame.frame_bytes, self.rate_bps)
        self.busy_until_ps = now + wire
        simulator.record_packet(now, self.id, frame)
        simulator.deliver(self, frame, now + wire + self.delay_ps, now)


class Device:
    """A node that is stepped once for each picosecond at which something happens to it."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        self.simulator = simulator
        self.plan = simulator.plan
        self.node = node
        start, end = simulator.plan.node_port_start[node : node + 2]
        self.ports = [Port(simulator, port_id, port_id - start) for port_id in range(start, end)]
        self.effects: dict[int, list[tuple[Port, int, int]]] = {}
        self.arrivals: dict[int, list[tuple[Port, Frame]]] = {}

    # What a kind of device adds.
    def receive(self, port: Port, frame: Frame, now: int) -> None:
        raise NotImplementedError

    def run_timers(self, now: int) -> None:
        raise NotImplementedError

    def run_operations(self, now: int) -> None:
        raise NotImplementedError

    def has_something(self, port: Port, now: int) -> bool:
        raise NotImplementedError

    def choose(self, port: Port, now: int) -> None:
        raise NotImplementedError

    def next_start(self, port: Port) -> int:
        """First instant at which this port could start a transmission, as things stand."""
        raise NotImplementedError

    def next_timer(self) -> int:
        raise NotImplementedError

    def tie_key(self, port: Port, now: int) -> tuple[int, int]:
        return hash64(self.plan.seed, STREAM_TIE, self.node, now, port.index), port.index

    def step(self, now: int) -> None:
        """Everything that happens at this device at this picosecond."""
        effects = self.effects.pop(now, [])
        for port, mask, pause_ps in sorted(effects, key=lambda effect: self.tie_key(effect[0], now)):
            self.take_effect(port, mask, pause_ps, now)
        arrivals = self.arrivals.pop(now, [])
        self.simulator.counts["tied_arrivals"] += len(arrivals) > 1
        for port, frame in sorted(arrivals, key=lambda arrival: self.tie_key(arrival[0], now)):
            self.receive(port, frame, now)
        self.run_timers(now)
        self.run_operations(now)
        while True:
            able = [port for port in self.ports if port.is_free(now) and self.has_something(port, now)]
            if not able:
                break
            self.choose(min(able, key=lambda port: self.tie_key(port, now)) if len(able) > 1 else able[0], now)

    def take_effect(self, port: Port, mask: int, pause_ps: int, now: int) -> None:
        for class_id, lossless in enumerate(self.plan.class_lossless):
            if lossless:
                is_xoff = mask >> class_id & 1
                until = now if not is_xoff else FOREVER_PS if pause_ps == 0 else now + pause_ps
                port.pause_until_ps[class_id] = until
        self.simulator.pfc_in_flight -= 1

    def next_event(self) -> int:
        """The next instant at which something happens here for certain, as far as this device knows."""
        times = [*self.effects, *self.arrivals, self.next_timer()]
        times += [self.next_start(port) for port in self.ports]
        return min(times, default=FOREVER_PS)
