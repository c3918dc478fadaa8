"""Oracle and core agree where paths differ in length, by every policy and patience, with and without loss."""

from __future__ import annotations

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import (
    ACTION_LOSS,
    BALANCE_ECMP,
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    BALANCE_LEAST_LOADED_FLOW,
    BALANCE_SPRAY,
    BALANCE_WEIGHTED,
    SCHEDULER_CLASSIC,
    Plan,
)
from tests.oracle.build import US, Action, Cable, NicSpec, SwitchSpec, Wiring, Work, build_plan
from tests.oracle.packet import DATA
from tests.oracle.simulator import OracleResult, simulate
from tests.parity.compare import assert_same, run_core

CORRUPT = 6
FIRST_UPLINK = 8
POLICIES = (
    BALANCE_ECMP,
    BALANCE_SPRAY,
    BALANCE_WEIGHTED,
    BALANCE_FLOWLET,
    BALANCE_LEAST_LOADED,
    BALANCE_LEAST_LOADED_FLOW,
)
BY_PACKET = (BALANCE_SPRAY, BALANCE_LEAST_LOADED)
BY_FLOW = (BALANCE_ECMP, BALANCE_WEIGHTED, BALANCE_LEAST_LOADED_FLOW)


def four_flows(policy: int, reorder: int, *, lossy: bool) -> Plan:
    """From leaf to leaf over four spines, each 1 us farther away; an uplink may lose a tenth of its data packets."""
    work = Work()
    for host in range(4):
        work.send(work.qp(host, 4 + host), 400_000, host * US)
    cables = [Cable(host, 8 + host // 4) for host in range(8)]
    cables += [
        Cable(8 + leaf, 10 + spine, delay_ps=US * (1 + spine), weight=1 + spine)
        for leaf in range(2)
        for spine in range(4)
    ]
    uplink, _ = Wiring(8, 6, cables).cable_ports[FIRST_UPLINK]
    return build_plan(
        8,
        6,
        cables,
        work,
        switch=SwitchSpec(balance=policy, flowlet_gap_ps=US // 2),
        nic=NicSpec(selective=1, reorder=reorder, rto_ps=300 * US),
        actions=[Action(0, ACTION_LOSS, uplink, 1 << DATA, 0)] if lossy else [],
        loss_size_max=5000,
        loss_q32=[2**32 // 10] * 5001,
    )


def same_in_core(plan: Plan) -> OracleResult:
    oracle = simulate(plan)
    assert oracle.ops["status"] == [2] * 4
    core = run_core(plan)
    assert_same(plan, oracle, core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []
    assert_same(plan, oracle, run_core(plan, scheduler=SCHEDULER_CLASSIC), "SCHEDULER_CLASSIC")
    return oracle


@pytest.mark.parametrize("reorder", [1, 2, 5, 64, 4096])
@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_lost(policy: int, reorder: int) -> None:
    oracle = same_in_core(four_flows(policy, reorder, lossy=False))
    repeated = sum(oracle.ops["retransmissions"])
    if policy in BY_FLOW or reorder == 4096:
        assert repeated == 0
    if policy in BY_PACKET:
        assert (repeated > 0) == (reorder < 64)
        assert (oracle.counts["patience"] > 0) == (reorder > 1)


@pytest.mark.parametrize("reorder", [1, 2, 5, 64, 4096])
@pytest.mark.parametrize("policy", POLICIES)
def test_an_uplink_loses_packets(policy: int, reorder: int) -> None:
    oracle = same_in_core(four_flows(policy, reorder, lossy=True))
    lost = sum(row[5] == CORRUPT for row in oracle.drops)
    assert sum(oracle.ops["retransmissions"]) >= lost
    if policy in BY_PACKET:
        assert lost > 0
        assert oracle.counts["recoveries"] > 0
