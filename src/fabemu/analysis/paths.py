"""Which ports the data of every queue pair leave by, as far as its plan says so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.lint.path import chosen_later, hops
from fabemu.plan import NONE, VERB_READ, Plan

_HOPS_MAX = 64


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of the data of queue pairs, under the routes that a run begins with.

    Attributes
    ----------
    port
        (Q, hops) int32 ports from the sender on, -1 past the last. Of a queue pair whose path is not known, those in
        front of the first switch that chooses by load or for every packet, and the one to its receiver if it has one
        port.
    known
        (Q,) bool, whether that is the whole path.
    sender, receiver
        (Q,) int32 hosts; of a READ the data come from the destination of the queue pair.
    """

    port: NDArray[np.int32]
    known: NDArray[np.bool_]
    sender: NDArray[np.int32]
    receiver: NDArray[np.int32]

    def crosses(self, port: int) -> NDArray[np.bool_]:
        """(Q,) whether the data of each queue pair surely leave by a port."""
        return np.asarray((self.port == port).any(axis=1))


def data_paths(plan: Plan) -> Paths:
    """Follow the data of every queue pair, with the hashes of MODEL 8."""
    reads = plan.qp_verb == VERB_READ
    sender = np.where(reads, plan.qp_dst, plan.qp_src).astype(np.int32)
    receiver = np.where(reads, plan.qp_src, plan.qp_dst).astype(np.int32)
    known = np.ones(plan.qp_count, dtype=np.bool_)
    columns: list[NDArray[np.int32]] = []
    for active, port in hops(plan, sender, receiver, plan.qp_hash):
        known[active] &= ~chosen_later(plan, port, receiver[active])
        column = np.full(plan.qp_count, NONE, dtype=np.int32)
        sure = known[active]
        column[active[sure]] = port[sure]
        columns.append(column)
        if len(columns) == _HOPS_MAX:  # routes by hand that go round
            known[active] = False
            break
    if not known.all():
        column = np.full(plan.qp_count, NONE, dtype=np.int32)
        column[~known] = plan.host_access_port[receiver[~known]]
        columns.append(column)
    port = np.stack(columns, axis=1) if columns else np.empty((plan.qp_count, 0), dtype=np.int32)
    return Paths(port, known, sender, receiver)
