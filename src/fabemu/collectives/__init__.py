"""Collective algorithms as schedules of transfers between ranks; nothing here knows hosts, fabrics or time.

`operations` and `exchange` have the collectives by their NCCL names, `experts` the matrices of mixture-of-experts
layers, `schedule` what they return and how schedules are joined and cut, `semantics` a symbolic run that says whether a
schedule does what `contents` promises, `bounds` how long it takes at least.
"""

from fabemu.collectives.exchange import all_to_all, all_to_all_uneven, gather, scatter, send_recv
from fabemu.collectives.operations import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from fabemu.collectives.schedule import INPUT, OUTPUT, Schedule

__all__ = [
    "INPUT",
    "OUTPUT",
    "Schedule",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_uneven",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send_recv",
]
