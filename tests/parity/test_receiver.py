"""Slow receivers and storms of hosts, with and without a watchdog: core, oracle and the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabemu.plan import (
    ACTION_RECEIVER,
    ACTION_STORM,
    EVENT_WATCHDOG_RESTORED,
    EVENT_WATCHDOG_STORM,
    WATCHDOG_ALERT,
    WATCHDOG_DROP,
    WATCHDOG_FORWARD,
    Plan,
)
from tests.oracle.build import Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Work, build_plan
from tests.parity.test_deadlock import everywhere

US = 10**6
GBPS = 10**9
RATE = 100 * GBPS
FRAME_BYTES, WIRE_BYTES = 1024 + 62, 20
STORM, RECEIVER = 3, 4
FOREVER = 2**62


def two_hosts(actions, *, size=2_000_000, until_ps=FOREVER, classes=1, **fields) -> Plan:
    """Two hosts at a switch; host 0 sends to host 1, whose port is port 1. `actions`: (time, kind, mask, value)."""
    work = Work()
    for class_id in range(classes):
        work.send(work.qp(0, 1, class_id), size)
    columns = list(zip(*actions, strict=True)) or [(), (), (), ()]
    return build_plan(
        2,
        1,
        [Cable(0, 2, RATE, 100_000), Cable(1, 2, RATE, 100_000)],
        work,
        classes=[TrafficClass(ack=class_id) for class_id in range(classes)],
        switch=SwitchSpec(
            pool=500_000,
            buffers=(PortBuffer(reserved=0, headroom=40_000, alpha_q16=65536, xon_offset=2_000),),
            pause_ps=50 * US,
        ),
        nic=NicSpec(rto_ps=10**10),
        until_ps=until_ps,
        mtu_bytes=1024,
        action_time_ps=columns[0],
        action_kind=columns[1],
        action_target=[1] * len(actions),
        action_mask=columns[2],
        action_value=columns[3],
        port_rx_xoff_bytes=np.full(4, 40_000),
        port_rx_xon_bytes=np.full(4, 20_000),
        port_rx_buffer_bytes=np.full(4, 80_000),
        **fields,
    )


def with_pauses(plan: Plan) -> Plan:
    """The plan with a pause time in the PFC frames of hosts."""
    pause_ps = plan.port_pause_ps.copy()
    pause_ps[:2] = 50 * US
    return replace(plan, port_pause_ps=pause_ps)


def pauses_of(result, cause: int) -> list[dict[str, int]]:
    rows = [dict(zip(result.columns["pauses"], row, strict=True)) for row in result.tables["pauses"]]
    return [row for row in rows if row["crossed"] == cause]


@pytest.mark.parametrize("share", [0.8, 0.5, 0.1])
def test_a_slow_receiver_pauses_its_link_for_the_share_that_it_cannot_take(share):
    rate = int(share * RATE * FRAME_BYTES / (FRAME_BYTES + WIRE_BYTES))
    result = everywhere(with_pauses(two_hosts([(0, ACTION_RECEIVER, 0, rate)])))
    rows = pauses_of(result, RECEIVER)
    assert len(rows) > 10 and not result.tables["drops"]
    assert all(row["ingress_bytes"] >= row["threshold_bytes"] == 40_000 and row["egress_port"] == -1 for row in rows)
    # Whole periods, from one XOFF to the next.
    paused = sum(row["end_ps"] - row["start_ps"] for row in rows[:-1])
    assert paused / (rows[-1]["start_ps"] - rows[0]["start_ps"]) == pytest.approx(1 - share, abs=0.02)
    # And its message takes as long as the receiver needs for its frames.
    frames = result.ops["packets"][0]
    assert result.ops["delivered_ps"][0] == pytest.approx(frames * FRAME_BYTES * 8e12 / rate, rel=0.01)


def test_a_stopped_receiver_goes_on_where_it_was_and_a_small_buffer_loses_frames():
    stall = [(20 * US, ACTION_RECEIVER, 0, 0), (120 * US, ACTION_RECEIVER, 0, -1)]
    free = everywhere(with_pauses(two_hosts([]))).ops["delivered_ps"][0]
    held = everywhere(with_pauses(two_hosts(stall)))
    assert held.ops["delivered_ps"][0] == pytest.approx(free + 100 * US, rel=0.05)
    assert len(pauses_of(held, RECEIVER)) >= 1 and not held.tables["drops"]
    small = replace(with_pauses(two_hosts(stall)), port_rx_buffer_bytes=np.full(4, 41_000))
    lossy = everywhere(small)
    assert {row[5] for row in lossy.tables["drops"]} == {7}
    assert lossy.ops["status"] == [2], "go-back-N repairs it"


def test_a_storm_holds_the_port_until_it_ends():
    storm = [(20 * US, ACTION_STORM, 1, 1), (320 * US, ACTION_STORM, 1, 0)]
    free = everywhere(with_pauses(two_hosts([]))).ops["delivered_ps"][0]
    result = everywhere(with_pauses(two_hosts(storm)))
    (row,) = pauses_of(result, STORM)
    assert (row["xoff_ps"], row["xon_ps"]) == (20 * US, 320 * US)
    assert (row["ingress_bytes"], row["threshold_bytes"], row["egress_port"]) == (0, 0, -1)
    # It is refreshed at half of its 50 us, so it never runs out.
    assert row["end_ps"] > 320 * US
    assert result.ops["delivered_ps"][0] == pytest.approx(free + 300 * US, rel=0.01)
    sent = [packet for packet in result.tables["packets"] if packet[1] == 1 and packet[2] == 4]
    assert len(sent) == 1 + 300 // 25, "XOFF, eleven refreshes, XON"


WATCHED = {
    "watchdog_poll_ps": [10 * US],
    "watchdog_detect_ps": [30 * US],
    "watchdog_restore_ps": [40 * US],
    "port_watchdog": [0, 0, 1, 1],
}


@pytest.mark.parametrize("action", [WATCHDOG_DROP, WATCHDOG_FORWARD, WATCHDOG_ALERT])
def test_all_classes_of_a_port_in_storm_are_found_once_and_restored_after_it(action):
    storm = [(15 * US, ACTION_STORM, 7, 1), (315 * US, ACTION_STORM, 7, 0)]
    plan = two_hosts(storm, classes=3, watchdog_action=[action], **WATCHED)
    result = everywhere(with_pauses(plan))
    rows = [row for row in result.tables["events"] if row[1] >= 16]
    port = int(plan.port_peer[1])
    found = [row for row in rows if row[1] == EVENT_WATCHDOG_STORM and row[3] == port]
    back = [row for row in rows if row[1] == EVENT_WATCHDOG_RESTORED and row[3] == port]
    assert sorted(row[4] for row in found) == [0, 1, 2] and sorted(row[4] for row in back) == [0, 1, 2]
    # At the first poll 30 us after the last frame of the class went, or, if none had, after the first one came.
    arrival_ps = (FRAME_BYTES + 16 + WIRE_BYTES) * 80 + 100_000
    for row in found:
        of_class = [packet for packet in result.tables["packets"] if packet[4] == row[4] and packet[2] == 0]
        gone = [packet[0] for packet in of_class if packet[1] == port and packet[0] < row[0]]
        since_ps = gone[-1] if gone else min(packet[0] for packet in of_class if packet[1] == 0) + arrival_ps
        assert row[0] == -(-(since_ps + 30 * US) // (10 * US)) * 10 * US
    # The storm is over soon after 315 us; the first poll 40 us after it.
    assert {row[0] for row in back} == {360 * US}
    assert all(row[6] > 0 for row in found) and all(row[6] == -1 for row in back)
    causes = {row[5] for row in result.tables["drops"]}
    assert causes == ({4} if action == WATCHDOG_DROP else set())
    if action == WATCHDOG_FORWARD:
        assert max(result.ops["delivered_ps"]) < 600 * US
