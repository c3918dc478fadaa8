"""What links with credits ask of the devices at their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabemu.compile.wiring import Wiring
from fabemu.distinct import distinct
from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.device import Switch
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric
from fabemu.units import format_bytes


def refuse_wrong_credits(
    scenario: Scenario, fabric: Fabric, wiring: Wiring, switches: Sequence[Switch], largest_bytes: int
) -> None:
    """Raise ScenarioError for links with credits that cannot work.

    Parameters
    ----------
    scenario, fabric, wiring, switches
        The parts, resolved.
    largest_bytes
        The largest frame: a buffer that does not hold it would block its class for ever.
    """
    limited = wiring.credit_bytes > 0
    if not limited.any():
        return
    problems: list[Problem] = []
    small = np.flatnonzero(limited & (wiring.credit_bytes < largest_bytes))
    for size in distinct(wiring.credit_bytes[small]).tolist():
        names = [wiring.names[port] for port in small.tolist() if wiring.credit_bytes[port] == size]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        message = (
            f"{names[0]}{more}: {size:,} B of credits, in whole blocks of 64 B, do not hold the largest frame, "
            f"{largest_bytes:,} B: it could never be sent"
        )
        problems.append(Problem("", "link.credit_buffer", message))
    ports = wiring.ports
    for index, switch in enumerate(switches):
        node = fabric.host_count + index
        if not limited[ports.node_port_start[node] : ports.node_port_start[node + 1]].any():
            continue
        name = fabric.node_names[node]
        if switch.cell > 1:
            message = (
                f"{name} has links with credits, which count bytes: cell = {format_bytes(switch.cell)} is not for it"
            )
            problems.append(Problem("", "switch.cell", message))
        if switch.class_map:
            message = f"{name} has links with credits, where a frame belongs to the same class at both ends"
            problems.append(Problem("", "switch.class_map", message))
    ids = fabric.node_ids
    for index, item in enumerate(scenario.switch.override):
        if item.peer is None or item.pfc is None:
            continue
        at_switch = ports.port_node == ids[item.name]
        if (limited & at_switch & (ports.peer_node == ids[item.peer])).any():
            message = (
                f'the link of "{item.name}" to "{item.peer}" uses credits: a link has PFC or credits, the same at both '
                "ends"
            )
            problems.append(Problem("", f"switch.override.{index}.pfc", message))
    if problems:
        raise ScenarioError(problems)
