"""Flow files of the HPCC family: who sends how much to whom, and when."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from fabemu.deferred import dataclass
from fabemu.importers.hpcc_lines import Line, counted, read_lines, time_ns, whole
from fabemu.importers.hpcc_topology import HpccTopology

_FORMS = {
    "HPCC": "src dst pg dport bytes start_s",
    "ConWeave": "src dst pg bytes start_s",
    "ns3-rdma": "src dst priority packets start_s end_s",
}
_FIRST_SPORT = 10_000
_SIZE_LIMIT = 2**46


@dataclass(frozen=True)
class HpccFlow:
    """One line of the file.

    Attributes
    ----------
    src, dst
        Node ids, both hosts.
    priority_group
        1 .. 7.
    size
        Payload bytes, or packets in the ns3-rdma form.
    start_ns
        Whole ns, as ns-3 truncates them.
    sport
        UDP source port that the simulator gives the flow.
    line
        Number of the line.
    """

    src: int
    dst: int
    priority_group: int
    size: int
    start_ns: int
    sport: int
    line: int


@dataclass(frozen=True)
class HpccFlows:
    """A flow file.

    Attributes
    ----------
    source
        Path of the file.
    form
        "HPCC", "ConWeave" or "ns3-rdma" (which counts packets, not bytes).
    flows
        In the order of the file.
    notes
        What the import leaves out.
    """

    source: str
    form: str
    flows: tuple[HpccFlow, ...]
    notes: tuple[str, ...]


def read_flows(path: Path, topology: HpccTopology) -> HpccFlows:
    """Read a flow file and check it against its topology.

    Raises
    ------
    InputError
        The file is malformed, or a flow cannot run on the topology; file, line and reason are named.
    """
    lines = read_lines(path)
    header = lines[0]
    if len(header.fields) != 1:
        raise header.error(f"{header.text()}: line 1 must be the number of flows and nothing else")
    count = header.integer(0, "the number of flows")
    if count < 0:
        raise header.error(f"the number of flows is {count}; it cannot be negative")
    data = counted(lines[1:], count, header, "flow", (_is_flow(line) for line in lines[1:]))
    form = _form(data)
    linked = {end for link in topology.links for end in (link.a, link.b)}
    switches = set(topology.switches)
    pair_count: dict[tuple[int, int], int] = {}
    flows = []
    for line in data:
        src, dst = (_host(line, index, topology, switches, linked) for index in (0, 1))
        if src == dst:
            raise line.error(f"flow from node {src} to itself")
        # The simulator numbers the ports of a pair as they come, in 16 bits.
        sport = (_FIRST_SPORT + pair_count.get((src, dst), 0)) % 2**16
        pair_count[src, dst] = pair_count.get((src, dst), 0) + 1
        flows.append(_flow(line, form, src, dst, sport))
    return HpccFlows(str(path), form, tuple(flows), _notes(str(path), form, data, flows))


def _is_flow(line: Line) -> bool:
    """Whether a line begins with three whole numbers, or two and enough more to be a flow with a mistake."""
    numbers = [whole(field) is not None for field in line.fields[:3]]
    return len(line.fields) >= 3 and all(numbers[:2]) and (numbers[2] or len(line.fields) in (5, 6))


def _form(data: list[Line]) -> str:
    """Tell the forms apart; all lines of a file have one form."""
    if not data:
        return "HPCC"
    width = len(data[0].fields)
    if width not in (5, 6):
        known = "; ".join(f"{len(form.split())} ({form}, {name})" for name, form in _FORMS.items())
        raise data[0].error(f"{data[0].text()} has {width} fields; known are {known}")
    for line in data:
        if len(line.fields) != width:
            raise line.error(
                f"{line.text()} has {len(line.fields)} fields, but the flow in line {data[0].number} has {width}"
            )
    if width == 5:
        return "ConWeave"
    # ns3-rdma ends with start and end time, HPCC with bytes and start time. Bytes are whole numbers.
    fractional = any(whole(line.fields[4]) is None for line in data)
    ordered = all(line.number_at(4, "the fifth field") <= line.number_at(5, "the last field") for line in data)
    return "ns3-rdma" if fractional and ordered else "HPCC"


def _host(line: Line, index: int, topology: HpccTopology, switches: set[int], linked: set[int]) -> int:
    """Read a node id that must be a host with a link."""
    role = ("source", "destination")[index]
    node = line.integer(index, f"the {role}")
    if not 0 <= node < topology.node_count:
        raise line.error(
            f"{role} {node} is no node of {topology.source}, which has nodes 0 to {topology.node_count - 1}"
        )
    if node in switches:
        raise line.error(f"{role} {node} is a switch; only hosts send and receive")
    if node not in linked:
        raise line.error(f"{role} {node} has no link in {topology.source}")
    return node


def _flow(line: Line, form: str, src: int, dst: int, sport: int) -> HpccFlow:
    """Read the rest of a flow."""
    group = line.integer(2, "the priority group")
    if not 0 <= group <= 7:
        raise line.error(f"priority group {group} is not between 1 and 7")
    if group == 0:
        raise line.error(
            "priority group 0 is served before all others and outside PFC, which is not supported; use 1 to 7"
        )
    size_index, start_index = {"HPCC": (4, 5), "ConWeave": (3, 4), "ns3-rdma": (3, 4)}[form]
    noun = "the number of packets" if form == "ns3-rdma" else "the number of bytes"
    size = line.integer(size_index, noun)
    if size < 0:
        raise line.error(f"{noun} is {size}; it cannot be negative")
    if size >= _SIZE_LIMIT:
        raise line.error(f"{noun} is {size}; it must be below {_SIZE_LIMIT}")
    start = line.number_at(start_index, "the start time")
    if start < 0:
        raise line.error(f"the start time is {line.fields[start_index]} s; it cannot be negative")
    start_ns = time_ns(line.fields[start_index])
    if start_ns is None:
        raise line.error(f"start time {line.fields[start_index]!r} is not a time in seconds below 4e6, such as 2.001")
    return HpccFlow(src, dst, group, size, start_ns, sport, line.number)


def _notes(source: str, form: str, data: list[Line], flows: list[HpccFlow]) -> tuple[str, ...]:
    """What the import leaves out or does otherwise."""
    notes = []
    if form == "ns3-rdma":
        notes.append(f"{source}: end times are not carried over; every flow sends all its packets")
    if form == "HPCC" and len({line.fields[3] for line in data}) > 1:
        notes.append(f"{source}: destination ports are not carried over; all flows go to UDP port 4791")
    unsorted = next((flow for before, flow in pairwise(flows) if flow.start_ns < before.start_ns), None)
    if unsorted is not None:
        notes.append(
            f"{source}:{unsorted.line}: start times are not sorted; flows start in order of time here, "
            "which the simulator does not do"
        )
    empty = next((flow for flow in flows if flow.size == 0), None)
    if empty is not None:
        notes.append(f"{source}:{empty.line}: a flow of 0 bytes sends one frame here; in the simulator it never ends")
    return tuple(notes)
