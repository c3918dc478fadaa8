"""Runs the core on a plan and compares it with the oracle, record by record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from fabemu._core.engine import Engine

from fabemu.plan import EVENT_DEADLOCK, Plan
from tests.oracle.simulator import OracleResult

RUNNING, STOPPED, DRAINED, FAULT, DEADLOCKED = range(5)
COLUMNS = {
    "packets": ("time_ps", "port", "kind", "flags", "class", "qp", "psn", "frame_bytes"),
    "pauses": (
        "xoff_ps",
        "sent_ps",
        "start_ps",
        "xon_ps",
        "end_ps",
        "port",
        "class",
        "end",
        "ingress_bytes",
        "headroom_bytes",
        "threshold_bytes",
        "egress_port",
        "crossed",
        "parent_port",
    ),
    "events": ("time_ps", "kind", "node", "port", "class", "qp", "value", "group"),
    "drops": (
        "time_ps",
        "node",
        "ingress_port",
        "egress_port",
        "class",
        "cause",
        "kind",
        "qp",
        "psn",
        "frame_bytes",
    ),
}
OPERATION_COLUMNS = (
    "posted_ps",
    "first_sent_ps",
    "delivered_ps",
    "done_ps",
    "status",
    "packets",
    "retransmissions",
    "cnps",
    "marks",
)


@dataclass
class CoreResult:
    """Records of one run of the core, sorted like the oracle's."""

    tables: dict[str, list[tuple[int, ...]]]
    ops: dict[str, list[int]]
    digest: str
    state: int
    verdicts: list[tuple[str, bool, str]]
    columns: dict[str, tuple[str, ...]]


def run_core(
    plan: Plan,
    *,
    scheduler: int | None = None,
    steps: Iterator[tuple[int, int]] | None = None,
    window_divisor: int = 1,
    packets: bool = True,
    ends: bool = False,
    express: bool = True,
    shortcuts: bool = True,
    owners: Callable[[], np.ndarray] | None = None,
) -> CoreResult:
    """Run the core to the end of a plan.

    `steps`: (time step in ps, budget) pairs of the first calls of `run`; the rest is done without a stop.
    `owners`: before each of these calls and the rest, which thread (0 to 3) steps each device from now on.
    Raises AssertionError on a fault.
    """
    if scheduler is not None:
        plan = replace(plan, scheduler=scheduler)
    threads = 1 if owners is None else 4
    engine = Engine(
        plan,
        packets=packets,
        ends=ends,
        window_divisor=window_divisor,
        express=express,
        shortcuts=shortcuts,
        threads=threads,
    )

    def share() -> None:
        if owners is not None and engine.can_share:
            engine.share(owners())

    parts: list[dict[str, np.ndarray]] = []
    stop = 0
    state = RUNNING
    for step_ps, budget in steps or ():
        stop = min(stop + step_ps, plan.until_ps)
        share()
        state = engine.run(stop, budget)
        parts.append(engine.drain())
        if state in (DRAINED, FAULT, DEADLOCKED) or (state == STOPPED and stop >= plan.until_ps):
            break
    else:
        state = RUNNING
        share()
    while state == RUNNING:
        state = engine.run(plan.until_ps, 10**6)
    assert state != FAULT, f"the core found a fault: {engine.fault()}"
    engine.finish()
    parts.append(engine.drain())
    tables = {}
    present = {}
    for name, wanted in COLUMNS.items():
        made = parts[-1][name].dtype.names if name in parts[-1] else ()
        columns = present[name] = tuple(column for column in wanted if column in made)
        rows = [tuple(int(row[column]) for column in columns) for part in parts for row in part.get(name, ())]
        if name != "pauses":
            times = [row[0] for row in rows]
            assert times == sorted(times), f"{name} are not in the order of time"
        if name == "packets":
            rows.sort(key=lambda row: row[:2])
        else:
            rows.sort(key=event_key if name == "events" else None)
        tables[name] = rows
    ops = {name: column.tolist() for name, column in engine.ops().items()}
    return CoreResult(tables, ops, engine.digest, state, engine.verify(), present)


def event_key(row: tuple[int, ...]) -> tuple[int, ...]:
    """Order of events by what they say; only the queues of a cycle have an order of their own within an instant."""
    return row[:2] if row[1] == EVENT_DEADLOCK else row


def first_difference(name: str, oracle: list, core: list, context: int = 4) -> str | None:
    """Text about the first record that differs, or None."""
    if oracle == core:
        return None
    shortest = min(len(oracle), len(core))
    index = next((index for index in range(shortest) if oracle[index] != core[index]), shortest)
    lines = [f"{name}: record {index} differs (oracle has {len(oracle)}, core {len(core)})"]
    if name in COLUMNS:
        lines.append("       " + " ".join(COLUMNS[name]))
    for side, rows in (("oracle", oracle), ("core", core)):
        for at in range(max(0, index - context), min(len(rows), index + context + 1)):
            lines.append(f"{side:>6} {'>' if at == index else ' '}{at} {rows[at]}")
    return "\n".join(lines)


def differences(oracle: OracleResult, core: CoreResult) -> list[str]:
    """Every table's first difference."""
    found = []
    for name, wanted in COLUMNS.items():
        places = [wanted.index(column) for column in core.columns[name]]
        rows = [tuple(row[place] for place in places) for row in getattr(oracle, name)] if places else []
        if name == "events":
            rows.sort(key=event_key)
        found.append(first_difference(name, rows, core.tables[name]))
    for name in OPERATION_COLUMNS:
        found.append(first_difference("ops " + name, oracle.ops[name], core.ops[name]))
    return [text for text in found if text is not None]


def save_plan(plan: Plan) -> Path:
    """Write a plan to a file of the temporary directory, for `python -m tests.parity.replay`."""
    path = Path(tempfile.gettempdir()) / f"fabemu-plan-{plan.digest()[:16]}.npz"
    values = {item.name: getattr(plan, item.name) for item in fields(plan)}
    np.savez(
        path, **{name: np.array(str(value)) if isinstance(value, int) else value for name, value in values.items()}
    )
    return path


def load_plan(path: Path) -> Plan:
    """Read what `save_plan` wrote."""
    with np.load(path) as data:
        values = {name: data[name] for name in data.files}
    kinds = {"True": True, "False": False}
    for name, value in values.items():
        if value.shape == ():
            values[name] = kinds[str(value)] if str(value) in kinds else int(str(value))
    return Plan(**values)


def assert_same(plan: Plan, oracle: OracleResult, core: CoreResult, label: str = "") -> None:
    """Fail with the first differing records and the file that replays them."""
    found = differences(oracle, core)
    if found:
        raise AssertionError(f"{label} plan saved as {save_plan(plan)}\n" + "\n".join(found))
