"""How much headroom a lossless priority group needs, so that no workload whatever makes it drop.

From the arrival that raises XOFF until the sender has really stopped, the buffer must take

- the frame that raised XOFF: with a dynamic threshold it may already be in headroom, because others lowered the
  threshold;
- all that arrives while our largest frame keeps the PFC frame waiting, while the PFC frame is sent and travels, while
  the sender responds, and while its last bits travel to us;
- the sender's largest frame, if it had just begun.
"""

from __future__ import annotations


def headroom_bound_bytes(
    *,
    rate_bps: int,
    delay_ps: int,
    response_ps: int = 0,
    frame_bytes: int,
    pfc_bytes: int = 64,
    wire_overhead_bytes: int = 20,
) -> int:
    """Headroom of one priority group that is always enough, bytes.

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
    """

    def wire_ps(size_bytes: int) -> int:
        return -(-(size_bytes + wire_overhead_bytes) * 8 * 10**12 // rate_bps)

    time_ps = wire_ps(max(frame_bytes, pfc_bytes)) + wire_ps(pfc_bytes) + 2 * delay_ps + response_ps
    arriving_bytes = -(-time_ps * rate_bps // (8 * 10**12))
    return frame_bytes + arriving_bytes + frame_bytes + wire_overhead_bytes


def ns3_headroom_bytes(*, rate_bps: int, delay_ps: int) -> int:
    """Headroom that the HPCC family of ns-3 simulators gives a port: three times rate x delay, in whole bytes."""
    return rate_bps * (delay_ps // 1000) // (8 * 10**9) * 3
