"""From 128 hosts to 101,306: seconds and memory of every stage of a run, and what a fabric costs that is idle.

Two things for each size of a three-tier fat tree, each in a process of its own. A run as `fabemu run` does it: every
host sends to one other from time 0 until 100 us, with traces at their default level. And ten flows of 1 MB, posted
within a millisecond, three times with 10 ms between: what they cost must not depend on how many others are idle.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import ROOT, cpu_seconds, machine

FLOWS = 10
"""Flows of one round of the idle fabric."""

ROUNDS = 3
_BUDGET_HOPS = 200_000
_RUNNING, _STOPPED = 0, 1  # what Engine.run returns


@dataclass(frozen=True)
class Size:
    """A fabric and how long it is stepped."""

    hosts: int
    fabric: dict[str, Any]
    until_us: int = 100


def _fat_tree(k: int, until_us: int = 100) -> Size:
    return Size(k**3 // 4, {"kind": "fat-tree", "k": k}, until_us)


_SIXTEEN_THOUSAND = {"pods": 64, "edges_per_pod": 16, "aggs_per_pod": 16, "cores": 256, "hosts_per_edge": 16}

SIZES: dict[str, Size] = {
    str(size.hosts): size
    for size in (
        _fat_tree(8),
        _fat_tree(16),
        _fat_tree(32),
        Size(16_384, {"kind": "fat-tree", **_SIXTEEN_THOUSAND}),
        _fat_tree(74),
    )
}
"""All sizes, by their number of hosts."""

SMOKE: dict[str, Size] = {str(size.hosts): size for size in (_fat_tree(4, 20), _fat_tree(8, 20))}


def _scenario(size: Size, workload: list[dict[str, Any]], until: str | None) -> dict[str, Any]:
    scenario = {
        "name": f"scale-{size.hosts}",
        "seed": 1,
        "fabric": size.fabric,
        "link": {"rate": "400Gbps", "delay": "600ns"},
        "nic": {"cc": {"kind": "dcqcn"}},
        "workload": workload,
    }
    return scenario if until is None else scenario | {"until": until}


def run_whole(size: Size) -> dict[str, Any]:
    """Run a permutation on one thread, from the imports to the summary: CPU seconds and memory of every stage."""
    stages: dict[str, float] = {}
    at = [0.0]

    def done(stage: str) -> None:
        now = cpu_seconds()
        stages[stage] = now - at[0]
        at[0] = now

    from fabemu.compile import compile_plan
    from fabemu.lint import lint
    from fabemu.scenario import scenario_from_dict
    from fabemu.simulate import Simulation, peak_memory_bytes

    done("start")  # of Python too
    text = _scenario(size, [{"kind": "permutation", "size": "10MB"}], f"{size.until_us}us")
    scenario = scenario_from_dict(text)
    done("load")
    compiled = compile_plan(scenario)
    done("compile")
    findings = lint(scenario, compiled)
    done("check")
    before = _resident_bytes()
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as folder:
        simulation = Simulation(scenario, compiled, output=Path(folder) / "run", findings=findings, threads=1)
        done("prepare")
        first_event = at[0]
        resident = _resident_bytes()
        engine = simulation._engine
        idle = engine.memory_bytes()
        run = simulation.run()
        done("run")
        summary = str(run.summary())
        done("summary")
        written = sum(file.stat().st_size for file in Path(folder, "run").iterdir())
        busy = engine.memory_bytes()
        rows = run.info["rows"]
    return {
        "hosts": size.hosts,
        "ports": compiled.plan.port_count,
        "cpu_seconds": stages,
        "first_event_cpu_seconds": first_event,
        "idle_bytes_per_host": sum(idle.values()) / size.hosts,
        "idle_resident_bytes_per_host": (resident - before) / size.hosts,
        "busy_bytes_per_host": sum(busy.values()) / size.hosts,
        "peak_memory_bytes": peak_memory_bytes(),
        "packet_hops": run.info["totals"]["packet_hops"],
        "hops_per_cpu_second": run.info["packet_hops_per_cpu_second"],
        "rows": rows,
        "written_bytes": written,
        "summary_lines": len(summary.splitlines()),
        "plan_digest": run.info["plan_digest"],
        "digest": run.info["digest"],
    }


def run_idle(size: Size) -> dict[str, Any]:
    """Step ten flows, three times, on a fabric that does nothing else."""
    from fabemu._core.engine import Engine

    from fabemu.compile import compile_plan
    from fabemu.scenario import scenario_from_dict

    # Between any two of a thousand places spread over the fabric, never within an edge switch.
    flows = [
        {
            "src": f"h{place * size.hosts // FLOWS}",
            "dst": f"h{(place * size.hosts // FLOWS + size.hosts // 2) % size.hosts}",
            "size": "1MB",
            "start": f"{turn * 11_000 + place * 100}us",
        }
        for turn in range(ROUNDS)
        for place in range(FLOWS)
    ]
    engine = Engine(compile_plan(scenario_from_dict(_scenario(size, [{"kind": "flows", "flow": flows}], None))).plan)
    active, gaps, calls = [], [], 0
    for turn in range(ROUNDS):
        # 1 ms and the length of the last flow; then the gap, up to a picosecond before the next round.
        for edge_ps, times in ((turn * 11_000 + 2_000) * 10**6, active), ((turn + 1) * 11_000 * 10**6 - 1, gaps):
            begun = time.process_time()
            while engine.run(edge_ps, _BUDGET_HOPS) == _RUNNING:
                calls += 1
            times.append(time.process_time() - begun)
            engine.drain()
    hops = engine.packet_hops
    begun = time.process_time()
    engine.finish()
    engine.drain()
    return {
        "hosts": size.hosts,
        "packet_hops": hops,
        "active_cpu_seconds": min(active[:-1]),  # after the last round the whole fabric is looked at once
        "gap_cpu_seconds": max(gaps[:-1]),
        "last_cpu_seconds": active[-1] + gaps[-1] + time.process_time() - begun,
        "digest": engine.digest,
    }


def _resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def measure(name: str, *, smoke: bool = False) -> dict[str, Any]:
    """Both measurements of a size, in fresh processes.

    Raises
    ------
    RuntimeError
        One of them failed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)}
    found: dict[str, Any] = {}
    for what in ("whole", "idle"):
        command = [sys.executable, "-m", "bench.scale", "--once", what, *(["--smoke"] if smoke else []), name]
        begun = time.monotonic()
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if child.returncode != 0:
            raise RuntimeError(f"{name} hosts, {what}: {child.stderr.strip()}")
        found[what] = json.loads(child.stdout) | {"wall_seconds": time.monotonic() - begun}
    return found


_STAGES = ("start", "load", "compile", "check", "prepare", "run", "summary")


def _text(found: dict[str, Any]) -> str:
    whole, idle = found["whole"], found["idle"]
    stages = ", ".join(f"{stage} {whole['cpu_seconds'][stage]:.2f}" for stage in _STAGES)
    return "\n".join(
        [
            f"{whole['hosts']:,} hosts, {whole['ports']:,} ports, plan {whole['plan_digest'][:16]}",
            f"  CPU s: {stages}; first event after {whole['first_event_cpu_seconds']:.2f}; "
            f"wall clock in all {whole['wall_seconds']:.1f}",
            f"  per host: {whole['idle_bytes_per_host']:,.0f} B idle in the engine, "
            f"{whole['idle_resident_bytes_per_host']:,.0f} B of RAM, {whole['busy_bytes_per_host']:,.0f} B at the end; "
            f"peak {whole['peak_memory_bytes'] / 1e6:,.0f} MB",
            f"  {whole['packet_hops']:,} packet hops, {whole['hops_per_cpu_second'] / 1e6:.2f} M per CPU s; "
            f"{sum(whole['rows'].values()):,} rows, {whole['written_bytes'] / 1e6:.1f} MB; digest {whole['digest']}",
            f"  idle but for {FLOWS} flows: {1e3 * idle['active_cpu_seconds']:.2f} ms while they last, "
            f"{1e3 * idle['gap_cpu_seconds']:.3f} ms for 9 ms of gap, {1e3 * idle['last_cpu_seconds']:.1f} ms for the "
            f"last round and the end; digest {idle['digest']}",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure the named sizes; all of them without a name."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("sizes", nargs="*", metavar="HOSTS", help=f"of: {', '.join(SIZES)} (default: all)")
    parser.add_argument("--smoke", action="store_true", help=f"{', '.join(SMOKE)} hosts: shows that it works")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--once", choices=("whole", "idle"), help="one measurement in this process, as JSON")
    options = parser.parse_args(arguments)
    sizes = SMOKE if options.smoke else SIZES
    unknown = [name for name in options.sizes if name not in sizes]
    if unknown:
        parser.error(f"there is no size of {unknown[0]} hosts; there are {', '.join(sizes)}")
    names = options.sizes or list(sizes)
    if options.once:
        for name in names:
            print(json.dumps(run_whole(sizes[name]) if options.once == "whole" else run_idle(sizes[name])))
        return 0
    facts = machine()
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
    results = []
    for name in names:
        results.append(measure(name, smoke=options.smoke))
        if not options.json:
            print(_text(results[-1]), flush=True)
    if options.json:
        print(json.dumps({"machine": facts, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
