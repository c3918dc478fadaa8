"""Pages that are read from top to bottom, like a notebook: every block runs after those before it.

``python docs/walkthrough.py`` runs the pages of `WALKTHROUGHS` and renews what they quote; tests/test_walkthroughs.py
holds them to it. Blocks of ``sh`` are fabemu commands, blocks of ``python`` share their names. A block of text behind
``<!-- printed -->`` is what the block before it printed; behind ``<!-- printed: heading; heading -->`` it is the
sections with these headings. A comment ``# exits with 4`` in a block of ``sh`` says what its last command exits with.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WALKTHROUGHS = ("COMPARE", "STALL")

_BLOCK = re.compile(r"(?:^<!-- (printed)(?:: (.+?))? -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MACHINE = re.compile(r" packet hops in [\d.]+ CPU s|peak memory| of the hops on ")


def page_of(name: str) -> Path:
    """Where a page lies."""
    return ROOT / "docs" / f"{name}.md"


def outputs(page: str) -> Iterator[tuple[int, int, str]]:
    """Run a page in the current directory, which needs the scenarios.

    Yields
    ------
    tuple
        Start and end of each quoted text in the page, and what it should be.

    Raises
    ------
    RuntimeError
        A command exits otherwise than the page says, or a heading is not printed.
    """
    space: dict[str, Any] = {"__name__": "page"}
    output = ""
    for found in _BLOCK.finditer(page):
        printed, headings, language, text = found.groups()
        if printed:
            yield found.start(4), found.end(4), _chosen(output, headings)
        elif language == "sh":
            output = _commands(text)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(compile(text, "page", "exec"), space)
            output = stream.getvalue()


def steady(text: str) -> list[str]:
    """Lines without those that depend on the machine, the ends stripped."""
    return [line.rstrip() for line in text.strip().splitlines() if not _MACHINE.search(line)]


def _commands(text: str) -> str:
    """Run fabemu commands one after another and give what they print to standard output."""
    from fabemu.cli import main

    wanted = re.search(r"# exits with (\d+)", text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    output = io.StringIO()
    for index, line in enumerate(lines):
        program, *arguments = shlex.split(line)
        if program != "fabemu":
            raise RuntimeError(f"{line}: is no fabemu command")
        talk = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(talk):
            try:
                main(arguments)
            except SystemExit as ended:
                code = ended.code
        expected = int(wanted[1]) if wanted and index == len(lines) - 1 else 0
        if code != expected:
            raise RuntimeError(f"{line}: exits with {code}, not {expected}: {talk.getvalue()}")
    return output.getvalue()


def _chosen(output: str, headings: str | None) -> str:
    """Printed text, or the sections of it whose headings are named."""
    if headings is None:
        return output
    sections = re.split(r"^(?=\S)", output, flags=re.MULTILINE)
    kept = []
    for heading in headings.split("; "):
        matching = [section for section in sections if section.startswith(heading)]
        if not matching:
            raise RuntimeError(f"nothing is printed under {heading!r}")
        kept += matching
    return "".join(kept)


def renewed(page: str) -> str:
    """The page with what it quotes as it is printed now."""
    parts, done = [], 0
    for start, end, text in outputs(page):
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        parts += [page[done:start], "\n".join(lines), "\n"]
        done = end
    return "".join([*parts, page[done:]])


def refresh() -> None:
    """Renew all pages, each in a directory of its own."""
    os.environ.pop("FORCE_COLOR", None)
    for name in WALKTHROUGHS:
        path = page_of(name)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            shutil.copytree(ROOT / "scenarios", "scenarios")
            page = renewed(path.read_text(encoding="utf-8"))
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    refresh()
