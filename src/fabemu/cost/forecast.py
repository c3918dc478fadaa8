"""How far a run is, and how long it will still take: predicted work, corrected by the work that was done."""

from __future__ import annotations

import bisect

import numpy as np

from fabemu.cost.estimate import Cost
from fabemu.deferred import dataclass
from fabemu.plan import FOREVER_PS

_KEPT = 256  # looks back
_INERTIA = 0.01  # share of the work until which the prediction outweighs what was seen


@dataclass(frozen=True)
class Outlook:
    """Where a run stands."""

    done_share: float  # 0..1, of the packet hops
    seconds_left: float | None  # wall clock; None while there is nothing to guess from


class Forecast:
    """The outlook of one run, look by look.

    A run without an end of its own is done when its packet hops are done: what is left is what was predicted less what
    was done. One with `until` is done by then, whatever it has sent: what is left is the predicted work from now to
    then, times the work that was done in the last half of the run so far by the work that was predicted for it. Either
    divided by the speed of that half.

    Parameters
    ----------
    cost
        What was predicted.
    until_ps
        End of the run; FOREVER_PS for none.
    """

    def __init__(self, cost: Cost, until_ps: int) -> None:
        """Begin."""
        self._time_ps = np.append(cost.work[:, 0], np.inf)
        self._work = np.append(cost.work[:, 1], cost.work[-1, 1] if len(cost.work) else 0.0)
        self._total = max(1.0, cost.packet_hops.value)
        self._until_ps = until_ps
        self._done_share = 0.0
        self._wall: list[float] = [0.0]
        self._seen: list[tuple[float, float]] = [(0.0, 0.0)]  # (predicted, done) hops

    def look(self, now_ps: int, packet_hops: int, message_share: float, wall_seconds: float) -> Outlook:
        """Take a look.

        Parameters
        ----------
        now_ps, packet_hops
            Simulated time, and packet hops so far.
        message_share
            0..1, of the payload of messages that have ended.
        wall_seconds
            Since the run began.
        """
        predicted = float(np.interp(now_ps, self._time_ps[:-1], self._work[:-1])) if len(self._time_ps) > 1 else 0.0
        at = max(0, bisect.bisect_right(self._wall, wall_seconds / 2) - 1)
        before_predicted, before_hops = self._seen[at]
        seconds = wall_seconds - self._wall[at]
        speed = (packet_hops - before_hops) / seconds if seconds > 0 else 0.0
        inertia = _INERTIA * self._total
        if self._until_ps < FOREVER_PS:
            seen = (packet_hops - before_hops + inertia) / max(predicted - before_predicted + inertia, 1.0)
            left = max(0.0, self._total - predicted) * seen
            if now_ps >= self._until_ps:
                left = 0.0
            elif now_ps > 0:
                # Where nothing was predicted to happen any more, what goes on may go on to the end as it has so far.
                rest = packet_hops * (self._until_ps / now_ps - 1)
                left = max(left, rest) if packet_hops > self._total or predicted >= self._total else left
        elif packet_hops < self._total:
            left = self._total - packet_hops
        else:
            # More than was predicted: as much again as it is more already, unless the messages say that it is less.
            share = max(message_share, 0.5)
            left = min(packet_hops - self._total + inertia, packet_hops * (1 - share) / share)
        self._remember(wall_seconds, predicted, packet_hops)
        self._done_share = max(self._done_share, packet_hops / max(1.0, packet_hops + left))
        return Outlook(self._done_share, left / speed if speed > 0 else None)

    def _remember(self, wall_seconds: float, predicted: float, packet_hops: int) -> None:
        self._wall.append(wall_seconds)
        self._seen.append((predicted, float(packet_hops)))
        if len(self._wall) > _KEPT:
            del self._wall[1::2], self._seen[1::2]
