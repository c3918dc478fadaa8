"""A sweep on a Dask cluster of this machine, with a worker killed on purpose, against the same sweep without a cluster.

What must come out: every run once, and the same bytes from both. What is measured: how long each takes, and how much of
that the runs themselves are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fabemu
from fabemu.sweeps import Standing

SCENARIO: dict[str, Any] = {
    "name": "sweep",
    "until": "1ms",
    "fabric": {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 8, "spines": 4},
    "switch": {"buffer": "16MiB"},
    "nic": {"cc": {"kind": "dcqcn"}},
    "workload": [
        {"kind": "poisson", "sizes": "WebSearch", "load": 0.5, "stop": "1ms"},
        {"kind": "incast", "receiver": "h0", "senders": "h8:h23", "size": "250KB", "waves": 4, "period": "250us"},
    ],
}
SETTINGS = {
    "switch.ecn.kmin": "50KiB..800KiB:log",
    "switch.ecn.kmax": "1MiB..4MiB:log",
    "switch.ecn.pmax": "0.05..1",
    "switch.pfc.alpha": "1/64..2:log",
}


def main(arguments: list[str] | None = None) -> int:
    """Sweep twice; exit code 1 if a run is missing or counted twice, or the bytes differ."""
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes of either sweep")
    parser.add_argument("--smoke", action="store_true", help="few points: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(arguments)
    if find_spec("distributed") is None:
        parser.error("needs dask.distributed: install it with pip install '.[dask]'")
    points = 8 if options.smoke else options.points
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as folder:
        found = {
            "points": points,
            "workers": options.workers,
            "cluster": on_cluster(Path(folder, "cluster"), points, options.workers),
            "processes": on_processes(Path(folder, "processes"), points, options.workers),
        }
    print(json.dumps(found, indent=1) if options.json else _text(found))
    cluster, processes = found["cluster"], found["processes"]
    right = cluster["runs_once"] and processes["runs_once"] and cluster["sha256"] == processes["sha256"]
    return 0 if right and cluster["killed"] else 1


def on_cluster(path: Path, points: int, workers: int) -> dict[str, Any]:
    """Sweep on a cluster and kill a worker when a third is done."""
    from distributed import Client, LocalCluster

    killed: list[int] = []

    def kill(standing: Standing) -> None:
        if standing.done * 3 >= standing.run_count and not killed:
            with Client(cluster.scheduler_address, set_as_default=False) as client:
                killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        return _figures(path, points, killed=killed, dask=cluster.scheduler_address, progress=kill)


def on_processes(path: Path, points: int, workers: int) -> dict[str, Any]:
    """Sweep on plain processes."""
    return _figures(path, points, killed=[], jobs=workers)


def _figures(path: Path, points: int, *, killed: list[int], **how: Any) -> dict[str, Any]:
    begun = time.monotonic()
    sweep = fabemu.sweep(SCENARIO, SETTINGS, path, design="lhs", points=points, **how)
    wall = time.monotonic() - begun
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted((path / "results").iterdir())))
    lines = (path / "journal.jsonl").read_bytes().splitlines()
    return {
        "counts": sweep.info["counts"],
        "killed": len(killed),
        "runs_once": sweep.table.column("point").to_pylist() == list(range(points)) and len(lines) == points,
        "workers_used": len(set(sweep.costs.column("worker").to_pylist())),
        "wall_seconds": round(wall, 1),
        "run_seconds": round(sum(sweep.costs.column("wall_seconds").to_pylist()), 1),
        "packet_hops": sum(hops or 0 for hops in sweep.table.column("totals.packet_hops").to_pylist()),
        "sha256": digest.hexdigest()[:16],
    }


def _text(found: dict[str, Any]) -> str:
    lines = [f"{found['points']} points on {found['workers']} workers"]
    for name in ("cluster", "processes"):
        item = found[name]
        counts = ", ".join(f"{count} {status}" for status, count in item["counts"].items() if status != "runs")
        lines.append(
            f"{name:9}  {item['wall_seconds']:7.1f} s, {item['run_seconds']:7.1f} s of runs; {counts}; "
            f"each once: {'yes' if item['runs_once'] else 'NO'}; {item['killed']} worker killed, "
            f"{item['workers_used']} used; {item['packet_hops']:,} packet hops; results {item['sha256']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
