"""Workloads: the flows they give, their draws, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fabemu.errors import InputError, ScenarioError
from fabemu.scenario import scenario_from_dict
from fabemu.topology.fabric import build_fabric
from fabemu.workload import compile_workload
from fabemu.workload.cdf import builtin_distribution
from fabemu.workload.flow import FlowTable, concatenate, flow_table

RATE_BPS = 100 * 10**9
US = 10**6


def compiled(*workloads, hosts=8, seed=1, base_dir=Path(), rate_bps=None, **top):
    scenario = scenario_from_dict(
        {"seed": seed, "fabric": {"kind": "single-switch", "hosts": hosts}, "workload": list(workloads), **top}
    )
    fabric = build_fabric(scenario, base_dir)
    rates = np.full(hosts, RATE_BPS) if rate_bps is None else np.asarray(rate_bps)
    return compile_workload(scenario, fabric, base_dir, rates).flows


def problem(*workloads, **keys):
    with pytest.raises(ScenarioError) as caught:
        compiled(*workloads, **keys)
    return str(caught.value)


def columns(table, rows=slice(None)):
    names = ("src", "dst", "bytes", "start_ps", "class_id", "sport")
    return [getattr(table, name)[rows].tolist() for name in names]


def of_label(table, label):
    return table.label_id == table.labels.index(label)


# --- Explicit flows


def test_flows_in_order_of_start_with_ties_in_file_order():
    table = compiled(
        {
            "kind": "flows",
            "start": "1us",
            "flow": [
                {"src": "h1", "dst": "h2", "size": "1KB", "start": "2us"},
                {"src": "h3", "dst": "h2", "size": "0B", "sport": 7},
                {"src": "h0", "dst": "h2", "size": "10TB"},
            ],
        }
    )
    assert columns(table) == [
        [3, 0, 1],
        [2, 2, 2],
        [0, 10**13, 1000],
        [US, US, 3 * US],
        [1, 1, 1],
        [7, -1, -1],
    ]
    assert table.qp.tolist() == table.after.tolist() == [-1, -1, -1]
    assert table.labels == ("flows",)
    assert [getattr(table, name).dtype.str[1:] for name in ("src", "bytes", "class_id", "qp")] == [
        "i4",
        "i8",
        "u1",
        "i4",
    ]


def test_flows_share_a_qp_by_name_source_and_destination():
    flows = [("h0", "h1", "x"), ("h0", "h1", "x"), ("h0", "h2", "x"), ("h0", "h1", None), ("h0", "h1", "y")]
    listed = [{"src": a, "dst": b, "size": "1B", **({"qp": qp} if qp else {})} for a, b, qp in flows]
    table = compiled({"kind": "flows", "flow": listed}, {"kind": "flows", "flow": listed})
    assert table.qp.tolist() == [0, 0, 1, -1, 2, 3, 3, 4, -1, 5]


def test_stop_leaves_later_flows_out():
    flows = [{"src": "h0", "dst": "h1", "size": "1B", "start": start} for start in ("0us", "5us", "9us")]
    assert compiled({"kind": "flows", "stop": "5us", "flow": flows}).start_ps.tolist() == [0]


def test_flows_of_wrong_hosts_are_all_reported():
    leaf_spine = {"kind": "leaf-spine", "leaves": 1, "hosts_per_leaf": 2, "spines": 1}
    scenario = scenario_from_dict(
        {
            "fabric": leaf_spine,
            "workload": [
                {"kind": "flows", "flow": [{"src": "h0", "dst": "leaf0", "size": "1B"}]},
                {"kind": "flows", "flow": [{"src": "h00", "dst": "h1", "size": "1B"}]},
            ],
        }
    )
    with pytest.raises(ScenarioError) as caught:
        compile_workload(scenario, build_fabric(scenario, Path()), Path(), np.full(2, RATE_BPS))
    assert str(caught.value).splitlines() == [
        'workload.0.flow.0.dst: "leaf0" is a switch: only hosts send and receive',
        'workload.1.flow.0.src: there is no host "h00" in the fabric; did you mean "h0"?',
    ]


# --- Host selectors


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("all", {0, 1, 2, 3, 4, 5, 6, 7}),
        ("h2:h4", {2, 3, 4}),
        (["h7", "h0:h1"], {0, 1, 7}),
        ("h[0-2]", {0, 1, 2}),
    ],
)
def test_host_selectors(selector, chosen):
    table = compiled({"kind": "permutation", "hosts": selector, "size": "1B"})
    assert set(table.src.tolist()) == set(table.dst.tolist()) == chosen


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("h3:h1", 'range "h3:h1" runs backwards: write "h1:h3"'),
        ("h0:h9", 'there is no host "h9" in the fabric'),
        ("x*", 'no host matches "x*"'),
        (["h1", "h0:h2"], 'host "h1" is listed twice'),
        ("sw0", '"sw0" is a switch: only hosts send and receive'),
    ],
)
def test_wrong_host_selectors(selector, message):
    text = problem({"kind": "permutation", "hosts": selector, "size": "1B"})
    assert text.startswith(f"workload.0.hosts: {message}")


# --- Poisson


def poisson(**keys):
    return {"kind": "poisson", "load": 0.5, "sizes": "WebSearch", "stop": "100ms", **keys}


def test_poisson_offers_its_load():
    table = compiled(poisson(stop="2s"), hosts=16)
    mean = builtin_distribution("WebSearch").mean_bytes
    expected = 16 * 0.5 * RATE_BPS / 8 * 2 / mean
    assert len(table) == pytest.approx(expected, abs=5 * expected**0.5)
    offered_bps = table.bytes.sum() * 8 / 2
    spread = (table.bytes.astype(float) ** 2).mean() ** 0.5 / mean / expected**0.5
    assert offered_bps == pytest.approx(16 * 0.5 * RATE_BPS, rel=5 * spread)


def test_poisson_arrivals_are_poisson():
    table = compiled(poisson(sizes="GoogleRPC2008", stop="5ms"))
    gaps = np.diff(table.start_ps) / np.diff(table.start_ps).mean()
    count = len(gaps)
    assert count > 5_000
    assert gaps.std() == pytest.approx(
        1, abs=5 * (2 / count) ** 0.5
    )  # the sample variance of exponentials has variance 8 / n
    assert (gaps > 1).mean() == pytest.approx(np.exp(-1), abs=5 * (0.24 / count) ** 0.5)
    assert np.all(np.diff(table.start_ps) >= 0)
    assert table.start_ps[-1] < 5 * 10**9


def test_poisson_senders_and_receivers_are_uniform():
    table = compiled(poisson(sizes="GoogleRPC2008", stop="5ms"), hosts=5)
    assert not np.any(table.src == table.dst)
    pairs = np.bincount(table.src * 5 + table.dst, minlength=25).reshape(5, 5)
    each = len(table) / 20
    assert np.all(np.abs(pairs[~np.eye(5, dtype=bool)] - each) < 5 * each**0.5)


def test_poisson_load_is_a_share_of_each_senders_own_rate():
    rates = [RATE_BPS] * 4 + [3 * RATE_BPS] * 4
    table = compiled(poisson(sizes="GoogleRPC2008", stop="5ms"), rate_bps=rates)
    fast = (table.src >= 4).mean()
    assert fast == pytest.approx(0.75, abs=5 * (0.19 / len(table)) ** 0.5)


def test_poisson_sources_and_destinations():
    table = compiled(poisson(sources="h0:h3", destinations=["h3", "h7"], sizes="Hadoop"))
    assert set(table.src.tolist()) == {0, 1, 2, 3}
    assert set(table.dst[table.src == 3].tolist()) == {7}
    assert set(table.dst[table.src == 0].tolist()) == {3, 7}


def test_adding_a_workload_changes_no_other():
    alone = compiled(poisson())
    incast = {"kind": "incast", "receiver": "h0", "fan_in": 3, "size": "1KB"}
    more = compiled(poisson(), incast, poisson(load=0.1))
    assert columns(more, of_label(more, "poisson-0")) == columns(alone)
    named = compiled(poisson(label="a"))
    before = compiled(incast, poisson(label="b"), poisson(label="a"))
    assert columns(before, of_label(before, "a")) == columns(named)
    assert columns(named) != columns(alone)


def test_equal_workloads_draw_differently():
    table = compiled(poisson(label="a"), poisson(label="b"))
    assert columns(table, of_label(table, "a")) != columns(table, of_label(table, "b"))


def test_later_stop_and_other_seed():
    short, long = compiled(poisson(stop="50ms")), compiled(poisson(stop="100ms"))
    assert columns(short) == columns(long, slice(len(short)))
    assert columns(compiled(poisson(), seed=2)) != columns(long)
    assert compiled(poisson(start="10us", stop="50ms")).start_ps[0] == short.start_ps[0] + 10 * US


def test_poisson_ends_with_the_run():
    table = compiled({"kind": "poisson", "load": 0.5}, until="20ms")
    assert 0 < table.start_ps[-1] < 20 * 10**9


def test_poisson_that_never_comes_is_empty():
    table = compiled(poisson(stop="1ns"))
    assert len(table) == 0 and table.labels == ("poisson",)


def test_poisson_refusals():
    assert problem(poisson(), rate_bps=[0] * 8) == "workload.0.hosts: no host has a link"
    assert (
        problem(poisson(sources="h0:h1"), rate_bps=[RATE_BPS, 0] + [RATE_BPS] * 6)
        == "workload.0.sources: host h1 has no link, so that a load means nothing"
    )
    assert problem(poisson(hosts="h3")) == "workload.0.hosts: host h3 has nobody to send to but itself"
    assert problem(poisson(stop="20000s")) == (
        "workload.0.stop: about 5.84e+08 flows would start until then; at most 50,000,000 are supported"
    )
    with pytest.raises(InputError, match=r"^workload\.0\.sizes: no size distribution 'WebSerch'"):
        compiled(poisson(sizes="WebSerch"))


@pytest.mark.parametrize("load", [0, -0.5, 1.5])
def test_load_out_of_range(load):
    assert "workload" in problem(poisson(load=load)) and "load" in problem(poisson(load=load))


def test_all_leaves_unlinked_hosts_out():
    table = compiled({"kind": "permutation", "size": "1B"}, rate_bps=[RATE_BPS, 0, RATE_BPS, 0] + [RATE_BPS] * 4)
    assert set(table.src.tolist()) == {0, 2, 4, 5, 6, 7}


# --- Incast


def test_incast_draws_senders_for_each_wave():
    table = compiled(
        {"kind": "incast", "receiver": "h3", "fan_in": 4, "size": "1MB", "waves": 20, "period": "10us", "start": "1us"}
    )
    assert len(table) == 80
    assert set(table.dst.tolist()) == {3}
    waves = table.src.reshape(20, 4)
    assert all(len(set(wave)) == 4 and 3 not in wave for wave in waves.tolist())
    assert len({tuple(wave) for wave in waves.tolist()}) > 5
    assert table.start_ps.reshape(20, 4)[:, 0].tolist() == [US + 10 * US * wave for wave in range(20)]


def test_incast_with_listed_senders_and_several_receivers():
    table = compiled({"kind": "incast", "receivers": ["h0", "h1"], "senders": "h4:h5", "size": "1B", "waves": 2})
    assert list(zip(table.src.tolist(), table.dst.tolist(), strict=True)) == [(4, 0), (5, 0), (4, 1), (5, 1)] * 2
    everybody = compiled({"kind": "incast", "receiver": "h2", "senders": "all", "size": "1B"})
    assert everybody.src.tolist() == [0, 1, 3, 4, 5, 6, 7]


def test_more_waves_keep_the_first():
    incast = {"kind": "incast", "receiver": "h3", "fan_in": 4, "size": "1MB"}
    few, many = compiled({**incast, "waves": 3}), compiled({**incast, "waves": 9})
    assert columns(few) == columns(many, slice(len(few)))


def test_incast_refusals():
    incast = {"kind": "incast", "receiver": "h0", "size": "1B"}
    assert problem({**incast, "fan_in": 8}) == "workload.0.fan_in = 8: there are only 7 hosts besides the receiver h0"
    assert problem({**incast, "senders": "h0:h2"}) == "workload.0.senders: the receiver h0 would send to itself"
    assert problem({**incast, "receiver": "h99", "fan_in": 1}).startswith(
        'workload.0.receivers: there is no host "h99"'
    )
    assert "too late to count" in problem({**incast, "fan_in": 1, "waves": 1_000_000, "period": "10s"})


# --- Permutation and all-to-all


def test_permutation_is_a_derangement_on_one_qp_per_host():
    for seed in range(20):
        table = compiled({"kind": "permutation", "size": "1KB", "count": 3}, seed=seed)
        src, dst, qp = (getattr(table, name).reshape(8, 3) for name in ("src", "dst", "qp"))
        assert src[:, 0].tolist() == list(range(8))
        assert sorted(dst[:, 0].tolist()) == list(range(8))
        assert not np.any(src == dst)
        assert np.all(qp == np.arange(8)[:, None])


def test_random_permutations_are_uniform():
    # The nine derangements of four hosts.
    found = [tuple(compiled({"kind": "permutation", "size": "1B"}, hosts=4, seed=s).dst.tolist()) for s in range(360)]
    counts = [found.count(item) for item in set(found)]
    assert len(counts) == 9
    assert sum((count - 40) ** 2 / 40 for count in counts) < 26.1  # chi-square, 8 degrees of freedom, p = 0.001


def test_shift_permutation():
    table = compiled({"kind": "permutation", "size": "1KB", "pattern": "shift", "shift": 3})
    assert table.dst.tolist() == [3, 4, 5, 6, 7, 0, 1, 2]
    assert table.qp.tolist() == [-1] * 8
    assert (
        problem({"kind": "permutation", "size": "1KB", "pattern": "shift", "shift": 16})
        == "workload.0.shift = 16: sends each of the 8 hosts to itself"
    )
    assert (
        problem({"kind": "permutation", "size": "1KB"}, hosts=1)
        == "workload.0.hosts: a permutation needs at least 2 hosts, there are 1"
    )


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_all_to_all(mode):
    table = compiled({"kind": "all-to-all", "size": "1KB", "mode": mode, "hosts": "h1:h4"})
    src, dst = table.src.reshape(3, 4), table.dst.reshape(3, 4)
    assert src.tolist() == [[1, 2, 3, 4]] * 3
    assert dst.tolist() == [[2, 3, 4, 1], [3, 4, 1, 2], [4, 1, 2, 3]]
    expected = [-1] * 12 if mode == "parallel" else [-1] * 4 + list(range(8))
    assert table.after.tolist() == expected


# --- The table


def test_after_and_qp_survive_concatenation():
    sequential = {"kind": "all-to-all", "size": "1KB", "mode": "sequential", "hosts": "h0:h2", "start": "2us"}
    table = compiled(sequential, {"kind": "permutation", "size": "1B", "count": 2, "start": "1us"}, sequential)
    waits = np.flatnonzero(table.after >= 0)
    assert len(waits) == 6
    for row in waits.tolist():
        before = int(table.after[row])
        assert before < row
        assert table.src[before] == table.src[row]
        assert table.label_id[before] == table.label_id[row]
    assert table.qp[:16].tolist() == np.repeat(np.arange(8), 2).tolist()
    assert table.labels == ("all-to-all-0", "permutation", "all-to-all-2")


def test_classes_are_numbered_in_served_order():
    flow = {"kind": "flows", "flow": [{"src": "h0", "dst": "h1", "size": "1B"}]}
    table = compiled({**flow, "class": "best-effort"}, flow, {**flow, "class": "cnp"})
    assert table.class_id.tolist() == [2, 1, 0]


def test_empty_table():
    table, _ = concatenate([])
    assert len(table) == 0 and table.labels == ()


def test_table_is_read_only_and_rows_keep_their_order():
    table = flow_table(np.array([0, 1, 0]), np.array([1, 0, 1]), 5, 0, class_id=0, after=np.array([-1, -1, 0]))
    assert isinstance(table, FlowTable)
    with pytest.raises(ValueError, match="read-only"):
        table.src[0] = 3
    kept = table.rows(np.array([True, False, True]))
    assert kept.after.tolist() == [-1, 0]
    with pytest.raises(ValueError, match="waits for one that goes"):
        table.rows(np.array([False, True, True]))
