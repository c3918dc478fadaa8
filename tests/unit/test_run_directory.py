"""Run directories: nothing is overwritten unasked, and run.json is always whole."""

import errno
import gc
import json
import os
from pathlib import Path

import pytest

from fabemu.errors import InputError, MachineError, OutputError
from fabemu.run_directory import RunDirectory, default_directory, plain, read_info


def test_create_claims_with_a_running_status(tmp_path):
    directory = RunDirectory.create(tmp_path / "a" / "b.run", {"name": "b"})
    assert read_info(directory.path) == {"fabemu_run": 1, "status": "running", "name": "b"}


def test_an_empty_directory_is_taken(tmp_path):
    RunDirectory.create(tmp_path, {})
    assert read_info(tmp_path)["status"] == "running"


def test_a_run_is_replaced_only_with_force(tmp_path):
    RunDirectory.create(tmp_path, {"name": "old"})
    (tmp_path / "flows.arrow").write_text("old")
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "flows.csv").write_text("old")
    (tmp_path / "notes.ipynb").write_text("mine")
    with pytest.raises(OutputError, match="holds a run already; replace it with --force"):
        RunDirectory.create(tmp_path, {})
    assert read_info(tmp_path)["name"] == "old"
    RunDirectory.create(tmp_path, {"name": "new"}, force=True)
    assert read_info(tmp_path)["name"] == "new"
    assert not (tmp_path / "flows.arrow").exists() and not (tmp_path / "inputs").exists()
    assert (tmp_path / "notes.ipynb").read_text() == "mine"


@pytest.mark.parametrize("run_json", [None, "[]", '{"status": "finished"}', "not json", '{"fabemu_run": "1"}'])
def test_force_never_touches_other_directories(tmp_path, run_json):
    (tmp_path / "thesis.tex").write_text("mine")
    if run_json is not None:
        (tmp_path / "run.json").write_text(run_json)
    with pytest.raises(OutputError, match="not a run directory of fabemu"):
        RunDirectory.create(tmp_path, {}, force=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_force_keeps_what_the_scenario_reads(tmp_path):
    RunDirectory.create(tmp_path, {})
    (tmp_path / "inputs").mkdir()
    file = tmp_path / "inputs" / "flows.csv"
    file.write_text("flows")
    with pytest.raises(OutputError, match=r"the scenario reads .*flows\.csv"):
        RunDirectory.create(tmp_path, {}, force=True, keep=[file])
    assert file.exists()


def test_force_does_not_follow_links(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    run = tmp_path / "a.run"
    RunDirectory.create(run, {})
    (run / "inputs").symlink_to(outside)
    RunDirectory.create(run, {}, force=True)
    assert (outside / "precious").exists() and not (run / "inputs").exists()


def test_a_file_in_the_way(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(OutputError, match="is a file, not a directory"):
        RunDirectory.create(file, {}, force=True)
    with pytest.raises(OutputError, match="is a file"):
        RunDirectory.create(file / "below", {})
    with pytest.raises(OutputError, match="Not a directory"):
        RunDirectory.create(file / "far" / "below", {})
    assert file.read_text() == "x"


@pytest.mark.parametrize("path", ["/proc/fabemu/a.run", "a" * 300, "a\0b"])
def test_unwritable_paths(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"):
        RunDirectory.create(Path(path), {})


def test_two_runs_at_once(tmp_path, monkeypatch):
    RunDirectory.create(tmp_path, {})
    monkeypatch.setattr("fabemu.run_directory._clear", lambda *_, **__: None)
    with pytest.raises(OutputError, match="another run has just been started"):
        RunDirectory.create(tmp_path, {})


def test_a_run_that_was_replaced_leaves_the_new_one_alone(tmp_path):
    replaced = RunDirectory.create(tmp_path, {"name": "replaced"})
    replaced.write_info({"status": "running"})
    RunDirectory.create(tmp_path, {"name": "new"}, force=True)
    with pytest.raises(OutputError, match="another run has replaced this one"):
        replaced.write_info({"status": "finished"})
    assert read_info(tmp_path)["name"] == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_replaced_run_is_known_whatever_inode_the_new_one_gets(tmp_path):
    for round_ in range(200):
        path = tmp_path / str(round_ % 2)
        replaced = RunDirectory.create(path, {}, force=True)
        if round_ % 3 == 0:
            replaced.write_info({"status": "running"})
        RunDirectory.create(path, {"name": "new"}, force=True)
        with pytest.raises(OutputError, match="another run has replaced this one"):
            replaced.write_info({"status": "finished"})


def test_run_directories_leave_no_file_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        directory = RunDirectory.create(tmp_path, {}, force=True)
        directory.write_info({"status": "finished"})
    del directory
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_info_is_replaced_whole(tmp_path):
    directory = RunDirectory.create(tmp_path, {})
    directory.write_info({"status": "finished", "value": float("inf")})
    assert json.loads((tmp_path / "run.json").read_text()) == {"fabemu_run": 1, "status": "finished", "value": None}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_info_on_a_full_disk_falls_back_to_the_old_blocks(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path, {"long": "x" * 5000})

    def no_space(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fabemu.run_directory.os.fsync", no_space)
    directory.write_info({"status": "failed"})
    assert read_info(tmp_path)["status"] == "failed"
    assert not (tmp_path / "run.json.new").exists()


@pytest.mark.parametrize("size", [30_000, 10**6])
def test_info_that_does_not_fit_a_full_disk_leaves_what_was_there_with_the_status(tmp_path, monkeypatch, size):
    directory = RunDirectory.create(tmp_path, {"name": "long"})

    def no_space(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fabemu.run_directory.os.fsync", no_space)
    directory.write_info({"status": "failed", "text": "x" * size})
    assert read_info(tmp_path) == {"fabemu_run": 1, "status": "failed", "name": "long"}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    RunDirectory.create(tmp_path, {}, force=True)


@pytest.mark.parametrize("made", ["", "deep", "deep/er"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_directory_that_cannot_be_claimed_is_left_as_it_was(tmp_path, monkeypatch, made, code):
    (tmp_path / made).mkdir(parents=True, exist_ok=True)
    before = sorted(tmp_path.rglob("*"))

    def no_space(_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fabemu.run_directory._json", no_space)
    with pytest.raises(MachineError if code == errno.ENOSPC else OutputError, match="cannot be written"):
        RunDirectory.create(tmp_path / "deep" / "er", {})
    assert sorted(tmp_path.rglob("*")) == before


def test_info_that_cannot_be_written(tmp_path):
    directory = RunDirectory.create(tmp_path / "a", {})
    (tmp_path / "a" / "run.json").unlink()
    (tmp_path / "a").rmdir()
    with pytest.raises(MachineError, match=r"cannot write .*run\.json"):
        directory.write_info({})


def test_inputs_keep_their_names_apart(tmp_path):
    directory = RunDirectory.create(tmp_path / "a.run", {})
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "flows.csv").write_text(folder)
    assert directory.copy_input(tmp_path / "x" / "flows.csv") == "inputs/flows.csv"
    assert directory.copy_input(tmp_path / "y" / "flows.csv") == "inputs/flows-2.csv"
    assert (directory.path / "inputs" / "flows-2.csv").read_text() == "y"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("websearch", "websearch.run"), ("../../etc", "etc.run"), ("a b/c", "a-b-c.run"), ("", "scenario.run")],
)
def test_default_directory(name, expected):
    assert default_directory(name) == Path(expected)


def test_read_info_of_other_things(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_info(tmp_path / "no")
    with pytest.raises(InputError, match=r"has no run\.json"):
        read_info(tmp_path)
    (tmp_path / "run.json").write_text('{"fabemu_run": 99}')
    with pytest.raises(InputError, match="use a newer fabemu"):
        read_info(tmp_path)
    with pytest.raises(InputError, match="is not a directory"):
        read_info(tmp_path / "run.json")


def test_a_run_json_that_cannot_be_read_is_named_once(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(InputError) as error:
        read_info(tmp_path)
    assert str(error.value) == f"{tmp_path / 'run.json'}: cannot be read: Is a directory"


def test_plain_values():
    numpy = pytest.importorskip("numpy")
    assert plain({1: (numpy.int64(3), numpy.float64("nan"), None, True, Path("a"))}) == {
        "1": [3, None, None, True, "a"]
    }
