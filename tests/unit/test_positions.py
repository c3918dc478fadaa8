"""The position scanner: every way TOML has of writing a key."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabemu.scenario.positions import nearest_position, toml_positions
from fabemu.scenario.write import toml_key, toml_value


def lines_of(text: str) -> dict[tuple, int]:
    tomllib.loads(text)
    return {path: position.line for path, position in toml_positions(text).items()}


def test_keys_and_tables() -> None:
    text = 'a = 1\n\n[t]\nb = "x" # c = 3\n[t.u]\nd = true\n'
    assert lines_of(text) == {("a",): 1, ("t",): 3, ("t", "b"): 4, ("t", "u"): 5, ("t", "u", "d"): 6}


def test_columns() -> None:
    positions = toml_positions("[t]\n  key = { a = 1, b = 2 }\n")
    assert positions[("t", "key")] == (2, 3)
    assert positions[("t", "key", "a")] == (2, 11)
    assert positions[("t", "key", "b")] == (2, 18)


def test_arrays_of_tables_and_tables_in_them() -> None:
    text = "[[w]]\nk = 1\n[w.cc]\ng = 2\n[[w]]\nk = 3\n[[w.flow]]\ns = 1\n[[w.flow]]\ns = 2\n[w.flow.deep]\nx = 1\n"
    lines = lines_of(text)
    assert lines[("w",)] == 1
    assert lines[("w", 0, "k")] == 2
    assert lines[("w", 0, "cc", "g")] == 4
    assert lines[("w", 1)] == 5
    assert lines[("w", 1, "flow", 0, "s")] == 8
    assert lines[("w", 1, "flow", 1, "s")] == 10
    assert lines[("w", 1, "flow", 1, "deep", "x")] == 12


def test_dotted_and_quoted_keys() -> None:
    text = 'a.b.c = 1\na . "b.x" . \'c d\' = 2\n["q\\u0041".\'r\']\n"" = 0\n3.14 = 1\n'
    lines = lines_of(text)
    assert lines[("a",)] == lines[("a", "b")] == lines[("a", "b", "c")] == 1
    assert lines[("a", "b.x", "c d")] == 2
    assert lines[("qA", "r", "")] == 4
    assert lines[("qA", "r", "3", "14")] == 5


def test_arrays_over_several_lines() -> None:
    text = 'x = [ # first\n  1, # [\n  "]", \n  [2, 3],\n  { s = "}", t = [ 4 ] },\n]\ny = 2\n'
    lines = lines_of(text)
    assert lines[("x", 0)] == 2
    assert lines[("x", 1)] == 3
    assert lines[("x", 2, 1)] == 4
    assert lines[("x", 3, "s")] == 5
    assert lines[("x", 3, "t", 0)] == 5
    assert lines[("y",)] == 7


@pytest.mark.parametrize(
    "value",
    [
        '"""\na = 1\n[t]\n"""',
        "'''\nb = 2\n'''",
        '"""say "hi" \\""""',
        '"""two quotes\n"""""',
        "'''one quote\n''''",
        '"""\n\\\\"""',
        '"# no comment"',
        "'[not, a, table]'",
        "1979-05-27 07:32:00",
        "+1_000.5e-3",
        "[]",
        "[[], [[]]]",
        "{}",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_key_after_any_value_is_found(value: str, end: str) -> None:
    text = f"first = {value} # note\nafter = 1\n".replace("\n", end)
    lines = lines_of(text)
    assert set(lines) >= {("first",), ("after",)}
    assert lines[("after",)] == value.count("\n") + 2
    assert not [path for path in lines if path[0] not in ("first", "after")]


def test_no_final_newline_and_empty_text() -> None:
    assert lines_of("a = 1") == {("a",): 1}
    assert lines_of("") == {}
    assert lines_of("# only a comment") == {}


def test_implicit_super_tables_and_late_definition() -> None:
    lines = lines_of("[a.b.c]\nx = 1\n[a]\ny = 2\n[a.b]\nz = 3\n")
    assert lines[("a", "b", "c", "x")] == 2
    assert lines[("a", "y")] == 4
    assert lines[("a", "b", "z")] == 6
    assert lines[("a",)] == 3  # where it is defined, not where it is passed through
    assert lines[("a", "b")] == 5


def test_nearest_position() -> None:
    positions = toml_positions("[a]\nb = 1\n")
    assert nearest_position(positions, ("a", "b")) == (2, 1)
    assert nearest_position(positions, ("a", "missing", "deeper")) == (1, 1)
    assert nearest_position(positions, ("other",)) is None


scalars = st.integers(-5, 5) | st.booleans() | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def inline(value: Any, draw_break: Any) -> str:
    """Write a value, arrays broken over lines at will."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {inline(item, draw_break)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "".join(f"{draw_break()}{inline(item, draw_break)}," for item in value) + draw_break() + "]"
    return toml_value(value)


def paths_of(value: Any, path: tuple = ()) -> list[tuple]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, item in items:
        found += paths_of(item, (*path, key))
    return found


@given(st.dictionaries(st.text(max_size=4), values, max_size=4), st.data())
def test_every_path_of_any_document_has_a_position(data: dict[str, Any], source: st.DataObject) -> None:
    breaks = st.sampled_from(["", " ", "\n", " # ] } \" '\n"])
    text = "".join(f"{toml_key(key)} = {inline(item, lambda: source.draw(breaks))}\n" for key, item in data.items())
    assert tomllib.loads(text) == data
    positions = toml_positions(text)
    assert set(positions) == set(paths_of(data))
    lines = text.split("\n")
    for path, (line, column) in positions.items():
        if isinstance(path[-1], str):
            assert lines[line - 1][column - 1 :].startswith(toml_key(path[-1]))
