"""Trace tables: schemas, dictionaries, batches, determinism, and files that were cut off."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pytest

from fabemu.errors import InputError, MachineError
from fabemu.table_writer import TableWriter
from fabemu.trace import TABLES, TraceNames, dictionary_column, read_batches, read_table, table_path, table_schema
from fabemu.trace_reference import traces_page

NAMES = TraceNames(["h0", "h1", "sw0"], ["h0->sw0", "h1->sw0", "sw0->h0", "sw0->h1"], ["cnp", "rdma"], ["web"], 2)
PROVENANCE = {"plan_digest": "ab", "seed": "7", "version": "1"}


def drops(rows: int) -> dict[str, np.ndarray]:
    one = np.ones(rows, np.int64)
    return {
        "time_ps": np.arange(rows),
        "node": 2 * one,
        "ingress_port": 2 * one,
        "egress_port": np.where(np.arange(rows) % 2, -1, 3),
        "class": one,
        "cause": 3 * one,
        "kind": 0 * one,
        "qp": one,
        "src": 0 * one,
        "dst": one,
        "psn": np.arange(rows),
        "frame_bytes": 100 * one,
    }


def write(directory: Path, rows: int, step: int) -> Path:
    writer = TableWriter(directory, "drops", NAMES.dictionaries(), PROVENANCE)
    for first in range(0, rows, step):
        writer.append({name: values[first : first + step] for name, values in drops(rows).items()})
    writer.close()
    return writer.path


@pytest.mark.parametrize("table", TABLES)
def test_every_column_says_unit_and_meaning(table):
    schema = table_schema(table, PROVENANCE)
    for field in schema:
        assert field.metadata[b"unit"] and field.metadata[b"meaning"]
        if field.name.endswith("_ps"):
            assert field.type == pa.int64() and field.metadata[b"unit"] == b"ps"
        if field.name.endswith("_bytes") or field.name == "bytes":
            assert field.metadata[b"unit"] == b"B"
    assert schema.metadata[b"fabemu.table"] == table.encode()
    assert schema.metadata[b"fabemu.schema_version"] == b"2"
    assert schema.metadata[b"fabemu.plan_digest"] == b"ab"


def test_names_and_nulls_come_back(tmp_path):
    table = read_table(write(tmp_path, 3, 3))
    assert table.column("node").to_pylist() == ["sw0"] * 3
    assert table.column("egress_port").to_pylist() == ["sw0->h1", None, "sw0->h1"]
    assert table.column("cause").to_pylist() == ["no_route"] * 3
    indices, values = dictionary_column(table, "egress_port")
    assert indices.tolist() == [3, -1, 3] and values == NAMES.ports


def test_other_tools_open_it(tmp_path):
    path = write(tmp_path, 3, 3)
    assert pyarrow.feather.read_table(path).num_rows == 3
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_feather(path)
    assert list(frame["class"]) == ["rdma"] * 3 and str(frame["time_ps"].dtype) == "int64"


def test_batches_have_a_fixed_number_of_rows_however_rows_come(tmp_path):
    rows = 2 * TABLES["drops"].batch_rows + 5
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write(tmp_path / "a", rows, 1000), write(tmp_path / "b", rows, rows)
    assert first.read_bytes() == second.read_bytes()
    reader = pyarrow.ipc.open_file(first)
    sizes = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
    assert sizes == [0, 8192, 8192, 5]
    assert read_table(first).column("time_ps").to_numpy().tolist() == list(range(rows))


def test_an_empty_table_has_its_columns(tmp_path):
    path = write(tmp_path, 0, 1)
    table = read_table(path)
    assert table.num_rows == 0 and table.column_names == [column.name for column in TABLES["drops"].columns]
    assert pyarrow.feather.read_table(path).num_rows == 0


def test_a_cut_file_gives_its_complete_batches(tmp_path):
    whole = write(tmp_path, 20_000, 1000).read_bytes()
    cut = tmp_path / "cut.arrow"
    seen = set()
    for length in [*range(8, len(whole), 997), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        try:
            seen.add(read_table(cut).num_rows)
        except InputError as error:
            assert "cut off inside its header" in str(error)
            assert length < 8000
    assert seen == {0, 8192, 16384, 20000}


def test_an_open_file_can_be_read_and_closes_properly(tmp_path):
    writer = TableWriter(tmp_path, "drops", NAMES.dictionaries(), PROVENANCE)
    writer.append(drops(10_000))
    assert read_table(writer.path).num_rows == 8192
    writer.close()
    assert read_table(writer.path).num_rows == 10_000


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "x.arrow"
    with pytest.raises(InputError, match="no such table"):
        read_table(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        read_table(path)
    path.write_bytes(b"hello, this is not a table")
    with pytest.raises(InputError, match="not an Arrow IPC file"):
        read_table(path)
    pyarrow.feather.write_feather(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="not a fabemu table"):
        read_table(path)
    schema = pa.schema([("a", pa.int64())], metadata={"fabemu.schema_version": "99"})
    pyarrow.feather.write_feather(pa.table({"a": [1]}, schema=schema), path)
    with pytest.raises(InputError, match="schema version 99, this fabemu reads up to 2"):
        read_table(path)


@pytest.mark.parametrize("cut", [False, True])
def test_columns_that_an_older_version_lacked_are_null(tmp_path, cut):
    names = NAMES.dictionaries()
    writer = TableWriter(tmp_path, "ports", names, PROVENANCE)
    writer.append({column.name: np.full(4, 3, np.int64) * 0 for column in TABLES["ports"].columns})
    writer.close()
    now = read_table(writer.path)
    old = now.drop_columns(["headroom_max_bytes"])
    old = old.replace_schema_metadata({**old.schema.metadata, b"fabemu.schema_version": b"1"})
    with pa.OSFile(str(writer.path), "wb") as file, pa.ipc.new_file(file, old.schema) as older:
        older.write_table(old)
    if cut:
        writer.path.write_bytes(writer.path.read_bytes()[:-40])
    table = read_table(writer.path)
    assert table.column_names == now.column_names
    assert table.column("headroom_max_bytes").to_pylist() == [None] * 4
    assert table.drop_columns(["headroom_max_bytes"]) == old
    assert pa.Table.from_batches(read_batches(writer.path)) == table
    few = pa.Table.from_batches(read_batches(writer.path, ["bytes", "headroom_max_bytes"]))
    assert few == table.select(["bytes", "headroom_max_bytes"])
    assert pa.Table.from_batches(read_batches(writer.path, ["bytes"])).column_names == ["bytes"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_machine_error(tmp_path):
    table_path(tmp_path, "drops").symlink_to("/dev/full")
    with pytest.raises(MachineError, match="No space left on device"):
        TableWriter(tmp_path, "drops", NAMES.dictionaries(), PROVENANCE)


def test_the_page_is_current():
    page = Path(__file__).parents[2] / "docs" / "TRACES.md"
    assert page.read_text() == traces_page(), "run: python -m fabemu.trace_reference > docs/TRACES.md"
