"""What a second thread brings: `python -m bench.threads`.

A case is stepped three ways by turns, in processes that stay: by one thread; by two processes with one thread each,
side by side; by two threads. Two threads against one tell the gain on this machine. Against the two processes they
tell the price of stepping one fabric together, whatever the machine does to two busy cores: where they are two
threads of one core, or where a neighbour has one of them, that is the only figure of use. All runs of a case must
have one digest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fabemu._core.engine import Engine

from bench.cases import CASES, build
from bench.harness import ROOT, machine, median_ratio
from fabemu.partition import partition
from fabemu.plan import Plan

DEFAULT_CASES = ("clean-1024", "congested-1024", "incast-1024")
BUDGET_HOPS = 200_000
_RUNNING = 0


def step(plan: Plan, threads: int) -> dict[str, Any]:
    """Step a plan from its begin to its end; the part after the first tenth is timed.

    Returns
    -------
    dict
        ``hops_per_second`` of wall clock, ``digest``, ``packet_hops``.
    """
    engine = Engine(plan, threads=threads)
    engine.share(partition(plan, threads))
    engine.run(plan.until_ps // 10, 1 << 60)
    engine.drain()
    load = np.bincount(plan.port_node, engine.ports()["hops"], minlength=plan.node_count)
    engine.share(partition(plan, threads, load))
    hops, begun = engine.packet_hops, time.perf_counter()
    while engine.run(plan.until_ps, BUDGET_HOPS * threads) == _RUNNING:
        engine.drain()
    seconds = time.perf_counter() - begun
    hops = engine.packet_hops - hops
    engine.finish()
    return {
        "hops_per_second": hops / max(seconds, 1e-9),
        "digest": engine.digest,
        "packet_hops": engine.packet_hops,
    }


class Stepper:
    """A process that compiles a case, and steps it whenever it is told to."""

    def __init__(self, name: str, threads: int, *, smoke: bool) -> None:
        """Start it."""
        command = [
            sys.executable,
            "-m",
            "bench.threads",
            "--serve",
            str(threads),
            name,
            *(["--smoke"] if smoke else []),
        ]
        path = os.pathsep.join(entry for entry in (str(ROOT), *sys.path) if entry)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._is_ready = False

    def wait_ready(self) -> None:
        """Wait until the case is compiled, so that what begins next is stepping and nothing else."""
        if not self._is_ready:
            self._line()
            self._is_ready = True

    def begin(self) -> None:
        """Have the case stepped once."""
        assert self._process.stdin is not None
        print("step", file=self._process.stdin, flush=True)

    def end(self) -> dict[str, Any]:
        """What `step` gives; raises RuntimeError if the process died."""
        result: dict[str, Any] = json.loads(self._line())
        return result

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a stepper ended with code {self._process.wait()}")
        return line


def side_by_side(steppers: Sequence[Stepper]) -> list[dict[str, Any]]:
    """Have every one step its case once, all at the same time; what `step` gives for each."""
    for stepper in steppers:
        stepper.wait_ready()
    for stepper in steppers:
        stepper.begin()
    return [stepper.end() for stepper in steppers]


def in_fresh_steppers(name: str, threads: int, *, processes: int = 1, smoke: bool = False) -> list[dict[str, Any]]:
    """Step a case once in processes that do nothing else, all at the same time; what `step` gives for each.

    Raises
    ------
    RuntimeError
        A process failed.
    """
    steppers = [Stepper(name, threads, smoke=smoke) for _ in range(processes)]
    try:
        return side_by_side(steppers)
    finally:
        for stepper in steppers:
            stepper.close()


def compare(name: str, *, rounds: int, smoke: bool = False) -> dict[str, Any]:
    """One, two processes and two threads by turns.

    Returns
    -------
    dict
        ``one``, ``pair`` (both processes together), ``two``: hops per second of wall clock, a list of the rounds;
        ``gain`` (two / one) and ``efficiency`` (two / pair), medians of the rounds' ratios; ``digest``.

    Raises
    ------
    RuntimeError
        A process failed, or runs differ.
    """
    one, beside, two = (Stepper(name, threads, smoke=smoke) for threads in (1, 1, 2))
    speeds: dict[str, list[float]] = {"one": [], "pair": [], "two": []}
    digests = set()
    try:
        for _ in range(rounds):
            for kind, steppers in (("one", [one]), ("pair", [one, beside]), ("two", [two])):
                results = side_by_side(steppers)
                speeds[kind].append(sum(result["hops_per_second"] for result in results))
                digests |= {result["digest"] for result in results}
    finally:
        for stepper in (one, beside, two):
            stepper.close()
    if len(digests) != 1:
        raise RuntimeError(f"runs of {name} differ: {', '.join(sorted(digests))}")
    return {
        "name": name,
        "rounds": rounds,
        **speeds,
        "gain": median_ratio(speeds["two"], speeds["one"]),
        "efficiency": median_ratio(speeds["two"], speeds["pair"]),
        "digest": digests.pop(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Compare the named cases."""
    parser = argparse.ArgumentParser(prog="python -m bench.threads", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"default: {', '.join(DEFAULT_CASES)}")
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians are shown, default 5")
    parser.add_argument("--smoke", action="store_true", help="small sizes: shows that it works, not how fast")
    parser.add_argument("--output", type=Path, help="write the figures to this file as JSON")
    parser.add_argument("--serve", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.names or list(DEFAULT_CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark is named {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.serve is not None:
        plan = build(CASES[names[0]], smoke=options.smoke)[1].plan
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(step(plan, options.serve)), flush=True)
        return 0
    results = []
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print("Mhop/s of wall clock, medians; gain = two threads / one, efficiency = two threads / two processes at once")
    for name in names:
        result = compare(name, rounds=options.rounds, smoke=options.smoke)
        results.append(result)
        medians = {kind: statistics.median(result[kind]) / 1e6 for kind in ("one", "pair", "two")}
        print(
            f"{name:<16} one {medians['one']:6.2f}  pair {medians['pair']:6.2f}  two {medians['two']:6.2f}  "
            f"gain {result['gain']:.2f}  efficiency {result['efficiency']:.2f}  {result['digest']}",
            flush=True,
        )
    if options.output is not None:
        options.output.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
