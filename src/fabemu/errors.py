"""The errors of fabemu, by who must act on them.

`ScenarioError` and `InputError` mean that the user's input is wrong (exit code 2), `OutputError` that the output cannot
be written (2), `MachineError` that the machine failed (5), `EngineFault` that fabemu itself is at fault (3).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from typing import Literal

from fabemu.deferred import dataclass

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONG_NAME = re.compile(r'"([^"]{80})[^"]{40,}"')
"""What a user has in quotes may be of any length; a message shows enough to find it."""


def _escaped(found: re.Match[str]) -> str:
    """A control character as TOML writes it: it would leave the line, or the terminal."""
    return "\\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input.

    `where` is the place ("incast.toml:12" or the option text), `path` the whole key path ("" if none applies), `value`
    the value as written there (None if none applies) and `message` what is wrong, what is allowed and the likely fix.
    """

    where: str
    path: str
    message: str
    value: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """One line: place, key path, value, message."""
        subject = self.path if self.value is None else f"{self.path} = {self.value}"
        text = ": ".join(part for part in (self.where, subject, self.message) if part)
        return _LONG_NAME.sub(lambda found: f'"{found[1]}..."', _CONTROL.sub(_escaped, text))


class FabemuError(Exception):
    """Base of all errors that fabemu raises on purpose."""


class ScenarioError(FabemuError, ValueError):
    """A scenario is wrong; `problems` lists everything that is."""

    def __init__(self, problems: str | Problem | Iterable[Problem]) -> None:
        """Take one message, one problem or several problems (in the order in which they are to be shown)."""
        if isinstance(problems, str):
            problems = Problem("", "", problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[ScenarioError], tuple[tuple[Problem, ...]]]:
        """Pickle by the problems, not by the text."""
        return type(self), (self.problems,)


class InputError(FabemuError, ValueError):
    """An input file other than the scenario is wrong: flow file, CDF, link list, imported topology."""


class OutputError(FabemuError):
    """The output cannot be written."""


@dataclass(frozen=True)
class AtHand:
    """What the reader of an error can do about it: with nothing given, one who works in Python."""

    options: frozenset[str] = frozenset()  # of the command that was typed, such as "--trace"
    subject: Literal["scenario", "run", "other"] = "scenario"  # what it works on


class MachineError(FabemuError):
    """The machine failed: disk full, out of memory.

    Its text is for anybody; `told` gives the one for the command at hand.
    """

    def __init__(self, what: str, advise: Callable[[AtHand], str] | None = None) -> None:
        """Take what happened, and what gives the rest of the sentence: a way out for those who read it."""
        self.what = what
        self.advise = advise
        super().__init__(self.told(AtHand()))

    def told(self, at_hand: AtHand) -> str:
        """The message, with advice that can be followed from there."""
        return self.what if self.advise is None else self.what + self.advise(at_hand)


def is_full(error: Exception) -> bool:
    """Whether a file could not be written for want of room: the disk, a quota, or a limit of the size of files."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class EngineFault(FabemuError):  # noqa: N818
    """A fault of fabemu itself, such as a broken invariant."""
