"""Scenario tables of the topologies; which switches and cables they give is the business of `fabemu.topology`."""

import difflib
import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from fabemu.counted import counted
from fabemu.deferred import dataclass
from fabemu.scenario.quantity import DEVICES_MAX, Count, Devices, Flag, Length, Rate, Ratio, Text, Time
from fabemu.scenario.table import Broken, Table, optional

PS_PER_METRE = 5_000
"""Propagation in fibre and copper, 5 ns/m."""


def delay_of_length(length_m: Fraction) -> Fraction:
    """Propagation delay of a cable, in ps."""
    return length_m * PS_PER_METRE


class _Fabric(Table):
    """What all topologies have in common."""

    @property
    def gpus_of_node(self) -> int:
        """Hosts of each node: consecutive ones; 1 where every host is a node of its own."""
        return getattr(self, "gpus_per_node", None) or 1

    @property
    def storage_joins(self) -> str | None:
        """Tier of the switches that storage leaves of a converged fabric are cabled to; None if there are none."""
        return None

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("switch",)

    def link_tiers(self) -> tuple[str, ...] | None:
        """Tiers that [link.tier.*] may name; None if only a file of the user tells."""
        return ("host", "trunk")

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name, None if the name tells nothing."""
        return "switch"


class Frontend(Table):
    """Storage hosts s0.., and how GPUs reach them: by a network of their own, or converged with the fabric of the GPUs.

    By a network of their own: a leaf-spine fleaf0.., sleaf0.. (storage), fspine0.., in which every node has one NIC, a
    host n0f, n1f and so on. No path joins it with the fabric of the GPUs. Converged: leaves sleaf0.. with the storage
    hosts are cabled to the spines of the GPUs' fabric (the cores of a fat tree, the switch of a single one).
    """

    storage_hosts: Count = Field(description="storage hosts")
    converged: Flag = optional(
        False, description="storage hangs on the fabric of the GPUs, and nodes have no other NIC"
    )
    storage_leaves: Count = optional(1, description="leaf switches of the storage hosts, which are dealt out evenly")
    leaves: Count | None = optional(None, description="leaf switches of the nodes, 1 by default; not if converged")
    spines: Count | None = optional(None, description="spine switches, 1 by default; not if converged")
    uplinks: Count = optional(1, description="parallel links between each of these leaves and each spine")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.storage_leaves > self.storage_hosts:
            yield ("storage_leaves",), f"more leaves than storage hosts: at most {self.storage_hosts:,}"
        for key in ("leaves", "spines"):
            if self.converged and getattr(self, key) is not None:
                yield (key,), "a converged frontend has no network of its own: leave it out, or converged = false"


_FRONTEND = "storage, and the network that leads to it"


def _frontend_rules(table: Any, hosts: int) -> Iterator[Broken]:
    """Yield what is wrong between [fabric.frontend] and a fabric of so many hosts of GPUs."""
    frontend: Frontend | None = table.frontend
    if frontend is None:
        return
    nodes = hosts // table.gpus_of_node
    if frontend.converged and table.storage_joins is None:
        message = f"a {table.kind} fabric has no spines that storage leaves could be cabled to: leave it out"
        yield ("frontend", "converged"), message
    if not frontend.converged and (frontend.leaves or 1) > nodes:
        yield ("frontend", "leaves"), f"more leaves than nodes: at most {nodes:,}"
    if hosts + nodes + frontend.storage_hosts > DEVICES_MAX:
        yield ("frontend", "storage_hosts"), f"with the GPUs, more than the {DEVICES_MAX:,} hosts that are supported"
    leaves = frontend.storage_leaves if frontend.converged else frontend.storage_leaves + (frontend.leaves or 1)
    links = leaves * frontend.uplinks * (1 if frontend.converged else frontend.spines or 1)
    if leaves + (frontend.spines or 1) > DEVICES_MAX or links > 4 * DEVICES_MAX:
        yield ("frontend", "storage_leaves"), f"gives {leaves:,} leaves and {links:,} links: more than are supported"


def _frontend_switch_tiers(frontend: Frontend | None) -> tuple[str, ...]:
    if frontend is None:
        return ()
    return ("storage-leaf",) if frontend.converged else ("frontend-leaf", "storage-leaf", "frontend-spine")


def _frontend_link_tiers(frontend: Frontend | None) -> tuple[str, ...]:
    if frontend is None:
        return ()
    return ("storage", "storage-fabric") if frontend.converged else ("frontend", "storage", "frontend-fabric")


def _tier_by_name(name: str, tiers: dict[str, str]) -> str | None:
    """Tier of a switch by what its name begins with, a plane "p0-" left out."""
    plain = re.sub(r"^p\d+-", "", name)
    known = {**tiers, "fleaf": "frontend-leaf", "fspine": "frontend-spine", "sleaf": "storage-leaf"}
    return next((tier for prefix, tier in known.items() if re.match(rf"{prefix}\d", plain)), None)


Planes = Annotated[int, Strict(), Field(ge=1, le=16)]
_PLANES = "equal networks that only hosts join: every host has a port in each, and spreads its queue pairs by hash"
_GPUS_PER_NODE = "hosts that make a node, consecutive ones; default: every host is a node of its own"


def _node_rules(hosts: int, gpus_per_node: int | None) -> Iterator[Broken]:
    """Yield a number of hosts that makes no whole nodes."""
    if gpus_per_node is not None and hosts % gpus_per_node:
        below = hosts - hosts % gpus_per_node
        fitting = " or ".join(f"{count:,}" for count in (below, below + gpus_per_node) if count)
        yield (
            ("gpus_per_node",),
            f"the fabric has {hosts:,} hosts, not a multiple of gpus_per_node = {gpus_per_node:,}: {fitting} would make"
            " whole nodes",
        )


def _too_many(key: str, hosts: int, switches: int) -> Iterator[Broken]:
    for noun, number in (("hosts", hosts), ("switches", switches)):
        if number > DEVICES_MAX:
            yield (key,), f"this fabric has {number:,} {noun}; at most {DEVICES_MAX:,} are supported"


class LeafSpine(_Fabric):
    """Two tiers: every leaf is cabled to every spine. Devices are h0.., leaf0.., spine0..

    With several planes the switches are p0-leaf0.., p1-leaf0.. and so on, and every host has a port in each plane.
    """

    kind: Literal["leaf-spine"] = "leaf-spine"
    leaves: Count = Field(description="leaf switches")
    hosts_per_leaf: Count = Field(description="hosts of each leaf")
    spines: Count = Field(description="spine switches")
    uplinks: Count = optional(1, description="parallel links between each leaf and each spine")
    planes: Planes = optional(1, description=_PLANES)
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        hosts = self.leaves * self.hosts_per_leaf
        yield from _node_rules(hosts, self.gpus_per_node)
        yield from _too_many("leaves", hosts, self.planes * (self.leaves + self.spines))
        yield from _too_many_links("spines", self.planes * self.leaves * self.spines * self.uplinks)
        yield from _frontend_rules(self, hosts)

    @property
    def storage_joins(self) -> str | None:
        """Tier of the switches that storage leaves of a converged fabric are cabled to."""
        return "spine"

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("leaf", "spine", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "fabric", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"leaf": "leaf", "spine": "spine"})


def _too_many_links(key: str, links: int) -> Iterator[Broken]:
    if links > 4 * DEVICES_MAX:
        yield (key,), f"this fabric has {links:,} switch links; at most {4 * DEVICES_MAX:,} are supported"


@dataclass(frozen=True)
class FatTreeShape:
    """Resolved dimensions of a fat tree."""

    pods: int
    edges_per_pod: int
    aggs_per_pod: int
    cores: int
    hosts_per_edge: int


_EXPLICIT = ("pods", "edges_per_pod", "aggs_per_pod", "cores", "hosts_per_edge")


class FatTree(_Fabric):
    """Three tiers, k-ary or by explicit counts. Devices are h0.., edge{pod}-{i}, agg{pod}-{i}, core0..

    Aggregation switch i of every pod is cabled to cores i * cores / aggs_per_pod onwards.
    """

    kind: Literal["fat-tree"] = "fat-tree"
    k: Annotated[int, Strict(), Field(ge=2, le=1024)] | None = Field(
        None, description="ports per switch of a k-ary fat tree, even; instead of the five counts"
    )
    pods: Count | None = optional(None, description="pods")
    edges_per_pod: Count | None = optional(None, description="edge switches of each pod")
    aggs_per_pod: Count | None = optional(None, description="aggregation switches of each pod")
    cores: Count | None = optional(None, description="core switches, a multiple of aggs_per_pod")
    hosts_per_edge: Count | None = optional(None, description="hosts of each edge switch, before oversubscription")
    oversubscription: Ratio = optional(
        "1", description="at the edge: multiplies the hosts of each edge switch", examples=["2:1"]
    )
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    @property
    def storage_joins(self) -> str | None:
        """Tier of the switches that storage leaves of a converged fabric are cabled to."""
        return "core"

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        given = [key for key in _EXPLICIT if getattr(self, key) is not None]
        missing = [key for key in _EXPLICIT if key not in given]
        if self.k is not None and given:
            yield ("k",), f"give k or the explicit counts, not both ({', '.join(given)})"
        elif self.k is None and missing:
            wanted = f"{', '.join(missing)} missing" if given else "dimensions missing"
            yield (), f"{wanted}: give k (even), or {', '.join(_EXPLICIT)}"
        elif self.k is not None and self.k % 2:
            yield ("k",), f"k must be even: {self.k - 1} or {self.k + 1}"
        else:
            if self.k is None and self._count("cores") % self._count("aggs_per_pod"):
                yield ("cores",), f"must be a multiple of aggs_per_pod = {self.aggs_per_pod}"
            hosts = self._base_hosts() * self.oversubscription
            if hosts.denominator != 1:
                yield (
                    ("oversubscription",),
                    f"gives {self._base_hosts()} x {self.oversubscription} = {float(hosts):g} hosts per edge switch,"
                    " not a whole number",
                )
            else:
                shape = self.shape
                edges = shape.pods * shape.edges_per_pod
                yield from _node_rules(edges * shape.hosts_per_edge, self.gpus_per_node)
                switches = edges + shape.pods * shape.aggs_per_pod + shape.cores
                yield from _too_many("k" if self.k else "pods", edges * shape.hosts_per_edge, switches)
                links = edges * shape.aggs_per_pod + shape.pods * shape.cores
                yield from _too_many_links("k" if self.k else "pods", links)
                yield from _frontend_rules(self, edges * shape.hosts_per_edge)

    def _count(self, key: str) -> int:
        value: int | None = getattr(self, key)
        if value is None:
            raise ValueError(f"{key} is not given")
        return value

    def _base_hosts(self) -> int:
        return self.k // 2 if self.k is not None else self._count("hosts_per_edge")

    @property
    def shape(self) -> FatTreeShape:
        """The five counts, with k and oversubscription worked in."""
        hosts = int(self._base_hosts() * self.oversubscription)
        if self.k is not None:
            half = self.k // 2
            return FatTreeShape(self.k, half, half, half * half, hosts)
        return FatTreeShape(
            self._count("pods"), self._count("edges_per_pod"), self._count("aggs_per_pod"), self._count("cores"), hosts
        )

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("edge", "agg", "core", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "edge-agg", "agg-core", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"edge": "edge", "agg": "agg", "core": "core"})


class Chain(_Fabric):
    """Switches in a row: sw0 - sw1 - ..., hosts h0.. in switch order."""

    kind: Literal["chain"] = "chain"
    switches: Count = Field(description="switches")
    hosts_per_switch: Count = optional(1, description="hosts of each switch")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _too_many("hosts_per_switch", self.switches * self.hosts_per_switch, self.switches)


class Dumbbell(_Fabric):
    """Two switches, sw0 with the left hosts (first) and sw1 with the right ones."""

    kind: Literal["dumbbell"] = "dumbbell"
    left: Count = Field(description="hosts at sw0")
    right: Count = Field(description="hosts at sw1")
    trunks: Count = optional(1, description="parallel links between the two switches")

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _too_many("left", self.left + self.right, 2)


class SingleSwitch(_Fabric):
    """One switch, sw0, and its hosts h0.."""

    kind: Literal["single-switch"] = "single-switch"
    hosts: Count = Field(description="hosts")
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _node_rules(self.hosts, self.gpus_per_node)
        yield from _frontend_rules(self, self.hosts)

    @property
    def storage_joins(self) -> str | None:
        """Tier of the switches that storage leaves of a converged fabric are cabled to."""
        return "switch"

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("switch", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"sw": "switch"})


class Rail(_Fabric):
    """Rail-optimised: NIC k of every node is in rail k, whose leaf rail{k} is cabled to every spine.

    Hosts are GPUs with their NIC: n0g0, n0g1, ..., n1g0 and so on. With several leaves per rail (nodes_per_leaf) they
    are rail{k}-{unit}; spines are spine0... With several planes all of these are p0-rail0.., p1-rail0.. and so on.
    """

    kind: Literal["rail"] = "rail"
    nodes: Count = Field(description="nodes, n0..")
    gpus_per_node: Count = optional(8, description="GPUs of each node, and rails")
    spines: Count = Field(description="spine switches of each plane")
    nodes_per_leaf: Count | None = optional(
        None, description="nodes of a scalable unit, which has a leaf in every rail; default: all nodes"
    )
    uplinks: Count = optional(1, description="parallel links between each leaf and each spine")
    planes: Planes = optional(1, description=_PLANES)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.nodes_per_leaf is not None and self.nodes_per_leaf > self.nodes:
            yield ("nodes_per_leaf",), f"there are {self.nodes:,} nodes only: at most {self.nodes:,}, or leave it out"
            return
        hosts, leaves = self.nodes * self.gpus_per_node, self.units * self.gpus_per_node
        yield from _too_many("nodes", hosts, self.planes * (leaves + self.spines))
        yield from _too_many_links("spines", self.planes * leaves * self.spines * self.uplinks)
        yield from _frontend_rules(self, hosts)

    @property
    def units(self) -> int:
        """Leaves of each rail in each plane."""
        return -(-self.nodes // (self.nodes_per_leaf or self.nodes))

    @property
    def storage_joins(self) -> str | None:
        """Tier of the switches that storage leaves of a converged fabric are cabled to."""
        return "spine"

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("leaf", "spine", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "fabric", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"rail": "leaf", "spine": "spine"})


class RailOnly(_Fabric):
    """Rail-only: NIC k of every node is on switch rail{k}, and nothing joins the rails.

    Hosts are n0g0, n0g1, ..., n1g0 and so on. Traffic from one rail to another must go through the GPU of that rail in
    its own node, by the scale-up network ([scale_up]): it is two messages. With several planes the switches are
    p0-rail0.., p1-rail0.. and so on.
    """

    kind: Literal["rail-only"] = "rail-only"
    nodes: Count = Field(description="nodes, n0..")
    gpus_per_node: Count = optional(8, description="GPUs of each node, and rails")
    planes: Planes = optional(1, description=_PLANES)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        hosts = self.nodes * self.gpus_per_node
        yield from _too_many("nodes", hosts, self.planes * self.gpus_per_node)
        yield from _frontend_rules(self, hosts)

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("leaf", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"rail": "leaf"})


class Torus(_Fabric):
    """Torus of two or three dimensions: switch t{x}-{y}[-{z}] is cabled to its neighbours, round each dimension.

    Hosts h0.. are on the switches in the order of x, then y, then z. A dimension of 2 has one cable, not two.
    """

    kind: Literal["torus"] = "torus"
    dimensions: tuple[Count, ...] = Field(description="switches along x, y and perhaps z", examples=[[4, 4]])
    hosts_per_switch: Count = optional(1, description="hosts of each switch")
    routing: Literal["dimension-order", "shortest"] = optional(
        "dimension-order",
        description="dimension-order: one path, along x, then y, then z, each the shorter way round; shortest: all"
        " shortest paths, by hash",
    )
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if len(self.dimensions) not in (2, 3):
            text = counted(len(self.dimensions), "dimension")
            yield ("dimensions",), f"a torus has two or three dimensions, not {text}: write [4, 4] or [4, 4, 4]"
            return
        for index, size in enumerate(self.dimensions):
            if size < 2:
                message = f"a ring of {size} switch: a torus needs at least 2 along {'xyz'[index]}"
                yield ("dimensions", index), message + ("; leave z out" if index == 2 else "")
                return
        switches = math.prod(self.dimensions)
        hosts = switches * self.hosts_per_switch
        yield from _too_many("dimensions", hosts, switches)
        yield from _node_rules(hosts, self.gpus_per_node)
        yield from _frontend_rules(self, hosts)

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("switch", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name: those of the dimensions are x, y and z."""
        # A table with wrong dimensions has none of them when the rest of the file is looked at.
        axes = "xyz"[: len(getattr(self, "dimensions", "xyz"))]
        return ("host", *axes, *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"t": "switch"})


class Dragonfly(_Fabric):
    """Dragonfly: the routers of a group are all cabled to each other, and every two groups by global links.

    Hosts h0.. are on the routers r{group}-{i} in order. Routes are minimal: one global link between two groups, with at
    most one local link before it and one after it.
    """

    kind: Literal["dragonfly"] = "dragonfly"
    groups: Count = Field(description="groups")
    routers_per_group: Count = Field(description="routers of each group, a")
    hosts_per_router: Count = optional(1, description="hosts of each router, p")
    global_links: Count = Field(description="global links of each router, h: a group has a x h of them")
    routing: Literal["minimal"] = optional("minimal", description="all minimal paths, by hash")
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)
    frontend: Frontend | None = optional(None, description=_FRONTEND)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        per_group = self.routers_per_group * self.global_links
        if self.groups > per_group + 1:
            least = -(-(self.groups - 1) // self.routers_per_group)
            yield (
                ("groups",),
                f"{self.routers_per_group:,} routers x {self.global_links:,} global links of a group reach"
                f" {per_group:,} other groups: at most {per_group + 1:,} groups, or global_links = {least:,}",
            )
            return
        routers = self.groups * self.routers_per_group
        hosts = routers * self.hosts_per_router
        yield from _too_many("groups", hosts, routers)
        local = self.groups * self.routers_per_group * (self.routers_per_group - 1) // 2
        yield from _too_many_links("groups", local + self.groups * per_group // 2)
        yield from _node_rules(hosts, self.gpus_per_node)
        yield from _frontend_rules(self, hosts)

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("router", *_frontend_switch_tiers(self.frontend))

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "local", "global", *_frontend_link_tiers(self.frontend))

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return _tier_by_name(name, {"r": "router"})


class GraphLink(Table):
    """One cable of a graph; what it does not say comes from [link]."""

    a: Text = Field(description="device at one end")
    b: Text = Field(description="device at the other end")
    rate: Rate | None = optional(None, description="rate of each direction")
    delay: Time | None = optional(None, description="propagation delay; or give length")
    length: Length | None = optional(None, description="cable length, 5 ns/m; or give delay")
    tier: Text | None = optional(None, description='tier for [link.tier.*]; "host" if an end is a host, else "fabric"')

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from length_rules(self)
        if self.a == self.b:
            yield ("b",), f'the link joins "{self.a}" to itself'

    @property
    def delay_ps(self) -> int | None:
        """Propagation delay by `delay` or `length`, None if neither is given."""
        return self.delay if self.length is None else int(delay_of_length(self.length))


def length_rules(table: Any) -> Iterator[Broken]:
    """Yield what is wrong between `delay` and `length` of any table that has both."""
    if table.delay is not None and table.length is not None:
        yield ("length",), "delay and length are both given: give one of them"
    if table.length is not None and delay_of_length(table.length).denominator != 1:
        yield ("length",), "gives no whole number of picoseconds at 5 ns/m"


class Graph(_Fabric):
    """Explicit devices and cables, from the scenario or from a CSV file (columns a, b[, rate, delay, length, tier])."""

    kind: Literal["graph"] = "graph"
    hosts: Devices = Field(description="host names, or how many (h0..)", examples=[["a", "b"]])
    switches: Devices = optional(0, description="switch names, or how many (sw0..)")
    links: tuple[GraphLink, ...] = optional((), description="cables")
    links_csv: Text | None = optional(None, description="file with the cables, beside the scenario; instead of links")
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of the hosts, in order."""
        return self.hosts if isinstance(self.hosts, tuple) else tuple(f"h{index}" for index in range(self.hosts))

    @property
    def switch_names(self) -> tuple[str, ...]:
        """Names of the switches, in order."""
        if isinstance(self.switches, tuple):
            return self.switches
        return tuple(f"sw{index}" for index in range(self.switches))

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        if self.links and self.links_csv is not None:
            yield ("links_csv",), "links and links_csv are both given: give one of them"
        hosts, switches = set(self.host_names), set(self.switch_names)
        if not hosts:
            yield ("hosts",), "a fabric needs at least one host"
        yield from _node_rules(len(hosts), self.gpus_per_node)
        for name in self.switch_names:
            if name in hosts:
                yield ("switches",), f'"{name}" is a host and a switch'
        devices = hosts | switches
        for index, link in enumerate(self.links):
            for key, name in (("a", link.a), ("b", link.b)):
                if name not in devices:
                    yield (
                        ("links", index, key),
                        f'there is no device "{name}" in hosts or switches' + close_to(name, devices),
                    )

    def link_tiers(self) -> tuple[str, ...] | None:
        """Tiers that [link.tier.*] may name."""
        if self.links_csv is not None:
            return None
        return tuple(dict.fromkeys(("host", "fabric", *(link.tier for link in self.links if link.tier is not None))))


def close_to(name: str, names: Any) -> str:
    """Write the did-you-mean of a name for the end of a message, or nothing."""
    close = difflib.get_close_matches(name, sorted(names) if len(names) < 5_000 else [], 1, 0.6)
    return f'; did you mean "{close[0]}"?' if close else ""


AnyFabric = Annotated[
    LeafSpine | FatTree | Rail | RailOnly | Torus | Dragonfly | Chain | Dumbbell | SingleSwitch | Graph,
    Field(discriminator="kind"),
]
