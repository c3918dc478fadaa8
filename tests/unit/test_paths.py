"""Paths of queue pairs against the ports that their packets left by."""

import numpy as np
import pytest

import fabemu
from fabemu.analysis.paths import data_paths
from fabemu.recorded.source import Source
from fabemu.trace import dictionary_column, integer_column

# Two leaves joined by three middle switches, whose cables have unlike rates.
RATES = (100, 200, 400)
GRAPH = {
    "kind": "graph",
    "hosts": 8,
    "switches": 5,
    "links": [
        *({"a": f"h{host}", "b": f"sw{host // 4}"} for host in range(8)),
        *(
            {"a": f"sw{leaf}", "b": f"sw{2 + middle}", "rate": f"{rate}Gbps"}
            for leaf in (0, 1)
            for middle, rate in enumerate(RATES)
        ),
    ],
}


def taken(balancing, verb="write", **fabric):
    scenario = {
        "fabric": fabric or GRAPH,
        "switch": {"load_balancing": balancing},
        "workload": [{"kind": "all-to-all", "size": "20KB", "verb": verb}],
    }
    run = fabemu.run(scenario, trace="packets")
    compiled = Source(run.directory, run.info).compiled
    kind, kinds = dictionary_column(run.packets, "kind")
    rows = kind == kinds.index("data")
    qp, port = integer_column(run.packets, "qp")[rows], dictionary_column(run.packets, "port")[0][rows]
    return compiled.plan, data_paths(compiled.plan), [set(port[qp == pair].tolist()) for pair in range(qp.max() + 1)]


@pytest.mark.parametrize("verb", ["write", "read"])
@pytest.mark.parametrize("balancing", ["ecmp", "weighted"])
def test_packets_take_the_paths_of_the_plan(balancing, verb):
    plan, paths, ports = taken(balancing, verb)
    assert paths.known.all()
    assert [set(row[row >= 0].tolist()) for row in paths.port] == ports
    middle = [port for port in range(plan.port_count) if plan.port_rate_bps[port] in (100 * 10**9, 200 * 10**9)]
    assert any(paths.crosses(port).any() for port in middle)


def test_hosts_with_several_ports_choose_by_hash():
    _, paths, ports = taken("ecmp", kind="leaf-spine", leaves=2, hosts_per_leaf=3, spines=2, planes=2)
    assert [set(row[row >= 0].tolist()) for row in paths.port] == ports


@pytest.mark.parametrize("balancing", ["spray", "flowlet", "least-loaded", "least-loaded-flow"])
def test_what_is_said_of_paths_by_load_is_true(balancing):
    plan, paths, ports = taken(balancing)
    across = paths.sender // 4 != paths.receiver // 4
    assert np.array_equal(~paths.known, across)
    for row, known, found in zip(paths.port, paths.known, ports, strict=True):
        sure = set(row[row >= 0].tolist())
        assert sure == found if known else sure < found
        assert plan.host_access_port[plan.port_node[plan.port_peer[row[row >= 0][-1]]]] == row[row >= 0][-1]
