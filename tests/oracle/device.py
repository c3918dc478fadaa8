"""What hosts and switches share: ports, and the order of events within one instant (MODEL 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle.credits import Credits, blocks
from tests.oracle.hashing import STREAM_LOSS, STREAM_TIE, hash64
from tests.oracle.packet import LINK_FRAMES, Frame, wire_ps
from tests.oracle.pfc import PfcSender

if TYPE_CHECKING:
    from tests.oracle.simulator import Simulator

FOREVER_PS = 2**62
WATCHDOG, LINK_DOWN, CORRUPT, RECEIVER_FULL = range(4, 8)
"""Causes of drops beside those of a switch's admission."""


class Port:
    """One end of a cable: the sender of its own link and the receiver of its peer's."""

    def __init__(self, simulator: Simulator, port_id: int, index: int) -> None:
        plan = simulator.plan
        count = simulator.class_count
        self.simulator = simulator
        self.id = port_id
        self.index = index
        self.rate_bps = plan.port_rate_bps[port_id]
        self.delay_ps = plan.port_delay_ps[port_id]
        self.peer_id = plan.port_peer[port_id]
        self.response_ps = plan.port_pfc_response_ps[port_id]
        self.pause_ps = plan.port_pause_ps[port_id]
        self.busy_until_ps = 0
        self.is_up = True
        self.up_ps = 0
        self.pause_until_ps = [0] * count
        self.pause_begin_ps = [0] * count  # of the present or last pause that was renewed in time
        self.ignores_pause_since: list[int | None] = [None] * count  # the watchdog sends on
        self.pfc_send = plan.pq_pfc_send[port_id * count : (port_id + 1) * count]
        self.pfc_obey = plan.pq_pfc_obey[port_id * count : (port_id + 1) * count]
        self.pfc = PfcSender(self)
        self.credits = Credits(self) if plan.port_credit[port_id] else None
        self.loss_rows: dict[int, int] = {}  # by kind of frame
        self.last_birth: dict[tuple[int, int], int] = {}
        assert plan.port_credit[port_id] == plan.port_credit[self.peer_id]
        assert not self.credits or not any(self.pfc_send + self.pfc_obey), "PFC and credits on one link"

    def is_free(self, now: int) -> bool:
        return self.busy_until_ps <= now

    def is_paused(self, class_id: int, now: int) -> bool:
        return now < self.pause_until_ps[class_id]

    def blocked_until(self, class_id: int) -> int:
        """When a pause lets a class send, or has let it."""
        since = self.ignores_pause_since[class_id]
        return self.pause_until_ps[class_id] if since is None else since

    def can_send(self, class_id: int, frame_bytes: int) -> bool:
        """The peer has room for it, as far as this end knows; without credits it has to take anything."""
        can = self.credits is None or self.credits.can_send(class_id, frame_bytes)
        self.simulator.counts["credit_waits"] += not can
        return can

    def started_at_once(self, class_id: int, ready_ps: int, now: int) -> bool:
        """Whether a frame that starts now could not have started before."""
        if self.credits:
            # Another head of the same class, smaller than what lacked credits, may have come up for any reason.
            return True
        return now == max(self.busy_until_ps, self.blocked_until(class_id), self.up_ps, ready_ps)

    def has_link_frame(self) -> bool:
        return self.pfc.is_pending or (self.credits is not None and self.credits.is_pending)

    def send_link_frame(self, now: int) -> None:
        if self.pfc.is_pending:
            self.pfc.send(now)
        else:
            assert self.credits is not None
            self.credits.send(now)

    def transmit(self, frame: Frame, now: int) -> None:
        """Put a frame on the wire; its arrival (or a PFC frame's effect) is known from here on."""
        simulator = self.simulator
        assert self.is_up
        assert self.is_free(now), "a link carries more than its rate"
        if frame.kind not in LINK_FRAMES:
            if self.credits:
                self.credits.spend(frame)
            if frame.birth < 0:
                frame.birth = simulator.next_birth()
            key = (frame.qp, frame.class_id)
            # Equal: where routes go round in a circle, a frame comes again.
            in_order = self.last_birth.get(key, -1) <= frame.birth
            assert in_order or simulator.may_overtake, "packets of one QP overtake each other on a link"
            self.last_birth[key] = frame.birth
        frame.corrupt = self.draws_loss(frame, now)
        wire = wire_ps(simulator.plan, frame.frame_bytes, self.rate_bps)
        self.busy_until_ps = now + wire
        simulator.record_packet(now, self.id, frame)
        simulator.deliver(self, frame, now + wire + self.delay_ps, now)

    def draws_loss(self, frame: Frame, now: int) -> bool:
        plan = self.simulator.plan
        row = self.loss_rows.get(frame.kind, -1)
        if row < 0:
            return False
        probability_q32 = plan.loss_q32[row * (plan.loss_size_max + 1) + frame.frame_bytes]
        return hash64(plan.seed, STREAM_LOSS, self.id, now) >> 32 < probability_q32


class Device:
    """A node that is stepped once for each picosecond at which something happens to it."""

    def __init__(self, simulator: Simulator, node: int) -> None:
        self.simulator = simulator
        self.plan = simulator.plan
        self.node = node
        start, end = simulator.plan.node_port_start[node : node + 2]
        self.ports = [Port(simulator, port_id, port_id - start) for port_id in range(start, end)]
        self.effects: dict[int, list[tuple[Port, Frame]]] = {}  # PFC and credit frames
        self.stepped_ps = 0  # last instant of which everything has happened
        self.arrivals: dict[int, list[tuple[Port, Frame]]] = {}  # other frames, and corrupt ones of every kind

    # What a kind of device adds.
    def receive(self, port: Port, frame: Frame, now: int) -> None:
        raise NotImplementedError

    def run_own_timers(self, now: int) -> None:
        """Timers before those of PFC and credit frames."""
        raise NotImplementedError

    def run_polls(self, now: int) -> None:
        """Timers after those of PFC and credit frames."""

    def next_own_timer(self) -> int:
        raise NotImplementedError

    def run_operations(self, now: int) -> None:
        raise NotImplementedError

    def sendable_class(self, port: Port, now: int) -> int | None:
        """The class whose frame a port that is free would send now."""
        raise NotImplementedError

    def send_frame(self, port: Port, class_id: int, now: int) -> None:
        raise NotImplementedError

    def next_frame(self, port: Port) -> int:
        """First instant at which this port could start such a frame, as things stand."""
        raise NotImplementedError

    def held_blocks(self, port: Port) -> list[int]:
        """By class, the credits that frames hold which came in by this port and are in the buffer."""
        raise NotImplementedError

    def tie_key(self, port: Port, now: int) -> tuple[int, int]:
        return hash64(self.plan.seed, STREAM_TIE, self.node, now, port.index), port.index

    def step(self, now: int) -> None:
        """Everything that happens at this device at this picosecond."""
        effects = self.effects.pop(now, [])
        for port, frame in sorted(effects, key=lambda effect: self.tie_key(effect[0], now)):
            self.take_effect(port, frame, now)
        arrivals = self.arrivals.pop(now, [])
        self.simulator.counts["tied_arrivals"] += len(arrivals) > 1
        for port, frame in sorted(arrivals, key=lambda arrival: self.tie_key(arrival[0], now)):
            assert port.is_up
            if frame.corrupt:
                self.drop(port, -1, CORRUPT, frame, now)
            else:
                self.receive(port, frame, now)
        self.run_own_timers(now)
        for port in self.ports:
            port.pfc.run_timer(now)
            if port.credits:
                port.credits.run_timer(now)
        self.run_polls(now)
        self.run_operations(now)
        while True:
            able = [port for port in self.ports if port.is_free(now) and self.has_something(port, now)]
            if not able:
                break
            self.choose(min(able, key=lambda port: self.tie_key(port, now)) if len(able) > 1 else able[0], now)
        self.stepped_ps = now

    def take_effect(self, port: Port, frame: Frame, now: int) -> None:
        self.simulator.link_frames_in_flight -= 1
        if frame.totals:
            assert port.credits is not None
            port.credits.learn(frame.totals)
            return
        pause_ps = self.plan.port_pause_ps[port.peer_id]
        for class_id, lossless in enumerate(self.plan.class_lossless):
            if lossless and port.pfc_obey[class_id]:
                is_xoff = frame.number >> class_id & 1
                # An XON for a class that is not paused, beside the XOFF of another, leaves the end of its last pause.
                paused_until = min(port.pause_until_ps[class_id], now)
                until = paused_until if not is_xoff else FOREVER_PS if pause_ps == 0 else now + pause_ps
                if is_xoff and port.pause_until_ps[class_id] < now:
                    port.pause_begin_ps[class_id] = now
                port.pause_until_ps[class_id] = until

    def drop(self, ingress: Port, egress_id: int, cause: int, frame: Frame, now: int) -> None:
        """A frame that came in by a port goes no further."""
        self.simulator.record_drop(now, self.node, ingress.id, egress_id, cause, frame)
        self.free_credits(ingress, frame)

    def free_credits(self, ingress: Port, frame: Frame) -> None:
        """A frame that came in by a port needs no room any longer."""
        if ingress.credits and frame.kind not in LINK_FRAMES:
            ingress.credits.free(frame)

    def lose_in_flight(self, port: Port, now: int) -> None:
        """The link of a port goes down: nothing on its way to it arrives, nothing received takes effect any more."""
        for at, effects in list(self.effects.items()):
            self.effects[at] = [item for item in effects if item[0] is not port]
            self.simulator.link_frames_in_flight -= len(effects) - len(self.effects[at])
            if not self.effects[at]:
                del self.effects[at]
        for at, arrivals in list(self.arrivals.items()):
            self.arrivals[at] = [item for item in arrivals if item[0] is not port]
            for owner, frame in arrivals:
                if owner is port and frame.kind not in LINK_FRAMES:
                    self.drop(port, -1, LINK_DOWN, frame, now)
            if not self.arrivals[at]:
                del self.arrivals[at]

    def flush(self, port: Port, now: int) -> None:
        """The link of a port goes down: a device may not keep what waits for it."""

    def has_something(self, port: Port, now: int) -> bool:
        return port.is_up and (port.has_link_frame() or self.sendable_class(port, now) is not None)

    def choose(self, port: Port, now: int) -> None:
        if port.has_link_frame():
            port.send_link_frame(now)
            return
        class_id = self.sendable_class(port, now)
        assert class_id is not None
        self.send_frame(port, class_id, now)

    def next_start(self, port: Port) -> int:
        """First instant at which this port could start a transmission, as things stand."""
        if not port.is_up:
            return FOREVER_PS
        return port.busy_until_ps if port.has_link_frame() else self.next_frame(port)

    def next_event(self) -> int:
        """The next instant at which something happens here for certain, as far as this device knows."""
        times = [*self.effects, *self.arrivals, self.next_own_timer()]
        times += [self.next_start(port) for port in self.ports]
        timers = [port.pfc.refresh_ps for port in self.ports]
        timers += [port.credits.refresh_ps for port in self.ports if port.credits]
        return min(times + [timer for timer in timers if timer is not None], default=FOREVER_PS)

    def verify_links(self) -> None:
        """Credits of every link that ends here are conserved."""
        for port in self.ports:
            if port.credits is None:
                continue
            flying = [0] * self.simulator.class_count
            for arrivals in self.arrivals.values():
                for owner, frame in arrivals:
                    if owner is port and frame.kind not in LINK_FRAMES:
                        flying[frame.class_id] += blocks(frame)
            port.credits.verify(flying, self.held_blocks(port))

    def verify(self) -> None:
        """Every counter equals what is really there."""
        raise NotImplementedError
