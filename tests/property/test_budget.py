"""Where the time of a message went: whatever is run, the parts add up to its completion time to the picosecond."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given

pytest.importorskip("fabemu._core.engine")

from fabemu._core.engine import Engine

from fabemu.analysis.account import PARTS, account
from fabemu.analysis.journeys import Asked, Lost
from fabemu.plan import NONE, OP_SEND, VERB_READ, Plan
from fabemu.recorded.frames import Wire, frames_of
from fabemu.recorded.transport import Messages, PacketNumbers
from fabemu.trace import PACKET_KINDS
from tests.parity.compare import FAULT
from tests.property.strategies import FEATURES, PACKET_LIMIT, example_settings, plans

DATA, PFC, CREDIT = (PACKET_KINDS.index(kind) for kind in ("data", "pfc", "credit"))
FLAG_LAST, FLAG_ECHO = 4, 8


def recorded(plan: Plan) -> tuple[Any, dict[str, np.ndarray]]:
    """A run of a plan, or of its beginning: state of the operations, records."""
    engine = Engine(plan, packets=True)
    assert engine.run(plan.until_ps, PACKET_LIMIT) != FAULT
    engine.finish()
    return engine.ops(), engine.drain()


def accounted(plan: Plan, ops: Any, records: dict[str, np.ndarray], *, level: str, batch: int) -> Any:
    """The account of all delivered messages, with the rows that a trace level has, in batches."""
    packets = records["packets"]
    flags, port = packets["flags"], packets["port"]
    if level == "budget":
        packets = packets[(plan.port_node[port] < plan.host_count) | (flags & FLAG_LAST != 0)]
    link = np.isin(packets["kind"], (PFC, CREDIT))
    rows = {
        "time_ps": packets["time_ps"].astype(np.int64),
        "port": packets["port"],
        "kind": packets["kind"],
        "qp": np.where(link, NONE, packets["qp"]),
        "psn": packets["psn"].astype(np.int64),
        "frame_bytes": packets["frame_bytes"],
        "last": packets["flags"] & FLAG_LAST != 0,
        "echo": packets["flags"] & FLAG_ECHO != 0,
    }
    messages, wire = Messages(plan), Wire(plan)

    def parts():
        numbers = PacketNumbers(plan, messages.packets)
        for first in range(0, len(packets), batch):
            piece = {name: values[first : first + batch] for name, values in rows.items()}
            yield frames_of(piece, plan, messages, wire, numbers)

    done = np.flatnonzero((plan.op_kind == OP_SEND) & (ops["delivered_ps"] >= 0) & (ops["posted_ps"] >= 0))
    asked = Asked.of(plan, done, ops["posted_ps"][done], ops["delivered_ps"][done])
    pauses = records["pauses"]
    pauses = pauses[(pauses["start_ps"] >= 0) & (pauses["start_ps"] < pauses["end_ps"])]
    key = plan.port_peer[pauses["port"]].astype(np.int64) * plan.class_count + pauses["class"]
    drops = records["drops"]
    drops = drops[drops["kind"] == DATA]
    lost = Lost(*(drops[name].astype(np.int64) for name in ("time_ps", "node", "ingress_port", "qp", "psn")))
    return account(plan, asked, parts, (key, pauses["start_ps"], pauses["end_ps"]), lost)


@example_settings(0.5)
@given(plans(FEATURES))
def test_parts_add_up_to_the_completion_time(plan: Plan) -> None:
    ops, records = recorded(plan)
    found = accounted(plan, ops, records, level="packets", batch=10**6)
    parts, asked = found.parts(), found.asked
    assert found.ways.known.all()
    assert all((values >= 0).all() for values in parts.values())
    assert np.array_equal(sum(parts.values()), asked.done_ps - asked.posted_ps)
    for name, values in parts.items():
        if values.any():
            event(name)
    again = ops["retransmissions"][asked.op] > 0
    event(f"messages with repeats: {bool(again.any())}")
    # What cannot have happened has no time.
    quiet = ~np.isin(asked.qp, asked.qp[again])
    if not (ops["retransmissions"] > 0).any():
        assert not parts["retransmission_ps"].any()
    assert not parts["reordering_ps"][~asked.selective].any()
    assert not parts["request_ps"][plan.qp_verb[asked.qp] != VERB_READ].any()
    serialised = np.zeros(len(asked.op), dtype=np.int64)
    rows = records["packets"]
    mine = (rows["kind"] == DATA) & (plan.port_node[rows["port"]] < plan.host_count)
    messages, wire = Messages(plan), Wire(plan)
    numbers = PacketNumbers(plan, messages.packets)
    carried = ~np.isin(rows["kind"], (PFC, CREDIT, PACKET_KINDS.index("cnp")))
    number = np.zeros(len(rows), dtype=np.int64)
    number[carried] = numbers.unwrap(rows["qp"][carried].astype(np.int64), rows["psn"][carried].astype(np.int64))
    # At the sender every packet of a message counts once; on the way the last one does.
    packet = messages.packet(rows["qp"][mine].astype(np.int64), number[mine])
    _, once = np.unique(packet, return_index=True)
    slot = asked.slot[plan.qp_op[messages.message(packet[once])]]
    took = wire.ps(rows["port"][mine].astype(np.int64), rows["frame_bytes"][mine].astype(np.int64))[once]
    np.add.at(serialised, slot[slot >= 0], took[slot >= 0])
    later = ~found.hops.first
    np.add.at(serialised, found.hops.slot[later], found.ways.wire_ps[later])
    assert np.array_equal(serialised[quiet], parts["serialisation_ps"][quiet])


@example_settings(0.2)
@given(plans(FEATURES, always=frozenset({"selective"})))
def test_rows_of_a_lower_level_and_of_small_batches_give_the_same(plan: Plan) -> None:
    ops, records = recorded(plan)
    whole = accounted(plan, ops, records, level="packets", batch=10**6).parts()
    for level, batch in (("budget", 10**6), ("packets", 997), ("budget", 101)):
        found = accounted(plan, ops, records, level=level, batch=batch).parts()
        for name in PARTS:
            assert np.array_equal(found[name], whole[name]), (level, batch, name)
