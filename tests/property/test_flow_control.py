"""What PFC and credits promise on any fabric, and that faults that end leave nothing behind."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import assume, event, given
from hypothesis import strategies as st

from fabemu.headroom import headroom_bound_bytes
from fabemu.plan import (
    ACTION_LINK_DOWN,
    ACTION_LINK_UP,
    ACTION_LOSS,
    ACTION_RECEIVER,
    ACTION_STORM,
    EVENT_DEADLOCK,
    EVENT_QP_ERROR,
    FOREVER_PS,
    Plan,
)
from tests.oracle.device import CORRUPT, LINK_DOWN
from tests.oracle.ops import NOT_RUN, POSTED
from tests.oracle.packet import CREDIT
from tests.oracle.simulator import OracleResult, PacketLimitError, Simulator
from tests.oracle.switch import HEADROOM_FULL, NO_ROUTE, Switch
from tests.property import incidents
from tests.property.strategies import PACKET_LIMIT, example_settings, plans, tag

PFC_TROUBLE = frozenset({"static", "cells", "weights", "ecn-enable", "ecn-off", "storm", "verbs", "selective"}) | {
    "receiver",
    "routes",
    "deadlock",
    "psn-start",
}
CREDIT_FAULTS = frozenset({"weights", "links", "routes", "loss", "ecn-off", "verbs", "selective"})


def with_headroom(plan: Plan) -> Plan:
    """The same plan with headroom at its bound wherever a class is lossless."""
    count = plan.class_count
    headroom = plan.pq_headroom_bytes.copy()
    cells = {plan.host_count + index: int(size) for index, size in enumerate(plan.switch_cell_bytes)}
    buffers = plan.switch_buffer_bytes.copy()
    frame_bytes = plan.mtu_bytes + plan.pad_bytes + plan.header_bytes + max(plan.reth_bytes, plan.aeth_bytes)
    for port, node in enumerate(plan.port_node):
        if node < plan.host_count:
            continue
        bound = headroom_bound_bytes(
            rate_bps=int(plan.port_rate_bps[port]),
            delay_ps=int(plan.port_delay_ps[port]),
            response_ps=int(plan.port_pfc_response_ps[plan.port_peer[port]]),
            frame_bytes=frame_bytes,
            pfc_bytes=plan.pfc_bytes,
            wire_overhead_bytes=plan.wire_overhead_bytes,
            frame_min_bytes=plan.frame_min_bytes,
            cell_bytes=cells[node],
        )
        for class_id in np.flatnonzero(plan.class_lossless):
            row = port * count + class_id
            buffers[node - plan.host_count] += bound - headroom[row]
            headroom[row] = bound
    return replace(plan, pq_headroom_bytes=headroom, switch_buffer_bytes=buffers)


def with_lasting_pauses(plan: Plan) -> Plan:
    """With pauses of at least two of the largest frames: a shorter one runs out before its refresh can come (FB102)."""
    largest = max(-(-plan.mtu_bytes // max(plan.pad_bytes, 1)) * max(plan.pad_bytes, 1), 64) + plan.header_bytes
    wire_bytes = max(largest + plan.reth_bytes + plan.aeth_bytes, plan.pfc_bytes, 128) + plan.wire_overhead_bytes
    least = np.array([2 * -(-wire_bytes * 8 * 10**12 // int(rate)) for rate in plan.port_rate_bps])
    pause = np.where(plan.port_pause_ps > 0, np.maximum(plan.port_pause_ps, least), 0)
    return replace(plan, port_pause_ps=pause)


@example_settings(0.5)
@given(plans(PFC_TROUBLE))
def test_headroom_at_its_bound_loses_nothing(plan: Plan) -> None:
    """Whatever the thresholds, weights, storms and mixes of frames are."""
    assume(not plan.truncate_ns)
    plan = with_lasting_pauses(with_headroom(plan))
    simulator = Simulator(plan, packet_limit=PACKET_LIMIT)
    try:
        tag(simulator.run())
    except PacketLimitError:
        event("cut")
    used = [group.headroom_used for switch in switches(simulator) for groups in switch.groups for group in groups]
    event(f"headroom in use at the end: {any(used)}")
    assert not [row for row in simulator.drops if row[5] == HEADROOM_FULL]


@example_settings(0.4)
@given(plans(CREDIT_FAULTS, frozenset({"credits"})), st.data())
def test_credits_lose_nothing_and_never_exceed_the_buffer(plan: Plan, data: st.DataObject) -> None:
    """The oracle compares credits with frames on the wire and in the buffer all the time; nothing is left to drop."""
    simulator = Simulator(plan, verify_every=data.draw(st.sampled_from([1, 7])), packet_limit=PACKET_LIMIT // 2)
    try:
        tag(simulator.run())
    except PacketLimitError:
        event("cut")
    assert {row[5] for row in simulator.drops} <= {NO_ROUTE, LINK_DOWN, CORRUPT}


@example_settings(0.5)
@given(plans(incidents.FEATURES - {"credits"} | {"verbs", "selective"}, frozenset({"links"})))
def test_finite_faults_leave_nothing_behind(plan: Plan) -> None:
    """Faults that have ended: every buffer drains, every operation ends; unless a deadlock is found."""
    # A pause without end would outlive an XON that is lost.
    pause = np.where(plan.port_pause_ps == 0, plan.port_pause_ps.max(initial=0) + 10**7, plan.port_pause_ps)
    plan = replace(end_all_faults(plan), port_pause_ps=pause, until_ps=FOREVER_PS)
    result, simulator = run_to_the_end(plan)
    if any(row[1] == EVENT_DEADLOCK for row in result.events):
        event("deadlock")
        return
    for switch in switches(simulator):
        assert switch.shared_used == 0
        assert all(group.used == 0 and not group.is_xoff for groups in switch.groups for group in groups)
        assert all(not queue.frames for queues in switch.queues for queue in queues)
    assert_operations_ended(plan, result)


@example_settings(0.4)
@given(plans(CREDIT_FAULTS, frozenset({"credits", "links"})))
def test_finite_faults_leave_credit_links_whole(plan: Plan) -> None:
    """Credits that are lost with data, or with a link, are not lost for ever."""
    plan = end_all_faults(plan)
    losing = plan.action_kind == ACTION_LOSS
    # Lost credit frames are repeated only so often: leave them alone.
    mask = np.where(losing, plan.action_mask & ~(1 << CREDIT), plan.action_mask)
    plan = replace(plan, until_ps=FOREVER_PS, action_mask=mask)
    result, simulator = run_to_the_end(plan)
    if any(row[1] == EVENT_DEADLOCK for row in result.events):
        event("deadlock")
        return
    for port in simulator.ports:
        assert port.credits is not None
        assert port.credits.sent == port.credits.freed_known
    assert_operations_ended(plan, result)


def switches(simulator: Simulator) -> list[Switch]:
    return [device for device in simulator.devices if isinstance(device, Switch)]


def run_to_the_end(plan: Plan) -> tuple[OracleResult, Simulator]:
    simulator = Simulator(plan, packet_limit=PACKET_LIMIT)
    try:
        result = simulator.run()
    except PacketLimitError:
        assume(False)
    tag(result)
    event(f"failed QPs: {any(row[1] == EVENT_QP_ERROR for row in result.events)}")
    assert result.drained
    return result, simulator


def assert_operations_ended(plan: Plan, result: OracleResult) -> None:
    """Only what waits for a message that never comes may do so for ever: its receive, and what is behind it."""
    status = np.array(result.ops["status"])
    for start, end in pairwise(plan.qp_op_start):
        sends = plan.qp_op[start:end]
        for before, send in enumerate(sends):
            held_back = (status[sends[:before]] == NOT_RUN).any()
            assert status[send] != POSTED or held_back, f"operation {send} is left over"


def end_all_faults(plan: Plan) -> Plan:
    """With the end of every link's outage, every loss, storm and slow receiver some time after the last action."""
    last = int(plan.action_time_ps.max(initial=0)) + 10**6
    more: list[tuple[int, int, int, int, int]] = []
    for port in sorted(set(plan.action_target[plan.action_kind == ACTION_LINK_DOWN].tolist())):
        own = plan.action_target == port
        kinds = plan.action_kind[own & np.isin(plan.action_kind, (ACTION_LINK_DOWN, ACTION_LINK_UP))]
        if kinds[-1] == ACTION_LINK_DOWN:
            more.append((last, ACTION_LINK_UP, port, 0, 0))
    for port in sorted(set(plan.action_target[plan.action_kind == ACTION_LOSS].tolist())):
        more.append((last, ACTION_LOSS, port, 0x7F, -1))
    for port in sorted(set(plan.action_target[plan.action_kind == ACTION_STORM].tolist())):
        more.append((last, ACTION_STORM, port, 2**plan.class_count - 1, 0))
    for port in sorted(set(plan.action_target[plan.action_kind == ACTION_RECEIVER].tolist())):
        more.append((last, ACTION_RECEIVER, port, 0, -1))
    names = ("time_ps", "kind", "target", "mask", "value")
    fields = {
        f"action_{name}": [*getattr(plan, f"action_{name}").tolist(), *(action[place] for action in more)]
        for place, name in enumerate(names)
    }
    return replace(plan, **fields)
