"""What a fabric is made of: named hosts, named switches and the cables between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.plan import NONE


class Cable(NamedTuple):
    """One cable: a link in each direction.

    `a` and `b` are node ids. `rate_bps` and `delay_ps` are what the cable itself states, None where its tier decides.
    """

    a: int
    b: int
    tier: str
    rate_bps: int | None = None
    delay_ps: int | None = None


def _no_hosts() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Fabric:
    """Hosts, switches and cables.

    Node ids count the hosts first, 0..H-1 in the order of `host_names`, then the switches. `switch_tiers` has one tier
    name per switch. The order of `cables` numbers the ports of every node.

    Of GPU clusters: `host_node` (H,) int32 is the server that a GPU's host is in, NONE for hosts that are no GPU
    (storage, frontend); `host_rail` (H,) int32 its rail in a rail fabric, else NONE. By default every host is a server
    of its own, in no rail. `frontend_hosts` has the NIC of each server in a frontend network, `storage_hosts`
    the storage hosts; both are empty without.

    `hop_costs` says by tier what a cable counts in the length of a path, 1 if it is not there. `dimensions` are those
    of a torus that is routed by dimension order, whose switches are the first ones; empty for shortest paths.
    """

    host_names: list[str]
    switch_names: list[str]
    switch_tiers: list[str]
    cables: list[Cable]
    host_node: NDArray[np.int32] = field(default=None)  # type: ignore[arg-type]
    host_rail: NDArray[np.int32] = field(default=None)  # type: ignore[arg-type]
    frontend_hosts: NDArray[np.int32] = field(default_factory=_no_hosts)
    storage_hosts: NDArray[np.int32] = field(default_factory=_no_hosts)
    hop_costs: Mapping[str, int] = field(default_factory=dict)
    dimensions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Fill in servers and rails; raise ValueError if their number is not that of the hosts."""
        count = len(self.host_names)
        if self.host_node is None:
            object.__setattr__(self, "host_node", np.arange(count, dtype=np.int32))
        if self.host_rail is None:
            object.__setattr__(self, "host_rail", np.full(count, NONE, dtype=np.int32))
        if len(self.host_node) != count or len(self.host_rail) != count:
            raise ValueError(f"servers or rails of another number of hosts than {count}")

    @property
    def host_count(self) -> int:
        """Number of hosts."""
        return len(self.host_names)

    @property
    def switch_count(self) -> int:
        """Number of switches."""
        return len(self.switch_names)

    @property
    def server_count(self) -> int:
        """Number of servers: nodes that GPUs are in."""
        return int(self.host_node.max(initial=NONE)) + 1

    @property
    def node_count(self) -> int:
        """Hosts and switches."""
        return len(self.host_names) + len(self.switch_names)

    @cached_property
    def node_names(self) -> list[str]:
        """Names of all nodes, by id."""
        return self.host_names + self.switch_names

    @cached_property
    def node_ids(self) -> dict[str, int]:
        """Id of every node, by name."""
        return {name: node for node, name in enumerate(self.node_names)}

    def cable_ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """(cables,) node ids of the `a` ends and of the `b` ends."""
        count = len(self.cables)
        ends_a = np.fromiter((cable.a for cable in self.cables), dtype=np.int32, count=count)
        return ends_a, np.fromiter((cable.b for cable in self.cables), dtype=np.int32, count=count)


def numbered(prefix: str, count: int) -> list[str]:
    """Names `prefix0`, `prefix1`, ..."""
    return [f"{prefix}{index}" for index in range(count)]


def plane_prefixes(planes: int) -> list[str]:
    """What the names of switches begin with, plane by plane: nothing if there is one plane only."""
    return [f"p{plane}-" for plane in range(planes)] if planes > 1 else [""]


def host_cables(hosts_per_switch: Sequence[int], switches: Sequence[int]) -> list[Cable]:
    """Cable hosts 0, 1, ... to the given switch nodes in turn, so many to each; tier "host"."""
    cables: list[Cable] = []
    for count, switch in zip(hosts_per_switch, switches, strict=True):
        first = len(cables)
        cables.extend(Cable(host, switch, "host") for host in range(first, first + count))
    return cables
