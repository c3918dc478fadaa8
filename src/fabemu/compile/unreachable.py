"""Pairs of hosts that no path joins: why, and the way out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fabemu.plan import NONE
from fabemu.topology.cable import Fabric

SHOWN_MAX = 20
"""Pairs of hosts that one message lists."""


def unreachable_messages(fabric: Fabric, degree: NDArray[np.int32], pairs: Iterable[tuple[int, int]]) -> list[str]:
    """Say of every pair (source, destination) why there is no path, then what to do about it, each way out once.

    `degree` has the number of ports of every node. At most SHOWN_MAX pairs are listed.
    """
    listed = list(pairs)
    names, problems = fabric.node_names, []
    ways_out: dict[str, None] = {}
    for src, dst in listed[:SHOWN_MAX]:
        reason, way_out = _reason(fabric, degree, src, dst)
        problems.append(f"{names[dst]} is unreachable from {names[src]}: {reason}")
        if way_out:
            ways_out[way_out] = None
    if len(listed) > SHOWN_MAX:
        problems.append(f"and {len(listed) - SHOWN_MAX} more unreachable pairs of hosts")
    return problems + list(ways_out)


def _reason(fabric: Fabric, degree: NDArray[np.int32], src: int, dst: int) -> tuple[str, str]:
    """Why there is no path from one host to another, and the way out if one is known."""
    names = fabric.node_names
    isolated = [names[host] for host in (src, dst) if degree[host] == 0]
    if isolated:
        return f"{' and '.join(isolated)} ha{'ve' if len(isolated) > 1 else 's'} no link", ""
    gpus = fabric.host_node[[src, dst]] != NONE
    if len(fabric.frontend_hosts) and gpus[0] != gpus[1]:
        gpu, other = (src, dst) if gpus[0] else (dst, src)
        gpus_alone = "h*" if (fabric.host_rail == NONE).all() else "n*g*"
        return (
            f"{names[gpu]} is on the fabric of the GPUs, {names[other]} on the frontend network: nothing joins them",
            "storage is reached by the frontend NICs of the nodes, n0f and so on, or by GPUs themselves with"
            f' fabric.frontend.converged = true; traffic among GPUs alone has hosts = "{gpus_alone}"',
        )
    rails = fabric.host_rail[[src, dst]].tolist()
    if NONE not in rails and rails[0] != rails[1]:
        way_out = (
            "a rail-only fabric does not join its rails: send to the GPU of the other rail in the own node by"
            ' [scale_up], and from there along that rail; or use kind = "rail", whose spines join the rails'
        )
        return f"they are in rails {rails[0]} and {rails[1]}, and no path joins these", way_out
    return "no path", ""
