"""What the copies of a stage have to tell each other: gradients, and parameters if each copy keeps a part of them."""

from __future__ import annotations

from collections.abc import Sequence

from fabemu.deferred import dataclass
from fabemu.scenario.training import Training
from fabemu.workload.communicator import Communicator
from fabemu.workload.line import Ends, Line, Stream
from fabemu.workload.program import Program

DATA = "data"


@dataclass(frozen=True)
class Held:
    """Parameters of a layer at one rank: `dense` are the same on all data ranks, `expert` on some of them."""

    dense: int
    expert: int


@dataclass(frozen=True)
class Copies:
    """Ranks that have the same parameters, for gradients and for parameters."""

    reduce: Communicator
    gather: Communicator


class Replica:
    """The parameters of a stage over the steps."""

    def __init__(
        self, table: Training, program: Program, line: Line, layers: Sequence[Held], dense: Copies, expert: Copies
    ) -> None:
        """Begin with all parameters where they belong.

        Parameters
        ----------
        table
            What is sharded, and how large buckets are.
        program, line
            Of the stage.
        layers
            Of the stage.
        dense, expert
            Copies of the two kinds of parameters.
        """
        self._table = table
        self._line = line
        self._layers = layers
        self._copies = {"dense": dense, "expert": expert}
        self._gathers = Stream(program, line)
        self._reductions = Stream(program, line)
        self._operation = "all-reduce" if table.sharded == "none" else "reduce-scatter"
        self.begin([])

    def begin(self, visits: Sequence[int]) -> None:
        """Begin a step that goes through the layers in this order."""
        self._visits = visits
        self._visit = 0
        self._ahead: dict[int, list[Ends]] = {}
        self._ready = dict.fromkeys(self._copies, 0)
        self._buckets: list[tuple[str, int]] = []
        self._reduced: list[Ends] = []

    def need(self) -> None:
        """Have the parameters of the next layer of the order; those of the one after it come while it computes."""
        if self._table.sharded != "full":
            return
        line, visit = self._line, self._visit
        self._visit += 1
        layer = self._layers[self._visits[visit]]
        element = self._table.parameter_element
        if not self._table.overlap:
            for kind, count in self._parts(layer):
                line.communicate(self._copies[kind].gather, "all-gather", count * element, element)
            return
        after = line.settle()
        for number in (visit, visit + 1):
            if number not in self._ahead and number < len(self._visits):
                self._ahead[number] = [
                    self._gathers.run(self._copies[kind].gather, "all-gather", count * element, after, element)
                    for kind, count in self._parts(self._layers[self._visits[number]])
                ]
        for ends in self._ahead.pop(visit):
            line.wait(ends, DATA)

    def ready(self, index: int) -> None:
        """The gradients of a layer are there; layers come in falling order."""
        for kind, count in self._parts(self._layers[index]):
            self._ready[kind] += count
        for kind, count in self._ready.items():
            whole = count * self._table.gradient_element >= self._table.bucket
            if count and (whole or index == 0 or self._table.sharded == "full"):
                self._ready[kind] = 0
                self._buckets.append((kind, count))
                if self._table.overlap:
                    self._reduced.append(self._reduce(kind, count))

    def update(self) -> None:
        """Wait for all gradients, update the parameters, and have all of them again unless that is done by layer."""
        table, line = self._table, self._line
        gradient, parameter = table.gradient_element, table.parameter_element
        if not table.overlap:
            for kind, count in self._buckets:
                line.communicate(self._copies[kind].reduce, self._operation, count * gradient, gradient)
        for ends in self._reduced:
            line.wait(ends, DATA)
        line.compute(table.optimizer_time)
        if table.sharded == "optimizer":
            for kind, count in self._buckets:
                line.communicate(self._copies[kind].gather, "all-gather", count * parameter, parameter)
        line.settle()

    def _parts(self, layer: Held) -> list[tuple[str, int]]:
        """Parameters of a layer that have copies, by kind."""
        parts = (("dense", layer.dense), ("expert", layer.expert))
        return [(kind, count) for kind, count in parts if count and self._copies[kind].reduce.size > 1]

    def _reduce(self, kind: str, count: int) -> Ends:
        element = self._table.gradient_element
        return self._reductions.run(
            self._copies[kind].reduce, self._operation, count * element, self._line.settle(), element
        )
