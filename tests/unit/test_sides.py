"""Devices of two sides take turns, and both sides stand at one instant wherever the whole fabric is concerned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.partition import partition
from fabemu.plan import SCHEDULER_CLASSIC, Plan
from fabemu.scenario import scenario_from_dict
from tests.oracle.build import US, Cable, NicSpec, PortBuffer, SwitchSpec, Wiring, Work, build_plan
from tests.parity.compare import run_core

STEP_PS = 600_000 + 1_680
"""600 ns of cable, and the 84 bytes of an ACK, a CNP or a PFC frame at 400 Gb/s."""

RING = [{"a": f"sw{index}", "b": f"sw{(index + 1) % 3}"} for index in range(3)]
"""Three switches in a circle: a device and its neighbour's neighbour are neighbours too."""

FABRICS: dict[str, dict[str, Any]] = {
    "leaf-spine": {"fabric": {"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 4, "spines": 2}},
    "fat-tree": {"fabric": {"kind": "fat-tree", "k": 4}},
    "two islands": {
        "fabric": {
            "kind": "graph",
            "hosts": 6,
            "switches": 2,
            "links": [{"a": f"h{host}", "b": f"sw{host // 3}"} for host in range(6)],
        }
    },
    "odd ring": {
        "fabric": {
            "kind": "graph",
            "hosts": 6,
            "switches": 3,
            "links": [*RING, *({"a": f"h{host}", "b": f"sw{host // 2}"} for host in range(6))],
        }
    },
    "island and odd ring": {
        "fabric": {
            "kind": "graph",
            "hosts": 9,
            "switches": 4,
            "links": [
                *RING,
                *({"a": f"h{host}", "b": f"sw{host // 2}"} for host in range(6)),
                *({"a": f"h{host}", "b": "sw3"} for host in range(6, 9)),
            ],
        }
    },
    "scale-up": {
        "fabric": {"kind": "rail", "gpus_per_node": 4, "nodes": 3, "spines": 2},
        "scale_up": {"latency": "2us"},
    },
    "near scale-up": {
        "fabric": {"kind": "rail", "gpus_per_node": 4, "nodes": 3, "spines": 2},
        "scale_up": {"latency": "1us"},
    },
    "near hosts on both sides": {
        "fabric": {
            "kind": "graph",
            "hosts": 6,
            "switches": 2,
            "gpus_per_node": 2,
            "links": [{"a": "sw0", "b": "sw1"}, *({"a": f"h{host}", "b": f"sw{host % 2}"} for host in range(6))],
        },
        "scale_up": {"latency": "1us"},
    },
}
SIDES = {"odd ring": 1, "island and odd ring": 1, "near hosts on both sides": 1}
"""Two where nothing else is said."""


def plan_of(name: str, **tables: Any) -> Plan:
    """Every host sends to all others within its reach, at once: queues, marks and pauses."""
    fabric = FABRICS[name]
    if "island" in name:
        split = 6 if "ring" in name else 3
        count = fabric["fabric"]["hosts"]
        blocks = [range(split), range(split, count)]
        flows = [
            {"src": f"h{src}", "dst": f"h{dst}", "size": "60KB", "start": f"{37 * src}ns"}
            for block in blocks
            for src in block
            for dst in block
            if src != dst
        ]
        workload: list[dict[str, Any]] = [{"kind": "flows", "flow": flows}]
    elif "scale_up" in fabric:
        # What comes from within a node is waited for by packets to others, at ports that have packets of their own.
        workload = [
            {"kind": "collective", "operation": "all-reduce", "size": "100KB", "iterations": 3},
            {"kind": "collective", "operation": "all-to-all", "size": "1MB"},
        ]
    else:
        workload = [{"kind": "all-to-all", "size": "60KB"}]
    scenario = {
        "seed": 5,
        "link": {"rate": "400Gbps", "delay": "600ns"},
        "switch": {"buffer": "1MiB"},
        "nic": {"cc": {"kind": "dcqcn"}},
        "trace": {"interval": "1us"},
        "workload": workload,
    }
    return compile_plan(scenario_from_dict(scenario | fabric | tables)).plan


@pytest.mark.parametrize("name", FABRICS)
def test_windows_are_two_steps_long_where_two_sides_take_turns(name: str) -> None:
    assert Engine(plan_of(name)).window_ps == SIDES.get(name, 2) * STEP_PS


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize(
    "tables",
    [
        pytest.param({}, id="intervals"),
        pytest.param({"trace": {"interval": "1ms"}}, id="no cuts"),
        pytest.param({"trace": {"interval": "137ns"}}, id="several cuts in a window"),
        pytest.param({"deadlock": {"interval": "1900ns"}}, id="deadlock checks"),
        pytest.param({"link": {"rate": "400Gbps", "delay": "3ns"}}, id="short cables"),
    ],
)
def test_sides_change_no_result(name: str, tables: dict[str, Any]) -> None:
    """Against the one heap of events, which knows no windows, also where runs stop within a window."""
    plan = plan_of(name, **tables)
    expected = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    assert min(expected.ops["done_ps"]) > 0
    rng = np.random.default_rng(3)
    steps = [(int(rng.integers(1, 2_000_000)), int(rng.integers(1, 400))) for _ in range(40)]
    for label, run in {
        "one go": run_core(plan),
        "stops": run_core(plan, steps=iter(steps)),
        "one hop": run_core(plan, steps=iter([(10**9, 1)] * 60)),
        "stops, by threads": run_core(plan, steps=iter(steps), owners=lambda: partition(plan, int(rng.integers(2, 5)))),
        "shorter steps": run_core(plan, steps=iter(steps), window_divisor=int(rng.integers(2, 8))),
    }.items():
        assert (run.digest, run.tables, run.ops) == (expected.digest, expected.tables, expected.ops), label
    assert np.array_equal(port_rows(plan), port_rows(replace(plan, scheduler=SCHEDULER_CLASSIC)))


def port_rows(plan: Plan) -> np.ndarray:
    """Rows of all intervals, in their order."""
    engine = Engine(plan)
    parts = []
    while engine.run(1 << 60, 300) == 0:
        parts.append(engine.drain()["ports"])
    engine.finish()
    return np.concatenate([*parts, engine.drain()["ports"]])


def test_sides_are_level_at_control_actions() -> None:
    """Links that go down and up and a host that storms, at instants within a window."""
    faults = [
        {"kind": "storm", "host": "h1", "start": "1us", "end": "2567ns"},
        {"kind": "link-down", "link": ["leaf0", "spine0"], "start": "1300ns", "end": "4001ns"},
        {"kind": "storm", "host": "h5", "start": "1300ns", "end": "1301ns"},
    ]
    plan = plan_of("leaf-spine", fault=faults)
    assert len(plan.action_time_ps) > 5
    expected = run_core(plan, scheduler=SCHEDULER_CLASSIC)
    for divisor in 1, 2, 7:
        run = run_core(plan, window_divisor=divisor)
        assert (run.digest, run.tables, run.ops) == (expected.digest, expected.tables, expected.ops)


@pytest.mark.parametrize("end_ps", [1_000_114_059_440, 1_000_114_393_520])
def test_a_stall_is_judged_with_both_sides_level(end_ps: int) -> None:
    """Four switches wait for each other for ever and repeat their pauses; all that lives is an operation of host 0.

    It ends beyond the second after which a stall is judged, 50 ns after pauses of either side.
    """
    size = 4
    cables = [Cable(host, size + host) for host in range(size)]
    cables += [Cable(size + index, size + (index + 1) % size) for index in range(size)]
    work = Work()
    for host in range(size):
        work.send(work.qp(host, (host + size - 1) % size), 10**6)
    work.calc(0, end_ps, 0)
    wiring = Wiring(size, size, cables)
    onward = [
        next(port for port in wiring.ports(size + index) if wiring.neighbour(port) == size + (index + 1) % size)
        for index in range(size)
    ]
    route = [-2 if host == index else onward[index] for index in range(size) for host in range(size)]
    switch = SwitchSpec(pool=100_000, pause_ps=30 * US, buffers=[PortBuffer(headroom=200_000, alpha_q16=2**13)])
    nic = NicSpec(rto_ps=100 * US, retry_count=0)
    plan = replace(build_plan(size, size, cables, work, switch=switch, nic=nic), route=route)

    def frames(**options: Any) -> int:
        engine = Engine(plan if not options else replace(plan, **options), packets=True)
        count = 0
        while engine.run(1 << 60, 10**9) == 0:
            count += np.count_nonzero(engine.drain()["packets"]["time_ps"] < end_ps)
        return count + np.count_nonzero(engine.drain()["packets"]["time_ps"] < end_ps)

    assert frames() == frames(scheduler=SCHEDULER_CLASSIC) > 100_000


def test_a_call_leaves_both_sides_at_one_instant() -> None:
    """What is recorded when the budget is used up has happened before that instant, and all of it is there."""
    plan = plan_of("leaf-spine")
    whole = Engine(plan, packets=True)
    whole.run(1 << 60, 10**9)
    packets = whole.drain()["packets"]["time_ps"]
    engine = Engine(plan, packets=True)
    taken = 0
    while engine.run(1 << 60, 100) == 0:
        taken += len(engine.drain()["packets"])
        assert taken == np.count_nonzero(packets < engine.now_ps)
    assert taken > 0
