"""What the engine takes before its first event, worked out from counts: by the core's own struct sizes.

The only module of this package that imports the core, and only when it is asked: for sizes, not for a run.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from fabemu.deferred import dataclass
from fabemu.plan import ACTION_RECEIVER, ACTION_STORM, OP_SCALE_UP, SCHEDULER_CREATION, VERB_READ, Plan


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What the size of an engine's fixed state depends on; the names are those of the core's `footprint`."""

    hosts: int
    nodes: int  # hosts and switches
    ports: int
    host_ports: int
    classes: int
    lossless: int  # of the classes
    widest_ports: int  # of the device with the most
    port_pairs: int  # sum over the switches of the square of their ports
    qps: int
    ops: int
    messages: int  # of the operations
    profiles: int = 1  # of NICs
    epochs: int = 1  # of routes
    threads: int = 1  # most that may step it
    actions: bool = False
    weights: bool = False
    credits: bool = False
    receivers: bool = False  # actions of hosts
    watchdogs: bool = False
    reads: bool = False
    scale_up: bool = False
    creation: bool = False  # the compatibility scheduler


@dataclass(frozen=True)
class Footprint:
    """Bytes of fixed state."""

    fabric: int  # devices, ports and queues
    operations: int  # messages and queue pairs that have not begun
    accounts: int  # buffer accounts of switches, at most: pairs of ports that never meet cost nothing


def counts_of(plan: Plan, threads: int = 1) -> Counts:
    """The counts of a plan that so many threads may step."""
    degree = np.diff(plan.node_port_start).astype(np.int64)
    return Counts(
        hosts=plan.host_count,
        nodes=plan.node_count,
        ports=plan.port_count,
        host_ports=int(plan.node_port_start[plan.host_count]),
        classes=plan.class_count,
        lossless=int(np.count_nonzero(plan.class_lossless)),
        widest_ports=int(degree.max(initial=1)),
        port_pairs=int((degree[plan.host_count :] ** 2).sum()),
        qps=plan.qp_count,
        ops=plan.op_count,
        messages=plan.message_count,
        profiles=len(plan.nic_cc),
        epochs=plan.route_epochs,
        threads=threads,
        actions=len(plan.action_time_ps) > 0,
        weights=bool(plan.pq_quantum_bytes.any()),
        credits=bool(plan.port_credit.any()),
        receivers=bool(np.isin(plan.action_kind, (ACTION_STORM, ACTION_RECEIVER)).any()),
        watchdogs=bool(plan.watchdog_poll_ps.any()),
        reads=bool((plan.qp_verb == VERB_READ).any()),
        scale_up=bool((plan.op_kind == OP_SCALE_UP).any()),
        creation=plan.scheduler == SCHEDULER_CREATION,
    )


def footprint(counts: Counts) -> Footprint:
    """Bytes that an engine of these counts takes when it is made; no plan or engine is needed."""
    from fabemu._core.engine import footprint as core_footprint

    return Footprint(**core_footprint(**asdict(counts)))


def struct_bytes() -> dict[str, int]:
    """Bytes of what an engine holds many of, by name, as `fabemu._core.engine.struct_bytes` gives them."""
    from fabemu._core.engine import struct_bytes as core_struct_bytes

    return dict(core_struct_bytes())
