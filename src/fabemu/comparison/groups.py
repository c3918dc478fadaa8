"""Runs to compare, grouped: the seeds of one setting belong together, and the first setting is the baseline."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.recorded.source import Source
from fabemu.result import Run
from fabemu.run_directory import INPUTS, RUN_FILE, SCENARIO_FILE

_SWEEP_FILE, _SWEEP_RUNS = "sweep.json", "runs"
"""What makes a directory a sweep, and where ``fabemu sweep --keep`` puts its runs."""


@dataclass(frozen=True)
class Member:
    """One run.

    Attributes
    ----------
    run
        The run itself.
    scenario
        As resolved, without its seed and name and what it records; empty if the run does not know it.
    inputs
        By name of each file that the scenario reads: SHA-256 of its content.
    partial
        Why the run is not whole, or None.
    """

    run: Run
    scenario: dict[str, Any]
    inputs: dict[str, str]
    partial: str | None

    @property
    def seed(self) -> int | None:
        """Seed of all random draws; None if the run does not say."""
        seed = self.run.info.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def setting(self) -> str:
        """What the seeds of one setting have in common: scenario, files, version and engine."""
        info = self.run.info
        return json.dumps(
            [self.scenario or str(self.run.directory), self.inputs, info.get("version"), info.get("engine")],
            sort_keys=True,
        )


@dataclass(frozen=True)
class Group:
    """Runs of one setting, with different seeds; the letter stands for it in tables."""

    letter: str
    members: tuple[Member, ...]

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """Seeds of the members, in their order."""
        return tuple(member.seed for member in self.members)

    @property
    def name(self) -> str:
        """Name of the scenario, as the first run has it; its directory if it has none."""
        first = self.members[0].run
        return str(first.info.get("name") or first.directory.name)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "letter": self.letter,
            "name": self.name,
            "runs": [
                {
                    "directory": str(member.run.directory),
                    "seed": member.seed,
                    "status": member.run.info.get("status"),
                    "partial": member.partial,
                    "version": member.run.info.get("version"),
                    "engine": member.run.info.get("engine"),
                    "plan_digest": member.run.info.get("plan_digest"),
                    "digest": member.run.info.get("digest"),
                }
                for member in self.members
            ],
        }


def gather(places: Sequence[str | Path | Run]) -> tuple[Group, ...]:
    """Open runs and group them by their settings, in the order of the first run of each.

    Parameters
    ----------
    places
        Run directories or runs; a directory of ``fabemu sweep --keep`` stands for all of its runs.

    Returns
    -------
    tuple of Group
        Two or more. A run whose setting has a run with the same seed already goes to another group of that setting: it
        is the same run again, of another build perhaps.

    Raises
    ------
    InputError
        A place is no run, or of a newer fabemu; one is given twice; or there are not two settings to compare.
    """
    members = [_member(place) for given in places for place in _runs_of(given)]
    seen: dict[Path, Path] = {}
    for member in members:
        real = member.run.directory.resolve()
        if real in seen:
            raise InputError(f"{member.run.directory}: is given twice; a run cannot be compared with itself")
        seen[real] = member.run.directory
    if len(members) < 2:
        found = f"only {members[0].run.directory}" if members else "none"
        raise InputError(f"two runs or more are needed to compare, {found} was given")
    chosen: list[list[Member]] = []
    for member in members:
        fitting = (
            group
            for group in chosen
            if group[0].setting == member.setting and member.seed not in [other.seed for other in group]
        )
        group = next(fitting, None)
        if group is None:
            chosen.append([member])
        else:
            group.append(member)
    if len(chosen) < 2:
        raise InputError(
            f"all {counted(len(members), 'run')} are seeds of one setting ({members[0].run.info.get('name')}): "
            "give runs of another setting too, as in `fabemu run SCENARIO --set KEY=VALUE -o DIR`"
        )
    return tuple(Group(_letter(index), tuple(group)) for index, group in enumerate(chosen))


def _runs_of(place: str | Path | Run) -> list[Path | Run]:
    """The runs that a place stands for."""
    if isinstance(place, Run):
        return [place]
    path = Path(place)
    if (path / _SWEEP_FILE).is_file() and not (path / RUN_FILE).exists():
        kept = sorted(run for run in (path / _SWEEP_RUNS).glob("*") if (run / RUN_FILE).is_file())
        if not kept:
            raise InputError(f"{path}: is a sweep that kept no runs; `fabemu sweep --keep` keeps them")
        return [*kept]
    return [path]


def _member(place: Path | Run) -> Member:
    directory = place.directory if isinstance(place, Run) else place
    source = Source.open(directory)
    run = place if isinstance(place, Run) else Run(directory)
    scenario = dict(_scenario(run))
    for key in ("seed", "name"):
        scenario.pop(key, None)
    if isinstance(scenario.get("trace"), dict):
        # Which tables are written changes nothing; the interval changes peaks over intervals.
        scenario["trace"] = {key: value for key, value in scenario["trace"].items() if key == "interval"}
    return Member(run, scenario, _inputs(directory / INPUTS), source.partial)


def _scenario(run: Run) -> dict[str, Any]:
    """The scenario as resolved, from run.json or else from the file beside it; empty if neither has it."""
    stored = run.info.get("scenario")
    if isinstance(stored, dict):
        return stored
    try:
        return tomllib.loads((run.directory / SCENARIO_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _inputs(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.glob("*")):
        try:
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return found


def _letter(index: int) -> str:
    """A, B, ..., Z, AA, AB, ... for 0, 1, ..."""
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
