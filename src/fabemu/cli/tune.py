"""``fabemu tune``: an optimiser looks for the best parameters of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabemu.cli import EXIT_FINE, EXIT_UNFINISHED, Simulating
from fabemu.cli.campaign import (
    directory_options,
    output_options,
    progress,
    say_interrupted,
    say_warning,
    seeds_option,
)
from fabemu.cli.path import UserPath
from fabemu.cli.signals import Signals
from fabemu.cli.whole import WholeJudgedLater
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.sweeps import Sweep

_TRIALS_MAX, _SAMPLER_SEEDS = 10_000, 2**32  # those of sweeps.study, without its import


@click.command("tune", cls=Simulating)
@click.argument("scenario", type=UserPath())
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
@click.option(
    "--trials",
    type=WholeJudgedLater(1, _TRIALS_MAX),
    default=50,
    show_default=True,
    metavar="N",
    help="Points in all.",
)
@click.option(
    "--batch",
    type=WholeJudgedLater(1),
    default=8,
    show_default=True,
    metavar="N",
    help="Points chosen at a time: what can run at once.",
)
@seeds_option()
@click.option(
    "--sampler-seed",
    type=WholeJudgedLater(0, _SAMPLER_SEEDS - 1),
    default=1,
    show_default=True,
    help="Seed of the optimiser.",
)
@directory_options("study", "tune")
@output_options("study")
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

    The study is a sweep whose points are chosen as it goes, by what the points before came to. After Ctrl-C, SIGTERM,
    SIGHUP or a crash the same command goes on with it, and with more --trials it goes on after its end. Exits with 1 if
    no point keeps all limits.

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
        hire = hiring(lambda: execution.plan, say_warning, jobs=jobs, dask=dask)
        study = Study(
            scenario, common, parameters, aim, trials=trials, batch=batch, seeds=seeds, sampler_seed=sampler_seed
        )
        directory = output if output is not None else default_directory(study.plan.name, "tune")
        execution = study_execution(study, directory, retries=retries, force=force, keep=keep)
        if not quiet:
            wanted = ", ".join([f"{'greatest' if aim.greatest else 'least'} {aim.figure}", *map(str, aim.limits)])
            click.echo(f"tuning {study.plan.name}: {counted(trials, 'trial')} for {wanted}", err=True)
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
        say_interrupted(directory)
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
