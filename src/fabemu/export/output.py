"""Files that appear when they are whole, and replace others only if they may."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fabemu.errors import MachineError, OutputError
from fabemu.run_directory import RUN_FILE, SCENARIO_FILE
from fabemu.trace import TABLES, table_path


@contextmanager
def replacing(path: Path, *, force: bool, inside: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place when the block ends, and goes away if it fails.

    Parameters
    ----------
    path
        Where the file is to be.
    force
        Replace an existing file.
    inside
        Run directory that is read; its own files are never replaced.

    Raises
    ------
    OutputError
        The path exists, is no regular file, or cannot be written.
    MachineError
        The disk is full.
    """
    refuse_existing(path, force=force, inside=inside)
    # A link stays one: what it points to is replaced.
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OutputError(f"{path}: is no regular file; choose another with -o")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with file:
            yield file
        os.replace(part, path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def refuse_existing(path: Path, *, force: bool, inside: Path) -> None:
    """Raise OutputError if there is something at a path that must stay."""
    own = {RUN_FILE, SCENARIO_FILE, *(table_path(inside, table).name for table in TABLES)}
    if path.name in own and path.resolve().parent == inside.resolve():
        raise OutputError(f"{path}: is a file of the run itself; choose another with -o")
    if path.is_dir():
        raise OutputError(f"{path}: is a directory; choose a file with -o")
    if path.exists() and not force:
        raise OutputError(f"{path}: exists already; replace it with --force, or choose another with -o")
