"""Host selectors of a scenario: names, ranges, globs and "all" to host ids."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import numpy as np

from fabemu.scenario.fabric import close_to


class SelectorError(ValueError):
    """A selector names no host; the message says why and what is near."""


class HostNames:
    """The hosts of a fabric by name."""

    def __init__(self, host_names: Sequence[str], switch_names: Sequence[str]) -> None:
        """Take the names of the hosts, by id, and those of the switches, to tell a switch from a typo."""
        self.names = list(host_names)
        self._ids = {name: index for index, name in enumerate(self.names)}
        self._switches = set(switch_names)

    def __len__(self) -> int:
        """Number of hosts."""
        return len(self.names)

    def id(self, name: str) -> int:
        """Id of one host.

        Raises
        ------
        SelectorError
            The name is a switch's or nobody's.
        """
        found = self._ids.get(name)
        if found is not None:
            return found
        if name in self._switches:
            raise SelectorError(f'"{name}" is a switch: only hosts send and receive')
        raise SelectorError(f'there is no host "{name}" in the fabric{close_to(name, self.names)}')

    def select(self, selector: str | Sequence[str]) -> np.ndarray:
        """Ids of the hosts that a selector names, in its order.

        Parameters
        ----------
        selector
            "all", a host name, a range "h0:h63" (both ends included, by position in the fabric), a glob "h1*" (in the
            order of the fabric), or a list of these.

        Returns
        -------
        numpy.ndarray
            (n,) int64, host ids, all different.

        Raises
        ------
        SelectorError
            An unknown name, a range that runs backwards, a glob without a match, or a host named twice.
        """
        parts = [selector] if isinstance(selector, str) else list(selector)
        chosen: list[int] = []
        for part in parts:
            chosen.extend(self._expand(part))
        ids = np.array(chosen, dtype=np.int64)
        unique, counts = np.unique(ids, return_counts=True)
        if len(unique) < len(ids):
            raise SelectorError(f'host "{self.names[int(unique[np.argmax(counts > 1)])]}" is listed twice')
        return ids

    def _expand(self, part: str) -> Sequence[int]:
        """Ids that one element of a selector names."""
        # A host that is really called "all" or "a:b" wins over the notation.
        if part in self._ids:
            return [self._ids[part]]
        if part == "all":
            return range(len(self.names))
        if ":" in part:
            first_name, last_name = (end.strip() for end in part.split(":", 1))
            first, last = self.id(first_name), self.id(last_name)
            if first > last:
                raise SelectorError(f'range "{part}" runs backwards: write "{last_name}:{first_name}"')
            return range(first, last + 1)
        if any(mark in part for mark in "*?["):
            matched = [self._ids[name] for name in self.names if fnmatch.fnmatchcase(name, part)]
            if not matched:
                raise SelectorError(f'no host matches "{part}"')
            return matched
        return [self.id(part)]
