"""Tails: against sorting, against `fct`, and limits against the binomial distribution itself."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from scipy.stats import binom

from fabemu.analysis import confidence, fct, ranks, tails
from fabemu.errors import InputError
from fabemu.table_writer import TableWriter
from fabemu.trace import TABLES, Column, arrow_type, read_batches, table_path
from tests.property.strategies import example_settings

NAMES = {"label": ["web", "storage"], "job": ["a", "b", "c"], "class": ["rdma", "lossy"]}
STATUSES = ["done", "failed", "unfinished", "not_run"]


def flows_table(rows: list[dict]) -> pa.Table:
    """A flows table of what the rows say; the rest as in a plain message that is done."""
    usual = {"label": "web", "job": None, "class": "rdma", "collective": None, "bytes": 1000, "start_ps": 0}
    usual |= {"fct_ps": None, "slowdown": None, "measured": True, "status": "done"}
    columns = {column.name: column for column in TABLES["flows"].columns}
    arrays, fields = [], []
    for name in usual:
        kind = arrow_type(columns[name])
        values = [{**usual, **row}[name] for row in rows]
        if isinstance(kind, pa.DictionaryType):
            names = NAMES.get(name, STATUSES)
            indices = pa.array([None if value is None else names.index(value) for value in values], kind.index_type)
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array(names)))
        else:
            arrays.append(pa.array(values, kind))
        fields.append(pa.field(name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def value_of(table: pa.Table, by: str, group: str, figure: str, percentile: str) -> dict:
    (row,) = [
        row
        for row in table.to_pylist()
        if (row["by"], row["group"], row["figure"], row["percentile"]) == (by, group, figure, percentile)
    ]
    return row


# Order statistics.


def all_ranks(groups: list[list[float]]) -> np.ndarray:
    counts = [sum(not math.isnan(value) for value in group) for group in groups]
    width = max(counts, default=0)
    return np.array([[rank if rank <= count else 0 for rank in range(1, width + 1)] for count in counts]).reshape(
        len(groups), width
    )


numbers = st.one_of(
    st.integers(0, 30).map(float),
    st.floats(0, 1e300),
    st.floats(1, 1.0000001),
    st.sampled_from([0.0, -0.0, math.inf, math.nan, 5e-324, 1.7976931348623157e308, 12_345_678_901_234.0]),
)


@example_settings()
@given(st.data())
def test_every_rank_is_that_of_sorting(data):
    groups = data.draw(st.lists(st.lists(numbers, max_size=40), min_size=1, max_size=4))
    cells = data.draw(st.sampled_from([2, 20, 64, 1000]))
    rows = [(index, value) for index, group in enumerate(groups) for value in group] + [(-1, 7.0)]
    rows = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    batches = [
        (np.array([group for group, _ in part], np.int64), np.array([value for _, value in part], np.float64))
        for part in (rows[:cut], rows[cut:])
    ]
    found = ranks.OrderStatistics(cells)
    for group, values in batches:
        found.count(group, ranks.keys_of(values), len(groups))
    wanted = all_ranks(groups)
    # Ranks that nobody asked for must not matter.
    wanted[data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))] = 0
    found.seek(wanted)
    passes = 0
    while found.open:
        for group, values in batches:
            found.look(group, ranks.keys_of(values))
        found.narrow()
        passes += 1
        assert passes <= 17, "16 parts at least per pass: 64 bits are used up"
    event(f"{passes} passes")
    for group, row, asked in zip(groups, found.values.tolist(), wanted.tolist(), strict=True):
        in_order = sorted(value for value in group if not math.isnan(value))
        for rank, value in zip(asked, row, strict=True):
            assert math.isnan(value) if rank == 0 else value == in_order[rank - 1]


def test_parts_that_end_beyond_the_greatest_integer():
    random = np.random.default_rng(5)
    values = np.concatenate([np.exp(random.normal(17, 2, 20_000)), np.full(30, math.inf)])
    group = np.concatenate([random.integers(0, 3, 20_000), np.zeros(30, np.int64)])
    found = ranks.OrderStatistics(1000)
    found.count(group, ranks.keys_of(values), 3)
    shares = np.linspace(0.0002, 1, 400)
    wanted = np.ceil(found.counts[:, None] * shares[None, :]).astype(np.int64)
    found.seek(wanted)
    while found.open:
        found.look(group, ranks.keys_of(values))
        found.narrow()
    for number in range(3):
        assert (found.values[number] == np.sort(values[group == number])[wanted[number] - 1]).all()


def test_negative_numbers_are_refused():
    found = ranks.OrderStatistics()
    with pytest.raises(ValueError, match="negative"):
        found.count(np.zeros(1, np.int64), ranks.keys_of(np.array([-1.0])), 1)


def test_nan_of_either_sign_does_not_count():
    found = ranks.OrderStatistics()
    found.count(np.zeros(3, np.int64), ranks.keys_of(np.array([math.nan, -math.nan, 1.0])), 1)
    assert found.counts.tolist() == [1]


# Limits.


@example_settings()
@given(
    st.sampled_from([50.0, 90.0, 99.0, 99.9, 10.0]),
    st.one_of(st.integers(0, 60), st.integers(0, 200_000)),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
def test_limits_are_the_innermost_that_cover(percent, count, level):
    (low,), (high,) = confidence.limit_ranks(percent, np.array([count]), level)
    below, tail = binom(count, percent / 100), (1 - level) / 2
    assert 0 <= low <= count and 0 <= high <= count
    # The limit of rank l fails when fewer than l values lie below the percentile.
    assert low == 0 or below.cdf(low - 1) <= tail + 1e-12
    assert low == count or below.cdf(low) > tail - 1e-12
    assert high == 0 or below.sf(high - 1) <= tail + 1e-12
    if count:
        next_inside = high - 1 if high else count
        assert below.sf(next_inside - 1) > tail - 1e-12
    if low and high:
        assert below.cdf(high - 1) - below.cdf(low - 1) >= level - 1e-9
    event("both limits" if low and high else "not both")


def test_limits_by_hand():
    # Median of 10 with 95 %: P(B <= 1) = 11 / 1024 <= 0.025 < P(B <= 2) = 56 / 1024, so ranks 2 and 9.
    low, high = confidence.limit_ranks(50, np.array([10, 5, 0]), 0.95)
    assert (low.tolist(), high.tolist()) == ([2, 0, 0], [9, 0, 0])
    # Above the greatest of 100 lies the 99.9th percentile with 90 %: no upper limit. 3,688 values are needed.
    counts = np.array([100, 3686, 3687, 3688])
    assert confidence.limit_ranks(99.9, counts, 0.95)[1].tolist() == [0, 0, 0, 3688]
    assert 0.999**3688 <= 0.025 < 0.999**3687


def test_limits_of_billions_are_where_the_normal_distribution_has_them():
    count = 4_000_000_000
    (low,), (high,) = confidence.limit_ranks(90, np.array([count]), 0.95)
    spread = 1.959964 * math.sqrt(count * 0.9 * 0.1)
    assert low == pytest.approx(0.9 * count - spread, abs=3)
    assert high == pytest.approx(0.9 * count + spread, abs=3)


def test_wrong_confidences_are_refused():
    for level in (0, 1, 95):
        with pytest.raises(InputError, match=r"such as 0\.95"):
            confidence.limit_ranks(50, np.array([10]), level)
    with pytest.raises(InputError, match="percentile"):
        confidence.limit_ranks(100, np.array([10]), 0.9)


def test_without_scipy_limits_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.special", None)
    with pytest.raises(InputError, match=r"pip install 'fabemu\[analysis\]'"):
        tails.tails(flows_table([{"fct_ps": 1}]))
    assert tails.tails(flows_table([{"fct_ps": 1}]), confidence=None).column("low").null_count == 40


# Tails.


@st.composite
def messages(draw):
    status = draw(st.sampled_from(STATUSES))
    finished = status == "done" or (status == "unfinished" and draw(st.booleans()))
    return {
        "label": draw(st.sampled_from(NAMES["label"])),
        "job": draw(st.sampled_from([None, *NAMES["job"]])),
        "class": draw(st.sampled_from([None, *NAMES["class"]])),
        "collective": draw(st.sampled_from([None, 3, 20, 100])),
        "bytes": draw(st.sampled_from([0, 10**4, 10**4 + 1, 10**6, 5 * 10**6, 2 * 10**7])),
        "start_ps": draw(st.sampled_from([0, 999, 1000, 5000])),
        "fct_ps": draw(st.integers(1, 2**50)) if finished else None,
        "slowdown": draw(st.one_of(st.none(), st.floats(1, 100))) if finished else None,
        "measured": draw(st.sampled_from([True, True, True, False])),
        "status": status,
    }


def group_of(row: dict, by: str) -> str | None:
    if by == "all":
        return "all"
    if by == "size":
        return next(name for name, largest in fct.SIZE_CLASSES if row["bytes"] <= largest)
    return None if row[by] is None else str(row[by])


@cache
def tail_probabilities(count: int, share: float) -> tuple[list[float], list[float]]:
    """That the value of each rank lies above a quantile, and that it lies below."""
    ranks_below = np.arange(count)
    return binom.cdf(ranks_below, count, share).tolist(), binom.sf(ranks_below, count, share).tolist()


@example_settings(0.25)
@given(st.lists(messages(), max_size=60), st.sampled_from([None, 1000]), st.integers(1, 30))
def test_tails_are_those_of_sorting(rows, end_ps, batch_rows):
    table = flows_table(rows)
    result = tails.tails(iter(table.to_batches(max_chunksize=batch_rows)), end_ps, cells=1)
    assert result.schema == tails.SCHEMA
    assert result.equals(tails.tails(table, end_ps)), "whatever the batches"
    counted = [
        row
        for row in rows
        if row["measured"] and not (row["status"] == "not_run" and (end_ps is None or row["start_ps"] >= end_ps))
    ]
    expected = {}
    for by in tails.BY:
        for row in counted:
            group = group_of(row, by)
            if group is None:
                continue
            lost = row["fct_ps"] is None
            for figure in tails.FIGURES:
                values = expected.setdefault((by, group, figure), [])
                if lost or row[figure] is not None:
                    values.append(math.inf if lost else float(row[figure]))
    found = {}
    for row in result.to_pylist():
        found.setdefault((row["by"], row["group"], row["figure"]), {})[row["percentile"]] = row
    if not counted:
        assert set(found) == {("all", "all", figure) for figure in tails.FIGURES}
        assert all(row["value"] is None and row["count"] == 0 for rows in found.values() for row in rows.values())
        return
    assert set(found) == set(expected)
    for key, values in expected.items():
        values.sort()
        assert list(found[key]) == ["p50", "p90", "p99", "p99.9", "max"]
        for percentile, row in found[key].items():
            assert row["count"] == len(values)
            assert row["unfinished"] == sum(
                other["fct_ps"] is None for other in counted if group_of(other, key[0]) == key[1]
            )
            if percentile == "max" or not values:
                assert row["value"] == (values[-1] if values else None)
                assert row["low"] is None and row["high"] is None
                continue
            share = float(percentile[1:]) / 100
            assert row["value"] == next(
                value for place, value in enumerate(values, 1) if place / len(values) >= share - 1e-12
            )
            below, above = tail_probabilities(len(values), share)
            fits = [value for value, tail in zip(values, below, strict=True) if tail <= 0.025]
            assert row["low"] == (fits[-1] if fits else None)
            fits = [value for value, tail in zip(values, above, strict=True) if tail <= 0.025]
            assert row["high"] == (fits[0] if fits else None)


def test_many_messages_agree_with_fct_to_the_bit():
    random = np.random.default_rng(5)
    count = 20_000
    times = np.exp(random.normal(17, 2, count)).astype(np.int64)
    rows = [
        {"fct_ps": int(time), "slowdown": time / 777, "bytes": int(size), "label": NAMES["label"][size % 2]}
        for time, size in zip(times, random.integers(1, 10**8, count), strict=True)
    ]
    rows += [{"status": "unfinished"}] * 30
    table = flows_table(rows)
    result = tails.tails(table, cells=1)
    for by, groups in (
        ("size", fct.by_size(table)[1:]),
        ("label", fct.by_label(table)),
        ("all", fct.by_size(table)[:1]),
    ):
        for group in groups:
            for figure, values in (("fct_ps", group.fct_ps), ("slowdown", group.slowdown)):
                for percentile in ("p50", "p90", "p99", "p99.9", "max"):
                    row = value_of(result, by, group.name, figure, percentile)
                    assert row["value"] == values[percentile]
                    assert (row["count"], row["unfinished"]) == (group.count, group.unfinished)


def test_groups_come_in_their_order():
    rows = [{"fct_ps": 1, "collective": number, "bytes": 10**7 - number} for number in (10, 2, 33)]
    result = tails.tails(flows_table([*rows, {"fct_ps": 1, "bytes": 1}]), by=("collective", "size"))
    groups = [(row["by"], row["group"]) for row in result.to_pylist()]
    assert list(dict.fromkeys(groups)) == [
        *(("collective", name) for name in ("2", "10", "33")),
        *(("size", name) for name in ("<= 10 KB", "1-10 MB")),
    ]


def test_batches_with_dictionaries_of_their_own():
    tables = [flows_table([{"fct_ps": time, "job": job}]) for time, job in ((5, "b"), (7, "a"), (9, "b"))]
    batches = [table.to_batches()[0] for table in tables]
    other = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["a"]))
    batches[1] = batches[1].set_column(1, pa.field("job", other.type), other)
    result = tails.tails(batches, by=("job",))
    assert value_of(result, "job", "b", "fct_ps", "max")["value"] == 9
    assert value_of(result, "job", "a", "fct_ps", "max")["value"] == 7


def test_bad_input_is_refused_and_missing_groups_are_left_out():
    table = flows_table([{"fct_ps": 1}])
    with pytest.raises(InputError, match=r"'host'; by is some of all, size"):
        tails.tails(table, by=("all", "host"))
    with pytest.raises(InputError, match="no column 'fct_ps'"):
        tails.tails(table.drop_columns(["fct_ps"]))
    assert len(tails.tails(table, by=())) == 0
    old = tails.tails(table.drop_columns(["job", "collective"]), by=("job", "label"))
    assert set(old.column("by").to_pylist()) == {"label"}
    empty = tails.tails(iter([]))
    assert empty.column("value").null_count == len(empty) == 10


def test_a_percentile_of_very_many_is_its_exact_rank():
    assert fct.nearest_rank(99.9, 10**10) == 9_990_000_000
    assert [fct.nearest_rank(50.0, count) for count in (0, 1, 2, 3)] == [0, 1, 1, 2]


# Batches of a file.


@pytest.fixture
def written(tmp_path):
    columns = TABLES["events"].columns
    names = {column.kind: pa.array(["x", "y"]) for column in columns}
    writer = TableWriter(tmp_path, "events", names, {})

    def value(column: Column, row: int) -> int:
        return row if column.name == "time_ps" else row % 2

    for first, last in pairwise((0, 700, 2500)):
        writer.append({column.name: np.array([value(column, row) for row in range(first, last)]) for column in columns})
    writer.close()
    return table_path(tmp_path, "events")


def test_batches_can_be_read_again_and_by_column(written):
    batches = read_batches(written, ["node", "time_ps", "nothing"])
    for _ in range(2):
        table = pa.Table.from_batches(list(batches))
        assert table.column_names == ["time_ps", "node"]
        assert table.column("time_ps").to_pylist() == list(range(2500))
        assert table.column("node").to_pylist() == ["x", "y"] * 1250


def test_batches_of_a_file_that_was_cut_off(written):
    data = written.read_bytes()
    written.write_bytes(data[: len(data) * 2 // 3])
    whole = pa.Table.from_batches(list(read_batches(written))).num_rows
    some = pa.Table.from_batches(list(read_batches(written, ["time_ps"])))
    assert 0 < whole < 2500
    assert some.column("time_ps").to_pylist() == list(range(whole))
    written.write_bytes(data[:100])
    with pytest.raises(InputError, match="cut off inside its header"):
        list(read_batches(written, ["time_ps"]))
