"""Analysis and summary: tails that keep the unfinished, roots of pauses, busiest links, text and JSON."""

import io
import json
import math

import numpy as np
import pytest

from fabemu.analysis import drops, fct, incidents, pauses, utilisation
from fabemu.report import Summary, bytes_text, count_text, deadlock_text, time_text
from fabemu.table_writer import TableWriter
from fabemu.trace import DROP_CAUSES, EVENT_KINDS, FLOW_STATUSES, TABLES, XOFF_CAUSES, TraceNames, read_table

NAMES = TraceNames(
    ["h0", "h1", "sw0", "sw1"], [f"p{port}" for port in range(6)], ["cnp", "rdma"], ["web", "bulk"], 2, ["a"]
)


def table(tmp_path, name, rows):
    """Table from dicts; what a row does not say is 0."""
    writer = TableWriter(tmp_path, name, NAMES.dictionaries(), {})
    columns = {}
    for column in TABLES[name].columns:
        dtype = np.float64 if column.kind == "float64" else np.int64
        columns[column.name] = np.array([row.get(column.name, 0) for row in rows], dtype)
    writer.append(columns)
    writer.close()
    return read_table(writer.path)


def flow(size, fct_ps, status=0, **more):
    slowdown = fct_ps / 100 if fct_ps >= 0 else math.nan
    return {"bytes": size, "fct_ps": fct_ps, "slowdown": slowdown, "measured": 1, "status": status, **more}


def test_percentiles_are_nearest_rank():
    values = np.arange(1.0, 1001.0)
    assert [fct.percentile(values, percent) for percent in (50, 90, 99, 99.9, 100)] == [500, 900, 990, 999, 1000]
    assert fct.percentile(np.array([7.0]), 50) == 7
    assert math.isnan(fct.percentile(np.empty(0), 50))


def test_unfinished_messages_stay_in_the_tail(tmp_path):
    flows = table(tmp_path, "flows", [flow(100, 10 * n) for n in range(1, 99)] + [flow(100, -1, 2), flow(100, -1, 1)])
    everything = fct.by_size(flows)[0]
    assert everything.count == 100 and everything.unfinished == 2
    assert everything.fct_ps["p50"] == 500 and everything.fct_ps["p90"] == 900
    assert everything.fct_ps["p99"] == math.inf and everything.slowdown["max"] == math.inf


def test_only_messages_that_were_due_count(tmp_path):
    flows = table(
        tmp_path,
        "flows",
        [flow(1, 5), flow(1, -1, 3, start_ps=10), flow(1, -1, 3, start_ps=100), flow(1, 5) | {"measured": 0}],
    )
    # Never posted although due: it waited for another. Due after the end: it was never asked for.
    assert fct.by_size(flows, end_ps=50)[0].count == 2
    assert fct.by_size(flows, end_ps=50)[0].unfinished == 1
    assert fct.by_size(flows)[0].count == 1


def test_size_classes_have_their_upper_end(tmp_path):
    sizes = [0, 10**4, 10**4 + 1, 10**6, 10**6 + 1, 10**13]
    groups = fct.by_size(table(tmp_path, "flows", [flow(size, 5) for size in sizes]))
    assert {group.name: group.count for group in groups} == {
        "all": 6,
        "<= 10 KB": 2,
        "10-100 KB": 1,
        "100 KB-1 MB": 1,
        "1-10 MB": 1,
        "> 10 MB": 1,
    }


def test_by_label(tmp_path):
    groups = fct.by_label(table(tmp_path, "flows", [flow(1, 5, label=1), flow(1, 9, label=1), flow(1, 7)]))
    assert [(group.name, group.count, group.fct_ps["max"]) for group in groups] == [("web", 1, 7), ("bulk", 2, 9)]


def pause(xoff_ps, end_ps, port, paused_port, egress_port, end=0):
    times = {
        "xoff_ps": xoff_ps,
        "sent_ps": xoff_ps + 1,
        "start_ps": xoff_ps + 2,
        "xon_ps": end_ps - 2,
        "end_ps": end_ps,
    }
    return {**times, "port": port, "paused_port": paused_port, "egress_port": egress_port, "class": 1, "end": end}


def test_pauses_are_followed_to_their_root(tmp_path):
    # p5 is congested; p0 pauses p1, so what waits for p1 makes p2 pause p3; the last comes after p1 is free again.
    rows = [pause(0, 100, 0, 1, 5), pause(50, 200, 2, 3, 1), pause(150, 300, 2, 4, 1), pause(10, 20, 0, 1, -1, end=2)]
    rows[3]["start_ps"] = rows[3]["end_ps"] = -1
    for row, parent in zip(rows, (-1, 0, -1, -1), strict=True):
        row["parent_port"] = parent
    pause_table = table(tmp_path, "pauses", rows)
    assert pauses.roots(pause_table).tolist() == [0, 0, 2, 3]
    found = pauses.pause_roots(pause_table)
    assert [(item.port, item.cause, item.count, item.paused_ps) for item in found.ports] == [
        ("p5", "congestion", 2, 98 + 148),
        ("p1", "congestion", 1, 148),
    ]
    assert (found.other_ports, found.unknown_count, found.unknown_paused_ps) == (0, 1, 0)
    first = pauses.pause_roots(pause_table, 1)
    assert len(first.ports) == first.other_ports == first.other_count == 1 and first.other_paused_ps == 148
    found = [(item.port, item.class_name, item.count, item.longest_ps) for item in pauses.pausing_ports(pause_table)]
    assert found == [("p2", "rdma", 2, 148), ("p0", "rdma", 2, 98)]
    total = pauses.total(pause_table)
    assert (total.count, total.paused_ps, total.longest_ps) == (4, 98 + 148 + 148, 148)
    assert total.by_end == {"xon": 3, "expiry": 0, "run_end": 1, "link": 0}


@pytest.mark.parametrize("cause", ["storm", "receiver"])
def test_pauses_go_back_to_the_port_of_a_host_that_raised_the_first(tmp_path, cause):
    # p0 of a host pauses p1; p2 pauses p3 for what waits for p1; p5 was congested by itself.
    rows = [pause(0, 900, 0, 1, -1), pause(50, 200, 2, 3, 1), pause(60, 80, 4, 3, 5), pause(70, 90, 4, 3, -1)]
    for row, parent in zip(rows, (-1, 0, -1, -1), strict=True):
        row["parent_port"] = parent
    rows[0]["crossed"] = XOFF_CAUSES.index(cause)
    pause_table = table(tmp_path, "pauses", rows)
    found = pauses.pause_roots(pause_table)
    assert [(item.port, item.cause, item.count, item.paused_ps) for item in found.ports] == [
        ("p0", cause, 2, 898 + 148),
        ("p5", "congestion", 1, 18),
    ]
    assert (found.unknown_count, found.unknown_paused_ps) == (1, 18)
    covered = sum(item.paused_ps for item in found.ports) + found.other_paused_ps + found.unknown_paused_ps
    assert covered == pauses.total(pause_table).paused_ps
    text = str(Summary("demo.run", {}, pause_roots=found))
    assert f"p0              rdma   {cause:10}       2" in text and "without a root" in text


def test_a_cycle_closes_with_the_last_of_its_pauses(tmp_path):
    rows = [pause(0, 30, 0, 1, 5), pause(40, 100, 0, 1, 5), pause(20, 100, 2, 3, 1), pause(90, 95, 4, 5, 1)]
    pause_table = table(tmp_path, "pauses", rows)
    assert pauses.closing_ps(pause_table, ["p1", "p3"], "rdma", 80) == 42
    assert pauses.closing_ps(pause_table, ["p1", "p3"], "rdma", 30) == 22
    for ports, class_name in ((["p1", "p5"], "rdma"), (["p1", "p3"], "cnp"), ([], "rdma")):
        assert pauses.closing_ps(pause_table, ports, class_name, 80) is None
    found = {"time_ps": 80, "class": "rdma", "queues": [{"port": "p1", "bytes": 5}, {"port": "p3", "bytes": 7}]}
    head = str(Summary("demo.run", {"deadlocks": [found]}, deadlocks_closed_ps=[42])).splitlines()[1]
    assert head == "  deadlock at 80 ps in class rdma (closed at 42 ps): p1 (5 B) waits for p3 (7 B) waits for p1"
    assert deadlock_text(found).startswith("deadlock at 80 ps in class rdma: p1 (5 B)")


def test_drops_are_counted_by_place_and_cause(tmp_path):
    full, corrupt = DROP_CAUSES.index("headroom_full"), DROP_CAUSES.index("corrupt")
    rows = [{"ingress_port": 4, "egress_port": -1, "class": -1, "cause": corrupt}]
    rows += [{"ingress_port": 2, "egress_port": 3, "class": 1, "cause": full}] * 2
    rows += [{"ingress_port": 2, "egress_port": 3, "class": 1, "cause": corrupt}]
    found = drops.worst_places(table(tmp_path, "drops", rows))
    assert found == [
        drops.DropPlace("p2", "p3", "rdma", "headroom_full", 2),
        drops.DropPlace("p2", "p3", "rdma", "corrupt", 1),
        drops.DropPlace("p4", None, None, "corrupt", 1),
    ]
    (first,) = drops.worst_places(table(tmp_path, "drops", rows), 1)
    assert first == found[0] and drops.worst_places(table(tmp_path, "drops", [])) == []
    lines = str(Summary("demo.run", {}, drop_places=found)).splitlines()
    assert "  p4            -            -      corrupt            1" in lines
    assert "ports that dropped most" in lines and "ports that dropped most" not in str(Summary("demo.run", {}))


def test_messages_that_only_lack_their_last_ack_are_told_apart(tmp_path):
    names = [FLOW_STATUSES.index(name) for name in ("done", "unfinished", "unfinished", "unfinished", "failed")]
    rows = [flow(1, time, status=status) for time, status in zip((5, 6, 7, -1, 8), names, strict=True)]
    flows = table(tmp_path, "flows", rows)
    assert fct.arrived(flows) == 2
    info = {"simulated_ps": 9, "messages": {"count": 5, "done": 1, "failed": 1, "unfinished": 3}}
    text = str(Summary("demo.run", info, sizes=fct.by_size(flows), arrived=2))
    assert "1 of 5 messages done, 1 failed, 3 unfinished (2 of them arrived, but not acknowledged)" in text


def test_incidents_are_counted_by_kind(tmp_path):
    kinds = list(EVENT_KINDS)
    rows = [
        {"time_ps": 5, "kind": kinds.index(0), "node": 1, "port": 2},
        {"time_ps": 6, "kind": kinds.index(2), "node": -1, "port": -1},
        {"time_ps": 9, "kind": kinds.index(0), "node": 1, "port": 3},
        {"time_ps": 9, "kind": kinds.index(6), "node": 2, "port": -1},
    ]
    found = incidents.by_kind(table(tmp_path, "events", rows))
    assert found == [
        incidents.Incident("link_down", 2, 5, 9, "p2"),
        incidents.Incident("routes", 1, 6, 6, ""),
        incidents.Incident("class_map", 1, 9, 9, "sw0"),
    ]


def test_a_pause_counts_its_children(tmp_path):
    # p2 pauses because p1 was paused by p0, twice; once after that pause was over; p4 because of the pause by p2.
    rows = [pause(0, 100, 0, 1, 5), pause(50, 200, 2, 3, 1), pause(150, 300, 2, 4, 1), pause(60, 90, 4, 5, 3)]
    rows += [pause(98, 99, 5, 4, 1), pause(100, 120, 5, 4, 1)]
    for row, parent in zip(rows, (-1, 0, 0, 2, 0, 0), strict=True):
        row["parent_port"] = parent
    parent, children = pauses.pause_parents(table(tmp_path, "pauses", rows))
    assert parent.tolist() == [-1, 0, -1, 1, 0, -1]
    assert children.tolist() == [2, 1, 0, 0, 0, 0]


def test_no_pauses(tmp_path):
    empty = table(tmp_path, "pauses", [])
    assert pauses.total(empty).count == 0
    assert [len(found) for found in pauses.pause_parents(empty)] == [0, 0]
    assert pauses.pausing_ports(empty) == [] and pauses.pause_roots(empty) == pauses.PauseRoots([], 0, 0, 0, 0, 0)
    assert "root" not in str(Summary("demo.run", {}, pause_roots=pauses.pause_roots(empty)))


def test_busiest_links_add_classes_before_the_peak(tmp_path):
    def row(port, start_ps, class_id, share):
        return {"start_ps": start_ps, "end_ps": start_ps + 100, "port": port, "class": class_id, "utilisation": share}

    rows = [row(0, 0, 0, 0.25), row(0, 0, 1, 0.5), row(0, 100, 1, 0.5), row(1, 0, 1, 0.625), row(1, 100, 1, 0.125)]
    links = utilisation.busiest_links(table(tmp_path, "ports", rows), end_ps=400)
    assert [(link.port, link.mean_utilisation, link.peak_utilisation) for link in links] == [
        ("p0", 125 / 400, 0.75),
        ("p1", 75 / 400, 0.625),
    ]
    assert utilisation.busiest_links(table(tmp_path, "ports", [])) == []
    over = [row(0, 0, 1, 1.004), row(0, 100, 1, 1.0)]  # the last frame of an interval reaches beyond it
    (link,) = utilisation.busiest_links(table(tmp_path, "ports", over), end_ps=200)
    assert (link.mean_utilisation, link.peak_utilisation) == (1.0, 1.0)


def test_a_run_may_end_before_its_last_interval(tmp_path):
    def row(start_ps, share, port=0):
        return {"start_ps": start_ps, "end_ps": start_ps + 100, "port": port, "utilisation": share}

    several = table(tmp_path, "ports", [row(0, 0.5), row(100, 0.25)])
    (link,) = utilisation.busiest_links(several, end_ps=125)
    assert link.mean_utilisation == 75 / 125 and link.peak_utilisation == 0.5, "not 1: 25 ps of the second are full"
    (link,) = utilisation.busiest_links(several)
    assert link.mean_utilisation == 75 / 200, "its end is not known"
    (link,) = utilisation.busiest_links(table(tmp_path, "ports", [row(0, 0.25)]), end_ps=25)
    assert (link.mean_utilisation, link.peak_utilisation) == (1.0, 1.0)


def summary():
    group = fct.Distribution("all", 3, 1, {"p50": 1.5e6, "max": math.inf}, {"p50": 1.25, "max": math.inf})
    info = {
        "name": "demo",
        "status": "finished",
        "seed": 3,
        "digest": "abcd",
        "simulated_ps": 2_000_000,
        "messages": {"count": 3, "done": 2, "failed": 0, "unfinished": 1, "not_run": 0},
        "totals": {"packet_hops": 30_000_000, "marks": 12, "cnps": 4, "drops_shared_full": 7, "retransmissions": 5},
        "cpu_seconds": 2.0,
        "packet_hops_per_cpu_second": 15_000_000,
        "peak_memory_bytes": 10**8,
        "invariants": [{"name": "time", "held": True, "detail": ""}],
        "trace": {"tables": ["flows"]},
        "findings": [{"severity": "error"}, {"severity": "warning"}, {"severity": "warning"}],
    }
    total = pauses.PauseTotal(2, 3_000_000, 2_000_000, {"xon": 1, "expiry": 1, "run_end": 0})
    return Summary("demo.run", info, sizes=[group], pauses=total)


def test_text_says_what_a_person_needs():
    text = str(summary())
    for part in (
        "demo: finished",
        "simulated 2.000 us; 2 of 3 messages done, 1 unfinished",
        "1 error, 2 warnings to look at before trusting the figures: see run.json",
        "pauses: 2, 3.000 us of paused time in all, the longest 2.000 us (ended 1 by expiry)",
        "marks: 12; CNPs: 4",
        "drops: 7 shared_full; retransmissions: 5",
        "all 1 held",
        "30.00 M packet hops in 2.00 CPU s: 15.00 M per CPU s",
        "seed 3, digest abcd",
        "tables in demo.run: flows",
    ):
        assert part in text
    assert "\x1b" not in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colour_only_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, pipe = Terminal(), io.StringIO()
    summary().show(terminal)
    summary().show(pipe)
    assert "\x1b[" in terminal.getvalue() and "demo: finished" in terminal.getvalue()
    assert pipe.getvalue() == f"{summary()}\n"
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    summary().show(plain)
    assert plain.getvalue() == pipe.getvalue()


def test_json_has_no_infinities():
    document = json.loads(json.dumps(summary().to_dict(), allow_nan=False))
    assert document["summary"]["sizes"][0]["fct_ps"] == {"p50": 1.5e6, "max": None}
    assert document["summary"]["sizes"][0]["unfinished"] == 1
    assert document["directory"] == "demo.run" and document["status"] == "finished"


@pytest.mark.parametrize(
    ("time_ps", "text"),
    [(0, "0 ps"), (999, "999 ps"), (1234, "1.234 ns"), (83_944_000, "83.94 us"), (2e12, "2.000 s"), (math.inf, "inf")],
)
def test_times(time_ps, text):
    assert time_text(time_ps) == text


def test_sizes_and_counts():
    assert [bytes_text(value) for value in (0, 999, 1500, 10**13)] == ["0 B", "999 B", "1.500 KB", "10.00 TB"]
    assert [count_text(value) for value in (0, 9_999_999, 12_345_678)] == ["0", "9,999,999", "12.35 M"]
