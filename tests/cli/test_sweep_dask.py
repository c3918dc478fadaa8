"""Sweeps on a Dask cluster: a real scheduler and real worker processes, some of which are killed."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fabemu
from fabemu.errors import InputError, MachineError
from fabemu.sweeps.cluster import DaskWorkers
from fabemu.sweeps.execute import task_of
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep
from fabemu.sweeps.task import run_task
from tests.small import SMALL

distributed = pytest.importorskip("distributed")

WITH_FILE = f"""{SMALL}
[[workload]]
kind = "flow-file"
path = "flows.csv"
"""
ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(Path(fabemu.__file__).resolve().parents[1])
SECONDS = 120
SETTINGS = {"switch.ecn.kmin": ["20KiB", "60KiB", "3MiB"], "switch.ecn.kmax": "2MiB"}


@pytest.fixture(scope="module")
def cluster():
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = SOURCE
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as started:
        yield started
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(WITH_FILE)
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start_ps\nh1,h2,50000,0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", SOURCE)
    return tmp_path


def worker_pids(address):
    with distributed.Client(address, set_as_default=False) as client:
        return list(client.run(os.getpid).values())


def parts(path):
    return {file.name: file.read_bytes() for file in sorted(Path(path, "results").iterdir())}


def sweep_command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "sweep", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


def test_a_cluster_gives_the_same_bytes_as_this_machine(cluster, folder):
    there = fabemu.sweep("small.toml", SETTINGS, "there", seeds=3, dask=cluster.scheduler_address)
    here = fabemu.sweep("small.toml", SETTINGS, "here", seeds=3, jobs=1)
    assert there.info["counts"] == here.info["counts"] == {"runs": 9, "done": 9, "finished": 6, "invalid": 3}
    assert parts("there") == parts("here")
    pids = {int(worker.rpartition(":")[2]) for worker in there.costs.column("worker").to_pylist() if worker}
    assert pids <= set(worker_pids(cluster.scheduler_address)), "the cluster did it, and goes on"


def test_workers_need_not_see_the_files_of_the_scenario(folder):
    plan = plan_sweep("small.toml", *parameters_of({"workload.1.path": ["flows.csv"]}))
    task = task_of(plan, 0)
    elsewhere = type(task)(**{**vars(task), "base_dir": "/nowhere"})
    assert run_task(elsewhere).status == "invalid"
    sent = run_task(elsewhere, {"flows.csv": Path("flows.csv").read_bytes()})
    assert sent.figures == run_task(task).figures != {}


def test_a_worker_that_is_killed_is_replaced_and_its_runs_count_once(cluster, folder):
    (folder / "small.toml").write_text(WITH_FILE.replace("100KB", "40MB"))
    killed = []

    def kill(standing):
        if standing.done >= 2 and not killed:
            killed.append(worker_pids(cluster.scheduler_address)[0])
            os.kill(killed[0], signal.SIGKILL)

    settings = {"switch.buffer": ["8MiB", "16MiB"]}
    sweep = fabemu.sweep("small.toml", settings, "s", seeds=5, dask=cluster.scheduler_address, progress=kill)
    assert killed
    assert sweep.info["counts"] == {"runs": 10, "done": 10, "finished": 10}
    rows = sweep.table.to_pylist()
    assert [(row["point"], row["seed"]) for row in rows] == [(point, seed) for point in (0, 1) for seed in range(3, 8)]
    assert len(Path("s", "journal.jsonl").read_bytes().splitlines()) == 10
    workers = {int(worker.rpartition(":")[2]) for worker in sweep.costs.column("worker").to_pylist()}
    assert workers - set(killed), "others went on"


def test_a_sweep_that_is_stopped_leaves_the_cluster_as_it_is(cluster, folder):
    (folder / "small.toml").write_text(WITH_FILE.replace("100KB", "4GB"))
    command = [sys.executable, "-m", "fabemu.cli", "sweep", "small.toml", "--dask", cluster.scheduler_address]
    command += ["--set", "switch.buffer=[8MiB,16MiB]", "--seeds", "4", "--out", "s"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        wait_for(lambda: any(client.processing().values()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 130 and "the same command goes on with it" in err
        wait_for(lambda: not any(client.processing().values()))
        # What is at work is given up, and does not keep the workers from what comes next.
        assert client.submit(os.getpid, pure=False).result(timeout=5)
    assert fabemu.load_sweep("s").info["status"] == "interrupted"


def test_a_scheduler_that_does_not_answer_is_an_error_within_seconds(folder):
    begun = time.monotonic()
    done = sweep_command("small.toml", "--set", "switch.buffer=[4MiB,8MiB]", "--dask", f"tcp://127.0.0.1:{free_port()}")
    assert done.returncode == 5
    assert re.search(
        r"^error: the Dask scheduler at tcp://127.0.0.1:\d+ does not answer: .*; is it running, and reachable",
        done.stderr,
        re.MULTILINE,
    )
    assert time.monotonic() - begun < 30


def test_something_else_that_answers_is_said_to_be_no_scheduler(cluster, folder):
    worker = next(iter(cluster.workers.values())).worker_address
    with pytest.raises(MachineError, match="that is a Dask worker"):
        fabemu.sweep("small.toml", {"switch.buffer": ["4MiB", "8MiB"]}, dask=worker)


def test_workers_with_another_fabemu_are_refused(cluster, folder, monkeypatch):
    monkeypatch.setattr("fabemu.sweeps.cluster.version", lambda: "99.0")
    with pytest.raises(MachineError, match=r"has fabemu .*, but this is fabemu 99\.0"):
        fabemu.sweep("small.toml", {"switch.buffer": ["4MiB", "8MiB"]}, dask=cluster.scheduler_address)


def test_a_run_that_kills_every_worker_is_a_failed_run(cluster, folder):
    workers = DaskWorkers(cluster.scheduler_address)
    try:
        with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
            client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 0))
            (folder / "small.toml").write_text(WITH_FILE.replace("100KB", "10GB"))
            plan = plan_sweep("small.toml", *parameters_of({"switch.buffer": ["8MiB"]}))
            workers.submit(task_of(plan, 0))
            found = []
            wait_for(lambda: any(client.processing().values()))
            (busy,) = [worker for worker, keys in client.processing().items() if keys]
            os.kill(client.run(os.getpid, workers=[busy])[busy], signal.SIGKILL)
            wait_for(lambda: found.extend(workers.wait(0.2)) or found)
            client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 3))
        assert (found[0].status, found[0].error) == ("failed", "the workers that had it died, one after another")
    finally:
        workers.close()


def test_jobs_and_addresses_that_make_no_sense(folder, monkeypatch):
    settings = {"switch.buffer": ["4MiB", "8MiB"]}
    with pytest.raises(InputError, match="jobs are processes of this machine: a Dask cluster has workers of its own"):
        fabemu.sweep("small.toml", settings, dask="tcp://127.0.0.1:8786", jobs=2)
    with pytest.raises(InputError, match="'cluster' is not the address of a Dask scheduler"):
        fabemu.sweep("small.toml", settings, dask="cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"--dask needs dask.distributed: install it with pip install 'fabemu"):
        fabemu.sweep("small.toml", settings, dask="tcp://127.0.0.1:8786")


# The commands of the page, and a scheduler that is lost.


@pytest.fixture
def page_cluster(folder):
    """The cluster of the page, on a port that is free, and the command that uses it."""
    page = (ROOT / "docs" / "SWEEPS.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- commands: cluster -->\n```text\n(.*?)```", page, re.DOTALL)[1]
    port = str(free_port())
    scheduler, workers, command = (shlex.split(line.replace("8786", port)) for line in block.splitlines())
    assert (scheduler[:2], workers[:2], command[:2]) == (["dask", "scheduler"], ["dask", "worker"], ["fabemu", "sweep"])
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        for arguments in (scheduler, workers)
    ]
    try:
        with distributed.Client(f"tcp://127.0.0.1:{port}", timeout=SECONDS, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=SECONDS)
        yield processes[0], command[2:]
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(SECONDS)


def test_the_commands_of_the_page(page_cluster, folder):
    _, arguments = page_cluster
    done = sweep_command(str(ROOT / arguments[0]), *arguments[1:])
    assert done.returncode == 0, done.stderr
    assert "2 points x 2 seeds = 4 runs: 4 finished" in done.stdout


def test_a_scheduler_that_is_lost_leaves_what_is_done(page_cluster, folder):
    scheduler, arguments = page_cluster
    (folder / "small.toml").write_text(WITH_FILE.replace("100KB", "40MB"))
    options = ["small.toml", "--set", "switch.buffer=[8MiB,16MiB]", "--seeds", "30"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fabemu.cli", "sweep", *options, *arguments[-2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = folder / "small.sweep" / "journal.jsonl"
    wait_for(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= 2)
    scheduler.kill()
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 5
    assert err.splitlines()[-1].endswith("is lost; what is done is kept, and the same command goes on")
    assert fabemu.load_sweep("small.sweep").table.num_rows >= 2
    again = sweep_command(*options, "-j", "1")
    assert again.returncode == 0 and "60 finished" in again.stdout
    assert len(journal.read_bytes().splitlines()) == 60


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it has not come")
