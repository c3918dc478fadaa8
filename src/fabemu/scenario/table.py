"""Base of all scenario tables: frozen, unknown keys refused, cross-field rules, partial tables and their overlay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

Broken = tuple[tuple[str | int, ...], str]
"""A broken rule: key path within the table, message."""


def optional(default: Any = PydanticUndefined, *, description: str, **more: Any) -> Any:
    """Declare a key that may be left out, with its default as it would be written in a file."""
    return Field(default=default, description=description, **more)


class Table(BaseModel):
    """One table of a scenario file. Subclasses yield their cross-field problems from `rules`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, populate_by_name=True, defer_build=True
    )

    replaces: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Keys that an overlay clears when it sets the key: the two ways of saying one thing."""

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys of this table."""
        return iter(())

    @model_validator(mode="after")
    def _check_rules(self) -> Any:
        raise_broken(self.rules())
        return self


class PartialTable(BaseModel):
    """A table all of whose keys are optional; None means not given."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    replaces: ClassVar[dict[str, tuple[str, ...]]] = {}
    """That of the table whose keys these are."""

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys of this table."""
        return exclusive_rules(self, self.replaces)

    @model_validator(mode="after")
    def _check_rules(self) -> Any:
        raise_broken(self.rules())
        return self


def exclusive_rules(table: BaseModel, replaces: dict[str, tuple[str, ...]]) -> Iterator[Broken]:
    """Yield the keys that are given beside another way of saying the same thing."""
    said: set[str] = set()
    for key, others in replaces.items():
        for other in others:
            if key not in said and getattr(table, key) is not None and getattr(table, other) is not None:
                said.add(other)
                yield (other,), f"{key} and {other} are both given: give one of them"


def raise_broken(broken: Iterator[Broken]) -> None:
    """Raise one pydantic error that carries all broken rules, if there are any."""
    found = list(broken)
    if found:
        text = "; ".join(message for _, message in found)
        raise PydanticCustomError("broken_rules", "{text}", {"text": text, "broken": found})


def partial(table: type[Table], name: str, *, without: tuple[str, ...] = ()) -> Any:
    """Make the model whose keys are those of `table`, all optional, nested tables included."""
    fields: dict[str, Any] = {}
    for key, info in table.model_fields.items():
        if key in without:
            continue
        annotation: Any = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, Table):
            annotation = partial(annotation, f"{annotation.__name__}Partial")
        if info.metadata:
            annotation = Annotated[(annotation, *info.metadata)]
        fields[key] = (annotation | None, FieldInfo(default=None, description=info.description, alias=info.alias))
    model = create_model(
        name,
        __base__=PartialTable,
        __doc__=f"Keys of a `{table.__name__}` table, all optional.",
        __module__=table.__module__,
        **fields,
    )
    model.replaces = table.replaces
    return model


T = TypeVar("T", bound=Table)


def overlay(base: Table, over: BaseModel | None, kind: type[T]) -> T:
    """Lay a partial table over a resolved one, deeply, and give the result as a `kind`.

    Parameters
    ----------
    base
        A resolved table with at least the fields of `kind`.
    over
        Partial table; None lays nothing over it.
    kind
        The model of the result.
    """
    values: dict[str, Any] = {key: getattr(base, key) for key in kind.model_fields}
    given = {key: getattr(over, key) for key in type(over).model_fields} if over is not None else {}
    for key, value in given.items():
        if value is None or key not in values:
            continue
        for other in kind.replaces.get(key, ()):
            values[other] = None
        current = values[key]
        if isinstance(current, Table):
            value = (
                current.overlaid(value) if isinstance(current, SelfOverlaid) else overlay(current, value, type(current))
            )
        values[key] = value
    return kind.model_construct(**values)


class SelfOverlaid(Table):
    """A table with its own way of being overlaid."""

    def overlaid(self, over: BaseModel) -> Table:
        """Give this table with the partial table `over` laid over it."""
        raise NotImplementedError


def broken_deeply(table: Table, path: tuple[str | int, ...] = ()) -> Iterator[Broken]:
    """Yield the broken rules of a table and of the tables in it."""
    for inner, message in table.rules():
        yield path + inner, message
    for key in type(table).model_fields:
        value = getattr(table, key)
        if isinstance(value, Table):
            yield from broken_deeply(value, (*path, key))
