"""``fabemu report``: a run as one HTML page, as a picture, or as the answer in sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli.path import UserPath

if TYPE_CHECKING:
    from fabemu.result import Run


@click.command(
    name="report",
    epilog="\b\nExamples:\n  fabemu report victim.run\n  fabemu report victim.run -o page.html --force\n"
    "  fabemu report victim.run --text\n  fabemu report victim.run --png storm-tree -o storm.png",
)
@click.argument("run", metavar="RUN_DIR", type=UserPath())
@click.option("-o", "--output", type=UserPath(), help="File to write.  [default: NAME.html or NAME-FIGURE.png]")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--text", "text_only", is_flag=True, help="Only the answer, no page.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--png", "figure_name", metavar="FIGURE", help="Write one figure as PNG instead; --png list names them.")
def command(
    run: Path, output: Path | None, force: bool, text_only: bool, as_json: bool, figure_name: str | None
) -> None:
    """Say what a run came to, and write it as one HTML page that opens offline.

    The answer goes to stdout, and the path of the page on its last line. Needs the extra `report`:
    pip install 'fabemu[report]'; with --text it does not.
    """
    from fabemu.cli.signals import Signals
    from fabemu.errors import InputError
    from fabemu.recorded.source import Source
    from fabemu.result import load

    if text_only and (output is not None or figure_name is not None):
        raise InputError("--text writes no file: it goes with neither -o nor --png")
    if as_json and figure_name is not None:
        raise InputError("--json is the answer of the whole run: it does not go with --png")
    if figure_name == "list":
        from fabemu.figures import FIGURES

        width = max(map(len, FIGURES))
        for name, item in FIGURES.items():
            click.echo(f"{name:{width}}  {item.meaning}")
        return
    with Signals():
        Source.open(run)  # says what is wrong with a directory
        opened = load(run)
        if figure_name is not None:
            click.echo(_picture(opened, figure_name, output, force=force))
            return
        from fabemu.export.output import refuse_existing
        from fabemu.page.answers import answer

        path: Path | None = None
        if not text_only:
            path = output if output is not None else _default(run, ".html")
            refuse_existing(path, force=force, inside=run)  # before any work
        said = answer(opened)
        if path is not None:
            from fabemu.page import write_page

            write_page(opened, path, said, force=force)
    if as_json:
        found = {**said.to_dict(), **({} if path is None else {"page": str(path)})}
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    click.echo(str(said))
    if path is not None:
        click.echo(path)


def _picture(run: Run, name: str, output: Path | None, *, force: bool) -> Path:
    """Write one figure; returns where."""
    from fabemu.export.output import refuse_existing, replacing
    from fabemu.figures.catalogue import entry
    from fabemu.figures.picture import png

    make = entry(name).make
    path = output if output is not None else _default(run.directory, f"-{name}.png")
    refuse_existing(path, force=force, inside=run.directory)
    content = png(make(run))
    with replacing(path, force=force, inside=run.directory) as file:
        file.write(content)
    return path


def _default(run: Path, ending: str) -> Path:
    """Of a run directory NAME.run, NAME and an ending, beside it."""
    name = run.resolve().name.removesuffix(".run") or "run"
    # The path stays as it was given, unless it ends in dots.
    beside = run.parent if run.name not in ("", "..") else run.resolve().parent
    return beside / f"{name}{ending}"
