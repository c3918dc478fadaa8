"""One run of a sweep, as a worker does it: a validated scenario in, headline figures out."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fabemu.cost.shortage import shortage
from fabemu.deferred import dataclass
from fabemu.errors import EngineFault, FabemuError, InputError, ScenarioError

if TYPE_CHECKING:
    from fabemu.scenario import Scenario

Status = Literal["finished", "deadlocked", "invalid", "fault", "failed"]
"""The first two have figures. "invalid": no run comes of these values; "fault": of fabemu; "failed": of the machine."""

HAS_FIGURES = ("finished", "deadlocked")
AGAIN = ("failed",)
"""What may go better when it is tried again."""


@dataclass(frozen=True)
class Task:
    """One run to be done."""

    index: int  # point * seeds + number of the seed
    point: int
    seed: int
    scenario: Scenario
    base_dir: str  # what paths in the scenario are relative to
    output: str | None = None  # run directory to keep; None: only the figures are kept


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    index: int
    status: Status
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    cost: dict[str, Any] = field(default_factory=dict)  # wall_seconds, cpu_seconds, peak_memory_bytes, worker
    attempts: int = 1
    settings: str = ""  # of the point, so that an outcome is known to be that of its run

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return dict(vars(self))


def run_task(
    task: Task, files: Mapping[str, bytes] | None = None, is_wanted: Callable[[], bool] = lambda: True
) -> Outcome:
    """Do one run.

    Parameters
    ----------
    task
        Which.
    files
        Content of the files that the scenario reads, by name, where the worker may not see the disk of the user;
        None: they are found below ``task.base_dir``.
    is_wanted
        Asked several times a second; once it says no, the run is given up.
    """
    from fabemu.simulate import peak_memory_bytes

    begun = time.monotonic()
    try:
        outcome = _run(task, files, is_wanted)
    except (ScenarioError, InputError) as error:
        outcome = Outcome(task.index, "invalid", error=str(error))
    except EngineFault as error:
        outcome = Outcome(task.index, "fault", error=str(error))
    except FabemuError as error:
        outcome = Outcome(task.index, "failed", error=str(error))
    except Exception as error:
        lack = shortage(error)
        if lack is not None or isinstance(error, OSError):
            outcome = Outcome(task.index, "failed", error=str(lack or error))
        else:
            outcome = Outcome(task.index, "fault", error=f"fault in fabemu: {type(error).__name__}: {error}")
    cost = {
        "wall_seconds": round(time.monotonic() - begun, 3),
        "peak_memory_bytes": peak_memory_bytes(),
        "worker": f"{os.uname().nodename}:{os.getpid()}",
        **outcome.cost,
    }
    return replace(outcome, cost=cost)


def _run(task: Task, files: Mapping[str, bytes] | None, is_wanted: Callable[[], bool]) -> Outcome:
    # What a worker imports when it has its first task, and the one that sends tasks never does.
    from fabemu.compile import compile_plan
    from fabemu.cost.admission import admit, admit_scenario
    from fabemu.headline import figures_of
    from fabemu.simulate import Simulation

    scenario = task.scenario.model_copy(update={"seed": task.seed})
    with tempfile.TemporaryDirectory(prefix="fabemu-sweep-") as scratch:
        base_dir = Path(task.base_dir)
        if files is not None:
            base_dir = Path(scratch, "inputs")
            base_dir.mkdir()
            for name, content in files.items():
                (base_dir / name).write_bytes(content)
        admit_scenario(scenario, base_dir)
        compiled = compile_plan(scenario, base_dir=base_dir)
        admit(compiled, scenario.trace.tables)
        output = Path(task.output) if task.output is not None else Path(scratch, "run")
        # The runs of a sweep share the cores among them.
        simulation = Simulation(
            scenario, compiled, output=output, force=True, base_dir=base_dir, findings=(), threads=1
        )
        run = simulation.run(lambda _: None if is_wanted() else simulation.stop("given up"), forecast=False)
        if run.info["status"] == "interrupted":
            return Outcome(task.index, "failed", error="given up")
        figures = figures_of(run)
        status: Status = "deadlocked" if run.info["status"] == "deadlocked" else "finished"
        return Outcome(task.index, status, figures, cost={"cpu_seconds": run.info["cpu_seconds"]})
