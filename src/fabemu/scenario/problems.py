"""Validation of parsed TOML, and what it finds as sentences for the user: place, key path, value, what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from fabemu.errors import Problem
from fabemu.scenario.fault import EMPTY_MAP
from fabemu.scenario.model import (
    NO_TRAFFIC,
    Scenario,
    class_rules,
    default_classes,
    scenario_rules,
    with_compatibility_defaults,
    workload_class_rules,
)
from fabemu.scenario.positions import Path
from fabemu.scenario.quantity import named, shown
from fabemu.scenario.shape import inner_tables, is_mapping, key_tables, select_table, table_keys, table_kind
from fabemu.scenario.unsupported import collective_of_kind, fault_of_key, unsupported_key, unsupported_value


class Place(NamedTuple):
    """Where something is written: text for the user, and the line if it is in a file."""

    where: str
    line: int | None


class Found(NamedTuple):
    """A problem before it has its place."""

    path: Path
    message: str
    show_value: bool = True


def scenario_problems(data: Mapping[str, Any], place: Callable[[Path], Place]) -> tuple[Scenario | None, list[Problem]]:
    """Validate a scenario.

    Parameters
    ----------
    data
        Parsed TOML.
    place
        Tells where a key path is written.

    Returns
    -------
    tuple
        The scenario, or None if there are problems; and all of them, in file order.
    """
    found = list(_unknown_keys(Scenario, data, ()))
    refused = {item.path for item in found}
    scenario: Scenario | None = None
    try:
        scenario = Scenario.model_validate(data)
    except ValidationError as error:
        first = [item for item in _from_validation(error, data) if item.path not in refused]
        found += first
        # What is wrong by itself would hide what is wrong between the keys: look again without it.
        removed = [*refused, *_wrong_alone(error, data)]
        remaining = _without(data, removed)
        again = [*_rules_of_valid_parts(remaining), *_broken_rules_only(remaining)]
        found += [item for item in again if not _misses_removed(item, removed)]
    problems = []
    seen: set[tuple[Path, str]] = set()
    for item in found:
        if (item.path, item.message) in seen:
            continue
        seen.add((item.path, item.message))
        where, line = place(item.path)
        written, value = _lookup(data, item.path)
        text = shown(value) if item.show_value and written and not _is_large(value) else None
        problems.append(Problem(where, path_text(item.path), item.message, text, line))
    problems.sort(key=lambda problem: (problem.line is None, problem.line or 0))
    return (None if problems else scenario), problems


def path_text(path: Path) -> str:
    """Write a key path as --set takes it: workload.0.load."""
    return ".".join(str(part) for part in path)


def _is_large(value: Any) -> bool:
    """Whole tables say nothing in a message."""
    return isinstance(value, dict) or (
        isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value)
    )


def _lookup(data: Any, path: Path) -> tuple[bool, Any]:
    for part in path:
        in_table = isinstance(data, Mapping) and part in data
        in_list = isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data)
        if not in_table and not in_list:
            return False, None
        data = data[part]
    return True, data


# Unknown keys


def _unknown_keys(table: type[BaseModel], value: Any, path: Path) -> Iterator[Found]:
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        known = key_tables(table, key)
        if known is None:
            yield Found((*path, key), _unknown_key(table, str(key), path))
        elif known[0]:
            yield from _unknown_in(known[0], inner, (*path, key), mapping=known[1])


def _unknown_in(tables: tuple[type[BaseModel], ...], value: Any, path: Path, *, mapping: bool) -> Iterator[Found]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_in(tables, item, (*path, index), mapping=False)
    elif isinstance(value, dict) and mapping:
        for key, item in value.items():
            yield from _unknown_in(tables, item, (*path, key), mapping=False)
    else:
        table = select_table(tables, value)
        if table is not None:
            yield from _unknown_keys(table, value, path)
        elif isinstance(value, dict) and "kind" not in value:
            # Without a kind, only what no kind knows is surely wrong: often it is the kind itself, misspelt.
            known = list(dict.fromkeys(key for item in tables for key in table_keys(item)))
            for key in value:
                if key not in known:
                    near = difflib.get_close_matches(str(key).lower(), known, 1, 0.55)
                    yield Found((*path, key), "unknown key" + (f'; did you mean "{near[0]}"?' if near else ""))


def _unknown_key(table: type[BaseModel], key: str, path: Path) -> str:
    names = [part for part in path if isinstance(part, str)]
    refused = unsupported_key(_table_name(path), key)
    if refused is not None:
        return f'"{key}" is not supported yet: {refused}'
    kind = fault_of_key(key)
    if kind is not None and names[:1] != ["fault"]:
        return f'unknown key; this is a fault: write [[fault]] with kind = "{kind}"'
    allowed = list(table_keys(table))
    near = difflib.get_close_matches(key.lower(), allowed, 1, 0.8)
    home = _homes().get(key)
    if not near and home is not None and home != ".".join(names):
        place = f"in [{home}]" if home else "at the top of the file, before the first table"
        return f'unknown key; "{key}" belongs {place}'
    near = near or difflib.get_close_matches(key.lower(), allowed, 1, 0.55)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    return f"unknown key{hint} (allowed: {', '.join(allowed)})"


def _table_name(path: Path) -> str:
    """Name of the table, not of its tier or element: "switch" for switch.tier.leaf and for switch.override.0."""
    names = [part for part in path if isinstance(part, str)]
    if len(names) >= 2 and names[1] in ("tier", "override"):
        names = [names[0], *names[3 if names[1] == "tier" else 2 :]]
    return names[-1] if names else ""


@lru_cache(maxsize=1)
def _homes() -> dict[str, str]:
    """Where keys belong that exist in one place only: key to table path."""
    places: dict[str, list[str]] = {}

    def walk(table: type[BaseModel], path: str) -> None:
        for key, info in table_keys(table).items():
            tables = inner_tables(info.annotation)
            if not tables:
                places.setdefault(key, []).append(path)
            elif (
                len(tables) == 1
                and not is_mapping(info.annotation)
                and key not in ("override", "by_rate", "by_link", "class")
            ):
                walk(tables[0], f"{path}.{key}" if path else key)

    walk(Scenario, "")
    return {key: found[0] for key, found in places.items() if len(found) == 1}


# What pydantic found


def _from_validation(error: ValidationError, data: Any, only: str | None = None) -> Iterator[Found]:
    for item in error.errors(include_url=False):
        if only is not None and item["type"] != only:
            continue
        path = _file_path(item["loc"], data)
        context = item.get("ctx", {})
        kind = item["type"]
        if kind == "broken_rules":
            for inner, message in context["broken"]:
                yield Found(_file_keys((*path, *inner)), message)
        elif kind == "missing" and isinstance(path[-1], int):
            yield Found(path[:-1], "must have two elements")
        elif kind == "missing":
            yield Found(path[:-1], _missing(path, data), show_value=False)
        elif kind == "union_tag_invalid":
            allowed = [part.strip().strip("'") for part in str(context["expected_tags"]).split(",")]
            yield Found((*path, "kind"), _wrong_word((*path, "kind"), context["tag"], allowed))
        else:
            yield Found(path, _message(kind, context, path, item))


def _file_path(location: tuple[int | str, ...], data: Any) -> Path:
    """Turn pydantic's location into a key path: without the kinds of tagged unions, which come first in their table."""
    path: list[int | str] = []
    current = data
    is_first = True
    for part in location:
        if is_first and isinstance(current, dict) and part == current.get("kind") and part in _tags():
            is_first = False
            continue
        path.append(part)
        written, current = _lookup(current, (part,))
        is_first = True
        if not written:
            current = None
    return tuple(path)


@lru_cache(maxsize=1)
def _tags() -> frozenset[str]:
    """Kinds of all tables that are told apart by their kind."""
    tables = [inner_tables(Scenario.model_fields[name].annotation) for name in ("fabric", "workload", "fault")]
    return frozenset(kind for items in tables for item in items if (kind := table_kind(item)))


_KEYS: dict[str | int, str] = {"class_name": "class"}
"""Keys whose attributes have other names."""


def _file_keys(path: Path) -> Path:
    renamed = "class" if path and path[0] == "classes" else None
    return tuple(renamed or part if index == 0 else _KEYS.get(part, part) for index, part in enumerate(path))


def table_at(path: Path, data: Any) -> type[BaseModel] | None:
    """Find the model of the table at a path of the file."""
    table: type[BaseModel] | None = Scenario
    current = data
    index = 0
    while index < len(path) and table is not None:
        info = table_keys(table).get(str(path[index]))
        if info is None:
            return None
        tables = inner_tables(info.annotation)
        if not tables:
            return None
        steps = 1
        current = _lookup(current, path[index : index + 1])[1]
        if is_mapping(info.annotation) or isinstance(current, (list, tuple)):
            steps = 2
            current = _lookup(current, path[index + 1 : index + 2])[1]
        table = select_table(tables, current)
        index += steps
    return table


def _missing(path: Path, data: Any) -> str:
    key = str(path[-1])
    table = table_at(path[:-1], data)
    info = table_keys(table).get(key) if table is not None else None
    about = f" ({info.description})" if info is not None and info.description else ""
    if path == ("fabric",):
        kinds = [
            kind for item in inner_tables(Scenario.model_fields["fabric"].annotation) if (kind := table_kind(item))
        ]
        return f"the table [fabric] is missing: write [fabric] with kind = {named(kinds)}"
    if path == ("workload",):
        return NO_TRAFFIC
    return f'key "{key}" is missing{about}'


def _message(kind: str, context: Mapping[str, Any], path: Path, item: Mapping[str, Any]) -> str:
    """Write pydantic's finding as a sentence about the file."""
    value = item.get("input")
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        allowed = [part for part in str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")]
        return _wrong_word(path, value, allowed)
    if kind == "union_tag_not_found":
        if not isinstance(value, (dict, BaseModel)):
            return f"must be a table, found {shown(value)}"
        return f'key "kind" is missing: it says which {path[0]} this is'
    if kind == "int_type":
        fix = f": write {value} without quotes" if isinstance(value, str) and value.isdecimal() else ""
        return f"must be a whole number, found {_type_name(value)}{fix}"
    if kind == "bool_type":
        return f"must be true or false, found {_type_name(value)}"
    if kind == "string_type":
        return f"must be a text in quotes, found {_type_name(value)}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "greater_than_equal":
        return f"must be at least {context['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {context['le']}"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"must be a table ([{path_text(path)}]), found {_type_name(value)}"
    if kind in ("tuple_type", "list_type"):
        if isinstance(value, dict):
            return f"must be a list of tables: write [[{path_text(path)}]] with two brackets"
        return f"must be a list, found {_type_name(value)}"
    if kind == "too_long":
        return "must have two elements"
    return str(item.get("msg", kind))


def _wrong_word(path: Path, value: Any, allowed: list[str]) -> str:
    keys = [part for part in path if isinstance(part, str)]
    refused = unsupported_value(keys[-2] if len(keys) > 1 else "", keys[-1] if keys else "", value)
    if refused is not None:
        return f"not supported yet: {refused} (allowed: {named(allowed)})"
    collective = collective_of_kind(value) if keys[-2:] == ["workload", "kind"] else None
    if collective is not None:
        return f'is a collective: write kind = "collective" and operation = "{collective}"'
    close = difflib.get_close_matches(value.lower(), allowed, 1, 0.5) if isinstance(value, str) else []
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"must be {named(allowed)}{hint}"


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a fraction"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"a {type(value).__name__}"


def _misses_removed(item: Found, removed: Sequence[Path]) -> bool:
    """Whether a rule misses a key that is there, but was taken out because it is wrong by itself."""
    return any(
        path[:-1] in (item.path, item.path[:-1])
        and (re.search(rf"\b{re.escape(str(path[-1]))}\b", item.message) or item.message == EMPTY_MAP)
        for path in removed
    )


# Rules between keys and tables, on what is valid of a scenario that is not


def _wrong_alone(error: ValidationError, data: Any) -> list[Path]:
    return [
        _file_path(item["loc"], data)
        for item in error.errors(include_url=False)
        if item["type"] not in ("broken_rules", "missing", "union_tag_invalid", "union_tag_not_found")
    ]


def _without(data: Any, paths: Sequence[Path]) -> Any:
    """Copy the values without some keys; elements of lists stay, because their indices matter."""

    def copied(value: Any, path: Path) -> Any:
        if isinstance(value, Mapping):
            return {key: copied(item, (*path, key)) for key, item in value.items() if (*path, key) not in removed}
        if isinstance(value, list):
            return [copied(item, (*path, index)) for index, item in enumerate(value)]
        return value

    removed = set(paths)
    return copied(data, ())


def _broken_rules_only(data: dict[str, Any]) -> list[Found]:
    try:
        Scenario.model_validate(data)
    except ValidationError as error:
        return list(_from_validation(error, data, only="broken_rules"))
    return []


def _rules_of_valid_parts(data: dict[str, Any]) -> Iterator[Found]:
    """Check what can be checked although something else is wrong, so that all problems show at once."""
    filled = with_compatibility_defaults(data)
    parts: dict[str, Any] = {}
    for name, info in Scenario.model_fields.items():
        key = info.alias or name
        if name in ("classes", "workload"):
            continue
        if key in filled:
            valid, result = _validated(_part_adapter(name), filled[key], again=True)
            if valid:
                parts[name] = result
        elif not info.is_required():
            parts[name] = _part_adapter(name).validate_python(info.get_default(call_default_factory=True))
    if "fabric" not in parts:
        # Its kind alone tells the tiers, but for a graph.
        fabric = select_table(inner_tables(Scenario.model_fields["fabric"].annotation), filled.get("fabric"))
        if fabric is not None and table_kind(fabric) != "graph":
            parts["fabric"] = fabric.model_construct()
    classes = filled.get("class")
    if isinstance(classes, list):
        valid_classes = _valid_items(_part_adapter("classes"), classes)
        complete = len(valid_classes) == len(classes)
        if complete:
            parts["classes"] = tuple(valid_classes.values())
        for inner, message in class_rules(valid_classes, complete=complete):
            yield Found(("class", *inner), message)
    elif "class" not in filled:
        parts["classes"] = default_classes()
    workloads = filled.get("workload")
    valid_workloads: dict[int, Any] = {}
    if isinstance(workloads, list):
        valid_workloads = _valid_items(_part_adapter("workload"), workloads)
        named_classes = {
            index: item["class"]
            for index, item in enumerate(workloads)
            if isinstance(item, dict) and isinstance(item.get("class"), str)
        }
        for inner, message in workload_class_rules(parts.get("classes", ()), named_classes):
            yield Found(inner, message)
    for inner, message in scenario_rules(parts, valid_workloads):
        yield Found(_file_keys(inner), message)


def _valid_items(adapter: TypeAdapter[Any], values: list[Any]) -> dict[int, Any]:
    items = {}
    for index, value in enumerate(values):
        valid, result = _validated(adapter, [value])
        if valid:
            items[index] = result[0]
    return items


def _validated(adapter: TypeAdapter[Any], value: Any, *, again: bool = False) -> tuple[bool, Any]:
    """Validate a part; `again` without the keys that break a rule, if it does not hold at first."""
    try:
        return True, adapter.validate_python(value)
    except ValidationError as error:
        if not again:
            return False, None
        paths = [
            (*_file_path(item["loc"], value), *inner)
            for item in error.errors(include_url=False)
            if item["type"] == "broken_rules"
            for inner, _ in item["ctx"]["broken"]
        ]
        return _validated(adapter, _without(value, paths))


@lru_cache(maxsize=32)
def _part_adapter(name: str) -> TypeAdapter[Any]:
    """Give the validator of one top-level value, without the rules between the elements of a list."""
    info = Scenario.model_fields[name]
    metadata: list[Any] = [] if name in ("classes", "workload") else list(info.metadata)
    if info.discriminator is not None:
        metadata.append(Field(discriminator=info.discriminator))
    annotation: Any = Annotated[(info.annotation, *metadata)] if metadata else info.annotation
    return TypeAdapter(annotation)
