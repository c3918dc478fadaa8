"""Switches in a line: the chain, the dumbbell and the single switch.

Hosts h0.., switches sw0..; cable tiers "host" and "trunk", switch tier "switch".
"""

from __future__ import annotations

from collections.abc import Sequence

from fabemu.topology.cable import Cable, Fabric, host_cables, numbered


def chain(*, switches: int, hosts_per_switch: int) -> Fabric:
    """sw0 - sw1 - ..., with the same number of hosts on each."""
    return _line([hosts_per_switch] * switches, trunks=1)


def dumbbell(*, left: int, right: int, trunks: int) -> Fabric:
    """`left` hosts on sw0, `right` hosts on sw1, and `trunks` parallel cables between the two."""
    return _line([left, right], trunks=trunks)


def single_switch(*, hosts: int) -> Fabric:
    """All hosts on sw0."""
    return _line([hosts], trunks=1)


def _line(hosts_per_switch: Sequence[int], trunks: int) -> Fabric:
    """One switch per entry, each cabled to the next by `trunks` cables."""
    host_count, switch_count = sum(hosts_per_switch), len(hosts_per_switch)
    cables = host_cables(hosts_per_switch, range(host_count, host_count + switch_count))
    cables.extend(
        Cable(switch, switch + 1, "trunk")
        for switch in range(host_count, host_count + switch_count - 1)
        for _ in range(trunks)
    )
    return Fabric(
        host_names=numbered("h", host_count),
        switch_names=numbered("sw", switch_count),
        switch_tiers=["switch"] * switch_count,
        cables=cables,
    )
