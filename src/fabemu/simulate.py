"""Compiled scenario to run directory: steps the engine, streams the traces, and ends a run in good order.

The only module that makes an engine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fabemu.cost.admission import admit, admit_scenario
from fabemu.cost.estimate import Cost, estimate_cost
from fabemu.cost.forecast import Forecast, Outlook
from fabemu.cost.memory import BUDGET_HOPS, PACKETS_BUDGET_HOPS
from fabemu.cost.shortage import shortage
from fabemu.deferred import dataclass
from fabemu.errors import EngineFault, FabemuError, InputError, MachineError, OutputError, ScenarioError
from fabemu.lint import Finding, lint
from fabemu.plan import EVENT_DEADLOCK, FOREVER_PS, SCHEDULER_CLASSIC, SCHEDULER_CREATION, Plan
from fabemu.recorder import Recorder
from fabemu.result import Run
from fabemu.run_directory import SCENARIO_FILE, RunDirectory
from fabemu.threads import Threads, allowed_threads, can_share
from fabemu.trace import SCHEMA_VERSION, TABLES, TraceNames
from fabemu.units import parse_time_ps
from fabemu.version import version

if TYPE_CHECKING:
    from fabemu.compile import Compiled
    from fabemu.scenario import Scenario

SLICE_PS = 10 * 10**9
"""Simulated time per call of the engine at most, for times in which timers run but no packet moves."""

TRIAL_BUDGET_HOPS = 20_000
"""Packet hops after which `try_out` looks at the time."""

PROGRESS_SECONDS = 0.1
_RUNNING, _STOPPED, _DRAINED, _FAULT, _DEADLOCKED = range(5)  # what Engine.run returns
_STATUS_DONE, _STATUS_FAILED = 2, 3

TRACE_LEVELS: dict[str, tuple[str, ...]] = {
    "off": (),
    "flows": ("flows", "collectives", "jobs", "steps"),
    "default": ("flows", "ports", "pauses", "drops", "events", "collectives", "jobs", "steps"),
    "budget": ("flows", "ports", "pauses", "drops", "events", "collectives", "jobs", "steps", "packets"),
    "packets": ("flows", "ports", "pauses", "drops", "events", "collectives", "jobs", "steps", "packets"),
}
"""Tables that each trace level writes."""

ENGINES: dict[str, str] = {
    "fast": "windows of time, and switches and hosts take every shortcut that changes no result",
    "exact": "windows of time, every device event by event",
    "classic": "all events of the fabric in one heap, one after the other",
}
"""Ways to step a plan, the first by default: they give the same results, and differ in speed alone."""


@dataclass(frozen=True)
class Snapshot:
    """Where a run stands."""

    now_ps: int  # simulated time
    packet_hops: int  # packets put on a link so far
    in_flight_packets: int  # sent and neither delivered nor dropped
    messages_done: int  # messages acknowledged, or failed
    message_count: int  # messages in all
    done_share: float  # 0..1: of the packet hops, by forecast; without one see `Simulation.step`
    wall_seconds: float  # since the run began
    # Rows since the last snapshot, by table, as the engine numbers them; thousands, so not shown with the rest.
    # Empty in what `Simulation.run` tells its `progress`.
    records: Mapping[str, np.ndarray] = field(repr=False)
    seconds_left: float | None = None  # guess of the wall-clock time that is left; None while there is none

    @property
    def hops_per_second(self) -> float:
        """Packet hops per second of wall clock so far."""
        return self.packet_hops / self.wall_seconds if self.wall_seconds > 0 else 0.0


class Simulation:
    """One run of a compiled scenario, from its run directory to its end.

    Parameters
    ----------
    scenario
        What is simulated; stored in the run directory.
    compiled
        `scenario` as `fabemu.compile.compile_plan` has compiled it.
    output
        The run directory; must not hold anything, see `force`. None: a temporary one, removed with the `Run`.
    force
        Replace the run that `output` holds.
    base_dir
        What the paths in the scenario are relative to.
    engine
        A key of `ENGINES`; None for the one that the scenario wants. Results do not depend on it. Or what makes the
        engine from plan, ``packets=`` and ``threads=``, for tests.
    findings
        What the linter found, if that is known already.
    threads
        Most threads that may step the engine; None for all cores. Results do not depend on it.
    cost
        What `fabemu.cost.estimate.estimate_cost` predicts, if that is known already.

    Raises
    ------
    InputError
        If there are not so many cores, or the scenario has a scheduler of its own and `engine` names another.
    OutputError
        If the run directory cannot be made.
    MachineError
        If it cannot be written.
    """

    def __init__(
        self,
        scenario: Scenario,
        compiled: Compiled,
        *,
        output: str | Path | None = None,
        force: bool = False,
        base_dir: Path | None = None,
        engine: str | Callable[..., Any] | None = None,
        findings: Sequence[Finding] | None = None,
        threads: int | None = None,
        cost: Cost | None = None,
    ) -> None:
        """Make the run directory and the engine."""
        threads = allowed_threads(threads)
        self._cost = cost
        self._forecast: Forecast | None = None
        self._engine_name = "given" if callable(engine) else engine_name(engine, compiled.plan)
        make_engine = engine if callable(engine) else engine_maker(self._engine_name)
        self.scenario = scenario
        self.compiled = compiled
        plan: Plan = compiled.plan
        self._plan = plan
        found = lint(scenario, compiled) if findings is None else findings
        self._findings = [finding for finding in found if finding.severity != "note"]
        self._tables = compiled.tables(scenario.trace.tables)
        self._is_send = plan.is_message
        self._message_count = int(np.count_nonzero(self._is_send))
        self._byte_total = int(plan.op_bytes[self._is_send].sum(dtype=np.float64)) + self._message_count
        self._bytes_done = 0.0
        self._messages_done = 0
        self._cycles: dict[int, list[Any]] = {}  # rows of the deadlocks, by their number
        self._stop_signal: str | None = None
        self._ended = False
        self._end_ps: int | None = None
        self._ended_by = "drained"
        self._wall_seconds = 0.0
        self._cpu_seconds = 0.0
        self.run_result: Run | None = None

        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if output is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fabemu-")
            output = self._temporary.name
        self._plan_digest = plan.digest()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        inputs = input_files(scenario, base_dir or Path())
        self._directory = RunDirectory.create(Path(output), self._first_info(), force=force, keep=inputs.values())
        try:
            stored = self._store_scenario(inputs)
            self._info = {**self._first_info(), "scenario": stored}
            self._directory.write_info({"status": "running", **self._info})
            if not can_share(plan) or self._engine_name == "classic":
                threads = 1
            self._engine = make_engine(
                plan,
                packets="packets" in self._tables,
                ends=scenario.trace.packets == "budget",
                threads=threads,
            )
            self._threads = Threads(self._engine, plan, threads)
            self._recorder = Recorder(
                self.directory,
                self._tables,
                plan,
                trace_names(compiled),
                compiled.graph,
                measured(scenario, plan.op_start_ps),
                compiled.ideal_ps,
                {"plan_digest": self._plan_digest, "seed": str(plan.seed), "version": version()},
                compiled.fabric.host_node,
                scenario.measure,
            )
        except Exception as error:
            self._end_with(error)

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self._directory.path

    def stop(self, reason: str = "stopped") -> None:
        """Ask the run to end soon, with status ``interrupted``; callable from a signal handler or another thread."""
        self._stop_signal = reason

    def run(self, progress: Callable[[Snapshot], None] | None = None, *, forecast: bool = True) -> Run:
        """Run to the end.

        Parameters
        ----------
        progress
            Called about ten times a second.
        forecast
            Predict the work for what `progress` is told of the share that is done and the time that is left, which
            takes up to a second before a large run.

        Returns
        -------
        Run
            Its ``info["status"]`` is ``finished``, ``interrupted`` after `stop`, or ``deadlocked`` if it ended with
            queues that wait for one another for ever.

        Raises
        ------
        EngineFault
            The core stopped or an invariant is broken: a bug in fabemu.
        MachineError
            The disk is full, or memory ran out.
        """
        if progress is not None and forecast and self._forecast is None:
            try:
                cost = self._cost or estimate_cost(self.compiled, self._tables)
            except Exception as error:
                self._end_with(error)
            self._forecast = Forecast(cost, self._plan.until_ps)
        shown = time.monotonic()
        for records, _ in self._steps(FOREVER_PS):
            if progress is not None and time.monotonic() - shown >= PROGRESS_SECONDS:
                shown = time.monotonic()
                progress(self._snapshot(records))
        assert self.run_result is not None
        return self.run_result

    def step(self, interval: str | int) -> Iterator[Snapshot]:
        """Run to the end, with a snapshot after every interval of simulated time.

        Parameters
        ----------
        interval
            A time such as ``"100us"``, or picoseconds.

        Yields
        ------
        Snapshot
            The state at the end of each interval. Its `done_share` is that of the bytes to send or of the time until
            the end, whichever is further, unless `run` has asked for a forecast. After the last one `run_result` is
            set. A loop that is left early leaves the run open: go on with another `step` or `run`, or end it with
            `close`.
        """
        interval_ps = interval if isinstance(interval, int) else parse_time_ps(interval)
        if interval_ps <= 0:
            raise ValueError("the interval of a step must be above 0")
        parts: list[Mapping[str, np.ndarray]] = []
        for records, at_edge in self._steps(interval_ps, keep=True):
            parts.append(records)
            if at_edge:
                yield self._snapshot(_joined(parts))
                parts = []

    def close(self) -> Run:
        """End the run here, if it has not ended: it is ``interrupted``, and what it did not reach unfinished."""
        if not self._ended:
            self.stop("closed")
            for _ in self._steps(FOREVER_PS):
                pass
        assert self.run_result is not None
        return self.run_result

    def __enter__(self) -> Simulation:
        """Close the run at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the run; after an exception mark it as failed."""
        if kind is None:
            self.close()
        elif not self._ended:
            self._fail("failed", MachineError(f"left by {kind.__name__}"))

    def _steps(self, interval_ps: int, *, keep: bool = False) -> Iterator[tuple[Mapping[str, np.ndarray], bool]]:
        """Step the engine; yield records, and whether the end of an interval, or of the run, is reached.

        The last time the run directory is complete. The records are empty unless they are to be kept.
        """
        if self._ended:
            return
        engine = self._engine
        until_ps = self._plan.until_ps
        budget = min(BUDGET_HOPS, PACKETS_BUDGET_HOPS) if "packets" in self._tables else BUDGET_HOPS
        edge_ps = min(engine.now_ps + interval_ps, FOREVER_PS)
        slice_ps = SLICE_PS
        try:
            # What an interrupt, or a loop that was left, kept from being taken.
            left: dict[str, np.ndarray] | None = self._take()
            while True:
                wall, cpu = time.monotonic(), time.process_time()
                state = _RUNNING
                if self._stop_signal is None:
                    stop_ps = min(until_ps, edge_ps, engine.now_ps + slice_ps)
                    hops = engine.packet_hops
                    if not keep:
                        self._recorder.expect(engine)
                    state = self._threads.run(stop_ps, budget)
                    # While nothing moves, time goes by in ever longer steps.
                    slice_ps = min(2 * slice_ps, FOREVER_PS) if engine.packet_hops == hops else SLICE_PS
                records = self._take()
                if left is not None:
                    records, left = _joined([left, records]) if keep else records, None
                over = state in (_DRAINED, _DEADLOCKED) or (state == _STOPPED and stop_ps >= until_ps)
                last = over or self._stop_signal is not None or state == _FAULT
                if last:
                    if state != _FAULT:
                        engine.finish()
                        rest = self._take()
                        records = _joined([records, rest]) if keep else records
                    self._recorder.close(engine, int(engine.now_ps))
                    self._ended_by = "deadlock" if state == _DEADLOCKED else "drained"
                self._wall_seconds += time.monotonic() - wall
                self._cpu_seconds += time.process_time() - cpu
                if state == _FAULT:
                    raise EngineFault(_fault_text(engine))
                if last:
                    self._finish(
                        "interrupted" if not over else "deadlocked" if self._engine.is_deadlocked else "finished"
                    )
                at_edge = last or (state == _STOPPED and stop_ps >= edge_ps)
                if at_edge:
                    edge_ps = min(edge_ps + interval_ps, FOREVER_PS)
                yield records if keep else {table: rows[:0] for table, rows in records.items()}, at_edge
                if last:
                    return
        except EngineFault as error:
            fault = EngineFault(f"{error}; replay it with: {self.replay_command()}")
            self._fail("fault", fault)
            raise fault from error
        except Exception as error:
            self._end_with(error)

    def replay_command(self) -> str:
        """Shell command that does this run again, from its run directory."""
        scenario, output = str(self.directory / SCENARIO_FILE), f"{self.directory}.replay"
        return f"fabemu run {shlex.quote(scenario)} -o {shlex.quote(output)}"

    def _take(self) -> dict[str, np.ndarray]:
        """Take the records of the engine to the tables."""
        records: dict[str, np.ndarray] = self._engine.drain()
        self._recorder.record(records, self._engine)
        self._count(records)
        return records

    def _count(self, records: Mapping[str, np.ndarray]) -> None:
        if len(records["flows"]):
            ended = records["flows"]["op"]
            self._messages_done += len(ended)
            self._bytes_done += float(self._plan.op_bytes[ended].sum(dtype=np.float64)) + len(ended)
        for row in records.get("events", ()):
            if row["kind"] == EVENT_DEADLOCK:
                self._cycles.setdefault(int(row["group"]), []).append(row)

    def _deadlocks(self) -> list[dict[str, Any]]:
        """Every deadlock that was found: when, and the queues of its cycle, each waiting for the next."""
        ports, classes = self.compiled.port_names, self.compiled.class_names
        return [
            {
                "time_ps": int(rows[0]["time_ps"]),
                "class": classes[rows[0]["class"]],
                "queues": [{"port": ports[row["port"]], "bytes": int(row["value"])} for row in rows],
            }
            for _, rows in sorted(self._cycles.items())
        ]

    def _snapshot(self, records: Mapping[str, np.ndarray]) -> Snapshot:
        now_ps = int(self._engine.now_ps)
        packet_hops = int(self._engine.packet_hops)
        share = self._bytes_done / self._byte_total if self._byte_total else 1.0
        if self._forecast is not None:
            outlook = self._forecast.look(now_ps, packet_hops, share, self._wall_seconds)
        else:
            if self._plan.until_ps < FOREVER_PS:
                share = max(share, now_ps / self._plan.until_ps)
            outlook = Outlook(min(share, 1.0), self._wall_seconds * (1 / share - 1) if share > 0 else None)
        return Snapshot(
            now_ps=now_ps,
            packet_hops=packet_hops,
            in_flight_packets=int(self._engine.in_flight_packets),
            messages_done=self._messages_done,
            message_count=self._message_count,
            done_share=outlook.done_share,
            wall_seconds=self._wall_seconds,
            records=records,
            seconds_left=outlook.seconds_left,
        )

    def _first_info(self) -> dict[str, Any]:
        return {
            "name": self.scenario.name,
            "version": version(),
            "seed": self._plan.seed,
            "plan_digest": self._plan_digest,
            "started": self._started,
            "engine": self._engine_name,
            "trace": {
                "schema_version": SCHEMA_VERSION,
                "tables": [name for name in TABLES if name in self._tables],
                "packets": self.scenario.trace.packets,
            },
            "warnings": [str(finding) for finding in self._findings],
            "findings": [
                {
                    "severity": finding.severity,
                    "code": finding.code,
                    "place": finding.place,
                    "message": finding.message,
                }
                for finding in self._findings
            ],
        }

    def _results(self) -> dict[str, Any]:
        """What is known of the run now, for run.json."""
        engine = self._engine
        totals = {key: int(value) for key, value in engine.totals().items()}
        status = engine.ops()["status"][self._is_send]
        return {
            "simulated_ps": int(engine.now_ps),
            "digest": engine.digest,
            "totals": totals,
            "messages": {
                "count": self._message_count,
                "done": int(np.count_nonzero(status == _STATUS_DONE)),
                "failed": int(np.count_nonzero(status == _STATUS_FAILED)),
                "unfinished": int(np.count_nonzero(status == 1)),
                "not_run": int(np.count_nonzero(status == 0)),
            },
            "rows": self._recorder.rows,
            "wall_seconds": round(self._wall_seconds, 3),
            "cpu_seconds": round(self._cpu_seconds, 3),
            "packet_hops_per_cpu_second": round(totals["packet_hops"] / max(self._cpu_seconds, 1e-9)),
            "peak_memory_bytes": peak_memory_bytes(),
            "hops_by_threads": {str(count): hops for count, hops in sorted(self._threads.hops.items())},
        }

    def _finish(self, status: str) -> None:
        checks = [{"name": name, "held": bool(held), "detail": detail} for name, held, detail in self._engine.verify()]
        results = self._results()
        self._end_ps = results["simulated_ps"]
        broken = [check for check in checks if not check["held"]]
        self._info |= {**results, "invariants": checks}
        if broken:
            named = "; ".join(
                f"{check['name']}: {check['detail']}" if check["detail"] else check["name"] for check in broken
            )
            raise EngineFault(f"broken invariant: {named}")
        if self._cycles:
            self._info["deadlocks"] = self._deadlocks()
        asked_to_end = (
            status != "interrupted" and self._plan.until_ps < FOREVER_PS and self._end_ps >= self._plan.until_ps
        )
        info = {
            "status": status,
            "ended_by": self._stop_signal or ("until" if asked_to_end else self._ended_by),
            **self._info,
        }
        self._directory.write_info(info)
        self._ended = True
        self.run_result = Run(self.directory, keep_alive=self._temporary)

    def _end_with(self, error: Exception) -> NoReturn:
        """Mark the run as failed, or at fault, and raise the error as users know it."""
        known = _known(error)
        if known is None:
            self._fail("fault", EngineFault(f"{type(error).__name__}: {error}"))
            raise error
        self._fail("failed", known)
        if known is error:
            raise error
        raise known from error

    def _fail(self, status: str, error: FabemuError) -> None:
        """Mark the run as not complete, as far as that is still possible."""
        self._ended = True
        info = getattr(self, "_info", None) or self._first_info()
        recorder = getattr(self, "_recorder", None)
        if recorder is not None:
            recorder.abandon()
            # After a failure for want of memory there may not be enough to count.
            with contextlib.suppress(MemoryError):
                info = {**self._results(), **info}
        # If even that cannot be written, the error that brought us here says why.
        with contextlib.suppress(MachineError, OutputError, MemoryError):
            self._directory.write_info({"status": status, "error": str(error), **info})

    def _store_scenario(self, inputs: Mapping[tuple[str | int, ...], Path]) -> dict[str, Any]:
        """Write the resolved scenario with copies of its files; return it as a mapping."""
        import tomllib

        scenario = self.scenario
        copies: dict[Path, str] = {}
        for place, path in inputs.items():
            if path not in copies:
                copies[path] = self._directory.copy_input(path)
            scenario = with_path(scenario, place, copies[path])
        text = scenario.to_toml()
        self._directory.write_scenario(text)
        return tomllib.loads(text)


def prepare(
    scenario: Scenario | str | os.PathLike[str] | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    force: bool = False,
    threads: int | None = None,
    ignore_memory: bool = False,
    engine: str | None = None,
) -> Simulation:
    """Load, validate and compile a scenario and make its run directory, ready to be stepped.

    Parameters
    ----------
    scenario
        A file, a mapping with the keys of the file, or a `Scenario`.
    output
        Run directory; None for a temporary one.
    overrides
        ``key.path=value`` each, as for ``--set``; files and mappings only.
    trace
        A key of `TRACE_LEVELS`; None for what the scenario says.
    force
        Replace the run that `output` holds.
    threads
        Most threads that may step the engine; None for all cores. Results do not depend on it.
    ignore_memory
        Go on even if there is surely not enough memory.
    engine
        A key of `ENGINES`; None for the one that the scenario wants. Results do not depend on it.

    Raises
    ------
    ScenarioError, InputError
        If the scenario or a file that it names is wrong, there are not so many cores, or no such engine can step it.
    OutputError, MachineError
        If the run directory cannot be made or written, or there is not enough memory. That it may not be enough is a
        `RuntimeWarning`.
    """
    from fabemu.compile import compile_plan
    from fabemu.scenario import load_scenario, locate, scenario_from_dict

    changes = [*overrides, *trace_overrides(trace)]
    base_dir = Path()
    path: Path | None = None
    if isinstance(scenario, str | os.PathLike):
        path = Path(scenario)
        base_dir = path.parent
        loaded = load_scenario(path, changes)
    elif isinstance(scenario, Mapping):
        loaded = scenario_from_dict(scenario, overrides=changes)
    else:
        loaded = scenario
        if changes:
            raise ValueError("a Scenario object is taken as it is: change it before instead of with overrides or trace")
    warn = [admit_scenario(loaded, base_dir, ignore_memory=ignore_memory)]
    try:
        compiled = compile_plan(loaded, base_dir=base_dir)
    except ScenarioError as error:
        if path is None:
            raise
        raise locate(error, path, changes) from error
    most = allowed_threads(threads)
    warn.append(admit(compiled, loaded.trace.tables, threads=most, ignore_memory=ignore_memory))
    for text in filter(None, warn):
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return Simulation(loaded, compiled, output=output, force=force, base_dir=base_dir, threads=threads, engine=engine)


def run(
    scenario: Scenario | str | os.PathLike[str] | Mapping[str, Any],
    output: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    trace: str | None = None,
    force: bool = False,
    threads: int | None = None,
    ignore_memory: bool = False,
    engine: str | None = None,
    progress: Callable[[Snapshot], None] | None = None,
) -> Run:
    """Run a scenario to its end; see `prepare` for the parameters and `Simulation.run` for what may be raised."""
    simulation = prepare(
        scenario,
        output,
        overrides=overrides,
        trace=trace,
        force=force,
        threads=threads,
        ignore_memory=ignore_memory,
        engine=engine,
    )
    return simulation.run(progress)


def trace_overrides(level: str | None) -> list[str]:
    """What a trace level changes in a scenario, as overrides."""
    if level is None:
        return []
    if level not in TRACE_LEVELS:
        raise ValueError(f"{level!r} is not a trace level; they are {', '.join(TRACE_LEVELS)}")
    tables = ", ".join(f'"{table}"' for table in TRACE_LEVELS[level])
    overrides = [f"trace.tables=[{tables}]"]
    if "packets" in TRACE_LEVELS[level]:
        overrides.append('trace.packets="budget"' if level == "budget" else 'trace.packets="all"')
    return overrides


def trace_names(compiled: Compiled) -> TraceNames:
    """Names behind the numbers of a compiled scenario."""
    return TraceNames(
        nodes=compiled.node_names,
        ports=compiled.port_names,
        classes=compiled.class_names,
        labels=compiled.labels,
        jobs=[job.name for job in compiled.graph.jobs],
        host_count=compiled.plan.host_count,
    )


def measured(scenario: Scenario, start_ps: np.ndarray) -> np.ndarray:
    """(O,) bool: whether a message that may start at `start_ps` counts in the summary."""
    if scenario.measure is None:
        return np.ones(len(start_ps), np.bool_)
    begin_ps, end_ps = scenario.measure
    return (start_ps >= begin_ps) & (start_ps < end_ps)


def input_files(scenario: Scenario, base_dir: Path) -> dict[tuple[str | int, ...], Path]:
    """Files that a scenario reads, by the place of their name in it."""
    from fabemu.workload.cdf import ALIASES, BUILTIN

    known = {name.lower() for name in (*BUILTIN, *ALIASES)}
    found: dict[tuple[str | int, ...], Path] = {}
    links = getattr(scenario.fabric, "links_csv", None)
    if links is not None:
        found["fabric", "links_csv"] = base_dir / links
    for index, workload in enumerate(scenario.workload):
        path, sizes = getattr(workload, "path", None), getattr(workload, "sizes", None)
        if path is not None:
            found["workload", index, "path"] = base_dir / path
        if sizes is not None and sizes.lower() not in known:
            found["workload", index, "sizes"] = base_dir / sizes
    return found


def peak_memory_bytes() -> int:
    """Greatest resident memory of this process so far."""
    # What getrusage says begins with the memory of the process that started this one.
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Speed:
    """What the first packet hops of a run took here."""

    packet_hops: int
    cpu_seconds: float

    @property
    def hops_per_cpu_second(self) -> float:
        """Packet hops per CPU-second."""
        return self.packet_hops / max(self.cpu_seconds, 1e-9)


def try_out(compiled: Compiled, *, seconds: float = 0.5) -> Speed | None:
    """Measure the speed of a run on this machine by doing its beginning, without traces.

    Parameters
    ----------
    compiled
        The run. Its engine is made, which takes the fixed part of its memory.
    seconds
        CPU time to spend, about; less if the run is over.

    Returns
    -------
    Speed or None
        Of what came after the first tenth, in which rings grow and caches fill; None if nothing moves.
    """
    engine = engine_maker(engine_name(None, compiled.plan))(compiled.plan)
    until_ps, budget = compiled.plan.until_ps, TRIAL_BUDGET_HOPS
    begun = time.process_time()
    first: tuple[int, float] | None = None
    while True:
        state = engine.run(min(until_ps, engine.now_ps + SLICE_PS), budget)
        engine.drain()
        spent = time.process_time() - begun
        if first is None and spent >= seconds / 10:
            first = engine.packet_hops, spent
        over = state not in (_RUNNING, _STOPPED) or (state == _STOPPED and engine.now_ps >= until_ps)
        if over or spent >= seconds:
            break
    hops, cpu = (0, 0.0) if first is None or first[0] == engine.packet_hops else first
    return Speed(engine.packet_hops - hops, spent - cpu) if engine.packet_hops > hops else None


def engine_name(asked: str | None, plan: Plan) -> str:
    """Name of the engine that steps a plan, as run.json has it.

    Parameters
    ----------
    asked
        A key of `ENGINES`, or None.
    plan
        What is to be stepped.

    Raises
    ------
    InputError
        There is no such engine, or it cannot step the plan.
    """
    names = ", ".join(ENGINES)
    if asked is not None and not (isinstance(asked, str) and asked in ENGINES):
        raise InputError(f"{asked!r} is no engine: they are {names}")
    if plan.scheduler != SCHEDULER_CREATION:
        return asked or next(iter(ENGINES))
    if asked is not None:
        raise InputError(
            f'engine "{asked}": the scenario says compat = "ns3", and only an engine of its own keeps the order of '
            "events of ns-3; leave the engine out, or compat"
        )
    return "ns3"


def engine_maker(name: str) -> Callable[..., Any]:
    """What makes the engine of a name that `engine_name` gave, from a plan and the options of `Engine`."""
    from fabemu._core.engine import Engine

    def make(plan: Plan, **options: Any) -> Any:
        if name == "classic":
            return Engine(replace(plan, scheduler=SCHEDULER_CLASSIC), **options)
        return Engine(plan, shortcuts=name != "exact", **options)

    return make


def with_path(scenario: Scenario, place: tuple[str | int, ...], path: str) -> Scenario:
    """A scenario that reads another file at a place that `input_files` gives."""
    if place[0] == "fabric":
        return scenario.model_copy(update={"fabric": scenario.fabric.model_copy(update={str(place[1]): path})})
    workloads = list(scenario.workload)
    index = int(place[1])
    workloads[index] = workloads[index].model_copy(update={str(place[2]): path})
    return scenario.model_copy(update={"workload": tuple(workloads)})


def _known(error: Exception) -> FabemuError | None:
    """An error as users know it: of the input or of the machine; None if it is a fault."""
    if isinstance(error, FabemuError):
        return error
    lack = shortage(error)
    if lack is not None:
        return lack.error()
    return MachineError(str(error)) if isinstance(error, OSError) else None


def _fault_text(engine: Any) -> str:
    fault = engine.fault() if callable(getattr(engine, "fault", None)) else None
    if fault is None:
        return f"the engine stopped at {engine.now_ps} ps"
    text, time_ps, node, port = fault
    return f"{text} at {time_ps} ps, node {node}, port {port}"


def _joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Concatenate records, table by table."""
    tables = {table for part in parts for table in part}
    return {table: np.concatenate([part[table] for part in parts if table in part]) for table in tables}
