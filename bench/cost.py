"""What runs were predicted to cost and what they cost: packet hops, events, memory, traces."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cases import FAT_TREE, LEAF_SPINE, SMALL_FAT_TREE, SMALL_LEAF_SPINE
from fabemu.compile import compile_plan
from fabemu.cost.estimate import estimate_cost
from fabemu.lint import lint
from fabemu.plan import FOREVER_PS
from fabemu.scenario import Scenario, load_scenario, scenario_from_dict
from fabemu.simulate import Simulation

ROOT = Path(__file__).resolve().parents[1]

FILES = (
    "websearch-leaf-spine",
    "incast/incast-16",
    "incast/victim",
    "collectives/all-to-all-8",
    "incidents/pause-tree",
    "incidents/long-cable",
    "incidents/storm",
)
"""Scenarios of the repository."""

_LINK = {"rate": "400Gbps", "delay": "600ns"}
_INCAST = {"kind": "incast", "receivers": ["h0", "h64"], "fan_in": 64}
_WEB = {"kind": "poisson", "sizes": "WebSearch", "load": 0.6}

TABLES: dict[str, dict[str, Any]] = {
    "permutation-1024": {"fabric": FAT_TREE, "workload": [{"kind": "permutation", "size": "2MB"}]},
    "permutation-1024-until": {
        "fabric": FAT_TREE,
        "until": "200us",
        "workload": [{"kind": "permutation", "size": "20MB"}],
    },
    "permutation-1024-no-cc": {
        "fabric": FAT_TREE,
        "nic": {"cc": {"kind": "none"}},
        "workload": [{"kind": "permutation", "size": "1MB"}],
    },
    "websearch-128-until": {"fabric": LEAF_SPINE, "until": "1ms", "workload": [_WEB]},
    "incast-128-until": {"fabric": LEAF_SPINE, "until": "5ms", "workload": [{**_INCAST, "size": "1GB"}]},
    "all-to-all-128": {"fabric": LEAF_SPINE, "workload": [{"kind": "all-to-all", "size": "64KB"}]},
}
"""Larger ones: leaf-spine of 128 hosts and fat tree of 1,024, 400 Gb/s, DCQCN with preset `connectx`."""

NAMES = (*FILES, *TABLES)
SMOKE = ("incast/incast-16", "incidents/storm", "permutation-1024-until")


def scenario_of(name: str, *, smoke: bool = False) -> tuple[Scenario, Path]:
    """The scenario of a case, and what its paths are relative to. Raises ValueError if there is no such case."""
    if name in FILES:
        path = ROOT / "scenarios" / f"{name}.toml"
        return load_scenario(path), path.parent
    if name not in TABLES:
        raise ValueError(f"no case is named {name!r}; there are {', '.join(NAMES)}")
    table = {"name": name, "seed": 42, "link": _LINK, "nic": {"cc": {"kind": "dcqcn"}}, **TABLES[name]}
    if smoke:
        table["fabric"] = SMALL_FAT_TREE if table["fabric"] is FAT_TREE else SMALL_LEAF_SPINE
        table |= {"until": "30us"}
    return scenario_from_dict(table), Path()


def run_once(name: str, *, smoke: bool = False) -> dict[str, Any]:
    """Predict a case, run it here, and say both; the process should do nothing else."""
    scenario, base_dir = scenario_of(name, smoke=smoke)
    compiled = compile_plan(scenario, base_dir=base_dir)
    findings = lint(scenario, compiled)
    cost = estimate_cost(
        compiled, scenario.trace.tables, may_deadlock=any(finding.code == "FB301" for finding in findings)
    )
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as folder:
        directory = Path(folder, "run")
        simulation = Simulation(scenario, compiled, output=directory, base_dir=base_dir, findings=findings, threads=1)
        info = simulation.run().info
        traces = sum(path.stat().st_size for path in directory.glob("*.arrow"))
        engine_bytes = sum(simulation._engine.memory_bytes().values())
    memory = cost.memory.to_dict()
    parts = ("fabric", "operations", "queue_pairs", "links", "queues")
    predicted = {
        "packet_hops": cost.packet_hops.value,
        "events": cost.events.value,
        "peak_memory_bytes": cost.memory.total,
        "engine_bytes": sum(memory[part] for part in parts),
        "trace_bytes": sum(cost.trace_bytes.values()),
    }
    actual = {
        "packet_hops": info["totals"]["packet_hops"],
        "events": info["totals"]["events"],
        "peak_memory_bytes": info["peak_memory_bytes"],
        "engine_bytes": engine_bytes,
        "trace_bytes": traces,
    }
    return {
        "name": name,
        "hosts": compiled.plan.host_count,
        "has_until": compiled.plan.until_ps < FOREVER_PS,
        "predicted": {key: round(value) for key, value in predicted.items()},
        "actual": actual,
        "ratio": {key: predicted[key] / max(1, actual[key]) for key in actual},
        "low_hops": round(cost.packet_hops.low),
        "high_hops": round(cost.packet_hops.high),
        "reasons": list(cost.reasons),
    }


def measure(name: str, *, smoke: bool = False) -> dict[str, Any]:
    """`run_once` in a process of its own, so that its peak memory is that of one run."""
    command = [sys.executable, "-m", "bench.cost", "--once", *(["--smoke"] if smoke else []), name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)}
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if child.returncode != 0:
        raise RuntimeError(f"{name} failed: {child.stderr.strip()}")
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def is_right(result: dict[str, Any]) -> bool:
    """Whether hops, events and memory are within a factor of two, or the range said why hops need not be."""
    ratio = result["ratio"]
    in_range = result["low_hops"] <= result["actual"]["packet_hops"] <= result["high_hops"]
    moved = all(0.5 <= ratio[key] <= 2 for key in ("packet_hops", "events")) or (in_range and bool(result["reasons"]))
    return bool(moved and 0.5 <= ratio["peak_memory_bytes"] <= 2)


def main(arguments: list[str] | None = None) -> int:
    """Measure the named cases, or all; exit code 1 if a prediction is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--smoke", action="store_true", help="small fabrics, and few of them")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--once", action="store_true", help="one case, in this process")
    options = parser.parse_args(arguments)
    names = options.names or (SMOKE if options.smoke else NAMES)
    for name in names:
        if name not in NAMES:
            parser.error(f"no case is named {name!r}; there are {', '.join(NAMES)}")
    if options.once:
        print(json.dumps(run_once(names[0], smoke=options.smoke)))
        return 0
    results = [measure(name, smoke=options.smoke) for name in names]
    print(json.dumps(results, indent=1) if options.json else table(results))
    return 0 if all(map(is_right, results)) else 1


def table(results: list[dict[str, Any]]) -> str:
    """The results as a table in Markdown: predicted, actual and their ratio."""
    lines = [
        "| run | hosts | hops, predicted | actual | ratio | events | engine memory | peak memory | traces |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        predicted, actual, ratio = result["predicted"], result["actual"], result["ratio"]

        def pair(key: str, unit: float, predicted: Any = predicted, actual: Any = actual, ratio: Any = ratio) -> str:
            digits = 1 if actual[key] < 100 * unit else 0
            shown = f"{predicted[key] / unit:.{digits}f} / {actual[key] / unit:.{digits}f}"
            return f"{shown} ({ratio[key]:.2f})"

        lines.append(
            f"| {result['name']}{' *' if result['reasons'] else ''} | {result['hosts']:,} | "
            f"{predicted['packet_hops']:,} | {actual['packet_hops']:,} | {ratio['packet_hops']:.2f} | "
            f"{pair('events', 1e6)} M | {pair('engine_bytes', 1e6)} MB | {pair('peak_memory_bytes', 1e6)} MB | "
            f"{pair('trace_bytes', 1e3)} kB |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
