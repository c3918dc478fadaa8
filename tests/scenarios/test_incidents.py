"""The textbook incidents of docs/INCIDENTS.md: each shows what it is said to show, in figures."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fabemu
from fabemu.analysis.pauses import pause_parents

ROOT = Path(__file__).resolve().parents[2]
INCIDENTS = ROOT / "scenarios" / "incidents"
PAGE = (ROOT / "docs" / "INCIDENTS.md").read_text(encoding="utf-8")


def incident(name, *overrides, status="finished"):
    """A run of an incident. Whatever goes wrong in it, the books of the engine balance."""
    run = fabemu.run(INCIDENTS / f"{name}.toml", overrides=list(overrides))
    assert run.info["status"] == status
    assert [check for check in run.info["invariants"] if not check["held"]] == []
    if status == "finished":
        assert run.info["messages"]["done"] + run.info["messages"]["failed"] == run.info["messages"]["count"]
    return run


def slowdown(run, label):
    return max(row["slowdown"] for row in run.flows.to_pylist() if row["label"] == label)


def total(run, name):
    return run.info["totals"][name]


def lossless_drops(run):
    return total(run, "drops_headroom_full")


# The page.


def test_every_incident_is_on_the_page():
    assert {path.stem for path in INCIDENTS.glob("*.toml")} == set(re.findall(r"^\| \[([\w-]+)\]", PAGE, re.MULTILINE))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(INCIDENTS.glob("*.toml"))])
def test_incidents_announce_what_the_linter_finds(path):
    simulation = fabemu.prepare(path)
    simulation.close()
    found = {warning.split()[0] for warning in fabemu.load(simulation.directory).info["warnings"]}
    assert found == set(re.findall(r"FB\d{3}", path.read_text(encoding="utf-8")))


# Congestion.


def test_a_victim_is_blocked_without_ecn_and_hardly_slowed_with_it():
    marked, unmarked = incident("head-of-line"), incident("head-of-line", "switch.ecn.enabled=false")
    assert slowdown(marked, "victim") == pytest.approx(1.073, abs=0.001)
    assert slowdown(unmarked, "victim") == pytest.approx(3.719, abs=0.001)
    assert lossless_drops(marked) == lossless_drops(unmarked) == 0


def test_pauses_of_an_incast_go_over_three_tiers_to_the_senders():
    run = incident("pause-tree")
    parents, children = pause_parents(run.pauses)
    rows = run.pauses.to_pylist()

    def tier(name):
        return re.match(r"[a-z]+", name)[0]

    chains, first = [], []
    for index in range(len(rows)):
        chain, place = [], index
        while place >= 0:
            chain.append(f"{tier(rows[place]['switch'])}>{tier(rows[place]['paused_node'])}")
            root, place = place, parents[place]
        chains.append(" ".join(reversed(chain)))
        first.append(rows[root]["egress_port"])
    assert Counter(chains)["edge>agg agg>core core>agg agg>edge edge>h"] == 152
    assert len(rows) == total(run, "xoffs") == 687
    assert len({row["paused_port"] for row in rows}) == 82
    assert Counter(first)["edge0-0->h0"] == 631
    assert np.sum(children) == np.count_nonzero(parents >= 0)
    assert lossless_drops(run) == 0


def test_ecn_above_pfc_never_marks():
    above = incident("ecn-above-pfc")
    below = incident("ecn-above-pfc", "switch.ecn.kmin=50KB", "switch.ecn.kmax=100KB")
    assert (total(above, "marks"), total(above, "xoffs")) == (0, 452)
    assert (total(below, "marks"), total(below, "xoffs")) == (2826, 136)


# Wrong parameters.


def test_headroom_for_half_the_cable_drops():
    assert lossless_drops(incident("long-cable")) == 217
    assert lossless_drops(incident("long-cable", "switch.pfc.headroom=auto")) == 0
    assert lossless_drops(incident("long-cable", "link.length=100m")) == 0


def test_only_the_lossy_class_loses():
    run = incident("lossless-beside-lossy")
    assert Counter((row["class"], row["cause"]) for row in run.table("drops").to_pylist()) == {
        ("bulk", "egress_full"): 708
    }
    again = Counter()
    for row in run.flows.to_pylist():
        again[row["label"]] += row["retransmissions"]
    assert again["storage"] == 0
    assert again["bulk"] >= 708
    assert set(run.pauses.column("class").to_pylist()) == {"storage"}


def test_a_hop_without_pfc_loses_lossless_packets_there_and_only_there():
    run = incident("unmarked-hop")
    drops = Counter(
        (row["node"], row["ingress_port"], row["cause"], row["class"]) for row in run.table("drops").to_pylist()
    )
    assert drops == {("sw1", "sw1->sw0", "headroom_full", "rdma"): 3261}
    marked = incident("unmarked-hop", "switch.override.0.pfc.enabled=true")
    assert total(marked, "packets_dropped") == 0
    assert Counter(marked.pauses.column("paused_node").to_pylist())["sw0"] == 40
