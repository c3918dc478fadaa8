"""Hypothesis strategies: small fabrics, parameters and workloads as plans, and the kinds of what happened in a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st

from fabemu.plan import (
    BALANCE_LEAST_LOADED,
    BALANCE_LEAST_LOADED_FLOW,
    BALANCE_SPRAY,
    CC_DCQCN_ADAPTER,
    CC_DCQCN_PAPER,
    CC_FIXED,
    CC_NONE,
    FOREVER_PS,
    NONE,
    NOTIFY_CNP,
    NOTIFY_ECHO,
    VERB_READ,
    VERB_SEND,
    VERB_WRITE,
    Plan,
)
from tests.oracle.build import (
    Cable,
    NicSpec,
    PortBuffer,
    SwitchSpec,
    TrafficClass,
    Wiring,
    Work,
    build_plan,
)
from tests.oracle.packet import READ
from tests.oracle.simulator import OracleResult
from tests.property import incidents

EXAMPLES = int(os.environ.get("FABEMU_EXAMPLES", "75"))
FEATURES = frozenset({"verbs", "selective", "psn-start", "scale-up", "balance"}) | incidents.FEATURES
"""Incidents and options that plans can be drawn with."""
IN_CORE = FEATURES
"""Those that the core has."""
PACKET_LIMIT = 6_000
"""Transmissions of one example; a run with more is cut at that instant."""

GBPS = 10**9
RATES_BPS = [3 * GBPS, 10 * GBPS, 25 * GBPS, 70 * GBPS, 100 * GBPS, 333_333_333_333, 400 * GBPS, 800 * GBPS]
DELAYS_PS = [0, 1, 5_000, 100_000, 600_000, 1_234_567, 3_000_000]


def example_settings(share: float = 1.0) -> settings:
    """Settings of a test: FABEMU_EXAMPLES (default 75) times `share`; the same examples each time unless raised."""
    return settings(
        max_examples=max(1, int(EXAMPLES * share)),
        derandomize="FABEMU_EXAMPLES" not in os.environ,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


KINDS = ("single", "single", "chain", "dumbbell", "leaf-spine", "leaf-spine", "graph", "graph", "back")
"""Of fabrics."""


@st.composite
def fabrics(draw: st.DrawFn, kinds: Sequence[str] = KINDS) -> tuple[str, int, int, list[tuple[int, int]]]:
    """(kind, hosts, switches, cables as node pairs); hosts first."""
    kind = draw(st.sampled_from(kinds))
    small = st.integers(1, 3)
    pairs: list[tuple[int, int]] = []
    if kind == "single":
        hosts, switches = draw(st.integers(2, 6)), 1
        pairs = [(host, hosts) for host in range(hosts)]
    elif kind == "chain":
        switches, each = draw(st.integers(2, 4)), draw(st.integers(1, 2))
        hosts = switches * each
        pairs = [(host, hosts + host // each) for host in range(hosts)]
        pairs += [(hosts + index, hosts + index + 1) for index in range(switches - 1)]
    elif kind == "dumbbell":
        left, right = draw(small), draw(small)
        hosts, switches = left + right, 2
        pairs = [(host, hosts + (host >= left)) for host in range(hosts)]
        pairs += [(hosts, hosts + 1)] * draw(small)
    elif kind == "leaf-spine":
        leaves, each, spines, uplinks = draw(st.integers(2, 3)), draw(small), draw(st.integers(1, 2)), draw(small)
        hosts, switches = leaves * each, leaves + spines
        pairs = [(host, hosts + host // each) for host in range(hosts)]
        for leaf in range(leaves):
            for spine in range(spines):
                pairs += [(hosts + leaf, hosts + leaves + spine)] * uplinks
    elif kind == "graph":
        hosts, switches = draw(st.integers(2, 6)), draw(st.integers(1, 5))
        node = st.integers(hosts, hosts + switches - 1)
        for index in range(1, switches):
            pairs.append((hosts + draw(st.integers(0, index - 1)), hosts + index))
        for _ in range(draw(st.integers(0, 4)) if switches > 1 else 0):
            a, b = draw(node), draw(node)
            if a != b:
                pairs.append((a, b))
        for host in range(hosts):
            # 0 cables: an isolated host; two or three may end at one switch.
            pairs += [(host, draw(node)) for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3, 0])))]
        if draw(st.sampled_from([False] * 7 + [True])):
            pairs.append((0, 1))
    else:
        hosts, switches = 2, draw(st.integers(0, 1))
        pairs = [(0, 1)] * draw(st.integers(1, 2))
        if switches:
            hosts = 3
            pairs += [(0, 3), (1, 3), (2, 3)]
    return kind, hosts, switches, draw(st.permutations(pairs))


@st.composite
def cables(draw: st.DrawFn, pairs: list[tuple[int, int]]) -> list[Cable]:
    """Rates and delays: all equal in half of the cases, so that ties abound."""
    rates = draw(st.lists(st.sampled_from(RATES_BPS), min_size=1, max_size=3))
    delays = draw(st.lists(st.sampled_from(DELAYS_PS), min_size=1, max_size=3))
    if draw(st.booleans()):
        return [Cable(a, b, rates[0], delays[0]) for a, b in pairs]
    return [Cable(a, b, draw(st.sampled_from(rates)), draw(st.sampled_from(delays))) for a, b in pairs]


def multiples(unit: int, *factors: float) -> st.SearchStrategy[int]:
    """Some multiples of a unit, at least 1."""
    return st.sampled_from([max(1, int(unit * factor)) for factor in factors])


@st.composite
def buffers(draw: st.DrawFn, mtu: int, regime: str) -> PortBuffer:
    """Buffer and ECN parameters of a port and class."""
    headroom = {"tight": [0, mtu, 2 * mtu, 6 * mtu], "pfc": [200_000, 10**6], "roomy": [10**6]}[regime]
    # A roomy switch may also be one in which no threshold is ever met.
    kmin = draw(
        st.sampled_from([2**30, 2**30, mtu, 60 * mtu] if regime == "roomy" else [0, 0, mtu, mtu, 3 * mtu, 20 * mtu])
    )
    return PortBuffer(
        reserved=draw(st.sampled_from([0, 0, 100, mtu, 3 * mtu + 7])),
        headroom=draw(st.sampled_from(headroom)),
        alpha_q16=draw(
            st.sampled_from([2**13, 2**16, 2**19] if regime == "roomy" else [1, 2**9, 2**13, 2**15, 2**16, 2**19])
        ),
        xon_offset=draw(st.sampled_from([0, 0, 1, mtu, 3 * mtu])),
        egress_alpha_q16=draw(st.sampled_from([1, 2**13, 2**16, 2**20])),
        kmin=kmin,
        kmax=kmin + draw(st.sampled_from([0, 1, 2 * mtu, 10 * mtu])),
        pmax_q32=draw(st.sampled_from([0, 2**28, 2**30, 2**31, 2**32])),
    )


@st.composite
def switches(draw: st.DrawFn, mtu: int, unit: int, class_count: int) -> SwitchSpec:
    """One kind of switch; `unit` is the time of a full frame on a typical link."""
    regime = draw(st.sampled_from(["tight", "pfc", "pfc", "roomy"]))
    pools = {"tight": [0, mtu, 4 * mtu, 16 * mtu, 64 * mtu], "pfc": [0, 3 * mtu, 10 * mtu, 40 * mtu], "roomy": [10**7]}[
        regime
    ]
    return SwitchSpec(
        pool=draw(st.sampled_from(pools)),
        latency_ps=draw(st.sampled_from([0, 0, 1, unit // 3, unit, 5 * unit])),
        buffers=[draw(buffers(mtu, regime)) for _ in range(draw(st.integers(1, class_count)))],
        pause_ps=draw(st.sampled_from([0, 0, unit // 10 + 2, unit, 3 * unit, 10 * unit, 30 * unit, 100 * unit])),
        response_ps=draw(st.sampled_from([0, 0, 1, unit // 2, unit, 4 * unit])),
    )


@st.composite
def nics(draw: st.DrawFn, unit: int, rate_bps: int, frame_max: int) -> NicSpec:
    """One NIC profile with short timers."""
    cc = draw(st.sampled_from([CC_NONE, CC_FIXED, CC_DCQCN_PAPER, CC_DCQCN_PAPER, CC_DCQCN_ADAPTER, CC_DCQCN_ADAPTER]))
    return NicSpec(
        cc=cc,
        notify=draw(st.sampled_from([NOTIFY_CNP, NOTIFY_CNP, NOTIFY_ECHO])),
        fixed_rate_bps=draw(st.sampled_from([rate_bps // 7, rate_bps // 2, rate_bps, 4 * rate_bps])),
        ack_every=draw(st.sampled_from([1, 1, 2, 3, 8])),
        window_packets=draw(st.sampled_from([0, 0, 0, 1, 2, 7, 50])),
        rto_ps=draw(multiples(unit, 1, 30, 100, 1_000, 1_000, 10_000, 10_000)),
        retry_count=draw(st.sampled_from([0, 1, 3, 7, 7, 7])),
        cnp_interval_ps=draw(st.sampled_from([0, 1, unit, 5 * unit, 50 * unit])),
        g=draw(st.sampled_from([1 / 256, 1 / 16, 5 / 1024, 0.5, 1.0])),
        alpha_init=draw(st.sampled_from([1.0, 1023 / 1024, 0.5, 0.0])),
        alpha_timer_ps=draw(multiples(unit, 0.7, 1, 5, 55)),
        decrease_timer_ps=draw(multiples(unit, 0.7, 1, 4, 20)),
        decrease_offset_ps=draw(st.sampled_from([0, 0, 1, unit])),
        increase_timer_ps=draw(multiples(unit, 0.7, 1, 5, 55)),
        byte_reset=draw(st.sampled_from([0, frame_max, 3 * frame_max, 10 * frame_max + 1])),
        threshold=draw(st.sampled_from([0, 1, 2, 5])),
        rate_ai_bps=draw(st.sampled_from([0, rate_bps // 1000, rate_bps // 50])),
        rate_hai_bps=draw(st.sampled_from([0, rate_bps // 200, rate_bps // 9])),
        rate_min_bps=draw(st.sampled_from([1, rate_bps // 1000 + 1, rate_bps // 10, 2 * rate_bps])),
        min_dec_fac=draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
        clamp_target=draw(st.integers(0, 1)),
        response_ps=draw(st.sampled_from([0, 0, 0, 1, unit // 2, 3 * unit])),
    )


@st.composite
def workloads(
    draw: st.DrawFn,
    pairs: list[tuple[int, int]],
    class_count: int,
    mtu: int,
    unit: int,
    features: frozenset[str],
    domain: list[int],
) -> Work:
    """Sends on own and shared QPs, with calcs, receives and dependencies among them; messages inside the domain."""
    work = Work()
    verbs = [VERB_WRITE]
    if "verbs" in features:
        verbs = draw(
            st.sampled_from([[VERB_WRITE], [VERB_WRITE], [VERB_READ], [VERB_WRITE, VERB_SEND, VERB_READ, VERB_READ]])
        )
    budget = draw(st.sampled_from([20, 150, 300, 500]))  # packets of all messages together
    starts = st.sampled_from([0, 0, 0, 0, 1, unit, 7 * unit, 40 * unit])
    incast = draw(st.sampled_from([None, pairs[0][1]]))
    if incast is not None:
        pairs = [pair for pair in pairs if pair[1] == incast]
    for _ in range(draw(st.sampled_from([1, 2, 3, 5, 8, 8, 12, 12]))):
        if work.qps and draw(st.sampled_from([False, False, True])):
            qp = draw(st.integers(0, len(work.qps) - 1))
        else:
            verb = draw(st.sampled_from(verbs)) if len(verbs) > 1 else verbs[0]
            qp = work.qp(*draw(st.sampled_from(pairs)), draw(st.integers(0, class_count - 1)), verb)
        largest = min(budget, 200_000 // mtu)
        whole = min(largest, draw(st.sampled_from([0, 1, 2, 5, 17, 40, 40, 80, 80, 199])))
        size = max(0, whole * mtu + draw(st.sampled_from([0, 0, 1, -1, mtu // 2])))
        budget = max(0, budget - whole)
        source = work.qps[qp].src

        def earlier(host: int) -> list[int]:
            own = [op for op, item in enumerate(work.operations) if item.host == host]
            chosen = draw(st.sampled_from([0, 0, 1, 2]))
            return sorted({draw(st.sampled_from(own)) for _ in range(chosen)}) if own else []

        if draw(st.sampled_from([False, False, False, True])):
            work.calc(source, draw(st.sampled_from([0, 0, 1, unit, 20 * unit])), draw(starts), earlier(source))
        send = work.send(qp, size, draw(starts), earlier(source))
        if work.qps[qp].verb != VERB_READ and draw(st.sampled_from([False, False, True])):
            receiver = work.qps[qp].dst
            recv = work.recv(send, draw(starts), earlier(receiver))
            if draw(st.booleans()):
                work.calc(receiver, draw(st.sampled_from([0, unit])), 0, [recv])
        for _ in range(draw(st.sampled_from([0, 0, 1, 3])) if domain else 0):
            source, receiver = draw(st.permutations(domain))[:2]
            size = draw(st.sampled_from([0, 1, 1000, 10 * mtu, 10 * mtu, 1000 * mtu]))
            work.scale_up(source, receiver, size, draw(starts), earlier(source), earlier(receiver))
    return work


@st.composite
def plans(draw: st.DrawFn, features: frozenset[str] = IN_CORE, always: frozenset[str] = frozenset()) -> Plan:
    """A whole plan, with none, some or all of the incidents and options among `features`, and `always` those."""
    some = draw(st.sampled_from([0, 0, 1, 1, 2])) if features else 0
    if some < 2:
        features = frozenset(name for name in sorted(features) if some and draw(st.sampled_from([False, False, True])))
    features |= always
    # Where next hops are to be chosen there must be several.
    kinds = ("dumbbell", "leaf-spine", "leaf-spine", "graph") if "balance" in always else KINDS
    is_ring = "deadlock" in features and draw(st.sampled_from([False, False, True]))
    kind, hosts, switch_count, node_pairs = draw(incidents.rings() if is_ring else fabrics(kinds))
    wires = draw(cables(node_pairs))
    wiring = Wiring(hosts, switch_count, wires)
    reach = [wiring.distances(host) for host in range(hosts)]
    pairs = [(a, b) for a in range(hosts) for b in range(hosts) if a != b and a in reach[b]]
    mtu = draw(st.sampled_from([256, 1000, 1024, 4096, 4096]))
    rate = sorted(cable.rate_bps for cable in wires)[len(wires) // 2] if wires else GBPS
    frame_max = mtu + 4 + 62 + 16
    unit = frame_max * 8 * 10**12 // rate
    class_count = draw(st.sampled_from([1, 1, 2, 3, 4, 8]))
    class_id = st.integers(0, class_count - 1)
    scale = incidents.Scale(frame_max, unit, max((cable.delay_ps for cable in wires), default=0), class_count)
    if "credits" in features and ("credits" in always or draw(st.booleans())):
        everywhere = "credits" in always or draw(st.sampled_from([True, True, False]))
        wires = draw(incidents.credit_cables(wires, scale, everywhere))
        wiring = Wiring(hosts, switch_count, wires)
        features -= {"cells", "class-map"}
    classes = [
        TrafficClass(draw(st.sampled_from([True, True, False])), draw(st.sampled_from([True, True, False])), ack)
        for ack in [draw(class_id) for _ in range(class_count)]
    ]
    specs = [draw(switches(mtu, unit, class_count))] * switch_count
    if switch_count > 1 and draw(st.sampled_from([False, False, True])):
        specs[0] = draw(switches(mtu, unit, class_count))
    for index, spec in enumerate(specs if features & incidents.OPTIONS else ()):
        specs[index] = draw(incidents.switch_options(spec, features, scale))
    if "balance" in features:
        by_packet = [BALANCE_SPRAY, BALANCE_LEAST_LOADED] if "balance" in always else []
        policies = st.sampled_from([*range(BALANCE_LEAST_LOADED_FLOW + 1), *by_packet])
        gaps = st.sampled_from([0, 1, unit, 3 * unit, 10 * unit, 100 * unit])
        entries = st.sampled_from([1, 2, 3, 64, 4096])
        specs = [
            replace(spec, balance=draw(policies), flowlet_gap_ps=draw(gaps), flowlet_entries=draw(entries))
            for spec in specs
        ]
        wires = [replace(wire, weight=draw(st.sampled_from([1, 1, 2, 5, 1000]))) for wire in wires]
    profiles = [draw(nics(unit, rate, frame_max)) for _ in range(draw(st.integers(1, 2)))]
    if "selective" in features and ("selective" in always or draw(st.booleans())):
        window = draw(st.sampled_from([1, 2, 7, 64, 1024]))
        reorder = draw(st.sampled_from([1, 1, 2, 5, 64, 4096]))
        profiles = [replace(profile, selective=1, selective_window=window, reorder=reorder) for profile in profiles]
    switch_ports = [port for port, node in enumerate(wiring.port_node) if node >= hosts]
    overrides = {}
    extra: dict[str, Any] = {}
    if switch_ports and draw(st.sampled_from([False, False, True])):
        overrides[draw(st.sampled_from(switch_ports)), draw(class_id)] = draw(buffers(mtu, "tight"))
    if "pfc-enable" in features and hosts and draw(st.sampled_from([False] * 7 + [True])):
        host_ports = [port for port, node in enumerate(wiring.port_node) if node < hosts]
        if host_ports:
            overrides[draw(st.sampled_from(host_ports)), draw(class_id)] = PortBuffer(pfc_obey=0)
    if "storm" in features:
        profiles = [replace(profile, pause_ps=draw(incidents.storm_pause(unit))) for profile in profiles]
    happening = incidents.Incidents()
    if features & incidents.FAULTS:
        happening = draw(incidents.faults(wiring, wires, specs, classes, features, scale))
        extra.update(happening.plan_fields())
    if "receiver" in features and draw(st.booleans()):
        actions, fields = draw(incidents.slow_receivers(wiring, scale))
        happening.actions += actions
        extra |= fields
    if "watchdog" in features and draw(st.booleans()):
        extra |= draw(incidents.watchdogs(wiring, scale))
    if "deadlock" in features:
        extra["deadlock_interval_ps"] = draw(st.sampled_from([0, unit // 2 + 1, 3 * unit, 40 * unit]))
        extra["deadlock_stop"] = draw(st.sampled_from([False, False, True]))
    until = draw(st.sampled_from([FOREVER_PS, FOREVER_PS, 10**12, 300 * unit, 30 * unit + 1]))
    if incidents.storms_for_ever(happening.actions):
        until = min(until, 10**10)
    unrouted = []
    if switch_count and draw(st.sampled_from([False] * 15 + [True])):
        groups = st.integers(0, len(wiring.members) - 1)
        unrouted.append((draw(st.integers(0, switch_count - 1)), draw(groups)))
    if draw(st.sampled_from([False] * 7 + [True])):
        extra |= {"pad_bytes": 1, "header_bytes": 52, "reth_bytes": 0, "ack_bytes": 60, "frame_min_bytes": 60}
    # Whole truncated nanoseconds need frames that last one.
    if all(cable.rate_bps <= 400 * GBPS for cable in wires) and draw(st.sampled_from([False] * 7 + [True])):
        extra["truncate_ns"] = True
    if "psn-start" in features:
        extra["psn_start"] = draw(st.sampled_from([0, 12_345, 2**24 - 1, 2**24 - 20]))
    domain: list[int] = []
    if "scale-up" in features and hosts > 1:
        domain = draw(st.lists(st.integers(0, hosts - 1), min_size=2, max_size=hosts, unique=True))
        rates = [draw(st.sampled_from([rate, 10 * rate, 7 * GBPS + 1])) for _ in range(hosts)]
        latencies = [draw(st.sampled_from([unit, 5 * unit, 1, 10**6])) for _ in range(hosts)]
        extra["host_domain"] = [min(domain) if host in domain else NONE for host in range(hosts)]
        extra["host_scale_up_rate_bps"] = rates
        extra["host_scale_up_latency_ps"] = latencies
    work = draw(workloads(pairs, class_count, mtu, unit, features, domain)) if pairs else Work()
    event("fabric " + kind)
    plan = build_plan(
        hosts,
        switch_count,
        wires,
        work,
        classes=classes,
        cnp_class=draw(class_id),
        switch=specs,
        nic=profiles,
        host_nic=[draw(st.integers(0, len(profiles) - 1)) if len(profiles) > 1 else 0 for _ in range(hosts)],
        port_buffers=overrides,
        unrouted=unrouted,
        epochs=happening.epochs,
        actions=happening.actions,
        same_seed=draw(st.booleans()),
        seed=draw(st.sampled_from([0, 1, 2**64 - 1])),
        mtu_bytes=mtu,
        until_ps=until,
        **extra,
    )
    return incidents.clockwise(plan, wiring) if is_ring and not happening.epochs else plan


def tag(result: OracleResult) -> None:
    """Tell hypothesis what kinds of things happened in a run."""
    causes = {row[5] for row in result.drops}
    ends = {row[7] for row in result.pauses}
    counts = result.counts
    for kind in sorted({row[1] for row in result.events}):
        event(f"event {kind}")
    happened = {
        "packets > 1000": counts["packet_hops"] > 1000,
        "drop headroom_full": 0 in causes,
        "drop shared_full": 1 in causes,
        "drop egress_full": 2 in causes,
        "drop no_route": 3 in causes,
        "retransmission": sum(result.ops["retransmissions"]) > 0,
        "NAK": any(row[2] == 2 for row in result.packets),
        "CNP": any(row[2] == 3 for row in result.packets),
        "echo": any(row[3] & 8 for row in result.packets),
        "pause": bool(result.pauses),
        "pause that was never sent": any(row[1] < 0 for row in result.pauses),
        "pause ended by XON": 0 in ends,
        "pause expired": 1 in ends,
        "pause at the end of the run": 2 in ends,
        "refresh": counts["refreshes"] > 0,
        "mark": sum(result.marks) > 0,
        "timeout": counts["timeouts"] > 0,
        "drop link_down": 5 in causes,
        "drop corrupt": 6 in causes,
        "corrupt PFC": any(row[5] == 6 and row[6] == 4 for row in result.drops),
        "corrupt credit": any(row[5] == 6 and row[6] == 6 for row in result.drops),
        "pause ended by a link": 3 in ends,
        "pause that was sent in vain": any(row[1] >= 0 and row[2] < 0 for row in result.pauses),
        "pause with a parent": any(row[13] >= 0 for row in result.pauses),
        "XOFF of headroom in use": any(row[12] == 0 for row in result.pauses),
        "XOFF at a static threshold": any(row[12] == 2 for row in result.pauses),
        "storm": any(row[12] == 3 for row in result.pauses),
        "credit frames": counts["credit_frames"] > 0,
        "credit refresh": counts["credit_refreshes"] > 0,
        "wait for credits": counts["credit_waits"] > 0,
        "weighted turns": counts["weighted_turns"] > 0,
        "held by a receiver": counts["held_by_receiver"] > 0,
        "XOFF of a receiver": any(row[12] == 4 for row in result.pauses),
        "drop watchdog": 4 in causes,
        "drop receiver_full": 7 in causes,
        "ended by a deadlock": result.deadlocked,
        "read request": any(row[2] == READ for row in result.packets),
        "read request again": any(row[2] == READ and row[3] for row in result.packets),
        "reads held back": counts["reads_held_back"] > 0,
        "revived responder": counts["revived_responders"] > 0,
        "recovery of selective repeat": counts["recoveries"] > 0,
        "QP failure": counts["failed_qps"] > 0,
        "tied arrivals": counts["tied_arrivals"] > 0,
        "merged answers": counts["merged_answers"] > 0,
        "gap that may be no loss": counts["patience"] > 0,
        "choice by load": counts["choices_by_load"] > 0,
        "message inside a domain": counts["scale_up_messages"] > 0,
        "run cut before drained": not result.drained,
        "all done": all(status == 2 for status in result.ops["status"]),
    }
    for name, yes in happened.items():
        if yes:
            event(name)
