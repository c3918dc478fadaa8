"""Groups of ranks that do the same collectives beside each other, over connections of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fabemu.collectives import exchange
from fabemu.collectives.bounds import bus_factor
from fabemu.collectives.schedule import Schedule, concatenate, on_groups
from fabemu.workload.collective import reduction_schedule
from fabemu.workload.flow import NONE
from fabemu.workload.graph import Collective
from fabemu.workload.program import Program

if TYPE_CHECKING:
    from fabemu.topology.fabric import Fabric

Int64s = NDArray[np.int64]

_EXCHANGES = ("moe-dispatch", "moe-combine")


class GroupError(ValueError):
    """Some groups cannot do a collective so."""

    def __init__(self, purpose: str, message: str) -> None:
        """Say what the groups are for, and what is wrong."""
        super().__init__(message)
        self.purpose = purpose


class Ledger:
    """The collectives of a workload, numbered as they are added."""

    def __init__(self, label: str) -> None:
        """Begin with none."""
        self._label = label
        self._runs: Counter[tuple[str, int, int]] = Counter()
        self._groups = 0
        self.items: list[Collective] = []

    def groups(self, count: int) -> int:
        """Numbers for so many groups: the first of them."""
        self._groups += count
        return self._groups - count

    def add(self, operation: str, algorithm: str, ranks: int, size_bytes: int, purpose: str, group: int) -> int:
        """Add a collective of one group; gives its number."""
        key = (operation, size_bytes, group)
        named = "all_to_all" if operation in _EXCHANGES else operation.replace("-", "_")
        self.items.append(
            Collective(
                label=self._label,
                operation=operation,
                algorithm=algorithm,
                iteration=self._runs[key],
                ranks=ranks,
                size_bytes=size_bytes,
                bus_factor=float(bus_factor(named, ranks)),
                purpose=purpose,
                group=group,
            )
        )
        self._runs[key] += 1
        return len(self.items) - 1


class Communicator:
    """Groups of a set of ranks, as large as each other, and what they say to each other."""

    def __init__(
        self,
        program: Program,
        fabric: Fabric,
        ledger: Ledger,
        ranks: Int64s,
        groups: Int64s,
        *,
        purpose: str,
        lanes: int,
        algorithm: str = "auto",
        channels: int = 1,
        qps: int = 1,
        reduce_rate_bps: int | None = None,
    ) -> None:
        """Name the groups.

        Parameters
        ----------
        program
            Where its operations go.
        fabric
            Where servers are.
        ledger
            Where its collectives are listed.
        ranks
            (S,) of the program.
        groups
            (G, R) places in `ranks`; each is in one group.
        purpose
            What its collectives are for, one of PURPOSES of `fabemu.trace`.
        lanes
            First lane of its connections, of as many as channels times qps.
        algorithm
            Of its all-reduces.
        channels, qps, reduce_rate_bps
            As for `Program.run`.
        """
        self._program = program
        self._fabric = fabric
        self._ledger = ledger
        self.ranks = ranks
        self._groups = groups
        self._group_of_rank = np.empty(len(ranks), dtype=np.int64)
        self._group_of_rank[groups] = np.arange(len(groups))[:, None]
        self._first_group = ledger.groups(len(groups))
        self.purpose = purpose
        self._lanes = lanes
        self._algorithm = algorithm
        self._channels = channels
        self._qps = qps
        self._reduce_rate_bps = reduce_rate_bps
        self._known: dict[tuple[str, int, int], tuple[Schedule, Sequence[str]]] = {}

    @property
    def size(self) -> int:
        """Ranks of a group."""
        return int(self._groups.shape[1])

    def run(self, operation: str, size_bytes: int, after: Int64s, *, element_bytes: int = 1) -> tuple[Int64s, Int64s]:
        """Have all groups run a collective.

        Parameters
        ----------
        operation
            As in the `collectives` table.
        size_bytes
            As nccl-tests counts it.
        after
            (S,) operation that each rank waits for before it begins, or -1.
        element_bytes
            Data is cut at multiples of it.

        Returns
        -------
        As of `Program.run`.

        Raises
        ------
        GroupError
            These ranks cannot do it so.
        """
        key = (operation, size_bytes, element_bytes)
        if key not in self._known:
            try:
                self._known[key] = self._schedules(*key)
            except ValueError as error:
                raise GroupError(self.purpose, str(error)) from None
        schedule, algorithms = self._known[key]
        numbers = np.array(
            [
                self._ledger.add(operation, algorithm, self.size, size_bytes, self.purpose, self._first_group + index)
                for index, algorithm in enumerate(algorithms)
            ]
        )
        return self._program.run(
            schedule,
            self.ranks,
            after,
            lanes=self._lanes,
            qps=self._qps,
            element_bytes=element_bytes,
            reduce_rate_bps=self._reduce_rate_bps,
            collective=numbers[self._group_of_rank],
        )

    def _schedules(self, operation: str, size_bytes: int, element_bytes: int) -> tuple[Schedule, Sequence[str]]:
        """What all groups do side by side, and the algorithm of each."""
        options: dict[str, Any] = {"channels": self._channels, "element_bytes": element_bytes}
        if operation in _EXCHANGES:
            one = exchange.all_to_all(self.size, size_bytes, **options)
            return on_groups(one, self._groups, len(self.ranks)), ["pairwise"] * len(self._groups)
        algorithms, parts = [], []
        hosts = self._program.hosts[self.ranks]
        known: dict[bytes, tuple[Schedule, str]] = {}
        for group in self._groups:
            # Groups that lie alike in their servers have the same schedule.
            node = self._fabric.host_node[hosts[group]]
            alone = np.where(node == NONE, self._fabric.host_count + hosts[group], node)
            alike = np.unique(alone, return_inverse=True)[1].reshape(-1).tobytes()
            if alike not in known:
                algorithm = self._algorithm if operation == "all-reduce" else "auto"
                known[alike] = reduction_schedule(
                    operation, algorithm, size_bytes, hosts[group], self._fabric, **options
                )
            schedule, algorithm = known[alike]
            parts.append(on_groups(schedule, group, len(self.ranks)))
            algorithms.append(algorithm)
        return concatenate(parts), algorithms
