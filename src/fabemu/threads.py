"""How many threads step an engine: as many as pay, which is measured while it runs."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from fabemu.counted import agreeing, counted
from fabemu.errors import InputError
from fabemu.partition import partition
from fabemu.plan import SCHEDULER_WINDOW, Plan

TRIAL_CALLS = 4
"""Calls of the engine that are timed with either number of threads."""

PATIENCE_CALLS = 2, 256
"""Calls before the first trial, and between two when nothing is gained by them; four times as many after each."""

PATIENCE_SECONDS = 0.05
"""Time of a call after which several threads give up."""

SHORT_HOPS = 200_000
"""Packet hops per thread and call at most, as long as it is not known what pays: short runs are to gain by it too."""

CALL_SECONDS = 0.1
"""How long a call with more than that may take, about: whoever waits for its end is not to notice."""

HOPS_PER_WINDOW = 64
"""Packet hops in a window below which nothing else is tried: some microseconds of work, the price of a meeting."""

GAIN = 1.05
"""How much faster another number of threads must be to be taken."""

_RUNNING = 0  # what Engine.run returns when its budget is used up


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allowed_threads(asked: int | None) -> int:
    """Most threads that a run may use.

    Parameters
    ----------
    asked
        By the user; None for all cores.

    Raises
    ------
    InputError
        It is not from 1 to the number of cores: more threads than cores wait for each other.
    """
    most = cores()
    if asked is None:
        return most
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise InputError(f"threads = {asked!r}: a whole number from 1 to {most}, or None for what pays")
    if not 1 <= asked <= most:
        range_text = "only 1" if most == 1 else f"1 to {most}"
        raise InputError(
            f"{asked} {agreeing(asked, 'thread')}: this process may use {counted(most, 'core')}, so {range_text} can "
            f"be asked for; leave it out to use what pays. Results never depend on it"
        )
    return asked


def can_share(plan: Plan) -> bool:
    """Whether several threads may step a plan: the compatibility scheduler cannot, nor can links with credits."""
    return plan.scheduler == SCHEDULER_WINDOW and not bool(plan.port_credit.any())


class Threads:
    """Steps an engine with one thread, or with more when that is faster.

    Every now and then twice or half as many are tried for some calls, and taken if they are faster; where windows hold
    next to nothing it is not even tried. So a run whose windows are too small stays with one thread, and so does one
    whose other cores are busy. Which of them it is, and who steps which device, makes no difference to results.

    Parameters
    ----------
    engine
        What is stepped, made for `most` threads.
    plan
        What it steps.
    most
        Threads that may be used.
    clock
        Seconds, as `time.perf_counter` gives them.

    Attributes
    ----------
    count
        Threads in use.
    hops
        Packet hops by number of threads, so far.
    """

    def __init__(self, engine: Any, plan: Plan, most: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin with one thread."""
        self._engine = engine
        self._plan = plan
        self._clock = clock
        groups = int(plan.host_group.max(initial=-1)) + 1
        self._most = min(most, max(1, groups)) if getattr(engine, "can_share", False) else 1
        self._load: np.ndarray = np.zeros(plan.node_count)
        self._patience = PATIENCE_CALLS[0]
        self._calls = 0  # since the last trial
        self._speeds: deque[float] = deque(maxlen=TRIAL_CALLS)
        self._before: tuple[int, float] | None = None  # in a trial: threads and speed to compare with
        self._is_cold = False
        self._gathered = np.zeros(3)  # hops, seconds and windows since the last were learned from
        self._speed = 0.0  # of each thread in the last call, packet hops per second
        self._upward = True
        self.count = 1
        self.hops: dict[int, int] = {}

    def run(self, stop_ps: int, budget: int) -> int:
        """Call ``engine.run`` with a budget for each thread, and learn from how long it takes."""
        engine = self._engine
        step = min(budget, SHORT_HOPS)
        budget = min(budget, max(step, int(self._speed * CALL_SECONDS))) if self._is_settled else step
        hops, windows, begun = engine.packet_hops, engine.windows, self._clock()
        status = engine.run(stop_ps, budget * self.count, PATIENCE_SECONDS)
        seconds, hops = self._clock() - begun, engine.packet_hops - hops
        self._speed = hops / seconds / self.count if seconds > 0 else 0.0
        self.hops[self.count] = self.hops.get(self.count, 0) + hops
        if self._most > 1 and status == _RUNNING and seconds > 0:
            self._gather(hops, seconds, (engine.windows - windows) % 2**32, step)
        return int(status)

    @property
    def _is_settled(self) -> bool:
        """Whether another number of threads has been tried in vain, or cannot be."""
        return self._most == 1 or (self._before is None and self._patience > PATIENCE_CALLS[0])

    def _gather(self, hops: int, seconds: float, windows: int, step: int) -> None:
        """Learn from calls that end early, as when a batch of rows is full, once they come to half a short one."""
        self._gathered += (hops, seconds, windows)
        all_hops, all_seconds, all_windows = self._gathered.tolist()
        # Several threads give up after a while: that is to be learned.
        if all_hops < step * self.count // 2 and (self.count == 1 or all_seconds < PATIENCE_SECONDS):
            return
        self._gathered[:] = 0
        if self.count > 1 or all_hops >= HOPS_PER_WINDOW * all_windows:
            self._learn(all_hops / all_seconds, max(1, int(all_hops) // (step * self.count)))

    def _learn(self, speed: float, calls: int) -> None:
        """Take the speed of what might have been so many calls."""
        if self._is_cold:
            # The first call after devices have changed hands fills caches.
            self._is_cold = False
            return
        self._speeds.append(speed)
        self._calls += calls
        if self._before is not None:
            if len(self._speeds) == TRIAL_CALLS or speed < 0.5 * self._before[1]:
                self._judge(*self._before)
        elif self._calls >= self._patience and len(self._speeds) >= min(TRIAL_CALLS, self._patience):
            self._try_other()

    def _try_other(self) -> None:
        """Begin a trial of twice as many threads, or of half."""
        upward = self._upward if 1 < self.count < self._most else self.count == 1
        other = min(2 * self.count, self._most) if upward else self.count // 2
        self._before = self.count, median(self._speeds)
        self._use(other)

    def _judge(self, count: int, speed: float) -> None:
        """End a trial: `count` threads had `speed` before it."""
        gained = median(self._speeds) >= GAIN * speed
        if not gained and self.count < count and median(self._speeds) * GAIN >= speed:
            # The same with fewer.
            gained = True
        self._before = None
        if gained:
            self._patience = PATIENCE_CALLS[0]
            self._calls = 0
            return
        self._upward = not self._upward
        self._patience = min(4 * self._patience, PATIENCE_CALLS[1])
        self._use(count)

    def _use(self, count: int) -> None:
        """Go on with so many threads, devices shared out by what they have sent since the last time."""
        self._speeds.clear()
        self._gathered[:] = 0
        self._calls = 0
        self._is_cold = True
        load = np.bincount(self._plan.port_node, self._engine.ports()["hops"], minlength=self._plan.node_count)
        recent, self._load = load - self._load, load
        try:
            self._engine.share(partition(self._plan, count, recent))
        except OSError:
            # The system gives no more threads: so be it.
            self._most = 1
            self._before = None
            self._engine.share(np.zeros(self._plan.node_count, np.int32))
        self.count = self._engine.threads
