"""Options that users may expect and that this version does not have, so that they are refused by name."""

from __future__ import annotations

# By key, in any table that does not know it, or by table and key.
UNSUPPORTED_KEYS: dict[str, str] = {
    "cut_through": "cut-through forwarding (switches store and forward)",
    "forwarding": "a choice of forwarding mode (switches store and forward)",
    "ecn.mark": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "ecn.mode": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "nic.pfc": "PFC sent by NICs",
    "switch.mode": "cut-through forwarding (switches store and forward)",
    "shared_headroom": "a shared headroom pool (every priority group has its own headroom)",
    "headroom_pool": "a shared headroom pool (every priority group has its own headroom)",
    "scheduler": "a choice of scheduler (classes are served by strict priority, then by weights)",
    "scheduling": "a choice of scheduler (classes are served by strict priority, then by weights)",
    "mark_on": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "mark_at": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "marking": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "mark_on_enqueue": "ECN marking on enqueue (packets are marked when they leave the queue)",
    "op": "operations in a scenario (messages have a verb)",
    "immediate": "WRITE with immediate",
    "threads": "a number of threads in the scenario",
}

UNSUPPORTED_VALUES: dict[tuple[str, str], dict[str, str]] = {
    ("fabric", "kind"): {
        "rail-optimized": 'other names of the fabric kind "rail"',
        "rail-optimised": 'other names of the fabric kind "rail"',
        "hyperx": "HyperX fabrics",
    },
    ("fabric", "routing"): {
        "valiant": "Valiant and adaptive routing of dragonflies and tori",
        "ugal": "Valiant and adaptive routing of dragonflies and tori",
        "adaptive": "Valiant and adaptive routing of dragonflies and tori",
    },
    ("cc", "kind"): {
        "hpcc": "HPCC",
        "timely": "TIMELY",
        "swift": "Swift",
        "dctcp": "DCTCP",
        "powertcp": "PowerTCP",
    },
    ("trace", "tables"): {"rates": "the rates table"},
}
"""By the names of table and key: value in lower case to what it stands for."""


_COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send-recv",
    "moe": "moe-dispatch",
    "moedispatch": "moe-dispatch",
    "moecombine": "moe-combine",
}


def collective_of_kind(value: object) -> str | None:
    """Give the operation of a collective that was written as the kind of a workload; None if it is none."""
    return _COLLECTIVES.get(value.lower().replace("-", "").replace("_", "")) if isinstance(value, str) else None


FAULT_KEYS: dict[str, str] = {
    "loss": "loss",
    "loss_rate": "loss",
    "frame_loss": "loss",
    "error_rate": "loss",
    "bit_error_rate": "loss",
    "ber": "loss",
    "down": "link-down",
    "down_at": "link-down",
    "flap": "flap",
    "storm": "storm",
    "slow_receiver": "slow-receiver",
    "receive_rate": "slow-receiver",
    "reboot": "reboot",
}
"""Keys that users may look for in the tables of devices, to the kind of fault that does it."""


def fault_of_key(key: str) -> str | None:
    """Give the kind of the fault that an unknown key means; None if it means none."""
    return FAULT_KEYS.get(key.replace("-", "_").lower())


def unsupported_key(table: str, key: str) -> str | None:
    """Say what an unknown key of the table of this name is known to mean elsewhere; None if nothing."""
    plain = key.replace("-", "_").lower()
    return UNSUPPORTED_KEYS.get(f"{table}.{plain}") or UNSUPPORTED_KEYS.get(plain)


def unsupported_value(table: str, key: str, value: object) -> str | None:
    """Say what an unknown value is known to mean elsewhere; None if nothing."""
    if not isinstance(value, str):
        return None
    return UNSUPPORTED_VALUES.get((table, key), {}).get(value.lower())
