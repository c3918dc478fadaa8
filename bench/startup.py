"""What a short command costs from the start of Python to its end: `python -m bench.startup`.

Every figure is of fresh processes with byte code compiled, one of each command in turn, so that a busy moment meets
all of them. Beside the commands stand the bare imports of what `fabemu run` cannot do without. `--count` adds
instructions by valgrind, which no neighbour changes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import ROOT, machine

SCENARIO = "scenarios/smoke/two-hosts.toml"


def commands(directory: Path) -> dict[str, list[str]]:
    """Give the arguments of Python by the name of what is measured; runs are written into `directory`."""
    command = ["-m", "fabemu.cli"]
    return {
        "python": ["-c", "pass"],
        "imports": ["-c", "import numpy, pyarrow, pydantic, click"],
        "version": [*command, "--version"],
        "help": [*command, "--help"],
        "check": [*command, "check", SCENARIO],
        "run": [*command, "run", SCENARIO, "--force", "--quiet", "-o", str(directory / "run")],
    }


def _environment() -> dict[str, str]:
    """Give an environment in which byte code is kept, since an installed package has it."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def timed(arguments: Sequence[str]) -> tuple[float, float]:
    """Run Python once; give its wall-clock and CPU time, s."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} ended with {child.returncode}")
    return wall, used.ru_utime + used.ru_stime


def counted(arguments: Sequence[str]) -> int:
    """Give the instructions that Python takes for it, by valgrind."""
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as directory:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/out", sys.executable, *arguments],
            cwd=ROOT,
            env=_environment() | {"PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    found = re.search(r"refs:\s+([\d,]+)", done.stderr)
    if found is None:
        raise RuntimeError("valgrind says no number of instructions")
    return int(found[1].replace(",", ""))


def measure(rounds: int, *, count: bool = False) -> tuple[list[dict[str, Any]], str]:
    """Measure all commands.

    Parameters
    ----------
    rounds
        Processes of each, after one that fills the caches.
    count
        Count instructions too.

    Returns
    -------
    tuple
        A row for every command (times in s), and the digest of the run.
    """
    with tempfile.TemporaryDirectory(prefix="fabemu-bench-") as directory:
        wanted = commands(Path(directory))
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
        for turn in range(rounds + 1):
            for name, arguments in wanted.items():
                took = timed(arguments)
                if turn:
                    times[name].append(took)
        rows: list[dict[str, Any]] = []
        for name, arguments in wanted.items():
            wall, cpu = zip(*times[name], strict=True)
            row = {
                "name": name,
                "wall_s": statistics.median(wall),
                "cpu_s": statistics.median(cpu),
                "least_s": min(wall),
            }
            if count:
                row["instructions"] = counted(arguments)
            rows.append(row)
        digest = json.loads((Path(directory) / "run" / "run.json").read_text(encoding="utf-8"))["digest"]
    return rows, digest


def main(arguments: list[str] | None = None) -> int:
    """Print a table of commands, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="processes of each, of which the median is shown")
    parser.add_argument("--count", action="store_true", help="count instructions too; needs valgrind, takes minutes")
    parser.add_argument("--smoke", action="store_true", help="one of each: shows that it works, not how fast")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.count and shutil.which("valgrind") is None:
        parser.error("--count needs valgrind, which is not there")
    facts = machine()
    rows, digest = measure(1 if options.smoke else options.rounds, count=options.count)
    if options.json:
        print(json.dumps({"machine": facts, "digest": digest, "results": rows}, indent=1))
        return 0
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    print(f"{'command':10}{'wall ms':>9}{'CPU ms':>9}{'least':>8}{'M instructions':>16}")
    for row in rows:
        count = f"{row['instructions'] / 1e6:16,.0f}" if options.count else ""
        print(f"{row['name']:10}{row['wall_s'] * 1e3:9.0f}{row['cpu_s'] * 1e3:9.0f}{row['least_s'] * 1e3:8.0f}{count}")
    print(f"digest of the run {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
