"""Stragglers: chains written by hand, and those of a run against a slow search."""

from __future__ import annotations

from pathlib import Path

import pytest

import fabemu
from fabemu.analysis.stragglers import SCHEMA, WHYS, stragglers
from fabemu.errors import InputError
from tests.unit.written_run import write_run

ROOT = Path(__file__).resolve().parents[2]


def message(op, src, dst, posted, done, **others):
    row = {"op": op, "label": "ring", "collective": 0, "src": src, "dst": dst, "class": "rdma", "ideal_ps": 100}
    row |= {"posted_ps": posted, "first_sent_ps": posted, "receiver_done_ps": done, "verb": "write"}
    return row | others


def ring(**slow):
    """a -> b -> c -> a: each passes on what it received; the message from b to c is what a test changes."""
    slow = {"posted_ps": 110, "first_sent_ps": 110, "receiver_done_ps": 210} | slow
    end = slow["receiver_done_ps"] + 10
    return [
        message(0, "a", "b", 0, 100),
        message(1, "b", "c", 110, 210, **slow),
        message(2, "c", "a", end, end + 100, first_sent_ps=end + 5),
        message(3, "c", "b", 0, 101),
    ]


def collective(**others):
    row = {"collective": 0, "label": "ring", "operation": "all-reduce", "algorithm": "ring", "ranks": 3}
    return row | {"start_ps": 0, "end_ps": 330, "time_ps": 330, "last_host": "a", "last_flow": 2} | others


def test_a_chain_adds_up_and_names_its_slowest_message(tmp_path):
    rows = ring(receiver_done_ps=900)
    run = write_run(tmp_path, {"simulated_ps": 2000}, flows=rows, collectives=[collective(end_ps=1030, time_ps=1030)])
    (row,) = stragglers(run).to_pylist()
    assert (row["host"], row["flow"], row["ranks"]) == ("a", 2, 3)
    # Ranks were done at 101 (b), 900 (c) and 1010 (a): c is the median.
    assert row["later_ps"] == 110 == row["later_posted_ps"] + row["later_unsent_ps"] + row["later_network_ps"]
    assert (row["later_posted_ps"], row["later_unsent_ps"], row["later_network_ps"]) == (800, 5, -695)
    # b's last arrival before it posted message 1 is message 3 at 101, not message 0 at 100.
    assert (row["chain"], row["chain_start_ps"], row["chain_ideal_ps"]) == (3, 0, 300)
    assert (row["chain_gap_ps"], row["chain_excess_ps"], row["chain_after_ps"]) == (9 + 10, 1 + 690, 20)
    assert (row["slow_flow"], row["slow_src"], row["slow_dst"], row["slow_excess_ps"]) == (1, "b", "c", 690)
    assert row["why"] == "shared links" and row["slow_paused_ps"] is None
    assert "a was last, 110 ps after the median of 3 ranks" in row["sentence"]


@pytest.mark.parametrize(
    ("change", "why", "words"),
    [
        ({"retransmissions": 4, "cnps": 2, "receiver_done_ps": 900}, "retransmission", "4 packets were sent again"),
        ({"cnps": 2, "receiver_done_ps": 900}, "rate reduction", "received 2 CNPs"),
        ({"posted_ps": 700, "first_sent_ps": 700, "receiver_done_ps": 800}, "computing", "619 ps of"),
        ({}, "computing", "39 ps of 330 ps"),
    ],
)
def test_causes(tmp_path, change, why, words):
    rows = ring(**change)
    end = rows[2]["receiver_done_ps"] + 10
    run = write_run(tmp_path, flows=rows, collectives=[collective(end_ps=end, time_ps=end)])
    (row,) = stragglers(run).to_pylist()
    assert row["why"] == why
    if change:
        assert words in row["sentence"]


def test_a_pause_of_the_sender_is_the_cause_if_it_is_half_of_the_excess(tmp_path):
    pauses = [
        {"paused_node": "b", "class": "rdma", "start_ps": 0, "end_ps": 200, "end": "xon"},
        {"paused_node": "b", "class": "rdma", "start_ps": 600, "end_ps": None, "end": "run_end"},
        {"paused_node": "b", "class": "other", "start_ps": 300, "end_ps": 500, "end": "xon"},
        {"paused_node": "c", "class": "rdma", "start_ps": 300, "end_ps": 500, "end": "xon"},
        {"paused_node": "b", "class": "rdma", "start_ps": None, "end_ps": None, "end": "run_end"},
    ]
    run = write_run(tmp_path, {"simulated_ps": 2000}, flows=ring(receiver_done_ps=900), pauses=pauses)
    (row,) = stragglers(run).to_pylist()
    assert row["slow_paused_ps"] == (200 - 110) + (900 - 600)
    assert row["why"] == "paused" and "paused for 390 ps" in row["sentence"]
    assert row["operation"] is None and row["time_ps"] == 1010, "without a collectives table"


def test_a_late_start_and_no_delay_at_all(tmp_path):
    late = [message(0, "a", "b", 800, 900), message(1, "b", "a", 0, 100)]
    run = write_run(tmp_path / "late", flows=late, collectives=[collective(end_ps=900, time_ps=900)])
    (row,) = stragglers(run).to_pylist()
    # What came to a before it posted is taken as what it waited for.
    assert (row["why"], row["chain_gap_ps"], row["chain"]) == ("computing", 700, 2)
    run = write_run(tmp_path / "start", flows=late[:1], collectives=[collective(end_ps=900, time_ps=900)])
    (row,) = stragglers(run).to_pylist()
    assert (row["why"], row["chain_start_ps"], row["later_ps"]) == ("late start", 800, 0)
    run = write_run(tmp_path / "even", flows=late[1:])
    assert stragglers(run).to_pylist()[0]["why"] == "none"


def test_unfinished_collectives_name_what_they_wait_for(tmp_path):
    rows = ring()
    rows[1] |= {"receiver_done_ps": None, "status": "unfinished"}
    rows[2] |= {"posted_ps": None, "first_sent_ps": None, "receiver_done_ps": None, "status": "not_run"}
    never = [row | {"collective": 5, "posted_ps": None, "receiver_done_ps": None} for row in ring()]
    run = write_run(tmp_path, flows=rows + never)
    first, second = stragglers(run).to_pylist()
    assert (first["why"], first["host"], first["flow"], first["slow_src"]) == ("unfinished", "c", 1, "b")
    assert first["time_ps"] is None and "2 of its messages did not come, first 1 from b to c" in first["sentence"]
    assert (second["collective"], second["flow"]) == (5, None) and "none of these was posted" in second["sentence"]


def test_missing_tables(tmp_path):
    run = write_run(tmp_path / "few", collectives=[collective()])
    (row,) = stragglers(run).to_pylist()
    assert (row["host"], row["flow"], row["why"]) == ("a", 2, "unknown")
    with pytest.raises(InputError, match="neither a flows nor a collectives table"):
        stragglers(write_run(tmp_path / "none"))
    run = write_run(tmp_path / "plain", flows=[message(0, "a", "b", 0, 1, collective=None)])
    assert stragglers(run).schema == SCHEMA and len(stragglers(run)) == 0


def test_of_a_read_the_data_come_to_the_one_who_asks(tmp_path):
    run = write_run(tmp_path, flows=[message(0, "a", "b", 0, 500, verb="read"), message(1, "c", "b", 0, 100)])
    (row,) = stragglers(run).to_pylist()
    assert (row["host"], row["slow_src"], row["slow_dst"]) == ("a", "b", "a")


@pytest.fixture(scope="module")
def jobs():
    return fabemu.run(ROOT / "scenarios/jobs/two-jobs.toml", overrides=["workload.0.iterations=2"])


def test_collectives_of_a_run_against_a_slow_search(jobs):
    flows = [row for row in jobs.flows.to_pylist() if row["collective"] is not None]
    ran = {row["collective"]: row for row in jobs.table("collectives").to_pylist()}
    result = stragglers(jobs)
    assert result.equals(stragglers(jobs, rows=100)), "whatever is held at a time"
    assert len(result) == len(ran)
    for row in result.to_pylist():
        mine = [flow for flow in flows if flow["collective"] == row["collective"]]
        done = {}
        for flow in sorted(mine, key=lambda flow: (flow["receiver_done_ps"], flow["op"])):
            done[flow["dst"]] = flow
        ranks = sorted(done.values(), key=lambda flow: (flow["receiver_done_ps"], flow["op"]))
        slow, median = ranks[-1], ranks[(len(ranks) - 1) // 2]
        known = ran[row["collective"]]
        assert (row["flow"], row["host"]) == (slow["op"], slow["dst"]) == (known["last_flow"], known["last_host"])
        assert row["later_ps"] == slow["receiver_done_ps"] - median["receiver_done_ps"]
        assert row["later_posted_ps"] == slow["posted_ps"] - median["posted_ps"]
        chain = [slow]
        while before := [
            flow
            for flow in mine
            if flow["dst"] == chain[-1]["src"] and flow["receiver_done_ps"] <= chain[-1]["posted_ps"]
        ]:
            chain.append(max(before, key=lambda flow: (flow["receiver_done_ps"], flow["op"])))
        assert row["chain"] == len(chain)
        assert row["chain_ideal_ps"] == sum(flow["ideal_ps"] for flow in chain)
        assert row["chain_excess_ps"] == sum(flow["fct_ps"] - flow["ideal_ps"] for flow in chain)
        assert row["slow_excess_ps"] == max(flow["fct_ps"] - flow["ideal_ps"] for flow in chain)
        parts = ("start", "ideal", "excess", "gap", "after")
        assert sum(row[f"chain_{part}_ps"] for part in parts) == row["time_ps"] == known["time_ps"]
        assert row["why"] in WHYS
