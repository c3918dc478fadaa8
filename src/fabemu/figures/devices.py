"""Hosts, switches and cables of a run, as its scenario says, or as far as its ports table shows them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.errors import FabemuError, InputError
from fabemu.recorded.source import Source
from fabemu.result import Run
from fabemu.scenario.scale_up import SCALE_UP_TIER
from fabemu.topology.fabric import build_fabric
from fabemu.trace import dictionary_column, read_table, table_path


@dataclass(frozen=True, eq=False)
class Devices:
    """Devices and cables.

    Attributes
    ----------
    names
        By node, hosts first.
    host_count
        How many of them are hosts.
    tiers
        One per node: "host", or the tier of the switch; empty where it is not known.
    ends
        (cables, 2) int64 node ids; parallel cables are rows of their own if they are known.
    ranks
        (nodes,) int64: 0 for hosts, 1 for switches with hosts, 2 for those behind them, ...; -1 for switches inside
        servers.
    note
        Why not all of it is known; None if it is.
    """

    names: Sequence[str]
    host_count: int
    tiers: Sequence[str]
    ends: NDArray[np.int64]
    ranks: NDArray[np.int64]
    note: str | None = None


def devices_of(run: Run) -> Devices:
    """Devices and cables of a run.

    Raises
    ------
    InputError
        There is neither a scenario that can be read nor a ports table.
    """
    source = Source(run.directory, run.info)
    try:
        fabric = build_fabric(source.scenario, run.directory)
    except FabemuError as error:
        try:
            return _from_ports(run, str(error))
        except InputError:
            raise error from None
    names, tiers = fabric.node_names, ["host"] * fabric.host_count + list(fabric.switch_tiers)
    ends = np.stack(fabric.cable_ends(), axis=1).astype(np.int64)
    return Devices(names, fabric.host_count, tiers, ends, _ranks(len(names), fabric.host_count, tiers, ends))


def _from_ports(run: Run, reason: str) -> Devices:
    """Devices and cables that sent something; hosts are those that flows go from and to."""
    table = read_table(table_path(run.directory, "ports"), ("node", "peer"))
    node, names = dictionary_column(table, "node")
    peer, _ = dictionary_column(table, "peer")
    hosts: set[str] = set()
    try:
        flows = read_table(table_path(run.directory, "flows"), ("src", "dst"))
        for column in ("src", "dst"):
            index, values = dictionary_column(flows, column)
            hosts |= {values[place] for place in np.unique(index).tolist()}
    except InputError:
        pass  # then nothing tells hosts from switches
    pairs = np.unique(np.sort(np.stack([node, peer], axis=1), axis=1), axis=0)
    known = np.unique(pairs)
    order = sorted(known.tolist(), key=lambda item: (names[item] not in hosts, item))
    place = np.full(len(names), -1, dtype=np.int64)
    place[order] = np.arange(len(order))
    shown = [names[item] for item in order]
    host_count = sum(name in hosts for name in shown)
    tiers = ["host"] * host_count + [""] * (len(shown) - host_count)
    ends = place[pairs]
    note = f"Drawn from the ports table, so only cables that carried something are there: {reason}."
    return Devices(shown, host_count, tiers, ends, _ranks(len(shown), host_count, tiers, ends), note)


def _ranks(count: int, host_count: int, tiers: Sequence[str], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps from the nearest host; -1 inside servers. What no host reaches stands above all others."""
    ranks = np.full(count, count, dtype=np.int64)
    ranks[:host_count] = 0
    inside = np.array([tier == SCALE_UP_TIER for tier in tiers], dtype=np.bool_)
    outer = ends[~inside[ends].any(axis=1)] if len(ends) else ends
    for rank in range(1, count + 1):
        near = ranks == rank - 1
        touched: NDArray[np.int64] = (
            np.concatenate([outer[near[outer[:, 0]], 1], outer[near[outer[:, 1]], 0]]) if len(outer) else outer.ravel()
        )
        if not len(touched):
            break
        ranks[touched] = np.minimum(ranks[touched], rank)
    reached = ranks[ranks < count].max(initial=0)
    ranks[ranks == count] = reached + 1
    ranks[inside] = -1
    return ranks
