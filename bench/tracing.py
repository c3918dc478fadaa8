"""What traces cost: `python -m bench.tracing`, the same runs with no tables, the default ones, and every packet.

Runs of the levels take turns, in the one order and then in the other, so that a machine that slows down slows all of
them down; shares are medians of those of each turn. Compared are CPU seconds of the part after the warm-up, with
everything that writes tables in it, and of whole processes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.cases import CASES
from bench.harness import in_fresh_process, machine, median_of, median_ratio
from fabemu.simulate import TRACE_LEVELS

DEFAULT_CASES = ("clean-128", "congested-1024", "incast-1024")
LEVELS = tuple(TRACE_LEVELS)
"""Trace levels; the first is what the others are compared with."""


def with_writing(run: Mapping[str, Any]) -> dict[str, Any]:
    """Add what `compare` tells of a run by itself: ``measured_cpu_seconds`` and ``writing_share``."""
    writing = run["drain_cpu_seconds"] + run["record_cpu_seconds"] + run["close_cpu_seconds"]
    measured = run["run_cpu_seconds"] + writing
    return {**run, "measured_cpu_seconds": measured, "writing_share": writing / measured}


def compare(name: str, *, repeats: int, smoke: bool = False, levels: Sequence[str] = LEVELS) -> list[dict[str, Any]]:
    """Run one case at every trace level.

    Parameters
    ----------
    name
        A key of `CASES`.
    repeats
        Runs of each level, of which medians are taken; one more of each is not counted.
    smoke
        At the size that the test suite runs.
    levels
        Keys of `fabemu.simulate.TRACE_LEVELS`; the first is compared with.

    Returns
    -------
    list
        What `bench.harness.run_once` gives for every level, with ``measured_cpu_seconds``; how much of them goes to
        taking, converting and writing rows (those of ports are set in their table by the core) and closing the run,
        ``writing_share``; and the shares by which they and the CPU seconds of the process are above the first level in
        the same turn: ``measured_share``, ``process_share``.

    Raises
    ------
    RuntimeError
        A run failed, or the digest depends on the tables.
    """
    runs: dict[str, list[dict[str, Any]]] = {level: [] for level in levels}
    for turn in range(repeats + 1):
        for level in levels if turn % 2 else levels[::-1]:
            run = in_fresh_process(name, smoke=smoke, trace=level)
            if turn > 0:
                runs[level].append(with_writing(run))
    results = [median_of(runs[level]) for level in levels]
    first = runs[levels[0]]
    if len({result["digest"] for result in results}) != 1:
        raise RuntimeError(f"{name}: the tables change what is computed")
    for level, result in zip(levels, results, strict=True):
        for part in ("measured", "process"):
            key = f"{part}_cpu_seconds"
            result[f"{part}_share"] = median_ratio([run[key] for run in runs[level]], [run[key] for run in first]) - 1
    return results


def main(arguments: list[str] | None = None) -> int:
    """Print a table of cases and levels, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"default: {', '.join(DEFAULT_CASES)}")
    parser.add_argument("--repeats", type=int, default=6, help="runs of each level, of which the median is shown")
    parser.add_argument("--smoke", action="store_true", help="small fabrics: shows that it works, not what it costs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in CASES:
            parser.error(f"no benchmark is named {name!r}; there are {', '.join(CASES)}")
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    found = [
        result
        for name in options.names or DEFAULT_CASES
        for result in compare(name, repeats=options.repeats, smoke=options.smoke)
    ]
    if options.json:
        print(json.dumps({"machine": machine(), "results": found}, indent=1))
        return 0
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print(
        f"{'case':16}{'trace':>9}{'measured s':>12}{'more':>8}{'writing':>9}{'process s':>11}{'more':>8}{'rows':>12}"
        f"{'MB':>8}"
    )
    for result in found:
        print(
            f"{result['name']:16}{result['trace']:>9}{result['measured_cpu_seconds']:12.3f}"
            f"{result['measured_share']:8.1%}{result['writing_share']:9.1%}{result['process_cpu_seconds']:11.3f}{result['process_share']:8.1%}"
            f"{result['table_rows']:12,}{result['table_bytes'] / 1e6:8.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
