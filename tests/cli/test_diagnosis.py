"""`fabemu budget` and `fabemu health`: what is said of directories that are no run, or one of a newer version."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fabemu
from fabemu.cli import main
from fabemu.errors import InputError
from fabemu.trace import read_table

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


@pytest.fixture
def fabemu_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and "fault in fabemu" not in err
        return ended.value.code, out, err

    return command


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("diagnosis") / "a run"
    fabemu.run(SCENARIOS / "smoke" / "two-hosts.toml", output=directory, trace="budget")
    return directory


@pytest.mark.parametrize("command", ["budget", "health"])
def test_directories_that_are_no_run(fabemu_command, tmp_path, command):
    (tmp_path / "empty").mkdir()
    code, out, err = fabemu_command(command, "empty")
    assert (code, out) == (2, "") and err == "error: empty: is not a run directory: it has no run.json\n"
    code, out, err = fabemu_command(command, "nothing")
    assert (code, out) == (2, "") and err.startswith("error: nothing: does not exist")


@pytest.mark.parametrize("command", [("budget",), ("health",), ("report",), ("report", "--text"), ("compare", "a run")])
@pytest.mark.parametrize(
    ("change", "message"),
    [({"fabemu_run": 99}, "has format version 99"), ({"trace": {"schema_version": 99}}, "have schema version 99")],
)
def test_a_run_of_a_newer_version(fabemu_command, recorded, tmp_path, command, change, message):
    directory = tmp_path / "newer"
    shutil.copytree(recorded, directory)
    shutil.copytree(recorded, tmp_path / "a run")
    info = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    (directory / "run.json").write_text(json.dumps({**info, **change}), encoding="utf-8")
    code, out, err = fabemu_command(*command, "newer")
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    with pytest.raises(InputError, match=message):
        fabemu.load(directory)


def test_a_run_without_packets_has_no_budget(fabemu_command, recorded, tmp_path):
    directory = tmp_path / "bare"
    shutil.copytree(recorded, directory)
    (directory / "packets.arrow").unlink()
    code, out, err = fabemu_command("budget", "bare")
    assert (code, out) == (2, "") and "--trace budget -o DIR` gives it" in err
    assert fabemu_command("health", "bare")[:2] == (0, "Healthy: nothing to report\n")


def test_health_says_what_it_could_not_look_for(fabemu_command, recorded, tmp_path):
    directory = tmp_path / "bare"
    shutil.copytree(recorded, directory)
    for path in directory.glob("*.arrow"):
        if path.stem != "flows":
            path.unlink()
    code, out, err = fabemu_command("health", "bare")
    nothing = "Nothing found, but not all could be looked at: not FH101, FH102, FH103, FH104, FH105, FH106, FH107, "
    assert code == 0 and out.startswith(nothing) and "FH402" not in out
    assert "no pauses table" in err
    code, _, err = fabemu_command("health", "bare", "--fail-on", "warning")
    assert code == 2 and "--fail-on warning cannot be judged: FH101, " in err


def test_options_that_exclude_each_other(fabemu_command, recorded):
    code, out, err = fabemu_command("budget", str(recorded), "--op", "0", "--slowest", "3")
    assert (code, out) == (2, "") and "--op and --slowest are both given" in err


def test_messages_that_cannot_be(fabemu_command, recorded):
    for number in ("99999999999999999999", "7"):
        code, out, err = fabemu_command("budget", str(recorded), f"--op={number}")
        assert (code, out) == (2, "") and f"op {number} is no message" in err


def test_a_table_that_is_cut_though_the_run_has_finished(fabemu_command, recorded, tmp_path):
    directory = tmp_path / "cut"
    shutil.copytree(recorded, directory)
    path = directory / "pauses.arrow"
    path.write_bytes(path.read_bytes()[:-60])
    code, out, err = fabemu_command("health", "cut")
    assert code == 2 and out.startswith("Nothing found, but not all could be looked at: not FH101, ")
    assert "pauses.arrow: is cut off: what came after the cut is missing" in err
    assert err.endswith(
        "error: cut: the table pauses cannot be read to its end, so not all could be looked at; the "
        "notes say why: run the scenario again\n"
    )
    assert "pauses.arrow: is cut off" in fabemu_command("report", "--text", "cut")[1]
    assert "pauses.arrow: is cut off" in "".join(fabemu_command("compare", str(recorded), "cut")[1:])


@pytest.mark.parametrize("content", [b"", b"no table", b"ARROW1\0\0"])
def test_health_of_damaged_tables(fabemu_command, recorded, tmp_path, content):
    directory = tmp_path / "torn"
    shutil.copytree(recorded, directory)
    for name in ("flows", "ports"):
        (directory / f"{name}.arrow").write_bytes(content)
    code, out, err = fabemu_command("health", "torn")
    assert code == 2 and "not all could be looked at: not FH104" in out
    assert (
        "note: torn/flows.arrow: is " in err and "error: torn: the tables flows, ports cannot be read to their" in err
    )
    code, out, _ = fabemu_command("health", "torn", "--json")
    assert code == 2 and json.loads(out)["damaged"] == ["flows", "ports"]
    info = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    (directory / "run.json").write_text(json.dumps({**info, "status": "running"}), encoding="utf-8")
    assert fabemu_command("health", "torn")[0] == 0  # killed: what it leaves may be cut anywhere


def test_damage_inside_a_table_is_no_failure_of_the_machine(fabemu_command, recorded, tmp_path):
    directory = tmp_path / "torn"
    shutil.copytree(recorded, directory)
    path = directory / "flows.arrow"
    whole = path.read_bytes()
    message = "torn/flows.arrow: the file is damaged ("
    start = whole.index(b"\x04\x22\x4d\x18", len(whole) // 2)  # a frame of LZ4
    path.write_bytes(whole[:start] + b"\xa5" * 16 + whole[start + 16 :])
    code, _, err = fabemu_command("health", "torn")
    assert code == 2 and f"note: {message}" in err and "error: torn: the table flows cannot be read" in err
    for command in (
        "export csv torn flows -o -",
        "export csv torn flows -o out.csv",
        "export perfetto torn",
        "export hpcc torn",
    ):
        code, out, err = fabemu_command(*command.split())
        assert (
            (code, out) == (2, "") and err.startswith(f"error: {message}") and err.endswith("run the scenario again\n")
        )
    assert not (tmp_path / "out.csv").exists()
    assert message in fabemu_command("report", "--text", "torn")[1]
    assert message in "".join(fabemu_command("compare", str(recorded), "torn")[1:])


def test_a_table_without_a_column(fabemu_command, recorded, tmp_path):
    directory = tmp_path / "other"
    shutil.copytree(recorded, directory)
    path = directory / "flows.arrow"
    table = read_table(path).drop_columns(["slowdown"])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    code, out, _ = fabemu_command("report", "--text", "other")
    assert code == 0 and "could not be looked for" in out
    assert "flows.arrow: has no column slowdown" in fabemu_command("health", "other")[2]


def test_storms_without_the_tables_of_collectives_and_jobs(fabemu_command, tmp_path):
    tables = 'trace.tables=["flows","ports","pauses"]'
    fabemu.run(SCENARIOS / "incidents" / "slow-step.toml", output=tmp_path / "bare", overrides=[tables])
    code, out, _ = fabemu_command("health", "bare")
    assert code == 0 and "held up" in out and "of its time" not in out.split("held up")[1].split(";")[0]
    assert fabemu_command("report", "--text", "bare")[0] == 0


def test_a_deadlock_is_told_of_without_any_table(fabemu_command, tmp_path):
    fabemu.run(SCENARIOS / "incidents" / "deadlock.toml", output=tmp_path / "dead", trace="off")
    code, out, _ = fabemu_command("health", "dead", "--fail-on", "critical")
    assert code == 4 and "4 queues wait for one another for ever" in out and "not looked for: FH101" in out


def test_dropped_frames_are_placed_where_they_were_dropped(fabemu_command, tmp_path):
    run = fabemu.run(SCENARIOS / "smoke" / "two-classes.toml", output=tmp_path / "lossy")
    (egress,) = set(run.drops.column("egress_port").to_pylist())
    assert f"egress full, most at {egress} (" in fabemu_command("report", "--text", "lossy")[1]


def test_the_exit_code_survives_a_reader_that_leaves(recorded):
    command = [sys.executable, "-m", "fabemu.cli", "health", str(recorded), "--fail-on", "warning"]
    command += ["--threshold", "paused_share=0"]
    made = subprocess.Popen([*command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    made.stderr.close()
    assert made.wait() in (0, 4)
    broken = recorded / ".." / "without"
    shutil.copytree(recorded, broken)
    (broken / "pauses.arrow").unlink()
    made = subprocess.Popen(
        [*command[:4], str(broken), *command[5:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    made.stderr.close()
    assert made.wait() == 2, "the notes and the error were lost, not the exit code"
