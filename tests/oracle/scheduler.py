"""Which class a switch port serves: strict ones first, then the weighted ones by deficit round robin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.oracle.device import Port
    from tests.oracle.simulator import Simulator


class Scheduler:
    """State of one port."""

    def __init__(self, simulator: Simulator, port: Port) -> None:
        count = simulator.class_count
        self.quantum = simulator.plan.pq_quantum_bytes[port.id * count : (port.id + 1) * count]
        self.weighted = [class_id for class_id in range(count) if self.quantum[class_id] > 0]
        self.cursor = self.weighted[-1] if self.weighted else -1
        self.deficit = [0] * count
        self.counts = simulator.counts

    def choice(self, heads: dict[int, int]) -> int | None:
        """The class to serve, of those that can send now; `heads`: the size of the first frame of each."""
        strict = [class_id for class_id in heads if self.quantum[class_id] == 0]
        if strict:
            return min(strict)
        if not heads:
            return None
        if self.keeps_turn(heads):
            return self.cursor
        at = self.weighted.index(self.cursor)
        return next(class_id for class_id in self.weighted[at + 1 :] + self.weighted[: at + 1] if class_id in heads)

    def keeps_turn(self, heads: dict[int, int]) -> bool:
        return self.cursor in heads and self.deficit[self.cursor] >= heads[self.cursor]

    def serve(self, class_id: int, heads: dict[int, int]) -> None:
        """The class was chosen and its first frame starts."""
        if self.quantum[class_id] == 0:
            return
        if not self.keeps_turn(heads):
            self.cursor = class_id
            self.deficit[class_id] += self.quantum[class_id]
            self.counts["weighted_turns"] += 1
        self.deficit[class_id] -= heads[class_id]
        assert self.deficit[class_id] >= 0, "a quantum is less than a frame"

    def emptied(self, class_id: int) -> None:
        self.deficit[class_id] = 0
