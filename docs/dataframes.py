"""The questions of DATAFRAMES.md in pandas, Polars and SQL: run, compared, and their answers printed into the page.

``python docs/dataframes.py`` does the run of the page and renews its answers. Needs the extra ``pandas``.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "DATAFRAMES.md"
LIBRARIES = ("pandas", "polars", "duckdb")


def blocks(page: str) -> dict[tuple[str, str], str]:
    """Code by library and question; that which opens the tables has the question ""."""
    found = re.findall(r"^<!-- (\w+)(?:: (\w+))? -->\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {(library, question): code for library, question, code in found}


def questions(page: str) -> list[str]:
    """Names of the questions in their order."""
    return [question for library, question in blocks(page) if library == "pandas" and question]


def command(page: str) -> list[str]:
    """Arguments of the run that the page is about."""
    return shlex.split(re.search(r"^fabemu (run .*)$", page, re.MULTILINE)[1])


def answers(page: str, library: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of every answer, from the run in the current directory; each question in a namespace of its own."""
    code = blocks(page)
    found = {}
    for question in questions(page):
        space: dict[str, Any] = {"__name__": "page"}
        exec(compile(code[library, ""], f"{library}, tables", "exec"), space)
        exec(compile(code[library, question], f"{library}, {question}", "exec"), space)
        answer = space["answer"]
        rows = answer.to_dicts() if library == "polars" else answer.to_dict("records")
        found[question] = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return found


def written(rows: list[dict[str, Any]]) -> str:
    """Rows as a table of text, in a form that no version of a library changes."""
    cells = [[*rows[0]], *([_text(value) for value in row.values()] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    names = [isinstance(value, str) for value in rows[0].values()]
    lines = [
        "  ".join(
            cell.ljust(width) if name else cell.rjust(width)
            for cell, width, name in zip(row, widths, names, strict=True)
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def quoted(page: str) -> dict[str, str]:
    """The answers that the page prints."""
    found = re.findall(r"^<!-- answer: (\w+) -->\n```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return {question: text.rstrip() for question, text in found}


def refresh() -> None:
    """Do the run and renew the answers."""
    import fabemu

    page = PAGE.read_text(encoding="utf-8")
    arguments = command(page)
    settings = [arguments[index + 1] for index, text in enumerate(arguments) if text == "--set"]
    until = arguments[arguments.index("--until") + 1]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        fabemu.run(ROOT / arguments[1], arguments[-1], overrides=[*settings, f'until="{until}"'], trace=arguments[-3])
        found = answers(page, "pandas")
    for question, rows in found.items():
        text = written(rows)
        page = re.sub(
            rf"(<!-- answer: {question} -->\n```text\n).*?(^```$)",
            lambda match, text=text: f"{match[1]}{text}\n{match[2]}",
            page,
            flags=re.MULTILINE | re.DOTALL,
        )
    PAGE.write_text(page, encoding="utf-8")


def _plain(value: Any) -> Any:
    """Numbers of NumPy as those of Python, whole ones as int."""
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    refresh()
