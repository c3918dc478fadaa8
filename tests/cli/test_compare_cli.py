"""``fabemu compare``: what it prints, and what it exits with."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu

SCENARIO = {
    "name": "two to one",
    "fabric": {"kind": "single-switch", "hosts": 3},
    "workload": [{"kind": "incast", "receiver": "h2", "senders": "h0:h1", "size": "20KB"}],
}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs before and after links became four times slower."""
    folder = tmp_path_factory.mktemp("compared")
    for name, rate in (("before", "400Gbps"), ("after", "100Gbps")):
        fabemu.run(SCENARIO, folder / f"{name}.run", overrides=[f"link.rate={rate}"])
    return folder


def compare(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "compare", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )


def test_two_runs_side_by_side(folder):
    done = compare(folder, "before.run", "after.run", "--fail-over", "slowdown.p99 50%")
    assert (done.returncode, done.stderr) == (0, "")
    assert "comparing 2 settings, 2 runs" in done.stdout
    assert "  link.rate" in done.stdout
    assert "held: slowdown.p99 of B is" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_is_worse_than_allowed_exits_with_four_and_says_by_how_much(folder):
    done = compare(
        folder,
        "before.run",
        "after.run",
        "--fail-over",
        "p99_fct 5%",
        "--fail-over",
        "drops 0",
        "--fail-over",
        "fct.max 1 ns",
    )
    assert done.returncode == 4
    errors = done.stderr.splitlines()
    assert len(errors) == 2
    before, after = (
        max(fabemu.load(folder / f"{name}.run").flows["fct_ps"].to_pylist()) for name in ("before", "after")
    )
    assert errors[0].startswith("error: fct_ps.p99 of B is ")
    assert f"({(after - before) / before:+.1%})" in errors[0]
    assert errors[0].endswith("more than the 5% allowed")
    assert errors[1].startswith("error: fct_ps.max of B is ")
    assert done.stdout.count("EXCEEDED") == 2
    assert "held: totals.packets_dropped of B is 0 instead of 0" in done.stdout
    assert compare(folder, "after.run", "before.run", "--fail-over", "p99_fct 5%").returncode == 0


def test_json(folder):
    done = compare(folder, "before.run", "after.run", "--json", "--fail-over", "fct.p99 5%")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert [group["letter"] for group in document["groups"]] == ["A", "B"]
    assert {"key": "link.rate", "values": ["400Gbps", "100Gbps"]} in document["parameters"]
    figure = next(item for item in document["figures"] if item["name"] == "fct_ps.p99")
    assert figure["changes"][0]["direction"] == "worse"
    assert document["limits"][0]["exceeded"] is True
    assert document["limits"][0]["worse"] == figure["changes"][0]["absolute"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["before.run"], "two runs or more are needed to compare"),
        (["before.run", "before.run"], "is given twice"),
        (["before.run", "nowhere"], "nowhere: does not exist"),
        (["before.run", "."], "is not a run directory"),
        (["before.run", "before.run/run.json"], "is not a directory"),
        ([], "Missing argument"),
        (["before.run", "after.run", "--fail-over", "p99_slowdwn 5%"], "did you mean 'slowdown.p99'"),
        (["before.run", "after.run", "--fail-over", "p99_slowdown"], "is no limit"),
        (["before.run", "after.run", "--fail-over", "fct.p99 10"], "needs a unit"),
        (["before.run", "after.run", "--fail-over", "job.a.completion 5%"], "there is no figure"),
    ],
)
def test_wrong_input_exits_with_two(folder, arguments, message):
    done = compare(folder, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_in_colour_on_a_terminal(folder):
    main, side = pty.openpty()
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "NO_COLOR"} | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "fabemu.cli", "compare", "before.run", "after.run", "--fail-over", "fct.p99 5%"],
        cwd=folder,
        env=environment | {"COLUMNS": "200"},
        stdout=side,
        stderr=subprocess.PIPE,
    )
    os.close(side)
    shown = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(main)
    process.stderr.close()
    assert process.wait(timeout=60) == 4
    assert b"\x1b[1;31mlimits" in shown
    assert b"EXCEEDED" in shown


def test_a_page_and_what_it_may_not_replace(folder):
    pytest.importorskip("plotly", reason="pip install 'fabemu[report]'")
    done = compare(folder, "before.run", "after.run", "--html", "page.html")
    assert (done.returncode, done.stderr) == (0, "written: page.html\n")
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    again = compare(folder, "before.run", "after.run", "--html", "page.html")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert compare(folder, "before.run", "after.run", "--html", "page.html", "--force").returncode == 0


def test_a_picture(folder):
    pytest.importorskip("kaleido", reason="pip install 'fabemu[report]'")
    from fabemu.errors import InputError
    from fabemu.figures.picture import _browser

    try:
        _browser()
    except InputError as error:
        pytest.skip(str(error))
    done = compare(folder, "before.run", "after.run", "--png", "picture.png")
    assert done.returncode == 0, done.stderr
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
