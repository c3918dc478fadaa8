"""Hypothesis strategies: options of switches and links, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

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
    ROUTE_LOCAL,
    WATCHDOG_ALERT,
    WATCHDOG_DROP,
    WATCHDOG_FORWARD,
    Plan,
)
from tests.oracle.build import Action, Cable, PortBuffer, SwitchSpec, TrafficClass, Wiring
from tests.oracle.packet import ACK, CNP, CREDIT, DATA, NAK, PFC, READ, ceil_div

OPTIONS = frozenset({"static", "cells", "weights", "pfc-enable", "ecn-enable", "class-map"})
FAULTS = frozenset({"links", "routes", "loss", "pfc-off", "ecn-off", "map-change", "headroom-change", "storm"})
FEATURES = OPTIONS | FAULTS | {"credits", "receiver", "watchdog", "deadlock"}
RARELY = [False, False, True]


@dataclass(frozen=True)
class Scale:
    """What is large and long in a plan: bytes of the largest frame, its time on a typical link, a cable's delay."""

    frame_bytes: int
    unit_ps: int
    delay_ps: int
    class_count: int

    def class_mask(self) -> st.SearchStrategy[int]:
        return st.integers(1, 2**self.class_count - 1)


@dataclass
class Incidents:
    """Actions, tables of routes beyond the first as lists of dead cables, and rows of loss by frame size."""

    actions: list[Action] = field(default_factory=list)
    epochs: list[list[int]] = field(default_factory=list)
    loss_rows: list[list[int]] = field(default_factory=list)
    loss_bytes: int = 0

    def plan_fields(self) -> dict[str, object]:
        values = [value for row in self.loss_rows for value in row]
        return {"loss_size_max": self.loss_bytes, "loss_q32": values}


@st.composite
def buffer_options(draw: st.DrawFn, buffer: PortBuffer, features: frozenset[str], scale: Scale) -> PortBuffer:
    """Options of one port and class."""
    frame = scale.frame_bytes
    changes = {}
    if "static" in features and draw(st.booleans()):
        changes["static"] = draw(st.sampled_from([0, 1, frame, 2 * frame + 1, 10 * frame]))
    if "static" in features and draw(st.booleans()):
        changes["egress_static"] = draw(st.sampled_from([0, 1, frame, 3 * frame, 10 * frame]))
    if "weights" in features and draw(st.sampled_from([True, True, False])):
        changes["quantum"] = draw(st.sampled_from([frame, frame, frame + 1, 3 * frame - 1, 9 * frame]))
    if "pfc-enable" in features:
        changes["pfc_send"] = draw(st.sampled_from([1, 1, 0]))
        changes["pfc_obey"] = draw(st.sampled_from([1, 1, 0]))
    if "ecn-enable" in features:
        changes["ecn"] = draw(st.sampled_from([1, 1, 0]))
    return replace(buffer, **changes)


@st.composite
def switch_options(draw: st.DrawFn, spec: SwitchSpec, features: frozenset[str], scale: Scale) -> SwitchSpec:
    """Options of one kind of switch; each only now and then, so that they meet plain switches too."""
    chosen = frozenset(name for name in sorted(features & OPTIONS) if draw(st.booleans()))
    buffers = [spec.buffers[min(class_id, len(spec.buffers) - 1)] for class_id in range(scale.class_count)]
    spec = replace(spec, buffers=[draw(buffer_options(buffer, chosen, scale)) for buffer in buffers])
    if "cells" in chosen:
        spec = replace(spec, cell_bytes=draw(st.sampled_from([2, 64, 80, 208, 256, 5000])))
    if "class-map" in chosen:
        class_id = st.integers(0, scale.class_count - 1)
        spec = replace(spec, class_map=[draw(class_id) for _ in range(scale.class_count)])
    return spec


@st.composite
def credit_cables(draw: st.DrawFn, cables: Sequence[Cable], scale: Scale, everywhere: bool) -> list[Cable]:
    """Some or all cables under credit flow control."""
    smallest = ceil_div(scale.frame_bytes, 64) * 64
    sizes = st.sampled_from([smallest, smallest, smallest + 64, 2 * smallest, 5 * smallest, 40 * smallest])
    refresh = draw(st.sampled_from([0, 0, scale.unit_ps // 3 + 1, 5 * scale.unit_ps, 40 * scale.unit_ps]))
    changed = []
    for cable in cables:
        if everywhere or draw(st.booleans()):
            lanes = tuple(draw(st.lists(sizes, min_size=1, max_size=scale.class_count)))
            cable = replace(cable, lanes=lanes, credit_refresh_ps=refresh)
        changed.append(cable)
    return changed


@st.composite
def faults(
    draw: st.DrawFn,
    wiring: Wiring,
    cables: Sequence[Cable],
    specs: Sequence[SwitchSpec],
    classes: Sequence[TrafficClass],
    features: frozenset[str],
    scale: Scale,
) -> Incidents:
    """Up to five faults, most of them over before the run is."""
    incidents = Incidents(loss_bytes=scale.frame_bytes + 200)
    unit = scale.unit_ps + draw(st.sampled_from([0, scale.delay_ps, 3 * scale.delay_ps]))
    early = st.sampled_from([0, 1, unit, 2 * unit, 3 * unit + 1, 7 * unit, 20 * unit])
    times = st.one_of(early, st.integers(0, 60 * unit))
    lengths = st.one_of(st.sampled_from([0, 1, unit, 5 * unit, 20 * unit, 200 * unit]), st.integers(1, 100 * unit))
    pfc_ports = [port for port, cable in enumerate(wiring.port_cable) if not cable.lanes]
    switch_ports = [port for port, node in enumerate(wiring.port_node) if node >= wiring.hosts]
    places: dict[str, Sequence[int]] = {
        "links": range(len(cables)),
        "loss": range(len(wiring.port_node)),
        "pfc-off": pfc_ports,
        "ecn-off": switch_ports,
        "map-change": [] if any(cable.lanes for cable in cables) else range(len(specs)),
        "headroom-change": [port for port in switch_ports if port in pfc_ports],
        "storm": [port for port in pfc_ports if port not in switch_ports],
    }
    kinds = sorted(kind for kind, where in places.items() if kind in features and where)
    if not kinds:
        return incidents
    kinds += [kind for kind in ("links", "loss", "loss") if kind in kinds]
    downs: dict[int, list[tuple[int, int]]] = {}  # by cable: (from, to) of each outage, to = -1 for ever
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3, 5]))):
        kind = draw(st.sampled_from(kinds))
        place = draw(st.sampled_from(places[kind]))
        start = draw(times)
        end = start + draw(lengths) if draw(st.sampled_from([True, True, True, False])) else -1
        mask = draw(scale.class_mask())
        if kind == "links":
            reboot = draw(st.sampled_from(RARELY))
            node = max(cables[place].a, cables[place].b)
            dead = [index for index, cable in enumerate(cables) if node in (cable.a, cable.b)] if reboot else [place]
            outages = [(start, end)]
            if end > start and draw(st.sampled_from(RARELY)):
                period = end - start + draw(lengths) + 1
                outages = [(start + turn * period, end + turn * period) for turn in range(draw(st.integers(2, 6)))]
            for cable in dead:
                if cable not in downs:
                    downs[cable] = outages
        elif kind == "loss":
            row = draw(loss_rows(incidents.loss_bytes))
            frames = draw(st.one_of(st.just(0x7F), st.just(0x7F), st.just(1 << PFC | 1 << CREDIT), frame_masks()))
            start = draw(st.sampled_from([0, start]))
            incidents.actions.append(Action(start, ACTION_LOSS, place, frames, len(incidents.loss_rows)))
            incidents.loss_rows.append(row)
            if end >= 0:
                incidents.actions.append(Action(end, ACTION_LOSS, place, frames, -1))
        else:
            incidents.actions += draw(settings_changes(kind, place, start, end, mask, specs, wiring, scale))
    for cable, outages in downs.items():
        for start, end in outages:
            for port in wiring.cable_ports[cable]:
                incidents.actions.append(Action(start, ACTION_LINK_DOWN, port))
                if end >= 0:
                    incidents.actions.append(Action(end, ACTION_LINK_UP, port))
    if "routes" in features and downs and draw(st.booleans()):
        add_routes(incidents, downs, draw(lengths))
    return incidents


@st.composite
def settings_changes(
    draw: st.DrawFn,
    kind: str,
    place: int,
    start: int,
    end: int,
    mask: int,
    specs: Sequence[SwitchSpec],
    wiring: Wiring,
    scale: Scale,
) -> list[Action]:
    """A setting that changes at `start` and, if `end` is not -1, changes back."""
    if kind == "map-change":
        own = draw(st.integers(0, scale.class_count - 1))
        code, mask, value = ACTION_MAP, own, draw(st.integers(0, scale.class_count - 1))
        back = (specs[place].class_map or range(scale.class_count))[own]
    elif kind == "headroom-change":
        # Back to that of the class that is lowest in the mask.
        class_id = (mask & -mask).bit_length() - 1
        buffers = specs[wiring.port_node[place] - wiring.hosts].buffers
        code, value = ACTION_HEADROOM, draw(st.sampled_from([0, 100, scale.frame_bytes, 10**6]))
        back = buffers[min(class_id, len(buffers) - 1)].headroom
    elif kind == "storm":
        code, value, back = ACTION_STORM, 1, 0
    else:
        code, value, back = (ACTION_PFC if kind == "pfc-off" else ACTION_ECN), 0, 1
    actions = [Action(start, code, place, mask, value)]
    return actions + ([Action(end, code, place, mask, back)] if end >= 0 else [])


def frame_masks() -> st.SearchStrategy[int]:
    """Sets of kinds of frames."""
    kinds = st.sampled_from([DATA, DATA, ACK, NAK, CNP, PFC, READ, CREDIT])
    return st.sets(kinds, min_size=1, max_size=3).map(lambda chosen: sum(1 << kind for kind in chosen))


@st.composite
def loss_rows(draw: st.DrawFn, largest: int) -> list[int]:
    """Loss probability x 2**32 by frame size: the same for all, or by the bits."""
    if draw(st.booleans()):
        return [draw(st.sampled_from([2**32, 2**31, 2**30, 2**29, 2**27]))] * (largest + 1)
    error = draw(st.sampled_from([1e-3, 1e-4, 1e-5]))
    return [int((1 - (1 - error) ** (8 * size)) * 2**32) for size in range(largest + 1)]


def add_routes(incidents: Incidents, downs: dict[int, list[tuple[int, int]]], delay: int) -> None:
    """Shortest paths without what is down, each table some time after the change of links that it answers."""
    changes = sorted({time for outages in downs.values() for outage in outages for time in outage if time >= 0})
    tables: list[list[int]] = [[]]
    for time in changes:
        dead = sorted(
            cable
            for cable, outages in downs.items()
            if any(start <= time and (end < 0 or time < end) for start, end in outages)
        )
        if dead not in tables:
            tables.append(dead)
        incidents.actions.append(Action(time + delay, ACTION_ROUTES, value=tables.index(dead)))
    incidents.epochs = tables[1:]


def storms_for_ever(actions: Sequence[Action]) -> bool:
    """Whether a storm may be left without an end: the run would not end either."""
    last = {
        (action.target, action.mask): action.value
        for action in sorted(actions, key=lambda item: item.time_ps)
        if action.kind == ACTION_STORM
    }
    return any(last.values())


@st.composite
def slow_receivers(draw: st.DrawFn, wiring: Wiring, scale: Scale) -> tuple[list[Action], dict[str, list[int]]]:
    """Up to three host ports that are slow or stop now and then; the actions and the fields of the plan."""
    actions: list[Action] = []
    frame, unit = scale.frame_bytes, scale.unit_ps
    hosts = [port for port, node in enumerate(wiring.port_node) if node < wiring.hosts]
    fields = {
        "port_rx_xoff_bytes": [FOREVER_PS] * len(wiring.port_node),
        "port_rx_xon_bytes": [0] * len(wiring.port_node),
        "port_rx_buffer_bytes": [FOREVER_PS] * len(wiring.port_node),
    }
    for port in draw(st.sets(st.sampled_from(hosts), max_size=3)) if hosts else ():
        xoff = draw(st.sampled_from([1, frame, 2 * frame + 1, 10 * frame, FOREVER_PS]))
        fields["port_rx_xoff_bytes"][port] = xoff
        fields["port_rx_xon_bytes"][port] = draw(
            st.sampled_from([0, 0, min(xoff - 1, frame), min(xoff // 2, 9 * frame)])
        )
        fields["port_rx_buffer_bytes"][port] = draw(
            st.sampled_from([FOREVER_PS, FOREVER_PS, frame, 3 * frame, 12 * frame])
        )
        line = wiring.port_cable[port].rate_bps
        rates = st.sampled_from([line // 2, line // 10, line // 100 + 1, 2 * line, 0, 0, -1])
        time = draw(st.sampled_from([0, 0, 1, unit, 10 * unit]))
        for _ in range(draw(st.sampled_from([1, 1, 2, 3, 6]))):
            actions.append(Action(time, ACTION_RECEIVER, port, 0, draw(rates)))
            time += draw(st.one_of(st.sampled_from([0, 1, unit]), st.integers(0, 100 * unit)))
        if draw(st.sampled_from([True, True, False])):
            actions.append(Action(time, ACTION_RECEIVER, port, 0, draw(st.sampled_from([-1, -1, line, line // 5]))))
    return actions, fields


@st.composite
def watchdogs(draw: st.DrawFn, wiring: Wiring, scale: Scale) -> dict[str, list[int]]:
    """Watchdogs of some switches, with times of some frames so that they have something to do."""
    fields: dict[str, list[int]] = {f"watchdog_{name}": [] for name in ("poll_ps", "detect_ps", "restore_ps", "action")}
    times = st.sampled_from([1, scale.unit_ps // 3 + 1, scale.unit_ps, 4 * scale.unit_ps, 30 * scale.unit_ps])
    for _ in range(wiring.nodes - wiring.hosts):
        fields["watchdog_poll_ps"].append(draw(st.sampled_from([0, 1, 1, 1])) and max(100, draw(times)))
        fields["watchdog_detect_ps"].append(draw(times))
        fields["watchdog_restore_ps"].append(draw(times))
        fields["watchdog_action"].append(
            draw(st.sampled_from([WATCHDOG_DROP, WATCHDOG_DROP, WATCHDOG_FORWARD, WATCHDOG_ALERT]))
        )
    fields["port_watchdog"] = [int(node >= wiring.hosts and draw(st.integers(0, 3)) > 0) for node in wiring.port_node]
    return fields


@st.composite
def rings(draw: st.DrawFn) -> tuple[str, int, int, list[tuple[int, int]]]:
    """A ring of switches as strategies.fabrics draws others; :func:`clockwise` makes its routes circular."""
    switches, each = draw(st.integers(3, 4)), draw(st.integers(1, 2))
    hosts = switches * each
    pairs = [(host, hosts + host // each) for host in range(hosts)]
    pairs += [(hosts + index, hosts + (index + 1) % switches) for index in range(switches)]
    return "ring", hosts, switches, draw(st.permutations(pairs))


def clockwise(plan: Plan, wiring: Wiring) -> Plan:
    """All traffic of a ring goes round in one direction."""
    count = wiring.nodes - wiring.hosts
    route = plan.route.tolist()
    for index in range(count):
        node = wiring.hosts + index
        onward = wiring.hosts + (index + 1) % count
        port = next(port for port in wiring.ports(node) if wiring.neighbour(port) == onward)
        start = wiring.row[node] * len(wiring.members)
        for entry in range(start, start + len(wiring.members)):
            if route[entry] != ROUTE_LOCAL:
                route[entry] = port
    return replace(plan, route=route)


def storm_pause(unit_ps: int) -> st.SearchStrategy[int]:
    """Pause time in the PFC frames of a NIC; 0 is until XON."""
    return st.sampled_from([0, unit_ps // 10 + 2, 3 * unit_ps, 30 * unit_ps])
