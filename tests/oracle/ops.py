"""Operations of one host: posting, completion, dependencies (MODEL 9)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tests.oracle.scale_up import ScaleUp

if TYPE_CHECKING:
    from tests.oracle.nic import Nic

SEND, RECV, CALC, SCALE_UP = range(4)
NOT_RUN, POSTED, DONE, FAILED = range(4)


class Operation:
    """Progress of one operation; times in ps, -1 = not yet."""

    def __init__(self, op_id: int, dependencies: int) -> None:
        self.id = op_id
        self.missing = dependencies
        self.status = NOT_RUN
        self.posted_ps = -1
        self.first_sent_ps = -1
        self.delivered_ps = -1
        self.done_ps = -1
        self.packets = 0
        self.retransmissions = 0
        self.cnps = 0
        self.marks = 0


class Runner:
    """Posts the operations of one host when they are due."""

    def __init__(self, nic: Nic, operations: list[Operation]) -> None:
        self.nic = nic
        self.plan = nic.plan
        self.operations = operations
        start, end = self.plan.host_op_start[nic.node : nic.node + 2]
        self.due = [(self.plan.op_start_ps[op], op) for op in self.plan.host_op[start:end]]
        heapq.heapify(self.due)
        self.scale_up = ScaleUp(nic)

    def next_due(self) -> int | None:
        times = [self.due[0][0] if self.due else None, self.scale_up.next_due()]
        return min((at for at in times if at is not None), default=None)

    def run(self, now: int) -> None:
        while True:
            self.scale_up.receive(now)
            if not self.due or self.due[0][0] > now:
                return
            at, op_id = heapq.heappop(self.due)
            assert at == now, "an operation is late"
            operation = self.operations[op_id]
            if operation.status == NOT_RUN:
                self.post(operation, now)
            elif operation.status == POSTED:
                # A calc whose duration is over, or a message that has left for its domain.
                assert self.plan.op_kind[op_id] in (CALC, SCALE_UP)
                self.complete(operation, now)

    def post(self, operation: Operation, now: int) -> None:
        operation.status = POSTED
        operation.posted_ps = now
        kind = self.plan.op_kind[operation.id]
        if kind == SEND:
            self.nic.post_send(operation.id, now)
        elif kind == SCALE_UP:
            heapq.heappush(self.due, (self.scale_up.post(operation.id, now), operation.id))
        elif kind == CALC:
            heapq.heappush(self.due, (now + self.plan.op_duration_ps[operation.id], operation.id))
        elif self.operations[self.plan.op_peer[operation.id]].delivered_ps >= 0:
            self.complete(operation, now)

    def delivered(self, send_id: int, now: int) -> None:
        """A message came in whole; its recv, if posted, is done."""
        recv_id = self.plan.op_peer[send_id]
        if recv_id >= 0 and self.operations[recv_id].status == POSTED:
            self.complete(self.operations[recv_id], now)

    def complete(self, operation: Operation, now: int) -> None:
        assert operation.status == POSTED
        operation.status = DONE
        operation.done_ps = now
        start, end = self.plan.op_successor_start[operation.id : operation.id + 2]
        for successor_id in self.plan.op_successor[start:end]:
            successor = self.operations[successor_id]
            successor.missing -= 1
            assert successor.missing >= 0
            # A failed QP has already taken its operations with it.
            if successor.missing == 0 and successor.status == NOT_RUN:
                heapq.heappush(self.due, (max(now, self.plan.op_start_ps[successor_id]), successor_id))
