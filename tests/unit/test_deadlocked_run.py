"""A run that ends with queues that wait for one another: its status, exit code and words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fabemu._core.engine import Engine

from fabemu.cli.run import _verdict
from fabemu.compile import Compiled, compile_plan
from fabemu.plan import ROUTE_LOCAL
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import Simulation

US = 10**6
RING = {
    "name": "clockwise",
    "until": "200us",
    "fabric": {
        "kind": "graph",
        "hosts": 4,
        "switches": 4,
        "links": [{"a": f"h{at}", "b": f"sw{at}"} for at in range(4)]
        + [{"a": f"sw{at}", "b": f"sw{(at + 1) % 4}"} for at in range(4)],
    },
    "link": {"rate": "100Gbps", "delay": "100ns"},
    "switch": {"buffer": "600KB"},
    "nic": {"cc": {"kind": "none"}, "timeout": 20},
    "workload": [{"kind": "permutation", "pattern": "shift", "shift": 2, "size": "1MB"}],
}


def clockwise(compiled: Compiled) -> Compiled:
    """The ring with all routes going one way round."""
    plan = compiled.plan
    route = plan.route.copy().reshape(-1, plan.group_count)
    for at in range(4):
        onward = compiled.port_names.index(f"sw{at}->sw{(at + 1) % 4}")
        row = plan.node_route_row[4 + at]
        route[row] = np.where(route[row] == ROUTE_LOCAL, ROUTE_LOCAL, onward)
    return replace(compiled, plan=replace(plan, route=route.ravel()))


@pytest.mark.parametrize(
    ("deadlock", "ended_by"),
    [({}, "until"), ({"interval": "10us"}, "until"), ({"interval": "10us", "stop": True}, "deadlock")],
    ids=["at-the-end", "checked", "stopped"],
)
def test_a_deadlocked_run_says_who_waits_for_whom(deadlock, ended_by, capsys):
    scenario = scenario_from_dict({**RING, "deadlock": deadlock})
    result = Simulation(scenario, clockwise(compile_plan(scenario))).run()
    info = result.info
    assert (info["status"], info["ended_by"]) == ("deadlocked", ended_by)
    (found,) = info["deadlocks"]
    assert len(found["queues"]) == 4 and found["class"] == "rdma"
    assert found["time_ps"] % (10 * US) == 0
    assert (found["time_ps"] == info["simulated_ps"]) == (not deadlock or "stop" in deadlock)
    names = [queue["port"] for queue in found["queues"]]
    assert sorted(names) == [f"sw{at}->sw{(at + 1) % 4}" for at in range(4)]
    text = str(result.summary())
    assert "clockwise: deadlocked" in text and "deadlock at" in text
    assert text.count(" waits for ") == 4 and f"waits for {names[0]}" in text
    assert _verdict(result) == 1
    assert "error: deadlock at" in capsys.readouterr().err


def test_a_watched_ring_is_not_deadlocked():
    times = {key: "20us" for key in ("detection_time", "restoration_time", "poll_interval")}
    scenario = scenario_from_dict(
        {**RING, "switch": {**RING["switch"], "watchdog": times}, "deadlock": {"interval": "10us"}}
    )
    engine = Engine(clockwise(compile_plan(scenario)).plan)
    while engine.run(200 * US, 10**6) == 0:
        pass
    engine.finish()
    assert engine.totals()["drops_watchdog"] > 0 and not engine.is_deadlocked


def test_watched_ports_are_chosen_by_what_they_lead_to():
    def watched(ports):
        watchdog = {"detection_time": "1ms", "poll_interval": "1ms", "restoration_time": "1ms", "ports": ports}
        compiled = compile_plan(scenario_from_dict({**RING, "switch": {"watchdog": watchdog}}))
        return [compiled.port_names[port] for port in np.flatnonzero(compiled.plan.port_watchdog)]

    assert len(watched("all")) == 12
    assert watched("host") == [f"sw{at}->h{at}" for at in range(4)]
    assert sorted(watched(["h1", "sw0"])) == ["sw1->h1", "sw1->sw0", "sw3->sw0"]
    with pytest.raises(ValueError, match='there is no device "sw9" in the fabric'):
        watched(["sw9"])


def test_the_receive_buffer_holds_what_still_comes_after_xoff():
    plan = compile_plan(scenario_from_dict(RING)).plan
    bound = int(plan.pq_headroom_bytes.max())
    assert plan.port_rx_xoff_bytes[:4].tolist() == [64 * 1024] * 4
    assert plan.port_rx_xon_bytes[:4].tolist() == [32 * 1024] * 4
    assert plan.port_rx_buffer_bytes[:4].tolist() == [64 * 1024 + bound] * 4
    assert set(plan.port_pause_ps.tolist()) == {65535 * 512 * 10}
