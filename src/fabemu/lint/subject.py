"""What is checked: a compiled scenario, and views of its plan that several rules need."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.compile import Compiled
from fabemu.deferred import dataclass
from fabemu.plan import VERB_READ, Plan
from fabemu.scenario.model import Scenario
from fabemu.scenario.scale_up import SCALE_UP_TIER
from fabemu.units import format_bytes

NEVER_MARK_BYTES = 2**31 - 1
"""kmin of a queue that never marks."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A compiled scenario under the eyes of the rules."""

    scenario: Scenario
    compiled: Compiled
    congested_ports: int | None = None  # what the user expects at every switch; None: from the traffic

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.compiled.plan

    @cached_property
    def peer_node(self) -> NDArray[np.int32]:
        """(P,) node at the other end of each port."""
        return self.plan.port_node[self.plan.port_peer]

    @cached_property
    def scale_up(self) -> NDArray[np.bool_]:
        """(P,) ports of the scale-up network, at both ends."""
        tiers = np.array(self.compiled.fabric.switch_tiers, dtype=object) == SCALE_UP_TIER
        inside = np.concatenate([np.zeros(self.plan.host_count, dtype=np.bool_), tiers])
        return inside[self.plan.port_node] | inside[self.peer_node]

    @cached_property
    def switch_ports(self) -> NDArray[np.int64]:
        """Ports of switches."""
        return np.flatnonzero(self.plan.port_node >= self.plan.host_count)

    @cached_property
    def lossless(self) -> NDArray[np.bool_]:
        """(C,)."""
        return self.plan.class_lossless.astype(bool)

    @cached_property
    def treated(self) -> NDArray[np.uint8]:
        """(N, C) the class as which each node treats frames of a class; hosts leave it as it is."""
        classes = self.plan.class_count
        hosts = np.tile(np.arange(classes, dtype=np.uint8), (self.plan.host_count, 1))
        return np.concatenate([hosts, self.plan.switch_class_map.reshape(-1, classes)])

    @cached_property
    def largest_frame_bytes(self) -> int:
        """The largest frame of any kind (MODEL 3)."""
        plan = self.plan
        reads = bool((plan.qp_verb == VERB_READ).any())
        extra = max(plan.reth_bytes, plan.aeth_bytes if reads else 0)
        data = -(-plan.mtu_bytes // plan.pad_bytes) * plan.pad_bytes + plan.header_bytes + extra
        request = plan.read_request_bytes if reads else 0
        return max(data, request, plan.ack_bytes, plan.cnp_bytes, plan.frame_min_bytes)

    @cached_property
    def pfc_frame_bytes(self) -> int:
        """A PFC frame."""
        return max(self.plan.pfc_bytes, self.plan.frame_min_bytes)

    def queues(self, name: str) -> NDArray[Any]:
        """(P, C) view of an array per port and class."""
        array: NDArray[Any] = getattr(self.plan, name)
        return array.reshape(-1, self.plan.class_count)

    def wire_ps(self, frame_bytes: int, rate_bps: int) -> int:
        """Time of a frame on the wire."""
        return -(-(frame_bytes + self.plan.wire_overhead_bytes) * 8 * 10**12 // rate_bps)

    @cached_property
    def pfc_queues(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every (switch port, lossless class) whose peer PFC is to pause: ports and classes, by port, then class."""
        classes = np.flatnonzero(self.lossless)
        ports = self.switch_ports[self.plan.port_credit[self.switch_ports] == 0]
        return np.repeat(ports, len(classes)), np.tile(classes, len(ports))

    def node(self, node: int) -> str:
        """Name of a node."""
        return self.compiled.node_names[node]

    def port(self, port: int) -> str:
        """Name of a port."""
        return self.compiled.port_names[port]


def count(size_bytes: int) -> str:
    """Bytes in full: sums must be comparable digit by digit."""
    return f"{size_bytes:,} B"


def shown(size_bytes: int) -> str:
    """Bytes as a user writes them, with the full figure."""
    text = format_bytes(size_bytes)
    return text if text == f"{size_bytes}B" else f"{text} ({count(size_bytes)})"
