"""Every engine gives the same digest and the same tables, to the byte; what each of them is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import command as cli
from fabemu.errors import InputError
from fabemu.simulate import ENGINES

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"
NS3 = {
    "compat": "ns3",
    "fabric": {"kind": "single-switch", "hosts": 2},
    "workload": [{"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "10KB"}]}],
}

# What each adds: (scenario, options, what happens in it at the least, by total of the run).
CASES = [
    ("smoke/two-classes.toml", [], ["packets_delivered"]),
    ("permutation/fat-tree-k4.toml", ["--until", "300us"], ["packets_delivered"]),
    ("incast/incast-16.toml", ["--until", "400us"], ["xoffs", "pfc_frames", "marks", "cnps"]),
    ("incast/victim.toml", ["--until", "300us"], ["xoffs"]),
    ("websearch-leaf-spine.toml", ["--until", "200us"], ["marks"]),
    (
        "incast/incast-16.toml",
        ["--until", "300us", "--set", "switch.pfc.enabled=false", "--set", "switch.buffer=1MB"],
        ["packets_dropped", "retransmissions"],
    ),
    ("incidents/lossless-beside-lossy.toml", ["--until", "500us"], ["drops_egress_full", "retransmissions"]),
    ("incidents/long-cable.toml", ["--until", "500us"], ["drops_headroom_full"]),
    ("incidents/lost-last-packet.toml", [], ["drops_corrupt", "retransmissions"]),
    ("incidents/lost-xon.toml", ["--until", "1ms"], ["drops_corrupt"]),
    ("incidents/storm.toml", ["--until", "3ms"], ["pfc_frames"]),
    ("incidents/slow-receiver.toml", ["--until", "500us"], ["xoffs"]),
    ("incidents/pause-tree.toml", ["--until", "500us"], ["xoffs"]),
    ("incidents/deadlock.toml", [], ["xoffs"]),
]


def run(scenario: str, options: list[str], engine: str, directory: Path) -> tuple[dict, dict[str, bytes], int]:
    """What run.json says, the bytes of every table, and the exit code."""
    arguments = ["run", str(SCENARIOS / scenario), "--engine", engine, "-o", str(directory), "-q", *options]
    code = cli.main([*arguments, "--trace", "packets"], standalone_mode=False)
    info = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    return info, {path.name: path.read_bytes() for path in sorted(directory.glob("*.arrow"))}, code


@pytest.mark.parametrize(
    "scenario, options, happens", CASES, ids=[f"{index}-{Path(case[0]).stem}" for index, case in enumerate(CASES)]
)
def test_engines_agree(tmp_path: Path, scenario: str, options: list[str], happens: list[str]) -> None:
    results = {engine: run(scenario, options, engine, tmp_path / engine) for engine in ENGINES}
    infos = {engine: info for engine, (info, _, _) in results.items()}
    assert {engine: info["engine"] for engine, info in infos.items()} == {engine: engine for engine in ENGINES}
    first, tables, code = results["fast"]
    for name in happens:
        assert first["totals"][name] > 0, f"{name}: the scenario shows less than it is here for"
    assert set(tables) == {f"{table}.arrow" for table in ("flows", "ports", "pauses", "drops", "events", "packets")}
    for engine, (info, other, other_code) in results.items():
        for key in ("digest", "plan_digest", "simulated_ps", "messages", "rows", "status", "ended_by", "invariants"):
            assert info[key] == first[key], (engine, key)
        assert (other, other_code) == (tables, code), engine
        # Events are what the shortcuts save.
        totals = {key: value for key, value in info["totals"].items() if key != "events"}
        assert totals == {key: value for key, value in first["totals"].items() if key != "events"}, engine


def test_engine_by_api(tmp_path: Path) -> None:
    path = SCENARIOS / "smoke" / "two-hosts.toml"
    runs = [fabemu.run(path, engine=engine) for engine in (None, *ENGINES)]
    assert [run.info["engine"] for run in runs] == ["fast", "fast", "exact", "classic"]
    assert len({run.info["digest"] for run in runs}) == 1
    with pytest.raises(InputError, match="'heap' is no engine: they are fast, exact, classic"):
        fabemu.run(path, engine="heap")


def test_a_scheduler_of_its_own_leaves_no_choice(tmp_path: Path) -> None:
    assert fabemu.run(NS3).info["engine"] == "ns3"
    for engine in ENGINES:
        with pytest.raises(InputError, match=r'compat = "ns3".*leave the engine out'):
            fabemu.run(NS3, tmp_path / "run", engine=engine)
    assert not (tmp_path / "run").exists()


def test_command_refuses_what_is_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        from fabemu.cli import main

        main(["run", str(SCENARIOS / "smoke" / "two-hosts.toml"), "--engine", "turbo"])
    assert stopped.value.code == 2
    assert "'fast', 'exact', 'classic'" in capsys.readouterr().err


def test_options_of_the_command_are_the_engines() -> None:
    from fabemu.cli.run import _ENGINES

    assert tuple(ENGINES) == _ENGINES
