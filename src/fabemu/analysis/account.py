"""The parts of the completion times of messages, from the transmissions of a run: see `fabemu.analysis.budget`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fabemu.analysis.intervals import Cover, ragged
from fabemu.analysis.journeys import Asked, Journeys, Lost, journeys
from fabemu.analysis.sending import Sending, sending
from fabemu.deferred import dataclass
from fabemu.plan import ACTION_LINK_DOWN, ACTION_LINK_UP, ACTION_RECEIVER, NONE, Plan
from fabemu.recorded.frames import Frames
from fabemu.recorded.transport import Messages

Int64s = NDArray[np.int64]

PARTS = (
    "queue_pair_ps",
    "request_ps",
    "serialisation_ps",
    "propagation_ps",
    "latency_ps",
    "queueing_ps",
    "paused_ps",
    "contention_ps",
    "pacing_ps",
    "retransmission_ps",
    "reordering_ps",
    "receiver_ps",
)
"""What the time of a message that went over the fabric is made of."""


@dataclass(frozen=True, eq=False)
class Hops:
    """What last packets waited for at each hop (h,), int64 ps; the first hop of each message is at its sender."""

    slot: Int64s
    first: NDArray[np.bool_]
    arrived: Int64s
    queueing: Int64s
    paused: Int64s
    propagation: Int64s
    latency: Int64s


@dataclass(frozen=True, eq=False)
class Account:
    """Where the time of messages went.

    Attributes
    ----------
    asked
        The messages (m,).
    ways
        The ways of their last packets.
    spent
        What they waited for at their senders.
    hops
        What their last packets waited for on the way.
    tails
        ``retransmission``, ``receiver``, ``reordering``: (m,) int64 ps between the arrival of the last packet and the
        delivery.
    """

    asked: Asked
    ways: Journeys
    spent: Sending
    hops: Hops
    tails: dict[str, Int64s]

    def parts(self) -> dict[str, Int64s]:
        """(m,) int64 ps by the names of `PARTS`; they add up to the completion times of messages whose way is known."""
        hops, spent = self.hops, self.spent
        found = {name: np.zeros(len(self.asked.op), dtype=np.int64) for name in PARTS}
        for name in ("queue_pair", "request", "serialisation", "paused", "contention", "pacing", "retransmission"):
            found[f"{name}_ps"] += getattr(spent, name)
        for name, values in self.tails.items():
            found[f"{name}_ps"] += values
        np.add.at(found["serialisation_ps"], hops.slot, self.ways.wire_ps)
        for name in ("propagation", "latency", "queueing", "paused"):
            np.add.at(found[f"{name}_ps"], hops.slot, getattr(hops, name))
        return found


def account(
    plan: Plan, asked: Asked, rows: Callable[[], Iterable[Frames]], pauses: tuple[Int64s, Int64s, Int64s], lost: Lost
) -> Account:
    """Account for the time of messages.

    Parameters
    ----------
    plan
        What was run.
    asked
        The messages.
    rows
        Gives its transmissions in order of time, as often as it is called: of hosts all, of switches at least those of
        last packets.
    pauses
        Of each pause the port that was paused x classes + class, its start and its end.
    lost
        Data packets that were dropped.
    """
    end_ps = int(asked.done_ps.max(initial=0))
    down = _down(plan, end_ps)
    paused = Cover(*(np.concatenate(columns) for columns in zip(pauses, down, strict=True)))
    messages = Messages(plan)
    ways = journeys(plan, messages, asked, rows(), lost)
    spent = sending(plan, messages, asked, ways, paused, rows())
    return Account(asked, ways, spent, _hops(plan, asked, ways, paused), _tails(plan, messages, asked, ways))


def _down(plan: Plan, end_ps: int) -> tuple[Int64s, Int64s, Int64s]:
    """Times in which links were down: at both ends, for all classes."""
    begun: dict[int, int] = {}
    found = []
    for kind, port, time_ps in zip(
        plan.action_kind.tolist(), plan.action_target.tolist(), plan.action_time_ps.tolist(), strict=True
    ):
        if kind == ACTION_LINK_DOWN:
            begun.setdefault(port, time_ps)
        elif kind == ACTION_LINK_UP and port in begun:
            found.append((port, begun.pop(port), time_ps))
    found += [(port, since, end_ps) for port, since in begun.items()]
    rows = np.array(found, dtype=np.int64).reshape(-1, 3)
    rows = rows[rows[:, 1] < rows[:, 2]]
    ports = np.concatenate([rows[:, 0], plan.port_peer[rows[:, 0]]])
    key, row = ragged(ports * plan.class_count, np.full(len(ports), plan.class_count))
    return key, np.tile(rows[:, 1], 2)[row], np.tile(rows[:, 2], 2)[row]


def _hops(plan: Plan, asked: Asked, ways: Journeys, paused: Cover) -> Hops:
    """Split the waits of last packets."""
    port, count = ways.port, np.diff(ways.start)
    slot = np.repeat(np.arange(len(count)), count)
    first = np.zeros(len(port), dtype=np.bool_)
    first[ways.start[:-1][count > 0]] = True
    propagation = plan.port_delay_ps[port]
    arrived = np.empty(len(port), dtype=np.int64)
    arrived[1:] = (ways.time_ps + ways.wire_ps + propagation)[:-1]
    arrived[first] = asked.posted_ps[slot[first]]
    own = plan.qp_class[asked.qp[slot]].astype(np.int64)
    if len(plan.switch_latency_ps):
        switch = np.maximum(plan.port_node[port].astype(np.int64) - plan.host_count, 0)
        latency = np.where(first, 0, plan.switch_latency_ps[switch])
        # A switch may treat the class as another one; at hosts it is its own.
        treated = plan.switch_class_map.reshape(-1, plan.class_count)[switch, own].astype(np.int64)
    else:
        latency, treated = np.zeros(len(port), dtype=np.int64), own
    key = port * plan.class_count + np.where(first, own, treated)
    eligible = np.where(first, ways.time_ps, arrived + latency)
    held = paused.before(key, ways.time_ps) - paused.before(key, eligible)
    return Hops(slot, first, arrived, ways.time_ps - eligible - held, held, propagation, latency)


def _tails(plan: Plan, messages: Messages, asked: Asked, ways: Journeys) -> dict[str, Int64s]:
    """(m,) time between the arrival of the last packet and the delivery, by what it was for."""
    tail = np.where(ways.known, asked.done_ps - ways.arrived_ps, 0)
    found = {name: np.zeros(len(tail), dtype=np.int64) for name in ("retransmission", "receiver", "reordering")}
    slow = np.zeros(plan.node_count, dtype=np.bool_)
    slow[plan.port_node[plan.action_target[plan.action_kind == ACTION_RECEIVER]]] = True
    pair = plan.op_qp[plan.qp_op[messages.message(ways.again_packet)]]
    order = np.lexsort((ways.again_ps, pair))
    pair, again_ps, again_packet = pair[order], ways.again_ps[order], ways.again_packet[order]
    position = np.full(plan.op_count, NONE, dtype=np.int64)
    position[plan.qp_op] = np.arange(len(plan.qp_op))
    for one in np.flatnonzero(tail > 0).tolist():
        # A receiver that keeps nothing waits for no other packet: the last one itself waited.
        name = "receiver"
        if asked.selective[one]:
            name = "receiver" if slow[asked.receiver[one]] else "reordering"
            mine = slice(*np.searchsorted(pair, (asked.qp[one], asked.qp[one] + 1)))
            low, high = np.searchsorted(again_ps[mine], (ways.sent_ps[one], asked.done_ps[one]))
            if (again_packet[mine][low:high] < messages.end(position[asked.op[one : one + 1]])).any():
                name = "retransmission"
        found[name][one] = tail[one]
    return found
