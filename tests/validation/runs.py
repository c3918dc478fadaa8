"""Runs of the recorded simulator, repeated here: import, compile, simulate, and the figures that are compared."""

from __future__ import annotations

import csv
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fabemu._core.engine import Engine
from numpy.typing import NDArray

from fabemu.compile import Compiled, compile_plan
from fabemu.hashing import STREAM_ECMP, hash64, low32
from fabemu.importers.hpcc import import_hpcc
from fabemu.plan import FOREVER_PS
from fabemu.scenario import load_scenario, scenario_from_dict

DATA = Path(__file__).parents[1] / "data" / "ns3"
PFC_KIND = 4
RUNNING = 0

Pfc = tuple[int, int, int, str]
"""Time of arrival in ns, node that is paused or resumed, its interface from 1, "pause" or "resume"."""


@dataclass(frozen=True)
class Outcome:
    """What one run gives."""

    fct_ns: NDArray[np.int64]  # (flows,) from start to the ACK of the last byte at the sender; -1 if not done
    start_ns: NDArray[np.int64]  # (flows,)
    pfc: list[Pfc]  # sorted
    broken: list[str]  # invariants that did not hold
    totals: dict[str, int]


def compile_files(topology: Path, flows: Path, config: Path) -> Compiled:
    """Import files of the simulator and compile the scenario that comes out."""
    with tempfile.TemporaryDirectory() as directory:
        path, _ = import_hpcc(topology, flows, config, Path(directory))
        return compile_plan(load_scenario(path, ['trace.interval="off"']), base_dir=path.parent)


def compile_run(run: str) -> Compiled:
    """Compile a recorded run of A, B, C or E100 by its name."""
    shape = run.partition("_")[0]
    inputs = DATA / "inputs"
    return compile_files(inputs / f"topology_{shape}.txt", inputs / f"flows_{shape}.txt", inputs / f"config_{run}.txt")


def with_seed(compiled: Compiled, seed: int) -> Compiled:
    """Draw anew: ECN marks and the ECMP seeds of the switches."""
    seeds = low32(hash64(seed, STREAM_ECMP, np.arange(compiled.plan.node_count)))
    return replace(compiled, plan=replace(compiled.plan, seed=seed, node_seed=seeds))


def simulate(compiled: Compiled, *, frames: bool = False) -> Outcome:
    """Run to the end; `frames` collects the PFC frames too."""
    plan = compiled.plan
    engine = Engine(plan, packets=frames)
    while engine.run(FOREVER_PS, 10**7) == RUNNING:
        pass
    assert engine.fault() is None
    operations = engine.ops()
    done, posted = operations["done_ps"], operations["posted_ps"]
    return Outcome(
        fct_ns=np.where(done >= 0, (done - posted) // 1000, -1),
        start_ns=posted // 1000,
        pfc=_pfc_frames(compiled, engine.drain()["packets"]) if frames else [],
        broken=[f"{name}: {detail}" for name, held, detail in engine.verify() if not held],
        totals=engine.totals(),
    )


def _pfc_frames(compiled: Compiled, packets: np.ndarray) -> list[Pfc]:
    """PFC frames as the node sees them that they arrive at."""
    plan = compiled.plan
    frames = packets[packets["kind"] == PFC_KIND]
    ports = frames["port"]
    # 43 B never take a whole number of ns at these rates, so plain truncation is right.
    wire_ps = plan.pfc_bytes * 8 * 10**9 // plan.port_rate_bps[ports] * 1000
    arrival_ns = (frames["time_ps"] + wire_ps + plan.port_delay_ps[ports]) // 1000
    receivers = plan.port_peer[ports]
    nodes = plan.port_node[receivers]
    interfaces = receivers - plan.node_port_start[nodes] + 1
    ids = [int(name.lstrip("hsw")) for name in compiled.node_names]
    return sorted(
        (time, ids[node], interface, "pause" if mask else "resume")
        for time, node, interface, mask in zip(
            arrival_ns.tolist(), nodes.tolist(), interfaces.tolist(), frames["psn"].tolist(), strict=True
        )
    )


def recorded(name: str) -> dict[str, list[str]]:
    """Columns of a table of results; no rows if there is no such file."""
    path = DATA / "results" / f"{name}.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: [row[key] for row in rows] for key in rows[0]}


def recorded_pfc(run: str) -> list[Pfc]:
    """PFC frames of a recorded run, sorted."""
    table = recorded(f"{run}_pfc")
    if not table:
        return []
    columns = (map(int, table["time_ns"]), map(int, table["node"]), map(int, table["interface"]), table["event"])
    return sorted(zip(*columns, strict=True))


FABRICS = {
    "D_k4": {"kind": "fat-tree", "pods": 4, "edges_per_pod": 2, "aggs_per_pod": 2, "cores": 4, "hosts_per_edge": 4},
    "D_ls128": {"kind": "leaf-spine", "leaves": 8, "hosts_per_leaf": 16, "spines": 8},
}
"""Structure of the D fabrics; all links are alike."""


def compile_fabric_run(run: str) -> Compiled:
    """Compile D_k4 or D_ls128: the fabric from its structure, the flows from the recorded results."""
    table = recorded(f"{run}_dcqcn_fct")
    count: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as directory:
        with (Path(directory) / "flows.csv").open("w", encoding="utf-8") as file:
            file.write("src,dst,bytes,start_ps,sport\n")
            columns = (table[key] for key in ("src", "dst", "size", "start_ns"))
            for src, dst, size, start_ns in zip(*columns, strict=True):
                number = count[src, dst] = count.get((src, dst), -1) + 1
                file.write(f"h{src},h{dst},{size},{start_ns}000,{10_000 + number}\n")
        scenario = scenario_from_dict(
            {
                "compat": "ns3",
                "fabric": FABRICS[run],
                "link": {"rate": "100Gbps", "delay": "1us"},
                "switch": {"buffer": "32MiB", "ecn": {"kmin": "400KB", "kmax": "1600KB", "pmax": 0.2}},
                "nic": {"cc": {"kind": "dcqcn", "preset": "ns3"}},
                "class": [
                    {"name": "pg3", "priority": 3, "lossless": True, "ecn": True},
                    {"name": "cnp", "priority": 0, "lossless": False, "cnp": True},
                ],
                "workload": [{"kind": "flow-file", "path": "flows.csv", "class": "pg3"}],
                "trace": {"interval": "off"},
            }
        )
        return compile_plan(scenario, base_dir=Path(directory))
