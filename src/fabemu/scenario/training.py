"""Scenario tables of training: the shape of a model, how it is spread over GPUs, and what a step of it does."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fabemu.scenario.fabric import close_to
from fabemu.scenario.participation import Spread
from fabemu.scenario.quantity import Count, Duration, Flag, Flops, PositiveSize, Rate, Text, Time, named
from fabemu.scenario.table import Broken, Table, optional


class ModelShape(Table):
    """A transformer that only decodes: what its layers are made of, instead of a model that is shipped."""

    layers: Count = Field(description="transformer layers")
    hidden: Count = Field(description="elements of a token between layers")
    feed_forward: Count = Field(description="elements of a token inside the feed-forward part, of one expert")
    heads: Count = Field(description="attention heads; they divide hidden")
    kv_heads: Count | None = optional(None, description="heads of keys and values; default: as many as heads")
    vocabulary: Count = Field(description="tokens that there are")
    experts: Count = optional(1, description="experts of every layer; 1: a dense model")
    top_k: Count = optional(1, description="experts that each token goes to")
    gated: Flag = optional(True, description="three matrices in the feed-forward part (SwiGLU), not two")
    tied: Flag = optional(False, description="the output layer is the embedding")

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.hidden % self.heads:
            yield ("heads",), f"must divide hidden = {self.hidden}: each head has as many elements"
        if self.heads % self.key_value_heads:
            yield ("kv_heads",), f"must divide heads = {self.heads}: as many heads share their keys and values"
        if self.top_k > self.experts:
            yield ("top_k",), f"there are {self.experts} experts"


MODELS: dict[str, ModelShape] = {
    # The Llama 3 Herd of Models (arXiv:2407.21783), table 3; vocabulary as in the published checkpoints.
    "llama-3-8b": ModelShape(layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=128256),
    "llama-3-70b": ModelShape(layers=80, hidden=8192, feed_forward=28672, heads=64, kv_heads=8, vocabulary=128256),
    # Mixtral of Experts (arXiv:2401.04088), table 1.
    "mixtral-8x7b": ModelShape(
        layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=32000, experts=8, top_k=2
    ),
    # OPT: Open Pre-trained Transformer Language Models (arXiv:2205.01068), table 1; feed_forward and vocabulary as in
    # the published checkpoints of the family.
    "opt-175b": ModelShape(
        layers=96, hidden=12288, feed_forward=49152, heads=96, vocabulary=50272, gated=False, tied=True
    ),
}
"""Shapes that are shipped, by name."""


class Training(Spread):
    """Steps of training a model that is spread over all hosts of the workload: docs/TRAINING.md."""

    kind: Literal["training"] = "training"
    model: Text | None = optional(None, description=f"shape by name: {named(list(MODELS))}; or give [workload.shape]")
    shape: ModelShape | None = optional(None, description="shape of another model")
    layers: Count | None = optional(None, description="of a shipped shape so many layers only")
    sequence: Count = Field(description="tokens of a sequence")
    micro_batch: Count = optional(1, description="sequences of a micro-batch")
    micro_batches: Count = optional(1, description="micro-batches of every pipeline in a step")
    tensor: Count = optional(1, description="GPUs that share every matrix; ranks count through them first")
    pipeline: Count = optional(1, description="stages of consecutive layers; ranks count through them last")
    data: Count | None = optional(None, description="copies of the model; default: as many as there are ranks for")
    expert: Count = optional(1, description="of the data ranks, so many share the experts of a layer; divides data")
    sharded: Literal["none", "optimizer", "full"] = optional(
        "none",
        description="over the data ranks: none: gradients are all-reduced; optimizer: reduce-scattered, and updated"
        " parameters gathered (ZeRO-1); full: parameters, too, gathered layer by layer (ZeRO-3, FSDP)",
    )
    schedule: Literal["1f1b", "gpipe"] = optional(
        "1f1b", description="1f1b: a stage alternates between forward and backward; gpipe: all forward first"
    )
    flops: Flops | None = optional(None, description="FLOP/s that a GPU achieves in matrices; or give forward_time")
    peak: Flops | None = optional(None, description="FLOP/s to which the utilisation refers; default: flops")
    forward_time: Duration | None = optional(None, description="a GPU computes so long forward, per layer")
    backward_time: Duration | None = optional(None, description="and backward; default: twice forward_time")
    optimizer_time: Time = optional("0us", description="each GPU updates its parameters for so long")
    element: Count = optional(2, description="bytes of an element of activations")
    parameter_element: Count = optional(2, description="bytes of a parameter when it is gathered")
    gradient_element: Count = optional(2, description="bytes of a gradient when it is reduced")
    bucket: PositiveSize = optional("25MiB", description="gradients are reduced when so many are there, layer by layer")
    overlap: Flag = optional(True, description="gradients are reduced, and parameters gathered, while GPUs compute")
    steps: Count = optional(1, description="steps, one after another")
    tensor_algorithm: Literal["auto", "ring", "tree", "halving-doubling", "hierarchical"] = optional(
        "auto", description="of all-reduces between tensor ranks"
    )
    data_algorithm: Literal["auto", "ring", "tree", "halving-doubling", "hierarchical"] = optional(
        "auto", description="of all-reduces between data ranks"
    )
    channels: Count = optional(1, description="of all collectives, as of workloads of kind collective")
    qps: Count = optional(1, description="queue pairs of each connection, which share its messages")
    reduce_rate: Rate | None = optional(
        None, description="at which a rank adds what it has received to its own; default: at once"
    )

    @property
    def resolved_shape(self) -> ModelShape:
        """The shape, with its own number of layers.

        Raises
        ------
        ValueError
            No shape is given.
        """
        shape = self.shape if self.model is None else MODELS[self.model]
        if shape is None:
            raise ValueError("a training workload without a shape")
        return shape if self.layers is None else shape.model_copy(update={"layers": self.layers})

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from super().rules()
        if self.stop is not None:
            yield ("stop",), "training runs to its end: use steps"
        if self.verb == "read":
            yield ("verb",), "training writes or sends"
        if self.flops is None and self.forward_time is None:
            yield (), 'give one of "flops" (what a GPU achieves, such as "400TFLOP/s") and "forward_time" (of a layer)'
        if self.flops is not None and self.forward_time is not None:
            yield ("forward_time",), "flops and forward_time are both given: give one of them"
        if self.backward_time is not None and self.forward_time is None:
            yield ("backward_time",), "goes with forward_time"
        if self.data is not None and self.data % self.expert:
            yield ("expert",), f"must divide data = {self.data}: experts are shared by ranks with different data"
        yield from self._shape_rules()

    def _shape_rules(self) -> Iterator[Broken]:
        if self.model is not None and self.shape is not None:
            yield ("shape",), "model and shape are both given: give one of them"
            return
        if self.model is not None and self.model not in MODELS:
            hint = close_to(self.model, MODELS)
            yield ("model",), f"is not shipped: {named(list(MODELS))}, or give [workload.shape]{hint}"
            return
        if self.model is None and self.shape is None:
            yield (), f'give "model" ({named(list(MODELS))}) or a table [workload.shape]'
            return
        if self.shape is not None and self.layers is not None:
            yield ("layers",), "is for shipped shapes: write it in [workload.shape]"
        shape = self.resolved_shape
        if self.pipeline > shape.layers:
            yield ("pipeline",), f"there are {shape.layers} layers: a stage needs one"
        if shape.heads % self.tensor:
            yield ("tensor",), f"must divide the {shape.heads} heads of the model"
        elif shape.key_value_heads % self.tensor and self.tensor % shape.key_value_heads:
            yield (
                ("tensor",),
                f"must divide the {shape.key_value_heads} kv_heads of the model, or be a multiple of them",
            )
        elif shape.feed_forward % self.tensor:
            yield ("tensor",), f"must divide feed_forward = {shape.feed_forward}"
        if self.expert > 1 and shape.experts == 1:
            yield ("expert",), "the model has no experts: leave it out"
        elif shape.experts % self.expert:
            yield ("expert",), f"must divide the {shape.experts} experts of the model"
