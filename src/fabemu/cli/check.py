"""``fabemu check``: validate a scenario without running it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from fabemu.cli import EXIT_FINE
from fabemu.cli.run import facts, load


@click.command("check")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--show", is_flag=True, help="Print the scenario as resolved, every default spelt out.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(scenario: Path, overrides: tuple[str, ...], show: bool, as_json: bool) -> int:
    """Validate SCENARIO and say what it would simulate.

    All errors of the file come at once, each with its line; warnings name what to look at before trusting a result.

    \b
    Examples:
      fabemu check scenario.toml
      fabemu check scenario.toml --show > resolved.toml
    """
    import tomllib

    loaded, compiled = load(scenario, overrides)
    warnings = [str(warning) for warning in compiled.warnings]
    if as_json:
        result = {
            "name": loaded.name,
            "plan_digest": compiled.plan.digest(),
            "hosts": compiled.plan.host_count,
            "switches": compiled.plan.node_count - compiled.plan.host_count,
            "ports": compiled.plan.port_count,
            "messages": int((compiled.plan.op_kind == 0).sum()),
            "warnings": warnings,
            "scenario": tomllib.loads(loaded.to_toml()),
        }
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
        return EXIT_FINE
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if show:
        click.echo(loaded.to_toml(), nl=False)
        return EXIT_FINE
    count = f", {len(warnings)} warning{'s' if len(warnings) > 1 else ''}" if warnings else ""
    click.echo(f"{scenario}: fine{count}")
    click.echo(f"  {facts(compiled)}")
    return EXIT_FINE
