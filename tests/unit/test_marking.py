"""Marking: curves, rates and fairness against slow ways, and by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fabemu
from fabemu.analysis.fairness import BINS_LEAST, HOLD, converged, jain_index, periods
from fabemu.analysis.marking import bottlenecks, marking
from fabemu.analysis.paths import Paths, data_paths
from fabemu.analysis.rates import rates
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from tests.property.strategies import example_settings
from tests.unit.written_run import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def incast():
    overrides = ["workload.0.size=4MB", "workload.0.waves=1", 'workload.0.senders="h8:h13"']
    return fabemu.run(ROOT / "scenarios/incast/incast-16.toml", overrides=overrides, trace="budget")


@pytest.fixture(scope="module")
def result(incast):
    return marking(incast)


# Marks against the queue.


def test_curve_against_a_slow_way(incast, result):
    compiled = Source.open(incast.directory).compiled
    plan = compiled.plan
    tiers = ["host"] * plan.host_count + compiled.fabric.switch_tiers
    rows = [row for row in incast.ports.to_pylist() if row["node"][0] != "h" and row["class"] == "rdma"]
    seen = 0
    for point in result.curve.to_pylist():
        assert (point["kmin_bytes"], point["kmax_bytes"]) == (400_000, 1_600_000)
        assert point["pmax"] == pytest.approx(0.2)
        intervals = frames = marks = 0
        expected = 0.0
        for row in rows:
            port = compiled.port_names.index(row["port"])
            tier = f"{tiers[plan.port_node[port]]}->{tiers[plan.port_node[plan.port_peer[port]]]}"
            length = row["queue_mean_bytes"]
            if (tier, row["class"]) != (point["tier"], point["class"]):
                continue
            if point["from_bytes"] <= length < (point["to_bytes"] or math.inf):
                intervals, frames, marks = intervals + 1, frames + row["frames"], marks + row["marks"]
                red = 0.2 * (length - 400_000) / 1_200_000
                expected += row["frames"] * (0 if length <= 400_000 else 1 if length > 1_600_000 else red)
        assert (point["intervals"], point["frames"], point["marks"]) == (intervals, frames, marks)
        assert point["rate"] == (marks / frames if frames else None)
        assert point["expected"] == (pytest.approx(expected / frames) if frames else None)
        seen += intervals
    assert seen == len(rows)
    assert sum(point["marks"] for point in result.curve.to_pylist()) == incast.info["totals"]["marks"] > 0
    certain = [point for point in result.curve.to_pylist() if point["from_bytes"] >= 2_400_000]
    assert certain and all(point["rate"] == 1 == point["expected"] for point in certain)


def test_classes_without_marks_have_no_curve():
    run = fabemu.run(ROOT / "scenarios/smoke/two-hosts.toml", overrides=["switch.ecn.enabled=false"])
    assert len(marking(run).curve) == 0


# Rates.


def slow_rates(run, bin_ps, first_ps, hosts):
    found = {}
    for row in run.packets.to_pylist():
        if row["node"] in hosts and row["kind"] in ("data", "cnp") and row["qp"] is not None:
            if row["kind"] == "cnp" and row["time_ps"] < first_ps:
                continue
            cell = found.setdefault((row["qp"], (row["time_ps"] - first_ps) // bin_ps), [0, 0])
            cell[0 if row["kind"] == "data" else 1] += row["frame_bytes"] if row["kind"] == "data" else 1
    return found


def test_rates_against_a_slow_way(incast, result):
    hosts = {f"h{number}" for number in range(32)}
    first_ps = min(row["time_ps"] for row in incast.packets.to_pylist() if row["kind"] == "data")
    expected = slow_rates(incast, result.bin_ps, first_ps, hosts)
    found = {}
    for row in result.rates.to_pylist():
        place = (row["start_ps"] - first_ps) // result.bin_ps
        found[row["qp"], place] = [row["bytes"], row["cnps"]]
        assert row["rate_bps"] == pytest.approx(row["bytes"] * 8e12 / result.bin_ps)
        assert (row["receiver"], row["sender"]) == ("h0", f"h{8 + row['qp']}")
    assert found == expected
    assert sum(cell[1] for cell in found.values()) == incast.info["totals"]["cnps"] > 0
    payload = sum(row["bytes"] for row in incast.flows.to_pylist())
    assert payload < sum(cell[0] for cell in found.values()) < 1.05 * payload


def frame(time_ps, qp, size=1000, node="a", kind="data"):
    return {"time_ps": time_ps, "qp": qp, "frame_bytes": size, "node": node, "kind": kind, "port": "a->b"}


def test_rates_by_hand(tmp_path):
    rows = [frame(100, 5), frame(100, 2, 10), frame(101, 2, node="switch"), frame(150, 5, kind="cnp", node="b")]
    rows += [frame(199, 5, 500), frame(200, 5, 70), frame(230, 7, kind="ack"), frame(420, 2, 9), frame(421, 3, 1)]
    run = write_run(tmp_path, packets=rows)
    found = rates(iter(run.batches("packets")), {"a", "b"}.__contains__, bin_ps=100, queue_pairs=2)
    assert (found.qp.tolist(), found.first_ps, found.total_bytes.tolist()) == ([5, 2], 100, [0, 0, 19, 1, 0, 1570])
    assert found.sent_bytes.tolist() == [[1500, 70, 0, 0], [10, 0, 0, 9]]
    assert found.cnps.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]]
    with pytest.raises(InputError, match="bins of 0 ps are too short"):
        rates(run.packets, {"a"}.__contains__, bin_ps=0)
    nothing = rates(run.packets, set().__contains__)
    assert len(nothing.qp) == 0 and nothing.sent_bytes.size == 0


def test_bins_reach_the_last_notification(tmp_path):
    late = [
        frame(399, 0, kind="cnp", node="b"),
        frame(901, 1, kind="cnp", node="b"),
        frame(990, 7, kind="cnp", node="b"),
    ]
    run = write_run(tmp_path, packets=[frame(100, 0), frame(150, 1, 10), *late])
    found = rates(run.packets, {"a", "b"}.__contains__, bin_ps=100)
    assert found.sent_bytes.tolist() == [[1000] + [0] * 8, [10] + [0] * 8]
    assert found.cnps.tolist() == [[0, 0, 1] + [0] * 6, [0] * 8 + [1]], "a queue pair without data is none"
    kept = rates(run.packets, {"a", "b"}.__contains__, bin_ps=100, queue_pairs=1)
    assert kept.cnps.tolist() == [[0, 0, 1]], "of the queue pairs that are kept"


def test_too_many_bins_say_how_long_they_must_be(tmp_path):
    run = write_run(tmp_path, packets=[frame(0, 0), frame(10**9 - 1, 1)])
    with pytest.raises(InputError, match="take at least 100 ps"):
        rates(run.packets, {"a"}.__contains__, bin_ps=1)
    assert rates(run.packets, {"a"}.__contains__, bin_ps=100).sent_bytes.shape == (2, 10**7)


def test_usual_bins_hold_some_frames_of_each_queue_pair(tmp_path):
    many = write_run(tmp_path / "many", packets=[frame(time, time % 2) for time in range(0, 1_000_000, 10)])
    assert rates(many.packets, {"a"}.__contains__).bin_ps == 5000, "200 bins"
    few = write_run(tmp_path / "few", packets=[frame(time, time % 2) for time in range(0, 1_000_000, 1001)])
    assert rates(few.packets, {"a"}.__contains__).bin_ps == 50_000, "20 frames of each take 40,040 ps"


# Fairness.


def test_convergence_by_hand():
    fair = np.array([[9, 5, 5, 4, 5], [1, 5, 4, 5, 5]])
    assert converged(fair, 0.25) == 1
    assert converged(fair, 0.1) is None, "two bins are too few"
    assert converged(fair[:, :3], 0.25) is None
    assert converged(np.zeros((2, 9)), 0.25) is None, "nothing is not fair"
    assert jain_index(fair).tolist() == pytest.approx([100 / 164, 1, 81 / 82, 81 / 82, 1])
    assert np.isnan(jain_index(np.zeros((3, 1)))[0])


@example_settings()
@given(st.data())
def test_convergence_is_the_first_bin_from_which_all_stay(data):
    shape = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 12))
    amounts = np.array(
        data.draw(st.lists(st.integers(4, 8), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    )
    amounts = amounts.reshape(shape)
    within = data.draw(st.sampled_from([0.1, 0.25, 0.5]))

    def near(at):
        mean = amounts[:, at].sum() / shape[0]
        return all(abs(amount - mean) <= within * mean for amount in amounts[:, at])

    starts = [at for at in range(shape[1]) if all(near(later) for later in range(at, shape[1]))]
    expected = starts[0] if starts and shape[1] - starts[0] >= HOLD else None
    assert converged(amounts, within) == expected


@example_settings()
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(1, 300)), min_size=1, max_size=8),
    st.integers(0, 50),
)
def test_periods_are_times_with_the_same_users(times, first_ps):
    bin_ps, bins = 10, 60
    row, start, length = (np.array(column) for column in zip(*times, strict=True))
    found = periods(row, start, start + length, first_ps, bin_ps, bins)
    busy = {}
    for number, begin, size in times:
        busy.setdefault(number, set()).update(range(begin, begin + size))
    for instants in busy.values():
        for time in range(800):
            # A gap below a bin is none.
            if time not in instants and (before := {time - back for back in range(1, bin_ps + 1)} & instants):
                after = {max(before) + 1 + ahead for ahead in range(bin_ps + 1)} & instants
                if any(later > time for later in after):
                    instants.add(time)
    for period in found:
        assert len(period.bins) >= BINS_LEAST and len(period.members) >= 2
        for number in period.bins:
            for time in range(first_ps + number * bin_ps, first_ps + (number + 1) * bin_ps):
                assert {user for user, instants in busy.items() if time in instants} == set(period.members.tolist())
    users = [frozenset(user for user, instants in busy.items() if time in instants) for time in range(800)]
    for number in range(bins - BINS_LEAST + 1):
        begin = first_ps + number * bin_ps
        whole = set(users[begin : begin + BINS_LEAST * bin_ps])
        if len(whole) == 1 and len(next(iter(whole))) >= 2:
            assert any(number in period.bins for period in found)


def test_bottlenecks_by_hand():
    port = np.array([[0, 2, 4], [1, 2, 5], [1, 3, -1], [-1, -1, -1]], np.int32)
    paths = Paths(port, np.ones(4, bool), np.zeros(4, np.int32), np.zeros(4, np.int32))
    rate = np.array([100, 100, 100, 10, 100, 100])
    assert bottlenecks(paths, np.array([7, 5, 3]), rate).tolist() == [2, 2, 3, -1]


def test_fairness_of_an_incast(incast, result):
    plan = Source.open(incast.directory).compiled.plan
    assert (data_paths(plan).receiver == 0).all()
    table = result.fairness.to_pylist()
    assert {(row["port"], row["class"]) for row in table} == {("leaf0->h0", "rdma")}
    amounts = {(row["qp"], row["start_ps"]): row["bytes"] for row in result.rates.to_pylist()}
    starts = [row["start_ps"] for row in table]
    assert starts == sorted(starts) and len(set(starts)) == len(starts)
    first = result.convergence.to_pylist()[0]
    assert (first["queue_pairs"], first["start_ps"]) == (6, 0)
    for row in table:
        if row["start_ps"] + result.bin_ps > first["end_ps"]:
            continue
        sent = [amounts.get((qp, row["start_ps"]), 0) for qp in range(6)]
        assert row["queue_pairs"] == 6
        assert row["rate_bps"] == pytest.approx(sum(sent) * 8e12 / result.bin_ps)
        fair = sum(sent) ** 2 / 6 / sum(size**2 for size in sent) if sum(sent) else None
        assert row["jain"] == (None if fair is None else pytest.approx(fair))
    inside = [row["jain"] for row in table if row["start_ps"] + result.bin_ps <= first["end_ps"]]
    assert len(inside) >= BINS_LEAST
    inside = [fair for fair in inside if fair is not None]
    assert first["jain_mean"] == pytest.approx(sum(inside) / len(inside))


def test_without_congestion_control_equal_senders_are_fair_at_once():
    overrides = ["nic.cc.kind=none", "workload.0.size=4MB", "workload.0.waves=1", 'workload.0.senders="h8:h9"']
    run = fabemu.run(ROOT / "scenarios/incast/incast-16.toml", overrides=overrides, trace="budget")
    (row,) = marking(run, within=0.1).convergence.to_pylist()
    assert (row["port"], row["queue_pairs"], row["converged_ps"]) == ("leaf0->h0", 2, 0)
    assert row["jain_mean"] > 0.99


# Bad input.


def test_missing_tables_say_what_gives_them(tmp_path, incast):
    run = fabemu.run(ROOT / "scenarios/smoke/two-hosts.toml")
    plain = marking(run)
    assert plain.rates is None and plain.fairness is None and plain.bin_ps is None
    assert any("--trace budget will do" in note for note in plain.notes)
    bare = marking(write_run(tmp_path / "bare"))
    assert len(bare.curve) == 0 and any("marks against queues are not known" in note for note in bare.notes)
    rows = [frame(0, 0), frame(50, 0, node="s")]
    flows = [{"op": 0, "src": "a", "dst": "b", "qp": 0}]
    ports = [
        {"start_ps": 0, "end_ps": 10, "node": "s", "port": "s->b", "peer": "b", "class": "x", "frames": 4, "marks": 1}
        | {"queue_mean_bytes": 5000.0}
    ]
    result = marking(write_run(tmp_path / "few", packets=rows, flows=flows, ports=ports), bin_ps=10)
    assert result.fairness is None and any("fairness is not known" in note for note in result.notes)
    (point,) = result.curve.to_pylist()
    assert (point["from_bytes"], point["to_bytes"], point["rate"], point["expected"]) == (4096.0, 8192.0, 0.25, None)
    few = marking(incast, queue_pairs=2)
    assert any("the 2 queue pairs that sent most of 6" in note for note in few.notes)
    assert set(few.rates.column("qp").to_pylist()) <= set(range(6)) and len(few.rates) > 0
