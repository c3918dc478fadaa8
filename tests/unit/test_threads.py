"""How many threads step an engine, decided on a clock that the test turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fabemu
from fabemu import simulate, threads
from fabemu.errors import InputError
from fabemu.threads import PATIENCE_CALLS, SHORT_HOPS, TRIAL_CALLS, Threads, allowed_threads

SCENARIOS = Path(__file__).parents[2] / "scenarios"


class StubEngine:
    """Takes as long for its hops as `speed(threads, seconds so far)` says."""

    can_share = True

    def __init__(self, speed, nodes):
        self.speed, self.seconds, self.packet_hops, self.threads = speed, 0.0, 0, 1
        self.shares = []
        self.windows, self.hops_per_window = 2**32 - 5, 1_000

    def run(self, stop_ps, budget, patience_s):
        speed = self.speed(self.threads, self.seconds)
        hops = int(min(budget, patience_s * speed)) if self.threads > 1 else budget
        self.packet_hops += hops
        self.windows += max(1, int(hops / self.hops_per_window))
        self.seconds += hops / speed
        return 0

    def share(self, owners):
        self.threads = int(owners.max()) + 1
        self.shares.append(self.threads)

    def ports(self):
        return {"hops": np.full(8, self.packet_hops)}

    def clock(self):
        return self.seconds


PLAN = SimpleNamespace(
    node_count=5,
    host_count=4,
    port_count=8,
    host_group=np.arange(4),
    host_domain=np.full(4, -1),
    port_node=np.array([0, 1, 2, 3, 4, 4, 4, 4]),
    port_peer=np.array([4, 5, 6, 7, 0, 1, 2, 3]),
    node_port_start=np.array([0, 1, 2, 3, 4, 8]),
)


def ran(speed, most, calls):
    engine = StubEngine(speed, PLAN.node_count)
    stepped = Threads(engine, PLAN, most, engine.clock)
    for _ in range(calls):
        stepped.run(10**12, 200_000)
    return engine, stepped


@pytest.mark.parametrize("most", [2, 3, 4])
def test_all_threads_are_used_when_each_pays(most):
    engine, stepped = ran(lambda count, _: 1e6 * count**0.9, most, 200)
    assert stepped.count == most
    assert stepped.hops[most] > 0.7 * engine.packet_hops


def test_one_thread_is_used_when_windows_are_too_small():
    engine, stepped = ran(lambda count, _: 1e6 / count, 4, 2_000)
    assert stepped.count == 1
    assert stepped.hops[1] > 0.9 * engine.packet_hops


def test_two_of_four_are_used_when_more_do_not_pay():
    engine, stepped = ran(lambda count, _: {1: 1e6, 2: 1.8e6, 4: 1.5e6}[count], 4, 2_000)
    assert stepped.hops[2] > 0.8 * engine.packet_hops


def test_a_core_that_is_taken_away_and_given_back_is_noticed():
    def speed(count, seconds):
        return 1.9e6 if count == 2 and not 50 < seconds < 100 else 1e6 / count

    engine, stepped = ran(speed, 2, 1)
    for until, count in ((49, 2), (99, 1), (200, 2)):
        before, begun = dict(stepped.hops), engine.packet_hops
        while engine.seconds < until:
            stepped.run(10**12, 200_000)
        # Most of it, but for what it takes to notice: up to 256 calls of 0.2 s.
        share = (stepped.hops[count] - before.get(count, 0)) / (engine.packet_hops - begun)
        assert share > 0.6, f"until {until} s"


def test_threads_that_wait_for_a_lost_core_cost_little():
    """A thousand times slower: no call may last, and trials must become rare."""
    engine, stepped = ran(lambda count, _: 1e6 if count == 1 else 1e3, 2, 1_000)
    assert stepped.hops[1] / 1e6 > 0.97 * engine.seconds


def test_windows_that_hold_next_to_nothing_are_left_to_one_thread():
    engine = StubEngine(lambda count, _: 1e6 * count, PLAN.node_count)
    engine.hops_per_window = 40
    stepped = Threads(engine, PLAN, 2, engine.clock)
    for _ in range(200):
        stepped.run(10**12, 200_000)
    assert engine.shares == []
    engine.hops_per_window = 100
    for _ in range(200):
        stepped.run(10**12, 200_000)
    assert stepped.count == 2


class NotingEngine(StubEngine):
    """Notes the threads and the budget of every call."""

    def __init__(self, speed, nodes):
        super().__init__(speed, nodes)
        self.calls = []

    def run(self, stop_ps, budget, patience_s):
        self.calls.append((self.threads, budget))
        return super().run(stop_ps, budget, patience_s)


def test_calls_are_short_until_it_is_known_what_pays():
    engine = NotingEngine(lambda count, _: 20e6 / count, PLAN.node_count)
    stepped = Threads(engine, PLAN, 2, engine.clock)
    while engine.packet_hops < 10**9:
        stepped.run(10**12, 10**6)
    learning = [(1, SHORT_HOPS)] * PATIENCE_CALLS[0] + [(2, 2 * SHORT_HOPS)]
    assert engine.calls[: len(learning)] == learning
    assert {budget for count, budget in engine.calls if count == 2} == {2 * SHORT_HOPS}
    long = [budget for _, budget in engine.calls if budget == 10**6]
    assert len(long) > 0.9 * len(engine.calls)
    # Trials are as frequent as if all calls were short: after 256 of them at most, and one more where patience grows.
    most = 10**9 / (SHORT_HOPS * PATIENCE_CALLS[1])
    assert 0.5 * most < engine.shares.count(2) < 2 * most


@pytest.mark.parametrize(("speed", "budget"), [(1e6, SHORT_HOPS), (5e6, 500_000), (50e6, 10**6)])
def test_calls_of_one_thread_last_a_tenth_of_a_second(speed, budget):
    engine = NotingEngine(lambda count, _: speed, PLAN.node_count)
    stepped = Threads(engine, PLAN, 1, engine.clock)
    for _ in range(4):
        stepped.run(10**12, 10**6)
    assert engine.calls[0] == (1, SHORT_HOPS)
    assert engine.calls[2:] == [(1, budget)] * 2


@pytest.mark.parametrize("most_hops", [3_000, 9_000, 120_000])
def test_calls_that_end_when_a_batch_is_full_are_learned_from_together(most_hops):
    """However few hops they have, another thread is tried after as many in all."""

    class Short(StubEngine):
        def run(self, stop_ps, budget, patience_s):
            return super().run(stop_ps, min(budget, most_hops), patience_s)

    engine = Short(lambda count, _: 1e6 * count**0.9, PLAN.node_count)
    stepped = Threads(engine, PLAN, 2, engine.clock)
    while engine.shares == [] and engine.packet_hops < PATIENCE_CALLS[0] * SHORT_HOPS:
        stepped.run(10**12, 10**6)
    assert engine.shares == [2]
    while engine.packet_hops < 10**8:
        stepped.run(10**12, 10**6)
    assert stepped.count == 2
    assert stepped.hops[2] > 0.7 * engine.packet_hops


def test_a_small_budget_is_kept_to():
    engine = NotingEngine(lambda count, _: 50e6, PLAN.node_count)
    stepped = Threads(engine, PLAN, 2, engine.clock)
    for _ in range(50):
        stepped.run(10**12, 500)
    assert {budget // count for count, budget in engine.calls} == {500}


def test_a_short_run_starts_no_threads():
    engine, stepped = ran(lambda count, _: 1e6, 4, PATIENCE_CALLS[0] - 1)
    assert engine.shares == []
    assert stepped.count == 1


def test_calls_that_end_early_are_not_timed():
    engine = StubEngine(lambda count, _: 1e6, PLAN.node_count)
    stepped = Threads(engine, PLAN, 2, engine.clock)
    for _ in range(10 * TRIAL_CALLS):
        engine.run = lambda stop_ps, budget, patience_s: 1
        assert stepped.run(10**12, 200_000) == 1
    assert engine.shares == []


def test_an_engine_that_cannot_be_shared_keeps_one_thread():
    engine = StubEngine(lambda count, _: 1e6 * count, PLAN.node_count)
    engine.can_share = False
    stepped = Threads(engine, PLAN, 4, engine.clock)
    for _ in range(100):
        stepped.run(10**12, 200_000)
    assert engine.shares == []


def test_a_system_without_threads_is_stepped_by_one():
    class NoThreads(StubEngine):
        def share(self, owners):
            if owners.max() > 0:
                raise OSError("the system gives no 1 threads")
            super().share(owners)

    engine = NoThreads(lambda count, _: 1e6 * count, PLAN.node_count)
    stepped = Threads(engine, PLAN, 2, engine.clock)
    for _ in range(100):
        stepped.run(10**12, 200_000)
    assert stepped.count == 1
    assert engine.shares == [1]


@pytest.mark.parametrize("asked", ["2", 1.5, True, []])
def test_threads_that_are_no_number_are_refused(asked):
    with pytest.raises(InputError, match="whole number"):
        allowed_threads(asked)


@pytest.mark.parametrize("asked", [0, -1, 3, 64])
def test_threads_outside_of_what_there_is_are_refused(asked, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    with pytest.raises(InputError, match=f"{asked} thread.*2 cores.*1 to 2"):
        allowed_threads(asked)


def test_all_cores_are_allowed_by_default(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 6)
    assert allowed_threads(None) == 6
    assert allowed_threads(4) == 4


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("websearch-leaf-spine.toml", ["workload.0.stop=30us"]),
        ("incidents/storm.toml", []),
        ("incidents/clos-deadlock.toml", []),
    ],
)
def test_every_table_has_the_same_bytes_at_any_number_of_threads(name, changes, monkeypatch, tmp_path):
    """With trials all the time, so that devices change hands again and again."""
    monkeypatch.setattr(threads, "PATIENCE_CALLS", (1, 1))
    monkeypatch.setattr(threads, "TRIAL_CALLS", 1)
    monkeypatch.setattr(threads, "HOPS_PER_WINDOW", 0)
    monkeypatch.setattr(threads, "cores", lambda: 4)
    monkeypatch.setattr(simulate, "BUDGET_HOPS", 500)
    runs = [
        fabemu.run(SCENARIOS / name, tmp_path / str(most), overrides=changes, trace="packets", threads=most)
        for most in (1, 2, 4)
    ]
    assert {run.info["digest"] for run in runs} == {runs[0].info["digest"]}
    assert list(runs[0].info["hops_by_threads"]) == ["1"]
    assert set(runs[1].info["hops_by_threads"]) == {"1", "2"}
    tables = sorted(path.name for path in (tmp_path / "1").glob("*.arrow"))
    assert len(tables) == 6
    for table in tables:
        expected = (tmp_path / "1" / table).read_bytes()
        assert all((tmp_path / most / table).read_bytes() == expected for most in "24"), table
