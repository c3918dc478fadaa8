"""SIGINT and SIGTERM: the first ends the run in good order, the second at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from fabemu.cli import EXIT_INTERRUPTED, EXIT_TERMINATED, Terminated

_EXIT_CODES = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}


class Signals:
    """Context in which signals ask for a stop instead of killing the process.

    Until `stop_with` has named something to stop, a signal ends the process by an exception.
    """

    def __init__(self) -> None:
        """Nothing is caught before the context is entered."""
        self.exit_code: int | None = None  # of the signal that came, if any
        self._stop: Callable[[str], None] | None = None
        self._before: dict[signal.Signals, object] = {}

    def stop_with(self, stop: Callable[[str], None]) -> None:
        """From now on a signal calls `stop` with its name."""
        self._stop = stop

    def __enter__(self) -> Signals:
        """Take the signals."""
        for number in _EXIT_CODES:
            try:
                self._before[number] = signal.signal(number, self._receive)
            except ValueError:  # not the main thread: signals are not ours to take
                break
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number)
        again = self.exit_code is not None
        self.exit_code = _EXIT_CODES[name]
        if self._stop is None or again:
            raise KeyboardInterrupt if name == signal.SIGINT else Terminated
        self._stop(name.name)
