"""Faults to control actions, by time, and to the routing tables that come into force after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.buffers import NEVER_MARK_BYTES, FrameLimits
from fabemu.compile.routes import Detour, Tables, compile_routes
from fabemu.compile.wiring import CREDIT_REFRESH_AUTO, Wiring
from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.plan import (
    ACTION_ECN,
    ACTION_HEADROOM,
    ACTION_LINK_DOWN,
    ACTION_LINK_UP,
    ACTION_LOSS,
    ACTION_MAP,
    ACTION_PFC,
    ACTION_RECEIVER,
    ACTION_ROUTES,
    ACTION_STORM,
    FOREVER_PS,
    NONE,
)
from fabemu.routing import Routes
from fabemu.scenario.fabric import close_to
from fabemu.scenario.fault import (
    FRAME_KINDS,
    EcnOff,
    Flap,
    HeadroomFault,
    LinkDown,
    Loss,
    PfcOff,
    PriorityMap,
    Reboot,
    SlowReceiver,
    Storm,
)
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric
from fabemu.units import format_bytes, format_time

CREDIT_REFRESH_PS = 100_000_000
"""How often credits are told again where the frame that told them can be lost, if the scenario does not say."""

REPEATS_MAX = 100_000
"""Times that one fault happens."""

_Q32 = 1 << 32
_UNLIMITED = -1
_PFC_KIND = FRAME_KINDS.index("pfc")
_CREDIT_KIND = FRAME_KINDS.index("credit")


@dataclass(frozen=True)
class Faults:
    """Fields of `Plan` by name, and the routes with every link up."""

    fields: dict[str, Any]
    tables: Tables
    may_lose: bool  # lossless frames, whatever the headroom


@dataclass
class _Compiler:
    """What the faults of one scenario come to."""

    scenario: Scenario
    fabric: Fabric
    wiring: Wiring
    buffers: Mapping[str, NDArray[Any]]  # fields of the plan
    frames: FrameLimits
    actions: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # time, kind, target, mask, value
    problems: list[Problem] = field(default_factory=list)
    dead: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by port: when its link is down
    loss_rows: list[tuple[float | None, float | None]] = field(default_factory=list)  # rate or bit error rate
    taken: dict[tuple[Any, ...], list[tuple[int, int, int]]] = field(default_factory=dict)  # times of settings, fault
    credits_lost: set[int] = field(default_factory=set)  # ports whose credit frames may get lost
    may_lose: bool = False

    @property
    def until_ps(self) -> int:
        """When the run ends at the latest."""
        return FOREVER_PS if self.scenario.until is None else self.scenario.until

    @property
    def class_count(self) -> int:
        return len(self.scenario.classes)

    def refuse(self, index: int, key: str, message: str, value: str | None = None) -> None:
        self.problems.append(Problem("", f"fault.{index}.{key}", message, None if value is None else f'"{value}"'))

    def act(self, time_ps: int, kind: int, target: int, mask: int = 0, value: int = 0) -> None:
        """Add an action; what the end of the run forestalls is left out."""
        if time_ps < self.until_ps:
            self.actions.append((time_ps, kind, target, mask, value))

    def end_of(self, fault: Any) -> int:
        return FOREVER_PS if fault.end is None else fault.end

    def claim(self, index: int, fault: Any, *setting: Any) -> None:
        """Refuse two faults that set one thing at the same time: which of them would hold, nobody could say."""
        end = self.end_of(fault)
        for start, stop, other in self.taken.get(setting, ()):
            if fault.start < stop and start < end:
                until = "the run's end" if stop == FOREVER_PS else format_time(stop)
                message = (
                    f"sets what fault.{other} sets at the same time, from {format_time(start)} to {until}: let one end "
                    "before the other begins"
                )
                problem = Problem("", f"fault.{index}.start", message, f'"{format_time(fault.start)}"')
                if problem not in self.problems:
                    self.problems.append(problem)
                break
        self.taken.setdefault(setting, []).append((fault.start, end, index))

    # Places.

    def node(self, index: int, key: str, name: str, *, among: Sequence[str], noun: str) -> int | None:
        """Id of a device; None, and a problem, if there is none of this name and kind."""
        names = self.fabric.node_names
        if name in among:
            return names.index(name)
        if name in names:
            other = "host" if name in self.fabric.host_names else "switch"
            self.refuse(index, key, f'"{name}" is a {other}, not a {noun}', name)
        else:
            self.refuse(index, key, f'the fabric has no {noun} "{name}"{close_to(name, among)}', name)
        return None

    def host_ports(self, index: int, name: str) -> list[int]:
        """Ports of the NIC of a host; that of its scale-up network is another device."""
        node = self.node(index, "host", name, among=self.fabric.host_names, noun="host")
        if node is None:
            return []
        own = [port for port in self.ports_of(node) if not self.wiring.scale_up[port]]
        if not own:
            self.refuse(index, "host", "has no link", name)
        return own

    def ports_of(self, node: int) -> list[int]:
        start = self.wiring.ports.node_port_start
        return list(range(int(start[node]), int(start[node + 1])))

    def ports_at(self, index: int, key: str, fault: Any, node: int) -> list[int]:
        """Ports of a device, or those that lead to one peer."""
        own = self.ports_of(node)
        if fault.peer is None:
            return own
        names = self.fabric.node_names
        if fault.peer not in names:
            self.refuse(
                index, "peer", f'the fabric has no device "{fault.peer}"{close_to(fault.peer, names)}', fault.peer
            )
            return []
        towards = [port for port in own if names[self.wiring.ports.peer_node[port]] == fault.peer]
        if not towards:
            self.refuse(index, "peer", f'no link joins "{getattr(fault, key)}" and this device', fault.peer)
        return towards

    def cables(self, index: int, fault: Any) -> list[int]:
        """Ports at the first device of `fault.link` whose cables lead to the second."""
        names = self.fabric.node_names
        unknown = [name for name in fault.link if name not in names]
        for name in unknown:
            self.refuse(index, "link", f'the fabric has no device "{name}"{close_to(name, names)}', name)
        if unknown:
            return []
        first, second = (names.index(name) for name in fault.link)
        found = [port for port in self.ports_of(first) if self.wiring.ports.peer_node[port] == second]
        if not found:
            self.refuse(index, "link", "no link joins these two devices", '", "'.join(fault.link))
        elif fault.index is not None and fault.index >= len(found):
            only = "one link joins" if len(found) == 1 else f"{len(found)} links join"
            message = f"{only} these two devices: index is 0" + (f" to {len(found) - 1}" if len(found) > 1 else "")
            self.problems.append(Problem("", f"fault.{index}.index", message, str(fault.index)))
            return []
        return found if fault.index is None else [found[fault.index]]

    def class_mask(self, classes: Sequence[str] | None, wanted: Callable[[Any], bool]) -> int:
        """Bits of the classes named, or of all that are wanted."""
        ordered = self.scenario.classes_by_priority
        return sum(
            1 << number
            for number, item in enumerate(ordered)
            if (wanted(item) if classes is None else item.name in classes)
        )

    def lossless_mask(self, index: int, classes: Sequence[str] | None) -> int:
        mask = self.class_mask(classes, lambda item: item.lossless)
        if not mask:
            self.refuse(index, "kind", "the scenario has no lossless class")
        return mask

    # Kinds of faults.

    def kill(self, port: int, start: int, end: int) -> None:
        """The cable of a port is dead for a time."""
        for end_port in (port, int(self.wiring.ports.port_peer[port])):
            self.dead.setdefault(end_port, []).append((start, end))

    def times(self, index: int, fault: Any, period: int) -> list[int]:
        """Starts of what happens every period."""
        end = min(self.end_of(fault), self.until_ps)
        count = max(0, -(-(end - fault.start) // period))
        if count > REPEATS_MAX:
            self.refuse(
                index, "period", f"the fault would happen {count:,} times; at most {REPEATS_MAX:,} are supported"
            )
            return []
        return [fault.start + number * period for number in range(count)]

    def link_down(self, index: int, fault: LinkDown) -> None:
        for port in self.cables(index, fault):
            self.kill(port, fault.start, self.end_of(fault))

    def flap(self, index: int, fault: Flap) -> None:
        ports = self.cables(index, fault)
        for start in self.times(index, fault, fault.period):
            for port in ports:
                self.kill(port, start, min(start + fault.down, self.end_of(fault)))

    def reboot(self, index: int, fault: Reboot) -> None:
        node = self.node(index, "switch", fault.switch, among=self.fabric.switch_names, noun="switch")
        if node is not None:
            for port in self.ports_of(node):
                self.kill(port, fault.start, self.end_of(fault))

    def loss(self, index: int, fault: Loss) -> None:
        key = (fault.rate, fault.ber)
        if key not in self.loss_rows:
            self.loss_rows.append(key)
        row = self.loss_rows.index(key)
        mask = sum(1 << FRAME_KINDS.index(kind) for kind in set(fault.frames))
        self.may_lose |= bool(mask >> _PFC_KIND & 1)
        for port in self.cables(index, fault):
            for sender in (port, int(self.wiring.ports.port_peer[port])):
                if fault.sender not in (None, self.fabric.node_names[self.wiring.ports.port_node[sender]]):
                    continue
                for kind in sorted(set(fault.frames)):
                    self.claim(index, fault, "loss", sender, kind)
                # What is not there is not lost: no PFC where there are credits, and the other way round.
                with_credits = bool(self.wiring.credit_bytes[sender])
                absent = {"pfc" if with_credits else "credit"}
                if set(fault.frames) <= absent:
                    has = "has credits" if with_credits else "has no credits"
                    message = f"{self.wiring.names[sender]} {has}: there are no such frames on it"
                    self.problems.append(Problem("", f"fault.{index}.frames", message))
                    return
                if mask >> _CREDIT_KIND & 1 and (fault.rate or fault.ber):
                    self.credits_lost.add(sender)
                self.act(fault.start, ACTION_LOSS, sender, mask, row)
                self.act(self.end_of(fault), ACTION_LOSS, sender, mask, NONE)

    def storm(self, index: int, fault: Storm) -> None:
        mask = self.lossless_mask(index, fault.classes)
        for port in self.host_ports(index, fault.host):
            if self.wiring.credit_bytes[port]:
                self.refuse(index, "host", "is on a link with credits, where nothing is paused", fault.host)
                return
            self.claim(index, fault, "storm", port)
            self.act(fault.start, ACTION_STORM, port, mask, 1)
            self.act(self.end_of(fault), ACTION_STORM, port, mask, 0)

    def slow_receiver(self, index: int, fault: SlowReceiver) -> None:
        starts = self.times(index, fault, fault.period) if fault.period is not None else []
        for port in self.host_ports(index, fault.host):
            self.claim(index, fault, "receiver", port)
            if fault.rate is not None:
                self.act(fault.start, ACTION_RECEIVER, port, 0, fault.rate)
                self.act(self.end_of(fault), ACTION_RECEIVER, port, 0, _UNLIMITED)
                continue
            for start in starts:
                self.act(start, ACTION_RECEIVER, port, 0, 0)
                self.act(min(start + (fault.stall or 0), self.end_of(fault)), ACTION_RECEIVER, port, 0, _UNLIMITED)

    def pfc_off(self, index: int, fault: PfcOff) -> None:
        mask = self.lossless_mask(index, fault.classes)
        node = self.node(index, "at", fault.at, among=self.fabric.node_names, noun="device")
        if node is None:
            return
        ports = self.ports_at(index, "at", fault, node)
        on = [port for port in ports if self.buffers["pq_pfc_send"][port * self.class_count]]
        if ports and not on:
            self.refuse(index, "at", "has no PFC there that could be off", fault.at)
        self.may_lose = True
        for port in on:
            for number in range(self.class_count):
                if mask >> number & 1:
                    self.claim(index, fault, "pfc", port, number)
            self.act(fault.start, ACTION_PFC, port, mask, 0)
            self.act(self.end_of(fault), ACTION_PFC, port, mask, 1)

    def ecn_off(self, index: int, fault: EcnOff) -> None:
        mask = self.class_mask(fault.classes, lambda item: item.ecn)
        if not mask:
            self.refuse(index, "kind", "the scenario has no class with ECN")
        node = self.node(index, "at", fault.at, among=self.fabric.switch_names, noun="switch")
        if node is None:
            return
        ports = self.ports_at(index, "at", fault, node)
        kmin = self.buffers["pq_kmin_bytes"].reshape(-1, self.class_count)
        marking = [number for number in range(self.class_count) if mask >> number & 1]
        if ports and marking and (kmin[np.ix_(ports, marking)] == NEVER_MARK_BYTES).all():
            self.refuse(index, "at", "marks nothing there that could be off", fault.at)
        for port in ports:
            for number in range(self.class_count):
                if mask >> number & 1:
                    self.claim(index, fault, "ecn", port, number)
            self.act(fault.start, ACTION_ECN, port, mask, 0)
            self.act(self.end_of(fault), ACTION_ECN, port, mask, 1)

    def priority_map(self, index: int, fault: PriorityMap) -> None:
        node = self.node(index, "switch", fault.switch, among=self.fabric.switch_names, noun="switch")
        if node is None:
            return
        if any(self.wiring.credit_bytes[port] for port in self.ports_of(node)):
            message = "has links with credits, where a frame belongs to the same class at both ends"
            self.refuse(index, "switch", message, fault.switch)
        number = node - self.fabric.host_count
        configured = self.buffers["switch_class_map"].reshape(-1, self.class_count)[number]
        self.may_lose = True
        for own, treated in fault.map.items():
            own_id = self.scenario.class_id(own)
            self.claim(index, fault, "map", node, own_id)
            self.act(fault.start, ACTION_MAP, number, own_id, self.scenario.class_id(treated))
            self.act(self.end_of(fault), ACTION_MAP, number, own_id, int(configured[own_id]))

    def headroom(self, index: int, fault: HeadroomFault) -> None:
        mask = self.lossless_mask(index, fault.classes)
        node = self.node(index, "switch", fault.switch, among=self.fabric.switch_names, noun="switch")
        if node is None:
            return
        configured = self.buffers["pq_headroom_bytes"].reshape(-1, self.class_count)
        lowered = [number for number in range(self.class_count) if mask >> number & 1]
        self.may_lose = True
        ports = self.ports_at(index, "switch", fault, node)
        if ports and all(self.wiring.credit_bytes[port] for port in ports):
            self.refuse(index, "switch", "has links with credits only there, which need no headroom", fault.switch)
            return
        for port in ports:
            if self.wiring.credit_bytes[port]:
                continue
            least = min((int(configured[port, number]) for number in lowered), default=0)
            if fault.headroom > least:
                message = (
                    f"{self.wiring.names[port]} has {format_bytes(least)} without the fault, and the shared pool "
                    "is what is left: a fault can only lower it"
                )
                self.problems.append(
                    Problem("", f"fault.{index}.headroom", message, f'"{format_bytes(fault.headroom)}"')
                )
                return
            for number in lowered:
                self.claim(index, fault, "headroom", port, number)
            self.act(fault.start, ACTION_HEADROOM, port, mask, fault.headroom)
            for number in lowered:
                self.act(self.end_of(fault), ACTION_HEADROOM, port, 1 << number, int(configured[port, number]))

    # Links and routes.

    def links(self) -> None:
        """Actions of all links."""
        for port in sorted(self.dead):
            for start, end in _joined(self.dead[port]):
                self.act(start, ACTION_LINK_DOWN, port)
                self.act(end, ACTION_LINK_UP, port)

    def history(self, detection_ps: int) -> list[tuple[int, frozenset[int]]]:
        """Tell which set of ports is dead from each change on that is detected: it must last as long as that takes."""
        changes: dict[int, list[tuple[int, bool]]] = {}
        for port in sorted(self.dead):
            spans = _joined(self.dead[port])
            times = [time_ps for span in spans for time_ps in span]
            seen_dead = False
            for place, (time_ps, following_ps) in enumerate(pairwise([*times, FOREVER_PS])):
                is_dead = place % 2 == 0
                lasts = following_ps == FOREVER_PS or following_ps - time_ps >= detection_ps
                if time_ps < FOREVER_PS and lasts and is_dead != seen_dead:
                    seen_dead = is_dead
                    changes.setdefault(time_ps, []).append((port, is_dead))
        dead: set[int] = set()
        history: list[tuple[int, frozenset[int]]] = []
        for time_ps in sorted(changes):
            for port, is_dead in changes[time_ps]:
                (dead.add if is_dead else dead.discard)(port)
            history.append((time_ps, frozenset(dead)))
        return history

    def credit_refresh_ps(self) -> NDArray[np.int64]:
        """(P,) how long after a credit frame its port says the same again, 0 for never.

        A link that goes down needs none: its credits are those of the start when it comes up.
        """
        refresh = self.wiring.credit_refresh_ps.copy()
        may_lose = np.isin(np.arange(len(refresh)), list(self.credits_lost))
        refresh[refresh == CREDIT_REFRESH_AUTO] = 0
        return np.where(may_lose & (self.wiring.credit_refresh_ps == CREDIT_REFRESH_AUTO), CREDIT_REFRESH_PS, refresh)

    def loss_q32(self, size_max: int) -> NDArray[np.uint64]:
        """(rows * (size_max + 1),) probability that a frame is corrupt, by its size."""
        table = np.zeros((len(self.loss_rows), size_max + 1), dtype=np.uint64)
        for row, (rate, ber) in zip(table, self.loss_rows, strict=True):
            if ber is None:
                row[:] = round((rate or 0.0) * _Q32)
            elif ber >= 1:
                row[:] = _Q32
            else:
                row[:] = [round(-math.expm1(8 * size * math.log1p(-ber)) * _Q32) for size in range(size_max + 1)]
        return table.ravel()


def compile_faults(
    scenario: Scenario,
    fabric: Fabric,
    wiring: Wiring,
    buffers: Mapping[str, NDArray[Any]],
    frames: FrameLimits,
    shortest: Routes,
    detours: Sequence[Detour],
) -> Faults:
    """Work out actions and routing tables.

    Parameters
    ----------
    scenario, fabric, wiring
        The parts, resolved.
    buffers
        Fields of the plan, by name: what is restored when a fault is over.
    frames
        Sizes of frames.
    shortest
        Shortest paths with every link up.
    detours
        Next hops given by hand.

    Raises
    ------
    ScenarioError
        A fault names what the fabric does not have, or two set one thing at the same time.
    """
    work = _Compiler(scenario, fabric, wiring, buffers, frames)
    kinds: dict[type[Any], Callable[[int, Any], None]] = {
        LinkDown: work.link_down,
        Flap: work.flap,
        Loss: work.loss,
        Storm: work.storm,
        SlowReceiver: work.slow_receiver,
        PfcOff: work.pfc_off,
        EcnOff: work.ecn_off,
        PriorityMap: work.priority_map,
        HeadroomFault: work.headroom,
        Reboot: work.reboot,
    }
    for index, fault in enumerate(scenario.fault):
        kinds[type(fault)](index, fault)
    if work.problems:
        raise ScenarioError(work.problems)
    work.links()
    history = work.history(scenario.routing.detection)
    dead = list(dict.fromkeys(down for _, down in history if down))
    tables = compile_routes(fabric, wiring, shortest, detours, dead)
    reaction_ps = scenario.routing.detection + scenario.routing.convergence
    for time_ps, down in history:
        work.act(time_ps + reaction_ps, ACTION_ROUTES, NONE, 0, dead.index(down) + 1 if down else 0)
    actions = sorted(work.actions, key=lambda action: action[0])
    columns = list(zip(*actions, strict=True)) or [()] * 5
    size_max = max(frames.largest_bytes, frames.pfc_bytes) + 256 if work.loss_rows else 0
    return Faults(
        {
            "action_time_ps": np.array(columns[0], dtype=np.int64),
            "action_kind": np.array(columns[1], dtype=np.uint8),
            "action_target": np.array(columns[2], dtype=np.int32),
            "action_mask": np.array(columns[3], dtype=np.int32),
            "action_value": np.array(columns[4], dtype=np.int64),
            "route_epochs": len(tables.route),
            "loss_size_max": size_max,
            "port_credit_refresh_ps": work.credit_refresh_ps(),
            "loss_q32": work.loss_q32(size_max),
        },
        tables,
        work.may_lose or bool(work.dead),
    )


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that touch or overlap: a cable that two faults hold down is down once."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
