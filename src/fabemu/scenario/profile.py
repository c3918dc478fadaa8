"""Switch profiles: files with the [switch] table of one kind of switch, taken in below a scenario's own keys.

A profile holds [switch], as a scenario does; [map], which says by queue number what a switch makes of the classes; and
[[class]], the classes it was made for. It is taken in before validation, so that everything is validated once, where it
takes effect; what is wrong is reported where it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from fabemu.deferred import dataclass
from fabemu.errors import Problem, ScenarioError
from fabemu.scenario.device import Switch
from fabemu.scenario.model import default_classes
from fabemu.scenario.positions import Path, toml_positions
from fabemu.scenario.quantity import named, shown
from fabemu.scenario.shape import inner_tables, table_keys
from fabemu.scenario.text import parse_toml, read_text

_TABLES = ("switch", "map", "class")
_MAP_KEYS = ("dscp", "lossless", "weights")
_DEFAULT = -1  # stands for all code points that are not listed


@dataclass(frozen=True)
class Origin:
    """Where a key that was taken in is written: file and line."""

    source: str
    line: int

    def __str__(self) -> str:
        """As messages say it."""
        return f"{self.source}:{self.line}"


@dataclass
class TakenIn:
    """What taking in the profiles of a scenario did.

    `origins` tells where the keys that came from profiles are written. `problems` have a place if it is a profile, and
    none if it is in the scenario.
    """

    origins: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class _Profile:
    """One file that was read."""

    source: str
    data: dict[str, Any]
    lines: dict[Path, int]

    def origin(self, path: Path) -> Origin:
        """Place of a key, or of what is around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return Origin(self.source, self.lines[path[:length]])
        return Origin(self.source, 1)

    def problem(self, path: Path, message: str) -> Problem:
        origin = self.origin(path)
        return Problem(str(origin), ".".join(map(str, path)), message, line=origin.line)


def take_in_profiles(data: dict[str, Any], base_dir: FilePath) -> TakenIn:
    """Replace every `profile` of [switch], its tiers and overrides by what the file holds, below the keys beside it.

    Parameters
    ----------
    data
        Parsed scenario with its options; changed in place.
    base_dir
        Directory that file names are relative to.
    """
    result = TakenIn()
    read: list[tuple[Path, _Profile]] = []
    for path, table in _places(data):
        profile = _read(table, path, base_dir, result)
        if profile is not None:
            read.append((path, profile))
    _take_classes(data, read, result)
    for path, profile in read:
        _take(data, path, profile, result)
    return result


def _places(data: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Tables that have a profile, and their paths."""
    switch = data.get("switch")
    if not isinstance(switch, dict):
        return
    found: list[tuple[Path, Any]] = [(("switch",), switch)]
    tiers, overrides = switch.get("tier"), switch.get("override")
    if isinstance(tiers, dict):
        found += [(("switch", "tier", name), table) for name, table in tiers.items()]
    if isinstance(overrides, list):
        found += [(("switch", "override", index), table) for index, table in enumerate(overrides)]
    for path, table in found:
        if isinstance(table, dict) and isinstance(table.get("profile"), str):
            yield path, table


def _read(table: dict[str, Any], path: Path, base_dir: FilePath, result: TakenIn) -> _Profile | None:
    """Read the file of a table's `profile`, and remove the key."""
    name = table.pop("profile")
    source = str(base_dir / name)
    try:
        text = read_text(source)
        data = parse_toml(text, source)
    except ScenarioError as error:
        for problem in error.problems:
            place = "" if problem.where == source else problem.where  # a file that is not there is the scenario's fault
            message = problem.message if place else f"{source}: {problem.message}"
            result.problems.append(
                Problem(place, ".".join(map(str, (*path, "profile"))), message, shown(name), problem.line)
            )
        return None
    lines = {key: position.line for key, position in toml_positions(text).items()}
    profile = _Profile(source, data, lines)
    for key in data:
        if key not in _TABLES:
            result.problems.append(profile.problem((key,), f"a switch profile holds {named(_TABLES)} only"))
    if not isinstance(data.get("switch"), dict):
        result.problems.append(Problem(source, "", "not a switch profile: it has no [switch] table"))
        return None
    for key in ("tier", "profile"):
        if key in data["switch"]:
            result.problems.append(profile.problem(("switch", key), f"a switch profile has no {key} of its own"))
            del data["switch"][key]
    return profile


def _take(data: dict[str, Any], path: Path, profile: _Profile, result: TakenIn) -> None:
    """Lay the keys beside `profile` over the file's."""
    given = dict(profile.data["switch"])
    ports = given.pop("override", [])
    target: Any = data
    for part in path:
        target = target[part]
    _fill(target, given, Switch, path, ("switch",), profile, result)
    if ports and path[:2] != ("switch", "override"):
        message = "sets single ports: take this profile in for one switch, in [[switch.override]] with its name"
        result.problems.append(profile.problem(("switch", "override"), message))
    elif ports:
        for index, port in enumerate(ports if isinstance(ports, list) else [ports]):
            place: Path = ("switch", "override", index)
            if not isinstance(port, dict) or "peer" not in port or "name" in port:
                result.problems.append(profile.problem(place, "a port of a profile has a peer, and no name"))
                continue
            overrides = data["switch"]["override"]
            new: Path = ("switch", "override", len(overrides))
            overrides.append({"name": target.get("name"), **port})
            _note(overrides[-1], new, place, profile, result)
    _map_classes(data, target, path, profile, result)


def _fill(
    target: dict[str, Any],
    given: Mapping[str, Any],
    table: type[BaseModel] | None,
    path: Path,
    place: Path,
    profile: _Profile,
    result: TakenIn,
) -> None:
    """Put in what is not there; tables deeply, and not what says the same thing in another way."""
    replaces = getattr(table, "replaces", {}) if table is not None else {}
    hidden = {other for key in target for other in replaces.get(key, ())}
    for key, value in given.items():
        if key in hidden:
            continue
        if key not in target:
            target[key] = value
            _note(value, (*path, key), (*place, key), profile, result)
        elif isinstance(target[key], dict) and isinstance(value, dict):
            info = table_keys(table).get(key) if table is not None else None
            inner = inner_tables(info.annotation)[:1] if info is not None else ()
            _fill(target[key], value, inner[0] if inner else None, (*path, key), (*place, key), profile, result)


def _note(value: Any, path: Path, place: Path, profile: _Profile, result: TakenIn) -> None:
    """Remember where a value and all in it come from."""
    result.origins[path] = profile.origin(place)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        _note(item, (*path, key), (*place, key), profile, result)


def _take_classes(data: dict[str, Any], read: list[tuple[Path, _Profile]], result: TakenIn) -> None:
    """Give a scenario without classes those of its profiles."""
    having = [profile for _, profile in read if "class" in profile.data]
    if "class" in data or not having:
        return
    first = having[0]
    for other in having[1:]:
        if other.data["class"] != first.data["class"]:
            message = f"its classes are not those of {first.source}: write [[class]] into the scenario"
            result.problems.append(other.problem(("class",), message))
            return
    data["class"] = first.data["class"]
    _note(data["class"], ("class",), ("class",), first, result)


def _map_classes(data: dict[str, Any], target: dict[str, Any], path: Path, profile: _Profile, result: TakenIn) -> None:
    """Turn [map] into the class map and weights of the scenario's classes."""
    table = profile.data.get("map", {})
    if not isinstance(table, dict):
        result.problems.append(profile.problem(("map",), f"must be a table, found {shown(table)}"))
        return
    for key in table:
        if key not in _MAP_KEYS:
            result.problems.append(profile.problem(("map", key), f"unknown key (allowed: {', '.join(_MAP_KEYS)})"))
    queues, weights = _numbers(table, "dscp", 63, profile, result), _numbers(table, "weights", 7, profile, result)
    lossless = table.get("lossless")
    if lossless is not None and not (isinstance(lossless, list) and all(_is_queue(item) for item in lossless)):
        message = f"must be a list of queues, 0 to 7, found {shown(lossless)}"
        result.problems.append(profile.problem(("map", "lossless"), message))
        lossless = None
    classes = [item for item in _classes(data) if _is_complete(item)]
    by_priority = {item["priority"]: item["name"] for item in classes}
    treated: dict[str, str] = {}
    for index, item in enumerate(classes):
        name, priority = item["name"], item["priority"]
        dscp = item.get("dscp", 8 * priority)
        queue = queues.get(dscp, queues.get(_DEFAULT, 0)) if queues else priority
        if queue == priority:
            is_lossless = bool(item.get("lossless", False))
            if lossless is not None and is_lossless != (priority in lossless):
                kinds = ("lossless", "lossy") if is_lossless else ("lossy", "lossless")
                message = f'class "{name}" is {kinds[0]}, but queue {queue} of {profile.source} is {kinds[1]}'
                result.problems.append(Problem("", f"class.{index}" if "class" in data else "", message))
        elif queue in by_priority:
            treated[name] = by_priority[queue]
        else:
            message = (
                f'class "{name}" has DSCP {dscp}, which {profile.source} maps to queue {queue}, and no class has '
                f"priority {queue}: give it a DSCP of queue {priority}, or write [[class]] for queue {queue}"
            )
            result.problems.append(Problem("", f"class.{index}" if "class" in data else "", message))
    weighted = {item["name"]: weights[item["priority"]] for item in classes if item["priority"] in weights}
    for key, value, source in (("class_map", treated, "dscp"), ("weights", weighted, "weights")):
        if value and key not in target:
            target[key] = value
            result.origins[(*path, key)] = profile.origin(("map", source))


def _numbers(table: dict[str, Any], key: str, highest: int, profile: _Profile, result: TakenIn) -> dict[int, int]:
    """Read a table of numbers by number, or by "default"."""
    value = table.get(key, {})
    highest_value = 7 if key == "dscp" else 1_000_000
    good = isinstance(value, dict) and all(
        ((name.isascii() and name.isdecimal() and int(name) <= highest) or (key == "dscp" and name == "default"))
        and isinstance(item, int)
        and not isinstance(item, bool)
        and 0 <= item <= highest_value
        for name, item in value.items()
    )
    if not good:
        message = f"must be a table of whole numbers up to {highest_value} by number, 0 to {highest}"
        result.problems.append(profile.problem(("map", key), f"{message}, found {shown(value)}"))
        return {}
    return {_DEFAULT if name == "default" else int(name): item for name, item in value.items()}


def _is_queue(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 7


def _classes(data: dict[str, Any]) -> list[Any]:
    """Classes of the scenario, or those that it has by default."""
    given = data.get("class")
    if given is None:
        return [
            {"name": item.name, "priority": item.priority, "lossless": item.lossless, "dscp": item.dscp}
            for item in default_classes()
        ]
    return given if isinstance(given, list) else []


def _is_complete(item: Any) -> bool:
    """Whether a class says enough to be mapped; what is wrong with it is found later."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and _is_queue(item.get("priority"))
        and isinstance(item.get("dscp", 0), int)
    )
