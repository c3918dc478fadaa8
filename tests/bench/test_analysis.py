"""The benchmark of analyses, with small tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fabemu
from bench.analysis import CASES, SMOKE_ROWS, digest_of, main, make, run_once


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analysis") / "small.run"
    make(path, SMOKE_ROWS)
    return path


@pytest.mark.parametrize("name", CASES)
def test_analyses_read_tables_that_were_made(name: str, directory: Path) -> None:
    result = run_once(name, directory, directory)
    assert result["rows"] == SMOKE_ROWS * len(CASES[name][0])
    tables = CASES[name][1](fabemu.load(directory))
    # The tables are too small for times in which the same queue pairs are busy for long: no fairness.
    assert all(len(table) for table in tables[: 2 if name == "marking" else None])
    assert result["digest"] == digest_of(tables)
    assert result["peak_memory_bytes"] >= result["before_bytes"] > 0


def test_command_line_runs_analyses_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--smoke", "--json", "buffers"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["rows_per_second"] > 0
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "no analysis is named 'nothing'" in capsys.readouterr().err
