"""Standard output and error that somebody may stop reading: no run is lost by that.

What goes to a standard output whose reader has left (``fabemu run ... | head -1``) is dropped, and the command goes on
to its end: it has tables to write, and an exit code to give. Only where output is all that a command is for, as in
`streaming`, it is the end of the work. Of standard error, which is talk, everything that cannot be written is dropped.
Characters that an encoding lacks are escaped.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_GONE = (errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET)
_ESCAPE = "fabemu.escape"  # how characters are written that the encoding of standard output lacks


class CutOff(Exception):  # noqa: N818
    """The reader of standard output has left a command that is for nothing else; no OSError: click ends at those."""


class _Patient(io.FileIO):
    """A descriptor that can be written to for ever; the lowest layer of a stream, so that all ways lead through it."""

    is_gone = False  # whether nobody reads it any more
    is_all = False  # whether what is written is all that the command is for

    def __init__(self, descriptor: int, *, is_talk: bool) -> None:
        """Write to `descriptor`; `is_talk` says that nothing is lost with what cannot be written."""
        super().__init__(descriptor, "w", closefd=False)
        self._is_talk = is_talk
        # A terminal that has been closed answers with an error of input and output.
        self._gone = (*_GONE, errno.EIO) if os.isatty(descriptor) else _GONE

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        """Write, or drop.

        Raises
        ------
        CutOff
            Nobody reads it, and the work is for nothing else.
        OSError
            It cannot be written for another reason, and is no talk.
        """
        size = memoryview(data).nbytes
        if not self.is_gone:
            try:
                written = super().write(data)
            except OSError as error:
                if not self._is_talk and error.errno not in self._gone:
                    raise
                # Talk has another chance: a disk may have room again.
                self.is_gone = error.errno in self._gone
            else:
                return size if written is None and self._is_talk else written
        if self.is_gone and self.is_all:
            raise CutOff
        return size


def open_streams() -> None:
    """Make the standard streams of this process patient, and discard what goes to one that the caller has closed."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # as Python has it for ``>&-``
            # The lowest free descriptor is the closed one: no file of the run can take its place.
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
        elif name != "stdin" and stream is getattr(sys, f"__{name}__"):
            setattr(sys, name, _patient(stream, is_talk=name == "stderr"))


def _patient(stream: TextIO, *, is_talk: bool) -> TextIO:
    """The same stream with another lowest layer."""
    assert isinstance(stream, io.TextIOWrapper)
    codecs.register_error(_ESCAPE, _escaped)
    is_utf = stream.encoding.lower().startswith("utf")
    can_fail = stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf)
    # Buffered, with PYTHONUNBUFFERED too: a text layer straight above a descriptor takes a short write for a whole one.
    return io.TextIOWrapper(
        io.BufferedWriter(_Patient(stream.fileno(), is_talk=is_talk)),  # type: ignore[arg-type]
        encoding=stream.encoding,
        errors=_ESCAPE if can_fail else stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Write what cannot be encoded as JSON does, which is good for text as well."""
    import json

    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


@contextlib.contextmanager
def streaming() -> Iterator[None]:
    """Context in which the work is over, by `CutOff`, once nobody reads standard output."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, _Patient):
        yield
        return
    raw.is_all = True
    try:
        yield
        sys.stdout.flush()
    finally:
        raw.is_all = False


def discard_output() -> None:
    """Drop what still waits to be written to standard output, which the interpreter would try at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
