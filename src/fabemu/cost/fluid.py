"""The traffic of a plan as fluids: what each queue pair has sent by when, if all of them share links fairly.

In every step each queue pair with something to send has its max-min fair share of the links of its path (Bertsekas and
Gallager, Data Networks, 6.5.2); then what arrives and ends within the step is booked. Steps are some hundred, however
long the run: events closer together than a step are taken as one. No queues, no pauses, no losses; what congestion
control leaves unused is not known either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabemu.cost.traffic import Floats, Ints, Traffic
from fabemu.deferred import dataclass
from fabemu.plan import FOREVER_PS, NONE, Plan

STEPS = 100
"""Steps that a run is cut into, about; beyond four times as many they become longer and longer."""

_STEPS_LEAST = 15
_WORK = 2_000_000  # steps times queue pairs: more of the one are fewer of the other

_ROUNDS = 8
_FULL = 0.98  # share of a link's rate in use from which it is full


@dataclass(frozen=True)
class Flows:
    """What the fluids have come to.

    Attributes
    ----------
    end_ps
        When the last one had been sent, or the end of the run.
    sent
        (m,) share of each message that was sent, 0..1.
    load
        (P + 1,) greatest load of each port, share of its rate; the last entry is no port.
    crowd
        (P + 1,) links of senders that met at each port while it was full: those that offer more than it can carry; 0 if
        it never was.
    backlog_bits
        (P + 1,) most that the queue pairs at a full port had to send.
    crowded_ps
        (n,) time that each queue pair spent at a rate below its part of its sender's link.
    sending
        (H,) most queue pairs that each host was sending at a time.
    receiving
        (H,) same, that it was receiving.
    rows
        (port, class) pairs with traffic, summed over the sampling intervals.
    work
        (k, 2) share of the packet hops done, over time in ps: the curve of progress.
    """

    end_ps: float
    sent: Floats
    load: Floats
    crowd: Floats
    backlog_bits: Floats
    crowded_ps: Floats
    sending: Ints
    receiving: Ints
    rows: float
    work: Floats


def fair_shares(ports: Ints, cap_bps: Floats, rate_bps: Floats, weight: float = 1.0) -> Floats:
    """Max-min fair bit/s of flows.

    Parameters
    ----------
    ports
        (n, hops) ports of every flow, indices into `rate_bps`; padding points to an entry of infinite rate.
    cap_bps
        (n,) what each flow takes at most.
    rate_bps
        (P,) of the ports.
    weight
        Flows that each of these stands for.

    Returns
    -------
    (n,) float64
        Exact after as many rounds as there are links that depend on each other; the flows that are open after
        `_ROUNDS` get what they could have had next, which is no more than fair.
    """
    count = len(ports)
    shares = np.zeros(count)
    each = _standing_for(np.bincount(ports.ravel(), minlength=len(rate_bps)), weight)
    left = rate_bps.astype(np.float64).copy()
    open_ = np.arange(count)
    for turn in range(_ROUNDS):
        if not len(open_):
            break
        own = ports[open_]
        flat = own.ravel()
        users = np.bincount(flat, minlength=len(left)) * each
        with np.errstate(divide="ignore", invalid="ignore"):
            fair = np.where(users > 0, left / users, np.inf)
        offer = np.minimum(fair[own].min(axis=1), cap_bps[open_])
        # A link all of whose flows are offered just its share is a bottleneck: their shares are final.
        least = np.full(len(left), np.inf)
        np.minimum.at(least, flat, np.repeat(offer, own.shape[1]))
        final_link = least >= fair * (1 - 1e-9)
        final = (final_link[own] & (fair[own] <= offer[:, None] * (1 + 1e-9))).any(axis=1)
        final |= offer >= cap_bps[open_]
        if turn == _ROUNDS - 1:
            final[:] = True
        done = open_[final]
        shares[done] = offer[final]
        spent = np.bincount(own[final].ravel(), weights=np.repeat(offer[final], own.shape[1]), minlength=len(left))
        left = np.maximum(0.0, left - spent * each)
        left[-1] = np.inf
        open_ = open_[~final]
    return shares


def _standing_for(counts: Ints, weight: float) -> Floats:
    """(P,) flows that each of the drawn ones at a port stands for.

    That one of them was drawn says nothing of the others there: of `weight` flows each of the others is one. So a flow
    that is alone at a port is taken to be alone, whatever the share of flows that were drawn.
    """
    met = np.maximum(counts, 1)
    result: Floats = (1 + (met - 1) * weight) / met
    return result


def flow_through(plan: Plan, traffic: Traffic) -> Flows:
    """Let the fluids run to the end of the plan."""
    return _Fluid(plan, traffic).run()


class _Fluid:
    """State of the fluids."""

    def __init__(self, plan: Plan, traffic: Traffic) -> None:
        self.plan, self.traffic = plan, traffic
        self.rate_bps = np.append(plan.port_rate_bps.astype(np.float64), np.inf)
        self.until_ps = float(plan.until_ps) if plan.until_ps < FOREVER_PS else np.inf
        count = len(traffic.qp)
        self.backlog = np.zeros(count)  # bits posted and not sent
        self.posted = np.zeros(count)  # bits ever posted
        self.now_ps = 0.0
        self.load = np.zeros(len(self.rate_bps))
        self.crowd = np.zeros(len(self.rate_bps))
        self.backlog_bits = np.zeros(len(self.rate_bps))
        self.crowded_ps = np.zeros(count)
        self.sending = np.zeros(plan.host_count, dtype=np.int64)
        self.receiving = np.zeros(plan.host_count, dtype=np.int64)
        self.rows = 0.0
        self.mask = np.zeros((len(self.rate_bps)) * plan.class_count, dtype=np.bool_)
        self.interval = 0
        self.work: list[tuple[float, float]] = [(0.0, 0.0)]
        self.hops_done = 0.0
        klass = plan.qp_class[traffic.qp].astype(np.int64)
        self.data_pq = traffic.ports * plan.class_count + klass[:, None]
        self.control_pq = traffic.control_ports * plan.class_count + plan.class_ack[klass].astype(np.int64)[:, None]
        # A bit of each queue pair costs so many hops, control included.
        message_bits = np.bincount(traffic.message_row, weights=traffic.wire_bits, minlength=count)
        message_packets = np.bincount(traffic.message_row, weights=traffic.packets, minlength=count)
        acks = np.divide(1.0, traffic.ack_every, out=np.zeros(count), where=traffic.ack_every > 0)
        per_packet = traffic.hop_count + acks * traffic.control_hop_count
        self.hops_per_bit = np.divide(
            message_packets * per_packet, message_bits, out=np.zeros(count), where=message_bits > 0
        )
        self._queue_arrivals()

    def _queue_arrivals(self) -> None:
        """Messages that wait for nothing but their time, by time; those that wait for others, by whom."""
        plan, traffic = self.plan, self.traffic
        depends = plan.op_dependency_count[traffic.message] > 0
        free = np.flatnonzero(~depends)
        start_ps = plan.op_start_ps[traffic.message].astype(np.float64)
        self.arrival = free[np.argsort(start_ps[free], kind="stable")]
        self.arrival_ps = start_ps[self.arrival]
        self.next_arrival = 0
        self.start_ps = start_ps
        self.waits = np.where(depends, plan.op_dependency_count[traffic.message], 0).astype(np.int64)
        self.has_chains = bool(depends.any())
        self.position = np.full(plan.op_count, NONE, dtype=np.int64)
        self.position[traffic.message] = np.arange(len(traffic.message))
        self.unfinished: list[list[int]] = [[] for _ in range(len(traffic.qp))] if self.has_chains else []
        self.later: list[tuple[float, Ints]] = []  # messages whose turn comes when what they waited for is acknowledged

    def run(self) -> Flows:
        """Step to the end."""
        wanted = max(_STEPS_LEAST, min(STEPS, _WORK // max(1, len(self.traffic.qp))))
        quantum_ps = self._longest_ps() / wanted
        steps = 0
        while self.now_ps < self.until_ps:
            steps += 1
            if steps > 4 * wanted:
                quantum_ps *= 1.02
            self._post(quantum_ps)
            active = np.flatnonzero(self.backlog > 0)
            following_ps = self._next_arrival_ps()
            if not len(active):
                if following_ps >= self.until_ps or following_ps == np.inf:
                    break
                self._skip_to(following_ps)
                continue
            self._step(active, quantum_ps, following_ps)
        self._close_interval()
        end_ps = min(self.now_ps, self.until_ps)
        return Flows(
            end_ps=end_ps,
            sent=self._sent(),
            load=self.load,
            crowd=self.crowd,
            backlog_bits=self.backlog_bits,
            crowded_ps=self.crowded_ps,
            sending=np.round(self.sending * self.traffic.weight).astype(np.int64),
            receiving=np.round(self.receiving * self.traffic.weight).astype(np.int64),
            rows=self.rows,
            work=np.array(self.work),
        )

    def _longest_ps(self) -> float:
        """The time that the busiest port needs for all its bits, at most that of the run."""
        bits = np.bincount(self.traffic.message_row, weights=self.traffic.wire_bits, minlength=len(self.traffic.qp))
        flat = self.traffic.ports.ravel()
        total = np.bincount(flat, weights=np.repeat(bits, self.traffic.ports.shape[1]), minlength=len(self.rate_bps))
        each = _standing_for(np.bincount(flat, minlength=len(self.rate_bps)), self.traffic.weight)
        need_ps = float((total * each / self.rate_bps).max(initial=0.0)) * 1e12
        last_ps = float(self.arrival_ps[-1]) if len(self.arrival_ps) else 0.0
        slowest_ps = float((bits / self.traffic.cap_bps).max(initial=0.0)) * 1e12
        return max(float(STEPS), min(max(need_ps, last_ps, min(slowest_ps, 100 * need_ps)), self.until_ps))

    def _next_arrival_ps(self) -> float:
        times = [ready_ps for ready_ps, _ in self.later]
        if self.next_arrival < len(self.arrival):
            times.append(float(self.arrival_ps[self.next_arrival]))
        return min(times, default=np.inf)

    def _post(self, quantum_ps: float) -> None:
        """Post what is due within half a step."""
        edge_ps = min(self.now_ps + quantum_ps / 2, self.until_ps)
        last = int(np.searchsorted(self.arrival_ps, edge_ps, side="right"))
        if last > self.next_arrival:
            self._book(self.arrival[self.next_arrival : last])
            self.next_arrival = last
        if self.later:
            due = [messages for ready_ps, messages in self.later if ready_ps <= edge_ps]
            if due:
                self.later = [item for item in self.later if item[0] > edge_ps]
                self._book(np.concatenate(due))

    def _book(self, messages: Ints) -> None:
        messages = messages[self.traffic.hop_count[self.traffic.message_row[messages]] > 0]
        rows, bits = self.traffic.message_row[messages], self.traffic.wire_bits[messages]
        np.add.at(self.backlog, rows, bits)
        np.add.at(self.posted, rows, bits)
        if self.has_chains:
            for row, message in zip(rows.tolist(), messages.tolist(), strict=True):
                self.unfinished[row].append(message)

    def _skip_to(self, time_ps: float) -> None:
        """Nothing is sent until then."""
        self._close_interval()
        self.now_ps = time_ps
        if self.plan.sample_ps > 0:
            self.interval = int(time_ps // self.plan.sample_ps)

    def _step(self, active: Ints, quantum_ps: float, following_ps: float) -> None:
        traffic, weight = self.traffic, self.traffic.weight
        ports = traffic.ports[active]
        shares = fair_shares(ports, traffic.cap_bps[active], self.rate_bps, weight)
        shares = np.maximum(shares, 1.0)
        finish_ps = self.backlog[active] / shares * 1e12
        soonest_ps = min(float(finish_ps.min()), max(0.0, following_ps - self.now_ps))
        step_ps = min(max(soonest_ps, quantum_ps), self.until_ps - self.now_ps)
        step_ps = max(step_ps, 1.0)
        sent = np.minimum(self.backlog[active], shares * step_ps * 1e-12)
        self._look(active, ports, shares, np.minimum(finish_ps, step_ps))
        self.backlog[active] -= sent
        self.hops_done += float((sent * self.hops_per_bit[active]).sum()) * weight
        # What is nearly sent is sent: no step is worth a rounding error.
        empty = active[self.backlog[active] <= 1e-6]
        self.backlog[empty] = 0.0
        busy_ps = step_ps if len(empty) < len(active) else min(step_ps, float(finish_ps.max()))
        self._mark(active, busy_ps)
        self.now_ps += busy_ps
        self.work.append((self.now_ps, self.hops_done))
        if self.has_chains:
            self._release(empty)

    def _release(self, empty: Ints) -> None:
        """What waited for the messages of these queue pairs goes on a round trip later."""
        plan = self.plan
        for row in empty.tolist():
            done, self.unfinished[row] = self.unfinished[row], []
            ready: list[int] = []
            for message in done:
                op = int(self.traffic.message[message])
                for successor in plan.op_successor[plan.op_successor_start[op] : plan.op_successor_start[op + 1]]:
                    position = int(self.position[successor])
                    if position != NONE:
                        self.waits[position] -= 1
                        if self.waits[position] == 0:
                            ready.append(position)
            if ready:
                at_ps = self.now_ps + float(self.traffic.round_trip_ps[row])
                self.later.append((at_ps, np.array(ready, dtype=np.int64)))

    def _look(self, active: Ints, ports: Ints, shares: Floats, lasting_ps: Floats) -> None:
        """Note loads, crowds and how many are at work."""
        traffic, weight = self.traffic, self.traffic.weight
        flat = ports.ravel()
        met: Ints = np.bincount(flat, minlength=len(self.rate_bps))
        each = _standing_for(met, weight)
        used = np.bincount(flat, weights=np.repeat(shares, ports.shape[1]), minlength=len(self.rate_bps)) * each
        users = met * each
        load = used / self.rate_bps
        np.maximum(self.load, load, out=self.load)
        # Full, and for more than what one sender can fill by itself.
        of_first = np.repeat(1.0 / np.maximum(users[ports[:, 0]], 1.0), ports.shape[1])
        senders = np.bincount(flat, weights=of_first, minlength=len(self.rate_bps)) * each
        full = (load > _FULL) & (senders > 1.05)
        self.crowd[full] = np.maximum(self.crowd[full], senders[full])
        # A sender that divides its own link among its queue pairs meets no congestion.
        first = ports[:, 0]
        alone = np.minimum(self.rate_bps[first] / np.maximum(users[first], 1.0), traffic.cap_bps[active])
        slowed = shares < 0.95 * alone
        to_send = np.repeat(self.backlog[active], ports.shape[1])
        waiting = np.bincount(flat, weights=to_send, minlength=len(self.rate_bps)) * each
        self.backlog_bits[full] = np.maximum(self.backlog_bits[full], waiting[full])
        self.crowded_ps[active[slowed]] += lasting_ps[slowed]
        qp = traffic.qp[active]
        at_sender = np.bincount(self.plan.qp_src[qp], minlength=self.plan.host_count)
        at_receiver = np.bincount(self.plan.qp_dst[qp], minlength=self.plan.host_count)
        np.maximum(self.sending, at_sender, out=self.sending)
        np.maximum(self.receiving, at_receiver, out=self.receiving)

    def _mark(self, active: Ints, step_ps: float) -> None:
        """Count the rows of the sampling intervals that this step touches."""
        sample_ps = self.plan.sample_ps
        if sample_ps <= 0:
            return
        self.mask[self.data_pq[active].ravel()] = True
        self.mask[self.control_pq[active].ravel()] = True
        last = int((self.now_ps + step_ps) // sample_ps)
        if last > self.interval:
            self.mask[len(self.mask) - self.plan.class_count :] = False
            self.rows += np.count_nonzero(self.mask)
            self.mask[:] = False
            self.mask[self.data_pq[active].ravel()] = True
            self.mask[self.control_pq[active].ravel()] = True
            self.mask[len(self.mask) - self.plan.class_count :] = False
            self.rows += np.count_nonzero(self.mask) * (last - self.interval - 1)
            self.interval = last

    def _close_interval(self) -> None:
        if self.plan.sample_ps > 0:
            self.mask[len(self.mask) - self.plan.class_count :] = False
            self.rows += np.count_nonzero(self.mask)
            self.mask[:] = False

    def _sent(self) -> NDArray[np.float64]:
        """(m,) share of each message that is sent: messages of a queue pair go one after another."""
        traffic = self.traffic
        if self.until_ps == np.inf:
            return np.ones(len(traffic.message))  # also what waits for operations that are no messages
        order = np.lexsort((np.arange(len(traffic.message)), traffic.message_row))
        bits, row = traffic.wire_bits[order], traffic.message_row[order]
        ends = np.cumsum(bits)
        first = np.flatnonzero(np.diff(row, prepend=-1))
        begin_of_row = np.zeros(len(traffic.qp))
        begin_of_row[row[first]] = ends[first] - bits[first]
        done = (self.posted - self.backlog)[row] + begin_of_row[row] - (ends - bits)
        share = np.empty(len(order))
        share[order] = np.clip(done / np.maximum(bits, 1e-9), 0.0, 1.0)
        return share
