"""The watchdog keeps its times: worked out from what a run says of frames and pauses, for the core and the oracle."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import (
    ACTION_STORM,
    EVENT_WATCHDOG_RESTORED,
    EVENT_WATCHDOG_STORM,
    WATCHDOG_ALERT,
    WATCHDOG_DROP,
    WATCHDOG_FORWARD,
    Plan,
)
from tests.oracle.build import US, Action, Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Work, build_plan
from tests.oracle.device import WATCHDOG
from tests.oracle.packet import ACK, LINK_FRAMES, NAK
from tests.oracle.simulator import simulate
from tests.parity.compare import run_core
from tests.property.strategies import example_settings

HOSTS = 4
LEFT, RIGHT = HOSTS, HOSTS + 1  # two hosts at each of two switches
RATE_BPS = 100 * 10**9
DONE = 2
FOUND_OR_LEFT = (EVENT_WATCHDOG_STORM, EVENT_WATCHDOG_RESTORED)

Rows = list[tuple[int, ...]]
Event = tuple[int, int]
"""Time and kind of what the watchdog did to a queue."""


@st.composite
def storms(draw: st.DrawFn) -> Plan:
    """Host 0 storms one to three times for a while; hosts send it a message now and then, and others each other."""
    class_count = draw(st.integers(1, 2))
    delays = st.sampled_from([0, US // 10, US])
    cables = [Cable(host, LEFT + (host >= 2), RATE_BPS, draw(delays)) for host in range(HOSTS)]
    cables.append(Cable(LEFT, RIGHT, RATE_BPS, US // 2))
    work = Work()
    for _ in range(draw(st.integers(1, 3))):
        qp = work.qp(draw(st.sampled_from([1, 2, 3])), 0, draw(st.integers(0, class_count - 1)))
        period, size = draw(st.integers(5, 60)) * US, draw(st.sampled_from([0, 1024, 10_000]))
        for number in range(draw(st.integers(5, 12))):
            work.send(qp, size, number * period)
    for _ in range(draw(st.integers(0, 2))):
        src, dst = draw(st.sampled_from([(0, 3), (1, 3), (2, 1), (3, 1)]))
        qp = work.qp(src, dst, draw(st.integers(0, class_count - 1)))
        work.send(qp, draw(st.sampled_from([1024, 50_000])), draw(st.integers(0, 200 * US)))
    poll = draw(st.sampled_from([3 * US, 5 * US, 10 * US]))
    flight_ps = (
        84 * 8 * 10**12 // RATE_BPS + cables[0].delay_ps
    )  # of a PFC frame, which finds the link free or nearly so

    def takes_effect(earliest: int) -> int:
        """When host 0 changes its mind, then or a little later so that a poll sees it only just, or just not."""
        if draw(st.booleans()):
            return earliest + draw(st.integers(0, US))
        return -(-(earliest + flight_ps) // poll) * poll + poll - flight_ps + draw(st.integers(-1, 1))

    actions, time_ps = [], 0
    for _ in range(draw(st.integers(1, 3))):
        mask = draw(st.sampled_from([2**class_count - 1, *range(1, 2**class_count)]))
        time_ps = takes_effect(time_ps + draw(st.integers(1, 100 * US)))
        actions.append(Action(time_ps, ACTION_STORM, 0, mask, 1))
        time_ps = takes_effect(time_ps + draw(st.sampled_from([20 * US, 60 * US, 150 * US, 300 * US])))
        actions.append(Action(time_ps, ACTION_STORM, 0, mask, 0))
    action = draw(st.sampled_from([WATCHDOG_DROP, WATCHDOG_DROP, WATCHDOG_FORWARD, WATCHDOG_ALERT]))
    waits = st.integers(1, 4).map(lambda polls: polls * poll) | st.integers(poll, 4 * poll)
    return build_plan(
        HOSTS,
        2,
        cables,
        work,
        classes=[TrafficClass(ecn=False, ack=class_id) for class_id in range(class_count)],
        switch=SwitchSpec(
            pool=draw(st.sampled_from([5_000, 20_000, 10**6])),
            buffers=[PortBuffer(headroom=200_000, alpha_q16=draw(st.sampled_from([2**13, 2**16])))],
            pause_ps=draw(st.sampled_from([0, 5 * US])),
        ),
        nic=NicSpec(rto_ps=60 * US, retry_count=1000, pause_ps=draw(st.sampled_from([0, 5 * US]))),
        actions=actions,
        mtu_bytes=1024,
        watchdog_poll_ps=[poll] * 2,
        watchdog_detect_ps=[draw(waits)] * 2,
        watchdog_restore_ps=[draw(waits)] * 2,
        watchdog_action=[action] * 2,
        port_watchdog=[1] * (2 * len(cables)),
    )


class Observed:
    """One egress queue of a switch, by the rows of a run: when frames came and went, when it was paused."""

    def __init__(self, plan: Plan, port: int, class_id: int, tables: dict[str, Rows]) -> None:
        node, peer = int(plan.port_node[port]), int(plan.port_peer[port])
        behind = {int(plan.port_node[peer])}
        if min(behind) >= HOSTS:
            behind = {host for host in range(HOSTS) if (LEFT + (host >= 2)) != node}
        self.came: list[int] = []
        self.left: list[int] = []
        for time_ps, sender, kind, _, frame_class, qp, _, frame_bytes in tables["packets"]:
            if kind in LINK_FRAMES or frame_class != class_id:
                continue
            if sender == port:
                self.left.append(time_ps)
            to = int((plan.qp_src if kind in (ACK, NAK) else plan.qp_dst)[qp])
            if int(plan.port_node[plan.port_peer[sender]]) == node and to in behind:
                wire_ps = (frame_bytes + plan.wire_overhead_bytes) * 8 * 10**12 // RATE_BPS
                self.came.append(time_ps + wire_ps + int(plan.port_delay_ps[sender]))
        self.lost = sorted((row[0], row[9]) for row in tables["drops"] if row[3] == port and row[4] == class_id)
        self.came.sort()
        self.left.sort()
        # A pause that is renewed at or before its end is one pause.
        self.pauses: list[tuple[int, int]] = []
        for row in sorted(tables["pauses"], key=lambda row: row[2]):
            start, end = row[2], row[4]
            if (row[5], row[6]) != (peer, class_id) or start < 0:
                continue
            if self.pauses and start <= self.pauses[-1][1]:
                self.pauses[-1] = self.pauses[-1][0], max(end, self.pauses[-1][1])
            else:
                self.pauses.append((start, end))

    def expected(self, poll: int, detect: int, restore: int, drops: bool, end_ps: int) -> Iterator[Event]:
        """What a watchdog has to do here: section 16 of docs/MODEL.md."""
        lost_at = [time_ps for time_ps, _ in self.lost]
        in_storm = False
        for now in range(poll, end_ps + 1, poll):
            begun = [pause for pause in self.pauses if pause[0] <= now]
            is_paused = bool(begun) and now < begun[-1][1]
            if in_storm:
                if not is_paused and now - begun[-1][1] >= restore:
                    in_storm = False
                    yield now, EVENT_WATCHDOG_RESTORED
                continue
            # Frames come before a poll of the same instant, and leave after it.
            gone = sorted(self.left[: bisect_left(self.left, now)] + lost_at[: bisect_left(lost_at, now)])
            count = bisect_right(self.came, now)
            if not is_paused or count <= len(gone):
                continue
            # As queues are first in, first out, the oldest frame is the one that came after as many as have gone.
            moved_ps = max(self.came[len(gone)], gone[-1] if gone else 0)
            if now - moved_ps >= detect and 100 * (now - begun[-1][0]) >= 99 * detect:
                in_storm = True
                flushed = bisect_right(lost_at, now) - bisect_left(lost_at, now)
                assert flushed == (count - len(gone) if drops else 0)
                yield now, EVENT_WATCHDOG_STORM


@example_settings(0.3)
@given(storms())
def test_storms_are_found_and_left_in_time_and_cost_nothing_but_what_the_watchdog_drops(plan: Plan) -> None:
    poll, detect, restore, action = (
        int(getattr(plan, f"watchdog_{name}")[0]) for name in ("poll_ps", "detect_ps", "restore_ps", "action")
    )
    oracle, core = simulate(plan), run_core(plan)
    assert oracle.drained
    event(f"action {action}")
    for tables, ops in (
        ({name: getattr(oracle, name) for name in ("packets", "pauses", "drops", "events")}, oracle.ops),
        (core.tables, core.ops),
    ):
        # A storm makes no switch lose anything, and in the end every message gets through.
        assert {row[5] for row in tables["drops"]} <= ({WATCHDOG} if action == WATCHDOG_DROP else set())
        assert set(ops["status"]) == {DONE}
        for port in range(int(plan.node_port_start[LEFT]), plan.port_count):
            for class_id in range(plan.class_count):
                rows = [row for row in tables["events"] if row[3:5] == (port, class_id)]
                queue = Observed(plan, port, class_id, tables)
                expected = list(queue.expected(poll, detect, restore, action == WATCHDOG_DROP, oracle.end_ps))
                assert [row[:2] for row in rows if row[1] in FOUND_OR_LEFT] == expected
                for row in rows:
                    if row[1] == EVENT_WATCHDOG_STORM and action == WATCHDOG_DROP:
                        assert sum(size for time_ps, size in queue.lost if time_ps == row[0]) == row[6] > 0
                assert len(expected) % 2 == 0, "a storm that is never left"
                if expected and tables is core.tables:
                    event("storm found at the host" if plan.port_node[plan.port_peer[port]] == 0 else "storm upstream")
