"""Deadlocks: queues that are reported never move again, and what stands still for good is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, event, given

from fabemu.plan import EVENT_DEADLOCK, Plan
from tests.oracle.packet import LINK_FRAMES
from tests.oracle.simulator import Simulator
from tests.oracle.switch import Switch
from tests.property.rings import FRAME_BYTES, ring_plans
from tests.property.strategies import example_settings

LONG_FRAMES = 20
"""A pause that is refreshed in time, in times of a frame."""
QUIET_FRAMES = 100
"""Longer than any pause, flight or refresh of these plans, in times of a frame."""


@example_settings(0.5)
@given(ring_plans())
def test_what_is_reported_never_moves_and_what_stands_still_is_reported(plan: Plan) -> None:
    frame_ps = FRAME_BYTES * 8 * 10**12 // int(plan.port_rate_bps[0])
    assume(not 0 < int(plan.port_pause_ps.max()) < LONG_FRAMES * frame_ps)
    plan = replace(plan, deadlock_stop=False, watchdog_poll_ps=np.zeros_like(plan.watchdog_poll_ps))
    simulator = Simulator(plan)
    result = simulator.run()
    hops = [(row[0], row[1], row[4]) for row in result.packets if row[2] not in LINK_FRAMES]
    cycles = [row for row in result.events if row[1] == EVENT_DEADLOCK]
    for time_ps, _, _, port, class_id, *_ in cycles:
        assert not [hop for hop in hops if hop[0] >= time_ps and hop[1:] == (port, class_id)]
    event(f"{len({row[7] for row in cycles})} deadlocks")
    waiting = any(
        queue.frames
        for switch in simulator.devices
        if isinstance(switch, Switch)
        for queues in switch.queues
        for queue in queues
    )
    quiet_ps = result.end_ps - max(time for time, _, _ in hops)
    if waiting and (result.drained or quiet_ps > QUIET_FRAMES * frame_ps):
        # A frame that waits for good waits for one that does: on a cycle, or behind one.
        event("stands still")
        assert cycles
