"""The benchmark of start-up at its smallest: one process of each command."""

from __future__ import annotations

import json

import pytest

from bench import startup
from fabemu.scenario import load_scenario
from fabemu.simulate import run


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert startup.main(["--smoke", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found["results"]] == ["python", "imports", "version", "help", "check", "run"]
    assert all(row["wall_s"] > 0 and row["cpu_s"] > 0 for row in found["results"])
    assert found["digest"] == run(load_scenario(startup.ROOT / startup.SCENARIO)).info["digest"]


def test_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "run", "wall_s": 0.4, "cpu_s": 0.3, "least_s": 0.35, "instructions": 1_600_000_000}
    monkeypatch.setattr(startup, "measure", lambda rounds, count: ([row], "ab"))
    monkeypatch.setattr(startup.shutil, "which", lambda name: name)
    assert startup.main(["--count"]) == 0
    shown = capsys.readouterr().out
    assert "run             400      300     350           1,600" in shown
    assert "digest of the run ab" in shown


def test_what_cannot_be_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        startup.main(["--rounds", "0"])
    assert "at least 1" in capsys.readouterr().err
    monkeypatch.setattr(startup.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit):
        startup.main(["--count"])
    assert "valgrind" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="ended with 3"):
        startup.timed(["-c", "raise SystemExit(3)"])
