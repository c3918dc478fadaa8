"""The benchmark of traces at its smallest: levels write what they should, and compute the same."""

from __future__ import annotations

import json

import pytest

from bench import harness, tracing


def test_levels_of_one_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert tracing.main(["--smoke", "--json", "--repeats", "1", "incast-128"]) == 0
    off, flows, default, budget, packets = json.loads(capsys.readouterr().out)["results"]
    assert [result["trace"] for result in (off, flows, default, budget, packets)] == list(tracing.LEVELS)
    assert off["measured_share"] == off["process_share"] == 0
    assert off["table_rows"] == off["table_bytes"] == 0
    assert 0 < flows["table_rows"] < default["table_rows"] < budget["table_rows"] < packets["table_rows"]
    # Every transmission is a row, pauses too.
    hops = packets["totals"]["packet_hops"] + packets["totals"]["pfc_frames"]
    assert packets["table_rows"] == default["table_rows"] + hops
    assert 0 < default["writing_share"] < 1


def test_levels_that_compute_something_else_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter("abcabc")

    def run(name: str, **_: object) -> dict[str, object]:
        return harness.run_once(name, smoke=True) | {"digest": next(digests)}

    monkeypatch.setattr(tracing, "in_fresh_process", run)
    with pytest.raises(RuntimeError, match="incast-128"):
        tracing.compare("incast-128", repeats=1, levels=["off", "flows", "default"])


def test_a_machine_that_slows_down_slows_all_levels_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level that costs a tenth more is found to, though each run takes 3 % longer than the one before."""
    order: list[str] = []

    def run(name: str, *, trace: str, **_: object) -> dict[str, object]:
        order.append(trace)
        seconds = 1.03 ** len(order) * (1.1 if trace == "default" else 1.0)
        parts = dict.fromkeys(("drain_cpu_seconds", "record_cpu_seconds", "close_cpu_seconds"), 0.0)
        return {"name": name, "digest": "a", "run_cpu_seconds": seconds, "process_cpu_seconds": 2 * seconds, **parts}

    monkeypatch.setattr(tracing, "in_fresh_process", run)
    _, result = tracing.compare("incast-128", repeats=2, levels=["off", "default"])
    assert order[2:] == ["off", "default", "default", "off"]
    assert result["measured_share"] == pytest.approx(0.1, abs=0.001)
    assert result["process_share"] == pytest.approx(0.1, abs=0.001)
