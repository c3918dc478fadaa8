"""`fabemu check --cost`, and runs that do not fit into memory, in processes of their own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu

SMALL = """
[fabric]
kind = "single-switch"
hosts = 4

[[workload]]
kind = "permutation"
size = "200KB"
"""
HUGE = """
[fabric]
kind = "fat-tree"
k = 128

[[workload]]
kind = "permutation"
size = "1MB"
"""
TWO_GB = 2 * 10**9


def command(*arguments: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def huge(tmp_path):
    path = tmp_path / "huge.toml"
    path.write_text(HUGE)
    return str(path)


def test_cost_as_text(small):
    done = command("check", small, "--cost")
    assert done.returncode == 0, done.stderr
    for word in ("packet hops", "events", "simulated", "memory", "traces", "CPU time", "as measured here", "there is"):
        assert word in done.stdout
    assert "under 0.1 s of CPU time, without traces: at " in done.stdout
    assert "measured here for under 0.1 s from" in done.stdout and " 0.0 s " not in done.stdout
    assert "a run costs" not in command("check", small).stdout


def test_cost_as_json_is_what_then_happens(small, tmp_path):
    done = command("check", small, "--cost", "--json")
    cost = json.loads(done.stdout)["cost"]
    assert set(cost) == {
        "packet_hops",
        "events",
        "simulated_ps",
        "memory_bytes",
        "rows",
        "trace_bytes",
        "reasons",
        "memory_available_bytes",
        "memory_limit",
        "cpu_seconds",
        "speed",
    }
    assert cost["speed"]["packet_hops_per_cpu_second"] > 0
    assert 0 < cost["cpu_seconds"]["low"] <= cost["cpu_seconds"]["value"] < 0.1
    assert cost["packet_hops"]["low"] <= cost["packet_hops"]["value"] <= cost["packet_hops"]["high"]
    assert command("run", small, "-q", "-o", str(tmp_path / "out")).returncode == 0
    info = json.loads((tmp_path / "out" / "run.json").read_text())
    assert info["totals"]["packet_hops"] / 2 <= cost["packet_hops"]["value"] <= 2 * info["totals"]["packet_hops"]
    assert info["totals"]["events"] / 2 <= cost["events"]["value"] <= 2 * info["totals"]["events"]
    peak = info["peak_memory_bytes"]
    assert peak / 2 <= cost["memory_bytes"]["total"] <= 2 * peak
    assert set(cost["rows"]) == set(info["rows"])


def test_cost_goes_with_scenarios_and_not_with_show(small, tmp_path):
    assert command("check", small, "--cost", "--show").returncode == 2
    switch = tmp_path / "config_db.json"
    switch.write_text("{}")
    done = command("check", str(switch), "--cost")
    assert done.returncode == 2 and "--cost" in done.stderr


@pytest.mark.parametrize("name", ["run", "check"])
def test_what_does_not_fit_is_refused_before_anything_is_built(huge, tmp_path, name):
    done = command(name, huge, *(["-o", str(tmp_path / "out")] if name == "run" else []), limit=TWO_GB)
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "error: not enough memory: 524,288 hosts, 1,572,864 cables and 524,288 messages take at least"
    )
    assert "(ulimit -v)" in line and "--ignore-memory" in line
    assert not (tmp_path / "out").exists()


def test_memory_can_be_ignored(small):
    limited = command("check", small, "--ignore-memory", "--cost", limit=TWO_GB)
    assert limited.returncode == 0, limited.stderr
    assert "(ulimit -v)" in limited.stdout


def test_a_lack_that_is_ignored_is_a_warning(huge, monkeypatch, capsys):
    from fabemu.cli.run import load
    from fabemu.cost import admission
    from fabemu.cost.machine import Room
    from fabemu.errors import MachineError

    monkeypatch.setattr(admission, "room", lambda: Room(10**9, "the control group"))
    monkeypatch.setattr("fabemu.compile.compile_plan", lambda *_, **__: "compiled")
    with pytest.raises(MachineError, match="the control group"):
        load(Path(huge))
    assert load(Path(huge), ignore_memory=True)[1] == "compiled"
    assert "warning: not enough memory: 524,288 hosts" in capsys.readouterr().err
