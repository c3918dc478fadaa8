"""Scale-up domains: which hosts also reach each other without the fabric, and how fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import ScenarioError
from fabemu.plan import NONE, OP_RECV, VERB_READ, VERB_SCALE_UP
from fabemu.scenario.model import Scenario
from fabemu.topology.fabric import Fabric
from fabemu.workload.graph import OperationGraph


def scale_up_domains(scenario: Scenario, fabric: Fabric) -> NDArray[np.int32]:
    """(H,) first host of the domain of every host, NONE for hosts of none: domains are the servers of the fabric."""
    domain = np.full(fabric.host_count, NONE, dtype=np.int32)
    if scenario.scale_up is None or scenario.scale_up.model != "analytic":
        return domain
    inside = np.flatnonzero(fabric.host_node != NONE)
    _, first, number, count = np.unique(
        fabric.host_node[inside], return_index=True, return_inverse=True, return_counts=True
    )
    shared = count[number] > 1
    domain[inside[shared]] = inside[first[number[shared]]]
    return domain


def keep_inside(graph: OperationGraph, domain: NDArray[np.int32]) -> OperationGraph:
    """Have flows between hosts of one domain stay in it, and each of them received.

    Raises ScenarioError for a READ inside a domain.
    """
    flows = graph.flows
    # Flows with an end that is no host are refused later.
    near, far = (domain.take(end, mode="clip") for end in (flows.src, flows.dst))
    inside = (near != NONE) & (near == far) & (flows.src != flows.dst)
    if not inside.any():
        return graph
    if (inside & (flows.verb == VERB_READ)).any():
        at = int(np.flatnonzero(inside & (flows.verb == VERB_READ))[0])
        raise ScenarioError(
            f'flow {at}: a READ between GPUs of one node: scale_up.model = "analytic" knows no READ; '
            'use verb = "write", or scale_up.model = "packets"'
        )
    unreceived = inside.copy()
    unreceived[graph.flow[graph.flow != NONE]] = False
    new = np.flatnonzero(unreceived)
    more = {
        "kind": np.full(len(new), OP_RECV),
        "host": flows.dst[new],
        "flow": new,
        "duration_ps": np.zeros(len(new), dtype=np.int64),
        "start_ps": np.zeros(len(new), dtype=np.int64),
        "label_id": flows.label_id[new],
        "collective": flows.collective[new],
    }
    columns: dict[str, Any] = {name: np.concatenate([getattr(graph, name), values]) for name, values in more.items()}
    stay = replace(flows, verb=np.where(inside, VERB_SCALE_UP, flows.verb), qp=np.where(inside, NONE, flows.qp))
    return replace(graph, flows=stay, **columns)


def compile_domains(scenario: Scenario, domain: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """The `host_domain` and `host_scale_up_*` fields of `Plan`, by name; `domain` as `scale_up_domains` gives it."""
    table = scenario.scale_up
    if table is None or not (domain != NONE).any():
        return {}
    return {
        "host_domain": domain,
        "host_scale_up_rate_bps": np.full(len(domain), table.bandwidth),
        "host_scale_up_latency_ps": np.full(len(domain), table.latency),
    }
