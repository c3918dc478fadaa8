"""`fabemu budget` and `fabemu health`: what is said of directories that are no run, or one of a newer version."""

import json
import shutil
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main
from fabemu.errors import InputError

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
