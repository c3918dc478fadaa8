"""Hypothesis strategy: rings of switches whose hosts send more than the ring carries, half of them into a deadlock."""

from __future__ import annotations

from hypothesis import strategies as st

from fabemu.plan import WATCHDOG_ALERT, WATCHDOG_DROP, WATCHDOG_FORWARD, Plan
from tests.oracle.build import Cable, NicSpec, PortBuffer, SwitchSpec, TrafficClass, Wiring, Work, build_plan
from tests.property.incidents import clockwise

GBPS = 10**9
MTU_BYTES = 1024
FRAME_BYTES = MTU_BYTES + 78


@st.composite
def ring_plans(draw: st.DrawFn) -> Plan:
    """A plan that ends by itself or soon: under PFC or credits, with or without a watchdog."""
    switches, each = draw(st.integers(3, 5)), draw(st.sampled_from([1, 1, 2]))
    hosts = switches * each
    rate = draw(st.sampled_from([25 * GBPS, 100 * GBPS]))
    unit = FRAME_BYTES * 8 * 10**12 // rate
    delay = draw(st.sampled_from([0, 5_000, 3 * unit]))
    lanes: tuple[int, ...] = ()
    if draw(st.sampled_from([False, False, True])):
        lanes = (draw(st.sampled_from([1152, 2304, 6400])),)
    cables = [Cable(host, hosts + host // each, rate, delay, lanes) for host in range(hosts)]
    cables += [Cable(hosts + at, hosts + (at + 1) % switches, rate, delay, lanes) for at in range(switches)]
    class_count = draw(st.sampled_from([1, 1, 2]))
    work = Work()
    for host in range(hosts):
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            hops = draw(st.sampled_from([2, 2, 2, switches - 1, 1]))
            target = (host // each + hops) % switches * each + draw(st.integers(0, each - 1))
            qp = work.qp(host, target, draw(st.integers(0, class_count - 1)))
            work.send(
                qp, MTU_BYTES * draw(st.sampled_from([10, 40, 60])), draw(st.sampled_from([0, 0, unit, 20 * unit]))
            )
    buffer = PortBuffer(
        reserved=draw(st.sampled_from([0, 0, 500, FRAME_BYTES, 3 * FRAME_BYTES])),
        headroom=10**6,
        alpha_q16=draw(st.sampled_from([2**11, 2**13, 2**16])),
        xon_offset=draw(st.sampled_from([0, 0, 100, 2 * FRAME_BYTES])),
        static=draw(st.sampled_from([-1, -1, 2 * FRAME_BYTES])),
    )
    spec = SwitchSpec(
        pool=draw(st.sampled_from([4, 10, 30])) * FRAME_BYTES,
        latency_ps=draw(st.sampled_from([0, unit // 2])),
        buffers=[buffer],
        pause_ps=draw(st.sampled_from([0, 0, 2 * unit, 30 * unit])),
        cell_bytes=1 if lanes else draw(st.sampled_from([1, 1, 208])),
    )
    fields: dict[str, object] = {}
    if draw(st.sampled_from([False, False, True])):
        fields = {
            "watchdog_poll_ps": [draw(st.sampled_from([0, 10 * unit])) for _ in range(switches)],
            "watchdog_detect_ps": [draw(st.sampled_from([10, 25])) * unit] * switches,
            "watchdog_restore_ps": [20 * unit] * switches,
            "watchdog_action": [
                draw(st.sampled_from([WATCHDOG_ALERT, WATCHDOG_DROP, WATCHDOG_FORWARD])) for _ in range(switches)
            ],
            "port_watchdog": [1] * (2 * len(cables)),
        }
    plan = build_plan(
        hosts,
        switches,
        cables,
        work,
        classes=[TrafficClass()] * class_count,
        switch=spec,
        nic=NicSpec(rto_ps=draw(st.sampled_from([200, 10**6])) * unit, retry_count=draw(st.integers(0, 2))),
        mtu_bytes=MTU_BYTES,
        until_ps=draw(st.sampled_from([1_000, 300])) * unit,
        deadlock_interval_ps=draw(st.sampled_from([0, unit // 2 + 1, 7 * unit, 100 * unit])),
        deadlock_stop=draw(st.sampled_from([False, False, True])),
        **fields,
    )
    return clockwise(plan, Wiring(hosts, switches, cables))
