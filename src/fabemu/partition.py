"""Which thread steps which device: neighbours together, the same load on each."""

from __future__ import annotations

import numpy as np

from fabemu.plan import Plan


def partition(plan: Plan, count: int, load: np.ndarray | None = None) -> np.ndarray:
    """Share the devices of a fabric among threads.

    Hosts go in blocks, those of one access switch together, or of one scale-up domain where there are any; a switch
    goes where most of its cables lead that are shared out already, and of equals to the thread with the least load. So
    pods stay whole, and spines are spread.

    Parameters
    ----------
    plan
        The fabric.
    count
        Threads; 1 or more.
    load
        (N,) float, what each device costs, in any unit: packets it has sent so far, for one. None: its ports.

    Returns
    -------
    (N,) int32
        Thread of each device, from 0. Numbers above the number of groups of hosts may be left out.
    """
    ports = np.diff(plan.node_port_start)
    # Something for every device, so that idle ones are spread too.
    cost = ports * 1.0 if load is None else load + 1e-3 * (load.sum() + 1) * ports / max(1, ports.sum())
    owner = np.full(plan.node_count, -1, dtype=np.int32)
    near, far = plan.port_node, plan.port_node[plan.port_peer]
    _share_hosts(plan, count, cost, owner, near, far)
    used = np.bincount(owner[: plan.host_count], cost[: plan.host_count], minlength=count)
    while True:
        # Cables of every device that is left, by the thread at their other end.
        known = (owner[near] < 0) & (owner[far] >= 0)
        devices, rows = np.unique(near[known], return_inverse=True)
        if len(devices) == 0:
            break
        cables = np.bincount(rows * count + owner[far[known]], minlength=len(devices) * count).reshape(-1, count)
        # Those that may go one way only come first; then the heavy ones, while there is something to balance them.
        best = cables == cables.max(axis=1, keepdims=True)
        order = np.lexsort((-cost[devices], best.sum(axis=1) > 1))
        for row in order:
            allowed = np.flatnonzero(best[row])
            choice = allowed[np.argmin(used[allowed])]
            owner[devices[row]] = choice
            used[choice] += cost[devices[row]]
    owner[owner < 0] = 0
    return owner


def _share_hosts(
    plan: Plan, count: int, cost: np.ndarray, owner: np.ndarray, near: np.ndarray, far: np.ndarray
) -> None:
    """Cut the hosts into blocks that cost the same with their access switches; groups of hosts stay whole."""
    hosts = plan.host_count
    group = _host_blocks(plan)
    groups = int(group.max(initial=-1)) + 1
    weight = np.bincount(group, cost[:hosts], minlength=groups)
    # A switch's cost is split over its cables to hosts.
    access = (near >= hosts) & (far < hosts)
    degree = np.bincount(near[access], minlength=plan.node_count)
    weight += np.bincount(group[far[access]], cost[near[access]] / degree[near[access]], minlength=groups)
    ends = np.cumsum(weight)
    middle = ends - weight / 2
    block = np.minimum((middle / max(ends[-1] if groups else 0, 1e-300) * count).astype(np.int32), count - 1)
    owner[:hosts] = block[group]


def _host_blocks(plan: Plan) -> np.ndarray:
    """(H,) number of the block of hosts that each belongs to, in order of their first hosts."""
    if not (plan.host_domain >= 0).any():
        return plan.host_group
    alone = plan.host_domain < 0
    # Domains are named by a host, so a host without one can stand for itself.
    name = np.where(alone, np.arange(plan.host_count), plan.host_domain)
    return np.unique(name, return_inverse=True)[1].reshape(-1)
