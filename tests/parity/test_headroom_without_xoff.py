"""Headroom in use of a priority group for which no XOFF stands: frames of the group that do not stay change it too."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fabemu._core.engine")

from fabemu.compile import compile_plan
from fabemu.plan import SCHEDULER_CLASSIC
from fabemu.scenario import scenario_from_dict
from tests.oracle.simulator import simulate
from tests.parity.compare import assert_same, run_core

HELD, NEIGHBOUR = "h2", "h0"
CUT_LINK = {"kind": "link-down", "link": [NEIGHBOUR, "sw0"], "start": "60us", "end": "130us"}
SILENT_PORT = {"kind": "pfc-off", "at": "sw0", "peer": NEIGHBOUR}
SILENT_FOR_A_WHILE = {**SILENT_PORT, "end": "140us"}


def frames_that_pass_by(faults: list[dict[str, Any]]) -> dict[str, Any]:
    """A scenario in which h0 sends to a host that takes nothing while others fill the pool, and then past that queue.

    When the others are done the pool is free, and what h0 has in headroom still waits. From then on frames of h0 to
    h3 go straight through, which turns headroom into shared use; later the pool is scarce again.
    """
    return {
        "until": "400us",
        "fabric": {"kind": "single-switch", "hosts": 5},
        "link": {"rate": "100Gbps"},
        "switch": {
            "buffer": "600KiB",
            "pfc": {"alpha": 1, "headroom": "60KiB"},
            "ecn": {"enabled": False},
        },
        "nic": {"cc": {"kind": "none"}},
        "workload": [
            {
                "kind": "flows",
                "flow": [
                    {"src": "h1", "dst": "h4", "size": "300KB"},
                    {"src": "h3", "dst": "h4", "size": "300KB"},
                    {"src": NEIGHBOUR, "dst": HELD, "size": "250KB", "start": "20us"},
                    {"src": NEIGHBOUR, "dst": "h3", "size": "300KB", "start": "150us"},
                    {"src": "h1", "dst": "h4", "size": "400KB", "start": "200us"},
                    {"src": "h3", "dst": "h4", "size": "400KB", "start": "200us"},
                    {"src": NEIGHBOUR, "dst": HELD, "size": "250KB", "start": "210us"},
                ],
            }
        ],
        "fault": [{"kind": "storm", "host": HELD, "start": "0us"}, *faults],
    }


@pytest.mark.parametrize(
    "faults",
    [[SILENT_PORT], [SILENT_FOR_A_WHILE], [CUT_LINK], [SILENT_PORT, CUT_LINK]],
    ids=["pfc off", "pfc off for a while", "link down for a while", "both"],
)
def test_every_engine_turns_headroom_into_shared_use_alike(faults: list[dict[str, Any]]) -> None:
    """Frames that pass by a queue that stands, with their own bytes in headroom, leave the state that the book says."""
    plan = compile_plan(scenario_from_dict(frames_that_pass_by(faults))).plan
    oracle = simulate(plan)
    assert len(oracle.packets) > 1_000
    for label, options in (
        ("fast", {}),
        ("exact", {"express": False}),
        ("no shortcuts", {"express": False, "shortcuts": False}),
        ("classic", {"scheduler": SCHEDULER_CLASSIC}),
        ("short windows", {"window_divisor": 3}),
    ):
        assert_same(plan, oracle, run_core(plan, **options), label)
