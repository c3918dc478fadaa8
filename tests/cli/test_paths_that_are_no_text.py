"""Names of files and folders that are no UTF-8, as any file system of Linux may have: they work like others."""

import json
import os
from pathlib import Path

import pytest

import fabemu
from fabemu.cli import main
from tests.small import SMALL

ODD = os.fsdecode(b"odd\xff")
KMIN = "--set switch.ecn.kmin=[20KiB,3MiB] --set switch.ecn.kmax=2MiB"
COMMANDS = {
    "run": (0, "run {} -q -o {}.run"),
    "run json": (0, "run {} -q --json -o {}.run"),
    "check": (0, "check {}"),
    "cost": (0, "check --cost --json {}"),
    "sweep": (1, "sweep {} -q -j 1 -o {}.sweep --keep " + KMIN),
    "sweep json": (1, "sweep {} -q -j 1 -o {}.sweep --json " + KMIN),
    "tune": (0, "tune {} -q -j 1 -o {}.tune --set switch.pfc.alpha=1/8..1 --minimize slowdown.p99 --trials 1"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).resolve().parents[1]))
    (tmp_path / ODD).mkdir()
    for name in ("small.toml", f"{ODD}.toml", f"{ODD}/small.toml"):
        (tmp_path / name).write_text(SMALL)
    return tmp_path


@pytest.mark.parametrize(
    "scenario", ["small.toml", f"{ODD}.toml", f"{ODD}/small.toml"], ids=["output", "file", "folder"]
)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_that_is_no_text_works(folder, capfd, name, scenario):
    code, command = COMMANDS[name]
    arguments = [word.replace("{}", scenario if word == "{}" else ODD) for word in command.split()]
    for _ in range(2 if name.startswith("sweep") else 1):  # the second one goes on with the first
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capfd.readouterr()
        assert ended.value.code == code, err
        if "json" in command:
            json.loads(out)


def test_files_of_a_sweep_are_utf_8_whatever_it_is_called(folder, capfd):
    with pytest.raises(SystemExit):
        main(f"sweep {ODD}/small.toml -q -j 1 -o s.sweep {KMIN}".split())
    document = json.loads((folder / "s.sweep" / "sweep.json").read_text(encoding="utf-8"))
    assert document["definition"]["scenario"] == f"{ODD}/small.toml"
    for line in (folder / "s.sweep" / "journal.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line)


def test_a_value_that_is_no_text_is_an_invalid_point(folder, capfd):
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "small.toml", "-q", "-j", "1", "-o", "v.sweep", "--set", f"nic.cc.kind=[dcqcn,{ODD}]"])
    out, err = capfd.readouterr()
    assert ended.value.code == 1, err
    assert "2 runs: 1 finished, 1 invalid" in out
    assert fabemu.load_sweep(folder / "v.sweep").table["nic.cc.kind.text"].to_pylist() == ["dcqcn", "odd\\udcff"]
