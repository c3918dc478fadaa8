"""Where each key of a TOML text stands, which TOML readers do not tell.

The scanner is for texts that a TOML reader has accepted: it finds the extent of keys and values without checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

Path = tuple[str | int, ...]
"""Keys and list indices from the top."""


class Position(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


def toml_positions(text: str) -> dict[Path, Position]:
    """Find the position of every key, table header and list element of a valid TOML text.

    Parameters
    ----------
    text
        The whole TOML text.

    Returns
    -------
    dict
        From key path to where it is first written. An element of an array of tables has the path of the array and its
        index; tables that exist only as part of a dotted key have the position of that key.
    """
    scanner = _Scanner(text)
    scanner.document()
    return scanner.positions


def nearest_position(positions: Mapping[Path, Position], path: Path) -> Position | None:
    """Find the position of a path or, if it is not written there, of the nearest thing around it."""
    for length in range(len(path), 0, -1):
        position = positions.get(path[:length])
        if position is not None:
            return position
    return None


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_BLANK = re.compile(r"[ \t]*")
_FILL = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}#\r\n]*")
_BASIC = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LITERAL = re.compile(r"'[^']*'")
# A closing delimiter may be preceded by one or two quotes that belong to the text.
_BASIC_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL)
_LITERAL_LONG = re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_SHORT_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


class _Scanner:
    """One pass over a text; `at` is the offset of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.positions: dict[Path, Position] = {}
        self._line = 1
        self._line_at = 0
        self._counted = 0
        self._array_length: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while True:
            self._skip(_FILL)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        start = self.at
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        keys = [key for key, _ in self._keys()]
        self.at += 2 if is_array else 1
        path: Path = ()
        for key in keys[:-1]:
            path = self._last_element((*path, key))
            self._mark(path, start)
        path = (*path, keys[-1])
        if is_array:
            self._mark(path, start)
            index = self._array_length.get(path, 0)
            self._array_length[path] = index + 1
            path = (*path, index)
        self._mark(path, start, first=False)
        return path

    def _last_element(self, path: Path) -> Path:
        """A header that passes through an array of tables means its last element."""
        length = self._array_length.get(path)
        return path if length is None else (*path, length - 1)

    def _pair(self, table: Path) -> None:
        path = table
        for key, start in self._keys():
            path = (*path, key)
            self._mark(path, start)
        self.at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _keys(self) -> list[tuple[str, int]]:
        """Read a dotted key: its parts and their offsets."""
        keys = []
        while True:
            self._skip(_BLANK)
            start = self.at
            first = self.text[self.at : self.at + 1]
            if first == '"':
                keys.append((_unescaped(self._take(_BASIC)[1:-1]), start))
            elif first == "'":
                keys.append((self._take(_LITERAL)[1:-1], start))
            else:
                keys.append((self._take(_BARE_KEY), start))
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return keys
            self.at += 1

    def _value(self, path: Path) -> None:
        text, at = self.text, self.at
        first = text[at : at + 1]
        if text.startswith('"""', at):
            self._take(_BASIC_LONG)
        elif text.startswith("'''", at):
            self._take(_LITERAL_LONG)
        elif first == '"':
            self._take(_BASIC)
        elif first == "'":
            self._take(_LITERAL)
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._take(_SCALAR)

    def _array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while True:
            self._skip(_FILL)
            if self._ends("]"):
                return
            self._mark((*path, index), self.at)
            self._value((*path, index))
            index += 1
            self._skip(_FILL)
            if self.text.startswith(",", self.at):
                self.at += 1

    def _inline_table(self, path: Path) -> None:
        self.at += 1
        while True:
            self._skip(_FILL)
            if self._ends("}"):
                return
            self._pair(path)
            self._skip(_FILL)
            if self.text.startswith(",", self.at):
                self.at += 1

    def _ends(self, bracket: str) -> bool:
        if self.at >= len(self.text):
            raise ValueError("the text is not valid TOML")
        if not self.text.startswith(bracket, self.at):
            return False
        self.at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None or match.end() == self.at:
            raise ValueError("the text is not valid TOML")
        self.at = match.end()
        return match[0]

    def _mark(self, path: Path, offset: int, *, first: bool = True) -> None:
        """Note a position; with `first` only if the path has none yet."""
        # Offsets hardly ever fall, so that each line is counted once.
        if first and path in self.positions:
            return
        if offset < self._counted:
            self._line, self._line_at, self._counted = 1, 0, 0
        newlines = self.text.count("\n", self._counted, offset)
        if newlines:
            self._line += newlines
            self._line_at = self.text.rfind("\n", self._counted, offset) + 1
        self._counted = offset
        self.positions[path] = Position(self._line, offset - self._line_at + 1)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _SHORT_ESCAPES.get(match[4], match[4])
