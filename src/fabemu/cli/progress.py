"""The progress bar on stderr: simulated time, packets per second, time left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from fabemu.simulate import Snapshot


@contextmanager
def progress_bar(stream: TextIO, *, quiet: bool = False) -> Iterator[Callable[[Snapshot], None] | None]:
    """Show a bar while the block runs.

    Yields
    ------
    callable or None
        To be called with snapshots; None if there is no bar, because the stream is no terminal or `quiet` is set.
    """
    if quiet or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from fabemu.report import count_text, duration_text, time_text

    columns = (BarColumn(bar_width=None), TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}"))
    console = Console(file=stream, no_color=bool(os.environ.get("NO_COLOR")) or None)
    with Progress(*columns, console=console, transient=True, auto_refresh=False, expand=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def show(snapshot: Snapshot) -> None:
            left = snapshot.seconds_left
            text = f"{time_text(snapshot.now_ps)} simulated, {count_text(snapshot.hops_per_second)} packet hops/s"
            text += f", {duration_text(left)} left" if left is not None else ""
            bar.update(task, completed=snapshot.done_share, description=text)
            bar.refresh()

        yield show
