"""Operation graphs: joined, compiled, and stepped by the real engine."""

from __future__ import annotations

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.plan import OP_CALC, OP_RECV, OP_SCALE_UP, OP_SEND, VERB_SCALE_UP
from fabemu.scenario import scenario_from_dict
from fabemu.workload.flow import FlowTable, flow_table
from fabemu.workload.graph import Collective, GraphBuilder, OperationGraph, join

US = 10**6
FABRIC = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2}
WORKLOAD = [{"kind": "permutation", "size": "1KB"}]


def scenario(**more):
    return scenario_from_dict({"fabric": FABRIC, "workload": WORKLOAD, **more})


def pairs(src, dst, start_ps=0, **columns) -> FlowTable:
    return flow_table(np.array(src), np.array(dst), 10_000, start_ps, class_id=1, **columns)


def chain(label: str, start_ps: int = 0) -> OperationGraph:
    """Host 0 sends to 4, which computes for 7 us and sends on to 1."""
    builder = GraphBuilder(label=label, class_id=1, start_ps=start_ps)
    sends = builder.sends(np.array([0, 4]), np.array([4, 1]), 10_000, lane=0, collective=0, step=np.array([0, 1]))
    recvs = builder.recvs(np.array([4, 1]), sends, collective=0)
    calc = builder.calcs(np.array([4]), 7 * US, collective=0)
    builder.edges(recvs[:1], calc)
    builder.edges(calc, sends[1:])
    whole = Collective(
        label=label, operation="broadcast", algorithm="ring", iteration=0, ranks=3, size_bytes=10_000, bus_factor=1
    )
    return builder.build([whole])


def ran(graph: OperationGraph | FlowTable, **more):
    compiled = compile_plan(scenario(**more), flows=graph)
    engine = Engine(compiled.plan)
    assert engine.run(1 << 60, 10**9) == 2
    assert (engine.ops()["status"] == 2).all()
    return compiled, engine.ops()


def test_what_waits_runs_when_what_it_waits_for_is_done() -> None:
    compiled, ops = ran(chain("a"))
    assert compiled.plan.op_kind.tolist() == [OP_SEND, OP_SEND, OP_RECV, OP_RECV, OP_CALC]
    assert compiled.plan.op_peer.tolist() == [2, 3, 0, 1, -1]
    assert ops["done_ps"][2] == ops["delivered_ps"][0] == compiled.ideal_ps[0]
    assert ops["posted_ps"][4] == ops["done_ps"][2]
    assert ops["posted_ps"][1] == ops["done_ps"][4] == ops["done_ps"][2] + 7 * US
    assert ops["done_ps"][3] == ops["delivered_ps"][1] == ops["posted_ps"][1] + compiled.ideal_ps[1]


def test_joined_graphs_keep_their_own_waits_labels_and_collectives() -> None:
    late, early = chain("late", 50 * US), chain("early")
    graph = join([late, pairs([2], [3], 20 * US, label="flows"), early])
    assert graph.flows.labels == ("late", "flows", "early")
    assert graph.flows.src.tolist() == [0, 4, 2, 0, 4]
    assert graph.flows.start_ps.tolist() == [0, 0, 20 * US, 50 * US, 50 * US]
    assert [item.label for item in graph.collectives] == ["late", "early"]
    assert graph.op_collective.tolist() == [1, 1, -1, 0, 0, 0, 0, 0, 1, 1, 1]
    assert graph.op_label_id.tolist() == [2, 2, 1, 0, 0, 0, 0, 0, 2, 2, 2]
    assert graph.flow.tolist() == [3, 4, -1, 0, 1, -1]
    _, ops = ran(graph)
    alone = ran(early)[1]
    assert ops["done_ps"][[0, 1, 8, 9, 10]].tolist() == alone["done_ps"].tolist()
    # The other one sees the same fabric, fifty microseconds later; the flow between is over by then.
    assert (ops["done_ps"][[3, 4, 5, 6, 7]] - 50 * US).tolist() == alone["done_ps"].tolist()


def test_a_collective_without_flows_keeps_its_number() -> None:
    nothing = OperationGraph(flows=pairs([], [], label="one rank"), collectives=chain("x").collectives)
    graph = join([nothing, chain("b")])
    assert len(graph.collectives) == 2
    assert set(graph.op_collective.tolist()) == {1}


def test_waits_across_hosts_are_refused() -> None:
    builder = GraphBuilder(label="", class_id=1)
    send = builder.sends(np.array([0]), np.array([1]), 1, lane=0)
    builder.edges(builder.calcs(np.array([3]), 5), send)
    with pytest.raises(
        ScenarioError, match=r"operation 0 of host 0 waits for operation 1 of host 3; what crosses hosts"
    ):
        compile_plan(scenario(), flows=builder.build())


def test_messages_of_one_pair_and_lane_share_a_queue_pair() -> None:
    builder = GraphBuilder(label="", class_id=1)
    builder.sends(np.array([0, 1, 0]), np.array([1, 0, 1]), 100, lane=np.array([7, 7, 8]))
    builder.sends(np.array([0, 1, 2]), np.array([1, 2, 1]), 100, lane=7)
    graph = builder.build()
    assert graph.flows.qp.tolist() == [0, 1, 2, 0, 3, 4]
    compiled, _ = ran(graph)
    assert compiled.plan.op_qp.tolist() == [0, 1, 2, 0, 3, 4]


def test_the_other_flows_of_a_graph_are_as_many() -> None:
    with pytest.raises(ValueError, match="2 flows in place of 1"):
        OperationGraph(flows=pairs([0], [1])).with_flows(pairs([0, 1], [1, 2]))


SCALE_UP = {"model": "analytic", "bandwidth": "3600Gbps", "latency": "500ns"}
NODES = {**FABRIC, "gpus_per_node": 2}


def test_messages_inside_a_node_stay_in_it() -> None:
    compiled, ops = ran(pairs([0, 1, 0, 6], [1, 0, 2, 7], qp=np.array([0, -1, 1, -1])), fabric=NODES, scale_up=SCALE_UP)
    plan = compiled.plan
    assert plan.host_domain.tolist() == [0, 0, 2, 2, 4, 4, 6, 6]
    assert plan.op_kind.tolist() == [OP_SCALE_UP, OP_SCALE_UP, OP_SEND, OP_SCALE_UP, OP_RECV, OP_RECV, OP_RECV]
    assert (compiled.flows.verb == VERB_SCALE_UP).tolist() == [True, True, False, True]
    assert plan.op_qp.tolist() == [-1, -1, 0, -1, -1, -1, -1]
    assert plan.qp_op.tolist() == [2]
    inside = plan.op_kind == OP_SCALE_UP
    exact = 500_000 + -(-10_000 * 8 * 10**12 // (3_600 * 10**9))
    assert (compiled.ideal_ps[inside] == exact).all()
    assert (ops["delivered_ps"][inside] == exact).all()


def test_ideal_times_inside_a_node_are_exact_for_any_size() -> None:
    sizes = np.array([0, 1, 449, 10**6, 2**40, 10**13 + 7])
    flows = flow_table(np.zeros(6, int), np.ones(6, int), sizes, 0, class_id=1)
    compiled = compile_plan(scenario(fabric=NODES, scale_up=SCALE_UP), flows=flows)
    expected = [500_000 + -(-size * 8 * 10**12 // (3_600 * 10**9)) for size in sizes.tolist()]
    assert compiled.ideal_ps[:6].tolist() == expected


def test_reads_inside_a_node_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"flow 1: a READ between GPUs of one node.*packets"):
        compile_plan(scenario(fabric=NODES, scale_up=SCALE_UP), flows=pairs([0, 4], [2, 5], verb=2))


def test_without_scale_up_messages_inside_a_node_go_by_the_fabric() -> None:
    compiled, _ = ran(pairs([0], [1]), fabric=NODES)
    assert compiled.plan.op_kind.tolist() == [OP_SEND]
    assert (compiled.plan.host_domain == -1).all()
