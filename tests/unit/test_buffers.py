"""Buffers: percentiles against pandas, headroom and thresholds against the plan by hand."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

import fabemu
from fabemu.analysis.buffers import buffers
from fabemu.recorded.source import Source
from fabemu.trace import table_path
from tests.unit.written_run import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def incast(tmp_path_factory):
    """Without congestion control in small buffers: pauses everywhere."""
    return fabemu.run(
        ROOT / "scenarios/incast/incast-16.toml",
        tmp_path_factory.mktemp("buffers") / "incast.run",
        overrides=["nic.cc.kind=none", "switch.buffer=6MiB"],
    )


@pytest.fixture(scope="module")
def classes():
    return fabemu.run(ROOT / "scenarios/incidents/lossless-beside-lossy.toml")


def with_headroom(run, folder, values):
    """A copy of the run whose ports table has these values in the column headroom_max_bytes; None takes it away."""
    shutil.copytree(run.directory, folder)
    path = table_path(folder, "ports")
    old = ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
    new = old.select([name for name in old.column_names if name != "headroom_max_bytes"])
    if values is not None:
        new = new.append_column("headroom_max_bytes", pa.array(values, pa.int64()))
    metadata = dict(old.schema.metadata)
    if values is None:
        metadata[b"fabemu.schema_version"] = b"1"
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, new.schema.with_metadata(metadata)) as writer:
        writer.write_table(new)
    return fabemu.load(folder)


@pytest.mark.parametrize("name", ["incast", "classes"])
def test_percentiles_of_queues_against_sorting(name, request):
    run = request.getfixturevalue(name)
    compiled = Source.open(run.directory).compiled
    plan = compiled.plan
    tier_of = ["host"] * plan.host_count + compiled.fabric.switch_tiers
    tier_of_port = {
        name: f"{tier_of[node]}->{tier_of[plan.port_node[peer]]}"
        for name, node, peer in zip(compiled.port_names, plan.port_node, plan.port_peer, strict=True)
    }
    rows = run.ports.to_pylist()
    intervals = math.ceil(max(run.info["simulated_ps"], max(row["end_ps"] for row in rows)) / plan.sample_ps)
    found = {(row["tier"], row["class"], row["figure"]): row for row in buffers(run).queues.to_pylist()}
    seen = {(tier_of_port[row["port"]], row["class"]) for row in rows if row["queue_max_bytes"]}
    assert seen == {key[:2] for key in found} and len(found) == 2 * len(seen)
    for (tier, class_name, figure), row in found.items():
        ports = sum(other == tier for other in tier_of_port.values())
        values = [
            float(other[figure])
            for other in rows
            if (tier_of_port[other["port"]], other["class"]) == (tier, class_name)
        ]
        values = sorted(values + [0.0] * (ports * intervals - len(values)))
        assert (row["ports"], row["intervals"]) == (ports, len(values))
        for percentile in ("p50", "p90", "p99", "p99.9"):
            share = float(percentile[1:]) / 100
            assert row[percentile] == values[math.ceil(round(share * len(values), 9)) - 1]
        assert row["max"] == values[-1]


def test_headroom_at_xoff_is_a_lower_bound(incast, tmp_path):
    run = with_headroom(incast, tmp_path / "copy", None)
    result = buffers(run)
    plan = Source.open(run.directory).compiled.plan
    most = {}
    for row in run.pauses.to_pylist():
        key = row["port"], row["class"]
        most[key] = max(most.get(key, 0), row["headroom_bytes"])
    assert any(most.values())
    assert len(result.headroom) == np.count_nonzero(plan.port_node >= plan.host_count) == 64
    for row in result.headroom.to_pylist():
        assert row["used_bytes"] == most.get((row["port"], row["class"]), 0)
        assert row["configured_bytes"] == row["used_bytes"] + row["unused_bytes"] > 0
        assert row["exact"] == (row["used_bytes"] == 0)
    assert any("lower bound" in note for note in result.notes)
    ids = Source.open(run.directory).compiled.fabric.node_ids
    for row in result.switches.to_pylist():
        mine = [other for other in result.headroom.to_pylist() if other["node"] == row["node"]]
        assert row["configured_bytes"] == sum(other["configured_bytes"] for other in mine)
        assert row["used_bytes"] == sum(other["used_bytes"] for other in mine)
        assert row["unused_bytes"] == row["configured_bytes"] - row["used_bytes"]
        reserved = plan.pq_reserved_bytes.reshape(plan.port_count, -1)[plan.port_node == ids[row["node"]]].sum()
        assert row["pool_bytes"] + row["configured_bytes"] + reserved == row["buffer_bytes"] == 6 * 2**20
        assert row["unused_share"] == row["unused_bytes"] / row["buffer_bytes"]
        assert row["exact"] == all(other["exact"] for other in mine)


def test_headroom_of_the_ports_table_is_exact(incast, tmp_path):
    run = with_headroom(incast, tmp_path / "copy", np.arange(len(incast.ports)) * 7 % 50_000)
    result = buffers(run)
    most = {}
    for row in run.ports.to_pylist():
        key = row["port"], row["class"]
        most[key] = max(most.get(key, 0), row["headroom_max_bytes"])
    assert not any("headroom used" in note for note in result.notes)
    for row in result.headroom.to_pylist():
        assert row["used_bytes"] == most.get((row["port"], row["class"]), 0) and row["exact"]
    shares = [row["used_bytes"] / row["configured_bytes"] for row in result.headroom.to_pylist()]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0


def test_headroom_in_use_is_at_least_that_at_xoff(incast, tmp_path):
    bounds = buffers(with_headroom(incast, tmp_path / "copy", None)).headroom.to_pylist()
    lowest = {(row["port"], row["class"]): row["used_bytes"] for row in bounds}
    rows = buffers(incast).headroom.to_pylist()
    assert all(row["exact"] for row in rows)
    assert all(lowest[row["port"], row["class"]] <= row["used_bytes"] <= row["configured_bytes"] for row in rows)
    assert sum(row["used_bytes"] for row in rows) > 2 * sum(lowest.values()), "most of it comes after XOFF"


def test_thresholds_of_an_incast_by_hand(incast):
    result = buffers(incast)
    compiled = Source.open(incast.directory).compiled
    first, *others = [row for row in result.thresholds.to_pylist() if row["node"] == "leaf0"]
    assert (first["port"], first["class"], first["tier"]) == ("leaf0->h0", "rdma", "leaf->host")
    rows = [row for row in incast.ports.to_pylist() if row["port"] == "leaf0->h0"]
    assert first["queue_max_bytes"] == max(row["queue_max_bytes"] for row in rows)
    assert first["max_ps"] == next(
        row["start_ps"] for row in rows if row["queue_max_bytes"] == first["queue_max_bytes"]
    )
    # alpha = 1/8 at every port: T = P / 8 / (1 + 1/8) = P / 9, and the reserve.
    pool, reserved = 5_370_552, 4096
    assert first["xoff_bytes"] == pytest.approx(pool / 9 + reserved, abs=1)
    assert first["of_xoff"] == first["queue_max_bytes"] / first["xoff_bytes"] > 1
    assert first["xoffs"] == sum(row["egress_port"] == "leaf0->h0" for row in incast.pauses.to_pylist()) > 0
    assert (first["kmin_bytes"], first["kmax_bytes"]) == (400_000, 1_600_000)
    intervals = math.ceil(max(incast.info["simulated_ps"], incast.ports["end_ps"].to_numpy().max()) / 20e6)
    assert compiled.plan.sample_ps == 20_000_000
    assert first["above_kmin"] == sum(row["queue_mean_bytes"] > 400_000 for row in rows) / intervals > 0
    assert first["above_kmax"] == sum(row["queue_mean_bytes"] > 1_600_000 for row in rows) / intervals
    assert first["limit_bytes"] is None
    assert all(row["of_xoff"] <= first["of_xoff"] for row in others)


def test_lossy_queues_have_a_limit_instead(classes):
    rows = {(row["port"], row["class"]): row for row in buffers(classes).thresholds.to_pylist()}
    lossy, lossless = rows["sw0->h8", "bulk"], rows["sw0->h8", "storage"]
    # Egress alpha 1: half of the pool.
    assert lossy["limit_bytes"] == 3_908_626 // 2
    assert lossy["of_limit"] == lossy["queue_max_bytes"] / lossy["limit_bytes"]
    assert lossy["xoff_bytes"] is None and lossy["xoffs"] is None
    assert lossless["limit_bytes"] is None and lossless["xoffs"] > 0


def test_missing_tables_and_plan(tmp_path, classes):
    result = buffers(write_run(tmp_path / "bare"))
    assert len(result.queues) == 0 and result.headroom is None and result.thresholds is None
    assert any("queues are not known" in note for note in result.notes)
    row = {"start_ps": 0, "end_ps": 10, "node": "a", "port": "a->b", "peer": "b", "class": "x"}
    rows = [row | {"queue_max_bytes": 9, "queue_mean_bytes": 3.5}, row | {"start_ps": 10, "end_ps": 20}]
    result = buffers(write_run(tmp_path / "plain", {"simulated_ps": 40}, ports=rows))
    most = next(row for row in result.queues.to_pylist() if row["figure"] == "queue_max_bytes")
    assert (most["intervals"], most["p50"], most["p90"], most["max"]) == (4, 0.0, 9.0, 9.0)
    for table, note in (("ports", "queues are not known"), ("pauses", "pauses are not known")):
        path = table_path(classes.directory, table)
        path.rename(path.with_suffix(".away"))
        try:
            result = buffers(fabemu.load(classes.directory))
        finally:
            path.with_suffix(".away").rename(path)
        assert any(note in text for text in result.notes)
        assert len(result.headroom) == 9
        if table == "pauses":
            assert result.thresholds.column("xoffs").null_count == len(result.thresholds)
