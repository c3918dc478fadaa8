"""How many runs of a sweep are at work at a time, and what is said of the time that is left."""

from __future__ import annotations

import pytest

import fabemu.sweeps
from fabemu.cost.machine import Room
from fabemu.sweeps import crowd
from fabemu.sweeps.crowd import run_bytes, runs_that_fit
from fabemu.sweeps.execute import Standing
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep

SCENARIO = {
    "name": "crowd",
    "fabric": {"kind": "single-switch", "hosts": 4},
    "workload": [{"kind": "permutation", "size": "10KB"}],
}


def plan(hosts=(4, 400)):
    common, parameters = parameters_of({"fabric.hosts": list(hosts)})
    return plan_sweep(SCENARIO, common, parameters, seeds=1, design="grid", points=None, design_seed=1)


def test_the_largest_point_counts():
    assert run_bytes(plan((4, 400))) == run_bytes(plan((400,))) > run_bytes(plan((4,)))


@pytest.mark.parametrize(("runs", "fitting"), [(0.5, 1), (1, 1), (3.2, 3), (100, 8)])
def test_no_more_runs_than_fit(monkeypatch, runs, fitting):
    needed = run_bytes(plan())
    monkeypatch.setattr(crowd, "room", lambda: Room(int(needed * runs / 0.8) + 100, "the control group"))
    found, text = runs_that_fit(plan(), 8)
    assert found == fitting
    if fitting < 8:
        assert f"{fitting} run{'s' if fitting > 1 else ''} at a time instead of 8" in text
        assert "the control group" in text
    else:
        assert text == ""


def test_a_machine_that_says_nothing_limits_nothing(monkeypatch):
    monkeypatch.setattr(crowd, "room", lambda: None)
    assert runs_that_fit(plan(), 8) == (8, "")


def test_a_sweep_says_that_it_has_fewer_processes(monkeypatch, tmp_path):
    needed = run_bytes(plan())
    monkeypatch.setattr(crowd, "room", lambda: Room(int(1.5 * needed), "this machine"))
    with pytest.warns(RuntimeWarning, match="1 run at a time instead of 2"):
        found = fabemu.sweeps.sweep(SCENARIO, {"fabric.hosts": [4, 400]}, tmp_path / "out", jobs=2)
    assert found.table.num_rows == 2 and not found.failures()


def test_runs_at_work_are_half_done():
    standing = Standing(run_count=20, done=4, earlier=0, without_figures=0, running=4, wall_seconds=10.0)
    # Six runs' worth in 10 s; what is left is fourteen.
    assert standing.seconds_left == pytest.approx(10 * 14 / 6)
    assert Standing(20, 0, 0, 0, 4, 1.0).seconds_left is None
    assert Standing(20, 20, 0, 0, 0, 9.0).seconds_left == 0
