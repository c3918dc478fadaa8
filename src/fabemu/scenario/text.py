"""Texts of the user's TOML files: read and parsed, with the place of what is wrong."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from typing import Any

from fabemu.errors import Problem, ScenarioError

_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
FILE_BYTES_MAX = 256 * 2**20


def read_text(source: str) -> str:
    """Read a text file of the user.

    Raises
    ------
    ScenarioError
        Not there, not a regular file (a FIFO is not even opened), not readable or not UTF-8.
    """
    try:
        mode = os.stat(source).st_mode
        if stat.S_ISDIR(mode):
            raise ScenarioError(Problem(source, "", "is a directory; give the scenario file in it"))
        if not stat.S_ISREG(mode):
            raise ScenarioError(Problem(source, "", f"is {_file_kind(mode)}, not a regular file"))
        with open(source, "rb") as file:
            # As large as it says it is: a buffer of the limit would be made before the first byte is read.
            raw = file.read(min(os.fstat(file.fileno()).st_size, FILE_BYTES_MAX) + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(Problem(source, "", _reason(error))) from None
    if len(raw) > FILE_BYTES_MAX:
        raise ScenarioError(
            Problem(source, "", "is larger than 256 MiB; put flows into a file of their own (flow-file)")
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"not valid UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}; save the file as UTF-8"
        raise ScenarioError(Problem(f"{source}:{line}", "", message, line=line)) from None


def _file_kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a FIFO (named pipe)"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "cannot be read: permission denied"
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "no such file: the name is too long"
    return f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else f"cannot be read: {error}"


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML text. Raises ScenarioError with line and column."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(_toml_problem(text, source, str(error))) from None
    except RecursionError:
        raise ScenarioError(Problem(source, "", "is nested too deeply")) from None
    except ValueError as error:
        # Python refuses to read integers of thousands of digits.
        raise ScenarioError(Problem(source, "", f"not valid TOML: {error}")) from None


def _toml_problem(text: str, source: str, message: str) -> Problem:
    place = _TOML_PLACE.search(message)
    reason = _TOML_PLACE.sub("", message)
    if place is None:
        return Problem(source, "", f"not valid TOML: {reason}")
    if place[1] is None:
        line, column = text.count("\n") + 1, len(text) - (text.rfind("\n") + 1) + 1
        reason += " (at the end of the file)"
    else:
        line, column = int(place[1]), int(place[2])
    return Problem(f"{source}:{line}:{column}", "", f"not valid TOML: {reason}", line=line)
