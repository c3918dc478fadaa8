"""Tuning: an optimiser chooses the points of a sweep, batch by batch, by what the points before came to.

The optimiser is the tree-structured Parzen estimator of Optuna, which learns limits too. What it proposes depends on
its seed and on the outcomes of whole batches in their order alone, never on who was first: a study is the same at any
number of workers, and one that was interrupted is gone through again with the outcomes that are there.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.headline import check_figure
from fabemu.sweeps.key import Key
from fabemu.sweeps.parameter import Parameter, written
from fabemu.sweeps.points import ScenarioSource, SweepPlan, make_point, plan_sweep
from fabemu.sweeps.task import HAS_FIGURES, Outcome

TRIALS_MAX = 10_000
_SAMPLER_SEEDS = 2**32
_LIMIT = re.compile(r"\s*(\S+?)\s*(<=|>=|=)\s*([-+]?\.?\d[\d.]*(?:[eE][-+]?\d+)?)\s*")
_WORST = 1e300  # stands for what is infinite or not there: the optimiser takes finite numbers


@dataclass(frozen=True)
class Limit:
    """What must hold for every seed of a point: a figure that is at most, at least or exactly so much."""

    figure: str
    relation: str
    value: float

    def violation(self, values: Sequence[float]) -> float:
        """How far the worst of some values is beyond the limit; 0 or less if all keep it."""
        beyond = {"<=": lambda found: found - self.value, ">=": lambda found: self.value - found}
        gap = beyond.get(self.relation, lambda found: abs(found - self.value))
        return float(max((_finite(gap(value)) for value in values), default=_WORST))

    def __str__(self) -> str:
        """As a user writes it."""
        # What is read back from a study must be the same limit.
        short = f"{self.value:g}"
        return f"{self.figure}{self.relation}{short if float(short) == self.value else repr(self.value)}"


@dataclass(frozen=True)
class Aim:
    """What a study looks for: the least, or greatest, median of a figure among points that keep all limits."""

    figure: str
    greatest: bool = False
    limits: tuple[Limit, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"figure": self.figure, "greatest": self.greatest, "limits": [str(limit) for limit in self.limits]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Aim:
        """The inverse of `to_dict`."""
        return cls(data["figure"], data["greatest"], tuple(read_limit(text) for text in data["limits"]))

    @property
    def figures(self) -> tuple[str, ...]:
        """The objective, and what is limited."""
        return tuple(dict.fromkeys([self.figure, *(limit.figure for limit in self.limits)]))


def read_limit(text: str) -> Limit:
    """Read a limit such as "pauses.count=0" or "queue_max_bytes<=2e6"; raises InputError if it is none."""
    match = _LIMIT.fullmatch(text)
    if match is None or match[3].count(".") > 1:
        raise InputError(
            f"{text!r} is not a limit: write FIGURE<=NUMBER, FIGURE>=NUMBER or FIGURE=NUMBER, in base units"
        )
    value = float(match[3])
    if not math.isfinite(value):
        raise InputError(f"{text!r} is not a limit: {match[3]} is beyond all numbers")
    return Limit(check_figure(match[1]), match[2], value)


def read_aim(minimize: str | None, maximize: str | None, limits: Sequence[str]) -> Aim:
    """What a study looks for; raises InputError if it is not one objective, or a figure or limit is none."""
    if (minimize is None) == (maximize is None):
        raise InputError("a study has one objective: a figure to minimize, or one to maximize")
    figure = check_figure(minimize if minimize is not None else str(maximize))
    return Aim(figure, maximize is not None, tuple(read_limit(text) for text in limits))


def check_optimiser() -> None:
    """See that the optimiser is installed; raises InputError otherwise."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError("tuning needs optuna: install it with pip install 'fabemu[tune]'") from None


class Study:
    """The points of one study: the first batch at once, every other from the outcomes before."""

    def __init__(
        self,
        scenario: ScenarioSource,
        common: Sequence[str],
        parameters: Sequence[Parameter],
        aim: Aim,
        *,
        trials: int,
        batch: int = 8,
        seeds: int | Sequence[int] = 1,
        sampler_seed: int = 1,
    ) -> None:
        """Check everything, and choose the first batch.

        Raises
        ------
        InputError, ScenarioError
            As `fabemu.sweeps.points.plan_sweep`, or if numbers of trials make no sense.
        """
        check_optimiser()
        if not 1 <= trials <= TRIALS_MAX:
            raise InputError(f"{trials} trials: a study has 1 to {TRIALS_MAX:,}")
        if batch < 1:
            raise InputError(f"{batch} trials at a time: give 1 or more")
        if not 0 <= sampler_seed < _SAMPLER_SEEDS:
            raise InputError(f"{sampler_seed}: the seed of the optimiser is 0 to {_SAMPLER_SEEDS - 1:,}")
        self.aim = aim
        self.trials = trials
        self._scenario, self._common, self._batch = scenario, tuple(common), batch
        # A Latin hypercube validates keys, ranges and values, and says which scenario this is.
        probe = plan_sweep(scenario, common, parameters, seeds=seeds, design="lhs", points=16, design_seed=sampler_seed)
        self._parameters, self._keys = probe.parameters, probe.keys
        self._study = _new_study(aim, sampler_seed)
        self._asked: list[Any] = []
        self._told = 0
        mark = json.dumps([probe.digest, aim.to_dict(), batch, sampler_seed, [item.to_dict() for item in parameters]])
        digest = hashlib.sha256(mark.encode()).hexdigest()
        self.plan: SweepPlan = replace(probe, points=(), design="tune", digest=digest)
        self.plan = replace(self.plan, points=self._ask())

    @property
    def run_count(self) -> int:
        """Runs of all trials."""
        return self.trials * len(self.plan.seeds)

    def more(self, outcomes: Mapping[int, Outcome]) -> tuple[Any, ...]:
        """The next batch, after the outcomes of all runs before; empty when there have been enough."""
        seeds = len(self.plan.seeds)
        for number in range(self._told, len(self._asked)):
            found = [outcomes[index] for index in range(number * seeds, (number + 1) * seeds)]
            self._tell(number, found)
        self._told = len(self._asked)
        points = self._ask()
        self.plan = replace(self.plan, points=(*self.plan.points, *points))
        return points

    def _ask(self) -> tuple[Any, ...]:
        points = []
        first = len(self._asked)
        for number in range(first, min(first + self._batch, self.trials)):
            trial = self._study.ask()
            self._asked.append(trial)
            pairs = zip(self._parameters, self._keys, strict=True)
            values = tuple(_proposed(trial, parameter, key) for parameter, key in pairs)
            points.append(make_point(number, values, self._scenario, self._common, self._parameters))
        return tuple(points)

    def _tell(self, number: int, outcomes: Sequence[Outcome]) -> None:
        trial, aim = self._asked[number], self.aim
        value, violations = judge(aim, [outcome.figures for outcome in outcomes if outcome.status in HAS_FIGURES])
        missing = sum(outcome.status not in HAS_FIGURES for outcome in outcomes)
        trial.set_user_attr("violations", [*violations, float(missing) * _WORST if missing else -1.0])
        self._study.tell(trial, _finite(value))


def judge(aim: Aim, figures: Sequence[Mapping[str, Any]]) -> tuple[float, list[float]]:
    """The median of the objective over the runs of a point, and how far each limit is from being kept (0: kept)."""
    values = [float(run[aim.figure]) for run in figures if run.get(aim.figure) is not None]
    ordered = sorted(values)
    value = math.inf if not aim.greatest else -math.inf
    if len(values) == len(figures) and values:
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        value = low if low == high else (low + high) / 2
    limits = [
        limit.violation(
            [float(run[limit.figure]) if run.get(limit.figure) is not None else math.nan for run in figures]
        )
        for limit in aim.limits
    ]
    return value, limits


def best_of(aim: Aim, runs: Mapping[int, Sequence[Mapping[str, Any]]], seeds: int) -> tuple[int, float] | None:
    """The best point and its objective, among those whose every run has figures and keeps all limits; None if none.

    Parameters
    ----------
    aim
        What is looked for.
    runs
        Figures of the runs that have any, by point.
    seeds
        Runs that a point should have.
    """
    found: tuple[int, float] | None = None
    for point in sorted(runs):
        value, violations = judge(aim, runs[point])
        if len(runs[point]) < seeds or not math.isfinite(value) or any(item > 0 for item in violations):
            continue
        better = operator.gt if aim.greatest else operator.lt
        if found is None or better(value, found[1]):
            found = (point, value)
    return found


def _new_study(aim: Aim, seed: int) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its authors still may change is not the user's concern
        sampler = optuna.samplers.TPESampler(
            seed=seed,
            multivariate=True,
            constant_liar=True,  # the trials of a batch keep away from each other
            constraints_func=lambda trial: trial.user_attrs["violations"],
        )
        return optuna.create_study(sampler=sampler, direction="maximize" if aim.greatest else "minimize")


def _proposed(trial: Any, parameter: Parameter, key: Key) -> Any:
    """The value that the optimiser proposes, as a file holds it."""
    if parameter.is_range:
        share = trial.suggest_float(parameter.key, 0.0, 1.0)
        return key.between(parameter, min(share, float(np.nextafter(1.0, 0.0))))
    numbers = {written(value): value for value in parameter.values}
    return numbers[trial.suggest_categorical(parameter.key, list(numbers))]


def _finite(value: float) -> float:
    """A number that the optimiser takes, in the same order."""
    return _WORST if math.isnan(value) else min(max(value, -_WORST), _WORST)
