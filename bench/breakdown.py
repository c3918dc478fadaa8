"""Where the instructions of one packet hop go: `python -m bench.breakdown CASE`.

Counts with valgrind's callgrind and attributes every instruction of the compiled core to the line of Cython that it
comes from; without valgrind, perf gives the total alone. Counts do not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import collections
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "breakdown"
SOURCES = ROOT / "ext" / "fabemu" / "_core"

_ORIGIN = re.compile(r'\s*/\* "(?:[\w./-]*/)?(\w+\.p(?:xd|yx))":(\d+)')
_FUNCTION = re.compile(r"(?:cdef|cpdef|def)\b[^=(]*?(\w+)\(")
_NAME = re.compile(r"\((\d+)\)(?: (.*))?")

Line = tuple[str, int]
"""Cython file and line."""


@dataclass(frozen=True)
class Breakdown:
    """Instructions by line of Cython, and the packet hops they made."""

    cost: collections.Counter[Line]
    hops: int


def line_origins(c_text: str) -> list[Line | None]:
    """Line of Cython behind every line of the generated C; index 0 is not used."""
    origins: list[Line | None] = [None]
    current: Line | None = None
    for text in c_text.splitlines():
        if found := _ORIGIN.match(text):
            current = (found[1], int(found[2]))
        origins.append(current)
    return origins


def read_callgrind(text: str, file_name: str) -> collections.Counter[int]:
    """Instructions by line of one source file, calls not included, from a callgrind profile."""
    files: dict[str, str] = {}
    cost: collections.Counter[int] = collections.Counter()
    here, line, is_call = "", 0, False

    def name(field: str) -> str:
        found = _NAME.match(field)
        if found is None:
            return field
        if found[2]:
            files[found[1]] = found[2]
        return files.get(found[1], "")

    for row in text.splitlines():
        key, is_assignment, value = row.partition("=")
        if is_assignment:
            if key in ("fl", "fi", "fe"):
                here = name(value)
            elif key in ("cfi", "cfl"):
                name(value)
            is_call = key == "calls"
            continue
        parts = row.split()
        if not parts or not re.match(r"[+*\-\d]", parts[0]):
            continue
        # Positions are given as they are, or relative to the last one.
        if parts[0][0] in "+-":
            line += int(parts[0])
        elif parts[0] != "*":
            line = int(parts[0])
        if is_call:
            is_call = False  # what the callee cost
        elif here.endswith(file_name) and len(parts) > 1:
            cost[line] += int(parts[1])
    return cost


def functions_of(source: str) -> list[str]:
    """Name of the function that every line is in; index 0 is not used."""
    names, current = [""], ""
    for text in source.splitlines():
        if found := _FUNCTION.match(text.strip() if text.startswith("    def ") else text):
            current = found[1]
        names.append(current)
    return names


def build_core() -> None:
    """Compile the core with debug information into a directory of its own; the installed one stays."""
    command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={BUILD}", f"--build-temp={BUILD / 'temp'}"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "FABEMU_PROFILE": "profile"}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the core does not build: {done.stderr.strip()[-2000:]}")
    # Another build may write the C file anew; line numbers must stay those of this one.
    shutil.copy(SOURCES / "engine.c", BUILD / "engine.c")


def step(plan_path: Path, hops: int) -> int:
    """Run a stored plan with the core of `build_core` for about so many hops; return how many it were."""
    import fabemu._core

    fabemu._core.__path__.insert(0, str(BUILD / "fabemu" / "_core"))
    from fabemu._core.engine import Engine

    from fabemu.plan import FOREVER_PS

    engine = Engine(pickle.loads(plan_path.read_bytes()))
    engine.run(FOREVER_PS, hops)
    return int(engine.packet_hops)


def main(arguments: list[str] | None = None) -> int:
    """Print instructions per hop by room of the core, by function and by line."""
    parser = argparse.ArgumentParser(prog="python -m bench.breakdown", description=__doc__)
    parser.add_argument("case", nargs="?", default="clean-128", help="benchmark, default: clean-128")
    parser.add_argument("--hops", type=int, default=400_000, help="packet hops to count over")
    parser.add_argument("--lines", type=int, default=25, help="how many lines to show")
    parser.add_argument("--smoke", action="store_true", help="small fabric")
    parser.add_argument("--step", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step is not None:
        print(step(options.step, options.hops))
        return 0
    from bench.cases import CASES, build

    if options.case not in CASES:
        parser.error(f"no benchmark is named {options.case!r}; there are {', '.join(CASES)}")
    valgrind, perf = shutil.which("valgrind"), shutil.which("perf")
    if valgrind is None and perf is None:
        print("no breakdown: neither valgrind nor perf is installed", file=sys.stderr)
        return 1
    _, compiled, _ = build(CASES[options.case], smoke=options.smoke)
    try:
        build_core()
        with tempfile.TemporaryDirectory(prefix="fabemu-breakdown-") as directory:
            plan_path = Path(directory) / "plan.pickle"
            plan_path.write_bytes(pickle.dumps(compiled.plan))
            if valgrind is not None:
                _show(count_by_line(valgrind, plan_path, options.hops), options.lines)
            else:
                assert perf is not None
                print(f"{_count_in_all(perf, plan_path, options.hops):.1f} instructions per hop (perf, no lines)")
    except RuntimeError as error:
        print(f"no breakdown: {error}", file=sys.stderr)
        return 1
    return 0


def run_step(prefix: list[str], plan_path: Path, hops: int) -> subprocess.CompletedProcess[str]:
    """Do `step` in a process under a tool that measures; raises RuntimeError if it fails."""
    path = os.pathsep.join(part for part in (str(ROOT), *sys.path) if part)
    command = [*prefix, sys.executable, "-m", "bench.breakdown", "--step", str(plan_path), "--hops", str(hops)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{prefix[0]} failed: {done.stderr.strip()[-2000:]}")
    return done


def count_by_line(valgrind: str, plan_path: Path, hops: int) -> Breakdown:
    """Instructions of a stored plan by line of Cython; raises RuntimeError if they cannot be counted."""
    profile = plan_path.with_name("callgrind.out")
    prefix = [valgrind, "--tool=callgrind", f"--callgrind-out-file={profile}", "--dump-line=yes"]
    done = run_step(prefix, plan_path, hops)
    by_line = read_callgrind(profile.read_text(encoding="utf-8"), "engine.c")
    origins = line_origins((BUILD / "engine.c").read_text(encoding="utf-8"))
    cost: collections.Counter[Line] = collections.Counter()
    for line, count in by_line.items():
        origin = origins[line] if line < len(origins) else None
        cost[origin or ("engine.c", 0)] += count
    if not cost:
        raise RuntimeError("the profile has no line of the core: it was built without debug information")
    return Breakdown(cost, int(done.stdout.split()[-1]))


def _count_in_all(perf: str, plan_path: Path, hops: int) -> float:
    """Instructions per hop: those of a run less those of one that ends at once."""
    counts = []
    made = 0
    for budget in (1, hops):
        done = run_step([perf, "stat", "-x,", "-e", "instructions:u"], plan_path, budget)
        fields = done.stderr.strip().splitlines()[-1].split(",")
        if not fields[0].isdigit():
            raise RuntimeError("perf cannot count instructions on this machine")
        counts.append(int(fields[0]))
        made = int(done.stdout.split()[-1]) - made
    return (counts[1] - counts[0]) / made


def by_function(breakdown: Breakdown) -> collections.Counter[tuple[str, str]]:
    """Instructions by file and function."""
    parts: collections.Counter[tuple[str, str]] = collections.Counter()
    functions: dict[str, list[str]] = {}
    for (file, line), count in breakdown.cost.items():
        if file not in functions:
            path = SOURCES / file
            is_source = path.suffix in (".pxd", ".pyx") and path.exists()
            functions[file] = functions_of(path.read_text(encoding="utf-8")) if is_source else []
        parts[file, functions[file][line] if line < len(functions[file]) else ""] += count
    return parts


def _show(breakdown: Breakdown, line_count: int) -> None:
    hops = breakdown.hops
    sources = {file: SOURCES / file for file, _ in breakdown.cost if (SOURCES / file).suffix in (".pxd", ".pyx")}
    texts = {file: path.read_text(encoding="utf-8").splitlines() for file, path in sources.items() if path.exists()}
    rooms: collections.Counter[str] = collections.Counter()
    for (file, _), count in breakdown.cost.items():
        rooms[file] += count
    print(f"{sum(rooms.values()) / hops:.1f} instructions per hop, over {hops} hops")
    print("\nby room")
    for room, count in rooms.most_common():
        if count / hops >= 0.05:
            print(f"{count / hops:8.1f}  {room}")
    print("\nby function")
    for (room, function), count in by_function(breakdown).most_common(line_count):
        print(f"{count / hops:8.1f}  {room} {function}")
    print("\nby line")
    for (file, line), count in breakdown.cost.most_common(line_count):
        text = texts[file][line - 1].strip() if file in texts and line <= len(texts[file]) else ""
        print(f"{count / hops:8.1f}  {file}:{line}  {text[:90]}")


if __name__ == "__main__":
    sys.exit(main())
