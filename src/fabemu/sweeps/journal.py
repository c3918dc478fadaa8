"""Lines of ``journal.jsonl``: what became of every run, one line each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any, get_args

from fabemu.headline import FIGURES
from fabemu.sweeps.task import HAS_FIGURES, Outcome, Status

_COSTS = {"wall_seconds": "float", "cpu_seconds": "float", "peak_memory_bytes": "int", "worker": "text"}
_KINDS = {name: figure.kind for name, figure in FIGURES.items()}
_LARGEST = 2**63 - 1  # that a column of a table holds


def journal_line(outcome: Outcome) -> bytes:
    """An outcome as a line; bytes of a path that are no text are escaped, as JSON does."""
    return json.dumps(outcome.to_dict(), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def read_journal(journal: IO[bytes]) -> dict[int, Outcome]:
    """What earlier sessions have done, by index of the run.

    A last line that was cut off is removed. Lines that no session has written so (damaged, or edited) are passed over:
    their runs are done again.
    """
    found: dict[int, Outcome] = {}
    journal.seek(0)
    whole = 0
    for line in journal:
        if not line.endswith(b"\n"):
            break
        whole += len(line)
        outcome = _outcome(line)
        if outcome is not None:
            found[outcome.index] = outcome
    journal.truncate(whole)
    journal.seek(0, os.SEEK_END)
    return found


def _outcome(line: bytes) -> Outcome | None:
    """The outcome that a line tells of; None if it is none."""
    try:
        outcome = Outcome(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    is_one = (
        _is_whole(outcome.index, 0)
        and _is_whole(outcome.attempts, 0)
        and outcome.status in get_args(Status)
        and _is_text(outcome.error)
        and _is_text(outcome.settings)
        and _are_of(outcome.figures, _KINDS)
        and _are_of(outcome.cost, _COSTS)
        and bool(outcome.figures) == (outcome.status in HAS_FIGURES)
    )
    return outcome if is_one else None


def _are_of(values: Any, kinds: Mapping[str, str]) -> bool:
    """Whether these are values by name, each of the kind of its name."""
    if not isinstance(values, dict):
        return False
    is_of = {"int": _is_whole, "float": _is_number, "text": _is_text}
    return all(name in kinds and is_of[kinds[name]](value) for name, value in values.items())


def _is_whole(value: Any, least: int = -_LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
