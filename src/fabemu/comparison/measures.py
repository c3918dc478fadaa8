"""Headline figures of single runs: those that every run has, and those of its workloads, collectives and jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fabemu.headline import FIGURES, Better, Figure, figures_in
from fabemu.report import Summary, summarise
from fabemu.result import Run

_LABELLED = ("p50", "p99", "max")
"""Figures of the distribution of each workload; all of them are there for the messages of a run together."""


def measure(run: Run) -> dict[Figure, float]:
    """Figures of a run by what they are; those that cannot be had are left out.

    Besides the numbers of `fabemu.headline`: ``workload.LABEL.*`` if the run has several workloads, and
    ``collective.LABEL.OPERATION.*``, ``job.NAME.*``, ``training.LABEL.*`` and ``busiest_link.*`` where there are any.
    What never came to its end took an infinite time, at a rate of zero.
    """
    summary = summarise(run)
    found = {
        FIGURES[name]: float(value) for name, value in figures_in(summary, run).items() if FIGURES[name].kind != "text"
    }
    for figure, value in _more(summary):
        if not math.isnan(value):
            found[figure] = float(value)
    return found


def _more(summary: Summary) -> Iterator[tuple[Figure, float]]:
    yield from _workloads(summary)
    yield from _collectives(summary)
    for job in summary.jobs:
        place = f"job.{job.name}"
        ended = not math.isnan(job.completion_ps)
        yield _figure(f"{place}.completion_ps", "ps", "time from arrival to end", "less"), _time(job.completion_ps)
        if ended:
            share = f"{place}.communication_share"
            yield _figure(share, "", "share of it in which a rank did not compute", "less"), job.communication_share
        bandwidth = _figure(f"{place}.busbw_bps", "bit/s", "bus bandwidth of its collectives", "more")
        yield bandwidth, job.busbw_bps
    for item in summary.steps:
        place, ended = f"training.{item.label}", not math.isnan(item.step_ps)
        yield _figure(f"{place}.step_ps", "ps", "time of a step", "less"), _time(item.step_ps)
        yield _figure(f"{place}.exposed_ps", "ps", "of it, in which a rank waits", "less"), _time(item.exposed_ps)
        speed = _figure(f"{place}.tokens_per_s", "1/s", "tokens per second", "more")
        yield speed, item.tokens_per_s if ended else 0.0
    if summary.busiest_links:
        link = summary.busiest_links[0]
        for name in ("mean_utilisation", "peak_utilisation"):
            about = f"{name.split('_')[0]} utilisation of the link with the greatest mean"
            yield _figure(f"busiest_link.{name}", "", about, "neither"), getattr(link, name)


def _workloads(summary: Summary) -> Iterator[tuple[Figure, float]]:
    if len(summary.labels) < 2:
        return  # it is the same as all messages
    for group in summary.labels:
        for key in _LABELLED:
            for name, unit in (("fct_ps", "ps"), ("slowdown", "")):
                about = f"{key} of {'completion times' if unit else 'slowdowns'} of the workload"
                figure = _figure(f"workload.{group.name}.{name}.{key}", unit, about, "less")
                yield figure, getattr(group, name)[key]


def _collectives(summary: Summary) -> Iterator[tuple[Figure, float]]:
    repeats: Counter[str] = Counter()
    for item in summary.collectives:
        place = f"collective.{item.label}.{item.operation}" + (f".{item.purpose}" if item.purpose else "")
        repeats[place] += 1
        if repeats[place] > 1:  # the same with another size or number of ranks
            place += f"#{repeats[place]}"
        ended = not math.isnan(item.time_ps)
        yield _figure(f"{place}.time_ps", "ps", "median time of its runs", "less"), _time(item.time_ps)
        yield _figure(f"{place}.time_max_ps", "ps", "greatest time of its runs", "less"), _time(item.time_max_ps)
        bandwidth = _figure(f"{place}.busbw_bps", "bit/s", "bus bandwidth of the median run", "more")
        yield bandwidth, item.busbw_bps if ended else 0.0
        yield _figure(f"{place}.unfinished", "", "runs that did not come to their end", "less"), item.unfinished


def _figure(name: str, unit: str, meaning: str, better: Better) -> Figure:
    return Figure(name, "float", unit, meaning, "", better)


def _time(time_ps: Any) -> float:
    """A time, infinite if it never ended."""
    return math.inf if math.isnan(time_ps) else float(time_ps)
