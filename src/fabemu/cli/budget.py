"""``fabemu budget``: where the time of messages went."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE
from fabemu.cli.path import UserPath
from fabemu.cli.whole import Whole
from fabemu.counted import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from fabemu.layout import Section

_MOMENTS = ("arrived_ps", "sent_ps")


@click.command(
    name="budget",
    epilog="\b\nExamples:\n  fabemu run scenario.toml --trace budget -o out\n  fabemu budget out --slowest 5\n"
    "  fabemu budget out --op 17",
)
@click.argument("run", metavar="RUN_DIR", type=UserPath())
@click.option("--op", "ops", multiple=True, type=Whole(0), help="This message (its `op`); repeatable.")
@click.option("--slowest", type=Whole(1), help="So many messages with the longest completion times.  [default: 10]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(run: Path, ops: tuple[int, ...], slowest: int | None, as_json: bool) -> int:
    """Split the completion time of messages of a run into what it was spent on, to the picosecond.

    The run must have a packets table: `fabemu run --trace budget`, or `packets`. With one --op the way of the last
    packet follows, hop by hop. docs/ANALYSIS.md says what each part is.
    """
    from fabemu.analysis.budget import budget, budget_hops, slowest_ops
    from fabemu.result import load

    if ops and slowest is not None:
        raise click.UsageError("--op and --slowest are both given: give one of them")
    loaded = load(run)
    table = budget(loaded, ops or slowest_ops(loaded, slowest or 10))
    hops = budget_hops(loaded, ops[0]) if len(set(ops)) == 1 and not _inside(table) else None
    notes = json.loads(table.schema.metadata[b"fabemu.notes"])
    if as_json:
        rows = sorted(table.to_pylist(), key=lambda row: (-row["total_ps"], row["op"]))
        found = {"notes": notes, "messages": rows}
        if hops is not None:
            found["hops"] = hops.to_pylist()
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return EXIT_FINE
    from fabemu.layout import show

    sections = [_messages(table)]
    if hops is not None:
        sections.append(_hops(hops))
    show(sections, sys.stdout)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    return EXIT_FINE


def _inside(table: pa.Table) -> bool:
    return any(table.column("scale_up_ps").to_pylist())


def _messages(table: pa.Table) -> Section:
    from fabemu.analysis.budget import PARTS
    from fabemu.layout import Section

    rows = sorted(table.to_pylist(), key=lambda row: (-row["total_ps"], row["op"]))
    parts = [name for name in PARTS if any(row[name] for row in rows)]
    jobs = any(row["job"] is not None for row in rows)
    columns = ("op", "workload", *(("job",) if jobs else ()), "from", "to", "total")
    return Section(
        f"Where the time went: {counted(len(rows), 'message')}, the slowest first",
        (*columns, *(name.removesuffix("_ps").replace("_", " ") for name in parts)),
        [
            (
                str(row["op"]),
                row["label"],
                *((row["job"] or "-",) if jobs else ()),
                row["src"],
                row["dst"],
                _time(row["total_ps"]),
                *(_time(row[name]) for name in parts),
            )
            for row in rows
        ],
        names=frozenset(("workload", "job", "from", "to")),
    )


def _hops(table: pa.Table) -> Section:
    from fabemu.layout import Section

    times = [name for name in table.column_names if name.endswith("_ps")]
    return Section(
        "The way of its last packet",
        ("hop", "port", *(name.removesuffix("_ps") for name in times)),
        [
            (str(row["hop"]), row["port"], *(_time(row[name], zero="0" if name in _MOMENTS else "-") for name in times))
            for row in table.to_pylist()
        ],
        names=frozenset(("port",)),
    )


def _time(value: int | None, zero: str = "-") -> str:
    from fabemu.units import round_time

    if value is None:
        return "?"
    return round_time(value) if value else zero
