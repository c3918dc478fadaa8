"""Run directories written by hand: the rows of tables as dictionaries, names as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fabemu.columns import text_array
from fabemu.result import Run, load
from fabemu.table_writer import TableWriter
from fabemu.trace import ENUMS, NONE, TABLES, is_dictionary


def write_run(path: Path, info: Mapping[str, Any] | None = None, **tables: Sequence[Mapping[str, Any]]) -> Run:
    """Write a run with these tables; columns that a row does not name are null where they may be, else 0 or "done"."""
    path.mkdir(parents=True, exist_ok=True)
    content = {"fabemu_run": 1, "status": "finished", "name": "by-hand", **(info or {})}
    (path / "run.json").write_text(json.dumps(content), encoding="utf-8")
    shared: dict[str, list[str]] = {}
    for table, rows in tables.items():
        for column in TABLES[table].columns:
            if is_dictionary(column):
                kind = "node" if column.kind == "host" else column.kind
                names = shared.setdefault(kind, list(ENUMS.get(kind, ())))
                for row in rows:
                    name = row.get(column.name)
                    if name is not None and name not in names:
                        names.append(name)
    shared["host"] = shared.setdefault("node", [])
    for kind in ("port", "class", "label", "job", *ENUMS):
        shared.setdefault(kind, list(ENUMS.get(kind, ())))
    # A name for columns that no row names.
    dictionaries = {kind: text_array(names or ["-"]) for kind, names in shared.items()}
    for table, rows in tables.items():
        writer = TableWriter(path, table, dictionaries, {})
        columns = {}
        for column in TABLES[table].columns:
            values = [row.get(column.name) for row in rows]
            if is_dictionary(column):
                names = shared[column.kind]
                usual = NONE if column.nullable else 0
                values = [usual if value is None else names.index(value) for value in values]
            elif column.kind == "float64":
                usual = np.nan if column.nullable else 0.0
                values = [usual if value is None else value for value in values]
            else:
                usual = NONE if column.nullable else 0
                if column.name == "measured":
                    usual = 1
                values = [usual if value is None else value for value in values]
            columns[column.name] = np.array(values, dtype=np.float64 if column.kind == "float64" else np.int64)
        writer.append(columns)
        writer.close()
    return load(path)
