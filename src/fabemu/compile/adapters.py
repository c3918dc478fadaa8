"""NIC profiles: hosts whose adapters are set alike share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabemu.errors import Problem, ScenarioError
from fabemu.plan import CC_DCQCN_ADAPTER, CC_DCQCN_PAPER, CC_FIXED, CC_NONE, NOTIFY_CNP, NOTIFY_ECHO, VERB_READ
from fabemu.scenario.device import CongestionControl, Nic
from fabemu.scenario.model import Scenario
from fabemu.topology.cable import Fabric

RTO_UNIT_PS = 4_096_000
"""Retransmission timeouts are 4.096 us x 2^timeout."""


def compile_adapters(scenario: Scenario, fabric: Fabric) -> dict[str, NDArray[Any]]:
    """`host_nic` and the `nic_*` fields of `Plan`, by name.

    Without DCQCN anywhere nobody reacts to notifications, and receivers send no CNP frames.
    """
    nics = [scenario.nic_for(name) for name in fabric.host_names]
    notified = any(nic.cc.kind == "dcqcn" for nic in {id(nic): nic for nic in nics}.values())
    profiles: dict[tuple[Any, ...], int] = {}
    by_object: dict[int, int] = {}  # hosts without an override share one object: look at it once
    host_nic = np.zeros(fabric.host_count, dtype=np.int32)
    for host, nic in enumerate(nics):
        if id(nic) not in by_object:
            values = tuple(_profile(nic, scenario.nic.mtu, notified=notified).values())
            by_object[id(nic)] = profiles.setdefault(values, len(profiles))
        host_nic[host] = by_object[id(nic)]
    names = _profile(nics[0], scenario.nic.mtu, notified=notified)
    fields: dict[str, NDArray[Any]] = {
        name: np.array(column) for name, column in zip(names, zip(*profiles, strict=True), strict=True)
    }
    return fields | {"host_nic": host_nic}


def refuse_unlike_ends(fields: dict[str, NDArray[Any]], host_names: Sequence[str]) -> None:
    """Raise ScenarioError for QPs whose ends do not repeat lost packets in the same way.

    `fields` are those of `Plan` by name. A QP that reads takes no part in it.
    """
    profile = np.where(fields["nic_selective"], fields["nic_selective_window"], 0)[fields["host_nic"]]
    src, dst = fields["qp_src"], fields["qp_dst"]
    unlike = np.flatnonzero((profile[src] != profile[dst]) & (fields["qp_verb"] != VERB_READ))
    if not len(unlike):
        return
    a, b = int(src[unlike[0]]), int(dst[unlike[0]])

    def way(host: int) -> str:
        window = int(profile[host])
        return (
            f"{host_names[host]} repeats selectively within {window} packets"
            if window
            else (f"{host_names[host]} goes back N")
        )

    message = f"both ends of a QP must repeat lost packets alike, but {way(a)} and {way(b)}"
    raise ScenarioError(Problem("", "nic.override", message))


def _profile(nic: Nic, mtu_bytes: int, *, notified: bool) -> dict[str, Any]:
    """Values of one profile under the names of `Plan`."""
    cc = nic.cc
    echo = cc.notification == "echo" or not notified
    return {
        "nic_cc": _algorithm(cc),
        "nic_notify": NOTIFY_ECHO if echo else NOTIFY_CNP,
        "nic_fixed_rate_bps": cc.rate if cc.kind == "fixed" and cc.rate is not None else 0,
        "nic_ack_every": nic.ack_every,
        "nic_window_packets": 0 if nic.window == "none" else max(1, nic.window // mtu_bytes),
        "nic_rto_ps": RTO_UNIT_PS << nic.timeout,
        "nic_retry_count": nic.retry_count,
        "nic_selective": int(nic.retransmission == "selective"),
        "nic_selective_window": nic.selective_window,
        "nic_reorder": nic.reorder_window,
        "nic_cnp_interval_ps": cc.cnp_interval,
        "nic_g": cc.g,
        "nic_alpha_init": cc.alpha_init,
        "nic_alpha_timer_ps": cc.alpha_timer,
        "nic_decrease_timer_ps": cc.decrease_timer,
        "nic_decrease_offset_ps": cc.decrease_offset_ps,
        "nic_increase_timer_ps": cc.increase_timer,
        "nic_byte_reset": cc.byte_reset,
        "nic_threshold": cc.threshold,
        "nic_rate_ai_bps": cc.rate_ai,
        "nic_rate_hai_bps": cc.rate_hai,
        "nic_rate_min_bps": cc.rate_min,
        "nic_min_dec_fac": cc.min_dec_fac,
        "nic_clamp_target": int(cc.clamp_target),
    }


def _algorithm(cc: CongestionControl) -> int:
    """CC_* of a congestion control table."""
    if cc.kind == "dcqcn":
        return CC_DCQCN_PAPER if cc.machine == "paper" else CC_DCQCN_ADAPTER
    return CC_FIXED if cc.kind == "fixed" else CC_NONE
