"""Collectives and jobs against closed forms and against themselves, with numeric verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.alone import job_costs
from fabemu.collectives.bounds import payload_bps
from fabemu.compile import compile_plan
from fabemu.perf import perf
from fabemu.scenario import load_scenario, scenario_from_dict

SCENARIOS = Path(__file__).parents[2] / "scenarios"
RATE_BPS = 400 * 10**9
MIB = 2**20


def uncongested(hosts: int, algorithm: str, **more):
    """Ranks on one switch. An ACK of 16 packets leaves 0.1 % of a port that sends as much as it receives."""
    table = {
        "fabric": {"kind": "single-switch", "hosts": hosts},
        "nic": {"ack_every": 16, **more.pop("nic", {})},
        "workload": [{"kind": "collective", "operation": "all-reduce", "size": "1MB", "algorithm": algorithm, **more}],
    }
    return scenario_from_dict(table)


@pytest.mark.parametrize("hosts", [2, 5, 8])
def test_ring_all_reduce_takes_its_bytes_and_its_latencies(hosts: int) -> None:
    """2 (n - 1) / n S / B, B = line rate x 4096 / 4178, and 2 (n - 1) times what a message takes besides."""
    (row,) = perf(uncongested(hosts, "ring"), [32 * MIB])
    bytes_ps = 2 * (hosts - 1) / hosts * row.size_bytes * 8e12 / payload_bps(RATE_BPS)
    # A store-and-forward switch, two cables, the header of the first packet.
    (small,) = perf(uncongested(hosts, "ring"), [4 * hosts])
    expected_ps = bytes_ps + small.time_ps
    assert expected_ps == pytest.approx(row.time_ps, rel=0.01)
    assert row.time_ps >= row.ideal_ps > bytes_ps
    assert row.efficiency > 0.99


def test_double_tree_stays_near_its_own_bound() -> None:
    """2 S / B: what an inner rank of one tree, a leaf of the other, has to send (Sanders, Speck, Traff 2009)."""
    scenario = uncongested(8, "tree", chunk="128KiB", nic={"cc": {"kind": "none"}})
    (row,) = perf(scenario, [16 * MIB])
    bound_ps = 2 * row.size_bytes * 8e12 / payload_bps(RATE_BPS)
    assert bound_ps < row.time_ps < 1.05 * bound_ps


def test_halving_doubling_is_as_good_as_a_ring_for_large_data() -> None:
    (row,) = perf(uncongested(8, "halving-doubling"), [32 * MIB])
    assert row.efficiency > 0.99


def test_all_to_all_fills_every_port() -> None:
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": 8},
            "nic": {"ack_every": 16},
            "workload": [{"kind": "collective", "operation": "all-to-all", "size": "1MB"}],
        }
    )
    (row,) = perf(scenario, [32 * MIB])
    bytes_ps = 7 / 8 * row.size_bytes * 8e12 / payload_bps(RATE_BPS)
    assert bytes_ps < row.time_ps < 1.02 * bytes_ps


def test_dispatch_of_tokens_has_the_known_volume() -> None:
    """2^20 tokens, 64 devices, top-2, width 4096, 2 bytes: 16,384 x 2 x 8,192 x 63 / 64 bytes sent by each."""
    item = {"kind": "collective", "operation": "moe-dispatch", "tokens": 2**20, "top_k": 2, "width": 4096}
    scenario = scenario_from_dict({"fabric": {"kind": "single-switch", "hosts": 64}, "workload": [item]})
    flows = compile_plan(scenario).flows
    sent = {host: int(flows.bytes[flows.src == host].sum()) for host in range(64)}
    assert set(sent.values()) == {264_241_152}


def test_a_checkpoint_on_the_same_fabric_delays_an_all_reduce() -> None:
    path = SCENARIOS / "jobs" / "checkpoint-converged.toml"
    (cost,) = job_costs(load_scenario(path))
    assert 1.05 < cost.slowdown < 1.5
    # Without congestion control its pauses reach further.
    (paused,) = job_costs(load_scenario(path, ["nic.cc.kind=none"]))
    assert paused.slowdown > cost.slowdown


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_jobs_that_never_meet_cost_each_other_nothing(seed: int) -> None:
    """Alone a job does the very same: paths by its flow hashes, drawn experts, random places."""
    fabric = {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 4}
    first = {"kind": "collective", "job": "a", "operation": "all-reduce", "size": "4MB", "algorithm": "ring"}
    second = {"kind": "collective", "job": "b", "operation": "moe-dispatch", "tokens": 2048, "routing": "random"}
    jobs = [
        {"name": "a", "ranks": 7, "placement": "random"},
        {"name": "b", "ranks": 8, "placement": "random", "start": "20ms"},
    ]
    table = {"fabric": fabric, "workload": [first, second], "job": jobs, "seed": seed}
    costs = list(job_costs(scenario_from_dict(table)))
    assert [cost.slowdown for cost in costs] == [1.0, 1.0]


def test_a_checkpoint_on_another_fabric_changes_nothing() -> None:
    (cost,) = job_costs(load_scenario(SCENARIOS / "jobs" / "checkpoint-separate.toml"))
    assert cost.together.completion_ps == cost.alone_ps
