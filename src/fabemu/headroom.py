"""How much headroom a lossless priority group needs, so that no workload whatever makes it drop.

From the arrival that raises XOFF until the sender has really stopped, the buffer must take

- the frame that raised XOFF: with a dynamic threshold it may already be in headroom, because others lowered the
  threshold;
- all that arrives while our largest frame keeps the PFC frame waiting, while the PFC frame is sent and travels, while
  the sender responds, and while its last bits travel to us;
- the sender's largest frame, if it had just begun;
- what all these lose in cells that they do not fill, if the buffer has cells.
"""

from __future__ import annotations

from fabemu.deferred import dataclass


@dataclass(frozen=True)
class HeadroomTerms:
    """What the headroom of one priority group must take, bytes of buffer each."""

    raising_bytes: int  # the frame that raised XOFF
    waiting_bytes: int  # arrives while our largest frame keeps the PFC frame waiting
    pfc_bytes: int  # arrives while the PFC frame is sent
    propagation_bytes: int  # arrives while the PFC frame travels, and what is on the cable after that
    response_bytes: int  # arrives while the sender responds
    last_bytes: int  # the sender's largest frame, if it had just begun
    cells_bytes: int = 0  # lost in cells that frames do not fill

    @property
    def total_bytes(self) -> int:
        """The bound."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, int]:
        """Terms by their short names; those of 0 that many links lack are left out."""
        terms = {
            "raising frame": self.raising_bytes,
            "waiting": self.waiting_bytes,
            "PFC frame": self.pfc_bytes,
            "propagation": self.propagation_bytes,
            "response": self.response_bytes,
            "last frame": self.last_bytes,
            "cells": self.cells_bytes,
        }
        return {name: size for name, size in terms.items() if size or name not in ("response", "cells")}

    def __str__(self) -> str:
        """As a sum: "raising frame 4,174 + waiting 4,194 + ..."."""
        return " + ".join(f"{name} {size:,}" for name, size in self.by_name().items())


def headroom_terms(
    *,
    rate_bps: int,
    delay_ps: int,
    response_ps: int = 0,
    frame_bytes: int,
    pfc_bytes: int = 64,
    wire_overhead_bytes: int = 20,
    frame_min_bytes: int = 64,
    cell_bytes: int = 1,
) -> HeadroomTerms:
    """Headroom of one priority group that is always enough, term by term.

    Parameters
    ----------
    rate_bps
        Rate of the cable.
    delay_ps
        Propagation in one direction.
    response_ps
        From receipt of a PFC frame to its effect, at the sender.
    frame_bytes
        The largest frame on the cable, in either direction.
    pfc_bytes, wire_overhead_bytes
        PFC frame, and what every frame costs on the wire beyond its bytes.
    frame_min_bytes, cell_bytes
        The smallest frame, and the size of the buffer's cells: a frame takes whole cells, so small frames take more
        buffer than wire. 1 for a buffer that counts bytes.
    """

    def wire_ps(size_bytes: int) -> int:
        return -(-(size_bytes + wire_overhead_bytes) * 8 * 10**12 // rate_bps)

    def in_cells(size_bytes: int) -> int:
        return -(-size_bytes // cell_bytes) * cell_bytes

    # Bytes up to each instant, so that rounding does not add up: the terms have the sum that the whole time has.
    spans_ps = (wire_ps(max(frame_bytes, pfc_bytes)), wire_ps(pfc_bytes), 2 * delay_ps, response_ps)
    arrived, arriving = [0], []
    total_ps = 0
    for span_ps in spans_ps:
        total_ps += span_ps
        arrived.append(-(-total_ps * rate_bps // (8 * 10**12)))
        arriving.append(arrived[-1] - arrived[-2])
    last_bytes = frame_bytes + wire_overhead_bytes
    cells_bytes = 0
    if cell_bytes > 1:
        # The frame that fills its last cell worst, for the bytes it takes on the wire: the smallest of all, or the
        # smallest that needs one cell more.
        smallest = max(1, frame_min_bytes)
        ratios = [(in_cells(size), size + wire_overhead_bytes) for size in (smallest, in_cells(smallest) + 1)]
        # Frames take whole cells together, too: what the ratio leaves of a cell is none's.
        charged_bytes = max(arrived[-1] * charged // (wire * cell_bytes) * cell_bytes for charged, wire in ratios)
        cells_bytes = max(charged_bytes, in_cells(arrived[-1])) - arrived[-1]
        # The frame that raises XOFF and the last one: nothing takes more than the largest.
        cells_bytes += sum(in_cells(size) - size for size in (frame_bytes, last_bytes))
    waiting, sending, travelling, responding = arriving
    return HeadroomTerms(frame_bytes, waiting, sending, travelling, responding, last_bytes, cells_bytes)


def headroom_bound_bytes(
    *,
    rate_bps: int,
    delay_ps: int,
    response_ps: int = 0,
    frame_bytes: int,
    pfc_bytes: int = 64,
    wire_overhead_bytes: int = 20,
    frame_min_bytes: int = 64,
    cell_bytes: int = 1,
) -> int:
    """Sum of the `headroom_terms` of the same parameters, bytes."""
    return headroom_terms(
        rate_bps=rate_bps,
        delay_ps=delay_ps,
        response_ps=response_ps,
        frame_bytes=frame_bytes,
        pfc_bytes=pfc_bytes,
        wire_overhead_bytes=wire_overhead_bytes,
        frame_min_bytes=frame_min_bytes,
        cell_bytes=cell_bytes,
    ).total_bytes


def ns3_headroom_bytes(*, rate_bps: int, delay_ps: int) -> int:
    """Headroom that the HPCC family of ns-3 simulators gives a port: three times rate x delay, in whole bytes."""
    return rate_bps * (delay_ps // 1000) // (8 * 10**9) * 3
