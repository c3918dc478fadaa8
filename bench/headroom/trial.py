"""One run of the engine with given traffic: how much headroom it uses, and what is dropped with less."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from fabemu._core.engine import Engine

from bench.headroom.link import (
    FEED_FACTOR,
    HEADER_BYTES,
    NEAR_DELAY_PS,
    PAD_BYTES,
    RDMA,
    RETH_BYTES,
    WIRE_BYTES,
    Link,
)
from bench.headroom.traffic import FIRST_PS, Traffic
from fabemu.compile.traffic import compile_traffic
from fabemu.plan import ACTION_STORM, VERB_SEND, VERB_WRITE, Plan
from fabemu.workload.flow import FlowTable
from fabemu.workload.graph import OperationGraph

_SENDER, _REVERSE, _RECEIVER = range(3)
_RUNNING, _DATA = 0, 0


@dataclass(frozen=True)
class Use:
    """The greatest use of headroom in one trial.

    Attributes
    ----------
    use_bytes
        As the switch charges it.
    frames
        Frames in headroom then.
    frame_bytes
        Their bytes.
    """

    use_bytes: int
    frames: int
    frame_bytes: int


class Bench:
    """The fabric around one link, ready for trials."""

    def __init__(self, link: Link) -> None:
        """Compile it."""
        self.link = link
        compiled = link.compiled()
        plan = compiled.plan
        self._class = compiled.class_names.index(RDMA)
        self._sender, self._receiver = (compiled.port_names.index(f"{name}->sw0") for name in (link.sender, "h2"))
        self._egress = int(plan.port_peer[self._receiver])
        self._row = int(plan.port_peer[self._sender]) * plan.class_count + self._class
        self.auto_bytes = int(plan.pq_headroom_bytes[self._row])
        pool_bytes = plan.switch_pool_bytes.copy()
        pool_bytes[0] = 0
        self._plan = replace(plan, switch_pool_bytes=pool_bytes, lossless_guaranteed=False)
        self.trials = 0

    def use(self, traffic: Traffic) -> Use:
        """Greatest use of headroom, from the times of all transmissions; no accounts of the switch are asked."""
        engine = self._run(traffic, 4 * self.link.terms.total_bytes + 10**6, packets=True)
        rows = engine.drain()["packets"]
        assert engine.totals()["drops_headroom_full"] == 0
        rows = rows[rows["kind"] == _DATA]
        sent, left = rows[rows["port"] == self._sender], rows[rows["port"] == self._egress]
        wire_ps = np.array([self.link.wire_ps(size) for size in sent["frame_bytes"].tolist()])
        arrived_ps = sent["time_ps"] + wire_ps + self.link.delay_ps
        arrived, departed = sent["frame_bytes"].astype(np.int64), left["frame_bytes"].astype(np.int64)
        # At one instant frames arrive before others leave.
        order = np.lexsort((np.repeat([0, 1], [len(sent), len(left)]), np.concatenate([arrived_ps, left["time_ps"]])))
        held = np.cumsum(np.concatenate([self.link.charges[arrived], -self.link.charges[departed]])[order])
        if not len(held):
            return Use(0, 0, 0)
        peak = int(np.argmax(held))
        frames = np.cumsum(np.repeat([1, -1], [len(sent), len(left)])[order])
        frame_bytes = np.cumsum(np.concatenate([arrived, -departed])[order])
        return Use(int(held[peak]), int(frames[peak]), int(frame_bytes[peak]))

    def drops(self, traffic: Traffic, headroom_bytes: int) -> int:
        """Lossless frames that the switch drops when the group has so much headroom."""
        return int(self._run(traffic, headroom_bytes, packets=False).totals()["drops_headroom_full"])

    def _run(self, traffic: Traffic, headroom_bytes: int, *, packets: bool) -> Engine:
        plan = self._plan_of(traffic, headroom_bytes)
        engine = Engine(plan, packets=packets)
        while engine.run(plan.until_ps, 10**6) == _RUNNING:
            pass
        engine.finish()
        broken = [name for name, held, _ in engine.verify() if not held]
        assert not broken, broken
        self.trials += 1
        return engine

    def _plan_of(self, traffic: Traffic, headroom_bytes: int) -> Plan:
        link, plan = self.link, self._plan
        headroom = plan.pq_headroom_bytes.copy()
        headroom[self._row] = headroom_bytes
        wire_ps = np.array([link.wire_ps(size) for size in traffic.forward_bytes.tolist()])
        starts = FIRST_PS + np.cumsum(wire_ps + traffic.gap_ps) - wire_ps
        raises_ps = int(starts[0] + wire_ps[0]) + link.delay_ps
        reverse_start = (
            raises_ps - traffic.reverse_ps - link.wire_ps(traffic.reverse_bytes) - NEAR_DELAY_PS
        )  # it leaves the switch when it has come from its own host
        end_ps = int(starts[-1] + wire_ps[-1]) + 4 * link.delay_ps + 2 * link.response_ps
        end_ps += 8 * link.wire_ps(link.largest_bytes) + 4 * NEAR_DELAY_PS
        if link.from_switch:
            starts = _fed_starts(link, traffic.forward_bytes, starts)
        flows = _flows(link, traffic, starts, max(0, reverse_start), self._class)
        closed = [0, *(FIRST_PS + end for _, end in traffic.openings_ps)]
        opened = [FIRST_PS + start for start, _ in traffic.openings_ps]
        actions = sorted([(time, 1) for time in closed] + [(time, 0) for time in opened])
        count = len(actions)
        return replace(
            plan,
            pq_headroom_bytes=headroom,
            until_ps=end_ps,
            action_time_ps=np.array([time for time, _ in actions]),
            action_value=np.array([value for _, value in actions]),
            action_kind=np.full(count, ACTION_STORM),
            action_target=np.full(count, self._receiver),
            action_mask=np.full(count, 1 << self._class),
            **compile_traffic(OperationGraph(flows=flows), plan.seed, plan.host_count, truncate_ns=False),
        )


def _fed_starts(link: Link, sizes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """When the host must send each frame so that the switch has it in time to send it at `starts`."""
    rate_bps = FEED_FACTOR * link.rate_bps
    feed_ps = -(-(sizes + WIRE_BYTES) * 8 * 10**12 // rate_bps)
    before = np.cumsum(feed_ps) - feed_ps
    latest = starts - feed_ps - NEAR_DELAY_PS
    # No later than those behind it allow.
    return before + np.minimum.accumulate((latest - before)[::-1])[::-1]


def _flows(link: Link, traffic: Traffic, starts: np.ndarray, reverse_ps: int, class_id: int) -> FlowTable:
    """One message of one packet per frame, posted when it is to be sent."""
    sizes = np.append(traffic.forward_bytes, traffic.reverse_bytes)
    start_ps = np.append(starts, reverse_ps)
    # Only a WRITE makes frames as large as the largest, only a SEND such as small as the smallest.
    write = sizes > link.largest_bytes - RETH_BYTES
    # Below the smallest frame there is padding of the frame, not of the payload.
    payload = np.maximum(0, sizes - HEADER_BYTES - RETH_BYTES * write) // PAD_BYTES * PAD_BYTES
    is_reverse = np.arange(len(sizes)) == len(sizes) - 1
    order = np.argsort(start_ps, kind="stable")
    group = np.where(is_reverse, 2, write)[order]
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    count = len(sizes)
    return FlowTable(
        src=np.where(is_reverse, _REVERSE, _SENDER)[order],
        dst=np.where(is_reverse, _SENDER, _RECEIVER)[order],
        bytes=payload[order],
        start_ps=start_ps[order],
        class_id=np.full(count, class_id),
        label_id=np.zeros(count),
        sport=np.full(count, -1),
        qp=np.argsort(np.argsort(first))[inverse],
        after=np.full(count, -1),
        verb=np.where(write, VERB_WRITE, VERB_SEND)[order],
        labels=("trial",),
    )
