"""Singular and plural: what commands say of one of everything, and of several."""

import re
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main
from fabemu.counted import counted, plural

ONE = """
[fabric]
kind = "single-switch"
hosts = 2
[[workload]]
kind = "flows"
flow = [{src = "h0", dst = "h1", size = "10KB"}]
"""
STALLED = ONE + '[[fault]]\nkind = "link-down"\nlink = ["h1", "sw0"]\nstart = "1ns"\n'
COMMANDS = [
    "run one.toml --force",
    "run stalled.toml --force --set nic.retry_count=1",
    "run one.toml --force --until 1ns",
    "check one.toml",
    "check one.toml --cost",
    "check one.toml --set switch.ecn.kmin=2MiB --set switch.ecn.kmax=2MiB",
    "sweep one.toml --set switch.buffer=[4MiB] -j 1 --force",
    "sweep stalled.toml --set switch.buffer=[4MiB] -j 1 --force",
    "sweep one.toml --set switch.ecn.kmin=[3MiB,20KiB] --set switch.ecn.kmax=2MiB -j 1 --force",
    "perf one.toml -b 4KiB -e 4KiB -n 1 -w 1",
    "report one.run --text",
    "report stalled.run --text",
    "health one.run",
    "health stalled.run",
    "budget one.run",
    "compare one.run stalled.run",
    "export csv one.run flows --force",
    "export hpcc one.run --force",
    "export perfetto one.run --force",
]
ONE_OF_SEVERAL = re.compile(r"(?<![\d.,/:x=-])1 (?:more )?(?!us\b|ns\b|ps\b|ms\b|s\b|plus\b)[a-z]+s\b")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("one", ONE), ("stalled", STALLED)):
        Path(f"{name}.toml").write_text(text)
        fabemu.run(f"{name}.toml", output=f"{name}.run", trace="budget" if name == "one" else None)


@pytest.mark.parametrize("line", COMMANDS)
def test_one_of_something_is_in_the_singular(folder, capsys, line):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    out, err = capsys.readouterr()
    assert ended.value.code in (0, 1) and out, err
    assert not ONE_OF_SEVERAL.findall(out + err), out + err


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (2, "run", "2 runs"),
        (12345, "message", "12,345 messages"),
        (1, "switch", "1 switch"),
        (2, "switch", "2 switches"),
        (3, "process", "3 processes"),
        (2, "more alert", "2 more alerts"),
        (2, "invariant of the engine", "2 invariants of the engine"),
        (1, "invariant of the engine", "1 invariant of the engine"),
    ],
)
def test_counts(count, noun, text):
    assert counted(count, noun) == text


def test_plurals_are_made_in_one_place():
    source = Path(fabemu.__file__).parent
    by_hand = re.compile(r"""['"](?:e?s)['"] (?:if|\*)|["']1 \w+["'] if""")
    found = [
        f"{path}:{number}"
        for path in sorted(source.rglob("*.py"))
        if path.name != "counted.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if by_hand.search(line)
    ]
    assert not found
    assert plural("leaf switch") == "leaf switches"
