"""Bulk data between two sets of hosts."""

from __future__ import annotations

import numpy as np

from fabemu.scenario.workload import Transfer
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import FlowTable, flow_table


def transfer_flows(table: Transfer, context: WorkloadContext) -> FlowTable:
    """Flows of a `transfer` workload, time after time, sources in their order.

    A READ goes the other way: the destination reads from the source, so that the data still flows from source to
    destination.

    Raises
    ------
    ScenarioError
        A host is unknown or would send to itself, or one-to-one has not as many sources as destinations.
    """
    sources = context.select("sources", "all" if table.sources is None else table.sources)
    destinations = context.select("destinations", "all" if table.destinations is None else table.destinations)
    both = np.intersect1d(sources, destinations)
    if len(both):
        name = context.hosts.names[int(both[0])]
        raise context.error("destinations", f'host "{name}" is a source and a destination')
    near, far, size = _pairs(table, context, sources, destinations)
    times = table.count
    start_ps = table.start + table.period * np.repeat(np.arange(times, dtype=np.int64), len(near))
    near, far, size = np.tile(near, times), np.tile(far, times), np.tile(size, times)
    reads = table.verb == "read"
    return flow_table(
        far if reads else near,
        near if reads else far,
        size,
        start_ps,
        class_id=context.class_id,
        verb=context.verb,
        label=context.label,
    )


def _pairs(
    table: Transfer, context: WorkloadContext, sources: np.ndarray, destinations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source, destination and bytes of every message of one time."""
    count, others = len(sources), len(destinations)
    if table.pattern == "one-to-one" and count != others:
        raise context.error(
            "pattern", f'{count} sources and {others} destinations; "round-robin" shares them', f'"{table.pattern}"'
        )
    if table.pattern in ("one-to-one", "round-robin"):
        return sources, destinations[np.arange(count) % others], np.full(count, table.size)
    near, far = np.repeat(sources, others), np.tile(destinations, count)
    size = np.full(len(near), table.size)
    if table.pattern == "striped":
        # What does not divide goes one byte more to the first destinations.
        share, rest = divmod(table.size, others)
        size = share + (np.tile(np.arange(others), count) < rest)
        kept = size > 0
        return near[kept], far[kept], size[kept]
    return near, far, size
