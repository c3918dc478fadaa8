"""Time in which nothing moves is jumped over, and rows of an interval are those of the ports that have something."""

from __future__ import annotations

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.plan import FOREVER_PS, Plan
from fabemu.scenario import scenario_from_dict

SECOND_PS = 10**12
_DRAINED = 2  # what Engine.run returns


def plan_of(**tables: object) -> Plan:
    """Eight hosts send to one, twice, a thousand seconds apart."""
    flows = [
        {"src": f"h{host}", "dst": "h0", "size": "200KB", "start": start}
        for host in range(1, 9)
        for start in ("0s", "1000s")
    ]
    scenario = {
        "name": "idle",
        "fabric": {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 2},
        "nic": {"cc": {"kind": "dcqcn"}},
        "workload": [{"kind": "flows", "flow": flows}],
    }
    return compile_plan(scenario_from_dict(scenario | tables)).plan


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param({}, id="timers of DCQCN"),
        pytest.param({"switch": {"buffer": "4MiB", "pfc": {"alpha": "1/64"}}}, id="pauses"),
        pytest.param({"switch": {"watchdog": {"poll_interval": "100us", "detection_time": "400us"}}}, id="watchdog"),
        pytest.param({"deadlock": {"interval": "1ms"}}, id="deadlock checks"),
        pytest.param({"trace": {"interval": "1us"}}, id="short intervals"),
        pytest.param({"nic": {"cc": {"kind": "none"}, "retransmission": "selective"}}, id="selective repeat"),
    ],
)
def test_a_gap_of_a_thousand_seconds_is_one_step(tables: dict[str, object]) -> None:
    engine = Engine(plan_of(**tables))
    # A call gives up after a million windows, and the gap has two thousand millions of them.
    assert engine.run(FOREVER_PS, 10**9) == _DRAINED
    engine.finish()
    rows = engine.drain()["ports"]
    assert 1000 * SECOND_PS < engine.now_ps < 1001 * SECOND_PS
    assert (engine.ops()["done_ps"] >= 0).all()
    assert ((rows["start_ps"] < SECOND_PS) | (rows["start_ps"] >= 1000 * SECOND_PS)).all()
    assert all(held for _, held, _ in engine.verify())


def test_a_call_that_ends_in_a_gap_knows_that_work_is_left() -> None:
    engine = Engine(plan_of())
    states = [engine.run(step * 100 * SECOND_PS, 10**9) for step in range(1, 12)]
    assert states == [1] * 10 + [_DRAINED]


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param({}, id="calm"),
        pytest.param({"switch": {"buffer": "4MiB", "pfc": {"alpha": "1/64"}}}, id="pauses"),
        pytest.param({"switch": {"cell": "256B"}}, id="cells"),
    ],
)
def test_rows_of_an_interval_are_those_of_the_ports_that_sent(tables: dict[str, object]) -> None:
    """Against what each port says of itself at the end, whatever was touched in which interval."""
    plan = plan_of(trace={"interval": "10us"}, **tables)
    engine = Engine(plan)
    assert engine.run(FOREVER_PS, 10**9) == _DRAINED
    engine.finish()
    rows = engine.drain()["ports"]
    sent = np.zeros(plan.port_count, dtype=np.int64)
    np.add.at(sent, rows["port"], rows["tx_frames"])
    # Every packet is in some row; PFC frames are in none.
    assert np.array_equal(sent, engine.ports()["hops"])
    assert (engine.totals()["xoffs"] > 0) == ("pfc" in str(tables))
    keys = np.stack([rows["start_ps"], rows["port"], rows["class"]])
    assert len(np.unique(keys, axis=1).T) == len(rows)
    assert np.array_equal(np.lexsort(keys[::-1]), np.arange(len(rows)))
