"""NIC scheduling from 1 to 10,000 queue pairs a host: `python -m bench.qps`.

Every queue pair has more to send than the run lasts, so all of them are in the choice at every packet. A host's queue
pairs go round all other hosts, so that every host receives as much as it sends; or one host alone sends to all others.
Measured is the engine alone, after every queue pair has sent once, without tables; each run is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
from fabemu._core.engine import Engine

from bench.cases import LEAF_SPINE, SMALL_LEAF_SPINE, US
from bench.harness import ROOT, cpu_seconds, machine
from fabemu.compile import Compiled, compile_plan
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import peak_memory_bytes

COUNTS = (1, 4, 16, 64, 256, 1_000, 10_000)
"""Queue pairs of a sending host."""

SENDERS = ("one", "all")
PACING = ("none", "dcqcn")
PACKETS_PER_US = 12  # 400 Gb/s of frames of 4 KiB
SPAN_US = {"one": 20_000, "all": 300}  # measured


def build(senders: str, cc: str, count: int, *, smoke: bool = False) -> tuple[Compiled, int]:
    """Compile one point.

    Parameters
    ----------
    senders
        "one" host, or "all".
    cc
        Congestion control, "none" or "dcqcn".
    count
        Queue pairs of each of them.
    smoke
        On 16 hosts, for a short time.

    Returns
    -------
    tuple
        The plan with its names, and the simulated time from which to measure, ps.
    """
    fabric = SMALL_LEAF_SPINE if smoke else LEAF_SPINE
    hosts = int(fabric["leaves"] * fabric["hosts_per_leaf"])
    # Marks hold queue pairs back: they need longer than their share of the line until each of them has sent.
    warm_us = 20 + math.ceil(count / PACKETS_PER_US)
    stop_us = warm_us + (30 if smoke else SPAN_US[senders])
    source = np.repeat(np.arange(hosts if senders == "all" else 1), count)
    nth = np.tile(np.arange(count), len(source) // count)
    table = pa.table(
        {
            "src": source.astype(np.int32),
            "dst": ((source + 1 + (nth + source) % (hosts - 1)) % hosts).astype(np.int32),
            "bytes": np.full(len(source), stop_us * 50_000 + 10_000_000, np.int64),
            "start_ps": np.zeros(len(source), np.int64),
        }
    )
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as directory:
        feather.write_feather(table, str(Path(directory) / "flows.arrow"), compression="uncompressed")
        scenario = scenario_from_dict(
            {
                "name": f"qps-{senders}-{count}",
                "seed": 42,
                "until": f"{stop_us}us",
                "fabric": fabric,
                "link": {"rate": "400Gbps", "delay": "600ns"},
                "nic": {"cc": {"kind": cc}},
                "trace": {"tables": []},
                "workload": [{"kind": "flow-file", "path": "flows.arrow"}],
            }
        )
        return compile_plan(scenario, base_dir=Path(directory)), warm_us * US


def run_once(senders: str, cc: str, count: int, *, smoke: bool = False) -> dict[str, Any]:
    """Run one point in this process; see `build` for the parameters."""
    compiled, warm_ps = build(senders, cc, count, smoke=smoke)
    plan = compiled.plan
    engine = Engine(plan)
    while engine.now_ps < warm_ps and engine.run(warm_ps, 10**7) == 0:
        engine.drain()
    engine.drain()
    hops, cpu = engine.packet_hops, 0.0
    while True:
        before = cpu_seconds()
        state = engine.run(plan.until_ps, 10**7)
        cpu += cpu_seconds() - before
        engine.drain()
        if state != 0:
            break
    hops = engine.packet_hops - hops
    active = int(np.count_nonzero(engine.ops()["first_sent_ps"] >= 0))
    engine.finish()
    return {
        "senders": senders,
        "cc": cc,
        "queue_pairs_per_host": count,
        "queue_pairs": plan.qp_count,
        "queue_pairs_that_sent": active,
        "measured_hops": hops,
        "run_cpu_seconds": cpu,
        "hops_per_cpu_second": hops / max(cpu, 1e-9),
        "engine_bytes_per_queue_pair": sum(engine.memory_bytes().values()) / plan.qp_count,
        "peak_memory_bytes": peak_memory_bytes(),
        "digest": engine.digest,
    }


def in_fresh_process(senders: str, cc: str, count: int, *, smoke: bool) -> dict[str, Any]:
    """What `run_once` gives, of a process that does nothing else; raises RuntimeError if it fails."""
    point = ["--senders", senders, "--cc", cc, "--counts", str(count), *(["--smoke"] if smoke else [])]
    path = os.pathsep.join(part for part in (str(ROOT), *sys.path) if part)
    child = subprocess.run(
        [sys.executable, "-m", "bench.qps", "--once", *point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise RuntimeError(f"{count} queue pairs failed: {child.stderr.strip()}")
    result: dict[str, Any] = json.loads(child.stdout)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print a table of senders, pacing and queue pairs, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.qps", description=__doc__)
    parser.add_argument("--senders", choices=SENDERS, action="append", help="default: both")
    parser.add_argument("--cc", choices=PACING, action="append", help="default: both")
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS), help="queue pairs of a sending host")
    parser.add_argument("--repeats", type=int, default=3, help="runs of which the median is shown")
    parser.add_argument("--smoke", action="store_true", help="16 hosts: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.repeats < 1 or min(options.counts) < 1:
        parser.error("--repeats and --counts must be at least 1")
    points = [
        (senders, cc, count)
        for senders in options.senders or SENDERS
        for cc in options.cc or PACING
        for count in options.counts
    ]
    if options.once:
        print(json.dumps(run_once(*points[0], smoke=options.smoke)))
        return 0
    facts, results = machine(), []
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
        print(
            f"{'senders':8}{'cc':>6}{'QPs/host':>10}{'sent':>11}{'hops M':>8}{'Mhop/cpu-s':>12}{'of one':>8}{'B/QP':>8}"
        )
    first: dict[tuple[str, str], float] = {}
    for senders, cc, count in points:
        runs = [in_fresh_process(senders, cc, count, smoke=options.smoke) for _ in range(options.repeats)]
        if len({run["digest"] for run in runs}) != 1:
            raise RuntimeError(f"{count} queue pairs: repeats differ")
        speed = statistics.median(run["hops_per_cpu_second"] for run in runs)
        result = runs[0] | {"hops_per_cpu_second": speed}
        result["speed_share"] = speed / first.setdefault((senders, cc), speed)
        results.append(result)
        if not options.json:
            print(
                f"{senders:8}{cc:>6}{count:10,}{result['queue_pairs_that_sent']:11,}"
                f"{result['measured_hops'] / 1e6:8.2f}"
                f"{speed / 1e6:12.2f}{result['speed_share']:8.2f}{result['engine_bytes_per_queue_pair']:8.0f}",
                flush=True,
            )
    if options.json:
        print(json.dumps({"machine": facts, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
