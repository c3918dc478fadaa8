"""``fabemu sweep``: one scenario at many points of its parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

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
from fabemu.cli.whole import SEED, WholeJudgedLater
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.sweeps import Sweep

_DESIGNS = ("grid", "list", "random", "lhs")  # those of sweeps.design, without its import
_POINTS_MAX = 20_000  # that of sweeps.design, without its import
_MANY_POINTS = 1000  # which take seconds to validate


@click.command("sweep", cls=Simulating)
@click.argument("scenario", type=UserPath())
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.PATH=VALUES",
    help="A parameter: key=[a,b,c] for values, key=low..high for a range (low..high:log for even ratios); key=value "
    "for what all points share. Repeatable.",
)
@seeds_option()
@click.option(
    "--design",
    type=click.Choice(_DESIGNS),
    default="grid",
    show_default=True,
    help="All combinations; first values, second values, ...; random draws; a Latin hypercube.",
)
@click.option(
    "--points",
    type=WholeJudgedLater(1, _POINTS_MAX),
    metavar="N",
    help="Number of points of the designs random and lhs.",
)
@click.option("--design-seed", type=SEED, default=1, show_default=True, help="Seed of the draws of these designs.")
@directory_options("sweep", "sweep")
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="FIGURE",
    help="Figure to show and plot, such as slowdown.p99; two for a Pareto front.",
)
@click.option(
    "--plot",
    type=UserPath(folder=False),
    metavar="FILE.png",
    help="Draw the objective over one or two parameters, or two objectives against each other.",
)
@output_options("sweep")
def command(
    scenario: Path,
    settings: tuple[str, ...],
    seeds: int | list[int],
    design: str,
    points: int | None,
    design_seed: int,
    output: Path | None,
    jobs: int | None,
    dask: str | None,
    retries: int,
    keep: bool,
    objectives: tuple[str, ...],
    plot: Path | None,
    as_json: bool,
    quiet: bool,
    force: bool,
) -> int:
    """Run SCENARIO (a TOML file) at many points of its parameters, with one or more seeds each.

    The results are one Parquet dataset with a row per run. After Ctrl-C, SIGTERM, SIGHUP or a crash the same command
    goes on where the sweep stopped. Points that cannot be run are reported, and the others go on; then the exit code
    is 1.

    \b
    Examples:
      fabemu sweep scenario.toml --set 'switch.ecn.kmin=[100KiB,200KiB,400KiB]' --seeds 20
      fabemu sweep scenario.toml --set 'switch.pfc.alpha=1/32..2:log' --design lhs --points 50
      fabemu sweep scenario.toml --set 'link.rate=[100Gbps,400Gbps]' --plot rate.png
    """
    from fabemu.headline import HEADLINE, check_figure
    from fabemu.sweeps import hiring, load_sweep
    from fabemu.sweeps.design import check_design
    from fabemu.sweeps.execute import Execution
    from fabemu.sweeps.parameter import read_settings
    from fabemu.sweeps.picture import check_picture, draw
    from fabemu.sweeps.points import plan_sweep
    from fabemu.sweeps.store import default_directory

    figures = tuple(dict.fromkeys([*(check_figure(name) for name in objectives), *HEADLINE]))
    with Signals() as signals:
        common, parameters = read_settings(list(settings))
        if plot is not None:
            check_picture(plot, parameters, objectives)
        hire = hiring(lambda: execution.plan, say_warning, jobs=jobs, dask=dask)
        count = check_design(design, parameters, points)
        if count >= _MANY_POINTS and not quiet:
            click.echo(f"validating {counted(count, 'point')}", err=True)
        plan = plan_sweep(
            scenario, common, parameters, seeds=seeds, design=design, points=points, design_seed=design_seed
        )
        directory = output if output is not None else default_directory(plan.name)
        execution = Execution(plan, directory, retries=retries, force=force, keep=keep)
        if not quiet:
            earlier = f", {execution.earlier:,} of them done before" if execution.earlier else ""
            click.echo(f"sweeping {plan.name}: {plan.size_text}{earlier}", err=True)
        signals.stop_with(execution.stop)
        with progress(quiet=quiet) as show:
            status = execution.run(hire, show)
    sweep = load_sweep(directory)
    if as_json:
        click.echo(json.dumps(sweep.to_dict(figures), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(sweep.summary(figures))
    if status == "finished" and plot is not None:
        draw(sweep, plot, objectives)  # last: without room for the picture there is still the summary
    if signals.exit_code is not None and status == "interrupted":
        say_interrupted(directory)
        return signals.exit_code
    return _verdict(sweep)


def _verdict(sweep: Sweep) -> int:
    """Exit code of a sweep that came to its end."""
    deadlocked = sweep.info["counts"].get("deadlocked", 0)
    if deadlocked:
        click.echo(f"warning: {counted(deadlocked, 'run')} ended deadlocked", err=True)
    without = len(sweep.failures())
    if without:
        has = "has" if without == 1 else "have"
        click.echo(f"error: {without:,} of {counted(sweep.table.num_rows, 'run')} {has} no figures", err=True)
    return EXIT_UNFINISHED if without else EXIT_FINE
