"""Outcomes of runs as Arrow tables: results, which the sweep alone decides, and costs, which depend on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fabemu.headline import FIGURES
from fabemu.sweeps.parameter import written
from fabemu.sweeps.points import SweepPlan
from fabemu.sweeps.task import Outcome

TEXT_SUFFIX = ".text"
"""Ends the name of the column that has a parameter as it is written."""

_TYPES = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}


class ResultTables:
    """Tables of one sweep, cut out of its outcomes."""

    def __init__(self, plan: SweepPlan) -> None:
        """Work out the columns once; they are the same in every part."""
        self._plan = plan
        self._numbers = [
            [key.base(point.values[index]) for point in plan.points] for index, key in enumerate(plan.keys)
        ]
        # By what a point could have, so that points that come later leave the columns as they are.
        self._types = [
            _type([key.base(value) for value in parameter.values or (parameter.low, parameter.high)])
            for key, parameter in zip(plan.keys, plan.parameters, strict=True)
        ]
        self.schema = pa.schema(self._fields(), {"fabemu_sweep": plan.digest})

    def results(self, outcomes: Sequence[Outcome]) -> pa.Table:
        """One row per run: parameters, seed, status and headline figures."""
        plan = self._plan
        places = [divmod(outcome.index, len(plan.seeds)) for outcome in outcomes]
        columns: dict[str, list[Any]] = {
            "point": [point for point, _ in places],
            "seed": [plan.seeds[number] for _, number in places],
        }
        for index, key in enumerate(plan.keys):
            numbers, kind = self._numbers[index], self._types[index]
            columns[key.path] = [_cell(numbers[point], kind) for point, _ in places]
            columns[key.path + TEXT_SUFFIX] = [
                _encodable(written(plan.points[point].values[index])) for point, _ in places
            ]
        columns["status"] = [outcome.status for outcome in outcomes]
        columns["error"] = [_encodable(outcome.error) or None for outcome in outcomes]
        for name in FIGURES:
            columns[name] = [outcome.figures.get(name) for outcome in outcomes]
        return pa.table(columns, schema=self.schema)

    def costs(self, outcomes: Sequence[Outcome]) -> pa.Table:
        """One row per run: time, memory, worker and number of attempts."""
        seeds = self._plan.seeds
        columns: dict[str, list[Any]] = {
            "point": [outcome.index // len(seeds) for outcome in outcomes],
            "seed": [seeds[outcome.index % len(seeds)] for outcome in outcomes],
            "attempts": [outcome.attempts for outcome in outcomes],
        }
        for name in ("wall_seconds", "cpu_seconds", "peak_memory_bytes", "worker"):
            columns[name] = [outcome.cost.get(name) for outcome in outcomes]
        return pa.table(columns, schema=_COSTS)

    def _fields(self) -> list[pa.Field]:
        fields = [
            _field("point", pa.int64(), "", "number of the point, from 0"),
            _field("seed", pa.int64(), "", "seed of the run"),
        ]
        for key, kind in zip(self._plan.keys, self._types, strict=True):
            fields.append(_field(key.path, kind, key.unit, "parameter; null for a word among numbers"))
            fields.append(_field(key.path + TEXT_SUFFIX, pa.string(), "", "the parameter as it is written"))
        fields += [
            _field(
                "status", pa.string(), "", "finished, deadlocked, invalid, failed or fault; the first two have figures"
            ),
            _field("error", pa.string(), "", "why there are no figures"),
        ]
        fields += [_field(figure.name, _TYPES[figure.kind], figure.unit, figure.meaning) for figure in FIGURES.values()]
        return fields


def _encodable(text: str) -> str:
    """A text as a column can hold it: bytes of a path that are no text are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _type(numbers: Sequence[Any]) -> pa.DataType:
    """The type of a parameter's column: that of its numbers, if it has any."""
    found = {type(number) for number in numbers if number is not None}
    if found <= {bool} and found:
        return pa.bool_()
    if found & {int, float}:
        return pa.float64() if float in found or _is_beyond(numbers) else pa.int64()
    return pa.string()


def _is_beyond(numbers: Sequence[Any]) -> bool:
    return any(isinstance(number, int) and not -(2**63) <= number < 2**63 for number in numbers)


def _cell(number: Any, kind: pa.DataType) -> Any:
    """A value if it is of the column's type; None for words among numbers."""
    if pa.types.is_string(kind):
        return _encodable(number) if isinstance(number, str) else None
    if pa.types.is_boolean(kind):
        return number if isinstance(number, bool) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return float(number) if pa.types.is_floating(kind) else number


def _field(name: str, kind: pa.DataType, unit: str, meaning: str) -> pa.Field:
    about: Mapping[str, str] = {"unit": unit, "meaning": meaning} if unit else {"meaning": meaning}
    return pa.field(name, kind, metadata=dict(about))


_COSTS = pa.schema(
    [
        _field("point", pa.int64(), "", "number of the point, from 0"),
        _field("seed", pa.int64(), "", "seed of the run"),
        _field("attempts", pa.int64(), "", "times that the run was begun, as far as is known"),
        _field("wall_seconds", pa.float64(), "s", "time that the run took"),
        _field("cpu_seconds", pa.float64(), "s", "CPU time of the engine and of writing traces"),
        _field("peak_memory_bytes", pa.int64(), "bytes", "greatest resident memory of the worker until then"),
        _field("worker", pa.string(), "", "machine and process that did it"),
    ]
)
