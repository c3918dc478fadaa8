"""Messages inside a domain against closed forms (MODEL 19), to the picosecond."""

from __future__ import annotations

import pytest

pytest.importorskip("fabemu._core.engine")

import numpy as np
from fabemu._core.engine import Engine

from fabemu.plan import Plan
from tests.oracle.build import Cable, Work, build_plan

RATE_BPS = 3_600 * 10**9
LATENCY_PS = 500_000
SIZE = 10**9 + 1


def domain(hosts: int, work: Work, rates: list[int] | None = None) -> Plan:
    cables = [Cable(host, hosts) for host in range(hosts)]
    return build_plan(
        hosts,
        1,
        cables,
        work,
        host_domain=[0] * hosts,
        host_scale_up_rate_bps=rates or [RATE_BPS] * hosts,
        host_scale_up_latency_ps=[LATENCY_PS] * hosts,
    )


def delivered(plan: Plan) -> list[int]:
    engine = Engine(plan)
    assert engine.run(1 << 60, 10**9) == 2
    assert engine.packet_hops == 0
    ops = engine.ops()
    return [int(at) for at, kind in zip(ops["delivered_ps"], plan.op_kind, strict=True) if kind == 3]


def exact(size: int, rate_bps: int) -> int:
    return -(-size * 8 * 10**12 // rate_bps)


def test_a_message_takes_latency_and_its_bytes() -> None:
    work = Work()
    work.scale_up(0, 1, SIZE, start_ps=77)
    assert delivered(domain(2, work)) == [77 + LATENCY_PS + exact(SIZE, RATE_BPS)]


@pytest.mark.parametrize("rates", [[RATE_BPS, RATE_BPS // 3], [RATE_BPS // 3, RATE_BPS]])
def test_the_slower_end_sets_the_pace(rates: list[int]) -> None:
    work = Work()
    work.scale_up(0, 1, SIZE)
    assert delivered(domain(2, work, rates)) == [LATENCY_PS + exact(SIZE, min(rates))]


def test_a_receiver_takes_in_all_senders_at_its_rate() -> None:
    work = Work()
    for sender in range(1, 8):
        work.scale_up(sender, 0, SIZE)
    each = exact(SIZE, RATE_BPS)
    assert delivered(domain(8, work)) == [LATENCY_PS + each * place for place in range(1, 8)]


def test_shifted_all_to_all_keeps_every_link_busy() -> None:
    """Step i goes to the i-th successor: no two messages meet, and all take as long as the bytes of one host."""
    work = Work()
    hosts = 8
    for step in range(1, hosts):
        for host in range(hosts):
            work.scale_up(host, (host + step) % hosts, SIZE)
    times = np.array(delivered(domain(hosts, work))).reshape(hosts - 1, hosts)
    expected = LATENCY_PS + exact(SIZE, RATE_BPS) * np.arange(1, hosts)
    assert (times == expected[:, None]).all()


def test_a_ring_goes_round_step_by_step() -> None:
    """Each host passes on what it has received: (n - 1) times latency and bytes."""
    work = Work()
    hosts = 5
    received: dict[int, list[int]] = {host: [] for host in range(hosts)}
    for _ in range(hosts - 1):
        following = {}
        for host in range(hosts):
            _, recv = work.scale_up(host, (host + 1) % hosts, SIZE, after=received[host])
            following[(host + 1) % hosts] = [recv]
        received = following
    assert max(delivered(domain(hosts, work))) == (hosts - 1) * (LATENCY_PS + exact(SIZE, RATE_BPS))


@pytest.mark.parametrize(
    "change",
    [
        {"host_domain": [0, -1]},
        {"host_domain": [0, 1]},
        {"host_scale_up_rate_bps": [0, 1]},
        {"host_scale_up_latency_ps": [0, 0]},
        {"op_peer": [-1, -1]},
    ],
)
def test_messages_that_no_domain_carries_are_refused(change: dict[str, list[int]]) -> None:
    from dataclasses import replace

    work = Work()
    work.scale_up(0, 1, 100)
    with pytest.raises(ValueError, match="scale-up"):
        Engine(replace(domain(2, work), **change))


def test_the_hosts_of_a_domain_stay_with_one_thread() -> None:
    work = Work()
    work.scale_up(0, 1, 100)
    engine = Engine(domain(2, work), threads=2)
    with pytest.raises(ValueError, match="domain"):
        engine.share(np.array([0, 1, 0]))
    engine.share(np.array([1, 1, 0]))
    assert engine.run(1 << 60, 10**9) == 2
