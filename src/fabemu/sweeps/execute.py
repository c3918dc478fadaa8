"""Carries out a sweep: gives runs to workers, tries again what failed by accident, records every outcome once."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fabemu.deferred import dataclass
from fabemu.errors import InputError, MachineError
from fabemu.sweeps.points import Point, SweepPlan
from fabemu.sweeps.store import COSTS, PART_ROWS, RESULTS, RUNS, open_directory, part_path, write_whole
from fabemu.sweeps.table import ResultTables
from fabemu.sweeps.task import AGAIN, HAS_FIGURES, Outcome, Task
from fabemu.version import version

RETRIES = 2
"""Times that a run is tried again unless told otherwise."""

_WAIT_SECONDS = 0.2
_WRITE_SECONDS = 5.0  # parts that are not complete are brought up to date this often


class Workers(Protocol):
    """Who does the runs."""

    slots: int  # tasks that they want at a time

    @property
    def name(self) -> str:
        """For the user: what does the work."""

    def submit(self, task: Task) -> None:
        """Give them a task."""

    def wait(self, seconds: float) -> list[Outcome]:
        """What has been done meanwhile, waiting if need be."""

    def close(self) -> None:
        """End, or give up, everything that is still being done."""


@dataclass(frozen=True)
class Standing:
    """Where a sweep stands."""

    run_count: int
    done: int  # runs with an outcome
    earlier: int  # of these, done in an earlier session
    without_figures: int  # invalid, failed or at fault
    running: int
    wall_seconds: float

    @property
    def seconds_left(self) -> float | None:
        """Guess of the time that is left; None while there is nothing to guess from."""
        done = self.done - self.earlier
        # Runs at work are half done, on average.
        half = self.running / 2
        left = max(0.0, self.run_count - self.done - half)
        return self.wall_seconds * left / (done + half) if done > 0 else None


class Execution:
    """One session of work on a sweep.

    Parameters
    ----------
    plan
        The sweep.
    path
        Its directory; see `fabemu.sweeps.store.open_directory` for this and `force`.
    retries
        Times that a run is tried again when its worker died or the machine failed it.
    keep
        Keep the run directory of every run.
    total
        Runs that there will be, if `run` is to be given more points.
    about
        What else ``sweep.json`` is to say.
    """

    def __init__(
        self,
        plan: SweepPlan,
        path: Path,
        *,
        retries: int = RETRIES,
        force: bool = False,
        keep: bool = False,
        total: int = 0,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the directory; what is in it stays as it is until `run`, and runs that are done are not done again."""
        if retries < 0:
            raise InputError(f"{retries} retries: give 0 or more")
        self.plan = plan
        self.path = path
        self._retries = retries
        self._runs = path / RUNS if keep else None
        self._stop_signal: str | None = None
        self._total = total
        self._tables = ResultTables(plan)
        info = {"digest": plan.digest, "version": version(), "definition": plan.definition(), **(about or {})}
        self._store = open_directory(path, info, force=force)
        self.earlier = len(self._store.done)
        self._without_figures = sum(outcome.status not in HAS_FIGURES for outcome in self._store.done.values())
        self._changed: set[int] = {0, *(index // PART_ROWS for index in self._store.done)}
        self._attempts: Counter[int] = Counter()
        self._begun = self._written = time.monotonic()

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """What is known, by number of the run: point * seeds + number of the seed."""
        return self._store.done

    def stop(self, reason: str = "stopped") -> None:
        """Ask for an early end; callable from a signal handler or another thread."""
        self._stop_signal = reason

    def run(
        self,
        hire: Callable[[int], Workers],
        progress: Callable[[Standing], None] | None = None,
        more: Callable[[], Sequence[Point]] = tuple,
    ) -> str:
        """Do what is left.

        Parameters
        ----------
        hire
            Gives the workers for so many runs; not called if nothing is left for them. They are closed at the end.
        progress
            Called several times a second.
        more
            Gives further points when all are done; none when it is enough.

        Returns
        -------
        str
            The status: ``finished``, or ``interrupted`` after `stop`.

        Raises
        ------
        MachineError
            No worker can be had any more, or the directory cannot be written. The same sweep can go on later; if there
            never was a worker, the directory is as if it had not begun.
        """
        workers: Workers | None = None
        try:
            while True:
                waiting, invalid = self._left()
                if waiting:
                    workers = workers or hire(max(len(waiting), self._total - self.plan.run_count))
                self._store.begin()
                for outcome in invalid:
                    self._record(outcome)
                if workers is not None and waiting:
                    self._work(workers, waiting, progress)
                if self._stop_signal is not None and self._left()[0]:
                    status = "interrupted"
                    break
                further = more()
                if not further:
                    status = "finished"
                    break
                self._extend(further)
        except BaseException:
            # What brought us here is what the user has to hear of.
            with contextlib.suppress(MachineError):
                self._end(workers, "interrupted")
            raise
        self._end(workers, status)
        return status

    def _end(self, workers: Workers | None, status: str) -> None:
        """Leave a directory that says how far it is, as well as that can be written."""
        try:
            if workers is not None:
                workers.close()
            if self._store.has_begun:
                self._write_parts()
        except BaseException:
            status = "interrupted"
            raise
        finally:
            self._store.end(status, counts=self._counts(), definition=self.plan.definition())

    def _extend(self, points: Sequence[Point]) -> None:
        first = self.plan.run_count
        self.plan = replace(self.plan, points=(*self.plan.points, *points))
        self._tables = ResultTables(self.plan)
        self._changed |= {index // PART_ROWS for index in range(first, self.plan.run_count)}

    def _left(self) -> tuple[deque[int], list[Outcome]]:
        """Runs for workers, and the outcomes of those that need none: their points are invalid."""
        done, seeds = self._store.done, len(self.plan.seeds)
        waiting: deque[int] = deque()
        invalid: list[Outcome] = []
        for point in self.plan.points:
            settings = point.settings(self.plan.parameters)
            for index in range(point.index * seeds, (point.index + 1) * seeds):
                if index in done and done[index].settings != settings:
                    # Points that depend on outcomes are others than before.
                    self._without_figures -= done.pop(index).status not in HAS_FIGURES
                    self._changed.add(index // PART_ROWS)
                if index in done:
                    continue
                if point.scenario is None:
                    invalid.append(Outcome(index, "invalid", error=point.error, attempts=0))
                else:
                    waiting.append(index)
        return waiting, invalid

    def _work(self, workers: Workers, waiting: deque[int], progress: Callable[[Standing], None] | None) -> None:
        running: set[int] = set()
        attempts = self._attempts
        while (waiting or running) and self._stop_signal is None:
            while waiting and len(running) < workers.slots:
                index = waiting.popleft()
                attempts[index] += 1
                running.add(index)
                workers.submit(task_of(self.plan, index, self._runs))
            for outcome in workers.wait(_WAIT_SECONDS):
                if outcome.index not in running:
                    continue  # a worker that was given up has answered after all
                running.discard(outcome.index)
                if outcome.status in AGAIN and attempts[outcome.index] <= self._retries:
                    waiting.append(outcome.index)
                    continue
                self._record(replace(outcome, attempts=attempts[outcome.index]))
            now = time.monotonic()
            if now - self._written >= _WRITE_SECONDS:
                self._written = now
                self._write_parts()
            if progress is not None:
                progress(self._standing(len(running), now - self._begun))

    def _record(self, outcome: Outcome) -> None:
        point = self.plan.points[outcome.index // len(self.plan.seeds)]
        self._store.add(replace(outcome, settings=point.settings(self.plan.parameters)))
        self._changed.add(outcome.index // PART_ROWS)
        self._without_figures += outcome.status not in HAS_FIGURES

    def _write_parts(self) -> None:
        """Bring the parts up to date in which something has changed."""
        done, tables = self._store.done, self._tables
        for part in sorted(self._changed):
            indices = range(part * PART_ROWS, min((part + 1) * PART_ROWS, self.plan.run_count))
            outcomes = [done[index] for index in indices if index in done]
            for folder, table in ((RESULTS, tables.results(outcomes)), (COSTS, tables.costs(outcomes))):
                write_whole(part_path(self.path, folder, part), lambda draft, table=table: _write_part(table, draft))
        self._changed.clear()

    def _counts(self) -> dict[str, int]:
        done = self._store.done
        counts = Counter(done[index].status for index in range(self.plan.run_count) if index in done)
        return {"runs": self.plan.run_count, "done": counts.total(), **dict(sorted(counts.items()))}

    def _standing(self, running: int, wall_seconds: float) -> Standing:
        return Standing(
            run_count=max(self.plan.run_count, self._total),
            done=len(self._store.done),
            earlier=self.earlier,
            without_figures=self._without_figures,
            running=running,
            wall_seconds=wall_seconds,
        )


def _write_part(table: pa.Table, draft: Path) -> None:
    with pa.OSFile(os.fsencode(draft), "wb") as file:  # a name of any bytes
        pq.write_table(table, file, compression="zstd")


def task_of(plan: SweepPlan, index: int, runs: Path | None = None) -> Task:
    """One run of a sweep.

    Parameters
    ----------
    plan
        The sweep.
    index
        Number of the run: point * seeds + number of the seed. The point is valid.
    runs
        Where run directories are kept; None if they are not.
    """
    point, seed = plan.points[index // len(plan.seeds)], plan.seeds[index % len(plan.seeds)]
    assert point.scenario is not None
    output = None if runs is None else os.path.abspath(runs / f"point-{point.index:05d}-seed-{seed}")
    return Task(index, point.index, seed, point.scenario, os.fspath(plan.base_dir), output)
