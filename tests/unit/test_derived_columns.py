"""Columns that follow from others are worked out once for a batch, and are what they are for each row by itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.recorder import Recorder
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import trace_names
from fabemu.trace import TABLES, TableWriter, read_table
from tests.small import SMALL

COMPILED = compile_plan(scenario_from_dict(tomllib.loads(SMALL)))
PLAN = COMPILED.plan
ENGINE = Engine(PLAN)
NO_ROWS = ENGINE.drain()


def written(directory: Path, table: str, rows: np.ndarray, piece: int) -> pa.Table:
    """The table that a recorder makes of rows that come in pieces."""
    measured, ideal_ps = np.ones(PLAN.op_count, np.bool_), COMPILED.ideal_ps
    recorder = Recorder(
        directory, [table], PLAN, trace_names(COMPILED), COMPILED.graph, measured, ideal_ps, {},
        COMPILED.fabric.host_node,
    )  # fmt: skip
    for first in range(0, len(rows), piece):
        recorder.record({table: rows[first : first + piece]}, ENGINE)
    recorder.close(ENGINE, 0)
    return read_table(directory / f"{table}.arrow")


def drawn(table: str, count: int) -> np.ndarray:
    """Rows as the engine has them, of any numbers."""
    rng = np.random.default_rng(count)
    rows = np.zeros(count, NO_ROWS[table].dtype)
    for name in rows.dtype.names:
        kind = rows.dtype[name]
        if kind.kind in "iuf" and kind.shape == ():
            rows[name] = rng.integers(0, 10**6 if kind.itemsize == 8 else 2, count)
    rows["port"] = rng.integers(0, PLAN.port_count, count)
    return rows


def test_shares_and_ends_of_links_are_those_of_every_row(tmp_path: Path) -> None:
    rows = drawn("ports", TABLES["ports"].batch_rows + 9000)
    rows["end_ps"] = rows["start_ps"] + np.arange(len(rows)) % 3 * 10**6  # some intervals have no length
    table = written(tmp_path, "ports", rows, 2500)
    names = trace_names(COMPILED)
    port = rows["port"]
    length_ps = (rows["end_ps"] - rows["start_ps"]).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        busy = np.where(length_ps > 0, rows["wire_bytes"] * 8e12 / PLAN.port_rate_bps[port] / length_ps, 0)
        mean = np.where(length_ps > 0, rows["queue_byte_ps"] / length_ps, 0)
    assert np.array_equal(table["utilisation"].to_numpy(), busy)
    assert np.array_equal(table["queue_mean_bytes"].to_numpy(), mean)
    assert table["node"].to_pylist() == [names.nodes[node] for node in PLAN.port_node[port]]
    assert table["peer"].to_pylist() == [names.nodes[node] for node in PLAN.port_node[PLAN.port_peer[port]]]


def test_pauses_name_both_ends(tmp_path: Path) -> None:
    rows = drawn("pauses", TABLES["pauses"].batch_rows + 100)
    table = written(tmp_path, "pauses", rows, 999)
    names = trace_names(COMPILED)
    peer = PLAN.port_peer[rows["port"]]
    assert table["port"].to_pylist() == [names.ports[port] for port in rows["port"]]
    assert table["switch"].to_pylist() == [names.nodes[node] for node in PLAN.port_node[rows["port"]]]
    assert table["paused_port"].to_pylist() == [names.ports[port] for port in peer]
    assert table["paused_node"].to_pylist() == [names.nodes[node] for node in PLAN.port_node[peer]]


def test_rows_bring_every_column_but_the_derived(tmp_path: Path) -> None:
    columns = {column.name: np.zeros(3, np.int64) for column in TABLES["pauses"].columns}
    del columns["paused_node"]
    names = trace_names(COMPILED).dictionaries()
    for derived in (), ("port",), ("paused_node", "port"):
        with pytest.raises(KeyError, match=r"pauses\.arrow: .*'p"):
            TableWriter(tmp_path, "pauses", names, {}, None, derived).append(columns)
    TableWriter(tmp_path, "pauses", names, {}, None, ("paused_node",)).append(columns)
