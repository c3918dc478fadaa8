"""The textbook incidents of docs/INCIDENTS.md: each shows what it is said to show, in figures."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fabemu
from fabemu.analysis.pauses import pause_parents

US = 10**6
ROOT = Path(__file__).resolve().parents[2]
INCIDENTS = ROOT / "scenarios" / "incidents"
PAGE = (ROOT / "docs" / "INCIDENTS.md").read_text(encoding="utf-8")


def incident(name, *overrides, status="finished"):
    """A run of an incident. Whatever goes wrong in it, the books of the engine balance."""
    run = fabemu.run(INCIDENTS / f"{name}.toml", overrides=list(overrides))
    assert run.info["status"] == status
    assert [check for check in run.info["invariants"] if not check["held"]] == []
    if run.info["ended_by"] == "drained":
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


def test_a_job_two_switches_away_slows_a_training_step():
    def steps(*overrides):
        run = incident("slow-step", *overrides)
        return run, [round(value / US, 1) for value in run.table("steps").column("step_ps").to_pylist()]

    run, slow = steps()
    assert slow == [548.6, 869.5, 547.6, 825.6, 548.7, 547.7]
    train = {"h0", "h1", "h4", "h5"}
    for row in run.flows.to_pylist():
        assert ({row["src"], row["dst"]} <= train) == (row["job"] == "train")
    first = [row for row in run.pauses.to_pylist() if row["parent_port"] is None]
    assert Counter(row["egress_port"] for row in first).most_common(1)[0][0] == "leaf3->h12"
    assert max(steps("workload.1.destinations=h12:h15")[1]) == 650.9
    assert max(steps("nic.cc.kind=dcqcn")[1]) == 550.1
    assert lossless_drops(run) == 0


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


# Hosts that hold up the fabric.


def events(run, kind):
    return [row for row in run.table("events").to_pylist() if row["kind"] == kind]


def spread(run, storm_ps):
    """Ports that one storm paused, beside the one it is on, and how long it took to the last of them, in us."""
    parents, _ = pause_parents(run.pauses)
    rows = run.pauses.to_pylist()
    reached = {}
    for index, row in enumerate(rows):
        root = index
        while parents[root] >= 0:
            root = parents[root]
        if rows[root]["crossed"] == "storm" and index != root and row["start_ps"] is not None:
            reached.setdefault(row["paused_port"], row["start_ps"])
    return len(reached), (max(reached.values()) - storm_ps) / US


def paused_us(run, port):
    rows = [row for row in run.pauses.to_pylist() if row["paused_port"] == port]
    return sum(row["end_ps"] - row["start_ps"] for row in rows) / US


def test_a_watchdog_confines_a_storm():
    watched, free = incident("storm"), incident("storm", "switch.watchdog.detection_time=off")
    assert slowdown(watched, "victim") == pytest.approx(1.251, abs=0.001)
    assert slowdown(free, "victim") == pytest.approx(12.994, abs=0.001)
    for run in (watched, free):
        assert spread(run, 20 * US) == (4, pytest.approx(44.71, abs=0.01))
        assert lossless_drops(run) == 0
        roots = run.summary().pause_roots
        assert [(item.port, item.cause) for item in roots.ports if item.cause != "congestion"] == [
            ("h3->leaf1", "storm")
        ]
        assert sum(item.paused_ps for item in roots.ports) == run.summary().pauses.paused_ps
    assert paused_us(watched, "h0->leaf0") == pytest.approx(18.8, abs=0.1)
    assert paused_us(free, "h0->leaf0") == pytest.approx(1940.7, abs=0.1)
    (found,), (restored,) = events(watched, "watchdog_storm"), events(watched, "watchdog_restored")
    assert found["port"] == restored["port"] == "leaf1->h3"
    assert (found["time_ps"], restored["time_ps"]) == (80 * US, 2060 * US)
    assert total(watched, "packets_dropped") == total(watched, "drops_watchdog") == 1736
    assert {row["dst"] for row in watched.table("drops").to_pylist()} == {"h3"}
    assert total(free, "packets_dropped") == 0


def test_a_storm_of_all_classes_is_found_once_in_each_and_restored_after_it():
    run = incident("storm-of-all-classes")
    found, restored = events(run, "watchdog_storm"), events(run, "watchdog_restored")
    assert [(row["class"], row["time_ps"] // US) for row in found] == [("blue", 60), ("green", 100), ("red", 130)]
    assert [(row["class"], row["time_ps"] // US) for row in restored] == [
        ("blue", 1060),
        ("green", 1060),
        ("red", 1060),
    ]
    assert total(run, "packets_dropped") == total(run, "drops_watchdog") == 720
    assert run.info["messages"]["done"] == 3


def test_a_slow_receiver_slows_what_goes_elsewhere():
    slow, swift = incident("slow-receiver"), incident("slow-receiver", "fault.0.rate=100Gbps")
    assert slowdown(slow, "victim") == pytest.approx(8.495, abs=0.001)
    assert slowdown(swift, "victim") == pytest.approx(1.0005, abs=0.0001)
    assert Counter(slow.pauses.column("crossed").to_pylist())["receiver"] == 34
    assert total(swift, "xoffs") == 0
    assert total(slow, "packets_dropped") == 0


# Deadlock.


def test_clockwise_routes_deadlock():
    run = incident("deadlock", status="deadlocked")
    (found,) = run.info["deadlocks"]
    ring = [f"sw{at}->sw{(at + 1) % 4}" for at in range(4)]
    assert [queue["port"] for queue in found["queues"]] == ring
    assert found["time_ps"] == 30 * US
    closed = max(row["start_ps"] for row in run.pauses.to_pylist() if row["paused_port"] in ring)
    assert closed == pytest.approx(20.16 * US, abs=0.01 * US)  # so the first check after it finds it
    assert "(closed at 20.16 us)" in str(run.summary())
    assert run.info["messages"]["done"] == 0
    watched = incident("deadlock", "switch.watchdog.detection_time=100us")
    assert [(row["port"], row["time_ps"] // US) for row in events(watched, "watchdog_storm")] == [("sw0->sw1", 120)]
    assert total(watched, "packets_dropped") == total(watched, "drops_watchdog") == 671
    shortest = incident("deadlock", "routing.override=[]")
    assert total(shortest, "packets_dropped") == 0
    for rescued in (watched, shortest):
        assert rescued.info["messages"]["done"] == 4
        assert "deadlocks" not in rescued.info


def test_shortest_paths_of_a_clos_deadlock_after_failures():
    run = incident("clos-deadlock", status="deadlocked")
    assert run.info["ended_by"] == "deadlock"
    (found,) = run.info["deadlocks"]
    circle = ["spine0->leaf3", "leaf3->spine1", "spine1->leaf2", "leaf2->spine0"]
    assert [queue["port"] for queue in found["queues"]] == circle
    downs, (reroute,) = events(run, "link_down"), events(run, "routes")
    assert {row["time_ps"] for row in downs} == {50 * US}
    assert reroute["time_ps"] == 100 * US
    closed = max(row["start_ps"] for row in run.pauses.to_pylist() if row["paused_port"] in circle)
    assert closed == pytest.approx(119.33 * US, abs=0.01 * US)
    assert found["time_ps"] == run.info["simulated_ps"] == 120 * US  # the first check after it
    assert run.info["messages"]["done"] == 0
    assert total(run, "packets_dropped") == total(run, "drops_link_down") == 1028
    # The linter names the same circle beforehand, and says from when on it is there.
    (warning,) = run.info["warnings"]
    assert warning.startswith("FB301") and "with the routes from 100us on" in warning
    assert all(port in warning for port in circle)

    healthy = incident("clos-deadlock", "fault=[]")
    assert (total(healthy, "packets_dropped"), healthy.info["messages"]["done"]) == (0, 16)
    third = incident("clos-deadlock", "fabric.spines=3")
    assert total(third, "packets_dropped") == total(third, "drops_link_down") == 983
    assert third.info["messages"]["done"] == 16
    assert [row["time_ps"] for row in events(third, "routes")] == [100 * US]
    blind = incident("clos-deadlock", "routing.convergence=10ms")
    assert total(blind, "packets_dropped") == total(blind, "drops_link_down") == 35136
    assert blind.info["messages"]["done"] == 8
    assert not any(warning.startswith("FB301") for other in (healthy, blind) for warning in other.info["warnings"])


def test_a_deadlock_is_found_where_xon_is_due_but_never_judged():
    # Here the pool empties around the groups of the circle, so that one comes below its XON threshold; but XON is
    # judged when a frame leaves a group, and none does.
    run = incident("clos-deadlock", "seed=1", status="deadlocked")
    (found,) = run.info["deadlocks"]
    assert found["time_ps"] == 140 * US
    ring = [queue["port"] for queue in found["queues"]]
    assert ring == ["leaf2->spine1", "spine1->leaf3", "leaf3->spine0", "spine0->leaf2"]


# Lost frames.


def test_a_pause_whose_xon_is_lost_ends_by_expiry():
    run = incident("lost-xon")
    (lost,) = run.table("drops").to_pylist()
    assert (lost["cause"], lost["kind"], lost["node"]) == ("corrupt", "pfc", "h0")
    (expired,) = [row for row in run.pauses.to_pylist() if row["end"] == "expiry"]
    assert expired["paused_node"] == "h0"
    assert expired["end_ps"] - expired["start_ps"] == 65535 * 512 * 10
    assert run.info["messages"]["done"] == 2
    heard = incident("lost-xon", "fault.0.rate=0")
    assert set(heard.pauses.column("end").to_pylist()) == {"xon"}
    assert run.info["simulated_ps"] - heard.info["simulated_ps"] == pytest.approx(319.1 * US, abs=0.1 * US)


@pytest.mark.parametrize(("frame", "kind"), [("packet", "data"), ("ack", "ack")])
def test_the_last_frame_of_a_message_lost_costs_a_timeout_and_nothing_more(frame, kind):
    run, whole = incident(f"lost-last-{frame}"), incident(f"lost-last-{frame}", "fault.0.rate=0")
    (lost,) = run.table("drops").to_pylist()
    assert (lost["cause"], lost["kind"]) == ("corrupt", kind)
    (flow,), (ideal,) = run.flows.to_pylist(), whole.flows.to_pylist()
    assert (flow["status"], flow["retransmissions"], ideal["retransmissions"]) == ("done", 1, 0)
    late = [flow[key] - ideal[key] for key in ("receiver_done_ps", "sender_done_ps")]
    # The timer runs for 131.072 us, from the ACK before the last.
    assert late == [133_628_000 if kind == "data" else 0, 133_628_000]
