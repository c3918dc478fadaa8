"""Scenario files: read, overridden, validated; all problems of a file are reported at once, each with its line."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.model import Scenario
from fabemu.scenario.positions import Path, Position, nearest_position, toml_positions
from fabemu.scenario.problems import Place, path_text, scenario_problems

_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")
FILE_BYTES_MAX = 256 * 2**20


def load_scenario(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file.

    Parameters
    ----------
    path
        The TOML file.
    overrides
        Changes "key.path=value" made before validation; list elements by index, values as in TOML or bare text.

    Raises
    ------
    ScenarioError
        The file cannot be read or is wrong; its `problems` say everything that is.
    """
    source = os.fspath(path)
    text = read_text(source)
    data = parse_toml(text, source)
    if not data and not overrides:
        raise ScenarioError(
            Problem(source, "", "the file is empty: a scenario needs [fabric] and at least one [[workload]]")
        )
    return _build(data, source, text, overrides, FilePath(source).stem)


def scenario_from_toml(text: str, source: str = "<toml>", overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario from TOML text; `source` stands for the file's name in messages. Raises ScenarioError."""
    return _build(parse_toml(text, source), source, text, overrides, None)


def scenario_from_dict(data: Mapping[str, Any], source: str = "<dict>", overrides: Sequence[str] = ()) -> Scenario:
    """Validate a scenario given as the dict that its TOML would give. Raises ScenarioError."""
    return _build(_copied(dict(data)), source, "", overrides, None)


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
            raw = file.read(FILE_BYTES_MAX + 1)
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


def _build(
    data: dict[str, Any],
    source: str,
    text: str,
    overrides: Sequence[str],
    name: str | None,
) -> Scenario:
    options, problems = apply_overrides(data, overrides)
    if name and "name" not in data:
        data["name"] = name

    positions: dict[Path, Position] | None = None

    def place(path: Path) -> Place:
        nonlocal positions
        if positions is None:
            positions = _positions(text)
        for length in range(len(path), 0, -1):
            if path[:length] in options:
                return Place(options[path[:length]], None)
        if path not in positions:
            # A table that is not in the file was made by an option that set something in it.
            for changed, option in options.items():
                if path and changed[: len(path)] == path:
                    return Place(option, None)
        position = nearest_position(positions, path)
        return Place(source, None) if position is None else Place(f"{source}:{position.line}", position.line)

    scenario, found = scenario_problems(data, place)
    if scenario is None or problems:
        raise ScenarioError([*problems, *found])
    return scenario


def locate(error: ScenarioError, path: str | os.PathLike[str], overrides: Iterable[str] = ()) -> ScenarioError:
    """Give the problems that were found after a file was read their places: file and line, or the option.

    Parameters
    ----------
    error
        What compiling the scenario raised; problems that have a place keep it.
    path, overrides
        As for `load_scenario`.

    Returns
    -------
    ScenarioError
        With a place for every problem: that of its key, or else of the nearest table around it, or else the file.
    """
    source = os.fspath(path)
    lines: dict[str, int] = {}
    options: dict[str, str] = {}
    try:
        text = read_text(source)
        lines = {path_text(key): position.line for key, position in _positions(text).items()}
        options = {
            path_text(key): option for key, option in apply_overrides(parse_toml(text, source), overrides)[0].items()
        }
    except ScenarioError:
        pass  # the file has changed since; its name still helps

    def located(problem: Problem) -> Problem:
        if problem.where:
            return problem
        parts = problem.path.split(".")
        for length in range(len(parts), 0, -1):
            key = ".".join(parts[:length])
            if key in options:
                return replace(problem, where=options[key])
            if key in lines:
                return replace(problem, where=f"{source}:{lines[key]}", line=lines[key])
        return replace(problem, where=source)

    return ScenarioError(located(problem) for problem in error.problems)


def _positions(text: str) -> dict[Path, Position]:
    """Find the keys of a text that was read; only a scenario with problems pays for it."""
    try:
        return toml_positions(text)
    except (ValueError, RecursionError):
        return {}


def apply_overrides(data: dict[str, Any], overrides: Iterable[str]) -> tuple[dict[Path, str], list[Problem]]:
    """Change parsed TOML in place by options "key.path=value".

    Returns
    -------
    tuple
        The option text by the path it set, and the problems of options that cannot be followed.
    """
    options: dict[Path, str] = {}
    problems: list[Problem] = []
    for option in overrides:
        shown = f"--set {option}"
        key_text, separator, value_text = option.partition("=")
        if not separator or not key_text.strip():
            problems.append(Problem(shown, "", 'write key.path=value, such as "link.rate=200Gbps"'))
            continue
        try:
            path = _set(data, _keys(key_text.strip()), _value(value_text.strip()))
        except ValueError as error:
            problems.append(Problem(shown, "", str(error)))
            continue
        options[path] = shown
    return options, problems


def _keys(text: str) -> list[str]:
    """Split a dotted key as TOML does, quoted parts included."""
    try:
        parsed: Any = tomllib.loads(f"{text} = 0")
    except ValueError:
        raise ValueError(f'"{text}" is not a key path: write keys joined by dots, such as switch.ecn.kmin') from None
    keys = []
    while isinstance(parsed, dict):
        if len(parsed) != 1:
            raise ValueError(f'"{text}" is not a key path: write keys joined by dots, such as switch.ecn.kmin')
        key, parsed = next(iter(parsed.items()))
        keys.append(key)
    return keys


def _value(text: str) -> Any:
    """Read a value as TOML, or else as the bare text that it is."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _set(data: dict[str, Any], keys: list[str], value: Any) -> Path:
    """Set a value, making the tables on the way; give the path with list indices as numbers."""
    current: Any = data
    path: tuple[str | int, ...] = ()
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        if isinstance(current, list):
            if not key.isascii() or not key.isdecimal() or int(key) >= len(current):
                count = f"{len(current)} element{'s' if len(current) != 1 else ''}"
                where = ".".join(map(str, path))
                last_index = f", 0 to {len(current) - 1}" if current else ""
                raise ValueError(f'{where} is a list of {count}{last_index}; "{key}" is not an index of it')
            index = int(key)
            path = (*path, index)
            if last:
                current[index] = value
            current = current[index]
        elif isinstance(current, dict):
            path = (*path, key)
            if last:
                current[key] = value
            else:
                current = current.setdefault(key, {})
        else:
            raise ValueError(f'{".".join(map(str, path))} is a value, not a table: it has no key "{key}"')
    return path


def _copied(value: Any) -> Any:
    """Copy dicts and lists, so that overrides do not reach the caller's."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
