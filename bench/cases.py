"""The canonical scenarios, by name: what is stepped, and which part of simulated time is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fabemu.compile import Compiled, compile_plan
from fabemu.hashing import hash64, low32, mix32
from fabemu.scenario import Scenario, scenario_from_dict

US = 10**6

LEAF_SPINE = {"kind": "leaf-spine", "leaves": 8, "hosts_per_leaf": 16, "spines": 16}
FAT_TREE = {"kind": "fat-tree", "k": 16}
LARGE_FAT_TREE = {"kind": "fat-tree", "k": 32}
SMALL_LEAF_SPINE = {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 4}
SMALL_FAT_TREE = {"kind": "fat-tree", "k": 4}


@dataclass(frozen=True)
class Case:
    """One benchmark.

    Attributes
    ----------
    name
        Workload and number of hosts.
    what
        One line for the reader.
    workload
        "clean", "congested" or "incast".
    fabric, smoke_fabric
        Full size, and the size that the test suite runs.
    cc
        Congestion control of all senders.
    warm_us, stop_us
        Simulated time before which nothing is measured, and at which the run ends.
    """

    name: str
    what: str
    workload: str
    fabric: dict[str, Any]
    smoke_fabric: dict[str, Any]
    cc: str
    warm_us: int
    stop_us: int

    @property
    def hosts(self) -> int:
        """At full size."""
        return _host_count(self.fabric)


def _case(workload: str, hosts: int, cc: str, warm_us: int, stop_us: int, what: str) -> Case:
    fabric = {128: LEAF_SPINE, 1024: FAT_TREE, 8192: LARGE_FAT_TREE}[hosts]
    small = SMALL_LEAF_SPINE if hosts == 128 else SMALL_FAT_TREE
    suffix = "-no-cc" if cc == "none" and workload == "congested" else ""
    return Case(f"{workload}{suffix}-{hosts}", what, workload, fabric, small, cc, warm_us, stop_us)


_CLEAN = "permutation without collisions: every link carries one flow at line rate"
_CONGESTED = "random permutation, ECMP collisions, DCQCN as on a ConnectX"
_NO_CC = "random permutation, ECMP collisions, PFC alone"
_INCAST = "64 senders drawn for every 64th host, DCQCN as on a ConnectX"

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _case("clean", 128, "dcqcn", 50, 1050, _CLEAN),
        _case("clean", 1024, "dcqcn", 20, 120, _CLEAN),
        _case("clean", 8192, "dcqcn", 15, 45, _CLEAN),
        _case("congested", 128, "dcqcn", 100, 1600, _CONGESTED),
        _case("congested", 1024, "dcqcn", 50, 200, _CONGESTED),
        _case("congested", 8192, "dcqcn", 30, 60, _CONGESTED),
        _case("congested", 128, "none", 100, 1100, _NO_CC),
        _case("congested", 1024, "none", 50, 150, _NO_CC),
        _case("incast", 128, "dcqcn", 200, 20_200, _INCAST),
        _case("incast", 1024, "dcqcn", 200, 2_700, _INCAST),
        _case("incast", 8192, "dcqcn", 100, 400, _INCAST),
    )
}
"""All cases, by name."""

SMOKE_WARM_US, SMOKE_STOP_US = 5, 30
"""Measured span of every case at smoke size."""


def build(case: Case, *, smoke: bool = False, trace: Mapping[str, Any] | None = None) -> tuple[Scenario, Compiled, int]:
    """Compile a case.

    Parameters
    ----------
    case
        A value of `CASES`.
    smoke
        At the size that the test suite runs.
    trace
        The table [trace] of the scenario; its defaults without.

    Returns
    -------
    tuple
        Scenario, plan with its names, and the simulated time from which to measure, ps.
    """
    warm_us, stop_us = (SMOKE_WARM_US, SMOKE_STOP_US) if smoke else (case.warm_us, case.stop_us)
    fabric = case.smoke_fabric if smoke else case.fabric
    # Nothing may end within the run: the drain of a few long flows is not the load that the name promises.
    size = f"{stop_us * 50_000 + 10_000_000}B"  # 400 Gb/s are 50,000 B/us
    scenario = scenario_from_dict(
        {
            "name": case.name,
            "seed": 42,
            "until": f"{stop_us}us",
            "fabric": fabric,
            "link": {"rate": "400Gbps", "delay": "600ns"},
            "nic": {"cc": {"kind": case.cc}},
            "workload": [_workload(case, fabric, size, smoke=smoke)],
            "trace": dict(trace or {}),
        }
    )
    compiled = compile_plan(scenario)
    if case.workload == "clean":
        compiled = pinned(compiled, fabric)
    return scenario, compiled, warm_us * US


def _workload(case: Case, fabric: dict[str, Any], size: str, *, smoke: bool) -> dict[str, Any]:
    if case.workload == "clean":
        # To the host at the same place of the next leaf or pod.
        return {"kind": "permutation", "size": size, "pattern": "shift", "shift": _neighbourhood(fabric)}
    if case.workload == "congested":
        return {"kind": "permutation", "size": size, "pattern": "random"}
    hosts, fan_in = (16, 8) if smoke else (_host_count(fabric), 64)
    receivers = [f"h{host}" for host in range(0, hosts, fan_in)]
    return {"kind": "incast", "size": size, "receivers": receivers, "fan_in": fan_in}


def _host_count(fabric: dict[str, Any]) -> int:
    return fabric["k"] ** 3 // 4 if fabric["kind"] == "fat-tree" else fabric["leaves"] * fabric["hosts_per_leaf"]


def _neighbourhood(fabric: dict[str, Any]) -> int:
    """Hosts of one leaf or pod."""
    return fabric["k"] ** 2 // 4 if fabric["kind"] == "fat-tree" else fabric["hosts_per_leaf"]


def pinned(compiled: Compiled, fabric: dict[str, Any]) -> Compiled:
    """Give every flow a hash that takes it over uplinks of its own, and its acknowledgements over the receiver's.

    Uplink i of an edge switch belongs to its host i; in a fat tree uplink j of an aggregation switch belongs to edge
    switch j. With a shift by a whole leaf or pod, every link then carries one flow and the acknowledgements of one.
    """
    plan = compiled.plan
    candidates = low32(hash64(7, np.arange(64 * 1024)))
    n = fabric["k"] // 2 if fabric["kind"] == "fat-tree" else fabric["spines"]
    per_edge = fabric["k"] // 2 if fabric["kind"] == "fat-tree" else fabric["hosts_per_leaf"]
    edges = _host_count(fabric) // per_edge

    def choice(node: int) -> np.ndarray:
        """Uplink that each candidate takes at a switch (MODEL 8)."""
        return (mix32(candidates ^ plan.node_seed[node]).astype(np.uint64) * np.uint64(n)) >> np.uint64(32)

    def of_host(host: int) -> int:
        edge, place = divmod(host, per_edge)
        fits = choice(plan.host_count + edge) == place
        if fabric["kind"] == "fat-tree":
            pod, edge_in_pod = divmod(edge, n)
            fits &= choice(plan.host_count + edges + pod * n + place) == edge_in_pod
        return int(candidates[np.flatnonzero(fits)[0]])

    hash_of_host = np.array([of_host(host) for host in range(plan.host_count)], dtype=np.uint32)
    return replace(
        compiled, plan=replace(plan, qp_hash=hash_of_host[plan.qp_src], qp_ack_hash=hash_of_host[plan.qp_dst])
    )
