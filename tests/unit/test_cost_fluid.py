"""Fair shares of links, and the fluids that use them."""

import numpy as np
import pytest

from fabemu.compile import compile_plan
from fabemu.cost.fluid import fair_shares, flow_through
from fabemu.cost.traffic import traffic_of
from fabemu.scenario import scenario_from_dict

INFINITE = np.inf


def test_the_textbook_example_of_max_min_fairness():
    # Bertsekas and Gallager, 6.5.2: links 0 and 1 of rate 1; A crosses both, B and C link 0, D link 1 of rate 2.
    ports = np.array([[0, 1], [0, 2], [0, 2], [1, 2]])
    shares = fair_shares(ports, np.full(4, INFINITE), np.array([1.0, 2.0, INFINITE]))
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 3, 5 / 3])


def test_caps_leave_their_rest_to_others():
    ports = np.array([[0], [0], [0]])
    shares = fair_shares(ports, np.array([0.1, INFINITE, INFINITE]), np.array([1.0, INFINITE]))
    assert shares == pytest.approx([0.1, 0.45, 0.45])


def test_weights_stand_for_several():
    ports = np.array([[0], [0]])
    shares = fair_shares(ports, np.full(2, INFINITE), np.array([1.0, INFINITE]), weight=5.0)
    # One, and what the other stands for: five.
    assert shares == pytest.approx([1 / 6, 1 / 6])
    alone = fair_shares(ports[:1], np.full(1, INFINITE), np.array([1.0, INFINITE]), weight=5.0)
    assert alone == pytest.approx([1.0])


@pytest.mark.parametrize("seed", range(20))
def test_no_link_carries_more_than_its_rate_and_every_flow_has_a_bottleneck(seed):
    random = np.random.default_rng(seed)
    links, flows = 12, 40
    rates = np.append(random.uniform(1, 10, links), INFINITE)
    ports = np.array([random.choice(links, 3, replace=False) for _ in range(flows)])
    shares = fair_shares(ports, np.full(flows, INFINITE), rates)
    used = np.bincount(ports.ravel(), weights=np.repeat(shares, 3), minlength=links + 1)
    assert (used <= rates * (1 + 1e-9)).all()
    most = np.zeros(links + 1)
    np.maximum.at(most, ports.ravel(), np.repeat(shares, 3))
    full = used >= rates * (1 - 1e-6)
    bottlenecked = (full[ports] & (shares[:, None] >= most[ports] * (1 - 1e-6))).any(axis=1)
    # Rounds are limited: some of the last may have less than they could, none more.
    assert bottlenecked.mean() > 0.9


def compiled(workload, **changes):
    return compile_plan(
        scenario_from_dict(
            {
                "name": "fluid",
                "fabric": {"kind": "leaf-spine", "leaves": 2, "hosts_per_leaf": 4, "spines": 2},
                "link": {"rate": "100Gbps"},
                "workload": [workload],
                **changes,
            }
        )
    )


def test_an_incast_lasts_as_long_as_its_last_link_needs():
    plan = compiled({"kind": "incast", "receiver": "h0", "senders": "h4:h7", "size": "1MB"}).plan
    traffic = traffic_of(plan)
    flows = flow_through(plan, traffic)
    assert flows.end_ps == pytest.approx(traffic.wire_bits.sum() * 10, rel=1e-6)  # 10 ps per bit
    assert flows.crowd.max() == pytest.approx(4)
    assert (flows.sent == 1).all()
    assert (flows.crowded_ps > 0).all()


def test_a_sender_that_divides_its_own_link_meets_no_crowd():
    flow = [{"src": "h0", "dst": f"h{dst}", "size": "1MB"} for dst in (1, 2, 3)]
    plan = compiled({"kind": "flows", "flow": flow}).plan
    flows = flow_through(plan, traffic_of(plan))
    assert flows.crowd.max() == 0
    assert not flows.crowded_ps.any()
    assert flows.sending[0] == 3


def test_until_cuts_and_gaps_are_jumped_over():
    flow = [{"src": "h0", "dst": "h1", "size": "1MB"}, {"src": "h2", "dst": "h3", "size": "1MB", "start": "1s"}]
    plan = compiled({"kind": "flows", "flow": flow}, until="1000040us").plan
    flows = flow_through(plan, traffic_of(plan))
    assert flows.sent[0] == 1
    assert 0.3 < flows.sent[1] < 0.7
    assert len(flows.work) < 500


def test_messages_that_wait_for_others_come_after_them():
    chained = compiled({"kind": "all-to-all", "size": "100KB", "mode": "sequential"}).plan
    parallel = compiled({"kind": "all-to-all", "size": "100KB"}).plan
    one, other = (flow_through(plan, traffic_of(plan)) for plan in (chained, parallel))
    assert one.sending.max() == 1
    assert other.sending.max() == 7
    assert one.end_ps > other.end_ps


def test_of_many_queue_pairs_some_stand_for_all():
    plan = compiled({"kind": "all-to-all", "size": "100KB"}).plan
    whole, sample = traffic_of(plan), traffic_of(plan, qps_max=28)
    assert len(sample.qp) < len(whole.qp) == 56
    assert sample.weight * len(sample.qp) == pytest.approx(56)
    assert sample.weight * sample.packets.sum() == pytest.approx(whole.packets.sum(), rel=0.01)
    assert flow_through(plan, sample).end_ps == pytest.approx(flow_through(plan, whole).end_ps, rel=0.7)


def test_sampling_keeps_whole_chains():
    plan = compiled({"kind": "all-to-all", "size": "100KB", "mode": "sequential"}).plan
    sample = traffic_of(plan, qps_max=20)
    of_host = np.bincount(plan.qp_src[sample.qp], minlength=8)
    assert set(of_host.tolist()) == {0, 7}
