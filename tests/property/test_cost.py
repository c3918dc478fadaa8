"""What a run costs is known before it: fixed memory to the byte, packet hops and events about, on any fabric."""

from __future__ import annotations

from dataclasses import replace

from fabemu._core.engine import Engine
from hypothesis import assume, event, given
from hypothesis import strategies as st

from fabemu.cost.estimate import estimate_movement
from fabemu.cost.footprint import counts_of, footprint
from fabemu.plan import FOREVER_PS, OP_SEND
from tests.property.strategies import IN_CORE, example_settings, plans

HARMLESS = frozenset({"verbs", "selective", "psn-start", "cells", "weights", "static"})
RUNNING, DONE = 0, 2


@given(data=st.data())
@example_settings(share=0.3)
def test_fixed_memory_is_known_to_the_byte(data):
    plan = data.draw(plans(IN_CORE))
    threads = data.draw(st.integers(1, 3))
    engine = Engine(plan, threads=threads)
    before = engine.memory_bytes()
    predicted = footprint(counts_of(plan, threads))
    for kind in ("actions", "weights", "credits", "receivers", "watchdogs", "reads"):
        if getattr(counts_of(plan), kind):
            event(kind)
    assert before["fabric"] == predicted.fabric + predicted.accounts
    assert before["operations"] == predicted.operations
    engine.run(plan.until_ps, 2_000)
    assert engine.memory_bytes()["fabric"] == before["fabric"], "the fixed part stays as it is"


@given(data=st.data())
@example_settings(share=0.3)
def test_packet_hops_and_events_are_known_within_a_factor_of_two(data):
    plan = replace(data.draw(plans(HARMLESS)), until_ps=FOREVER_PS)
    engine = Engine(plan)
    for _ in range(50):
        if engine.run(FOREVER_PS, 2_000) != RUNNING:
            break
    totals = engine.totals()
    assume(totals["packets_dropped"] == 0 and totals["retransmissions"] == 0)
    assume((engine.ops()["status"][plan.op_kind == OP_SEND] == DONE).all())
    found = estimate_movement(plan)
    hops, events = found.packet_hops, found.events
    event(f"crowded {bool((found.flows.crowded_ps > 0).any())}")
    assert totals["packet_hops"] / 2 <= hops.value <= totals["packet_hops"] * 2
    # Where every frame is a pause of its own (thresholds of a frame or so), pauses are most of the events.
    if 4 * totals["pfc_frames"] <= totals["packet_hops"]:
        assert totals["events"] / 2 <= events.value <= totals["events"] * 2
    assert hops.low <= hops.value <= hops.high
