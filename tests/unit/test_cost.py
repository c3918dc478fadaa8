"""Predicted costs: what is refused, sizes before anything is built, forecasts on a clock of their own."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fabemu
from fabemu.compile import compile_plan
from fabemu.cost import admission, machine
from fabemu.cost.admission import admit, admit_scenario
from fabemu.cost.estimate import estimate_cost
from fabemu.cost.footprint import counts_of
from fabemu.cost.forecast import Forecast
from fabemu.cost.here import CostHere
from fabemu.cost.machine import Room, room, size_text
from fabemu.cost.memory import most_bytes
from fabemu.cost.size import counts_of_scenario, plan_bytes, selected
from fabemu.errors import AtHand, MachineError
from fabemu.plan import FOREVER_PS
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import Simulation, try_out

FABRICS = [
    {"kind": "leaf-spine", "leaves": 3, "hosts_per_leaf": 4, "spines": 2, "uplinks": 2},
    {"kind": "fat-tree", "k": 4},
    {"kind": "fat-tree", "pods": 3, "edges_per_pod": 2, "aggs_per_pod": 2, "cores": 4, "hosts_per_edge": 3},
    {"kind": "dumbbell", "left": 3, "right": 5, "trunks": 2},
    {"kind": "single-switch", "hosts": 9},
]
WORKLOADS = [
    {"kind": "permutation", "size": "10KB", "count": 3},
    {"kind": "all-to-all", "size": "10KB", "hosts": "h1:h5"},
    {"kind": "incast", "size": "10KB", "receivers": ["h0", "h3"], "fan_in": 2, "waves": 3},
    {"kind": "incast", "size": "10KB", "receiver": "h0", "senders": "all"},
    {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1KB"}]},
]


def scenario(fabric=FABRICS[0], workload=WORKLOADS[0], **changes):
    return scenario_from_dict({"name": "cost", "fabric": fabric, "workload": [workload], **changes})


@pytest.mark.parametrize("fabric", FABRICS, ids=lambda table: table["kind"])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda table: table["kind"])
def test_counts_are_known_before_anything_is_built(fabric, workload):
    loaded = scenario(fabric, workload)
    plan = compile_plan(loaded).plan
    before = counts_of_scenario(loaded)
    assert asdict(before) == asdict(counts_of(plan))
    arrays = sum(
        value.nbytes for name, value in vars(plan).items() if isinstance(value, np.ndarray) and "rout" not in name
    )
    assert 0.8 * arrays <= plan_bytes(before) <= arrays


def test_counts_of_chains_and_arrivals_are_least():
    loaded = scenario({"kind": "chain", "switches": 4, "hosts_per_switch": 2})
    plan = compile_plan(loaded).plan
    before, after = asdict(counts_of_scenario(loaded)), asdict(counts_of(plan))
    assert {name for name in before if before[name] != after[name]} <= {"widest_ports", "port_pairs"}
    poisson = {"kind": "poisson", "load": 0.5, "sizes": "WebSearch", "stop": "1ms"}
    loaded = scenario(FABRICS[1], poisson)
    before, after = counts_of_scenario(loaded), counts_of(compile_plan(loaded).plan)
    assert 0.5 * after.ops < before.ops < 1.2 * after.ops


def test_selectors_without_names():
    assert selected("all", 16) == 16
    assert selected("h3:h7", 16) == 5
    assert selected(["h0", "h4:h5"], 16) == 3
    assert selected("h1*", 16) == 0


# What there is.


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine of files: /proc and control groups."""
    process, groups = tmp_path / "proc", tmp_path / "cgroup"
    (groups / "outer" / "inner").mkdir(parents=True)
    process.mkdir()
    (process / "statm").write_text("1000 0 0 0 0 0 0\n")
    (process / "cgroup").write_text("0::/outer/inner\n")
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable:    8000000 kB\n")
    monkeypatch.setattr(machine, "_PROCESS", process)
    monkeypatch.setattr(machine, "_GROUPS", groups)
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (machine.resource.RLIM_INFINITY,) * 2)
    return tmp_path


def limit(place: Path, most: str, used: int, cached: int = 0) -> None:
    (place / "memory.max").write_text(f"{most}\n")
    (place / "memory.current").write_text(f"{used}\n")
    (place / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")


def test_room_is_what_the_machine_has_available(system):
    assert room() == Room(8_000_000 * 1024, "this machine")


def test_a_control_group_above_the_process_limits_it(system):
    limit(system / "cgroup" / "outer", "1000000000", 400_000_000, 100_000_000)
    limit(system / "cgroup" / "outer" / "inner", "max", 300_000_000)
    assert room() == Room(700_000_000, "the control group")


def test_control_groups_of_the_first_version(system):
    (system / "proc" / "cgroup").write_text("4:cpu:/a\n7:memory:/jobs\n")
    place = system / "cgroup" / "memory" / "jobs"
    place.mkdir(parents=True)
    (place / "memory.limit_in_bytes").write_text("2000000\n")
    (place / "memory.usage_in_bytes").write_text("500000\n")
    (place / "memory.stat").write_text("total_inactive_file 0\n")
    assert room() == Room(1_500_000, "the control group")


def test_a_limit_of_the_address_space_counts(system, monkeypatch):
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (10**9, 10**9))
    found = room()
    assert found is not None and found.limit == "ulimit -v"
    assert found.bytes == 10**9 - 1000 * machine.os.sysconf("SC_PAGE_SIZE")


def test_nothing_known_is_no_limit(system):
    (system / "meminfo").unlink()
    (system / "proc" / "cgroup").unlink()
    assert room() is None


# What is refused.


def test_a_scenario_that_surely_does_not_fit_is_refused_before_it_is_built(monkeypatch):
    loaded = scenario({"kind": "fat-tree", "k": 128})
    monkeypatch.setattr(admission, "room", lambda: Room(10**9, "this machine"))
    with pytest.raises(MachineError, match=r"not enough memory: 524,288 hosts.* at least .* there is 1.0 GB") as found:
        admit_scenario(loaded)
    assert "--ignore-memory" in found.value.told(AtHand(frozenset({"--ignore-memory"})))
    assert "--ignore-memory" not in str(found.value)  # of one who may have no such option
    text = admit_scenario(loaded, ignore_memory=True)
    assert text is not None and "--ignore-memory" not in text
    with pytest.raises(MachineError, match="not enough memory"):
        fabemu.run({"fabric": {"kind": "fat-tree", "k": 128}, "workload": [WORKLOADS[0]]})


@pytest.mark.parametrize("share", [0.5, 0.95, 1.5])
def test_a_run_is_refused_warned_about_or_let_through(monkeypatch, share):
    loaded = scenario()
    compiled = compile_plan(loaded)
    cost = estimate_cost(compiled, loaded.trace.tables)
    monkeypatch.setattr(admission, "room", lambda: Room(int(cost.memory.total / share), "the control group"))
    if share < 0.8:
        assert admit(compiled, loaded.trace.tables) is None
    elif share < 1:
        text = admit(compiled, loaded.trace.tables)
        assert text is not None and "may not be enough" in text and "(the control group)" in text
        with pytest.warns(RuntimeWarning, match="may not be enough"):
            fabemu.prepare(loaded).close()
    else:
        with pytest.raises(MachineError, match="before the first packet"):
            admit(compiled, loaded.trace.tables)
        text = admit(compiled, loaded.trace.tables, ignore_memory=True)
        assert text is not None and "not enough memory" in text


def test_no_warning_where_there_is_enough():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fabemu.prepare(scenario()).close()


def test_the_most_is_more_than_what_is_expected():
    for workload in WORKLOADS:
        loaded = scenario(FABRICS[1], workload)
        compiled = compile_plan(loaded)
        expected = estimate_cost(compiled, loaded.trace.tables).memory.total
        assert most_bytes(compiled, loaded.trace.tables) >= expected


# What is predicted.


def test_an_estimate_is_a_pure_function():
    loaded = scenario(FABRICS[1], {"kind": "poisson", "load": 0.5, "sizes": "WebSearch", "stop": "200us"})
    compiled = compile_plan(loaded)
    one, other = (estimate_cost(compiled, loaded.trace.tables).to_dict() for _ in range(2))
    assert one == other
    assert json.loads(json.dumps(one)) == one


def test_packets_cost_rows_and_memory():
    compiled = compile_plan(scenario())
    plain, full = estimate_cost(compiled, ("flows",)), estimate_cost(compiled, ("flows", "packets"))
    assert "packets" not in plain.rows
    assert full.rows["packets"] == round(full.packet_hops.value)
    assert full.memory.records > plain.memory.records


def test_a_deadlock_may_stop_everything():
    compiled = compile_plan(scenario())
    assert estimate_cost(compiled).packet_hops.low > 0
    prone = estimate_cost(compiled, may_deadlock=True)
    assert prone.packet_hops.low == 0
    assert any("FB301" in reason for reason in prone.reasons)


def test_text_says_what_time_is_based_on():
    compiled = compile_plan(scenario())
    cost = estimate_cost(compiled, ("flows",))
    speed = try_out(compiled, seconds=0.01)
    assert speed is not None and speed.packet_hops > 0
    text = str(CostHere(cost, Room(10**9, "this machine"), speed))
    assert "as measured here" in text and "there is 1.0 GB (this machine)" in text
    text = str(CostHere(cost, None, None))
    assert "nothing was tried out" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-7, "under 0.1 s of CPU time, without"),
        (0.099, "under 0.1 s of CPU time ("),
        (0.14, "0.1 s of CPU time ("),
        (9.94, "9.9 s of CPU time ("),
        (12.3, "12 s of CPU time ("),
    ],
)
def test_no_run_takes_no_time(seconds, text):
    cost = estimate_cost(compile_plan(scenario()), ("flows",))
    rate = cost.packet_hops.value / seconds
    here = CostHere(cost, None, SimpleNamespace(packet_hops=1, cpu_seconds=0.0, hops_per_cpu_second=rate))
    assert f"time         {text}" in str(here) and "measured here for under 0.1 s from" in str(here)


def test_sizes_as_text():
    assert [size_text(value) for value in (500, 2_300_000, 25e9, 1.2e12)] == ["0 kB", "2.3 MB", "25 GB", "1.2 TB"]


# How long it will still take. The clock is the work: a run of steady speed, whatever the machine does meanwhile.

STEADY = [
    ({"kind": "permutation", "size": "300KB"}, None),
    ({"kind": "permutation", "size": "3MB"}, "60us"),
    ({"kind": "poisson", "load": 0.5, "sizes": "WebSearch", "stop": "300us"}, "300us"),
    ({"kind": "all-to-all", "size": "30KB"}, None),
    ({"kind": "all-to-all", "size": "30KB", "mode": "sequential"}, None),
]


@pytest.mark.parametrize(("workload", "until"), STEADY)
def test_time_left_is_right_within_a_fifth_after_a_tenth_of_a_steady_run(workload, until, monkeypatch):
    from fabemu import simulate

    monkeypatch.setattr(simulate, "BUDGET_HOPS", 500)
    changes = {} if until is None else {"until": until}
    loaded = scenario({"kind": "fat-tree", "k": 4}, workload, nic={"cc": {"kind": "none"}}, **changes)
    compiled = compile_plan(loaded)
    cost = estimate_cost(compiled, loaded.trace.tables)
    with Simulation(loaded, compiled) as run:
        looks = [
            (snapshot.now_ps, snapshot.packet_hops, snapshot.messages_done / snapshot.message_count)
            for snapshot in (run._snapshot(records) for records, _ in run._steps(FOREVER_PS))
        ]
    hops_per_second = 10**6
    total = looks[-1][1] / hops_per_second
    forecast = Forecast(cost, compiled.plan.until_ps)
    checked, shares = 0, []
    for now_ps, hops, messages in looks:
        wall = hops / hops_per_second
        outlook = forecast.look(now_ps, hops, messages, wall)
        shares.append(outlook.done_share)
        if 0.1 * total <= wall <= 0.9 * total:
            checked += 1
            assert outlook.seconds_left == pytest.approx(total - wall, rel=0.2), f"at {wall / total:.0%}"
    assert checked >= 4
    assert shares == sorted(shares) and shares[-1] >= 0.97


def test_a_run_that_takes_more_hops_than_predicted_does_not_end_before_its_time():
    compiled = compile_plan(scenario())
    cost = estimate_cost(compiled)
    total = cost.packet_hops.value
    forecast = Forecast(replace(cost), FOREVER_PS)
    for done in np.linspace(0.1, 1.5, 15):
        outlook = forecast.look(int(done * 10**6), int(done * total), min(done / 1.5, 0.99), float(done))
        assert outlook.seconds_left is not None and outlook.seconds_left > 0
        assert outlook.done_share < 1
    assert forecast.look(2 * 10**6, int(1.6 * total), 1.0, 1.6).seconds_left == 0
