"""`python -m tests.parity.replay PLAN.npz`: compare oracle and core on a saved plan."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from tests.oracle.simulator import simulate
from tests.parity.compare import differences, load_plan, run_core


def main(path: str) -> int:
    """Print the plan's values and every difference; 0 if there is none."""
    plan = load_plan(Path(path))
    for item in fields(plan):
        value = getattr(plan, item.name)
        print(item.name, value.tolist() if hasattr(value, "tolist") else value)
    found = differences(simulate(plan), run_core(plan))
    print("\n".join(found) or "no difference")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
