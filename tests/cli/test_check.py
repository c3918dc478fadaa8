"""`fabemu check` and `fabemu explain`: tables, JSON, exit codes, and a file that is wrong on purpose."""

import json
import shutil
from pathlib import Path

import pytest

from fabemu.analysis.alarms import ALARMS
from fabemu.cli import main
from fabemu.lint import CATALOGUE
from fabemu.lint.finding import Finding, More, first_of_each

DATA = Path(__file__).parents[1] / "data" / "lint"
"""`bad.toml` is wrong on purpose; `bad.txt` is what `fabemu check bad.toml` says about it."""

GOOD = """\
[fabric]
kind = "single-switch"
hosts = 4

[[workload]]
kind = "permutation"
size = "10KB"
"""
FOUND = [
    ("error", "FB101"),
    ("error", "FB102"),
    ("error", "FB102"),
    ("error", "FB402"),
    ("warning", "FB203"),
    ("warning", "FB203"),
    ("warning", "FB206"),
    ("warning", "FB311"),
    ("warning", "FB322"),
    ("warning", "FB323"),
    ("warning", "FB401"),
    ("warning", "FB901"),
    ("note", "FB303"),
    ("note", "FB321"),
]


@pytest.fixture
def fabemu_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(DATA / "bad.toml", tmp_path)
    (tmp_path / "good.toml").write_text(GOOD)

    def command(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and "fault in fabemu" not in err
        return ended.value.code, out, err

    return command


def test_a_bad_file_as_a_table(fabemu_command):
    code, out, err = fabemu_command("check", "bad.toml")
    assert code == 2
    assert err == "error: bad.toml: 4 errors; `fabemu explain CODE` says what a code means\n"
    lines = out.splitlines()
    assert lines[0] == "bad.toml: 4 errors, 8 warnings"
    heads = [line.split()[:2] for line in lines[3:] if not line.startswith(" ")]
    assert [tuple(head) for head in heads] == FOUND
    assert max(map(len, lines)) <= 100
    assert out == (DATA / "bad.txt").read_text(encoding="utf-8")


def test_a_bad_file_as_json(fabemu_command):
    code, out, err = fabemu_command("check", "bad.toml", "--json")
    assert code == 2 and err.startswith("error: ")
    document = json.loads(out)
    assert [(item["severity"], item["code"]) for item in document["findings"]] == FOUND
    assert len(document["warnings"]) == 12 and document["warnings"][0].startswith("FB101 edge0-0->h0 and 93 more: ")
    headroom = document["findings"][0]
    assert len(headroom["places"]) == 94 and headroom["figures"]["given_bytes"] == 40_000
    assert sum(headroom["figures"]["terms_bytes"].values()) == headroom["figures"]["bound_bytes"] == 62_646


def test_warnings_and_notes_exit_with_0(fabemu_command):
    code, out, err = fabemu_command("check", "good.toml", "--set", 'nic.window="1B"')
    assert (code, err) == (0, "")
    assert out.startswith("good.toml: fine, 1 warning\n") and "warning  FB901  nic.window\n" in out
    code, out, err = fabemu_command("check", "good.toml")
    assert (code, err) == (0, "")
    assert out.startswith("good.toml: fine\n") and "note     FB303\n         cannot deadlock: " in out


def test_show_keeps_findings_out_of_the_scenario(fabemu_command, tmp_path):
    code, out, err = fabemu_command("check", "bad.toml", "--show")
    assert code == 2 and err.startswith("error: FB101 ") and "\nwarning: FB" in err and "FB" not in out
    (tmp_path / "shown.toml").write_text(out)
    assert fabemu_command("check", "shown.toml", "--show")[1] == out


def test_congested_ports_of_the_user(fabemu_command):
    options = ("--set", "switch.ecn.kmax=5MB")
    assert "FB207" not in fabemu_command("check", "good.toml", *options)[1]
    out = fabemu_command("check", "good.toml", *options, "--congested-ports", "8")[1]
    assert "that each of 8 congested ports reaches" in " ".join(out.split())
    assert fabemu_command("check", "good.toml", "--congested-ports", "0")[0] == 2


def test_run_prints_what_was_found_first_and_runs(fabemu_command):
    code, out, err = fabemu_command("run", "good.toml", "--set", "switch.pfc.headroom=1KB")
    assert code == 0
    lines = err.splitlines()
    assert lines[0].startswith("error: FB101 sw0->h0 and 3 more: headroom ")
    assert lines[1] == "1 error; the run goes on"
    assert lines[2].startswith("simulating ")
    assert "  1 error to look at before trusting the figures: see run.json\n" in out
    assert "FB303" not in err


@pytest.mark.parametrize("code", ["FB101", "fb303"])
def test_explain(fabemu_command, code):
    exit_code, out, err = fabemu_command("explain", code)
    rule = CATALOGUE[code.upper()]
    assert (exit_code, err) == (0, "")
    assert out.startswith(f"{rule.code}: {rule.title} ({rule.severity})\n")
    for heading in ("Why it matters", "Formula", "Source", "How to fix it"):
        assert f"\n{heading}\n" in out
    assert json.loads(fabemu_command("explain", code, "--json")[1])["title"] == rule.title


def test_explain_of_several_codes(fabemu_command):
    code, out, err = fabemu_command("explain", "fb201", "FB202")
    assert (code, err) == (0, "") and out.startswith("FB201: ") and "\n\n\nFB202: " in out
    shown = json.loads(fabemu_command("explain", "FB202", "FB201", "--json")[1])
    assert [rule["code"] for rule in shown] == ["FB202", "FB201"]
    code, out, err = fabemu_command("explain", "FB201", "FB299")
    assert (code, out) == (2, "") and "there is no code 'FB299'" in err


def test_explain_lists_all(fabemu_command):
    code, out, _ = fabemu_command("explain")
    known = [*CATALOGUE, *ALARMS]
    assert code == 0 and [line[:5] for line in out.splitlines()] == known
    assert [rule["code"] for rule in json.loads(fabemu_command("explain", "--json")[1])] == known


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("FB100", "did you mean FB101?"),
        ("FB304", "did you mean FB303?"),
        ("102", "did you mean FB102?"),
        ("headroom", "`fabemu explain` lists all"),
    ],
)
def test_explain_of_an_unknown_code(fabemu_command, code, hint):
    exit_code, out, err = fabemu_command("explain", code)
    assert (exit_code, out) == (2, "") and f"there is no code '{code}'; {hint}" in err


# Many findings with one code.

MANY = """
[fabric]
kind = "single-switch"
hosts = 40
[[workload]]
kind = "permutation"
size = "10KB"
"""


def alike(code, count, severity="note"):
    return [
        Finding(code, severity, tuple(f"sw{number}-{port}" for port in range(number + 1)), f"the {number}th", {})
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 300])
def test_findings_that_are_alike_are_counted_beyond_a_few(count):
    others = alike("FB101", 2, "error")
    shown = first_of_each([*others, *alike("FB207", count), *alike("FB303", 1)])
    found = [item for item in shown if item.code == "FB207"]
    assert [item.code for item in shown if item.code != "FB207"] == ["FB101", "FB101", "FB303"]
    if count <= 4:
        assert found == alike("FB207", count)
    else:
        places = sum(range(4, count + 1))
        assert found == [*alike("FB207", 3), More("FB207", "note", count - 3, places)]
        assert str(found[-1]) == f"FB207: {count - 3} more like these, at {places:,} places"


@pytest.mark.parametrize("severity", ["note", "warning"])
def test_output_is_no_longer_for_many_findings_and_all_can_be_had(fabemu_command, tmp_path, monkeypatch, severity):
    (tmp_path / "many.toml").write_text(MANY)
    found = [*alike("FB207", 300, severity), *alike("FB303", 1)]
    monkeypatch.setattr("fabemu.lint.lint", lambda *_, **__: tuple(found))
    code, out, _ = fabemu_command("check", "many.toml")
    assert code == 0 and out.count("FB207") == 4
    assert f"{severity:7}  FB207: 297 more like these, at 45,144 places; --all shows them\n" in out
    assert fabemu_command("check", "many.toml", "--all")[1].count("FB207") == 300
    document = json.loads(fabemu_command("check", "many.toml", "--json")[1])
    assert len(document["findings"]) == 301
    shown = fabemu_command("check", "many.toml", "--show")[2]
    said = fabemu_command("run", "many.toml", "--force")[2]
    if severity == "warning":
        line = "warning: FB207: 297 more like these, at 45,144 places; `fabemu check --all` shows them\n"
        assert shown.count("FB207") == said.count("FB207") == 4 and line in shown and line in said
        assert fabemu_command("check", "many.toml", "--show", "--all")[2].count("FB207") == 300
    else:
        assert "FB207" not in shown + said
