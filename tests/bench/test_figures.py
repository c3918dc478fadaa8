"""The table of all figures at its smallest: every row is there, runs agree, and goals are held against them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import figures, goals
from bench.cases import CASES, build
from bench.harness import run_once
from bench.threads import step

STARTED = {"run_wall_seconds": 0.6, "rounds": 1, "digest": "ab"}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do without fresh processes, which take most of the time at this size; the size is small, whatever is asked."""

    def run(name: str, **options: Any) -> dict[str, Any]:
        return run_once(name, **options | {"smoke": True})

    def stepped(name: str, threads: int, *, processes: int, smoke: bool) -> list[dict[str, Any]]:
        plan = build(CASES[name], smoke=True)[1].plan
        return [step(plan, threads) for _ in range(processes)]

    monkeypatch.setattr(figures, "in_fresh_process", run)
    monkeypatch.setattr(figures, "in_fresh_steppers", stepped)
    monkeypatch.setattr(figures, "start_up", lambda rounds: STARTED)


def test_one_case_in_fresh_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures.startup, "measure", lambda rounds: ([{"name": "run", "wall_s": 0.4}], "ab"))
    output = tmp_path / "figures.json"
    assert figures.main(["--smoke", "--json", "--rounds", "1", "incast-128", "--output", str(output)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(output.read_text(encoding="utf-8"))
    assert report["start_up"] == {"run_wall_seconds": 0.4, "rounds": 1, "digest": "ab"}
    (result,) = report["results"]
    assert result["digest"] == run_once("incast-128", smoke=True)["digest"]
    for engine in figures.ENGINES:
        assert result[f"{engine}_hops_per_cpu_second"] > 0
        assert result[f"{engine}_spread"] == 0  # of one round
    by_round = result["by_round"]["hops_per_second"]
    assert result["gain"] == pytest.approx(by_round["two"][0] / by_round["one"][0])
    assert result["efficiency"] == pytest.approx(result["gain"] / 2)
    assert result["pair_efficiency"] == pytest.approx(by_round["two"][0] / by_round["pair"][0])
    cpu = result["by_round"]["measured_cpu_seconds"]
    assert result["trace_share"] == pytest.approx(cpu["fast"][0] / cpu["off"][0] - 1)
    assert result["engine_bytes_per_host"] > 0 and result["peak_memory_bytes"] > 0


@pytest.mark.usefixtures("in_this_process")
def test_table_has_a_row_for_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("case"))
    rows = lines[head + 1 : lines.index("goals")]
    assert [row.split()[0] for row in rows] == list(goals.FIGURE_CASES)
    for row in rows:
        assert row.endswith(run_once(row.split()[0], smoke=True)["digest"])
        assert (" reached " in row or " missed by " in row) != (row.startswith("incast-1024") and " none " in row)
        assert ("-" in row.split()) == row.startswith("clean-8192")  # which the classic engine leaves out
    assert lines[-3:] == [
        "  `fabemu run` of two hosts from start to end: at most 0.5 s",
        "    reached: -",
        "    missed: 0.60 (by 20.0 %)",
    ]


@pytest.mark.usefixtures("in_this_process")
def test_markdown_is_ready_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["clean-8192", "congested-no-cc-128"]
    assert figures.main(["--markdown", "--rounds", "1", "--classic-everywhere", *names]) == 0
    shown = capsys.readouterr().out
    head, rule, *rows, empty = shown.splitlines()[:5]
    assert empty == ""
    assert head.count("|") == rule.count("|") == len(figures.COLUMNS) + 1
    assert [row.split(" | ")[0] for row in rows] == [f"| {name}" for name in names]
    assert all(row.count("|") == head.count("|") and " - " not in row for row in rows)
    assert " | none | " in rows[1]  # a case without a goal
    underneath = shown.split("\n\n")[-1]
    assert underneath.startswith("processor ") and underneath.endswith("rounds 1\n")
    assert "| goal | limit | reached | missed |" in shown
    assert "| `fabemu run` of two hosts from start to end | at most 0.5 s | - | 0.60 (by 20.0 %) |" in shown


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_sizes_too_small_for_goals_are_not_judged(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    names = ["clean-1024", "congested-no-cc-128"]  # with a goal of speed, and without
    assert figures.main(["--smoke", "--rounds", "1", *form, *names]) == 0
    shown = capsys.readouterr().out
    assert "reached" not in shown and "missed" not in shown
    if form == ["--json"]:
        report = json.loads(shown)
        assert report["goals"] == [] and report["goals_note"] == figures.NOT_JUDGED
        assert [result["name"] for result in report["results"]] == names
        return
    assert shown.count("30 not judged") == 1
    assert "oals" in shown and figures.NOT_JUDGED == "not judged: the sizes of --smoke are too small"
    last = shown.split("\n\n")[-2].strip() if form else shown.splitlines()[-1]
    assert last == (
        "Goals are not judged: the sizes of --smoke are too small." if form else f"goals: {figures.NOT_JUDGED}"
    )


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("kind", ["--engine exact", "no tables", "two threads", "two processes"])
def test_digest_that_differs_is_an_error(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, stepped = figures.in_fresh_process, figures.in_fresh_steppers

    def other_run(name: str, **options: Any) -> dict[str, Any]:
        is_it = f"--engine {options.get('engine')}" == kind or (options.get("trace") == "off" and kind == "no tables")
        return run(name, **options) | ({"digest": "other"} if is_it else {})

    def other_step(name: str, threads: int, *, processes: int, smoke: bool) -> list[dict[str, Any]]:
        found = stepped(name, threads, processes=processes, smoke=smoke)
        if kind == ("two threads" if threads == 2 else "two processes" if processes == 2 else ""):
            found[-1]["digest"] = "other"
        return found

    monkeypatch.setattr(figures, "in_fresh_process", other_run)
    monkeypatch.setattr(figures, "in_fresh_steppers", other_step)
    assert figures.main(["--smoke", "--rounds", "1", "incast-128", "clean-128"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: incast-128: runs differ")
    assert f"other by {kind}" in captured.err
    assert "goals" not in captured.out.splitlines()


def test_goals_are_reached_or_missed() -> None:
    speed = goals.speed_goal("clean-1024")
    assert speed is not None and speed.limit_text == "at least 30 Mhop/CPU-s"
    assert speed.verdict(30e6) == speed.verdict(51e6) == "reached"
    assert speed.verdict(24e6) == "missed by 20.0 %"
    assert speed.verdict(29.999e6) == "missed by 0.1 %"
    memory = next(
        goal for goal in goals.GOALS if goal.cases == ("congested-128", "congested-1024") and goal.limit == 40
    )
    assert memory.limit_text == "at most 40 kB"
    assert (memory.verdict(40_000), memory.verdict(50_000)) == ("reached", "missed by 25.0 %")
    assert (memory.shown(9_876), memory.shown(39_876), memory.shown(123_456)) == ("9.88", "39.9", "123")


def test_every_case_but_one_has_one_goal_of_speed() -> None:
    speeds = [goal for goal in goals.GOALS if goal.figure == goals.SPEED_FIGURE]
    assert sorted([*(name for goal in speeds for name in goal.cases), "incast-1024"]) == sorted(goals.FIGURE_CASES)
    assert goals.speed_goal("incast-1024") is goals.speed_goal("congested-no-cc-128") is None


def test_goals_of_what_was_not_measured_are_left_out() -> None:
    assert [row["what"] for row in figures.judged([], STARTED)] == ["`fabemu run` of two hosts from start to end"]


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["--rounds", "0"], ["--json", "--markdown"], ["--output", "/nowhere/figures.json"]]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        figures.main(arguments)
    assert "error:" in capsys.readouterr().err
