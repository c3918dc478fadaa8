"""Flow files: columns, units, and errors with file and line."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from fabemu.errors import InputError
from fabemu.scenario import scenario_from_dict
from fabemu.topology.fabric import build_fabric
from fabemu.workload import compile_workload

NAME = "flows.csv"


def compiled(base_dir, name=NAME, **keys):
    scenario = scenario_from_dict(
        {
            "fabric": {"kind": "single-switch", "hosts": 4},
            "workload": [{"kind": "flow-file", "path": name, **keys}],
        }
    )
    return compile_workload(scenario, build_fabric(scenario, base_dir), base_dir, np.full(4, 10**11)).flows


def from_text(tmp_path, text, **keys):
    (tmp_path / NAME).write_bytes(text.encode())
    return compiled(tmp_path, **keys)


def error(tmp_path, text):
    with pytest.raises(InputError) as caught:
        from_text(tmp_path, text)
    return str(caught.value).removeprefix(str(tmp_path / NAME))


def test_csv_with_all_columns(tmp_path):
    table = from_text(
        tmp_path,
        "src,dst,bytes,start_ps,sport,qp,class\n"
        "h0,h1,1000,5,50000,a,\n"
        "h0,h1,0,5,,a,best-effort\n"
        "h2,h1,10000000000000,5,,,rdma\n"
        "h0,h1,7,5,0,a,\n",
        start="1ns",
    )
    assert table.src.tolist() == [0, 0, 2, 0]
    assert table.dst.tolist() == [1, 1, 1, 1]
    assert table.bytes.tolist() == [1000, 0, 10**13, 7]
    assert table.start_ps.tolist() == [1005] * 4
    assert table.sport.tolist() == [50000, -1, -1, 0]
    assert table.class_id.tolist() == [1, 2, 1, 1]
    assert table.qp.tolist() == [0, 1, -1, 0]
    assert table.labels == ("flow-file",)


def test_columns_in_any_order_blank_lines_and_no_final_newline(tmp_path):
    table = from_text(tmp_path, "\ufeffbytes,start,dst,src\r\n1,1.5us,h1,h0\r\n\r\n2,0ns,h2,h3")
    assert table.start_ps.tolist() == [0, 1_500_000]
    assert table.bytes.tolist() == [2, 1]


def test_seconds_are_exact(tmp_path):
    table = from_text(tmp_path, "src,dst,bytes,start_s\nh0,h1,1,2.001\nh0,h1,1,1e-12\nh0,h1,1,0.1234567890126\n")
    assert table.start_ps.tolist() == [1, 123_456_789_013, 2_001_000_000_000]


def test_header_only_is_an_empty_workload(tmp_path):
    table = from_text(tmp_path, "src,dst,bytes,start_ps\n")
    assert len(table) == 0 and table.labels == ("flow-file",)


def test_arrow_file_with_names_or_positions(tmp_path):
    by_name = pa.table(
        {"src": pa.array(["h0", "h3"]).dictionary_encode(), "dst": ["h1", "h2"], "bytes": [5, 6], "start_ps": [9, 8]}
    )
    by_position = pa.table(
        {"src": [0, 3], "dst": [1, 2], "bytes": pa.array([5, 6], pa.uint32()), "start_s": [9e-12, 8e-12]}
    )
    for name, table in (("a.feather", by_name), ("b.arrow", by_position)):
        pa.feather.write_feather(table, tmp_path / name)
        result = compiled(tmp_path, name)
        assert result.src.tolist() == [3, 0] and result.dst.tolist() == [2, 1]
        assert result.bytes.tolist() == [6, 5] and result.start_ps.tolist() == [8, 9]


def test_arrow_errors(tmp_path):
    pa.feather.write_feather(
        pa.table({"src": [0, 4], "dst": [1, 2], "bytes": [5, 6], "start_ps": [9, 8]}), tmp_path / "a.arrow"
    )
    with pytest.raises(InputError, match=r"a.arrow: row 1: src is 4; a whole number from 0 to 3 is needed$"):
        compiled(tmp_path, "a.arrow")
    (tmp_path / "b.arrow").write_text("src,dst\n")
    with pytest.raises(InputError, match=r"b.arrow: not an Arrow file: "):
        compiled(tmp_path, "b.arrow")
    pa.feather.write_feather(
        pa.table({"src": [0], "dst": [1], "bytes": pa.array([None], pa.int64()), "start_ps": [9]}), tmp_path / "c.arrow"
    )
    with pytest.raises(InputError, match=r"c.arrow: row 0: bytes is missing; a whole number from 0 to"):
        compiled(tmp_path, "c.arrow")


HEADER = "src,dst,bytes,start_ps\nh0,h1,1,0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("src,dst,bytes\n", ":1: one column of start_ps, start, start_s is needed, found none"),
        (
            "src,dst,bytes,start,start_s\n",
            ":1: one column of start_ps, start, start_s is needed, found start and start_s",
        ),
        ("src,dst,start\n", ':1: no column "bytes"; needed are src, dst, bytes and one of start_ps, start, start_s'),
        ("src,dst,bytess,start\n", ':1: unknown column "bytess"; did you mean "bytes"?'),
        ("src,dst,bytes,start,src\n", ':1: column "src" appears twice'),
        ("", ": no header line; it names the columns, such as src,dst,bytes,start_ps"),
        (HEADER + "\nh0,h5,1,0\n", ':4: dst: there is no host "h5" in the fabric'),
        (HEADER + "sw0,h1,1,0\n", ':3: src: "sw0" is a switch: only hosts send and receive'),
        (HEADER + "h1,h1,1,0\n", ':3: host "h1" sends to itself'),
        (HEADER + "h0,h1,-1,0\n", ":3: bytes is '-1'; a whole number from 0 to 4611686018427387903 is needed"),
        (HEADER + "h0,h1,1MB,0\n", ":3: bytes is '1MB'; a whole number from 0 to 4611686018427387903 is needed"),
        (HEADER + "h0,h1,1,-5\n", ":3: start_ps is '-5'; a whole number from 0 to 4611686018427387903 is needed"),
        (HEADER + "h0,h1,1\n", ":3: 3 values, but the header names 4 columns"),
        ("src,dst,bytes,start_s\nh0,h1,1,-2\n", ":2: start_s: '-2' is not a time of 0 or more seconds"),
        ("src,dst,bytes,start,class\nh0,h1,1,0us,rmda\n", ':2: there is no class "rmda"; did you mean "rdma"?'),
        (
            "src,dst,bytes,start_ps,sport\nh0,h1,1,0,70000\n",
            ":2: sport is '70000'; a whole number from 0 to 65535 is needed",
        ),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    assert error(tmp_path, text) == message


def test_wrong_unit_of_a_start(tmp_path):
    assert error(tmp_path, "src,dst,bytes,start\nh0,h1,1,5\n").startswith(":2: start: a time needs a unit")


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"flows.csv: No such file or directory"):
        compiled(tmp_path)
    os.mkfifo(tmp_path / "fifo.csv")
    for name in (".", "fifo.csv"):
        with pytest.raises(InputError, match="not a regular file"):
            compiled(tmp_path, name)
    (tmp_path / NAME).write_bytes(b"src,dst,bytes,start_ps\nh0,h1,1,\xff\n")
    with pytest.raises(InputError, match="invalid UTF-8"):
        compiled(tmp_path)


def test_a_hundred_thousand_flows(tmp_path):
    count = 100_000
    lines = [f"h{i % 4},h{(i + 1) % 4},{i},{count - i}" for i in range(count)]
    table = from_text(tmp_path, "src,dst,bytes,start_ps\n" + "\n".join(lines))
    assert table.bytes.tolist() == list(range(count - 1, -1, -1))
