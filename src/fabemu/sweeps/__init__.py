"""Sweeps: one scenario at many points of its parameters, with many seeds, on many processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from fabemu.errors import InputError
from fabemu.sweeps.execute import RETRIES, Execution, Standing, Workers
from fabemu.sweeps.parameter import parameters_of
from fabemu.sweeps.points import ScenarioSource, SweepPlan, plan_sweep
from fabemu.sweeps.result import Sweep, load_sweep
from fabemu.sweeps.store import default_directory

if TYPE_CHECKING:
    from fabemu.sweeps.study import Study

__all__ = ["Standing", "Sweep", "Work", "hiring", "load_sweep", "study_execution", "sweep", "tune"]


class Work(TypedDict, total=False):
    """Who does the runs of a sweep or a study, and how; the same for both.

    Keys
    ----
    jobs
        Processes of this machine; as many as there are cores if not given, and no more than fit into memory.
    dask
        Address of the scheduler of a Dask cluster to use instead.
    retries
        Times that a run is tried again when its worker died or the machine failed it.
    force
        Replace the sweep that `output` holds.
    keep
        Keep the run directory of every run, in ``runs``.
    progress
        Called several times a second.
    """

    jobs: int | None
    dask: str | None
    retries: int
    force: bool
    keep: bool
    progress: Callable[[Standing], None] | None


class _Session(TypedDict):
    retries: int
    force: bool
    keep: bool


def sweep(
    scenario: ScenarioSource,
    settings: Mapping[str, Any],
    output: str | Path | None = None,
    *,
    seeds: int | Sequence[int] = 1,
    design: str = "grid",
    points: int | None = None,
    design_seed: int = 1,
    **work: Unpack[Work],
) -> Sweep:
    """Run a scenario at many points; the same call goes on with a sweep that was interrupted.

    Parameters
    ----------
    scenario
        A file, or a mapping with the keys of the file.
    settings
        By key path: a list of the values to try, a text such as ``"100KiB..400KiB"`` for a range, or one value.
    output
        Directory of the sweep; ``<scenario name>.sweep`` if not given.
    seeds
        How many, from the scenario's own seed on; or which.
    design
        ``"grid"``: all combinations; ``"list"``: the first values of all, the second of all, ...; ``"random"`` and
        ``"lhs"`` (Latin hypercube): as many as `points` says.
    points, design_seed
        Of the designs that draw.
    work
        See `Work`.

    Raises
    ------
    InputError, ScenarioError
        If the parameters do not go together, or no point is valid: an unknown key, for example.
    OutputError
        If `output` holds anything else.
    MachineError
        If no worker can be had, or the directory cannot be written.
    """
    _refuse_unknown(work, "sweep")
    common, parameters = parameters_of(settings)
    plan = plan_sweep(scenario, common, parameters, seeds=seeds, design=design, points=points, design_seed=design_seed)
    path = Path(output) if output is not None else default_directory(plan.name)
    execution: Execution
    hire = _hiring(lambda: execution.plan, work)
    execution = Execution(plan, path, **_session(work))
    execution.run(hire, work.get("progress"))
    return load_sweep(path)


def tune(
    scenario: ScenarioSource,
    settings: Mapping[str, Any],
    output: str | Path | None = None,
    *,
    minimize: str | None = None,
    maximize: str | None = None,
    limits: Sequence[str] = (),
    trials: int = 50,
    batch: int = 8,
    seeds: int | Sequence[int] = 1,
    sampler_seed: int = 1,
    **work: Unpack[Work],
) -> Sweep:
    """Let an optimiser look for the best point; the same call goes on with a study that was interrupted.

    Parameters
    ----------
    scenario, settings, output, seeds, work
        As for `sweep`, but that `output` is ``<scenario name>.tune`` if not given.
    minimize, maximize
        The figure whose median over the seeds is to be least or greatest; one of them.
    limits
        What must hold for every seed, such as ``"pauses.count=0"`` or ``"queue_max_bytes<=2e6"``, in base units.
    trials
        Points in all. A study that has come to its end goes on if it is given more.
    batch
        Points that are chosen at a time, before the outcomes of any of them are known.
    sampler_seed
        Of the optimiser.

    Returns
    -------
    Sweep
        All points; ``best()`` gives the best.

    Raises
    ------
    InputError, ScenarioError, OutputError, MachineError
        As `sweep`; or if Optuna is not installed.
    """
    from fabemu.sweeps.study import Study, read_aim

    _refuse_unknown(work, "tune")
    common, parameters = parameters_of(settings)
    aim = read_aim(minimize, maximize, limits)
    execution: Execution
    hire = _hiring(lambda: execution.plan, work)
    study = Study(scenario, common, parameters, aim, trials=trials, batch=batch, seeds=seeds, sampler_seed=sampler_seed)
    path = Path(output) if output is not None else default_directory(study.plan.name, "tune")
    execution = study_execution(study, path, **_session(work))
    execution.run(hire, work.get("progress"), lambda: study.more(execution.outcomes))
    return load_sweep(path)


def _refuse_unknown(work: Mapping[str, Any], name: str) -> None:
    """Raise TypeError, as Python does, for a keyword that is none: `Work` tells type checkers only."""
    import difflib

    for key in work:
        if key not in Work.__annotations__:
            near = difflib.get_close_matches(key, Work.__annotations__, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}{hint}")


def _hiring(plan: Callable[[], SweepPlan], work: Work) -> Callable[[int], Workers]:
    def say(text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=4)

    return hiring(plan, say, jobs=work.get("jobs"), dask=work.get("dask"))


def _session(work: Work) -> _Session:
    return {
        "retries": work.get("retries", RETRIES),
        "force": work.get("force", False),
        "keep": work.get("keep", False),
    }


def study_execution(study: Study, path: Path, *, retries: int, force: bool, keep: bool) -> Execution:
    """The work on a study."""
    about = {"tune": {**study.aim.to_dict(), "trials": study.trials}}
    return Execution(study.plan, path, retries=retries, force=force, keep=keep, total=study.run_count, about=about)


def hiring(
    plan: Callable[[], SweepPlan], say: Callable[[str], None], *, jobs: int | None = None, dask: str | None = None
) -> Callable[[int], Workers]:
    """What gives `Execution.run` its workers: those of a Dask cluster, or processes of this machine.

    Parameters
    ----------
    plan
        Gives the runs, when workers are hired: there are no more processes than fit into memory side by side.
    say
        Is told if that is fewer than there would be otherwise.
    jobs, dask
        See `Work`.

    Raises
    ------
    InputError
        If the number of jobs is below 1, or the address is none. The function returned raises MachineError if the
        cluster does not answer, or cannot do the work.
    """
    from fabemu.sweeps.crowd import runs_that_fit
    from fabemu.sweeps.local import LocalWorkers, check_jobs

    count = check_jobs(jobs)
    if dask is None:

        def hire(left: int) -> Workers:
            wanted = min(count, left)
            fitting, text = runs_that_fit(plan(), wanted)
            if text:
                say(text)
            return LocalWorkers(fitting)

        return hire
    if jobs is not None:
        raise InputError(
            "jobs are processes of this machine: a Dask cluster has workers of its own; give one of the two"
        )
    from fabemu.sweeps.cluster import DaskWorkers, check_address

    address = check_address(dask)
    return lambda _: DaskWorkers(address)
