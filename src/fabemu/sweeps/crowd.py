"""How many runs of a sweep fit into memory side by side."""

from __future__ import annotations

from fabemu.cost.admission import WARN_SHARE
from fabemu.cost.machine import room, size_text
from fabemu.cost.size import counts_of_scenario, route_bytes, sure_bytes
from fabemu.counted import counted
from fabemu.errors import FabemuError
from fabemu.sweeps.points import SweepPlan


def run_bytes(plan: SweepPlan) -> int:
    """Memory that the largest run of a sweep takes at its peak, about; 0 if no point is valid.

    Which is the largest, the counts in the scenarios tell; that one is compiled.
    """
    from fabemu.compile import compile_plan
    from fabemu.cost.estimate import estimate_cost

    largest, sure = None, 0
    for point in plan.points:
        if point.scenario is not None:
            needed = sure_bytes(counts_of_scenario(point.scenario, plan.base_dir), route_bytes(point.scenario))
            if needed > sure:
                largest, sure = point.scenario, needed
    there_is = room()
    if largest is None or (there_is is not None and sure > there_is.bytes):
        return sure
    try:
        compiled = compile_plan(largest, base_dir=plan.base_dir)
    except FabemuError:
        return sure  # the worker will say what is wrong
    return estimate_cost(compiled, largest.trace.tables).memory.total


def runs_that_fit(plan: SweepPlan, wanted: int) -> tuple[int, str]:
    """(runs at a time, warning or ""): as many as wanted, or as fit into `WARN_SHARE` of the memory; at least one."""
    there_is = room()
    if there_is is None or wanted <= 1:
        return wanted, ""
    needed = run_bytes(plan)
    fitting = int(WARN_SHARE * there_is.bytes // needed) if needed else wanted
    if fitting >= wanted:
        return wanted, ""
    fitting = max(1, fitting)
    return fitting, (
        f"{counted(fitting, 'run')} at a time instead of {wanted}: one takes about {size_text(needed)} of memory, and "
        f"there is {there_is}"
    )
