"""Credits, weights, links that go down and frames that are lost: sequences worked out by hand from docs/MODEL.md."""

from __future__ import annotations

from dataclasses import replace

from fabemu.plan import ACTION_LINK_DOWN, ACTION_LINK_UP, ACTION_LOSS, ACTION_PFC, ACTION_ROUTES, Plan
from tests.oracle.build import US, Action, Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Work, build_plan
from tests.oracle.packet import ACK, CREDIT, DATA, PFC
from tests.oracle.simulator import OracleResult, simulate
from tests.oracle.test_oracle_theory import of_kind, star

LINK_DOWN, CORRUPT = 5, 6
SURE = {"loss_size_max": 5000, "loss_q32": [2**32] * 5001}
"""A row of losses that loses everything."""


def two_packets(**parts) -> OracleResult:
    """Frames of 4174 and 4158 B, 335.52 and 334.24 ns on the wire, from host 0 over switch 2 to host 1."""
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    return simulate(star(2, work, **parts))


def test_credits_by_hand() -> None:
    """A lane of one frame (66 blocks): the next frame waits for a credit frame of 84 B, 6.72 ns, and 1 us of cable."""
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    cables = [Cable(host, 2, lanes=(66 * 64,)) for host in range(2)]
    result = simulate(build_plan(2, 1, cables, work))
    first = 335_520 + US
    second = first + 6_720 + US
    # At the switch the second frame comes a little before the credits that host 1 gives back for the first.
    comes = second + 334_240 + US
    goes = first + 335_520 + US + 6_720 + US
    assert comes < goes
    assert [row[:2] for row in of_kind(result, DATA)] == [(0, 0), (first, 3), (second, 0), (goes, 3)]
    # psn: blocks freed so far. The switch frees the frame as it leaves; host 0 frees what ACKs take, two blocks each.
    assert [(row[0], row[6]) for row in of_kind(result, CREDIT) if row[1] == 2] == [(first, 66), (goes, 66 + 65)]
    assert [row[6] for row in of_kind(result, CREDIT) if row[1] == 0] == [2, 4]
    assert not result.drops
    assert not result.pauses


def test_lane_rate_is_buffer_by_round_trip() -> None:
    """Four frames of credits and a loop of some seven frames: four frames a loop, whatever the link could carry."""
    work = Work()
    work.send(work.qp(0, 1), 60 * 4096)
    result = simulate(build_plan(2, 1, [Cable(host, 2, lanes=(4 * 66 * 64,)) for host in range(2)], work))
    sent = [row[0] for row in of_kind(result, DATA) if row[1] == 0]
    loop = 334_240 + US + 6_720 + US
    gaps = {later - earlier for earlier, later in zip(sent[20:40], sent[24:44], strict=True)}
    assert max(gaps) <= loop + 20_000
    assert min(gaps) >= loop


def test_lost_credits_are_repeated() -> None:
    """Every credit frame of the switch is lost for 20 us: a refresh after that brings them all at once."""
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    cables = [Cable(host, 2, lanes=(66 * 64,), credit_refresh_ps=5 * US) for host in range(2)]
    actions = [Action(0, ACTION_LOSS, 2, 1 << CREDIT, 0), Action(20 * US, ACTION_LOSS, 2, 1 << CREDIT, -1)]
    result = simulate(build_plan(2, 1, cables, work, actions=actions, **SURE))
    first = 335_520 + US
    frames = [row[0] for row in of_kind(result, CREDIT) if row[1] == 2]
    assert frames[:5] == [first + turn * 5 * US for turn in range(5)]
    assert [row[0] for row in of_kind(result, DATA) if row[1] == 0][1] == frames[4] + 6_720 + US
    assert {row[5] for row in result.drops} == {CORRUPT}
    assert len(result.drops) == 4
    assert result.ops["status"] == [2]


def test_weights_share_a_port() -> None:
    """Three frames to two, as long as both classes wait; a strict class goes before both."""
    work = Work()
    for source, class_id in ((0, 0), (1, 1), (2, 2)):
        work.send(work.qp(source, 3, class_id), (20 if class_id == 0 else 100) * 4096)
    buffer = PortBuffer(headroom=10**7)
    buffers = (buffer, replace(buffer, quantum=3 * 4178), replace(buffer, quantum=2 * 4178))
    classes = [TrafficClass(ecn=False) for _ in range(3)]
    result = simulate(star(4, work, classes=classes, switch=SwitchSpec(buffers=buffers)))
    out = [row[4] for row in of_kind(result, DATA) if row[1] == 7]
    # Class 0 has the whole port while it comes in; then turns of three and two.
    assert out[:21].count(0) == 20
    both = out[25:125]
    assert (both.count(1), both.count(2)) == (60, 40)
    assert "1112211122" in "".join(map(str, both))


def test_link_takes_what_is_on_it() -> None:
    """Down at 1 us: the frame that started at 0 is lost, the second (started at 335.52 ns) too; up at 2 us."""
    down = [Action(US, ACTION_LINK_DOWN, port) for port in (0, 2)]
    up = [Action(2 * US, ACTION_LINK_UP, port) for port in (0, 2)]
    result = two_packets(actions=down + up, nic=NicSpec(rto_ps=100 * US))
    assert result.drops == [
        (US, 2, 2, -1, 0, LINK_DOWN, DATA, 0, 0, 4174),
        (US, 2, 2, -1, 0, LINK_DOWN, DATA, 0, 1, 4158),
    ]
    assert [row[0] for row in of_kind(result, DATA) if row[1] == 0] == [0, 335_520, 100 * US, 100 * US + 335_520]
    assert result.ops["retransmissions"] == [2]
    assert result.ops["status"] == [2]
    assert [(row[0], row[1], row[3]) for row in result.events] == [
        (US, 0, 0),
        (US, 0, 2),
        (2 * US, 1, 0),
        (2 * US, 1, 2),
    ]


def test_routes_follow_a_link_after_a_while() -> None:
    """Two ways from switch 2 to switch 3; the one in use dies: black-holed until the tables change 50 us later."""
    work = Work()
    work.send(work.qp(0, 1), 400 * 4096)
    cables = [Cable(0, 2), Cable(1, 3), Cable(2, 3), Cable(2, 3)]
    parts = {"nic": NicSpec(rto_ps=30 * US), "same_seed": True}
    plan = build_plan(2, 2, cables, work, **parts)
    used = next(row[1] for row in of_kind(simulate(plan), DATA) if plan.port_node[row[1]] == 2)
    ends = (used, int(plan.port_peer[used]))
    cable = 2 if used == plan.node_port_start[2] + 1 else 3
    actions = [Action(10 * US, ACTION_LINK_DOWN, port) for port in ends] + [Action(60 * US, ACTION_ROUTES, value=1)]
    result = simulate(build_plan(2, 2, cables, work, actions=actions, epochs=[[cable]], **parts))
    lost = [row for row in result.drops if row[5] == LINK_DOWN]
    assert lost
    assert all(10 * US <= row[0] < 60 * US for row in lost)
    assert {row[3] for row in lost if row[0] > 10 * US} == {used}
    ways = {row[1] for row in of_kind(result, DATA) if plan.port_node[row[1]] == 2 and row[0] >= 60 * US}
    assert ways == {2 * plan.node_port_start[2] + 3 - used}
    assert result.ops["status"] == [2]


def test_last_ack_lost_is_one_completion() -> None:
    """ACKs of host 1 are lost for 50 us: a timeout at 100 us sends again, a duplicate is acknowledged, done once."""
    actions = [Action(0, ACTION_LOSS, 1, 1 << ACK, 0), Action(50 * US, ACTION_LOSS, 1, 1 << ACK, -1)]
    result = two_packets(actions=actions, nic=NicSpec(rto_ps=100 * US), **SURE)
    first = 2 * (335_520 + US)
    assert [row[:3] for row in result.drops] == [(first + 6_880 + US, 2, 3), (first + 334_240 + 6_880 + US, 2, 3)]
    assert result.ops["delivered_ps"] == [first + 334_240]
    # The duplicate of the first packet already acknowledges all.
    assert result.ops["done_ps"] == [100 * US + first + 2 * (6_880 + US)]
    assert result.ops["status"] == [2]


def paused_plan(actions: list[Action]) -> Plan:
    """Two full frames to a 1 Gb/s link with a threshold of nothing: XOFF stands while the second frame waits.

    A calc keeps the run alive until every pause has run out.
    """
    work = Work()
    work.send(work.qp(0, 1), 2 * 4096)
    work.calc(0, 0, start_ps=200 * US)
    cables = [Cable(0, 2, delay_ps=0), Cable(1, 2, rate_bps=10**9, delay_ps=0)]
    spec = SwitchSpec(pool=1000, buffers=(PortBuffer(headroom=10**5, alpha_q16=1),), pause_ps=100 * US)
    return build_plan(2, 1, cables, work, switch=spec, actions=actions, **SURE)


def test_lost_xon_ends_by_expiry() -> None:
    """XON of the second frame at 33.9 us is lost; the pause of 100 us runs out by itself."""
    second = 335_520 + 334_240
    whole = simulate(paused_plan([]))
    xon = 335_520 + 4194 * 8000
    assert [(row[0], row[3], row[4], row[7]) for row in whole.pauses if row[0] == second] == [
        (second, xon, xon + 6_720, 0)
    ]
    result = simulate(paused_plan([Action(10 * US, ACTION_LOSS, 2, 1 << PFC, 0)]))
    assert [(row[0], row[3], row[4], row[7]) for row in result.pauses if row[0] == second] == [
        (second, xon, second + 6_720 + 100 * US, 1)
    ]
    assert [row[:7] for row in result.drops] == [(xon + 6_720, 0, 0, -1, 0, CORRUPT, PFC)]


def test_pfc_off_leaves_the_pause_to_run_out() -> None:
    """Turned off at 10 us at the switch: no XON is ever said, the pause ends by expiry."""
    second = 335_520 + 334_240
    result = simulate(paused_plan([Action(10 * US, ACTION_PFC, 2, 1, 0)]))
    assert [(row[3], row[4], row[7]) for row in result.pauses if row[0] == second] == [
        (-1, second + 6_720 + 100 * US, 1)
    ]
    assert max(row[0] for row in of_kind(result, PFC) if row[1] == 2) == second
