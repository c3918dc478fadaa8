"""A sweep or study that never gets a worker: nothing is left that was not there, and what was there is unharmed."""

import os
import socket
from pathlib import Path

import pytest

import fabemu
from fabemu.errors import MachineError
from fabemu.sweeps import crowd
from fabemu.sweeps.execute import Execution
from fabemu.sweeps.local import LocalWorkers
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep
from tests.small import SMALL

SETTINGS = {"switch.ecn.kmin": ["20KiB", "3MiB"], "switch.ecn.kmax": "2MiB"}  # the second is invalid
TUNE = {"switch.buffer": "4MiB..8MiB"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["dask", "memory"])
def nobody(request, monkeypatch):
    """Two ways to have no worker: options of `fabemu.sweep`."""
    if request.param == "dask":
        pytest.importorskip("distributed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return {"dask": f"tcp://127.0.0.1:{free.getsockname()[1]}"}

    def refuse(*_):
        raise MachineError("not enough memory for one run")

    monkeypatch.setattr(crowd, "runs_that_fit", refuse)
    return {}


def contents(path="."):
    return {
        os.path.join(place, name): None if name in folders else Path(place, name).read_bytes()
        for place, folders, files in os.walk(path)
        for name in (*folders, *files)
    }


@pytest.mark.parametrize("output", [None, "s", "deep/er/s", "deep/../s"])
def test_nothing_is_left_of_a_sweep_without_workers(nobody, output):
    before = contents()
    with pytest.raises(MachineError):
        fabemu.sweep("small.toml", SETTINGS, output, **nobody)
    assert contents() == before


def test_nothing_is_left_of_a_study_without_workers(nobody):
    pytest.importorskip("optuna")
    before = contents()
    with pytest.raises(MachineError):
        fabemu.tune("small.toml", TUNE, minimize="slowdown.p99", trials=2, **nobody)
    assert contents() == before


@pytest.mark.parametrize("made", ["s", "deep"])
def test_directories_that_were_there_stay(nobody, made):
    Path(made).mkdir()
    before = contents()
    with pytest.raises(MachineError):
        fabemu.sweep("small.toml", SETTINGS, "s" if made == "s" else "deep/er/s", **nobody)
    assert contents() == before


@pytest.mark.parametrize("force", [False, True])
def test_a_sweep_that_was_there_is_unharmed(nobody, force):
    path = Path("s")
    _half_done(path)
    before = contents()
    with pytest.raises(MachineError):
        fabemu.sweep("small.toml", SETTINGS, path, seeds=2, force=force, **nobody)
    assert contents() == before
    assert fabemu.load_sweep(path).info["status"] == "interrupted"


def _half_done(path):
    """Interrupt a sweep after one run of two; the other two are invalid."""
    plan = plan_sweep("small.toml", *parameters_of(SETTINGS), seeds=2)
    execution = Execution(plan, path)

    def stop(standing):
        if standing.done > 2:
            execution.stop()

    assert execution.run(lambda _: LocalWorkers(1), stop) == "interrupted"


def test_a_sweep_that_is_done_needs_no_worker(nobody):
    path = Path("s")
    _half_done(path)
    Execution(plan_sweep("small.toml", *parameters_of(SETTINGS), seeds=2), path).run(lambda _: LocalWorkers(1))
    sweep = fabemu.sweep("small.toml", SETTINGS, path, seeds=2, **nobody)
    assert sweep.info["status"] == "finished" and sweep.info["counts"]["done"] == 4
