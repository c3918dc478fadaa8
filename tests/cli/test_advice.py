"""What errors advise: by every command, for everything that a machine may lack, only what can be typed there."""

import pickle
import re
from importlib import import_module

import click
import pytest

from fabemu.cli import _COMMANDS, Simulating, main
from fabemu.cost import admission, shortage
from fabemu.cost.machine import Room
from fabemu.errors import AtHand, MachineError
from fabemu.scenario import scenario_from_dict
from fabemu.sweeps.task import Task, run_task

ROOM = Room(300_000_000, "ulimit -v")
LARGE = {
    "fabric": {"kind": "fat-tree", "k": 128},
    "workload": [{"kind": "permutation", "size": "1MB"}],
}


def leaves():
    """Every command and command of a command, with the words that call it."""
    for name, (place, _) in sorted(_COMMANDS.items()):
        module, _, attribute = place.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, click.Group):
            for inner, command in sorted(found.commands.items()):
                yield (name, inner), command
        else:
            yield (name,), found


LEAVES = dict(leaves())


def refused():
    """What admission raises."""
    with pytest.raises(MachineError) as found:
        admission.admit_scenario(scenario_from_dict(LARGE))
    return found.value


LACKS = {
    "memory": MemoryError,
    "memory of a run": lambda: shortage.shortage(MemoryError()).error(),
    "threads": lambda: RuntimeError("can't start new thread"),
    "processes": lambda: shortage.THREADS_LACK.error("cannot start a worker process"),
    "admission": refused,
}


def said(words, command, error, monkeypatch, capsys):
    """The line of a command that fails with an error."""

    def fail(**_):
        raise error

    monkeypatch.setattr(command, "callback", fail)
    required = ["x" for item in command.params if isinstance(item, click.Argument) and item.required]
    with pytest.raises(SystemExit) as ended:
        main([*words, *required])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (5, ""), err
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_advice_names_only_options_of_the_command_at_hand(words, lack, monkeypatch, capsys):
    monkeypatch.setattr(shortage, "room", lambda: ROOM)
    monkeypatch.setattr(admission, "room", lambda: ROOM)
    command = LEAVES[words]
    line = said(words, command, LACKS[lack](), monkeypatch, capsys)
    allowed = {text for item in command.params for text in item.opts}
    # What stands in backticks is a command of its own.
    assert set(re.findall(r"--[a-z-]+", re.sub(r"`[^`]*`", "", line))) <= allowed, line
    for inner in re.findall(r"`fabemu ([a-z]+) (--[a-z-]+)", line):
        assert any(inner[1] in item.opts for item in LEAVES[inner[:1]].params)
        assert inner[0] != words[0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run",), "raise the limit, or try fewer messages or hosts, or --trace flows; `fabemu check --cost` shows"),
        (("sweep",), "raise the limit, or try fewer messages or hosts, or fewer runs at a time: --jobs 1; `fabemu"),
        (("perf",), "raise the limit, or try fewer messages or hosts; `fabemu check --cost` shows what takes memory"),
        (("check",), "raise the limit, or try fewer messages or hosts"),
        (("health",), "use a machine with more memory, or a run with smaller tables: fewer messages, or `fabemu run"),
        (("compare",), "use a machine with more memory, or a run with smaller tables: fewer messages, or `fabemu run"),
        (("export", "csv"), "raise the limit, or use a machine with more memory, or a run with smaller tables: "),
        (("import", "goal"), "raise the limit, or use a machine with more memory, or give it less to read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_advice_fits_what_the_command_works_on(words, text, monkeypatch, capsys):
    monkeypatch.setattr(shortage, "room", lambda: ROOM)
    line = said(words, LEAVES[words], MemoryError(), monkeypatch, capsys)
    assert line.startswith("error: out of memory; there is 300 MB (ulimit -v): ") and text in line


def test_advice_to_those_who_work_in_python_names_no_option(monkeypatch):
    monkeypatch.setattr(shortage, "room", lambda: ROOM)
    monkeypatch.setattr(admission, "room", lambda: ROOM)
    for lack in LACKS.values():
        error = lack()
        text = str(error if isinstance(error, MachineError) else shortage.shortage(error))
        assert not re.search(r"--[a-z]", re.sub(r"`[^`]*`", "", text)), text


def test_a_refusal_says_how_to_go_on_where_that_can_be_typed(monkeypatch, capsys):
    monkeypatch.setattr(admission, "room", lambda: ROOM)
    ends = {
        name: said((name,), LEAVES[name,], refused(), monkeypatch, capsys).endswith("--ignore-memory goes on anyway")
        for name in ("run", "check", "perf", "jobs", "sweep")
    }
    assert ends == {"run": True, "check": True, "perf": False, "jobs": False, "sweep": False}


def test_a_run_of_a_sweep_is_refused_without_options(monkeypatch):
    monkeypatch.setattr(admission, "room", lambda: ROOM)
    outcome = run_task(Task(0, 0, 1, scenario_from_dict(LARGE), "."))
    assert outcome.status == "failed" and outcome.error == str(refused())


def test_advice_survives_the_way_to_another_process(monkeypatch):
    monkeypatch.setattr(shortage, "room", lambda: ROOM)
    monkeypatch.setattr(admission, "room", lambda: ROOM)
    at_hand = AtHand(frozenset({"--ignore-memory", "--trace"}))
    for error in (refused(), shortage.shortage(MemoryError()).error(), MachineError("the disk is full")):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.told(at_hand)) == (str(error), error.told(at_hand))


def test_commands_that_simulate_are_known_as_such():
    simulating = {words[0] for words, command in LEAVES.items() if isinstance(command, Simulating)}
    assert simulating == {"run", "sweep", "tune", "perf", "jobs"}


@pytest.mark.parametrize("name", ["run", "sweep", "tune", "perf", "jobs"])
def test_a_command_that_simulates_is_refused_before_its_work(name, monkeypatch, capsys):
    monkeypatch.setattr(shortage, "address_space_limit", lambda: 300_000_000)
    line = said((name,), LEAVES[name,], AssertionError("it went to work"), monkeypatch, capsys)
    assert line.startswith("error: not enough memory: a run takes at least 500 MB of address space")
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
