"""A ``run.json`` with a value of another type, or without one, at every place: wrong input, never a fault."""

import json
import math
import shutil
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main
from fabemu.errors import InputError
from tests.small import SMALL

COMMANDS = ("health made.run", "report made.run --text", "compare made.run other.run", "export csv made.run flows -o -")
OTHERS = (5, 10**30, 1.5, math.inf, math.nan, "x", True, None, [], {}, [5], {"a": 5})
RING = Path(__file__).parents[2] / "scenarios" / "incidents" / "deadlock.toml"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "small.toml").write_text(SMALL)
    fabemu.run(folder / "small.toml", output=folder / "other.run")
    fabemu.run(RING, output=folder / "ring.run")
    return folder


@pytest.fixture
def made(runs, tmp_path, monkeypatch):
    for name, copy in (("ring.run", "made.run"), ("other.run", "other.run")):
        shutil.copytree(runs / name, tmp_path / copy)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "made.run" / "run.json"


def places(value, path=()):
    """Every place in a document, but the first few elements of a list and nothing of the scenario."""
    if path:
        yield path
    if path == ("scenario",):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def command(capsys, line):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_no_damage_is_a_fault(made, capsys):
    whole = json.loads(made.read_text())
    assert whole["deadlocks"] and whole["findings"] and whole["invariants"]
    for line in COMMANDS:
        assert command(capsys, line)[0] in (0, 1)
    refused = 0
    for path in places(whole):
        for other in (*OTHERS, KeyError):
            document = json.loads(json.dumps(whole))
            inner = document
            for key in path[:-1]:
                inner = inner[key]
            if other is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = other
            made.write_text(json.dumps(document))
            try:
                fabemu.load(made.parent)
            except InputError as error:
                refused += 1
                assert str(error).startswith(str(made.parent)), error
                continue
            # What is taken for whole must be good for every reader.
            for line in COMMANDS[:2]:
                code, _, err = command(capsys, line)
                assert code in (0, 1, 2) and "fault" not in err, (line, path, other, err)
    assert refused > 200


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("totals", 5, "totals is a whole number (5), not an object"),
        ("simulated_ps", "soon", "simulated_ps is a text ('soon'), not a whole number"),
        ("messages", {"count": 3}, "messages.done is missing"),
        (
            "deadlocks",
            [{"time_ps": 1, "class": "c", "queues": [{"port": 7, "bytes": 1}]}],
            "deadlocks.0.queues.0.port is",
        ),
        ("invariants", {"a": 1}, "invariants is an object, not a list"),
        ("simulated_ps", 10**30, "simulated_ps is beyond the numbers of 64 bits"),
        ("hops_by_threads", {"a": 5}, "hops_by_threads has the key 'a', which is no whole number"),
        ("seed", True, "seed is true or false (True), not a whole number"),
    ],
)
@pytest.mark.parametrize("line", COMMANDS)
def test_every_reader_says_what_is_damaged(made, capsys, line, key, value, message):
    made.write_text(json.dumps({**json.loads(made.read_text()), key: value}))
    code, out, err = command(capsys, line)
    assert (code, out) == (2, "")
    assert err.startswith("error: made.run/run.json: ") and message in err
    assert err.endswith(": the file is damaged; run the scenario again\n") and err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"{", b"# README", b"\xff\xfe"])
def test_a_run_file_that_is_no_json(made, capsys, content):
    made.write_bytes(content)
    for line in COMMANDS:
        code, out, err = command(capsys, line)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: made.run/run.json: the file is damaged (") and err.endswith("scenario again\n")
    (made.parents[1] / "small.toml").write_text(SMALL)
    for line in ("run small.toml -q -o made.run", "run small.toml -q -o made.run --force"):
        code, _, err = command(capsys, line)
        assert code == 2 and "made.run: is not a run directory of fabemu, or its run.json is damaged, so it is" in err
    assert made.read_bytes() == content


def test_a_damaged_run_can_be_replaced(made, capsys):
    made.write_text(json.dumps({**json.loads(made.read_text()), "totals": 5}))
    (made.parents[1] / "small.toml").write_text(SMALL)
    assert command(capsys, "run small.toml -o made.run --force")[0] == 0
