"""A plain replica of the HPCC simulator, from the rules of docs/VALIDATION.md and never from the core.

It reads the simulator's own text files, so that a comparison covers the importer and the compiler too. Whole ns, one
heap, ties in order of creation. ECN must not depend on chance: `pmax` is 0 or 1, or both thresholds are equal.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HEADER_BYTES, ACK_BYTES, PFC_BYTES = 48, 60, 43
RESERVE_BYTES, XON_OFFSET_BYTES = 4096, 3072
GROUPS = 8


def truncated_ns(size_bytes: int, rate_bps: int) -> int:
    """Serialisation time: seconds as a double, fixed point with 64 fractional bits, cut to whole ns."""
    return int(math.ldexp(size_bytes * 8 / rate_bps, 64)) * 10**9 >> 64


@dataclass
class Link:
    """A line of the topology file."""

    a: int
    b: int
    rate_bps: int
    delay_ns: int


@dataclass
class Flow:
    """A line of the flow file."""

    src: int
    dst: int
    group: int
    size_bytes: int
    start_ns: int
    fct_ns: int = -1


@dataclass
class Settings:
    """What the configuration file says; rates in bit/s, sizes in bytes, times in ns."""

    buffer_bytes: int
    is_dcqcn: bool
    kmin_bytes: dict[int, int]  # by rate
    kmax_bytes: dict[int, int]
    pmax: int
    alpha_ns: int = 1_000
    decrease_ns: int = 4_000
    increase_ns: int = 300_000
    gain: float = 1 / 256
    steps: int = 1
    clamps: bool = False
    ai_bps: int = 20_000_000
    hai_bps: int = 200_000_000
    min_bps: int = 1_000_000_000
    payload_bytes: int = 1000


@dataclass
class Frame:
    """A frame on its way; `ingress` is the port by which the switch that holds it got it."""

    kind: str  # data, ack, pfc
    group: int
    size: int
    dst: int = -1
    sender: Sender | None = None
    number: int = 0  # bytes that have been received with it
    is_marked: bool = False
    is_pause: bool = False
    ingress: Port | None = None


@dataclass
class Sender:
    """Sending side of a flow."""

    flow: Flow
    rate_bps: int
    line_bps: int
    next_ns: int = 0
    sent: int = 0
    acked: int = 0
    target_bps: int = 0
    alpha: float = 1.0
    stage: int = 0
    has_begun: bool = False
    alpha_flag: bool = False
    decrease_flag: bool = False
    increase_id: int = 0

    @property
    def is_done(self) -> bool:
        """Everything is acknowledged."""
        return self.acked >= self.flow.size_bytes


@dataclass
class Port:
    """One end of a link."""

    node: int
    number: int  # from 1
    rate_bps: int
    delay_ns: int
    peer: Port | None = None
    is_busy: bool = False
    paused: list[bool] = field(default_factory=lambda: [False] * GROUPS)
    # Switch.
    shift: int = 3
    headroom_bytes: int = 0
    pfc: deque[Frame] = field(default_factory=deque)
    queues: list[deque[Frame]] = field(default_factory=lambda: [deque() for _ in range(GROUPS)])
    queued: list[int] = field(default_factory=lambda: [0] * GROUPS)
    last_group: int = 0
    ingress_bytes: list[int] = field(default_factory=lambda: [0] * GROUPS)
    headroom_used: list[int] = field(default_factory=lambda: [0] * GROUPS)
    has_paused: list[bool] = field(default_factory=lambda: [False] * GROUPS)
    # Host.
    acks: deque[Frame] = field(default_factory=deque)
    senders: list[Sender] = field(default_factory=list)
    last_sender: int = 0
    wakes: bool = False


class Replica:
    """One run. Routes are shortest paths; where there are several the first port is taken, so use trees."""

    def __init__(self, node_count: int, switches: set[int], links: list[Link], flows: list[Flow], settings: Settings):
        """Wire the nodes."""
        self.settings = settings
        self.switches = switches
        self.flows = flows
        self.now = 0
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.created = 0
        self.ports: list[list[Port]] = [[] for _ in range(node_count)]
        self.pfc_rows: list[tuple[int, int, int, str]] = []
        self.dropped = 0
        for link in links:
            ends = []
            for node in (link.a, link.b):
                port = Port(node, len(self.ports[node]) + 1, link.rate_bps, link.delay_ns)
                self.ports[node].append(port)
                ends.append(port)
            ends[0].peer, ends[1].peer = ends[1], ends[0]
        nic_bps = next(self.ports[node][0].rate_bps for node in range(node_count) if node not in switches)
        self.pool = {}
        self.shared_used = dict.fromkeys(switches, 0)
        for node in switches:
            for port in self.ports[node]:
                port.headroom_bytes = port.rate_bps * port.delay_ns // 8 // 10**9 * 3
                rate = port.rate_bps
                while rate > nic_bps and port.shift > 0:
                    port.shift -= 1
                    rate //= 2
            self.pool[node] = settings.buffer_bytes - sum(
                port.headroom_bytes + RESERVE_BYTES for port in self.ports[node]
            )
        self.routes = {dst: self._routes_to(dst) for dst in {end for f in flows for end in (f.src, f.dst)}}
        self.receivers: dict[int, int] = {}

    def _routes_to(self, dst: int) -> dict[int, Port]:
        """Port of every node towards `dst`."""
        found: dict[int, Port] = {}
        wave, seen = [dst], {dst}
        while wave:
            following = []
            for node in wave:
                for port in self.ports[node]:
                    other = port.peer.node
                    if other not in seen and (other in self.switches or other != dst):
                        seen.add(other)
                        found[other] = port.peer
                        if other in self.switches:
                            following.append(other)
            wave = following
        return found

    def at(self, delay_ns: int, action: Callable[..., None], *arguments: Any) -> None:
        """Create an event."""
        heapq.heappush(self.events, (self.now + delay_ns, self.created, action, arguments))
        self.created += 1

    def run(self) -> None:
        """Run until nothing is left, or a frame is lost: its flow would never end."""
        self.unread = 0
        self._await_flows()
        while self.events and not self.dropped:
            self.now, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)

    # Flows.

    def _await_flows(self) -> None:
        if self.unread < len(self.flows):
            self.at(self.flows[self.unread].start_ns - self.now, self._read_flows)

    def _read_flows(self) -> None:
        while self.unread < len(self.flows) and self.flows[self.unread].start_ns == self.now:
            self.at(0, self._install, self.flows[self.unread])
            self.unread += 1
        self._await_flows()

    def _install(self, flow: Flow) -> None:
        self.at(0, self._start, flow)

    def _start(self, flow: Flow) -> None:
        port = self.ports[flow.src][0]
        sender = Sender(flow, port.rate_bps, port.rate_bps, next_ns=self.now, target_bps=port.rate_bps)
        port.senders.append(sender)
        self._host_choice(port)

    # Links.

    def _transmit(self, port: Port, frame: Frame) -> None:
        port.is_busy = True
        time_ns = truncated_ns(frame.size, port.rate_bps)
        self.at(time_ns, self._end, port)
        self.at(time_ns + port.delay_ns, self._arrive, port.peer, frame)

    def _end(self, port: Port) -> None:
        port.is_busy = False
        self._choice(port)

    def _choice(self, port: Port) -> None:
        if port.node in self.switches:
            self._switch_choice(port)
        else:
            self._host_choice(port)

    def _arrive(self, port: Port, frame: Frame) -> None:
        if frame.kind == "pfc":
            self.pfc_rows.append((self.now, port.node, port.number, "pause" if frame.is_pause else "resume"))
            port.paused[frame.group] = frame.is_pause
            if not frame.is_pause:
                self._choice(port)
        elif port.node in self.switches:
            self._switch_arrival(port, frame)
        elif frame.kind == "data":
            self._data_arrival(port, frame)
        else:
            self._ack_arrival(port, frame)

    # Hosts.

    def _host_choice(self, port: Port) -> None:
        if port.is_busy:
            return
        if port.acks:
            self._transmit(port, port.acks.popleft())
            return
        count = len(port.senders)
        chosen = None
        first_done = count
        for step in range(1, count + 1):
            index = (step + port.last_sender) % count
            sender = port.senders[index]
            if not port.paused[sender.flow.group] and sender.sent < sender.flow.size_bytes:
                if sender.next_ns <= self.now:
                    chosen = sender
                    break
            elif sender.is_done:
                first_done = min(first_done, index)
        if first_done < count:
            kept = [sender for sender in port.senders[first_done:] if not sender.is_done]
            port.senders[first_done:] = kept
        if chosen is None:
            times = [sender.next_ns for sender in port.senders if sender.sent < sender.flow.size_bytes]
            if times and min(times) > self.now and not port.wakes:
                port.wakes = True
                self.at(min(times) - self.now, self._wake, port)
            return
        port.last_sender = next(i for i, sender in enumerate(port.senders) if sender is chosen)
        payload = min(self.settings.payload_bytes, chosen.flow.size_bytes - chosen.sent)
        chosen.sent += payload
        frame = Frame("data", chosen.flow.group, payload + HEADER_BYTES, chosen.flow.dst, chosen, chosen.sent)
        self._transmit(port, frame)
        chosen.next_ns = self.now + truncated_ns(frame.size, chosen.rate_bps)

    def _wake(self, port: Port) -> None:
        port.wakes = False
        self._host_choice(port)

    def _data_arrival(self, port: Port, frame: Frame) -> None:
        flow = frame.sender.flow
        ack = Frame("ack", frame.group, ACK_BYTES, flow.src, frame.sender, frame.number, frame.is_marked)
        port.acks.append(ack)
        self._host_choice(port)

    def _ack_arrival(self, port: Port, frame: Frame) -> None:
        sender = frame.sender
        sender.acked = max(sender.acked, frame.number)
        if sender.is_done and sender.flow.fct_ns < 0:
            sender.flow.fct_ns = self.now - sender.flow.start_ns
        if frame.is_marked and self.settings.is_dcqcn and not sender.is_done:
            self._notify(sender)
        self._host_choice(port)

    # DCQCN.

    def _notify(self, sender: Sender) -> None:
        sender.alpha_flag = sender.decrease_flag = True
        if not sender.has_begun:
            sender.has_begun = True
            sender.alpha, sender.alpha_flag = 1.0, False
            self.at(self.settings.alpha_ns, self._alpha_timer, sender)
            self.at(self.settings.decrease_ns + 1, self._decrease_check, sender)
            sender.target_bps = sender.rate_bps

    def _alpha_timer(self, sender: Sender) -> None:
        if sender.is_done:
            return
        gain = self.settings.gain
        sender.alpha = (1 - gain) * sender.alpha + (gain if sender.alpha_flag else 0.0)
        sender.alpha_flag = False
        self.at(self.settings.alpha_ns, self._alpha_timer, sender)

    def _decrease_check(self, sender: Sender) -> None:
        if sender.is_done:
            return
        self.at(self.settings.decrease_ns, self._decrease_check, sender)
        if not sender.decrease_flag:
            return
        if sender.stage > 0 or self.settings.clamps:
            sender.target_bps = sender.rate_bps
        sender.rate_bps = max(self.settings.min_bps, int(sender.rate_bps * (1 - sender.alpha / 2)))
        sender.stage = 0
        sender.decrease_flag = False
        sender.increase_id += 1
        self.at(self.settings.increase_ns, self._increase_timer, sender, sender.increase_id)

    def _increase_timer(self, sender: Sender, identity: int) -> None:
        if sender.is_done or identity != sender.increase_id:
            return
        self.at(self.settings.increase_ns, self._increase_timer, sender, identity)
        if sender.stage == self.settings.steps:
            sender.target_bps += self.settings.ai_bps
        elif sender.stage > self.settings.steps:
            sender.target_bps += self.settings.hai_bps
        sender.target_bps = min(sender.target_bps, sender.line_bps)
        sender.rate_bps = sender.rate_bps // 2 + sender.target_bps // 2
        sender.stage += 1

    # Switches.

    def _threshold(self, port: Port) -> int:
        return (self.pool[port.node] - self.shared_used[port.node]) >> port.shift

    @staticmethod
    def _over(port: Port, group: int) -> int:
        return max(0, port.ingress_bytes[group] - RESERVE_BYTES)

    def _switch_arrival(self, port: Port, frame: Frame) -> None:
        group, size = frame.group, frame.size
        threshold = self._threshold(port)
        if port.headroom_used[group] + size > port.headroom_bytes and self._over(port, group) + size > threshold:
            self.dropped += 1
            return
        after = port.ingress_bytes[group] + size
        if after <= RESERVE_BYTES:
            port.ingress_bytes[group] = after
        elif after - RESERVE_BYTES > threshold:
            port.headroom_used[group] += size
        else:
            port.ingress_bytes[group] = after
            self.shared_used[port.node] += min(size, after - RESERVE_BYTES)
        if not port.has_paused[group] and (
            port.headroom_used[group] > 0 or self._over(port, group) >= self._threshold(port)
        ):
            port.has_paused[group] = True
            self._send_pfc(port, group, is_pause=True)
        frame.ingress = port
        egress = self.routes[frame.dst][port.node]
        egress.queues[group].append(frame)
        egress.queued[group] += size
        self._switch_choice(egress)

    def _send_pfc(self, port: Port, group: int, *, is_pause: bool) -> None:
        port.pfc.append(Frame("pfc", group, PFC_BYTES, is_pause=is_pause))
        self._switch_choice(port)

    def _switch_choice(self, port: Port) -> None:
        if port.is_busy:
            return
        if port.pfc:
            self._transmit(port, port.pfc.popleft())
            return
        for step in range(1, GROUPS + 1):
            group = (port.last_group + step) % GROUPS
            if port.queues[group] and not port.paused[group]:
                port.last_group = group
                frame = port.queues[group].popleft()
                self._depart(port, group, frame)
                self._transmit(port, frame)
                return

    def _depart(self, port: Port, group: int, frame: Frame) -> None:
        size, ingress = frame.size, frame.ingress
        port.queued[group] -= size
        from_headroom = min(ingress.headroom_used[group], size)
        from_shared = min(size - from_headroom, self._over(ingress, group))
        ingress.headroom_used[group] -= from_headroom
        ingress.ingress_bytes[group] -= size - from_headroom
        self.shared_used[port.node] -= from_shared
        over = self._over(ingress, group)
        if (
            ingress.has_paused[group]
            and ingress.headroom_used[group] == 0
            and (over == 0 or over + XON_OFFSET_BYTES <= self._threshold(ingress))
        ):
            ingress.has_paused[group] = False
            self._send_pfc(ingress, group, is_pause=False)
        if frame.kind == "data":
            low, high = self.settings.kmin_bytes[port.rate_bps], self.settings.kmax_bytes[port.rate_bps]
            if port.queued[group] > high or (port.queued[group] > low and self.settings.pmax == 1 and low == high):
                frame.is_marked = True
