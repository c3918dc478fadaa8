"""Incast: many hosts send to one at the same time."""

from __future__ import annotations

import numpy as np

from fabemu.scenario.workload import Incast
from fabemu.units import LIMIT, format_time
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable, flow_table


def incast_flows(table: Incast, context: WorkloadContext) -> FlowTable:
    """Flows of an `incast` workload: wave by wave, receiver by receiver.

    All senders of a wave start at the same picosecond. With `fan_in` the senders are drawn anew for each receiver and
    wave, from all hosts with a link but the receiver; with `senders` they are those listed ("all": all but the
    receiver).

    Raises
    ------
    ScenarioError
        A host is unknown, sends to itself, or there are fewer hosts than `fan_in`.
    """
    receivers = context.select("receivers", table.receivers if table.receivers is not None else ())
    candidates = context.linked_hosts()
    last_ps = table.start + (table.waves - 1) * table.period
    if last_ps >= LIMIT:
        raise context.error("waves", f"the last wave would start at {format_time(last_ps)}, which is too late to count")
    src, dst = [], []
    for receiver in receivers.tolist():
        others = candidates[candidates != receiver]
        name = context.hosts.names[receiver]
        if table.fan_in is None:
            senders = _listed(table, context, receiver)
            picks = np.tile(senders, table.waves)
        else:
            if table.fan_in > len(others):
                raise context.error(
                    "fan_in", f"there are only {len(others)} hosts besides the receiver {name}", str(table.fan_in)
                )
            draw = context.draw(f"senders to {name}")
            picks = np.concatenate(
                [others[np.sort(draw.permutation(len(others))[: table.fan_in])] for _ in range(table.waves)]
            )
        src.append(picks.reshape(table.waves, -1))
        dst.append(np.full(src[-1].shape, receiver))
    joined_src = np.concatenate(src, axis=1)
    wave = np.broadcast_to(np.arange(table.waves, dtype=np.int64)[:, None], joined_src.shape)
    return flow_table(
        joined_src.ravel(),
        np.concatenate(dst, axis=1).ravel(),
        table.size,
        (table.start + wave * table.period).ravel(),
        class_id=context.class_id,
        verb=context.verb,
        label=context.label,
    )


def _listed(table: Incast, context: WorkloadContext, receiver: int) -> np.ndarray:
    """Senders that the scenario lists."""
    selector = table.senders if table.senders is not None else ()
    senders = context.select("senders", selector)
    if selector == "all":
        senders = senders[senders != receiver]
    if receiver in senders:
        raise context.error("senders", f"the receiver {context.hosts.names[receiver]} would send to itself")
    if len(senders) == 0:
        raise context.error("senders", f"nobody is left to send to {context.hosts.names[receiver]}")
    return senders
