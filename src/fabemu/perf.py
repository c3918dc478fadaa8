"""One collective over a range of sizes, in the figures of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabemu.deferred import dataclass
from fabemu.errors import InputError, MachineError, Problem, ScenarioError
from fabemu.simulate import Simulation
from fabemu.trace import integer_column

if TYPE_CHECKING:
    from fabemu.scenario import Scenario
    from fabemu.scenario.workload import Collective

TYPES = {"int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "float": 4, "int32": 4, "double": 8, "int64": 8}
"""Bytes of the types of nccl-tests."""

SIZES_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class PerfRow:
    """One size. Times are means over the measured runs; NaN figures mean that a run did not come to its end."""

    size_bytes: int
    count: int  # elements
    type: str
    operation: str
    algorithm: str
    ranks: int
    time_ps: float
    algbw_bps: float
    busbw_bps: float
    ideal_ps: float
    ideal_busbw_bps: float
    packet_hops: int

    @property
    def efficiency(self) -> float:
        """Ideal time over time."""
        return self.ideal_ps / self.time_ps if self.time_ps > 0 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        values = {**vars(self), "efficiency": self.efficiency}
        return {key: None if value != value else value for key, value in values.items()}


def sizes_between(begin_bytes: int, end_bytes: int, *, factor: int | None, step_bytes: int | None) -> list[int]:
    """Sizes from begin to end, both included if they are hit: each `factor` times the last, or `step_bytes` more.

    Raises
    ------
    InputError
        There are none, or too many.
    """
    if begin_bytes > end_bytes:
        raise InputError(
            f"sizes begin at {begin_bytes} B and end at {end_bytes} B; they must not begin above their end"
        )
    if factor is not None and begin_bytes < 1:
        raise InputError("a size of 0 B cannot be multiplied: begin at 1 B or more, or give --step")
    sizes = [begin_bytes]
    while sizes[-1] <= end_bytes and len(sizes) <= SIZES_MAX:
        sizes.append(sizes[-1] * factor if factor is not None else sizes[-1] + (step_bytes or 1))
    if len(sizes) > SIZES_MAX:
        raise InputError(f"more than {SIZES_MAX:,} sizes; take a larger step")
    return sizes[:-1]


def template(scenario: Scenario) -> Collective:
    """The scenario's first collective, of which the sizes are variants; the default one if it has none.

    Raises
    ------
    ScenarioError
        The first collective is of tokens, or has a matrix: it has no size to change.
    """
    from fabemu.scenario.workload import Collective

    for index, item in enumerate(scenario.workload):
        if isinstance(item, Collective):
            if item.is_moe:
                message = "sends tokens, not a size: give another operation, such as all-to-all"
                raise ScenarioError(Problem("", f"workload.{index}.operation", message, f'"{item.operation}"'))
            if item.matrix is not None:
                message = "says every size itself: give size in its place"
                raise ScenarioError(Problem("", f"workload.{index}.matrix", message))
            return item
    default = scenario.default_class.name
    return Collective.model_validate({"operation": "all-reduce", "size": "1MB", "label": "perf", "class": default})


def perf(
    scenario: Scenario,
    sizes: Sequence[int],
    *,
    base_dir: Path = Path(),
    iterations: int = 2,
    warm_ups: int = 1,
    type_name: str = "float",
    background: bool = False,
    changes: dict[str, Any] | None = None,
    threads: int | None = None,
) -> Iterator[PerfRow]:
    """Run a collective at every size, each in a simulation of its own.

    Parameters
    ----------
    scenario
        The fabric, and the collective (see `template`).
    sizes
        Bytes, as nccl-tests counts them.
    base_dir
        Directory of the scenario file.
    iterations, warm_ups
        Runs that are measured, and those before them that are not: buffers are empty and senders fast before the first.
    type_name
        A key of `TYPES`: data is cut at whole elements.
    background
        Keep the other workloads of the scenario.
    changes
        Keys of the collective to set.
    threads
        Most threads of each simulation.

    Raises
    ------
    ScenarioError, InputError, MachineError
        As `fabemu.simulate.prepare`.
    """
    chosen = template(scenario)
    element = TYPES[type_name]
    scenario = _with_places(scenario, base_dir)
    others = tuple(item for item in scenario.workload if item is not chosen) if background else ()
    for size in sizes:
        whole = size // element * element
        item = chosen.model_copy(
            update={
                "size": whole,
                "element": element,
                "iterations": iterations + warm_ups,
                # What is computed between the runs is no part of their time.
                "compute": 0,
                **(changes or {}),
            }
        )
        yield _row(scenario, (item, *others), base_dir, iterations, warm_ups, type_name, threads)


def _with_places(scenario: Scenario, base_dir: Path) -> Scenario:
    """The same scenario with the GPUs of every job named: a job keeps its place when others are left out."""
    from fabemu.compile import compile_plan

    if not scenario.job:
        return scenario
    compiled = compile_plan(scenario, base_dir=base_dir)
    names = compiled.fabric.host_names
    jobs = tuple(
        job.model_copy(update={"ranks": None, "hosts": tuple(names[host] for host in placed.hosts.tolist())})
        for job, placed in zip(scenario.job, compiled.graph.jobs, strict=True)
    )
    return scenario.model_copy(update={"job": jobs})


def _row(
    scenario: Scenario,
    workload: tuple[Any, ...],
    base_dir: Path,
    iterations: int,
    warm_ups: int,
    type_name: str,
    threads: int | None,
) -> PerfRow:
    from fabemu.compile import compile_plan
    from fabemu.cost.admission import admit

    item = workload[0]
    trace = scenario.trace.model_copy(update={"tables": ("collectives",), "interval": "off"})
    jobs = tuple(job for job in scenario.job if any(other.job == job.name for other in workload))
    small = scenario.model_copy(update={"workload": workload, "trace": trace, "job": jobs})
    compiled = compile_plan(small, base_dir=base_dir)
    admit(compiled, trace.tables, threads=1)
    run = Simulation(small, compiled, base_dir=base_dir, findings=(), threads=threads).run()
    if run.info["status"] not in ("finished", "deadlocked"):
        raise MachineError(f"the run of {item.size} B ended early: {run.info['status']}")
    table = run.table("collectives")
    first = compiled.graph.collectives[0]
    ends, begins = integer_column(table, "end_ps"), integer_column(table, "start_ps")
    whole = warm_ups + iterations
    time_ps = float("nan")
    if (ends[:whole] >= 0).all():
        begin_ps = int(ends[warm_ups - 1]) if warm_ups else int(begins[0])
        time_ps = (int(ends[whole - 1]) - begin_ps) / iterations
    algbw = item.size * 8e12 / time_ps if time_ps > 0 else float("nan")
    ideal_algbw = item.size * 8e12 / first.ideal_ps if first.ideal_ps > 0 else float("nan")
    return PerfRow(
        size_bytes=item.size,
        count=item.size // TYPES[type_name],
        type=type_name,
        operation=first.operation,
        algorithm=first.algorithm,
        ranks=first.ranks,
        time_ps=time_ps,
        algbw_bps=algbw,
        busbw_bps=algbw * first.bus_factor,
        ideal_ps=float(first.ideal_ps),
        ideal_busbw_bps=ideal_algbw * first.bus_factor,
        packet_hops=run.info["totals"]["packet_hops"],
    )
