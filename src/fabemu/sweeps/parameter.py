"""Parameters of a sweep: keys of the scenario, each with the values or the range that its points take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.scenario.load import read_value
from fabemu.scenario.write import toml_value

_RANGE = re.compile(r"([+-]?\d.*?)\s*\.\.\s*([+-]?\d.*?)\s*(:log)?", re.DOTALL)
# What can only be meant as a range: one end is missing, or no finite number.
_END = r"[+-]?(?:\d|nan|inf)[^\"']*?"
_LIKE_RANGE = re.compile(rf"(?:{_END}\s*\.\.\s*(?:{_END})?|\.\.\s*{_END})(?:\s*:log)?", re.DOTALL)
_TWO_ENDS = "a range has a number at either end"
_OPEN, _CLOSE = "[{", "]}"


@dataclass(frozen=True)
class Parameter:
    """One key that differs between points: its values as a scenario file holds them, or the two ends of a range."""

    key: str
    values: tuple[Any, ...] = ()
    low: Any = None
    high: Any = None
    log: bool = False  # whether equal ratios of a range are equally likely, instead of equal distances

    @property
    def is_range(self) -> bool:
        """Whether it has two ends instead of values."""
        return not self.values

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        if self.is_range:
            return {"key": self.key, "low": self.low, "high": self.high, "log": self.log}
        return {"key": self.key, "values": list(self.values)}


def read_settings(options: list[str]) -> tuple[list[str], list[Parameter]]:
    """Read what ``--set`` was given.

    Parameters
    ----------
    options
        ``key=[a, b, c]`` for values, ``key=low..high`` for a range (``:log`` behind it for a logarithmic one), and
        ``key=value`` for what all points have in common.

    Returns
    -------
    tuple
        What all points have in common, as given, and the parameters in the order given.

    Raises
    ------
    InputError
        An option that cannot be read, such as half a range, or a key that is given twice.
    """
    common: list[str] = []
    parameters: list[Parameter] = []
    for option in options:
        key, separator, text = (part.strip() for part in option.partition("="))
        if not separator or not key:
            raise InputError(f"--set {option}: write key=[value, value], key=low..high or key=value")
        found = _range(key, text)
        if found is None and _LIKE_RANGE.fullmatch(text):
            raise InputError(
                f"--set {option}: {_TWO_ENDS}: write {key}=low..high, such as 1/8..2 or 4MiB..32MiB:log; a text is "
                "written in quotes"
            )
        if text.startswith("["):
            parameters.append(_checked(Parameter(key, tuple(_elements(option, text))), f"--set {option}"))
        elif found is not None:
            parameters.append(found)
        else:
            common.append(option)
    _refuse_repeats([*(item.key for item in parameters), *(item.partition("=")[0].strip() for item in common)])
    return common, parameters


def parameters_of(settings: Mapping[str, Any]) -> tuple[list[str], list[Parameter]]:
    """Read what Python was given: by key a list of values, a text ``"low..high"``, or one value."""
    common: list[str] = []
    parameters: list[Parameter] = []
    for key, value in settings.items():
        found = _range(key, value) if isinstance(value, str) else None
        if isinstance(value, list | tuple):
            values = tuple(list(item) if isinstance(item, tuple) else item for item in value)
            parameters.append(_checked(Parameter(key, values), key))
        elif isinstance(value, str) and found is None and _LIKE_RANGE.fullmatch(value.strip()):
            raise InputError(
                f'{key} = {toml_value(value)}: {_TWO_ENDS}: write "low..high", such as "1/8..2" or '
                f'"4MiB..32MiB:log"; a text is given as a list, [{toml_value(value)}]'
            )
        elif found is not None:
            parameters.append(found)
        else:
            common.append(override(key, value))
    _refuse_repeats([*settings])
    return common, parameters


def override(key: str, value: Any) -> str:
    """The option ``key=value`` that gives a key this value."""
    return f"{key}={written(value)}"


def written(value: Any) -> str:
    """A value as a user types it: bare where that reads as the same."""
    if isinstance(value, str) and value == value.strip() and read_value(value) == value:
        return value
    return toml_value(value)


def _range(key: str, text: str) -> Parameter | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    return Parameter(key, low=read_value(match[1]), high=read_value(match[2]), log=match[3] is not None)


def _elements(option: str, text: str) -> list[Any]:
    """The elements of a list: TOML, or with bare texts such as ``[100KiB, auto]``."""
    parsed = read_value(text)
    if isinstance(parsed, list):
        return parsed
    if not text.endswith("]"):
        raise InputError(f"--set {option}: the list does not end: write [value, value, ...]")
    parts, depth, quote, start = [], 0, "", 1
    for index, char in enumerate(text[:-1]):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif index and char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    if text[start:-1].strip() or not parts:
        parts.append(text[start:-1])
    if depth or quote or not all(part.strip() for part in parts):
        raise InputError(f"--set {option}: is not a list of values: write [value, value, ...]")
    return [read_value(part.strip()) for part in parts]


def _checked(parameter: Parameter, where: str) -> Parameter:
    """Refuse lists that say nothing, or one thing twice."""
    if not parameter.values:
        raise InputError(f"{where}: the list is empty: a parameter needs a value")
    seen: list[str] = []
    for value in parameter.values:
        text = toml_text(value)
        if text in seen:
            raise InputError(f"{where}: {written(value)} is listed twice")
        seen.append(text)
    return parameter


def toml_text(value: Any) -> str:
    """A value as TOML, tables included."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_text(item)}" for key, item in value.items()) + "}"
    return toml_value(value)


def _refuse_repeats(keys: list[str]) -> None:
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise InputError(f"{key}: is set twice")
        if key == "seed":
            raise InputError("seed: give the seeds of a sweep with --seeds, as a count or a list")
