"""What a page is made of: sections with sentences, figures to choose from and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from fabemu.deferred import dataclass

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Chooser:
    """A list to choose from: its label, and values with what they are called."""

    label: str
    options: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class FigureBlock:
    """One place for a figure.

    Attributes
    ----------
    key
        Name of the place, unique on the page.
    caption
        What it shows; also read out by screen readers.
    figures
        By the chosen values joined with "|"; "" where there is nothing to choose.
    choosers
        What can be chosen.
    """

    key: str
    caption: str
    figures: Mapping[str, Figure]
    choosers: Sequence[Chooser] = ()


@dataclass(frozen=True)
class FabricBlock:
    """The place of the fabric, which the page redraws by itself: its empty figure, and the data for it."""

    key: str
    caption: str
    figure: Figure
    data: Mapping[str, Any]
    notes: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what it shows, and the number that it is sorted by (None: its text)."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class TableBlock:
    """A table that can be sorted and filtered.

    Attributes
    ----------
    key
        Name, unique on the page.
    caption
        What it shows.
    columns
        Headings; those in `numbers` are of figures and stand to the right.
    rows
        Cells by column.
    numbers
        Headings of figures.
    note
        What was left out.
    """

    key: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: frozenset[str] = frozenset()
    note: str = ""


@dataclass(frozen=True)
class Alarm:
    """Something found: its severity in a word, a title, a sentence, and details."""

    severity: str
    title: str
    text: str
    details: Sequence[str] = ()


@dataclass(frozen=True)
class AlarmBlock:
    """A list of what was found."""

    caption: str
    alarms: Sequence[Alarm]


@dataclass(frozen=True)
class Section:
    """One part of the page; without blocks `missing` says why."""

    key: str
    title: str
    lead: str = ""
    blocks: Sequence[Any] = field(default_factory=list)
    missing: str = ""
