"""Dataclasses of fabemu beside those of the standard library with the same options."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import numpy as np
import pytest

from fabemu import deferred
from fabemu.distinct import distinct

OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "kw_only": True},
]


def make(decorator: Callable[..., Any], **options: bool) -> tuple[type, type]:
    @decorator(**options)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        secret: int = field(default=5, repr=False)
        made: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("below zero")

    @decorator(**options)
    class Solid(Point):
        z: int = 3

    return Point, Solid


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", [0, 1])
def test_the_same_as_the_standard_decorator(which: int, options: dict[str, bool]) -> None:
    def tell(decorator: Callable[..., Any]) -> list[Any]:
        kind = make(decorator, **options)[which]
        fields_before = [(item.name, item.type, item.kw_only) for item in dataclasses.fields(kind)]
        one, other = kind(x=1), kind(x=1, tags=["a"])
        is_hashed_by_value = options.get("eq", True) and options.get("frozen", False)
        return [
            fields_before,
            kind.__match_args__,
            kind.y,
            repr(one),
            one == other,
            one != kind(x=1, y=3),
            one == 1,
            outcome(lambda: {one: 1}[other]) if options.get("eq", True) and "x" in fields_before else None,
            outcome(lambda: hash(one) == hash(other)) if is_hashed_by_value else kind.__hash__ is None,
            dataclasses.asdict(other),
            dataclasses.replace(one, y=7).y,
            one.tags is other.tags,
            outcome(lambda: kind(1, 2).y),
            outcome(lambda: kind()),
            outcome(lambda: kind(x=1, w=2)),
            outcome(lambda: kind(x=-1)),
            outcome(lambda: setattr(one, "x", 5)),
            outcome(lambda: setattr(one, "new", 5)),
            outcome(lambda: delattr(one, "x")),
            copy.deepcopy(other).__dict__,
        ]

    assert tell(deferred.dataclass) == tell(dataclasses.dataclass)


@deferred.dataclass(frozen=True)
class Place:
    """Of the module, so that it can be pickled."""

    name: str
    inner: Place | None = None


def test_nothing_is_compiled_before_the_first_object() -> None:
    kind = make(deferred.dataclass)[0]
    assert kind.__init__.__code__.co_filename == deferred.__file__
    kind(1)
    assert kind.__init__.__code__.co_filename == "<string>"


def test_pickles_come_back_where_no_object_was_made() -> None:
    text = pickle.dumps(Place("a", Place("b")))
    Place.__init__ = deferred._first_init(Place)
    back = pickle.loads(text)
    assert back == Place("a", Place("b"))
    assert repr(back) == "Place(name='a', inner=Place(name='b', inner=None))"
    with pytest.raises(FrozenInstanceError):
        back.name = "c"


def test_methods_of_the_class_itself_stay() -> None:
    @deferred.dataclass(frozen=True)
    class Name:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and other.text.lower() == self.text.lower()

        def __repr__(self) -> str:
            return self.text

    assert Name("A") == Name("a")
    assert repr(Name("A")) == "A"
    assert hash(Name("A")) == hash(Name("A"))


@pytest.mark.parametrize(
    "values", [np.array([3, 1, 3, 2]), np.zeros(0, np.int32), np.array([[2, 1], [1, 2]]), np.array([True, False, True])]
)
def test_distinct_values_are_those_of_numpy(values: np.ndarray) -> None:
    found = distinct(values)
    assert found.tolist() == np.unique(values).tolist()
    assert found.dtype == values.dtype
