"""Where the time of messages went: against formulas of idle paths, and against a slow way that looks at every frame."""

import itertools
import json
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import fabemu
from fabemu.analysis.budget import PARTS, budget, budget_hops, slowest_ops
from fabemu.analysis.intervals import Cover
from fabemu.analysis.paths import data_paths
from fabemu.cli import command
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.trace import read_table

ROOT = Path(__file__).resolve().parents[2]
US = 10**6
GAP = 20  # bytes of overhead on the wire


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    found = {}

    def run(scenario, *overrides, trace="packets"):
        key = json.dumps([scenario, overrides, trace])
        if key not in found:
            source = ROOT / "scenarios" / f"{scenario}.toml" if isinstance(scenario, str) else scenario
            directory = tmp_path_factory.mktemp("budget") / "run"
            found[key] = fabemu.run(source, output=directory, overrides=list(overrides), trace=trace)
        return found[key]

    return run


def rows_of(run, ops=None):
    """Rows of the budget, each checked to add up."""
    rows = budget(run, ops).to_pylist()
    flows = {flow["op"]: flow for flow in run.flows.to_pylist()}
    for row in rows:
        flow = flows[row["op"]]
        assert row["total_ps"] == flow["fct_ps"] == sum(row[name] for name in PARTS)
        assert min(row[name] for name in PARTS) >= 0
        assert row["waited_ps"] == flow["posted_ps"] - flow["start_ps"]
        assert row["elapsed_ps"] == row["waited_ps"] + row["total_ps"]
    return rows


def parts(row):
    return {name.removesuffix("_ps"): row[name] for name in PARTS if row[name]}


def wire(size, rate_gbps):
    return -(-(size + GAP) * 8000 // rate_gbps)


def line(size, *, verb="write", rates=(100, 400, 50), **nic):
    """One message over two switches of 300 ns, by cables of three rates and 10 m (50 ns)."""
    return {
        "fabric": {
            "kind": "graph",
            "hosts": 2,
            "switches": 2,
            "links": [
                {"a": "h0", "b": "sw0", "rate": f"{rates[0]}Gbps"},
                {"a": "sw0", "b": "sw1", "rate": f"{rates[1]}Gbps"},
                {"a": "sw1", "b": "h1", "rate": f"{rates[2]}Gbps"},
            ],
        },
        "link": {"delay": "50ns"},
        "switch": {"latency": "300ns", "ecn": {"enabled": False}},
        "nic": {"cc": {"kind": "none"}, **nic},
        "workload": [{"kind": "flows", "verb": verb, "flow": [{"src": "h0", "dst": "h1", "size": size}]}],
    }


@pytest.mark.parametrize("size", [0, 1, 4096])
@pytest.mark.parametrize("verb", ["write", "send"])
def test_one_packet_on_an_idle_path(run_of, size, verb):
    (row,) = rows_of(run_of(line(f"{size}B", verb=verb)))
    frame = max(64, -(-size // 4) * 4 + 62 + (16 if verb == "write" else 0))
    assert parts(row) == {
        "serialisation": sum(wire(frame, rate) for rate in (100, 400, 50)),
        "propagation": 150_000,
        "latency": 600_000,
    }


def test_many_packets_on_an_idle_path_queue_behind_each_other_at_the_slowest_link(run_of):
    (row,) = rows_of(run_of(line("40960B", verb="send", rates=(100, 400, 50))))
    frame = 4096 + 62
    # The last of ten packets is sent after nine others, and meets at the slow link what is left of them.
    assert parts(row) == {
        "serialisation": 10 * wire(frame, 100) + wire(frame, 400) + wire(frame, 50),
        "propagation": 150_000,
        "latency": 600_000,
        "queueing": 9 * (wire(frame, 50) - wire(frame, 100)),
    }
    hops = budget_hops(run_of(line("40960B", verb="send", rates=(100, 400, 50))), row["op"]).to_pylist()
    assert [hop["port"] for hop in hops] == ["h0->sw0", "sw0->sw1", "sw1->h1"]
    assert [hop["queueing_ps"] for hop in hops] == [0, 0, 9 * (wire(frame, 50) - wire(frame, 100))]
    assert [hop["latency_ps"] for hop in hops] == [0, 300_000, 300_000]
    assert [hop["serialisation_ps"] for hop in hops] == [10 * wire(frame, 100), wire(frame, 400), wire(frame, 50)]


def test_a_read_waits_for_its_request(run_of):
    (row,) = rows_of(run_of(line("40960B", verb="read", rates=(100, 100, 100))))
    first, middle = 4096 + 62 + 4, 4096 + 62
    request = 3 * wire(78, 100) + 150_000 + 600_000
    assert parts(row) == {
        "request": request,
        "serialisation": 8 * wire(middle, 100) + 4 * wire(first, 100),
        "propagation": 150_000,
        "latency": 600_000,
    }


def test_a_request_that_is_lost_is_made_again(run_of):
    scenario = line("40960B", verb="read", rates=(100, 100, 100), timeout=5)
    fault = {"kind": "loss", "link": ["h0", "sw0"], "from": "h0", "frames": ["read"], "rate": 1}
    run = run_of(scenario | {"fault": [{**fault, "start": "0us", "end": "10us"}]})
    (row,) = rows_of(run)
    (whole,) = rows_of(run_of(line("40960B", verb="read", rates=(100, 100, 100))))
    # From the posting to the timeout, 4.096 us x 2^5; then all goes as it would have gone.
    assert row["retransmission_ps"] == 131_072_000
    assert {**row, "retransmission_ps": 0, "total_ps": 0, "elapsed_ps": 0} == {**whole, "total_ps": 0, "elapsed_ps": 0}


def test_a_rate_of_the_sender_is_pacing(run_of):
    scenario = line("40960B", verb="send", rates=(100, 100, 100), cc={"kind": "fixed", "rate": "25Gbps"})
    (row,) = rows_of(run_of(scenario))
    assert row["pacing_ps"] == 9 * (wire(4158, 25) - wire(4158, 100))
    assert row["serialisation_ps"] == 12 * wire(4158, 100) and row["queueing_ps"] == 0


def test_messages_of_one_queue_pair_wait_for_each_other_and_others_are_contention(run_of):
    def both(queue_pairs):
        scenario = line("40960B", verb="send", rates=(100, 100, 100))
        flow = {"src": "h0", "dst": "h1", "size": "40960B"}
        scenario["workload"][0]["flow"] = [{**flow, "qp": pair} for pair in queue_pairs]
        return rows_of(run_of(scenario))

    alone, second = both(["a", "a"])
    assert "queue_pair" not in parts(alone)
    assert second["queue_pair_ps"] == 10 * wire(4158, 100)
    assert second["total_ps"] == alone["total_ps"] + 10 * wire(4158, 100)
    for row, others in zip(both(["a", "b"]), (9, 10), strict=True):
        # Packets take turns, and the first one of the first goes first.
        assert row["contention_ps"] == others * wire(4158, 100)
        assert parts(row).keys() == {"serialisation", "propagation", "latency", "contention"}


def test_a_packet_that_is_lost_costs_the_timeout(run_of):
    run = run_of("incidents/lost-last-packet")
    (row,) = rows_of(run)
    packets = run.packets.to_pylist()
    sent = [item["time_ps"] for item in packets if item["kind"] == "data" and item["last"] and item["node"] == "h0"]
    assert row["retransmission_ps"] == sent[1] - sent[0] > 4096 * 32 * 1000
    quiet = rows_of(run_of("incidents/lost-last-packet", "fault.0.rate=0"))[0]
    # The rest is what it was, but that the last packet, shorter than the one before it, has nobody to wait for.
    del quiet["queueing_ps"], row["queueing_ps"]
    same = [name for name in PARTS if name not in ("queueing_ps", "retransmission_ps")]
    assert [row[name] for name in same] == [quiet[name] for name in same]


def test_going_back_costs_from_the_first_sending_of_what_was_lost(run_of):
    scenario = line("40960B", verb="send", rates=(100, 100, 100))
    fault = {"kind": "loss", "link": ["h0", "sw0"], "from": "h0", "frames": ["data"], "rate": 1}
    # The fourth packet starts at 3 wire times, about 1 us.
    run = run_of(scenario | {"fault": [{**fault, "start": "1us", "end": "1.2us"}]})
    (row,) = rows_of(run)
    rows = [item for item in run.packets.to_pylist() if item["kind"] == "data" and item["node"] == "h0"]
    fourth = [item["time_ps"] for item in rows if item["psn"] == rows[3]["psn"]]
    assert len(fourth) == 2 and row["retransmission_ps"] == fourth[1] - fourth[0]
    assert row["serialisation_ps"] == 12 * wire(4158, 100)


def test_a_slow_receiver_and_overtaken_packets(run_of):
    rows = {row["label"]: row for row in rows_of(run_of("incidents/slow-receiver"))}
    assert rows["to-the-slow-host"]["receiver_ps"] > 0 and rows["victim"]["receiver_ps"] == 0
    overrides = ("nic.retransmission=selective", "nic.reorder_window=1024", "workload.0.flow.0.size=200KB")
    rows = rows_of(run_of("balancing/elephants-spray", *overrides))
    assert any(row["reordering_ps"] for row in rows) and not any(row["retransmission_ps"] for row in rows)


def test_messages_inside_a_node_have_one_part(run_of):
    run = run_of("collectives/all-reduce-64", "workload.0.size=64KiB")
    inside = {flow["op"] for flow in run.flows.to_pylist() if flow["verb"] == "scale-up"}
    rows = rows_of(run)
    assert inside and len(rows) > len(inside)
    for row in rows:
        assert (row["scale_up_ps"] == row["total_ps"]) == (row["op"] in inside)
    with pytest.raises(InputError, match="inside a scale-up domain"):
        budget_hops(run, min(inside))


def covered(intervals, low, high):
    """Picoseconds of [low, high) that lie in any of some intervals."""
    total, reach = 0, low
    for start, end in sorted(intervals):
        start, end = max(start, reach), min(end, high)
        if start < end:
            total, reach = total + end - start, end
    return total


def slow_sender(run, op):
    """Queue pair, serialisation, paused, contention and pacing of a message at its sender, frame by frame."""
    compiled = Source(run.directory, run.info).compiled
    plan, names = compiled.plan, compiled.port_names
    (flow,) = [item for item in run.flows.to_pylist() if item["op"] == op]
    port = names[data_paths(plan).port[flow["qp"], 0]]
    chosen = np.flatnonzero(np.array(run.packets.column("port").to_pylist()) == port)
    frames = run.packets.take(chosen).to_pylist()
    pair = plan.qp_op[plan.qp_op_start[flow["qp"]] : plan.qp_op_start[flow["qp"] + 1]].tolist()
    counts = [max(1, -(-int(plan.op_bytes[item]) // plan.mtu_bytes)) for item in pair]
    first = sum(counts[: pair.index(op)])
    last = first + counts[pair.index(op)] - 1
    rate = int(plan.port_rate_bps[names.index(port)]) // 10**9
    spans = [(item["time_ps"], item["time_ps"] + wire(item["frame_bytes"], rate), item) for item in frames]
    mine, others, before = [], [], flow["posted_ps"]
    for start, end, item in spans:
        if item["kind"] == "data" and item["qp"] == flow["qp"] and first <= item["psn"] <= last:
            mine.append((start, end))
        else:
            others.append((start, end))
            if item["kind"] == "data" and item["qp"] == flow["qp"] and not mine:
                before = max(before, end)
    pauses = [
        (item["start_ps"], item["end_ps"])
        for item in run.pauses.to_pylist()
        if item["paused_port"] == port and item["class"] == flow["class"]
    ]
    begin, sent = before, mine[-1][0]
    own = covered(mine, begin, sent)
    held = covered(mine + pauses, begin, sent)
    all_but_idle = covered(mine + pauses + others, begin, sent)
    return {
        "queue_pair_ps": before - flow["posted_ps"],
        "paused_ps": held - own,
        "contention_ps": all_but_idle - held,
        "pacing_ps": sent - begin - all_but_idle,
        "own_ps": own,
    }


@pytest.mark.parametrize(
    "case",
    [
        ("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB"),
        ("incidents/head-of-line", "workload.0.size=300KB", "workload.1.flow.0.size=300KB"),
        ("jobs/two-jobs", "until=120us", "workload.0.size=200KB", "workload.1.size=200KB"),
    ],
    ids=lambda case: case[0],
)
def test_times_at_the_sender_are_those_found_frame_by_frame(run_of, case):
    run = run_of(*case)
    assert not any(flow["retransmissions"] for flow in run.flows.to_pylist())
    rows = [row for row in rows_of(run) if not row["scale_up_ps"]]
    assert rows
    for row in rows[:: max(1, len(rows) // 6)]:
        slow = slow_sender(run, row["op"])
        hops = budget_hops(run, row["op"]).to_pylist()
        assert hops[0]["paused_ps"] == slow["paused_ps"]
        for name in ("queue_pair_ps", "contention_ps", "pacing_ps"):
            assert row[name] == slow[name], name
        wires = sum(hop["serialisation_ps"] for hop in hops)
        assert wires == row["serialisation_ps"] and slow["own_ps"] < hops[0]["serialisation_ps"]
        times = ("queueing_ps", "paused_ps", "serialisation_ps", "propagation_ps", "latency_ps")
        assert sum(hop[name] for hop in hops for name in times) == row["total_ps"]
        for before, after in itertools.pairwise(hops):
            spent = after["latency_ps"] + after["queueing_ps"] + after["paused_ps"]
            assert after["sent_ps"] - after["arrived_ps"] == spent
            assert before["sent_ps"] < after["arrived_ps"]


@pytest.mark.parametrize(
    "case",
    [
        ("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB"),
        ("incidents/long-cable",),
        ("balancing/elephants-spray", "nic.retransmission=selective", "workload.0.flow.0.size=200KB"),
    ],
    ids=lambda case: case[0],
)
def test_the_trace_level_made_for_it_gives_the_same(run_of, case):
    whole, made = run_of(*case), run_of(*case, trace="budget")
    assert len(made.packets) < len(whole.packets)
    assert budget(made).equals(budget(whole))


# Bad input.


def copied(run, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(run.directory, directory)
    return directory


def test_operations_that_are_no_messages(run_of):
    run = run_of("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB")
    with pytest.raises(InputError, match="op 77 is no message"):
        budget(run, [0, 77])
    cut = run_of("incast/victim", "until=50us")
    with pytest.raises(InputError, match="op 0 was not delivered"):
        budget(cut, [0])
    assert len(budget(cut)) == 0 and budget(cut).column_names[-1] == "scale_up_ps"
    assert len(budget(cut, [])) == 0


def test_absent_tables(run_of, tmp_path):
    run = run_of("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB")
    directory = copied(run, tmp_path)
    (directory / "pauses.arrow").unlink()
    table = budget(fabemu.load(directory))
    assert "no pauses table" in json.loads(table.schema.metadata[b"fabemu.notes"])[0]
    assert sum(table.column("paused_ps").to_pylist()) == 0
    assert table.column("total_ps").to_pylist() == [row["total_ps"] for row in rows_of(run)]
    (directory / "packets.arrow").unlink()
    with pytest.raises(InputError, match=r"has no packets table .* --trace budget -o DIR"):
        budget(fabemu.load(directory))


def test_a_packets_table_that_was_cut_off(run_of, tmp_path):
    run = run_of("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB")
    directory = copied(run, tmp_path)
    table = read_table(directory / "packets.arrow")
    done = sorted(flow["receiver_done_ps"] for flow in run.flows.to_pylist())
    times = np.array(table.column("time_ps").to_pylist())
    with pa.OSFile(str(directory / "packets.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.slice(0, int(np.searchsorted(times, done[1] - 600_000))))
    found = budget(fabemu.load(directory))
    known = [row for row in found.to_pylist() if row["queueing_ps"] is not None]
    assert len(known) == 2 and found.column("pacing_ps").null_count == 3
    assert known == [row for row in rows_of(run) if row["op"] in {item["op"] for item in known}]
    assert "whole way of 3 messages" in json.loads(found.schema.metadata[b"fabemu.notes"])[0]


def test_intervals_before_a_time():
    cover = Cover(np.array([5, 5, 2]), np.array([10, 15, 0]), np.array([20, 30, 4]))
    keys, times = np.array([5, 5, 5, 5, 2, 2, 3, 9]), np.array([10, 12, 25, 99, 3, 99, 99, 99])
    assert cover.before(keys, times).tolist() == [0, 2, 15, 20, 3, 4, 0, 0]
    assert cover.keys.tolist() == [2, 5]


# The command.


def invoke(*arguments):
    return CliRunner().invoke(command, ["budget", *map(str, arguments)], standalone_mode=False, catch_exceptions=False)


def test_the_command_shows_the_slowest(run_of):
    run = run_of("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB")
    lines = invoke(run.directory, "--slowest", 3).stdout.splitlines()
    assert lines[0] == "Where the time went: 3 messages, the slowest first"
    assert [int(line.split()[0]) for line in lines[2:]] == slowest_ops(run, 3)
    assert "pacing" not in lines[1] and "paused" in lines[1]


def test_the_command_shows_the_hops_of_one(run_of):
    run = run_of("incast/victim", "until=400us", "workload.0.size=500KB", "workload.1.flow.0.size=500KB")
    text = invoke(run.directory, "--op", 4).stdout
    assert "The way of its last packet" in text and "sw1->h6" in text
    found = json.loads(invoke(run.directory, "--op", 4, "--json").stdout)
    (row,) = found["messages"]
    assert row == rows_of(run, [4])[0] and len(found["hops"]) == 3
    by_total = defaultdict(list)
    for item in json.loads(invoke(run.directory, "--json").stdout)["messages"]:
        by_total[item["total_ps"]].append(item["op"])
    assert list(by_total) == sorted(by_total, reverse=True)
