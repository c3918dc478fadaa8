"""`fabemu sweep` as its users meet it: real worker processes, signals, exit codes, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main
from fabemu.errors import MachineError
from fabemu.headline import FIGURES
from fabemu.sweeps.execute import task_of
from fabemu.sweeps.local import LocalWorkers
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep
from tests.small import SMALL

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "fabemu.cli", "sweep"]
KMIN = ("--set", "switch.ecn.kmin=[20KiB,60KiB,3MiB]", "--set", "switch.ecn.kmax=2MiB")
SECONDS = 120


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).resolve().parents[1]))
    return tmp_path


def fabemu_command(*arguments):
    done = subprocess.run(
        [*COMMAND[:-1], *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


def sweep_command(*arguments):
    return fabemu_command("sweep", *arguments)


def parts(path):
    return {file.name: file.read_bytes() for file in sorted(Path(path, "results").iterdir())}


def test_points_that_are_wrong_are_reported_and_the_others_go_on(folder):
    done = sweep_command("small.toml", *KMIN, "--seeds", "2", "-j", "2")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "sweeping small: 3 points x 2 seeds = 6 runs",
        "error: 2 of 6 runs have no figures",
    ]
    assert "3 points x 2 seeds = 6 runs: 4 finished, 2 invalid" in done.stdout
    assert "point 2 (switch.ecn.kmin=3MiB): invalid" in done.stdout
    assert "kmin 3MiB is above kmax 2MiB" in done.stdout
    rows = fabemu.load_sweep("small.sweep").table.to_pylist()
    assert [(row["switch.ecn.kmin"], row["seed"], row["status"]) for row in rows] == [
        (20 * 1024, 3, "finished"),
        (20 * 1024, 4, "finished"),
        (60 * 1024, 3, "finished"),
        (60 * 1024, 4, "finished"),
        (3 * 2**20, 3, "invalid"),
        (3 * 2**20, 4, "invalid"),
    ]


def test_any_number_of_jobs_gives_the_same_bytes_and_what_run_gives(folder):
    options = ("small.toml", "--set", "workload.0.size=[50KB,100KB]", "--seeds", "3,9", "-q")
    assert sweep_command(*options, "--out", "one", "-j", "1").returncode == 0
    again = sweep_command(*options, "--out", "three", "-j", "3", "--keep")
    assert again.returncode == 0 and again.stderr == ""
    assert parts("one") == parts("three")
    row = fabemu.load_sweep("one").table.to_pylist()[1]
    run = fabemu.run("small.toml", overrides=["seed=9", "workload.0.size=50KB"])
    assert row["digest"] == run.info["digest"] and row["plan_digest"] == run.info["plan_digest"]
    assert row["slowdown.max"] == run.summary().sizes[0].slowdown["max"]
    kept = fabemu.load("three/runs/point-00000-seed-9")
    assert kept.info["digest"] == row["digest"]


def test_json_is_one_document(folder):
    options = ("--design", "lhs", "--points", "3", "--objective", "totals.xoffs", "--json", "-q")
    done = sweep_command("small.toml", "--set", "switch.pfc.alpha=1/64..2:log", *options)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["status"] == "finished" and document["directory"] == "small.sweep"
    assert document["definition"]["design"] == "lhs" and document["counts"]["finished"] == 3
    assert len(document["points"]) == 3 and not document["failures"]
    assert all(1 / 64 <= point["numbers"]["switch.pfc.alpha"] <= 2 for point in document["points"])
    assert "totals.xoffs" in document["points"][0]["medians"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_sweep_ends_well_and_the_same_command_goes_on(folder, number):
    options = ["small.toml", "--set", "workload.0.size=[50KB,100KB]", "--seeds", "40", "-j", "1"]
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = folder / "small.sweep" / "journal.jsonl"
    wait_for(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= 3)
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}[number]
    assert "interrupted; what is done is in small.sweep, and the same command goes on with it" in err
    assert out.startswith("small: interrupted\n")
    done = fabemu.load_sweep("small.sweep").table.num_rows
    assert 3 <= done < 80
    again = sweep_command(*options)
    assert again.returncode == 0
    assert f"80 runs, {done} of them done before" in again.stderr
    assert "80 finished" in again.stdout
    assert len(journal.read_bytes().splitlines()) == 80, "nothing is done twice"
    assert not workers_of(process.pid)


def test_a_worker_that_is_killed_is_replaced_and_its_run_counts_once(folder):
    (folder / "long.toml").write_text(SMALL.replace("100KB", "400MB"))
    options = ["long.toml", "--set", "switch.buffer=[8MiB,16MiB]", "--seeds", "3", "-j", "1", "--retries", "1"]
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = folder / "long.sweep" / "journal.jsonl"
    wait_for(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= 1)
    (worker,) = wait_for(lambda: workers_of(process.pid))
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    sweep = fabemu.load_sweep("long.sweep")
    assert sweep.table.num_rows == 6 and set(sweep.table.column("status").to_pylist()) == {"finished"}
    assert sorted(sweep.costs.column("attempts").to_pylist()) == [1, 1, 1, 1, 1, 2]
    assert len(set(sweep.costs.column("worker").to_pylist())) == 2
    assert len(journal.read_bytes().splitlines()) == 6


def test_a_run_that_kills_every_worker_leaves_the_others_alone(folder):
    plan = plan_sweep("small.toml", *parameters_of({"workload.0.size": ["100GB", "100KB"]}))
    workers = LocalWorkers(1)
    try:
        for _ in range(4):
            workers.submit(task_of(plan, 0))
            wait_for(lambda: any(is_busy(worker) for worker in workers_of(os.getpid())) or workers.wait(0.01))
            (worker,) = workers_of(os.getpid())
            os.kill(worker, signal.SIGKILL)
            (outcome,) = wait_for(lambda: workers.wait(0.1))
            assert outcome.status == "failed"
            assert outcome.error == "the worker process died: killed by SIGKILL"
        workers.submit(task_of(plan, 1))
        (outcome,) = wait_for(lambda: workers.wait(0.1))
        assert outcome.status == "finished"
    finally:
        workers.close()
    assert not workers_of(os.getpid())


def test_a_sweep_whose_process_is_killed_leaves_no_worker_and_goes_on(folder):
    options = ["small.toml", "--set", "workload.0.size=[50KB,100KB]", "--seeds", "20", "-j", "1", "-q"]
    process = subprocess.Popen([*COMMAND, *options])
    journal = folder / "small.sweep" / "journal.jsonl"
    wait_for(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= 3)
    workers = workers_of(process.pid)
    process.kill()
    process.wait()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    assert sweep_command(*options).returncode == 0
    assert fabemu.load_sweep("small.sweep").info["counts"]["finished"] == 40
    assert len(journal.read_bytes().splitlines()) == 40


def test_a_worker_that_cannot_start_is_an_error_of_the_machine(folder, monkeypatch):
    (folder / "broken").mkdir()
    (folder / "broken" / "sitecustomize.py").write_text(
        "import sys\nif 'fabemu.sweeps.worker' in ' '.join(sys.orig_argv):\n    raise SystemExit('no such luck')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{folder / 'broken'}")
    done = sweep_command("small.toml", "--set", "switch.buffer=[4MiB,8MiB]", "--retries", "5")
    assert done.returncode == 5
    assert "error: no worker process can be started: exit code 1; it said: SystemExit: no such luck" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--set", "switch.ecn.kmn=[1KiB,2KiB]"), 2, 'unknown key; did you mean "kmin"?'),
        (("--set", "switch.ecn.kmn=1KiB..2KiB", "--design", "lhs", "--points", "3"), 2, 'did you mean "kmin"?'),
        (("--set", "workload.4.size=[1KB,2KB]"), 2, "workload is a list of 1 element, 0 to 0"),
        ((), 2, "no parameter: give one or more with --set 'key=[value, value]' or --set 'key=low..high'"),
        (("--set", "switch.buffer=4MiB"), 2, "no parameter"),
        (("--set", "switch.buffer=1MiB..2MiB"), 2, "a range needs --design random or lhs"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--seeds", "x"), 2, "'x' is neither a count such as 20 nor a list"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--seeds", "0"), 2, "0 seeds: a sweep has 1 to 100,000"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--seeds", "4,4"), 2, "seed 4 is listed twice"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "-j", "0"), 2, "0 jobs: give 1 to 1,024 processes"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--retries", "-1"), 2, "-1 retries: give 0 or more"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--objective", "slowdown"), 2, "there is no figure 'slowdown'"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--plot", "p.gif"), 2, "the name must end in .png, .svg or .pdf"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--dask", "nonsense"), 2, "is not the address of a Dask scheduler"),
        (
            ("--set", "switch.buffer=[4MiB,8MiB]", "--dask", "tcp://h:70000"),
            2,
            "is not the address of a Dask scheduler",
        ),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--dask", "tcp://h:0"), 2, "is not the address of a Dask scheduler"),
        (("--set", "switch.buffer=[4MiB,8MiB]", "--out", "small.toml"), 2, "small.toml: is a file, not a directory"),
    ],
)
def test_what_is_refused_before_anything_runs(folder, capsys, arguments, code, message):
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "small.toml", *arguments])
    assert ended.value.code == code
    said = capsys.readouterr()
    assert message in said.err and said.out == ""
    assert not Path("small.sweep").exists()


def test_a_sweep_is_not_overwritten_and_a_finished_one_is_shown_again(folder):
    options = ("small.toml", "--set", "switch.buffer=[4MiB,8MiB]")
    first = sweep_command(*options)
    before = parts("small.sweep")
    again = sweep_command(*options, "--plot", "buffer.svg")
    assert again.returncode == 0 and again.stdout == first.stdout
    assert "2 runs, 2 of them done before" in again.stderr
    assert "switch.buffer" in Path("buffer.svg").read_text()
    other = sweep_command("small.toml", "--set", "switch.buffer=[4MiB,16MiB]")
    assert other.returncode == 2
    assert "small.sweep: holds another sweep (with other parameters); replace it with --force" in other.stderr
    assert parts("small.sweep") == before
    assert sweep_command("small.toml", "--set", "switch.buffer=[4MiB,16MiB]", "--force").returncode == 0
    assert parts("small.sweep") != before


def test_a_picture_that_cannot_be_drawn_leaves_the_summary(folder, capsys, monkeypatch):
    def draw(*_):
        raise MachineError("cannot write kmin.png: No space left on device")

    monkeypatch.setattr("fabemu.sweeps.picture.draw", draw)
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "small.toml", *KMIN, "-j", "1", "-q", "--plot", "kmin.png"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (5, "error: cannot write kmin.png: No space left on device\n")
    assert "medians over the seeds" in out


def test_tune_finds_the_best_that_keeps_the_limits(folder):
    pytest.importorskip("optuna")
    options = (
        "tune",
        "small.toml",
        "--set",
        "workload.0.size=[1KB,10KB,400KB]",
        "--set",
        "switch.pfc.alpha=1/64..2:log",
    )
    options += ("--maximize", "fct_ps.max", "--limit", "queue_max_bytes<=1e5", "--trials", "9", "--batch", "3")
    done = fabemu_command(*options, "-j", "1", "--json")
    assert done.returncode == 0 and done.stderr.startswith("tuning small: 9 trials for greatest fct_ps.max, queue_max_")
    document = json.loads(done.stdout)
    assert document["status"] == "finished" and document["counts"]["finished"] == 9
    kept = [point for point in document["points"] if point["highs"]["queue_max_bytes"] <= 1e5]
    best = max(kept, key=lambda point: point["medians"]["fct_ps.max"])
    assert document["best"]["point"] == best["point"] and best["settings"]["workload.0.size"] == "10KB"
    again = fabemu_command(*options)
    assert "best\n  --set workload.0.size=10KB\n  --set switch.pfc.alpha=" in again.stdout
    none = fabemu_command(*options, "--limit", "messages.done=0", "--out", "none")
    assert none.returncode == 1
    assert none.stderr.splitlines()[-1] == "error: no point keeps all limits with every seed"


def test_the_page_lists_every_figure():
    page = (ROOT / "docs" / "SWEEPS.md").read_text(encoding="utf-8")
    for figure in FIGURES.values():
        place = f"`{figure.place}`" if figure.place else "greatest `queue_max_bytes` of the table `ports`"
        assert f"| `{figure.name}` | {figure.unit} | {figure.meaning} | {place} |\n" in page
    table = page.split("| column | unit |")[1].split("\n\n")[0]
    assert len(table.splitlines()) == 2 + len(FIGURES)


def workers_of(parent):
    """Worker processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status, line = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(status.rpartition(")")[2].split()[1]) == parent and b"fabemu.sweeps.worker" in line:
                found.append(int(entry.name))
    return found


def is_busy(worker):
    """Whether a worker process has a run at work: its directory of the run is there."""
    try:
        scratch = dict(item.partition(b"=")[::2] for item in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0"))[
            b"TMPDIR"
        ]
        return any(Path(os.fsdecode(scratch)).glob("*/run/run.json"))
    except (OSError, KeyError):
        return False


def wait_for(condition):
    """What a condition gives when it holds at last."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it has not come")
