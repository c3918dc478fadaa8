"""`fabemu perf` and `fabemu jobs` as their users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabemu.cli import main

SCENARIOS = Path(__file__).parents[2] / "scenarios"

ONE_SWITCH = """
[fabric]
kind = "single-switch"
hosts = 6

[[workload]]
kind = "collective"
operation = "all-reduce"
size = "1MB"
algorithm = "ring"
"""


def fabemu(*arguments) -> tuple[int, str, str]:
    import click

    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def shell(rest):
        main(list(rest))

    result = CliRunner().invoke(shell, [str(item) for item in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(ONE_SWITCH)
    return path


def test_perf_prints_the_table_of_nccl_tests(scenario) -> None:
    code, out, _ = fabemu("perf", scenario, "-b", "6KB", "-e", "600KB", "-f", "10", "--type", "half")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "# s: all-reduce, 6 ranks; 2 runs measured after 1"
    titles = "size count type algorithm time algbw busbw ideal ideal busbw of ideal"
    assert " ".join(lines[1].split()) == titles
    rows = [line.split() for line in lines[3:-1]]
    assert [row[0] for row in rows] == ["6000", "60000", "600000"]
    for size, count, kind, algorithm, time_us, algbw, busbw, ideal_us, ideal_busbw, share in rows:
        assert (int(count), kind, algorithm) == (int(size) // 2, "half", "ring")
        assert float(algbw) == pytest.approx(int(size) / float(time_us) / 1000, abs=0.011)
        assert float(busbw) == pytest.approx(float(algbw) * 10 / 6, abs=0.02)
        assert float(share) == pytest.approx(100 * float(ideal_us) / float(time_us), abs=0.2)
        assert float(ideal_busbw) >= float(busbw)
    assert lines[-1].startswith("# average bus bandwidth: ")


def test_perf_in_json_says_the_same(scenario) -> None:
    code, out, _ = fabemu("perf", scenario, "-b", "6KB", "-e", "12KB", "--step", "6KB", "--json", "-w", "0", "-n", "1")
    rows = json.loads(out)["rows"]
    assert code == 0 and [row["size_bytes"] for row in rows] == [6000, 12000]
    assert all(row["time_ps"] >= row["ideal_ps"] and row["packet_hops"] > 0 for row in rows)


def test_perf_of_another_collective_leaves_the_algorithm_behind(scenario) -> None:
    code, out, _ = fabemu("perf", scenario, "--collective", "all-to-all", "-b", "60KB", "-e", "60KB")
    assert code == 0 and "all-to-all, 6 ranks" in out and "pairwise" in out


def test_perf_needs_no_collective_in_the_scenario() -> None:
    code, out, _ = fabemu("perf", SCENARIOS / "permutation" / "fat-tree-k4.toml", "-b", "64KB", "-e", "64KB")
    assert code == 0 and "all-reduce, 16 ranks" in out


def test_perf_beside_other_workloads_is_slower(tmp_path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(ONE_SWITCH + '\n[[workload]]\nkind = "incast"\nreceiver = "h0"\nsenders = "h1:h5"\nsize = "2MB"\n')
    alone, beside = (
        json.loads(fabemu("perf", path, "-b", "600KB", "-e", "600KB", "--json", *more)[1])["rows"][0]["time_ps"]
        for more in ((), ("--background",))
    )
    assert beside > 1.1 * alone


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-b", "2MB", "-e", "1MB"], "must not begin above their end"),
        (["-b", "0B"], "cannot be multiplied"),
        (["-b", "5"], "unit"),
        (["--factor", "2", "--step", "1KB"], "give one of them"),
        (["--step", "0B"], "at least 1B"),
        (["-b", "1B", "-e", "1MB", "--step", "1B"], "more than 10,000 sizes"),
        (["--collective", "allreduce"], "is not one of all-reduce"),
        (["--algorithm", "pairwise"], "all-reduce has auto, ring, tree"),
        (["--type", "fp4"], "fp4"),
    ],
)
def test_perf_refuses_what_makes_no_sense(scenario, arguments, words) -> None:
    code, _, err = fabemu("perf", scenario, *arguments)
    assert code == 2 and words in err


def test_perf_of_tokens_is_refused(tmp_path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        ONE_SWITCH.replace('"all-reduce"\nsize = "1MB"\nalgorithm = "ring"', '"moe-dispatch"\ntokens = 600')
    )
    code, _, err = fabemu("perf", path)
    assert code == 2 and "sends tokens, not a size" in err


def test_perf_leaves_out_what_is_computed_between_the_runs(tmp_path) -> None:
    plain, busy = (tmp_path / f"{name}.toml" for name in ("plain", "busy"))
    plain.write_text(ONE_SWITCH)
    busy.write_text(ONE_SWITCH + 'compute = "1ms"\n')
    rows = [json.loads(fabemu("perf", path, "-b", "60KB", "-e", "60KB", "--json")[1])["rows"] for path in (plain, busy)]
    assert rows[0] == rows[1]


def test_perf_of_one_rank_takes_no_time(tmp_path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(ONE_SWITCH + 'hosts = "h2"\n')
    code, out, _ = fabemu("perf", path, "-b", "1KB", "-e", "1KB")
    assert code == 0 and out.splitlines()[3].split()[4:] == ["0.00", "-", "-", "0.00", "-", "-"]


def test_perf_leaves_a_job_on_its_gpus(tmp_path) -> None:
    """Whether the other jobs run beside it or not."""
    path = tmp_path / "s.toml"
    jobs = """
[[job]]
name = "a"
hosts = "h0:h2"

[[job]]
name = "b"
ranks = 3

[[workload]]
kind = "collective"
job = "a"
operation = "all-reduce"
size = "1KB"
"""
    slow = '\n[[link.override]]\nbetween = ["h0", "sw0"]\nrate = "1Gbps"\n'
    path.write_text(ONE_SWITCH + 'job = "b"\n' + jobs + slow)
    row = json.loads(fabemu("perf", path, "-b", "600KB", "-e", "600KB", "--json")[1])["rows"][0]
    # On h0 it would take milliseconds.
    assert row["ranks"] == 3 and row["time_ps"] < 100 * 10**6


def test_perf_of_a_matrix_is_refused(tmp_path) -> None:
    path = tmp_path / "s.toml"
    change = '"all-to-all"\nhosts = ["h0", "h1"]\nmatrix = [["0B", "1B"], ["2B", "0B"]]'
    path.write_text(ONE_SWITCH.replace('"all-reduce"\nsize = "1MB"\nalgorithm = "ring"', change))
    code, _, err = fabemu("perf", path)
    assert code == 2 and "says every size itself" in err


def test_jobs_compares_each_job_with_itself_alone() -> None:
    code, out, _ = fabemu("jobs", SCENARIOS / "jobs" / "two-jobs.toml", "--json", "--set", "workload.0.iterations=1")
    jobs = json.loads(out)["jobs"]
    assert code == 0 and [job["name"] for job in jobs] == ["a", "b"]
    for job in jobs:
        assert job["slowdown"] == pytest.approx(job["completion_ps"] / job["alone_ps"])
        assert job["slowdown"] > 1
        assert 0 < job["communication_share"] < 1
    code, out, _ = fabemu("jobs", SCENARIOS / "jobs" / "two-jobs.toml", "--set", "workload.0.iterations=1")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["job", "a", "b"]


def test_jobs_of_a_scenario_without_any_is_refused(scenario) -> None:
    code, _, err = fabemu("jobs", scenario)
    assert code == 2 and "there is no job" in err
