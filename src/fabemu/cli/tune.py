"""``fabemu tune``: an optimiser looks for the best parameters of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabemu.cli import EXIT_FINE, EXIT_UNFINISHED
from fabemu.cli.signals import Signals
from fabemu.cli.sweep import progress, read_seeds

if TYPE_CHECKING:
    from fabemu.sweeps import Sweep

_RETRIES = 2


@click.command("tune")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.PATH=VALUES",
    help="A parameter: key=low..high for a range (low..high:log for even ratios), key=[a,b,c] for a choice; key=value "
    "for what all trials share. Repeatable.",
)
@click.option("--minimize", metavar="FIGURE", help="Figure whose median over the seeds is to be least: slowdown.p99.")
@click.option("--maximize", metavar="FIGURE", help="Figure whose median over the seeds is to be greatest.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="FIGURE<=NUMBER",
    help="What must hold for every seed, in base units: pauses.count=0. Repeatable.",
)
@click.option("--trials", type=int, default=50, show_default=True, metavar="N", help="Points in all.")
@click.option(
    "--batch",
    type=int,
    default=8,
    show_default=True,
    metavar="N",
    help="Points chosen at a time: what can run at once.",
)
@click.option(
    "--seeds",
    default="1",
    show_default=True,
    callback=read_seeds,
    metavar="N|LIST",
    help="Seeds of every point: how many, from the scenario's on, or which, such as 1,5,9.",
)
@click.option("--sampler-seed", type=int, default=1, show_default=True, help="Seed of the optimiser.")
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    help="Directory of the study.  [default: ./NAME.tune]",
)
@click.option("-j", "--jobs", type=int, metavar="N", help="Processes of this machine.  [default: one per core]")
@click.option(
    "--dask", metavar="ADDRESS", help="Use the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786."
)
@click.option(
    "--retries",
    type=int,
    default=_RETRIES,
    show_default=True,
    metavar="N",
    help="Try a run again so often if its worker died or the machine failed it.",
)
@click.option("--keep", is_flag=True, help="Keep the run directory of every run, in `runs`.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="No talk on stderr, only warnings and errors.")
@click.option("--force", is_flag=True, help="Begin anew, whatever study the directory holds.")
def command(
    scenario: Path,
    settings: tuple[str, ...],
    minimize: str | None,
    maximize: str | None,
    limits: tuple[str, ...],
    trials: int,
    batch: int,
    seeds: int | list[int],
    sampler_seed: int,
    output: Path | None,
    jobs: int | None,
    dask: str | None,
    retries: int,
    keep: bool,
    as_json: bool,
    quiet: bool,
    force: bool,
) -> int:
    """Let an optimiser look for the parameters of SCENARIO (a TOML file) that are best for an objective.

    The study is a sweep whose points are chosen as it goes, by what the points before came to. After Ctrl-C, SIGTERM or
    a crash the same command goes on with it, and with more --trials it goes on after its end. Exits with 1 if no point
    keeps all limits.

    \b
    Examples:
      fabemu tune scenario.toml --set 'switch.ecn.kmin=20KiB..800KiB:log' --minimize slowdown.p99
      fabemu tune scenario.toml --set 'switch.pfc.alpha=1/64..2:log' --minimize fct_ps.p99 --limit pauses.count=0
    """
    from fabemu.sweeps import hiring, load_sweep, study_execution
    from fabemu.sweeps.parameter import read_settings
    from fabemu.sweeps.store import default_directory
    from fabemu.sweeps.study import Study, read_aim

    with Signals() as signals:
        common, parameters = read_settings(list(settings))
        aim = read_aim(minimize, maximize, limits)
        hire = hiring(jobs=jobs, dask=dask)
        study = Study(
            scenario, common, parameters, aim, trials=trials, batch=batch, seeds=seeds, sampler_seed=sampler_seed
        )
        directory = output if output is not None else default_directory(study.plan.name, "tune")
        execution = study_execution(study, directory, retries=retries, force=force, keep=keep)
        if not quiet:
            wanted = ", ".join([f"{'greatest' if aim.greatest else 'least'} {aim.figure}", *map(str, aim.limits)])
            click.echo(f"tuning {study.plan.name}: {trials:,} trials for {wanted}", err=True)
        signals.stop_with(execution.stop)
        with progress(quiet=quiet) as show:
            status = execution.run(hire, show, lambda: study.more(execution.outcomes))
    found = load_sweep(directory)
    best = _best(found)
    if as_json:
        click.echo(json.dumps({**found.to_dict(aim.figures), "best": best}, indent=2, allow_nan=False))
    else:
        click.echo(found.summary(tuple(dict.fromkeys(aim.figures))))
        click.echo("best" if best else "best: none keeps all limits")
        for key, text in (best or {}).get("settings", {}).items():
            click.echo(f"  --set {key}={text}")
        for name, text in (best or {}).get("figures", {}).items():
            click.echo(f"  {name}: {text}")
    if signals.exit_code is not None and status == "interrupted":
        click.echo(f"interrupted; what is done is in {directory}, and the same command goes on with it", err=True)
        return signals.exit_code
    if best is None:
        click.echo("error: no point keeps all limits with every seed", err=True)
    return EXIT_FINE if best is not None else EXIT_UNFINISHED


def _best(sweep: Sweep) -> dict[str, Any] | None:
    from fabemu.sweeps.result import figure_text

    point = sweep.best()
    if point is None:
        return None
    figures = {name: figure_text(name, value) for name, value in point.medians.items()}
    return {"point": point.point, "settings": point.settings, "medians": point.medians, "figures": figures}
