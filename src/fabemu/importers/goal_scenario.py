"""Import of a GOAL trace: a scenario that runs it, on a switch of its own or on the fabric of another scenario."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fabemu.errors import OutputError
from fabemu.importers.goal import GoalTrace, read_goal
from fabemu.importers.goal_text import CALC, SEND
from fabemu.scenario import load_scenario
from fabemu.scenario.write import plain, tables_toml, toml_value
from fabemu.units import format_time
from fabemu.whole_file import write_text

_TAKEN = ("seed", "compat", "fabric", "scale_up", "frames", "link", "switch", "nic", "class", "deadlock", "routing")
"""Keys of another scenario that make its fabric what it is."""

_PORTS_MAX, _PORT_KIB = 512, 128
"""Ports that the default buffer of a switch is good for, and what each has of it then."""


def import_goal(
    path: Path, output: Path, *, fabric: Path | None = None, calc_unit_ps: int = 1_000, force: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """Check a GOAL file and write a scenario that runs it where it is.

    Parameters
    ----------
    path
        The GOAL file.
    output
        The scenario to write; its directory is made if it is not there.
    fabric
        A scenario whose fabric, links, switches, NICs, classes and the like are taken; by default all ranks are at one
        switch.
    calc_unit_ps
        What the numbers of calc count.
    force
        Overwrite an existing file.

    Returns
    -------
    tuple
        Path of the scenario, and notes for the user.

    Raises
    ------
    InputError
        The GOAL file is wrong.
    ScenarioError
        The other scenario is wrong.
    OutputError
        The scenario exists and `force` is not set, or cannot be written.
    MachineError
        The disk is full.
    """
    trace = read_goal(path)
    if output.exists() and not force:
        raise OutputError(f"{output}: exists already; choose another -o or overwrite with --force")
    text = goal_scenario(trace, path, output, fabric, calc_unit_ps)
    write_text(output, text)
    return output, _notes(trace)


def goal_scenario(trace: GoalTrace, path: Path, output: Path, fabric: Path | None, calc_unit_ps: int) -> str:
    """The scenario as TOML text; parameters as of `import_goal`."""
    source = f"# Imported with `fabemu import goal` from {json.dumps(path.name)}"
    lines = [source + ("." if fabric is None else f", on the fabric of {json.dumps(fabric.name)}.")]
    lines += [f"# {trace.rank_count:,} ranks, {len(trace):,} operations, {int((trace.kind == SEND).sum()):,} messages."]
    lines += [f"name = {toml_value(path.stem or 'goal')}", ""]
    if fabric is None:
        lines += ["[fabric]", 'kind = "single-switch"', f"hosts = {trace.rank_count}", ""]
        if trace.rank_count > _PORTS_MAX:
            lines += ["[switch]  # no switch has so many ports: each gets its share of the buffer, as on a small one"]
            lines += [f'buffer = "{trace.rank_count * _PORT_KIB}KiB"', ""]
    else:
        lines += _tables_of(fabric, output)
    lines += [
        "[[workload]]",
        'kind = "goal"',
        f"path = {toml_value(_beside(path, output))}",
        f'calc_unit = "{format_time(calc_unit_ps)}"',
    ]
    return "\n".join(lines) + "\n"


def _beside(path: Path, output: Path) -> str:
    """Name of a file as the scenario at `output` says it."""
    return path.as_posix() if path.is_absolute() else Path(os.path.relpath(path, output.parent)).as_posix()


def _tables_of(fabric: Path, output: Path) -> list[str]:
    """Tables of another scenario that say how its fabric is, every default spelt out."""
    scenario = load_scenario(fabric)
    tables: dict[str, Any] = {key: value for key, value in plain(scenario).items() if key in _TAKEN}
    links = tables.get("fabric", {}).get("links_csv")
    if links is not None:
        tables["fabric"]["links_csv"] = _beside(fabric.parent / links, output)
    return [tables_toml(tables)]


def _notes(trace: GoalTrace) -> tuple[str, ...]:
    """What is done otherwise than by the tools of the language."""
    if not trace.uses_cpus and not ((trace.kind == CALC) & (trace.value > 0)).any():
        return ()
    return ("a rank computes all that is ready at once, whatever the cpu; only requires puts one calc after another",)
