"""Where the time of a run goes: `python -m bench.profile SCENARIO.toml` or `python -m bench.profile CASE`.

With perf: samples of the CPU clock, each with the chain of functions of the core that were inlined around it, by
function and, with `--folded`, as a file that flame graphs are drawn from. Without perf, valgrind's callgrind: the
instructions of each function, as `bench.breakdown` counts them. Either works on a core that is built with debug
information into `build/breakdown`.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import breakdown

_SAMPLE = re.compile(r"\s*[0-9a-f]+ (\S+?)(?:\+0x([0-9a-f]+))? \((.*)\)$")
_SYMBOL = re.compile(r"([0-9a-f]+) [tT] (\S+)$")
_MANGLED = re.compile(r"__pyx_(?:f|pf|pw|fuse)_\d*fabemu_5_core_")

Stack = tuple[str, ...]
"""Functions from the outermost to the innermost."""


def plain_name(name: str) -> str:
    """Name of a function of the core with its room, such as "mmu.mmu_admit", of the name that Cython makes of it."""
    found = _MANGLED.match(name)
    if found is None:
        return name
    parts, rest = [], name[found.end() :]
    while (length := re.match(r"\d+", rest)) and len(rest) > length.end() + int(length[0]):
        begin = length.end()
        parts.append(rest[begin : begin + int(length[0])])
        rest = rest[begin + int(length[0]) :].lstrip("_")
    return ".".join([*parts, rest])


def read_samples(text: str) -> collections.Counter[tuple[str, int, str]]:
    """Samples by symbol, offset in it and file, of what `perf script -F ip,sym,symoff,dso` prints."""
    samples: collections.Counter[tuple[str, int, str]] = collections.Counter()
    for line in text.splitlines():
        if found := _SAMPLE.match(line):
            samples[found[1], int(found[2] or "0", 16), found[3]] += 1
    return samples


def read_inlined(text: str) -> dict[int, Stack]:
    """Chains of functions by address, of what `addr2line -a -f -i` prints."""
    chains: dict[int, list[str]] = {}
    address, is_name = -1, True
    for line in text.splitlines():
        if line.startswith("0x"):
            address, is_name = int(line, 16), True
            chains[address] = []
        elif address >= 0:
            if is_name:
                chains[address].append(plain_name(line))
            is_name = not is_name
    return {address: tuple(reversed(names)) for address, names in chains.items()}


def folded_text(stacks: collections.Counter[Stack]) -> str:
    """One line a stack, functions joined by semicolons, and its count: what flame graphs are drawn from."""
    return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(stacks.items()))


def main(arguments: list[str] | None = None) -> int:
    """Print what each function of the core costs; exit code 1 if nothing that measures is installed."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("what", metavar="SCENARIO|CASE", help="a scenario file, or a benchmark")
    parser.add_argument("--hops", type=int, help="packet hops; default: 20 million with perf, 400,000 with callgrind")
    parser.add_argument("--functions", type=int, default=30, help="how many to show")
    parser.add_argument("--with", dest="tool", choices=("perf", "callgrind"), help="default: perf where it is")
    parser.add_argument("--folded", type=Path, help="write stacks and their samples to this file, for flame graphs")
    parser.add_argument("--smoke", action="store_true", help="benchmarks on their small fabric")
    options = parser.parse_args(arguments)
    tools = {"perf": shutil.which("perf"), "callgrind": shutil.which("valgrind")}
    tool = options.tool or next((name for name, path in tools.items() if path is not None), None)
    if tool is None or tools[tool] is None:
        missing = "perf and valgrind are" if tool is None else f"{'valgrind' if tool == 'callgrind' else tool} is"
        print(f"no profile: {missing} not installed", file=sys.stderr)
        return 1
    if tool == "perf" and (absent := [name for name in ("addr2line", "nm") if shutil.which(name) is None]):
        print(f"no profile: perf needs {' and '.join(absent)}, of the GNU binutils", file=sys.stderr)
        return 1
    hops = options.hops or (20_000_000 if tool == "perf" else 400_000)
    try:
        plan = _plan(options.what, smoke=options.smoke)
        breakdown.build_core()
        with tempfile.TemporaryDirectory(prefix="fabemu-profile-") as directory:
            plan_path = Path(directory) / "plan.pickle"
            plan_path.write_bytes(pickle.dumps(plan))
            if tool == "perf":
                stacks, made = _sampled(str(tools[tool]), plan_path, hops)
            else:
                stacks, made = _counted(str(tools[tool]), plan_path, hops)
    except (RuntimeError, ValueError) as error:
        print(f"no profile: {error}", file=sys.stderr)
        return 1
    _show(stacks, made, "samples" if tool == "perf" else "instructions", options.functions)
    if options.folded is not None:
        options.folded.write_text(folded_text(stacks), encoding="utf-8")
    return 0


def _plan(what: str, *, smoke: bool) -> object:
    """The plan of a benchmark or of a scenario file; ValueError if it is neither."""
    from bench.cases import CASES, build
    from fabemu.compile import compile_plan
    from fabemu.errors import FabemuError
    from fabemu.scenario import load_scenario

    if what in CASES:
        return build(CASES[what], smoke=smoke)[1].plan
    path = Path(what)
    if not path.is_file():
        raise ValueError(f"{what} is neither a scenario file nor one of {', '.join(CASES)}")
    try:
        return compile_plan(load_scenario(path), base_dir=path.parent).plan
    except FabemuError as error:
        raise ValueError(str(error)) from error


def _sampled(perf: str, plan_path: Path, hops: int) -> tuple[collections.Counter[Stack], int]:
    """Samples by stack, and packet hops; the clock is one that virtual machines have, too."""
    data = plan_path.with_name("perf.data")
    done = breakdown.run_step(
        [perf, "record", "-q", "-e", "cpu-clock:u", "-F", "1999", "-o", str(data)], plan_path, hops
    )
    script = _output([perf, "script", "-i", str(data), "-F", "ip,sym,symoff,dso"])
    samples = read_samples(script)
    (core,) = (breakdown.BUILD / "fabemu" / "_core").glob("engine.*so")
    starts = {
        found[2]: int(found[1], 16) for row in _output(["nm", str(core)]).splitlines() if (found := _SYMBOL.match(row))
    }
    addresses = {
        (symbol, offset): starts[symbol] + offset
        for symbol, offset, file in samples
        if Path(file).name == core.name and symbol in starts
    }
    wanted = "\n".join(hex(address) for address in addresses.values())
    chains = read_inlined(_output(["addr2line", "-a", "-f", "-i", "-e", str(core)], wanted)) if addresses else {}
    stacks: collections.Counter[Stack] = collections.Counter()
    for (symbol, offset, file), count in samples.items():
        is_core = Path(file).name == core.name
        chain = chains.get(addresses.get((symbol, offset), -1)) if is_core else None
        stacks[chain or ((plain_name(symbol),) if is_core else (f"[{Path(file).name}]",))] += count
    if not any(chains.values()):
        raise RuntimeError(
            "perf took no sample in the core: the run is too short, or it may not sample on this machine"
        )
    return stacks, int(done.stdout.split()[-1])


def _counted(valgrind: str, plan_path: Path, hops: int) -> tuple[collections.Counter[Stack], int]:
    """Instructions by room and function, and packet hops."""
    found = breakdown.count_by_line(valgrind, plan_path, hops)
    stacks: collections.Counter[Stack] = collections.Counter()
    for (room, function), count in breakdown.by_function(found).items():
        stacks[room.partition(".")[0], function or "(no function)"] += count
    return stacks, found.hops


def _output(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _show(stacks: collections.Counter[Stack], hops: int, unit: str, count: int) -> None:
    # What is not of the core is the start of Python and the making of the engine.
    outside = sum(cost for stack, cost in stacks.items() if stack[0].startswith("["))
    stacks = collections.Counter({stack: cost for stack, cost in stacks.items() if not stack[0].startswith("[")})
    total = sum(stacks.values())
    own: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    for stack, cost in stacks.items():
        own[".".join(stack[-2:]) if unit == "instructions" else stack[-1]] += cost
        for name in set(stack):
            within[name] += cost
    per_hop = f"{1000 * total / hops:.1f} per 1,000 hops"
    print(f"{total:,} {unit} in the core over {hops:,} packet hops: {per_hop}; {outside:,} outside")
    print("\nown share, per 1,000 hops")
    for name, cost in own.most_common(count):
        print(f"{cost / total:8.1%} {1000 * cost / hops:12.2f}  {name}")
    if unit == "samples":
        print("\nshare with what was called and inlined")
        for name, cost in within.most_common(count):
            print(f"{cost / total:8.1%} {1000 * cost / hops:12.2f}  {name}")


if __name__ == "__main__":
    sys.exit(main())
