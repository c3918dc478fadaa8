"""``fabemu check``: validate a scenario and lint it, without running it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE, EXIT_INPUT
from fabemu.cli.run import facts, load

if TYPE_CHECKING:
    from fabemu.lint import Finding

_LINE = 100


@click.command("check")
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--show", is_flag=True, help="Print the scenario as resolved, every default spelt out.")
@click.option(
    "--congested-ports",
    type=click.IntRange(min=1),
    help="Ports of a switch to expect congested at once, for the ECN checks.  [default: what the traffic can congest]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(scenario: Path, overrides: tuple[str, ...], show: bool, congested_ports: int | None, as_json: bool) -> int:
    """Validate SCENARIO, say what it would simulate, and find what would spoil it.

    All mistakes of the file come at once, each with its line. Then the linter looks for what cannot work: headroom
    below its bound, a hop without PFC, marks that come too late, routes that can deadlock. `fabemu explain CODE` says
    more. Exits with 2 if the scenario is wrong or a finding is an error.

    \b
    Examples:
      fabemu check scenario.toml
      fabemu check scenario.toml --show > resolved.toml
    """
    import tomllib

    from fabemu.lint import lint

    loaded, compiled = load(scenario, overrides)
    findings = lint(loaded, compiled, congested_ports=congested_ports)
    warnings = [str(finding) for finding in findings if finding.severity != "note"]
    count = Counter(finding.severity for finding in findings)
    if as_json:
        result = {
            "name": loaded.name,
            "plan_digest": compiled.plan.digest(),
            "hosts": compiled.plan.host_count,
            "switches": compiled.plan.node_count - compiled.plan.host_count,
            "ports": compiled.plan.port_count,
            "messages": int((compiled.plan.op_kind == 0).sum()),
            "warnings": warnings,
            "findings": [finding.to_dict() for finding in findings],
            "scenario": tomllib.loads(loaded.to_toml()),
        }
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    elif show:
        for warning in warnings:
            click.echo(f"warning: {warning}", err=True)
        click.echo(loaded.to_toml(), nl=False)
    else:
        counts = [_plural(count[severity], severity) for severity in ("error", "warning") if count[severity]]
        click.echo(f"{scenario}: {', '.join([*([] if count['error'] else ['fine']), *counts])}")
        click.echo(f"  {facts(compiled)}")
        if findings:
            click.echo(f"\n{_table(findings)}")
    if count["error"]:
        text = _plural(count["error"], "error")
        click.echo(f"error: {scenario}: {text}; `fabemu explain CODE` says what a code means", err=True)
        return EXIT_INPUT
    return EXIT_FINE


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''}"


def _table(findings: Sequence[Finding]) -> str:
    """Severity, code and place in columns, the message below."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity:7}  {finding.code}  {finding.place}".rstrip())
        lines.append(textwrap.indent(textwrap.fill(finding.message, _LINE - 9, break_on_hyphens=False), " " * 9))
    return "\n".join(lines)
