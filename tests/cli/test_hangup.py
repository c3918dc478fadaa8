"""Terminals that are closed, or lost, under a command at work: real terminals, real hangups."""

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fabemu
from fabemu.cli.progress import bar
from tests.small import SMALL

LONG = SMALL.replace("100KB", "40GB")
RUN = ("run", "long.toml", "--set", "trace.interval=1us")
SWEEP = ("sweep", "long.toml", "--set", "switch.buffer=[4MiB,8MiB]", "-j", "1")
TUNE = ("tune", "long.toml", "--set", "switch.buffer=4MiB..8MiB", "--minimize", "slowdown.p99", "-j", "1")
SECONDS = 60


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "long.toml").write_text(LONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).resolve().parents[1]))
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


def wait_for(condition):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def has_begun(name):
    mark = {"run": "long.run/ports.arrow", "sweep": "long.sweep/sweep.json", "tune": "long.tune/sweep.json"}[name]
    return Path(mark).is_file()


def in_a_terminal(*arguments, before=""):
    """Start a command with a terminal of its own, as a shell would; gives its process and our end of the terminal."""
    process, ours = pty.fork()
    if not process:
        with contextlib.suppress(BaseException):
            if before:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.execv(sys.executable, [sys.executable, "-m", "fabemu.cli", *arguments])
        os._exit(99)
    return process, ours


def shown(ours, seconds=1.0):
    """What the terminal shows in a while: a terminal that nobody reads would block those who write."""
    text, end = b"", time.monotonic() + seconds
    os.set_blocking(ours, False)
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            text += os.read(ours, 65536)
        time.sleep(0.01)
    return text.decode(errors="replace")


def exit_code(process):
    found = wait_for(lambda: next(filter(any, [os.waitpid(process, os.WNOHANG)]), None))
    return os.waitstatus_to_exitcode(found[1])


@pytest.mark.parametrize("command", [RUN, SWEEP, TUNE], ids=lambda command: command[0])
def test_a_terminal_that_is_closed_ends_the_work_in_good_order(folder, command):
    if command is TUNE:
        pytest.importorskip("optuna")
    process, ours = in_a_terminal(*command)
    wait_for(lambda: shown(ours, 0.1) and has_begun(command[0]))
    assert "%" in shown(ours), "there is a bar to be lost"
    os.close(ours)
    assert exit_code(process) == 129
    if command is RUN:
        run = fabemu.load("long.run")
        assert (run.info["status"], run.info["ended_by"]) == ("interrupted", "SIGHUP")
        assert run.ports.num_rows == run.info["rows"]["ports"] > 0 and run.flows.num_rows == 3
    else:
        assert fabemu.load_sweep(f"long.{command[0]}").info["status"] == "interrupted"


def test_a_hangup_that_comes_twice_is_one(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "fabemu.cli", *RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: has_begun("run"))
    time.sleep(0.3)
    # To the very end, when the interpreter has nothing left but to leave.
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.002)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 129, err
    assert out.startswith("long: interrupted\n")
    assert fabemu.load("long.run").info["ended_by"] == "SIGHUP"


def test_a_hangup_before_the_run_has_begun(folder):
    (folder / "slow.py").write_text(
        "import os, sys\n"
        "import fabemu.compile\n"
        "number = int(sys.argv.pop(1))\n"
        "fabemu.compile.compile_plan = lambda *_, **__: os.kill(os.getpid(), number)\n"
        "from fabemu.cli import main\n"
        "main()\n"
    )
    for number, code, text in ((signal.SIGHUP, 129, "hung up"), (signal.SIGTERM, 143, "terminated")):
        command = [sys.executable, "slow.py", str(int(number)), "run", "long.toml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (done.returncode, done.stderr) == (code, f"error: {text}\n")
    assert not Path("long.run").exists()


@pytest.mark.parametrize("command", [RUN, SWEEP], ids=lambda command: command[0])
def test_under_nohup_the_work_goes_on_when_the_terminal_is_closed(folder, command):
    process, ours = in_a_terminal(*command, before="nohup")
    wait_for(lambda: shown(ours, 0.1) and has_begun(command[0]))
    assert "%" in shown(ours), "there is a bar to be lost"
    os.close(ours)
    time.sleep(1.5)  # longer than it takes until the bar is drawn again
    assert os.waitpid(process, os.WNOHANG) == (0, 0), "it is still at work"
    os.kill(process, signal.SIGTERM)
    exit_code(process)
    found = fabemu.load("long.run") if command is RUN else fabemu.load_sweep("long.sweep")
    assert found.info["status"] == "interrupted"


def test_a_second_sigterm_is_no_fault(folder):
    process = subprocess.Popen([sys.executable, "-m", "fabemu.cli", *RUN], stdout=subprocess.DEVNULL, text=True)
    wait_for(lambda: has_begun("run"))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 143
    assert fabemu.load("long.run").info["status"] in ("running", "interrupted")


class _Lost(io.StringIO):
    """A terminal that is gone."""

    is_gone = False

    def isatty(self):
        return True

    def write(self, text):
        if self.is_gone:
            raise OSError(5, "Input/output error")
        return super().write(text)

    def flush(self):
        self.write("")


@pytest.mark.parametrize("at_once", [True, False])
def test_a_bar_goes_with_its_terminal(monkeypatch, at_once):
    monkeypatch.setenv("TERM", "xterm")
    stream = _Lost()
    stream.is_gone = at_once
    with bar(stream) as show:
        show(0.1, "a tenth")
        assert at_once or "a tenth" in stream.getvalue()
        stream.is_gone = True
        show(0.2, "two tenths")
    assert "two tenths" not in stream.getvalue()
