"""Named parameter sets: DCQCN presets and the defaults that `compat = "ns3"` changes.

Values are written as in a scenario file, so that one parser serves both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fabemu.deferred import dataclass


@dataclass(frozen=True)
class DcqcnPreset:
    """A DCQCN parameter set.

    `machine` selects the state machine (docs/MODEL.md section 12), `notification` how the receiver tells the sender,
    `decrease_offset_ps` is added to the first decrease check only, and `values` holds the keys of [nic.cc].
    """

    machine: Literal["paper", "adapter"]
    notification: Literal["cnp", "echo"]
    decrease_offset_ps: int
    values: Mapping[str, Any]
    source: str


DCQCN_PRESETS: dict[str, DcqcnPreset] = {
    # Zhu et al. name no hyper-increase rate and no floor: ten times R_AI, and 10 Mb/s (rpgMinRate of IEEE 802.1Qau).
    "paper": DcqcnPreset(
        machine="paper",
        notification="cnp",
        decrease_offset_ps=0,
        values={
            "g": 1 / 256,
            "alpha_init": 1.0,
            "alpha_timer": "55us",
            "decrease_timer": "50us",  # not used by this machine: the receiver paces the CNPs
            "increase_timer": "55us",
            "byte_reset": "10MB",
            "threshold": 5,
            "rate_ai": "40Mbps",
            "rate_hai": "400Mbps",
            "rate_min": "10Mbps",
            "min_dec_fac": 0.0,
            "clamp_target": True,  # this machine always sets the target to the rate before the cut
            "cnp_interval": "50us",
        },
        source="Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015",
    ),
    "connectx": DcqcnPreset(
        machine="adapter",
        notification="cnp",
        decrease_offset_ps=0,
        values={
            "g": 5 / 1024,  # dce_tcp_g = 1019 of 1024 is the weight of the old value
            "alpha_init": 1023 / 1024,  # initial_alpha_value
            "alpha_timer": "1us",  # dce_tcp_rtt
            "decrease_timer": "4us",  # rate_reduce_monitor_period
            "increase_timer": "300us",  # rpg_time_reset
            "byte_reset": "32767B",  # rpg_byte_reset
            "threshold": 1,  # rpg_threshold
            "rate_ai": "5Mbps",  # rpg_ai_rate
            "rate_hai": "50Mbps",  # rpg_hai_rate
            "rate_min": "1Mbps",  # rpg_min_rate
            "min_dec_fac": 0.5,  # rpg_min_dec_fac, the least share of the old rate that one decrease leaves
            "clamp_target": False,  # clamp_tgt_rate
            "cnp_interval": "4us",  # min_time_between_cnps
        },
        source="NVIDIA, DCQCN CC parameters (names and defaults of ConnectX-4 and later)",
    ),
    "ns3": DcqcnPreset(
        machine="adapter",
        notification="echo",
        decrease_offset_ps=1_000,
        values={
            "g": 1 / 256,
            "alpha_init": 1.0,
            "alpha_timer": "1us",
            "decrease_timer": "4us",
            "increase_timer": "300us",
            "byte_reset": "0B",
            "threshold": 1,
            "rate_ai": "20Mbps",
            "rate_hai": "200Mbps",
            "rate_min": "1Gbps",
            "min_dec_fac": 0.0,
            "clamp_target": False,
            "cnp_interval": "4us",  # not used: marks ride back on ACKs
        },
        source='HPCC family of ns-3 simulators, their "dcqcn" settings at 100 Gb/s',
    ),
}

NS3_DEFAULTS: dict[str, Any] = {
    "frames": {
        "header": "48B",
        "reth": "0B",
        "aeth": "0B",
        "ack": "60B",
        "cnp": "60B",
        "pfc": "43B",
        "wire_overhead": "0B",
        "minimum": "0B",
        "pad": "1B",
    },
    "switch": {"pfc": {"alpha": "auto", "xon_offset": "3072B", "headroom": "auto", "reserved": "4096B"}},
    "nic": {"mtu": 1000, "any_mtu": True, "cc": {"preset": "ns3"}},
}
"""Defaults that replace the usual ones under `compat = "ns3"`; what a file states itself stays."""
