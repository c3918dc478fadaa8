"""Storms of pauses: trees against a slow way that follows one pause after another, and who is said to have suffered."""

import itertools
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabemu
from fabemu.analysis.intervals import united
from fabemu.analysis.paths import data_paths
from fabemu.analysis.pauses import pause_roots
from fabemu.analysis.storms import GAP_PS, storm_of, storms
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.trace import TraceNames, read_table

ROOT = Path(__file__).resolve().parents[2]
US = 10**6


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    found = {}

    def run(name, *overrides):
        if (name, overrides) not in found:
            directory = tmp_path_factory.mktemp("storms") / "run"
            scenario = ROOT / "scenarios" / f"{name}.toml"
            found[name, overrides] = fabemu.run(scenario, overrides=list(overrides), output=directory)
        return found[name, overrides]

    return run


def slow_trees(pauses):
    """Of each pause the row at its root and its depth, found one by one: {row: (root, depth)}."""
    rows = pauses.to_pylist()
    by_port = defaultdict(list)
    for index, row in enumerate(rows):
        by_port[row["port"], row["class"]].append(index)

    def behind(index):
        row = rows[index]
        for other in by_port.get((row["parent_port"], row["class"]), ()):
            in_force = rows[other]["start_ps"] <= row["xoff_ps"] < rows[other]["end_ps"]
            if in_force and rows[other]["xoff_ps"] < row["xoff_ps"]:
                return other
        return None

    found = {}
    for index in range(len(rows)):
        root, depth = index, 1
        while (above := behind(root)) is not None:
            root, depth = above, depth + 1
        found[index] = root, depth
    return found


def slow_storms(pauses):
    """Rows of each storm by (link, class), joined one by one: [(link, class, rows)]."""
    rows, trees = pauses.to_pylist(), defaultdict(list)
    for index, (root, _) in slow_trees(pauses).items():
        trees[root].append(index)
    places = defaultdict(list)
    for root, members in trees.items():
        row = rows[root]
        link = row["paused_port"] if row["crossed"] in ("storm", "receiver") else row["egress_port"]
        end_ps = max(rows[index]["end_ps"] for index in members)
        places[link, row["class"]].append((row["xoff_ps"], end_ps, members))
    found = []
    for (link, name), items in places.items():
        reach = None
        for start_ps, end_ps, members in sorted(items):
            if reach is None or start_ps > reach + GAP_PS:
                found.append((link, name, []))
                reach = end_ps
            reach = max(reach, end_ps)
            found[-1][2].extend(members)
    return found


CASES = [
    ("incidents/pause-tree",),
    ("incidents/slow-receiver",),
    ("incidents/storm",),
    ("incidents/head-of-line",),
    ("incidents/deadlock",),
    ("incast/victim", "nic.cc.kind=dcqcn"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_storms_are_those_found_one_pause_after_another(run_of, case):
    run = run_of(*case)
    rows, trees = run.pauses.to_pylist(), slow_trees(run.pauses)
    expected = {frozenset(members): (link, name) for link, name, members in slow_storms(run.pauses)}
    found = storms(run, None)
    of = storm_of(run.pauses)
    assert len(found) == len(expected)
    assert [item.paused_ps for item in found] == sorted((item.paused_ps for item in found), reverse=True)
    for number, item in enumerate(found):
        members = np.flatnonzero(of == number).tolist()
        assert expected[frozenset(members)] == (item.link, item.class_name)
        mine = [rows[index] for index in members]
        assert item.pauses == len(mine)
        assert item.paused_ps == sum(row["end_ps"] - row["start_ps"] for row in mine)
        assert item.depth == max(trees[index][1] for index in members)
        assert (item.start_ps, item.end_ps) == (min(row["xoff_ps"] for row in mine), max(row["end_ps"] for row in mine))
        reached = {}
        for row in mine:
            reached[row["paused_port"]] = min(row["start_ps"], reached.get(row["paused_port"], row["start_ps"]))
        assert item.ports == len(reached)
        assert item.spread_ps == max(reached.values()) - item.start_ps
        assert item.standing == any(row["end"] == "run_end" for row in mine)
        tree = item.tree.to_pylist()
        assert {node["paused_port"]: node["reached_ps"] for node in tree} == reached
        assert sum(node["paused_ps"] for node in tree) == item.paused_ps
        assert sum(node["pauses"] for node in tree) == item.pauses
        for index, node in enumerate(tree):
            assert node["share"] == pytest.approx(node["paused_ps"] / item.duration_ps)
            if node["parent"] is None:
                assert node["depth"] == 1
            else:
                above = tree[node["parent"]]
                assert node["parent"] < index and node["depth"] == above["depth"] + 1
                assert above["reached_ps"] <= node["xoff_ps"]


def test_storms_of_a_run_are_all_its_pauses(run_of):
    run = run_of("incidents/pause-tree")
    ports = pause_roots(run.pauses, 100).ports
    found = storms(run, None)
    assert {(item.root_port, item.cause): item.pauses for item in found} == {
        (port.port, port.cause): port.count for port in ports
    }
    worst = found[0]
    assert (worst.root_port, worst.pauses, worst.ports, worst.depth) == ("edge0-0->h0", 631, 82, 5)
    assert [(item.label, item.messages, item.senders, item.bytes) for item in worst.culprits] == [
        ("incast", 64, 64, 64 * 300_000)
    ]
    assert worst.victims == ()
    assert worst.sentence() == (
        "the storm began at edge0-0->h0 (class rdma) at 3.503 us because of incast (64 messages), reached 82 ports in "
        "662.8 us, 5 hops deep, lasted 1.557 ms, and held up nobody else"
    )


def slow_held_ps(run, storm, label):
    """For how long some port on the path of the messages of a label was paused while they were on their way."""
    compiled = Source(run.directory, run.info).compiled
    paths = data_paths(compiled.plan)
    of, rows = storm_of(run.pauses), run.pauses.to_pylist()
    found = {}
    for flow in run.flows.to_pylist():
        if flow["label"] != label:
            continue
        path = {compiled.port_names[port] for port in paths.port[flow["qp"]] if port >= 0}
        edges = []
        for index in np.flatnonzero(of == storm).tolist():
            if rows[index]["paused_port"] in path:
                low = max(rows[index]["start_ps"], flow["posted_ps"])
                high = min(rows[index]["end_ps"], flow["receiver_done_ps"])
                if low < high:
                    edges += [(low, 1), (high, -1)]
        total, open_, since = 0, 0, 0
        for time_ps, step in sorted(edges):
            total += (time_ps - since) if open_ else 0
            open_, since = open_ + step, time_ps
        found[flow["op"]] = total
    return found


@pytest.mark.parametrize(
    ("case", "root", "cause", "made", "share"),
    [
        (("incast/victim",), "sw1->h5", "congestion", "overload", 0.879),
        (("incidents/head-of-line", "switch.ecn.enabled=false"), "sw1->h5", "congestion", "overload", 0.945),
        (("incidents/slow-receiver",), "h3->sw1", "receiver", "to-the-slow-host", 0.963),
        (("incidents/storm", "switch.watchdog.detection_time=off"), "h3->leaf1", "storm", "to-the-storm", 0.972),
    ],
    ids=lambda item: item[0] if isinstance(item, tuple) else None,
)
def test_victims_are_those_that_share_nothing_but_paused_links(run_of, case, root, cause, made, share):
    run = run_of(*case)
    (storm,) = storms(run, 1)
    assert (storm.root_port, storm.cause) == (root, cause)
    assert [item.label for item in storm.culprits] == [made]
    (victim,) = storm.victims
    held = slow_held_ps(run, 0, "victim")
    assert (victim.label, victim.messages, victim.held_ps) == ("victim", 1, sum(held.values()))
    assert victim.longest_ps == max(held.values())
    (flow,) = [row for row in run.flows.to_pylist() if row["label"] == "victim"]
    assert victim.share == victim.message_share == pytest.approx(victim.held_ps / flow["fct_ps"])
    assert victim.share == pytest.approx(share, abs=0.001) and victim.share_of == "message"
    assert f"held up 1 message of victim for up to {100 * share:.1f} % of its time" in storm.sentence()
    # It is an upper bound of what the storm cost: a run without a storm would have taken the ideal time.
    assert flow["fct_ps"] - flow["ideal_ps"] <= victim.held_ps * 1.05


def test_victims_of_a_job_are_measured_by_the_time_of_the_job(run_of):
    run = run_of("jobs/two-jobs", "switch.ecn.enabled=false", "until=4ms")
    found = [item for item in storms(run, None) if item.victims]
    assert found
    jobs = {row["job"]: row for row in run.table("jobs").to_pylist()}
    for storm in found:
        for victim in storm.victims:
            job = jobs[victim.job]
            whole_ps = job["completion_ps"] or run.info["simulated_ps"] - job["start_ps"]
            assert victim.share_of == "job"
            # Times in which several messages waited count once.
            assert victim.longest_ps / whole_ps <= victim.job_share * (1 + 1e-9)
            assert victim.job_share <= victim.held_ps / whole_ps * (1 + 1e-9)
            assert victim.collective_share <= 1 and victim.message_share <= 1
            assert f"{victim.messages:,} message" in storm.sentence()


def test_trees_of_one_root_are_one_storm_unless_time_passes_between_them(run_of):
    run = run_of("incast/victim", "nic.cc.kind=dcqcn")
    assert sorted(item.pauses for item in storms(run)) == [1, 32, 35]
    assert len(storms(run, gap_ps=0)) == 10  # the limit; every pause stands alone
    assert len(storms(run, None, gap_ps=0)) == 68
    assert [item.pauses for item in storms(run, gap_ps=1000 * US)] == [68]


def test_a_long_tree_reaches_over_shorter_ones_that_follow(run_of):
    pauses = run_of("incast/victim", "nic.cc.kind=dcqcn").pauses
    # Few enough that more than the gap lies between many of them.
    pauses = pauses.take(pa.array(range(0, len(pauses), 4)))
    drawn = np.random.default_rng(1)
    end_ps = np.array(pauses.column("end_ps").to_pylist()) + drawn.choice([0, 300 * US], len(pauses), p=[0.8, 0.2])
    pauses = pauses.set_column(pauses.column_names.index("end_ps"), "end_ps", pa.array(end_ps, pa.int64()))
    found = [np.flatnonzero(storm_of(pauses) == number).tolist() for number in range(storm_of(pauses).max() + 1)]
    assert sorted(found) == sorted(sorted(rows) for _, _, rows in slow_storms(pauses))


def test_paths_by_load_leave_the_victims_open(run_of):
    run = run_of("incidents/head-of-line", "switch.ecn.enabled=false", 'switch.load_balancing="spray"')
    (storm,) = storms(run, 1)
    assert storm.victims is not None  # there is one path: nothing to choose
    run = run_of(
        "incidents/storm", "switch.watchdog.detection_time=off", 'switch.load_balancing="spray"', "fabric.spines=2"
    )
    storm = storms(run, 1)[0]
    assert storm.victims is None and any("by load or for every packet" in note for note in storm.notes)
    assert [item.label for item in storm.culprits] == ["to-the-storm"]  # the link leads to its receiver
    assert "held up" not in storm.sentence()


def copied(run, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(run.directory, directory)
    return directory


def test_a_run_without_pauses_has_no_storm(run_of):
    assert storms(run_of("smoke/two-hosts")) == []


def test_absent_tables(run_of, tmp_path):
    directory = copied(run_of("incast/victim"), tmp_path)
    (directory / "flows.arrow").unlink()
    (storm,) = storms(fabemu.load(directory))
    assert storm.culprits is None and storm.victims is None
    assert any("has no flows table" in note for note in storm.notes)
    assert storm.sentence().startswith("the storm began at sw1->h5 (class rdma) at 35.21 us, reached 6 ports in")
    (directory / "pauses.arrow").unlink()
    with pytest.raises(InputError, match="has no pauses table"):
        storms(fabemu.load(directory))


def test_a_scenario_of_another_plan_leaves_everybody_open(run_of, tmp_path):
    directory = copied(run_of("incast/victim"), tmp_path)
    scenario = directory / "scenario.toml"
    scenario.write_text(re.sub(r"(?m)^seed = .*", "seed = 77", scenario.read_text(encoding="utf-8")), encoding="utf-8")
    (storm,) = storms(fabemu.load(directory))
    assert storm.victims is None and any("compiles to plan" in note for note in storm.notes)


def test_an_interrupted_run(run_of, tmp_path):
    directory = copied(run_of("incast/victim"), tmp_path)
    info = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    del info["simulated_ps"]
    info["status"] = "running"
    (directory / "run.json").write_text(json.dumps(info), encoding="utf-8")
    # A pause whose end nobody wrote.
    table = read_table(directory / "pauses.arrow")
    ends = [*table.column("end_ps").to_pylist()[:-1], None]
    table = table.set_column(table.schema.get_field_index("end_ps"), "end_ps", pa.array(ends, pa.int64()))
    run = fabemu.load(directory)
    run._tables["pauses"] = table
    (storm,) = storms(run)
    assert storm.standing and storm.pauses == 747
    assert any("was killed" in note for note in storm.notes)
    assert "still stood at the end of the run" in storm.sentence()
    json.dumps(storm.to_dict())


def test_names_are_those_of_the_dictionaries():
    names = TraceNames(("h0",), (), ("rdma",), (), 1)
    assert storm_of(pa.table({name: pa.array([]) for name in names.dictionaries()})).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 10)), max_size=30),
    st.sampled_from([0, 2**55]),
)
def test_unions(items, base):
    group, start, length = (np.array([item[index] for item in items], dtype=np.int64) for index in range(3))
    found = united(group, base + start, base + start + length)
    covered = {(g, t) for g, s, n in items for t in range(s, s + n)}
    rows = list(zip(*(values.tolist() for values in found), strict=True))
    assert {(g, t - base) for g, s, e in rows for t in range(s, e)} == covered
    for (g, _, end_ps), (other, start_ps, _) in itertools.pairwise(rows):
        assert (g, end_ps) < (other, start_ps)
