"""What equal-cost hashing must do on average, and what one seed everywhere does to it."""

from __future__ import annotations

from math import factorial, sqrt

import numpy as np
from scipy import stats

from tests.theory.experiment import DATA, NO_CC, compiled, flow, flows, run_plan

PATHS = 8
LEAVES = 64
SEEDS = 20


def idle_paths(seed: int) -> list[int]:
    """Uplinks that carry no data, by leaf; every leaf sends 8 flows to the next one, and has a hash of its own."""
    hosts = LEAVES * PATHS
    result = compiled(
        {
            "seed": seed,
            "fabric": {"kind": "leaf-spine", "leaves": LEAVES, "hosts_per_leaf": PATHS, "spines": PATHS},
            "nic": NO_CC,
            "workload": [flows(*(flow(f"h{host}", f"h{(host + PATHS) % hosts}", "0B") for host in range(hosts)))],
        }
    )
    outcome = run_plan(result.plan, packets=True)
    rows = outcome.tables["packets"]
    used = {result.port_names[port] for port in np.unique(rows["port"][rows["kind"] == DATA]).tolist()}
    names = [f"->spine{spine}" for spine in range(PATHS)]
    return [sum(f"leaf{leaf}{name}" not in used for name in names) for leaf in range(LEAVES)]


def test_eight_flows_on_eight_paths() -> None:
    """2.749 paths stay idle on average, within 4 standard errors; all flows part in 0.240 % of the cases."""
    idle = np.array([idle_paths(seed) for seed in range(SEEDS)]).ravel()
    n = PATHS
    mean = n * (1 - 1 / n) ** n
    variance = n * (n - 1) * (1 - 2 / n) ** n + mean - mean**2
    assert abs(mean - 2.749) < 5e-4
    assert abs(idle.mean() - mean) < 4 * sqrt(variance / len(idle))
    parted = factorial(n) / n**n
    assert abs(parted - 0.00240) < 5e-6
    assert stats.binomtest(int((idle == 0).sum()), len(idle), parted).pvalue > 1e-3


def used_aggregation_uplinks(ecmp_seed: int | str) -> float:
    """Share of the uplinks of the second tier that carry data, when every host sends to every pod but its own."""
    k = 8
    hosts = k**3 // 4
    per_pod = hosts // k
    pairs = [(host, (host + pod * per_pod) % hosts) for host in range(hosts) for pod in range(1, k)]
    result = compiled(
        {
            "fabric": {"kind": "fat-tree", "k": k},
            "switch": {"ecmp_seed": ecmp_seed},
            "nic": NO_CC,
            "workload": [flows(*(flow(f"h{src}", f"h{dst}", "0B") for src, dst in pairs))],
        }
    )
    outcome = run_plan(result.plan, packets=True)
    data = outcome.tables["packets"]
    carrying = {result.port_names[port] for port in np.unique(data["port"][data["kind"] == DATA]).tolist()}
    uplinks = [name for name in result.port_names if name.startswith("agg") and "->core" in name]
    return sum(name in carrying for name in uplinks) / len(uplinks)


def test_one_seed_polarises_the_second_tier() -> None:
    """With one hash in both tiers and 4 uplinks each, 1/4 of the second tier's uplinks carry everything."""
    assert used_aggregation_uplinks(7) == 1 / 4
    assert used_aggregation_uplinks("per-switch") > 0.95
