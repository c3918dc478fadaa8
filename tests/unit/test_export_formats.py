"""Timelines, CSV, and the files of HPCC simulators, read back and held against the tables."""

import csv
import io
import json
import os
import shutil
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fabemu
from fabemu.errors import InputError, OutputError
from fabemu.export import export_csv, export_hpcc, export_perfetto
from fabemu.export.output import replacing
from fabemu.export.timeline import _Lanes
from fabemu.importers.hpcc import import_hpcc

NS3 = Path(__file__).resolve().parents[1] / "data" / "ns3"
ODD = 'a "b" </script>, é\\'

SCENARIO = {
    "name": ODD,
    "fabric": {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4},
    "switch": {"buffer": "1MiB"},
    "fault": [
        {"kind": "loss", "link": ["h3", "leaf0"], "rate": 0.02},
        {"kind": "ecn-off", "at": "spine0", "start": "3us"},
    ],
    "job": [{"name": ODD, "ranks": 4}],
    "workload": [
        {"kind": "incast", "label": ODD, "receiver": "h7", "senders": "h0:h3", "size": "200KB"},
        {"kind": "collective", "label": "sum", "job": ODD, "operation": "all-reduce", "size": "64KB", "iterations": 3},
        {"kind": "flows", "label": "late", "flow": [{"src": "h1", "dst": "h2", "size": "1MB", "start": "100us"}]},
    ],
    "until": "140us",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return fabemu.run(SCENARIO, tmp_path_factory.mktemp("formats") / "run", trace="packets")


# CSV.


def csv_value(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else float(value)


def test_every_table_comes_back_from_csv(result, tmp_path):
    assert {"flows", "collectives", "jobs", "pauses", "drops", "events", "packets"} <= set(result.tables)
    for table in result.tables:
        path = tmp_path / f"{table}.csv"
        rows = export_csv(result.directory, table, path)
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        expected = result.table(table)
        assert header == expected.column_names
        assert rows == len(lines) == len(expected) > 0
        for line, row in zip(lines, expected.to_pylist(), strict=True):
            for text, value in zip(line, row.values(), strict=True):
                wanted = csv_value(value)
                assert (float(text) if isinstance(wanted, float) else text) == wanted


def test_csv_goes_to_a_stream_too(result):
    stream = io.BytesIO()
    rows = export_csv(result.directory, "flows", stream)
    assert stream.getvalue().count(b"\n") == rows + 1


@pytest.mark.parametrize(
    ("table", "text"),
    [("flow", "'flow' is not a trace table; the tables are flows, "), ("steps", "has no steps table .it has flows")],
)
def test_tables_that_are_not_there_are_refused(result, tmp_path, table, text):
    with pytest.raises(InputError, match=text):
        export_csv(result.directory, table, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


# Timelines.


def events_of(path):
    document = json.loads(path.read_text(encoding="ascii"), parse_float=Decimal)
    assert document["displayTimeUnit"] == "ns"
    return document["otherData"], document["traceEvents"]


def named(events, kind):
    return {
        (event["pid"], event["tid"]) if kind == "thread_name" else event["pid"]: event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == kind
    }


def picoseconds(microseconds):
    scaled = Decimal(microseconds) * 10**6
    assert scaled == int(scaled)
    return int(scaled)


@pytest.fixture(scope="module")
def timeline(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline") / "run.json"
    return export_perfetto(result.directory, path), *events_of(path)


def test_slices_are_the_rows_to_the_picosecond(result, timeline):
    summary, other, events = timeline
    assert other["run"] == ODD
    processes, threads = named(events, "process_name"), named(events, "thread_name")
    slices = {}
    for event in events:
        if event["ph"] == "X":
            track = threads[event["pid"], event["tid"]].rstrip(" 0123456789")
            times = picoseconds(event["ts"]), picoseconds(event["ts"]) + picoseconds(event["dur"])
            slices.setdefault((processes[event["pid"]], track), []).append((*times, event["name"], event["args"]))
    end_ps = result.info["simulated_ps"]
    flows = result.flows.to_pylist()
    assert {flow["status"] for flow in flows} >= {"done", "unfinished"}
    sent = sorted(item for (_, track), found in slices.items() if track == "sends" for item in map(repr, found))
    assert len(sent) == sum(flow["posted_ps"] is not None for flow in flows) == summary.events["flows"]
    for flow in flows:
        if flow["posted_ps"] is None:
            continue
        [found] = [item for item in slices[flow["src"], "sends"] if item[3]["op"] == flow["op"]]
        ended = flow["sender_done_ps"] is not None
        assert found[:3] == (
            flow["posted_ps"],
            flow["sender_done_ps"] if ended else end_ps,
            f"{flow['label']} to {flow['dst']}",
        )
        assert found[3].get("open", False) == (not ended)
        assert found[3]["status"] == flow["status"]
        arrived = [item for item in slices.get((flow["dst"], "receives"), []) if item[3]["op"] == flow["op"]]
        if flow["receiver_done_ps"] is not None:
            assert [item[:2] for item in arrived] == [(flow["first_sent_ps"], flow["receiver_done_ps"])]
    pauses = [row for row in result.pauses.to_pylist() if row["start_ps"] is not None]
    assert summary.events["pauses"] == len(pauses) > 0
    for row in pauses:
        found = slices[row["paused_node"], f"paused: {row['paused_port']} {row['class']}"]
        assert (row["start_ps"], row["end_ps"], f"paused by {row['switch']}") in [item[:3] for item in found]
    [job] = slices[f"job {ODD}", "job"]
    assert job[0] == result.table("jobs").to_pylist()[0]["start_ps"]
    runs = [row for row in result.table("collectives").to_pylist() if row["start_ps"] is not None]
    assert [item[0] for item in slices[f"job {ODD}", "collectives"]] == sorted(row["start_ps"] for row in runs)


def test_slices_of_a_track_do_not_overlap(timeline):
    _, _, events = timeline
    tracks = {}
    for event in events:
        if event["ph"] == "X":
            start = picoseconds(event["ts"])
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, start + picoseconds(event["dur"])))
    assert max(map(len, tracks.values())) >= 3
    for slices in tracks.values():
        slices.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(slices))


def test_arrows_lead_from_messages_to_their_arrival(timeline):
    _, _, events = timeline
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(begins) > 10
    for number, event in begins.items():
        assert event["pid"] != ends[number]["pid"]
        assert picoseconds(event["ts"]) <= picoseconds(ends[number]["ts"])
        assert ends[number]["bp"] == "e"


def test_drops_and_incidents_are_instants(result, timeline):
    summary, _, events = timeline
    processes = named(events, "process_name")
    instants = [event for event in events if event["ph"] == "i"]
    drops, incidents = result.drops.to_pylist(), result.events.to_pylist()
    assert (summary.events["drops"], summary.events["events"]) == (len(drops), len(incidents))
    assert len(instants) == len(drops) + len(incidents)
    found = {(processes[event["pid"]], picoseconds(event["ts"]), event["name"]) for event in instants}
    assert {(row["node"], row["time_ps"], row["cause"]) for row in drops} <= found
    assert ("faults and incidents", incidents[0]["time_ps"]) in {item[:2] for item in found}


def test_a_time_window_takes_what_overlaps_it(result, tmp_path):
    path = tmp_path / "part.json"
    export_perfetto(result.directory, path, from_ps=100_000_000, to_ps=100_000_001)
    names = [event["name"] for event in events_of(path)[1] if event["ph"] == "X"]
    assert "late to h2" in names
    with pytest.raises(InputError, match="nothing that is shown happened in this time; the run lasted 140us"):
        export_perfetto(result.directory, tmp_path / "none.json", from_ps=10**12)
    with pytest.raises(InputError, match="--from 2ns is not before --to 1ns"):
        export_perfetto(result.directory, tmp_path / "none.json", from_ps=2000, to_ps=1000)
    assert [item.name for item in tmp_path.iterdir()] == ["part.json"]


def test_lanes_are_as_few_as_can_be():
    lanes = _Lanes()
    generator = np.random.default_rng(3)
    starts = np.sort(generator.integers(0, 1000, 300)).tolist()
    spans = [(start, start + int(length)) for start, length in zip(starts, generator.integers(1, 50, 300), strict=True)]
    taken = [(lanes.take(*span), span) for span in spans]
    deepest = max(sum(start <= time < end for start, end in spans) for time in range(1050))
    assert lanes.count == deepest == 1 + max(lane for lane, _ in taken)
    for lane in range(lanes.count):
        own = [span for found, span in taken if found == lane]
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def test_interrupted_runs_and_missing_tables_are_said(result, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(result.directory, copy)
    info = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(info | {"status": "interrupted"}))
    (copy / "pauses.arrow").unlink()
    found = export_perfetto(copy, tmp_path / "a.json")
    assert found.notes == [
        "partial: the run is interrupted: what its tables hold up to then",
        "the run has no pauses table",
    ]
    assert events_of(tmp_path / "a.json")[0]["notes"] == "; ".join(found.notes)
    files = export_hpcc(copy, tmp_path / "hpcc")
    assert files.notes[0].startswith("partial: ")
    assert files.notes[-1] == "no pfc.txt: the run has no pauses table"
    for table in copy.glob("*.arrow"):
        table.unlink()
    with pytest.raises(InputError, match="has none of the tables jobs, "):
        export_perfetto(copy, tmp_path / "b.json")
    with pytest.raises(InputError, match=r"has no flows table \(it has none\)"):
        export_hpcc(copy, tmp_path / "hpcc", force=True)


def test_reads_are_told_from_what_is_sent(tmp_path):
    scenario = {
        "fabric": {"kind": "single-switch", "hosts": 2},
        "workload": [
            {"kind": "flows", "verb": "read", "label": "get", "flow": [{"src": "h0", "dst": "h1", "size": "9KB"}]}
        ],
    }
    result = fabemu.run(scenario, tmp_path / "run")
    export_perfetto(result.directory, tmp_path / "run.json")
    _, events = events_of(tmp_path / "run.json")
    processes, threads = named(events, "process_name"), named(events, "thread_name")
    slices = {
        (processes[event["pid"]], threads[event["pid"], event["tid"]], event["name"]): picoseconds(event["ts"])
        for event in events
        if event["ph"] == "X"
    }
    assert set(slices) == {("h0", "reads", "get from h1"), ("h1", "answers", "get to h0")}
    assert slices["h0", "reads", "get from h1"] == 0 < slices["h1", "answers", "get to h0"]


# HPCC.


def recorded(name):
    path = NS3 / "results" / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def node_of(address):
    assert address >> 24 == 11
    assert address & 0xFF == 1
    return address >> 8 & 0xFFFF


@pytest.mark.parametrize("name", ["A_dcqcn", "B_none", "C_none_buf4", "E100_none_buf4"])
def test_runs_of_the_simulator_come_back_as_it_wrote_them(name, tmp_path):
    inputs, case = NS3 / "inputs", name.split("_")[0]
    scenario, _ = import_hpcc(
        inputs / f"topology_{case}.txt",
        inputs / f"flows_{case}.txt",
        inputs / f"config_{name}.txt",
        tmp_path / "imported",
    )
    result = fabemu.run(scenario, tmp_path / "run")
    files = export_hpcc(result.directory, tmp_path / "out")
    lines = [line.split(" ") for line in (tmp_path / "out" / "fct.txt").read_text().splitlines()]
    found = sorted((node_of(int(s, 16)), node_of(int(d, 16)), *map(int, rest)) for s, d, *rest in lines)
    expected = recorded(f"{name}_fct")
    assert files.flows == len(expected) == len(lines)
    keys = ("src", "dst", "size", "start_ns", "fct_ns")
    assert sorted((row[0], row[1], *row[4:7]) for row in found) == sorted(
        tuple(int(row[key]) for key in keys) for row in expected
    )
    assert {row[3] for row in found} == {100}
    assert all(row[2] >= 10_000 for row in found)
    ended = [int(line[5]) + int(line[6]) for line in lines]
    assert ended == sorted(ended)
    # The simulator's own figure for an empty network is close to what a lone message took, and never far above it.
    assert all(row[6] / row[7] > 0.95 for row in found)
    if case == "A":
        assert all(row[6] / row[7] < 1.05 for row in found)
    wanted = [
        (int(row["time_ns"]), int(row["node"]), int(row["interface"]), int(row["event"] == "pause"))
        for row in recorded(f"{name}_pfc")
    ]
    text = (tmp_path / "out" / "pfc.txt").read_text()
    frames = [tuple(map(int, line.split(" "))) for line in text.splitlines()]
    assert sorted((time, node, interface, kind) for time, node, _, interface, kind in frames) == sorted(wanted)
    assert files.frames == len(frames)
    assert [frame[0] for frame in frames] == sorted(frame[0] for frame in frames)
    switches = {int(node) for node in (inputs / f"topology_{case}.txt").read_text().splitlines()[1].split()}
    assert all((frame[1] in switches) == frame[2] for frame in frames)


def test_the_ideal_of_the_simulator_is_its_formula(tmp_path):
    scenario = {
        "fabric": {"kind": "dumbbell", "left": 1, "right": 1},
        "link": {"rate": "100Gbps", "delay": "600ns", "tier": {"trunk": {"rate": "25Gbps", "delay": "1us"}}},
        "workload": [{"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "10GB", "start": "5ns"}]}],
        "until": "1us",
    }
    from fabemu.export.hpcc import _standalone_ns
    from fabemu.recorded.source import Source

    result = fabemu.run(scenario, tmp_path / "run")
    compiled = Source.open(result.directory).compiled
    sizes = np.array([1, 4096, 4097, 10**10])
    found = _standalone_ns(compiled, np.zeros(4, np.int64), np.ones(4, np.int64), sizes)
    for size, value in zip(sizes.tolist(), found.tolist(), strict=True):
        packets = -(-size // 4096)
        trip = 2 * (600 + 1000 + 600) + 2 * (4096 * 8 * 10**9 // 10**11) + 4096 * 8 * 10**9 // (25 * 10**9)
        assert value == trip + (size + packets * 62) * 8 * 10**9 // (25 * 10**9)
    files = export_hpcc(result.directory, tmp_path / "out")
    assert (files.flows, files.notes) == (0, ("1 message is not in fct.txt: not done, or inside a scale-up domain",))


def test_files_of_hpcc_are_not_replaced_unasked(result, tmp_path):
    out = tmp_path / "out"
    export_hpcc(result.directory, out)
    before = (out / "fct.txt").read_bytes()
    with pytest.raises(OutputError, match=r"fct.txt: exists already; replace it with --force"):
        export_hpcc(result.directory, out)
    export_hpcc(result.directory, out, force=True)
    assert (out / "fct.txt").read_bytes() == before
    with pytest.raises(OutputError, match="is a file; choose a directory"):
        export_hpcc(result.directory, out / "fct.txt", force=True)


def test_what_is_no_regular_file_stays(tmp_path):
    """A device or a pipe is not replaced by a file, and a link stays one."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target.txt"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="is no regular file"), replacing(pipe, force=True, inside=tmp_path / "run"):
        pass
    assert pipe.is_fifo()
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    with replacing(link, force=True, inside=tmp_path / "run") as file:
        file.write(b"new")
    assert link.is_symlink() and target.read_text(encoding="utf-8") == "new"
