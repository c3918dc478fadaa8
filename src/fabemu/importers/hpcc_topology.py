"""Topology files of the HPCC family: nodes, switches and links."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from fabemu.deferred import dataclass
from fabemu.importers.hpcc_lines import Line, counted, rate_bps, read_lines, time_ns, whole
from fabemu.scenario.quantity import DEVICES_MAX

_HEADERS = {
    3: ("nodes", "switches", "links"),
    4: ("nodes", "switches", "ToRs", "links"),
    6: ("nodes", "GPUs per server", "NVSwitches", "switches", "links", "GPU type"),
}


@dataclass(frozen=True)
class HpccLink:
    """One line of the file: a full-duplex link."""

    a: int
    b: int
    rate_bps: int
    delay_ns: int
    line: int


@dataclass(frozen=True)
class HpccTopology:
    """A topology file.

    Attributes
    ----------
    source
        Path of the file.
    node_count
        Nodes 0 .. node_count - 1.
    switches
        Ids of the switches, ascending; all other nodes are hosts.
    links
        In the order of the file, which numbers the interfaces.
    notes
        What the import leaves out.
    """

    source: str
    node_count: int
    switches: tuple[int, ...]
    links: tuple[HpccLink, ...]
    notes: tuple[str, ...]

    @cached_property
    def _switch_set(self) -> frozenset[int]:
        return frozenset(self.switches)

    @property
    def hosts(self) -> tuple[int, ...]:
        """Ids of the hosts, ascending."""
        return tuple(node for node in range(self.node_count) if node not in self._switch_set)

    def name(self, node: int) -> str:
        """Name of a node in the scenario: its kind and its id in the file."""
        return f"sw{node}" if node in self._switch_set else f"h{node}"


def read_topology(path: Path) -> HpccTopology:
    """Read a topology file: the HPCC form, that of PowerTCP (four numbers in line 1) or of SimAI (six fields).

    Raises
    ------
    InputError
        The file is malformed, or has what fabemu does not model; file, line and reason are named.
    """
    lines = read_lines(path)
    header = lines[0]
    names = _HEADERS.get(len(header.fields))
    if names is None:
        raise header.error(
            f"line 1 has {len(header.fields)} fields; known are 3 (nodes switches links), "
            "4 (nodes switches ToRs links) and 6 (nodes GPUs-per-server NVSwitches switches links GPU-type)"
        )
    counts = {name: header.integer(index, f"the number of {name}") for index, name in enumerate(names[:5])}
    for name, count in counts.items():
        if count < 0:
            raise header.error(f"the number of {name} is {count}; it cannot be negative")
    node_count = counts["nodes"]
    switch_count = counts["switches"] + counts.get("NVSwitches", 0)
    if node_count < 1:
        raise header.error("the number of nodes is 0; a topology needs at least one")
    if node_count > DEVICES_MAX:
        raise header.error(f"the number of nodes is {node_count}; at most {DEVICES_MAX} are supported")
    if switch_count > node_count:
        raise header.error(f"{switch_count} switches among {node_count} nodes")
    switches, rest = _switches(lines, switch_count, node_count)
    data = counted(rest, counts["links"], header, "link", (_is_link(line) for line in rest))
    links = tuple(_link(line, node_count) for line in data)

    notes = []
    if counts.get("NVSwitches"):
        notes.append(f"{path}: {counts['NVSwitches']} NVSwitches become switches like the others")
    pairs: set[tuple[int, int]] = set()
    for link in links:
        pair = (min(link.a, link.b), max(link.a, link.b))
        if pair in pairs:
            notes.append(
                f"{path}:{link.line}: nodes {link.a} and {link.b} have parallel links; here all of them carry traffic, "
                "in HPCC only the last one does"
            )
            break
        pairs.add(pair)
    return HpccTopology(str(path), node_count, tuple(sorted(switches)), links, tuple(notes))


def _switches(lines: list[Line], count: int, node_count: int) -> tuple[list[int], list[Line]]:
    """Read the switch ids from line 2 (and on, if they are wrapped), and return them with the lines that follow."""
    switches: dict[int, int] = {}
    position = 1
    while len(switches) < count:
        if position == len(lines):
            raise lines[0].error(f"the header says {count} switches, but the file has {len(switches)} switch ids")
        line = lines[position]
        if position > 1 and not all(whole(field) is not None for field in line.fields):
            raise line.error(
                f"{line.text()} where switch ids are expected: the header says {count} switches, "
                f"but only {len(switches)} ids come before"
            )
        for index, field in enumerate(line.fields):
            node = line.integer(index, "a switch id")
            if not 0 <= node < node_count:
                raise line.error(f"switch id {field} is out of range; the header says nodes 0 to {node_count - 1}")
            if node in switches:
                raise line.error(f"switch id {node} is listed twice")
            if len(switches) == count:
                raise line.error(
                    f"{len(line.fields)} switch ids, but the header says {count} switches; "
                    f"the first surplus one is {field}"
                )
            switches[node] = line.number
        position += 1
    return list(switches), lines[position:]


def _is_link(line: Line) -> bool:
    """Whether a line begins with two node ids and something like a rate."""
    fields = line.fields
    return (
        len(fields) >= 3
        and whole(fields[0]) is not None
        and whole(fields[1]) is not None
        and fields[2][0] in "0123456789.+-"
    )


def _link(line: Line, node_count: int) -> HpccLink:
    """Read one link and check it."""
    if len(line.fields) != 5:
        raise line.error(f"{line.text()} has {len(line.fields)} fields; a link has 5: a b rate delay loss")
    ends = []
    for index in (0, 1):
        node = line.integer(index, "a node id")
        if not 0 <= node < node_count:
            raise line.error(f"link to unknown node {node}; the header says nodes 0 to {node_count - 1}")
        ends.append(node)
    if ends[0] == ends[1]:
        raise line.error(f"link from node {ends[0]} to itself")
    rate = rate_bps(line.fields[2])
    if rate is None:
        raise line.error(f"rate {line.fields[2]!r} is not a rate from 1bps to 100Tbps, such as 100Gbps or 100000000000")
    delay = time_ns(line.fields[3])
    if delay is None:
        raise line.error(f"delay {line.fields[3]!r} is not a time, such as 1000ns, 0.001ms or (in seconds) 0.000001")
    loss = line.number_at(4, "the loss rate")
    if not 0 <= loss <= 1:
        raise line.error(f"loss rate {line.fields[4]} is not between 0 and 1")
    if loss > 0:
        raise line.error(f"loss rate {line.fields[4]}: links that lose packets are not supported yet; only 0 is")
    return HpccLink(ends[0], ends[1], rate, delay, line.number)
