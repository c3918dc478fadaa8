"""Reliable transport: whatever is lost on the way, every message is delivered once and in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from fabemu.plan import VERB_READ, VERB_SEND, VERB_WRITE, Plan
from tests.oracle.build import US, Cable, NicSpec, SwitchSpec, TrafficClass, Work, build_plan
from tests.oracle.device import Port
from tests.oracle.packet import CNP, DATA, LAST, PFC, Frame
from tests.oracle.simulator import OracleResult, Simulator
from tests.property.strategies import example_settings

LOST = 255
"""Cause of a drop that a test makes itself."""


class LossySimulator(Simulator):
    """Loses the frames of a pattern: `lost[n]` says whether the n-th frame on links of `host` vanishes."""

    def __init__(self, plan: Plan, lost: list[bool], host: int) -> None:
        super().__init__(plan)
        self.lost = iter(lost)
        self.host = host
        self.taken: list[Frame] = []  # data that reached a host

    def deliver(self, port: Port, frame: Frame, at: int, now: int) -> None:
        ends = {self.plan.port_node[port.id], self.plan.port_node[port.peer_id]}
        if frame.kind != PFC and self.host in ends and next(self.lost, False):
            self.record_drop(now, self.plan.port_node[port.id], port.id, -1, LOST, frame)
            return
        if frame.kind == DATA and self.plan.port_node[port.peer_id] < self.plan.host_count:
            self.taken.append(frame)
        super().deliver(port, frame, at, now)


@st.composite
def transports(draw: st.DrawFn) -> Plan:
    """A few QPs between three hosts, with timeouts that are far longer than a round trip."""
    selective = draw(st.integers(0, 1))
    nic = NicSpec(
        ack_every=draw(st.sampled_from([1, 1, 2, 4])),
        window_packets=draw(st.sampled_from([0, 0, 1, 3, 16])),
        rto_ps=200 * US,
        retry_count=10**6,
        selective=selective,
        selective_window=draw(st.sampled_from([1, 2, 8, 1024])),
    )
    work = Work()
    for _ in range(draw(st.integers(1, 3))):
        verb = draw(st.sampled_from([VERB_WRITE, VERB_SEND, VERB_READ]))
        src, dst = draw(st.sampled_from([(0, 1), (1, 0), (2, 0)]))
        qp = work.qp(src, dst, 0, verb)
        for _ in range(draw(st.integers(1, 4) if verb != VERB_READ else st.sampled_from([1, 2, 20]))):
            work.send(qp, draw(st.sampled_from([0, 1000, 5_000, 20_000])), draw(st.sampled_from([0, 0, 3 * US])))
    event("selective repeat" if selective else "go-back-N")
    return build_plan(
        3,
        1,
        [Cable(host, 3, 100 * 10**9, US) for host in range(3)],
        work,
        classes=[TrafficClass(lossless=draw(st.booleans()))],
        nic=nic,
        switch=SwitchSpec(pool=10**7, latency_ps=draw(st.sampled_from([0, 1_000]))),
        mtu_bytes=1024,
        psn_start=draw(st.sampled_from([0, 2**24 - 3])),
    )


def losses() -> st.SearchStrategy[list[bool]]:
    """Which of the frames of a host's links are lost: single ones, bursts, every other one, most."""
    return st.one_of(
        st.lists(st.booleans(), max_size=60),
        st.lists(st.sampled_from([True, True, True, False]), max_size=80),
        st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=6).map(
            lambda runs: [lost for lost, count in runs for _ in range(count)]
        ),
    )


def check_delivery(plan: Plan, simulator: LossySimulator, result: OracleResult) -> None:
    """Every operation is done and delivered once, those of one QP in order; all packets came."""
    assert result.drained
    assert set(result.ops["status"]) == {2}
    for qp in range(plan.qp_count):
        ops = plan.qp_op[plan.qp_op_start[qp] : plan.qp_op_start[qp + 1]]
        delivered = [result.ops["delivered_ps"][op] for op in ops]
        assert delivered == sorted(delivered)
        done = [result.ops["done_ps"][op] for op in ops]
        assert done == sorted(done)
        came = {frame.number for frame in simulator.taken if frame.qp == qp}
        end = simulator.messages[qp].end
        assert came == {(plan.psn_start + number) % 2**24 for number in range(end)}
        lasts = {frame.number for frame in simulator.taken if frame.qp == qp and frame.flags & LAST}
        assert len(lasts) == len(ops)
    sent = sum(result.ops["packets"])
    assert sent - sum(result.ops["retransmissions"]) == sum(messages.end for messages in simulator.messages)


@example_settings()
@given(transports(), losses(), st.integers(0, 1))
def test_every_message_arrives_once_and_in_order_whatever_is_lost(plan: Plan, lost: list[bool], host: int) -> None:
    simulator = LossySimulator(plan, lost, host)
    result = simulator.run()
    event("losses " + ("none" if not any(lost) else "few" if sum(lost) < 5 else "many"))
    for name in ("timeouts", "recoveries", "revived_responders", "reads_held_back"):
        if result.counts[name]:
            event(name)
    check_delivery(plan, simulator, result)


@example_settings(0.3)
@given(transports(), st.integers(0, 40), st.integers(0, 1))
def test_selective_repeat_never_repeats_more_than_go_back_n(plan: Plan, at: int, host: int) -> None:
    """One loss: go-back-N repeats everything behind it, selective repeat what it has no word of."""
    plan = replace(plan, qp_verb=[VERB_WRITE] * plan.qp_count, nic_selective_window=[1024])
    repeated = []
    for selective in (0, 1):
        plan = replace(plan, nic_selective=[selective])
        simulator = LossySimulator(plan, [False] * at + [True], host)
        result = simulator.run()
        check_delivery(plan, simulator, result)
        repeated.append(sum(result.ops["retransmissions"]))
    lost_data = sum(row[6] == DATA for row in result.drops)
    event("lost data" if lost_data else "lost something else" if result.drops else "nothing lost")
    assert lost_data <= repeated[1] <= repeated[0]
    if repeated[1] < repeated[0]:
        event("selective repeat saves packets")


@example_settings(0.3)
@given(transports(), st.integers(0, 3), st.integers(0, 60))
def test_a_dead_path_fails_after_all_retries(plan: Plan, retries: int, alive: int) -> None:
    """From some frame on everything is lost: QPs that are not done fail after exactly their retries; one event each."""
    plan = replace(plan, nic_retry_count=[retries])
    simulator = LossySimulator(plan, [False] * alive + [True] * 100_000, 0)
    result = simulator.run()
    assert result.drained
    errors = [row[5] for row in result.events]
    for qp in range(plan.qp_count):
        ops = plan.qp_op[plan.qp_op_start[qp] : plan.qp_op_start[qp + 1]]
        status = [result.ops["status"][op] for op in ops]
        if 3 in status:
            event("failed")
            assert errors.count(qp) == 1
            assert status == sorted(status), "an operation is done behind one that failed"
            failed = {result.ops["done_ps"][op] for op, state in zip(ops, status, strict=True) if state == 3}
            assert len(failed) == 1
            assert failed.pop() >= (retries + 1) * 200 * US
        else:
            assert qp not in errors
            assert set(status) == {2}
    assert CNP not in {row[2] for row in result.packets}
