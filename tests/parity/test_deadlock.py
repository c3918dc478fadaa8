"""Deadlock in a ring with clockwise routes, and what a watchdog does about it: core, oracle and the numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fabemu.plan import (
    ACTION_LINK_DOWN,
    ACTION_PFC,
    EVENT_DEADLOCK,
    EVENT_QP_ERROR,
    EVENT_WATCHDOG_RESTORED,
    EVENT_WATCHDOG_STORM,
    ROUTE_LOCAL,
    SCHEDULER_CLASSIC,
    SCHEDULER_WINDOW,
    WATCHDOG_ALERT,
    WATCHDOG_DROP,
    WATCHDOG_FORWARD,
    Plan,
)
from tests.oracle.build import Cable, NicSpec, PortBuffer, SwitchSpec, Wiring, Work, build_plan
from tests.oracle.pauses import END_RUN
from tests.oracle.simulator import DRAINED, simulate
from tests.parity.compare import CoreResult, assert_same, run_core

RING = 4
US = 10**6
DEADLOCKED = 4
INTERVAL_PS = 10 * US


def ring(*, until_ps: int = 400 * US, size: int = 400_000, hops: int = 2, **fields) -> Plan:
    """Four switches in a ring with one host each, which sends `hops` switches on; all routes go clockwise."""
    cables = [Cable(host, RING + host, 100 * 10**9, 100_000) for host in range(RING)]
    cables += [Cable(RING + at, RING + (at + 1) % RING, 100 * 10**9, 100_000) for at in range(RING)]
    work = Work()
    for host in range(RING):
        work.send(work.qp(host, (host + hops) % RING), size)
    buffers = (PortBuffer(reserved=0, headroom=20_000, alpha_q16=65536 // 8, xon_offset=2_000),)
    plan = build_plan(
        RING,
        RING,
        cables,
        work,
        switch=SwitchSpec(pool=200_000, buffers=buffers, pause_ps=50 * US),
        nic=NicSpec(rto_ps=10**10),
        until_ps=until_ps,
    )
    wiring = Wiring(RING, RING, cables)
    groups = len(wiring.members)
    route = np.array(plan.route)
    for switch in range(RING):
        onward = next(
            port for port in wiring.ports(RING + switch) if wiring.neighbour(port) == RING + (switch + 1) % RING
        )
        row = wiring.row[RING + switch]
        for group in range(groups):
            if route[row * groups + group] != ROUTE_LOCAL:
                route[row * groups + group] = onward
    return replace(plan, route=route, **fields)


def watched(action: int, **more) -> dict:
    """Fields of a watchdog at all switches of the ring: polls of 10 us, 20 us to detect and to restore."""
    ports = np.zeros(4 * RING, dtype="u1")
    ports[RING:] = 1
    values = {"watchdog_poll_ps": 10 * US, "watchdog_detect_ps": 20 * US, "watchdog_restore_ps": 20 * US}
    return {
        **{name: np.full(RING, value) for name, value in values.items()},
        "watchdog_action": np.full(RING, action),
        "port_watchdog": ports,
        **more,
    }


def everywhere(plan: Plan) -> CoreResult:
    """Run the core in all its ways and the oracle; all must agree. The result of the windows."""
    window = run_core(plan, scheduler=SCHEDULER_WINDOW)
    assert_same(plan, simulate(plan), window)
    others = [
        run_core(plan, scheduler=SCHEDULER_CLASSIC),
        run_core(plan, express=False),
        run_core(plan, window_divisor=7),
        run_core(plan, steps=iter([(17 * US, 10**6)] * 8)),
    ]
    for other in others:
        assert (other.digest, other.tables["events"]) == (window.digest, window.tables["events"])
    assert all(held for _, held, _ in window.verdicts), window.verdicts
    return window


def cycle_of(plan: Plan, rows: list[tuple[int, ...]]) -> None:
    """Every queue of a reported cycle must wait for the next one's switch, and the last for the first's."""
    ports = [row[3] for row in rows]
    for here, onward in [*pairwise(ports), (ports[-1], ports[0])]:
        assert plan.port_node[plan.port_peer[here]] == plan.port_node[onward]


@pytest.mark.parametrize("stop", [False, True])
def test_a_ring_deadlocks_and_the_whole_cycle_is_named(stop):
    plan = ring(deadlock_interval_ps=INTERVAL_PS, deadlock_stop=stop)
    result = everywhere(plan)
    rows = result.tables["events"]
    assert [row[1] for row in rows] == [EVENT_DEADLOCK] * RING
    assert len({row[2] for row in rows}) == RING, "every switch is in it once"
    assert {row[0] % INTERVAL_PS for row in rows} == {0} and {row[7] for row in rows} == {0}
    assert all(row[6] > 0 for row in rows)
    cycle_of(plan, rows)
    assert (result.state == DEADLOCKED) == stop
    # Nothing moves between the last departure and the end of the run.
    last = max(row[0] for row in result.tables["packets"] if row[2] < 4)
    assert 0 < rows[0][0] - last <= INTERVAL_PS + 20 * US


def test_a_deadlock_is_reported_at_the_end_without_checks_in_between():
    rows = everywhere(ring()).tables["events"]
    assert [(row[0], row[1]) for row in rows] == [(400 * US, EVENT_DEADLOCK)] * RING


def test_a_ring_that_stalls_for_good_ends_deadlocked_without_an_end():
    plan = replace(ring(size=200_000), until_ps=2**62, nic_rto_ps=np.array([3 * 10**9]), nic_retry_count=np.array([0]))
    results = [run_core(plan), run_core(plan, scheduler=SCHEDULER_CLASSIC), run_core(plan, express=False)]
    for result in results:
        assert [row[1] for row in result.tables["events"]].count(EVENT_DEADLOCK) == RING
        assert result.digest == results[0].digest and result.tables["events"] == results[0].tables["events"]


def test_one_hop_rings_do_not_deadlock():
    rows = everywhere(ring(hops=1, deadlock_interval_ps=INTERVAL_PS)).tables["events"]
    assert rows == []


def test_a_watchdog_that_drops_drains_the_ring():
    plan = ring(until_ps=5_000 * US, size=100_000, **watched(WATCHDOG_DROP), deadlock_interval_ps=INTERVAL_PS)
    plan = replace(plan, nic_rto_ps=np.array([300 * US]))
    result = everywhere(plan)
    kinds = [row[1] for row in result.tables["events"]]
    assert EVENT_WATCHDOG_STORM in kinds and EVENT_DEADLOCK not in kinds
    assert kinds.count(EVENT_WATCHDOG_STORM) == kinds.count(EVENT_WATCHDOG_RESTORED)
    assert {row[5] for row in result.tables["drops"]} == {4}
    assert set(result.ops["status"]) == {2}, "every message is delivered and acknowledged in the end"


@pytest.mark.parametrize("action", [WATCHDOG_FORWARD, WATCHDOG_ALERT])
def test_storms_are_found_whatever_is_done_about_them(action):
    result = everywhere(ring(until_ps=300 * US, **watched(action), deadlock_interval_ps=INTERVAL_PS))
    rows = result.tables["events"]
    storms = [row for row in rows if row[1] == EVENT_WATCHDOG_STORM]
    assert len(storms) >= RING
    assert all(row[0] % (10 * US) == 0 and row[6] > 0 for row in storms)
    # Alerting changes nothing; forwarding frees the ring by going over the pauses.
    assert (EVENT_DEADLOCK in [row[1] for row in rows]) == (action == WATCHDOG_ALERT)
    assert not result.tables["drops"] or action == WATCHDOG_FORWARD


def test_a_storm_that_no_poll_can_end_keeps_no_run_going():
    """An alert about a pause for ever: when the senders have given up, only polls without effect would be to come."""
    plan = ring(until_ps=1_000 * US, **watched(WATCHDOG_ALERT), deadlock_interval_ps=400 * US)
    plan = replace(plan, port_pause_ps=np.zeros_like(plan.port_pause_ps), nic_retry_count=np.array([1]))
    result = everywhere(replace(plan, nic_rto_ps=np.array([60 * US])))
    assert result.state == DRAINED
    rows = result.tables["events"]
    failed = [row[0] for row in rows if row[1] == EVENT_QP_ERROR]
    assert len(failed) == RING and max(failed) < 200 * US
    assert {row[0] for row in rows if row[1] == EVENT_DEADLOCK} == {max(failed)}, (
        "the check at the end, before any other"
    )
    assert [row[1] for row in rows].count(EVENT_WATCHDOG_STORM) == RING
    assert {row[4] for row in result.tables["pauses"] if row[7] == END_RUN} == {max(failed)}


@pytest.mark.parametrize("kind", [ACTION_LINK_DOWN, ACTION_PFC])
def test_a_pause_for_ever_that_an_action_ends_lets_the_watchdog_restore(kind):
    plan = ring(until_ps=1_000 * US, **watched(WATCHDOG_ALERT))
    port = next(port for port in range(plan.port_count) if plan.port_node[port] == RING and port < plan.port_peer[port])
    ends = [port, int(plan.port_peer[port])]
    plan = replace(
        plan,
        port_pause_ps=np.zeros_like(plan.port_pause_ps),
        action_time_ps=np.array([103 * US] * 2),
        action_kind=np.array([kind] * 2),
        action_target=np.array(ends),
        action_mask=np.array([1] * 2),
        action_value=np.zeros(2),
    )
    rows = everywhere(plan).tables["events"]
    assert (port, 0) in {row[3:5] for row in rows if row[1] == EVENT_WATCHDOG_STORM and row[0] < 103 * US}
    (restored,) = {row[0] for row in rows if row[1] == EVENT_WATCHDOG_RESTORED and row[3] == port}
    assert restored == 130 * US
