"""The page of a run as one HTML text: figures, tables, styles and scripts inside, nothing loaded from elsewhere."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from fabemu.errors import InputError
from fabemu.export.output import replacing
from fabemu.figures.canvas import graph_objects, notes_of
from fabemu.figures.palette import DARK
from fabemu.page.answers import NAMED, Answer, answer
from fabemu.page.blocks import AlarmBlock, FabricBlock, FigureBlock, TableBlock
from fabemu.page.sections import figure_blocks, sections
from fabemu.report import bytes_text, count_text, time_text
from fabemu.result import Run
from fabemu.version import version

PAGE_MAX_BYTES = 10_000_000
"""What a page must stay below."""

_FOLDER = "data/page"
_SEPARATORS = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def write_page(run: Run, path: Path, said: Answer | None = None, *, force: bool = False) -> int:
    """Write the page of a run; it appears whole or not at all.

    Parameters
    ----------
    run
        Finished or not.
    path
        HTML file.
    said
        What `answer` gave for this run, to save working it out again.
    force
        Replace an existing file.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    InputError
        Plotly or jinja2 is not installed.
    OutputError
        The path exists, or cannot be written.
    """
    with replacing(path, force=force, inside=run.directory) as file:
        content = document(run, said).encode("utf-8", "backslashreplace")  # a path may be of any bytes
        return file.write(content)


def document(run: Run, said: Answer | None = None) -> str:
    """The page of a run as HTML text.

    Raises
    ------
    InputError
        Plotly or jinja2 is not installed.
    """
    graph_objects()
    try:
        import jinja2
    except ImportError:
        raise InputError("the page needs jinja2: install it with pip install 'fabemu[report]'") from None
    from plotly.offline import get_plotlyjs

    if said is None:
        said = answer(run)
    found = sections(run, said)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["figures"] = lambda block: isinstance(block, FigureBlock)
    environment.tests["fabric"] = lambda block: isinstance(block, FabricBlock)
    environment.tests["rows"] = lambda block: isinstance(block, TableBlock)
    environment.tests["alarms"] = lambda block: isinstance(block, AlarmBlock)
    info = said.summary.info
    from markupsafe import Markup

    return environment.from_string(_text("page.html.j2")).render(
        name=str(info.get("name", run.directory.name)),
        status=str(info.get("status", "unknown")),
        fine=said.partial is None and info.get("status") == "finished",
        answer=said,
        named=NAMED,
        tiles=tiles(said),
        sections=found,
        facts=_facts(said),
        version=version(),
        data=Markup(embedded(_data(found))),
        style=Markup(_text("page.css")),
        script=Markup(_text("page.js")),
        # A closing tag inside a string of the library would end its element.
        plotly=Markup(re.sub(r"</(?=script)", r"<\\/", get_plotlyjs(), flags=re.IGNORECASE)),
    )


def embedded(value: Any) -> str:
    """JSON that can stand in a script element: no character that HTML or old JavaScript would read otherwise."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_SEPARATORS)


def tiles(said: Answer) -> list[tuple[str, str, bool]]:
    """Headline figures: what, how much, and whether it is bad."""
    summary = said.summary
    info, totals = summary.info, summary.info.get("totals", {})
    found: list[tuple[str, str, bool]] = []
    messages = info.get("messages")
    if messages:
        done, count = messages.get("done", 0), messages.get("count", 0)
        found.append(("messages done", f"{count_text(done)} of {count_text(count)}", done < count))
    if "simulated_ps" in info:
        found.append(("simulated", time_text(info["simulated_ps"]), False))
    if summary.sizes and summary.sizes[0].count:
        everything = summary.sizes[0]
        found.append(("completion p50", time_text(everything.fct_ps["p50"]), False))
        found.append(("completion p99", time_text(everything.fct_ps["p99"]), False))
        slow = everything.slowdown["p99"]
        found.append(("slowdown p99", "–" if slow != slow else f"{slow:.2f}", False))
    if summary.pauses is not None:
        found.append(("pauses", count_text(summary.pauses.count), False))
        if summary.pauses.count:
            found.append(("paused time", time_text(summary.pauses.paused_ps), False))
    if totals:
        found.append(("marks", count_text(totals.get("marks", 0)), False))
        dropped = totals.get("packets_dropped", 0)
        found.append(("drops", count_text(dropped), dropped > 0))
        if totals.get("retransmissions"):
            found.append(("sent again", count_text(totals["retransmissions"]), True))
    return found


def _facts(said: Answer) -> list[tuple[str, str]]:
    """Where the figures are from."""
    info = said.summary.info
    facts = [("directory", said.summary.directory), ("seed", str(info.get("seed", "–")))]
    facts.append(("digest", str(info.get("digest", "–"))))
    facts.append(("run by", f"fabemu {info.get('version', '–')}"))
    if "totals" in info:
        facts.append(("packet hops", count_text(info["totals"].get("packet_hops", 0))))
    if "peak_memory_bytes" in info:
        facts.append(("peak memory", bytes_text(info["peak_memory_bytes"])))
    if "started" in info:
        facts.append(("started", str(info["started"])))
    facts.append(("tables", ", ".join(info.get("trace", {}).get("tables", [])) or "none"))
    return facts


def _data(found: list[Any]) -> dict[str, Any]:
    """What the script of the page reads."""
    figures: dict[str, Any] = {}
    fabric = None
    for block in figure_blocks(found):
        if isinstance(block, FabricBlock):
            fabric = {"figure": json.loads(block.figure.to_json()), "notes": list(block.notes), **block.data}
        else:
            figures[block.key] = {
                key: {"figure": json.loads(figure.to_json()), "notes": notes_of(figure)}
                for key, figure in block.figures.items()
            }
    return {"figures": figures, "fabric": fabric, "dark": DARK}


def _text(name: str) -> str:
    return resources.files("fabemu").joinpath(f"{_FOLDER}/{name}").read_text(encoding="utf-8")
