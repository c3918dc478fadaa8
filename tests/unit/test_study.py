"""Tuning: what is chosen, what is best, and that a study is the same however it was done."""

import math
import random
import sys

import numpy as np
import pytest

import fabemu
from fabemu.errors import InputError, ScenarioError
from fabemu.sweeps import study_execution
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.study import Aim, Limit, Study, best_of, judge, read_aim, read_limit
from fabemu.sweeps.task import Outcome

pytest.importorskip("optuna")

SMALL = {
    "name": "small",
    "fabric": {"kind": "single-switch", "hosts": 4},
    "workload": [{"kind": "incast", "receiver": "h0", "senders": ["h1", "h2"], "size": "10KB"}],
}
SETTINGS = {
    "switch.ecn.kmin": "10KiB..1000KiB:log",
    "switch.ecn.kmax": "100KiB..2MiB",
    "switch.ecn.pmax": "0.1..1",
    "nic.cc.kind": ["dcqcn", "none"],
}
AIM = Aim("slowdown.p99", limits=(Limit("pauses.count", "=", 0.0),))


def outcome_of(task):
    """A valley at kmin = 100 KiB and pmax = 0.5 with DCQCN; pauses above kmin = 300 KiB."""
    ecn = task.scenario.switch.ecn
    depth = math.log(ecn.kmin / 102_400) ** 2 + 4 * (ecn.pmax - 0.5) ** 2 + (task.scenario.nic.cc.kind == "none")
    figures = {"slowdown.p99": 1 + depth + task.seed / 1000, "pauses.count": max(0, ecn.kmin - 307_200)}
    return Outcome(task.index, "finished", figures)


class Workers:
    name = "nobody"

    def __init__(self, slots=3, stop_after=None):
        self.slots, self.stop_after = slots, stop_after
        self.tasks, self.done, self.execution = [], 0, None

    def submit(self, task):
        self.tasks.append(task)

    def wait(self, seconds):
        random.shuffle(self.tasks)
        self.done += 1
        if self.done == self.stop_after:
            self.execution.stop("SIGINT")
        return [outcome_of(self.tasks.pop())]

    def close(self):
        pass


def work(path, workers, aim=AIM, trials=40, **more):
    study = Study(SMALL, *parameters_of(SETTINGS), aim, trials=trials, seeds=2, **more)
    execution = study_execution(study, path, retries=0, force=False, keep=False)
    workers.execution = execution
    status = execution.run(lambda left: workers, None, lambda: study.more(execution.outcomes))
    return status, fabemu.load_sweep(path)


def parts(path):
    return [file.read_bytes() for file in sorted((path / "results").iterdir())]


def test_it_finds_the_valley_within_the_limits(tmp_path):
    status, sweep = work(tmp_path / "s", Workers(), trials=80)
    assert status == "finished" and sweep.table.num_rows == 160
    best = sweep.best()
    assert best.settings["nic.cc.kind"] == "dcqcn"
    assert 50_000 < best.numbers["switch.ecn.kmin"] < 200_000
    assert best.medians["slowdown.p99"] < 1.2 and best.highs["pauses.count"] == 0
    # Better than as many points drawn blindly.
    last = [point.medians["slowdown.p99"] for point in sweep.points() if point.point >= 60 and point.runs]
    first = [point.medians["slowdown.p99"] for point in sweep.points() if point.point < 20 and point.runs]
    assert sorted(last)[len(last) // 2] < sorted(first)[len(first) // 2]
    assert sweep.info["tune"] == {**AIM.to_dict(), "trials": 80}
    assert sweep.info["definition"]["points"] == 80


def test_a_study_is_the_same_at_any_number_of_workers(tmp_path):
    work(tmp_path / "a", Workers(1))
    work(tmp_path / "b", Workers(16))
    assert parts(tmp_path / "a") == parts(tmp_path / "b")
    _, other = work(tmp_path / "c", Workers(16), sampler_seed=2)
    assert other.table.column("switch.ecn.kmin.text") != fabemu.load_sweep(tmp_path / "a").table.column(
        "switch.ecn.kmin.text"
    )


@pytest.mark.parametrize("stop_after", [3, 16, 37])
def test_an_interrupted_study_goes_on(tmp_path, stop_after):
    work(tmp_path / "whole", Workers())
    status, _ = work(tmp_path / "s", Workers(stop_after=stop_after))
    assert status == "interrupted"
    again = Workers()
    status, sweep = work(tmp_path / "s", again)
    assert status == "finished" and parts(tmp_path / "s") == parts(tmp_path / "whole")
    ran = [row for row in sweep.table.to_pylist() if row["status"] == "finished"]
    assert again.done <= len(ran) - stop_after + 3, "what was done is not done again"


def test_more_trials_go_on_after_the_end(tmp_path):
    work(tmp_path / "whole", Workers(), trials=40)
    _, short = work(tmp_path / "s", Workers(), trials=16)
    assert short.table.num_rows == 32
    again = Workers()
    _, sweep = work(tmp_path / "s", again, trials=40)
    assert sweep.table.num_rows == 80 and again.done <= 48
    assert parts(tmp_path / "s") == parts(tmp_path / "whole")


def test_another_aim_is_another_study(tmp_path):
    # More points than the first batch has: that they differ in number says nothing.
    work(tmp_path / "s", Workers(), trials=16)
    with pytest.raises(fabemu.OutputError, match="with another objective, or not by the same optimiser"):
        work(tmp_path / "s", Workers(), trials=8, aim=Aim("fct_ps.p99"))


# What is best.


def test_the_median_is_judged_and_every_seed_must_keep_the_limits():
    runs = [{"slowdown.p99": value, "pauses.count": count} for value, count in ((3.0, 0), (1.0, 0), (9.0, 2))]
    assert judge(AIM, runs) == (3.0, [2.0])
    assert judge(AIM, [{"pauses.count": 0}])[0] == math.inf
    assert judge(Aim("slowdown.p99", True), [])[0] == -math.inf


def test_the_best_keeps_all_limits_and_has_all_runs():
    def run(value, count=0):
        return {"slowdown.p99": value, "pauses.count": count}

    runs = {0: [run(5), run(6)], 1: [run(1), run(1, 1)], 2: [run(2)], 3: [run(4), run(5)], 4: [run(math.inf)] * 2}
    assert best_of(AIM, runs, 2) == (3, 4.5)
    assert best_of(Aim("slowdown.p99", True), runs, 2) == (0, 5.5)
    assert best_of(AIM, {1: runs[1]}, 2) is None


@pytest.mark.parametrize(
    ("text", "value", "kept"),
    [
        ("pauses.count=0", 0, True),
        ("pauses.count = 0", 1, False),
        ("queue_max_bytes<=2e6", 2_000_000, True),
        ("queue_max_bytes <= 2e6", 2_000_001, False),
        ("messages.done>=10", 10, True),
        ("messages.done>=10", 9, False),
        ("slowdown.p99.9<=3", 2.5, None),
        ("slowdown.p99<=3", math.inf, False),
        ("slowdown.p99<=3", math.nan, False),
    ],
)
def test_limits(text, value, kept):
    if kept is None:
        with pytest.raises(InputError, match="there is no figure"):
            read_limit(text.replace("p99.9", "p98"))
        assert read_limit(text).figure == "slowdown.p99.9"
        return
    assert (read_limit(text).violation([value]) <= 0) is kept
    assert read_limit(str(read_limit(text))) == read_limit(text)


@pytest.mark.parametrize("value", ["1234567", "0.1234567891", "-3", "1e300", "30000000001"])
def test_a_limit_is_stored_as_it_was_given(value):
    limit = read_limit(f"queue_max_bytes<={value}")
    aim = Aim("slowdown.p99", False, (limit,))
    assert Aim.from_dict(aim.to_dict()) == aim
    assert limit.violation([float(value)]) == 0 < limit.violation([np.nextafter(float(value), np.inf)])


def test_a_limit_beyond_all_numbers():
    with pytest.raises(InputError, match="is not a limit: 1e400 is beyond all numbers"):
        read_limit("pauses.count=1e400")


@pytest.mark.parametrize(
    "text",
    [
        "pauses.count",
        "pauses.count<0",
        "pauses.count=none",
        "=0",
        "pauses.count=1ms",
        "pauses.count=1.2.3",
        "pauses.count=.",
    ],
)
def test_what_is_no_limit(text):
    with pytest.raises(InputError, match="is not a limit: write FIGURE<=NUMBER"):
        read_limit(text)


def test_studies_that_cannot_be(tmp_path, monkeypatch):
    for minimize, maximize in ((None, None), ("slowdown.p99", "slowdown.p50")):
        with pytest.raises(InputError, match="a study has one objective"):
            read_aim(minimize, maximize, ())
    with pytest.raises(InputError, match="there is no figure 'speed'"):
        read_aim("speed", None, ())
    for more, message in (
        ({"trials": 0}, "0 trials: a study has 1 to 10,000"),
        ({"trials": 5, "batch": 0}, "0 trials at a time: give 1 or more"),
        ({"trials": 5, "sampler_seed": -1}, "-1: the seed of the optimiser is 0 to 4,294,967,295"),
        ({"trials": 5, "sampler_seed": 2**32}, "4294967296: the seed of the optimiser is 0 to"),
    ):
        with pytest.raises(InputError, match=message):
            Study(SMALL, *parameters_of(SETTINGS), AIM, **more)
    with pytest.raises(ScenarioError, match='unknown key; did you mean "kmin"'):
        Study(SMALL, *parameters_of({"switch.ecn.kmn": "1KiB..2KiB"}), AIM, trials=8)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"tuning needs optuna: install it with pip install 'fabemu\[tune\]'"):
        fabemu.tune(SMALL, SETTINGS, tmp_path / "s", minimize="slowdown.p99")
