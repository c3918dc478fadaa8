"""Every benchmark at its smallest: it runs, computes the same twice, and measures something. No times."""

from __future__ import annotations

import json

import pytest
from fabemu._core.engine import Engine

from bench.__main__ import main
from bench.cases import CASES, build
from bench.harness import run_once
from fabemu.simulate import ENGINES


@pytest.mark.parametrize("name", CASES)
def test_case_computes_the_same_twice(name: str) -> None:
    first, second = run_once(name, smoke=True), run_once(name, smoke=True)
    assert first["measured_hops"] > 0
    assert first["measured_hops"] < first["totals"]["packet_hops"]  # the warm-up is not counted
    assert (first["digest"], first["measured_hops"]) == (second["digest"], second["measured_hops"])


@pytest.mark.parametrize("name", ["clean-128", "clean-1024"])
def test_clean_permutation_has_no_collision(name: str) -> None:
    """Every cable carries one flow: nothing is marked, nothing pauses, and every host sends at line rate."""
    result = run_once(name, smoke=True)
    assert result["totals"]["marks"] == result["totals"]["xoffs"] == 0
    _, compiled, _ = build(CASES[name], smoke=True)
    plan = compiled.plan
    # 30 us at 400 Gb/s and 4,178 B, less what acknowledgements take of the same cables: 86 B for each.
    assert result["totals"]["data_packets"] / plan.host_count > 30e-6 * 400e9 / 8 / (4178 + 86) - 2
    engine = Engine(plan)
    engine.run(plan.until_ps, 10**9)
    engine.finish()
    rows = engine.drain()["ports"]
    at_switches = rows[rows["port"] >= plan.node_port_start[plan.host_count]]
    assert len(at_switches) > 0
    assert at_switches["queue_max_bytes"].max() <= 2 * 4174


@pytest.mark.parametrize("threads", ["1", "2"])
def test_engines_compute_the_same(threads: str, capsys: pytest.CaptureFixture[str]) -> None:
    for engine in ENGINES:
        assert main(["--once", "--smoke", "--engine", engine, "--threads", threads, "incast-128"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [result["engine"] for result in results] == list(ENGINES)
    assert len({result["digest"] for result in results}) == 1
    fast, exact, _ = (result["measured_events"] for result in results)
    assert fast < exact


def test_command_line_runs_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--smoke", "--json", "--repeats", "1", "--warm-ups", "1", "incast-128"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["name"] == "incast-128" and result["measured_hops"] > 0
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "clean-128" in capsys.readouterr().err
