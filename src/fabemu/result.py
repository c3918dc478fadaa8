"""A run as its user sees it: ``run.json`` and the tables, read when they are asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabemu.errors import InputError
from fabemu.run_directory import RUN_FILE, check_schema_version, read_info
from fabemu.run_shape import check_shape
from fabemu.trace import TABLES, Batches, read_batches, read_table, table_path, tables_in

if TYPE_CHECKING:
    import pyarrow as pa

    from fabemu.report import Summary


class Run:
    """One run, finished or not.

    Attributes
    ----------
    directory
        Where it lies.
    info
        Content of ``run.json``: ``status``, ``seed``, ``digest``, ``totals``, ``invariants``, ``scenario``, ...
    """

    def __init__(self, directory: Path, *, keep_alive: tempfile.TemporaryDirectory[str] | None = None) -> None:
        """Open a run directory.

        Parameters
        ----------
        directory
            What ``fabemu run`` or `fabemu.run` wrote.
        keep_alive
            Temporary directory to remove together with this object.

        Raises
        ------
        InputError
            If it is no run directory, a damaged one, or one of a newer fabemu.
        """
        self.directory = directory
        self.info: dict[str, Any] = read_info(directory)
        check_schema_version(directory, self.info)
        check_shape(directory / RUN_FILE, self.info)
        self._keep_alive = keep_alive
        self._tables: dict[str, pa.Table] = {}

    def table(self, name: str) -> pa.Table:
        """One table, read once.

        Raises
        ------
        InputError
            If there is no such table in this run.
        """
        if name not in TABLES:
            raise InputError(f"{name!r} is not a trace table; the tables are {', '.join(TABLES)}")
        if name not in self._tables:
            self._tables[name] = read_table(table_path(self.directory, name))
        return self._tables[name]

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Batches:
        """Record batches of one table, read anew whenever they are iterated over: for tables larger than memory.

        Parameters
        ----------
        name
            The table.
        columns
            Only these columns, in the order of the table; what the table lacks is left out. All if None.

        Raises
        ------
        InputError
            If no table has this name; and while iterated over, if there is no such table in this run.
        """
        if name not in TABLES:
            raise InputError(f"{name!r} is not a trace table; the tables are {', '.join(TABLES)}")
        return read_batches(table_path(self.directory, name), columns)

    @property
    def tables(self) -> list[str]:
        """Names of the tables that this run has."""
        return list(tables_in(self.directory))

    @property
    def flows(self) -> pa.Table:
        """One row per message."""
        return self.table("flows")

    @property
    def ports(self) -> pa.Table:
        """One row per port, class and interval in which something happened."""
        return self.table("ports")

    @property
    def pauses(self) -> pa.Table:
        """One row per pause."""
        return self.table("pauses")

    @property
    def drops(self) -> pa.Table:
        """One row per dropped frame."""
        return self.table("drops")

    @property
    def events(self) -> pa.Table:
        """One row per incident: faults as they begin and end, and what was found on the way."""
        return self.table("events")

    @property
    def packets(self) -> pa.Table:
        """One row per transmission, if the run was asked to record them."""
        return self.table("packets")

    def summary(self) -> Summary:
        """What the run came to; ``print(run.summary())`` shows what ``fabemu run`` prints."""
        from fabemu.report import summarise

        return summarise(self)

    def __repr__(self) -> str:
        """Name, status and place."""
        return f"<Run {self.info.get('name')!r} {self.info.get('status')} in {self.directory}>"


def load(directory: str | Path) -> Run:
    """Open a run directory.

    Raises
    ------
    InputError
        If it is no run directory, or one of a newer fabemu.
    """
    return Run(Path(directory))
