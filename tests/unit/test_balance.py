"""Balance: loads against pandas, collisions against a slow search along known paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

import fabemu
from fabemu.analysis.balance import COLLISIONS, FULL, balance
from fabemu.analysis.paths import data_paths
from fabemu.analysis.sampling import Samples
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.trace import read_batches, table_path
from tests.unit.written_run import write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def permutation():
    return fabemu.run(ROOT / "scenarios/permutation/fat-tree-k4.toml", overrides=["trace.interval=20us"])


@pytest.fixture(scope="module")
def web():
    overrides = ["fabric.leaves=3", "fabric.hosts_per_leaf=4", "fabric.spines=3", "until=300us", "trace.interval=10us"]
    return fabemu.run(ROOT / "scenarios/websearch-leaf-spine.toml", overrides=overrides)


@pytest.fixture(scope="module")
def incast():
    return fabemu.run(ROOT / "scenarios/incast/incast-16.toml", overrides=["workload.0.waves=1"])


@pytest.fixture(scope="module")
def rounded(permutation, tmp_path_factory):
    """Messages that end where others begin: times in steps of 20 us."""
    folder = tmp_path_factory.mktemp("rounded") / "copy.run"
    shutil.copytree(permutation.directory, folder)
    path = table_path(folder, "flows")
    flows = ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
    for name in ("first_sent_ps", "receiver_done_ps"):
        times = flows[name].to_numpy() // 20_000_000 * 20_000_000
        flows = flows.set_column(flows.column_names.index(name), flows.schema.field(name), pa.array(times))
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, flows.schema) as writer:
        writer.write_table(flows)
    return fabemu.load(folder)


def slow_collisions(run):
    """Users of every uplink at every instant, one message after the other."""
    plan = Source.open(run.directory).compiled.plan
    paths = data_paths(plan)
    uplinks = {
        int(port)
        for first, last in zip(plan.nexthop_start[:-1], plan.nexthop_start[1:], strict=True)
        if last - first > 1
        for port in plan.nexthop_port[first:last]
    }
    users: dict[int, list[tuple[int, int, int]]] = {}
    for row in run.flows.to_pylist():
        if row["first_sent_ps"] is None:
            continue
        end = row["receiver_done_ps"] or run.info["simulated_ps"]
        for port in paths.port[row["qp"]].tolist():
            if port in uplinks:
                users.setdefault(port, []).append((row["first_sent_ps"], end, row["qp"]))
    siblings = {port: [other for other in uplinks if plan.port_node[other] == plan.port_node[port]] for port in uplinks}

    def active(port, time_ps):
        return {qp for start, end, qp in users.get(port, ()) if start <= time_ps < end}

    found = {}
    for port, mine in users.items():
        times = sorted({time for other in siblings[port] for row in users.get(other, ()) for time in row[:2]})
        most, most_ps, idle, active_ps, shared_ps, avoidable_ps, sum_ps = 0, 0, 0, 0, 0, 0, 0
        for time, following in zip(times, [*times[1:], times[-1]], strict=True):
            here, length = len(active(port, time)), following - time
            unused = sum(not active(other, time) for other in siblings[port])
            if here > most:
                most, most_ps, idle = here, time, unused
            active_ps += length * (here > 0)
            shared_ps += length * (here > 1)
            avoidable_ps += length * (here > 1 and unused > 0)
            sum_ps += length * here
        if most > 1:
            row = (len({qp for _, _, qp in mine}), most, most_ps, sorted(active(port, most_ps))[:16], idle)
            found[port] = (*row, active_ps, shared_ps, avoidable_ps, pytest.approx(sum_ps / active_ps))
    return found


@pytest.mark.parametrize("name", ["permutation", "web", "incast", "rounded"])
def test_collisions_are_those_of_a_slow_search(name, request):
    run = request.getfixturevalue(name)
    names = Source.open(run.directory).compiled.port_names
    result = balance(run)
    columns = ("queue_pairs", "most", "most_ps", "together", "idle", "active_ps", "shared_ps", "avoidable_ps", "mean")
    found = {row["port"]: tuple(row[column] for column in columns) for row in result.collisions.to_pylist()}
    assert found == {names[port]: row for port, row in slow_collisions(run).items()}
    assert found
    assert result.collisions.equals(balance(run, rows=10).collisions), "whatever is held at a time"
    avoidable = result.collisions.column("avoidable_ps").to_pylist()
    assert avoidable == sorted(avoidable, reverse=True)


def test_collisions_of_a_permutation_are_known(permutation):
    # Every host has one queue pair that is busy all the time: users of a port are the paths through it.
    result = balance(permutation)
    first = result.collisions.to_pylist()[0]
    assert (first["port"], first["most"], first["queue_pairs"]) == ("agg0-0->core1", 3, 3)
    assert first["hosts"] == ["h1->h5", "h2->h9", "h3->h14"]
    assert first["idle"] == 1, "the other uplink of agg0-0"
    assert first["avoidable_ps"] == first["shared_ps"] > 0.9 * first["active_ps"]


@pytest.mark.parametrize("name", ["permutation", "web"])
def test_loads_against_pandas(name, request):
    run = request.getfixturevalue(name)
    result = balance(run)
    compiled = Source.open(run.directory).compiled
    frame = run.ports.to_pandas(strings_to_categorical=False).astype({"port": str, "node": str, "peer": str})
    tier_of = dict.fromkeys(compiled.node_names[: compiled.plan.host_count], "host")
    tier_of |= dict(zip(compiled.fabric.switch_names, compiled.fabric.switch_tiers, strict=True))
    span_ps = run.info["simulated_ps"]
    # The last interval may end after the run.
    frame["busy"] = frame.utilisation * (frame.end_ps - frame.start_ps)
    area = frame.queue_mean_bytes * (frame.end_ps - frame.start_ps)
    frame["length"] = frame.end_ps.clip(upper=span_ps) - frame.start_ps
    frame["utilisation"], frame["queue_mean_bytes"] = frame.busy / frame.length, area / frame.length
    everyone = pd.Series({port: "->".join(tier_of[end] for end in port.split("->")) for port in compiled.port_names})
    load = frame.groupby("port").busy.sum().reindex(everyone.index, fill_value=0) / span_ps
    tiers = result.tiers.to_pandas().set_index("tier")
    assert set(tiers.index) == set(everyone)
    for tier, row in tiers.iterrows():
        mine = load[everyone == tier]
        assert row.ports == len(mine) and row.used == (mine > 0).sum()
        assert row["mean"] == pytest.approx(mine.mean()) and row["max"] == pytest.approx(mine.max())
        assert row.max_over_mean == pytest.approx(mine.max() / mine.mean())
        assert row.jain == pytest.approx(mine.sum() ** 2 / len(mine) / (mine**2).sum())
        assert load[row.max_port] == pytest.approx(mine.max())
        assert row.bytes == frame[frame.port.map(everyone) == tier].bytes.sum()
    cells = frame.groupby(["start_ps", "port"]).utilisation.sum().unstack(fill_value=0)
    cells = cells.reindex(columns=everyone.index, fill_value=0)
    for row in result.intervals.to_pylist():
        mine = cells.loc[row["start_ps"], everyone == row["tier"]]
        assert row["mean"] == pytest.approx(mine.mean()) and row["max"] == pytest.approx(mine.max())
        assert row["jain"] == pytest.approx(mine.sum() ** 2 / len(mine) / (mine**2).sum())
    assert max(row["end_ps"] for row in result.intervals.to_pylist()) == span_ps
    assert len(result.intervals) == sum((cells.loc[:, everyone == tier].sum(axis=1) > 0).sum() for tier in tiers.index)
    # Uplinks in the intervals in which one of them was full, or had a frame waiting.
    length = frame.groupby("start_ps").length.first()
    waiting = frame.groupby(["start_ps", "port"]).queue_mean_bytes.sum().unstack(fill_value=0)
    waiting = waiting.reindex(columns=everyone.index, fill_value=0)
    below = {"edge": "edge->agg", "agg": "agg->core", "leaf": "leaf->spine"}
    for row in result.uplinks.to_pylist():
        tier = below[tier_of[row["node"]]]
        mine = [port for port in everyone.index if port.startswith(row["node"] + "->") and everyone[port] == tier]
        assert (row["ports"], row["tier"]) == (len(mine), tier)
        needed = (cells[mine] >= FULL).any(axis=1) | (waiting[mine] >= compiled.plan.mtu_bytes).any(axis=1)
        assert row["needed_ps"] == length[needed].sum()
        if needed.any():
            used = (cells[mine].mean(axis=1) * length)[needed].sum() / length[needed].sum()
            assert row["effective"] == pytest.approx(used)
            weight = cells[mine].sum(axis=1)[needed] * length[needed]
            index = cells[mine].sum(axis=1) ** 2 / len(mine) / (cells[mine] ** 2).sum(axis=1)
            assert row["jain"] == pytest.approx((index[needed] * weight).sum() / weight.sum())
        else:
            assert row["effective"] is None and row["jain"] is None
    assert any(row["needed_ps"] for row in result.uplinks.to_pylist())


def test_sprayed_queue_pairs_are_left_out_and_said_so():
    run = fabemu.run(ROOT / "scenarios/balancing/elephants-spray.toml", overrides=["until=50us"])
    result = balance(run)
    assert len(result.collisions) == 0 and result.collisions.schema == COLLISIONS
    assert any("8 of 8 queue pairs are in no collision here" in note for note in result.notes)


def port_row(start, port, utilisation, **others):
    node, peer = port.split("->")
    row = {"start_ps": start, "end_ps": start + 100, "node": node, "peer": peer, "port": port, "class": "rdma"}
    return row | {"utilisation": utilisation, "bytes": 10} | others


def test_without_a_plan_what_the_table_says(tmp_path):
    rows = [port_row(0, "a->s", 0.5), port_row(0, "s->t", 0.25), port_row(0, "s->t", 0.25, **{"class": "lossy"})]
    rows += [port_row(100, "s->t", 1.0), port_row(100, "s->b", 0.5)]
    flows = [{"op": 0, "src": "a", "dst": "b"}]
    result = balance(write_run(tmp_path, {"simulated_ps": 200}, flows=flows, ports=rows))
    tiers = {row["tier"]: row for row in result.tiers.to_pylist()}
    # The names of hosts are those of the dictionary of the flows table: here all devices.
    assert {tier: row["mean"] for tier, row in tiers.items()} == {"host->host": pytest.approx((0.25 + 0.75 + 0.25) / 3)}
    assert result.collisions is None and len(result.uplinks) == 0
    assert any("its plan is not known" in note for note in result.notes)
    late = [row["mean"] for row in result.intervals.to_pylist()]
    assert late == [pytest.approx(1 / 3), pytest.approx(0.5)], "three ports, classes added"


def test_an_interval_ends_with_the_run():
    """One message of 1 MB at 400 Gbps in 22.9 us, of an interval of 100 us."""
    run = fabemu.run(ROOT / "scenarios/smoke/two-hosts.toml")
    simulated_ps = run.info["simulated_ps"]
    (carried,) = [row for row in run.ports.to_pylist() if row["port"] == "h0->sw0"]
    assert carried["end_ps"] > 4 * simulated_ps
    use = carried["utilisation"] * carried["end_ps"] / simulated_ps
    assert 0.85 < use < 0.95
    result = balance(run)
    assert {row["tier"]: row["max"] for row in result.tiers.to_pylist()}["host->switch"] == pytest.approx(use)
    (interval,) = [row for row in result.intervals.to_pylist() if row["tier"] == "host->switch"]
    assert interval["end_ps"] == simulated_ps and interval["max"] == pytest.approx(use)
    link = run.summary().busiest_links[0]
    assert (link.mean_utilisation, link.peak_utilisation) == (pytest.approx(use), pytest.approx(use))


def test_missing_and_empty_tables(tmp_path, permutation):
    bare = balance(write_run(tmp_path / "bare"))
    assert len(bare.tiers) == 0 and any("loads are not known" in note for note in bare.notes)
    empty = balance(write_run(tmp_path / "empty", {"status": "interrupted"}, ports=[], flows=[]))
    assert len(empty.tiers) == 0 and "interrupted" in empty.notes[0]
    for table in ("flows", "ports"):
        path = table_path(permutation.directory, table)
        path.rename(path.with_suffix(".away"))
        try:
            result = balance(fabemu.load(permutation.directory))
        finally:
            path.with_suffix(".away").rename(path)
        assert any(("collisions" if table == "flows" else "loads") + " are not known" in note for note in result.notes)
        assert (result.collisions is None) == (table == "flows")
        assert (len(result.tiers) == 0) == (table == "ports")


def test_intervals_stay_whole_whatever_the_batches(tmp_path, monkeypatch):
    rows = [port_row(start, f"a->{peer}", 0.1) for start in (0, 100, 100, 200, 200, 200, 300) for peer in "xy"]
    run = write_run(tmp_path, ports=rows)
    for size in (1, 2, 3, 5, 100):
        monkeypatch.setattr("fabemu.analysis.batches.BATCH_ROWS", size)  # smaller ones are joined
        pieces = [
            piece["start_ps"].tolist() for piece in Samples(iter(run.ports.to_batches(max_chunksize=size)), ("port",))
        ]
        assert [time for piece in pieces for time in piece] == [row["start_ps"] for row in rows]
        assert len({time for piece in pieces for time in set(piece)}) == sum(len(set(piece)) for piece in pieces)
    mixed = write_run(tmp_path / "mixed", ports=[rows[-1], rows[0]])
    with pytest.raises(InputError, match="not in order of time"):
        list(Samples(read_batches(table_path(mixed.directory, "ports")), ("port",)))
