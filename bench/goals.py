"""What fabemu is to reach on an idle machine, as data: figure, limit, and the cases that it holds for."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cases import CASES

FIGURE_CASES = (
    "clean-128",
    "clean-1024",
    "clean-8192",
    "congested-128",
    "congested-1024",
    "incast-128",
    "incast-1024",
)
"""The cases with a goal."""

SPEED_FIGURE = "fast_hops_per_cpu_second"
"""Figure of the goals that every case has one of."""


@dataclass(frozen=True)
class Goal:
    """A limit of one figure.

    Attributes
    ----------
    what
        One line for the reader.
    figure
        Key of the figure in what `bench.figures.measure` gives; of start-up in what `bench.figures.start_up` gives.
    limit
        In `unit`.
    unit
        For the reader; empty for a ratio.
    scale
        One `unit` in that of the figure.
    is_least
        The figure is to be `limit` at least; else at most.
    cases
        Names of the cases; none for what is no case's.
    """

    what: str
    figure: str
    limit: float
    unit: str
    scale: float
    is_least: bool
    cases: tuple[str, ...] = ()

    def missed_by(self, value: float) -> float:
        """Share of the limit by which a figure misses it; 0 if it does not."""
        limit = self.limit * self.scale
        return max(0.0, limit - value if self.is_least else value - limit) / limit

    def verdict(self, value: float) -> str:
        """Say "reached", or "missed by x %", a share of the limit."""
        missed = self.missed_by(value)
        # What is missed is never shown as missed by nothing.
        return f"missed by {max(0.1, 100 * missed):.1f} %" if missed else "reached"

    @property
    def limit_text(self) -> str:
        """The limit with its unit."""
        return f"at {'least' if self.is_least else 'most'} {self.limit:g} {self.unit}".rstrip()

    def shown(self, value: float) -> str:
        """A figure in the unit of the limit, to three digits or more."""
        number = value / self.scale
        return f"{number:.0f}" if abs(number) >= 100 else f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def _speed(what: str, limit: float, *cases: str) -> Goal:
    return Goal(what, SPEED_FIGURE, limit, "Mhop/CPU-s", 1e6, True, cases)


def _memory(what: str, limit: float, workload: str) -> Goal:
    cases = tuple(name for name in FIGURE_CASES if CASES[name].workload == workload)
    return Goal(what, "engine_bytes_per_host", limit, "kB", 1e3, False, cases)


_LARGE = tuple(name for name in FIGURE_CASES if CASES[name].hosts >= 1024)

GOALS: tuple[Goal, ...] = (
    _speed("permutation without collisions, one thread", 30, "clean-128", "clean-1024"),
    _speed("permutation without collisions, 8,192 hosts, one thread", 18, "clean-8192"),
    _speed("random permutation with DCQCN, one thread", 15, "congested-128", "congested-1024"),
    # Of 128 hosts: with 1,024 it is the frames that wait in deep buffers that are measured, see docs/SPEED.md.
    _speed("incast with DCQCN, 128 hosts, one thread", 12, "incast-128"),
    Goal("two threads of 2 x one, 1,024 hosts and more", "efficiency", 0.8, "", 1, True, _LARGE),
    Goal("two threads of two processes, 1,024 hosts and more", "pair_efficiency", 0.8, "", 1, True, _LARGE),
    _memory("memory of the engine per host, permutation without collisions", 16, "clean"),
    _memory("memory of the engine per host, random permutation", 40, "congested"),
    Goal("CPU time of default traces", "trace_share", 10, "%", 0.01, False, FIGURE_CASES),
    Goal("`fabemu run` of two hosts from start to end", "run_wall_seconds", 0.5, "s", 1, False),
)
"""All goals."""


def speed_goal(name: str) -> Goal | None:
    """The goal of a case for packet hops per CPU-second; None if it has none."""
    return next((goal for goal in GOALS if goal.figure == SPEED_FIGURE and name in goal.cases), None)
