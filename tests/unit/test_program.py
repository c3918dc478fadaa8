"""Collectives of a scenario: what the ranks do, when, and what the tables say of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fabemu._core.engine import Engine

import fabemu
from fabemu.collectives.schedule import split
from fabemu.compile import compile_plan
from fabemu.errors import ScenarioError
from fabemu.plan import OP_CALC, OP_RECV, OP_SCALE_UP, OP_SEND
from fabemu.rate import bytes_ps
from fabemu.scenario import scenario_from_dict
from fabemu.workload.collective import collective_schedule
from fabemu.workload.context import WorkloadContext
from fabemu.workload.hosts import HostNames

SWITCH = {"kind": "single-switch", "hosts": 8}
NODES = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 4, "gpus_per_node": 4}
US = 10**6


def scenario(workload, fabric=SWITCH, **more):
    items = workload if isinstance(workload, list) else [workload]
    return {"fabric": fabric, "workload": items, **more}


def collective(operation="all-reduce", size="1MB", **more):
    return {"kind": "collective", "operation": operation, "size": size, **more}


def ran(tmp_path, *args, **kwargs):
    run = fabemu.run(scenario(*args, **kwargs), tmp_path / "run")
    assert run.info["messages"]["done"] == run.info["messages"]["count"]
    return run


def test_every_algorithm_moves_the_bytes_that_it_must(tmp_path) -> None:
    """Reduce-scatter and all-gather: no rank of n sends less than 2 (n - 1) / n of the data; a tree twice at most."""
    for algorithm, least, most in (("ring", 1.75, 1.75), ("halving-doubling", 1.75, 1.75), ("tree", 1.0, 4.0)):
        run = ran(tmp_path / algorithm, collective(algorithm=algorithm, size="800KB"))
        flows = run.flows.to_pandas()
        sent = flows.groupby("src", observed=True)["bytes"].sum()
        assert (sent <= most * 800_000).all()
        if least == most:
            assert (sent == least * 800_000).all()
        total = run.table("collectives").to_pandas()
        assert total.network_bytes.tolist() == [flows["bytes"].sum()]
        assert total.algorithm.tolist() == [algorithm]


def test_the_runs_of_a_rank_follow_each_other(tmp_path) -> None:
    """What a rank sends in a run is posted after all that it has sent and received in the one before, and computed."""
    run = ran(tmp_path, collective(iterations=3, compute="7us", algorithm="ring", size="80KB", channels=2, qps=2))
    flows = run.flows.to_pandas()
    assert sorted(flows.collective.unique()) == [0, 1, 2]
    for host in [f"h{index}" for index in range(8)]:
        for iteration in (1, 2):
            before = flows[flows.collective == iteration - 1]
            done = max(
                before[before.src == host].sender_done_ps.max(), before[before.dst == host].receiver_done_ps.max()
            )
            mine = flows[(flows.collective == iteration) & (flows.src == host)]
            assert mine.posted_ps.min() == done + 7 * US
    table = run.table("collectives").to_pandas()
    for _, row in table.iterrows():
        mine = flows[flows.collective == row.collective]
        assert row.end_ps == mine.receiver_done_ps.max()
        assert row.time_ps == row.end_ps - row.start_ps >= row.ideal_ps
        assert row.busbw_bps == pytest.approx(row.algbw_bps * 1.75)
        last = flows[flows.op == row.last_flow].iloc[0]
        assert last.receiver_done_ps == row.end_ps and last.dst == row.last_host


def test_messages_are_cut_over_channels_and_queue_pairs() -> None:
    plain = compile_plan(scenario_from_dict(scenario(collective(algorithm="ring", size="8001B"))))
    cut = compile_plan(scenario_from_dict(scenario(collective(algorithm="ring", size="8001B", channels=2, qps=3))))
    assert plain.flows.bytes.sum() == cut.flows.bytes.sum() == 14 * 8001
    assert plain.plan.qp_count == 8 and cut.plan.qp_count == 8 * 2 * 3
    for pair in ((0, 1), (7, 0)):
        per_pair = [
            int(item.flows.bytes[(item.flows.src == pair[0]) & (item.flows.dst == pair[1])].sum())
            for item in (plain, cut)
        ]
        assert per_pair[0] == per_pair[1]


def test_what_is_received_is_added_at_a_rate(tmp_path) -> None:
    """Each of n - 1 reducing steps of a ring waits for its addition."""
    times = []
    for more in ({}, {"reduce_rate": "8Gbps"}):
        run = ran(tmp_path / str(len(more)), collective(algorithm="ring", size="8KB", **more))
        times.append(run.table("collectives").to_pandas().time_ps[0])
    # 1000 B at 1 B/ns; at once, the next message waits for the acknowledgement of what has come: 86 B at 400 Gb/s.
    assert times[1] - times[0] == 7 * (1000 * 10**3 - 86 * 20)


def test_rings_go_node_by_node_whatever_the_placement() -> None:
    """A spread job alternates between its servers; its ring still leaves each of them once."""
    table = scenario(
        collective(algorithm="ring", job="a"),
        NODES,
        scale_up={},
        job=[{"name": "a", "ranks": 8, "placement": "spread"}],
    )
    compiled = compile_plan(scenario_from_dict(table))
    kinds = compiled.plan.op_kind[: len(compiled.flows)]
    assert np.count_nonzero(kinds == OP_SEND) == 2 * 14
    assert np.count_nonzero(kinds == OP_SCALE_UP) == 6 * 14
    table["workload"][0]["order"] = "rank"
    by_rank = compile_plan(scenario_from_dict(table))
    assert np.count_nonzero(by_rank.plan.op_kind[: len(by_rank.flows)] == OP_SEND) == 8 * 14


def test_hierarchical_uses_every_adapter(tmp_path) -> None:
    run = ran(tmp_path, collective(algorithm="hierarchical", size="8MB"), NODES, scale_up={})
    flows = run.flows.to_pandas()
    outside = flows[flows.verb != "scale-up"]
    # Each rank has a quarter of the data to all-reduce between two servers.
    assert (outside.groupby("src", observed=True)["bytes"].sum() == 2_000_000).all()
    assert outside.qp.notna().all() and flows[flows.verb == "scale-up"].qp.isna().all()


def test_experts_get_the_tokens_that_are_routed_to_them() -> None:
    table = collective("moe-dispatch", tokens=4096, top_k=2, width=1024)
    table.pop("size")
    balanced = compile_plan(scenario_from_dict(scenario(table))).flows
    assert (np.bincount(balanced.src, balanced.bytes) == 4096 // 8 * 2 * 2048 * 7 // 8).all()
    drawn = compile_plan(scenario_from_dict(scenario({**table, "routing": "random"}))).flows
    assert not np.array_equal(drawn.bytes, balanced.bytes)
    assert drawn.bytes.sum() == pytest.approx(balanced.bytes.sum(), rel=0.05)
    back = compile_plan(scenario_from_dict(scenario({**table, "routing": "random", "operation": "moe-combine"}))).flows
    there = np.zeros((8, 8), int)
    there[drawn.src, drawn.dst] = drawn.bytes
    again = np.zeros((8, 8), int)
    again[back.src, back.dst] = back.bytes
    assert (again == there.T).all()


def test_an_uneven_exchange_moves_its_matrix(tmp_path) -> None:
    matrix = [[1000, 7, 0], [0, 5, 40_000], [123, 0, 9]]
    item = collective("all-to-all", matrix=[[f"{size}B" for size in row] for row in matrix], hosts="h2:h4")
    item.pop("size")
    flows = compile_plan(scenario_from_dict(scenario(item))).flows
    moved = np.zeros((3, 3), int)
    np.add.at(moved, (flows.src - 2, flows.dst - 2), flows.bytes)
    assert (moved == np.where(np.eye(3), 0, matrix)).all()
    run = fabemu.run(scenario(item), tmp_path / "run")
    assert run.info["scenario"]["workload"][0]["matrix"][1] == ["0B", "5B", "40KB"]
    assert run.info["messages"]["done"] == len(flows)


def test_what_goes_out_to_drawn_experts_comes_back() -> None:
    """Whatever stands between them in the scenario."""
    item = {"kind": "collective", "tokens": 999, "routing": "random", "width": 8}
    work = [{**item, "operation": "moe-dispatch"}, collective(), {**item, "operation": "moe-combine", "label": "back"}]
    compiled = compile_plan(scenario_from_dict(scenario(work)))
    flows, labels = compiled.flows, compiled.labels
    moved = []
    for index in (0, 2):
        mine = flows.label_id == index
        matrix = np.zeros((8, 8), int)
        matrix[flows.src[mine], flows.dst[mine]] = flows.bytes[mine]
        moved.append(matrix)
    assert labels[2] == "back" and (moved[1] == moved[0].T).all() and moved[0].any()


def test_messages_of_collectives_are_measured_when_they_are_posted(tmp_path) -> None:
    table = scenario(collective(iterations=3, compute="50us", algorithm="ring", size="80KB"))
    run = ran(tmp_path, table.pop("workload"), table.pop("fabric"), measure=["55us", "130us"])
    flows = run.flows.to_pandas()
    expected = (flows.posted_ps >= 55 * US) & (flows.posted_ps < 130 * US)
    assert 0 < expected.sum() < len(flows) and (flows.measured == expected).all()
    assert run.summary().sizes[0].count == expected.sum()


def test_bytes_count_when_they_have_come(tmp_path) -> None:
    work = [collective(job="a", size="8MB", algorithm="ring")]
    run = fabemu.run(scenario(work, job=[job(ranks=8)], until="100us"), tmp_path / "run")
    flows = run.flows.to_pandas()
    came = flows[flows.receiver_done_ps.notna()]["bytes"].sum()
    assert 0 < came < flows["bytes"].sum()
    assert run.table("jobs").to_pandas().network_bytes.tolist() == [came]
    assert run.table("collectives").to_pandas().network_bytes.tolist() == [came]


def test_long_idle_times_are_few_steps(tmp_path) -> None:
    """Hours of addition after the first of two messages."""
    run = ran(tmp_path, collective("reduce", size="2KB", hosts=["h0", "h1"], reduce_rate="1bps"))
    assert run.info["simulated_ps"] > 7_000 * 10**12
    assert run.info["cpu_seconds"] < 30


def test_every_rank_sends_to_the_next() -> None:
    flows = compile_plan(scenario_from_dict(scenario(collective("send-recv", size="1001B", channels=2)))).flows
    assert set(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)) == {(i, (i + 1) % 8) for i in range(8)}
    assert (np.bincount(flows.src, flows.bytes) == 1001).all()


def test_hierarchical_exchanges_cross_nodes_by_equal_places(tmp_path) -> None:
    """Whatever the order of the ranks: only equal places of two nodes talk by the fabric, and no byte is lost."""
    for hosts in ("all", ["h4", "h0", "h5", "h1", "h6", "h2", "h7", "h3"]):
        item = collective("all-to-all", size="800KB", algorithm="hierarchical", hosts=hosts)
        run = ran(tmp_path / str(len(hosts)), item, NODES, scale_up={})
        flows = run.flows.to_pandas()
        outside = flows[flows.verb != "scale-up"]
        places = [outside[end].astype(str).str[1:].astype(int) % 4 for end in ("src", "dst")]
        assert (places[0] == places[1]).all()
        # Four ranks of the other node, 100 kB for each, from every rank.
        assert outside.groupby("src", observed=True)["bytes"].sum().tolist() == [400_000] * 8


@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving-doubling", "hierarchical"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_message_is_posted_before_what_it_waits_for(algorithm, seed) -> None:
    """The schedule of the ranks holds on their hosts: placed at random, in channels, chunks and parts, with sums."""
    table = scenario(
        collective(algorithm=algorithm, job="a", size="200001B", channels=2, chunk="9KB", qps=2, reduce_rate="800Gbps"),
        {**NODES, "leaves": 4},
        scale_up={},
        seed=seed,
        job=[{"name": "a", "ranks": 8, "placement": "packed" if algorithm == "hierarchical" else "random"}],
    )
    loaded = scenario_from_dict(table)
    compiled = compile_plan(loaded)
    hosts = compiled.graph.jobs[0].hosts
    names = HostNames(compiled.fabric.host_names, compiled.fabric.switch_names)
    context = WorkloadContext(
        loaded, 0, names, compiled.host_rate_bps, Path(), "collective", 0, fabric=compiled.fabric, job_hosts=hosts
    )
    schedule, _, _ = collective_schedule(loaded.workload[0], context, hosts)
    schedule = split(schedule, 2)
    flows = compiled.flows
    assert (flows.src == hosts[schedule.src]).all() and (flows.dst == hosts[schedule.dst]).all()
    assert (flows.bytes == schedule.bytes).all()
    engine = Engine(compiled.plan)
    assert engine.run(1 << 60, 10**9) == 2
    ops = engine.ops()
    count = len(flows)
    adding_ps = np.where(schedule.reduce, bytes_ps(schedule.bytes, 800 * 10**9), 0)
    there_ps = ops["delivered_ps"][:count] + adding_ps
    posted_ps = ops["posted_ps"][:count]
    waits = np.diff(schedule.wait_start) > 0
    latest = np.maximum.reduceat(there_ps[schedule.wait], schedule.wait_start[:-1][waits])
    assert waits.any() and (posted_ps[waits] == latest).all()
    assert (posted_ps[~waits] == 0).all()


@pytest.mark.parametrize("change", [{"hosts": "h3"}, {"size": "0B"}])
def test_nothing_to_send_is_done_at_once(tmp_path, change) -> None:
    run = fabemu.run(scenario(collective(iterations=2, compute="5us", **change)), tmp_path / "run")
    assert run.info["status"] == "finished"
    assert run.info["simulated_ps"] == 10 * US
    table = run.table("collectives").to_pandas()
    assert table.messages.tolist() == [0, 0] and table.time_ps.tolist() == [0, 0]
    assert table.start_ps.tolist() == [0, 5 * US]
    assert run.summary().collectives[0].unfinished == 0


def test_workloads_of_a_job_use_its_hosts_alone() -> None:
    jobs = [job(hosts="h0:h3", straggler=[{"rank": 0, "slowdown": 10}])]
    some = collective(job="a", hosts=["h1", "h2"], compute="5us", size="2KB")
    compiled = compile_plan(scenario_from_dict(scenario(some, job=jobs)))
    # Rank 0 of the job takes no part.
    calcs = compiled.plan.op_kind == OP_CALC
    assert set(compiled.plan.op_duration_ps[calcs].tolist()) == {5 * US}
    with pytest.raises(ScenarioError, match='host "h4" is not of job "a"'):
        compile_plan(scenario_from_dict(scenario({**some, "hosts": ["h1", "h4"]}, job=jobs)))


def test_all_ranks_are_gpus() -> None:
    fabric = {"kind": "rail", "nodes": 2, "gpus_per_node": 4, "spines": 2}
    for frontend in ({"storage_hosts": 2, "converged": True}, {"storage_hosts": 2}):
        compiled = compile_plan(scenario_from_dict(scenario(collective(), {**fabric, "frontend": frontend})))
        assert compiled.graph.collectives[0].ranks == 8


def test_an_adapter_that_is_slow_holds_up_its_collective(tmp_path) -> None:
    """A straggler's link: every step of the ring waits for it."""
    times = []
    for link in ({}, {"override": [{"between": ["h3", "sw0"], "rate": "100Gbps"}]}):
        run = ran(
            tmp_path / str(len(times)),
            collective(algorithm="ring", size="8MB"),
            link=link,
            nic={"cc": {"kind": "none"}},
        )
        times.append(run.table("collectives").to_pandas().time_ps[0])
    assert 3.5 < times[1] / times[0] < 4.5


def test_the_ideal_holds_where_packets_take_several_paths(tmp_path) -> None:
    """Four links of 100 Gb/s carry a message of one host of 400 Gb/s together; one path could not."""
    fabric = {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 1, "spines": 4}
    more = {
        "link": {"rate": "400Gbps", "tier": {"fabric": {"rate": "100Gbps"}}},
        "switch": {"load_balancing": "spray"},
        "nic": {"retransmission": "selective", "reorder_window": 1024, "cc": {"kind": "none"}},
    }
    run = ran(tmp_path, collective("send-recv", size="4MB"), fabric, **more)
    table = run.table("collectives").to_pandas()
    assert (table.ideal_ps <= table.time_ps).all() and (table.ideal_ps > 0.8 * table.time_ps).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": "halving"}, "all-reduce has"),
        ({"operation": "gather", "algorithm": "ring"}, "no choice of algorithms"),
        ({"operation": "all-to-all", "algorithm": "ring"}, 'all-to-all has "pairwise" or "hierarchical"'),
        ({"root": 8}, "there are ranks 0 to 7"),
        ({"stop": "5us"}, "use iterations"),
        ({"verb": "read"}, "writes or sends"),
        ({"size": None}, '"size" is missing'),
        ({"operation": "moe-dispatch", "tokens": 8}, "leave it out"),
        ({"operation": "moe-dispatch", "size": None}, '"tokens" is missing'),
        ({"operation": "moe-dispatch", "size": None, "tokens": 8, "experts": 12}, "take 16"),
        ({"operation": "moe-dispatch", "size": None, "tokens": 8, "top_k": 9}, "there are 8 experts"),
        ({"algorithm": "hierarchical", "hosts": ["h0", "h1", "h2", "h4"], "fabric": NODES}, "as many ranks on every"),
        ({"job": "b"}, "no [[job]] tables"),
        ({"compute": "4000000s", "iterations": 9}, "more than 2^62 ps"),
        ({"size": "900000000GB"}, "at most 288,230,376,151,711,744 B with 8 ranks"),
        ({"operation": "all-to-all", "matrix": [["1B"]]}, "both given"),
        ({"operation": "all-to-all", "size": None, "matrix": [["1B", "2B"], ["1B"]]}, "has 1 entries for 2 ranks"),
        ({"operation": "all-to-all", "size": None, "matrix": [["1B", "2B"], ["1B", "0B"]]}, "has 2 rows, there are 8"),
        ({"size": None, "matrix": [["0B"]]}, "is for all-to-all alone"),
    ],
)
def test_collectives_that_cannot_be_are_refused(change, words) -> None:
    fabric = change.pop("fabric", SWITCH)
    item = {key: value for key, value in {**collective(), **change}.items() if value is not None}
    with pytest.raises(ScenarioError) as error:
        compile_plan(scenario_from_dict(scenario(item, fabric)))
    assert words in str(error.value)


def job(name="a", **more):
    return {"name": name, **more}


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("packed", [0, 1, 2, 3, 4, 5]),
        ("spread", [0, 4, 8, 12, 1, 5]),
        ("rail", [0, 4, 8, 12, 1, 5]),
    ],
)
def test_jobs_are_placed_as_they_ask(placement, expected) -> None:
    fabric = {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 4, "spines": 2, "gpus_per_node": 4}
    jobs = [job(ranks=6, placement=placement)]
    compiled = compile_plan(scenario_from_dict(scenario(collective(job="a"), fabric, job=jobs)))
    assert compiled.graph.jobs[0].hosts.tolist() == expected


def test_random_placement_follows_the_seed_and_takes_no_gpu_twice() -> None:
    fabric = {"kind": "leaf-spine", "leaves": 4, "hosts_per_leaf": 8, "spines": 2}
    jobs = [job("a", ranks=12, placement="random"), job("b", ranks=20, placement="random")]
    work = [collective(job="a"), collective(job="b")]
    found = []
    for seed in (1, 1, 2):
        compiled = compile_plan(scenario_from_dict(scenario(work, fabric, job=jobs, seed=seed)))
        a, b = (item.hosts.tolist() for item in compiled.graph.jobs)
        assert sorted(a + b) == list(range(32))
        found.append(a)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ([job(ranks=9)], "only 8 free GPUs"),
        ([job(ranks=5), job("b", ranks=4)], "5 belong to"),
        ([job(hosts=["h0", "h1"]), job("b", hosts=["h1", "h2"])], 'h1 belongs to job "a" already'),
        ([job(hosts="h9")], 'no host "h9"'),
        ([job(ranks=2), job(ranks=2)], "same name"),
        ([job(ranks=2, hosts="h0")], "give one of"),
        ([job(ranks=2, straggler=[{"rank": 2, "slowdown": 2}])], "ranks 0 to 1"),
        ([job(hosts=["h0", "h1"], straggler=[{"rank": 5, "slowdown": 2}])], "ranks 0 to 1"),
        ([job(ranks=2, straggler=[{"rank": 0, "slowdown": 0.5}])], "at least 1"),
        ([job(ranks=2), job("idle", ranks=2)], 'no workload has job = "idle"'),
    ],
)
def test_jobs_that_cannot_be_are_refused(jobs, words) -> None:
    work = [collective(job=item["name"], label=str(index)) for index, item in enumerate(jobs) if item["name"] != "idle"]
    with pytest.raises(ScenarioError) as error:
        compile_plan(scenario_from_dict(scenario(work, job=jobs)))
    assert words in str(error.value)


def test_a_label_belongs_to_one_job() -> None:
    jobs = [job(ranks=2), job("b", ranks=2)]
    work = [collective(job="a", label="x"), collective(job="b", label="x")]
    with pytest.raises(ScenarioError, match="different jobs need different labels"):
        scenario_from_dict(scenario(work, job=jobs))


def test_jobs_count_from_their_arrival_and_stragglers_hold_them_up(tmp_path) -> None:
    slow = [{"rank": 1, "slowdown": 3}]
    jobs = [job(ranks=4), job("b", ranks=4, start="50us", straggler=slow)]
    work = [collective(job=name, iterations=2, compute="40us", algorithm="ring", size="40KB") for name in ("a", "b")]
    run = ran(tmp_path, work, job=jobs)
    table = run.table("jobs").to_pandas().set_index("job")
    assert table.start_ps.tolist() == [0, 50 * US]
    assert table.compute_ps.tolist() == [80 * US, 2 * 40 * US * 6 // 4]
    # The slow rank computes 80 us more twice; some of the others' network time is hidden behind it.
    difference = table.completion_ps["b"] - table.completion_ps["a"]
    assert 155 * US < difference <= 160 * US
    share = 1 - table.compute_ps / table.completion_ps
    assert table.communication_share.to_numpy() == pytest.approx(share.to_numpy())
    assert table.messages.tolist() == [2 * 6 * 4] * 2
    assert set(run.flows.to_pandas().job.unique()) == {"a", "b"}


def test_a_job_that_is_cut_off_has_no_end(tmp_path) -> None:
    work = [collective(job="a", iterations=5, compute="40us")]
    run = fabemu.run(scenario(work, job=[job(ranks=4)], until="100us"), tmp_path / "run")
    jobs = run.table("jobs").to_pandas()
    assert jobs.end_ps.isna().all() and jobs.unfinished[0] > 0
    table = run.table("collectives").to_pandas()
    assert table.time_ps.notna().tolist() == [True, False, False, False, False]
    assert "jobs" in str(run.summary())


@pytest.mark.parametrize(
    ("pattern", "pairs", "size"),
    [
        ("round-robin", [(0, 6), (1, 7), (2, 6), (3, 7)], [1001] * 4),
        ("striped", [(0, 6), (0, 7), (1, 6), (1, 7), (2, 6), (2, 7), (3, 6), (3, 7)], [501, 500] * 4),
        ("one-to-all", [(0, 6), (0, 7), (1, 6), (1, 7), (2, 6), (2, 7), (3, 6), (3, 7)], [1001] * 8),
    ],
)
def test_transfers_pair_sources_and_destinations(pattern, pairs, size) -> None:
    item = {"kind": "transfer", "sources": "h0:h3", "destinations": "h6:h7", "size": "1001B", "pattern": pattern}
    flows = compile_plan(scenario_from_dict(scenario({**item, "count": 2, "period": "3us"}))).flows
    assert list(zip(flows.src.tolist(), flows.dst.tolist(), strict=True)) == pairs * 2
    assert flows.bytes.tolist() == size * 2
    assert flows.start_ps.tolist() == [0] * len(pairs) + [3 * US] * len(pairs)
    read = compile_plan(scenario_from_dict(scenario({**item, "verb": "read"}))).flows
    assert list(zip(read.dst.tolist(), read.src.tolist(), strict=True)) == pairs


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pattern": "one-to-one"}, "4 sources and 2 destinations"),
        ({"destinations": "h3:h7"}, 'host "h3" is a source and a destination'),
        ({"destinations": None}, '"destinations" is missing'),
    ],
)
def test_transfers_that_cannot_be_are_refused(change, words) -> None:
    item = {"kind": "transfer", "sources": "h0:h3", "destinations": "h6:h7", "size": "1KB", **change}
    with pytest.raises(ScenarioError) as error:
        compile_plan(scenario_from_dict(scenario({key: value for key, value in item.items() if value is not None})))
    assert words in str(error.value)


def test_checkpoints_of_a_job_come_from_its_hosts() -> None:
    work = [
        collective(job="a"),
        {"kind": "transfer", "job": "a", "destinations": "h7", "size": "1MB", "start": "5us"},
    ]
    compiled = compile_plan(scenario_from_dict(scenario(work, job=[job(ranks=3, start="1us")])))
    mine = compiled.flows.label_id == compiled.labels.index("transfer")
    assert compiled.flows.src[mine].tolist() == [0, 1, 2]
    assert set(compiled.flows.start_ps[mine].tolist()) == {6 * US}
    assert compiled.graph.job_of_label.tolist() == [0, 0]


def test_operations_of_a_plan_follow_the_schedule() -> None:
    compiled = compile_plan(scenario_from_dict(scenario(collective(algorithm="ring", size="8KB", iterations=2))))
    kind = compiled.plan.op_kind
    assert [int(np.count_nonzero(kind == which)) for which in (OP_SEND, OP_RECV, OP_CALC)] == [224, 224, 16]
    # In the first run nothing but what a step before it brings is waited for.
    first = compiled.graph.op_collective == 0
    sends = first & (kind == OP_SEND)
    assert sorted(set(compiled.plan.op_dependency_count[sends].tolist())) == [0, 1]
