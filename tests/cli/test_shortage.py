"""A machine that is too small: limits of address space, files, processes and disk, met by real commands."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fabemu
from fabemu.cost import shortage as module
from fabemu.cost.machine import Room
from fabemu.cost.shortage import THREADS_LACK, check_address_space, frugal_environment, shortage
from fabemu.errors import MachineError
from fabemu.sweeps import local
from fabemu.sweeps.execute import task_of
from fabemu.sweeps.local import LocalWorkers
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep
from tests.small import SMALL

CROWDED = """
[fabric]
kind = "leaf-spine"
leaves = 16
spines = 8
hosts_per_leaf = 24
[[workload]]
kind = "all-to-all"
size = "20KB"
"""
COMMANDS = {
    "run": ("run", "small.toml"),
    "sweep": ("sweep", "small.toml", "--set", "switch.buffer=[4MiB,8MiB]"),
    "tune": ("tune", "small.toml", "--set", "switch.buffer=4MiB..8MiB", "--minimize", "slowdown.p99", "--trials", "2"),
    "perf": ("perf", "small.toml", "-e", "4KiB"),
}
NAMES = list(COMMANDS)
SECONDS = 120
MB = 1_000_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "crowded.toml").write_text(CROWDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).resolve().parents[1]))
    return tmp_path


def limited(kind, amount, *arguments):
    """A command under a limit; whatever comes of it, it ends, and never with a traceback or a crash."""
    done = subprocess.run(
        [sys.executable, "-m", "fabemu.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(kind, (amount, amount)),
    )
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode in (0, 5), done.stderr
    if done.returncode:
        assert done.stderr.splitlines()[-1].startswith("error: "), done.stderr
    return done


@pytest.mark.parametrize("name", [*NAMES, "jobs"])
@pytest.mark.parametrize("size", [150, 300, 450])
def test_an_address_space_too_small_for_the_libraries_is_refused(folder, name, size):
    if name == "tune":
        pytest.importorskip("optuna")
    done = limited(resource.RLIMIT_AS, size * MB, *COMMANDS.get(name, (name, "small.toml")))
    assert done.returncode == 5
    assert done.stderr == (
        f"error: not enough memory: a run takes at least 500 MB of address space, and there is {size} MB (ulimit -v); "
        "raise the limit, or lift it: ulimit -v unlimited\n"
    )
    assert {path.name for path in folder.iterdir()} == {"small.toml", "crowded.toml"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [600, 1500])
def test_an_address_space_that_is_large_enough_is_enough(folder, name, size):
    if name == "tune":
        pytest.importorskip("optuna")
    done = limited(resource.RLIMIT_AS, size * MB, *COMMANDS[name], *(("-j", "1") if name in ("sweep", "tune") else ()))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size", [500, 510, 520, 525, 530, 540, 560, 600])
def test_a_run_that_runs_out_of_memory_says_so_and_does_not_look_whole(folder, size):
    done = limited(resource.RLIMIT_AS, size * MB, "run", "crowded.toml", "--ignore-memory", "--until", "300us")
    mark = folder / "crowded.run" / "run.json"
    if done.returncode == 0:
        assert json.loads(mark.read_text())["status"] == "finished"
        return
    last = done.stderr.splitlines()[-1]
    assert "out of memory" in last and "(ulimit -v)" in last and "raise the limit" in last
    if mark.is_file():
        assert json.loads(mark.read_text())["status"] in ("failed", "finished")


def test_runs_of_a_sweep_that_run_out_of_memory_are_failed_ones(folder):
    options = ("--set", "switch.buffer=[64MiB,128MiB]", "--set", "until=300us", "--retries", "0", "-j", "1")
    done = subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "sweep", "crowded.toml", *options],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (500 * MB, 500 * MB)),
    )
    assert done.returncode == 1, done.stderr
    for row in fabemu.load_sweep("crowded.sweep").table.to_pylist():
        assert row["status"] == "failed" and "memory" in row["error"] and "(ulimit -v)" in row["error"]


@pytest.mark.parametrize("name", ["run", "sweep", "tune"])
@pytest.mark.parametrize("files", [8, 12, 20])
def test_few_open_files(folder, name, files):
    if name == "tune":
        pytest.importorskip("optuna")
    done = limited(resource.RLIMIT_NOFILE, files, *COMMANDS[name])
    assert done.returncode == 0 or "oo many open files" in done.stderr or "ulimit -n" in done.stderr


@pytest.mark.parametrize("name", ["sweep", "tune"])
def test_a_full_disk_leaves_a_sweep_that_says_so_and_goes_on(folder, name):
    if name == "tune":
        pytest.importorskip("optuna")
    options = ("--seeds", "30", "-j", "1")
    done = limited(resource.RLIMIT_FSIZE, 40_000, *COMMANDS[name], *options)
    assert done.returncode == 5
    assert f"error: cannot write small.{name}/journal.jsonl: File too large" in done.stderr
    before = fabemu.load_sweep(f"small.{name}")
    assert before.info["status"] == "interrupted" and 0 < before.info["counts"]["done"] < 60
    assert limited(resource.RLIMIT_CORE, 0, *COMMANDS[name], *options).returncode == 0
    after = fabemu.load_sweep(f"small.{name}")
    assert after.info["counts"]["finished"] == 60 == after.table.num_rows
    assert len((folder / f"small.{name}" / "journal.jsonl").read_bytes().splitlines()) == 60


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "small.toml", "-o", "deep/x.run"),
        ("export", "goal", "small.toml", "-o", "x.goal"),
        ("import", "goal", "made.goal", "-o", "x.toml"),
        ("sweep", "small.toml", "--set", "switch.buffer=[4MiB,8MiB]", "-j", "1", "-o", "deep/s"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
@pytest.mark.parametrize("size", [0, 100])
def test_a_full_disk_leaves_no_part_of_a_file(folder, arguments, size):
    assert limited(resource.RLIMIT_CORE, 0, "export", "goal", "small.toml", "-o", "made.goal").returncode == 0
    before = sorted(folder.rglob("*"))
    done = limited(resource.RLIMIT_FSIZE, size, *arguments)
    assert done.returncode == 5 and "File too large" in done.stderr
    assert sorted(folder.rglob("*")) == before
    assert limited(resource.RLIMIT_CORE, 0, *arguments).returncode == 0


def test_a_full_disk_leaves_no_part_of_a_picture(folder):
    pytest.importorskip("matplotlib")
    arguments = (*COMMANDS["sweep"], "-j", "1", "-o", "s", "--plot", "p.png")
    assert limited(resource.RLIMIT_CORE, 0, *arguments).returncode == 0
    picture = (folder / "p.png").read_bytes()
    (folder / "p.png").unlink()
    done = limited(resource.RLIMIT_FSIZE, len(picture) - 1, *arguments)
    assert done.returncode == 5 and f"cannot write {folder / 'p.png'}: File too large" in done.stderr
    assert not [path for path in folder.iterdir() if path.name.startswith((".", "p"))]
    assert limited(resource.RLIMIT_CORE, 0, *arguments).returncode == 0
    assert (folder / "p.png").read_bytes() == picture


# What libraries raise, and what is said of it.


def numpy_error():
    """As NumPy has it: what cannot be loaded is the cause of an error about installing NumPy."""
    try:
        try:
            raise ImportError("libopenblas.so: failed to map segment from shared object")
        except ImportError as error:
            raise ImportError("IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!") from error
    except ImportError as error:
        return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory; there is 300 MB (ulimit -v): raise the limit, or try fewer messages"),
        (
            MemoryError("Unable to allocate 2 MiB for an array with shape (9,)"),
            "out of memory: Unable to allocate 2 MiB; ",
        ),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "out of memory: malloc of size 64 failed; there is 300 MB"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory; there is 300 MB"),
        (OSError("LZ4 decompress failed: ERROR_allocation_failed"), "out of memory; there is"),
        (ImportError("x.so: failed to map segment from shared object"), "out of memory; there is"),
        (ImportError("x.so: cannot allocate memory in static TLS block"), "out of memory; there is"),
        (numpy_error(), "out of memory; there is"),
        (pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily"), THREADS_LACK.what),
        (RuntimeError("can't start new thread"), THREADS_LACK.what),
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open; raise the limit (ulimit -n)"),
    ],
)
def test_what_was_lacking(monkeypatch, error, text):
    monkeypatch.setattr(module, "room", lambda: Room(300 * MB, "ulimit -v"))
    assert str(shortage(error)).startswith(text)


@pytest.mark.parametrize("error", [ValueError("memory"), OSError(errno.EIO, "I/O error"), ImportError("no module x")])
def test_what_is_about_something_else(error):
    error.__context__ = error  # a chain that is a circle ends as well
    assert shortage(error) is None


def test_a_machine_of_which_nothing_is_known(monkeypatch):
    def room():
        raise MemoryError

    monkeypatch.setattr(module, "room", room)
    assert str(shortage(MemoryError())).startswith("out of memory; try fewer messages or hosts; ")


def test_libraries_reserve_less_where_address_space_is_limited(monkeypatch):
    monkeypatch.setattr(module, "address_space_limit", lambda: None)
    check_address_space()
    assert frugal_environment() == {}
    monkeypatch.setattr(module, "address_space_limit", lambda: 2**40)
    check_address_space()
    assert frugal_environment()["ARROW_DEFAULT_MEMORY_POOL"] == "system"
    monkeypatch.setattr(module, "address_space_limit", lambda: 10**8)
    with pytest.raises(MachineError, match=r"there is 100 MB \(ulimit -v\)"):
        check_address_space()


# Workers that cannot be started.


def work(workers, plan):
    """Do all runs of a plan as `Execution` does, without trying again."""
    waiting, outcomes, running = list(range(plan.run_count)), [], 0
    while waiting or running:
        while waiting and running < workers.slots:
            workers.submit(task_of(plan, waiting.pop()))
            running += 1
        found = workers.wait(0.2)
        running -= len(found)
        outcomes += found
    return outcomes


def plan_of_six():
    return plan_sweep("small.toml", *parameters_of({"switch.buffer": ["4MiB", "8MiB", "16MiB"]}), seeds=2)


def test_the_processes_that_there_are_do_the_work_if_there_cannot_be_more(folder, monkeypatch):
    started = []
    start = subprocess.Popen

    def popen(*arguments, **options):
        if len(started) == 2:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(local.subprocess, "Popen", popen)
    workers = LocalWorkers(4)
    try:
        outcomes = work(workers, plan_of_six())
    finally:
        workers.close()
    assert workers.slots == 2
    assert sorted(outcome.index for outcome in outcomes) == list(range(6))
    assert {outcome.status for outcome in outcomes} == {"finished"}


def test_as_many_processes_as_were_asked_for_are_tried_again(folder, monkeypatch):
    started, start = [], subprocess.Popen

    def popen(*arguments, **options):
        if len(started) == 1 and not refused:
            refused.append(True)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(start(*arguments, **options))
        return started[-1]

    refused: list[bool] = []
    monkeypatch.setattr(local.subprocess, "Popen", popen)
    monkeypatch.setattr(local, "_AGAIN_SECONDS", 0)
    workers = LocalWorkers(2)
    try:
        outcomes = work(workers, plan_of_six())
    finally:
        workers.close()
    assert refused and len(started) == 2 == workers.slots
    assert {outcome.status for outcome in outcomes} == {"finished"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), THREADS_LACK.what),
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open; raise the limit (ulimit -n)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory; there is"),
        (MemoryError(), "out of memory; there is"),
    ],
)
def test_not_even_one_process(folder, monkeypatch, error, text):
    def popen(*_, **__):
        raise error

    monkeypatch.setattr(local.subprocess, "Popen", popen)
    with pytest.raises(MachineError) as caught:
        fabemu.sweep("small.toml", {"switch.buffer": ["4MiB", "8MiB"]}, "s", jobs=2)
    assert str(caught.value).startswith(f"cannot start a worker process: {text}")
    assert fabemu.load_sweep("s").info["status"] == "interrupted"


def test_a_process_that_dies_of_its_start_costs_no_run_an_attempt(folder, monkeypatch):
    (folder / "broken").mkdir()
    (folder / "broken" / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'fabemu.sweeps.worker' in ' '.join(sys.orig_argv):\n"
        "    try:\n"
        "        os.mkdir(os.path.join(os.environ['ONLY'], 'taken'))\n"
        "    except FileExistsError:\n"
        "        raise SystemExit('MemoryError')\n"
    )
    monkeypatch.setenv("ONLY", str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{folder / 'broken'}")
    sweep = fabemu.sweep("small.toml", {"switch.buffer": ["4MiB", "8MiB"]}, "s", seeds=2, jobs=3, retries=0)
    assert sweep.info["counts"]["finished"] == 4
    assert set(sweep.costs.column("attempts").to_pylist()) == {1}
    with pytest.raises(MachineError, match=r"^no worker process can be started: out of memory; "):
        fabemu.sweep("small.toml", {"switch.buffer": ["4MiB", "8MiB"]}, "again", jobs=2)


def test_a_worker_that_cannot_read_its_task_ends(folder):
    done = subprocess.run(
        [sys.executable, "-m", "fabemu.sweeps.worker"],
        input=(3).to_bytes(8, "little") + b"no!",
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(b"UnpicklingError: ")
