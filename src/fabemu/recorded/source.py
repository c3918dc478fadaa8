"""A run directory read again: what it says of itself, and the plan that its scenario compiles to."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from fabemu.compile import Compiled, compile_plan
from fabemu.deferred import dataclass
from fabemu.errors import FabemuError, InputError
from fabemu.run_directory import RUN_FILE, SCENARIO_FILE, check_schema_version, read_info
from fabemu.run_shape import check_shape
from fabemu.scenario import Scenario, load_scenario
from fabemu.trace import TABLES, table_path, tables_in
from fabemu.version import version

_WHOLE = ("finished", "deadlocked")
"""Statuses of runs that came to an end of their own."""


@dataclass(frozen=True)
class Source:
    """One run, finished or not.

    Attributes
    ----------
    directory
        Where it lies.
    info
        Content of ``run.json``.
    """

    directory: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, directory: Path) -> Source:
        """Open a run directory.

        Raises
        ------
        InputError
            It is no run directory, or one of a newer fabemu.
        """
        info = read_info(directory)
        check_schema_version(directory, info)
        check_shape(directory / RUN_FILE, info)
        return cls(directory, info)

    @property
    def partial(self) -> str | None:
        """Why the run is not whole, or None."""
        status = self.info.get("status")
        if status in _WHOLE:
            return None
        if status == "running":
            return "the run is still going on, or was killed: what its tables hold by now"
        return f"the run is {status}: what its tables hold up to then"

    def table(self, name: str, level: str = "packets") -> Path:
        """Path of a table that is there; `level` is the trace level that gives a packets table fit for the purpose.

        Raises
        ------
        InputError
            The run did not write it; the message has the way out.
        """
        path = table_path(self.directory, name)
        if path.is_file():
            return path
        if name not in TABLES:
            raise InputError(f"{name!r} is not a trace table; the tables are {', '.join(TABLES)}")
        there = ", ".join(tables_in(self.directory)) or "none"
        way_out = f"`fabemu run {self.directory / SCENARIO_FILE} -o DIR` with that table in [trace] tables"
        if name == "packets":
            way_out = f"`fabemu run {self.directory / SCENARIO_FILE} --trace {level} -o DIR`"
        elif name in ("collectives", "jobs", "steps"):
            way_out = "only a scenario that has any"
        raise InputError(f"{self.directory}: has no {name} table (it has {there}); {way_out} gives it")

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario that was run.

        Raises
        ------
        InputError
            The run directory lacks it, or it is not read by this version.
        """
        path = self.directory / SCENARIO_FILE
        if not path.is_file():
            raise InputError(f"{path}: is missing; it says what the numbers of the tables mean")
        try:
            return load_scenario(path, ())
        except FabemuError as error:
            raise InputError(f"{path}: this fabemu ({version()}) does not read it: {error}") from error

    @cached_property
    def compiled(self) -> Compiled:
        """The plan of the run with its names, compiled again.

        Raises
        ------
        InputError
            The scenario compiles to another plan than the one that was run.
        """
        scenario = self.scenario
        try:
            compiled = compile_plan(scenario, base_dir=self.directory)
        except FabemuError as error:
            raise InputError(f"{self.directory / SCENARIO_FILE}: does not compile any more: {error}") from error
        digest, ran = compiled.plan.digest(), self.info.get("plan_digest")
        if digest != ran:
            raise InputError(
                f"{self.directory}: its {SCENARIO_FILE} compiles to plan {digest[:12]}, but the run was of plan "
                f"{str(ran)[:12]}: the file was changed, traffic was given to the API, or the run is by another "
                f"fabemu (that one: {self.info.get('version')}, this one: {version()}); run it again"
            )
        return compiled
