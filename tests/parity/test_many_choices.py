"""A port whose next choice is overtaken again and again within one window: its keys must stay one."""

from __future__ import annotations

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.plan import CC_FIXED
from tests.oracle.build import US, Cable, NicSpec, Work, build_plan
from tests.oracle.simulator import simulate
from tests.parity.compare import assert_same, run_core


@pytest.mark.parametrize("delay_ps", [5 * US, 200 * US])
@pytest.mark.parametrize("fixed_rate_bps", [4 * 10**9, 10**8])
def test_paced_sender_acknowledges_a_fast_one(delay_ps: int, fixed_rate_bps: int) -> None:
    """Every ACK that host 1 sends overtakes the key of its own paced data, hundreds of times within a window."""
    work = Work()
    fast, slow = work.qp(0, 1), work.qp(1, 0)
    work.send(fast, 1_500_000)
    work.send(slow, 40_000)
    paced = NicSpec(cc=CC_FIXED, fixed_rate_bps=fixed_rate_bps)
    plan = build_plan(
        2, 0, [Cable(0, 1, 400 * 10**9, delay_ps)], work, nic=[NicSpec(), paced], host_nic=[0, 1], mtu_bytes=1024
    )
    core = run_core(plan)
    assert_same(plan, simulate(plan), core)
    assert [verdict for verdict in core.verdicts if not verdict[1]] == []
    assert len(core.tables["packets"]) > 3_000
