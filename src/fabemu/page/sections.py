"""The sections of a page, each from the tables that a run has; where one is missing, the section says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from fabemu.analysis.alarms import ALARMS
from fabemu.analysis.storms import Storm
from fabemu.analysis.tails import tails
from fabemu.counted import counted
from fabemu.errors import InputError
from fabemu.figures.budgets import budgets
from fabemu.figures.collectives import collectives as collectives_figure
from fabemu.figures.completion_times import GROUPINGS, completion_times
from fabemu.figures.fabric import base_figure, fabric_view, notes
from fabemu.figures.port_series import PortSeries, port_series
from fabemu.figures.storm_tree import tree_of
from fabemu.figures.timelines import INTERVALS_SHOWN, timelines
from fabemu.figures.training_steps import training_steps
from fabemu.page import tables
from fabemu.page.answers import Answer
from fabemu.page.blocks import Alarm, AlarmBlock, Chooser, FabricBlock, FigureBlock, Section
from fabemu.page.fabric_data import fabric_data
from fabemu.result import Run
from fabemu.trace import dictionary_column, integer_column

STORMS_DRAWN = 8
INCIDENTS_SHOWN = 12
"""Most incidents of the health checks; they come by severity."""

CLASSES_DRAWN = 4
"""Most classes that timelines can be chosen for; those of highest priority."""

_GROUPING_NAMES = {
    "size": "size",
    "label": "workload",
    "job": "job",
    "class": "class",
    "collective": "collective",
}


def sections(run: Run, said: Answer) -> list[Section]:
    """All sections of a run, in the order of the page."""
    makers: list[tuple[str, str, Callable[[], Section]]] = [
        ("checks", "Checks", lambda: _checks(said)),
        ("fabric", "Fabric", lambda: _fabric(run)),
        ("times", "Completion times", lambda: _times(run)),
        ("timelines", "Queues and rates", lambda: _timelines(run)),
        ("storms", "Storms of pauses", lambda: _storms(said)),
        ("collectives", "Collectives and steps", lambda: _collectives(run, said)),
        ("messages", "Slowest messages", lambda: _messages(run)),
    ]
    found = []
    for key, title, make in makers:
        try:
            found.append(make())
        except InputError as error:
            found.append(Section(key, title, missing=f"Not shown: {error}"))
    return found


def _checks(said: Answer) -> Section:
    info = said.summary.info
    alarms = []
    health = said.health
    for incident in health.incidents[:INCIDENTS_SHOWN] if health is not None else ():
        root = incident.root
        details = [f"{alert.where}: {alert.sentence}." for alert in incident.others]
        text = f"{root.sentence[0].upper()}{root.sentence[1:]}."
        alarms.append(Alarm(incident.severity, f"{root.code} {ALARMS[root.code].title}: {root.where}", text, details))
    alarms += [
        Alarm("error" if not check["held"] else "fine", check["name"].replace("_", " "), check["detail"])
        for check in info.get("invariants") or ()
        if not check["held"]
    ]
    for finding in info.get("findings", ()):
        alarms.append(
            Alarm(
                finding["severity"],
                f"{finding.get('code', '')} {finding.get('where', '')}".strip(),
                str(finding.get("message", "")),
            )
        )
    invariants = info.get("invariants")
    if invariants is None:
        lead = "Invariants were not checked: the run did not come to its end."
    else:
        held = sum(check["held"] for check in invariants)
        lead = f"{held} of {counted(len(invariants), 'invariant of the engine')} held."
    if health is None:
        lead += " The health of the run could not be looked at."
    elif not health.incidents:
        unchecked = f"; {', '.join(health.unchecked)} could not be looked for" if health.unchecked else ""
        lead += f" No health check found anything{unchecked}."
    else:
        count = len(health.incidents)
        lead += f" The health checks found {counted(count, 'incident')}; alerts of one root are joined."
        if count > INCIDENTS_SHOWN:
            lead += f" The {INCIDENTS_SHOWN} most severe are shown; fabemu health lists all."
    lead = " ".join([lead, *(f"{str(note).rstrip('.')}." for note in (health.notes if health is not None else ()))])
    return Section("checks", "Checks", lead, [AlarmBlock("What was found", alarms)] if alarms else [])


def _fabric(run: Run) -> Section:
    view = fabric_view(run)
    block = FabricBlock(
        key="fabric",
        caption="The fabric: links coloured by what they carried, with a slider over time",
        figure=base_figure(view),
        data=fabric_data(view),
        notes=notes(view),
    )
    lead = (
        "The half of a link next to a device shows what that device sends. Links with a halo were paused. "
        "Point at a link for its figures."
    )
    return Section("fabric", "Fabric", lead, [block])


def _times(run: Run) -> Section:
    flows = run.table("flows")
    groupings = [name for name in GROUPINGS if name == "size" or _has_several(flows, name)]
    figures = {}
    for by in groupings:
        for measure in ("slowdown", "fct_ps"):
            for tail in (False, True):
                key = f"{measure}|{by}|{'tail' if tail else 'share'}"
                figures[key] = completion_times(run, measure=measure, by=by, tail=tail)
    choosers = [
        Chooser("figure", [("slowdown", "slowdown"), ("fct_ps", "completion time")]),
        Chooser("by", [(name, _GROUPING_NAMES[name]) for name in groupings]),
        Chooser("show", [("share", "share that took at most"), ("tail", "share that took longer (log)")]),
    ]
    blocks: list[Any] = [FigureBlock("times", "Distribution of completion times and slowdowns", figures, choosers)]
    wanted = ("all", "size", *(name for name in groupings if name in ("label", "job", "class")))
    blocks.append(tables.percentiles(tails(run, by=wanted).to_pylist()))
    return Section("times", "Completion times", "", blocks)


def _has_several(flows: pa.Table, column: str) -> bool:
    """Whether a column has more than one value; of collectives, whether it has any."""
    if column == "collective":
        return bool((integer_column(flows, column) >= 0).any())
    index, _ = dictionary_column(flows, column)
    return len(np.unique(index[index >= 0])) > 1


def _timelines(run: Run) -> Section:
    series = port_series(run, INTERVALS_SHOWN)
    classes = _busy_classes(series)
    figures = {}
    for rank in ("use", "queue", "paused"):
        for name in (None, *classes):
            key = f"{rank}|{'' if name is None else name}"
            figures[key] = timelines(run, rank=rank, class_name=name, series=series)
    choosers = [
        Chooser("ports", [("use", "used most"), ("queue", "with the longest queue"), ("paused", "paused longest")]),
        Chooser("class", [("", "all classes"), *((name, name) for name in classes)]),
    ]
    block = FigureBlock("timelines", "Use, queue and paused time of the ports that matter", figures, choosers)
    return Section("timelines", "Queues and rates", "", [block, tables.ports(series)])


def _busy_classes(series: PortSeries) -> list[str]:
    """Classes to choose from; none where there is only one, which is the same as all."""
    return list(series.classes[:CLASSES_DRAWN]) if len(series.classes) > 1 else []


def _storms(said: Answer) -> Section:
    found = said.storms
    if found is None:
        raise InputError("the run has no pauses table")
    if not found:
        is_whole = said.partial is None and "totals" in said.summary.info
        text = "No link was ever paused." if is_whole else "No link was paused, as far as the run was recorded."
        return Section("storms", "Storms of pauses", text)
    drawn = found[:STORMS_DRAWN]
    figures = {str(number): tree_of(storm) for number, storm in enumerate(drawn)}
    choosers = []
    if len(drawn) > 1:
        choosers = [Chooser("storm", [(str(number), _named(number, storm)) for number, storm in enumerate(drawn)])]
    else:
        figures = {"": figures["0"]}
    block = FigureBlock("storms", "A storm of pauses as a tree from its root", figures, choosers)
    sentence = found[0].sentence()
    lead = f"{sentence[0].upper()}{sentence[1:]}."
    return Section(
        "storms", "Storms of pauses", lead, [block, tables.storm_list(found[: tables.ROWS_SHOWN], len(found))]
    )


def _named(number: int, storm: Storm) -> str:
    return f"{number}: {storm.root_port} ({counted(storm.ports, 'port')})"


def _collectives(run: Run, said: Answer) -> Section:
    blocks: list[Any] = []
    there = set(run.tables)
    if not there & {"collectives", "jobs", "steps"}:
        return Section(
            "collectives", "Collectives and steps", missing="Not shown: this scenario has no jobs and no collectives."
        )
    if "collectives" in there:
        figure = collectives_figure(run)
        blocks.append(FigureBlock("collectives", "Collectives and training steps over time", {"": figure}))
    if "steps" in there:
        figure = training_steps(run)
        blocks.append(FigureBlock("steps", "What ranks spent training steps on", {"": figure}))
    if said.summary.jobs:
        blocks.append(tables.jobs(said.summary.jobs))
    if "collectives" in there:
        blocks.append(tables.collectives(run))
    return Section("collectives", "Collectives and steps", "", blocks)


def _messages(run: Run) -> Section:
    blocks: list[Any] = []
    lead = ""
    if "packets" in run.tables:
        try:
            caption = "Where the time of the slowest messages went"
            blocks.append(FigureBlock("budgets", caption, {"": budgets(run)}))
        except InputError as error:
            lead = f"Where their time went is not shown: {error}"
    else:
        lead = (
            "Where their time went is not shown: it takes a packets table; `fabemu run` with --trace budget writes "
            "what is needed of it."
        )
    blocks.append(tables.slowest_messages(run))
    return Section("messages", "Slowest messages", lead, blocks)


def figure_blocks(found: list[Section]) -> Iterator[FigureBlock | FabricBlock]:
    """All places for figures."""
    for section in found:
        for block in section.blocks:
            if isinstance(block, FigureBlock | FabricBlock):
                yield block
