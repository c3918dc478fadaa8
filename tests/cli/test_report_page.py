"""``fabemu report``: what it prints, writes and exits with."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

SCENARIO = {
    "fabric": {"kind": "single-switch", "hosts": 3},
    "workload": [{"kind": "incast", "receiver": "h2", "senders": "h0:h1", "size": "20KB"}],
}


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    return fabemu.run(SCENARIO, tmp_path_factory.mktemp("reported") / "three.run").directory


def report(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "report", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1]), **environment},
        timeout=120,
        check=False,
    )


def test_the_answer_goes_to_stdout_and_the_path_to_its_last_line(run_directory, tmp_path):
    shutil.copytree(run_directory, tmp_path / "three.run")
    done = report(tmp_path, "three.run")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[-1]) == (0, "", "three.html")
    assert "all 2 messages are done after" in lines[0]
    assert (tmp_path / "three.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    again = report(tmp_path, "three.run")
    assert again.returncode == 2 and "exists already; replace it with --force" in again.stderr
    inside = report(tmp_path, "three.run", "-o", "three.run/run.json", "--force")
    assert inside.returncode == 2 and "is a file of the run itself" in inside.stderr


@pytest.mark.parametrize("status", ["failed", "fault", "running"])
def test_what_a_run_that_was_cut_off_cannot_know_is_not_said(run_directory, tmp_path, status):
    shutil.copytree(run_directory, tmp_path / "three.run")
    assert "No link was ever paused." in report(tmp_path, "three.run", "--text").stdout
    file = tmp_path / "three.run" / "run.json"
    info = json.loads(file.read_text())
    del info["totals"]
    file.write_text(json.dumps({**info, "status": status}))
    done = report(tmp_path, "three.run")
    assert done.returncode == 0 and "ever paused" not in done.stdout
    assert "ever paused" not in (tmp_path / "three.html").read_text(encoding="utf-8")


def test_text_and_json_are_the_same_answer(run_directory, tmp_path):
    text = report(tmp_path, run_directory, "--text")
    assert (text.returncode, list(tmp_path.iterdir())) == (0, [])
    found = report(tmp_path, run_directory, "--json", "-o", "page.html")
    answer = json.loads(found.stdout)
    assert [item["text"] for item in answer["answer"]] == text.stdout.splitlines()
    assert answer["page"] == "page.html" and answer["status"] == "finished" and answer["partial"] is None
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "nowhere: does not exist; a run directory is what `fabemu run` wrote"),
        (["."], "is not a run directory"),
        (["RUN", "--png", "fabrics"], "no figure 'fabrics'; did you mean 'fabric'? The figures are fabric, "),
        (["RUN", "--png", "collectives"], "no such table"),
        (["RUN", "--text", "-o", "x.html"], "--text writes no file"),
        (["RUN", "-o", "no/such/page.html"], "cannot be written"),
        (["RUN", "--png", "fabric"], "there is none: install one"),
    ],
)
def test_wrong_input_is_said_and_exits_with_2(run_directory, tmp_path, arguments, text):
    # No browser is on this path.
    done = report(tmp_path, *(run_directory if item == "RUN" else item for item in arguments), PATH="/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_newer_schema_is_refused(run_directory, tmp_path):
    shutil.copytree(run_directory, tmp_path / "newer.run")
    path = tmp_path / "newer.run" / "run.json"
    info = json.loads(path.read_text())
    info["trace"]["schema_version"] = 99
    path.write_text(json.dumps(info))
    done = report(tmp_path, "newer.run")
    assert done.returncode == 2 and "schema version 99" in done.stderr


def test_the_figures_are_listed(tmp_path):
    done = report(tmp_path, "any", "--png", "list")
    assert done.returncode == 0
    assert "storm-tree" in done.stdout and len(done.stdout.splitlines()) > 10
