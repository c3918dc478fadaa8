"""How fast tables are analysed, and in how much memory: `python -m bench.analysis`.

A run of a small fabric gets tables of millions of rows, made by a formula and not by simulation: completion times with
a long tail, ports with a row in every interval, pauses, and frames of every queue pair. Each analysis reads them in a
process of its own, after it has analysed a small run, so that what Numba compiles is there. Rows are those of all
tables that it reads; peak memory is that of the whole process, beside that before the large run. The digest is of the
tables that come out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fabemu
from bench.harness import ROOT, machine
from fabemu.compile import Compiled
from fabemu.recorded.source import Source
from fabemu.result import Run
from fabemu.run_directory import RUN_FILE
from fabemu.simulate import peak_memory_bytes, trace_names
from fabemu.table_writer import TableWriter
from fabemu.trace import FLOW_STATUSES, NONE, PACKET_KINDS, PAUSE_ENDS, XOFF_CAUSES

ROWS, SMOKE_ROWS = 6_000_000, 20_000
"""Rows of each table, and of those that the test suite makes."""

_STEP = 250_000
_INTERVAL_PS = 10_000_000
_COLLECTIVE_MESSAGES = 2_000

SCENARIO: Mapping[str, Any] = {
    "name": "tables",
    "seed": 1,
    "until": "1us",
    "fabric": {"kind": "leaf-spine", "leaves": 8, "hosts_per_leaf": 8, "spines": 8},
    "trace": {"interval": "10us"},
    "workload": [{"kind": "all-to-all", "size": "1MB"}],
}


def _tails(run: Run) -> list[pa.Table]:
    from fabemu.analysis.tails import tails

    return [tails(run)]


def _stragglers(run: Run) -> list[pa.Table]:
    from fabemu.analysis.stragglers import stragglers

    return [stragglers(run)]


def _balance(run: Run) -> list[pa.Table]:
    from fabemu.analysis.balance import balance

    found = balance(run)
    assert found.collisions is not None
    return [found.tiers, found.intervals, found.uplinks, found.collisions]


def _buffers(run: Run) -> list[pa.Table]:
    from fabemu.analysis.buffers import buffers

    found = buffers(run)
    assert found.headroom is not None and found.switches is not None and found.thresholds is not None
    return [found.queues, found.headroom, found.switches, found.thresholds]


def _marking(run: Run) -> list[pa.Table]:
    from fabemu.analysis.marking import marking

    found = marking(run)
    assert found.rates is not None and found.fairness is not None and found.convergence is not None
    return [found.curve, found.rates, found.fairness, found.convergence]


CASES: dict[str, tuple[tuple[str, ...], Callable[[Run], list[pa.Table]]]] = {
    "tails": (("flows",), _tails),
    "stragglers": (("flows", "pauses"), _stragglers),
    "balance": (("flows", "ports"), _balance),
    "buffers": (("ports", "pauses"), _buffers),
    "marking": (("ports", "packets", "flows"), _marking),
}
"""Tables that each analysis reads, and how it is called."""


def make(directory: Path, rows: int) -> None:
    """Write a run whose tables have about so many rows each.

    Parameters
    ----------
    directory
        A new directory.
    rows
        Of the tables `flows`, `ports`, `pauses` and `packets` each.
    """
    run = fabemu.run(dict(SCENARIO), output=directory, trace="budget", threads=1)
    compiled = Source.open(directory).compiled
    info = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
    # As long as the ports table is.
    info["simulated_ps"] = _INTERVAL_PS * -(-rows // compiled.plan.port_count)
    info["status"] = "finished"
    (directory / RUN_FILE).write_text(json.dumps(info), encoding="utf-8")
    dictionaries = trace_names(compiled).dictionaries()
    for table, parts in (("flows", _flows), ("ports", _ports), ("pauses", _pauses), ("packets", _packets)):
        run.tables  # noqa: B018 - the directory is there
        writer = TableWriter(directory, table, dictionaries, {})
        for columns in parts(compiled, rows, int(info["simulated_ps"])):
            writer.append(columns)
        writer.close()


def _chunks(rows: int) -> Iterator[np.ndarray]:
    for first in range(0, rows, _STEP):
        yield np.arange(first, min(first + _STEP, rows))


def _flows(compiled: Compiled, rows: int, span_ps: int) -> Iterator[dict[str, np.ndarray]]:
    plan = compiled.plan
    random = np.random.default_rng(1)
    for op in _chunks(rows):
        count = len(op)
        qp = random.integers(0, plan.qp_count, count)
        size = np.exp(random.normal(11, 2.5, count)).astype(np.int64) + 1
        ideal = size * 20 + 3_000_000
        fct = (ideal * (1 + np.exp(random.normal(0, 1.5, count)))).astype(np.int64)
        posted = (op * (span_ps / rows)).astype(np.int64)
        lost = random.random(count) < 1e-3
        fct = np.where(lost, NONE, fct)
        done = np.where(lost, NONE, posted + fct)
        zero = np.zeros(count, np.int64)
        yield {
            "op": op,
            "label": zero,
            "job": np.full(count, NONE),
            "collective": np.where(op % 2, op // _COLLECTIVE_MESSAGES, NONE),
            "step": np.full(count, NONE),
            "src": plan.qp_src[qp].astype(np.int64),
            "dst": plan.qp_dst[qp].astype(np.int64),
            "qp": qp,
            "class": plan.qp_class[qp].astype(np.int64),
            "verb": zero,
            "bytes": size,
            "start_ps": posted,
            "posted_ps": posted,
            "first_sent_ps": posted + 1000,
            "receiver_done_ps": done,
            "sender_done_ps": np.where(lost, NONE, done + 2_000_000),
            "fct_ps": fct,
            "ideal_ps": ideal,
            "slowdown": np.where(lost, np.nan, fct / ideal),
            "packets": size // 4096 + 1,
            "retransmissions": zero,
            "cnps": random.integers(0, 5, count),
            "marks": random.integers(0, 9, count),
            "measured": zero + 1,
            "status": np.where(lost, FLOW_STATUSES.index("unfinished"), FLOW_STATUSES.index("done")),
        }


def _ports(compiled: Compiled, rows: int, span_ps: int) -> Iterator[dict[str, np.ndarray]]:
    plan = compiled.plan
    random = np.random.default_rng(2)
    for row in _chunks(rows):
        count = len(row)
        port = row % plan.port_count
        start = row // plan.port_count * _INTERVAL_PS
        utilisation = random.random(count)
        queue = np.where(random.random(count) < 0.5, 0.0, np.exp(random.normal(11, 2, count)))
        frames = (utilisation * 120).astype(np.int64)
        most = (queue * 2).astype(np.int64)
        yield {
            "start_ps": start,
            "end_ps": start + _INTERVAL_PS,
            "node": plan.port_node[port].astype(np.int64),
            "port": port,
            "peer": plan.port_node[plan.port_peer[port]].astype(np.int64),
            "class": np.full(count, int(plan.qp_class[0])),
            "bytes": frames * 4158,
            "frames": frames,
            "utilisation": utilisation,
            "queue_mean_bytes": queue,
            "queue_max_bytes": most,
            "paused_ps": np.zeros(count, np.int64),
            "xoff_sent": np.zeros(count, np.int64),
            "xoff_received": np.zeros(count, np.int64),
            "marks": np.minimum(frames, most // 100_000),
            "drops": np.zeros(count, np.int64),
            "headroom_max_bytes": np.maximum(most - 600_000, 0) // 100,
        }


def _pauses(compiled: Compiled, rows: int, span_ps: int) -> Iterator[dict[str, np.ndarray]]:
    plan = compiled.plan
    random = np.random.default_rng(3)
    switch_ports = np.flatnonzero(plan.port_node >= plan.host_count)
    for row in _chunks(rows):
        count = len(row)
        port, egress = switch_ports[random.integers(0, len(switch_ports), (2, count))]
        xoff = (row * (span_ps / rows)).astype(np.int64)
        length = random.integers(500_000, 5_000_000, count)
        yield {
            "xoff_ps": xoff,
            "sent_ps": xoff + 10_000,
            "start_ps": xoff + 700_000,
            "xon_ps": xoff + length,
            "end_ps": xoff + 700_000 + length,
            "switch": plan.port_node[port].astype(np.int64),
            "port": port,
            "paused_node": plan.port_node[plan.port_peer[port]].astype(np.int64),
            "paused_port": plan.port_peer[port].astype(np.int64),
            "class": np.full(count, int(plan.qp_class[0])),
            "end": np.full(count, PAUSE_ENDS.index("xon")),
            "ingress_bytes": random.integers(600_000, 700_000, count),
            "headroom_bytes": random.integers(0, 40_000, count),
            "threshold_bytes": np.full(count, 600_000),
            "egress_port": egress,
            "crossed": np.full(count, XOFF_CAUSES.index("dynamic_threshold")),
            "parent_port": np.full(count, NONE),
        }


def _packets(compiled: Compiled, rows: int, span_ps: int) -> Iterator[dict[str, np.ndarray]]:
    plan = compiled.plan
    random = np.random.default_rng(4)
    for row in _chunks(rows):
        count = len(row)
        qp = (random.random(count) ** 3 * plan.qp_count).astype(np.int64)
        cnp = random.random(count) < 0.1
        node = np.where(cnp, plan.qp_dst[qp], plan.qp_src[qp]).astype(np.int64)
        no = np.zeros(count, np.int64)
        yield {
            "time_ps": (row * (span_ps / rows)).astype(np.int64),
            "node": node,
            "port": plan.node_port_start[node].astype(np.int64),
            "kind": np.where(cnp, PACKET_KINDS.index("cnp"), PACKET_KINDS.index("data")),
            "class": np.full(count, int(plan.qp_class[0])),
            "qp": qp,
            "psn": row % 2**24,
            "xoff_mask": np.full(count, NONE),
            "frame_bytes": np.where(cnp, 82, 4158),
            "marked": no,
            "first": no,
            "last": no,
            "echo": no,
        }


def digest_of(tables: list[pa.Table]) -> str:
    """First digits of a hash over the values of tables."""
    total = hashlib.sha256()
    for table in tables:
        for column in table.columns:
            total.update(repr(column.to_pylist()).encode())
    return total.hexdigest()[:16]


def run_once(name: str, directory: Path, warm: Path) -> dict[str, Any]:
    """Analyse a run here.

    Parameters
    ----------
    name
        A key of `CASES`.
    directory
        The run to measure.
    warm
        A small one to analyse before.
    """
    tables, analyse = CASES[name]
    analyse(fabemu.load(warm))
    run = fabemu.load(directory)
    before = peak_memory_bytes()
    cpu, begun = time.process_time(), time.perf_counter()
    result = analyse(run)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    # The system counts by thread and adds up now and then: the later of two peaks may be told as the smaller.
    peak = max(before, peak_memory_bytes())
    rows = sum(sum(len(batch) for batch in run.batches(table, ("op", "start_ps", "time_ps"))) for table in tables)
    return {
        "name": name,
        "tables": list(tables),
        "rows": rows,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rows_per_second": rows / max(seconds, 1e-9),
        "rows_per_cpu_second": rows / max(cpu_seconds, 1e-9),
        "peak_memory_bytes": peak,
        "before_bytes": before,
        "digest": digest_of(result),
    }


def measure(name: str, directory: Path, warm: Path, repeats: int) -> dict[str, Any]:
    """The median of several of `run_once`, each in a fresh process.

    Raises
    ------
    RuntimeError
        A repeat failed, or computed something else than the ones before.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)}
    command = [sys.executable, "-m", "bench.analysis", "--once", str(directory), str(warm), name]
    runs = []
    for _ in range(repeats):
        child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if child.returncode != 0:
            raise RuntimeError(f"{name} failed: {child.stderr.strip()}")
        runs.append(json.loads(child.stdout))
    if len(digests := {run["digest"] for run in runs}) != 1:
        raise RuntimeError(f"{name}: repeats differ: {sorted(digests)}")
    middle = statistics.median_low(run["seconds"] for run in runs)
    result: dict[str, Any] = next(run for run in runs if run["seconds"] == middle)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Print a table of analyses, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.analysis", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ANALYSIS", help=f"of: {', '.join(CASES)} (default: all)")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of each table")
    parser.add_argument("--repeats", type=int, default=3, help="processes of which the median is shown")
    parser.add_argument("--smoke", action="store_true", help="small tables: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--once", nargs=2, type=Path, metavar=("RUN", "SMALL"), help="analyse these runs here, as JSON")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in CASES:
            parser.error(f"no analysis is named {name!r}; there are {', '.join(CASES)}")
    if options.rows < 1 or options.repeats < 1:
        parser.error("--rows and --repeats must be at least 1")
    names = options.names or list(CASES)
    if options.once is not None:
        for name in names:
            print(json.dumps(run_once(name, *options.once)))
        return 0
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as folder:
        large, small = Path(folder) / "large.run", Path(folder) / "small.run"
        make(large, SMOKE_ROWS if options.smoke else options.rows)
        make(small, SMOKE_ROWS)
        found = [measure(name, large, small, 1 if options.smoke else options.repeats) for name in names]
    if options.json:
        print(json.dumps({"machine": machine(), "results": found}, indent=1))
        return 0
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print(
        f"{'analysis':12}{'rows':>13}{'s':>8}{'Mrows/s':>9}{'Mrows/cpu-s':>13}{'peak MB':>9}{'before':>8}{'digest':>18}"
        "  tables"
    )
    for result in found:
        print(
            f"{result['name']:12}{result['rows']:13,}{result['seconds']:8.2f}{result['rows_per_second'] / 1e6:9.2f}"
            f"{result['rows_per_cpu_second'] / 1e6:13.2f}"
            f"{result['peak_memory_bytes'] / 1e6:9.0f}{result['before_bytes'] / 1e6:8.0f}{result['digest']:>18}"
            f"  {', '.join(result['tables'])}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
