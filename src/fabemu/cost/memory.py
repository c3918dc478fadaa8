"""Memory that a run takes at its peak, part by part."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.cost.fluid import Flows
from fabemu.cost.footprint import counts_of, footprint, struct_bytes
from fabemu.cost.traffic import Floats, Traffic
from fabemu.deferred import dataclass
from fabemu.distinct import distinct
from fabemu.ideal import data_frame_bytes
from fabemu.plan import BALANCE_FLOWLET, BALANCE_LEAST_LOADED_FLOW, CC_FIXED, CC_NONE, Plan

if TYPE_CHECKING:
    from fabemu.compile import Compiled

LIBRARIES_BYTES = 85 * 10**6
"""Resident size of the interpreter with numpy, pyarrow and fabemu, before a scenario (CPython 3.11, Linux x86-64)."""

BUDGET_HOPS = 1_000_000
"""Packet hops between two looks at the records of the engine at most; `fabemu.simulate` steps by it."""

PACKETS_BUDGET_HOPS = 200_000
"""The same where every hop makes a row."""

USABLE = 0.5
"""Share of a switch's buffer that dynamic thresholds and reserves let queues take, about."""

_QUEUED_PS = 30 * 10**6  # senders go on for so long before congestion control has slowed them (MODEL 12)
_BLOCK_PLACES = 8  # of a block of an egress queue, one of them taken by the pointer to the next
_RING_FIRST = 8  # places
_BATCHES_DRAINED = 5  # most rows of a rare kind that come between two looks, as batches, about
_ROWS_IN_PLACE = ("ports", "pauses")  # tables whose columns are made of rows where they lie


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of a run at its peak, by what takes them."""

    libraries: int  # the interpreter and what it imports
    plan: int  # the compiled scenario: arrays, names, cables
    fabric: int  # the engine's fixed state
    operations: int  # the engine's state of messages, and the copies that are made of it
    queue_pairs: int  # state of queue pairs that are at work
    links: int  # packets on their way
    queues: int  # packets that wait at switches, and the buffer accounts
    records: int  # rows on their way to the tables

    @property
    def total(self) -> int:
        """Peak of the process."""
        return sum(self.to_dict().values())

    @property
    def sure(self) -> int:
        """What is taken before the first event."""
        return self.libraries + self.plan + self.fabric + self.operations

    def to_dict(self) -> dict[str, int]:
        """Bytes by part."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def memory_of(
    compiled: Compiled,
    traffic: Traffic,
    flows: Flows,
    tables: Sequence[str],
    rows: Mapping[str, float],
    threads: int = 1,
) -> Memory:
    """Estimate the memory of a run that writes `tables`, of `rows` each, with so many threads at most."""
    plan = compiled.plan
    fixed = footprint(counts_of(plan, threads))
    sizes = struct_bytes()
    return Memory(
        libraries=LIBRARIES_BYTES,
        plan=compiled_bytes(compiled),
        fabric=fixed.fabric + _remembered_bytes(plan, sizes["flowlet"]),
        operations=2 * fixed.operations,
        queue_pairs=_queue_pair_bytes(plan, flows, sizes),
        links=_link_bytes(plan, flows, sizes["packet"]),
        queues=_queue_bytes(plan, traffic, flows, sizes["packet"]) + _account_bytes(plan, traffic, fixed.accounts),
        records=_record_bytes(compiled, tables, rows, sizes),
    )


def most_bytes(compiled: Compiled, tables: Sequence[str], threads: int = 1) -> int:
    """What a run can hardly exceed: every buffer full, every queue pair at work. Quick: no traffic is looked at."""
    plan = compiled.plan
    fixed = footprint(counts_of(plan, threads))
    sizes = struct_bytes()
    frame_bytes = min(plan.ack_bytes, int(data_frame_bytes(plan, np.array([plan.mtu_bytes]))[0]))
    waiting = float(plan.switch_buffer_bytes.sum()) / max(64, frame_bytes) * 2 * sizes["packet"]
    wire_ps = np.maximum(1, (frame_bytes + plan.wire_overhead_bytes) * 8e12 / plan.port_rate_bps)
    flying = float((2 * plan.port_delay_ps / wire_ps + 2 * _RING_FIRST).sum()) * 2 * sizes["packet"]
    pairs = 2 * plan.qp_count * (sizes["qp"] + sizes["receiver"] + 2 * sizes["timed"] + sizes["ready"])
    tables = compiled.tables(tables)
    pairs += _remembered_bytes(plan, sizes["flowlet"])
    everything = dict.fromkeys(tables, np.inf)
    records = _record_bytes(compiled, tables, everything, sizes)
    fixed_bytes = LIBRARIES_BYTES + compiled_bytes(compiled) + fixed.fabric + fixed.accounts + 2 * fixed.operations
    return int(fixed_bytes + waiting + flying + pairs + records)


def _remembered_bytes(plan: Plan, place_bytes: int) -> int:
    """What switches that choose next hops by flowlets or flows remember of them: at most, a flow at two switches."""
    flowlets = plan.switch_flowlet_entries[plan.switch_balance == BALANCE_FLOWLET].astype(np.int64)
    total = 2 * int(flowlets.sum()) * place_bytes  # blocks are powers of two
    if (plan.switch_balance == BALANCE_LEAST_LOADED_FLOW).any():
        total += 2 * 4 * plan.qp_count * place_bytes  # tables are at least a quarter full
    return total


def compiled_bytes(compiled: Compiled) -> int:
    """Arrays, names and cables of a compiled scenario."""
    plan_bytes = _array_bytes(vars(compiled.plan))
    # The columns of the flow table are needed besides the operations made of them, and as much again to make these.
    flow_bytes = 2 * _array_bytes(vars(compiled.flows)) + compiled.ideal_ps.nbytes
    names = sum(map(_sequence_bytes, (compiled.node_names, compiled.port_names)))
    return plan_bytes + flow_bytes + names + _cable_bytes(compiled.fabric.cables)


def _array_bytes(values: Mapping[str, Any]) -> int:
    return sum(value.nbytes for value in values.values() if isinstance(value, np.ndarray))


def _sequence_bytes(items: Sequence[Any]) -> int:
    """Size of a sequence with its elements, from some of them."""
    if not len(items):
        return 0
    some = items[:: max(1, len(items) // 64)]
    return len(items) * (8 + sum(map(sys.getsizeof, some)) // len(some))


def _cable_bytes(cables: Sequence[Any]) -> int:
    """A cable is a tuple with two numbers of its own."""
    return 0 if not len(cables) else _sequence_bytes(cables) + 2 * len(cables) * sys.getsizeof(2**20)


def _power_of_two(values: Floats) -> Floats:
    result: Floats = 2.0 ** np.ceil(np.log2(np.maximum(values, 1.0)))
    return result


def _frame_bytes(plan: Plan) -> int:
    return int(data_frame_bytes(plan, np.array([plan.mtu_bytes]))[0]) + plan.wire_overhead_bytes


def _queue_pair_bytes(plan: Plan, flows: Flows, sizes: Mapping[str, int]) -> int:
    """Pools of the hosts: from two places on they double."""
    senders = np.where(flows.sending > 0, _power_of_two(np.maximum(flows.sending, 2)), 0)
    receivers = np.where(flows.receiving > 0, _power_of_two(np.maximum(flows.receiving, 2)), 0)
    each = sizes["qp"] + 2 * sizes["timed"] + sizes["ready"]
    waiting_control = 4 * sizes["control"]
    return int(senders.sum() * each + receivers.sum() * (sizes["receiver"] + waiting_control))


def _link_bytes(plan: Plan, flows: Flows, packet_bytes: int) -> int:
    """Rings of links: what is on its way at the greatest load, with the control frames that answer it.

    A port that carries data at some load is answered, on the other direction of its cable, by as many ACKs.
    """
    load = flows.load[:-1]
    either = np.maximum(load, load[plan.port_peer])
    frame_ps = _frame_bytes(plan) * 8e12 / plan.port_rate_bps
    on_way = either * (plan.port_delay_ps + frame_ps) / frame_ps
    # ACKs bunch up behind data frames: as many again.
    places = _power_of_two(np.maximum(3 * on_way + 1, _RING_FIRST))
    return int(np.where(either > 0, places, 0).sum() * packet_bytes)


def _queue_bytes(plan: Plan, traffic: Traffic, flows: Flows, packet_bytes: int) -> int:
    """Blocks of egress queues: what comes to a full port beyond its rate until senders slow or buffers are full."""
    frame = _frame_bytes(plan)
    slowed_by_cc = bool(np.isin(plan.nic_cc, (CC_NONE, CC_FIXED), invert=True).any())
    crowd = flows.crowd[:-1]
    # The more senders meet, the longer it takes until each has been slowed enough.
    lasting_ps = _QUEUED_PS * np.maximum(1.0, crowd / 8) if slowed_by_cc else np.full(len(crowd), flows.end_ps)
    lasting_ps = np.minimum(lasting_ps, max(flows.end_ps, 1.0))
    excess_bytes = np.maximum(crowd - 1, 0) * plan.port_rate_bps / 8e12 * lasting_ps
    # No more waits than there is to send: all but the share that leaves meanwhile.
    waiting = np.minimum(excess_bytes, flows.backlog_bits[:-1] / 8 * (1 - 1 / np.maximum(crowd, 1)))
    node = plan.port_node
    usable = plan.switch_buffer_bytes.astype(np.float64) * USABLE
    pools = np.concatenate([np.zeros(plan.host_count), usable])
    waiting[node < plan.host_count] = 0
    # All queues of a switch together fit its buffer; what does not, waits at the switches before.
    held = np.bincount(node, weights=waiting, minlength=plan.node_count)
    kept = np.minimum(held, pools)
    room = float(pools[_passed(plan, traffic)].sum() - kept.sum())
    whole = float(kept.sum()) + min(float((held - kept).sum()), max(0.0, room))
    places = whole / frame * _BLOCK_PLACES / (_BLOCK_PLACES - 1)
    used = np.count_nonzero((flows.load[:-1] > 0.3) & (node >= plan.host_count))
    return int((places + used * _BLOCK_PLACES) * packet_bytes)


def _passed(plan: Plan, traffic: Traffic) -> np.ndarray:
    """Nodes by which data pass."""
    ports = distinct(traffic.ports)
    nodes: np.ndarray = distinct(plan.port_node[ports[ports < plan.port_count]])
    return nodes


def _account_bytes(plan: Plan, traffic: Traffic, most: int) -> int:
    """Accounts of the pairs of ports that queue pairs use; a page at the least for each port in use."""
    ports = int(np.count_nonzero(distinct(traffic.ports) < plan.port_count))
    return min(most, ports * 4096)


def _record_bytes(
    compiled: Compiled, tables: Sequence[str], rows: Mapping[str, float], sizes: Mapping[str, int]
) -> int:
    """Dictionaries of the tables, and the rows that are in memory at a time."""
    from fabemu.trace import TABLES

    plan = compiled.plan
    names = 16 * (plan.node_count + plan.port_count)
    total = 8 * 10**6
    record = {"flows": "flow_row", "ports": "port_row", "pauses": "pause_row", "drops": "drop_row"}
    record |= {"packets": "packet_row", "events": "event_row"}
    for table in tables:
        row_bytes = 8 * len(TABLES[table].columns)
        batch = TABLES[table].batch_rows
        # A whole interval is closed at once.
        drained = {"packets": PACKETS_BUDGET_HOPS, "ports": plan.port_count * plan.class_count}.get(
            table, _BATCHES_DRAINED * batch
        )
        count = rows.get(table, 0)
        # Collectives and jobs are told of at the end, by no records of the core.
        record_bytes = sizes[record[table]] if table in record else 0
        # As recorded, and as drained; others are sorted by then, and made columns of.
        drained_bytes = 2 * record_bytes if table in _ROWS_IN_PLACE else 3 * record_bytes + row_bytes
        # As columns, and as an Arrow batch.
        total += names + int(min(count, drained)) * drained_bytes + int(min(count, batch)) * 2 * row_bytes
    return total
