"""docs/DATAFRAMES.md: pandas, Polars and DuckDB give the same answers, those of the page and of fabemu itself."""

import math
import runpy
from pathlib import Path

import pytest

import fabemu

ROOT = Path(__file__).resolve().parents[2]
script = runpy.run_path(str(ROOT / "docs" / "dataframes.py"))
PAGE = script["PAGE"].read_text(encoding="utf-8")
QUESTIONS = script["questions"](PAGE)
LIBRARIES = script["LIBRARIES"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The run of the page, as its command does it."""
    command = script["command"](PAGE)
    settings = [command[index + 1] for index, text in enumerate(command) if text == "--set"]
    until = command[command.index("--until") + 1]
    folder = tmp_path_factory.mktemp("frames")
    assert command[-4:-2] == ["--trace", "packets"]
    fabemu.run(ROOT / command[1], folder / command[-1], overrides=[*settings, f'until="{until}"'], trace="packets")
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    """Answers by library; those of one that is not installed are None."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for library in LIBRARIES:
            try:
                found[library] = script["answers"](PAGE, library)
            except ModuleNotFoundError:
                found[library] = None
    return found


def test_every_question_is_put_to_every_library():
    assert len(QUESTIONS) >= 5
    assert set(script["blocks"](PAGE)) == {
        (library, question) for library in LIBRARIES for question in ["", *QUESTIONS]
    }
    assert [*script["quoted"](PAGE)] == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("library", ["polars", "duckdb"])
def test_libraries_agree(answers, library, question):
    for needed in ("pandas", library):
        pytest.importorskip(needed, reason=f"pip install 'fabemu[{needed}]'")
    rows, others = answers["pandas"][question], answers[library][question]
    assert len(rows) == len(others) > 1
    for row, other in zip(rows, others, strict=True):
        assert [*row] == [*other]
        for name, value in row.items():
            if isinstance(value, str):
                assert other[name] == value
            else:
                assert other[name] == pytest.approx(value, rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_quotes_the_answers(answers, question):
    pytest.importorskip("pandas", reason="pip install 'fabemu[pandas]'")
    assert script["quoted"](PAGE)[question] == script["written"](answers["pandas"][question]), (
        "run `python docs/dataframes.py`"
    )


def test_fabemu_itself_says_the_same(answers, folder):
    pytest.importorskip("pandas", reason="pip install 'fabemu[pandas]'")
    found = answers["pandas"]
    run = fabemu.load(folder / script["command"](PAGE)[-1])
    summary = run.summary()
    tail = {row["up_to"]: row for row in found["tail"]}
    more = []
    for group in summary.sizes[1:]:
        name = group.name.removeprefix("<= ").split("-")[-1]
        if name not in tail:
            more.append(group)
            continue
        row = tail.pop(name)
        assert (row["messages"], row["p50"], row["p90"]) == (
            group.count,
            group.slowdown["p50"],
            group.slowdown["p90"],
        )
    assert sum(group.count for group in more) == tail.pop("more")["messages"]
    assert not tail
    for row in found["pauses"]:
        assert row["paused_us"] * 1e6 == pytest.approx(row["paused_ps"], abs=1)
    totals = run.info["totals"]
    assert sum(row["marks"] for row in found["marking"]) == totals["marks"]
    rows = run.pauses.to_pylist()
    assert sum(row["pauses"] for row in found["roots"]) == sum(row["parent_port"] is None for row in rows)
    assert {row["egress_port"] for row in found["roots"]} >= {port.port for port in summary.pause_roots.ports}
    assert all(row["gap_ns"] >= 0 and math.isfinite(row["longest_ns"]) for row in found["resumed"])
    shares = [row["marked_share"] for row in found["marking"]]
    assert shares[0] == 0 < shares[-1]
