"""What the ports of a run are: between which tiers, how fast, which of them are chosen among equals."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from fabemu.analysis.batches import Names, again
from fabemu.compile import Compiled
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.result import Run
from fabemu.trace import NONE


@dataclass(frozen=True, eq=False)
class RunFabric:
    """The ports of a run, by their numbers in its plan; without a plan those that its ports table has rows of.

    Attributes
    ----------
    ports
        Their names and numbers.
    node
        (P,) number in `nodes` of the device that each belongs to.
    nodes
        Names of devices.
    tier
        (P,) number in `tiers`.
    tiers
        Such as ``leaf->spine``: the tiers of the devices at both ends, in the direction of sending.
    rate_bps
        (P,) int64, 0 where it is not known.
    bundle
        (P,) the device, if it is a switch that chooses the port among several of equal cost, else -1: uplinks, mostly.
    compiled
        The plan of the run, compiled again; None if that was not possible.
    notes
        What else must be known.
    """

    ports: Names
    node: NDArray[np.int64]
    nodes: list[str]
    tier: NDArray[np.int64]
    tiers: list[str]
    rate_bps: NDArray[np.int64]
    bundle: NDArray[np.int64]
    compiled: Compiled | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ports_of_tier(self) -> NDArray[np.int64]:
        """(tiers,) how many ports there are."""
        return np.bincount(self.tier, minlength=len(self.tiers))


def run_fabric(run: Run) -> RunFabric:
    """The fabric of a run, from its plan; from the ports table where the plan cannot be had, with a note of why.

    Raises
    ------
    InputError
        It was written by a newer fabemu.
    """
    source = Source.open(run.directory)
    partial = (source.partial,) if source.partial else ()
    try:
        compiled = source.compiled
    except InputError as error:
        return _of_table(run, (*partial, f"its plan is not known, so neither are paths and idle ports: {error}"))
    plan, fabric = compiled.plan, compiled.fabric
    tier_of_node = np.array(["host"] * plan.host_count + fabric.switch_tiers, dtype=object)
    node = plan.port_node.astype(np.int64)
    peer = plan.port_node[plan.port_peer] if plan.port_count else node
    tier, tiers = _tiers(tier_of_node[node], tier_of_node[peer])
    chosen = np.zeros(plan.port_count, dtype=np.bool_)
    size = np.diff(plan.nexthop_start)
    chosen[plan.nexthop_port[np.repeat(size > 1, size)]] = True
    chosen &= node >= plan.host_count
    ports = Names()
    for name in compiled.port_names:
        ports.number(name)
    bundle = np.where(chosen, node, NONE)
    nodes = list(compiled.node_names)
    return RunFabric(ports, node, nodes, tier, tiers, plan.port_rate_bps, bundle, compiled, partial)


def _of_table(run: Run, notes: tuple[str, ...]) -> RunFabric:
    hosts: set[str] = set()
    if "flows" in run.tables:
        for batch in run.batches("flows", ("src",)):
            hosts.update(batch.column("src").dictionary.to_pylist())
            break
    ports, nodes = Names(), Names()
    node_of: dict[int, int] = {}
    peer_of: dict[int, int] = {}
    if "ports" in run.tables:
        for batch in again(run.batches("ports", ("node", "port", "peer")), ("node", "port", "peer")):
            port = ports.numbers(batch.column("port"))
            node, peer = nodes.numbers(batch.column("node")), nodes.numbers(batch.column("peer"))
            found, first = np.unique(port, return_index=True)
            node_of.update(zip(found.tolist(), node[first].tolist(), strict=True))
            peer_of.update(zip(found.tolist(), peer[first].tolist(), strict=True))
    # Numbers of names that no row has are not ports here.
    numbered = Names()
    for number in sorted(node_of):
        numbered.number(ports.names[number])
    own = np.array([node_of[number] for number in sorted(node_of)], dtype=np.int64)
    other = np.array([peer_of[number] for number in sorted(node_of)], dtype=np.int64)
    kind = np.array([("host" if name in hosts else "switch") for name in nodes.names] or ["switch"], dtype=object)
    tier, tiers = _tiers(kind[own], kind[other])
    nothing = np.zeros(len(own), dtype=np.int64)
    return RunFabric(numbered, own, nodes.names, tier, tiers, nothing, nothing + NONE, None, notes)


def _tiers(own: NDArray[np.object_], other: NDArray[np.object_]) -> tuple[NDArray[np.int64], list[str]]:
    """Number of each port's tier, and their names in the order in which ports have them."""
    names = Names()
    numbers = [names.number(f"{near}->{far}") for near, far in zip(own, other, strict=True)]
    return np.array(numbers, dtype=np.int64), names.names
