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
