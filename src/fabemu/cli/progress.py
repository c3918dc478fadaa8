"""The progress bar on stderr, and what it says of a run: simulated time, packets per second, time left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from fabemu.simulate import Snapshot


@contextmanager
def bar(stream: TextIO, *, quiet: bool = False) -> Iterator[Callable[[float, str], None] | None]:
    """Show a bar while the block runs.

    Yields
    ------
    callable or None
        To be called with the share that is done and a text; None if there is no bar, because the stream is no terminal
        or `quiet` is set. A terminal that goes away takes the bar with it, and nothing else.
    """
    if quiet or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}"))
    console = Console(file=stream, no_color=bool(os.environ.get("NO_COLOR")) or None)
    shown = Progress(*columns, console=console, transient=True, auto_refresh=False, expand=True)
    task = shown.add_task("starting", total=1.0)

    def show(share: float, text: str) -> None:
        with contextlib.suppress(OSError):
            shown.update(task, completed=share, description=text)
            shown.refresh()

    with contextlib.suppress(OSError):
        shown.start()
    try:
        yield show
    finally:
        with contextlib.suppress(OSError):
            shown.stop()


@contextmanager
def progress_bar(stream: TextIO, *, quiet: bool = False) -> Iterator[Callable[[Snapshot], None] | None]:
    """Show the bar of a run while the block runs; it is to be called with snapshots, and None as `bar` says."""
    with bar(stream, quiet=quiet) as show:
        if show is None:
            yield None
            return
        from fabemu.report import count_text, duration_text, time_text

        def show_snapshot(snapshot: Snapshot) -> None:
            left = snapshot.seconds_left
            text = f"{time_text(snapshot.now_ps)} simulated, {count_text(snapshot.hops_per_second)} packet hops/s"
            text += f", {duration_text(left)} left" if left is not None else ""
            show(snapshot.done_share, text)

        yield show_snapshot
