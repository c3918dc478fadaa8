"""All figures of speed in one table, with what was promised: `python -m bench.figures`.

Every case is stepped by each engine, by one thread, two threads and two processes side by side, and with and without
tables. These take turns, each in a process of its own, so that a machine that slows down slows all of them down;
ratios are medians of the rounds' ratios. What tables cost is less than what runs differ by, so a round has several
pairs of runs with and without. All runs of a case must have one digest. Under the table stands every goal of
`bench.goals` with the cases that reach it and those that miss it. With ``--smoke`` none is judged: goals are for the
whole sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import startup
from bench.cases import CASES
from bench.goals import FIGURE_CASES, GOALS, SPEED_FIGURE, speed_goal
from bench.harness import in_fresh_process, machine, median_ratio, spread
from bench.threads import in_fresh_steppers
from bench.tracing import with_writing

ENGINES = ("fast", "exact", "classic")
"""Engines that are compared; the first is the one with goals."""

CLASSIC_HOSTS_MAX = 1024
"""Hosts of the largest case that is stepped by the classic engine without being asked for."""

PAIRS, PAIRED_HOSTS_MAX = 6, 1024
"""Pairs of runs with and without tables in a round, of cases with so many hosts at most; of others there is one."""

STEPPED: dict[str, tuple[int, int]] = {"one": (1, 1), "two": (2, 1), "pair": (1, 2)}
"""Threads and processes of what is measured by wall clock."""


def measure(name: str, *, rounds: int, smoke: bool = False, classic_everywhere: bool = False) -> dict[str, Any]:
    """Measure everything of one case.

    Parameters
    ----------
    name
        A key of `CASES`.
    rounds
        Runs of each kind, of which medians are taken.
    smoke
        At the size that the test suite runs.
    classic_everywhere
        Step cases by the classic engine that are larger than `CLASSIC_HOSTS_MAX` too.

    Returns
    -------
    dict
        For every engine, ``<engine>_hops_per_cpu_second`` and ``<engine>_spread``, None if it was left out;
        ``fast_per_exact``; ``events_per_hop``. Hops per second of wall clock of ``one`` thread, ``two`` threads and the
        ``pair`` of processes together; ``gain`` (two / one), ``efficiency`` (gain / 2), ``pair_efficiency`` (two /
        pair). ``engine_bytes_per_host``; ``peak_memory_bytes``; ``trace_share``, by which the CPU time of the measured
        part is above that without tables; ``digest``. What each round measured is in ``by_round``.

    Raises
    ------
    RuntimeError
        A run failed, or two computed different things.
    """
    engines = [
        engine
        for engine in ENGINES
        if engine != "classic" or classic_everywhere or CASES[name].hosts <= CLASSIC_HOSTS_MAX
    ]
    pairs_of_round = PAIRS if CASES[name].hosts <= PAIRED_HOSTS_MAX and not smoke else 1
    turns, pairs = [], []
    for _ in range(rounds):
        turns.append(_turn(name, engines, smoke=smoke))
        pairs += [_pair(name, smoke=smoke, is_odd=bool(turn % 2)) for turn in range(pairs_of_round)]
    _check_digests(name, [*turns, *pairs])

    def every(kind: str, figure: str) -> list[float]:
        return [turn[kind][figure] for turn in turns]

    speeds = {kind: every(kind, "hops_per_second") for kind in STEPPED}
    cpu_speeds = {engine: every(engine, "hops_per_cpu_second") for engine in engines}
    measured_cpu = {kind: [pair[kind]["measured_cpu_seconds"] for pair in pairs] for kind in ("fast", "off")}
    gain = median_ratio(speeds["two"], speeds["one"])
    first = turns[0]["fast"]
    result: dict[str, Any] = {
        "name": name,
        "smoke": smoke,
        "hosts": first["hosts"],
        "rounds": rounds,
        "digest": first["digest"],
        "measured_hops": first["measured_hops"],
        "events_per_hop": first["events_per_hop"],
    }
    for engine in ENGINES:
        measured = cpu_speeds.get(engine)
        result[f"{engine}_hops_per_cpu_second"] = statistics.median(measured) if measured else None
        result[f"{engine}_spread"] = spread(measured) if measured else None
    return result | {
        "fast_per_exact": median_ratio(cpu_speeds["fast"], cpu_speeds["exact"]),
        **{kind: statistics.median(values) for kind, values in speeds.items()},
        "gain": gain,
        "efficiency": gain / 2,
        "pair_efficiency": median_ratio(speeds["two"], speeds["pair"]),
        "engine_bytes_per_host": statistics.median(every("fast", "engine_bytes_per_host")),
        "peak_memory_bytes": statistics.median(every("fast", "peak_memory_bytes")),
        "trace_share": median_ratio(measured_cpu["fast"], measured_cpu["off"]) - 1,
        "by_round": {
            "hops_per_cpu_second": cpu_speeds,
            "hops_per_second": speeds,
            "measured_cpu_seconds": measured_cpu,
        },
    }


def _turn(name: str, engines: Sequence[str], *, smoke: bool) -> dict[str, dict[str, Any]]:
    """One round: what is compared with each other comes one after the other."""
    runs = {engine: in_fresh_process(name, smoke=smoke, engine=engine) for engine in engines}
    for kind, (threads, processes) in STEPPED.items():
        stepped = in_fresh_steppers(name, threads, processes=processes, smoke=smoke)
        runs[kind] = {
            "hops_per_second": sum(run["hops_per_second"] for run in stepped),
            "digest": " and ".join(sorted({run["digest"] for run in stepped})),
        }
    return runs


def _pair(name: str, *, smoke: bool, is_odd: bool) -> dict[str, dict[str, Any]]:
    """One run without tables, and one with those of the default; they take turns in being the first."""
    traces = {"off": "off", "fast": "default"}
    kinds = list(traces)[::-1] if is_odd else list(traces)
    return {kind: with_writing(in_fresh_process(name, smoke=smoke, trace=traces[kind])) for kind in kinds}


_KINDS = {
    "off": "no tables",
    **{engine: f"--engine {engine}" for engine in ENGINES},
    "one": "one thread",
    "two": "two threads",
    "pair": "two processes",
}


def _check_digests(name: str, turns: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    kinds: dict[str, list[str]] = {}
    for turn in turns:
        for kind, run in turn.items():
            kinds_with_it = kinds.setdefault(run["digest"], [])
            if _KINDS[kind] not in kinds_with_it:
                kinds_with_it.append(_KINDS[kind])
    if len(kinds) > 1:
        found = "; ".join(f"{digest} by {', '.join(whom)}" for digest, whom in kinds.items())
        raise RuntimeError(f"{name}: runs differ, digest {found}; all must compute the same")


def start_up(rounds: int) -> dict[str, Any]:
    """Time `fabemu run` of two hosts from start to end: median of the wall clock, and the digest of the run."""
    rows, digest = startup.measure(rounds)
    wall_s = next(row["wall_s"] for row in rows if row["name"] == "run")
    return {"run_wall_seconds": wall_s, "rounds": rounds, "digest": digest}


NOT_JUDGED = "not judged: the sizes of --smoke are too small"
"""What stands in the place of goals that figures say nothing about."""


def judged(results: Sequence[Mapping[str, Any]], started: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Hold the figures against `GOALS`.

    Parameters
    ----------
    results
        What `measure` gives, of some cases.
    started
        What `start_up` gives.

    Returns
    -------
    list
        For every goal of what was measured ``what`` it is, ``limit`` (a text), and ``verdicts``: for each case its
        ``name`` (empty for start-up), ``value``, the value as it is ``shown``, ``missed_by`` as a share of the limit,
        and ``verdict``, "reached" or "missed by x %". None of them with results of ``--smoke``.
    """
    if any(result["smoke"] for result in results):
        return []
    by_name = {result["name"]: result for result in results}
    rows = []
    for goal in GOALS:
        whose = {name: by_name[name] for name in goal.cases if name in by_name} if goal.cases else {"": started}
        if not whose:
            continue
        values = {name: figures[goal.figure] for name, figures in whose.items()}
        verdicts = [
            {
                "name": name,
                "value": value,
                "shown": goal.shown(value),
                "missed_by": goal.missed_by(value),
                "verdict": goal.verdict(value),
            }
            for name, value in values.items()
        ]
        rows.append({"what": goal.what, "limit": goal.limit_text, "verdicts": verdicts})
    return rows


def _reached_and_missed(row: Mapping[str, Any]) -> tuple[str, str]:
    """Texts of a row of `judged`, "-" if there is no such case."""
    reached, missed = [], []
    for found in row["verdicts"]:
        text = f"{found['name']} {found['shown']}".lstrip()
        if found["missed_by"]:
            missed.append(f"{text} ({found['verdict'].removeprefix('missed ')})")
        else:
            reached.append(text)
    return ", ".join(reached) or "-", ", ".join(missed) or "-"


def _mega(figure: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: "-" if result[figure] is None else f"{result[figure] / 1e6:.2f}"


def _percent(figure: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: "-" if result[figure] is None else f"{100 * result[figure]:.0f} %"


def _ratio(figure: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: f"{result[figure]:.2f}"


def _speed_verdict(result: Mapping[str, Any]) -> str:
    goal = speed_goal(result["name"])
    if goal is not None and result["smoke"]:
        return f"{goal.limit:g} not judged"
    return "none" if goal is None else f"{goal.limit:g} {goal.verdict(result[SPEED_FIGURE])}"


COLUMNS: tuple[tuple[str, int, Callable[[Mapping[str, Any]], str]], ...] = (
    ("case", 20, lambda result: result["name"]),
    ("fast", 7, _mega("fast_hops_per_cpu_second")),
    ("spread", 7, _percent("fast_spread")),
    ("goal", 23, _speed_verdict),
    ("exact", 7, _mega("exact_hops_per_cpu_second")),
    ("spread", 7, _percent("exact_spread")),
    ("classic", 8, _mega("classic_hops_per_cpu_second")),
    ("spread", 7, _percent("classic_spread")),
    ("fast/exact", 11, _ratio("fast_per_exact")),
    ("ev/hop", 7, lambda result: f"{result['events_per_hop']:.3f}"),
    ("1 thread", 9, _mega("one")),
    ("2 threads", 10, _mega("two")),
    ("2 processes", 12, _mega("pair")),
    ("gain", 6, _ratio("gain")),
    ("of 2 x 1", 9, _ratio("efficiency")),
    ("of 2 processes", 15, _ratio("pair_efficiency")),
    ("traces", 10, lambda result: f"{100 * result['trace_share']:.1f} %"),
    ("kB/host", 8, lambda result: f"{result['engine_bytes_per_host'] / 1e3:.1f}"),
    ("peak MB", 8, lambda result: f"{result['peak_memory_bytes'] / 1e6:.0f}"),
    ("digest", 18, lambda result: result["digest"]),
)
"""Titles and widths of the table, and the cells of a row from what `measure` gives."""

LEGEND = (
    "fast, exact, classic: Mhop per CPU-second of each engine on one thread, medians; spread = (fastest - slowest) / "
    "median; fast/exact: median of the rounds' ratios",
    "1 thread, 2 threads, 2 processes (side by side, together): Mhop/s of wall clock; gain = 2 threads / 1 thread; "
    "of 2 x 1 = gain / 2; of 2 processes = 2 threads / 2 processes",
    "traces: CPU time of the measured part with default tables, above that without; kB/host: memory of the engine at "
    "the end; peak MB: of the process",
)
"""What the columns are."""

_MARKDOWN_WIDTH = 120


def cells(result: Mapping[str, Any]) -> list[str]:
    """One row of the table."""
    return [cell(result) for _, _, cell in COLUMNS]


def _line(texts: Sequence[str]) -> str:
    first, *rest = (
        text.rjust(width) if place else text.ljust(width)
        for place, (text, (_, width, _)) in enumerate(zip(texts, COLUMNS, strict=True))
    )
    return first + "".join(rest)


def _machine_line(facts: Mapping[str, Any], rounds: int) -> str:
    return ", ".join(f"{key} {value}" for key, value in facts.items()) + f", rounds {rounds}"


def markdown(
    results: Sequence[Mapping[str, Any]], judgement: Sequence[Mapping[str, Any]], facts: Mapping[str, Any], rounds: int
) -> str:
    """Both tables for docs/SPEED.md, with what the columns are and the machine underneath.

    Parameters
    ----------
    results
        What `measure` gives, of some cases.
    judgement
        What `judged` gives of them.
    facts
        What `bench.harness.machine` gives.
    rounds
        Runs of each kind.
    """

    def table(rows: Sequence[Sequence[str]]) -> list[str]:
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        return [head, "|---" * len(rows[0]) + "|", *body]

    goals = [[row["what"], row["limit"], *_reached_and_missed(row)] for row in judgement]
    under = table([["goal", "limit", "reached", "missed"], *goals]) if goals else [f"Goals are {NOT_JUDGED}."]
    return "\n".join(
        [
            *table([[title for title, _, _ in COLUMNS], *(cells(result) for result in results)]),
            "",
            *(textwrap.fill(f"- {line}", _MARKDOWN_WIDTH, subsequent_indent="  ") for line in LEGEND),
            "",
            *under,
            "",
            textwrap.fill(_machine_line(facts, rounds), _MARKDOWN_WIDTH),
        ]
    )


def _goals_text(judgement: Sequence[Mapping[str, Any]]) -> str:
    if not judgement:
        return f"goals: {NOT_JUDGED}"
    lines = ["goals"]
    for row in judgement:
        lines.append(f"  {row['what']}: {row['limit']}")
        for kind, texts in zip(("reached", "missed"), _reached_and_missed(row), strict=True):
            lines.append(f"    {kind}: {texts}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure the named cases; print the table, JSON or Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"default: {', '.join(FIGURE_CASES)}")
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians are shown, default 5")
    parser.add_argument("--smoke", action="store_true", help="small sizes: shows that it works, and judges nothing")
    parser.add_argument(
        "--classic-everywhere",
        action="store_true",
        help=f"--engine classic with more than {CLASSIC_HOSTS_MAX:,} hosts too, where it is slowest",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of the table")
    form.add_argument("--markdown", action="store_true", help="print the tables as Markdown, for docs/SPEED.md")
    parser.add_argument("--output", type=Path, help="write the JSON to this file as well")
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(options.names or FIGURE_CASES))
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.output is not None:
        # Minutes later it would be too late to say so.
        try:
            options.output.touch()
        except OSError as error:
            parser.error(f"--output {options.output}: {error.strerror}")
    is_table = not options.json and not options.markdown

    facts = machine()
    report: dict[str, Any] = {"machine": facts, "rounds": options.rounds}
    results: list[dict[str, Any]] = []
    try:
        started = start_up(options.rounds)
        if is_table:
            print(_machine_line(facts, options.rounds), *LEGEND, sep="\n")
            print(_line([title for title, _, _ in COLUMNS]), flush=True)
        for name in names:
            found = measure(
                name, rounds=options.rounds, smoke=options.smoke, classic_everywhere=options.classic_everywhere
            )
            results.append(found)
            report |= {"start_up": started, "goals": judged(results, started), "results": results}
            report |= {"goals_note": NOT_JUDGED} if options.smoke else {}
            # After every case: a run that is broken off late has not been for nothing.
            if options.output is not None:
                options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
            if is_table:
                print(_line(cells(found)), flush=True)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report, indent=1))
    elif options.markdown:
        print(markdown(results, report["goals"], facts, options.rounds))
    else:
        print(_goals_text(report["goals"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
