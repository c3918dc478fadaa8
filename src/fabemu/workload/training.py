"""Steps of training: what every rank computes and sends, from the shape of a model and its parallel degrees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.scenario.training import Training
from fabemu.units import LIMIT
from fabemu.workload.communicator import Communicator, GroupError, Ledger
from fabemu.workload.context import WorkloadContext
from fabemu.workload.graph import GraphBuilder, OperationGraph, StepTrack
from fabemu.workload.line import Ends, Line
from fabemu.workload.model_shape import (
    BACKWARD,
    embedding_parameters,
    layer_share,
    output_flops,
    parameter_count,
    step_flops,
)
from fabemu.workload.pipeline import layers_of_stages, stage_order, step_order
from fabemu.workload.program import Program
from fabemu.workload.replica import DATA, Copies, Held, Replica

Int64s = NDArray[np.int64]

TENSOR, EXPERT, PIPELINE = "tensor", "expert", "pipeline"


def training_graph(table: Training, context: WorkloadContext) -> OperationGraph:
    """Operations of a `training` workload; docs/TRAINING.md says which.

    Raises
    ------
    ScenarioError
        A host is unknown, the degrees do not make up the ranks, or a collective cannot be done so by them.
    """
    hosts = context.ranks(table.hosts)
    degrees = rank_degrees(table, context, len(hosts))
    _refuse_too_large(table, context, degrees)
    builder = GraphBuilder(label=context.label, class_id=context.class_id, verb=context.verb, start_ps=table.start)
    program = Program(builder, hosts, slowdown=context.slowdown(hosts))
    ledger = Ledger(context.label)
    try:
        stages = _stages(table, context, degrees, program, ledger)
        for step in range(table.steps):
            for stage in stages:
                stage.begin(step)
            for index, backward, number in step_order(len(stages), table.micro_batches, table.schedule):
                stages[index].go(backward=backward, last=number == table.micro_batches - 1)
            for stage in stages:
                stage.replica.update()
    except GroupError as error:
        key = f"{error.purpose}_algorithm"
        raise context.error(key, str(error), f'"{getattr(table, key, "auto")}"') from None
    shape = table.resolved_shape
    tokens = degrees.data * table.micro_batches * table.micro_batch * table.sequence
    tracks = [stage.line.track() for stage in stages]
    columns: dict[str, Any] = {name: np.concatenate([track[name] for track in tracks]) for name in tracks[0]}
    track = StepTrack(
        label=context.label,
        start_ps=table.start,
        rank_count=len(hosts),
        steps=table.steps,
        stages=table.pipeline,
        micro_batches=table.micro_batches,
        tokens=tokens,
        flops=tokens * step_flops(shape, table.sequence),
        peak_flops=table.flops if table.peak is None else table.peak,
        **columns,
    )
    return builder.build(ledger.items, [track])


@dataclass(frozen=True)
class Degrees:
    """How ranks are spread: they count through tensor first, then expert, then copies of experts, then stages."""

    tensor: int
    expert: int
    data: int  # a multiple of expert
    pipeline: int

    @property
    def of_stage(self) -> int:
        """Ranks of a stage."""
        return self.tensor * self.data

    def tensor_groups(self) -> Int64s:
        """(G, R) ranks of a stage that share every matrix."""
        return np.arange(self.of_stage).reshape(-1, self.tensor)

    def data_groups(self) -> Int64s:
        """(G, R) ranks of a stage that have the same parameters, but for experts."""
        return self.tensor_groups().T

    def expert_groups(self) -> Int64s:
        """(G, R) ranks of a stage that have all experts together."""
        return self._by_expert().transpose(0, 2, 1).reshape(-1, self.expert)

    def expert_data_groups(self) -> Int64s:
        """(G, R) ranks of a stage that have the same experts."""
        return self._by_expert().transpose(1, 2, 0).reshape(-1, self.data // self.expert)

    def _by_expert(self) -> Int64s:
        return np.arange(self.of_stage).reshape(-1, self.expert, self.tensor)


def rank_degrees(table: Training, context: WorkloadContext, ranks: int) -> Degrees:
    """The degrees for so many ranks.

    Raises
    ------
    ScenarioError
        They do not make up the ranks.
    """
    rest, left = divmod(ranks, table.tensor * table.pipeline)
    product = f"tensor {table.tensor} x pipeline {table.pipeline}"
    if table.data is None and (left or not rest):
        raise context.error("", f"{product} does not divide the {ranks} ranks: take other degrees, or other hosts")
    data = rest if table.data is None else table.data
    total = table.tensor * table.pipeline * data
    if total != ranks:
        way = f"data = {rest} takes them all" if rest and not left else "take other degrees, or other hosts"
        raise context.error("data", f"{product} x data {data} = {total}, but there are {ranks} ranks: {way}", str(data))
    if data % table.expert:
        message = f"must divide the data ranks, of which there are {ranks} / ({product}) = {data}"
        raise context.error("expert", message, str(table.expert))
    return Degrees(table.tensor, table.expert, data, table.pipeline)


PASSES_MAX = 10_000_000
"""Layers that all micro-batches of all steps go through, there and back as one."""


def _refuse_too_large(table: Training, context: WorkloadContext, degrees: Degrees) -> None:
    """Refuse what cannot be built or does not fit the numbers of the engine."""
    shape, times = table.resolved_shape, _times(table, degrees)
    passes = table.steps * table.micro_batches * shape.layers
    if passes > PASSES_MAX:
        message = f"x micro_batches x layers is {passes:,}: at most {PASSES_MAX:,} are built; take fewer steps"
        raise context.error("steps", message, str(table.steps))
    stragglers = () if context.job is None else context.job.straggler
    slowest = max((float(item.slowdown) for item in stragglers), default=1.0)
    layer_ps = sum(times.attention) + sum(times.feed_forward)
    step_ps = table.micro_batches * (shape.layers * layer_ps + sum(times.output)) + table.optimizer_time
    if table.steps * step_ps * slowest >= LIMIT:
        key = "forward_time" if table.flops is None else "flops"
        raise context.error(key, "computing takes more than 2^62 ps in all: GPUs that are faster, or fewer steps")
    routed = table.micro_batch * table.sequence * shape.hidden * shape.top_k * table.element
    held = parameter_count(shape) * max(table.parameter_element, table.gradient_element)
    for key, size in (("micro_batch", routed), ("shape" if table.model is None else "model", held)):
        if size >= LIMIT:
            raise context.error(key, f"makes messages of up to {size:,} bytes; they must be below 2^62")


@dataclass(frozen=True, kw_only=True)
class _Times:
    """What a rank computes of a micro-batch forward and backward, in ps."""

    attention: tuple[int, int]
    feed_forward: tuple[int, int]
    output: tuple[int, int]


def _times(table: Training, degrees: Degrees) -> _Times:
    shape, tokens = table.resolved_shape, table.micro_batch * table.sequence
    share = layer_share(shape, table.sequence, degrees.tensor, degrees.expert)
    attention, feed_forward = share.attention_flops, share.feed_forward_flops
    if table.flops is not None:
        rate = table.flops

        def both(flops: int) -> tuple[int, int]:
            forward_ps, backward_ps = (
                (2 * tokens * flops * factor * 10**12 + rate) // (2 * rate) for factor in (1, BACKWARD)
            )
            return forward_ps, backward_ps

        return _Times(
            attention=both(attention), feed_forward=both(feed_forward), output=both(output_flops(shape, degrees.tensor))
        )
    forward = table.forward_time or 0
    backward = BACKWARD * forward if table.backward_time is None else table.backward_time
    # The time of a layer is given as a whole: its parts take as much of it as they compute.
    first = [whole * attention // (attention + feed_forward) for whole in (forward, backward)]
    return _Times(attention=(first[0], first[1]), feed_forward=(forward - first[0], backward - first[1]), output=(0, 0))


class _Stage:
    """Consecutive layers at all their ranks: cut over tensor ranks, repeated over data ranks."""

    def __init__(
        self,
        table: Training,
        program: Program,
        ledger: Ledger,
        line: Line,
        replica: Replica,
        tensor: Communicator,
        expert: Communicator,
        times: _Times,
        *,
        index: int,
        layers: int,
        lanes: int,
    ) -> None:
        self._table = table
        self._program = program
        self._ledger = ledger
        self.line = line
        self.replica = replica
        self._tensor = tensor
        self._expert = expert
        self._times = times
        self._index = index
        self._layers = layers
        self._lanes = lanes
        # By direction, backward or not: the stage that comes next, and what has come from the one before.
        self.next: dict[bool, _Stage] = {}
        self._came: dict[bool, list[Ends]] = {False: [], True: []}
        self._pairs = {False: ledger.groups(len(line.ranks)), True: ledger.groups(len(line.ranks))}
        elements = table.micro_batch * table.sequence * table.resolved_shape.hidden
        # Between layers a tensor rank has a part of the tokens.
        self._elements = elements
        self._part_elements = -(-elements // table.tensor)

    def begin(self, step: int) -> None:
        """Begin a step."""
        table = self._table
        self.line.step = step
        forward = list(range(self._layers))
        order = stage_order(self._index, table.pipeline, table.micro_batches, table.schedule)
        visits = [layer for backward, _ in order for layer in (forward[::-1] if backward else forward)]
        self.replica.begin(visits)

    def go(self, *, backward: bool, last: bool) -> None:
        """Take a micro-batch through the layers, and give it to the next stage."""
        way = int(backward)
        is_output = self._index == self._table.pipeline - 1
        if (not backward) in self.next:
            self.line.wait(self._came[backward].pop(0), PIPELINE)
        if is_output and backward:
            self.line.compute(self._times.output[way])
        for layer in range(self._layers)[:: -1 if backward else 1]:
            self.replica.need()
            self._layer(way)
            if backward and last:
                self.replica.ready(layer)
        if is_output and not backward:
            self.line.compute(self._times.output[way])
        if backward in self.next:
            self._send(self.next[backward], backward=backward)

    def _layer(self, way: int) -> None:
        line, element = self.line, self._table.element
        size = self._elements * element
        routed = self._part_elements * self._table.resolved_shape.top_k * element
        for part in ("attention", "feed_forward")[:: -1 if way else 1]:
            if part == "attention":
                line.compute(self._times.attention[way])
            else:
                # Backward, gradients go to the experts that the tokens went to, and come back.
                line.communicate(self._expert, "moe-dispatch", routed, element)
                line.compute(self._times.feed_forward[way])
                line.communicate(self._expert, "moe-combine", routed, element)
            line.communicate(self._tensor, "all-reduce", size, element)

    def _send(self, target: _Stage, *, backward: bool) -> None:
        table, ranks, first = self._table, self.line.ranks, self._pairs[backward]
        size = self._part_elements * table.element
        number = [
            self._ledger.add("send-recv", "direct", 2, size, PIPELINE, first + place) for place in range(len(ranks))
        ]
        ends = self._program.send(
            ranks,
            target.line.ranks,
            size,
            self.line.settle(),
            lanes=self._lanes,
            qps=table.qps,
            element_bytes=table.element,
            collective=np.array(number),
        )
        target._came[backward].append(ends)


def _stages(
    table: Training, context: WorkloadContext, degrees: Degrees, program: Program, ledger: Ledger
) -> list[_Stage]:
    shape, times = table.resolved_shape, _times(table, degrees)
    share = layer_share(shape, table.sequence, degrees.tensor, degrees.expert)
    embedding = embedding_parameters(shape, degrees.tensor)
    count = table.channels * table.qps
    # Connections of their own: what runs beside something else must not wait behind it.
    lanes = {name: program.connections(count) for name in (TENSOR, EXPERT, "reduce", "gather")}
    lanes |= {name: program.connections(count) for name in ("reduce experts", "gather experts")}
    lanes[PIPELINE] = program.connections(table.qps)
    found: list[_Stage] = []
    for index, layers in enumerate(layers_of_stages(shape.layers, degrees.pipeline)):
        ranks = np.arange(degrees.of_stage) + index * degrees.of_stage

        def groups(members: Int64s, purpose: str, lane: str, ranks: Int64s = ranks) -> Communicator:
            return Communicator(
                program,
                context.fabric,
                ledger,
                ranks,
                members,
                purpose=purpose,
                lanes=lanes[lane],
                algorithm=table.tensor_algorithm if purpose == TENSOR else table.data_algorithm,
                channels=table.channels,
                qps=table.qps,
                reduce_rate_bps=table.reduce_rate,
            )

        held = [Held(share.dense_parameters, share.expert_parameters)] * layers
        if index == 0:
            held[0] = Held(held[0].dense + embedding, held[0].expert)
        if index == degrees.pipeline - 1:
            # The last stage has a copy of its own of a tied embedding.
            output = shape.hidden + (0 if shape.tied and index == 0 else embedding)
            held[-1] = Held(held[-1].dense + output, held[-1].expert)
        line = Line(program, ranks)
        dense, experts = degrees.data_groups(), degrees.expert_data_groups()
        replica = Replica(
            table,
            program,
            line,
            held,
            Copies(groups(dense, DATA, "reduce"), groups(dense, DATA, "gather")),
            Copies(groups(experts, DATA, "reduce experts"), groups(experts, DATA, "gather experts")),
        )
        stage = _Stage(
            table,
            program,
            ledger,
            line,
            replica,
            groups(degrees.tensor_groups(), TENSOR, TENSOR),
            groups(degrees.expert_groups(), EXPERT, EXPERT),
            times,
            index=index,
            layers=layers,
            lanes=lanes[PIPELINE],
        )
        if found:
            found[-1].next[False] = stage
            stage.next[True] = found[-1]
        found.append(stage)
    return found
