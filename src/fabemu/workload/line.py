"""What ranks do one after another, and what goes on beside it: the lines and streams of a training step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.trace import PURPOSES
from fabemu.workload.communicator import Communicator
from fabemu.workload.flow import NONE
from fabemu.workload.program import Program

Int64s = NDArray[np.int64]
Ends = tuple[Int64s, Int64s]
"""Operations that end something, and the place in the line of the rank of each."""


class Line:
    """Ranks that do the same, each by itself: they compute, or wait for what they need to go on.

    All that is computed between two waits is one operation of each rank. It is kept with what it waited for, so that
    what a rank spent its time on can be told afterwards.
    """

    def __init__(self, program: Program, ranks: Int64s) -> None:
        """Begin with nothing; `ranks` are (S,) of the program."""
        self._program = program
        self.ranks = ranks
        self.step = 0  # to which what follows belongs
        self._last = np.full(len(ranks), NONE, dtype=np.int64)
        self._waits: list[Ends] = []
        self._purpose: str | None = None
        self._time_ps = 0
        self._calcs: list[Int64s] = []
        self._steps: list[int] = []
        self._purposes: list[int] = []

    def compute(self, time_ps: int) -> None:
        """Compute so long."""
        self._time_ps += time_ps

    def wait(self, ends: Ends, purpose: str) -> None:
        """Go on when something has ended; `purpose` is one of PURPOSES of `fabemu.trace`."""
        if self._time_ps or (self._waits and self._purpose != purpose):
            self.settle()
        self._waits.append(ends)
        self._purpose = purpose

    def communicate(self, groups: Communicator, operation: str, size_bytes: int, element_bytes: int) -> None:
        """Run a collective and wait for it; groups of one rank have none."""
        if groups.size > 1 and size_bytes:
            ends = groups.run(operation, size_bytes, self.settle(), element_bytes=element_bytes)
            self.wait(ends, groups.purpose)

    def settle(self) -> Int64s:
        """The operations, (S,), after which all has been computed and waited for up to now."""
        if self._waits or self._time_ps or not self._calcs:
            calc = self._program.compute(self.ranks, self._time_ps, self._last)
            for before, place in self._waits:
                self._program.hold(before, calc[place])
            self._calcs.append(calc)
            self._steps.append(self.step)
            self._purposes.append(NONE if self._purpose is None else PURPOSES.index(self._purpose))
            self._last = calc
            self._waits, self._purpose, self._time_ps = [], None, 0
        return self._last

    def track(self) -> dict[str, np.ndarray]:
        """Columns of a `StepTrack`: `calc`, `rank`, `step`, `purpose`."""
        count = len(self.ranks)
        return {
            "calc": np.concatenate(self._calcs),
            "rank": np.tile(self.ranks, len(self._calcs)).astype(np.int32),
            "step": np.repeat(self._steps, count).astype(np.int32),
            "purpose": np.repeat(self._purposes, count).astype(np.int8),
        }


class Stream:
    """Collectives that run beside a line, one after another."""

    def __init__(self, program: Program, line: Line) -> None:
        """Begin with nothing."""
        self._program = program
        self._line = line
        self._running: Ends | None = None

    def run(self, groups: Communicator, operation: str, size_bytes: int, after: Int64s, element_bytes: int) -> Ends:
        """Run a collective after these operations of the line, (S,), and after the collective before it."""
        if self._running is not None:
            before, place = self._running
            after = self._program.compute(self._line.ranks, 0, after)
            self._program.hold(before, after[place])
        self._running = groups.run(operation, size_bytes, after, element_bytes=element_bytes)
        return self._running
