"""The link under test, and the fabric around it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fabemu.compile import Compiled, compile_plan
from fabemu.headroom import HeadroomTerms, headroom_terms
from fabemu.scenario import scenario_from_dict

HEADER_BYTES, RETH_BYTES, PAD_BYTES, SMALLEST_BYTES, PFC_BYTES, WIRE_BYTES = 62, 16, 4, 64, 64, 20
NEAR_DELAY_PS = 10**6  # of the cables that are not under test
FEED_FACTOR = 8
"""How much faster the host's link is than the link under test, if a switch sends on that."""

RDMA = "rdma"


@dataclass(frozen=True)
class Link:
    """A cable to a switch, from a host or another switch, and the buffer at its end.

    Attributes
    ----------
    rate_bps, length_m
        Of the cable, 5 ns a metre.
    mtu
        Payload bytes of the largest packet.
    response_ps
        From receipt of a PFC frame to its effect.
    cell_bytes
        Cells of the switch's buffer; 1 for one that counts bytes.
    from_switch
        Whether the cable comes from another switch instead of a host.
    """

    rate_bps: int
    length_m: int
    mtu: int
    response_ps: int = 0
    cell_bytes: int = 1
    from_switch: bool = False

    @property
    def sender(self) -> str:
        """The device that sends on the link under test."""
        return "sw1" if self.from_switch else "h0"

    @property
    def delay_ps(self) -> int:
        """Propagation in one direction."""
        return self.length_m * 5_000

    @property
    def largest_bytes(self) -> int:
        """The largest frame: a WRITE of one whole packet."""
        return -(-self.mtu // PAD_BYTES) * PAD_BYTES + HEADER_BYTES + RETH_BYTES

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of all frames that one packet of a SEND or WRITE can have, ascending."""
        payloads = range(0, -(-self.mtu // PAD_BYTES) * PAD_BYTES + 1, PAD_BYTES)
        sends = {max(SMALLEST_BYTES, payload + HEADER_BYTES) for payload in payloads}
        return tuple(sorted(sends | {payload + HEADER_BYTES + RETH_BYTES for payload in payloads}))

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """The smallest size of each number of cells: with cells of one byte, all sizes."""
        smallest: dict[int, int] = {}
        for size in self.sizes:
            smallest.setdefault(self.charge(size), size)
        return tuple(smallest.values())

    @cached_property
    def terms(self) -> HeadroomTerms:
        """The bound, term by term."""
        return headroom_terms(
            rate_bps=self.rate_bps,
            delay_ps=self.delay_ps,
            response_ps=self.response_ps,
            frame_bytes=self.largest_bytes,
            pfc_bytes=PFC_BYTES,
            wire_overhead_bytes=WIRE_BYTES,
            frame_min_bytes=SMALLEST_BYTES,
            cell_bytes=self.cell_bytes,
        )

    def charge(self, frame_bytes: int) -> int:
        """What a frame takes in the buffer: whole cells."""
        return -(-frame_bytes // self.cell_bytes) * self.cell_bytes

    def wire_ps(self, frame_bytes: int) -> int:
        """Time of a frame on the link under test, gap included."""
        return -(-(frame_bytes + WIRE_BYTES) * 8 * 10**12 // self.rate_bps)

    def open_ps(self, reverse_bytes: int) -> int:
        """Time in which frames may begin behind the frame that raises XOFF, with the worst wait for a reverse frame.

        That one began 1 ps before XOFF was raised, and the last forward frame begins 1 ps before the pause.
        """
        waits = self.wire_ps(reverse_bytes) - 1
        return waits + self.wire_ps(PFC_BYTES) + 2 * self.delay_ps + self.response_ps - 1

    def compiled(self) -> Compiled:
        """A switch sw0 with the link under test; h1 sends back to h0, and all that h0 sends is for h2.

        sw0 gets neither pool nor reserve in a trial: every frame of the lossless class goes to headroom, the one that
        raises XOFF included.
        """
        near = {"delay": f"{NEAR_DELAY_PS}ps"}
        links = [
            {"a": self.sender, "b": "sw0", "length": f"{self.length_m}m"},
            {"a": "h1", "b": "sw0", **near},
            {"a": "h2", "b": "sw0", **near},
        ]
        if self.from_switch:
            links.append({"a": "h0", "b": "sw1", "rate": f"{FEED_FACTOR * self.rate_bps}bps", **near})
        scenario = {
            "fabric": {
                "kind": "graph",
                "hosts": ["h0", "h1", "h2"],
                "switches": ["sw0", "sw1"][: 1 + self.from_switch],
                "links": links,
            },
            "link": {"rate": f"{self.rate_bps}bps"},
            "switch": {
                "buffer": "1GiB",
                "cell": f"{self.cell_bytes}B",
                "ecn": {"enabled": False},
                "pfc": {"reserved": "0B", "xon_offset": "0B", "response_delay": f"{self.response_ps}ps"},
            },
            "nic": {"mtu": self.mtu, "any_mtu": True, "cc": {"kind": "none"}},
            # ACKs come last: they take no wire time from the stream under test.
            "class": [
                {"name": "cnp", "priority": 6, "cnp": True},
                {"name": RDMA, "priority": 3, "lossless": True, "ack_class": "best-effort"},
                {"name": "best-effort", "priority": 0},
            ],
            # Stands for the traffic that every trial brings along.
            "workload": [{"kind": "flows", "class": RDMA, "flow": [{"src": "h0", "dst": "h2", "size": "0B"}]}],
        }
        return compile_plan(scenario_from_dict(scenario))

    @cached_property
    def charges(self) -> np.ndarray:
        """Charge of every frame size up to the largest, indexed by size."""
        return np.array([self.charge(size) for size in range(self.largest_bytes + 1)])
