"""SIGINT, SIGTERM and SIGHUP: the first ends the run in good order, a second SIGINT or SIGTERM at once."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import click

from fabemu.cli import EXIT_HUNG_UP, EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

_EXIT_CODES = {
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
    signal.SIGHUP: EXIT_HUNG_UP,
}

_STREAMS = (0, 1, 2)  # descriptors of standard input, output and error


class Stoppable(click.Group):
    """A group whose commands leave no half a file when a signal ends them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with Signals():
            return super().invoke(ctx)


class Signals:
    """Context in which signals ask for a stop instead of killing the process.

    Until `stop_with` has named something to stop, a signal ends the process by an exception. A SIGHUP that is ignored
    when the context is entered, as under nohup, stays so.
    """

    def __init__(self) -> None:
        """Nothing is caught before the context is entered."""
        self.exit_code: int | None = None  # of the first signal that came, if any
        self._stop: Callable[[str], None] | None = None
        self._before: dict[signal.Signals, object] = {}
        self._is_asked = False  # by a user, who can ask again
        self._terminals: list[int] = []

    def stop_with(self, stop: Callable[[str], None]) -> None:
        """From now on a signal calls `stop` with its name."""
        self._stop = stop

    def __enter__(self) -> Signals:
        """Take the signals."""
        self._terminals = [number for number in _STREAMS if os.isatty(number)]
        for number in _EXIT_CODES:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._receive)
            except ValueError:  # not the main thread: signals are not ours to take
                break
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back, but for SIGHUP if one came: the rest of the same must not kill what ends in good order."""
        for number, handler in self._before.items():
            is_over = number == signal.SIGHUP and (
                self.exit_code == EXIT_HUNG_UP or signal.getsignal(number) == signal.SIG_IGN
            )
            signal.signal(number, signal.SIG_IGN if is_over else handler)  # type: ignore[arg-type]

    def _receive(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number)
        code = _EXIT_CODES[name]
        is_first = self.exit_code is None
        if is_first:
            self.exit_code = code
        if name == signal.SIGHUP:
            # A closed terminal sends it more than once, by the kernel and by the shell, and nobody is there to mean it.
            self._leave_terminals()
            again = False
        else:
            again, self._is_asked = self._is_asked, True
        if self._stop is None or again:
            raise KeyboardInterrupt if name == signal.SIGINT else Terminated(code)
        if is_first:
            self._stop(name.name)

    def _leave_terminals(self) -> None:
        """Discard what goes to the terminal from now on: writing to one that is gone is an error."""
        while self._terminals:
            number = self._terminals.pop()
            with contextlib.suppress(OSError):
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, number)
                os.close(null)
