"""Capacity: oversubscription by tier, uneven equal-cost next hops, uneven rails and planes."""

from __future__ import annotations

from collections import Counter, deque
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fabemu.counted import counted
from fabemu.distinct import distinct
from fabemu.lint.finding import Finding, Grouped, Rule
from fabemu.lint.reach import carried, demand, routed
from fabemu.lint.subject import Subject
from fabemu.plan import BALANCE_ECMP, BALANCE_SPRAY, NONE, ROUTE_SET_BASE
from fabemu.units import format_rate

_DOWN_AND_UP = (
    "ratio = down / up, with down the rates of a switch's links to hosts and to switches nearer to hosts, and up "
    "those to switches farther from them; where no switch is farther (a chain, a ring), up are the links to other "
    "switches."
)
OVERSUBSCRIBED = Rule(
    code="FB321",
    severity="note",
    title="oversubscribed tier",
    meaning="The switches of a tier have more capacity towards the hosts than away from them, all by the same ratio, "
    "or in a fabric without tiers.",
    reason="If all hosts send across the fabric, they get 1/ratio of their link at best, and the links up are where "
    "queues and pauses begin. As a design this is a choice; it belongs beside every figure that comes out.",
    formula=_DOWN_AND_UP,
    source="Al-Fares et al., A Scalable, Commodity Data Center Network Architecture, SIGCOMM 2008 (oversubscription).",
    remedy="More or faster uplinks, or fewer hosts per switch; or nothing.",
)
UNEVEN = Rule(
    code="FB322",
    severity="warning",
    title="switches of one tier oversubscribed differently",
    meaning="In a fabric of tiers, switches of the same tier differ in their ratio of down to up, and some are "
    "oversubscribed.",
    reason="A forgotten cable or a slower link makes one part of the fabric the bottleneck of all; schedulers that "
    "take hosts for equal are wrong.",
    formula=_DOWN_AND_UP,
    source="As FB321.",
    remedy="Look at the cables and rates of the switches named.",
)
MIXED = Rule(
    code="FB323",
    severity="warning",
    title="equal-cost next hops of different rates",
    meaning="The ports of one equal-cost set that flows of the scenario may meet differ in rate, and the switch "
    "chooses by load_balancing = ecmp or spray.",
    reason="Each next hop gets the same share of the flows, or of the packets: the slow ones are congested while the "
    "fast ones are idle.",
    formula="usable = n x the slowest rate of the set",
    source="MODEL section 8; RFC 2992.",
    remedy='Give parallel paths the same rate, or load_balancing = "weighted".',
)
RAILS = Rule(
    code="FB324",
    severity="warning",
    title="rails or planes that do not match",
    meaning="Checked where some host has several links: the links of one host differ in rate; hosts differ in the "
    "number or rates of their links from most others; planes (parts of the fabric that only hosts join) differ in "
    "switches, in links to hosts or in capacity between switches.",
    reason="A collective runs at the speed of its slowest rail. Missing cables and NICs that came up at a lower rate "
    "look exactly like this.",
    formula="",
    source="NVIDIA, DGX SuperPOD reference architecture (rail-optimised fabrics: link k of every host in rail k).",
    remedy="Compare the cables of the hosts and planes named with those of the others.",
)
RULES = (OVERSUBSCRIBED, UNEVEN, MIXED, RAILS)


def oversubscription(subject: Subject) -> list[Finding]:
    """FB321 and FB322."""
    plan = subject.plan
    level = _levels(subject)
    tiered = bool((level > 0).any())
    by_tier: dict[str, dict[int, tuple[int, int]]] = {}
    own, other = level[plan.port_node], level[subject.peer_node]
    to_host = subject.peer_node < plan.host_count
    down_port = to_host | (other < own)
    up_port = ~to_host & ((other > own) | (not tiered))
    down, up = np.zeros(plan.node_count, dtype=np.int64), np.zeros(plan.node_count, dtype=np.int64)
    np.add.at(down, plan.port_node[down_port], plan.port_rate_bps[down_port])
    np.add.at(up, plan.port_node[up_port], plan.port_rate_bps[up_port])
    for at, tier in enumerate(subject.compiled.fabric.switch_tiers):
        node = plan.host_count + at
        if up[node] and down[node]:
            by_tier.setdefault(tier, {})[node] = int(down[node]), int(up[node])
    even, uneven = Grouped(OVERSUBSCRIBED), Grouped(UNEVEN)
    for tier, switches in by_tier.items():
        ratios = {node: Fraction(below, above) for node, (below, above) in switches.items()}
        different = tiered and len(set(ratios.values())) > 1
        usual = Counter(ratios.values()).most_common(1)[0][0]
        for node, (below, above) in switches.items():
            ratio = ratios[node]
            text = f"{format_rate(below)} down, {format_rate(above)} up, {float(ratio):.3g}:1"
            if different and max(ratios.values()) > 1 and ratio != usual:
                message = f"{text}; most switches of tier {tier} have {float(usual):.3g}:1"
                uneven.add(subject.node(node), message, ratio=float(ratio), usual=float(usual))
            elif ratio > 1:
                even.add(subject.node(node), f"{text} (tier {tier})", ratio=float(ratio))
    return [*uneven.findings(), *even.findings()]


def _levels(subject: Subject) -> NDArray[np.int64]:
    """(N,) links from a switch to the nearest switch with hosts; -1 for hosts and for what no host reaches."""
    plan = subject.plan
    level = np.full(plan.node_count, -1, dtype=np.int64)
    beside = distinct(plan.port_node[(subject.peer_node < plan.host_count) & (plan.port_node >= plan.host_count)])
    level[beside] = 0
    queue = deque(beside.tolist())
    while queue:
        node = queue.popleft()
        peers = subject.peer_node[plan.node_port_start[node] : plan.node_port_start[node + 1]]
        for peer in distinct(peers[(peers >= plan.host_count) & (level[peers] < 0)]).tolist():
            level[peer] = level[node] + 1
            queue.append(peer)
    return level


def mixed_rates(subject: Subject) -> list[Finding]:
    """FB323."""
    plan, found = subject.plan, Grouped(MIXED)
    if not len(plan.nexthop_port):
        return []
    rate = plan.port_rate_bps[plan.nexthop_port]
    first = plan.nexthop_start[:-1]
    slowest, fastest = np.minimum.reduceat(rate, first), np.maximum.reduceat(rate, first)
    node = plan.port_node[plan.nexthop_port[first]]
    evenly = np.ones(plan.node_count, dtype=np.bool_)
    evenly[plan.host_count :] = np.isin(plan.switch_balance, (BALANCE_ECMP, BALANCE_SPRAY))
    mixed = np.flatnonzero((slowest != fastest) & evenly[node]).tolist()
    if not mixed:
        return []
    table = routed(plan, 0)
    (carry,) = carried(plan, [table], demand(plan))
    for number in mixed:
        members = plan.nexthop_port[plan.nexthop_start[number] : plan.nexthop_start[number + 1]]
        entries = plan.route[: len(plan.route) // plan.route_epochs].reshape(-1, plan.group_count)
        groups = np.flatnonzero(entries[plan.node_route_row[plan.port_node[members[0]]]] == ROUTE_SET_BASE - number)
        if not (carry[members[0], groups // 64] >> (groups % 64).astype(np.uint64) & np.uint64(1)).any():
            continue
        rates = Counter(plan.port_rate_bps[members].tolist())
        text = " and ".join(f"{count} of {format_rate(value)}" for value, count in sorted(rates.items()))
        message = f"equal-cost next hops differ in rate: {text}; each gets the same share of the flows"
        found.add(
            subject.node(int(plan.port_node[members[0]])), message, slowest_bps=min(rates), fastest_bps=max(rates)
        )
    return found.findings()


def rails(subject: Subject) -> list[Finding]:
    """FB324."""
    plan, found = subject.plan, Grouped(RAILS)
    # Storage and frontend NICs are on planes of their own, or on one only; the scale-up network is no rail.
    rate_bps = np.where(subject.scale_up, 0, plan.port_rate_bps)
    links = [
        tuple(sorted(rate for rate in rate_bps[first:last].tolist() if rate)) if server != NONE else ()
        for first, last, server in zip(
            plan.node_port_start[: plan.host_count].tolist(),
            plan.node_port_start[1 : plan.host_count + 1].tolist(),
            subject.compiled.fabric.host_node.tolist(),
            strict=True,
        )
    ]
    if max(map(len, links), default=0) < 2:
        return []
    usual = Counter(item for item in links if item).most_common(1)[0][0]
    for host, rates in enumerate(links):
        if rates and rates != usual:
            found.add(subject.node(host), f"has {_links(rates)}; most hosts have {_links(usual)}")
        elif len(set(rates)) > 1:
            found.add(subject.node(host), f"the links of one host differ in rate: {_links(rates)}")
    return [*found.findings(), *_planes(subject)]


def _links(rates: tuple[int, ...]) -> str:
    counts = Counter(rates)
    return " and ".join(f"{counted(count, 'link')} of {format_rate(rate)}" for rate, count in counts.items())


def _planes(subject: Subject) -> list[Finding]:
    """Planes that differ from most."""
    plan, hosts = subject.plan, subject.plan.host_count
    plane = np.arange(plan.node_count)
    between = (plan.port_node >= hosts) & (subject.peer_node >= hosts)
    ends, peers = plan.port_node[between], subject.peer_node[between]
    while True:  # the least node id spreads
        before = plane.copy()
        np.minimum.at(plane, ends, plane[peers])
        plane = plane[plane]
        if np.array_equal(before, plane):
            break
    at_host = np.flatnonzero((plan.port_node < hosts) & (subject.peer_node >= hosts) & ~subject.scale_up)
    joined: dict[int, set[int]] = {}
    for host, number in zip(plan.port_node[at_host].tolist(), plane[subject.peer_node[at_host]].tolist(), strict=True):
        joined.setdefault(host, set()).add(number)
    planes = sorted({number for numbers in joined.values() if len(numbers) > 1 for number in numbers})
    if len(planes) < 2:
        return []
    facts = {}
    for number in planes:
        into = at_host[plane[subject.peer_node[at_host]] == number]
        inside = between & (plane[plan.port_node] == number)
        switches = int((plane[hosts:] == number).sum())
        fabric_bps, host_bps = int(plan.port_rate_bps[inside].sum()) // 2, int(plan.port_rate_bps[into].sum())
        facts[number] = (switches, len(into), host_bps, fabric_bps)
    usual = Counter(facts.values()).most_common(1)[0][0]
    found = Grouped(RAILS)
    for number, fact in facts.items():
        if fact != usual:
            found.add(subject.node(number), f"its plane has {_plane(fact)}; other planes have {_plane(usual)}")
    return found.findings()


def _plane(fact: tuple[int, int, int, int]) -> str:
    switches, links, host_bps, fabric_bps = fact
    inner = f", {format_rate(fabric_bps)} between switches" if fabric_bps else ""
    return f"{counted(switches, 'switch')}, {counted(links, 'link')} to hosts of {format_rate(host_bps)}{inner}"
