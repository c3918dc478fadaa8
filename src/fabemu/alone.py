"""Jobs of a scenario together and alone: what they cost each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fabemu.analysis.jobs import JobOutcome, outcomes
from fabemu.errors import Problem, ScenarioError
from fabemu.simulate import Simulation

if TYPE_CHECKING:
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
    """Run a scenario whole, then each of its jobs alone on the same GPUs, without what belongs to no job.

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
    if not scenario.job:
        raise ScenarioError(Problem("", "job", "there is no job: add [[job]] tables, and job = ... to workloads"))
    placed, together = _run(scenario, base_dir, threads)
    for index, job in enumerate(scenario.job):
        # It keeps the GPUs that it has beside the others, whatever its own placement would choose alone.
        hosts = tuple(placed[index])
        kept = job.model_copy(update={"hosts": hosts, "ranks": None})
        workload = tuple(item for item in scenario.workload if item.job == job.name)
        _, alone = _run(scenario.model_copy(update={"job": (kept,), "workload": workload}), base_dir, threads)
        yield JobCost(together=together[index], alone_ps=alone[0].completion_ps)


def _run(scenario: Scenario, base_dir: Path, threads: int | None) -> tuple[list[list[str]], list[JobOutcome]]:
    """Names of the hosts of every job, and what the jobs came to."""
    from fabemu.compile import compile_plan
    from fabemu.cost.admission import admit

    trace = scenario.trace.model_copy(update={"tables": ("jobs",), "interval": "off"})
    small = scenario.model_copy(update={"trace": trace})
    compiled = compile_plan(small, base_dir=base_dir)
    admit(compiled, trace.tables, threads=1)
    run = Simulation(small, compiled, base_dir=base_dir, findings=(), threads=threads).run()
    names = np.array(compiled.fabric.host_names)
    return [names[job.hosts].tolist() for job in compiled.graph.jobs], outcomes(run.table("jobs"))
