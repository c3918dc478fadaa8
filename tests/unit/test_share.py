"""Sharing the devices of a real engine among threads, and what is refused."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.partition import partition
from fabemu.scenario import scenario_from_dict

FABRIC = {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 4}
WORKLOAD = [{"kind": "permutation", "size": "300KB"}]


@pytest.fixture(scope="module")
def plan():
    return compile_plan(scenario_from_dict({"fabric": FABRIC, "workload": WORKLOAD})).plan


def drained(engine):
    while engine.run(1 << 60, 500) == 0:
        pass
    return engine.digest


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": -1}, {"threads": 1025}, {"window_divisor": 0}])
def test_engines_that_cannot_be_are_refused(plan, options):
    with pytest.raises(ValueError, match="threads"):
        Engine(plan, **options)


@pytest.mark.parametrize(
    "owners",
    [
        lambda n: np.full(n, 2),
        lambda n: np.full(n, -1),
        lambda n: np.zeros(n - 1, int),
        lambda n: np.zeros((n, 2), int),
        lambda n: np.full(n, 0.5),
    ],
)
def test_owners_that_make_no_sense_are_refused(plan, owners):
    engine = Engine(plan, threads=2)
    with pytest.raises(ValueError, match="from 0 to 1"):
        engine.share(owners(plan.node_count))
    assert engine.threads == 1
    assert drained(engine) == drained(Engine(plan))


def test_crews_grow_and_shrink_in_mid_run(plan):
    engine = Engine(plan, threads=8)
    for count in (2, 4, 3, 1, 4, 2):
        engine.share(partition(plan, count))
        assert engine.threads == count
        assert engine.run(1 << 60, 500) == 0
    assert drained(engine) == drained(Engine(plan))
    assert [name for name, held, _ in engine.verify() if not held] == []


def test_several_threads_give_up_when_their_patience_ends(plan):
    engine = Engine(plan, threads=2)
    engine.share(partition(plan, 2))
    assert engine.run(1 << 60, 1 << 40, 0.0) == 0
    # One of each side.
    assert engine.windows == 2
    assert drained(engine) == drained(Engine(plan))


def test_a_child_of_fork_can_drop_a_shared_engine(plan):
    engine = Engine(plan, threads=2)
    engine.share(partition(plan, 2))
    engine.run(1 << 60, 500)
    child = os.fork()
    if child == 0:
        del engine
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert drained(engine) == drained(Engine(plan))


def test_memory_of_mailboxes_counts(plan):
    shared = Engine(plan, threads=2)
    shared.share(partition(plan, 2))
    alone = Engine(plan)
    for engine in (shared, alone):
        engine.run(1 << 60, 2_000)
    assert shared.memory_bytes()["links"] >= alone.memory_bytes()["links"]


SENDERS = 8
ACTIONS = ("action_time_ps", "action_kind", "action_target", "action_mask", "action_value")


def stalling(shift_ns):
    """Senders that are paused for ever, one after the other; `shift_ns` moves the first storm, and its refreshes."""
    flows = [
        {"src": f"h{i}", "dst": f"h{i + SENDERS}", "size": "20MB", "start": f"{100_000 + (SENDERS - i) * 20}ns"}
        for i in range(SENDERS)
    ]
    faults = [
        {
            "kind": "storm",
            "host": f"h{i + SENDERS}",
            "start": f"{1_000 + 1_800 * i + (shift_ns if i == 0 else 0)}ns",
            "end": "10s",
        }
        for i in range(SENDERS)
    ]
    scenario = {
        "fabric": {"kind": "single-switch", "hosts": 2 * SENDERS},
        "link": {"rate": "100Gbps", "delay": "600ns"},
        "nic": {"cc": {"kind": "none"}, "timeout": 6},
        "workload": [{"kind": "flows", "flow": flows}],
        "fault": faults,
    }
    plan = compile_plan(scenario_from_dict(scenario)).plan
    # Without the ends of the storms nothing is to come that could set the packets free.
    begins = plan.action_time_ps < 10**12
    kept = {name: getattr(plan, name)[begins] for name in ACTIONS}
    return replace(plan, deadlock_interval_ps=0, until_ps=1 << 61, sample_ps=0, **kept)


def last_hops(plan):
    """Of the last window with packets: the last hop of the device visited last, and of all; and when PFC is sent."""
    engine = Engine(plan, packets=True)
    engine.run(600_000_000, 10**9)
    packets = engine.drain()["packets"]
    data = packets[packets["kind"] != 4]
    latest = int(data["time_ps"].max())
    # Hosts are of the side whose windows begin half a window before time 0.
    number = (data["time_ps"] + engine.window_ps // 2) // engine.window_ps
    window = data[(data["node"] < 2 * SENDERS) & (number == number[data["time_ps"].argmax()])]
    visited_last = int(window[window["node"] == window["node"].max()]["time_ps"].max())
    pauses = packets[(packets["kind"] == 4) & (packets["node"] == SENDERS)]["time_ps"]
    return visited_last, latest, np.sort(pauses)


def test_a_stall_is_judged_from_the_latest_hop_whoever_is_visited_last():
    """One second after it; a refresh between the two candidates tells which of them was taken."""
    visited_last, latest, pauses = last_hops(stalling(0))
    assert visited_last < latest
    period_ps = int(pauses[-1] - pauses[-2])
    shift_ps = ((visited_last + latest) // 2 + 10**12 - int(pauses[-1])) % period_ps
    plan = stalling(shift_ps // 1_000)
    late = np.ones(plan.node_count, int)
    late[:SENDERS] = np.arange(SENDERS) % 2
    digests = set()
    for options in ({}, {"threads": 2}, {"window_divisor": 3}, {"express": False}):
        engine = Engine(plan, **options)
        if "threads" in options:
            engine.share(late)
        while engine.run(1 << 61, 10**9) == 0:
            pass
        digests.add(engine.digest)
    assert len(digests) == 1


def test_an_engine_is_used_by_one_thread_at_a_time():
    """What another thread asks for while one is stepping is refused, and the run goes on as if nothing had been."""
    scenario = {"fabric": FABRIC, "workload": [{"kind": "permutation", "size": "200MB"}]}
    plan = compile_plan(scenario_from_dict(scenario)).plan
    engine = Engine(plan)
    began, refused = threading.Event(), []

    def step():
        began.set()
        engine.run(1 << 60, 3_000_000)

    thread = threading.Thread(target=step)
    thread.start()
    began.wait()
    while thread.is_alive():
        for use in (lambda: engine.run(1 << 60, 1), engine.drain, engine.ops, engine.finish):
            try:
                if not thread.is_alive():
                    break
                use()
            except RuntimeError as error:
                refused.append(str(error))
        if len(refused) >= 4:
            break
    thread.join()
    assert refused and all("another thread" in text for text in refused)
    assert engine.run(1 << 60, 1_000) == 0
    assert [held for _, held, _ in engine.verify()].count(False) == 0
