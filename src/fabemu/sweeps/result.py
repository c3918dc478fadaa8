"""A sweep as its user sees it: results and costs as tables, medians by point, and a summary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.headline import FIGURES, HEADLINE
from fabemu.report import bytes_text, count_text, time_text
from fabemu.run_directory import plain
from fabemu.sweeps.points import size_text
from fabemu.sweeps.store import COSTS, RESULTS, read_sweep_info
from fabemu.sweeps.table import TEXT_SUFFIX
from fabemu.sweeps.task import HAS_FIGURES

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_POINTS = 40
_SHOWN_FAILURES = 10


@dataclass(frozen=True)
class PointResult:
    """One point over all its seeds."""

    point: int
    settings: dict[str, str]  # parameters as they are written
    numbers: dict[str, Any]  # parameters as numbers in base units; None for words
    runs: int  # with figures
    runs_without: int  # invalid, failed or at fault
    medians: dict[str, float]  # of the figures over the runs with figures; NaN if there are none
    lows: dict[str, float]  # least
    highs: dict[str, float]  # greatest


class Sweep:
    """A sweep, finished or not.

    Attributes
    ----------
    directory
        Where it lies.
    info
        Content of ``sweep.json``: ``status``, ``definition``, ``counts``, ...
    """

    def __init__(self, directory: str | Path) -> None:
        """Open the directory of a sweep; raises InputError if it is none."""
        self.directory = Path(directory)
        self.info = read_sweep_info(self.directory)

    @cached_property
    def table(self) -> pa.Table:
        """Results: one row per point and seed, in this order, with the parameters and headline figures as columns."""
        return self._read(RESULTS)

    @cached_property
    def costs(self) -> pa.Table:
        """What every run took: time, memory, worker, attempts."""
        return self._read(COSTS)

    def to_pandas(self) -> pd.DataFrame:
        """The results as a data frame."""
        return self.table.to_pandas()

    @property
    def parameters(self) -> list[str]:
        """Keys that differ between points."""
        return [parameter["key"] for parameter in self.info["definition"]["parameters"]]

    def points(self, figures: Sequence[str] = HEADLINE) -> list[PointResult]:
        """Medians over the seeds, point by point."""
        table = self.table
        points = table.column("point").to_numpy()
        has_figures = np.isin(np.array(table.column("status").to_pylist(), dtype=object), HAS_FIGURES)
        values = {name: table.column(name).cast(pa.float64()).to_numpy() for name in figures}
        texts = {key: table.column(key + TEXT_SUFFIX).to_pylist() for key in self.parameters}
        numbers = {key: table.column(key).to_pylist() for key in self.parameters}
        found = []
        edges = np.flatnonzero(np.diff(points, prepend=-1, append=-1)) if len(points) else np.zeros(0, int)
        for first, last in pairwise(edges):
            chosen = np.flatnonzero(has_figures[first:last]) + first
            ranges = {name: _spread(column[chosen]) for name, column in values.items()}
            found.append(
                PointResult(
                    point=int(points[first]),
                    settings={key: texts[key][first] for key in self.parameters},
                    numbers={key: numbers[key][first] for key in self.parameters},
                    runs=len(chosen),
                    runs_without=int(last - first - len(chosen)),
                    medians={name: spread[1] for name, spread in ranges.items()},
                    lows={name: spread[0] for name, spread in ranges.items()},
                    highs={name: spread[2] for name, spread in ranges.items()},
                )
            )
        return found

    def best(self) -> PointResult | None:
        """The best point of a study that keeps all its limits; None if there is none, or this is no study."""
        from fabemu.sweeps.study import Aim, best_of

        if "tune" not in self.info:
            return None
        aim = Aim.from_dict(self.info["tune"])
        runs: dict[int, list[dict[str, Any]]] = {}
        for row in self.table.select(["point", "status", *aim.figures]).to_pylist():
            if row["status"] in HAS_FIGURES:
                runs.setdefault(row["point"], []).append(row)
        found = best_of(aim, runs, len(self.info["definition"]["seeds"]))
        return next(point for point in self.points(_with(aim.figures)) if point.point == found[0]) if found else None

    def failures(self) -> list[dict[str, Any]]:
        """Runs without figures: point, its settings, seed, status and why."""
        chosen = pa.array([status not in HAS_FIGURES for status in self._statuses], pa.bool_())
        wanted = self.table.filter(chosen)
        return [
            {
                "point": row["point"],
                "settings": {key: row[key + TEXT_SUFFIX] for key in self.parameters},
                "seed": row["seed"],
                "status": row["status"],
                "error": row["error"],
            }
            for row in wanted.to_pylist()
        ]

    @property
    def _statuses(self) -> list[str]:
        return self.table.column("status").to_pylist()

    def to_dict(self, figures: Sequence[str] = HEADLINE) -> dict[str, Any]:
        """As JSON can hold it: what ``--json`` prints."""
        points = [vars(point) for point in self.points(figures)]
        document = {"directory": str(self.directory), **self.info, "points": points, "failures": self.failures()}
        document.pop("fabemu_sweep", None)
        return plain(document)

    def summary(self, figures: Sequence[str] = HEADLINE) -> str:
        """What came out, as text: a line per point with the medians over its seeds, then what has no figures."""
        lines = [self._head()]
        points = self.points(figures)
        shown = points if len(points) <= _SHOWN_POINTS else points[: _SHOWN_POINTS // 2] + points[-_SHOWN_POINTS // 2 :]
        rows = [["point", *self.parameters, "runs", *figures]]
        for index, point in enumerate(shown):
            if len(points) > len(shown) and index == _SHOWN_POINTS // 2:
                rows.append(["..."])
            cells = [figure_text(name, point.medians[name]) for name in figures]
            rows.append([str(point.point), *point.settings.values(), str(point.runs), *cells])
        if points:
            lines += ["medians over the seeds", *_aligned(rows)]
        lines += self._troubles()
        lines.append(f"results of {counted(self.table.num_rows, 'run')} in {self.directory / RESULTS}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Name, status and place."""
        return f"<Sweep {self.info['definition']['name']!r} {self.info.get('status')} in {self.directory}>"

    def _head(self) -> str:
        definition, counts = self.info["definition"], Counter(self._statuses)
        words = size_text(definition["points"], len(definition["seeds"]))
        done = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
        return f"{definition['name']}: {self.info.get('status')}\n  {words}: {done or 'none done'}"

    def _troubles(self) -> list[str]:
        failures = self.failures()
        if not failures:
            return []
        lines = ["without figures"]
        seen: set[tuple[int, str]] = set()
        for failure in failures:
            # An invalid point is so for every seed: once is enough.
            mark = (failure["point"], failure["error"])
            if mark in seen:
                continue
            seen.add(mark)
            if len(seen) > _SHOWN_FAILURES:
                lines.append("  ... more in the column `error` of the results")
                break
            values = ", ".join(f"{key}={text}" for key, text in failure["settings"].items())
            seed = f", seed {failure['seed']}" if failure["status"] != "invalid" else ""
            lines.append(f"  point {failure['point']} ({values}){seed}: {failure['status']}")
            lines += [f"    {line}" for line in str(failure["error"]).splitlines()]
        return lines

    def _read(self, folder: str) -> pa.Table:
        import pyarrow.parquet as pq

        path = self.directory / folder
        files = sorted(path.glob("part-*.parquet"))
        if not files:
            raise InputError(f"{path}: holds no results yet")
        parts: list[pa.Table] = []
        for file in files:
            try:
                source = pa.OSFile(os.fsencode(file))  # of any bytes
                # By this thread alone: Arrow's pools take room in the address space that a small table is not worth.
                parts.append(pq.ParquetFile(source, pre_buffer=False).read(use_threads=False))
                if not parts[0].schema.equals(parts[-1].schema):
                    raise pa.ArrowInvalid("it has other columns")
            except (OSError, pa.ArrowException) as error:
                raise InputError(
                    f"{file}: cannot be read ({error}); remove it and give the command of the sweep again: what "
                    "belongs to it is written anew from the journal"
                ) from error
        return pa.concat_tables(parts)


def _with(figures: Sequence[str]) -> tuple[str, ...]:
    """These figures first, then those that the summary shows."""
    return tuple(dict.fromkeys([*figures, *HEADLINE]))


def load_sweep(directory: str | Path) -> Sweep:
    """Open the directory of a sweep, finished or not.

    Raises
    ------
    InputError
        If it is none.
    """
    return Sweep(directory)


def figure_text(name: str, value: float) -> str:
    """A figure for people, in the unit that suits it."""
    if np.isnan(value):
        return "-"
    figure = FIGURES[name]
    if figure.unit == "ps":
        return time_text(value)
    if np.isinf(value):
        return "inf"
    if figure.unit == "bytes":
        return bytes_text(value)
    return count_text(value) if figure.kind == "int" else f"{value:.2f}"


def _spread(values: np.ndarray) -> tuple[float, float, float]:
    """Least, median and greatest; the median of an even number of runs with an infinite one stays defined."""
    if not len(values) or np.isnan(values).all():
        return (np.nan,) * 3
    ordered = np.sort(values[~np.isnan(values)])
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    median = low if low == high else (low + high) / 2
    return float(ordered[0]), float(median), float(ordered[-1])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    columns = max(len(row) for row in rows)
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(columns)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows
    ]
