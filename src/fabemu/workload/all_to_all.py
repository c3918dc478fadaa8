"""All-to-all: every host sends to every other host."""

from __future__ import annotations

import numpy as np

from fabemu.scenario.workload import AllToAll
from fabemu.workload.context import WorkloadContext
from fabemu.workload.flow import NONE, FlowTable, flow_table

FLOWS_MAX = 50_000_000
"""Most pairs of hosts."""


def all_to_all_flows(table: AllToAll, context: WorkloadContext) -> FlowTable:
    """Flows of an `all-to-all` workload, step by step: in step i host k sends to host k + i, modulo their number.

    In parallel mode all flows are posted at `start`. In sequential mode a host posts its flow of a step when its flow
    of the step before is done, that is acknowledged.

    Raises
    ------
    ScenarioError
        A host is unknown, there are fewer than two, or there would be too many flows.
    """
    hosts = context.select("hosts", table.hosts)
    count = len(hosts)
    if count < 2:
        raise context.error("hosts", f"an all-to-all needs at least 2 hosts, there are {count}")
    if count * (count - 1) > FLOWS_MAX:
        raise context.error("hosts", f"{count * (count - 1):,} pairs of hosts; at most {FLOWS_MAX:,} are supported")
    step, rank = np.divmod(np.arange(count * (count - 1)), count)
    after: np.ndarray | int = NONE
    if table.mode == "sequential":
        after = np.where(step == 0, NONE, np.arange(len(step)) - count)
    return flow_table(
        hosts[rank],
        hosts[(rank + step + 1) % count],
        table.size,
        table.start,
        class_id=context.class_id,
        after=after,
        verb=context.verb,
        label=context.label,
    )
