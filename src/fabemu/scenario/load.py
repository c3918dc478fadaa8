"""Scenario files: read, overridden, validated; all problems of a file are reported at once, each with its line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from fabemu.counted import counted
from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.model import Scenario
from fabemu.scenario.positions import Path, Position, toml_positions
from fabemu.scenario.problems import Place, path_text, scenario_problems
from fabemu.scenario.profile import take_in_profiles
from fabemu.scenario.text import parse_toml, read_text


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
    return _build(data, source, text, overrides, _name_of(source), FilePath(source).parent)


def _name_of(source: str) -> str:
    """The name of a scenario that gives none: its file's; bytes in that which are no text are replaced."""
    return os.fsencode(FilePath(source).stem).decode(errors="replace")


def scenario_from_toml(text: str, source: str = "<toml>", overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario from TOML text; `source` stands for the file's name in messages. Raises ScenarioError.

    Switch profiles are looked for in the current directory.
    """
    return _build(parse_toml(text, source), source, text, overrides, None, FilePath())


def scenario_from_dict(data: Mapping[str, Any], source: str = "<dict>", overrides: Sequence[str] = ()) -> Scenario:
    """Validate a scenario given as the dict that its TOML would give. Raises ScenarioError.

    Switch profiles are looked for in the current directory.
    """
    return _build(_copied(dict(data)), source, "", overrides, None, FilePath())


def _build(
    data: dict[str, Any],
    source: str,
    text: str,
    overrides: Sequence[str],
    name: str | None,
    base_dir: FilePath,
) -> Scenario:
    options, problems = apply_overrides(data, overrides)
    taken = take_in_profiles(data, base_dir)
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
        if path not in positions and path not in taken.origins:
            # A table that is not in the file was made by an option that set something in it.
            for changed, option in options.items():
                if path and changed[: len(path)] == path:
                    return Place(option, None)
        for length in range(len(path), 0, -1):
            if path[:length] in taken.origins:
                return Place(str(taken.origins[path[:length]]), None)
            if path[:length] in positions:
                line = positions[path[:length]].line
                return Place(f"{source}:{line}", line)
        return Place(source, None)

    for problem in taken.problems:
        here = place(_path(problem.path))
        problems.append(problem if problem.where else replace(problem, where=here.where, line=here.line))
    scenario, found = scenario_problems(data, place)
    if scenario is None or problems:
        raise ScenarioError([*problems, *found])
    return scenario


def _path(text: str) -> Path:
    """Read a key path as `path_text` writes it."""
    return tuple(int(part) if part.isdecimal() else part for part in text.split(".")) if text else ()


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
    places: dict[str, tuple[str, int]] = {}
    options: dict[str, str] = {}
    try:
        text = read_text(source)
        data = parse_toml(text, source)
        options = {path_text(key): option for key, option in apply_overrides(data, overrides)[0].items()}
        taken = take_in_profiles(data, FilePath(source).parent)
        places = {path_text(key): (origin.source, origin.line) for key, origin in taken.origins.items()}
        places |= {path_text(key): (source, position.line) for key, position in _positions(text).items()}
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
            if key in places:
                file, line = places[key]
                return replace(problem, where=f"{file}:{line}", line=line)
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
            path = _set(data, _keys(key_text.strip()), read_value(value_text.strip()))
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


def read_value(text: str) -> Any:
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
                count = counted(len(current), "element")
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
