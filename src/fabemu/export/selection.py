"""Which links and which times an export takes."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from fabemu.compile import Compiled
from fabemu.deferred import dataclass
from fabemu.errors import InputError
from fabemu.plan import FOREVER_PS
from fabemu.units import format_time

_SHOWN = 6


@dataclass(frozen=True)
class Selection:
    """Ports and a time window.

    Attributes
    ----------
    ports
        (K,) int64, ids of the ports, ascending.
    from_ps, to_ps
        Times t with from_ps <= t < to_ps.
    """

    ports: NDArray[np.int64]
    from_ps: int = 0
    to_ps: int = FOREVER_PS


def select(
    compiled: Compiled,
    *,
    ports: Sequence[str] = (),
    hosts: Sequence[str] = (),
    from_ps: int = 0,
    to_ps: int | None = None,
) -> Selection:
    """Find ports by patterns; without any, all ports.

    Parameters
    ----------
    compiled
        With the names.
    ports
        Names of ports, with ``*`` and ``?``; without ``#`` they stand for all cables between the two devices.
    hosts
        Names of hosts or switches, with ``*`` and ``?``: their links, in both directions.
    from_ps, to_ps
        Time window; `to_ps` does not belong to it.

    Raises
    ------
    InputError
        A pattern matches nothing, or the window is empty.
    """
    end_ps = FOREVER_PS if to_ps is None else to_ps
    if from_ps >= end_ps:
        raise InputError(
            f"--from {format_time(from_ps)} is not before --to {format_time(end_ps)}; nothing lies between them"
        )
    plan = compiled.plan
    if not ports and not hosts:
        return Selection(np.arange(plan.port_count), from_ps, end_ps)
    chosen = np.zeros(plan.port_count, dtype=np.bool_)
    names = compiled.port_names
    joined = [name.partition("#")[0] for name in names]  # the two devices, whichever cable
    for pattern in ports:
        candidates = names if "#" in pattern else joined
        found = [index for index, name in enumerate(candidates) if fnmatchcase(name, pattern)]
        if not found:
            raise InputError(f'--port "{pattern}" matches none of the {len(names):,} ports{_near(pattern, names)}')
        chosen[found] = True
    for pattern in hosts:
        nodes = [index for index, name in enumerate(compiled.node_names) if fnmatchcase(name, pattern)]
        if not nodes:
            count = len(compiled.node_names)
            near = _near(pattern, compiled.node_names)
            raise InputError(f'--host "{pattern}" matches none of the {count:,} hosts and switches{near}')
        own = np.flatnonzero(np.isin(plan.port_node, nodes))
        chosen[own] = True
        chosen[plan.port_peer[own]] = True
    return Selection(np.flatnonzero(chosen), from_ps, end_ps)


def _near(pattern: str, names: Sequence[str]) -> str:
    """What there is: names like the pattern, else the first ones."""
    near = difflib.get_close_matches(pattern, names[:10_000], 3, 0.7)
    if near:
        return f"; did you mean {', '.join(near)}?"
    shown = ", ".join(names[:_SHOWN])
    return f"; there are {shown}{', ...' if len(names) > _SHOWN else ''}"
