"""A comparison as its user sees it: tables, text, JSON, and limits that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from fabemu.comparison.changes import Row, json_number
from fabemu.comparison.distributions import Curve, Distance
from fabemu.comparison.groups import Group
from fabemu.comparison.limits import Verdict, judge, read_limit
from fabemu.comparison.parameters import Parameter
from fabemu.comparison.significance import Design
from fabemu.deferred import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Comparison:
    """Settings side by side; the first is the baseline. ``str`` gives the text, `to_dict` what ``--json`` prints.

    Attributes
    ----------
    groups
        The settings, each with its runs.
    parameters
        What differs between them.
    figures
        Every headline figure with its change.
    designs
        How the seeds of each group but the first are compared with those of the first.
    distances
        How far the distributions of slowdowns are from those of the baseline.
    curves
        The distributions themselves, for pictures.
    notes
        What to know before trusting the figures, a sentence each.
    """

    groups: tuple[Group, ...]
    parameters: tuple[Parameter, ...]
    figures: tuple[Row, ...]
    designs: tuple[Design, ...]
    distances: tuple[Distance, ...]
    curves: tuple[Curve, ...]
    notes: tuple[str, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """Letters of the groups, the baseline first."""
        return tuple(group.letter for group in self.groups)

    def figure(self, name: str) -> Row:
        """One figure by its name.

        Raises
        ------
        KeyError
            There is no such figure.
        """
        return {row.figure.name: row for row in self.figures}[name]

    def judge(self, limits: Sequence[str]) -> tuple[Verdict, ...]:
        """Hold every group but the first against limits such as ``"p99_slowdown 5%"``: see `limits.judge`.

        Raises
        ------
        InputError
            A limit that cannot be read or judged.
        """
        return judge([read_limit(text) for text in limits], self.figures, self.letters)

    def to_dict(self, verdicts: Sequence[Verdict] = ()) -> dict[str, Any]:
        """As JSON can hold it: infinite values are the texts "inf" and "-inf", what is not there is null."""
        return {
            "groups": [group.to_dict() for group in self.groups],
            "parameters": [{"key": item.key, "values": list(item.values)} for item in self.parameters],
            "designs": [
                {
                    "group": group.letter,
                    "kind": plan.kind,
                    "runs": [len(plan.first), len(plan.other)],
                    "exact": plan.exact,
                    "least_p": plan.least_p if plan.kind != "none" else None,
                }
                for group, plan in zip(self.groups[1:], self.designs, strict=True)
            ],
            "figures": [row.to_dict() for row in self.figures],
            "distances": [asdict(item) for item in self.distances],
            "limits": [
                {key: json_number(value) if isinstance(value, float) else value for key, value in asdict(item).items()}
                for item in verdicts
            ],
            "notes": list(self.notes),
        }

    def figures_table(self) -> pa.Table:
        """One row per figure and group: medians and changes.

        Returns
        -------
        pa.Table
            ``figure``, ``unit``, ``better``, ``group`` (text), ``median``, ``change``, ``relative`` (float64, infinite
            where something did not finish), ``direction`` (text), ``p``, ``mean_change``, ``low``, ``high`` (float64).
            Changes are null for the baseline.
        """
        import pyarrow as pa

        found = []
        for row in self.figures:
            about = {"figure": row.figure.name, "unit": row.figure.unit, "better": row.figure.better}
            found.append({**about, "group": self.letters[0], "median": row.medians[0]})
            for change, median in zip(row.changes, row.medians[1:], strict=True):
                tested = change.assessment
                found.append(
                    {
                        **about,
                        "group": change.group,
                        "median": median,
                        "change": change.absolute,
                        "relative": change.relative,
                        "direction": change.direction,
                        "p": tested.p,
                        "mean_change": tested.mean_change,
                        "low": tested.low,
                        "high": tested.high,
                    }
                )
        texts = ("figure", "unit", "better", "group", "direction")
        numbers = ("median", "change", "relative", "p", "mean_change", "low", "high")
        columns = (*texts[:4], *numbers[:3], "direction", *numbers[3:])
        schema = pa.schema([(name, pa.string() if name in texts else pa.float64()) for name in columns])
        return pa.Table.from_pylist(found, schema)

    def parameters_table(self) -> pa.Table:
        """One row per key that differs: ``key`` and a column per group, all texts, null where there is no such key."""
        import pyarrow as pa

        columns = {"key": [item.key for item in self.parameters]}
        for index, letter in enumerate(self.letters):
            columns[letter] = [item.values[index] for item in self.parameters]  # type: ignore[misc]
        return pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns]))

    def curves_table(self) -> pa.Table:
        """Points of the cumulative distributions.

        Returns
        -------
        pa.Table
            ``group``, ``workload`` (text, null for all messages), ``figure`` (text), ``value`` (float64), ``share``
            (float64, in 0 to 1).
        """
        import pyarrow as pa

        found = [
            {"group": item.group, "workload": item.workload, "figure": item.figure, "value": value, "share": share}
            for item in self.curves
            for value, share in zip(item.values, item.shares, strict=True)
        ]
        texts = [(name, pa.string()) for name in ("group", "workload", "figure")]
        return pa.Table.from_pylist(found, pa.schema([*texts, ("value", pa.float64()), ("share", pa.float64())]))

    def __str__(self) -> str:
        """As plain text."""
        from fabemu.comparison.text import sections
        from fabemu.layout import plain_text

        return plain_text(sections(self))

    def show(self, stream: IO[str], verdicts: Sequence[Verdict] = ()) -> None:
        """Print to a stream: in colour if it is a terminal and NO_COLOR is not set, else as plain text."""
        from fabemu.comparison.text import sections
        from fabemu.layout import show

        show(sections(self, verdicts), stream)
