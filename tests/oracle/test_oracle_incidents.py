"""Slow receivers, watchdogs and deadlocks: sequences worked out by hand from docs/MODEL.md, against the oracle."""

from __future__ import annotations

from dataclasses import replace

from fabemu.plan import (
    ACTION_PFC,
    ACTION_RECEIVER,
    ACTION_STORM,
    EVENT_DEADLOCK,
    EVENT_WATCHDOG_RESTORED,
    EVENT_WATCHDOG_STORM,
    WATCHDOG_ALERT,
    WATCHDOG_DROP,
    WATCHDOG_FORWARD,
    Plan,
)
from tests.oracle.build import US, Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Wiring, Work, build_plan
from tests.oracle.packet import PFC
from tests.oracle.simulator import OracleResult, simulate
from tests.oracle.test_oracle_theory import star

WATCHDOG_CAUSE, RECEIVER_FULL = 4, 7
NORMAL, STORM = 2, 3


def acts(*actions: tuple[int, int, int, int, int]) -> dict[str, list[int]]:
    """Fields of (time, kind, target, mask, value) tuples."""
    names = ("time_ps", "kind", "target", "mask", "value")
    return {f"action_{name}": [action[index] for action in actions] for index, name in enumerate(names)}


def of_event(result: OracleResult, kind: int) -> list[tuple[int, ...]]:
    return [row for row in result.events if row[1] == kind]


def receiver_plan(rate_bps: int, **fields) -> Plan:
    """Three packets of 4174, 4158 and 4158 B that reach host 1 (port 1) at 2.671040, 3.005280 and 3.339520 us."""
    work = Work()
    work.send(work.qp(0, 1), 3 * 4096)
    return star(2, work, **{**acts((0, ACTION_RECEIVER, 1, 0, rate_bps)), **fields})


def test_slow_receiver_by_hand() -> None:
    """10 Gb/s: 3.3392 us for the first frame, 3.3264 us for each other; XOFF with two of them there, XON with one."""
    result = simulate(
        receiver_plan(10**10, port_rx_xoff_bytes=[2**62, 8_000, 2**62, 2**62], port_rx_xon_bytes=[0, 4_158, 0, 0])
    )
    assert result.ops["delivered_ps"] == [2_671_040 + 3_339_200 + 2 * 3_326_400]
    (pause,) = result.pauses
    xoff, sent, start, xon, end, port, class_id = pause[:7]
    assert (xoff, sent, start) == (3_005_280, 3_005_280, 3_005_280 + 6_720 + US)
    assert (xon, end) == (9_336_640, 9_336_640 + 6_720 + US)
    assert (port, class_id) == (1, 0)
    # Held bytes, headroom, threshold, egress port, crossed: receiver, parent.
    assert pause[8:] == (4_174 + 4_158, 0, 8_000, -1, 4, -1)
    assert result.events == [(0, ACTION_RECEIVER, 1, 1, -1, -1, 10**10, -1)]


def test_receiver_that_stops_and_goes_on() -> None:
    """Stopped from 3 us on with the first frame in service until 6.01 us; unlimited at 20 us: all at once."""
    actions = acts(
        (0, ACTION_RECEIVER, 1, 0, 10**10),
        (3 * US, ACTION_RECEIVER, 1, 0, 0),
        (20 * US, ACTION_RECEIVER, 1, 0, -1),
    )
    result = simulate(receiver_plan(0, **actions))
    assert result.ops["delivered_ps"] == [20 * US]
    acks = [(row[0], row[6]) for row in result.packets if row[1] == 1]
    # The ACKs of the two frames processed at 20 us are one.
    assert acks == [(6_010_240, 1), (20 * US, 3)]


def test_full_receiver_drops() -> None:
    """Room for two frames: the third is lost and comes again after the timeout."""
    result = simulate(receiver_plan(10**10, port_rx_buffer_bytes=[2**62, 8_400, 2**62, 2**62]))
    assert [(row[0], *row[1:4], row[5]) for row in result.drops] == [(3_339_520, 1, 1, -1, RECEIVER_FULL)]
    assert result.ops["status"] == [2]
    assert result.ops["retransmissions"] == [1]


def watchdog_fields(action: int, ports: int, **fields) -> dict:
    return {
        "watchdog_poll_ps": [10 * US],
        "watchdog_detect_ps": [20 * US],
        "watchdog_restore_ps": [20 * US],
        "watchdog_action": [action],
        "port_watchdog": [1] * ports,
        **fields,
    }


def storm_plan(action: int, classes: int = 1) -> Plan:
    """Host 1 sends XOFF from 0 to 100 us; host 0 sends four packets to it in every class."""
    work = Work()
    for class_id in range(classes):
        work.send(work.qp(0, 1, class_id), 4 * 4096)
    mask = 2**classes - 1
    return star(
        2,
        work,
        classes=[TrafficClass()] * classes,
        nic=NicSpec(rto_ps=40 * US),
        **acts((0, ACTION_STORM, 1, mask, 1), (100 * US, ACTION_STORM, 1, mask, 0)),
        **watchdog_fields(action, 4),
    )


def test_watchdog_drops_and_restores_by_hand() -> None:
    """The pause begins at 1.00672 us and the queue at 1.33552 us: found by the poll at 30 us, over at 130 us."""
    result = simulate(storm_plan(WATCHDOG_DROP))
    held = 4_174 + 3 * 4_158
    assert of_event(result, EVENT_WATCHDOG_STORM) == [(30 * US, EVENT_WATCHDOG_STORM, 2, 3, 0, -1, held, -1)]
    # XON takes effect at 101.00672 us.
    assert of_event(result, EVENT_WATCHDOG_RESTORED) == [(130 * US, EVENT_WATCHDOG_RESTORED, 2, 3, 0, -1, -1, -1)]
    assert {row[5] for row in result.drops} == {WATCHDOG_CAUSE}
    assert [row[0] for row in result.drops[:4]] == [30 * US] * 4
    # Timeouts come every 40 us; what is sent again and arrives in the storm is dropped too.
    repeats = [row[0] for row in result.packets if row[1] == 0 and row[3] & NORMAL and row[0] > 0]
    assert len(result.drops) == 4 * (1 + sum(repeat + 1_335_520 < 130 * US for repeat in repeats))
    assert result.ops["status"] == [2]
    assert 130 * US < result.ops["delivered_ps"][0] < 170 * US


def test_watchdog_forwards_through_the_pause() -> None:
    result = simulate(storm_plan(WATCHDOG_FORWARD))
    assert [row[0] for row in of_event(result, EVENT_WATCHDOG_STORM)] == [30 * US]
    assert [row[0] for row in of_event(result, EVENT_WATCHDOG_RESTORED)] == [130 * US]
    assert result.drops == []
    # All four frames, from the poll on, back to back.
    assert result.ops["delivered_ps"] == [30 * US + (4_194 + 3 * 4_178) * 80 + US]


def test_watchdog_alert_only_tells() -> None:
    result = simulate(storm_plan(WATCHDOG_ALERT))
    assert [row[0] for row in of_event(result, EVENT_WATCHDOG_STORM)] == [30 * US]
    # XON takes effect at 101.00672 us and the queue moves again.
    first = next(row for row in result.packets if row[1] == 3 and row[2] == 0)
    assert first[0] == 100 * US + 6_720 + US
    assert [row[0] for row in of_event(result, EVENT_WATCHDOG_RESTORED)] == [130 * US]
    assert result.end_ps == 130 * US
    assert result.drops == []


def test_all_classes_of_a_port_in_storm_at_once() -> None:
    """One detection each, no restoration while it lasts, one each afterwards."""
    result = simulate(storm_plan(WATCHDOG_DROP, classes=4))
    assert [(row[0], row[4]) for row in of_event(result, EVENT_WATCHDOG_STORM)] == [(30 * US, c) for c in range(4)]
    assert [(row[0], row[4]) for row in of_event(result, EVENT_WATCHDOG_RESTORED)] == [(130 * US, c) for c in range(4)]
    assert result.ops["status"] == [2] * 4


def test_watchdog_does_not_mind_short_pauses() -> None:
    """XOFF for 15 us, an XON for 7 ns, XOFF again: the queue moves now and then, and no pause lasts 20 us."""
    work = Work()
    work.send(work.qp(0, 1), 40 * 4096)
    storms = [(t * US, ACTION_STORM, 1, 1, on) for t, on in ((0, 1), (15, 0), (15, 1), (34, 0), (34, 1), (53, 0))]
    # The PFC frames wait for each other: 6.72 ns each.
    storms = [(t + 7_000 * (t and on), *rest, on) for t, *rest, on in storms]
    plan = star(2, work, **acts(*storms), **watchdog_fields(WATCHDOG_ALERT, 4))
    result = simulate(plan)
    assert of_event(result, EVENT_WATCHDOG_STORM) == []
    assert result.ops["status"] == [2]


def test_a_storm_that_is_on_does_not_begin_again() -> None:
    """PFC off forgets the XOFF of a storm; a second beginning raises none, and the end has none to take back."""
    work = Work()
    work.send(work.qp(0, 1), 4 * 4096)
    actions = [
        (0, ACTION_STORM, 1, 1, 1),
        (5 * US, ACTION_PFC, 1, 1, 0),
        (6 * US, ACTION_PFC, 1, 1, 1),
        (7 * US, ACTION_STORM, 1, 1, 1),
        (9 * US, ACTION_STORM, 1, 1, 0),
        (11 * US, ACTION_STORM, 1, 1, 0),
    ]
    result = simulate(star(2, work, **acts(*actions)))
    assert [row[:2] for row in result.packets if row[2] == PFC] == [(0, 1)]
    # Nothing takes back the pause that this frame began.
    assert [row[:4] for row in result.pauses] == [(0, 0, 6_720 + US, -1)]
    assert result.ops["delivered_ps"] == [-1]


def ring(size: int = 10**6, **fields) -> Plan:
    """Three switches in a ring, routes clockwise only; each host sends to the one two switches on."""
    cables = [Cable(host, 3 + host) for host in range(3)] + [
        Cable(3 + index, 3 + (index + 1) % 3) for index in range(3)
    ]
    work = Work()
    for host in range(3):
        work.send(work.qp(host, (host + 2) % 3), size)
    wiring = Wiring(3, 3, cables)
    route = []
    for switch in range(3):
        clockwise = next(p for p in wiring.ports(3 + switch) if wiring.neighbour(p) == 3 + (switch + 1) % 3)
        route += [-2 if host == switch else clockwise for host in range(3)]
    plan = build_plan(
        3,
        3,
        cables,
        work,
        switch=SwitchSpec(pool=100_000, buffers=[PortBuffer(headroom=200_000, alpha_q16=2**13)]),
        nic=NicSpec(rto_ps=10**12, retry_count=0),
    )
    assert wiring.row[3:] == [0, 1, 2]
    return replace(plan, route=route, **fields)


def test_ring_deadlocks_and_is_reported_once() -> None:
    result = simulate(ring(deadlock_interval_ps=7 * US, until_ps=500 * US))
    rows = of_event(result, EVENT_DEADLOCK)
    assert len(rows) == 3
    time_ps = rows[0][0]
    assert time_ps % (7 * US) == 0
    assert all(row[0] == time_ps and row[4] == 0 and row[6] > 0 and row[7] == 0 for row in rows)
    # The queues towards the next switch, each one waiting for the following.
    assert [row[2] for row in rows] == [3, 4, 5]
    assert result.ops["status"] == [1, 1, 1]
    last = max(row[0] for row in result.packets if row[2] == 0)
    assert last < time_ps
    quiet = simulate(ring(until_ps=500 * US))
    (at,) = {row[0] for row in of_event(quiet, EVENT_DEADLOCK)}
    assert at == quiet.end_ps
    assert quiet.packets == result.packets


def test_ring_run_ends_at_the_deadlock_on_request() -> None:
    whole = simulate(ring(deadlock_interval_ps=7 * US, until_ps=500 * US))
    result = simulate(ring(deadlock_interval_ps=7 * US, deadlock_stop=True))
    assert result.deadlocked
    assert result.end_ps == whole.events[0][0]
    assert result.events == whole.events
    assert {row[4] for row in result.pauses if row[7] == 2} == {result.end_ps}


def watched_ring(action: int, **fields) -> Plan:
    fields |= watchdog_fields(action, 12)
    fields |= {name: fields[name] * 3 for name in fields if name.startswith("watchdog")}
    return ring(150_000, deadlock_interval_ps=7 * US, nic_rto_ps=[100 * US], nic_retry_count=[1000], **fields)


def test_watchdog_forwards_out_of_the_ring() -> None:
    """What it sends on arrives in time: everything drains, and no deadlock is reported where a watchdog will act."""
    result = simulate(watched_ring(WATCHDOG_FORWARD, until_ps=10**11))
    assert of_event(result, EVENT_DEADLOCK) == []
    assert len(of_event(result, EVENT_WATCHDOG_STORM)) == len(of_event(result, EVENT_WATCHDOG_RESTORED)) > 0
    assert result.drained
    assert result.ops["status"] == [2, 2, 2]


def test_watchdog_drops_what_waits_in_the_ring() -> None:
    """All that is lost is lost to it; every storm is over one restoration time and a poll after its last pause."""
    result = simulate(watched_ring(WATCHDOG_DROP, until_ps=300 * US))
    assert of_event(result, EVENT_DEADLOCK) == []
    assert {row[5] for row in result.drops} == {WATCHDOG_CAUSE}
    storms, restored = of_event(result, EVENT_WATCHDOG_STORM), of_event(result, EVENT_WATCHDOG_RESTORED)
    assert len(storms) == len(restored) == 9, "the ring fills up three times"
    for row in restored:
        # The pauses of a port are rows of its peer.
        rows = [pause for pause in result.pauses if pause[5] == peer_of_ring_port(row[3])]
        ends = [pause[4] for pause in rows if 0 <= pause[2] <= row[0]]
        assert 20 * US <= row[0] - max(ends) < 30 * US


def peer_of_ring_port(port: int) -> int:
    return int(ring().port_peer[port])
