"""Looks for the traffic that uses most headroom: by reasoning, by chance, and by small changes to the best so far."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bench.headroom.link import WIRE_BYTES, Link
from bench.headroom.traffic import Traffic, worst_traffic
from bench.headroom.trial import Bench, Use

_OPENED_SHARE = 0.2  # of the random traffic finds the congested egress open from time to time


@dataclass(frozen=True)
class Effort:
    """Trials of one search."""

    starts: int = 40  # random traffic
    climb: int = 160  # changes to the best of it
    polish: int = 60  # changes to the traffic that is worst by reasoning


@dataclass(frozen=True)
class Found:
    """The greatest use of headroom on one link, and what the engine does with less.

    Attributes
    ----------
    reasoned, searched
        Greatest use by the traffic that is worst by reasoning, and by what was found from random traffic.
    greatest
        The greater of the two, after small changes to the former.
    drops_at_bound, drops_at_use, drops_below
        Frames lost by the traffic of the greatest use with headroom at the bound, at the use, one cell below it.
    trials
        Runs of the engine.
    """

    link: Link
    reasoned: Use
    searched: Use
    greatest: Use
    drops_at_bound: int
    drops_at_use: int
    drops_below: int
    trials: int

    @property
    def bound_bytes(self) -> int:
        """Headroom that is always enough."""
        return self.link.terms.total_bytes

    @property
    def gap_bytes(self) -> int:
        """What no traffic used of it."""
        return self.bound_bytes - self.greatest.use_bytes

    @property
    def between_bytes(self) -> int:
        """What the bound of a buffer without cells counts, and is time: preambles and gaps behind the first frame."""
        return WIRE_BYTES * (self.greatest.frames - 1) if self.link.cell_bytes == 1 else 0

    @property
    def holds(self) -> bool:
        """Whether nothing is dropped at the bound and at the greatest use, and something with one cell less."""
        return self.gap_bytes >= 0 and self.drops_at_bound == self.drops_at_use == 0 < self.drops_below


def search(link: Link, *, seed: int = 1, effort: Effort | None = None) -> Found:
    """Find the greatest use, and see what is dropped at the bound, at that use and one cell below."""
    effort = effort or Effort()
    bench = Bench(link)
    rng = random.Random(f"{seed} {link.rate_bps} {link.length_m} {link.mtu} {link.response_ps} {link.cell_bytes}")
    candidates = [random_traffic(link, rng) for _ in range(effort.starts)]
    uses = [bench.use(traffic) for traffic in candidates]
    best = max(range(len(uses)), key=lambda index: uses[index].use_bytes) if uses else -1
    reasoned = worst_traffic(link)
    reasoned_use = bench.use(reasoned)
    traffic, use = _climb(bench, reasoned, reasoned_use, effort.polish, rng)
    searched_use = Use(0, 0, 0)
    if uses:
        searched, searched_use = _climb(bench, candidates[best], uses[best], effort.climb, rng)
        if searched_use.use_bytes > use.use_bytes:
            traffic, use = searched, searched_use
    drops = [
        bench.drops(traffic, headroom)
        for headroom in (link.terms.total_bytes, use.use_bytes, use.use_bytes - link.cell_bytes)
    ]
    return Found(link, reasoned_use, searched_use, use, *drops, bench.trials)


def random_traffic(link: Link, rng: random.Random) -> Traffic:
    """A mix of frames that keeps the link busy until the pause, or nearly so, and a reverse frame at any phase."""
    sizes, edges, largest = link.sizes, link.edges, link.largest_bytes
    share = rng.random()
    pattern = [rng.choice(sizes) for _ in range(rng.randint(1, 5))]
    draws: tuple[Callable[[], list[int]], ...] = (
        lambda: [rng.choice(sizes)],
        lambda: [rng.choice(edges)],
        lambda: [sizes[0] if rng.random() < share else largest],
        lambda: [edges[0] if rng.random() < share else rng.choice(edges)],
        lambda: pattern,
    )
    draw = rng.choice(draws)
    needed_ps = link.open_ps(largest) + 4 * link.wire_ps(largest)
    frames: list[int] = []
    total_ps = 0
    while total_ps < needed_ps:
        more = draw()
        frames += more
        total_ps += sum(map(link.wire_ps, more))
    gap_ps = np.zeros(len(frames), dtype=np.int64)
    for _ in range(rng.choice((0, 0, 1, 3))):
        gap_ps[rng.randrange(len(frames))] = rng.randint(1, link.wire_ps(largest))
    reverse = rng.choice((largest, rng.choice(sizes)))
    openings: list[tuple[int, int]] = []
    if rng.random() < _OPENED_SHARE:
        edges_ps = sorted(rng.sample(range(1, 2 * needed_ps), 2 * rng.randint(1, 3)))
        openings = list(zip(edges_ps[::2], edges_ps[1::2], strict=True))
    return Traffic(np.array(frames), gap_ps, reverse, rng.randint(1, link.wire_ps(reverse)), tuple(openings))


def _climb(bench: Bench, traffic: Traffic, use: Use, steps: int, rng: random.Random) -> tuple[Traffic, Use]:
    """Change the traffic a little, again and again, and keep what uses as much or more."""
    for _ in range(steps):
        changed = _changed(bench.link, traffic, use, rng)
        found = bench.use(changed)
        if found.use_bytes >= use.use_bytes:
            traffic, use = changed, found
    return traffic, use


def _changed(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    """One or two changes, most of them near the frames that fill the headroom last."""
    for _ in range(rng.choice((1, 1, 2))):
        traffic = rng.choice(_CHANGES)(link, traffic, use, rng)
    return traffic


def _place(traffic: Traffic, use: Use, rng: random.Random) -> int:
    """A frame of the stream: one of the last that came, the first, or any."""
    last = min(use.frames, len(traffic.forward_bytes) - 1)
    near = last - min(rng.randrange(4), last)
    return rng.choice((near, near, 0, rng.randrange(last + 1)))


def _other_size(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    frames = traffic.forward_bytes.copy()
    frames[_place(traffic, use, rng)] = rng.choice((link.largest_bytes, rng.choice(link.edges), rng.choice(link.sizes)))
    return replace(traffic, forward_bytes=frames)


def _next_size(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    frames = traffic.forward_bytes.copy()
    place = _place(traffic, use, rng)
    index = link.sizes.index(int(frames[place])) + rng.choice((-1, 1)) * 2 ** rng.randrange(9)
    frames[place] = link.sizes[max(0, min(index, len(link.sizes) - 1))]
    return replace(traffic, forward_bytes=frames)


def _exchanged(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    frames = traffic.forward_bytes.copy()
    one, other = _place(traffic, use, rng), _place(traffic, use, rng)
    frames[[one, other]] = frames[[other, one]]
    return replace(traffic, forward_bytes=frames)


def _one_size_on(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    """From some frame on, all have one size; as many as it takes to keep the link busy for as long as before."""
    place = _place(traffic, use, rng)
    size = rng.choice((link.largest_bytes, rng.choice(link.edges)))
    kept = traffic.forward_bytes[:place]
    rest_ps = sum(map(link.wire_ps, traffic.forward_bytes[place:].tolist()))
    more = np.full(rest_ps // link.wire_ps(size) + 4, size)
    gap_ps = np.concatenate([traffic.gap_ps[:place], np.zeros(len(more), dtype=np.int64)])
    return replace(traffic, forward_bytes=np.concatenate([kept, more]), gap_ps=gap_ps)


def _one_size_before(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    """All frames between the first and some other have one size; again the link is busy for as long."""
    place = max(1, _place(traffic, use, rng))
    size = rng.choice(link.edges[:3]) if rng.random() < 0.5 else link.largest_bytes
    between_ps = sum(map(link.wire_ps, traffic.forward_bytes[1:place].tolist()))
    body = np.full(between_ps // link.wire_ps(size), size)
    frames = np.concatenate([traffic.forward_bytes[:1], body, traffic.forward_bytes[place:]])
    gap_ps = np.zeros(len(frames), dtype=np.int64)
    gap_ps[len(frames) - len(traffic.gap_ps[place:]) :] = traffic.gap_ps[place:]
    return replace(traffic, forward_bytes=frames, gap_ps=gap_ps)


def _one_less(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    place = _place(traffic, use, rng)
    if len(traffic.forward_bytes) < 4:
        return traffic
    return replace(
        traffic, forward_bytes=np.delete(traffic.forward_bytes, place), gap_ps=np.delete(traffic.gap_ps, place)
    )


def _one_more(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    place, size = _place(traffic, use, rng), rng.choice((link.largest_bytes, rng.choice(link.edges)))
    return replace(
        traffic, forward_bytes=np.insert(traffic.forward_bytes, place, size), gap_ps=np.insert(traffic.gap_ps, place, 0)
    )


def _other_gap(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    gap_ps = traffic.gap_ps.copy()
    gap_ps[_place(traffic, use, rng)] = rng.choice((0, rng.randrange(link.wire_ps(link.largest_bytes))))
    return replace(traffic, gap_ps=gap_ps)


def _other_phase(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    moved = traffic.reverse_ps + rng.choice((-1, 1)) * 2 ** rng.randrange(24)
    reverse_ps = rng.choice((1, moved, moved, rng.randint(1, link.wire_ps(traffic.reverse_bytes))))
    return replace(traffic, reverse_ps=max(0, min(reverse_ps, 2 * link.wire_ps(link.largest_bytes))))


def _other_reverse(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    return replace(traffic, reverse_bytes=rng.choice((link.largest_bytes, rng.choice(link.sizes))))


def _closed(link: Link, traffic: Traffic, use: Use, rng: random.Random) -> Traffic:
    keep = rng.randrange(len(traffic.openings_ps) + 1)
    return replace(traffic, openings_ps=traffic.openings_ps[:keep])


_CHANGES = (
    _other_size,
    _other_size,
    _next_size,
    _next_size,
    _exchanged,
    _one_size_on,
    _one_size_before,
    _one_less,
    _one_more,
    _other_gap,
    _other_phase,
    _other_phase,
    _other_reverse,
    _closed,
)
