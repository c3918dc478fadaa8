"""``fabemu compare``: runs side by side, and limits for continuous integration."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from fabemu.cli import EXIT_FINE, EXIT_WORSE


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN_DIR RUN_DIR...", type=click.Path(path_type=Path))
@click.option(
    "--fail-over",
    "limits",
    multiple=True,
    metavar="'FIGURE AMOUNT'",
    help="Exit with 4 if a figure is worse than the baseline's by more than a share or an amount; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as one JSON document.")
def command(runs: tuple[Path, ...], limits: tuple[str, ...], as_json: bool) -> int:
    """Compare runs: parameters that differ, every headline figure with its change, significance over seeds.

    Runs of one scenario with different seeds are one setting; the setting of the first RUN_DIR is the baseline. The
    directory of a sweep that was made with --keep stands for all of its runs. With several seeds medians are shown and
    judged; runs with the same seed are paired.

    \b
    Examples:
      fabemu compare before.run after.run
      fabemu compare before.run after.run --fail-over 'p99_slowdown 5%' --fail-over 'pauses.count 0'
      fabemu compare ecn.sweep --json | jq '.figures[] | select(.name == "slowdown.p99")'
    """
    from fabemu.comparison import compare
    from fabemu.comparison.limits import read_limit
    from fabemu.comparison.text import verdict_text

    for text in limits:
        read_limit(text)  # what is written wrongly is said before anything is read
    comparison = compare(runs)
    verdicts = comparison.judge(limits)
    if as_json:
        document = comparison.to_dict(verdicts)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        comparison.show(sys.stdout, verdicts)
    exceeded = [verdict for verdict in verdicts if verdict.exceeded]
    for verdict in exceeded:
        click.echo(f"error: {verdict_text(verdict)}", err=True)
    return EXIT_WORSE if exceeded else EXIT_FINE
