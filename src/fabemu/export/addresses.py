"""Addresses and numbers that frames carry and the simulation has no use for: made from ids, the same in every capture.

| what | is |
|---|---|
| MAC of host h | ``02:00:00`` and h in three bytes |
| MAC of switch s | ``02:00:01`` and s in three bytes, counted from 0 |
| IPv4 address of host h | 10.0.0.1 + h |
| address of its tunnel end | 172.16.0.1 + h |
| queue pair number, at both ends | 256 + the queue pair's number in the tables |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import InputError
from fabemu.plan import Plan

ROCE_PORT = 4791
"""UDP destination port of RoCEv2."""
VXLAN_PORT = 4789
"""UDP destination port of VXLAN (RFC 7348)."""
QP_NUMBER_FIRST = 256
"""Numbers below are few and some are special: 0 and 1 are those of management."""
PFC_DESTINATION = 0x0180C2000001
"""The multicast address of MAC control frames (IEEE 802.3, annex 31B)."""

_MAC_HOST, _MAC_SWITCH = 0x020000_000000, 0x020001_000000
_HOST_NET, _TUNNEL_NET = 0x0A000001, 0xAC100001
_QP_MAX = 2**24 - QP_NUMBER_FIRST
_HOSTS_MAX, _TUNNELS_MAX = 2**24 - 2, 2**20 - 2


def mac(plan: Plan, node: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) int64, MAC addresses of devices by node id."""
    ids = node.astype(np.int64)
    return np.where(ids < plan.host_count, _MAC_HOST + ids, _MAC_SWITCH + ids - plan.host_count)


def ipv4(host: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) int64, IPv4 addresses of hosts."""
    return _HOST_NET + host.astype(np.int64)


def tunnel_ipv4(host: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) int64, IPv4 addresses of the tunnel ends of hosts."""
    return _TUNNEL_NET + host.astype(np.int64)


def refuse_too_many(plan: Plan, *, tunnels: bool) -> None:
    """Raise InputError for more hosts or queue pairs than there are addresses."""
    hosts_max = _TUNNELS_MAX if tunnels else _HOSTS_MAX
    for count, most, what in ((plan.host_count, hosts_max, "hosts"), (plan.qp_count, _QP_MAX, "queue pairs")):
        if count > most:
            raise InputError(f"{count:,} {what}; a capture has addresses for {most:,}")
