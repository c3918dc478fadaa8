"""The points of a sweep: combinations of values, each with its validated scenario or with what is wrong about it."""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fabemu.counted import agreeing, counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError, ScenarioError
from fabemu.scenario import load_scenario, scenario_from_dict
from fabemu.scenario.load import apply_overrides
from fabemu.scenario.text import parse_toml, read_text
from fabemu.scenario.write import plain
from fabemu.simulate import input_files
from fabemu.sweeps.design import check_design, combinations
from fabemu.sweeps.key import Key, copied, find_key
from fabemu.sweeps.parameter import Parameter, override
from fabemu.version import version

if TYPE_CHECKING:
    from fabemu.scenario import Scenario

ScenarioSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A scenario file, or a mapping with the keys of one."""

SEEDS_MAX = 100_000
RUNS_MAX = 1_000_000
_SEED_LIMIT = 2**63


@dataclass(frozen=True)
class Point:
    """One combination of parameter values."""

    index: int
    values: tuple[Any, ...]  # as a file holds them, in the order of the parameters
    scenario: Scenario | None  # None: these values do not make a scenario
    error: str = ""  # why not

    def settings(self, parameters: Sequence[Parameter]) -> str:
        """Its values as a user types them: "switch.ecn.kmin=100KiB, switch.ecn.kmax=1MiB"."""
        pairs = zip(parameters, self.values, strict=True)
        return ", ".join(override(parameter.key, value) for parameter, value in pairs)


@dataclass(frozen=True)
class SweepPlan:
    """Everything that a sweep will do: the same definition gives the same results."""

    name: str
    source: str  # the scenario file; empty if the scenario was not read from one
    base_dir: Path  # what paths in the scenario are relative to
    common: tuple[str, ...]  # options key=value of all points
    parameters: tuple[Parameter, ...]
    keys: tuple[Key, ...]  # of the parameters
    design: str
    design_seed: int
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    digest: str  # over the scenario of every point, the files they read, the seeds and the version

    @property
    def run_count(self) -> int:
        """Runs in all, those of invalid points included."""
        return len(self.points) * len(self.seeds)

    @property
    def size_text(self) -> str:
        """How much it is, for the user."""
        return size_text(len(self.points), len(self.seeds))

    def definition(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "name": self.name,
            "scenario": self.source,
            "common": list(self.common),
            "parameters": [
                {**parameter.to_dict(), "unit": key.unit}
                for parameter, key in zip(self.parameters, self.keys, strict=True)
            ],
            "design": self.design,
            "design_seed": self.design_seed,
            "seeds": list(self.seeds),
            "points": len(self.points),
        }


def size_text(points: int, seeds: int) -> str:
    """Points, seeds and runs: "3 points x 2 seeds = 6 runs"."""
    counts = ((points, "point"), (seeds, "seed"), (points * seeds, "run"))
    texts = [counted(count, noun) for count, noun in counts]
    return f"{texts[0]} x {texts[1]} = {texts[2]}"


def plan_sweep(
    scenario: ScenarioSource,
    common: Sequence[str],
    parameters: Sequence[Parameter],
    *,
    seeds: int | Sequence[int] = 1,
    design: str = "grid",
    points: int | None = None,
    design_seed: int = 1,
) -> SweepPlan:
    """Make the points of a sweep, and validate every one.

    Parameters
    ----------
    scenario
        A file, or a mapping with the keys of the file.
    common
        Options ``key=value`` of all points.
    parameters
        What differs between points.
    seeds
        How many, from the scenario's own seed on; or which.
    design, points, design_seed
        See `fabemu.sweeps.design`.

    Raises
    ------
    InputError
        If parameters, design and seeds do not go together.
    ScenarioError
        If no point is valid, with the problems of the first: an unknown key, for example.
    """
    check_design(design, parameters, points)
    first = [*common, *(override(item.key, item.low if item.is_range else item.values[0]) for item in parameters)]
    data = _data(scenario, first)
    keys = tuple(find_key(data, parameter.key) for parameter in parameters)
    if not all(key.is_known for key in keys):
        _load(scenario, first)
    for key, parameter in zip(keys, parameters, strict=True):
        key.refuse_equals(parameter)
    values = combinations(design, parameters, keys, points, design_seed)
    made = [make_point(index, item, scenario, common, parameters) for index, item in enumerate(values)]
    valid = [point.scenario for point in made if point.scenario is not None]
    if not valid:
        _load(scenario, [*common, *_overrides(parameters, values[0])])
    chosen = _seeds(seeds, valid[0].seed)
    if len(made) * len(chosen) > RUNS_MAX:
        raise InputError(
            f"{counted(len(made), 'point')} with {counted(len(chosen), 'seed')}: a sweep has at most {RUNS_MAX:,} runs"
        )
    is_file = not isinstance(scenario, Mapping)
    base_dir = Path(scenario).resolve().parent if not isinstance(scenario, Mapping) else Path().resolve()
    return SweepPlan(
        name=valid[0].name,
        source=os.fspath(scenario) if is_file else "",  # type: ignore[arg-type]
        base_dir=base_dir,
        common=tuple(common),
        parameters=tuple(parameters),
        keys=keys,
        design=design,
        design_seed=design_seed,
        seeds=chosen,
        points=tuple(made),
        digest=_digest(made, base_dir, chosen),
    )


def make_point(
    index: int,
    values: tuple[Any, ...],
    scenario: ScenarioSource,
    common: Sequence[str],
    parameters: Sequence[Parameter],
) -> Point:
    """A point with these values of the parameters; see `plan_sweep` for the others."""
    try:
        return Point(index, values, _load(scenario, [*common, *_overrides(parameters, values)]))
    except ScenarioError as error:
        return Point(index, values, None, str(error))


def _overrides(parameters: Sequence[Parameter], values: Sequence[Any]) -> list[str]:
    return [override(parameter.key, value) for parameter, value in zip(parameters, values, strict=True)]


def _load(scenario: ScenarioSource, changes: Sequence[str]) -> Scenario:
    if isinstance(scenario, Mapping):
        return scenario_from_dict(scenario, overrides=changes)
    return load_scenario(scenario, changes)


def _data(scenario: ScenarioSource, changes: Sequence[str]) -> dict[str, Any]:
    """Parsed TOML with changes made, as far as they can be."""
    if isinstance(scenario, Mapping):
        data = copied(scenario)
    else:
        source = os.fspath(scenario)
        data = parse_toml(read_text(source), source)
    apply_overrides(data, changes)
    assert isinstance(data, dict)
    return data


def _seeds(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    if isinstance(seeds, int):
        if not 1 <= seeds <= SEEDS_MAX:
            alone = f"; for seed {seeds} alone write a list: {seeds}," if 0 <= seeds < _SEED_LIMIT else ""
            raise InputError(f"{seeds} {agreeing(seeds, 'seed')}: a sweep has 1 to {SEEDS_MAX:,} of them{alone}")
        chosen = tuple(range(first, first + seeds))
    else:
        try:
            chosen = tuple(map(operator.index, seeds))
        except TypeError:
            raise InputError(f"seeds = {seeds!r}: give a whole number, how many, or a list of whole numbers") from None
    if not 1 <= len(chosen) <= SEEDS_MAX:
        raise InputError(f"{counted(len(chosen), 'seed')}: a sweep has 1 to {SEEDS_MAX:,}")
    for index, seed in enumerate(chosen):
        if not 0 <= seed < _SEED_LIMIT:
            raise InputError(f"seed {seed}: a seed is 0 to 2**63-1")
        if len(chosen) < 1000 and seed in chosen[:index]:
            raise InputError(f"seed {seed} is listed twice")
    if len(set(chosen)) != len(chosen):
        raise InputError("a seed is listed twice")
    return chosen


def _digest(points: Sequence[Point], base_dir: Path, seeds: Sequence[int]) -> str:
    """What tells whether results of an earlier session are results of this sweep."""
    total = hashlib.sha256(json.dumps([version(), list(seeds)]).encode())
    files: dict[Path, str] = {}
    for point in points:
        if point.scenario is None:
            total.update(f"invalid: {point.error}\n".encode(errors="backslashreplace"))
            continue
        total.update(repr(plain(point.scenario)).encode())
        for path in input_files(point.scenario, base_dir).values():
            if path not in files:
                files[path] = _file_digest(path)
            total.update(files[path].encode())
    return total.hexdigest()


def _file_digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"  # its runs will say so
