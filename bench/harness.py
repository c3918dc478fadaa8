"""Runs cases, each repeat in a process of its own, and makes one result of the repeats."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import CASES, build
from fabemu.plan import Plan
from fabemu.simulate import TRACE_LEVELS, Simulation, engine_maker, engine_name, peak_memory_bytes

_RUNNING, _STOPPED = 0, 1  # what Engine.run returns
ROOT = Path(__file__).resolve().parents[1]


def cpu_seconds() -> float:
    """User and system time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class MeteredEngine:
    """An engine that notes the CPU time of its parts from a simulated time on.

    Parameters
    ----------
    make
        Makes the engine from the rest.
    plan, options
        As of `Engine`.
    warm_ps
        Simulated time before which nothing is counted.
    """

    def __init__(self, make: Callable[..., Any], plan: Plan, *, warm_ps: int = 0, **options: Any) -> None:
        """Make the engine."""
        self.engine = make(plan, **options)
        self.run_cpu_seconds = 0.0
        self.run_seconds = 0.0
        self.drain_cpu_seconds = 0.0
        self.begin_cpu_seconds = 0.0
        self.end_cpu_seconds = 0.0
        self.hops = 0
        self.events = 0
        self._warm_ps = warm_ps
        self._warm = warm_ps <= 0
        self._first_hops = 0
        self._first_events = 0

    def __getattr__(self, name: str) -> Any:
        """Everything else is the engine's."""
        return getattr(self.engine, name)

    def run(self, stop_ps: int, budget: int, patience_s: float = 1e9) -> int:
        """Step; the edge of the warm-up is hit exactly."""
        engine = self.engine
        if not self._warm and engine.now_ps >= self._warm_ps:
            self._warm = True
            self._first_hops, self._first_events = engine.packet_hops, engine.events
        if self._warm and self.begin_cpu_seconds == 0.0:
            self.begin_cpu_seconds = cpu_seconds()
        before, begun = cpu_seconds(), time.perf_counter()
        if not self._warm and stop_ps > self._warm_ps:
            state = int(engine.run(self._warm_ps, budget, patience_s))
            # For the caller this is not where it asked to stop.
            return _RUNNING if state == _STOPPED else state
        state = int(engine.run(stop_ps, budget, patience_s))
        if self._warm:
            self.run_cpu_seconds += cpu_seconds() - before
            self.run_seconds += time.perf_counter() - begun
            self.hops = engine.packet_hops - self._first_hops
            self.events = engine.events - self._first_events
        return state

    def drain(self) -> Mapping[str, np.ndarray]:
        """Take the records."""
        before = cpu_seconds()
        records: Mapping[str, np.ndarray] = self.engine.drain()
        if self._warm and self.end_cpu_seconds == 0.0:
            self.drain_cpu_seconds += cpu_seconds() - before
        return records

    def finish(self) -> None:
        """Note the end of the measured part, and close."""
        self.engine.finish()
        self.end_cpu_seconds = cpu_seconds()


def run_once(
    name: str, *, smoke: bool = False, trace: str = "default", threads: int = 1, engine: str = "fast"
) -> dict[str, Any]:
    """Run a case here and write its traces into a directory that is removed.

    Parameters
    ----------
    name
        A key of `CASES`.
    smoke
        At the size that the test suite runs.
    trace
        A key of `fabemu.simulate.TRACE_LEVELS`: what is written.
    threads
        Most threads that may step the engine.
    engine
        A key of `fabemu.simulate.ENGINES`: what steps it.

    Raises
    ------
    ValueError
        The case has no such name.
    """
    if name not in CASES:
        raise ValueError(f"no benchmark is named {name!r}; there are {', '.join(CASES)}")
    start = cpu_seconds()
    tables = TRACE_LEVELS[trace]
    scenario, compiled, warm_ps = build(
        CASES[name], smoke=smoke, trace={"tables": tables, "packets": "budget" if trace == "budget" else "all"}
    )
    compile_cpu = cpu_seconds() - start
    made: list[MeteredEngine] = []

    def metered(plan: Plan, **options: Any) -> MeteredEngine:
        made.append(MeteredEngine(engine_maker(engine_name(engine, plan)), plan, warm_ps=warm_ps, **options))
        return made[0]

    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as directory:
        run = Simulation(scenario, compiled, output=Path(directory) / "run", engine=metered, threads=threads).run()
        close_cpu = cpu_seconds() - made[0].end_cpu_seconds
        totals, digest = run.info["totals"], run.info["digest"]
        table_bytes = sum(path.stat().st_size for path in run.directory.glob("*.arrow"))
    meter = made[0]
    memory = meter.memory_bytes()
    in_flight = meter.in_flight_packets
    engine_cpu = meter.run_cpu_seconds + meter.drain_cpu_seconds
    return {
        "name": name,
        "smoke": smoke,
        "trace": trace,
        "engine": engine,
        "threads": threads,
        "hops_by_threads": run.info["hops_by_threads"],
        "hosts": compiled.plan.host_count,
        "digest": digest,
        "totals": totals,
        "measured_hops": meter.hops,
        "measured_events": meter.events,
        "events_per_hop": meter.events / max(1, meter.hops),
        "compile_cpu_seconds": compile_cpu,
        "run_cpu_seconds": meter.run_cpu_seconds,
        "run_seconds": meter.run_seconds,
        "hops_per_second": meter.hops / max(meter.run_seconds, 1e-9),
        "drain_cpu_seconds": meter.drain_cpu_seconds,
        "record_cpu_seconds": meter.end_cpu_seconds - meter.begin_cpu_seconds - engine_cpu,
        "close_cpu_seconds": close_cpu,
        "table_rows": sum(run.info["rows"].values()),
        "table_bytes": table_bytes,
        "hops_per_cpu_second": meter.hops / max(engine_cpu, 1e-9),
        "in_flight_packets": in_flight,
        "engine_bytes_per_host": sum(memory.values()) / compiled.plan.host_count,
        "bytes_per_in_flight_packet": (memory["links"] + memory["queues"]) / max(1, in_flight),
        # Last, so that it covers imports, compiling, tracing and what this function itself does.
        "process_cpu_seconds": cpu_seconds(),
        "process_hops_per_cpu_second": totals["packet_hops"] / cpu_seconds(),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def measure(
    name: str, *, repeats: int, warm_ups: int, smoke: bool = False, threads: int = 1, engine: str = "fast"
) -> dict[str, Any]:
    """Run a case in fresh processes: medians of the repeats after the warm-ups.

    Raises
    ------
    RuntimeError
        A repeat failed, or computed something else than the ones before.
    """
    runs = [in_fresh_process(name, smoke=smoke, threads=threads, engine=engine) for _ in range(warm_ups + repeats)]
    result = median_of(runs[warm_ups:])
    speeds = [run["hops_per_cpu_second"] for run in runs[warm_ups:]]
    return result | {"repeats": repeats, "spread": spread(speeds)}


def spread(values: Sequence[float]) -> float:
    """(Largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of what was measured in the same round."""
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def in_fresh_process(
    name: str, *, smoke: bool = False, trace: str = "default", threads: int = 1, engine: str = "fast"
) -> dict[str, Any]:
    """What `run_once` gives, of a process that does nothing else; raises RuntimeError if it fails."""
    command = [
        sys.executable,
        "-m",
        "bench",
        "--once",
        "--trace",
        trace,
        "--threads",
        str(threads),
        "--engine",
        engine,
        *(["--smoke"] if smoke else []),
        name,
    ]
    # As the command has it, see fabemu.cli.
    environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"{name} failed: {child.stderr.strip()}")
    result: dict[str, Any] = json.loads(child.stdout)
    return result


def median_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One result of several of `run_once`: the median of every figure that may differ.

    Raises
    ------
    RuntimeError
        They did not compute the same.
    """
    if len(digests := {run["digest"] for run in runs}) != 1:
        raise RuntimeError(f"{runs[0]['name']}: repeats differ: {sorted(digests)}")
    result = dict(runs[0])
    for key, value in runs[0].items():
        if isinstance(value, float):
            result[key] = statistics.median(run[key] for run in runs)
    return result


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
