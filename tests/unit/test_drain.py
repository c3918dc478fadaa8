"""Rows leave the core in one order, however they came, and each at once or when it is final."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from fabemu._core.engine import Engine, pauses_in_order
from hypothesis import example, given
from hypothesis import strategies as st

from fabemu.compile import compile_plan
from fabemu.scenario import scenario_from_dict
from tests.small import SMALL

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


def test_rows_that_are_lent_are_those_that_are_given() -> None:
    given, lent = Engine(LARGE), Engine(LARGE)
    before = None
    for stop_ps in (3_000_000, 4_000_000, 9_000_000, 9_000_001, 12_000_000):
        given.run(stop_ps, 10**9)
        lent.run(stop_ps, 10**9)
        rows, borrowed = given.drain()["ports"], lent.drain(lend=True)["ports"]
        assert borrowed.dtype == rows.dtype and borrowed.tobytes() == rows.tobytes()
        if before is not None:
            # What was given stays as it is.
            assert before[0].tobytes() == before[1]
        before = rows, rows.tobytes()


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
