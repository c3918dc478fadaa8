"""Pages that are read from top to bottom run from top to bottom, and quote what is printed."""

import runpy
import shutil
from pathlib import Path

import pytest

import fabemu

ROOT = Path(__file__).resolve().parents[1]
script = runpy.run_path(str(ROOT / "docs" / "walkthrough.py"))


@pytest.mark.parametrize("name", script["WALKTHROUGHS"])
def test_the_page_quotes_what_is_printed(name, tmp_path, monkeypatch):
    pytest.importorskip("pandas", reason="pip install 'fabemu[pandas]'")
    pytest.importorskip("scipy", reason="pip install 'fabemu[analysis]'")
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(fabemu.__file__).parents[1]))  # of the workers of a sweep
    page = script["page_of"](name).read_text(encoding="utf-8")
    quoted = 0
    for start, end, printed in script["outputs"](page):
        # Between versions of pandas columns may be spaced differently.
        found = [line.split() for line in script["steady"](page[start:end])]
        assert found == [line.split() for line in script["steady"](printed)], "run `python docs/walkthrough.py`"
        quoted += 1
    assert quoted == page.count("<!-- printed") > 0


def test_a_page_that_is_not_current_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```python\nprint(1)\n```\n\n<!-- printed -->\n```text\n2\n```\n"
    assert script["renewed"](page) == page.replace("2", "1")
    with pytest.raises(RuntimeError, match="exits with 2, not 0"):
        list(script["outputs"]("```sh\nfabemu run nowhere.toml\n```\n\n<!-- printed -->\n```text\n```\n"))
    with pytest.raises(RuntimeError, match="nothing is printed under 'heading'"):
        list(script["outputs"]("```python\nprint(1)\n```\n<!-- printed: heading -->\n```text\n```\n"))
