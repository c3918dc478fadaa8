"""The benchmark of predicted costs, at its smallest."""

from __future__ import annotations

import json

import pytest

from bench.cost import SMOKE, is_right, main, run_once


@pytest.mark.parametrize("name", SMOKE)
def test_predictions_are_compared_with_a_run(name: str) -> None:
    result = run_once(name, smoke=True)
    assert result["actual"]["packet_hops"] > 0
    assert 0.5 <= result["ratio"]["packet_hops"] <= 2
    assert 0.5 <= result["ratio"]["events"] <= 2


def test_command_line_runs_a_case_in_a_process_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--smoke", "--json", "incast/incast-16"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert is_right(result)
    assert 0.5 <= result["ratio"]["peak_memory_bytes"] <= 2
    with pytest.raises(SystemExit):
        main(["nothing"])


def test_a_wrong_prediction_is_one() -> None:
    result = run_once("incast/incast-16", smoke=True)
    result["ratio"] = {key: 1.0 for key in result["ratio"]}
    assert is_right(result)
    assert not is_right({**result, "ratio": {**result["ratio"], "packet_hops": 3.0}, "reasons": []})
    assert not is_right({**result, "ratio": {**result["ratio"], "peak_memory_bytes": 0.3}})
