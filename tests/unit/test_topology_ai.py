"""Fabrics of GPU clusters: names, degrees, paths, servers and rails, and what is said of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from fabemu.errors import ScenarioError
from fabemu.scenario import Scenario, scenario_from_dict

FLOW = {"kind": "flows", "flow": [{"src": "x", "dst": "y", "size": "1B"}]}


def scenario(table: dict[str, Any], **more: Any) -> Scenario:
    return scenario_from_dict({"fabric": table, "workload": [FLOW], **more})


def refusal(table: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ScenarioError) as error:
        scenario(table, **more)
    return str(error.value)


@pytest.mark.parametrize(
    "table",
    [
        {"kind": "single-switch", "hosts": 10},
        {"kind": "leaf-spine", "leaves": 5, "hosts_per_leaf": 2, "spines": 1},
        {"kind": "fat-tree", "pods": 5, "edges_per_pod": 1, "aggs_per_pod": 1, "cores": 1, "hosts_per_edge": 2},
        {"kind": "graph", "hosts": 10},
    ],
)
def test_hosts_that_make_no_whole_nodes(table: dict[str, Any]) -> None:
    message = "the fabric has 10 hosts, not a multiple of gpus_per_node = 4: 8 or 12 would make whole nodes"
    assert refusal({**table, "gpus_per_node": 4}).endswith(f"fabric.gpus_per_node = 4: {message}")
    assert scenario({**table, "gpus_per_node": 5}).fabric.gpus_of_node == 5


def test_scale_up_needs_nodes_of_several_gpus() -> None:
    single = {"kind": "single-switch", "hosts": 8}
    assert "every node of this fabric has one: give gpus_per_node in [fabric]" in refusal(single, scale_up={})
    chain = {"kind": "chain", "switches": 8}
    assert "a chain fabric has no nodes of several GPUs" in refusal(chain, scale_up={})
    single["gpus_per_node"] = 4
    table = scenario(single, scale_up={}).scale_up
    assert table is not None
    assert (table.model, table.bandwidth, table.latency) == ("analytic", 3_600 * 10**9, 500_000)
    assert "an even number of ps" in refusal(single, scale_up={"model": "packets", "latency": "3ps"})
    assert 'compat = "ns3" does not have it' in refusal(single, scale_up={}, compat="ns3")
