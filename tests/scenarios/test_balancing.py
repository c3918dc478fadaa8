"""Load balancing: what the scenarios of scenarios/balancing are said to show, in figures."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import fabemu
from fabemu.scenario import scenario_from_dict

BALANCING = Path(__file__).resolve().parents[2] / "scenarios" / "balancing"
UPLINKS, RATE_BPS = 8, 400 * 10**9


def run(name, *overrides):
    result = fabemu.run(BALANCING / f"{name}.toml", overrides=list(overrides))
    assert result.info["status"] == "finished"
    assert [check for check in result.info["invariants"] if not check["held"]] == []
    assert result.info["totals"]["packets_dropped"] == 0
    return result


def uplink_use(result):
    """Share of the capacity of all uplinks of leaf0 that is used until the last message has come, and of each."""
    end_ps = max(result.flows["receiver_done_ps"].to_pylist())
    rows = result.ports.select(["port", "bytes"]).to_pylist()
    sent = {f"leaf0->spine{index}": 0 for index in range(UPLINKS)}
    for row in rows:
        if row["port"] in sent:
            sent[row["port"]] += row["bytes"]
    use = np.array([*sent.values()]) * 8 * 1e12 / RATE_BPS / end_ps
    return use.mean(), np.sort(use)


def test_by_hash_some_uplinks_are_idle_and_others_shared():
    """One uplink has three of the eight flows, two have none."""
    result = run("elephants-ecmp")
    mean, each = uplink_use(result)
    assert 0.30 < mean < 0.36
    assert (each == 0).sum() == 2
    assert each[-1] > 0.97
    assert max(row["slowdown"] for row in result.flows.to_pylist()) == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("name", ["elephants-least-loaded", "elephants-spray"])
def test_by_load_or_packets_the_uplinks_are_used_evenly(name):
    result = run(name)
    mean, each = uplink_use(result)
    assert mean >= 0.93
    assert each[0] > 0.9
    assert result.info["totals"]["retransmissions"] == 0
    assert max(row["slowdown"] for row in result.flows.to_pylist()) < 1.06
    assert result.info["warnings"] == []


def test_flows_kept_on_the_least_loaded_uplink_take_their_ideal_time():
    result = run("elephants-least-loaded")
    assert {row["slowdown"] for row in result.flows.to_pylist()} == {1.0}


def test_what_is_overtaken_is_repeated_unless_the_nics_wait():
    """Of sprayed packets nothing is lost, but the more patient the senders, the less they repeat."""
    repeated = [
        run("elephants-spray", f"nic.reorder_window={window}").info["totals"]["retransmissions"]
        for window in (1, 16, 64, 256, 4096)
    ]
    assert repeated[0] > 20_000
    assert repeated == sorted(repeated, reverse=True)
    assert repeated[-2:] == [0, 0]


def test_losses_are_found_while_packets_overtake_each_other():
    """Two uplinks lose every hundredth packet: all arrives, and hardly more is repeated than was lost."""
    tables = tomllib.loads((BALANCING / "elephants-spray.toml").read_text(encoding="utf-8"))
    tables["nic"]["timeout"] = 6
    tables["fault"] = [
        {"kind": "loss", "link": ["leaf0", f"spine{index}"], "frames": ["data"], "rate": 0.01} for index in range(2)
    ]
    info = fabemu.run(scenario_from_dict(tables)).info
    lost, repeated = info["totals"]["drops_corrupt"], info["totals"]["retransmissions"]
    assert info["messages"]["done"] == 8
    assert lost > 50
    assert lost <= repeated <= 1.5 * lost


@pytest.mark.parametrize(("policy", "share"), [("weighted", 4 / 6), ("ecmp", 1 / 3)])
def test_weights_send_flows_in_proportion_to_the_rates(policy, share):
    """2,000 queue pairs over uplinks of 100, 100 and 400 Gb/s: the share of the last, within four standard errors."""
    count = 2000
    flows = [{"src": f"h{index % 8}", "dst": f"h{8 + index // 8 % 8}", "size": "1B"} for index in range(count)]
    slow = [{"between": ["leaf0", f"spine{index}"], "rate": "100Gbps"} for index in range(2)]
    tables = {
        "fabric": {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 8, "spines": 3},
        "link": {"rate": "400Gbps", "override": slow},
        "switch": {"load_balancing": policy},
        "workload": [{"kind": "flows", "flow": flows}],
    }
    rows = fabemu.run(scenario_from_dict(tables)).ports.select(["port", "bytes"]).to_pylist()
    sent = [sum(row["bytes"] for row in rows if row["port"] == f"leaf0->spine{index}") for index in range(3)]
    assert sent[2] / sum(sent) == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5)
