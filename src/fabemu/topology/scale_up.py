"""The scale-up network as switches and cables: one switch in every node, cabled to each of its GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fabemu.scenario.scale_up import SCALE_UP_TIER
from fabemu.topology.cable import Cable, Fabric


def with_scale_up(fabric: Fabric, *, rate_bps: int, delay_ps: int) -> Fabric:
    """Add a switch nvs{n} to every node n, with a cable of this rate and propagation delay to each of its GPUs.

    The cables come last, so that the port of a GPU that leads there is its last.
    """
    first = fabric.node_count
    gpus = np.flatnonzero(fabric.host_node >= 0)
    return replace(
        fabric,
        switch_names=fabric.switch_names + [f"nvs{node}" for node in range(fabric.server_count)],
        switch_tiers=fabric.switch_tiers + [SCALE_UP_TIER] * fabric.server_count,
        cables=fabric.cables
        + [
            Cable(gpu, first + node, SCALE_UP_TIER, rate_bps, delay_ps)
            for gpu, node in zip(gpus.tolist(), fabric.host_node[gpus].tolist(), strict=True)
        ],
    )
