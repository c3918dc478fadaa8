"""From a scenario to a plan, with the names that the plan leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile.adapters import compile_adapters, refuse_unlike_ends
from fabemu.compile.balance import compile_balance
from fabemu.compile.bound import with_ideal_times
from fabemu.compile.buffers import FrameLimits, compile_buffers
from fabemu.compile.domains import compile_domains, keep_inside, scale_up_domains
from fabemu.compile.faults import compile_faults
from fabemu.compile.incidents import compile_incidents
from fabemu.compile.paths import fabric_routes
from fabemu.compile.routes import compile_detours
from fabemu.compile.soundness import check_operations, check_order
from fabemu.compile.traffic import compile_traffic
from fabemu.compile.unreachable import SHOWN_MAX, unreachable_messages
from fabemu.compile.wiring import Wiring, wire
from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.hashing import STREAM_ECMP, hash64, low32
from fabemu.ideal import ideal_completion_ps
from fabemu.plan import FOREVER_PS, SCHEDULER_CREATION, SCHEDULER_WINDOW, VERB_READ, VERB_SCALE_UP, VERB_SEND, Plan
from fabemu.routing import Routes, reachable
from fabemu.scenario.device import Switch
from fabemu.scenario.model import Scenario
from fabemu.topology.fabric import Fabric, build_fabric
from fabemu.workload import compile_workload
from fabemu.workload.flow import FlowTable
from fabemu.workload.graph import OperationGraph

READ_PACKETS_MAX = 2**23
"""Packets of one READ: what packet numbers of 24 bits can tell apart."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Compiled:
    """A plan and everything needed to speak of it in the user's words.

    Attributes
    ----------
    plan
        What the engine runs.
    fabric
        Devices and cables.
    graph
        Its operations, by the same numbers; `graph.op_label_id` and `labels` say to which workload each belongs.
    ideal_ps
        (O,) int64, completion time of every send on an empty network, from posting to the last byte at the receiver;
        -1 for other operations. See `fabemu.ideal`.
    node_names
        Names by node id, hosts first.
    port_names
        Names by port id: "leaf0->spine1", with "#0", "#1", ... where several cables join the same two devices.
    class_names
        Names by class id, highest priority first.
    labels
        Labels of the workloads, by label id.
    host_rate_bps
        (H,) int64, sum of the rates of each host's ports.
    """

    plan: Plan
    fabric: Fabric
    graph: OperationGraph
    ideal_ps: NDArray[np.int64]
    node_names: tuple[str, ...]
    port_names: tuple[str, ...]
    class_names: tuple[str, ...]
    labels: tuple[str, ...]
    host_rate_bps: NDArray[np.int64]

    @property
    def flows(self) -> FlowTable:
        """The messages: operation i sends flow i."""
        return self.graph.flows

    def tables(self, asked: Sequence[str]) -> tuple[str, ...]:
        """Tables that a run writes, of those asked for: of collectives, jobs and steps only if there are any."""
        graph = self.graph
        found = (("collectives", graph.collectives), ("jobs", graph.jobs), ("steps", graph.tracks))
        without = {name for name, items in found if not items}
        return tuple(name for name in asked if name not in without)


def compile_plan(
    scenario: Scenario, *, base_dir: Path = Path(), flows: FlowTable | OperationGraph | None = None
) -> Compiled:
    """Compile a scenario.

    Parameters
    ----------
    scenario
        The validated scenario.
    base_dir
        Directory of the scenario file; files that it names are relative to it.
    flows
        Traffic to use instead of the scenario's workloads.

    Raises
    ------
    ScenarioError
        The parts of the scenario do not fit each other: buffers too small, unknown devices, unreachable destinations,
        operations that wait for each other.
    InputError
        A file that the scenario names is wrong.
    """
    fabric = build_fabric(scenario, base_dir)
    wiring = wire(scenario, fabric)
    host_rate_bps = wiring.host_rate_bps()
    domain = scale_up_domains(scenario, fabric)
    if flows is None:
        graph = compile_workload(scenario, fabric, base_dir, host_rate_bps)
    else:
        graph = OperationGraph(flows=flows) if isinstance(flows, FlowTable) else flows
    check_operations(graph, fabric.host_names)
    graph = keep_inside(graph, domain)
    check_order(graph, fabric.host_names)
    flows = graph.flows
    routes = fabric_routes(fabric, wiring)
    _check_flows(flows, fabric, wiring, routes, len(scenario.classes))
    _check_verbs(flows, scenario)

    ns3 = scenario.compat == "ns3"
    switches = [
        scenario.switch_for(tier, name) for tier, name in zip(fabric.switch_tiers, fabric.switch_names, strict=True)
    ]
    frame_limits = _frame_limits(scenario, reads=bool((flows.verb == VERB_READ).any()))
    buffers = compile_buffers(scenario, fabric, wiring, switches, frame_limits)
    faults = compile_faults(
        scenario, fabric, wiring, buffers.fields, frame_limits, routes, compile_detours(scenario, fabric, wiring)
    )
    routes = faults.tables.routes
    frames, ports = scenario.frames, wiring.ports
    sampled = scenario.trace.interval != "off" and "ports" in scenario.trace.tables
    classes = scenario.classes_by_priority
    parts: dict[str, Any] = {
        **buffers.fields,
        **compile_adapters(scenario, fabric),
        **faults.fields,
        **compile_balance(switches, faults.tables, wiring.rate_bps),
        **compile_incidents(scenario, fabric, wiring, switches, frame_limits),
        **compile_domains(scenario, domain),
        **compile_traffic(graph, scenario.seed, fabric.host_count, truncate_ns=ns3),
    }
    refuse_unlike_ends(parts, fabric.host_names)
    plan = Plan(
        seed=scenario.seed,
        until_ps=FOREVER_PS if scenario.until is None else scenario.until,
        sample_ps=scenario.trace.interval if sampled and scenario.trace.interval != "off" else 0,
        scheduler=SCHEDULER_CREATION if ns3 else SCHEDULER_WINDOW,
        truncate_ns=ns3,
        ns3_buffer=ns3,
        ns3_nic=ns3,
        ns3_pfc=ns3,
        round_robin=ns3,
        mtu_bytes=scenario.nic.mtu,
        header_bytes=frames.header_bytes,
        reth_bytes=frames.reth,
        ack_bytes=frames.ack_bytes,
        cnp_bytes=frames.cnp_bytes,
        pfc_bytes=frames.pfc,
        read_request_bytes=frames.read_bytes,
        aeth_bytes=frames.aeth,
        psn_start=scenario.nic.first_psn,
        wire_overhead_bytes=frames.wire_overhead,
        frame_min_bytes=frames.minimum,
        pad_bytes=frames.pad,
        class_lossless=np.array([item.lossless for item in classes]),
        class_ecn=np.array([item.ecn for item in classes]),
        # In that simulator ACKs are in the class of their data (MODEL 13).
        class_ack=np.arange(len(classes)) if ns3 else np.array(scenario.class_ack_ids),
        cnp_class=scenario.cnp_class_id,
        host_count=fabric.host_count,
        node_port_start=ports.node_port_start,
        node_seed=_ecmp_seeds(scenario.seed, fabric, switches),
        node_route_row=routes.node_route_row,
        port_node=ports.port_node,
        port_peer=ports.port_peer,
        port_rate_bps=wiring.rate_bps,
        port_delay_ps=wiring.delay_ps,
        host_group=routes.host_group,
        host_access_port=routes.host_access_port,
        route=faults.tables.route.ravel(),
        group_count=routes.group_count,
        nexthop_start=faults.tables.nexthop_start,
        nexthop_port=faults.tables.nexthop_port,
        **parts,
        lossless_guaranteed=buffers.lossless_guaranteed and not faults.may_lose,
    )
    ideal_ps = ideal_completion_ps(plan)
    if graph.collectives:
        graph = replace(graph, collectives=with_ideal_times(graph, plan, ideal_ps, host_rate_bps, wiring.scale_up))
    return Compiled(
        plan=plan,
        fabric=fabric,
        graph=graph,
        ideal_ps=ideal_ps,
        node_names=tuple(fabric.node_names),
        port_names=wiring.names,
        class_names=tuple(item.name for item in classes),
        labels=tuple(flows.labels),
        host_rate_bps=host_rate_bps,
    )


def _frame_limits(scenario: Scenario, *, reads: bool) -> FrameLimits:
    """The largest frame of any kind, with the sizes of MODEL 3."""
    frames = scenario.frames
    data = -(-scenario.nic.mtu // frames.pad) * frames.pad + frames.header_bytes + frames.reth
    read = 0
    if reads:
        data += max(0, frames.aeth - frames.reth)
        read = frames.read_bytes
    return FrameLimits(
        largest_bytes=max(data, read, frames.ack_bytes, frames.cnp_bytes, frames.minimum),
        pfc_bytes=max(frames.pfc, frames.minimum),
        wire_overhead_bytes=frames.wire_overhead,
        smallest_bytes=frames.minimum,
    )


def _ecmp_seeds(seed: int, fabric: Fabric, switches: list[Switch]) -> NDArray[np.uint32]:
    """(N,) seed of every node's choice; a host's is always its own."""
    seeds = low32(hash64(seed, STREAM_ECMP, np.arange(fabric.node_count)))
    for node, switch in enumerate(switches, start=fabric.host_count):
        if switch.ecmp_seed != "per-switch":
            seeds[node] = switch.ecmp_seed
    return seeds


def _check_verbs(flows: FlowTable, scenario: Scenario) -> None:
    """Raise ScenarioError for SENDs of no byte at all on the wire, and READs whose packets one request cannot name."""
    mtu_bytes, frames = scenario.nic.mtu, scenario.frames
    if max(frames.header_bytes, frames.minimum) + frames.wire_overhead == 0:
        for flow in np.flatnonzero((flows.verb == VERB_SEND) & (flows.bytes == 0))[:1].tolist():
            message = (
                f"flow {flow}: a SEND of 0 B is a frame of 0 B on the wire (frames.header 0 + frames.minimum 0 + "
                "frames.wire_overhead 0); it must be at least 1 B"
            )
            raise ScenarioError(Problem("", "frames.header", message))
    largest = READ_PACKETS_MAX * mtu_bytes
    for flow in np.flatnonzero((flows.verb == VERB_READ) & (flows.bytes > largest))[:1].tolist():
        message = f"flow {flow}: a READ of {flows.bytes[flow]:,} B has more than 2^23 packets of {mtu_bytes:,} B"
        raise ScenarioError(Problem("", "", message))


def _check_flows(flows: FlowTable, fabric: Fabric, wiring: Wiring, routes: Routes, class_count: int) -> None:
    """Raise ScenarioError for flows that no fabric or not this one can carry."""
    names = fabric.node_names
    problems: list[str] = []
    for column, end in ((flows.src, "source"), (flows.dst, "destination")):
        outside = np.flatnonzero((column < 0) | (column >= fabric.host_count))
        for flow in outside[:SHOWN_MAX].tolist():
            node = int(column[flow])
            known = names[node] if 0 <= node < len(names) else str(node)
            problems.append(f"flow {flow}: its {end} {known} is not a host; only hosts send and receive")
    if problems:
        raise ScenarioError(Problem("", "", message) for message in problems)
    for flow in np.flatnonzero(flows.src == flows.dst)[:SHOWN_MAX].tolist():
        problems.append(f'flow {flow}: host "{names[flows.src[flow]]}" sends to itself')
    for flow in np.flatnonzero((flows.bytes < 0) | (flows.start_ps < 0))[:SHOWN_MAX].tolist():
        problems.append(f"flow {flow}: negative size or start time")
    for flow in np.flatnonzero(flows.class_id >= class_count)[:SHOWN_MAX].tolist():
        problems.append(f"flow {flow}: class {flows.class_id[flow]} of {class_count}")
    lost = ~reachable(wiring.ports, routes, flows.src, flows.dst) & (flows.src != flows.dst)
    lost = np.flatnonzero(lost & (flows.verb != VERB_SCALE_UP))
    pairs = dict.fromkeys(zip(flows.src[lost].tolist(), flows.dst[lost].tolist(), strict=True))
    problems += unreachable_messages(fabric, wiring.ports.degree, pairs)
    if problems:
        raise ScenarioError(Problem("", "", message) for message in problems)
