"""The cost of a run, predicted from its plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.cost.fluid import Flows, flow_through
from fabemu.cost.memory import USABLE, Memory, memory_of
from fabemu.cost.traffic import Floats, Traffic, traffic_of
from fabemu.deferred import dataclass
from fabemu.distinct import distinct
from fabemu.plan import (
    ACTION_LINK_DOWN,
    ACTION_LOSS,
    ACTION_RECEIVER,
    ACTION_STORM,
    CC_FIXED,
    CC_NONE,
    FOREVER_PS,
    NOTIFY_CNP,
    OP_CALC,
    OP_RECV,
    Plan,
)

if TYPE_CHECKING:
    from fabemu.compile import Compiled

ROW_BYTES = {
    "flows": 80,
    "ports": 28,
    "pauses": 75,
    "drops": 20,
    "packets": 12,
    "events": 40,
    "collectives": 200,
    "jobs": 200,
    "steps": 200,
}
"""Bytes of a row on disk after compression, by table, as measured in runs with thousands of rows."""

EVENTS_PER_HOP, EVENTS_PER_PACKET = 1.3, 1.5
"""A hop is an arrival and, if its frame had to wait, a transmit choice; a packet has choices at its host besides."""

_RESENT = 1.7  # hops of go-back-N on a crowded path that may drop, for one of a path that does not
_RESENT_MOST = 5.0
_CNPS_PER_INTERVAL, _CNPS_PER_PACKET = 0.4, 0.5  # of a slowed queue pair, at most
_EXCESS = 0.25  # share of what senders could put into buffers beyond their share, under congestion control
_PAUSES_PER_PACKET = 0.05  # of queue pairs that meet so many at a full port:
_MANY = 8


@dataclass(frozen=True)
class Estimate:
    """A figure that is predicted, and between what it will most likely be."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """In another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def to_dict(self) -> dict[str, int]:
        """Whole numbers, as `fabemu check --cost --json` prints them."""
        return {"value": round(self.value), "low": round(self.low), "high": round(self.high)}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run will cost.

    Attributes
    ----------
    packet_hops
        Packets put on a link, PFC and credit frames not counted.
    events
        As the engine counts them.
    simulated_ps
        Simulated time at its end, if nothing but fair sharing slows the senders.
    memory
        Peak of the process, by part.
    rows, trace_bytes
        By table.
    reasons
        Why a range is wide, in the words of a user.
    work
        (k, 2) simulated time in ps and packet hops until then.
    """

    packet_hops: Estimate
    events: Estimate
    simulated_ps: float
    memory: Memory
    rows: Mapping[str, int]
    trace_bytes: Mapping[str, int]
    reasons: tuple[str, ...]
    work: Floats

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "packet_hops": self.packet_hops.to_dict(),
            "events": self.events.to_dict(),
            "simulated_ps": round(self.simulated_ps),
            "memory_bytes": {"total": self.memory.total, "sure": self.memory.sure, **self.memory.to_dict()},
            "rows": dict(self.rows),
            "trace_bytes": {"total": sum(self.trace_bytes.values()), **self.trace_bytes},
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, kw_only=True)
class Movement:
    """What will move in a run, by its plan alone.

    Attributes
    ----------
    traffic, flows
        Who sends what, and how fast.
    packets
        (n,) data packets of each queue pair of `traffic`, those that are sent again not counted.
    sent
        Packets that hosts send, control packets and those that are sent again with them.
    packet_hops, events
        See `Cost`.
    reasons
        See `Cost`.
    """

    traffic: Traffic
    flows: Flows
    packets: Floats
    sent: float
    packet_hops: Estimate
    events: Estimate
    reasons: tuple[str, ...]


def estimate_movement(plan: Plan, *, may_deadlock: bool = False) -> Movement:
    """Predict packet hops and events of a plan; see `estimate_cost`."""
    traffic = traffic_of(plan)
    flows = flow_through(plan, traffic)
    row, weight, count = traffic.message_row, traffic.weight, len(traffic.qp)
    every = traffic.ack_every[row]
    packets = traffic.packets * flows.sent
    # The last packet of a message is acknowledged in any case; a READ is one request and no ACK.
    acks = np.divide(packets, every, out=np.array(flows.sent), where=every > 0)
    acks = np.maximum(acks, np.minimum(flows.sent, packets))
    of_row: Floats = np.bincount(row, weights=packets, minlength=count).astype(np.float64)
    cnps = _notifications(plan, traffic, flows, of_row)
    excess_packets, excess_hops = _in_buffers(plan, traffic, flows)
    resent, resent_most = _resent(plan, traffic, flows)
    data_hops = of_row * traffic.hop_count
    control_hops = np.bincount(row, weights=acks, minlength=count) * traffic.control_hop_count
    lowest = float((data_hops + control_hops).sum()) * weight
    hops = float(((data_hops + control_hops) * resent + cnps * traffic.control_hop_count).sum()) * weight + excess_hops
    sent = float((of_row * resent).sum() + acks.sum() + cnps.sum()) * weight + excess_packets
    loses = bool((resent > 1).any())
    reasons, low, high = _doubts(plan, flows, may_deadlock=may_deadlock, loses=loses)
    if loses:
        high = max(high, float((data_hops * resent_most).sum()) * weight / max(hops, 1.0))
    expected = Estimate(hops, min(lowest, hops) * low, hops * high)
    events = EVENTS_PER_HOP * hops + EVENTS_PER_PACKET * sent
    return Movement(
        traffic=traffic,
        flows=flows,
        packets=of_row,
        sent=sent,
        packet_hops=expected,
        events=expected.times(events / max(hops, 1.0)),
        reasons=reasons,
    )


def estimate_cost(
    compiled: Compiled,
    tables: Sequence[str] = (),
    *,
    ends: bool = False,
    threads: int = 1,
    may_deadlock: bool = False,
) -> Cost:
    """Predict what a run of a compiled scenario costs.

    A pure function of its arguments: the same on any machine, with no run and no engine.

    Parameters
    ----------
    compiled
        The scenario.
    tables
        Names of the tables that the run writes.
    ends
        The packets table has what hosts send and, at switches, the last packet of each message alone.
    threads
        Most threads that may step the engine.
    may_deadlock
        The linter found a cycle of buffers that the traffic can fill (FB301).
    """
    tables = compiled.tables(tables)
    moving = estimate_movement(compiled.plan, may_deadlock=may_deadlock)
    rows = _rows(compiled, moving, tables, ends=ends)
    work = moving.flows.work.copy()
    if len(work) and work[-1, 1] > 0:
        work[:, 1] *= moving.packet_hops.value / work[-1, 1]
    simulated_ps = max(moving.flows.end_ps, min(_chained_ps(compiled), float(compiled.plan.until_ps)))
    if moving.flows.end_ps > 0:
        work[:, 0] *= simulated_ps / moving.flows.end_ps
    return Cost(
        packet_hops=moving.packet_hops,
        events=moving.events,
        simulated_ps=simulated_ps,
        memory=memory_of(compiled, moving.traffic, moving.flows, tables, rows, threads),
        rows=rows,
        trace_bytes=_trace_bytes(compiled, rows),
        reasons=moving.reasons,
        work=work,
    )


def _chained_ps(compiled: Compiled) -> float:
    """When the collectives of the last workload are done if each takes its least time, and what is computed its own."""
    graph, plan = compiled.graph, compiled.plan
    if not len(graph.kind):
        return 0.0
    labels = {label: index for index, label in enumerate(compiled.labels)}
    # Groups of one workload run beside each other.
    of_group: dict[tuple[str, int], int] = defaultdict(int)
    for item in graph.collectives:
        of_group[item.label, item.group] += max(0, item.ideal_ps)
    end_ps = np.zeros(len(labels))
    for (label, _), total_ps in of_group.items():
        end_ps[labels[label]] = max(end_ps[labels[label]], total_ps)
    of_op = graph.op_label_id
    starts = np.zeros(len(labels))
    np.maximum.at(starts, of_op, plan.op_start_ps.astype(np.float64))
    calc = np.flatnonzero(plan.op_kind == OP_CALC)
    key = of_op[calc].astype(np.int64) * plan.host_count + plan.op_host[calc]
    computed = np.bincount(key, plan.op_duration_ps[calc], minlength=len(labels) * plan.host_count)
    return float((end_ps + starts + computed.reshape(len(labels), -1).max(axis=1)).max())


def _notifications(plan: Plan, traffic: Traffic, flows: Flows, packets: Floats) -> Floats:
    """(n,) CNPs that come to each sender: some of those that the time it is slowed and its packets allow."""
    nic = plan.host_nic[plan.qp_dst[traffic.qp]]
    sends = (plan.nic_notify[nic] == NOTIFY_CNP) & ~np.isin(plan.nic_cc[nic], (CC_NONE, CC_FIXED))
    sends &= plan.class_ecn[plan.qp_class[traffic.qp]] != 0
    interval_ps = np.maximum(1, plan.nic_cnp_interval_ps[nic])
    share = np.minimum(1.0, flows.crowded_ps / max(flows.end_ps, 1.0))
    by_time = flows.crowded_ps / interval_ps * _CNPS_PER_INTERVAL
    return np.where(sends, np.minimum(by_time, packets * share * _CNPS_PER_PACKET), 0.0)


def _in_buffers(plan: Plan, traffic: Traffic, flows: Flows) -> tuple[float, float]:
    """(packets, hops) that senders are ahead of the receivers when `until` ends the run."""
    if plan.until_ps >= FOREVER_PS or not len(traffic.qp):
        return 0.0, 0.0
    rate = np.append(plan.port_rate_bps.astype(np.float64), np.inf)
    alone = np.minimum(rate[traffic.ports].min(axis=1), traffic.cap_bps)
    bits = np.bincount(traffic.message_row, weights=traffic.wire_bits, minlength=len(traffic.qp))
    sent = np.bincount(traffic.message_row, weights=traffic.wire_bits * flows.sent, minlength=len(traffic.qp))
    ahead = np.minimum(bits - sent, np.maximum(0.0, alone * flows.crowded_ps * 1e-12 - sent))
    frame_bits = float((traffic.wire_bits.sum()) / max(1, traffic.packets.sum()))
    ahead_packets = float(ahead.sum()) * traffic.weight / frame_bits
    ports = traffic.ports[ahead > 0]
    nodes = distinct(plan.port_node[ports[ports < plan.port_count]])
    switches = nodes[nodes >= plan.host_count] - plan.host_count
    room_packets = float(plan.switch_buffer_bytes[switches].sum()) * USABLE * 8 / frame_bits
    packets = min(ahead_packets, room_packets)
    if not np.isin(plan.nic_cc, (CC_NONE, CC_FIXED)).all():
        packets *= _EXCESS
    # They wait near their senders: pauses reach back to these.
    return packets, packets * float(np.maximum(1, traffic.hop_count - 1).mean()) / 3


def _resent(plan: Plan, traffic: Traffic, flows: Flows) -> tuple[Floats, Floats]:
    """(n,) transmissions of a packet, where crowded paths may drop: expected, and at most."""
    one = np.ones(len(traffic.qp))
    if plan.lossless_guaranteed and plan.class_lossless[plan.qp_class[traffic.qp]].all():
        return one, one
    crowded = flows.crowded_ps > 0
    drops = crowded & (plan.class_lossless[plan.qp_class[traffic.qp]] == 0)
    if not plan.lossless_guaranteed:
        drops = crowded
    selective = plan.nic_selective[plan.host_nic[plan.qp_src[traffic.qp]]] > 0
    throttled = ~np.isin(plan.nic_cc[plan.host_nic[plan.qp_src[traffic.qp]]], (CC_NONE, CC_FIXED))
    factor = np.where(selective | throttled, 1.1, _RESENT)
    return np.where(drops, factor, one), np.where(drops, _RESENT_MOST, one)


def _doubts(plan: Plan, flows: Flows, *, may_deadlock: bool, loses: bool) -> tuple[tuple[str, ...], float, float]:
    """Why it may come otherwise, and by which factors."""
    reasons = []
    low, high = 0.9, 1.15
    crowded = bool((flows.crowded_ps > 0).any())
    ends = plan.until_ps < FOREVER_PS
    if crowded and ends:
        reasons.append("what congestion control and pauses leave of the links until `until` is not known")
        low, high = 0.5, 1.5
    if loses:
        reasons.append("crowded ports may drop: how often packets are sent again is not known")
        low, high = min(low, 0.6), max(high, 2.0)
    kinds = set(np.asarray(plan.action_kind).tolist())
    if kinds & {ACTION_LINK_DOWN, ACTION_LOSS, ACTION_STORM, ACTION_RECEIVER}:
        reasons.append("faults are not looked at: they may hold messages back, or have them sent again")
        low, high = 0.0, max(high, 2.0)
    others = np.isin(plan.op_kind, (OP_RECV, OP_CALC))
    if plan.until_ps < FOREVER_PS and bool((np.diff(plan.op_successor_start)[others] > 0).any()):
        reasons.append("messages that wait for what others receive or compute are not followed in time")
        low = 0.0
    if may_deadlock:
        reasons.append("the fabric can deadlock (FB301): then next to nothing is sent")
        low = 0.0
    if not reasons and crowded:
        high = 1.3
    return tuple(reasons), low, high


def _rows(compiled: Compiled, moving: Movement, tables: Sequence[str], *, ends: bool) -> dict[str, int]:
    """Rows by table; drops and events of a run without faults are few."""
    plan, graph = compiled.plan, compiled.graph
    flows, traffic = moving.flows, moving.traffic
    met = flows.crowd[traffic.ports].max(axis=1, initial=0.0) >= _MANY
    crowded = np.minimum(1.0, flows.crowded_ps / max(flows.end_ps, 1.0))
    pausing = float((moving.packets * crowded * met).sum()) * traffic.weight
    packet_rows = moving.packet_hops.value
    if ends:
        last = float((flows.sent * (traffic.hop_count[traffic.message_row] - 1)).sum()) * traffic.weight
        packet_rows = min(packet_rows, moving.sent + last)
    found = {
        "flows": float(np.count_nonzero(plan.is_message)),
        "collectives": float(len(graph.collectives)),
        "jobs": float(len(graph.jobs)),
        "steps": float(sum(track.steps for track in graph.tracks)),
        "ports": flows.rows,
        "pauses": pausing * _PAUSES_PER_PACKET if plan.class_lossless.any() else 0.0,
        "drops": 0.0,
        "packets": packet_rows,
        "events": float(len(plan.action_time_ps)),
    }
    return {table: round(found[table]) for table in tables}


def _trace_bytes(compiled: Compiled, rows: Mapping[str, int]) -> dict[str, int]:
    """Bytes by table: its rows, and the names that every file begins with."""
    plan = compiled.plan
    head = 8_000 + 20 * (plan.node_count + plan.port_count)
    return {table: round(count * ROW_BYTES[table]) + head for table, count in rows.items()}
