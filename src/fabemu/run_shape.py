"""What ``run.json`` holds, by JSON type: a file that was edited or damaged is told from one that can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fabemu.errors import InputError

_COUNTS = {"*": int}

_SHAPE: dict[str, Any] = {
    "status": str,
    "ended_by": str,
    "error": str,
    "name": str,
    "version": str,
    "seed": int,
    "plan_digest": str,
    "digest": str,
    "started": str,
    "engine": str,
    "trace": {"schema_version": int, "tables": [str], "packets": str},
    "warnings": [str],
    "findings": [{"code": str, "severity": str, "places": [str], "message": str, "figures": dict}],
    "scenario": dict,
    "simulated_ps": int,
    "totals": _COUNTS,
    "messages": _COUNTS,
    "rows": _COUNTS,
    "wall_seconds": float,
    "cpu_seconds": float,
    "packet_hops_per_cpu_second": float,
    "peak_memory_bytes": int,
    "hops_by_threads": {"#": int},
    "invariants": [{"name": str, "held": bool, "detail": str}],
    "deadlocks": [{"time_ps": int, "class": str, "queues": [{"port": str, "bytes": int}]}],
}
"""A type, the keys of a table ("*" for any, "#" for whole numbers), or a list and what its elements are.

Other keys may hold anything."""

_NEEDED = {
    "messages": ("count", "done", "failed", "unfinished", "not_run"),
    "totals": ("packet_hops",),
    "invariants": ("name", "held", "detail"),
    "deadlocks": ("time_ps", "class", "queues"),
    "queues": ("port", "bytes"),
    "findings": ("severity",),
}
"""Keys that tables by this name always have."""

_NAMES = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


def check_shape(file: Path, info: Mapping[str, Any]) -> None:
    """Refuse a ``run.json`` that no run has written.

    Parameters
    ----------
    file, info
        Where it lies, and what it holds.

    Raises
    ------
    InputError
        A value has another type than it is written with, or is missing from a table that always has it.
    """
    found = next(_wrong(info, _SHAPE, ""), None)
    # Both are written at once, when a run ends.
    if found is None and "totals" in info and "simulated_ps" not in info and info.get("status") != "running":
        found = "simulated_ps is missing"
    if found is not None:
        raise InputError(f"{file}: {found}: the file is damaged; run the scenario again")


def _wrong(value: Any, shape: Any, place: str, needed: tuple[str, ...] = ()) -> Iterator[str]:
    """What is wrong with a value, in words."""
    kind = type(shape) if isinstance(shape, dict | list) else shape
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = is_number and (kind is float or isinstance(value, int)) if kind in (int, float) else isinstance(value, kind)
    if fits and is_number and not -(2**63) <= value < 2**63:
        yield f"{place} is beyond the numbers of 64 bits"
    elif not fits:
        shown = f" ({value!r})" if isinstance(value, int | float | str) and len(str(value)) <= 40 else ""
        yield f"{place} is {_NAMES[type(value)]}{shown}, not {_NAMES[kind]}"
    elif isinstance(shape, dict):
        yield from (f"{place}.{key} is missing" for key in needed if key not in value)
        for key, item in value.items():
            if "#" in shape and re.fullmatch("[0-9]{1,9}", key) is None:
                yield f"{place} has the key {key!r}, which is no whole number"
            inner = shape.get(key, shape.get("*", shape.get("#")))
            if inner is not None:
                yield from _wrong(item, inner, f"{place}.{key}".lstrip("."), _NEEDED.get(key, ()))
    elif isinstance(shape, list):
        name = place.rpartition(".")[2]
        if not value and name == "queues":  # a cycle has some
            yield f"{place} is empty"
        for index, item in enumerate(value):
            yield from _wrong(item, shape[0], f"{place}.{index}", _NEEDED.get(name, ()))
