"""Random fabrics of GPU clusters under random traffic: every pair is reached, nothing is lost, none is too fast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

pytest.importorskip("fabemu._core.engine")

from fabemu.compile import Compiled, compile_plan
from fabemu.plan import NONE
from fabemu.scenario import scenario_from_dict
from fabemu.workload.flow import FlowTable
from tests.property.strategies import example_settings
from tests.theory.experiment import run_plan

RDMA = 1  # by priority, behind the class of the notifications
NETWORKS = {"late": {"ack_every": 1_000_000, "cc": {"kind": "none"}}, "usual": {}}


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    """Tables [fabric] and perhaps [scale_up]."""
    few = st.integers(1, 3)
    kind = draw(st.sampled_from(["rail", "rail-only", "leaf-spine", "torus", "dragonfly", "fat-tree"]))
    table: dict[str, Any] = {"kind": kind}
    gpus = draw(st.integers(1, 4))
    if kind in ("rail", "rail-only"):
        table |= {"nodes": draw(st.integers(2, 4)), "gpus_per_node": gpus, "planes": draw(few)}
        if kind == "rail":
            table |= {"spines": draw(few), "uplinks": draw(st.integers(1, 2))}
            table["nodes_per_leaf"] = draw(st.integers(1, table["nodes"]))
    elif kind == "leaf-spine":
        table |= {"leaves": draw(few), "hosts_per_leaf": gpus, "spines": draw(few), "planes": draw(few)}
        table["gpus_per_node"] = gpus
        assume(table["leaves"] * gpus > 1)
    elif kind == "torus":
        table["dimensions"] = draw(st.lists(st.integers(2, 4), min_size=2, max_size=3))
        table |= {"hosts_per_switch": 1, "routing": draw(st.sampled_from(["dimension-order", "shortest"]))}
        table["gpus_per_node"] = draw(st.sampled_from([1, table["dimensions"][0]]))
    elif kind == "dragonfly":
        table |= {"groups": draw(st.integers(1, 5)), "routers_per_group": draw(few), "global_links": draw(few)}
        table |= {"hosts_per_router": gpus, "gpus_per_node": gpus}
        assume(table["groups"] <= table["routers_per_group"] * table["global_links"] + 1)
        assume(table["groups"] * table["routers_per_group"] * gpus > 1)
    else:
        table |= {"k": 4, "gpus_per_node": draw(st.sampled_from([1, 2, 4]))}
    if draw(st.sampled_from([False, False, True])):
        converged = kind in ("rail", "leaf-spine", "fat-tree") and draw(st.booleans())
        table["frontend"] = {"storage_hosts": draw(few), "converged": converged}
    scenario: dict[str, Any] = {"fabric": table}
    if table["gpus_per_node"] > 1 and draw(st.booleans()):
        scenario["scale_up"] = {"model": "packets", "latency": f"{2 * draw(st.integers(1, 400))}ns"}
    event(kind)
    return scenario


def may_meet(item: Compiled, kind: str, src: int, dst: int, scale_up: bool) -> bool:
    """Whether the fabric is made to join two hosts."""
    fabric = item.fabric
    server, rail = fabric.host_node, fabric.host_rail
    if scale_up and server[src] == server[dst] != NONE:
        return True
    if len(fabric.frontend_hosts) and (server[src] == NONE) != (server[dst] == NONE):
        return False
    return kind != "rail-only" or NONE in (rail[src], rail[dst]) or rail[src] == rail[dst]


@example_settings(0.3)
@given(clusters(), st.data())
def test_every_pair_that_the_fabric_joins_is_reached_and_nothing_is_lost(
    tables: dict[str, Any], data: st.DataObject
) -> None:
    nic = data.draw(st.sampled_from(["late", "usual"]))
    dummy = {"kind": "flows", "flow": [{"src": "x", "dst": "y", "size": "1B"}]}
    scenario = scenario_from_dict({**tables, "nic": NETWORKS[nic], "workload": [dummy]})
    empty = compile_plan(scenario, flows=_flows(np.zeros((0, 3), dtype=np.int64)))
    kind, count = tables["fabric"]["kind"], empty.fabric.host_count
    pairs = [
        (src, dst)
        for src in range(count)
        for dst in range(count)
        if src != dst and may_meet(empty, kind, src, dst, "scale_up" in tables)
    ]
    assume(pairs)
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=12))
    sizes = data.draw(st.lists(st.integers(0, 60_000), min_size=len(chosen), max_size=len(chosen)))
    rows = np.array([(*pair, size) for pair, size in zip(chosen, sizes, strict=True)], dtype=np.int64)
    item = compile_plan(scenario, flows=_flows(rows))
    outcome = run_plan(item.plan, item.port_names)  # checks all invariants, and that the fabric has drained
    delivered = outcome.ops["delivered_ps"]
    assert (delivered >= item.ideal_ps).all()
    assert len(outcome.tables["drops"]) == 0
    alone = compile_plan(scenario, flows=_flows(rows[:1]))
    if nic == "late":
        assert run_plan(alone.plan, alone.port_names).ops["delivered_ps"][0] == alone.ideal_ps[0]


def _flows(rows: np.ndarray) -> FlowTable:
    """(n, 3) source, destination and bytes, all at the start."""
    count = len(rows)
    none = np.full(count, NONE)
    return FlowTable(
        src=rows[:, 0],
        dst=rows[:, 1],
        bytes=rows[:, 2],
        start_ps=np.zeros(count),
        class_id=np.full(count, RDMA),
        label_id=np.zeros(count),
        sport=none,
        qp=none,
        after=none,
        labels=("drawn",),
    )
