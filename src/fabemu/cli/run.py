"""``fabemu run``: simulate a scenario."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabemu.cli import EXIT_FINE, EXIT_UNFINISHED, Simulating
from fabemu.cli.path import UserPath
from fabemu.cli.signals import Signals
from fabemu.cli.whole import SEED, THREADS
from fabemu.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabemu.compile import Compiled
    from fabemu.lint import Finding
    from fabemu.result import Run
    from fabemu.scenario import Scenario

_LEVELS = ("off", "flows", "default", "budget", "packets")  # the keys of simulate.TRACE_LEVELS, without its import
_ENGINES = ("fast", "exact", "classic")  # those of simulate.ENGINES

IGNORE_MEMORY = "Go on even if there is surely not enough memory."
"""Help of the option of that name."""

_THREADS = "Most threads to use; results do not depend on it.  [default: all cores, when it pays]"


def _checked_threads(_: click.Context, __: click.Parameter, value: int | None) -> int | None:
    if value is None:
        return None
    from fabemu.errors import InputError
    from fabemu.threads import allowed_threads

    try:
        return allowed_threads(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from error


@click.command("run", cls=Simulating)
@click.argument("scenario", type=UserPath())
@click.option("-o", "--output", type=UserPath(), help="Run directory.  [default: ./NAME.run]")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY.PATH=VALUE", help="Change a value of the scenario; repeatable."
)
@click.option("--seed", type=SEED, help="Seed of all random draws, instead of the scenario's.")
@click.option("--until", metavar="TIME", help="End the run at this simulated time, such as 2ms.")
@click.option("--threads", type=THREADS, callback=_checked_threads, help=_THREADS)
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    help="How to step: in windows with shortcuts, without them, or with one heap of events; results are the same, to "
    "check that they are.  [default: fast]",
)
@click.option("--trace", "level", type=click.Choice(_LEVELS), help="Tables to write.  [default: as the scenario says]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="No talk on stderr, only warnings and errors.")
@click.option("--force", is_flag=True, help="Replace the run that the run directory holds.")
@click.option("--ignore-memory", is_flag=True, help=IGNORE_MEMORY)
@click.pass_context
def command(
    context: click.Context,
    scenario: Path,
    output: Path | None,
    overrides: tuple[str, ...],
    seed: int | None,
    until: str | None,
    threads: int | None,
    engine: str | None,
    level: str | None,
    as_json: bool,
    quiet: bool,
    force: bool,
    ignore_memory: bool,
) -> int:
    """Simulate SCENARIO (a TOML file), write a run directory, and print a summary.

    Ctrl-C, SIGTERM or SIGHUP ends the run in good order: the tables written so far stay readable.

    \b
    Examples:
      fabemu run scenario.toml
      fabemu run scenario.toml -o out --seed 7 --until 2ms
      fabemu run scenario.toml --set workload.0.load=0.8 --json | jq .summary
    """
    from fabemu.cost.admission import admit
    from fabemu.run_directory import default_directory
    from fabemu.threads import allowed_threads

    with Signals() as signals:
        loaded, compiled = load(scenario, overrides, seed=seed, until=until, level=level, ignore_memory=ignore_memory)
        most = allowed_threads(threads)
        near = admit(compiled, loaded.trace.tables, threads=most, ignore_memory=ignore_memory)
        if near is not None:
            click.echo(f"warning: {near}", err=True)
        findings = say_findings(loaded, compiled)
        if not quiet:
            click.echo(f"simulating {loaded.name}: {facts(compiled)}", err=True)
        directory = output if output is not None else default_directory(loaded.name)
        result = _simulate(
            loaded,
            compiled,
            findings,
            directory,
            force=force,
            base_dir=scenario.parent,
            threads=threads,
            engine=engine,
            quiet=quiet,
            signals=signals,
        )
    summary = result.summary()
    if as_json:
        click.echo(json.dumps(summary.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        summary.show(sys.stdout)
    if signals.exit_code is not None and result.info["status"] == "interrupted":
        click.echo(f"interrupted; what was written so far is in {directory}", err=True)
        return signals.exit_code
    return _verdict(result)


def load(
    path: Path,
    overrides: tuple[str, ...] = (),
    *,
    seed: int | None = None,
    until: str | None = None,
    level: str | None = None,
    ignore_memory: bool = False,
) -> tuple[Scenario, Compiled]:
    """Scenario and plan of a file, changed by options; with `ignore_memory`, even if it surely does not fit.

    Raises
    ------
    MachineError
        There is surely not enough memory, and that is not to be ignored.
    ScenarioError, InputError
        If anything about them is wrong; problems name the option that the user typed.
    """
    from fabemu.compile import compile_plan
    from fabemu.cost.admission import admit_scenario
    from fabemu.errors import ScenarioError
    from fabemu.scenario import load_scenario, locate
    from fabemu.simulate import trace_overrides

    typed = {f"--set {text}": f"--set {text}" for text in overrides}
    changes = list(overrides)
    if seed is not None:
        changes.append(f"seed={seed}")
        typed[f"--set seed={seed}"] = f"--seed {seed}"
    if until is not None:
        # Quoted as TOML wants it, so that "5" is a text without a unit and not a number.
        text = f"until={json.dumps(until)}"
        changes.append(text)
        typed[f"--set {text}"] = f"--until {until}"
    for text in trace_overrides(level):
        changes.append(text)
        typed[f"--set {text}"] = f"--trace {level}"
    try:
        scenario = load_scenario(path, changes)
        lack = admit_scenario(scenario, path.parent, ignore_memory=ignore_memory)
        if lack is not None:
            click.echo(f"warning: {lack}", err=True)
        return scenario, compile_plan(scenario, base_dir=path.parent)
    except ScenarioError as error:
        from dataclasses import replace

        raise ScenarioError(
            replace(problem, where=typed.get(problem.where, problem.where))
            for problem in locate(error, path, changes).problems
        ) from error


def say_findings(scenario: Scenario, compiled: Compiled) -> tuple[Finding, ...]:
    """Lint, print what is more than a note on stderr, and give everything that was found."""
    from fabemu.lint import lint
    from fabemu.report import severity_counts

    findings = lint(scenario, compiled)
    say(findings)
    if any(finding.severity == "error" for finding in findings):
        click.echo(f"{severity_counts(finding.severity for finding in findings)}; the run goes on", err=True)
    return findings


def say(findings: Sequence[Finding], *, show_all: bool = False) -> None:
    """Print findings that are more than notes on stderr; many with the same code are counted."""
    from fabemu.lint.finding import More, first_of_each

    found = [finding for finding in findings if finding.severity != "note"]
    for finding in found if show_all else first_of_each(found):
        rest = "; `fabemu check --all` shows them" if isinstance(finding, More) else ""
        click.echo(f"{finding.severity}: {finding}{rest}", err=True)


def facts(compiled: Compiled) -> str:
    """What is to be simulated, in one line."""
    from fabemu.plan import FOREVER_PS
    from fabemu.report import bytes_text, time_text

    plan = compiled.plan
    sends = plan.is_message
    size = float(plan.op_bytes[sends].sum(dtype=float))
    until = time_text(plan.until_ps) if plan.until_ps < FOREVER_PS else "until all is done"
    return (
        f"{counted(plan.host_count, 'host')}, {counted(plan.node_count - plan.host_count, 'switch')}, "
        f"{counted(plan.port_count // 2, 'cable')}; {counted(int(sends.sum()), 'message')}, {bytes_text(size)}; "
        f"seed {plan.seed}; {until}"
    )


def _simulate(
    scenario: Scenario,
    compiled: Compiled,
    findings: tuple[Finding, ...],
    directory: Path,
    *,
    force: bool,
    base_dir: Path,
    threads: int | None,
    engine: str | None,
    quiet: bool,
    signals: Signals,
) -> Run:
    from fabemu.cli.progress import progress_bar
    from fabemu.simulate import Simulation

    simulation = Simulation(
        scenario,
        compiled,
        output=directory,
        force=force,
        base_dir=base_dir,
        findings=findings,
        threads=threads,
        engine=engine,
    )
    signals.stop_with(simulation.stop)
    with progress_bar(sys.stderr, quiet=quiet) as show:
        return simulation.run(show)


def _verdict(result: Run) -> int:
    """Exit code of a run that came to its end."""
    messages = result.info["messages"]
    # `until` asks for an end with messages on their way; a fabric that ran dry with messages left has stalled.
    has_drained = result.info["ended_by"] == "drained"
    stalled, held_back = (messages[key] if has_drained else 0 for key in ("unfinished", "not_run"))
    deadlocked = result.info["status"] == "deadlocked"
    if deadlocked:
        from fabemu.report import deadlock_text

        click.echo(f"error: {deadlock_text(result.info['deadlocks'][-1])}", err=True)
    failed = messages["failed"]
    for count, text in (
        (failed, "failed: out of retries"),
        (stalled, "did not finish, and nothing moves any more"),
        (held_back, f"never ran: what came before {'failed' if failed else 'did not finish'}"),
    ):
        if count:
            click.echo(f"error: {counted(count, 'message')} {text}", err=True)
    return EXIT_UNFINISHED if failed or stalled or held_back or deadlocked else EXIT_FINE
