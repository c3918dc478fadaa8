"""What is sent in one trial, and the traffic that is worst by reasoning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.headroom.link import PFC_BYTES, WIRE_BYTES, Link

FIRST_PS = 20 * 10**6
"""The stream under test begins, after the receiver has paused its link."""

_EXACT_FRAMES = 4  # largest frames' worth of wire that is filled exactly; before it comes a plain repetition


@dataclass(frozen=True, eq=False)
class Traffic:
    """Frames of the link under test in both directions, to the picosecond.

    Attributes
    ----------
    forward_bytes
        (n,) frame sizes from the sender, back to back but for gaps. More than a pause can keep from coming.
    gap_ps
        (n,) idle time of the link before each of them.
    reverse_bytes
        Frame that goes the other way and may keep the PFC frame waiting.
    reverse_ps
        From the start of its transmission to the arrival of the first forward frame, which raises XOFF.
    openings_ps
        Intervals in which the congested egress may send, from the start of the stream; they end in order.
    """

    forward_bytes: np.ndarray
    gap_ps: np.ndarray
    reverse_bytes: int
    reverse_ps: int
    openings_ps: tuple[tuple[int, int], ...] = ()


def worst_traffic(link: Link) -> Traffic:
    """Every term of the bound at once, as far as frames allow.

    The largest frame goes straight to headroom and raises XOFF; the largest reverse frame began 1 ps before; until the
    pause takes effect the link is full of the frames that take most buffer for their time on the wire; and the largest
    of all begins 1 ps before the pause.
    """
    largest = link.largest_bytes
    frames = fill(link, link.open_ps(max(largest, PFC_BYTES)))
    # What frames do not fill leaves the link idle at first: later the ACK of the reverse frame would slip in.
    idle_ps = link.open_ps(largest) - sum(map(link.wire_ps, frames))
    forward = np.array([largest, *frames, largest, largest, largest])
    gap_ps = np.zeros(len(forward), dtype=np.int64)
    gap_ps[1] = idle_ps
    return Traffic(forward, gap_ps, largest, 1)


def fill(link: Link, wire_ps: int) -> list[int]:
    """Frames with the greatest charge of all that take so much time on the wire."""
    budget = wire_ps * link.rate_bps // (8 * 10**12)
    sizes = np.array(link.edges)
    taken, charges = sizes + WIRE_BYTES, link.charges[sizes]
    best = int(np.argmax(charges / taken))
    exact_bytes = _EXACT_FRAMES * int(taken[-1])
    repeats = max(0, (budget - exact_bytes) // int(taken[best]))
    rest = budget - repeats * int(taken[best])
    frames = [int(sizes[best])] * repeats + _knapsack(rest, sizes, taken, charges)
    while sum(map(link.wire_ps, frames)) > wire_ps:  # whole picoseconds of every frame may not add up
        frames.remove(min(frames))
    return frames


def _knapsack(budget: int, sizes: np.ndarray, taken: np.ndarray, charges: np.ndarray) -> list[int]:
    """Sizes, any number of each, of the greatest sum of charges that takes at most `budget`."""
    value = np.zeros(budget + 1, dtype=np.int64)
    choice = np.full(budget + 1, -1)
    for room in range(1, budget + 1):
        fitting = int(np.searchsorted(taken, room, side="right"))
        value[room] = value[room - 1]
        if fitting:
            totals = value[room - taken[:fitting]] + charges[:fitting]
            index = int(np.argmax(totals))
            if totals[index] > value[room]:
                value[room], choice[room] = totals[index], index
    frames, room = [], budget
    while room > 0:
        if choice[room] < 0:
            room -= 1
        else:
            frames.append(int(sizes[choice[room]]))
            room -= int(taken[choice[room]])
    return frames
