"""The benchmark of scale at its smallest, and the shipped scenario of a hundred thousand hosts made small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fabemu
from bench import scale

SCENARIO = Path(__file__).parents[2] / "scenarios" / "scale-100k.toml"


def test_both_measurements_of_two_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--smoke", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["whole"]["hosts"] for result in results] == [16, 128]
    for result in results:
        whole, idle = result["whole"], result["idle"]
        assert set(whole["cpu_seconds"]) == {"start", "load", "compile", "check", "prepare", "run", "summary"}
        assert 0 < whole["idle_bytes_per_host"] < 20_000
        assert whole["idle_bytes_per_host"] < whole["busy_bytes_per_host"]
        assert whole["packet_hops"] > 1_000 and whole["rows"]["flows"] == whole["hosts"]
        # 30 messages of 245 packets over 6 hops, each packet acknowledged.
        assert idle["packet_hops"] == pytest.approx(30 * 245 * 6 * 2, rel=0.02)
    assert scale._text(results[0]).startswith("16 hosts")


def test_unknown_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scale.main(["129"])
    assert "101306" in capsys.readouterr().err


def test_the_scenario_of_a_hundred_thousand_hosts_runs_when_it_is_small() -> None:
    scenario = fabemu.load_scenario(SCENARIO)
    assert (scenario.fabric.shape.pods * scenario.fabric.shape.edges_per_pod * 37, scenario.until) == (101_306, 10**8)
    run = fabemu.run(SCENARIO, overrides=["fabric.k=8", "until=50us"])
    assert run.info["status"] == "finished" and run.info["ended_by"] == "until"
    assert run.info["warnings"] == []
    assert all(check["held"] for check in run.info["invariants"])
    assert run.info["messages"]["unfinished"] == run.info["messages"]["count"] == 128
    # Every host sends at full rate, as far as collisions let it.
    links = run.summary().busiest_links
    assert links[0].mean_utilisation > 0.95
