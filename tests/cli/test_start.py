"""The command starts without what it does not need: which modules are loaded, not how long it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"

# Each of these takes longer to import than a small run takes.
HEAVY = {"pandas", "scipy", "numba", "matplotlib", "dask", "distributed", "optuna", "pyarrow.compute"} | {
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyarrow.csv",
    "numpy.ma",
}
OF_A_RUN = {"numpy", "pyarrow", "pydantic", "fabemu.simulate", "fabemu.scenario"}

PROGRAM = """
import json, sys
from fabemu.cli import main
try:
    main(sys.argv[2:])
except SystemExit as ended:
    code = ended.code
with open(sys.argv[1], "w") as file:
    json.dump([code, sorted(sys.modules)], file)
"""

# Classes of fabemu that the standard decorator made, which compiles all their methods at once.
COMPILED = """
import dataclasses, json, sys
from fabemu.cli import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
found = {
    f"{name}.{key}"
    for name, module in list(sys.modules.items())
    if name.startswith("fabemu.")
    for key, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == name and dataclasses.is_dataclass(value)
    if value.__dataclass_params__.init
}
with open(sys.argv[1], "w") as file:
    json.dump([0, sorted(found)], file)
"""


def loaded(tmp_path: Path, *arguments: str, program: str = PROGRAM) -> set[str]:
    """Modules that are there after the command has ended, or what else the program looks for."""
    found = tmp_path / "modules.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run(
        [sys.executable, "-c", program, str(found), *arguments],
        env=environment,
        capture_output=True,
        check=True,
        timeout=60,
    )
    code, modules = json.loads(found.read_text(encoding="utf-8"))
    assert code == 0
    return set(modules)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["sweep", "--help"], ["compare", "--help"]]
)
def test_help_needs_next_to_nothing(tmp_path: Path, arguments: list[str]) -> None:
    assert not (HEAVY | OF_A_RUN | {"rich"}) & loaded(tmp_path, *arguments)


@pytest.mark.parametrize("trace", ["default", "packets"])
@pytest.mark.parametrize(
    "scenario",
    ["smoke/two-hosts.toml", "incast/victim.toml", "incidents/storm.toml", "incidents/lost-last-packet.toml"],
)
def test_run_needs_numpy_arrow_and_pydantic_alone(tmp_path: Path, scenario: str, trace: str) -> None:
    directory = tmp_path / "run"
    arguments = [str(SCENARIOS / scenario), "-o", str(directory), "--trace", trace, "--until", "100us"]
    modules = loaded(tmp_path, "run", *arguments)
    assert modules >= OF_A_RUN
    assert not HEAVY & modules
    # The progress bar is for terminals, the rules of SONiC for SONiC.
    assert not {"rich", "fabemu.lint.sonic", "fabemu.sweeps", "fabemu.importers"} & modules


def test_dataclasses_of_a_run_compile_nothing_before_they_are_used(tmp_path: Path) -> None:
    arguments = ["run", str(SCENARIOS / "smoke/two-hosts.toml"), "-o", str(tmp_path / "run")]
    assert not loaded(tmp_path, *arguments, program=COMPILED), "take `dataclass` from fabemu.deferred"


def test_check_needs_no_more_than_a_run(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "check", str(SCENARIOS / "smoke/two-hosts.toml"))
    assert not (HEAVY | {"rich", "fabemu.lint.sonic", "fabemu.sweeps", "fabemu.importers"}) & modules


def test_package_alone_imports_nothing(tmp_path: Path) -> None:
    program = "import sys, fabemu; print(*sorted(name for name in sys.modules if name.startswith('fabemu')))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["fabemu"]
