"""The benchmark of sweeps at its smallest: a worker is killed, and still every run is there once."""

import json
import sys

import pytest

from bench import sweep


def test_a_sweep_survives_a_worker_that_is_killed(capsys, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setitem(sweep.SCENARIO, "until", "100us")
    assert sweep.main(["--smoke", "--json", "--workers", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    cluster, processes = found["cluster"], found["processes"]
    assert cluster["counts"]["finished"] == processes["counts"]["finished"] == 8
    assert cluster["killed"] == 1
    assert cluster["sha256"] == processes["sha256"]


def test_without_dask_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SystemExit) as end:
        sweep.main(["--smoke"])
    assert end.value.code == 2
    assert "pip install '.[dask]'" in capsys.readouterr().err
