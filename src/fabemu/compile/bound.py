"""Least times of collectives: what no network of these rates and lengths can beat.

Two bounds hold at once. No port is faster than its rate: the wire time of all that a host sends, or receives, by the
fabric and inside its scale-up domain, by packets or without. And nothing is passed on before it has come: the longest
chain of messages that wait for each other, each taking its ideal time (`fabemu.ideal`), with what is computed between.
The bound is the greater of the two.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fabemu.ideal import data_frame_bytes
from fabemu.plan import (
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    BALANCE_SPRAY,
    NONE,
    OP_CALC,
    OP_RECV,
    OP_SCALE_UP,
    VERB_WRITE,
    Plan,
)
from fabemu.rate import bytes_ps
from fabemu.workload.graph import Collective, OperationGraph

Int64s = NDArray[np.int64]

_DIVIDING = (BALANCE_SPRAY, BALANCE_FLOWLET, BALANCE_LEAST_LOADED)
"""Policies by which packets of one message take several paths."""


def with_ideal_times(
    graph: OperationGraph, plan: Plan, ideal_ps: Int64s, host_rate_bps: Int64s, scale_up: NDArray[np.bool_]
) -> tuple[Collective, ...]:
    """The collectives of a graph, each with its `ideal_ps`; the runs of one workload have that of the first.

    Parameters
    ----------
    graph, plan
        Operations by the same numbers.
    ideal_ps
        (O,) as `fabemu.ideal.ideal_completion_ps` gives it.
    host_rate_bps
        (H,) bit/s, sum of the rates of the NIC ports of each host.
    scale_up
        (P,) ports of scale-up networks that carry packets.
    """
    found: dict[tuple[str, str, int, int], int] = {}
    result = []
    chains = None if not graph.collectives else _Chains(graph, plan, ideal_ps, host_rate_bps)
    for number, item in enumerate(graph.collectives):
        key = (item.label, item.operation, item.size_bytes, item.group)
        if chains is not None and (item.iteration == 0 or key not in found):
            flows = chains.flows(number)
            carried_ps = _carried_ps(plan, flows, host_rate_bps, scale_up)
            found[key] = max(carried_ps, chains.longest_ps(number)) if len(flows) else 0
        result.append(replace(item, ideal_ps=found[key]))
    return tuple(result)


def _carried_ps(plan: Plan, flows: Int64s, host_rate_bps: Int64s, scale_up: NDArray[np.bool_]) -> int:
    """Greatest wire time that these messages take at any port of a host."""
    inside = plan.op_kind[flows] == OP_SCALE_UP
    wire = np.where(inside, plan.op_bytes[flows], _wire_bytes(plan, plan.op_bytes[flows]))
    near = plan.op_host[flows]
    qp = plan.op_qp[flows]
    outside = plan.qp_dst[qp] if plan.qp_count else np.zeros(len(flows), np.int32)
    far = np.where(inside, plan.op_host[plan.op_peer[flows]], outside)
    by_cable = ~inside & _starts_at(plan, near, far, scale_up)
    at_host = np.flatnonzero(scale_up & (plan.port_node < plan.host_count))
    cable_rate_bps = np.zeros(plan.host_count, dtype=np.int64)
    cable_rate_bps[plan.port_node[at_host]] = plan.port_rate_bps[at_host]
    greatest = 0
    for chosen, rate in (
        (~inside & ~by_cable, host_rate_bps),
        (by_cable, cable_rate_bps),
        (inside, plan.host_scale_up_rate_bps),
    ):
        for host in (near[chosen], far[chosen]):
            total = np.zeros(plan.host_count, dtype=np.int64)
            np.add.at(total, host, wire[chosen])
            busy = np.flatnonzero(total)
            if len(busy):
                greatest = max(greatest, int(bytes_ps(total[busy], rate[busy]).max()))
    return greatest


def _wire_bytes(plan: Plan, size_bytes: Int64s) -> Int64s:
    """(n,) what messages of a size take on a link, with all that belongs to their packets."""
    packets = np.maximum(1, -(-size_bytes // plan.mtu_bytes))
    full = int(data_frame_bytes(plan, np.array([plan.mtu_bytes]))[0])
    reth = plan.reth_bytes if bool((plan.qp_verb == VERB_WRITE).any()) else 0
    last = data_frame_bytes(plan, size_bytes - (packets - 1) * plan.mtu_bytes)
    return (packets - 1) * full + last + packets * plan.wire_overhead_bytes + reth


def _alone_ps(plan: Plan, ideal_ps: Int64s, host_rate_bps: Int64s) -> Int64s:
    """(F,) least time of every message: on one path, or if switches divide it over several, what its host needs."""
    if not np.isin(plan.switch_balance, _DIVIDING).any():
        return ideal_ps
    count = len(ideal_ps)
    sent_ps = bytes_ps(_wire_bytes(plan, plan.op_bytes[:count]), np.maximum(1, host_rate_bps[plan.op_host[:count]]))
    return np.where(plan.op_kind[:count] == OP_SCALE_UP, ideal_ps, np.minimum(ideal_ps, sent_ps))


def _starts_at(
    plan: Plan, src: NDArray[np.int32], dst: NDArray[np.int32], chosen: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(n,) whether what host `src` sends to host `dst` can leave by one of the chosen ports of it, and by no other."""
    if not chosen.any():
        return np.zeros(len(src), np.bool_)
    row = plan.node_route_row[src]
    entry = plan.route[: len(plan.route) // plan.route_epochs].reshape(-1, plan.group_count)[
        np.maximum(row, 0), plan.host_group[dst]
    ]
    only = plan.node_port_start[src]  # of a host with one port, which has no row
    port = np.where(row == NONE, np.minimum(only, plan.port_count - 1), entry)
    found: NDArray[np.bool_] = (port >= 0) & chosen[np.maximum(port, 0)]
    return found


class _Chains:
    """Chains of messages that wait for each other, collective by collective."""

    def __init__(self, graph: OperationGraph, plan: Plan, ideal_ps: Int64s, host_rate_bps: Int64s) -> None:
        """Sort everything by collective once: there may be thousands."""
        count, message_count = len(graph.collectives), len(graph.flows)
        number = graph.op_collective
        self._flow = np.argsort(graph.flows.collective, kind="stable")
        self._flow_start = np.searchsorted(graph.flows.collective[self._flow], np.arange(count + 1))
        # Recvs stand for their messages, and what is computed of one with them.
        stands = np.full(len(graph), NONE, dtype=np.int64)
        stands[:message_count] = np.arange(message_count)
        recv = np.flatnonzero((number != NONE) & (plan.op_kind == OP_RECV))
        stands[recv] = plan.op_peer[recv]
        delay_ps = np.zeros(message_count, dtype=np.int64)
        inner = np.flatnonzero((number[graph.after] != NONE) & (number[graph.after] == number[graph.before]))
        before, after = graph.before[inner], graph.after[inner]
        into = np.flatnonzero((plan.op_kind[after] == OP_CALC) & (stands[before] != NONE))
        stands[after[into]] = stands[before[into]]
        delay_ps[stands[after[into]]] = plan.op_duration_ps[after[into]]
        edge = np.flatnonzero((after < message_count) & (stands[before] != NONE))
        waited, waiter = stands[before[edge]], after[edge].astype(np.int64)
        self._step = graph.flows.step
        order = np.lexsort((self._step[waiter], number[waiter]))
        self._waited, self._waiter = waited[order], waiter[order]
        self._edge_start = np.searchsorted(number[self._waiter], np.arange(count + 1))
        self._alone_ps = _alone_ps(plan, ideal_ps[:message_count], host_rate_bps) + delay_ps

    def flows(self, number: int) -> Int64s:
        """Messages of a collective."""
        return self._flow[self._flow_start[number] : self._flow_start[number + 1]]

    def longest_ps(self, number: int) -> int:
        """Longest chain of the messages of a collective."""
        flows = self.flows(number)
        edges = slice(self._edge_start[number], self._edge_start[number + 1])
        # Flows of a collective are in the order of their numbers.
        waited, waiter = (np.searchsorted(flows, end[edges]) for end in (self._waited, self._waiter))
        alone_ps = self._alone_ps[flows]
        done_ps = alone_ps.copy()
        step = self._step[self._waiter[edges]]
        starts = np.searchsorted(step, np.arange(int(self._step[flows].max()) + 2))
        for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            # Within one step a chain may go on: as often as it is long.
            while first < last:
                before = done_ps[waiter[first:last]]
                after = done_ps[waited[first:last]] + alone_ps[waiter[first:last]]
                if (after <= before).all():
                    break
                np.maximum.at(done_ps, waiter[first:last], after)
        return int(done_ps.max())
