"""Statements of a GOAL text as columns: operations, what waits for what, and where ranks begin and end.

Statements in their usual form are read by a few passes over all bytes at once; every other one is read word by word,
which also says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.deferred import dataclass
from fabemu.errors import InputError

SEND, RECV, CALC, REQUIRES, IREQUIRES, NUM_RANKS, RANK, END, WRONG = range(9)
"""Forms of statements."""

DIGITS_MAX = 18
SHOWN_MAX = 20

_COMMENT = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|\S", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SPACE, _LETTER, _COLON, _BREAK, _OTHER = range(5)
_PADDING = 16
_PIECE_BYTES = 2**21
"""Pieces of so many bytes are read at a time: what is needed meanwhile is many times as large as the text."""

_OPERATIONS = {"send": SEND, "recv": RECV, "calc": CALC}
_RELATIONS = {"requires": REQUIRES, "irequires": IREQUIRES}
_OPTIONS = ("tag", "cpu", "nic")

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


def _classes() -> NDArray[np.uint8]:
    table = np.full(256, _OTHER, dtype=np.uint8)
    table[[9, 11, 12, 32]] = _SPACE
    table[[10, 13]] = _BREAK
    table[ord(":")] = _COLON
    for char in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_":
        table[char] = _LETTER
    return table


_CLASS = _classes()


def _key(word: str) -> np.uint64:
    """The first 8 bytes of a word as a number, as `_Words` has them."""
    return np.uint64(int.from_bytes(word[:8].encode().ljust(8, b"\0"), "little"))


class Complaints:
    """What is wrong with a file, line by line."""

    def __init__(self, source: str) -> None:
        """Begin with nothing."""
        self.source = source
        self._found: list[tuple[int, str]] = []

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._found)

    def add(self, line: int, reason: str) -> None:
        """Complain about a line; 0 is the file as a whole."""
        self._found.append((int(line), reason))

    def check(self) -> None:
        """Raise InputError if anything is wrong: at most 20 messages, in the order of the lines."""
        if not self._found:
            return
        found = sorted(self._found, key=lambda item: item[0])
        lines = [f"{self.source}{f':{line}' if line else ''}: {reason}" for line, reason in found[:SHOWN_MAX]]
        if len(found) > SHOWN_MAX:
            lines.append(f"{self.source}: {len(found) - SHOWN_MAX:,} more mistakes")
        raise InputError("\n".join(lines))


@dataclass(eq=False)
class Statements:
    """All statements of a text, in its order.

    Attributes
    ----------
    line
        (n,) int64, from 1.
    form
        (n,) uint8, SEND ... WRONG.
    value
        (n,) int64, bytes of a message, number of a calc, number of a rank, number of ranks.
    peer, tag, cpu, nic
        (n,) int64, of messages; what is left out is 0.
    name, other
        (n, 2) uint64, label of an operation, zeros if it has none; of a relation what waits, and what for. Equal labels
        have equal numbers.
    """

    line: Int64s
    form: NDArray[np.uint8]
    value: Int64s
    peer: Int64s
    tag: Int64s
    cpu: Int64s
    nic: Int64s
    name: NDArray[np.uint64]
    other: NDArray[np.uint64]
    names: Names

    def label(self, row: int, *, other: bool = False) -> str:
        """A label as text; "" if there is none."""
        return self.names.text((self.other if other else self.name)[row])


@dataclass
class Names:
    """Labels as pairs of numbers: up to 16 bytes the bytes themselves, longer ones counted."""

    long: dict[bytes, int] = field(default_factory=dict)

    def keep(self, word: bytes) -> tuple[int, int]:
        """Numbers of one label."""
        if len(word) > 16:
            return self.long.setdefault(word, len(self.long)), 2**64 - 1
        padded = word.ljust(16, b"\0")
        return int.from_bytes(padded[:8], "little"), int.from_bytes(padded[8:], "little")

    def text(self, numbers: NDArray[np.uint64]) -> str:
        """The label of two numbers."""
        low, high = int(numbers[0]), int(numbers[1])
        if high == 2**64 - 1:
            return next(word for word, number in self.long.items() if number == low).decode()
        return (low.to_bytes(8, "little") + high.to_bytes(8, "little")).rstrip(b"\0").decode()


class _Words:
    """The words and colons of a text, found all at once.

    `start` and `end` are their places, `key` the first 8 bytes as a number, `at` all bytes with
    zeros behind.
    """

    def __init__(self, text: bytes) -> None:
        self.at = np.frombuffer(text + bytes(_PADDING), dtype=np.uint8)
        kind = _CLASS[self.at]
        kind[len(text) :] = _SPACE
        letter = kind == _LETTER
        colon = kind == _COLON
        begins, ends = letter.copy(), letter.copy()
        begins[1:] &= ~letter[:-1]
        ends[:-1] &= ~letter[1:]
        self.breaks = np.flatnonzero(kind == _BREAK)
        self.others = np.flatnonzero(kind == _OTHER)
        # A few empty words behind the last one, so that what looks ahead need not look where it is.
        beyond = np.full(12, len(text), dtype=np.int64)
        self.start = np.concatenate([np.flatnonzero(begins | colon), beyond])
        self.end = np.concatenate([np.flatnonzero(ends | colon) + 1, beyond])
        self.count = len(self.start) - len(beyond)
        self.length = self.end - self.start
        self.key = self.eight(self.start, self.length)

    def eight(self, start: Int64s, length: Int64s) -> NDArray[np.uint64]:
        """(n,) up to 8 bytes at each place, as little-endian numbers."""
        overlapping = np.ndarray((len(self.at) - 7,), dtype="<u8", buffer=self.at, strides=(1,))
        value = overlapping[start].astype(np.uint64)
        missing = (8 - np.clip(length, 0, 8)).astype(np.uint64) * np.uint64(8)
        masked = (value << np.minimum(missing, np.uint64(63))) >> np.minimum(missing, np.uint64(63))
        return np.where(length <= 0, np.uint64(0), masked)

    def numbers(self, start: Int64s, end: Int64s) -> tuple[Int64s, Bools]:
        """(n,) the whole numbers at places, and whether each is one of at most 18 digits."""
        length = end - start
        right = (length > 0) & (length <= DIGITS_MAX)
        value = np.zeros(len(start), dtype=np.int64)
        for place in range(int(length[right].max(initial=0))):
            inside = place < length
            digit = self.at[np.minimum(start + place, len(self.at) - 1)].astype(np.int64) - ord("0")
            right &= ~inside | ((digit >= 0) & (digit <= 9))
            value = np.where(inside & right, value * 10 + digit, value)
        return value, right

    def names(self, words: Int64s, names: Names) -> tuple[NDArray[np.uint64], Bools]:
        """(n, 2) numbers of labels, and whether each may be one: it begins with no digit."""
        start, length = self.start[words], self.length[words]
        numbers = np.empty((len(words), 2), dtype=np.uint64)
        numbers[:, 0] = self.key[words]
        numbers[:, 1] = self.eight(np.minimum(start + 8, len(self.at) - 8), length - 8)
        for row in np.flatnonzero(length > 16).tolist():
            numbers[row] = names.keep(self.at[start[row] : start[row] + length[row]].tobytes())
        first = self.at[start]
        return numbers, ((first < ord("0")) | (first > ord("9"))) & (first != ord(":"))


def read_text(path: Path) -> bytes:
    """Read a file. Raises InputError if it cannot be read, or is no regular file."""
    try:
        # Opening a FIFO would wait for ever.
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a regular file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def read_statements(text: bytes, complaints: Complaints) -> Statements:
    """Read all statements; what is wrong with one goes to `complaints`, and its form is WRONG."""
    text = _without_comments(text.removeprefix(b"\xef\xbb\xbf"), complaints)
    names = Names()
    parts: list[Statements] = []
    begin = lines = 0
    while begin < len(text) or not parts:
        end = text.find(b"\n", begin + _PIECE_BYTES) + 1 or len(text)
        piece = text[begin:end]
        parts.append(_read_piece(piece, lines, names, complaints))
        begin, lines = end, lines + piece.count(b"\n")
    columns: dict[str, Any] = {
        item.name: np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(Statements)
        if item.name != "names"
    }
    return Statements(**columns, names=names)


def _read_piece(text: bytes, lines: int, names: Names, complaints: Complaints) -> Statements:
    """Read the statements of a piece of text that has so many lines before it."""
    # Braces end statements as lines do; a carriage return is no line of its own.
    text = text.replace(b"{", b"{\r").replace(b"}", b"\r}\r") + b"\n"
    words = _Words(text)
    ends = words.breaks
    starts = np.concatenate([[0], ends[:-1] + 1])
    line = lines + 1 + np.concatenate([[0], np.cumsum(words.at[ends[:-1]] == ord("\n"))])
    first = np.searchsorted(words.start[: words.count], starts)
    count = np.diff(np.append(first, words.count))
    odd = np.zeros(len(ends), np.bool_)
    odd[np.searchsorted(ends, words.others)] = True
    there = np.flatnonzero((count > 0) | odd)
    statements = _usual(words, line[there], first[there], count[there], odd[there], names)
    for row in np.flatnonzero(statements.form == WRONG).tolist():
        piece = text[starts[there[row]] : ends[there[row]]].decode("utf-8", errors="replace")
        found = _odd(piece.strip(" \t\r\n\v\f"))
        if isinstance(found, str):
            complaints.add(int(statements.line[row]), found)
            continue
        for name, value in found.items():
            if name in ("name", "other"):
                value = names.keep(value.encode())
            getattr(statements, name)[row] = value
    return statements


def _without_comments(text: bytes, complaints: Complaints) -> bytes:
    if b"/" not in text:
        return text

    def blank(found: re.Match[bytes]) -> bytes:
        comment = found[0]
        if comment.startswith(b"/*") and not (comment.endswith(b"*/") and len(comment) >= 4):
            line = text.count(b"\n", 0, found.start()) + 1
            complaints.add(line, "the comment that begins here has no end: */ is missing")
        return b" " + b"\n" * comment.count(b"\n")

    return _COMMENT.sub(blank, text)


def _usual(words: _Words, line: Int64s, first: Int64s, count: Int64s, odd: Bools, names: Names) -> Statements:
    """Read statements in their usual form; others are left WRONG."""
    rows = len(line)
    value, peer, tag, cpu, nic = (np.zeros(rows, dtype=np.int64) for _ in range(5))
    name, other = (np.zeros((rows, 2), dtype=np.uint64) for _ in range(2))
    wrong = np.full(rows, WRONG, dtype=np.uint8)
    result = Statements(line, wrong, value, peer, tag, cpu, nic, name, other, names)
    key = words.key
    short = words.length <= 8

    def says(word: Int64s, text: str) -> Bools:
        found: Bools = (key[word] == _key(text)) & short[word]
        return found

    labelled = (count >= 3) & says(first + 1, ":")
    body = np.where(labelled, first + 2, first)
    size = np.where(labelled, count - 2, count)
    _relations(words, result, first, ~odd & ~labelled & (count == 3))

    calc = ~odd & (size >= 2) & says(body, "calc")
    for form, verb, towards in ((SEND, "send", "to"), (RECV, "recv", "from")):
        chosen = np.flatnonzero(~odd & (size >= 4) & says(body, verb) & says(body + 2, towards))
        word = body[chosen]
        value, right = words.numbers(words.start[word + 1], words.end[word + 1] - 1)
        right &= words.at[words.end[word + 1] - 1] == ord("b")
        peer, known = words.numbers(words.start[word + 3], words.end[word + 3])
        right &= known & _options(words, result, chosen, word + 4, size[chosen] - 4, _OPTIONS, says)
        result.peer[chosen] = peer
        _finish(words, result, chosen[right], value[right], form, first, labelled)
    chosen = np.flatnonzero(calc)
    word = body[chosen]
    value, right = words.numbers(words.start[word + 1], words.end[word + 1])
    right &= _options(words, result, chosen, word + 2, size[chosen] - 2, ("cpu",), says)
    _finish(words, result, chosen[right], value[right], CALC, first, labelled)
    return result


def _relations(words: _Words, result: Statements, first: Int64s, may_be: Bools) -> None:
    chosen = np.flatnonzero(may_be)
    word = first[chosen]
    middle = word + 1
    plain = (words.key[middle] == _key("requires")) & (words.length[middle] == 8)
    tail = words.eight(words.start[middle] + 1, np.full(len(middle), 8))
    begun = (words.length[middle] == 9) & (words.at[words.start[middle]] == ord("i")) & (tail == _key("requires"))
    keep = plain | begun
    chosen, word, begun = chosen[keep], word[keep], begun[keep]
    name, right = words.names(word, result.names)
    other, known = words.names(word + 2, result.names)
    right &= known
    chosen = chosen[right]
    result.form[chosen] = np.where(begun, IREQUIRES, REQUIRES)[right]
    result.name[chosen] = name[right]
    result.other[chosen] = other[right]


def _options(
    words: _Words, result: Statements, rows: Int64s, word: Int64s, left: Int64s, allowed: Sequence[str], says: Any
) -> Bools:
    """Read `tag`, `cpu` and `nic` with their numbers; whether a row has nothing else, and none of them twice."""
    right: Bools = (left % 2 == 0) & (left <= 2 * len(allowed))
    seen = {name: np.zeros(len(rows), np.bool_) for name in allowed}
    for step in range(0, 2 * len(allowed), 2):
        there = step < left
        if not there.any():
            break
        at = np.where(there, word + step, words.count)
        value, number = words.numbers(words.start[at + 1], words.end[at + 1])
        known = np.zeros(len(rows), np.bool_)
        for name in allowed:
            here = there & says(at, name)
            right &= ~(here & seen[name])
            seen[name] |= here
            known |= here
            column = getattr(result, name)
            column[rows[here]] = value[here]
        right &= ~there | (known & number)
    return right


def _finish(
    words: _Words, result: Statements, rows: Int64s, value: Int64s, form: int, first: Int64s, labelled: Bools
) -> None:
    result.value[rows] = value
    result.form[rows] = form
    named = rows[labelled[rows]]
    numbers, right = words.names(first[named], result.names)
    result.name[named] = numbers
    result.form[named[~right]] = WRONG


def _odd(text: str) -> dict[str, Any] | str:
    """Read one statement word by word: its columns, or what is wrong with it."""
    words = _WORD.findall(text)
    head = words[0]
    if words == ["}"]:
        return {"form": END}
    if head == "num_ranks":
        count = _number(words[1:2], "the number of ranks", "num_ranks 16")
        if isinstance(count, str):
            return count
        return {"form": NUM_RANKS, "value": count} if len(words) == 2 else _behind(words[2], "num_ranks")
    if head == "rank" and words[1:2] != [":"]:
        number = _number(words[1:2], "the number of the rank", "rank 0 {")
        if isinstance(number, str):
            return number
        if words[2:] != ["{"]:
            return f'found {_shown(words[2:3])} after rank {number}; a rank is written "rank {number} {{", on one line'
        return {"form": RANK, "value": number}
    columns: dict[str, Any] = {}
    if words[1:2] == [":"]:
        if not _NAME.fullmatch(head):
            return f"{_shown([head])} is no label: letters, digits and _ are allowed, and no digit comes first"
        columns["name"] = head
        words = words[2:]
        if not words or words[0] not in _OPERATIONS:
            return f'found {_shown(words[:1])} after the label "{head}"; allowed are calc, send and recv'
    elif words[1:2] and words[1] in _RELATIONS:
        return _odd_relation(words)
    if words[0] not in _OPERATIONS:
        after = f"; after a label comes a colon, requires or irequires, found {_shown(words[1:2])}"
        allowed = "calc, send, recv, LABEL:, LABEL requires LABEL, num_ranks, rank and }"
        return f"{_shown(words[:1])} is no statement; allowed are {allowed}" + (after if len(words) > 1 else "")
    found = _odd_operation(words)
    return found if isinstance(found, str) else columns | found


def _odd_relation(words: list[str]) -> dict[str, Any] | str:
    for at in (0, 2):
        if not _NAME.fullmatch(words[at] if len(words) > at else ""):
            return f'found {_shown(words[at : at + 1])} where a label is needed, as in "l2 {words[1]} l1"'
    if len(words) > 3:
        return _behind(words[3], f"{words[0]} {words[1]} {words[2]}")
    return {"form": _RELATIONS[words[1]], "name": words[0], "other": words[2]}


def _odd_operation(words: list[str]) -> dict[str, Any] | str:
    verb = words[0]
    calc = verb == "calc"
    example = {"calc": "calc 1000", "send": "send 4096b to 1", "recv": "recv 4096b from 1"}[verb]
    value = _number(words[1:2], "the length" if calc else "the size", example)
    if isinstance(value, str):
        return value
    columns: dict[str, Any] = {"form": _OPERATIONS[verb], "value": value, "tag": 0, "cpu": 0, "nic": 0}
    rest = words[2:]
    if not calc:
        towards = "to" if verb == "send" else "from"
        if rest[:1] != ["b"]:
            return f'found {_shown(rest[:1])} after the size; sizes are in bytes with a b, as in "{example}"'
        if rest[1:2] != [towards]:
            return f'found {_shown(rest[1:2])} after the size; {verb} needs "{towards}" and a rank: "{example}"'
        if rest[2:4] == ["-", "1"]:
            return f"{verb} {towards} -1: messages from any rank are not supported; name the rank"
        peer = _number(rest[2:3], "the rank", example)
        if isinstance(peer, str):
            return peer
        columns["peer"] = peer
        rest = rest[3:]
    allowed = ["cpu"] if calc else list(_OPTIONS)
    while rest:
        name = rest[0]
        if name not in allowed:
            again = " again" if name in _OPTIONS and not (calc and name != "cpu") else ""
            may = f"allowed: {', '.join(f'{item} NUMBER' for item in allowed)}" if allowed else "nothing may follow"
            return f"found {_shown(rest[:1])}{again} after {verb} ...; {may}"
        if name == "tag" and rest[1:3] == ["-", "1"]:
            return "tag -1: messages with any tag are not supported; name the tag"
        number = _number(rest[1:2], name, f"{name} 1")
        if isinstance(number, str):
            return number
        allowed.remove(name)
        columns[name] = number
        rest = rest[2:]
    return columns


def _number(words: list[str], noun: str, example: str) -> int | str:
    """A whole number, or what is wrong."""
    word = words[0] if words else ""
    if not (word.isascii() and word.isdigit()):
        return f'{noun} is {_shown(words)}; a whole number is needed, as in "{example}"'
    if len(word.lstrip("0")) > DIGITS_MAX:
        return f"{noun} is {_shown(words)}; it must be below 10^{DIGITS_MAX}"
    return int(word)


def _behind(word: str, statement: str) -> str:
    return f"found {_shown([word])} after {statement}; one statement is on each line"


def _shown(words: list[str]) -> str:
    """A word for a message."""
    if not words:
        return "the end of the line"
    word = words[0] if len(words[0]) <= 40 else words[0][:37] + "..."
    return repr(word) if '"' in word or not word.isprintable() else f'"{word}"'
