"""Random graphs are written as GOAL text and read again; random texts are read or refused, never worse."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from fabemu.compile import compile_plan
from fabemu.errors import InputError
from fabemu.importers.goal import parse_goal
from fabemu.importers.goal_text import CALC, SEND
from fabemu.plan import OP_RECV
from fabemu.scenario import scenario_from_dict
from fabemu.workload.goal_export import goal_text
from fabemu.workload.graph import GraphBuilder, OperationGraph
from tests.property.strategies import example_settings


@st.composite
def graphs(draw) -> tuple[OperationGraph, int]:
    """A graph without a cycle: everything waits for what was drawn before it, messages and queue pairs included."""
    hosts = draw(st.integers(2, 5))
    builder = GraphBuilder(label="g", class_id=0)
    of_host: list[list[int]] = [[] for _ in range(hosts)]

    def wait(host: int, operation: int) -> None:
        awaited = sorted(draw(st.sets(st.sampled_from(of_host[host]), max_size=3))) if of_host[host] else []
        builder.edges(np.array(awaited, dtype=np.int64), np.full(len(awaited), operation))
        of_host[host].append(operation)

    for _ in range(draw(st.integers(0, 14))):
        src = draw(st.integers(0, hosts - 1))
        if draw(st.booleans()):
            (calc,) = builder.calcs(np.array([src]), draw(st.integers(0, 10**6)))
            wait(src, int(calc))
            continue
        dst = draw(st.integers(0, hosts - 1).filter(lambda host, src=src: host != src))
        size, lane = draw(st.integers(0, 10**7)), draw(st.integers(0, 2))
        (send,) = builder.sends(np.array([src]), np.array([dst]), np.array([size]), lane=lane)
        wait(src, int(send))
        (recv,) = builder.recvs(np.array([dst]), np.array([send]))
        wait(dst, int(recv))
    return builder.build(), hosts


def canonical(graph: OperationGraph) -> tuple[list, list]:
    """A graph without its numbers: operations known by their host and place among those of their kind there."""
    flows = graph.flows
    seen: dict[tuple, int] = {}
    queue_pairs: dict[tuple, int] = {}
    keys: list[tuple] = []
    for src, dst, size, queue in zip(
        *(column.tolist() for column in (flows.src, flows.dst, flows.bytes, flows.qp)), strict=True
    ):
        pair = (src, dst)
        number = seen[pair] = seen.get(pair, -1) + 1
        own = queue_pairs.setdefault((src, dst, queue), sum(key[:2] == pair for key in queue_pairs))
        keys.append(("send", src, dst, number, size, own))
    for kind, host, flow, length in zip(
        *(column.tolist() for column in (graph.kind, graph.host, graph.flow, graph.duration_ps)), strict=True
    ):
        if kind == OP_RECV:
            keys.append(("recv", *keys[flow][1:]))
        else:
            number = seen["calc", host] = seen.get(("calc", host), -1) + 1
            keys.append(("calc", host, number, length))
    edges = zip(graph.before.tolist(), graph.after.tolist(), strict=True)
    return sorted(keys), sorted((keys[before], keys[after]) for before, after in edges)


@given(drawn=graphs())
@example_settings(0.4)
def test_a_graph_that_was_written_is_read_as_it_was(drawn) -> None:
    graph, hosts = drawn
    text = "".join(goal_text(graph, hosts, calc_unit_ps=1).parts)
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": hosts},
            "workload": [{"kind": "goal", "path": "t.goal", "calc_unit": "1ps"}],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.goal").write_text(text)
        again = compile_plan(scenario, base_dir=Path(folder)).graph
    assert canonical(again) == canonical(graph)
    assert "".join(goal_text(again, hosts, calc_unit_ps=1).parts) == text
    event(f"operations {len(graph) // 8 * 8}")


WORDS = ["num_ranks", "rank", "calc", "send", "recv", "to", "from", "tag", "cpu", "nic", "requires", "irequires", "b"]
WORDS += [
    "{",
    "}",
    ":",
    "\n",
    "\n",
    "//",
    "/*",
    "*/",
    "-1",
    "0",
    "1",
    "2",
    "100b",
    "a",
    "l1",
    "l2",
    "x" * 20,
    "\r",
    "é",
]


def read(text: bytes) -> str:
    """What comes of a text: how many operations, or that it is refused."""
    try:
        trace = parse_goal(text, "t.goal")
    except InputError as error:
        lines = str(error).splitlines()
        assert 1 <= len(lines) <= 21
        assert all(line.startswith("t.goal") for line in lines)
        return "refused"
    assert (trace.level >= 0).all()
    return "read"


@given(text=st.binary(max_size=80) | st.lists(st.sampled_from(WORDS), max_size=40).map(lambda w: " ".join(w).encode()))
@example_settings(1.0)
def test_garbage_is_refused(text) -> None:
    event(read(text))


@given(drawn=graphs(), cuts=st.lists(st.tuples(st.integers(0, 10**4), st.sampled_from([*WORDS, ""])), max_size=3))
@example_settings(0.4)
def test_traces_with_a_few_words_changed_are_read_or_refused(drawn, cuts) -> None:
    graph, hosts = drawn
    words = "".join(goal_text(graph, hosts).parts).replace("\n", " \n ").split(" ")
    for at, word in cuts:
        words[at % len(words)] = word
    event(read(" ".join(words).encode()))


@given(drawn=graphs(), data=st.data())
@example_settings(0.3)
def test_the_form_of_statements_changes_nothing(drawn, data) -> None:
    """Statements that are read word by word mean the same as those that are read all at once."""
    graph, hosts = drawn
    lines = "".join(goal_text(graph, hosts).parts).splitlines()
    odd = [
        line.replace("b to", " b to").replace("b from", " b from").replace(" calc ", " calc 0000000000000000000")
        for line in lines
    ]
    mixed = [data.draw(st.sampled_from(pair)) for pair in zip(lines, odd, strict=True)]
    one, two = (parse_goal("\n".join(text).encode(), "t.goal") for text in (lines, mixed))
    for name in ("kind", "rank", "value", "peer", "tag", "nic", "send", "before", "after", "level"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name
    assert ((one.kind == SEND).sum(), (one.kind == CALC).sum()) == (len(graph.flows), (graph.flow < 0).sum())
