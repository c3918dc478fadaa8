"""``fabemu check``: validate a scenario and lint it, without running it; lint the configuration of a SONiC switch."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE, EXIT_INPUT
from fabemu.cli.path import UserPath
from fabemu.cli.run import IGNORE_MEMORY, facts, load, say
from fabemu.cli.whole import Whole
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.cost.here import CostHere
    from fabemu.lint.finding import Finding, Severity
    from fabemu.scenario import Scenario

_LINE = 100


@click.command("check")
@click.argument("scenario", type=UserPath())
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--show", is_flag=True, help="Print the scenario as resolved, every default spelt out.")
@click.option(
    "--congested-ports",
    type=Whole(1),
    help="Ports of a switch to expect congested at once, for the ECN checks.  [default: what the traffic can congest]",
)
@click.option(
    "--profiles",
    "lookup",
    type=UserPath(),
    help="The pg_profile_lookup.ini of a SONiC switch, for the profiles that it makes itself.",
)
@click.option("--cost", "with_cost", is_flag=True, help="Predict what a run costs: packet hops, memory, traces, time.")
@click.option("--ignore-memory", is_flag=True, help=IGNORE_MEMORY)
@click.option("--all", "show_all", is_flag=True, help="Show every finding, however many have the same code.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    show: bool,
    congested_ports: int | None,
    lookup: Path | None,
    with_cost: bool,
    ignore_memory: bool,
    show_all: bool,
    as_json: bool,
) -> int:
    """Validate SCENARIO, say what it would simulate, and find what would spoil it.

    All mistakes of the file come at once, each with its line. Then the linter looks for what cannot work: headroom
    below its bound, a hop without PFC, marks that come too late, routes that can deadlock. `fabemu explain CODE` says
    more. Of findings with the same code the first three are shown, unless --all or --json is given. Exits with 2 if the
    scenario is wrong or a finding is an error.

    If SCENARIO ends in .json it is the config_db.json of a SONiC switch, which is linted on its own.

    \b
    Examples:
      fabemu check scenario.toml
      fabemu check scenario.toml --show > resolved.toml
      fabemu check scenario.toml --cost
      fabemu check config_db.json --profiles pg_profile_lookup.ini
    """
    if scenario.suffix == ".json":
        if overrides or show or congested_ports is not None or with_cost or ignore_memory:
            raise click.UsageError(
                "--set, --show, --congested-ports, --cost and --ignore-memory are for scenarios, not for a "
                "config_db.json"
            )
        return _check_sonic(scenario, lookup, show_all=show_all, as_json=as_json)
    if lookup is not None:
        raise click.UsageError("--profiles is for the config_db.json of a SONiC switch, not for scenarios")
    import tomllib

    from fabemu.lint import lint

    if with_cost and show:
        raise click.UsageError("--show prints the scenario alone: give --cost without it")
    loaded, compiled = load(scenario, overrides, ignore_memory=ignore_memory)
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
            "messages": int(compiled.plan.is_message.sum()),
            "warnings": warnings,
            "findings": [finding.to_dict() for finding in findings],
            "scenario": tomllib.loads(loaded.to_toml()),
        }
        if with_cost:
            result["cost"] = _cost(loaded, compiled, findings).to_dict()
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    elif show:
        say(findings, show_all=show_all)
        click.echo(loaded.to_toml(), nl=False)
    else:
        click.echo(f"{scenario}: {_counts(count)}")
        click.echo(f"  {facts(compiled)}")
        if with_cost:
            click.echo(f"\n{_cost(loaded, compiled, findings)}")
        if findings:
            click.echo(f"\n{_table(findings, show_all=show_all)}")
    return _verdict(scenario, count["error"])


def _cost(scenario: Scenario, compiled: Compiled, findings: Sequence[Finding]) -> CostHere:
    """What a run costs on this machine; its beginning is tried out if it fits into memory."""
    from fabemu.cost.estimate import estimate_cost
    from fabemu.cost.here import CostHere
    from fabemu.cost.machine import room
    from fabemu.simulate import try_out
    from fabemu.threads import cores

    may_deadlock = any(finding.code == "FB301" for finding in findings)
    cost = estimate_cost(
        compiled,
        scenario.trace.tables,
        ends=scenario.trace.packets == "budget",
        threads=cores(),
        may_deadlock=may_deadlock,
    )
    there_is = room()
    fits = there_is is None or cost.memory.total <= there_is.bytes
    return CostHere(cost, there_is, try_out(compiled) if fits else None)


def _check_sonic(path: Path, lookup: Path | None, *, show_all: bool, as_json: bool) -> int:
    """Lint one switch."""
    from fabemu.importers.sonic_lookup import look_up, read_lookup
    from fabemu.importers.sonic_switch import read_switch
    from fabemu.lint.sonic import lint_switch

    switch = read_switch(path)
    profiles = None if lookup is None else read_lookup(lookup)
    if profiles is not None:
        look_up(switch, profiles)
    findings = lint_switch(switch, profiles)
    count = Counter(finding.severity for finding in findings)
    if as_json:
        result = {"ports": len(switch.data_ports), "findings": [finding.to_dict() for finding in findings]}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        click.echo(f"{path}: {_counts(count)}")
        lossless = sum(bool(switch.pfc_of(port)) for port in switch.data_ports)
        click.echo(f"  {counted(len(switch.data_ports), 'port')}, {lossless} with PFC")
        if findings:
            click.echo(f"\n{_table(findings, show_all=show_all)}")
    return _verdict(path, count["error"])


def _verdict(path: Path, errors: int) -> int:
    """Say whether there are errors, and give the exit code."""
    if not errors:
        return EXIT_FINE
    text = counted(errors, "error")
    click.echo(f"error: {path}: {text}; `fabemu explain CODE` says what a code means", err=True)
    return EXIT_INPUT


def _counts(count: Counter[Severity]) -> str:
    """What was found in short: "fine, 1 warning"."""
    shown: tuple[Severity, ...] = ("error", "warning")
    counts = [counted(count[severity], severity) for severity in shown if count[severity]]
    return ", ".join([*([] if count["error"] else ["fine"]), *counts])


def _table(findings: Sequence[Finding], *, show_all: bool) -> str:
    """Severity, code and place in columns, the message below; many with the same code are counted."""
    from fabemu.lint.finding import More, first_of_each

    lines = []
    for finding in findings if show_all else first_of_each(findings):
        if isinstance(finding, More):
            lines.append(f"{finding.severity:7}  {finding}; --all shows them")
            continue
        lines.append(f"{finding.severity:7}  {finding.code}  {finding.place}".rstrip())
        lines.append(textwrap.indent(textwrap.fill(finding.message, _LINE - 9, break_on_hyphens=False), " " * 9))
    return "\n".join(lines)
