"""Rows leave the core in one order, however they came, and each at once or when it is final."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from fabemu._core.engine import Engine, rows_in_order
from hypothesis import given
from hypothesis import strategies as st

from fabemu.compile import compile_plan
from fabemu.scenario import scenario_from_dict
from tests.small import SMALL

PLAN = compile_plan(scenario_from_dict(tomllib.loads(SMALL), overrides=['trace.interval="2us"'])).plan
RECORDS = Engine(PLAN).drain()
PORT, PAUSE = RECORDS["ports"].dtype, RECORDS["pauses"].dtype


def in_order(rows: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    """What a stable sort makes of them, the first key first."""
    ordered: np.ndarray = rows[np.lexsort([rows[key] for key in reversed(keys)])]
    return ordered


# Ports of one interval as they were touched: few, or more than are sorted one by one, in numbers of 8 to 32 bits.
PORTS = st.sampled_from([3, 40, 300, 70_000, 2**31 - 1]).flatmap(
    lambda most: st.lists(st.integers(0, most), max_size=100)
)


@given(st.lists(st.tuples(st.integers(0, 5), PORTS), max_size=5), st.booleans(), st.booleans())
def test_ports_by_interval_and_port(intervals: list[tuple[int, list[int]]], backward: bool, is_sorted: bool) -> None:
    """Intervals come one after the other, unless rows of several threads were put together."""
    if not backward:
        intervals = sorted(intervals)
    pairs = [(end, port) for end, ports in intervals for port in (sorted(ports) if is_sorted else ports)]
    rows = np.zeros(len(pairs), PORT)
    rows["end_ps"] = [end for end, _ in pairs]
    rows["port"] = [port for _, port in pairs]
    rows["tx_bytes"] = np.arange(len(pairs))  # tells the rows apart
    made, left = rows_in_order(rows, 0)
    assert made.tobytes() == in_order(rows, ("end_ps", "port")).tobytes()
    assert len(left) == 0


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 6), max_size=60),
    st.integers(0, 4),
)
def test_pauses_leave_when_they_are_final(drawn: list[tuple[int, ...]], end_ps: int) -> None:
    keys = ("emit_ps", "node", "port", "class", "xoff_ps", "start_ps")
    rows = np.zeros(len(drawn), PAUSE)
    for place, key in enumerate(keys):
        rows[key] = [row[place] for row in drawn]
    rows["sent_ps"] = np.arange(len(drawn))
    final, waiting = rows_in_order(rows, end_ps)
    expected = in_order(rows, keys)
    late = expected["emit_ps"] >= end_ps
    assert final.tobytes() == expected[~late].tobytes()
    assert waiting.tobytes() == expected[late].tobytes()


def test_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of ports or pauses"):
        rows_in_order(np.zeros(2, [("end_ps", "i8")]), 0)


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
    assert rows_in_order(once["ports"], 0)[0].tobytes() == once["ports"].tobytes()
