"""One run of a scenario, from its dictionary to everything that can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from fabemu._core.engine import Engine

from fabemu.compile import Compiled, compile_plan
from fabemu.plan import FOREVER_PS, Plan
from fabemu.scenario import scenario_from_dict
from fabemu.workload.flow import FlowTable

NS, US, MS = 10**3, 10**6, 10**9
RUNNING, STOPPED, DRAINED = 0, 1, 2

DATA, ACK, NAK, CNP, PFC = range(5)  # `kind` of the packets table

HEADER_BYTES, RETH_BYTES, WIRE_BYTES = 62, 16, 20
NO_ECN = {"enabled": False}
NO_CC = {"cc": {"kind": "none"}}


@dataclass
class Outcome:
    """What a run left behind."""

    plan: Plan
    port_names: tuple[str, ...]
    ops: dict[str, np.ndarray]
    port_totals: dict[str, np.ndarray]
    totals: dict[str, int]
    tables: dict[str, np.ndarray]
    ended_ps: int

    def port(self, name: str) -> int:
        return self.port_names.index(name)

    def packets(self, port: str, kind: int = DATA) -> np.ndarray:
        """Transmissions of one kind at one port, in order."""
        rows = self.tables["packets"]
        return rows[(rows["port"] == self.port(port)) & (rows["kind"] == kind)]


def compiled(scenario: dict[str, Any], flows: FlowTable | None = None) -> Compiled:
    return compile_plan(scenario_from_dict(scenario), flows=flows)


def run(
    scenario: dict[str, Any], *, flows: FlowTable | None = None, packets: bool = False, stop_ps: int = FOREVER_PS
) -> Outcome:
    """Run a scenario to its end, or until `stop_ps`, and check the engine's own invariants."""
    result = compiled(scenario, flows)
    return run_plan(result.plan, result.port_names, packets=packets, stop_ps=stop_ps)


def run_plan(
    plan: Plan, port_names: tuple[str, ...] = (), *, packets: bool = False, stop_ps: int = FOREVER_PS
) -> Outcome:
    engine = Engine(plan, packets=packets)
    stop_ps = min(stop_ps, plan.until_ps)
    parts = []
    state = RUNNING
    while state == RUNNING:
        state = engine.run(stop_ps, 1_000_000)
        parts.append(engine.drain())
    assert state == (DRAINED if stop_ps == FOREVER_PS else state) and state in (STOPPED, DRAINED), engine.fault()
    engine.finish()
    parts.append(engine.drain())
    assert [name for name, held, _ in engine.verify() if not held] == []
    tables = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Outcome(plan, port_names, engine.ops(), engine.ports(), engine.totals(), tables, engine.now_ps)


def wire_ps(frame_bytes: int, rate_bps: int) -> int:
    """MODEL 1: time of a frame on the wire with preamble and gap."""
    return -(-(frame_bytes + WIRE_BYTES) * 8 * 10**12 // rate_bps)


def frames_of(size_bytes: int, mtu_bytes: int = 4096) -> list[int]:
    """Frame bytes of the packets of a message."""
    count = max(1, -(-size_bytes // mtu_bytes))
    payloads = [mtu_bytes] * (count - 1) + [size_bytes - (count - 1) * mtu_bytes]
    frames = [max(64, -(-payload // 4) * 4 + HEADER_BYTES) for payload in payloads]
    frames[0] = max(64, -(-payloads[0] // 4) * 4 + HEADER_BYTES + RETH_BYTES)
    return frames


def flow(src: str, dst: str, size: str | int, start: str = "0us", **more: Any) -> dict[str, Any]:
    return {"src": src, "dst": dst, "size": size if isinstance(size, str) else f"{size}B", "start": start, **more}


def flows(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "flows", "flow": list(items), **more}
