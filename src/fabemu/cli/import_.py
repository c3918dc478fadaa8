"""`fabemu import`: scenarios and switch profiles from other tools' files."""

from __future__ import annotations

from pathlib import Path

import click

from fabemu.cli.path import UserPath
from fabemu.cli.signals import Stoppable
from fabemu.errors import InputError
from fabemu.importers.goal_scenario import import_goal
from fabemu.importers.hpcc import import_hpcc
from fabemu.importers.sonic import import_sonic
from fabemu.units import UnitError, parse_time_ps


@click.group(name="import", cls=Stoppable)
def import_group() -> None:
    """Write a scenario from the files of another simulator, or a switch profile from those of a switch."""


def calc_unit_ps(_: click.Context, __: click.Parameter, value: str) -> int:
    """Picoseconds of the option --calc-unit. Raises click.BadParameter."""
    try:
        unit_ps = parse_time_ps(value)
    except UnitError as error:
        raise click.BadParameter(str(error)) from error
    if unit_ps == 0:
        raise click.BadParameter("must be above 0")
    return unit_ps


_FILE = UserPath()


@import_group.command(
    name="hpcc",
    epilog="\b\nExamples:\n  fabemu import hpcc topology.txt flow.txt config.txt -o imported\n"
    "  fabemu import hpcc topology.txt flow.txt -o incast.toml --shift-start",
)
@click.argument("topology", type=_FILE)
@click.argument("flows", type=_FILE)
@click.argument("config", type=_FILE, required=False)
@click.option(
    "-o",
    "--output",
    type=_FILE,
    help="Scenario to write, if it ends in .toml, else the directory for it.  [default: a directory named like FLOWS]",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--shift-start", is_flag=True, help="Let the first flow start at time 0; such runs usually start at 2 s.")
def hpcc(topology: Path, flows: Path, config: Path | None, output: Path | None, force: bool, shift_start: bool) -> None:
    """Import a simulation of the HPCC family of ns-3 simulators (HPCC, ConWeave, PowerTCP, SimAI, ns3-rdma).

    TOPOLOGY, FLOWS and CONFIG are its text files; without CONFIG the family's DCQCN settings at 100 Gb/s are used. The
    path of the scenario goes to stdout, and a note for everything that is not carried over to stderr.
    """
    path, notes = import_hpcc(
        topology,
        flows,
        config,
        output if output is not None else Path(flows.stem),
        force=force,
        shift_start=shift_start,
    )
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(path)


@import_group.command(
    name="goal",
    epilog="\b\nExamples:\n  fabemu import goal trace.goal\n"
    "  fabemu import goal trace.goal -o trace-on-rails.toml --fabric rails.toml",
)
@click.argument("trace", type=_FILE)
@click.option("-o", "--output", type=_FILE, help="Scenario to write.  [default: named like TRACE, ending in .toml]")
@click.option("--fabric", type=_FILE, help="Scenario whose fabric to take.  [default: one switch]")
@click.option(
    "--calc-unit", default="1ns", show_default=True, callback=calc_unit_ps, help="What the numbers of calc count."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def goal(trace: Path, output: Path | None, fabric: Path | None, calc_unit: int, force: bool) -> None:
    """Import a GOAL trace (LogGOPSim, ATLAHS): sends, recvs and calcs of ranks, and what waits for what.

    TRACE is its text; it is checked and stays where it is. Rank i becomes host i. The path of the scenario goes to
    stdout, and a note for everything that is done otherwise to stderr. docs/GOAL.md says what is read.
    """
    scenario = output if output is not None else Path(trace.name).with_suffix(".toml")
    if scenario.suffix != ".toml":
        raise InputError(f"{scenario}: a scenario ends in .toml: choose another -o")
    path, notes = import_goal(trace, scenario, fabric=fabric, calc_unit_ps=calc_unit, force=force)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(path)


@import_group.command(
    name="sonic",
    epilog="\b\nExamples:\n  fabemu import sonic config_db.json\n"
    "  fabemu import sonic config_db.json pg_profile_lookup.ini -o leaf.toml\n"
    "  fabemu run scenario.toml --set switch.tier.leaf.profile=leaf.toml",
)
@click.argument("config", type=_FILE)
@click.argument("lookup", type=_FILE, required=False)
@click.option(
    "-o", "--output", type=_FILE, help="Profile to write.  [default: named like the switch, else like CONFIG]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def sonic(config: Path, lookup: Path | None, output: Path | None, force: bool) -> None:
    """Import the configuration of a SONiC switch as a switch profile.

    CONFIG is its config_db.json, LOOKUP its pg_profile_lookup.ini: buffers, headroom by speed and cable, thresholds,
    maps, ECN, PFC and watchdog. Scenarios take a profile in with profile = "FILE" in [switch], [switch.tier.NAME] or
    [[switch.override]]. The path of the profile goes to stdout, and a note for everything that is not carried over to
    stderr.
    """
    path, notes = import_sonic(config, lookup, output, force=force)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(path)
