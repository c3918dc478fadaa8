"""Paths on the command line: no path, and standard input or output where a path is needed, are told from one."""

from __future__ import annotations

import os
from pathlib import Path

import click


class UserPath(click.Path):
    """A path; with `stdout` also ``-``, which is ``Path("-")`` then."""

    def __init__(self, *, stdout: bool = False, folder: bool = True) -> None:
        """Take what else it may be: `folder` says whether a directory that is there."""
        super().__init__(path_type=Path, allow_dash=stdout, dir_okay=folder)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, or an error: an empty text, which would be the current directory, is most likely a variable."""
        if value == "":
            self.fail("the path is empty; is it a variable that is not set? The current directory is .", param, ctx)
        if value == "-" and not self.allow_dash:
            self.fail("- is no standard input or output here; give a path (./- for one of this name)", param, ctx)
        return super().convert(value, param, ctx)
