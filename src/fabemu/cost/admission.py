"""Whether a run fits into memory: refused if it surely does not, warned about if it may not.

A run is looked at twice: before anything is built, by the counts in its scenario, and when it has been compiled, by its
plan. Either takes no memory to speak of.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabemu.cost.machine import Room, room, size_text
from fabemu.cost.size import check_operations, counts_of_scenario, plan_bytes, route_bytes, sure_bytes
from fabemu.counted import counted
from fabemu.errors import AtHand, MachineError

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.cost.estimate import Cost
    from fabemu.scenario import Scenario

WARN_SHARE = 0.8
"""Share of the memory there is beyond which a run comes with a warning."""

_REMEDY = "simulate a smaller fabric or fewer messages, or use a machine with more memory"
_OPTION = "--ignore-memory"


def admit_scenario(scenario: Scenario, base_dir: Path = Path(), *, ignore_memory: bool = False) -> str | None:
    """Look at a scenario before it is compiled.

    Returns
    -------
    str or None
        A warning, if it does not fit and `ignore_memory` is set.

    Raises
    ------
    MachineError
        What is taken while it is compiled, or before the first event, is more than the memory there is.
    ScenarioError
        There are more operations than a plan can number, whatever the memory.
    """
    counts = counts_of_scenario(scenario, base_dir)
    check_operations(scenario, counts, base_dir)
    routes = route_bytes(scenario)
    needed, there_is = sure_bytes(counts, routes), room()
    if there_is is None or needed <= there_is.bytes:
        return None
    plan = plan_bytes(counts) + routes
    messages = counted(counts.messages, "message")
    if counts.ops > counts.messages:
        messages += f" ({counted(counts.ops, 'operation')})"
    text = (
        f"not enough memory: {counted(counts.hosts, 'host')}, {counted(counts.ports // 2, 'cable')} and {messages} "
        f"take at least {size_text(needed)} before the first packet ({size_text(plan)} of it the plan), and "
        f"there is {there_is}; {_REMEDY}"
    )
    if not ignore_memory:
        raise MachineError(text, _anyway)
    return text


def admit(
    compiled: Compiled,
    tables: Sequence[str],
    *,
    threads: int = 1,
    cost: Cost | None = None,
    ignore_memory: bool = False,
) -> str | None:
    """Look at a compiled scenario before it is run.

    Parameters
    ----------
    compiled
        The scenario.
    tables
        Names of the tables that the run writes.
    threads
        Most threads that may step the engine.
    cost
        Its cost, if that is known. Otherwise it is worked out, but only if the most that the run can take is much.
    ignore_memory
        Do not refuse.

    Returns
    -------
    str or None
        A warning, if the estimate is beyond `WARN_SHARE` of the memory there is.

    Raises
    ------
    MachineError
        What is sure of the estimate is more than the memory there is.
    """
    there_is = room()
    if there_is is None:
        return None
    if cost is None:
        from fabemu.cost.estimate import estimate_cost
        from fabemu.cost.memory import most_bytes

        if most_bytes(compiled, tables, threads) <= WARN_SHARE * there_is.bytes:
            return None
        cost = estimate_cost(compiled, tables, threads=threads)
    return judge(cost, there_is, ignore_memory=ignore_memory)


def judge(cost: Cost, there_is: Room, *, ignore_memory: bool = False) -> str | None:
    """Compare an estimate with the memory there is; see `admit`."""
    sure, total = cost.memory.sure, cost.memory.total
    if sure > there_is.bytes:
        text = (
            f"not enough memory: this run takes {size_text(sure)} before the first packet and about {size_text(total)} "
            f"at its peak, and there is {there_is}; {_REMEDY}"
        )
        if not ignore_memory:
            raise MachineError(text, _anyway)
        return text
    if total > WARN_SHARE * there_is.bytes:
        return (
            f"memory may not be enough: this run takes about {size_text(total)} at its peak, and there is {there_is}; "
            "`fabemu check --cost` shows what takes it"
        )
    return None


def _anyway(at_hand: AtHand) -> str:
    """The end of a refusal, for those whose command can do without it."""
    return f"; {_OPTION} goes on anyway" if _OPTION in at_hand.options else ""
