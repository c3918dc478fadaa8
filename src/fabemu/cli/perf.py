"""``fabemu perf``: a collective over a range of sizes, as nccl-tests shows it."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabemu.cli import EXIT_FINE, EXIT_UNFINISHED, Simulating
from fabemu.cli.path import UserPath
from fabemu.cli.run import load, say_findings
from fabemu.cli.signals import Signals
from fabemu.cli.streams import streaming
from fabemu.cli.whole import SEED, Whole
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.perf import PerfRow

_TYPES = ("int8", "uint8", "half", "bfloat16", "float", "int32", "double", "int64")  # the keys of perf.TYPES
_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("size", "(B)", 13),
    ("count", "(elements)", 12),
    ("type", "", 8),
    ("algorithm", "", 18),
    ("time", "(us)", 12),
    ("algbw", "(GB/s)", 9),
    ("busbw", "(GB/s)", 9),
    ("ideal", "(us)", 12),
    ("ideal busbw", "(GB/s)", 12),
    ("of ideal", "(%)", 9),
)


def _size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from fabemu.units import parse_bytes

    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("perf", cls=Simulating)
@click.argument("scenario", type=UserPath())
@click.option("--collective", metavar="NAME", help="all-reduce, all-gather, ...  [default: as the scenario's]")
@click.option(
    "--algorithm", metavar="NAME", help="ring, tree, hierarchical, ...  [default: as the scenario's, or auto]"
)
@click.option("-b", "--begin", default="1KiB", callback=_size, show_default=True, help="Smallest size.")
@click.option("-e", "--end", default="64MiB", callback=_size, show_default=True, help="Largest size.")
@click.option("-f", "--factor", type=Whole(2), help="Each size is so many times the last.  [default: 4]")
@click.option("--step", callback=_size, help="Each size is so many bytes more than the last, instead of --factor.")
@click.option("-n", "--iterations", type=Whole(1), default=2, show_default=True, help="Runs that are measured.")
@click.option("-w", "--warm-ups", type=Whole(0), default=1, show_default=True, help="Runs before them.")
@click.option("--type", "type_name", type=click.Choice(_TYPES), default="float", show_default=True, help="Of elements.")
@click.option("--background", is_flag=True, help="Keep the other workloads of the scenario running beside it.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--seed", type=SEED, help="Seed of all random draws, instead of the scenario's.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    scenario: Path,
    collective: str | None,
    algorithm: str | None,
    begin: int,
    end: int,
    factor: int | None,
    step: int | None,
    iterations: int,
    warm_ups: int,
    type_name: str,
    background: bool,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
) -> int:
    """Run a collective of SCENARIO over a range of sizes and print the table of nccl-tests, the ideal beside it.

    The first workload of kind "collective" is taken, with its job, channels, chunks and queue pairs; without one, an
    all-reduce over all GPUs. What it computes between its runs is left out. The ideal is the least time of one run by
    itself on a network of these rates and lengths; runs that follow each other can overlap, and then take less on
    average. A run that the scenario's `until` cuts off has no time, and the exit code is 1.

    \b
    Examples:
      fabemu perf scenario.toml -b 1KiB -e 1GiB
      fabemu perf scenario.toml --collective all-to-all --type half --json
    """
    from fabemu.perf import perf, sizes_between, template

    if factor is not None and step is not None:
        raise click.UsageError("--factor and --step are both given: give one of them")
    if step is not None and step < 1:
        raise click.UsageError("--step must be at least 1B")
    # A table in JSON is printed when it is whole.
    with Signals(), contextlib.nullcontext() if as_json else streaming():
        loaded, compiled = load(scenario, overrides, seed=seed)
        say_findings(loaded, compiled)
        changes = _changes(template(loaded), collective, algorithm)
        sizes = sizes_between(begin, end, factor=factor or (None if step else 4), step_bytes=step)
        rows: list[PerfRow] = []
        for row in perf(
            loaded,
            sizes,
            base_dir=scenario.parent,
            iterations=iterations,
            warm_ups=warm_ups,
            type_name=type_name,
            background=background,
            changes=changes,
        ):
            if not as_json:
                if not rows:
                    _head(row, loaded.name, iterations, warm_ups)
                click.echo(_line(row))
                sys.stdout.flush()
            rows.append(row)
    if as_json:
        result = {"name": loaded.name, "seed": loaded.seed, "rows": [row.to_dict() for row in rows]}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        known = [row.busbw_bps for row in rows if row.busbw_bps == row.busbw_bps]
        if known:
            click.echo(f"# average bus bandwidth: {sum(known) / len(known) / 8e9:.2f} GB/s")
    failed = [row.size_bytes for row in rows if row.time_ps != row.time_ps]
    if failed:
        click.echo(f"error: the runs of {', '.join(map(str, failed))} B did not come to their end", err=True)
    return EXIT_UNFINISHED if failed else EXIT_FINE


def _changes(item: Any, collective: str | None, algorithm: str | None) -> dict[str, Any]:
    """Keys of the collective to set, checked as a scenario's would be."""
    from fabemu.scenario.workload import ALGORITHMS

    operation = collective or item.operation
    sized = {name: known for name, known in ALGORITHMS.items() if not name.startswith("moe-")}
    if operation not in sized:
        raise click.BadParameter(f"{operation!r} is not one of {', '.join(sized)}", param_hint="--collective")
    allowed = ("auto", *sized[operation])
    # An algorithm of another operation says nothing of this one.
    chosen = algorithm or (item.algorithm if item.algorithm in allowed else "auto")
    if chosen not in allowed:
        raise click.BadParameter(f"{chosen!r}: {operation} has {', '.join(allowed)}", param_hint="--algorithm")
    return {"operation": operation, "algorithm": chosen}


def _head(row: PerfRow, name: str, iterations: int, warm_ups: int) -> None:
    ranks, runs = counted(row.ranks, "rank"), counted(iterations, "run")
    click.echo(f"# {name}: {row.operation}, {ranks}; {runs} measured after {warm_ups}")
    for part in (0, 1):
        click.echo("".join((unit if part else title).rjust(width) for title, unit, width in _COLUMNS))


def _line(row: PerfRow) -> str:
    def figure(value: float, digits: int) -> str:
        return "-" if value != value else f"{value:.{digits}f}"

    cells = (
        str(row.size_bytes),
        str(row.count),
        row.type,
        row.algorithm,
        figure(row.time_ps / 1e6, 2),
        figure(row.algbw_bps / 8e9, 2),
        figure(row.busbw_bps / 8e9, 2),
        figure(row.ideal_ps / 1e6, 2),
        figure(row.ideal_busbw_bps / 8e9, 2),
        figure(100 * row.efficiency, 1),
    )
    return "".join(cell.rjust(column[2]) for cell, column in zip(cells, _COLUMNS, strict=True))
