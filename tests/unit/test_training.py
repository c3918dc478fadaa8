"""Training steps: shapes of models, degrees, and times of steps against formulas."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fabemu
from fabemu.collectives.bounds import payload_bps, ring_all_reduce_ps
from fabemu.compile import compile_plan
from fabemu.cost.size import counts_of_scenario
from fabemu.errors import ScenarioError
from fabemu.scenario import scenario_from_dict
from fabemu.scenario.training import MODELS, ModelShape
from fabemu.units import UnitError, format_flops, parse_flops
from fabemu.workload.model_shape import embedding_parameters, layer_share, parameter_count, step_flops
from fabemu.workload.pipeline import ideal_bubble, layers_of_stages, stage_order, step_order

SWITCH = {"kind": "single-switch", "hosts": 8}
RAIL = {"kind": "rail", "nodes": 4, "gpus_per_node": 4, "spines": 4}
SMALL = {"layers": 4, "hidden": 256, "feed_forward": 512, "heads": 8, "vocabulary": 1000}
FEW_ACKS = {"ack_every": 64}  # one for every packet takes two hundredths of a link that also sends
US = 10**6


def training(**more):
    table = {"kind": "training", "shape": SMALL, "sequence": 64, "forward_time": "100us", **more}
    return {key: value for key, value in table.items() if value is not None}


def scenario(workload, fabric=SWITCH, **more):
    return {"fabric": fabric, "workload": [workload], **more}


def ran(tmp_path, workload, fabric=SWITCH, **more):
    run = fabemu.run(scenario(workload, fabric, **more), tmp_path / "run", force=True)
    assert run.info["messages"]["done"] == run.info["messages"]["count"]
    steps = run.table("steps").to_pandas()
    assert (steps.exposed_ps == steps[["tensor_ps", "expert_ps", "pipeline_ps", "data_ps"]].sum(axis=1)).all()
    # What ranks did in a step fills it, but for what the rounding of means takes.
    assert (steps.step_ps - steps.compute_ps - steps.exposed_ps).between(0, 5).all()
    assert steps.start_ps.tolist()[1:] == steps.end_ps.tolist()[:-1]
    return run, steps


# Shapes.


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("llama-3-8b", 8.03e9),  # model cards of the checkpoints
        ("llama-3-70b", 70.6e9),
        ("mixtral-8x7b", 46.7e9),
        ("opt-175b", 175e9),  # table 1 of the paper
    ],
)
def test_shipped_shapes_have_the_parameters_that_are_published(model, published) -> None:
    assert parameter_count(MODELS[model]) == pytest.approx(published, rel=0.01)


def test_mixtral_uses_thirteen_billion_parameters_per_token() -> None:
    shape = MODELS["mixtral-8x7b"]
    unused = shape.layers * layer_share(shape, 0).expert_parameters * (1 - shape.top_k / shape.experts)
    assert parameter_count(shape) - unused == pytest.approx(12.9e9, rel=0.01)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("sequence", [1, 4096])
def test_a_step_takes_six_flops_per_parameter_and_token(model, sequence) -> None:
    """6 N + 12 layers x hidden x sequence, N without norms and what is looked up, of experts those that are used."""
    shape = MODELS[model]
    norms = shape.hidden * (2 * shape.layers + 1)
    looked_up = 0 if shape.tied else embedding_parameters(shape)
    idle = shape.layers * layer_share(shape, 0).expert_parameters * (shape.experts - shape.top_k) // shape.experts
    used = parameter_count(shape) - norms - looked_up - idle
    assert step_flops(shape, sequence) == 6 * used + 12 * shape.layers * shape.hidden * sequence


@pytest.mark.parametrize("model", list(MODELS))
def test_tensor_and_expert_ranks_share_a_layer(model) -> None:
    shape = MODELS[model]
    whole, part = layer_share(shape, 128), layer_share(shape, 128, tensor=4, expert=min(shape.experts, 2))
    shared = 2 * shape.hidden + (shape.hidden * shape.experts if shape.experts > 1 else 0)
    assert 4 * (part.dense_parameters - shared) == whole.dense_parameters - shared
    assert part.expert_parameters * 4 * min(shape.experts, 2) == whole.expert_parameters
    assert 4 * part.attention_flops == whole.attention_flops


def test_keys_and_values_are_repeated_on_more_tensor_ranks_than_heads() -> None:
    shape = ModelShape(layers=1, hidden=64, feed_forward=64, heads=8, kv_heads=2, vocabulary=10)
    assert layer_share(shape, 0, 8).dense_parameters == 2 * 64 * 64 // 8 + 2 * 64 * 8 + 3 * 64 * 8 + 2 * 64


# Pipelines.


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 3), (2, 1), (4, 2), (4, 4), (4, 9), (7, 3)])
def test_stages_do_everything_once_and_after_their_neighbours(schedule, stages, micro_batches) -> None:
    order = list(step_order(stages, micro_batches, schedule))
    assert max(Counter(order).values()) == 1 and len(order) == 2 * stages * micro_batches
    place = {item: index for index, item in enumerate(order)}
    for stage, backward, number in order:
        if backward:
            assert place[stage, False, number] < place[stage, True, number]
        before = stage + 1 if backward else stage - 1
        if 0 <= before < stages:
            assert place[before, backward, number] < place[stage, backward, number]
    for stage in range(stages):
        mine = [(backward, number) for index, backward, number in order if index == stage]
        assert mine == stage_order(stage, stages, micro_batches, schedule)
        held = np.cumsum([-1 if backward else 1 for backward, _ in mine])
        # What 1F1B is for: no more micro-batches are under way than there are stages left.
        assert held.max() == (micro_batches if schedule == "gpipe" else min(stages - stage, micro_batches))


def test_layers_are_spread_as_evenly_as_can_be() -> None:
    assert layers_of_stages(10, 4) == [3, 3, 2, 2]
    assert layers_of_stages(8, 4) == [2, 2, 2, 2]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 4), (4, 12), (8, 4)])
def test_the_bubble_is_that_of_the_formula(tmp_path, schedule, stages, micro_batches) -> None:
    """Activations of 512 B take some microseconds, layers 10 ms: (p - 1) / (m + p - 1) of the step are waited."""
    shape = {**SMALL, "layers": 8}
    table = training(
        shape=shape,
        sequence=1,
        hosts=f"h0:h{stages - 1}",
        pipeline=stages,
        micro_batches=micro_batches,
        forward_time="10ms",
        backward_time="20ms",
        schedule=schedule,
        steps=2,
    )
    _, steps = ran(tmp_path, table)
    assert ideal_bubble(stages, micro_batches) == (stages - 1) / (micro_batches + stages - 1)
    assert steps.bubble_ideal.tolist() == [ideal_bubble(stages, micro_batches)] * 2
    assert steps.bubble_share.to_numpy() == pytest.approx([ideal_bubble(stages, micro_batches)] * 2, abs=5e-4)
    assert steps.compute_ps.tolist() == [micro_batches * 8 // stages * 3 * 10**10] * 2
    ideal_ps = (micro_batches + stages - 1) * 8 // stages * 3 * 10**10
    assert ((steps.step_ps >= ideal_ps) & (steps.step_ps < ideal_ps + 100 * US)).all()


def test_one_micro_batch_goes_there_and_back(tmp_path) -> None:
    """Every stage forward, every stage backward, and a message each between: exact to the picosecond."""
    run, steps = ran(tmp_path, training(hosts="h0:h3", pipeline=4))
    flows = run.flows.to_pandas()
    assert (flows.bytes == 64 * 256 * 2).all() and len(flows) == 6
    assert (flows.fct_ps == flows.ideal_ps).all()
    assert steps.step_ps.tolist() == [4 * (100 + 200) * US + int(flows.fct_ps.sum())]
    sent = run.table("collectives").to_pandas()
    assert (sent.operation == "send-recv").all() and (sent.purpose == "pipeline").all()
    assert sent.time_ps.tolist() == flows.sort_values("collective").fct_ps.tolist()


# Copies of the model.


SIZE = 2 * parameter_count(ModelShape(**SMALL))
"""Bytes of all gradients."""


def lasting_ps(tmp_path, operation, size_bytes, **more):
    """A collective alone, until all ranks may go on: from the first message of one run to that of the next."""
    table = {
        "kind": "collective",
        "operation": operation,
        "size": f"{size_bytes}B",
        "algorithm": "ring",
        "iterations": 2,
        "element": 2,
    }
    run = fabemu.run(scenario(table, **more), tmp_path / "alone", force=True)
    return int(np.diff(run.table("collectives").to_pandas().start_ps)[0])


def test_data_parallel_without_overlap_is_computing_and_an_all_reduce(tmp_path) -> None:
    shape = {**SMALL, "hidden": 512, "feed_forward": 2048}
    size = 2 * parameter_count(ModelShape(**shape))
    table = training(shape=shape, overlap=False, bucket="1GB", steps=2, micro_batches=3)
    run, steps = ran(tmp_path, table, nic=FEW_ACKS)
    table = run.table("collectives").to_pandas()
    assert table.bytes.tolist() == [size] * 2 and (table.purpose == "data").all()
    computing_ps = 3 * 4 * 300 * US
    assert steps.compute_ps.tolist() == [computing_ps] * 2
    assert steps.step_ps.tolist() == [computing_ps + lasting_ps(tmp_path, "all-reduce", size, nic=FEW_ACKS)] * 2
    # The formula, with the latency that a message has besides its bytes.
    rate_bps = payload_bps(400 * 10**9)
    flow = run.flows.to_pandas().iloc[0]
    latency_ps = flow.ideal_ps - flow.bytes * 8e12 / rate_bps
    assert steps.data_ps[0] == pytest.approx(ring_all_reduce_ps(8, size, rate_bps, latency_ps), rel=0.01)


def test_optimizer_sharding_adds_a_gather(tmp_path) -> None:
    table = training(overlap=False, bucket="1GB", sharded="optimizer", optimizer_time="50us")
    _, steps = ran(tmp_path, table)
    alone_ps = [lasting_ps(tmp_path, name, SIZE) for name in ("reduce-scatter", "all-gather")]
    assert steps.step_ps.tolist() == [(4 * 300 + 50) * US + sum(alone_ps)]
    assert steps.compute_ps.tolist() == [(4 * 300 + 50) * US]


@pytest.mark.parametrize("sharded", ["none", "optimizer", "full"])
def test_overlap_never_costs_and_hides_what_it_can(tmp_path, sharded) -> None:
    times = {}
    moved = {}
    for overlap in (True, False):
        run, steps = ran(tmp_path, training(overlap=overlap, bucket="200KB", sharded=sharded, steps=2))
        times[overlap] = steps.step_ps.to_numpy()
        moved[overlap] = sorted(run.flows.to_pandas().bytes)
    assert moved[True] == moved[False]
    assert (times[True] < times[False]).all()
    assert (times[True] > 4 * 300 * US).all()


def test_buckets_are_whole_layers(tmp_path) -> None:
    run, _ = ran(tmp_path, training(hosts="h0:h1", bucket="1B"))
    sizes = run.table("collectives").to_pandas().bytes
    assert len(sizes) == 4 and sizes.sum() == SIZE
    layer = 2 * layer_share(ModelShape(**SMALL), 64).dense_parameters
    # Backward begins with the last layer, with which the output layer and its norm go; the embedding comes last.
    assert sizes.tolist() == [layer + 2 * (256 + 256_000), layer, layer, layer + 2 * 256_000]


def test_full_sharding_gathers_every_layer_forward_and_backward(tmp_path) -> None:
    run, _ = ran(tmp_path, training(sharded="full", micro_batches=3))
    runs = Counter(run.table("collectives").to_pandas().operation)
    assert runs == {"all-gather": 2 * 3 * 4, "reduce-scatter": 4}


# Groups.


def test_tensor_ranks_reduce_twice_a_layer_each_way(tmp_path) -> None:
    run, steps = ran(tmp_path, training(tensor=8, micro_batches=2, tensor_algorithm="ring"))
    table = run.table("collectives").to_pandas()
    assert (table.purpose == "tensor").all() and len(table) == 2 * 4 * 4
    assert (table.bytes == 64 * 256 * 2).all()
    alone_ps = lasting_ps(tmp_path, "all-reduce", 64 * 256 * 2)
    assert steps.step_ps.tolist() == [2 * 4 * 300 * US + 32 * alone_ps]
    assert steps.tensor_ps[0] == 32 * alone_ps and steps.data_ps[0] == steps.pipeline_ps[0] == 0


def test_experts_get_and_give_back_tokens_each_way(tmp_path) -> None:
    shape = {**SMALL, "experts": 4, "top_k": 2}
    run, steps = ran(tmp_path, training(shape=shape, expert=4, bucket="1GB", tensor=2))
    table = run.table("collectives").to_pandas()
    moved = table[table.purpose == "expert"]
    assert Counter(moved.operation) == {"moe-dispatch": 4 * 2 * 2, "moe-combine": 4 * 2 * 2}
    # A tensor rank has half of the tokens, each goes to two experts.
    assert (moved.bytes == 32 * 2 * 256 * 2).all() and (moved.ranks == 4).all()
    assert (moved.messages == 4 * 3).all()
    assert steps.expert_ps[0] > 0 and steps.tensor_ps[0] > 0
    # No two of these ranks have the same experts: what is left is attention, norms and embeddings.
    share = layer_share(ModelShape(**shape), 64, tensor=2)
    dense = 4 * share.dense_parameters + 256 + 2 * embedding_parameters(ModelShape(**shape), 2)
    assert table[table.purpose == "data"].bytes.tolist() == [2 * dense] * 2


def test_ranks_count_through_tensor_first_and_stages_last() -> None:
    """Of 16 ranks on four servers: tensor groups inside, data across pairs of servers, stages across halves."""
    table = training(tensor=4, pipeline=2, data=2, bucket="1GB")
    compiled = compile_plan(scenario_from_dict(scenario(table, RAIL, scale_up={})))
    flows, items = compiled.flows, compiled.graph.collectives
    purpose = np.array([items[number].purpose for number in flows.collective])
    node = compiled.fabric.host_node
    assert (node[flows.src] == node[flows.dst])[purpose == "tensor"].all()
    apart = np.abs(node[flows.src] - node[flows.dst])
    assert (apart[purpose == "data"] == 1).all()
    assert (apart[purpose == "pipeline"] == 2).all()
    assert (flows.src % 4 == flows.dst % 4)[purpose != "tensor"].all()


def test_placement_decides_what_goes_by_the_fabric(tmp_path) -> None:
    steps = {}
    for placement in ("packed", "spread"):
        table = training(tensor=4, data=2, job="a", forward_time="10us")
        job = [{"name": "a", "ranks": 8, "placement": placement}]
        _, steps[placement] = ran(tmp_path, table, RAIL, scale_up={}, job=job)
    assert steps["spread"].tensor_ps[0] > 2 * steps["packed"].tensor_ps[0]
    assert steps["packed"].job.tolist() == ["a"]


def test_everything_at_once_is_the_same_every_time(tmp_path) -> None:
    shape = {**SMALL, "experts": 4, "top_k": 2}
    table = training(
        shape=shape,
        tensor=2,
        pipeline=2,
        expert=2,
        sharded="full",
        micro_batches=2,
        steps=2,
        channels=2,
        qps=2,
        reduce_rate="800Gbps",
        verb="send",
    )
    digests, tables = set(), []
    for _ in range(2):
        run, _ = ran(tmp_path, table, RAIL, scale_up={}, seed=7)
        digests.add(run.info["digest"])
        tables.append((tmp_path / "run" / "steps.arrow").read_bytes())
    assert len(digests) == 1 and tables[0] == tables[1]


def test_a_straggler_holds_up_its_step(tmp_path) -> None:
    job = [{"name": "a", "ranks": 4, "straggler": [{"rank": 3, "slowdown": 2}]}]
    plain, slow = (
        ran(
            tmp_path,
            training(job="a", bucket="1GB", overlap=False),
            {"kind": "rail", "nodes": 4, "gpus_per_node": 1, "spines": 1},
            job=item,
        )[1]
        for item in ([{"name": "a", "ranks": 4}], job)
    )
    # What the others send first has come when the slow one is ready: less than the whole all-reduce is left.
    lost_ps = slow.step_ps[0] - plain.step_ps[0]
    assert 4 * 300 * US - plain.data_ps[0] / 6 < lost_ps <= 4 * 300 * US
    assert slow.compute_ps[0] == plain.compute_ps[0] * 5 // 4


def test_steps_that_were_cut_off_have_no_times(tmp_path) -> None:
    run = fabemu.run(scenario(training(steps=3, bucket="1GB"), until="2ms"), tmp_path / "run")
    steps = run.table("steps").to_pandas()
    assert steps.end_ps.notna().tolist() == [True, False, False]
    assert steps.compute_ps.tolist()[0] == 1200 * US and steps.utilisation.isna().all()
    text = str(run.summary())
    assert "training steps" in text and "1 of 3" in text
    assert run.summary().to_dict()["summary"]["steps"][0]["unfinished"] == 2


def test_flops_give_times_and_a_utilisation(tmp_path) -> None:
    """On one rank nothing is waited for: the model's FLOPs at the rate that it achieves."""
    table = training(hosts="h0", forward_time=None, flops="100GFLOP/s", peak="400GFLOP/s", micro_batches=2)
    _, steps = ran(tmp_path, table)
    flops = 2 * 64 * step_flops(ModelShape(**SMALL), 64)
    assert steps.tokens.tolist() == [128]
    assert steps.step_ps[0] == pytest.approx(flops / 100e9 * 1e12, abs=100)
    assert steps.utilisation[0] == pytest.approx(0.25) and steps.flops[0] == pytest.approx(100e9)
    assert steps.tokens_per_s[0] == pytest.approx(128 / (steps.step_ps[0] * 1e-12))


def test_a_run_without_training_has_no_steps(tmp_path) -> None:
    table = {"kind": "collective", "operation": "all-reduce", "size": "1KB"}
    fabemu.run(scenario(table), tmp_path / "run")
    assert not (tmp_path / "run" / "steps.arrow").exists()


# What is written wrongly.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"tensor": 2, "pipeline": 2, "data": 4},
            "tensor 2 x pipeline 2 x data 4 = 16, but there are 8 ranks: data = 2",
        ),
        ({"shape": {**SMALL, "heads": 16}, "tensor": 16, "data": 1}, "= 16, but there are 8 ranks: take other degrees"),
        ({"pipeline": 3}, "tensor 1 x pipeline 3 does not divide the 8 ranks"),
        ({"tensor": 3}, "must divide the 8 heads"),
        ({"shape": {**SMALL, "heads": 16, "kv_heads": 4}, "tensor": 8}, None),
        ({"shape": {**SMALL, "hidden": 240, "heads": 12, "kv_heads": 4}, "tensor": 6}, "must divide the 4 kv_heads"),
        ({"shape": {**SMALL, "feed_forward": 510}, "tensor": 4}, "must divide feed_forward = 510"),
        ({"shape": {**SMALL, "heads": 7}}, "must divide hidden = 256"),
        ({"shape": {**SMALL, "kv_heads": 3}}, "must divide heads = 8"),
        ({"shape": {**SMALL, "top_k": 2}}, "there are 1 experts"),
        ({"pipeline": 8}, "there are 4 layers"),
        ({"expert": 2}, "the model has no experts"),
        ({"shape": {**SMALL, "experts": 8}, "expert": 3}, "must divide the 8 experts"),
        ({"shape": {**SMALL, "experts": 8}, "expert": 8, "data": 4, "tensor": 2}, "must divide data = 4"),
        (
            {"shape": {**SMALL, "experts": 8}, "expert": 8, "tensor": 2},
            "must divide the data ranks, of which there are",
        ),
        ({"model": "llama-3-8b"}, "model and shape are both given"),
        ({"model": "llama-3-8", "shape": None}, 'did you mean "llama-3-8b"?'),
        ({"shape": None}, 'give "model"'),
        ({"layers": 2}, "write it in [workload.shape]"),
        ({"forward_time": None}, 'give one of "flops"'),
        ({"flops": "1TFLOP/s"}, "flops and forward_time are both given"),
        ({"flops": "1TFLOP/s", "forward_time": None, "backward_time": "1us"}, "goes with forward_time"),
        ({"flops": "400Gbps", "forward_time": None}, "is not a unit of rate of computation"),
        ({"tensor": 4, "tensor_algorithm": "ring", "stop": "5us"}, "use steps"),
        ({"verb": "read"}, "training writes or sends"),
        ({"steps": 1_000_000, "micro_batches": 1000}, "is 4,000,000,000: at most 10,000,000 are built"),
        ({"forward_time": "1000000s", "micro_batches": 10}, "more than 2^62 ps"),
        ({"forward_time": None, "flops": "1FLOP/s", "sequence": 10**6}, "flops: computing takes more than 2^62 ps"),
        ({"sequence": 10**6, "micro_batch": 10**6, "element": 10**6}, "micro_batch: makes messages of up to"),
        ({"schedule": "interleaved"}, '"1f1b" or "gpipe"'),
    ],
)
def test_what_does_not_fit_is_said(change, words) -> None:
    if words is None:
        compile_plan(scenario_from_dict(scenario(training(**change))))
        return
    with pytest.raises(ScenarioError) as caught:
        compile_plan(scenario_from_dict(scenario(training(**change))))
    assert words in str(caught.value)


@pytest.mark.parametrize(("purpose", "degrees"), [("tensor", {"tensor": 4}), ("data", {"data": 4})])
def test_hierarchical_all_reduces_need_even_nodes(purpose, degrees) -> None:
    hosts = ["n0g0", "n0g1", "n0g2", "n1g0"]
    table = training(hosts=hosts, **degrees, **{f"{purpose}_algorithm": "hierarchical"})
    with pytest.raises(ScenarioError, match=f"{purpose}_algorithm.*as many ranks on every node"):
        compile_plan(scenario_from_dict(scenario(table, RAIL, scale_up={})))


def test_a_size_is_known_before_anything_is_built() -> None:
    """No more messages than there are, and nearly all of those between experts and stages."""
    shape = {**SMALL, "experts": 4, "top_k": 2}
    for degrees in ({"tensor": 2, "pipeline": 2, "expert": 2}, {"expert": 4}, {"pipeline": 4}, {"tensor": 8}):
        table = scenario_from_dict(scenario(training(shape=shape, **degrees, micro_batches=3, steps=2)))
        compiled = compile_plan(table)
        purposes = [compiled.graph.collectives[number].purpose for number in compiled.flows.collective]
        counted = counts_of_scenario(table).messages
        exact = sum(purpose in ("expert", "pipeline") for purpose in purposes)
        assert exact <= counted <= len(compiled.flows)
        assert counted > exact or degrees.get("tensor", 1) == 1


def test_rates_of_computation() -> None:
    assert parse_flops("400TFLOP/s") == parse_flops("0.4 PFLOPS") == 4 * 10**14
    assert format_flops(4 * 10**14) == "400TFLOP/s" and format_flops(15 * 10**14) == "1.5PFLOP/s"
    for wrong, words in (
        ("0TFLOP/s", "above 0"),
        (400, "needs a unit"),
        ("5tflops", "did you mean"),
        ("x", "is not a"),
    ):
        with pytest.raises(UnitError, match=words):
            parse_flops(wrong)
