"""Oracle and core agree on every packet at every hop, every pause, drop, mark and completion."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytest.importorskip("fabemu._core.engine")

from fabemu._core.engine import Engine

from fabemu.plan import ACTION_MAP, FOREVER_PS, SCHEDULER_CLASSIC, Plan
from tests.oracle.build import US, Cable, Work, build_plan
from tests.oracle.packet import LAST, LINK_FRAMES
from tests.oracle.simulator import simulate, simulate_bounded
from tests.parity.compare import COLUMNS, FAULT, assert_same, run_core
from tests.property.strategies import PACKET_LIMIT, example_settings, plans, tag


@example_settings()
@given(plans())
def test_core_agrees_with_the_oracle(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT)
    tag(oracle)
    core = run_core(plan)
    assert_same(plan, oracle, core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []


@example_settings(0.3)
@given(plans(always=frozenset({"scale-up"})))
def test_messages_inside_domains_agree_with_the_oracle(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    tag(oracle)
    core = run_core(plan)
    assert_same(plan, oracle, core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []
    classic = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    assert_same(plan, oracle, classic, "SCHEDULER_CLASSIC")
    assert classic.digest == core.digest


@example_settings(0.5)
@given(plans(always=frozenset({"balance", "selective"})))
def test_load_balancing_agrees_with_the_oracle(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 2)
    tag(oracle)
    core = run_core(plan)
    assert_same(plan, oracle, core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []
    classic = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    assert_same(plan, oracle, classic, "SCHEDULER_CLASSIC")
    assert classic.digest == core.digest


@example_settings(0.3)
@given(plans(), st.integers(1, 5), st.sampled_from([1, 7, 100, 10**6]), st.integers(1, 10**9))
def test_results_do_not_depend_on_budgets_stops_or_windows(plan: Plan, divisor: int, budget: int, step_ps: int) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    if oracle.end_ps // step_ps > 1_000:
        step_ps = oracle.end_ps // 1_000 + 1
    steps = itertools.islice(itertools.repeat((step_ps, budget)), 2_000)
    core = run_core(plan, steps=steps, window_divisor=divisor)
    assert_same(plan, oracle, core, f"window_divisor={divisor} budget={budget} step_ps={step_ps}")
    assert core.digest == run_core(plan).digest == run_core(plan, packets=False).digest
    by_budget = run_core(plan, steps=iter([(FOREVER_PS, budget)] * 200))
    assert_same(plan, oracle, by_budget, f"budget={budget}")


def test_a_run_in_steps_goes_on_to_the_last_refresh_of_credits() -> None:
    """Sixteen of them follow the last credit frame, each long after everything else is over."""
    work = Work()
    work.send(work.qp(0, 1), 10_000)
    cables = [Cable(host, 2, lanes=(10_240,), credit_refresh_ps=300 * US) for host in range(2)]
    plan = build_plan(2, 1, cables, work)
    oracle = simulate(plan)
    assert oracle.drained and oracle.end_ps > 16 * 300 * US
    for steps in (None, iter([(50 * US, 10**6)] * 40)):
        assert_same(plan, oracle, run_core(plan, steps=steps))


@example_settings(0.3)
@given(plans())
def test_classic_scheduler_agrees_with_windows(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    classic = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    assert_same(plan, oracle, classic, "SCHEDULER_CLASSIC")
    window = run_core(plan)
    assert classic.ops == window.ops
    assert classic.digest == window.digest


@example_settings(0.3)
@given(plans())
def test_express_lane_agrees_with_the_exact_path(plan: Plan) -> None:
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    fast = run_core(plan)
    without_lane = run_core(plan, express=False)
    assert_same(plan, oracle, without_lane, "express=False")
    exact = run_core(plan, shortcuts=False)
    assert_same(plan, oracle, exact, "shortcuts=False")
    assert fast.digest == without_lane.digest == exact.digest
    tag(oracle)


@example_settings(0.3)
@given(plans(), st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 100]), st.integers(1, 10**9))
def test_results_do_not_depend_on_threads(plan: Plan, seed: int, budget: int, step_ps: int) -> None:
    """Whoever steps a device, and whenever devices change hands in the middle of a run."""
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    draw = np.random.default_rng(seed)
    steps = itertools.repeat((max(step_ps, oracle.end_ps // 50), budget), 50)
    in_domain = np.flatnonzero(plan.host_domain >= 0)

    def owners() -> np.ndarray:
        drawn = draw.integers(0, draw.integers(1, 5), plan.node_count)
        drawn[in_domain] = drawn[plan.host_domain[in_domain]]
        return drawn

    shared = run_core(plan, steps=steps, owners=owners)
    assert_same(plan, oracle, shared, f"threads {seed}")
    assert [verdict for verdict in shared.verdicts if not verdict[1]] == []
    assert shared.digest == run_core(plan).digest


@example_settings(0.2)
@given(plans(), st.sampled_from([1, 3, 40]))
def test_port_table_sums_to_the_packets(plan: Plan, intervals: int) -> None:
    """Frames, bytes and marks of all intervals of a (port, class) are those of the oracle's departures.

    Rows count by the class of the queue, packets have their own: under a class map only ports can be compared.
    """
    own = np.arange(plan.class_count)
    is_mapped = any((switch != own).any() for switch in plan.switch_class_map.reshape(-1, plan.class_count))
    is_mapped |= bool((plan.action_kind == ACTION_MAP).any())
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    sample_ps = oracle.end_ps // intervals + 1
    engine = Engine(replace(plan, sample_ps=sample_ps))
    assert engine.run(plan.until_ps, 10**9) != FAULT
    engine.finish()
    frames: Counter[tuple[int, int]] = Counter()
    frame_bytes: Counter[tuple[int, int]] = Counter()
    marks: Counter[int] = Counter()
    for row in engine.drain()["ports"]:
        key = int(row["port"]), 0 if is_mapped else int(row["class"])
        frames[key] += int(row["tx_frames"])
        frame_bytes[key] += int(row["tx_bytes"])
        marks[key[0]] += int(row["marks"])
        assert row["start_ps"] % sample_ps == 0
        assert row["end_ps"] - row["start_ps"] <= sample_ps
    sent = [(row[1], 0 if is_mapped else row[4], row[7]) for row in oracle.packets if row[2] not in LINK_FRAMES]
    assert +frames == Counter((port, class_id) for port, class_id, _ in sent)
    total: Counter[tuple[int, int]] = Counter()
    for port, class_id, size in sent:
        total[port, class_id] += size
    assert +frame_bytes == total
    assert +marks == +Counter(dict(enumerate(oracle.marks)))


@example_settings(0.3)
@given(
    plans(frozenset({"static", "cells", "ecn-off", "storm", "receiver", "headroom-change"})),
    st.sampled_from([3, 40, 400]),
)
def test_greatest_use_of_headroom_by_interval(plan: Plan, intervals: int) -> None:
    """Of every priority group and interval, also of those in which it only stands."""
    plan, oracle = simulate_bounded(plan, PACKET_LIMIT // 4)
    sample_ps = oracle.end_ps // intervals + 1
    engine = Engine(replace(plan, sample_ps=sample_ps))
    assert engine.run(plan.until_ps, 10**9) != FAULT
    engine.finish()
    changes: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for time_ps, port, class_id, used in oracle.headroom:
        changes[port, class_id].append((time_ps, used))
    told = {
        (int(row["port"]), int(row["class"]), int(row["start_ps"])): int(row["headroom_max_bytes"])
        for row in engine.drain()["ports"]
    }
    expected = {}
    for place, steps in changes.items():
        times = [time_ps for time_ps, _ in steps]
        for start_ps in range(0, oracle.end_ps + 1, sample_ps):
            first, behind = bisect_left(times, start_ps), bisect_left(times, start_ps + sample_ps)
            before = steps[first - 1][1] if first else 0
            expected[*place, start_ps] = max([before, *(used for _, used in steps[first:behind])])
    event(f"headroom in use: {bool(expected)}")
    assert {key: value for key, value in told.items() if value} == {
        key: value for key, value in expected.items() if value
    }


@example_settings(0.2)
@given(plans())
def test_budget_rows_are_those_of_hosts_and_of_last_packets(plan: Plan) -> None:
    """The packets table at level `budget` is a part of the whole one, and nothing else changes."""
    plan, _ = simulate_bounded(plan, PACKET_LIMIT // 4)
    whole, few = run_core(plan), run_core(plan, ends=True)
    port, flags = (COLUMNS["packets"].index(name) for name in ("port", "flags"))
    kept = [row for row in whole.tables["packets"] if plan.port_node[row[port]] < plan.host_count or row[flags] & LAST]
    assert few.tables["packets"] == kept
    assert few.digest == whole.digest
    event(f"fewer rows: {len(kept) < len(whole.tables['packets'])}")
