"""Files that replace others only if they may; see `fabemu.whole_file`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fabemu.errors import OutputError
from fabemu.run_directory import RUN_FILE, SCENARIO_FILE
from fabemu.trace import TABLES, table_path
from fabemu.whole_file import whole_file


@contextmanager
def replacing(path: Path, *, force: bool, inside: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file beside `path` that takes its place when the block ends, and goes away if it fails.

    Parameters
    ----------
    path
        Where the file is to be.
    force
        Replace an existing file.
    inside
        Run directory that is read, if any; its own files are never replaced.

    Raises
    ------
    OutputError
        The path exists, is no regular file, or cannot be written.
    MachineError
        The disk is full.
    """
    refuse_existing(path, force=force, inside=inside)
    with whole_file(path) as file:
        yield file


def refuse_existing(path: Path, *, force: bool, inside: Path | None = None) -> None:
    """Raise OutputError if there is something at a path that must stay."""
    own = {RUN_FILE, SCENARIO_FILE, *(table_path(path, table).name for table in TABLES)}
    if inside is not None and path.name in own and path.resolve().parent == inside.resolve():
        raise OutputError(f"{path}: is a file of the run itself; choose another with -o")
    if path.is_dir():
        raise OutputError(f"{path}: is a directory; choose a file with -o")
    if path.exists() and not force:
        raise OutputError(f"{path}: exists already; replace it with --force, or choose another with -o")
