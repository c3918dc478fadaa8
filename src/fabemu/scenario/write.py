"""A scenario as TOML text, every default spelt out."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fabemu.scenario.quantity import Quantity

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def scenario_toml(scenario: BaseModel) -> str:
    """Write a scenario so that loading the text gives an equal one."""
    return tables_toml(plain(scenario))


def tables_toml(tables: dict[str, Any]) -> str:
    """Write tables, as `plain` gives them, as TOML text."""
    lines: list[str] = []
    _write_table(tables, (), lines)
    return "\n".join(lines).strip() + "\n"


def plain(table: BaseModel) -> dict[str, Any]:
    """Give a table as the values that its file holds, without the keys that are not given."""
    result: dict[str, Any] = {}
    fields = type(table).model_fields
    # The kind decides which other keys there are: it comes first.
    for key in sorted(fields, key=lambda name: name != "kind"):
        info, value = fields[key], getattr(table, key)
        if value is not None and not (value in ((), {}) and info.default in ((), {})):
            result[info.alias or key] = _plain_value(value, quantity_of(info))
    return result


def quantity_of(info: FieldInfo) -> Quantity | None:
    """Find how the values of a field are written; None if as they are."""
    found = [item for item in info.metadata if isinstance(item, Quantity)]
    return found[0] if found else _inner_quantity(info.annotation)


def _inner_quantity(annotation: Any) -> Quantity | None:
    """Find the quantity within `X | None` and `tuple[X, X]`."""
    for argument in getattr(annotation, "__args__", ()):
        for item in getattr(argument, "__metadata__", ()):
            if isinstance(item, Quantity):
                return item
        inner = _inner_quantity(argument)
        if inner is not None:
            return inner
    return None


def _plain_value(value: Any, quantity: Quantity | None) -> Any:
    if isinstance(value, BaseModel):
        return plain(value)
    if isinstance(value, dict):
        return {key: _plain_value(item, None) for key, item in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return [plain(item) for item in value]
    if quantity is not None and isinstance(value, tuple) and not quantity.lists:
        return [_plain_value(item, quantity) for item in value]
    if quantity is not None:
        return quantity.write(value)
    return list(value) if isinstance(value, tuple) else value


def _write_table(table: dict[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """Write the plain keys first: what follows a sub-table's header belongs to the sub-table."""
    for key, value in table.items():
        if not isinstance(value, dict) and not _is_table_list(value):
            lines.append(f"{toml_key(key)} = {toml_value(value)}")
    for key, value in table.items():
        inner = (*path, key)
        header = ".".join(toml_key(part) for part in inner)
        if isinstance(value, dict):
            # A table of nothing but tables needs no header.
            if not value or not all(isinstance(item, dict) for item in value.values()):
                lines += ["", f"[{header}]"]
            _write_table(value, inner, lines)
        elif _is_table_list(value):
            for item in value:
                lines += ["", f"[[{header}]]"]
                _write_table(item, inner, lines)


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def toml_key(key: str) -> str:
    """Write a key, quoted if it must be."""
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def toml_value(value: Any) -> str:
    """Write a text, number, boolean or list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(_escaped(char) for char in value) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return f"\\u{ord(char):04X}" if ord(char) < 32 or ord(char) == 127 else char
