"""The models seen as the tables and keys of a file: which keys a table has, and which tables are in it."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel
from pydantic.fields import FieldInfo


@lru_cache(maxsize=256)
def table_keys(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """Give the keys of a table as they are written in a file, in order."""
    return {info.alias or name: info for name, info in table.model_fields.items()}


@lru_cache(maxsize=512)
def key_tables(table: type[BaseModel], key: str) -> tuple[tuple[type[BaseModel], ...], bool] | None:
    """Give the tables in a key, and whether the user chooses their names; None if there is no such key."""
    info = table_keys(table).get(key)
    return None if info is None else (inner_tables(info.annotation), is_mapping(info.annotation))


def inner_tables(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Give the tables that a value of this type is or holds; several are told apart by `kind`."""
    return tuple(dict.fromkeys(_models(annotation)))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if typing.get_origin(annotation) is Literal:
        return
    for argument in _arguments(annotation):
        yield from _models(argument)


def _arguments(annotation: Any) -> tuple[Any, ...]:
    arguments = typing.get_args(annotation)
    return arguments[:1] if typing.get_origin(annotation) is Annotated else arguments


def table_kind(table: type[BaseModel]) -> str | None:
    """Give the `kind` that selects this table, None if none does."""
    info = table.model_fields.get("kind")
    choices = choices_of(info.annotation) if info is not None else ()
    return choices[0] if len(choices) == 1 else None


def choices_of(annotation: Any) -> tuple[str, ...]:
    """Give the words that a value of this type, or each of its elements, may be; empty if it is no choice of words."""
    if typing.get_origin(annotation) is Literal:
        return tuple(item for item in typing.get_args(annotation) if isinstance(item, str))
    found: list[str] = []
    for argument in _arguments(annotation):
        found += choices_of(argument)
    return tuple(dict.fromkeys(found))


def select_table(tables: tuple[type[BaseModel], ...], value: Any) -> type[BaseModel] | None:
    """Choose among tables by the `kind` of a value; None if it chooses none."""
    if len(tables) == 1:
        return tables[0]
    kind = value.get("kind") if isinstance(value, dict) else None
    return next((table for table in tables if table_kind(table) == kind), None) if isinstance(kind, str) else None


def is_mapping(annotation: Any) -> bool:
    """Whether a value is a table whose keys the user chooses."""
    if typing.get_origin(annotation) is dict:
        return True
    return typing.get_origin(annotation) in (Annotated, Union, types.UnionType) and any(
        is_mapping(argument) for argument in _arguments(annotation)
    )
