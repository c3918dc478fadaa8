"""Random fabrics and flows: the core in compatibility mode against the replica, frame by frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.validation import runs
from tests.validation.replica import RESERVE_BYTES, Flow, Link, Replica, Settings

RATES = (25, 40, 100, 100, 200, 400, 400)
"""Gb/s."""

CASES = 60
HOPS_MAX = 3_000
"""Data packets of one case at most, to keep it short."""


class Draw:
    """One random case, as files of the simulator and as input of the replica."""

    def __init__(self, seed: int) -> None:
        """Draw a tree of switches with hosts, flows of several priority groups, and settings."""
        rng = np.random.default_rng(seed)
        self.host_count = int(rng.integers(2, 9))
        self.switch_count = int(rng.integers(1, 5))
        self.node_count = self.host_count + self.switch_count
        self.switches = list(range(self.host_count, self.node_count))
        self.links = []
        for host in range(self.host_count):
            self.links.append(self._link(rng, host, int(rng.choice(self.switches))))
        for index, switch in enumerate(self.switches[1:], start=1):
            self.links.append(self._link(rng, int(rng.choice(self.switches[:index])), switch))
        self.links = [self.links[i] for i in rng.permutation(len(self.links))]
        groups = rng.choice(np.arange(1, 8), size=int(rng.integers(1, 5)), replace=False)
        instants = np.sort(rng.integers(0, 60_000, size=int(rng.integers(1, 5)))) + 2_000_000_000
        is_incast = rng.random() < 0.5
        scale = 10 ** (rng.uniform(5, 6.5) if is_incast else rng.uniform(3, 6))
        self.flows = []
        for _ in range(int(rng.integers(1, 25))):
            src, dst = rng.choice(self.host_count, size=2, replace=False).tolist()
            if is_incast and src != self.host_count - 1:
                dst = self.host_count - 1
            size = int(rng.integers(1, scale)) if rng.random() < 0.7 else 1000 * int(rng.integers(1, scale / 1000 + 2))
            start = int(rng.choice(instants))
            self.flows.append(Flow(src, dst, int(rng.choice(groups)), size, start))
        self.flows.sort(key=lambda flow: flow.start_ns)
        total = sum(flow.size_bytes for flow in self.flows)
        if total > 1000 * HOPS_MAX:
            for flow in self.flows:
                flow.size_bytes = max(1, flow.size_bytes * 1000 * HOPS_MAX // total)
        threshold = {rate: int(rng.integers(0, 60)) * 1000 for rate in set(RATES)}
        self.settings = Settings(
            buffer_bytes=self._buffer_bytes(rng, is_incast),
            is_dcqcn=bool(rng.random() < 0.6),
            kmin_bytes={rate * 10**9: value for rate, value in threshold.items()},
            kmax_bytes={rate * 10**9: value for rate, value in threshold.items()},
            pmax=1,
            alpha_ns=1000 * int(rng.choice([1, 1, 5, 55])),
            decrease_ns=1000 * int(rng.choice([1, 4, 4, 50])),
            increase_ns=1000 * int(rng.choice([3, 20, 55, 300])),
            steps=int(rng.choice([0, 1, 1, 5])),
            clamps=bool(rng.random() < 0.3),
            min_bps=10**6 * int(rng.choice([100, 1000, 1000])),
            payload_bytes=int(rng.choice([1000, 1000, 1000, 256, 952, 4096])),
        )

    def _buffer_bytes(self, rng: np.random.Generator, is_incast: bool) -> int:
        """Whole MiB that hold what all links together set aside; little more if there shall be pauses."""
        if not is_incast:
            return int(rng.choice([3, 4, 8, 32])) << 20
        aside = sum(3 * link.rate_bps * link.delay_ns // (8 * 10**9) + RESERVE_BYTES for link in self.links)
        return (aside // 2**20 + 1) << 20

    @staticmethod
    def _link(rng: np.random.Generator, a: int, b: int) -> Link:
        ends = (a, b) if rng.random() < 0.5 else (b, a)
        delay = int(rng.choice([1000, 1000, 1000, 500, 1337, 50, 5000]))
        return Link(*ends, int(rng.choice(RATES)) * 10**9, delay)

    def write(self, directory: Path) -> tuple[Path, Path, Path]:
        """Write the three files."""
        paths = tuple(directory / f"{name}.txt" for name in ("topology", "flows", "config"))
        lines = [f"{self.node_count} {self.switch_count} {len(self.links)}", " ".join(map(str, self.switches))]
        lines += [f"{link.a} {link.b} {link.rate_bps // 10**9}Gbps {link.delay_ns}ns 0" for link in self.links]
        paths[0].write_text("\n".join(lines) + "\n")
        lines = [str(len(self.flows))]
        for flow in self.flows:
            # One ns more than a tenth keeps the double on the right side of the whole ns.
            lines.append(f"{flow.src} {flow.dst} {flow.group} 100 {flow.size_bytes} {flow.start_ns}.5e-9")
        paths[1].write_text("\n".join(lines) + "\n")
        s = self.settings
        marks = [f"{rate} {value // 1000}" for rate, value in s.kmin_bytes.items()]
        ones = [f"{rate} 1" for rate in s.kmin_bytes]
        lines = [
            f"CC_MODE {int(s.is_dcqcn)}",
            f"PACKET_PAYLOAD_SIZE {s.payload_bytes}",
            "ENABLE_QCN 1",
            f"BUFFER_SIZE {s.buffer_bytes >> 20}",
            f"ALPHA_RESUME_INTERVAL {s.alpha_ns // 1000}",
            f"RATE_DECREASE_INTERVAL {s.decrease_ns // 1000}",
            f"RP_TIMER {s.increase_ns // 1000}",
            f"EWMA_GAIN {s.gain!r}",
            f"FAST_RECOVERY_TIMES {s.steps}",
            f"CLAMP_TARGET_RATE {int(s.clamps)}",
            f"RATE_AI {s.ai_bps}b/s",
            f"RATE_HAI {s.hai_bps}b/s",
            f"MIN_RATE {s.min_bps}b/s",
            "L2_ACK_INTERVAL 1",
            f"KMIN_MAP {len(marks)} {' '.join(marks)}",
            f"KMAX_MAP {len(marks)} {' '.join(marks)}",
            f"PMAX_MAP {len(ones)} {' '.join(ones)}",
        ]
        paths[2].write_text("\n".join(lines) + "\n")
        return paths


def compare(seed: int, directory: Path) -> dict[str, int]:
    """Run both and compare; returns what the case held."""
    draw = Draw(seed)
    compiled = runs.compile_files(*draw.write(directory))
    replica = Replica(draw.node_count, set(draw.switches), draw.links, draw.flows, draw.settings)
    replica.run()
    if replica.dropped:
        # Losses are outside the rules: the simulator has no timeout.
        return {"dropped": 1}
    outcome = runs.simulate(compiled, frames=True)
    assert outcome.start_ns.tolist() == [flow.start_ns for flow in draw.flows]
    assert outcome.fct_ns.tolist() == [flow.fct_ns for flow in draw.flows]
    assert outcome.pfc == sorted(replica.pfc_rows)
    return {"dropped": 0, "pfc": len(outcome.pfc), "marks": outcome.totals["marks"]}


@pytest.mark.parametrize("seed", range(CASES))
def test_random_runs_are_equal(seed, tmp_path):
    compare(seed, tmp_path)
