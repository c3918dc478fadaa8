"""Rows leave the core in one order, however they came, and each at once or when it is final."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from fabemu._core.columns import write_ports
from fabemu._core.engine import Engine, pauses_in_order
from hypothesis import example, given
from hypothesis import strategies as st

from fabemu.compile import compile_plan
from fabemu.scenario import scenario_from_dict
from tests.small import SMALL
from tests.unit.table_columns import columns_of

PLAN = compile_plan(scenario_from_dict(tomllib.loads(SMALL), overrides=['trace.interval="2us"'])).plan
PAUSE = Engine(PLAN).drain()["pauses"].dtype

# 6,144 ports: the words of a set of ports fill more than one word of the set of those words.
LARGE = compile_plan(
    scenario_from_dict(
        {
            "name": "large",
            "until": "12us",
            "fabric": {"kind": "fat-tree", "k": 16},
            "trace": {"interval": "1us"},
            "workload": [{"kind": "permutation", "size": "100KB"}],
        }
    )
).plan


def test_ports_by_interval_port_and_class() -> None:
    tables = []
    for threads in (1, 2):
        engine = Engine(LARGE, threads=threads)
        if threads > 1:
            engine.share(np.arange(LARGE.node_count) % threads)
        parts = []
        while engine.run(LARGE.until_ps, 40_000) == 0:
            parts.append(engine.drain()["ports"])
        engine.finish()
        tables.append(np.concatenate([*parts, engine.drain()["ports"]]))
    rows = tables[0]
    assert rows["port"].max() > 4096 and len(parts) > 3
    assert np.array_equal(np.lexsort((rows["class"], rows["port"], rows["end_ps"])), np.arange(len(rows)))
    sent = np.zeros(LARGE.port_count, np.int64)
    np.add.at(sent, rows["port"], rows["tx_bytes"])
    assert np.array_equal(sent, engine.ports()["sent_bytes"])
    assert tables[1].tobytes() == rows.tobytes()


def in_columns(engine: Engine, room: Sequence[int], run: Callable[[Engine], bool]) -> tuple[list[np.ndarray], int]:
    """Columns of all rows of ports of a run, pieces of so many places by turns, and how many rows found no room.

    `run` steps the engine; True at the end.
    """
    parts: list[np.ndarray] = []
    recorded, turn, over = 0, 0, False
    while not over:
        first, end = 3, 3 + room[turn % len(room)]
        columns = columns_of("ports", end)
        engine.fill_ports(columns, first, end)
        over = run(engine)
        if over:
            engine.finish()
        count = engine.filled_ports()
        assert 0 <= count <= end - first and engine.filled_ports() == 0
        parts.append(frame_of(columns, first, first + count))
        rows = engine.drain()["ports"]
        assert not len(rows) or count == end - first, "recorded though there was room"
        columns = columns_of("ports", len(rows))
        write_ports(rows, columns, 0, LARGE.port_node, LARGE.port_peer, LARGE.port_rate_bps)
        parts.append(frame_of(columns, 0, len(rows)))
        recorded += len(rows)
        turn += 1
    return parts, recorded


def frame_of(columns: Mapping[str, np.ndarray], first: int, end: int) -> np.ndarray:
    """Rows of columns, side by side."""
    return np.rec.fromarrays([values[first:end] for values in columns.values()], names=list(columns))


@pytest.mark.parametrize("room", [(10**6,), (5000, 1, 700), (7,)])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_go_to_columns_as_far_as_there_is_room_and_then_are_recorded(room: Sequence[int], threads: int) -> None:
    plain = Engine(LARGE)
    plain.run(LARGE.until_ps, 10**9)
    plain.finish()
    rows = plain.drain()["ports"]
    expected = columns_of("ports", len(rows))
    write_ports(rows, expected, 0, LARGE.port_node, LARGE.port_peer, LARGE.port_rate_bps)

    engine = Engine(LARGE, threads=threads)
    if threads > 1:
        engine.share(np.arange(LARGE.node_count) % threads)
    calls = []

    def run(engine: Engine) -> bool:
        hops = engine.packet_hops
        state = engine.run(LARGE.until_ps, 10**9)
        calls.append(engine.packet_hops - hops)
        return state != 0

    parts, recorded = in_columns(engine, room, run)
    # It is over at once, or every time that there is no room left; it never stands still.
    assert min(calls) > 0 and (len(calls) > 5 if recorded else len(calls) == 1)
    assert np.concatenate(parts).tobytes() == frame_of(expected, 0, len(rows)).tobytes()
    assert (recorded == 0) == (room[0] >= len(rows))
    assert engine.digest == plain.digest


def test_no_room_and_other_columns_are_refused() -> None:
    engine = Engine(LARGE)
    columns = columns_of("ports", 9)
    for first, end in ((9, 9), (-1, 5), (5, 4)):
        with pytest.raises(ValueError, match=f"no room for rows of ports from {first} to {end}"):
            engine.fill_ports(columns, first, end)
    with pytest.raises(ValueError, match="column start_ps: no room for rows up to 10 in 9"):
        engine.fill_ports(columns, 0, 10)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        engine.fill_ports(columns | {"marks": np.zeros(9, np.int32)}, 0, 9)
    with pytest.raises(KeyError, match="peer"):
        engine.fill_ports({name: values for name, values in columns.items() if name != "peer"}, 0, 9)
    with pytest.raises(TypeError):
        engine.fill_ports(columns | {"frames": list(range(9))}, 0, 9)
    # What was refused is not written to.
    engine.run(LARGE.until_ps, 10**9)
    assert engine.filled_ports() == 0 and len(engine.drain()["ports"]) > 0


def test_rows_that_wait_come_before_those_that_are_set_next() -> None:
    engine = Engine(LARGE)
    engine.run(3 * 10**6, 10**9)
    with pytest.raises(ValueError, match="wait for filled_ports and drain"):
        engine.fill_ports(columns_of("ports", 9), 0, 9)
    engine.drain()
    columns = columns_of("ports", 10**5)
    engine.fill_ports(columns, 0, 10**5)
    # Nothing has come by then.
    engine.fill_ports(columns, 0, 10**5)
    engine.run(5 * 10**6, 10**9)
    with pytest.raises(ValueError, match="wait for filled_ports and drain"):
        engine.fill_ports(columns, 0, 10**5)
    assert engine.filled_ports() > 0
    engine.fill_ports(columns, 0, 10**5)


def test_columns_stay_where_they_are_as_long_as_rows_go_there() -> None:
    class Fresh(dict[str, np.ndarray]):
        """Gives other arrays every time."""

        def __getitem__(self, name: str) -> np.ndarray:
            given.append(super().__getitem__(name).copy())
            return given[-1]

    given: list[np.ndarray] = []
    engine = Engine(LARGE)
    engine.fill_ports(Fresh(columns_of("ports", 10**5)), 0, 10**5)
    start_ps = given[0]
    # Nobody else has them any more but the engine.
    given.clear()
    others = list(columns_of("ports", 10**5).values())
    engine.run(3 * 10**6, 10**9)
    count = engine.filled_ports()
    assert set(start_ps[:count].tolist()) == {0, 10**6, 2 * 10**6}
    assert not any(values.any() for values in others)


def backward(count: int) -> list[tuple[int, ...]]:
    """Rows that each go before all others that came."""
    return [(count - place,) * 6 for place in range(count)]


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 6), max_size=60),
    st.integers(0, 4),
)
@example(backward(300), 150)
def test_pauses_leave_when_they_are_final(drawn: list[tuple[int, ...]], end_ps: int) -> None:
    keys = ("emit_ps", "node", "port", "class", "xoff_ps", "start_ps")
    rows = np.zeros(len(drawn), PAUSE)
    for place, key in enumerate(keys):
        rows[key] = np.array([row[place] for row in drawn]) % (256 if key == "class" else 2**31)
    rows["sent_ps"] = np.arange(len(drawn))
    final, waiting = pauses_in_order(rows, end_ps)
    expected = rows[np.lexsort([rows[key] for key in reversed(keys)])]
    late = expected["emit_ps"] >= end_ps
    assert final.tobytes() == expected[~late].tobytes()
    assert waiting.tobytes() == expected[late].tobytes()


def test_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of pauses"):
        pauses_in_order(np.zeros(2, [("end_ps", "i8")]), 0)


def test_often_or_once_the_rows_are_the_same() -> None:
    tables = []
    for step_ps in (10**6, 10**12):
        engine = Engine(PLAN)
        parts = []
        for stop_ps in range(step_ps, 200 * 10**6, step_ps) if step_ps < 10**12 else [10**12]:
            engine.run(stop_ps, 10**9)
            parts.append(engine.drain())
        engine.run(10**12, 10**9)
        engine.finish()
        parts.append(engine.drain())
        tables.append({name: np.concatenate([part[name] for part in parts]) for name in ("ports", "pauses")})
    often, once = tables
    assert len(once["ports"]) > 20
    for name, rows in once.items():
        assert often[name].tobytes() == rows.tobytes()
