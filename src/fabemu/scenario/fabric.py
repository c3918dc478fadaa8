"""Scenario tables of the topologies; which switches and cables they give is the business of `fabemu.topology`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from fabemu.scenario.quantity import DEVICES_MAX, Count, Devices, Length, Rate, Ratio, Text, Time
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

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("switch",)

    def link_tiers(self) -> tuple[str, ...] | None:
        """Tiers that [link.tier.*] may name; None if only a file of the user tells."""
        return ("host", "trunk")

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name, None if the name tells nothing."""
        return "switch"


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
    """Two tiers: every leaf is cabled to every spine. Devices are h0.., leaf0.., spine0.."""

    kind: Literal["leaf-spine"] = "leaf-spine"
    leaves: Count = Field(description="leaf switches")
    hosts_per_leaf: Count = Field(description="hosts of each leaf")
    spines: Count = Field(description="spine switches")
    uplinks: Count = optional(1, description="parallel links between each leaf and each spine")
    gpus_per_node: Count | None = optional(None, description=_GPUS_PER_NODE)

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _node_rules(self.leaves * self.hosts_per_leaf, self.gpus_per_node)
        yield from _too_many("leaves", self.leaves * self.hosts_per_leaf, self.leaves + self.spines)
        yield from _too_many_links("spines", self.leaves * self.spines * self.uplinks)

    def switch_tiers(self) -> tuple[str, ...]:
        """Tiers that [switch.tier.*] may name."""
        return ("leaf", "spine")

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "fabric")

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return name.rstrip("0123456789") if name.startswith(("leaf", "spine")) else None


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
        return ("edge", "agg", "core")

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host", "edge-agg", "agg-core")

    def switch_tier(self, name: str) -> str | None:
        """Tier of the switch of this name."""
        return next((tier for tier in self.switch_tiers() if name.startswith(tier)), None)


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

    def rules(self) -> Iterator[Broken]:
        """Yield what is wrong between the keys."""
        yield from _node_rules(self.hosts, self.gpus_per_node)

    def link_tiers(self) -> tuple[str, ...]:
        """Tiers that [link.tier.*] may name."""
        return ("host",)


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
    LeafSpine | FatTree | Chain | Dumbbell | SingleSwitch | Graph,
    Field(discriminator="kind"),
]
