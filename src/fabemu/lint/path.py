"""The paths that the queue pairs of a plan take, hop by hop, with the hashes of MODEL 8."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fabemu.hashing import mix32
from fabemu.plan import BALANCE_ECMP, BALANCE_WEIGHTED, NONE, ROUTE_LOCAL, ROUTE_NONE, ROUTE_SET_BASE, Plan


def hops(
    plan: Plan, src: NDArray[np.int32], dst: NDArray[np.int32], flow_hash: NDArray[np.uint32]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Yield (which of the flows are still on their way, the port each leaves by), hop by hop, from the hosts on.

    Uses the first routing epoch. A flow without a route ends where it is. Switches that choose by load or for every
    packet are taken to choose by hash: `chosen_later` says where they do not.
    """
    weighted = _weighted(plan)
    weights = np.cumsum(plan.nexthop_weight.astype(np.int64)) if weighted.any() else None
    route = plan.route[: len(plan.route) // plan.route_epochs].reshape(-1, plan.group_count)
    start, group = plan.nexthop_start.astype(np.int64), plan.host_group
    node, active = src.astype(np.int32), np.arange(len(src))
    for _ in range(plan.node_count + 1):
        if not len(active):
            return
        here, towards = node[active], dst[active]
        row = plan.node_route_row[here]
        routed = row != NONE
        entry = np.full(len(active), ROUTE_NONE, dtype=np.int32)
        entry[routed] = route[row[routed], group[towards[routed]]]
        port = np.where(entry >= 0, entry, NONE)
        port = np.where(entry == ROUTE_LOCAL, plan.host_access_port[towards], port)
        chosen = entry <= ROUTE_SET_BASE
        if chosen.any():
            number = ROUTE_SET_BASE - entry[chosen]
            size = (start[number + 1] - start[number]).astype(np.uint64)
            draw = mix32(flow_hash[active[chosen]] ^ plan.node_seed[here[chosen]]).astype(np.uint64)
            member = start[number] + ((draw * size) >> np.uint64(32)).astype(np.int64)
            if weights is not None:
                uneven = weighted[here[chosen]]
                first, past = start[number][uneven], start[number + 1][uneven]
                before = weights[first] - plan.nexthop_weight[first]
                total = (weights[past - 1] - before).astype(np.uint64)
                place = ((draw[uneven] * total) >> np.uint64(32)).astype(np.int64)
                # The first member for which the sum of the weights up to and with it is more than the place.
                member[uneven] = np.searchsorted(weights, before + place, side="right")
            port[chosen] = plan.nexthop_port[member]
        port[~routed] = plan.node_port_start[here[~routed]]
        going = port >= 0
        active, port = active[going], port[going]
        yield active, port
        node[active] = plan.port_node[plan.port_peer[port]]
        active = active[node[active] != dst[active]]


def chosen_later(plan: Plan, port: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
    """(n,) whether the choice of a port towards a host is one that switches make by load, or for every packet."""
    node = plan.port_node[port].astype(np.int64)
    found = node >= plan.host_count
    if not len(plan.switch_balance):
        return found
    policy = plan.switch_balance[np.maximum(node - plan.host_count, 0)]
    route = plan.route[: len(plan.route) // plan.route_epochs].reshape(-1, plan.group_count)
    found &= (policy != BALANCE_ECMP) & (policy != BALANCE_WEIGHTED)
    found[found] = route[plan.node_route_row[node[found]], plan.host_group[dst[found]]] <= ROUTE_SET_BASE
    return found


def _weighted(plan: Plan) -> NDArray[np.bool_]:
    """(N,) devices that choose by weight."""
    return np.concatenate([np.zeros(plan.host_count, np.bool_), plan.switch_balance == BALANCE_WEIGHTED])
