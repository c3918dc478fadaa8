"""Whole numbers as options: what is none, or out of range, is told what is allowed, by every command."""

import re

import click
import pytest

from fabemu.cli import campaign, main, sweep, tune
from fabemu.cli.whole import Whole, WholeJudgedLater
from fabemu.sweeps import design, local, points, study
from fabemu.threads import cores
from tests.cli.test_advice import LEAVES
from tests.small import SMALL

OPTIONS = {
    (*words, item.opts[-1]): (command, item)
    for words, command in LEAVES.items()
    for item in command.params
    if isinstance(item, click.Option) and isinstance(item.type, Whole | WholeJudgedLater)
}
SETTINGS = {
    "sweep": ("--set", "switch.buffer=4MiB..8MiB", "--design", "lhs"),
    "tune": ("--set", "switch.buffer=4MiB..8MiB", "--minimize", "slowdown.p99"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    return err.splitlines()[-1]


def test_all_whole_numbers_are_of_this_kind():
    others = [
        (*words, item.opts[-1])
        for words, command in LEAVES.items()
        for item in command.params
        if isinstance(item.type, click.types.IntParamType | click.types.FloatParamType)
        and not isinstance(item.type, Whole)
    ]
    assert not others and len(OPTIONS) > 15


@pytest.mark.parametrize("text", ["x", "1.5", "", "1e3"])
@pytest.mark.parametrize("place", OPTIONS, ids=" ".join)
def test_what_is_no_number_is_told_the_range(capsys, place, text):
    line = refused(capsys, *place[:-1], *("x" for _ in range(1)), place[-1], text)
    assert re.search(rf"{re.escape(repr(text))} is not a whole number; allowed is (\d[\d,]* to \d|from \d on)", line), (
        line
    )
    if place[-1] == "--threads":
        assert line.endswith(f"allowed is 1 to {cores()}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--threads", "0"), "0 threads: this process may use"),
        (("run", "--threads", "100000"), "100000 threads: this process may use"),
        (("run", "--seed", "-1"), "-1 is not in the range 0<=x<=9223372036854775807"),
        (("sweep", "--points", "0"), "0 points: a sweep has 1 to 20,000"),
        (("sweep", "--points", "2", "--design-seed", "-1"), "-1 is not in the range 0<=x<=9223372036854775807"),
        (("sweep", "--points", "2", "--jobs", "0"), "0 jobs: give 1 to 1,024 processes"),
        (("sweep", "--points", "2", "--retries", "-1"), "-1 retries: give 0 or more"),
        (
            ("sweep", "--points", "2", "--seeds", "0"),
            "0 seeds: a sweep has 1 to 100,000 of them; for seed 0 alone write a list: 0,",
        ),
        (("sweep", "--points", "2", "--seeds", "100001"), "100001 seeds: a sweep has 1 to 100,000 of them; for seed"),
        (
            ("sweep", "--points", "2", "--seeds", "x"),
            "there can be 1 to 100,000 seeds, each from 0 to 2**63-1",
        ),
        (
            ("sweep", "--points", "2", "--seeds", "-3"),
            "'-3' is neither a count such as 20 nor a list such as 1,5,9 or [1,5,9]; there can be 1 to",
        ),
        (
            ("sweep", "--points", "2", "--seeds", "9" * 5000),
            f"'{'9' * 60}...' is neither a count such as 20 nor a list such as 1,5,9 or [1,5,9]; there can be 1 to",
        ),
        (("tune", "--trials", "0"), "0 trials: a study has 1 to 10,000"),
        (("tune", "--batch", "0"), "0 trials at a time: give 1 or more"),
        (("tune", "--sampler-seed", "-1"), "the seed of the optimiser is 0 to 4,294,967,295"),
        (("perf", "--iterations", "0"), "0 is not in the range x>=1"),
    ],
)
def test_what_is_out_of_range_is_told_the_range(capsys, arguments, message):
    if arguments[0] == "tune":
        pytest.importorskip("optuna")
    name, *rest = arguments
    assert message in refused(capsys, name, "small.toml", *SETTINGS.get(name, ()), *rest)


def test_ranges_are_those_of_what_takes_the_numbers():
    assert campaign._SEEDS_MAX == points.SEEDS_MAX
    assert campaign._JOBS_MAX == local._JOBS_MAX
    assert sweep._POINTS_MAX == design.POINTS_MAX
    assert (tune._TRIALS_MAX, tune._SAMPLER_SEEDS) == (study.TRIALS_MAX, study._SAMPLER_SEEDS)
