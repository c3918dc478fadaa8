"""What is wrong for every key of incidents and options, key by key: one problem, at that key, and nothing else."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.scenario import scenario_from_dict
from fabemu.scenario.fault import AnyFault, RouteOverride, Routing
from fabemu.scenario.incident import Deadlock, Receiver, Watchdog
from fabemu.scenario.shape import table_keys

WRONG = (float("nan"), float("inf"), -1, 10**30, 1.5, "", "\x07x", {}, [float("nan")], [[]], date(2024, 1, 1), True)
FAULTS: dict[str, dict[str, Any]] = {
    "link-down": {"link": ["leaf0", "spine0"], "index": 0},
    "flap": {"link": ["leaf0", "spine0"], "index": 0, "down": "1us", "period": "2us"},
    "loss": {"link": ["leaf0", "spine0"], "index": 0, "from": "leaf0", "rate": 0.5, "frames": ["data"]},
    "storm": {"host": "h0", "classes": ["rdma"]},
    "slow-receiver": {"host": "h0", "stall": "1us", "period": "2us"},
    "pfc-off": {"at": "leaf0", "peer": "spine0", "classes": ["rdma"]},
    "ecn-off": {"at": "leaf0", "peer": "spine0", "classes": ["rdma"]},
    "priority-map": {"switch": "leaf0", "map": {"rdma": "best-effort"}},
    "headroom": {"switch": "leaf0", "peer": "spine0", "classes": ["rdma"], "headroom": "1KB"},
    "reboot": {"switch": "spine0"},
}
"""A fault of every kind with all its keys, but for those of which a fault has one or the other."""

OTHERWISE: dict[tuple[str, str], dict[str, Any]] = {
    ("loss", "ber"): {"link": ["leaf0", "spine0"], "ber": 1e-9},
    ("slow-receiver", "rate"): {"host": "h0", "rate": "1Gbps"},
}
TABLES: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "switch.watchdog": (
        Watchdog,
        {"detection_time": "2ms", "restoration_time": "2ms", "poll_interval": "1ms", "action": "drop", "ports": "host"},
    ),
    "nic.receiver": (Receiver, {"xoff": "64KiB", "xon": "32KiB", "buffer": "1MB"}),
    "deadlock": (Deadlock, {"interval": "1us", "stop": True}),
    "routing": (Routing, {"detection": "1us", "convergence": "1us"}),
    "routing.override.0": (RouteOverride, {"at": "leaf0", "to": ["h2"], "via": ["spine0"]}),
}
OPTIONS: dict[str, Any] = {
    "link.flow_control": "credit",
    "link.credit_buffer": "64KiB",
    "link.credit_refresh": "1us",
    "switch.cell": "208B",
    "switch.weights.rdma": 60,
    "switch.class_map.rdma": "best-effort",
    "switch.pfc.static": "100KB",
    "switch.lossy.static": "100KB",
    "switch.lossy.egress_static": "100KB",
    "nic.retransmission": "selective",
    "nic.selective_window": 64,
    "nic.first_psn": 5,
    "workload.0.verb": "read",
}


def scenario(place: str, value: Any) -> dict[str, Any]:
    """A scenario with a value somewhere."""
    data: dict[str, Any] = {
        "until": "10ms",
        "fabric": {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 2, "spines": 2},
        "workload": [{"kind": "permutation", "size": "1KB"}],
    }
    whole = [int(part) if part.isdecimal() else part for part in place.split(".")]
    last = whole[-1]
    table: Any = data
    for part, following in pairwise(whole):
        if isinstance(table, list) and part == len(table):
            table.append({})
        elif isinstance(table, dict):
            table.setdefault(part, [] if isinstance(following, int) else {})
        table = table[part]
    if isinstance(table, list):
        table.append(value)
    else:
        table[last] = value
    return data


def refused(place: str, data: dict[str, Any]) -> None:
    """One problem, at the place or within it, on one line, which says more than where it is."""
    with pytest.raises(ScenarioError) as caught:
        compile_plan(scenario_from_dict(data))
    whole, *inner = sorted(caught.value.problems, key=lambda problem: len(problem.path))
    assert all(problem.path.startswith(f"{place}.") for problem in inner), str(caught.value)  # elements of a list
    for problem in (whole, *inner):
        assert problem.path == place or problem.path.startswith(f"{place}."), str(problem)
        text = str(problem)
        assert text.isprintable() and len(text) < 400 and len(problem.message) > 10
        assert "input" not in problem.message.lower()  # the words of the validator are not those of the file


def fault_keys() -> list[tuple[str, str]]:
    tables = get_args(get_args(AnyFault)[0])
    kinds = {table.model_fields["kind"].default: table for table in tables}
    assert set(kinds) == set(FAULTS)
    return [(kind, key) for kind, table in kinds.items() for key in table_keys(table) if key != "kind"]


@pytest.mark.parametrize("kind", FAULTS)
def test_the_faults_are_right_as_they_are(kind: str) -> None:
    fault = {"kind": kind, "start": "1us", "end": "1ms", **FAULTS[kind]}
    compile_plan(scenario_from_dict(scenario("fault.0", fault)))


@pytest.mark.parametrize(("kind", "key"), fault_keys())
def test_every_key_of_every_fault_refuses_what_is_wrong(kind: str, key: str) -> None:
    fault = {"kind": kind, "start": "1us", "end": "1ms", **OTHERWISE.get((kind, key), FAULTS[kind])}
    assert key in fault
    for value in WRONG:
        refused(f"fault.0.{key}", scenario("fault.0", fault | {key: value}))


@pytest.mark.parametrize(("place", "key"), [(place, key) for place, (_, keys) in TABLES.items() for key in keys])
def test_every_key_of_an_incident_refuses_what_is_wrong(place: str, key: str) -> None:
    table, right = TABLES[place]
    assert set(right) | {"override"} >= set(table_keys(table))
    for value in WRONG:
        if not (isinstance(right[key], bool) and value is True):
            refused(f"{place}.{key}", scenario(place, right | {key: value}))


@pytest.mark.parametrize("place", OPTIONS)
def test_every_option_refuses_what_is_wrong(place: str) -> None:
    compile_plan(scenario_from_dict(scenario(place, OPTIONS[place])))
    for value in WRONG:
        refused(place, scenario(place, value))
