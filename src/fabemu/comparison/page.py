"""A comparison as one HTML page that needs nothing else: its sections as tables, and the distributions overlaid."""

from __future__ import annotations

import html
from collections.abc import Sequence

from fabemu.comparison.limits import Verdict
from fabemu.comparison.result import Comparison
from fabemu.comparison.text import sections
from fabemu.figures.canvas import graph_objects, notes_of
from fabemu.figures.compared import compared
from fabemu.layout import Section

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1b2430; background: #fff; max-width: 1200px; margin: 2em auto; }
table { border-collapse: collapse; margin: .3em 0 1.2em; display: block; overflow-x: auto; }
th, td { padding: .15em .7em; text-align: right; white-space: nowrap; border-bottom: 1px solid #e4e8ed; }
th { color: #5c6875; font-weight: 600; }
.name { text-align: left; }
.worse, .alarm { color: #b3261e; }
.better { color: #1b7b60; }
@media print { body { margin: 0; } }
"""


def document(comparison: Comparison, verdicts: Sequence[Verdict] = ()) -> str:
    """The page as text; names of scenarios, workloads and files are escaped.

    Raises
    ------
    InputError
        Plotly is not installed.
    """
    graph_objects()
    title = html.escape(" and ".join(dict.fromkeys(group.name for group in comparison.groups)))
    workloads = list(dict.fromkeys(curve.workload for curve in comparison.curves))
    figures = []
    for index, workload in enumerate(workloads):
        figure = compared(comparison, workload)
        heading = "all messages" if workload is None else f"workload {workload}"
        drawn = figure.to_html(
            full_html=False, include_plotlyjs=index == 0, div_id=f"distribution-{index}", config={"displaylogo": False}
        )
        remarks = "".join(f"<p>{html.escape(note)}</p>" for note in notes_of(figure))
        figures.append(f"<h2>Distributions: {html.escape(heading)}</h2>{drawn}{remarks}")
    parts = [_section(section) for section in sections(comparison, verdicts)]
    # What differs comes first, then the pictures, then the figures in full.
    body = "\n".join([*parts[:2], *figures, *parts[2:]])
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Comparison: {title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def _section(section: Section) -> str:
    style = ' class="alarm"' if section.alarm else ""
    parts = [f"<h2{style}>{html.escape(section.title[:1].upper() + section.title[1:])}</h2>"]
    parts += [f"<p>{html.escape(line)}</p>" for line in section.lines]
    if section.columns:
        kinds = ["name" if column in section.names else "" for column in section.columns]
        head = "".join(_cell("th", kind, text) for kind, text in zip(kinds, section.columns, strict=True))
        rows = "".join(
            f"<tr>{''.join(_cell('td', kind, text) for kind, text in zip(kinds, row, strict=True))}</tr>\n"
            for row in section.rows
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return "\n".join(parts)


def _cell(tag: str, kind: str, text: str) -> str:
    classes = f"{kind} {text.rstrip('?') if text.rstrip('?') in ('worse', 'better') else ''}".strip()
    return f"<{tag}{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}>{html.escape(text)}</{tag}>"
