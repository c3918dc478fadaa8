"""``fabemu jobs``: what the jobs of a scenario cost each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE, EXIT_UNFINISHED, Simulating
from fabemu.cli.path import UserPath
from fabemu.cli.run import load, say_findings
from fabemu.cli.signals import Signals
from fabemu.cli.whole import SEED

if TYPE_CHECKING:
    from fabemu.alone import JobCost

_COLUMNS: tuple[tuple[str, int], ...] = (
    ("ranks", 7),
    ("nodes", 7),
    ("completion", 12),
    ("alone", 12),
    ("slowdown", 10),
    ("computing", 12),
    ("communication", 15),
    ("busbw", 13),
)


@click.command("jobs", cls=Simulating)
@click.argument("scenario", type=UserPath())
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--seed", type=SEED, help="Seed of all random draws, instead of the scenario's.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(scenario: Path, overrides: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Run SCENARIO whole, then each of its jobs alone on the same GPUs, and say what they cost each other.

    Workloads that belong to no job run with the others only. A job that does not come to its end, because of `until`
    or a fault, has no time, and the exit code is 1.

    \b
    Examples:
      fabemu jobs scenario.toml
      fabemu jobs scenario.toml --set job.1.placement=random --json
    """
    from fabemu.alone import job_costs

    with Signals():
        loaded, compiled = load(scenario, overrides, seed=seed)
        say_findings(loaded, compiled)
        costs = list(job_costs(loaded, base_dir=scenario.parent))
    if as_json:
        result = {"name": loaded.name, "seed": loaded.seed, "jobs": [cost.to_dict() for cost in costs]}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        width = max(3, *(len(cost.together.name) for cost in costs))
        click.echo("job".ljust(width) + "".join(title.rjust(space) for title, space in _COLUMNS))
        for cost in costs:
            click.echo(_line(cost, width))
    failed = [cost.together.name for cost in costs if cost.slowdown != cost.slowdown]
    if failed:
        click.echo(f"error: {', '.join(failed)} did not come to an end", err=True)
    return EXIT_UNFINISHED if failed else EXIT_FINE


def _line(cost: JobCost, width: int) -> str:
    from fabemu.report import rate_text, time_text

    job = cost.together
    cells = (
        str(job.ranks),
        str(job.nodes),
        time_text(job.completion_ps),
        time_text(cost.alone_ps),
        "-" if cost.slowdown != cost.slowdown else f"{cost.slowdown:.3f}",
        time_text(job.compute_ps),
        "-" if job.communication_share != job.communication_share else f"{job.communication_share:.1%}",
        rate_text(job.busbw_bps),
    )
    return job.name.ljust(width) + "".join(cell.rjust(space) for cell, (_, space) in zip(cells, _COLUMNS, strict=True))
