"""The README and the pages in docs: their commands run, their code runs, and what they quote is what comes out."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fabemu

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
SCENARIOS = sorted((ROOT / "scenarios").rglob("*.toml"))
INCIDENTS = ROOT / "scenarios" / "incidents"  # what goes wrong in them is tested in scenarios/test_incidents.py
FIRST = "websearch-leaf-spine"
LARGE = "scale-100k"  # runs small in bench/test_scale.py
OWN_TESTS = {"DATAFRAMES", "COMPARE", "STALL"}  # pages whose blocks are tested in files of their own
LANGUAGES = {"sh", "python", "toml", "text", "json", "csv"}

first_run = runpy.run_path(str(ROOT / "docs" / "first_run.py"))
code_blocks, printed, draw = first_run["code_blocks"], first_run["printed"], first_run["draw"]


def after(marker: str) -> str:
    """The fenced block that follows a marked place of the README."""
    return re.search(rf"<!-- {re.escape(marker)} -->\n```\w+\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[1].rstrip()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """The current directory holds the scenarios, and nothing of the repository is written to."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).parents[1]))
    return tmp_path


def fabemu_command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "fabemu.cli", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


# The README's first run.


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first run itself, as the README's command does it."""
    folder = tmp_path_factory.mktemp("first")
    environment = {**os.environ, "PYTHONPATH": str(Path(fabemu.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "fabemu.cli", "run", str(ROOT / "scenarios" / f"{FIRST}.toml"), "--force"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def steady(summary: str) -> list[str]:
    """Lines of a summary without what depends on the machine."""
    lines = [re.sub(r" in [\d.]+ CPU s: .*", "", line.rstrip()) for line in summary.strip().splitlines()]
    return [line for line in lines if "peak memory" not in line and " of the hops on " not in line]


def test_the_readme_quotes_the_summary_of_the_first_run(first):
    _, summary = first
    assert steady(summary) == steady(after("printed by the first command")), "run `python docs/first_run.py`"


def test_the_readme_quotes_what_pandas_prints(first, monkeypatch):
    pytest.importorskip("pandas")
    folder, _ = first
    monkeypatch.chdir(folder)
    code = code_blocks(README, "python")[0]
    assert len([line for line in code.splitlines() if line.strip()]) == 10
    # Between versions of pandas columns may be spaced differently.
    assert printed(code).split() == after("printed by pandas").split(), "run `python docs/first_run.py`"


def test_the_first_run_is_what_it_is_said_to_be(first):
    folder, _ = first
    info = json.loads((folder / f"{FIRST}.run" / "run.json").read_text())
    scenario = fabemu.load_scenario(ROOT / "scenarios" / f"{FIRST}.toml")
    assert scenario.workload[0].load == 0.5
    assert scenario.workload[0].sizes == "WebSearch"
    assert scenario.workload[0].stop >= 2 * 10**9
    assert info["status"] == "finished"
    assert info["totals"]["drops_headroom_full"] == 0
    assert info["totals"]["xoffs"] > 0
    assert info["totals"]["marks"] > 0
    assert info["messages"]["done"] == info["messages"]["count"] > 1000
    assert all(check["held"] for check in info["invariants"])


def test_the_picture_is_drawn_from_the_tables(first, tmp_path):
    pytest.importorskip("matplotlib")
    folder, _ = first
    picture = tmp_path / "picture.svg"
    draw(folder / f"{FIRST}.run", picture)
    assert "The tail, by message size" in picture.read_text(encoding="utf-8")
    assert "The tail, by message size" in (ROOT / "docs" / "first-run.svg").read_text(encoding="utf-8")


# The two commands.


def test_the_two_commands_are_one_line_each_and_what_ci_runs():
    run, tests = after("command: first run"), after("command: tests")
    assert "\n" not in run + tests
    assert run.endswith(f"fabemu run scenarios/{FIRST}.toml --force")
    assert "'.[test]'" in tests
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'command_named "first run"' in ci
    assert 'command_named "tests"' in ci
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# Everything else that is fenced.


def test_every_fenced_block_has_a_known_language():
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) % 2 == 0, name_of(page)
        assert set(fences[::2]) <= LANGUAGES, name_of(page)
        assert set(fences[1::2]) <= {""}, name_of(page)


def shell_lines() -> list[str]:
    commands = (after("command: first run"), after("command: tests"))
    lines = [
        line.strip()
        for page in PAGES
        if page.stem not in OWN_TESTS
        for block in code_blocks(page.read_text(encoding="utf-8"), "sh")
        for line in block.splitlines()
    ]
    return [line for line in lines if line and not line.startswith("#") and line not in commands]


def run_that_makes(directory: str) -> list[str]:
    """The `fabemu run` of the pages that writes a run directory which another of their commands reads."""
    found = [arguments for line in shell_lines() if (arguments := shlex.split(line))[1] == "run"]
    return next(arguments[1:] for arguments in found if arguments[-2:] == ["-o", directory])


@pytest.mark.parametrize("line", shell_lines())
def test_shell_commands_of_the_pages_run(tree, line):
    program, *arguments = shlex.split(line)
    if arguments[0] != "run":
        for directory in [argument for argument in arguments if argument.endswith(".run")]:
            assert fabemu_command(*run_that_makes(directory)).returncode == 0
    assert program == "fabemu", f"{line}: only fabemu commands are checked here; mark others as the README does"
    done = fabemu_command(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("page", "code"),
    [
        pytest.param(page, code, id=f"{page.stem}-{index}")
        for page in PAGES
        if page.stem not in OWN_TESTS
        for index, code in enumerate(code_blocks(page.read_text(encoding="utf-8"), "python"))
        if f"{FIRST}.run" not in code  # has its own test
    ],
)
def test_python_of_the_pages_runs(tree, page, code):
    pytest.importorskip("pandas")
    printed(code)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"{page.stem}-{index}")
        for page in PAGES
        for index, text in enumerate(code_blocks(page.read_text(encoding="utf-8"), "toml"))
        if "[fabric]" in text and "[[workload]]" in text
    ],
)
def test_whole_scenarios_of_the_pages_are_right(tree, text):
    Path("page.toml").write_text(text, encoding="utf-8")
    done = fabemu_command("check", "page.toml")
    assert done.returncode == 0, done.stderr


def test_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name_of(page)}: {target}"


# Shipped scenarios.


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name_of(path))
        for path in SCENARIOS
        if INCIDENTS not in path.parents and path.stem != LARGE
    ],
)
def test_shipped_scenarios_run_clean(path):
    overrides = ["until=200us"] if path.stem == FIRST else []
    run = fabemu.run(path, overrides=overrides)
    assert run.info["status"] == "finished"
    assert all(check["held"] for check in run.info["invariants"])
    assert run.info["totals"]["drops_headroom_full"] == 0
    assert run.info["messages"]["failed"] == 0
    announced = re.findall(r"FB\d{3}", path.read_text(encoding="utf-8"))
    assert {warning.split()[0] for warning in run.info["warnings"]} == set(announced), "say so in the file"
    if not overrides:
        assert run.info["messages"]["done"] == run.info["messages"]["count"]


def test_shipped_scenarios_show_what_they_say():
    def slowdown(path, label, *overrides):
        flows = fabemu.run(ROOT / "scenarios" / path, overrides=list(overrides)).flows.to_pylist()
        return max(flow["slowdown"] for flow in flows if flow["label"] == label)

    assert slowdown("smoke/two-hosts.toml", "flows") == 1.0
    exchange = [slowdown(f"fabrics/{name}.toml", "gpus") for name in ("storage", "storage-converged")]
    assert exchange[1] > 1.8 * exchange[0]
    blocked = slowdown("incast/victim.toml", "victim")
    assert blocked > 3
    assert slowdown("incast/victim.toml", "victim", "nic.cc.kind=dcqcn") < blocked / 2


@pytest.mark.parametrize("path", [pytest.param(path, id=name_of(path)) for path in SCENARIOS])
def test_shipped_scenarios_are_commented_and_listed(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert text.count("# ") >= 2
    if INCIDENTS in path.parents:
        assert f"](../{name_of(path)})" in (ROOT / "docs" / "INCIDENTS.md").read_text(encoding="utf-8")
    else:
        assert f"]({name_of(path)})" in README
