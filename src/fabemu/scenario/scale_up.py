"""Scenario table of the scale-up network: what joins the GPUs of one node besides the fabric."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fabemu.scenario.device import Frames, Link, Switch
from fabemu.scenario.quantity import Duration, Rate, SizeOrAuto
from fabemu.scenario.table import Broken, Table, optional

SCALE_UP_TIER = "scale-up"
"""Tier of the switches and cables of the scale-up network."""

CREDIT_BLOCK_BYTES = 64
"""Unit of credits (MODEL 7)."""

CREDIT_FRAME_BYTES = 64
"""Frame that returns credits (MODEL 3)."""


class ScaleUp(Table):
    """The scale-up network of every node (NVLink, NVSwitch and the like): GPUs of a node reach each other by it alone.

    It needs a fabric whose nodes have at least two GPUs: `gpus_per_node` in [fabric]. The default bandwidth is that of
    18 links of 200 Gb/s, as GPUs with the fourth NVLink generation have them.
    """

    model: Literal["analytic", "packets"] = optional(
        "analytic",
        description="packets: a switch nvs{n} in every node and lossless links with credits, packet by packet;"
        " analytic: exact times of bandwidth and latency, no packets",
    )
    bandwidth: Rate = optional("3600Gbps", description="of each GPU, in each direction")
    latency: Duration = optional("500ns", description="one way, from GPU to GPU, without the time on the wire")
    credit_buffer: SizeOrAuto = optional(
        "auto",
        description="packets: receive buffer of each class at either end of a link, in whole blocks of 64 B; auto: what"
        " one round trip of the link takes at its full rate",
    )

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.model == "packets" and self.latency % 2:
            yield ("latency",), "must be an even number of ps: each of the two cables of a path has half of it"

    def link(self, frames: Frames, mtu_bytes: int) -> Link:
        """Parameters of the cable of a GPU to the switch of its node."""
        update = {
            "rate": self.bandwidth,
            "delay": self.latency // 2,
            "length": None,
            "flow_control": "credit",
            "credit_buffer": self._credit_bytes(frames, mtu_bytes),
        }
        return Link().model_copy(update=update)

    def switch(self, frames: Frames, mtu_bytes: int, lanes: int) -> Switch:
        """Parameters of the switch of a node: no latency of its own, no marking, and a buffer for so many lanes."""
        switch = Switch()
        update = {
            "latency": 0,
            "buffer": lanes * self._credit_bytes(frames, mtu_bytes),
            "ecn": switch.ecn.model_copy(update={"enabled": False}),
        }
        return switch.model_copy(update=update)

    def _credit_bytes(self, frames: Frames, mtu_bytes: int) -> int:
        """Receive buffer of one lane, in whole blocks.

        A lane sends at its full rate if its buffer holds what the link carries from the start of a frame to the arrival
        of its credits: the frame and the way there; at most one frame that the credit frame waits for; the credit frame
        and the way back. One frame more makes up for whole frames and blocks.
        """
        if self.credit_buffer != "auto":
            return self.credit_buffer
        payload = -(-mtu_bytes // frames.pad) * frames.pad
        largest = max(frames.minimum, payload + frames.header_bytes + max(frames.reth, frames.aeth))
        whole = largest + frames.wire_overhead
        credit = max(frames.minimum, CREDIT_FRAME_BYTES) + frames.wire_overhead
        under_way = -(-self.bandwidth * self.latency // (8 * 10**12))
        return -(-(under_way + 3 * whole + credit) // CREDIT_BLOCK_BYTES) * CREDIT_BLOCK_BYTES


def scale_up_rules(parts: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield what is wrong between [scale_up] and the rest of the scenario; `parts` as in `scenario_rules`."""
    table, fabric = parts.get("scale_up"), parts.get("fabric")
    if table is None:
        return
    if fabric is not None and fabric.gpus_of_node < 2:
        if hasattr(fabric, "gpus_per_node"):
            way_out = "give gpus_per_node in [fabric], 2 or more"
        else:
            way_out = f"a {fabric.kind} fabric has no nodes of several GPUs: use kind = rail, leaf-spine or another"
        yield ("scale_up",), f"joins the GPUs of a node, but every node of this fabric has one: {way_out}"
    if parts.get("compat") == "ns3":
        yield ("scale_up",), 'compat = "ns3" does not have it'
