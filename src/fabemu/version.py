"""Version of the installed package; costs no import until it is asked for."""

from __future__ import annotations


def version() -> str:
    """Version of the installed package, ``"unknown"`` if it runs from a place where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version("fabemu")
    except metadata.PackageNotFoundError:
        return "unknown"
