"""``fabemu export`` to timelines, CSV and the files of HPCC simulators: what it prints, writes and exits with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu

SCENARIO = {
    "fabric": {"kind": "single-switch", "hosts": 3},
    "workload": [{"kind": "incast", "receiver": "h2", "senders": "h0:h1", "size": "20KB"}],
}


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    return fabemu.run(SCENARIO, tmp_path_factory.mktemp("exported") / "three.run").directory


def export(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "made", "said"),
    [
        (["perfetto"], "three.json", "2 of flows"),
        (["hpcc"], "three-hpcc", "2 messages, 0 pauses and ends of pauses"),
        (["csv", "flows"], "flows.csv", "2 rows"),
    ],
)
def test_the_path_goes_to_stdout_and_what_is_in_it_to_stderr(run_directory, tmp_path, arguments, made, said):
    command = [arguments[0], run_directory, *arguments[1:]]
    done = export(tmp_path, *command)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{made}\n", f"{said}\n")
    assert (tmp_path / made).exists()
    again = export(tmp_path, *command)
    assert (again.returncode, again.stdout) == (2, "")
    assert "exists already; replace it with --force" in again.stderr
    assert export(tmp_path, *command, "--force").returncode == 0


def test_standard_output_is_no_file_of_that_name(run_directory, tmp_path):
    done = export(tmp_path, "perfetto", run_directory, "-o", "-")
    assert done.returncode == 0 and json.loads(done.stdout)["traceEvents"] and done.stderr == "2 of flows\n"
    done = export(tmp_path, "goal", run_directory / "scenario.toml", "-o", "-")
    assert done.returncode == 0 and "num_ranks 3" in done.stdout
    done = export(tmp_path, "hpcc", run_directory, "-o", "-")
    assert (done.returncode, done.stdout) == (2, "") and "- is no standard input or output here" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_is_written_is_whole(run_directory, tmp_path):
    export(tmp_path, "perfetto", run_directory, "-o", "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["otherData"]["program"] == "fabemu"
    export(tmp_path, "hpcc", run_directory, "-o", "files")
    lines = (tmp_path / "files" / "fct.txt").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["0b000001", "0b000201"], ["0b000101", "0b000201"]]
    assert (tmp_path / "files" / "pfc.txt").read_text() == ""
    streamed = export(tmp_path, "csv", run_directory, "flows", "-o", "-")
    export(tmp_path, "csv", run_directory, "flows", "-o", "flows.csv")
    assert streamed.stdout == (tmp_path / "flows.csv").read_text()
    assert streamed.stdout.startswith('"op","label","job"')


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["perfetto", "nowhere"], "nowhere: does not exist; a run directory is what `fabemu run` wrote"),
        (["perfetto", "RUN", "--from", "1s"], "nothing that is shown happened in this time; the run lasted"),
        (["csv", "RUN", "flow"], "'flow' is not a trace table; the tables are flows, ports"),
        (["csv", "RUN", "packets"], "has no packets table (it has flows, "),
        (["csv", "RUN"], "Missing argument 'TABLE'"),
        (["hpcc", "nowhere"], "nowhere: does not exist"),
        (["pcap", "RUN"], "No such command 'pcap'"),
    ],
)
def test_wrong_input_is_said_and_exits_with_2(run_directory, tmp_path, arguments, text):
    done = export(tmp_path, *[str(run_directory) if argument == "RUN" else argument for argument in arguments])
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
