"""Pauses are balanced: each that begins ends, none overlaps the next, and queues stand still as long as told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given

pytest.importorskip("fabemu._core.engine")

from fabemu._core.engine import Engine

from fabemu.plan import ACTION_PFC, Plan
from fabemu.trace import PAUSE_ENDS
from tests.oracle.simulator import simulate_bounded
from tests.parity.compare import COLUMNS, FAULT
from tests.property.strategies import FEATURES, PACKET_LIMIT, example_settings, plans, tag

XON, EXPIRY, RUN_END, LINK = (PAUSE_ENDS.index(name) for name in ("xon", "expiry", "run_end", "link"))


@example_settings(0.5)
@given(plans(FEATURES - {"credits"}))
def test_every_pause_that_begins_ends_and_none_overlaps_the_next(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 2)
    tag(oracle)
    sample_ps = oracle.end_ps // 7 + 1
    engine = Engine(replace(plan, sample_ps=sample_ps))
    assert engine.run(plan.until_ps, 10**9) != FAULT
    engine.finish()
    records = engine.drain()

    told: dict[tuple[int, int], int] = defaultdict(int)  # by paused port and class
    last_end: dict[tuple[int, int], int] = {}
    raised = set()
    endless: set[tuple[int, int]] = set()
    for row in np.sort(records["pauses"], order=["start_ps", "xoff_ps"]):
        pause = {name: int(row[name]) for name in COLUMNS["pauses"]}
        place = int(plan.port_peer[pause["port"]]), pause["class"]
        raised.add((pause["port"], pause["class"], pause["xoff_ps"]))
        times = [pause[name] for name in ("xoff_ps", "sent_ps", "start_ps") if pause[name] >= 0]
        assert times == sorted(times)
        assert pause["end_ps"] >= times[-1], "it ends"
        assert pause["end"] in (XON, EXPIRY, RUN_END, LINK)
        if pause["end"] == XON:
            assert pause["xoff_ps"] <= pause["xon_ps"] <= pause["end_ps"]
        if pause["start_ps"] < 0:
            continue  # it never took effect
        assert pause["start_ps"] >= last_end.get(place, 0), "the one before it is over"
        last_end[place] = pause["end_ps"]
        told[place] += pause["end_ps"] - pause["start_ps"]
        if pause["end"] == RUN_END:
            endless.add(place)
    assert len(raised) == engine.totals()["xoffs"]

    # A queue that does not obey PFC, always or for a time, does not stand still.
    obeys = plan.pq_pfc_obey.reshape(plan.port_count, -1).astype(bool)
    obeys[plan.action_target[plan.action_kind == ACTION_PFC]] = False
    # Intervals may be closed after the end of a run, while a queue stands still for ever.
    beyond: dict[tuple[int, int], int] = defaultdict(int)
    stood: dict[tuple[int, int], int] = defaultdict(int)
    for row in records["ports"]:
        place, over_ps = (int(row["port"]), int(row["class"])), int(row["end_ps"]) - oracle.end_ps
        stood[place] += int(row["paused_ps"])
        if over_ps > 0:
            beyond[place] += min(int(row["paused_ps"]), over_ps)
    for place in told.keys() | stood.keys():
        within = stood[place] - (beyond[place] if place in endless else 0)
        assert within == told[place] or (not obeys[place] and within <= told[place]), place
    event(f"pauses: {any(told.values())}")
