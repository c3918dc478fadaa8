"""What ``fabemu sweep`` and ``fabemu tune`` share: their options, the bar over all runs, the word after Ctrl-C."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabemu.cli.path import UserPath
from fabemu.cli.progress import bar
from fabemu.cli.whole import WholeJudgedLater
from fabemu.counted import counted

if TYPE_CHECKING:
    from fabemu.sweeps import Standing

_RETRIES = 2  # sweeps.execute.RETRIES, without its import
_JOBS_MAX = 1024  # that of sweeps.local
_SEEDS_MAX = 100_000  # that of sweeps.points


def read_seeds(_: click.Context, __: click.Parameter, text: str) -> int | list[int]:
    """A count such as 20, or a list such as 1,5,9."""
    match = re.fullmatch(r"\s*(\[?)\s*(\d{1,19}(?:\s*,\s*\d{1,19})*)\s*(,?)\s*(\]?)\s*", text)
    if match is None or bool(match[1]) != bool(match[4]):
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise click.BadParameter(
            f"{shown!r} is neither a count such as 20 nor a list such as 1,5,9 or [1,5,9]; there can be 1 to "
            f"{_SEEDS_MAX:,} seeds, each from 0 to 2**63-1"
        )
    numbers = [int(number) for number in match[2].split(",")]
    return numbers[0] if len(numbers) == 1 and not match[1] and not match[3] else numbers


def seeds_option() -> Callable[[Any], Any]:
    """The option ``--seeds``."""
    return click.option(
        "--seeds",
        default="1",
        show_default=True,
        callback=read_seeds,
        metavar="N|LIST",
        help="Seeds of every point: how many, from the scenario's on, or which, such as 1,5,9.",
    )


def directory_options(noun: str, suffix: str) -> Callable[[Any], Any]:
    """The options that say where a sweep or study is, and who does its runs; ``noun`` is what it is called."""
    return _all(
        click.option(
            "-o",
            "--out",
            "--output",
            "output",
            type=UserPath(),
            help=f"Directory of the {noun}.  [default: ./NAME.{suffix}]",
        ),
        click.option(
            "-j",
            "--jobs",
            type=WholeJudgedLater(1, _JOBS_MAX),
            metavar="N",
            help="Processes of this machine, as far as its memory goes.  [default: one per core]",
        ),
        click.option(
            "--dask", metavar="ADDRESS", help="Use the Dask cluster with this scheduler, such as tcp://10.0.0.1:8786."
        ),
        click.option(
            "--retries",
            type=WholeJudgedLater(0),
            default=_RETRIES,
            show_default=True,
            metavar="N",
            help="Try a run again so often if its worker died or the machine failed it.",
        ),
        click.option("--keep", is_flag=True, help="Keep the run directory of every run, in `runs`."),
    )


def output_options(noun: str) -> Callable[[Any], Any]:
    """The options that say what is printed, and what becomes of an earlier sweep or study."""
    return _all(
        click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document."),
        click.option("-q", "--quiet", is_flag=True, help="No talk on stderr, only warnings and errors."),
        click.option("--force", is_flag=True, help=f"Begin anew, whatever {noun} the directory holds."),
    )


def _all(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        # Those that are applied last are listed first.
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def say_interrupted(directory: Path) -> None:
    """What to say when a signal has ended the work."""
    click.echo(f"interrupted; what is done is in {directory}, and the same command goes on with it", err=True)


def say_warning(text: str) -> None:
    """A warning on stderr."""
    click.echo(f"warning: {text}", err=True)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[Standing], None] | None]:
    """A bar over all runs while the block runs; None if stderr is no terminal or `quiet` is set."""
    with bar(sys.stderr, quiet=quiet) as show:
        if show is None:
            yield None
            return
        from fabemu.report import duration_text

        def show_standing(standing: Standing) -> None:
            text = f"{standing.done:,} of {counted(standing.run_count, 'run')}, {standing.running:,} at work"
            text += f", {standing.without_figures:,} without figures" if standing.without_figures else ""
            left = standing.seconds_left
            text += f", {duration_text(left)} left" if left is not None else ""
            show(standing.done / standing.run_count, text)

        yield show_standing
