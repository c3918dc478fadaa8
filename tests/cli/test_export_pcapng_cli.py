"""``fabemu export pcapng``: what it prints, writes and exits with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main

SCENARIO = {
    "fabric": {"kind": "single-switch", "hosts": 3},
    "workload": [{"kind": "incast", "receiver": "h2", "senders": "h0:h1", "size": "20KB"}],
}


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    return fabemu.run(SCENARIO, tmp_path_factory.mktemp("exported") / "three.run", trace="packets").directory


def export(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "export", "pcapng", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])},
        timeout=120,
        check=False,
    )


def test_the_path_goes_to_stdout_and_the_contents_to_stderr(run_directory, tmp_path):
    done = export(tmp_path, run_directory)
    assert (done.returncode, done.stdout) == (0, "three.pcapng\n")
    assert done.stderr == "40 frames on 6 link directions: 20 data, 20 ack\n"
    assert (tmp_path / "three.pcapng").read_bytes()[:4] == bytes([0x0A, 0x0D, 0x0D, 0x0A])
    again = export(tmp_path, run_directory)
    assert again.returncode == 2
    assert "three.pcapng: exists already; replace it with --force" in again.stderr
    assert export(tmp_path, run_directory, "--force").returncode == 0


def test_a_capture_goes_to_stdout_whole_or_not_at_all(run_directory, tmp_path):
    command = [sys.executable, "-m", "fabemu.cli", "export", "pcapng", str(run_directory), "-o", "-"]
    environment = {**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"40 frames on 6 link directions: 20 data, 20 ack\n")
    assert not list(tmp_path.iterdir())
    assert export(tmp_path, run_directory).returncode == 0
    assert done.stdout == (tmp_path / "three.pcapng").read_bytes()
    nothing = export(tmp_path, run_directory, "-o", "-", "--from", "1s")
    assert (nothing.returncode, nothing.stdout) == (2, "") and "no frame on the 6 chosen links" in nothing.stderr


def test_filters_choose(run_directory, tmp_path):
    done = export(tmp_path, run_directory, "--port", "h*->sw0", "--to", "1us", "-o", "some.pcapng")
    assert (done.returncode, done.stdout) == (0, "some.pcapng\n")
    count = int(done.stderr.split()[0])
    assert 0 < count < 20
    small = export(tmp_path, run_directory, "--host", "h0", "--snaplen", "64", "-o", "small.pcapng")
    assert small.returncode == 0
    assert (tmp_path / "small.pcapng").stat().st_size < 5000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "nowhere: does not exist; a run directory is what `fabemu run` wrote"),
        (["RUN", "--host", "h9"], '--host "h9" matches none of the 4 hosts and switches'),
        (["RUN", "--from", "1s"], "no frame on the 6 chosen links in this time"),
        (["RUN", "--from", "x"], '"x" is not a time'),
        (["RUN", "--from=-5us"], "a time cannot be negative"),
        (["RUN", "--snaplen", "0"], "--snaplen"),
        (["RUN", "-o", "no/where"], "cannot be written"),
    ],
)
def test_wrong_input_is_said_in_one_line_and_exits_with_2(run_directory, tmp_path, arguments, text):
    done = export(tmp_path, *[str(run_directory) if argument == "RUN" else argument for argument in arguments])
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", ["pcapng RUN", "perfetto RUN", "csv RUN flows", "hpcc RUN"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_part_of_a_file(run_directory, tmp_path, monkeypatch, arguments, number, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fabemu.whole_file.os.replace", lambda *_: signal.raise_signal(number))
    before = signal.signal(number, lambda *_: None)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["export", *(str(run_directory) if word == "RUN" else word for word in arguments.split())])
    finally:
        signal.signal(number, before)
    assert ended.value.code == code
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
