"""Jobs of a scenario together and alone: what they cost each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.analysis.jobs import JobOutcome, outcomes
from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.plan import Plan
from fabemu.simulate import Simulation
from fabemu.threads import allowed_threads

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class JobCost:
    """One job, with the others and without."""

    together: JobOutcome
    alone_ps: float  # completion time without the others; NaN if it did not end

    @property
    def slowdown(self) -> float:
        """Completion time with the others over that without."""
        return self.together.completion_ps / self.alone_ps if self.alone_ps > 0 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        values = {**vars(self.together), "alone_ps": self.alone_ps, "slowdown": self.slowdown}
        return {key: None if value != value else value for key, value in values.items()}


def job_costs(scenario: Scenario, *, base_dir: Path = Path(), threads: int | None = None) -> Iterator[JobCost]:
    """Run a scenario whole, then each of its jobs alone.

    Alone a job does the very same: on the same GPUs, with the same draws, by queue pairs with the same ports, so that
    flow hashing gives them the same paths. What belongs to no job runs with the others only.

    Parameters
    ----------
    scenario
        The scenario, with at least one job.
    base_dir
        Directory of the scenario file.
    threads
        Most threads of each simulation.

    Raises
    ------
    ScenarioError, InputError, MachineError
        As `fabemu.simulate.prepare`; or the scenario has no job.
    """
    from fabemu.compile import compile_plan
    from fabemu.cost.admission import admit

    if not scenario.job:
        raise ScenarioError(Problem("", "job", "there is no job: add [[job]] tables, and job = ... to workloads"))
    trace = scenario.trace.model_copy(update={"tables": ("jobs",), "interval": "off"})
    small = scenario.model_copy(update={"trace": trace})
    whole = compile_plan(small, base_dir=base_dir)
    admit(whole, trace.tables, threads=allowed_threads(threads))
    together = _outcomes(small, whole, base_dir, threads)
    for index in range(len(scenario.job)):
        graph, number = whole.graph.of_job(index)
        part = compile_plan(small, base_dir=base_dir, flows=graph)
        (alone,) = _outcomes(small, replace(part, plan=_with_ports(part.plan, whole.plan, number)), base_dir, threads)
        yield JobCost(together=together[index], alone_ps=alone.completion_ps)


def _with_ports(part: Plan, whole: Plan, number: np.ndarray) -> Plan:
    """A plan whose queue pairs have the hashes of those that carry the same messages in another one."""
    if not part.qp_count:
        return part
    same = whole.op_qp[number[part.qp_op[part.qp_op_start[:-1]]]]
    return replace(part, qp_hash=whole.qp_hash[same], qp_ack_hash=whole.qp_ack_hash[same])


def _outcomes(scenario: Scenario, compiled: Compiled, base_dir: Path, threads: int | None) -> list[JobOutcome]:
    run = Simulation(scenario, compiled, base_dir=base_dir, findings=(), threads=threads).run()
    return outcomes(run.table("jobs"))
