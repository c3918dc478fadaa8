"""Operation graphs that cannot run are refused, with what is wrong; those that can run are not."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabemu.compile import compile_plan
from fabemu.compile.soundness import check_operations, check_order
from fabemu.errors import ScenarioError
from fabemu.plan import OP_CALC, OP_RECV, VERB_READ, VERB_WRITE
from fabemu.scenario import scenario_from_dict
from fabemu.workload.flow import FlowTable, flow_table
from fabemu.workload.graph import GraphBuilder, OperationGraph, join

NAMES = ["h0", "h1", "h2", "h3"]
SCENARIO = scenario_from_dict(
    {"fabric": {"kind": "single-switch", "hosts": 4}, "workload": [{"kind": "permutation", "size": "1KB"}]}
)


def pairs(src, dst, **columns) -> FlowTable:
    return flow_table(np.array(src), np.array(dst), 1000, 0, class_id=1, **columns)


def graph(flows: FlowTable, others=(), edges=(), **columns) -> OperationGraph:
    """`others` are (kind, host, flow), `edges` (before, after)."""
    count = len(others)
    table = np.array(others, dtype=np.int64).reshape(-1, 3)
    edge = np.array(edges, dtype=np.int64).reshape(-1, 2)
    made = {
        "kind": table[:, 0],
        "host": table[:, 1],
        "flow": table[:, 2],
        "duration_ps": np.zeros(count),
        "start_ps": np.zeros(count),
        "label_id": np.zeros(count),
        "collective": np.full(count, -1),
        "before": edge[:, 0],
        "after": edge[:, 1],
    }
    return OperationGraph(flows=flows, **made | columns)


def refusal(whole: OperationGraph | FlowTable) -> str:
    with pytest.raises(ScenarioError) as caught:
        compile_plan(SCENARIO, flows=whole)
    return str(caught.value)


def recv(host: int, flow: int) -> tuple[int, int, int]:
    return OP_RECV, host, flow


def calc(host: int) -> tuple[int, int, int]:
    return OP_CALC, host, -1


ONE = pairs([0], [1])
READ = pairs([0], [1], verb=VERB_READ)


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        (graph(ONE, [calc(0), calc(9)]), "operation 2 (calc): host 9 of 4; hosts are 0 to 3"),
        (graph(ONE, [calc(-1)]), "operation 1 (calc): host -1 of 4; hosts are 0 to 3"),
        (graph(ONE, [(0, 0, -1)]), "operation 1 (neither recv nor calc): kind 0; it must be 1 or 2"),
        (
            graph(ONE, [calc(0)], duration_ps=[-5]),
            "operation 1 (calc): duration -5 ps is negative; it must be 0 or more",
        ),
        (graph(ONE, [calc(0)], start_ps=[-7]), "operation 1 (calc): start -7 ps is negative; it must be 0 or more"),
        (graph(ONE, [recv(1, 1)]), "operation 1 (recv): flow 1 of 1; a recv names the flow that it receives"),
        (graph(ONE, [recv(1, -1)]), "operation 1 (recv): flow -1 of 1; a recv names the flow that it receives"),
        (graph(ONE, [(OP_CALC, 1, 0)]), "operation 1 (calc): flow 0; a calc receives none, which is -1"),
        (
            graph(ONE, [recv(2, 0)]),
            "operation 1 (recv): h2 receives flow 0, but its bytes go to h1, the destination of that flow; the recv "
            "must be there",
        ),
        (
            graph(READ, [recv(1, 0)]),
            "operation 1 (recv): h1 receives flow 0, but its bytes go to h0, the source of that READ; the recv must be "
            "there",
        ),
        (
            graph(ONE, [recv(1, 0), calc(0), recv(1, 0)]),
            "operations 1 and 3 (recv) both receive flow 0; a flow has one recv at most: have what waits for the "
            "second wait for the first",
        ),
        (graph(ONE, [calc(0)], [(1, 0), (2, 0)]), "before[1]: operation 2 of 2; operations are 0 to 1"),
        (graph(ONE, [calc(0)], [(1, -1)]), "after[0]: operation -1 of 2; operations are 0 to 1"),
        (
            graph(ONE, [calc(2)], [(1, 0)]),
            "operation 0 of host 0 waits for operation 1 of host 2; what crosses hosts is a message",
        ),
        (pairs([0, 0], [1, 1], after=[-1, 2]), "flow 1 waits for flow 2 of 2; none is -1"),
        (pairs([0, 0], [1, 1], after=[-2, 0]), "flow 0 waits for flow -2 of 2; none is -1"),
        (pairs([0, 2], [1, 1], after=[-1, 0]), "flow 1 waits for flow 0, which another host sends"),
        (
            graph(ONE, [calc(0)], start_ps=[]),
            "columns of the operation graph differ in length: kind 1, host 1, flow 1, duration_ps 1, start_ps 0, "
            "label_id 1, collective 1",
        ),
        (graph(ONE, [calc(0)], before=[1]), "columns of the operation graph differ in length: before 1, after 0"),
    ],
)
def test_what_is_wrong_is_said(whole, message) -> None:
    assert refusal(whole) == message


ADVICE = "each waits for the one before it, so none can begin: take one of these waits away"
OWN = ", or give the messages of the queue pair the order in which they become ready or queue pairs of their own"


def test_computations_that_wait_for_each_other() -> None:
    whole = graph(ONE, [calc(3), calc(3), calc(3)], [(1, 2), (2, 3), (3, 1)])
    assert refusal(whole) == (
        "operations wait for each other: h3 computes (operation 1) -> h3 computes (operation 2) -> h3 computes "
        f"(operation 3) -> h3 computes (operation 1); {ADVICE}"
    )
    alone = graph(ONE, [calc(2)], [(1, 1)])
    assert refusal(alone) == (
        f"operations wait for each other: h2 computes (operation 1) -> h2 computes (operation 1); {ADVICE}"
    )


def test_messages_that_wait_for_each_other() -> None:
    whole = graph(pairs([0, 1], [1, 0]), [recv(1, 0), recv(0, 1), calc(1)], [(2, 4), (4, 1), (3, 0)])
    assert refusal(whole) == (
        "operations wait for each other: h0 sends flow 0 -> h1 receives flow 0 -> h1 computes (operation 4) -> h1 "
        f"sends flow 1 -> h0 receives flow 1 -> h0 sends flow 0; {ADVICE}"
    )


def test_flows_that_wait_for_each_other() -> None:
    flows = pairs([0, 0, 0], [1, 2, 3], after=[2, 0, 1], verb=[VERB_READ, VERB_WRITE, VERB_WRITE])
    assert refusal(flows) == (
        "operations wait for each other: h0 reads flow 0 -> h0 sends flow 1 -> h0 sends flow 2 -> h0 reads flow 0; "
        f"{ADVICE}"
    )


def test_a_message_that_waits_for_the_answer_to_the_one_behind_it() -> None:
    flows = pairs([0, 0, 1], [1, 1, 0], qp=[0, 0, 1])
    others, edges = [recv(1, 1), recv(0, 2)], [(3, 2), (4, 0)]
    assert refusal(graph(flows, others, edges)) == (
        "operations wait for each other: h0 sends flow 0 -> h0 sends flow 1 (after flow 0 on their queue pair) -> h1 "
        f"receives flow 1 -> h1 sends flow 2 -> h0 receives flow 2 -> h0 sends flow 0; {ADVICE}{OWN}"
    )
    compile_plan(SCENARIO, flows=graph(pairs([0, 0, 1], [1, 1, 0]), others, edges))


def test_inside_a_domain_there_is_no_queue_pair_to_wait_for() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2, "gpus_per_node": 2}
    scale_up = {"model": "analytic", "bandwidth": "3600Gbps", "latency": "500ns"}
    nodes = scenario_from_dict(
        {"fabric": fabric, "scale_up": scale_up, "workload": [{"kind": "permutation", "size": "1B"}]}
    )
    flows = pairs([0, 0, 1], [1, 1, 0], qp=[0, 0, 1])
    compile_plan(nodes, flows=graph(flows, [recv(1, 1), recv(0, 2)], [(3, 2), (4, 0)]))


def test_a_long_cycle_is_shortened() -> None:
    count = 100
    ring = [(1 + at, 1 + (at + 1) % count) for at in range(count)]
    message = refusal(graph(ONE, [calc(0)] * count, ring))
    assert "(operation 11) -> ... (89 more) -> h0 computes (operation 1); each" in message


def test_values_that_do_not_fit_are_refused_and_not_cut() -> None:
    with pytest.raises(ScenarioError, match="column after: 4294967296 is outside -2147483648 to 2147483647"):
        graph(ONE, [calc(0)], [(1, 2**32)])
    with pytest.raises(ScenarioError, match="column class_id: 257 is outside 0 to 255"):
        flow_table(np.array([0]), np.array([1]), 1, 0, class_id=257)


def test_more_operations_than_can_be_numbered_are_refused() -> None:
    many = np.broadcast_to(np.uint8(OP_CALC), 2**31 - 1)
    message = "2,147,483,648 operations; a run has 2,147,483,647 at most"
    with pytest.raises(ScenarioError, match=message):
        OperationGraph(flows=ONE, kind=many)
    builder = GraphBuilder(label="", class_id=1)
    builder.calcs(np.array([0]), 1)
    with pytest.raises(ScenarioError, match=message):
        builder.calcs(np.broadcast_to(np.int32(0), 2**31 - 1), 1)


def long_chains(width: int, depth: int, *, backwards: bool) -> OperationGraph:
    """Computations in chains, numbered so that they come in order, or against it."""
    number = 1 + np.arange(width * depth).reshape(depth, width)
    before, after = (number[1:], number[:-1]) if backwards else (number[:-1], number[1:])
    count = width * depth
    return OperationGraph(
        flows=ONE,
        kind=np.full(count, OP_CALC),
        host=np.zeros(count),
        flow=np.full(count, -1),
        duration_ps=np.zeros(count),
        start_ps=np.zeros(count),
        label_id=np.zeros(count),
        collective=np.full(count, -1),
        before=before.ravel(),
        after=after.ravel(),
    )


@pytest.mark.parametrize("backwards", [False, True])
def test_long_chains_take_no_long_time(backwards) -> None:
    whole = long_chains(100, 4000, backwards=backwards)
    start = time.process_time()
    check_operations(whole, NAMES)
    check_order(whole, NAMES)
    assert time.process_time() - start < 5  # an idle machine takes a tenth of that


def test_joined_workloads_of_any_start_are_sound() -> None:
    late = replace(graph(pairs([0, 1], [1, 2]), [recv(1, 0)], [(2, 1)]), start_ps=np.array([50]))
    whole = join([late, pairs([2], [3]), late])
    check_operations(whole, NAMES)
    check_order(whole, NAMES)


@st.composite
def graphs(draw) -> OperationGraph:
    """Messages on shared or own QPs, some received, computations, and waits of any direction between them."""
    hosts = st.integers(0, 2)
    src = draw(st.lists(hosts, min_size=1, max_size=7))
    dst = [draw(hosts.filter(lambda host, own=own: host != own)) for own in src]
    ends = {}
    qp = [ends.setdefault(pair, len(ends)) if draw(st.booleans()) else -1 for pair in zip(src, dst, strict=True)]
    others = [recv(host, flow) for flow, host in enumerate(dst) if draw(st.booleans())]
    others += [calc(host) for host in draw(st.lists(hosts, max_size=6))]
    others = draw(st.permutations(others))
    host = src + [other[1] for other in others]
    local = [(a, b) for a in range(len(host)) for b in range(len(host)) if host[a] == host[b]]
    forward = [pair for pair in local if pair[0] < pair[1]]
    edges = draw(st.lists(st.sampled_from(local), max_size=3))
    if forward:
        edges += draw(st.lists(st.sampled_from(forward), max_size=6))
    after = [
        draw(
            st.sampled_from([-1, *(b for b in range(len(src)) if src[b] == own and b != at)])
            if draw(st.booleans())
            else st.just(-1)
        )
        for at, own in enumerate(src)
    ]
    return graph(pairs(src, dst, qp=np.array(qp), after=np.array(after)), others, edges)


def waits_of(whole: OperationGraph) -> set[tuple[int, int]]:
    """(before, after) of everything, one by one."""
    found = set(zip(whole.before.tolist(), whole.after.tolist(), strict=True))
    last: dict[int, int] = {}
    for flow, (after, qp) in enumerate(zip(whole.flows.after.tolist(), whole.flows.qp.tolist(), strict=True)):
        if after >= 0:
            found.add((after, flow))
        if qp >= 0 and qp in last:
            found.add((last[qp], flow))
        last[qp] = flow
    for other, flow in enumerate(whole.flow.tolist()):
        if flow >= 0:
            found.add((flow, len(whole.flows) + other))
    return found


def has_cycle(count: int, waits: set[tuple[int, int]]) -> bool:
    """Depth first, by colours."""
    colour = [0] * count

    def visit(node: int) -> bool:
        colour[node] = 1
        for before, after in waits:
            if before == node and (colour[after] == 1 or (colour[after] == 0 and visit(after))):
                return True
        colour[node] = 2
        return False

    return any(colour[node] == 0 and visit(node) for node in range(count))


@given(graphs())
def test_graphs_are_refused_just_if_they_have_a_cycle(whole) -> None:
    check_operations(whole, NAMES)
    waits = waits_of(whole)
    if not has_cycle(len(whole), waits):
        check_order(whole, NAMES)
        return
    with pytest.raises(ScenarioError, match="operations wait for each other: ") as caught:
        check_order(whole, NAMES)
    if "more)" in str(caught.value):
        return
    chain = str(caught.value).removeprefix("operations wait for each other: ").partition(";")[0].split(" -> ")
    names = whole_names(whole)
    numbers = [names[item.partition(" (after")[0]] for item in chain]
    assert numbers[0] == numbers[-1]
    assert len(set(numbers)) == len(numbers) - 1
    assert set(pairwise(numbers)) <= waits


def whole_names(whole: OperationGraph) -> dict[str, int]:
    """The number of every operation by what a message says of it."""
    names = {f"{NAMES[src]} sends flow {flow}": flow for flow, src in enumerate(whole.flows.src.tolist())}
    rows = zip(whole.kind.tolist(), whole.host.tolist(), whole.flow.tolist(), strict=True)
    for number, (kind, host, flow) in enumerate(rows, start=len(whole.flows)):
        does = f"receives flow {flow}" if kind == OP_RECV else f"computes (operation {number})"
        names[f"{NAMES[host]} {does}"] = number
    return names
