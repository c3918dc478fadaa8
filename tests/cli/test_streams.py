"""Readers of standard output that leave, and talk that cannot be written: real pipes, real descriptors."""

import json
import os
import resource
import shlex
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu
from fabemu.cli.streams import _Patient
from tests.small import SMALL

SECONDS = 120
STALLED = SMALL + '[[fault]]\nkind = "link-down"\nlink = ["h0", "sw0"]\nstart = "1us"\n'
COMMANDS = {
    "run": ("run", "small.toml", "--force"),
    "run json": ("run", "small.toml", "--force", "--json"),
    "check": ("check", "small.toml"),
    "show": ("check", "small.toml", "--show"),
    "sweep": ("sweep", "small.toml", "--set", "switch.buffer=[4MiB,8MiB]", "-j", "1"),
    "schema": ("schema",),
    "help": ("--help",),
    "run help": ("run", "--help"),
    "version": ("--version",),
    "explain": ("explain",),
    "report": ("report", "made.run", "--text"),
    "health": ("health", "made.run"),
    "compare": ("compare", "made.run", "other.run"),
    "csv": ("export", "csv", "made.run", "flows", "--force"),
}
"""Commands whose work is more than what they print, or is done when they print it."""

STREAMING = {
    "perf": ("perf", "small.toml", "-b", "1KiB", "-e", "64MiB", "-f", "2"),
    "csv": ("export", "csv", "made.run", "flows", "-o", "-"),
    "goal": ("export", "goal", "small.toml"),
}
"""Commands that are for nothing but their output."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "stalled.toml").write_text(STALLED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).resolve().parents[1]))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return tmp_path


@pytest.fixture
def made(folder):
    for name in ("made.run", "other.run"):
        fabemu.run("small.toml", output=name)
    return folder


def command(*arguments, **streams):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", *arguments], timeout=SECONDS, check=False, text=True, **streams
    )


def without_reader(*arguments, **streams):
    """A command whose reader of standard output has left before it writes a byte."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        return command(*arguments, stdout=theirs, **{"stderr": subprocess.PIPE, **streams})
    finally:
        os.close(theirs)


@pytest.mark.parametrize(("name", "unbuffered"), [*((name, "") for name in COMMANDS), ("run", "1"), ("show", "1")])
def test_a_command_comes_to_its_end_though_nobody_reads_what_it_prints(made, monkeypatch, name, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    wanted = command(*COMMANDS[name], capture_output=True)
    done = without_reader(*COMMANDS[name], *(("--force",) if name == "sweep" else ()))
    assert done.returncode == wanted.returncode == 0, done.stderr
    for sign in ("Traceback", "error", "Exception ignored", "roken pipe"):
        assert sign not in done.stderr
    if name in ("run", "run json"):
        run = fabemu.load("small.run")
        assert run.info["status"] == "finished" and run.flows.num_rows == 3
    if name == "sweep":
        assert fabemu.load_sweep("small.sweep").info["status"] == "finished"
    if name == "csv":
        assert len(Path("flows.csv").read_text().splitlines()) == 4


def test_the_verdict_is_told_though_nobody_reads_the_summary(folder):
    wanted = command("run", "stalled.toml", capture_output=True)
    assert wanted.returncode == 1
    done = without_reader("run", "stalled.toml", "--force")
    assert (done.returncode, done.stderr) == (1, wanted.stderr)
    assert "error: " in done.stderr


def test_only_the_first_line_is_read(folder):
    script = f"set -o pipefail; {shlex.quote(sys.executable)} -m fabemu.cli run small.toml | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=SECONDS, check=False, text=True)
    assert (done.returncode, done.stdout) == (0, "small: finished\n")
    assert fabemu.load("small.run").info["status"] == "finished"


@pytest.mark.parametrize("name", STREAMING)
def test_a_command_that_is_for_nothing_but_its_output_ends_with_its_reader(made, name):
    done = without_reader(*STREAMING[name])
    assert (done.returncode, done.stderr) == (141, "")


def test_a_table_ends_where_its_reader_leaves(made):
    arguments = [sys.executable, "-m", "fabemu.cli", *STREAMING["perf"]]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("# small: all-reduce")
        process.stdout.close()
        assert process.wait(SECONDS) == 141
        assert process.stderr.read() == ""


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2</dev/null"])
@pytest.mark.parametrize("arguments", ["run small.toml", "sweep small.toml --set switch.buffer=[4MiB,8MiB] -j 1"])
def test_talk_that_cannot_be_written_is_dropped(folder, redirection, arguments):
    script = f"{shlex.quote(sys.executable)} -m fabemu.cli {arguments} --json {redirection}"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, timeout=SECONDS, check=False, text=True)
    assert done.returncode == 0
    json.loads(done.stdout)
    if arguments.startswith("run"):
        run = fabemu.load("small.run")
        assert run.info["status"] == "finished" and run.flows.num_rows == 3
    else:
        assert fabemu.load_sweep("small.sweep").info["status"] == "finished"


@pytest.mark.parametrize(("arguments", "code"), [("run stalled.toml", 1), ("run nothing.toml", 2), ("runn", 2)])
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_the_exit_code_is_told_though_the_error_cannot_be(folder, redirection, arguments, code):
    script = f"{shlex.quote(sys.executable)} -m fabemu.cli {arguments} {redirection}"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, timeout=SECONDS, check=False, text=True)
    assert done.returncode == code


def test_output_that_cannot_be_written_for_another_reason_is_an_error(folder):
    with open("/dev/full", "w") as full:
        done = command("run", "small.toml", "-q", stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (5, "error: standard output: No space left on device\n")
    assert fabemu.load("small.run").info["status"] == "finished"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [("schema",), ("check", "small.toml", "--show"), ("export", "goal", "small.toml")]
)
def test_a_part_that_was_written_is_not_taken_for_the_whole(folder, monkeypatch, unbuffered, arguments):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    size = len(command(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout) // 2

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    with open("out", "w") as out:
        done = command(*arguments, stdout=out, stderr=subprocess.PIPE, preexec_fn=limit)
    assert done.returncode == 5 and done.stderr.endswith("error: standard output: File too large\n")
    assert Path("out").stat().st_size == size


def test_a_peer_that_resets_its_connection_is_a_reader_that_has_left(folder):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as theirs:
        ours, _ = server.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ours.close()
        done = command("run", "small.toml", "-q", stdout=theirs, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert fabemu.load("small.run").info["status"] == "finished"


def test_a_terminal_that_has_been_closed_is_a_reader_that_has_left():
    ours, theirs = os.openpty()
    stream = _Patient(theirs, is_talk=False)
    assert stream.write(b"seen") == 4 and not stream.is_gone
    os.close(ours)
    assert stream.write(b"not seen") == 8 and stream.is_gone
    os.close(theirs)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape", "utf-8"])
def test_characters_that_an_encoding_lacks_are_escaped(folder, monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    name = "Z\u00fcrich \u2192 \U0001f600"
    Path("small.toml").write_text(f'name = "{name}"\n{SMALL}', encoding="utf-8")
    # Click takes ASCII for a setting gone wrong, and writes UTF-8.
    encoding = "utf-8" if encoding.startswith("ascii") else encoding
    done = command("run", "small.toml", "-q", "-o", "x.run", stdout=subprocess.PIPE, encoding=encoding)
    assert done.returncode == 0
    assert json.loads(f'"{done.stdout.splitlines()[0]}"') == f"{name}: finished"
    done = command("run", "small.toml", "--json", "-q", "-o", "y.run", stdout=subprocess.PIPE, encoding=encoding)
    assert (done.returncode, json.loads(done.stdout)["name"]) == (0, name)


def test_a_directory_may_have_a_name_of_any_bytes(folder):
    name = os.fsdecode(b"\xff\xfe")
    for arguments in (
        ("run", "small.toml", "-q", "-o", f"{name}.run"),
        ("report", f"{name}.run"),
        ("health", f"{name}.run", "--json"),
        ("export", "csv", f"{name}.run", "flows"),
        ("sweep", "small.toml", "--set", "switch.buffer=[4MiB,8MiB]", "-j", "1", "-q", "-o", name),
    ):
        done = command(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="surrogateescape")
        assert done.returncode == 0, done.stderr
    assert fabemu.load(f"{name}.run").flows.num_rows == 3
    assert fabemu.load_sweep(name).table.num_rows == 2
