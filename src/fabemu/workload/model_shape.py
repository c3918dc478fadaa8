"""Parameters and floating-point operations of transformer layers, of a whole model or of one rank of a tensor group.

A matrix of p parameters takes 2 p FLOPs per token forward, and twice as many backward: for the gradients of what went
in and of the matrix (Kaplan et al., arXiv:2001.08361, section 2.1). Attention scores and their weighted sum take
4 x sequence x hidden per token and layer forward; that half of them are masked is not taken off, as is usual for the
utilisation (PaLM, arXiv:2204.02311, appendix B). Norms, activations and rotations are not counted, embeddings are
looked up.
"""

from __future__ import annotations

from fabemu.deferred import dataclass
from fabemu.scenario.training import ModelShape

BACKWARD = 2
"""FLOPs backward for each one forward."""


@dataclass(frozen=True)
class LayerShare:
    """What a rank has of a layer, and computes of it forward for a token."""

    dense_parameters: int  # attention, norms, router, and the feed-forward part unless there are experts
    expert_parameters: int  # of all experts that it has
    attention_flops: int
    feed_forward_flops: int


def layer_share(shape: ModelShape, sequence: int, tensor: int = 1, expert: int = 1) -> LayerShare:
    """What one rank has of a layer.

    Every matrix is cut over the tensor ranks, experts as well; norms and routers are on all of them, and so are keys
    and values of which there are fewer heads than tensor ranks (Shoeybi et al., arXiv:1909.08053, section 3). Experts
    are spread over the expert ranks, and tokens evenly over experts.

    Parameters
    ----------
    shape
        The model.
    sequence
        Tokens that each token may attend to.
    tensor, expert
        Ranks that share a layer.
    """
    hidden, head = shape.hidden, shape.hidden // shape.heads
    key_value = 2 * hidden * head * max(shape.key_value_heads // tensor, 1)
    attention = 2 * hidden * hidden // tensor + key_value
    feed_forward = (3 if shape.gated else 2) * hidden * (shape.feed_forward // tensor)
    router = hidden * shape.experts if shape.experts > 1 else 0
    dense = attention + router + 2 * hidden
    return LayerShare(
        dense_parameters=dense + (feed_forward if shape.experts == 1 else 0),
        expert_parameters=feed_forward * (shape.experts // expert) if shape.experts > 1 else 0,
        attention_flops=2 * attention + 4 * sequence * (hidden // tensor),
        feed_forward_flops=2 * (feed_forward * shape.top_k + router),
    )


def embedding_parameters(shape: ModelShape, tensor: int = 1) -> int:
    """Parameters of the embedding, or of the output layer, at one tensor rank: the vocabulary is cut, rounded up."""
    return shape.hidden * -(-shape.vocabulary // tensor)


def output_flops(shape: ModelShape, tensor: int = 1) -> int:
    """FLOPs of the output layer for a token forward, at one tensor rank."""
    return 2 * embedding_parameters(shape, tensor)


def parameter_count(shape: ModelShape) -> int:
    """Parameters of the whole model, without biases and positions."""
    layer = layer_share(shape, 0)
    layers = shape.layers * (layer.dense_parameters + layer.expert_parameters)
    return layers + shape.hidden + embedding_parameters(shape) * (1 if shape.tied else 2)


def step_flops(shape: ModelShape, sequence: int) -> int:
    """FLOPs of the whole model for a token of a step, forward and backward."""
    layer = layer_share(shape, sequence)
    forward = shape.layers * (layer.attention_flops + layer.feed_forward_flops) + output_flops(shape)
    return (1 + BACKWARD) * forward
