"""Paths that no file can have, wherever a command takes one: wrong input, said in one line."""

import os

import click
import pytest

import fabemu
from fabemu.cli import main
from fabemu.cli.path import UserPath
from tests.cli.test_advice import LEAVES
from tests.small import SMALL

NAME = "n" * 300
PATH = "/".join(["p" * 200] * 30)
COMMANDS = {
    "run": "run {}",
    "run output": "run small.toml -o {}",
    "run below": "run small.toml -o x/{}/y",
    "sweep output": "sweep small.toml --set switch.buffer=[4MiB,8MiB] -j 1 -o {}",
    "plot": "sweep small.toml --set switch.buffer=[4MiB,8MiB] -j 1 --plot {}.png",
    "check": "check {}",
    "report": "report {} --text",
    "page": "report small.run -o {}",
    "health": "health {}",
    "budget": "budget {}",
    "compare": "compare small.run {}",
    "csv": "export csv small.run flows -o {}",
    "perfetto": "export perfetto small.run -o {}",
    "hpcc": "export hpcc small.run -o {}",
    "goal": "export goal small.toml -o {}",
    "import goal": "import goal {} -o out.toml",
    "import sonic": "import sonic {}",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    fabemu.run("small.toml", output="small.run")
    return tmp_path


@pytest.mark.parametrize("wrong", [NAME, PATH], ids=["name", "path"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_path_that_is_too_long_is_wrong_input(folder, capsys, name, wrong):
    with pytest.raises(SystemExit) as ended:
        main(COMMANDS[name].format(wrong).split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("error: ") and "too long" in last, last
    assert not (folder / "small.sweep").exists()


def test_the_length_that_is_allowed_is_said(folder, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "csv", "small.run", "flows", "-o", NAME])
    line = f"error: the name {'n' * 60}... is too long: it has 300 bytes, and 255 are allowed; give a shorter one\n"
    assert capsys.readouterr().err == line
    with pytest.raises(SystemExit, match="2"):
        main(["health", PATH])
    assert "is too long: it has 6,029 bytes, and 4,095 are allowed" in capsys.readouterr().err


def test_a_path_that_leads_nowhere_is_wrong_input(folder, capsys):
    os.symlink("loop", "loop")
    with pytest.raises(SystemExit, match="2"):
        main(["health", "loop/run"])
    assert capsys.readouterr().err.startswith("error: loop/run: ")


PATHS = [
    (words, item) for words, command in LEAVES.items() for item in command.params if isinstance(item.type, click.Path)
]


def test_all_paths_are_taken_alike():
    assert len(PATHS) > 30 and all(isinstance(item.type, UserPath) for _, item in PATHS)


@pytest.mark.parametrize("path", ["", "-"])
def test_no_path_at_all(path):
    for words, item in PATHS:
        if path == "-" and item.type.allow_dash:
            continue
        context = click.Context(LEAVES[words])
        with pytest.raises(click.BadParameter, match="the path is empty" if not path else "no standard input"):
            item.type_cast_value(context, [path] if item.nargs == -1 else path)


def test_an_empty_path_is_not_the_current_directory(capsys):
    for line in (["run", ""], ["health", ""], ["run", "small.toml", "-o", ""], ["run", "-"]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert ("the path is empty; is it a variable that is not set?" in err) == ("" in line)
