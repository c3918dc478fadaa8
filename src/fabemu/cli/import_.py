"""`fabemu import`: scenarios and switch profiles from other tools' files."""

from __future__ import annotations

from pathlib import Path

import click

from fabemu.importers.hpcc import import_hpcc
from fabemu.importers.sonic import import_sonic


@click.group(name="import")
def import_group() -> None:
    """Write a scenario from the files of another simulator, or a switch profile from those of a switch."""


_FILE = click.Path(path_type=Path)


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
