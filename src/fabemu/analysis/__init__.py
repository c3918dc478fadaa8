"""Figures from the trace tables: completion times, pauses, utilisation. Arrow tables in, plain values or tables out."""

from __future__ import annotations

from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Modules of this package, imported when they are first asked for: some of them take long."""
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
