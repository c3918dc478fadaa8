"""``fabemu compare``: runs side by side, and limits for continuous integration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE, EXIT_WORSE, talk
from fabemu.cli.path import UserPath

if TYPE_CHECKING:
    from fabemu.comparison import Comparison
    from fabemu.comparison.limits import Verdict

_FILE = UserPath()


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN_DIR RUN_DIR...", type=UserPath())
@click.option(
    "--fail-over",
    "limits",
    multiple=True,
    metavar="'FIGURE AMOUNT'",
    help="Exit with 4 if a figure is worse than the baseline's by more than a share or an amount; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as one JSON document.")
@click.option("--html", "page", metavar="FILE", type=_FILE, help="Write it as one page, with distributions overlaid.")
@click.option("--png", "picture", metavar="FILE", type=_FILE, help="Write the distributions as a picture.")
@click.option("--force", is_flag=True, help="Replace existing files.")
def command(
    runs: tuple[Path, ...],
    limits: tuple[str, ...],
    as_json: bool,
    page: Path | None,
    picture: Path | None,
    force: bool,
) -> int:
    """Compare runs: parameters that differ, every headline figure with its change, significance over seeds.

    Runs of one scenario with different seeds are one setting; the setting of the first RUN_DIR is the baseline. The
    directory of a sweep that was made with --keep stands for all of its runs. With several seeds medians are shown and
    judged; runs with the same seed are paired. --html and --png need the extra report: pip install 'fabemu[report]'.

    \b
    Examples:
      fabemu compare before.run after.run
      fabemu compare before.run after.run --fail-over 'p99_slowdown 5%' --fail-over 'pauses.count 0'
      fabemu compare before.run after.run --html change.html --png change.png
      fabemu compare ecn.sweep --json | jq '.figures[] | select(.name == "slowdown.p99")'
    """
    from fabemu.comparison import compare
    from fabemu.comparison.limits import read_limit
    from fabemu.comparison.text import verdict_text

    for text in limits:
        read_limit(text)  # what is written wrongly is said before anything is read
    comparison = compare(runs)
    verdicts = comparison.judge(limits)
    _write(comparison, verdicts, page, picture, force=force)
    if as_json:
        document = comparison.to_dict(verdicts)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        comparison.show(sys.stdout, verdicts)
    exceeded = [verdict for verdict in verdicts if verdict.exceeded]
    for verdict in exceeded:
        talk(f"error: {verdict_text(verdict)}")
    return EXIT_WORSE if exceeded else EXIT_FINE


def _write(
    comparison: Comparison, verdicts: tuple[Verdict, ...], page: Path | None, picture: Path | None, *, force: bool
) -> None:
    """Write the files that were asked for, and say where they are on stderr."""
    from fabemu.export.output import refuse_existing, replacing

    inside = comparison.groups[0].members[0].run.directory
    for path in (page, picture):
        if path is not None:
            refuse_existing(path, force=force, inside=inside)
    files: list[tuple[Path, bytes]] = []
    if page is not None:
        from fabemu.comparison.page import document

        files.append((page, document(comparison, verdicts).encode(errors="backslashreplace")))
    if picture is not None:
        from fabemu.figures import compared, png

        files.append((picture, png(compared(comparison))))
    for path, content in files:
        with replacing(path, force=force, inside=inside) as file:
            file.write(content)
        talk(f"written: {path}")
