"""Columns that the core makes of its rows are what NumPy makes of each field by itself."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fabemu._core.columns import write_pauses, write_ports
from fabemu._core.engine import Engine

from fabemu.compile import compile_plan
from fabemu.recorder import Recorder
from fabemu.scenario import scenario_from_dict
from fabemu.simulate import trace_names
from fabemu.table_writer import TableWriter
from fabemu.trace import TABLES, is_dictionary, read_table
from tests.small import SMALL
from tests.unit.table_columns import columns_of

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


@pytest.mark.parametrize("table", ["ports", "pauses"])
def test_other_columns_are_the_fields_of_the_rows(tmp_path: Path, table: str) -> None:
    rows = drawn(table, 3000)
    fields = {
        "ports": {"bytes": "tx_bytes", "frames": "tx_frames"},
        "pauses": {},
    }[table]
    derived = {"node", "peer", "utilisation", "queue_mean_bytes", "switch", "paused_node", "paused_port"}
    made = written(tmp_path, table, rows, 700)
    for column in TABLES[table].columns:
        if column.name not in derived:
            values = made[column.name]
            if is_dictionary(column):
                values = pa.chunked_array([chunk.indices for chunk in values.chunks])
            assert np.array_equal(values.to_numpy(), rows[fields.get(column.name, column.name)]), column.name


def test_rows_without_room_and_other_rows_are_refused() -> None:
    rows, ends = drawn("pauses", 5), (PLAN.port_node, PLAN.port_peer)
    write_pauses(rows, columns_of("pauses", 7), 2, *ends)
    for columns, first in ((columns_of("pauses", 7), 3), (columns_of("pauses", 7), -1)):
        with pytest.raises(ValueError, match="column xoff_ps: no room for 5 rows from"):
            write_pauses(rows, columns, first, *ends)
    with pytest.raises(ValueError, match="column parent_port: no room"):
        write_pauses(rows, columns_of("pauses", 7) | {"parent_port": np.zeros(6, np.int32)}, 2, *ends)
    with pytest.raises(ValueError, match="rows of 96 bytes with xoff_ps, not"):
        write_pauses(drawn("ports", 5), columns_of("pauses", 7), 0, *ends)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        write_pauses(rows, columns_of("pauses", 7) | {"port": np.zeros(7, np.int64)}, 0, *ends)
    write_ports(NO_ROWS["ports"], columns_of("ports", 0), 0, *ends, PLAN.port_rate_bps)


def test_rows_bring_every_column(tmp_path: Path) -> None:
    columns = {column.name: np.zeros(3, np.int64) for column in TABLES["pauses"].columns}
    names = trace_names(COMPILED).dictionaries()
    TableWriter(tmp_path, "pauses", names, {}).append(columns)
    del columns["paused_node"]
    with pytest.raises(KeyError, match=r"pauses\.arrow: .*'paused_node'"):
        TableWriter(tmp_path, "pauses", names, {}).append(columns)


def test_rows_that_were_not_set_are_not_written(tmp_path: Path) -> None:
    """As when an interrupt comes between."""

    def interrupted(rows: np.ndarray, columns: Mapping[str, np.ndarray], first: int) -> None:
        raise KeyboardInterrupt

    def write(rows: np.ndarray, columns: Mapping[str, np.ndarray], first: int) -> None:
        write_pauses(rows, columns, first, PLAN.port_node, PLAN.port_peer)

    rows = drawn("pauses", 8)
    writer = TableWriter(tmp_path, "pauses", trace_names(COMPILED).dictionaries(), {})
    writer.append_rows(rows[:3], write)
    with pytest.raises(KeyboardInterrupt):
        writer.append_rows(rows[:3], interrupted)
    writer.append_rows(rows[3:], write)
    writer.close()
    assert read_table(writer.path)["sent_ps"].to_pylist() == rows["sent_ps"].tolist()
