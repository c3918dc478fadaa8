"""Sections of text for people: a heading with a table or lines, in colour on a terminal, plain elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import IO

from fabemu.deferred import dataclass

NAME_COLUMNS = frozenset(
    {
        "size",
        "workload",
        "job",
        "collective",
        "algorithm",
        "port",
        "ingress port",
        "egress port",
        "class",
        "cause",
        "incident",
        "first at",
    }
)
"""Headings of columns that hold names: these stand to the left, figures to the right."""


@dataclass(frozen=True)
class Section:
    """A heading with either a table (columns and rows of text) or lines."""

    title: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    alarm: bool = False
    names: frozenset[str] = NAME_COLUMNS  # headings of the columns that stand to the left


def plain_text(sections: Iterable[Section]) -> str:
    """Sections as plain text, a line per row."""
    return "\n".join(_text(section) for section in sections)


def show(sections: Iterable[Section], stream: IO[str]) -> None:
    """Print to a stream: in colour if it is a terminal and NO_COLOR is not set, else as plain text."""
    if stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        _show_rich(sections, stream)
    else:
        stream.write(f"{plain_text(sections)}\n")


def _text(section: Section) -> str:
    lines = [section.title, *(f"  {line}" for line in section.lines)]
    if section.columns:
        cells = [section.columns, *section.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(section.columns))]
        for row in cells:
            parts = [
                cell.ljust(width) if section.columns[column] in section.names else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append(f"  {'  '.join(parts)}".rstrip())
    return "\n".join(lines)


def _show_rich(sections: Iterable[Section], stream: IO[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for section in sections:
        style = "bold red" if section.alarm else "bold"
        console.print(Text(section.title, style=style))
        for line in section.lines:
            console.print(Text(f"  {line}", style="red" if section.alarm else ""), soft_wrap=True)
        if section.columns:
            table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
            for column in section.columns:
                table.add_column(column, justify="left" if column in section.names else "right", no_wrap=True)
            for row in section.rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
