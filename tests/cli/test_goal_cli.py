"""`fabemu import goal` and `fabemu export goal` as their users meet them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabemu.cli import main
from fabemu.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
TRACE = "num_ranks 2\nrank 0 {\nc: calc 10\ns: send 64b to 1\ns requires c\n}\nrank 1 {\nrecv 64b from 0\n}\n"


def fabemu(*arguments) -> tuple[int, str, str]:
    import click

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def shell(rest):
        main(list(rest))

    result = CliRunner().invoke(shell, [str(item) for item in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.goal").write_text(TRACE)
    return tmp_path


def without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("//")]


def test_a_trace_becomes_a_scenario_that_runs(folder) -> None:
    code, out, err = fabemu("import", "goal", "t.goal")
    assert (code, out) == (0, "t.toml\n")
    assert err.startswith("note: a rank computes all that is ready at once")
    scenario = load_scenario("t.toml")
    assert (scenario.name, scenario.fabric.hosts, scenario.workload[0].path) == ("t", 2, "t.goal")
    code, _, err = fabemu("run", "t.toml", "-o", "t.run")
    assert code == 0
    # What the run read is kept beside its tables, as other inputs are.
    assert any(path.read_text() == TRACE for path in (folder / "t.run").rglob("*.goal"))


def test_nothing_is_overwritten_unless_asked(folder) -> None:
    (folder / "t.toml").write_text("mine")
    code, _, err = fabemu("import", "goal", "t.goal")
    assert code == 2
    assert "t.toml: exists already" in err
    assert (folder / "t.toml").read_text() == "mine"
    assert fabemu("import", "goal", "t.goal", "--force")[0] == 0
    code, _, err = fabemu("export", "goal", "t.toml", "-o", "t.goal")
    assert code == 2
    assert "t.goal: exists already" in err
    assert (folder / "t.goal").read_text() == TRACE


def test_the_fabric_of_another_scenario_is_taken(folder) -> None:
    shutil.copytree(SCENARIOS / "graph", folder / "far")
    code, _, _ = fabemu(
        "import", "goal", "t.goal", "-o", "sub/t.toml", "--fabric", "far/ring.toml", "--calc-unit", "5ns"
    )
    assert code == 0
    scenario = load_scenario("sub/t.toml")
    assert scenario.fabric.kind == "graph"
    assert scenario.link.rate == 100 * 10**9
    assert len(scenario.workload) == 1
    assert scenario.workload[0].calc_unit == 5000
    assert fabemu("check", "sub/t.toml")[0] == 0


def test_every_fabric_that_is_shipped_can_be_taken(folder) -> None:
    for path in sorted((SCENARIOS / "fabrics").glob("*.toml")):
        code, _, err = fabemu("import", "goal", "t.goal", "-o", f"{path.stem}.toml", "--fabric", path)
        assert code == 0, err
        taken, given = load_scenario(f"{path.stem}.toml"), load_scenario(path)
        for key in ("fabric", "link", "switch", "nic", "classes", "scale_up", "routing"):
            assert getattr(taken, key) == getattr(given, key), (path.stem, key)


def test_a_wrong_trace_is_refused_line_by_line(folder) -> None:
    (folder / "bad.goal").write_text(TRACE.replace("64b from", "65b from") + "}\ncalc 5\n")
    code, out, err = fabemu("import", "goal", "bad.goal")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: bad.goal:10: a } without a rank that is open",
        'error: bad.goal:11: outside of any rank: operations stand between "rank R {" and "}"',
    ]
    assert not (folder / "bad.toml").exists()
    (folder / "t.goal").write_text(TRACE.replace("64b from", "65b from"))
    (folder / "t.toml").write_text(
        '[fabric]\nkind = "single-switch"\nhosts = 2\n[[workload]]\nkind = "goal"\npath = "t.goal"\n'
    )
    code, _, err = fabemu("check", "t.toml")
    assert code == 2
    assert err == ("error: t.goal:8: rank 1 receives 65 B, but the matching send of rank 0 (line 4, tag 0) has 64 B\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "goal", "none.goal"], "none.goal"),
        (["import", "goal", "t.goal", "-o", "t.txt"], "a scenario ends in .toml"),
        (["import", "goal", "t.goal", "--calc-unit", "0ns"], "must be above 0"),
        (["import", "goal", "t.goal", "--calc-unit", "7"], "--calc-unit"),
        (["import", "goal", "t.goal", "--fabric", "none.toml"], "none.toml"),
        (["import", "goal", "t.goal", "-o", "t.goal/t.toml"], "cannot write"),
        (["export", "goal", "none.toml"], "none.toml"),
    ],
)
def test_what_cannot_be_done_is_said(folder, arguments, message) -> None:
    code, _, err = fabemu(*arguments)
    assert code == 2
    assert message in err


def test_what_is_shipped_is_written_and_read_again(folder) -> None:
    shipped = SCENARIOS / "goal" / "pipeline.toml"
    code, out, err = fabemu("export", "goal", shipped)
    assert (code, err) == (0, "")
    (folder / "again.goal").write_text(out)
    assert fabemu("import", "goal", "again.goal", "--fabric", shipped)[0] == 0
    code, again, _ = fabemu("export", "goal", "again.toml", "-o", "last.goal")
    assert (code, again) == (0, "last.goal\n")
    assert without_comments((folder / "last.goal").read_text()) == without_comments(out)


@pytest.mark.parametrize(
    "name",
    ["incast/victim", "jobs/two-jobs", "jobs/checkpoint-separate", "collectives/all-to-all-8", "websearch-leaf-spine"],
)
def test_any_scenario_can_be_written_and_read_again(folder, name) -> None:
    shipped = SCENARIOS / f"{name}.toml"
    small = ["--set", "workload.0.stop=100us"] if name.startswith("websearch") else []
    assert fabemu("export", "goal", shipped, "-o", "one.goal", "--calc-unit", "1ps", *small)[0] == 0
    assert fabemu("import", "goal", "one.goal", "--calc-unit", "1ps", "--fabric", shipped)[0] == 0
    assert fabemu("export", "goal", "one.toml", "-o", "two.goal", "--calc-unit", "1ps")[0] == 0
    first, second = (without_comments((folder / path).read_text()) for path in ("one.goal", "two.goal"))
    assert len(first) > 20
    assert first == second
