"""Files that appear when they are whole, and of which no part is left on a full disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fabemu.errors import MachineError, OutputError, is_full


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place when the block ends, and goes away if it fails.

    Raises
    ------
    OutputError
        The path is no regular file, or cannot be written.
    MachineError
        The disk is full.
    """
    # A link stays one: what it points to is replaced.
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: is no regular file; choose another with -o")
    # A name that is as long as names may be leaves no room for more.
    part = path.with_name(f".{path.name[:40]}.{os.getpid()}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115
    except OSError as error:
        text = f"{path}: cannot be written: {error.strerror or error}"
        raise (MachineError if is_full(error) else OutputError)(text) from error
    try:
        with file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole, with the directories it lies in, and replace one that is there.

    Raises
    ------
    OutputError, MachineError
        As `whole_file`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.filename or path}: cannot write: {error.strerror or error}"
        raise (MachineError if is_full(error) else OutputError)(reason) from error
    with whole_file(path) as file:
        file.write(text.encode())
