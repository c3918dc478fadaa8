"""The benchmark of threads runs at its smoke size, and its runs agree."""

from __future__ import annotations

import json

import pytest

from bench.threads import main


def test_two_threads_and_two_processes_are_compared(tmp_path, capsys):
    output = tmp_path / "threads.json"
    assert main(["--smoke", "--rounds", "1", "clean-128", "incast-128", "--output", str(output)]) == 0
    results = json.loads(output.read_text("utf-8"))["results"]
    assert [result["name"] for result in results] == ["clean-128", "incast-128"]
    for result in results:
        assert len(result["one"]) == len(result["pair"]) == len(result["two"]) == 1
        assert result["gain"] == pytest.approx(result["two"][0] / result["one"][0])
        assert result["efficiency"] == pytest.approx(result["two"][0] / result["pair"][0])
    assert results[0]["digest"] in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nothing"], ["--rounds", "0"]])
def test_wrong_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "error:" in capsys.readouterr().err
