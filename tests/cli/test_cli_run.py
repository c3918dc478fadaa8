"""The command line as its users meet it: output streams, exit codes, signals, and nothing overwritten or half done."""

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import fabemu
from fabemu.trace import TABLES
from tests.small import SMALL

LONG = """
[fabric]
kind = "leaf-spine"
leaves = 2
hosts_per_leaf = 4
spines = 2
[[workload]]
kind = "permutation"
size = "100GB"
"""

COMMAND = [sys.executable, "-m", "fabemu.cli"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "long.toml").write_text(LONG)
    monkeypatch.chdir(tmp_path)
    # The package may be reached by a relative PYTHONPATH.
    root = str(Path(fabemu.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", root)
    return tmp_path


def fabemu_command(*arguments, **options):
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, **options)
    assert "Traceback" not in done.stderr + done.stdout
    return done


def test_run_writes_results_to_stdout_and_talk_to_stderr(folder):
    done = fabemu_command("run", "small.toml")
    assert done.returncode == 0
    assert done.stdout.startswith("small: finished\n") and "all " in done.stdout and "digest" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr.startswith("simulating small: 4 hosts, 1 switch, 4 cables; 3 messages, 300.0 KB; seed 3")
    run = fabemu.load(folder / "small.run")
    assert run.info["status"] == "finished" and run.flows.num_rows == 3
    assert done.stdout == f"{run.summary()}\n".replace(str(run.directory), "small.run")


def test_quiet_says_nothing(folder):
    done = fabemu_command("run", "small.toml", "-q")
    assert done.returncode == 0 and done.stderr == ""


def test_json_is_one_document(folder):
    done = fabemu_command("run", "small.toml", "--json", "-o", "out")
    document = json.loads(done.stdout)
    assert document["status"] == "finished" and document["directory"] == "out"
    assert document["summary"]["sizes"][0]["count"] == 3
    assert all(check["held"] for check in document["invariants"])


def test_options_change_the_scenario(folder):
    arguments = ("--seed", 9, "--set", "workload.0.size=50KB", "--until", "1ms", "--trace", "flows", "--threads", 1)
    document = json.loads(fabemu_command("run", "small.toml", "--json", *arguments).stdout)
    assert document["seed"] == 9 and document["scenario"]["until"] == "1ms"
    assert document["trace"]["tables"] == ["flows"]
    assert sorted(path.name for path in Path("small.run").iterdir()) == ["flows.arrow", "run.json", "scenario.toml"]
    assert fabemu.load("small.run").flows["bytes"].to_pylist() == [50_000] * 3


def test_an_existing_run_needs_force(folder):
    assert fabemu_command("run", "small.toml").returncode == 0
    before = Path("small.run/run.json").read_text()
    done = fabemu_command("run", "small.toml")
    assert done.returncode == 2 and done.stdout == ""
    assert "error: small.run: holds a run already; replace it with --force, or choose another with -o" in done.stderr
    assert Path("small.run/run.json").read_text() == before
    assert fabemu_command("run", "small.toml", "--force", "--seed", 4).returncode == 0
    assert fabemu.load("small.run").info["seed"] == 4


def test_a_run_directory_can_be_run_again(folder):
    first = json.loads(fabemu_command("run", "small.toml", "--json").stdout)
    again = json.loads(fabemu_command("run", "small.run/scenario.toml", "-o", "again", "--json").stdout)
    assert again["digest"] == first["digest"] and again["plan_digest"] == first["plan_digest"]
    assert Path("again/flows.arrow").read_bytes() == Path("small.run/flows.arrow").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.toml",), "nothing.toml: no such file"),
        ((".",), "is a directory"),
        (("small.toml", "--until", "5"), '--until 5: until = "5": a time needs a unit'),
        (("small.toml", "--threads", "0"), "0 threads: this process may use"),
        (("small.toml", "--threads", "-2"), "-2 threads: this process may use"),
        (("small.toml", "--threads", "100000"), "100000 threads: this process may use"),
        (("small.toml", "--seed", "-1"), "-1 is not in the range"),
        (("small.toml", "--set", "seeed=1"), "seeed"),
        (("small.toml", "--trace", "all"), "'all' is not one of"),
        (("small.toml", "-o", "small.toml"), "small.toml: is a file, not a directory"),
        (("small.toml", "-o", "small.toml/out"), "small.toml is a file"),
        (("small.toml", "-o", "/proc/fabemu/out"), "the run directory cannot be written"),
        (("small.toml", "-o", ".", "--force"), "not a run directory of fabemu, so it is left alone"),
    ],
)
def test_wrong_input_is_a_message_and_exit_code_2(folder, arguments, message):
    done = fabemu_command("run", *arguments)
    assert done.returncode == 2
    assert message in done.stderr and done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == ["long.toml", "small.toml"]


def test_unknown_commands_are_guessed(folder):
    done = fabemu_command("rnu", "small.toml")
    assert done.returncode == 2 and "did you mean 'run'?" in done.stderr
    done = fabemu_command("small.toml")
    assert done.returncode == 2 and "did you mean 'fabemu run small.toml'?" in done.stderr


@pytest.mark.parametrize("command", [(), ("run",), ("check",), ("schema",), ("import",)])
def test_help(command):
    done = fabemu_command(*command, "--help")
    assert done.returncode == 0 and done.stdout.startswith("Usage: fabemu")


def test_version():
    assert fabemu_command("--version").stdout.startswith("fabemu ")


def test_start_is_cheap():
    heavy = "('numpy', 'pyarrow', 'pydantic', 'rich')"
    code = f"import sys, fabemu, fabemu.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_check(folder):
    done = fabemu_command("check", "small.toml")
    assert done.returncode == 0 and done.stdout.startswith("small.toml: fine\n  4 hosts")
    shown = fabemu_command("check", "small.toml", "--show", "--set", "seed=8").stdout
    (folder / "shown.toml").write_text(shown)
    first = json.loads(fabemu_command("check", "small.toml", "--json", "--set", "seed=8").stdout)
    second = json.loads(fabemu_command("check", "shown.toml", "--json").stdout)
    assert first["plan_digest"] == second["plan_digest"] and first["messages"] == 3
    assert fabemu_command("check", "nothing.toml").returncode == 2


def test_schema():
    schema = json.loads(fabemu_command("schema").stdout)
    assert {"fabric", "workload", "class", "link"} <= set(schema["properties"])


def test_messages_left_by_until_are_asked_for(folder):
    done = fabemu_command("run", "small.toml", "--until", "3us")
    assert done.returncode == 0 and "0 of 3 messages done, 3 unfinished" in done.stdout


def test_help_says_when_unfinished_messages_are_fine():
    text = " ".join(fabemu_command("--help").stdout.split())
    assert "a run ended by `until` with messages on their way is 0" in text


def test_failed_messages_exit_with_1(folder):
    # A receiver that can never be reached in time: the timeout is far below the round trip, and there are no retries.
    changes = ("--set", "nic.timeout=0", "--set", "nic.retry_count=0", "--set", "link.delay=50us")
    done = fabemu_command("run", "small.toml", *changes)
    assert done.returncode == 1
    assert "error: 3 messages failed: out of retries\n" in done.stderr and "3 failed" in done.stdout


def test_messages_that_wait_for_failed_ones_never_run(folder):
    """Every host sends to the next when its message to the one before is done; half of the paths are dead."""
    text = """
        [fabric]
        kind = "dumbbell"
        left = 2
        right = 2
        [nic]
        timeout = 2
        [[workload]]
        kind = "all-to-all"
        mode = "sequential"
        size = "10KB"
        [[fault]]
        kind = "link-down"
        link = ["sw0", "sw1"]
    """
    Path("cut.toml").write_text(text)
    done = fabemu_command("run", "cut.toml")
    assert done.returncode == 1
    # h0 and h2 first reach their neighbours; h1 and h3 fail at once.
    assert done.stderr.splitlines()[-2:] == [
        "error: 4 messages failed: out of retries",
        "error: 6 messages never ran: what came before failed",
    ]
    assert "2 of 12 messages done, 4 failed, 6 not run" in done.stdout
    statuses = Counter(row["status"] for row in fabemu.load("cut.run").flows.to_pylist())
    assert statuses == {"done": 2, "failed": 4, "not_run": 6}


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def start_long(*arguments):
    process = subprocess.Popen(
        [*COMMAND, "run", "long.toml", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: Path("long.run/ports.arrow").exists() and Path("long.run/ports.arrow").stat().st_size > 0)
    time.sleep(0.3)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_run_in_good_order(folder, number, code):
    process = start_long()
    sent = time.monotonic()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    # The promise is a second; the allowance is for a busy machine.
    assert time.monotonic() - sent < 5
    assert process.returncode == code
    assert "Traceback" not in stderr and "interrupted; what was written so far is in long.run" in stderr
    assert stdout.startswith("long: interrupted\n")
    run = fabemu.load("long.run")
    assert run.info["status"] == "interrupted" and run.info["ended_by"] == signal.Signals(number).name
    assert all(check["held"] for check in run.info["invariants"])
    assert run.flows.num_rows == 8 and set(run.flows["status"].to_pylist()) == {"unfinished"}
    assert run.ports.num_rows == run.info["rows"]["ports"] > 0
    assert run.pauses.num_rows == run.info["totals"]["xoffs"]
    # A table ends with the interval that the signal cut.
    assert max(run.ports["end_ps"].to_pylist()) == run.info["simulated_ps"]


def test_a_killed_run_is_readable_and_does_not_look_complete(folder):
    process = start_long("--set", "trace.interval=1us")
    wait_for(lambda: fabemu.load("long.run").ports.num_rows > 0)
    process.kill()
    process.communicate()
    run = fabemu.load("long.run")
    assert run.info["status"] == "running"
    assert run.ports.num_rows > 0 and run.ports.num_rows % TABLES["ports"].batch_rows == 0
    assert run.flows.num_rows == 0
    assert "was killed" in str(run.summary())


def test_a_full_disk_is_exit_code_5(folder):
    def limit():
        # A file that may not grow behaves as on a full disk; fabemu ignores the signal that comes with it.
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = fabemu_command("run", "long.toml", "--set", "trace.interval=1us", "-q", preexec_fn=limit)
    assert done.returncode == 5
    assert "error: cannot write long.run/ports.arrow: File too large" in done.stderr
    run = fabemu.load("long.run")
    assert run.info["status"] == "failed" and "File too large" in run.info["error"]
    # The batch that did not fit is not there, and the file is readable all the same.
    assert 0 < run.ports.num_rows <= 4 * TABLES["ports"].batch_rows
    assert run.ports.num_rows % TABLES["ports"].batch_rows == 0 and run.ports.column_names[0] == "start_ps"
    assert "File too large" in str(run.summary())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "run", "small.toml"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 5
    assert "standard output: No space left on device" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_error(folder):
    line = f"{shlex.quote(sys.executable)} -m fabemu.cli schema | head -1"
    done = subprocess.run(["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert done.stdout == "{\n0\n" and done.stderr == ""
