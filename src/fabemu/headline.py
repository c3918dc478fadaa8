"""Headline figures of a run, named as in ``fabemu run --json``: columns of a sweep's results, rows of a comparison."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any, Literal

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.report import Summary, summarise
from fabemu.result import Run
from fabemu.trace import DROP_CAUSES, read_table, table_path

Better = Literal["less", "more", "neither"]
"""Which way a figure changes for the better; neither for what is good or bad only together with others."""


@dataclass(frozen=True)
class Figure:
    """One figure: its name, type, unit and meaning, where ``fabemu run --json`` has it, and which way is better."""

    name: str
    kind: Literal["int", "float", "text"]
    unit: str
    meaning: str
    place: str
    better: Better = "neither"


def _distribution(name: str, unit: str, one: str, many: str) -> list[Figure]:
    meanings = {key: f"{key[1:]}th percentile of {many}" for key in ("p50", "p90", "p99", "p99.9")}
    meanings |= {"max": f"greatest {one}", "mean": f"mean {one}"}
    infinite = "; infinite where messages did not finish"
    return [
        Figure(f"{name}.{key}", "float", unit, text + infinite, f"summary.sizes[0].{name}.{key}", "less")
        for key, text in meanings.items()
    ]


def _totals() -> list[Figure]:
    meanings = {
        "packet_hops": "packets put on a link",
        "data_packets": "data packets sent, those sent again included",
        "packets_dropped": "packets dropped",
        "retransmissions": "data packets sent again",
        "cnps": "congestion notifications sent",
        "marks": "packets marked by ECN",
        "xoffs": "times that a switch told a peer to pause",
        "pfc_frames": "PFC frames sent",
        **{f"drops_{cause}": f"frames dropped: {cause.replace('_', ' ')}" for cause in DROP_CAUSES},
    }
    # Marks and their notifications cost nothing by themselves; what they are for shows in the other figures.
    neutral = ("packet_hops", "data_packets", "cnps", "marks")
    return [
        Figure(f"totals.{key}", "int", "", text, f"totals.{key}", "neither" if key in neutral else "less")
        for key, text in meanings.items()
    ]


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in [
        Figure("plan_digest", "text", "", "what was simulated", "plan_digest"),
        Figure("digest", "text", "", "what came out, packet by packet", "digest"),
        Figure("simulated_ps", "int", "ps", "simulated time", "simulated_ps"),
        Figure("messages.count", "int", "", "messages of the workloads", "messages.count"),
        Figure("messages.done", "int", "", "messages acknowledged", "messages.done", "more"),
        Figure("messages.failed", "int", "", "messages whose queue pair gave up", "messages.failed", "less"),
        Figure(
            "messages.unfinished", "int", "", "messages still on their way at the end", "messages.unfinished", "less"
        ),
        Figure("messages.not_run", "int", "", "messages never posted", "messages.not_run", "less"),
        *_distribution("fct_ps", "ps", "completion time", "completion times"),
        *_distribution("slowdown", "", "slowdown", "slowdowns (completion time / ideal)"),
        Figure("pauses.count", "int", "", "pauses", "summary.pauses.count", "less"),
        Figure("pauses.paused_ps", "int", "ps", "paused time, summed over pauses", "summary.pauses.paused_ps", "less"),
        Figure("pauses.longest_ps", "int", "ps", "longest pause", "summary.pauses.longest_ps", "less"),
        Figure("queue_max_bytes", "int", "bytes", "longest queue of one class at any port", "", "less"),
        *_totals(),
    ]
}
"""All figures by name, in the order of the columns. The time a run took is none of them: see the table of costs."""

NUMBERS = tuple(name for name, figure in FIGURES.items() if figure.kind != "text")
"""Figures that can be an objective."""

HEADLINE = ("slowdown.p50", "slowdown.p99", "fct_ps.p99", "pauses.paused_ps", "queue_max_bytes", "totals.marks")
"""Figures that the summary shows, besides the objectives."""


def figures_of(run: Run) -> dict[str, Any]:
    """Headline figures of a run that has ended, by name; those that cannot be had are left out."""
    return figures_in(summarise(run), run)


def figures_in(summary: Summary, run: Run) -> dict[str, Any]:
    """Headline figures of a run whose summary is known; as `figures_of`."""
    document: dict[str, Any] = {**summary.info, "summary": {"sizes": summary.sizes[:1], "pauses": summary.pauses}}
    found = {}
    for figure in FIGURES.values():
        value = _longest_queue(run) if figure.name == "queue_max_bytes" else _at(document, figure.place)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        found[figure.name] = float(value) if figure.kind == "float" else value
    return found


def check_figure(name: str) -> str:
    """A name that can be an objective; raises InputError with the nearest one otherwise."""
    if name in NUMBERS:
        return name
    near = difflib.get_close_matches(name, NUMBERS, 1, 0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"there is no figure {name!r}{hint} (they are {', '.join(NUMBERS)})")


def _longest_queue(run: Run) -> int | None:
    import pyarrow.compute as pc

    try:
        table = read_table(table_path(run.directory, "ports"), ("queue_max_bytes",))
    except InputError:
        return None  # the run did not write it
    return pc.max(table.column("queue_max_bytes")).as_py() or 0


def _at(document: Any, place: str) -> Any:
    """The value at a place such as ``summary.sizes[0].slowdown.p99.9``."""
    keys = place.replace("[0]", ".0").replace("p99.9", "p99|9").split(".")
    for part in keys:
        key = part.replace("|", ".")
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, list):
            document = document[0] if document else None
        else:
            document = getattr(document, key, None)
    return document
