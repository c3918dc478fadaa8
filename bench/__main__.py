"""Command line of the benchmarks: a table on stdout, or JSON."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.cases import CASES
from bench.harness import machine, measure, run_once
from fabemu.simulate import ENGINES, TRACE_LEVELS

_COLUMNS = (
    ("case", 20),
    ("Mhop/cpu-s", 11),
    ("spread", 7),
    ("Mhop/s", 8),
    ("whole", 7),
    ("hops M", 8),
    ("ev/hop", 7),
    ("run s", 7),
    ("drain s", 8),
    ("record s", 9),
    ("compile s", 10),
    ("B/host", 10),
    ("B/packet", 9),
    ("peak MB", 8),
    ("digest", 17),
)


def _row(result: dict[str, Any]) -> list[str]:
    return [
        result["name"],
        f"{result['hops_per_cpu_second'] / 1e6:.2f}",
        f"{result['spread']:.0%}",
        f"{result['hops_per_second'] / 1e6:.2f}",
        f"{result['process_hops_per_cpu_second'] / 1e6:.2f}",
        f"{result['measured_hops'] / 1e6:.2f}",
        f"{result['events_per_hop']:.3f}",
        f"{result['run_cpu_seconds']:.3f}",
        f"{result['drain_cpu_seconds']:.3f}",
        f"{result['record_cpu_seconds']:.3f}",
        f"{result['compile_cpu_seconds']:.2f}",
        f"{result['engine_bytes_per_host']:,.0f}",
        f"{result['bytes_per_in_flight_packet']:.0f}",
        f"{result['peak_memory_bytes'] / 1e6:.0f}",
        result["digest"],
    ]


def _line(cells: list[str]) -> str:
    widths = [width for _, width in _COLUMNS]
    return cells[0].ljust(widths[0]) + "".join(
        cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the named cases; all of them without a name."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of which the median is shown")
    parser.add_argument("--warm-ups", type=int, default=1, help="runs before them that are not counted")
    parser.add_argument("--smoke", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--output", type=Path, help="write the JSON to this file as well")
    parser.add_argument("--threads", type=int, default=1, help="most threads that may step the engine, default 1")
    parser.add_argument("--engine", choices=ENGINES, default="fast", help="what steps it, default fast")
    parser.add_argument("--once", action="store_true", help="one run in this process, as JSON")
    parser.add_argument("--trace", choices=TRACE_LEVELS, default="default", help="tables to write, with --once")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.repeats < 1 or options.warm_ups < 0:
        parser.error("--repeats must be at least 1, --warm-ups at least 0")
    names = options.names or list(CASES)
    if options.once:
        for name in names:
            result = run_once(
                name, smoke=options.smoke, trace=options.trace, threads=options.threads, engine=options.engine
            )
            print(json.dumps(result))
        return 0

    facts, results = machine(), []
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
        print(_line([title for title, _ in _COLUMNS]))
    for name in names:
        results.append(
            measure(
                name,
                repeats=options.repeats,
                warm_ups=options.warm_ups,
                smoke=options.smoke,
                threads=options.threads,
                engine=options.engine,
            )
        )
        if not options.json:
            print(_line(_row(results[-1])), flush=True)
    text = json.dumps({"machine": facts, "results": results}, indent=1)
    if options.json:
        print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
