"""Collectives and transfers counted before anything is built: against what is made of them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest

from fabemu.compile import compile_plan
from fabemu.cost import admission
from fabemu.cost.admission import admit_scenario
from fabemu.cost.footprint import counts_of
from fabemu.cost.machine import Room
from fabemu.cost.size import counts_of_scenario, sure_bytes
from fabemu.errors import MachineError, ScenarioError
from fabemu.scenario import scenario_from_dict
from fabemu.scenario.workload import ALGORITHMS
from fabemu.topology.fabric import build_fabric
from fabemu.workload.collective import collective_graph
from fabemu.workload.context import WorkloadContext
from fabemu.workload.hosts import HostNames

KINDS = [(operation, algorithm) for operation, known in ALGORITHMS.items() for algorithm in known or ("auto",)]
SIZES = [1, 37, 700, 5003]
RAIL = {"kind": "rail", "nodes": 4, "gpus_per_node": 4, "spines": 2}


def scenario(workload, hosts=17, fabric=None, **changes):
    table = {"kind": "single-switch", "hosts": hosts} if fabric is None else fabric
    return scenario_from_dict({"name": "cost", "fabric": table, "workload": [workload], **changes})


def collective(operation, algorithm="auto", size=5003, **changes):
    table = {"kind": "collective", "operation": operation, "algorithm": algorithm, **changes}
    return table | ({"tokens": size, "width": 3} if operation.startswith("moe-") else {"size": f"{size}B"})


def graph_of(loaded):
    """The operations of the only workload."""
    fabric = build_fabric(loaded, Path())
    names = HostNames(fabric.host_names, fabric.switch_names)
    rate = np.full(len(fabric.host_names), 10**11)
    context = WorkloadContext(loaded, 0, names, rate, Path(), "collective", 0, fabric=fabric)
    return collective_graph(loaded.workload[0], context)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 11, 16, 17])
@pytest.mark.parametrize(("operation", "algorithm"), KINDS)
def test_collectives_are_counted_exactly(operation, algorithm, ranks):
    """Every operation and algorithm, its data in channels, chunks and parts of elements, with sums that take time."""
    few = {"top_k": 1} if operation.startswith("moe-") and ranks == 1 else {}
    for number, (channels, chunk, qps) in enumerate(itertools.product((1, 3), (None, "0B", "70B"), (1, 3))):
        if (number + number // 2 + number // 6) % 2 != ranks % 2:
            continue
        table = collective(
            operation,
            algorithm,
            SIZES[(number + ranks) % len(SIZES)],
            channels=channels,
            qps=qps,
            element=1 + 3 * ((number + ranks) // 4 % 2),
            iterations=1 + number % 2,
            root=ranks - 1,
            **few,
            **({} if chunk is None else {"chunk": chunk}),
            **({"reduce_rate": "100Gbps"} if number % 3 else {}),
        )
        loaded = scenario(table, ranks)
        graph, counts = graph_of(loaded), counts_of_scenario(loaded)
        pairs = len(np.unique(graph.flows.src.astype(np.int64) * ranks + graph.flows.dst))
        made = (len(graph.flows), len(graph))
        assert (counts.messages, counts.ops) == made, table
        assert counts.qps <= pairs, table
        assert 2 * counts.qps >= pairs or algorithm not in ("ring", "pairwise", "direct"), table


@pytest.mark.parametrize("operation", ["all-reduce", "all-to-all", "moe-dispatch", "moe-combine"])
@pytest.mark.parametrize("size", [1, 37, 5003, 16 << 20])
@pytest.mark.parametrize("chunk", ["0B", "70B"])
def test_hierarchical_ones_are_counted_at_least(operation, size, chunk):
    if size > 10**6 and (chunk != "0B" or operation.startswith("moe-")):
        size = 20_000
    for algorithm, job in itertools.product(("auto", "hierarchical"), (None, 4, 12)):
        changes = {"job": [{"name": "a", "ranks": job}]} if job else {}
        table = collective(operation, algorithm, size, channels=2, chunk=chunk, **({"job": "a"} if job else {}))
        loaded = scenario(table, fabric=RAIL, **changes)
        plan = counts_of(compile_plan(loaded).plan)
        counts = counts_of_scenario(loaded)
        assert counts.ops <= plan.ops and counts.messages <= plan.messages and counts.qps <= plan.qps
        assert counts.messages > 0
        if job is None and operation == "all-reduce":
            assert (counts.ops, counts.messages) == (plan.ops, plan.messages)


@pytest.mark.parametrize("algorithm", ["pairwise", "hierarchical"])
def test_matrices_are_counted_at_least(algorithm):
    matrix = np.random.default_rng(3).integers(0, 900, (16, 16)) * (np.random.default_rng(4).random((16, 16)) < 0.6)
    rows = [[f"{size}B" for size in row] for row in matrix.tolist()]
    table = {"kind": "collective", "operation": "all-to-all", "algorithm": algorithm, "matrix": rows, "chunk": "70B"}
    loaded = scenario(table, fabric=RAIL)
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert 0 < counts.messages <= plan.messages and counts.ops <= plan.ops
    assert algorithm == "hierarchical" or counts.messages == plan.messages


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce"])
@pytest.mark.parametrize("size", [10_000, 2 << 20])
def test_the_algorithm_is_the_one_that_is_chosen(operation, size):
    loaded = scenario(collective(operation, size=size))
    graph, counts = graph_of(loaded), counts_of_scenario(loaded)
    assert (counts.messages, counts.ops) == (len(graph.flows), len(graph))


@pytest.mark.parametrize(
    ("hosts", "known"),
    [("all", True), ("h3:h9", True), (["h0", "h4:h6"], True), ("h1*", False), (["h0", "h1", "h2", "h1?"], False)],
)
def test_ranks_that_are_not_known_count_as_nothing(hosts, known):
    """Not as few: fewer ranks may have an algorithm of more messages."""
    loaded = scenario(collective("all-reduce", hosts=hosts, size=300_000))
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert (counts.messages, counts.ops) == ((plan.messages, plan.ops) if known else (0, 0))


@pytest.mark.parametrize("hosts", [["n0g0", "n1g0"], "n0g1:n2g1", "n0g*", "n1g0:n1g3", "all"])
def test_hosts_of_nodes_are_never_too_many(hosts):
    loaded = scenario(collective("all-gather", "ring", hosts=hosts), fabric=RAIL)
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert counts.messages <= plan.messages and counts.ops <= plan.ops and counts.qps <= plan.qps


def test_all_are_the_gpus_alone():
    frontend = {"leaves": 1, "storage_leaves": 1, "storage_hosts": 3}
    loaded = scenario(collective("all-gather", "ring"), fabric={**RAIL, "frontend": frontend})
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert (counts.messages, counts.ops) == (plan.messages, plan.ops) == (15 * 16, 2 * 15 * 16 + 16)


@pytest.mark.parametrize("scale_up", [{}, {"model": "packets"}])
def test_inside_a_node_there_may_be_no_queue_pairs(scale_up):
    loaded = scenario(collective("all-to-all"), fabric=RAIL, scale_up=scale_up)
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert (counts.messages, counts.ops) == (plan.messages, plan.ops) and counts.qps <= plan.qps


@pytest.mark.parametrize("pattern", ["round-robin", "striped", "one-to-one", "one-to-all"])
@pytest.mark.parametrize("size", ["3B", "1KB"])
@pytest.mark.parametrize("stop", [None, "1us", "3us", "4us", "1ms"])
@pytest.mark.parametrize("verb", ["write", "read"])
def test_transfers_are_counted_exactly(pattern, size, stop, verb):
    table = {"kind": "transfer", "pattern": pattern, "size": size, "count": 4, "period": "1us", "start": "1us"}
    table |= {"sources": "h0:h6", "destinations": "h7:h13", "verb": verb} | ({} if stop is None else {"stop": stop})
    if stop == "1us":
        table["start"] = "0us"
    loaded = scenario(table)
    plan, counts = counts_of(compile_plan(loaded).plan), counts_of_scenario(loaded)
    assert (counts.messages, counts.ops, counts.qps) == (plan.messages, plan.ops, plan.qps)


def test_what_a_graph_takes_while_it_is_built_is_sure(monkeypatch):
    loaded = scenario(
        collective("all-reduce", "ring", 10**9),
        fabric={"kind": "leaf-spine", "leaves": 64} | {"hosts_per_leaf": 32, "spines": 32},
    )
    counts = counts_of_scenario(loaded)
    assert counts.messages == 2 * 2047 * 2048
    needed = sure_bytes(counts)
    assert 180 * counts.ops < needed < 260 * counts.ops  # 211 to 258 bytes were measured
    monkeypatch.setattr(admission, "room", lambda: Room(int(1e9), "this machine"))
    with pytest.raises(MachineError, match=r"8,384,512 messages \(16,771,072 operations\) take at least"):
        admit_scenario(loaded)


def test_what_is_not_a_message_counts_once():
    """Runs of nothing, and additions: more operations that are no messages than recvs."""
    for table in (
        collective("all-reduce", "ring", 0, iterations=100_000),
        collective("reduce-scatter", "ring", 10**9, chunk="1KB", reduce_rate="1Tbps"),
    ):
        counts = counts_of_scenario(scenario(table))
        assert counts.ops - counts.messages > 0.6 * counts.ops
        assert 0.9 * sure_bytes(counts) < 200 * counts.ops + 85 * 10**6 <= 1.1 * sure_bytes(counts)


FABRIC = {"kind": "fat-tree", "pods": 32, "edges_per_pod": 32, "aggs_per_pod": 32, "cores": 1024, "hosts_per_edge": 32}


def test_more_operations_than_there_are_numbers_for_are_refused_at_once():
    loaded = scenario(collective("all-reduce", "ring", 10**9), fabric=FABRIC)
    begin = time.perf_counter()
    with pytest.raises(ScenarioError) as found:
        admit_scenario(loaded, ignore_memory=True)
    assert time.perf_counter() - begin < 1
    assert "workload.0: all-reduce takes at least 2,147,418,112 messages and 4,294,868,992 operations" in str(
        found.value
    )
    assert "fewer ranks, channels" in str(found.value) and "2,147,483,647" in str(found.value)


def test_small_chunks_of_much_data_do_not_fit(monkeypatch):
    loaded = scenario(collective("all-reduce", "ring", 10**12, chunk="64KiB"), hosts=16)
    monkeypatch.setattr(admission, "room", lambda: Room(64 * 10**9, "this machine"))
    begin = time.perf_counter()
    with pytest.raises(MachineError, match=r"457,764,000 messages \(915,528,016 operations\) take at least .* GB"):
        admit_scenario(loaded)
    assert time.perf_counter() - begin < 1
