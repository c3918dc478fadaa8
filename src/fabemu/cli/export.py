"""``fabemu export``: what a run wrote, or a scenario does, in the formats of other tools."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from fabemu.cli.import_ import calc_unit_ps
from fabemu.cli.path import UserPath
from fabemu.cli.signals import Stoppable
from fabemu.cli.streams import streaming
from fabemu.cli.whole import SEED, Whole
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.export import Capture, Timeline

_T = TypeVar("_T")
_FILE = UserPath()
_OUTPUT = UserPath(stdout=True)
_STDOUT = Path("-")
_RUN = click.argument("run", metavar="RUN_DIR", type=_FILE)
_FORCE = click.option("--force", is_flag=True, help="Replace an existing file.")


@click.group(name="export", cls=Stoppable)
def export_group() -> None:
    """Write what a run recorded, or what a scenario does, in the formats of other tools."""


def _time(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from fabemu.units import parse_time_ps

    if value is None:
        return None
    try:
        return parse_time_ps(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _default(run: Path, ending: str) -> Path:
    """Of a run directory NAME.run, NAME and an ending, in the current directory."""
    name = run.resolve().name
    return Path(f"{name.removesuffix('.run') or 'run'}{ending}")


@export_group.command(
    name="pcapng",
    epilog="\b\nExamples:\n  fabemu export pcapng victim.run\n"
    "  fabemu export pcapng victim.run --port 'sw0->sw1' --from 10us --to 50us -o trunk.pcapng\n"
    "  fabemu export pcapng victim.run --host h4 --snaplen 128",
)
@_RUN
@click.option("-o", "--output", type=_OUTPUT, help="File to write; - for standard output.  [default: NAME.pcapng]")
@click.option(
    "--port",
    "ports",
    multiple=True,
    metavar="PORT",
    help="Only this link direction, as leaf0->spine1; * and ? match; repeatable.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Only the links of this host or switch, both ways; * and ? match; repeatable.",
)
@click.option(
    "--from", "from_ps", metavar="TIME", callback=_time, help="Only frames sent from this time on, such as 10us."
)
@click.option("--to", "to_ps", metavar="TIME", callback=_time, help="Only frames sent before this time.")
@click.option("--snaplen", type=Whole(1, 2**31 - 1), help="Keep so many bytes of each frame.  [default: all]")
@click.option("--picoseconds", is_flag=True, help="Time stamps of a picosecond.  [default: nanoseconds, rounded down]")
@_FORCE
def pcapng(
    run: Path,
    output: Path | None,
    ports: tuple[str, ...],
    hosts: tuple[str, ...],
    from_ps: int | None,
    to_ps: int | None,
    snaplen: int | None,
    picoseconds: bool,
    force: bool,
) -> None:
    """Write the frames on chosen links as a capture that Wireshark and tshark read.

    RUN_DIR is a run made with --trace packets. Frames are true RoCEv2 (Ethernet, IPv4, UDP, transport headers, ICRC)
    and PFC frames, one interface per link direction. The path goes to stdout, what is in the capture to stderr.
    """
    from fabemu.export import export_pcapng

    def write(path: Path) -> Capture:
        return export_pcapng(
            run,
            path,
            ports=ports,
            hosts=hosts,
            from_ps=from_ps or 0,
            to_ps=to_ps,
            snap_bytes=snaplen or 0,
            picoseconds=picoseconds,
            force=force,
        )

    path = output if output is not None else _default(run, ".pcapng")
    capture = _sent(write) if path == _STDOUT else write(path)
    click.echo(_contents(capture), err=True)
    for note in capture.notes:
        click.echo(f"note: {note}", err=True)
    if path != _STDOUT:
        click.echo(capture.path)


@export_group.command(
    name="perfetto",
    epilog="\b\nExamples:\n  fabemu export perfetto victim.run\n"
    "  fabemu export perfetto victim.run --from 10us --to 50us -o part.json",
)
@_RUN
@click.option("-o", "--output", type=_OUTPUT, help="File to write; - for standard output.  [default: NAME.json]")
@click.option("--from", "from_ps", metavar="TIME", callback=_time, help="Only what goes on after this time.")
@click.option("--to", "to_ps", metavar="TIME", callback=_time, help="Only what began before this time.")
@_FORCE
def perfetto(run: Path, output: Path | None, from_ps: int | None, to_ps: int | None, force: bool) -> None:
    """Write jobs, collectives, messages, pauses, drops and incidents as a timeline for ui.perfetto.dev.

    The file has Chrome's trace events: a process per host, switch and job, a track per port that was paused. Its path
    goes to stdout, what is in it to stderr.
    """
    from fabemu.export import export_perfetto

    def write(path: Path) -> Timeline:
        return export_perfetto(run, path, from_ps=from_ps or 0, to_ps=to_ps, force=force)

    path = output if output is not None else _default(run, ".json")
    timeline = _sent(write) if path == _STDOUT else write(path)
    click.echo(", ".join(f"{count:,} of {table}" for table, count in timeline.events.items() if count), err=True)
    for note in timeline.notes:
        click.echo(f"note: {note}", err=True)
    if path != _STDOUT:
        click.echo(timeline.path)


@export_group.command(
    name="csv",
    epilog="\b\nExamples:\n  fabemu export csv victim.run flows\n  fabemu export csv victim.run pauses -o - | head",
)
@_RUN
@click.argument("table")
@click.option(
    "-o",
    "--output",
    type=_OUTPUT,
    help="File to write; - for standard output.  [default: TABLE.csv]",
)
@_FORCE
def csv(run: Path, table: str, output: Path | None, force: bool) -> None:
    """Write one TABLE of a run as comma-separated values; the names of the columns have the units.

    The path of the file goes to stdout, the number of rows to stderr.
    """
    from fabemu.export import export_csv

    if output == _STDOUT:
        with streaming():
            export_csv(run, table, sys.stdout.buffer)
        return
    path = output if output is not None else Path(f"{table}.csv")
    rows = export_csv(run, table, path, force=force)
    click.echo(f"{counted(rows, 'row')}", err=True)
    click.echo(path)


@export_group.command(
    name="hpcc",
    epilog="\b\nExamples:\n  fabemu export hpcc victim.run\n  fabemu export hpcc victim.run -o mix --force",
)
@_RUN
@click.option("-o", "--output", type=_FILE, help="Directory for fct.txt and pfc.txt.  [default: NAME-hpcc]")
@_FORCE
def hpcc(run: Path, output: Path | None, force: bool) -> None:
    """Write fct.txt and pfc.txt as the HPCC family of ns-3 simulators does, for scripts that read them.

    The path of the directory goes to stdout, what is in the files to stderr.
    """
    from fabemu.export import export_hpcc

    files = export_hpcc(run, output if output is not None else _default(run, "-hpcc"), force=force)
    click.echo(f"{counted(files.flows, 'message')}, {files.frames:,} pauses and ends of pauses", err=True)
    for note in files.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(files.directory)


def _sent(write: Callable[[Path], _T]) -> _T:
    """Write a file, and send it to standard output once it is whole: of one that fails nothing goes out."""
    with tempfile.TemporaryDirectory(prefix="fabemu-") as folder:
        path = Path(folder) / "export"
        result = write(path)
        with streaming(), open(path, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        return result


def _contents(capture: Capture) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in capture.frames.items() if count)
    return (
        f"{counted(sum(capture.frames.values()), 'frame')} on {counted(capture.interfaces, 'link direction')}: {kinds}"
    )


@export_group.command(
    name="goal",
    epilog="\b\nExamples:\n  fabemu export goal scenario.toml -o scenario.goal\n"
    "  fabemu export goal scenario.toml --set workload.0.size=1MB | head",
)
@click.argument("scenario", type=UserPath())
@click.option("-o", "--output", type=_OUTPUT, help="File to write; - for standard output.  [default: -]")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--seed", type=SEED, help="Seed of all random draws, instead of the scenario's.")
@click.option(
    "--calc-unit", default="1ns", show_default=True, callback=calc_unit_ps, help="What the numbers of calc count."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def goal(
    scenario: Path, output: Path | None, overrides: tuple[str, ...], seed: int | None, calc_unit: int, force: bool
) -> None:
    """Write the messages, computations and dependencies of SCENARIO as a GOAL trace.

    Ranks are hosts. With -o the path of the trace goes to stdout; a note for everything that it does not keep goes to
    stderr. docs/GOAL.md says how.
    """
    from fabemu.cli.run import load
    from fabemu.errors import OutputError
    from fabemu.export.output import replacing
    from fabemu.workload.goal_export import goal_text

    if output == _STDOUT:
        output = None
    if output is not None and output.exists() and not force:
        raise OutputError(f"{output}: exists already; choose another -o or overwrite with --force")
    loaded, compiled = load(scenario, overrides, seed=seed)
    text = goal_text(
        compiled.graph,
        compiled.plan.host_count,
        calc_unit_ps=calc_unit,
        title=f"{_one_line(loaded.name)}, seed {loaded.seed}: written by `fabemu export goal`; rank i is host i",
    )
    if output is None:
        with streaming():
            sys.stdout.writelines(text.parts)
    else:
        with replacing(output, force=force) as file:
            file.writelines(part.encode() for part in text.parts)
    for note in text.notes:
        click.echo(f"note: {note}", err=True)
    if output is not None:
        click.echo(output)


def _one_line(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)
