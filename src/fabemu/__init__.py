"""fabemu: packet-level emulator of lossless Ethernet fabrics.

``run = fabemu.run("scenario.toml")`` simulates, ``fabemu.load("websearch.run")`` opens what a run left; both give a
`Run` with ``flows``, ``ports``, ``pauses`` and ``drops`` as Arrow tables. ``fabemu.prepare(...)`` gives a `Simulation`
to be stepped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabemu.comparison import Comparison, compare
    from fabemu.errors import EngineFault, FabemuError, InputError, MachineError, OutputError, ScenarioError
    from fabemu.result import Run, load
    from fabemu.scenario import Scenario, load_scenario, scenario_from_dict
    from fabemu.simulate import Simulation, Snapshot, prepare, run
    from fabemu.sweeps import Sweep, load_sweep, sweep, tune

__all__ = [
    "Comparison",
    "EngineFault",
    "FabemuError",
    "InputError",
    "MachineError",
    "OutputError",
    "Run",
    "Scenario",
    "ScenarioError",
    "Simulation",
    "Snapshot",
    "Sweep",
    "compare",
    "load",
    "load_scenario",
    "load_sweep",
    "prepare",
    "run",
    "scenario_from_dict",
    "sweep",
    "tune",
]

# Importing the package stays cheap: each name brings in its module when it is first used.
_HOMES = {
    "Comparison": "comparison",
    "EngineFault": "errors",
    "FabemuError": "errors",
    "InputError": "errors",
    "MachineError": "errors",
    "OutputError": "errors",
    "Run": "result",
    "Scenario": "scenario",
    "ScenarioError": "errors",
    "Simulation": "simulate",
    "Snapshot": "simulate",
    "Sweep": "sweeps",
    "compare": "comparison",
    "load": "result",
    "load_scenario": "scenario",
    "load_sweep": "sweeps",
    "prepare": "simulate",
    "run": "simulate",
    "scenario_from_dict": "scenario",
    "sweep": "sweeps",
    "tune": "sweeps",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from fabemu.version import version

        return version()
    if name not in _HOMES:
        raise AttributeError(f"module 'fabemu' has no attribute {name!r}")
    value = getattr(import_module(f"fabemu.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
