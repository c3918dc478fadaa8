"""Placement of jobs: which GPU each rank is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.job import Job
from fabemu.scenario.quantity import named
from fabemu.topology.fabric import Fabric
from fabemu.workload.draw import Draw
from fabemu.workload.flow import NONE
from fabemu.workload.hosts import HostNames, SelectorError


def place_jobs(
    jobs: Sequence[Job], fabric: Fabric, hosts: HostNames, linked: NDArray[np.bool_], seed: int
) -> dict[str, NDArray[np.int64]]:
    """Give every job its hosts, those that name theirs first, then the others one after another.

    Parameters
    ----------
    jobs
        The jobs.
    fabric
        Where servers and rails are.
    hosts
        Its hosts by name.
    linked
        (H,) hosts that can be used at all.
    seed
        Of the scenario.

    Returns
    -------
    dict
        By name of the job, (R,) hosts in the order of its ranks.

    Raises
    ------
    ScenarioError
        A job has more ranks than there are GPUs left, names no host, or one that another job has.
    """
    owner: dict[int, str] = {}
    placed: dict[str, NDArray[np.int64]] = {}
    problems: list[Problem] = []
    order = sorted(range(len(jobs)), key=lambda index: jobs[index].hosts is None)
    for index in order:
        job = jobs[index]
        try:
            if job.hosts is not None:
                chosen = _named_hosts(job, index, hosts, owner)
            else:
                chosen = _free_hosts(job, index, fabric, linked, owner, seed)
        except ScenarioError as error:
            problems.extend(error.problems)
            continue
        owner |= dict.fromkeys(chosen.tolist(), job.name)
        placed[job.name] = chosen
        for slow, item in enumerate(job.straggler):
            if item.rank >= len(chosen):
                message = f"there are ranks 0 to {len(chosen) - 1}"
                problems.append(Problem("", f"job.{index}.straggler.{slow}.rank", message, str(item.rank)))
    if problems:
        raise ScenarioError(problems)
    return {job.name: placed[job.name] for job in jobs}


def ranks_of_nodes(fabric: Fabric, hosts: NDArray[np.int64]) -> tuple[NDArray[np.int64], int | None]:
    """Ranks node by node, and how many each node has.

    Parameters
    ----------
    fabric
        Where servers are.
    hosts
        (R,) hosts in the order of the ranks.

    Returns
    -------
    (R,) int64
        Ranks, those of a node together, nodes in the order of their first rank.
    int or None
        Ranks of every node; None if nodes differ.
    """
    node = np.where(fabric.host_node[hosts] == NONE, fabric.host_count + hosts, fabric.host_node[hosts])
    _, first, number, count = np.unique(node, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first[number.reshape(-1)], kind="stable")
    return order.astype(np.int64), int(count[0]) if (count == count[0]).all() else None


def _named_hosts(job: Job, index: int, hosts: HostNames, owner: dict[int, str]) -> NDArray[np.int64]:
    path = f"job.{index}.hosts"
    try:
        chosen = hosts.select(job.hosts or "all")
    except SelectorError as error:
        raise ScenarioError(Problem("", path, str(error))) from None
    taken = [host for host in chosen.tolist() if host in owner]
    if taken:
        names = ", ".join(hosts.names[host] for host in taken[:3]) + (", ..." if len(taken) > 3 else "")
        raise ScenarioError(Problem("", path, f'{names} belongs to job "{owner[taken[0]]}" already: a GPU has one job'))
    return chosen


def _free_hosts(
    job: Job, index: int, fabric: Fabric, linked: NDArray[np.bool_], owner: dict[int, str], seed: int
) -> NDArray[np.int64]:
    free = linked & (fabric.host_node != NONE)
    free[list(owner)] = False
    gpus = np.flatnonzero(free)
    count = job.ranks or 0
    if count > len(gpus):
        others = f", {len(owner)} belong to {named(list(dict.fromkeys(owner.values())))}" if owner else ""
        message = f"there are only {len(gpus)} free GPUs in this fabric{others}: fewer ranks, or a larger fabric"
        raise ScenarioError(Problem("", f"job.{index}.ranks", message, str(count)))
    node = fabric.host_node[gpus]
    # Place of every GPU among those of its node.
    _, number = np.unique(node, return_inverse=True)
    by_node = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[by_node], prepend=-1))
    place = np.empty(len(gpus), dtype=np.int64)
    place[by_node] = np.arange(len(gpus)) - np.repeat(starts, np.diff(np.append(starts, len(gpus))))
    if job.placement == "random":
        # The first of a drawn order, then in the order of the fabric: neighbours in rank are as near as chance has it.
        return np.sort(gpus[Draw(seed, job.name, 0, "placement").permutation(len(gpus))[:count]])
    if job.placement == "rail":
        rail = np.where(fabric.host_rail[gpus] == NONE, place, fabric.host_rail[gpus])
        return gpus[np.lexsort((number, rail))][:count].astype(np.int64)
    if job.placement == "spread":
        return gpus[np.lexsort((number, place))][:count].astype(np.int64)
    return gpus[by_node][:count].astype(np.int64)
