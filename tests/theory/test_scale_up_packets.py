"""The scale-up network as packets: its own links alone, their exact times, their bandwidth, and what happens beside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.lint import lint
from fabemu.plan import ACTION_RECEIVER, ACTION_STORM, SCHEDULER_CLASSIC, SCHEDULER_WINDOW
from fabemu.scenario import scenario_from_dict
from tests.oracle.simulator import simulate
from tests.parity.compare import assert_same, run_core
from tests.theory.experiment import NO_CC, Outcome, compiled, run, wire_ps

RATE, LATENCY_PS = 3_600 * 10**9, 500_000
CREDIT_BYTES, ACK_BYTES, FULL_BYTES = 64, 66, 4096 + 62
RAILS = {"kind": "rail", "nodes": 2, "gpus_per_node": 4, "spines": 2}
LEAVES = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2, "gpus_per_node": 4}
SEVERAL = {"kind": "rail", "nodes": 2, "gpus_per_node": 4, "spines": 2, "planes": 2}
LATE_ACKS = {"ack_every": 1_000_000, **NO_CC}


def flow(src: str, dst: str, size: str) -> list[dict[str, Any]]:
    return [{"kind": "flows", "flow": [{"src": src, "dst": dst, "size": size}]}]


def scenario(fabric: dict[str, Any], workload: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"fabric": fabric, "scale_up": {"model": "packets"}, "nic": LATE_ACKS, "workload": workload, **more}


def data_at(outcome: Outcome) -> set[str]:
    """Ports that data left by."""
    rows = outcome.tables["packets"]
    return {outcome.port_names[port] for port in np.unique(rows["port"][rows["kind"] == 0]).tolist()}


@pytest.mark.parametrize("fabric", [RAILS, LEAVES, SEVERAL], ids=["rails", "one leaf", "planes"])
@pytest.mark.parametrize("size", ["0B", "1B", "4096B", "4097B", "100KB", "10MB"])
def test_a_write_inside_a_node_takes_exactly_the_ideal_time_and_no_port_of_a_nic(
    fabric: dict[str, Any], size: str
) -> None:
    first, last = ("h1", "h3") if fabric is LEAVES else ("n0g1", "n0g3")
    data = scenario(fabric, flow(first, last, size))
    ideal_ps = int(compiled(data).ideal_ps[0])
    outcome = run(data, packets=True)
    assert outcome.ops["delivered_ps"].tolist() == [ideal_ps]
    assert data_at(outcome) == {f"{first}->nvs0", f"nvs0->{last}"}
    # No frame of any kind, acknowledgements included, left by a port of the fabric.
    rows = outcome.tables["packets"]
    assert all("nvs0" in outcome.port_names[port] for port in np.unique(rows["port"]).tolist())


def test_the_ideal_time_is_that_of_two_cables_and_the_latency() -> None:
    data = scenario(RAILS, flow("n0g1", "n0g3", "4096B"))
    assert compiled(data).ideal_ps.tolist() == [2 * wire_ps(FULL_BYTES + 16, RATE) + LATENCY_PS]


@pytest.mark.parametrize("fabric", [RAILS, LEAVES, SEVERAL], ids=["rails", "one leaf", "planes"])
def test_messages_to_other_nodes_do_not_take_the_scale_up_network(fabric: dict[str, Any]) -> None:
    first, last = ("h1", "h7") if fabric is LEAVES else ("n0g1", "n1g1")
    outcome = run(scenario(fabric, flow(first, last, "100KB")), packets=True)
    rows = outcome.tables["packets"]
    assert not any("nvs" in outcome.port_names[port] for port in np.unique(rows["port"]).tolist())


def test_acknowledgements_cost_their_credits() -> None:
    """On the sender's cable, credit frames for the acknowledgements go between its packets: one for each."""
    data = scenario(RAILS, flow("n0g0", "n0g1", "10MB"), nic=NO_CC)
    late = scenario(RAILS, flow("n0g0", "n0g1", "10MB"))
    packets = -(-10_000_000 // 4096)
    more_ps = int(run(data).ops["delivered_ps"][0]) - int(run(late).ops["delivered_ps"][0])
    assert more_ps <= packets * wire_ps(CREDIT_BYTES, RATE)
    assert more_ps >= 0.9 * packets * wire_ps(CREDIT_BYTES, RATE)


def test_all_to_all_inside_a_node_gets_the_bandwidth_of_its_cables() -> None:
    size, gpus = 4 << 20, 8
    workload = [{"kind": "all-to-all", "size": f"{size}B", "hosts": "n0g*"}]
    data = scenario({**RAILS, "gpus_per_node": gpus}, workload)
    outcome = run(data)
    took_ps = int(outcome.ops["delivered_ps"].max())
    packets = (gpus - 1) * size // 4096
    # Every packet that comes in returns its credits in a frame of its own between those that go out.
    least_ps = packets * wire_ps(FULL_BYTES, RATE)
    each_ps = wire_ps(FULL_BYTES, RATE) + wire_ps(CREDIT_BYTES, RATE)
    assert least_ps < took_ps
    assert took_ps == pytest.approx(packets * each_ps, rel=0.02)


def test_credits_of_the_link_are_enough_for_its_full_rate() -> None:
    """At twice the latency, too; with half of the buffer the lane waits for its credits."""
    full = {"model": "packets", "latency": "2us", "bandwidth": "7200Gbps"}
    data = scenario(RAILS, flow("n0g0", "n0g1", "20MB"), scale_up=full)
    item = compiled(data)
    assert run(data).ops["delivered_ps"].tolist() == item.ideal_ps.tolist()
    credit = int(item.plan.pq_credit_bytes.max())
    half = {**full, "credit_buffer": f"{credit // 2}B"}
    slow = run({**data, "scale_up": half}).ops["delivered_ps"]
    assert 1.7 < slow[0] / item.ideal_ps[0] < 2.3


def test_a_dead_cable_inside_a_node_has_no_detour() -> None:
    """Hosts never forward, and a queue pair keeps the port of its host: nothing goes by the NIC instead."""
    fault = [{"kind": "link-down", "link": ["n0g1", "nvs0"], "start": "0ns", "end": "10us"}]
    data = scenario(RAILS, flow("n0g0", "n0g1", "100KB"), fault=fault, routing={"detection": "1us"})
    data["nic"] = {**LATE_ACKS, "timeout": 2}
    outcome = run(data, packets=True)
    assert len(outcome.tables["drops"]) > 0
    assert data_at(outcome) == {"n0g0->nvs0", "nvs0->n0g1"}
    assert outcome.ops["delivered_ps"][0] > 10_000_000


def test_faults_of_a_host_are_those_of_its_nic() -> None:
    fault = [
        {"kind": "storm", "host": "n0g1", "start": "1us", "end": "2us"},
        {"kind": "slow-receiver", "host": "n0g2", "rate": "1Gbps", "start": "1us", "end": "2us"},
    ]
    item = compiled(scenario(SEVERAL, flow("n0g0", "n0g1", "1KB"), fault=fault))
    plan = item.plan
    targets = plan.action_target[np.isin(plan.action_kind, (ACTION_STORM, ACTION_RECEIVER))]
    names = {item.port_names[port] for port in targets.tolist()}
    assert names == {f"{host}->p{plane}-rail{host[-1]}" for host in ("n0g1", "n0g2") for plane in range(2)}


def test_loads_are_of_the_nic() -> None:
    item = compiled(scenario(SEVERAL, flow("n0g0", "n0g1", "1KB")))
    assert item.host_rate_bps.tolist() == [2 * 400 * 10**9] * 8


@pytest.mark.parametrize("fabric", [RAILS, SEVERAL], ids=["rails", "planes"])
def test_the_linter_finds_nothing_wrong_with_it(fabric: dict[str, Any]) -> None:
    checked = scenario_from_dict(scenario({**fabric, "spines": 4}, flow("n0g0", "n0g1", "1KB"), nic={}))
    assert [str(item) for item in lint(checked, compile_plan(checked)) if item.severity != "note"] == []


@pytest.mark.parametrize("nodes", [1, 2])
def test_least_times_of_collectives_are_those_of_the_cables_that_carry_them(nodes: int) -> None:
    """As without packets, but for headers and whole frames; no run is faster."""
    work = {"kind": "collective", "operation": "all-reduce", "size": "8MiB", "algorithm": "hierarchical"}
    if nodes == 1:
        work["algorithm"] = "ring"
    data = scenario({**LEAVES, "leaves": nodes}, [work])
    least = compiled(data).graph.collectives[0].ideal_ps
    exact = compiled({**data, "scale_up": {"model": "analytic"}}).graph.collectives[0].ideal_ps
    assert exact < least < 1.1 * exact
    if nodes == 1:
        wire_ps_of_all = 2 * 3 / 4 * (8 << 20) * 8e12 / RATE * (FULL_BYTES + 20) / 4096
        assert least == pytest.approx(wire_ps_of_all + 6 * LATENCY_PS, rel=0.005)  # of six steps
    assert run(data).ops["delivered_ps"].max() > least


def test_clusters_that_are_too_large_for_routes_of_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    data = scenario(RAILS, flow("n0g0", "n0g1", "1KB"))
    monkeypatch.setattr("fabemu.compile.paths.GROUPS_MAX", 7)
    with pytest.raises(ScenarioError, match="every one of the 8 GPUs has routes of its own: 128 entries") as error:
        compiled(data)
    assert "or fewer GPUs" in str(error.value)
    compiled({**data, "scale_up": {"model": "analytic"}})


@pytest.mark.parametrize("scheduler", [SCHEDULER_WINDOW, SCHEDULER_CLASSIC])
@pytest.mark.parametrize("fabric", [RAILS, SEVERAL], ids=["rails", "planes"])
def test_core_and_oracle_agree_on_traffic_inside_and_between_nodes(fabric: dict[str, Any], scheduler: int) -> None:
    workload: list[dict[str, Any]] = [
        {"kind": "all-to-all", "size": "20KB"},
        {"kind": "incast", "receivers": "n0g0", "senders": ["n0g1", "n0g2", "n1g0"], "size": "50KB", "verb": "read"},
    ]
    plan = compiled(scenario(fabric, workload, nic={"mtu": 1024})).plan
    oracle = simulate(plan)
    assert_same(plan, oracle, run_core(plan, scheduler=scheduler))
