"""Memory that this process may still take: of the machine, of its control groups, of its address space."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from fabemu.deferred import dataclass

_GROUPS = Path("/sys/fs/cgroup")
_PROCESS = Path("/proc/self")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Room:
    """Memory that a process may take, all in all."""

    bytes: int
    limit: str  # what sets it: "this machine", "the control group", "ulimit -v"

    def __str__(self) -> str:
        """For messages: "8.0 GB (the control group)"."""
        return f"{size_text(self.bytes)} ({self.limit})"


def room() -> Room | None:
    """Memory that this process could have at its peak: what it has and what is free; None if nothing tells.

    The least of what the machine, its control groups (Linux; versions 1 and 2) and the limit of the address space
    leave.
    """
    own = _own_bytes()
    found = [*_machine(own), *_groups(own), *_address_space(own)]
    return min(found, key=lambda item: item.bytes) if found else None


def size_text(size_bytes: float) -> str:
    """Bytes to two figures: "12 GB"."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{size_bytes / 1e3:.0f} kB"


def _own_bytes() -> int:
    """Resident memory of this process."""
    try:
        pages = int((_PROCESS / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _machine(own: int) -> Iterator[Room]:
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield Room(int(line.split()[1]) * 1024 + own, "this machine")
    except (OSError, ValueError, IndexError):
        return


def _groups(own: int) -> Iterator[Room]:
    """Limits of the control groups that the process is in, and of those above them."""
    try:
        lines = (_PROCESS / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, name = [*line.split(":", 2), "", ""][:3]
        path = name.strip("/")
        if number == "0":
            yield from _limits(_GROUPS, path, "memory.max", "memory.current", own)
        elif "memory" in controllers.split(","):
            yield from _limits(_GROUPS / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", own)


def _limits(top: Path, path: str, limit_name: str, usage_name: str, own: int) -> Iterator[Room]:
    places = [top / path, *(top / path).parents]
    for place in places[: len(Path(path).parts) + 1]:
        try:
            limit = int((place / limit_name).read_text(encoding="ascii"))
            usage = int((place / usage_name).read_text(encoding="ascii"))
            cached = _reclaimable(place / "memory.stat")
        except (OSError, ValueError):
            continue  # no limit ("max"), or none of these files: the group at the top
        if limit < 2**60:
            yield Room(max(0, limit - max(0, usage - cached)) + own, "the control group")


def _reclaimable(path: Path) -> int:
    """Bytes of files in memory that the group can give up, as the kernel counts them in MemAvailable."""
    found = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(" ")
        found[name] = int(value)
    return found.get("inactive_file", found.get("total_inactive_file", 0))


def _address_space(own: int) -> Iterator[Room]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        mapped = int((_PROCESS / "statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return
    yield Room(max(0, limit - mapped) + own, "ulimit -v")
