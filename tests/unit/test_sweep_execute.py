"""The work on a sweep, with workers that do nothing: what is tried again, recorded, gone on with and refused."""

import errno
import json
import math
import os
import random
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fabemu
from fabemu.cost.machine import Room
from fabemu.errors import InputError, MachineError, OutputError
from fabemu.headline import FIGURES, check_figure
from fabemu.sweeps.execute import Execution, task_of
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import plan_sweep
from fabemu.sweeps.store import PART_ROWS
from fabemu.sweeps.task import Outcome, run_task

SMALL = {
    "name": "small",
    "fabric": {"kind": "single-switch", "hosts": 4},
    "workload": [{"kind": "incast", "receiver": "h0", "senders": ["h1", "h2"], "size": "10KB"}],
}
SETTINGS = {
    "switch.ecn.kmin": ["100KiB", "200KiB", "3MiB"],
    "switch.ecn.kmax": "2MiB",
    "switch.pfc.headroom": ["auto", "1MiB"],
}


def outcome_of(task):
    size = task.scenario.switch.ecn.kmin
    figures = {"slowdown.p99": size / 1000 + task.seed, "pauses.count": size // 1024, "digest": f"{size}-{task.seed}"}
    return Outcome(task.index, "finished", figures, cost={"wall_seconds": random.random(), "worker": "x"})


class Workers:
    """Answer in any order; `fail` gives the outcome of the first attempts, or None for the proper one."""

    name = "nobody"

    def __init__(self, slots=3, fail=lambda index, attempt: None, stop_after=None):
        self.slots, self.fail, self.stop_after = slots, fail, stop_after
        self.tasks, self.attempts, self.closed, self.most = [], {}, False, 0
        self.execution = None

    def submit(self, task):
        self.tasks.append(task)
        self.attempts[task.index] = self.attempts.get(task.index, 0) + 1
        self.most = max(self.most, len(self.tasks))

    def wait(self, seconds):
        random.shuffle(self.tasks)
        task = self.tasks.pop()
        if self.stop_after is not None and sum(self.attempts.values()) >= self.stop_after:
            self.execution.stop("SIGINT")
        return [self.fail(task.index, self.attempts[task.index]) or outcome_of(task)]

    def close(self):
        self.closed = True


def planned(seeds=4, settings=SETTINGS):
    return plan_sweep(SMALL, *parameters_of(settings), seeds=seeds)


def work(path, workers, seeds=4, settings=SETTINGS, **more):
    execution = Execution(planned(seeds, settings), path, **more)
    workers.execution = execution
    status = execution.run(lambda left: workers)
    return status, fabemu.load_sweep(path)


def parts(path):
    return {file.name: file.read_bytes() for file in sorted((path / "results").iterdir())}


def test_every_run_is_one_row(tmp_path):
    workers = Workers()
    status, sweep = work(tmp_path / "s", workers)
    assert status == sweep.info["status"] == "finished"
    assert workers.closed and workers.most == 3
    rows = sweep.table.to_pylist()
    assert [(row["point"], row["seed"]) for row in rows] == [
        (point, seed) for point in range(6) for seed in range(1, 5)
    ]
    assert rows[0]["switch.ecn.kmin"] == 102_400 and rows[0]["switch.ecn.kmin.text"] == "100KiB"
    assert rows[0]["switch.pfc.headroom"] is None and rows[0]["switch.pfc.headroom.text"] == "auto"
    assert rows[4]["switch.pfc.headroom"] == 2**20
    assert rows[0]["slowdown.p99"] == 103.4 and rows[0]["pauses.count"] == 100 and rows[0]["totals.marks"] is None
    assert {row["status"] for row in rows[:16]} == {"finished"}
    assert {row["status"] for row in rows[16:]} == {"invalid"}
    assert "kmin 3MiB is above kmax 2MiB" in rows[16]["error"]
    assert sweep.info["counts"] == {"runs": 24, "done": 24, "finished": 16, "invalid": 8}
    assert sorted(workers.attempts) == list(range(16)), "invalid points are never run"
    assert sweep.table.schema.field("switch.ecn.kmin").metadata[b"unit"] == b"bytes"
    assert set(FIGURES) < set(sweep.table.column_names)


def test_medians_and_failures(tmp_path):
    fail = lambda index, attempt: Outcome(index, "fault", error="broken") if index == 5 else None  # noqa: E731
    _, sweep = work(tmp_path / "s", Workers(fail=fail))
    points = sweep.points(["slowdown.p99"])
    assert [point.runs for point in points] == [4, 3, 4, 4, 0, 0]
    assert points[0].medians["slowdown.p99"] == 102.4 + 2.5
    assert points[0].lows["slowdown.p99"] == 103.4 and points[0].highs["slowdown.p99"] == 106.4
    assert points[1].medians["slowdown.p99"] == 102.4 + 3
    assert math.isnan(points[4].medians["slowdown.p99"])
    text = sweep.summary()
    assert "6 points x 4 seeds = 24 runs: 1 fault, 15 finished, 8 invalid" in text
    assert "point 1 (switch.ecn.kmin=100KiB, switch.pfc.headroom=1MiB), seed 2: fault\n    broken" in text
    assert text.count("kmin 3MiB is above kmax 2MiB") == 2, "once a point"
    document = json.loads(json.dumps(sweep.to_dict(), allow_nan=False))
    assert document["points"][4]["medians"]["slowdown.p99"] is None
    assert document["failures"][0]["seed"] == 2


def test_results_are_the_same_whoever_did_them(tmp_path):
    work(tmp_path / "a", Workers(1), seeds=400)
    _, sweep = work(tmp_path / "b", Workers(50), seeds=400)
    assert sweep.table.num_rows == 2400 > 2 * PART_ROWS
    assert list(parts(tmp_path / "a")) == [f"part-{part:05d}.parquet" for part in range(3)]
    assert parts(tmp_path / "a") == parts(tmp_path / "b")


def test_an_interrupted_sweep_goes_on(tmp_path):
    work(tmp_path / "whole", Workers())
    first = Workers(stop_after=7)
    status, sweep = work(tmp_path / "s", first)
    assert status == sweep.info["status"] == "interrupted" and first.closed
    done = {(row["point"], row["seed"]) for row in sweep.table.to_pylist() if row["status"] == "finished"}
    assert 0 < len(done) < 8
    second = Workers()
    status, sweep = work(tmp_path / "s", second)
    assert status == "finished"
    assert {(index // 4, 1 + index % 4) for index in second.attempts} == {
        (point, seed) for point in range(4) for seed in range(1, 5)
    } - done
    assert parts(tmp_path / "s") == parts(tmp_path / "whole")
    third = Workers()
    work(tmp_path / "s", third)
    assert not third.attempts and not third.closed, "nobody is hired for nothing"


def test_a_sweep_that_is_stopped_at_once_has_an_empty_table(tmp_path):
    class Slow(Workers):
        def wait(self, seconds):
            self.execution.stop("SIGTERM")
            return []

    status, sweep = work(tmp_path / "s", Slow(), settings={"switch.buffer": ["4MiB", "8MiB"]})
    assert status == "interrupted" and sweep.table.num_rows == 0
    assert sweep.points() == [] and sweep.failures() == []
    assert "2 points x 4 seeds = 8 runs: none done" in sweep.summary()
    assert sweep.table.schema.field("switch.buffer").metadata[b"unit"] == b"bytes"


def test_a_torn_line_of_the_journal_is_left_out(tmp_path):
    work(tmp_path / "s", Workers())
    journal = tmp_path / "s" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    again = Workers()
    status, sweep = work(tmp_path / "s", again)
    assert status == "finished" and len(again.attempts) == 1 and sweep.table.num_rows == 24


@pytest.mark.parametrize(
    "damage",
    [
        {"index": -1},
        {"index": "3"},
        {"index": 3.5},
        {"index": True},
        {"index": None},
        {"status": "done"},
        {"status": None},
        {"status": ["finished"]},
        {"status": "invalid"},
        {"error": 5},
        {"settings": None},
        {"attempts": "1"},
        {"attempts": -1},
        {"cost": []},
        {"cost": {"worker": 1}},
        {"cost": {"wall_seconds": "1"}},
        {"figures": []},
        {"figures": {}},
        {"figures": {"slowdown.p99": "x"}},
        {"figures": {"slowdown.p99": 10**400}},
        {"figures": {"pauses.count": 2**70}},
        {"figures": {"pauses.count": 1.5}},
        {"figures": {"digest": 5}},
        {"figures": {"unheard of": 5}},
        {"more": 1},
        None,
    ],
    ids=str,
)
def test_a_line_of_the_journal_that_no_sweep_has_written_is_passed_over(tmp_path, damage):
    work(tmp_path / "s", Workers())
    whole = parts(tmp_path / "s")
    journal = tmp_path / "s" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if json.loads(line)["status"] == "finished")
    index = json.loads(lines[number])["index"]
    text = "garbage" if damage is None else json.dumps(json.loads(lines[number]) | damage)
    lines[number] = text.encode() + b"\n"
    journal.write_bytes(b"".join(lines))
    again = Workers()
    status, sweep = work(tmp_path / "s", again)
    assert status == "finished" and [*again.attempts] == [index] and sweep.table.num_rows == 24
    assert parts(tmp_path / "s") == whole
    assert journal.read_bytes().startswith(b"".join(lines)), "nothing is thrown away"


@pytest.mark.parametrize("name", ["results", "costs"])
def test_a_file_where_a_folder_should_be_is_named(tmp_path, name):
    work(tmp_path / "s", Workers())
    shutil.rmtree(tmp_path / "s" / name)
    (tmp_path / "s" / name).touch()
    with pytest.raises(OutputError, match=f"s/{name}: is a file, not a directory"):
        work(tmp_path / "s", Workers())


def test_what_failed_is_tried_again_and_counts_once(tmp_path):
    def fail(index, attempt):
        return Outcome(index, "failed", error="the worker process died: killed by SIGKILL") if attempt < 3 else None

    workers = Workers(fail=fail)
    status, sweep = work(tmp_path / "s", workers)
    assert status == "finished" and sweep.info["counts"]["finished"] == 16
    assert set(workers.attempts.values()) == {3}
    assert sweep.costs.column("attempts").to_pylist() == [3] * 16 + [0] * 8
    assert sweep.table.num_rows == 24


def test_what_fails_for_good_is_reported_and_tried_anew_by_the_next_session(tmp_path):
    died = lambda index, attempt: Outcome(index, "failed", error="died") if index == 0 else None  # noqa: E731
    workers = Workers(fail=died)
    _, sweep = work(tmp_path / "s", workers, retries=1)
    assert workers.attempts[0] == 2
    assert [row["error"] for row in sweep.failures() if row["status"] == "failed"] == ["died"]
    again = Workers()
    _, sweep = work(tmp_path / "s", again)
    assert list(again.attempts) == [0] and sweep.info["counts"]["finished"] == 16
    assert sweep.table.num_rows == 24


def test_faults_and_invalid_runs_are_not_tried_again(tmp_path):
    workers = Workers(fail=lambda index, attempt: Outcome(index, "fault" if index else "invalid", error="no"))
    work(tmp_path / "s", workers)
    assert set(workers.attempts.values()) == {1}


def test_an_outcome_that_comes_twice_counts_once(tmp_path):
    class Twice(Workers):
        def wait(self, seconds):
            return super().wait(seconds) * 2

    _, sweep = work(tmp_path / "s", Twice())
    assert sweep.table.num_rows == 24
    assert len((tmp_path / "s" / "journal.jsonl").read_bytes().splitlines()) == 24


def test_workers_that_cannot_go_on_leave_what_is_done(tmp_path):
    class Lost(Workers):
        def wait(self, seconds):
            if sum(self.attempts.values()) > 6:
                raise MachineError("the scheduler is lost")
            return super().wait(seconds)

    lost = Lost()
    with pytest.raises(MachineError, match="the scheduler is lost"):
        work(tmp_path / "s", lost)
    assert lost.closed and fabemu.load_sweep(tmp_path / "s").info["status"] == "interrupted"
    status, sweep = work(tmp_path / "s", Workers())
    assert status == "finished" and sweep.table.num_rows == 24


# The directory.


def test_another_sweep_is_not_overwritten(tmp_path):
    work(tmp_path / "s", Workers())
    before = parts(tmp_path / "s")
    for settings, seeds, word in (
        (SETTINGS, 5, "with other seeds"),
        ({**SETTINGS, "switch.ecn.kmax": "1MiB"}, 4, "with other settings"),
        ({**SETTINGS, "switch.pfc.headroom": ["auto", "2MiB"]}, 4, "with other parameters"),
    ):
        with pytest.raises(OutputError) as error:
            work(tmp_path / "s", Workers(), seeds=seeds, settings=settings)
        assert f"holds another sweep ({word}); replace it with --force, or choose another with --out" in str(
            error.value
        )
    assert parts(tmp_path / "s") == before
    _, sweep = work(tmp_path / "s", Workers(), seeds=5, force=True)
    assert sweep.table.num_rows == 30


def test_force_begins_the_same_sweep_anew(tmp_path):
    work(tmp_path / "s", Workers())
    workers = Workers()
    work(tmp_path / "s", workers, force=True)
    assert len(workers.attempts) == 16


def no_workers(left):
    raise MachineError("no workers")


def test_what_is_no_sweep_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    for force in (False, True):
        with pytest.raises(OutputError, match="is not empty and not a sweep of fabemu, so it is left alone"):
            work(tmp_path / "mine", Workers(), force=force)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all of it"
    with pytest.raises(OutputError, match="is a file, not a directory"):
        work(tmp_path / "mine" / "thesis.txt", Workers())
    with pytest.raises(OutputError, match="the sweep cannot be written: Not a directory"):
        work(tmp_path / "mine" / "thesis.txt" / "s", Workers())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fabemu_sweep": "x"}', "{}"])
def test_a_damaged_sweep_file_beside_a_whole_journal(tmp_path, content):
    work(tmp_path / "s", Workers())
    target = tmp_path / "s" / "sweep.json"
    whole, before = target.read_text(), parts(tmp_path / "s")
    target.write_text(content)
    said = (
        r"s/sweep.json: the file is damaged, and without it journal.jsonl does not say which sweep it is of: put a copy"
    )
    with pytest.raises(OutputError, match=f"{said} of it back, begin the sweep anew with --force, or choose another"):
        work(tmp_path / "s", Workers())
    with pytest.raises(InputError, match=said):
        fabemu.load_sweep(tmp_path / "s")
    target.write_text(whole)
    workers = Workers()
    work(tmp_path / "s", workers)
    assert not workers.attempts and parts(tmp_path / "s") == before
    target.write_text(content)
    with pytest.raises(MachineError, match="no workers"):
        Execution(planned(), tmp_path / "s", force=True).run(no_workers)
    assert target.read_text() == content  # as it was found
    _, sweep = work(tmp_path / "s", workers, force=True)
    assert len(workers.attempts) == 16 and sweep.info["status"] == "finished"


@pytest.mark.parametrize("place", ["inner", "runs/inner", "results/a/b"])
def test_a_sweep_in_another_is_refused(tmp_path, monkeypatch, place):
    work(tmp_path / "s", Workers())
    before = sorted(tmp_path.rglob("*"))
    for force in (False, True):
        with pytest.raises(OutputError, match=f"{place}: lies in another sweep, .*/s; choose a directory outside it"):
            work(tmp_path / "s" / place, Workers(), force=force)
    monkeypatch.chdir(tmp_path / "s")  # where the name alone does not say it
    with pytest.raises(OutputError, match="inner: lies in another sweep, "):
        work(Path("inner"), Workers())
    assert sorted(tmp_path.rglob("*")) == before


def test_two_processes_do_not_write_one_sweep(tmp_path):
    first = Execution(planned(), tmp_path / "s")
    with pytest.raises(OutputError, match="another process is at work on this sweep"):
        Execution(planned(), tmp_path / "s")
    first.run(lambda left: Workers())


def test_no_file_is_ever_half_written(tmp_path, monkeypatch):
    work(tmp_path / "s", Workers(stop_after=5))
    before = parts(tmp_path / "s")

    def torn(table, draft, **_):
        draft.write(b"PAR1 and then the disk was full")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fabemu.sweeps.execute.pq.write_table", torn)
    with pytest.raises(MachineError, match=r"cannot write .*part-00000.parquet: No space left on device"):
        work(tmp_path / "s", Workers())
    assert parts(tmp_path / "s") == before
    monkeypatch.undo()
    again = Workers()
    _, sweep = work(tmp_path / "s", again)
    assert sweep.table.num_rows == 24 and not again.attempts, "the journal has it all"


@pytest.mark.parametrize("fits", [True, False])
def test_what_a_sweep_says_of_itself_outlives_a_full_disk(tmp_path, monkeypatch, fits):
    work(tmp_path / "s", Workers(stop_after=5))
    execution = Execution(planned(), tmp_path / "s")
    path = tmp_path / "s" / "sweep.json"
    before = json.loads(path.read_text())
    if not fits:
        path.write_text(json.dumps(before, separators=(",", ":")))

    def full(target, _):
        raise MachineError(f"cannot write {target}: No space left on device")

    monkeypatch.setattr("fabemu.sweeps.store.write_whole", full)
    with pytest.raises(MachineError, match=r"cannot write .*sweep.json: No space left on device"):
        execution._store.write_info(
            "interrupted on a disk that is full", counts={"done": 10**9}, definition="long" * 999
        )
    execution._store.close()
    monkeypatch.undo()
    assert json.loads(path.read_text()) == before | ({"status": "interrupted on a disk that is full"} if fits else {})
    again = Workers()
    _, sweep = work(tmp_path / "s", again)
    assert sweep.table.num_rows == 24, "the same sweep goes on"


def failing(function, times, *, match=""):
    """The function, but after so many calls with an argument that has `match` in it the disk is full."""
    left = [times]

    def either(target, *arguments, **options):
        if match in str(target):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return function(target, *arguments, **options)

    return either


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("times", range(4))
def test_a_sweep_that_a_full_disk_ends_before_its_first_run_can_begin_again(tmp_path, monkeypatch, made, times):
    path = tmp_path / "deep" / "s"
    if made:
        path.mkdir(parents=True)
    for name in ("os.replace", "os.mkdir"):
        monkeypatch.setattr(name, failing(getattr(os, name[3:]), times, match="deep"))
    with pytest.raises((MachineError, OutputError), match="No space left on device"):
        work(path, Workers())
    monkeypatch.undo()
    if not path.exists():
        assert not made and not path.parent.exists()
    elif any(path.iterdir()):
        assert fabemu.load_sweep(path).info["status"] == "interrupted"
    _, sweep = work(path, Workers())
    assert sweep.info["status"] == "finished" and sweep.table.num_rows == 24


@pytest.mark.parametrize("times", [0, 1])
def test_force_that_fails_half_way_leaves_no_sweep_that_says_that_it_is_finished(tmp_path, monkeypatch, times):
    work(tmp_path / "s", Workers())
    monkeypatch.setattr("fabemu.sweeps.store.shutil.rmtree", failing(shutil.rmtree, times))
    with pytest.raises((MachineError, OutputError), match="No space left on device"):
        work(tmp_path / "s", Workers(), force=True)
    monkeypatch.undo()
    info = json.loads((tmp_path / "s" / "sweep.json").read_text())
    assert info["status"] == "interrupted" and info["counts"]["done"] == 0
    _, sweep = work(tmp_path / "s", Workers())
    assert sweep.info["status"] == "finished" and sweep.table.num_rows == 24


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "does not exist"), ("empty", "is not a sweep; a sweep is a directory that `fabemu sweep` wrote")],
)
def test_what_cannot_be_loaded(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        fabemu.load_sweep(tmp_path / name)


@pytest.mark.parametrize("folder", ["results", "costs"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("part-00000.parquet", b"nothing"),
        ("part-00007.parquet", b""),
        ("part-00007.parquet", None),  # of another sweep
    ],
)
def test_a_part_that_is_damaged_is_named(tmp_path, folder, name, content):
    work(tmp_path / "s", Workers())
    path = tmp_path / "s" / folder / name
    if content is None:
        pq.write_table(pa.table({"point": [7]}), path)
    else:
        path.write_bytes(content)
    sweep = fabemu.load_sweep(tmp_path / "s")
    with pytest.raises(InputError, match=f"s/{folder}/{name}: cannot be read .*; remove it and give the command"):
        _ = sweep.table if folder == "results" else sweep.costs
    path.unlink()
    workers = Workers()
    _, sweep = work(tmp_path / "s", workers)
    assert not workers.attempts and (sweep.table.num_rows, sweep.costs.num_rows) == (24, 24)


def test_wrong_numbers_are_refused(tmp_path):
    with pytest.raises(InputError, match="-1 retries: give 0 or more"):
        Execution(planned(), tmp_path / "s", retries=-1)
    with pytest.raises(InputError, match="0 jobs: give 1 to"):
        fabemu.sweep(SMALL, {"switch.buffer": ["4MiB", "8MiB"]}, tmp_path / "s", jobs=0)
    with pytest.raises(InputError, match=r"there is no figure 'slowdown.p98'; did you mean 'slowdown.p9"):
        check_figure("slowdown.p98")


@pytest.mark.parametrize("call", [fabemu.sweep, fabemu.tune])
def test_a_keyword_that_is_none_is_refused(tmp_path, call):
    said = rf"^{call.__name__}\(\) got an unexpected keyword argument 'job'; did you mean 'jobs'\?$"
    with pytest.raises(TypeError, match=said):
        call(SMALL, {"switch.buffer": ["4MiB", "8MiB"]}, tmp_path / "s", job=1)
    assert not list(tmp_path.iterdir())


# One run.


def test_a_run_gives_the_figures_that_run_json_has(tmp_path):
    plan = plan_sweep(SMALL, *parameters_of({"switch.buffer": ["4MiB"]}), seeds=[7])
    outcome = run_task(task_of(plan, 0, tmp_path))
    assert outcome.status == "finished" and outcome.cost["wall_seconds"] > 0
    run = fabemu.load(tmp_path / "point-00000-seed-7")
    assert run.info["seed"] == 7
    document = run.summary().to_dict()
    for name, figure in FIGURES.items():
        if figure.place:
            found = document
            for key in re.findall(r"p99\.9|\w+", figure.place):
                found = found[int(key) if key.isdecimal() else key]
            assert outcome.figures[name] == found, name
    assert outcome.figures["queue_max_bytes"] == max(run.ports.column("queue_max_bytes").to_pylist())


def test_what_cannot_be_compiled_is_invalid():
    plan = plan_sweep(SMALL, *parameters_of({"workload.0.receiver": ["h0", "h9"]}))
    good, bad = (run_task(task_of(plan, index)) for index in (0, 1))
    assert good.status == "finished"
    assert bad.status == "invalid" and "h9" in bad.error and not bad.figures


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError(), "failed"),
        (OSError(28, "No space left on device"), "failed"),
        (fabemu.EngineFault("credit below zero"), "fault"),
        (ZeroDivisionError("division by zero"), "fault"),
    ],
)
def test_a_machine_that_fails_is_no_fault_of_the_point(monkeypatch, error, status):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("fabemu.simulate.Simulation.run", broken)
    outcome = run_task(task_of(plan_sweep(SMALL, *parameters_of({"switch.buffer": ["4MiB"]})), 0))
    assert outcome.status == status and outcome.error


def test_a_run_that_cannot_fit_names_no_option_that_sweeps_lack(monkeypatch):
    monkeypatch.setattr("fabemu.cost.admission.room", lambda: Room(10_000, "this machine"))
    outcome = run_task(task_of(plan_sweep(SMALL, *parameters_of({"switch.buffer": ["4MiB"]})), 0))
    assert outcome.status == "failed" and outcome.error.startswith("not enough memory: ")
    assert "--ignore-memory" not in outcome.error


@pytest.mark.parametrize("seeds", ["3", 1.5, [1.5], [1, "2"], None])
def test_seeds_that_are_no_whole_numbers(seeds):
    with pytest.raises(InputError, match="give a whole number, how many, or a list of whole numbers"):
        plan_sweep(SMALL, *parameters_of({"switch.buffer": ["4MiB"]}), seeds=seeds)


@pytest.mark.parametrize("jobs", ["2", 1.5, 0])
def test_jobs_that_are_no_number_of_processes(jobs):
    with pytest.raises(InputError, match=f"{jobs} jobs: give 1 to 1,024 processes"):
        fabemu.sweep(SMALL, {"switch.buffer": ["4MiB"]}, jobs=jobs)
